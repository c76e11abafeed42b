"""Runs that the caller captures into CUDA graphs, the first one among them."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import rabbet as trt

from tests.python.support.plugins import random

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)

SHAPE = (8, 16)
BYTES = 4 * 8 * 16


def call(name: str, *args: Any) -> None:
    cuda_driver.check(getattr(cuda_driver.driver(), name)(*args), name)


class Stream:
    """One that captures what it is given, and the graph of that."""

    def __init__(self) -> None:
        self.handle, self.graph = ctypes.c_void_p(), ctypes.c_void_p()
        call("cuStreamCreate", ctypes.byref(self.handle), 1)

    def capture(self, context: trt.IExecutionContext) -> None:
        recorded = ctypes.c_void_p()
        call("cuStreamBeginCapture_v2", self.handle, 0)  # global: the strictest
        try:
            context.execute_async_v3(self.handle.value or 0)
        finally:
            call("cuStreamEndCapture", self.handle, ctypes.byref(recorded))
            call("cuGraphInstantiateWithFlags", ctypes.byref(self.graph), recorded,
                 ctypes.c_ulonglong(0))  # fmt: skip
            call("cuGraphDestroy", recorded)

    def replay(self) -> None:
        call("cuGraphLaunch", self.graph, self.handle)
        call("cuStreamSynchronize", self.handle)

    def close(self) -> None:
        if self.graph:
            call("cuGraphExecDestroy", self.graph)
        call("cuStreamDestroy_v2", self.handle)


@contextlib.contextmanager
def stream() -> Iterator[Stream]:
    with cuda_driver.current():
        made = Stream()
        try:
            yield made
        finally:
            made.close()


def softmax(shape: tuple[int, ...]) -> trt.INetworkDefinition:
    """y = -softmax(x) + x, so that x is read after the softmax, too."""
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, shape)
    soft = network.add_softmax(x)
    soft.axes = 1 << 1
    sub = trt.ElementWiseOperation.SUB
    y = network.add_elementwise(x, soft.get_output(0), sub).get_output(0)
    y.name = "y"
    network.mark_output(y)
    return network


def expected(x: Any) -> Any:
    powers = np.exp(x.astype(np.float64))
    return x - powers / powers.sum(1, keepdims=True)


def check_replays(made: Stream, source: int, target: int, rows: int) -> None:
    for seed in range(2):
        x = random(rows, SHAPE[1], seed=seed)
        cuda_driver.write(source, x)
        made.replay()
        found = cuda_driver.read(target, x.shape)
        np.testing.assert_allclose(found, expected(x), rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def fixed() -> trt.Model:
    return trt.compile(softmax(SHAPE), device="cuda")


@pytest.fixture(scope="module")
def dynamic() -> trt.Model:
    shapes = {"x": ((1, SHAPE[1]), SHAPE, SHAPE)}
    return trt.compile(softmax((-1, SHAPE[1])), device="cuda", shapes=shapes)


# The output apart, over the input in part, and exactly there.
@pytest.mark.parametrize("shift", [BYTES, 64, 0])
def test_the_first_run(fixed: trt.Model, shift: int) -> None:
    with cuda_driver.memory(2 * BYTES) as at, stream() as made:
        context = fixed.engine.create_execution_context()
        context.set_tensor_address("x", at)
        context.set_tensor_address("y", at + shift)
        made.capture(context)
        check_replays(made, at, at + shift, SHAPE[0])


def test_the_first_run_of_each_shape(dynamic: trt.Model) -> None:
    context = dynamic.engine.create_execution_context()
    for rows in (3, 8, 5, 3):
        with cuda_driver.memory(2 * BYTES) as at, stream() as made:
            context.set_input_shape("x", (rows, SHAPE[1]))
            context.set_tensor_address("x", at)
            context.set_tensor_address("y", at + BYTES)
            made.capture(context)
            check_replays(made, at, at + BYTES, rows)


def test_memory_that_the_caller_gives(fixed: trt.Model) -> None:
    """It may come last."""
    strategy = trt.ExecutionContextAllocationStrategy.USER_MANAGED
    context = fixed.engine.create_execution_context(strategy)
    size = fixed.engine.get_device_memory_size_for_profile(0)
    with (
        cuda_driver.memory(2 * BYTES) as at,
        cuda_driver.memory(size) as given,
        stream() as made,
    ):
        context.set_tensor_address("x", at)
        context.set_tensor_address("y", at + BYTES)
        context.set_device_memory(given, size)
        made.capture(context)
        check_replays(made, at, at + BYTES, SHAPE[0])


def test_what_is_not_prepared_is_named(fixed: trt.Model) -> None:
    """Addresses that begin to overlap need memory for a copy."""
    with cuda_driver.memory(2 * BYTES) as at, stream() as made:
        context = fixed.engine.create_execution_context()
        context.set_tensor_address("x", at)
        context.set_tensor_address("y", at + BYTES)
        context.execute_async_v3(0)
        context.set_tensor_address("y", at + 64)
        with pytest.raises(trt.FailedPreconditionError, match=r"context\.prepare"):
            made.capture(context)
    with cuda_driver.memory(2 * BYTES) as at, stream() as made:
        context.set_tensor_address("x", at)
        context.set_tensor_address("y", at + 64)
        assert context.prepare()
        made.capture(context)
        check_replays(made, at, at + 64, SHAPE[0])


def test_sizes_that_only_a_run_tells() -> None:
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (8,))
    found = network.add_non_zero(x).get_output(0)
    double = network.add_elementwise(found, found, trt.ElementWiseOperation.SUM)
    double.get_output(0).name = "y"
    network.mark_output(double.get_output(0))
    model = trt.compile(network, device="cuda")
    with cuda_driver.memory(1024) as at, stream() as made:
        context = model.engine.create_execution_context()
        context.set_tensor_address("x", at)
        context.set_tensor_address("y", at + 512)
        with pytest.raises(trt.FailedPreconditionError, match="cannot be captured"):
            made.capture(context)
