"""Random networks with plugins, built with random kernels, against NumPy.

RABBET_TEST_SEEDS="first:last" runs other seeds."""

from __future__ import annotations

import os

import pytest

from tests.python.randomized.random_runs import check_seed


def seeds(count: int) -> list[int]:
    """The seeds that are run."""
    first, _, last = os.environ.get("RABBET_TEST_SEEDS", f"0:{count}").partition(":")
    return list(range(int(first), int(last)))


@pytest.mark.parametrize("seed", seeds(40))
def test_random_network(seed: int) -> None:
    check_seed(seed, "cpu")
