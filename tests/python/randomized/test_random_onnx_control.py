"""Random conditionals and loops in one another (random_onnx_control.py)."""

from __future__ import annotations

import os

import pytest

from tests.python.randomized.random_onnx import seeds
from tests.python.randomized.random_onnx_control import check_seed


@pytest.mark.parametrize("seed", seeds(os.environ.get("RABBET_TEST_SEEDS", "0:60")))
def test_random_control_flow(seed: int) -> None:
    check_seed(seed, "cpu")
