"""Transposes of constants, which are computed while a network is simplified."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import rabbet as trt


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.int8])
def test_every_permutation(dtype: type) -> None:
    random = np.random.default_rng(0)
    network, expected = trt.Builder().create_network(), []
    for rank in range(1, 5):
        for axes in itertools.permutations(range(rank)):
            shape = tuple(random.integers(1, 40 if rank < 3 else 20, rank).tolist())
            values = random.integers(-100, 100, shape).astype(dtype)
            constant = network.add_constant(shape, trt.Weights(values)).get_output(0)
            layer = network.add_shuffle(constant)
            layer.first_transpose = axes
            network.mark_output(layer.get_output(0))
            expected.append(values.transpose(axes))
    x = network.add_input("x", trt.float32, (1,))
    network.mark_output(network.add_identity(x).get_output(0))
    model = trt.compile(network, device="cpu", optimization_level=0)
    for found, want in zip(model(np.zeros(1, np.float32)), expected, strict=False):
        np.testing.assert_array_equal(np.asarray(found), want)
