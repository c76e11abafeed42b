"""Transformers on a GPU: what a layer becomes, and that it computes the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import rabbet

from tests.models import reference
from tests.models.transformer import bert_base, gpt2_small

from . import cuda_driver

pytestmark = pytest.mark.skipif(not cuda_driver.available(), reason="no GPU")

SMALL = {
    "layers": 1,
    "hidden": 64,
    "heads": 2,
    "ffn": 128,
    "vocabulary": 100,
    "positions": 64,
}
# Largest difference over the largest value; FLOAT computes as TF32.
BOUNDS = {"tf32": 3e-3, "fp16": 1e-2}
MAKERS = {"bert": bert_base, "gpt2": gpt2_small}


def saved(path: Path, name: str, **dims: int) -> Path:
    onnx.save(MAKERS[name](**SMALL, **dims), path)
    return path


def arrays(name: str, batch: int, sequence: int) -> dict[str, Any]:
    rng = np.random.default_rng(sequence)
    given = {"input_ids": rng.integers(0, 100, (batch, sequence))}
    if name == "bert":
        given["attention_mask"] = np.arange(sequence)[None] < 1 + rng.integers(
            sequence, size=(batch, 1)
        )
    return {key: np.asarray(array, np.int64) for key, array in given.items()}


def check(
    model: rabbet.Model, path: Path, given: dict[str, Any], precision: str
) -> None:
    results = model(**given)
    wanted = reference(path, given)
    found = results if isinstance(results, tuple) else (results,)
    for (name, want), result in zip(wanted.items(), found, strict=True):
        error = np.abs(np.asarray(result, np.float32) - want).max()
        assert error <= BOUNDS[precision] * np.abs(want).max(), name


def kernels(model: rabbet.Model) -> list[str]:
    """Names of kernel classes, in order of execution."""
    assert model.report is not None
    found = []
    for line in model.report.splitlines():
        # The first is the chosen one; alternatives follow.
        found += [word for word in line.split() if word.startswith("cuda.")][:1]
    return found


# Without timing all is fused that may be. A product with what follows it, one
# kernel for all of attention: query, key and value are parts of one product.
LAYER = {
    "bert": [
        "cuda.matmul",
        "cuda.attention",
        "cuda.matmul",
        "cuda.normalization",
        "cuda.matmul",
        "cuda.pointwise",
        "cuda.matmul",
        "cuda.normalization",
    ],
    "gpt2": [
        "cuda.normalization",
        "cuda.matmul",
        "cuda.attention",
        "cuda.matmul",
        "cuda.normalization",
        "cuda.matmul",
        "cuda.matmul",
        "cuda.normalization",
    ],
}


@pytest.mark.parametrize("precision", ["tf32", "fp16"])
@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_a_layer_is_few_kernels(name: str, precision: str, tmp_path: Path) -> None:
    path = saved(tmp_path / "model.onnx", name, batch=2, sequence=40)
    model = rabbet.compile(
        path, device="cuda", fp16=precision == "fp16", optimization_level=0
    )
    check(model, path, arrays(name, 2, 40), precision)
    found = [".".join(kernel.split(".")[:2]) for kernel in kernels(model)]
    text = " ".join(found)
    assert " ".join(LAYER[name]) in text, text
    assert "cuda.softmax" not in found
    # BERT's pooler reads the first token.
    assert found.count("cuda.slice") == (name == "bert"), found
    assert "cuda.shuffle" not in found


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_shapes_that_change(name: str, tmp_path: Path) -> None:
    path = saved(tmp_path / "model.onnx", name)
    names = list(arrays(name, 1, 1))
    shapes = dict.fromkeys(names, ((1, 1), (1, 24), (3, 64)))
    model = rabbet.compile(path, device="cuda", shapes=shapes, optimization_level=0)
    assert any("cuda.attention" in kernel for kernel in kernels(model))
    for batch, sequence in [(1, 24), (3, 64), (2, 33), (1, 1)]:
        check(model, path, arrays(name, batch, sequence), "tf32")
