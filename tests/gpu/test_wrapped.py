"""Rolls and circular padding on the GPU, or on what stands in for one."""

from __future__ import annotations

import pytest

from tests.python.importer import test_wrapped as wrapped
from tests.python.support import onnx_text

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)


def test_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_text, "DEVICE", "cuda")
    for seed in range(30):
        onnx_text.check(*wrapped.wrapped(seed))
