"""Attention as torch exports it is one kernel, wherever exporters put the scale."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import rabbet

from tests.python.importer.exported_attention import exported, in_pairs

from . import cuda_driver
from .test_transformers import kernels

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)


@pytest.mark.parametrize(("name", "dtype", "dynamo"), in_pairs([False, True]))
def test_exported_attention(
    name: str, dtype: str, dynamo: bool, tmp_path: Path
) -> None:
    given, want = exported(tmp_path / "model.onnx", name, dtype, dynamo)
    model = rabbet.compile(
        tmp_path / "model.onnx", device="cuda", fp16=dtype == "float16",
        optimization_level=0,
    )  # fmt: skip
    found = np.asarray(model(**given), np.float32)
    bound = 1e-2 if dtype == "float16" else 3e-3  # FLOAT is computed as TF32
    assert np.abs(found - want).max() <= bound * np.abs(want).max()
    names = kernels(model)
    assert any("cuda.attention" in kernel for kernel in names), names
    assert "cuda.softmax" not in names
