"""The transformers written for torch give what ONNX Runtime gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.models import make, reference, sample_inputs

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

from bench.peers.torch_transformers import native  # noqa: E402

SMALL = {"layers": 2, "hidden": 48, "heads": 4, "ffn": 96, "vocabulary": 50}


def saved(name: str, path: Path, **options: Any) -> Path:
    model = make(name, batch=3, sequence=16, positions=32, **SMALL, **options)
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("name", ["bert_base", "gpt2_small"])
@pytest.mark.parametrize("compiled", [False, True])
def test_equal(name: str, compiled: bool, tmp_path: Path) -> None:
    path = saved(name, tmp_path / "model.onnx")
    inputs = sample_inputs(path)
    if "attention_mask" in inputs:
        inputs["attention_mask"][:, 0] = 1
        assert not inputs["attention_mask"].all()
    module, names, outputs = native(str(path), heads=4)
    if compiled:
        module = torch.compile(module, backend="eager", fullgraph=True)
    with torch.inference_mode():
        results = module(*[torch.from_numpy(inputs[n]) for n in names])
    expected = reference(path, inputs)
    assert outputs == list(expected)
    for output, result in zip(outputs, results, strict=True):
        np.testing.assert_allclose(result.numpy(), expected[output], atol=2e-5)


def test_half(tmp_path: Path) -> None:
    path = saved("bert_base", tmp_path / "model.onnx")
    inputs = sample_inputs(path)
    module, names, outputs = native(str(path), heads=4)
    with torch.inference_mode():
        results = module.to(torch.float16)(
            *[torch.from_numpy(inputs[n]) for n in names]
        )
    expected = reference(path, inputs)
    for output, result in zip(outputs, results, strict=True):
        assert result.dtype is torch.float16
        np.testing.assert_allclose(result.float(), expected[output], atol=2e-2)


def test_after_each_layer(tmp_path: Path) -> None:
    path = saved("bert_base", tmp_path / "model.onnx")
    seen = []

    def after(x: Any) -> Any:
        seen.append(tuple(x.shape))
        return x

    module, names, _ = native(str(path), after=after, heads=4)
    inputs = sample_inputs(path)
    module(*[torch.from_numpy(inputs[n]) for n in names])
    assert seen == [(3, 16, 48)] * 2


def test_other_models_are_not_known(tmp_path: Path) -> None:
    onnx.save(make("mlp", batch=1), tmp_path / "mlp.onnx")
    assert native(str(tmp_path / "mlp.onnx")) is None
