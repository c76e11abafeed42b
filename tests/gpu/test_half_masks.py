"""Masks of attention in FP16, on CUDA: kernels of ours and cuDNN's."""

from __future__ import annotations

import pytest

from tests.python.importer.test_half_masks import LOWEST, MASKS, check

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)


@pytest.mark.parametrize("kind", MASKS)
def test_rows_that_look_at_nothing_are_finite(tmp_path, kind):
    # The stand-in's times choose nothing that the hardware would.
    levels = (0,) if cuda_driver.is_stand_in() and kind != "chosen" else (0, 3)
    check(tmp_path / "m.onnx", kind, LOWEST, "cuda", "fp16", levels)
