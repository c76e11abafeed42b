"""Inputs and outputs at addresses that are not aligned as kernels of libraries need."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
import rabbet as trt

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)

SHAPE = (1, 16, 8, 8)


def convolution(network: Any, x: Any) -> Any:
    weights = np.random.default_rng(0).normal(size=(16, 16, 3, 3)) / 12
    layer = network.add_convolution_nd(x, 16, (3, 3), weights.astype(np.float32))
    layer.padding_nd = (1, 1)
    return layer.get_output(0)


def attention(network: Any, x: Any) -> Any:
    turned = trt.MatrixOperation.TRANSPOSE
    none = trt.MatrixOperation.NONE
    scores = network.add_matrix_multiply(x, none, x, turned).get_output(0)
    soft = network.add_softmax(scores)
    soft.axes = 1 << 3
    return network.add_matrix_multiply(soft.get_output(0), none, x, none).get_output(0)


def pointwise(network: Any, x: Any) -> Any:
    return network.add_activation(x, trt.ActivationType.TANH).get_output(0)


def made(body: Any) -> trt.Model:
    network = trt.Builder().create_network()
    y = body(network, network.add_input("x", trt.float32, SHAPE))
    y.name = "y"
    network.mark_output(y)
    return trt.compile(network, device="cuda", optimization_level=0)


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("offset", [0, 4, 8, 12])
@pytest.mark.parametrize("body", [convolution, attention, pointwise])
def test_addresses(body: Any, offset: int, graphs: bool) -> None:
    model = made(body)
    size = 4 * int(np.prod(SHAPE))
    with contextlib.ExitStack() as stack:
        x = stack.enter_context(cuda_driver.memory(size + 64)) + offset
        y = stack.enter_context(cuda_driver.memory(size + 64)) + offset
        context = model.create_execution_context()
        context.graphs = graphs
        context.set_tensor_address("x", x)
        context.set_tensor_address("y", y)
        for seed in range(4):
            value = np.random.default_rng(seed).normal(size=SHAPE).astype(np.float32)
            cuda_driver.write(x, value)
            assert context.execute_async_v3(0)
            found = cuda_driver.read(y, SHAPE)
            np.testing.assert_array_equal(found, np.asarray(model(value)))


def test_in_place_and_over_the_input() -> None:
    """The output lies over the input, at an address that neither may have."""
    model = made(convolution)
    size = 4 * int(np.prod(SHAPE))
    value = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)
    with cuda_driver.memory(size + 64) as at:
        context = model.create_execution_context()
        context.set_tensor_address("x", at + 4)
        context.set_tensor_address("y", at + 4)
        cuda_driver.write(at + 4, value)
        assert context.execute_async_v3(0)
        found = cuda_driver.read(at + 4, SHAPE)
        np.testing.assert_array_equal(found, np.asarray(model(value)))
