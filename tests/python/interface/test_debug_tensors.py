"""Debug tensors: what a network marks, a listener sees in each run."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
import rabbet as trt

from tests.python.support.plugins import random


class Listener(trt.IDebugListener):
    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, Any] = {}

    def process_debug_tensor(
        self, addr: int, location: Any, type: Any, shape: Any, name: str, stream: int
    ) -> bool:
        assert location is trt.TensorLocation.DEVICE
        assert type is trt.float32
        count = trt.volume(shape)
        data = (ctypes.c_float * count).from_address(addr)
        self.seen[name] = np.array(data, np.float32).reshape(tuple(shape))
        return True


def engine(mark: Any) -> trt.ICudaEngine:
    """y = relu(2 x + 1), of which `mark(network, doubled, sum, y)` marks some."""
    builder = trt.Builder()
    network = builder.create_network()
    config = builder.create_builder_config()
    config.device = "cpu"
    x = network.add_input("x", trt.float32, (-1, 3))

    def number(value: float) -> Any:
        data = np.full((1, 1), value, np.float32)
        return network.add_constant((1, 1), data).get_output(0)

    kind = trt.ElementWiseOperation
    doubled = network.add_elementwise(x, number(2), kind.PROD).get_output(0)
    doubled.name = "doubled"
    total = network.add_elementwise(doubled, number(1), kind.SUM).get_output(0)
    total.name = "total"
    y = network.add_activation(total, trt.ActivationType.RELU).get_output(0)
    y.name = "y"
    network.mark_output(y)
    mark(network, doubled, total, y)
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (1, 3), (2, 3), (4, 3))
    config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)
    return trt.Runtime(trt.Logger()).deserialize_cuda_engine(plan)


def run(context: trt.IExecutionContext, x: Any) -> Any:
    y = np.zeros_like(x)
    context.set_input_shape("x", x.shape)
    context.set_tensor_address("x", x.ctypes.data)
    context.set_tensor_address("y", y.ctypes.data)
    context.execute_async_v3(0)
    np.testing.assert_allclose(y, np.maximum(2 * x + 1, 0), rtol=1e-6)
    return y


def test_marked_tensors() -> None:
    def mark(network: Any, doubled: Any, total: Any, y: Any) -> None:
        assert network.mark_debug(doubled)
        assert network.mark_debug(total)
        assert network.mark_debug(y)
        assert network.unmark_debug(total)
        assert network.is_debug_tensor(doubled)
        assert not network.is_debug_tensor(total)

    built = engine(mark)
    assert built.is_debug_tensor("doubled")
    assert built.is_debug_tensor("y")
    assert not built.is_debug_tensor("total")
    # Nobody sees them as outputs.
    assert [built.get_tensor_name(i) for i in range(built.num_io_tensors)] == ["x", "y"]
    context, listener = built.create_execution_context(), Listener()
    assert context.set_debug_listener(listener)
    assert context.get_debug_listener() is listener
    run(context, random(2, 3))
    assert not listener.seen
    assert not context.get_debug_state("doubled")
    context.set_tensor_debug_state("doubled", True)
    for rows in (2, 4, 1):
        x = random(rows, 3, seed=rows)
        run(context, x)
        assert list(listener.seen) == ["doubled"]
        np.testing.assert_array_equal(listener.seen["doubled"], 2 * x)
    context.set_all_tensors_debug_state(True)
    y = run(context, x)
    assert sorted(listener.seen) == ["doubled", "y"]
    np.testing.assert_array_equal(listener.seen["y"], y)
    listener.seen.clear()
    context.set_debug_listener(None)
    run(context, x)
    assert not listener.seen


def test_tensors_between_kernels() -> None:
    def mark(network: Any, doubled: Any, total: Any, y: Any) -> None:
        assert network.mark_unfused_tensors_as_debug_tensors()
        network.mark_debug(doubled)

    context, listener = engine(mark).create_execution_context(), Listener()
    context.set_debug_listener(listener)
    assert not context.unfused_tensors_debug_state
    context.unfused_tensors_debug_state = True
    assert context.unfused_tensors_debug_state
    x = random(2, 3)
    y = run(context, x)
    # "doubled" is told as a marked tensor only, and that is off.
    assert "doubled" not in listener.seen
    np.testing.assert_array_equal(listener.seen["y"], y)
    # All debug tensors are these, too.
    context.set_all_tensors_debug_state(False)
    assert not context.unfused_tensors_debug_state
    listener.seen.clear()
    run(context, x)
    assert not listener.seen
    context.set_all_tensors_debug_state(True)
    assert context.unfused_tensors_debug_state
    y = run(context, x)
    np.testing.assert_array_equal(listener.seen["doubled"], 2 * x)
    np.testing.assert_array_equal(listener.seen["y"], y)


def test_mistakes() -> None:
    context = engine(
        lambda network, *rest: network.mark_debug(rest[0])
    ).create_execution_context()
    with pytest.raises(
        LookupError, match="'total' is not a debug tensor; the network marked 'doubled'"
    ):
        context.set_tensor_debug_state("total", True)
    with pytest.raises(LookupError, match="'z' is not a debug tensor"):
        context.get_debug_state("z")
    with pytest.raises(trt.Error, match="mark_unfused_tensors_as_debug_tensors"):
        context.unfused_tensors_debug_state = True
    with pytest.raises(TypeError, match="expected an IDebugListener"):
        context.set_debug_listener(5)  # type: ignore[arg-type]
    context.set_debug_listener(trt.IDebugListener())
    context.set_all_tensors_debug_state(True)
    assert not context.unfused_tensors_debug_state
    with pytest.raises(NotImplementedError, match="must define process_debug_tensor"):
        run(context, random(2, 3))
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (1, 4, 8, 8))
    layer = network.add_convolution_nd(x, 2, (1, 1), random(2, 4, 1, 1))
    with pytest.raises(ValueError, match="is a weights tensor"):
        network.mark_debug(layer.get_input(1))
