"""Random networks compute what ONNX Runtime computes (random_onnx.py)."""

from __future__ import annotations

import os

import numpy as np
import pytest

from tests.python.randomized.random_onnx import make, report, seeds
from tests.python.randomized.random_onnx_graphs import RUNS, session


@pytest.mark.parametrize("seed", seeds(os.environ.get("RABBET_TEST_SEEDS", "0:20")))
def test_random_network(seed: int) -> None:
    wrong = report(seed, "cpu")
    assert wrong is None, wrong


def test_the_whole_is_what_its_nodes_are() -> None:
    """The references, made node by node, are what ONNX Runtime makes of the model."""
    for seed in range(20):
        network, _ = make(seed, "cpu")
        runner = session(network.model())
        for run in range(RUNS):
            feeds = {n: network.tensors[n].runs[run][0] for n in network.inputs}
            for name, array in zip(network.outputs, runner.run(None, feeds), strict=True):
                np.testing.assert_array_equal(array, network.tensors[name].runs[run][0])
