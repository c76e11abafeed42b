"""Convolutions of patches at random on the GPU, or on what stands in for one."""

from __future__ import annotations

import pytest

from tests.python.importer import test_patches as patches
from tests.python.support import onnx_text

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)


def test_patches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_text, "DEVICE", "cuda")
    for seed in range(24):
        # FLOAT factors are rounded to TF32 there.
        onnx_text.check(*patches.patches(seed), most=5e-3)
