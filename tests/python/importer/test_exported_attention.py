"""Attention as torch exports it, on the CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import rabbet

from tests.python.importer.exported_attention import NAMES, exported


@pytest.mark.parametrize(
    ("dynamo", "opset"), [(False, None), (True, None), (True, 23)]
)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("name", NAMES)
def test_exported_attention(
    name: str, dtype: str, dynamo: bool, opset: int | None, tmp_path: Path
) -> None:
    given, want = exported(tmp_path / "model.onnx", name, dtype, dynamo, opset)
    model = rabbet.compile(
        tmp_path / "model.onnx", fp16=dtype == "float16", optimization_level=0
    )
    found = np.asarray(model(**given), np.float32)
    bound = 1e-2 if dtype == "float16" else 1e-5
    assert np.abs(found - want).max() <= bound * np.abs(want).max()
