"""Random networks with plugins, as on the CPU. RABBET_TEST_SEEDS="first:last" runs
other seeds."""

from __future__ import annotations

import pytest

from tests.python.randomized.random_runs import check_seed
from tests.python.randomized.test_random_networks import seeds

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)


@pytest.mark.parametrize("seed", seeds(20))
def test_random_network(seed: int) -> None:
    check_seed(seed, "cuda")
