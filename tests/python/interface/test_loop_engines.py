"""Engines of networks with loops that a run ends: weights, debug tensors, assertions,
times, depth."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import rabbet as trt
from onnx import parser as onnx_text

from tests.python.interface.test_debug_tensors import Listener
from tests.python.interface.test_refit import expected, load, refit
from tests.python.support.plugins import constant, random

OP = trt.ElementWiseOperation
COUNT, LAST = trt.TripLimit.COUNT, trt.LoopOutput.LAST_VALUE

# `w` is read inside of a loop and outside; `t` in the loop alone.
MODEL = """
<ir_version: 9, opset_import: ["" : 17]>
g (float[2, 3] x) => (float[2, 3] y)
<float[1, 3] w = {%s}>
{
  least = Constant <value_float = 0.01> ()
  scaled = Mul (x, w)
  z = Loop (, , scaled) <
    body = steps (int64 i, bool c, float[2, 3] s) => (bool on, float[2, 3] next)
    <float[1, 3] t = {%s}>
    { p = Mul (s, t)  next = Mul (p, w)  size = Abs (next)
      most = ReduceMax <keepdims = 0> (size)  on = Greater (most, least) }
  >
  y = Add (z, scaled)
}
"""


def model(seed: int) -> bytes:
    rng = np.random.default_rng(seed)
    lists = (rng.uniform(0.3, 0.8, 3) for _ in range(2))
    texts = tuple(", ".join(f"{value:.4f}" for value in one) for one in lists)
    return onnx_text.parse_model(MODEL % texts).SerializeToString()


def check(context: Any, data: bytes) -> None:
    x, y = random(2, 3), np.zeros((2, 3), np.float32)
    context.set_tensor_address("x", x.ctypes.data)
    context.set_tensor_address("y", y.ctypes.data)
    assert context.execute_async_v3(0)
    np.testing.assert_allclose(y, expected(data, x), rtol=1e-4, atol=1e-6)


def test_weights_in_loops_are_refitted() -> None:
    builder = trt.Builder()
    network = builder.create_network()
    assert trt.OnnxParser(network, trt.Logger()).parse(model(1))
    config = builder.create_builder_config()
    config.device = "cpu"
    config.set_flag(trt.BuilderFlag.REFIT)
    engine = load(builder.build_serialized_network(network, config))
    context = engine.create_execution_context()
    check(context, model(1))
    for seed in (2, 3):
        refit(engine, model(seed))
        check(context, model(seed))


def counted(make: Any) -> Any:
    """An engine: x, repeated `count` times by `make(network, state)`."""
    builder = trt.Builder()
    network = builder.create_network()
    x = network.add_input("x", trt.float32, (4,))
    count = network.add_input("count", trt.int32, ())
    loop = network.add_loop()
    loop.add_trip_limit(count, COUNT)
    state = loop.add_recurrence(x)
    state.set_input(1, make(network, state.get_output(0)))
    y = loop.add_loop_output(state.get_output(0), LAST).get_output(0)
    y.name = "y"
    network.mark_output(y)
    config = builder.create_builder_config()
    config.device = "cpu"
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    return load(builder.build_serialized_network(network, config))


def run(context: Any, x: Any, count: int) -> Any:
    y, number = np.zeros_like(x), np.asarray(count, np.int32)
    for name, array in (("x", x), ("count", number), ("y", y)):
        context.set_tensor_address(name, array.ctypes.data)
    assert context.execute_async_v3(0)
    return y


def doubled(network: Any, state: Any) -> Any:
    return network.add_elementwise(state, state, OP.SUM).get_output(0)


def test_debug_tensors_are_shown_in_each_iteration() -> None:
    class All(Listener):
        def __init__(self) -> None:
            super().__init__()
            self.values: list[Any] = []

        def process_debug_tensor(self, *arguments: Any) -> bool:
            super().process_debug_tensor(*arguments)
            self.values.append(self.seen["inside"])
            return True

    def make(network: Any, state: Any) -> Any:
        tensor = network.add_unary(state, trt.UnaryOperation.NEG).get_output(0)
        tensor.name = "inside"
        assert network.mark_debug(tensor)
        return doubled(network, tensor)

    engine = counted(make)
    assert engine.is_debug_tensor("inside")
    context, listener = engine.create_execution_context(), All()
    context.set_debug_listener(listener)
    assert context.set_tensor_debug_state("inside", True)
    x = random(4)
    run(context, x, 5)
    assert len(listener.values) == 5
    for i, value in enumerate(listener.values):
        np.testing.assert_allclose(value, -x * (-2.0) ** i, rtol=1e-6)


def test_assertions_hold_in_each_iteration() -> None:
    def make(network: Any, state: Any) -> Any:
        limit = constant(network, [20], np.float32)
        below = network.add_elementwise(state, limit, OP.LESS).get_output(0)
        network.add_assertion(below, "the state is small")
        return doubled(network, state)

    context = counted(make).create_execution_context()
    x = np.ones(4, np.float32)
    np.testing.assert_array_equal(run(context, x, 5), 32 * x)
    with pytest.raises(trt.Error, match=r"iteration 5: .*the state is small"):
        run(context, x, 6)
    np.testing.assert_array_equal(run(context, x, 3), 8 * x)


def test_times_are_those_of_all_iterations() -> None:
    class Times(trt.IProfiler):
        def __init__(self) -> None:
            super().__init__()
            self.seen: dict[str, float] = {}

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            self.seen[layer_name] = self.seen.get(layer_name, 0) + ms

    context = counted(doubled).create_execution_context()
    context.profiler = Times()
    x = random(4)
    run(context, x, 50)
    body = sum(ms for name, ms in context.profiler.seen.items() if "loop_0" not in name)
    assert 0 < body <= context.profiler.seen["loop_0"]


def test_the_inspector_shows_the_body() -> None:
    inspector = counted(doubled).create_engine_inspector()
    text = inspector.get_engine_information(trt.LayerInformationFormat.JSON)
    layers = json.loads(text)["Layers"]
    [loop] = [layer for layer in layers if layer["Name"] == "loop_0"]
    [body] = loop["Sequences"]
    assert body["Name"] == "loop_0/body"
    assert len(body["Layers"]) == 1


def test_loops_that_are_too_deep() -> None:
    def nested(depth: int) -> Any:
        def make(network: Any, state: Any) -> Any:
            if depth == 0:
                return doubled(network, state)
            loop = network.add_loop()
            loop.add_trip_limit(network.get_input(1), COUNT)
            inner = loop.add_recurrence(state)
            inner.set_input(1, nested(depth - 1)(network, inner.get_output(0)))
            return loop.add_loop_output(inner.get_output(0), LAST).get_output(0)

        return make

    context = counted(nested(15)).create_execution_context()
    x = random(4)
    np.testing.assert_allclose(run(context, x, 1), 2 * x)
    with pytest.raises(trt.Error, match=r"lies in 16 conditionals and loops"):
        counted(nested(16))
