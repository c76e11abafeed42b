"""Memory from the caller: allocators of engines and contexts, and blocks."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
import rabbet as trt

from tests.python.support.plugins import random


class Blocks:
    """Aligned blocks of the C library, counted."""

    def __init__(self) -> None:
        self.owners: dict[int, Any] = {}
        self.asked: list[int] = []

    def give(self, size: int, alignment: int) -> int:
        block = ctypes.create_string_buffer(size + alignment)
        address = -(-ctypes.addressof(block) // alignment) * alignment
        self.owners[address] = block
        self.asked.append(size)
        return address

    def take(self, address: int) -> bool:
        return self.owners.pop(address, None) is not None


class Allocator(trt.IGpuAllocator):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = Blocks()

    def allocate(self, size: int, alignment: int, flags: int) -> int:
        return self.blocks.give(size, alignment)

    def deallocate(self, memory: int) -> bool:
        return self.blocks.take(memory)


class AsyncAllocator(trt.IGpuAsyncAllocator):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = Blocks()

    def allocate_async(self, size: int, alignment: int, flags: int, stream: int) -> int:
        assert stream == 0
        return self.blocks.give(size, alignment)

    def deallocate_async(self, memory: int, stream: int) -> bool:
        return self.blocks.take(memory)


def plan() -> Any:
    """Two products with an activation between: there is something to keep."""
    builder = trt.Builder()
    network = builder.create_network()
    config = builder.create_builder_config()
    config.device = "cpu"
    config.builder_optimization_level = 0
    x = network.add_input("x", trt.float32, (-1, 16))
    for seed in range(2):
        weights = network.add_constant((16, 16), random(16, 16, seed=seed)).get_output(
            0
        )
        none = trt.MatrixOperation.NONE
        x = network.add_matrix_multiply(x, none, weights, none).get_output(0)
        softmax = network.add_softmax(x)
        softmax.axes = 1 << 1
        x = softmax.get_output(0)
    x.name = "y"
    network.mark_output(x)
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (1, 16), (4, 16), (8, 16))
    config.add_optimization_profile(profile)
    return builder.build_serialized_network(network, config)


def expected(x: Any) -> Any:
    for seed in range(2):
        x = np.exp(x @ random(16, 16, seed=seed))
        x /= x.sum(1, keepdims=True)
    return x


def run(context: trt.IExecutionContext, rows: int) -> None:
    x = random(rows, 16, seed=5)
    y = np.zeros_like(x)
    context.set_input_shape("x", x.shape)
    context.set_tensor_address("x", x.ctypes.data)
    context.set_tensor_address("y", y.ctypes.data)
    assert context.execute_async_v3(0)
    np.testing.assert_allclose(y, expected(x), rtol=1e-4, atol=1e-6)


PLAN = plan()


@pytest.mark.parametrize("kind", [Allocator, AsyncAllocator])
def test_allocator_of_an_engine(kind: Any) -> None:
    allocator = kind()
    runtime = trt.Runtime(trt.Logger())
    runtime.gpu_allocator = allocator
    with pytest.raises(AttributeError):
        _ = runtime.gpu_allocator
    engine = runtime.deserialize_cuda_engine(PLAN)
    context = engine.create_execution_context()
    run(context, 2)
    run(context, 8)
    assert allocator.blocks.asked
    del context, engine
    assert not allocator.blocks.owners


def test_allocator_of_a_context() -> None:
    engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(PLAN)
    context = engine.create_execution_context()
    allocator = Allocator()
    run(context, 2)
    context.temporary_allocator = allocator
    assert context.temporary_allocator is allocator
    run(context, 8)
    assert allocator.blocks.owners
    context.temporary_allocator = None
    assert not allocator.blocks.owners
    run(context, 2)
    with pytest.raises(TypeError, match="temporary_allocator: expected an IGpuAllocator"):
        context.temporary_allocator = 5  # type: ignore[assignment]


def test_a_context_gives_memory_back_when_it_goes() -> None:
    engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(PLAN)
    context = engine.create_execution_context()
    allocator = Allocator()
    context.temporary_allocator = allocator
    run(context, 8)
    blocks = allocator.blocks
    del allocator, context
    assert not blocks.owners


def test_allocators_that_fail() -> None:
    class Empty(Allocator):
        def allocate(self, size: int, alignment: int, flags: int) -> Any:
            return None

    class Crooked(Allocator):
        def allocate(self, size: int, alignment: int, flags: int) -> Any:
            return super().allocate(size, alignment, flags) + 1

    class Wrong(Allocator):
        def allocate(self, size: int, alignment: int, flags: int) -> Any:
            return "here"

    class Raising(Allocator):
        def allocate(self, size: int, alignment: int, flags: int) -> Any:
            raise KeyError("no memory today")

    engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(PLAN)
    for kind, error, message in (
        (Empty, MemoryError, "gave no memory for"),
        (Crooked, ValueError, "aligned to 256"),
        (Wrong, TypeError, "gave 'here' for"),
        (Raising, KeyError, "no memory today"),
        (trt.IGpuAllocator, NotImplementedError, "must define allocate"),
    ):
        context = engine.create_execution_context()
        context.temporary_allocator = kind()
        with pytest.raises(error, match=message):
            run(context, 4)
        context.temporary_allocator = None
        run(context, 4)


def managed(engine: trt.ICudaEngine, how: str) -> trt.IExecutionContext:
    strategy = trt.ExecutionContextAllocationStrategy.USER_MANAGED
    if how == "strategy":
        return engine.create_execution_context(strategy)
    if how == "config":
        config = engine.create_runtime_config()
        config.set_execution_context_allocation_strategy(strategy)
        return engine.create_execution_context(runtime_config=config)
    return engine.create_execution_context_without_device_memory()


@pytest.mark.parametrize("how", ["strategy", "config", "old name"])
def test_memory_of_the_caller(how: str) -> None:
    engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(PLAN)
    context = managed(engine, how)
    strategy = context.get_runtime_config().get_execution_context_allocation_strategy()
    assert strategy is trt.ExecutionContextAllocationStrategy.USER_MANAGED
    with pytest.raises(trt.Error, match="was given 0 bytes of memory"):
        run(context, 2)
    blocks = Blocks()
    context.set_input_shape("x", (2, 16))
    size = context.update_device_memory_size_for_shapes()
    context.set_device_memory(blocks.give(size, 256), size)
    run(context, 2)
    with pytest.raises(trt.Error, match=f"was given {size} bytes of memory"):
        run(context, 8)
    whole = engine.get_device_memory_size_for_profile_v2(0)
    assert whole > size
    context.device_memory = blocks.give(whole, 256)
    run(context, 8)
    run(context, 1)


def test_memory_that_does_not_do() -> None:
    engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(PLAN)
    context = engine.create_execution_context()
    with pytest.raises(ValueError, match="expected a multiple of 256"):
        context.set_device_memory(100, 1000)
    with pytest.raises(ValueError, match="the address is NULL"):
        context.set_device_memory(0, 1000)
    context.set_device_memory(0, 0)
    with pytest.raises(trt.Error, match="asks no allocator"):
        context.temporary_allocator = Allocator()


def test_events_are_for_devices_that_have_them() -> None:
    engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(PLAN)
    context = engine.create_execution_context()
    assert context.set_input_consumed_event(0)
    with pytest.raises(trt.UnsupportedError, match="device 'cpu' has no events"):
        context.set_input_consumed_event(1234)
    assert context.get_input_consumed_event() == 0


class Reader(trt.IStreamReader):
    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.data = data

    def read(self, size: int) -> bytes:  # type: ignore[override]
        part, self.data = self.data[:size], self.data[size:]
        return part


class ReaderV2(trt.IStreamReaderV2):
    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.data = data

    def read(self, num_bytes: int, stream: int) -> bytes:  # type: ignore[override]
        part, self.data = self.data[:num_bytes], self.data[num_bytes:]
        return part

    def seek(self, offset: int, where: trt.SeekPosition) -> bool:
        return False


def test_stream_readers() -> None:
    runtime = trt.Runtime(trt.Logger())
    data = bytes(PLAN)
    for engine in (
        runtime.deserialize_cuda_engine(Reader(data)),
        runtime.deserialize_cuda_engine(stream_reader=Reader(data)),
        runtime.deserialize_cuda_engine(ReaderV2(data)),
        runtime.deserialize_cuda_engine(stream_reader_v2=ReaderV2(data)),
    ):
        assert bytes(engine.serialize()) == data
    with pytest.raises(trt.Error, match="no bytes"):
        runtime.deserialize_cuda_engine(ReaderV2(b""))
    with pytest.raises(NotImplementedError, match="must define read"):
        runtime.deserialize_cuda_engine(trt.IStreamReaderV2())
