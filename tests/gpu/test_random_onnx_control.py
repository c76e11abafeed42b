"""Random conditionals and loops on the GPU, or on what stands in for one.

tests/python/randomized/random_onnx_control.py draws them.
"""

from __future__ import annotations

import os

import pytest

from tests.python.randomized.random_onnx import seeds
from tests.python.randomized.random_onnx_control import check_seed

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)


@pytest.mark.parametrize("seed", seeds(os.environ.get("RABBET_TEST_SEEDS", "0:12")))
def test_random_control_flow(seed: int) -> None:
    check_seed(seed, "cuda")
