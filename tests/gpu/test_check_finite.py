"""Infinities and NaN of runs on CUDA, also of such as are recorded into graphs."""

from __future__ import annotations

import pytest

from tests.python.interface.test_check_finite import check_half, half_model

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)


def test_overflow_of_fp16() -> None:
    model = half_model(device="cuda")
    for _ in range(3):
        check_half(model)
