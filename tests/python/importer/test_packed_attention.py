"""Attention of one packed product, on the CPU: parts of the product are no gathers."""

from __future__ import annotations

from pathlib import Path

import pytest
import rabbet

from tests.python.importer.exported_attention import check
from tests.python.importer.packed_attention import BATCH, TOKENS, WIDTH, exported


@pytest.mark.parametrize("varying", [False, True])
@pytest.mark.parametrize("level", [0, 1])
def test_packed_attention(level: int, varying: bool, tmp_path: Path) -> None:
    given, want = exported(tmp_path / "model.onnx", "float32", varying)
    model = rabbet.compile(
        tmp_path / "model.onnx", device="cpu", optimization_level=level,
        shapes={"x": (BATCH, TOKENS, WIDTH)} if varying else None,
    )  # fmt: skip
    check(model, {"x": given}, want, 1e-5)
    assert "cpu.gather" not in str(model.report)
