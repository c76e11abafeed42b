"""Memory of contexts on a GPU: from allocators, one of them in the stream's order, and
from the caller; and events that tell when inputs may be written again."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any

import numpy as np
import pytest
import rabbet as trt

from tests.python.support.plugins import random

from . import cuda_driver
from .test_contexts import stream, wait

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)

COLUMNS = 16
LAYERS = 3


class Plain(trt.IGpuAllocator):
    """Memory of cuMemAlloc."""

    def __init__(self) -> None:
        super().__init__()
        self.owned: dict[int, int] = {}
        self.asked = 0

    def allocate(self, size: int, alignment: int, flags: int) -> int:
        address = ctypes.c_uint64()
        with cuda_driver.current():
            result = cuda_driver.driver().cuMemAlloc_v2(
                ctypes.byref(address), ctypes.c_size_t(size)
            )
        cuda_driver.check(result, "cuMemAlloc")
        assert address.value % alignment == 0
        self.asked += 1
        self.owned[address.value] = size
        return address.value

    def deallocate(self, memory: int) -> bool:
        del self.owned[memory]
        with cuda_driver.current():
            result = cuda_driver.driver().cuMemFree_v2(ctypes.c_uint64(memory))
        return result == 0


class InOrder(trt.IGpuAsyncAllocator):
    """Memory of cuMemAllocAsync: there, and gone, in the stream's order."""

    def __init__(self) -> None:
        super().__init__()
        self.owned: dict[int, int] = {}
        self.streams: set[int] = set()
        self.asked = 0

    def allocate_async(self, size: int, alignment: int, flags: int, stream: int) -> int:
        address = ctypes.c_uint64()
        with cuda_driver.current():
            result = cuda_driver.driver().cuMemAllocAsync(
                ctypes.byref(address), ctypes.c_size_t(size), ctypes.c_void_p(stream)
            )
        cuda_driver.check(result, "cuMemAllocAsync")
        assert address.value % alignment == 0
        self.asked += 1
        self.streams.add(stream)
        self.owned[address.value] = size
        return address.value

    def deallocate_async(self, memory: int, stream: int) -> bool:
        del self.owned[memory]
        with cuda_driver.current():
            result = cuda_driver.driver().cuMemFreeAsync(
                ctypes.c_uint64(memory), ctypes.c_void_p(stream)
            )
        return result == 0


@pytest.fixture(scope="module")
def plan() -> Any:
    """Softmaxes of sums: results that lie between the layers."""
    builder = trt.Builder()
    network = builder.create_network()
    x = network.add_input("x", trt.float32, (-1, COLUMNS))
    value = x
    for _index in range(LAYERS):
        softmax = network.add_softmax(value)
        softmax.axes = 1 << 1
        total = network.add_reduce(value, trt.ReduceOperation.MAX, 1 << 0, True)
        value = network.add_elementwise(
            softmax.get_output(0), total.get_output(0), trt.ElementWiseOperation.SUM
        ).get_output(0)
    value.name = "y"
    network.mark_output(value)
    config = builder.create_builder_config()
    config.device = "cuda"
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (1, COLUMNS), (8, COLUMNS), (4096, COLUMNS))
    config.add_optimization_profile(profile)
    return builder.build_serialized_network(network, config)


def expected(x: Any) -> Any:
    value = x.astype(np.float64)
    for _index in range(LAYERS):
        powers = np.exp(value - value.max(1, keepdims=True))
        value = powers / powers.sum(1, keepdims=True) + value.max(0, keepdims=True)
    return value


def run(
    context: Any, rows: int, handle: int = 0, times: int = 1, seed: int = 0
) -> None:
    x = random(rows, COLUMNS, seed=seed)
    with (
        cuda_driver.memory(x.nbytes) as source,
        cuda_driver.memory(x.nbytes) as target,
    ):
        cuda_driver.write(source, x)
        context.set_input_shape("x", x.shape)
        context.set_tensor_address("x", source)
        context.set_tensor_address("y", target)
        for _index in range(times):
            assert context.execute_async_v3(handle)
        wait(handle)
        found = cuda_driver.read(target, x.shape)
    np.testing.assert_allclose(found, expected(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("kind", [Plain, InOrder])
def test_allocator_of_an_engine(plan: Any, kind: Any, graphs: bool) -> None:
    allocator = kind()
    runtime = trt.Runtime(trt.Logger())
    runtime.gpu_allocator = allocator
    engine = runtime.deserialize_cuda_engine(plan)
    context = engine.create_execution_context()
    context.graphs = graphs
    with stream() as handle:
        for seed, rows in enumerate((3, 4096, 7)):
            run(context, rows, handle, 3, seed)
        assert allocator.asked
        assert (context.graph_info.replays > 0) is graphs
        del context, engine
    assert not allocator.owned


@pytest.mark.parametrize("kind", [Plain, InOrder])
def test_allocator_of_a_context(plan: Any, kind: Any) -> None:
    engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(plan)
    context = engine.create_execution_context()
    run(context, 5)
    allocator = kind()
    context.temporary_allocator = allocator
    with stream() as handle:
        run(context, 4096, handle, 2)
        assert allocator.owned
        context.temporary_allocator = None
    assert not allocator.owned
    run(context, 5)


def test_contexts_that_allocate_in_turn(plan: Any) -> None:
    """Memory that one has given back is the other's, without anybody waiting."""
    engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(plan)
    with stream() as handle:
        for seed in range(4):
            context = engine.create_execution_context()
            allocator = InOrder()
            context.temporary_allocator = allocator
            run(context, 1000, handle, 1, seed)
            del context
            assert not allocator.owned


@pytest.mark.parametrize("graphs", [False, True])
def test_memory_of_the_caller(plan: Any, graphs: bool) -> None:
    engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(plan)
    strategy = trt.ExecutionContextAllocationStrategy.USER_MANAGED
    context = engine.create_execution_context(strategy)
    context.graphs = graphs
    whole = engine.get_device_memory_size_for_profile_v2(0)
    context.set_input_shape("x", (100, COLUMNS))
    part = context.update_device_memory_size_for_shapes()
    assert 0 < part < whole
    with contextlib.ExitStack() as stack:
        handle = stack.enter_context(stream())
        small = stack.enter_context(cuda_driver.memory(part))
        context.set_device_memory(small, part)
        run(context, 100, handle, 4)
        with pytest.raises(trt.Error, match=f"was given {part} bytes of memory"):
            run(context, 4096, handle)
        large = stack.enter_context(cuda_driver.memory(whole))
        context.set_device_memory(large, whole)
        run(context, 4096, handle, 4)
        run(context, 100, handle, 4)
        del context


def test_contexts_that_share_memory(plan: Any) -> None:
    """One after the other on a stream: one piece of memory will do for both."""
    engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(plan)
    strategy = trt.ExecutionContextAllocationStrategy.USER_MANAGED
    contexts = [engine.create_execution_context(strategy) for _index in range(2)]
    whole = engine.get_device_memory_size_for_profile_v2(0)
    with contextlib.ExitStack() as stack:
        handle = stack.enter_context(stream())
        shared = stack.enter_context(cuda_driver.memory(whole))
        values = [random(500, COLUMNS, seed=seed) for seed in range(2)]
        targets = []
        for context, value in zip(contexts, values, strict=True):
            context.set_device_memory(shared, whole)
            source, target = (
                stack.enter_context(cuda_driver.memory(value.nbytes)) for _side in "xy"
            )
            cuda_driver.write(source, value)
            context.set_input_shape("x", value.shape)
            context.set_tensor_address("x", source)
            context.set_tensor_address("y", target)
            targets.append(target)
        for _index in range(3):
            for context in contexts:
                assert context.execute_async_v3(handle)
        wait(handle)
        for target, value in zip(targets, values, strict=True):
            found = cuda_driver.read(target, value.shape)
            np.testing.assert_allclose(found, expected(value), rtol=1e-5, atol=1e-6)
        del context, contexts


@pytest.mark.parametrize("graphs", [False, True])
def test_inputs_may_be_written_again(plan: Any, graphs: bool) -> None:
    """After the event, not only after the run."""
    engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(plan)
    context = engine.create_execution_context()
    context.graphs = graphs
    driver, event = cuda_driver.driver(), ctypes.c_void_p()
    values = [random(64, COLUMNS, seed=seed) for seed in range(6)]
    nbytes = values[0].nbytes
    with contextlib.ExitStack() as stack:
        handle, other = (stack.enter_context(stream()) for _side in range(2))
        source, target = (
            stack.enter_context(cuda_driver.memory(nbytes)) for _s in "xy"
        )
        cuda_driver.check(driver.cuEventCreate(ctypes.byref(event), 2), "cuEventCreate")
        assert context.set_input_consumed_event(event.value)
        context.set_input_shape("x", values[0].shape)
        context.set_tensor_address("x", source)
        context.set_tensor_address("y", target)
        cuda_driver.write(source, values[0])
        for value, following in zip(values, [*values[1:], values[0]], strict=True):
            assert context.execute_async_v3(handle)
            result = driver.cuStreamWaitEvent(ctypes.c_void_p(other), event, 0)
            cuda_driver.check(result, "cuStreamWaitEvent")
            result = driver.cuMemcpyHtoDAsync_v2(
                ctypes.c_uint64(source), ctypes.c_void_p(following.ctypes.data),
                ctypes.c_size_t(nbytes), ctypes.c_void_p(other),
            )  # fmt: skip
            cuda_driver.check(result, "cuMemcpyHtoDAsync")
            wait(handle)
            found = cuda_driver.read(target, value.shape)
            np.testing.assert_allclose(found, expected(value), rtol=1e-5, atol=1e-6)
            wait(other)
        assert context.set_input_consumed_event(0)
        del context
        cuda_driver.check(driver.cuEventDestroy_v2(event), "cuEventDestroy")
