"""Attention as torch exports it is one kernel, wherever exporters put the scale."""

from __future__ import annotations

from pathlib import Path

import pytest
import rabbet

from tests.python.importer.exported_attention import NAMES, check, exported

from . import cuda_driver
from .test_transformers import kernels

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)


@pytest.mark.parametrize("dynamo", [False, pytest.param(True, marks=pytest.mark.full)])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_exported_attention(dtype: str, dynamo: bool, tmp_path: Path) -> None:
    if dynamo and dtype == "float32" and cuda_driver.is_stand_in():
        pytest.skip("the stand-in has this export in FP16")
    given, want = exported(tmp_path / "model.onnx", dtype, dynamo)
    model = rabbet.compile(
        tmp_path / "model.onnx", device="cuda", fp16=dtype == "float16",
        optimization_level=0,
    )  # fmt: skip
    # FLOAT is computed as TF32.
    check(model, given, want, 1e-2 if dtype == "float16" else 3e-3)
    names = kernels(model)
    assert sum("cuda.attention" in name for name in names) == len(NAMES), names
    assert "cuda.softmax" not in names
