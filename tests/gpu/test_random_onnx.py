"""Random networks on the GPU, or on what stands in for one.

tests/python/randomized/random_onnx.py draws them.
"""

from __future__ import annotations

import os

import pytest

from tests.python.randomized.random_onnx import report, seeds

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)


@pytest.mark.parametrize("seed", seeds(os.environ.get("RABBET_TEST_SEEDS", "0:16")))
def test_random_network(seed: int) -> None:
    wrong = report(seed, "cuda")
    assert wrong is None, wrong
