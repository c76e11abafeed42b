"""Attention of one packed product reads its parts where the product left them."""

from __future__ import annotations

from pathlib import Path

import pytest
import rabbet

from tests.python.importer.exported_attention import check
from tests.python.importer.packed_attention import (
    BATCH,
    NAMES,
    TOKENS,
    WIDTH,
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
