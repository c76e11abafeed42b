"""Pooling nodes at random on the GPU, or on what stands in for one."""

from __future__ import annotations

import pytest

from tests.python.randomized.random_pools import difference

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)


def test_random_pools() -> None:
    for seed in range(12):
        assert not difference(seed, "cuda", 0, bool(seed % 2))
