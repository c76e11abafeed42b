"""Attention as torch exports it, on the CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import rabbet

from tests.python.importer.exported_attention import exported, in_pairs


@pytest.mark.parametrize(("name", "dtype", "opset"), in_pairs([17, 18, 23]))
def test_exported_attention(
    name: str, dtype: str, opset: int, tmp_path: Path
) -> None:
    given, want = exported(tmp_path / "model.onnx", name, dtype, opset > 17, opset)
    model = rabbet.compile(
        tmp_path / "model.onnx", fp16=dtype == "float16", optimization_level=0
    )
    found = np.asarray(model(**given), np.float32)
    bound = 1e-2 if dtype == "float16" else 1e-5
    assert np.abs(found - want).max() <= bound * np.abs(want).max()
