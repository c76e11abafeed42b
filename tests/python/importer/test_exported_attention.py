"""Attention as torch exports it, on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import rabbet

from tests.python.importer.exported_attention import check, exported


# An export by dynamo takes seconds: each of its opsets in one type.
@pytest.mark.parametrize(
    ("dtype", "opset"),
    [("float16", 17), ("float32", 17), ("float16", 18), ("float32", 23)],
)
def test_exported_attention(dtype: str, opset: int, tmp_path: Path) -> None:
    given, want = exported(tmp_path / "model.onnx", dtype, opset > 17, opset)
    model = rabbet.compile(
        tmp_path / "model.onnx", fp16=dtype == "float16", optimization_level=0
    )
    check(model, given, want, 1e-2 if dtype == "float16" else 1e-5)
