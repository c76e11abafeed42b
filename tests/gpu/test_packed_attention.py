"""Attention of one packed product reads its parts where the product left them."""

from __future__ import annotations

from pathlib import Path

import pytest
import rabbet

from tests.python.importer.exported_attention import check
from tests.python.importer.packed_attention import (
    BATCH,
    NAMES,
    ROTATED,
    TOKENS,
    WIDTH,
    apart,
    exported,
)

from . import cuda_driver
from .test_transformers import kernels

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)


@pytest.mark.parametrize("varying", [False, True])
def test_packed_attention(varying: bool, tmp_path: Path) -> None:
    given, want = exported(tmp_path / "model.onnx", "float16", varying)
    model = rabbet.compile(
        tmp_path / "model.onnx", device="cuda", fp16=True, optimization_level=0,
        shapes={"x": (BATCH, TOKENS, WIDTH)} if varying else None,
    )  # fmt: skip
    check(model, {"x": given}, want, 1e-2)
    names = kernels(model)
    assert sum("cuda.attention" in name for name in names) == len(NAMES), names
    assert "cuda.softmax" not in names
    assert "cuda.gather" not in names
    assert "cuda.slice" not in names
    # One rotation of queries and keys, and no transpose before it. Cosines and sines
    # of a run are put beside numbers for the values.
    assert sum("cuda.concatenation" in name for name in names) == 2, names
    assert sum("cuda.rotation" in name for name in names) == len(ROTATED), names


def test_rotations_that_stay_apart(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    given, want = exported(path, "float16", False, apart)
    model = rabbet.compile(path, device="cuda", fp16=True, optimization_level=0)
    check(model, {"x": given}, want, 1e-2)
    assert sum("cuda.rotation" in name for name in kernels(model)) == 3
