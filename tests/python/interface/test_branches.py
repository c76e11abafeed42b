"""Engines of networks whose branches are chosen in runs: weights, memory, debug
tensors, preparing, reports."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import rabbet as trt
from onnx import parser as onnx_text

from tests.python.interface.test_algorithms import Keeps
from tests.python.interface.test_debug_tensors import Listener
from tests.python.interface.test_refit import expected, load, refit
from tests.python.support.plugins import constant, random

FLAG = trt.BuilderFlag
OP = trt.ElementWiseOperation

# `w` is read inside of a branch and outside; `t` and `e` belong to one branch.
MODEL = """
<ir_version: 9, opset_import: ["" : 17]>
g (float[2, 3] x) => (float[2, 3] y)
<float[1, 3] w = {%s}>
{
  zero = Constant <value_float = 0.0> ()
  total = ReduceSum <keepdims = 0> (x)
  large = Greater (total, zero)
  scaled = Mul (x, w)
  z = If (large) <
    then_branch = then () => (float[2, 3] a)
    <float[1, 3] t = {%s}>
    { p = Mul (scaled, w)  a = Add (p, t) },
    else_branch = other () => (float[2, 3] b)
    <float[3, 3] e = {%s}>
    { b = MatMul (scaled, e) }
  >
  y = Relu (z)
}
"""


def model(seed: int) -> bytes:
    rng = np.random.default_rng(seed)
    lists = (rng.uniform(0.5, 2, count) for count in (3, 3, 9))
    texts = tuple(", ".join(f"{value:.4f}" for value in one) for one in lists)
    return onnx_text.parse_model(MODEL % texts).SerializeToString()


def build(network: Any, config: Any) -> Any:
    config.device = "cpu"
    return trt.Builder().build_serialized_network(network, config)


def build_onnx(data: bytes, *flags: trt.BuilderFlag) -> Any:
    builder = trt.Builder()
    network = builder.create_network()
    assert trt.OnnxParser(network, trt.Logger()).parse(data)
    config = builder.create_builder_config()
    for flag in flags:
        config.set_flag(flag)
    return build(network, config)


def run(context: Any, x: Any) -> Any:
    y = np.zeros_like(x)
    context.set_tensor_address("x", x.ctypes.data)
    context.set_tensor_address("y", y.ctypes.data)
    context.execute_async_v3(0)
    return y


def check(context: Any, data: bytes) -> None:
    x = np.abs(random(2, 3))
    for value in (x, -x):
        np.testing.assert_allclose(run(context, value), expected(data, value), rtol=1e-4)


def test_weights_in_branches_are_refitted() -> None:
    engine = load(build_onnx(model(1), FLAG.REFIT))
    context = engine.create_execution_context()
    check(context, model(1))
    refitter = trt.Refitter(engine, trt.Logger())
    names = {name.rpartition("/")[2]: name for name in refitter.get_all_weights()}
    assert {"e", "t", "w"} <= set(names)
    for seed in (2, 3):
        refit(engine, model(seed))
        check(context, model(seed))
    # One of them alone, inside of a branch.
    refitter = trt.Refitter(engine, trt.Logger())
    assert refitter.set_named_weights(names["t"], np.zeros((1, 3), np.float32))
    assert refitter.refit_cuda_engine()
    x = np.abs(random(2, 3))
    assert (run(context, x) < expected(model(3), x)).all()
    np.testing.assert_allclose(run(context, -x), expected(model(3), -x), rtol=1e-4)


def test_stripped_plans_with_branches() -> None:
    plan = bytes(build_onnx(model(4), FLAG.STRIP_PLAN))
    engine = load(plan)
    refitter = trt.Refitter(engine, trt.Logger())
    missing = {name.rpartition("/")[2] for name in refitter.get_missing_weights()}
    assert {"e", "t", "w"} <= missing
    with pytest.raises(trt.Error, match="lacks"):
        engine.create_execution_context()
    refit(engine, model(5))
    check(engine.create_execution_context(), model(5))


def network_of(make: Any, shape: tuple[int, ...] = (-1, 64)) -> Any:
    """y = a choice between two tensors that `make` returns for x."""
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, shape)
    axes = 2 ** len(shape) - 1
    total = network.add_reduce(x, trt.ReduceOperation.SUM, axes, False).get_output(0)
    choice = network.add_if_conditional()
    choice.name = "choice"
    zero = constant(network, 0, np.float32)
    large = network.add_elementwise(total, zero, OP.GREATER).get_output(0)
    choice.set_condition(large)
    inside = choice.add_input(x).get_output(0)
    y = choice.add_output(*make(network, inside)).get_output(0)
    y.name = "y"
    network.mark_output(y)
    return network


def deep(network: Any, x: Any) -> tuple[Any, Any]:
    """Products with a large tensor between them, and a sum."""
    none = trt.MatrixOperation.NONE
    wide = constant(network, np.ones((64, 512), np.float32) / 64)
    narrow = constant(network, np.ones((512, 64), np.float32) / 512)
    a = network.add_matrix_multiply(x, none, wide, none).get_output(0)
    a.name = "a"
    b = network.add_matrix_multiply(a, none, narrow, none).get_output(0)
    c = network.add_elementwise(x, x, OP.SUM).get_output(0)
    return b, c


def test_refitted_weights_that_a_constant_is_computed_from() -> None:
    v = np.float32([[1, 2, 3, 4]])

    def make(network: Any, x: Any) -> tuple[Any, Any]:
        weights = network.add_constant(v.shape, v)
        weights.name = "v"
        twice = network.add_elementwise(*[weights.get_output(0)] * 2, OP.SUM).get_output(0)
        return network.add_elementwise(x, twice, OP.SUM).get_output(0), x

    network = network_of(make, (2, 4))
    config = trt.Builder().create_builder_config()
    config.set_flag(FLAG.REFIT)
    engine = load(build(network, config))
    context = engine.create_execution_context()
    x = np.abs(random(2, 4))
    np.testing.assert_allclose(run(context, x), x + 2 * v, rtol=1e-6)
    refitter = trt.Refitter(engine, trt.Logger())
    assert refitter.set_weights("v", trt.WeightsRole.CONSTANT, 10 * v)
    assert refitter.refit_cuda_engine()
    np.testing.assert_allclose(run(context, x), x + 20 * v, rtol=1e-6)
    np.testing.assert_allclose(run(context, -x), -x, rtol=1e-6)


def dynamic(network: Any, *rows: int) -> Any:
    config = trt.Builder().create_builder_config()
    profile = trt.Builder().create_optimization_profile()
    profile.set_shape("x", *((count, 64) for count in rows))
    config.add_optimization_profile(profile)
    return config


def mean(x: Any) -> Any:
    return np.broadcast_to(x.mean(1, keepdims=True), x.shape)


def test_the_caller_gives_memory_for_branches_too() -> None:
    network = network_of(deep)
    engine = load(build(network, dynamic(network, 1, 4, 100)))
    strategy = trt.ExecutionContextAllocationStrategy.USER_MANAGED
    context = engine.create_execution_context(strategy)
    whole = engine.get_device_memory_size_for_profile_v2(0)
    assert whole >= 100 * 512 * 4
    context.set_input_shape("x", (4, 64))
    size = context.update_device_memory_size_for_shapes()
    assert 4 * 512 * 4 <= size < whole
    memory = np.full(whole + 256, 7, np.uint8)
    base = -(-memory.ctypes.data // 256) * 256
    x = np.abs(random(4, 64))
    context.set_device_memory(base, size)
    for value, wanted in ((x, mean(x)), (-x, -2 * x), (x, mean(x))):
        np.testing.assert_allclose(run(context, value), wanted, rtol=1e-4)
    begin = base - memory.ctypes.data
    assert (memory[:begin] == 7).all()
    assert (memory[begin : begin + size] != 7).any()
    assert (memory[begin + size :] == 7).all()
    x = np.abs(random(100, 64))
    context.set_input_shape("x", x.shape)
    with pytest.raises(trt.Error, match=f"was given {size} bytes of memory"):
        run(context, x)
    context.set_device_memory(base, whole)
    np.testing.assert_allclose(run(context, x), mean(x), rtol=1e-4)
    np.testing.assert_allclose(run(context, -x), -2 * x, rtol=1e-4)


class Allocator(trt.IGpuAllocator):
    """Counts, and keeps, what is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks: list[Any] = []

    def allocate(self, size: int, alignment: int, flags: int) -> int:
        self.blocks.append(np.empty(size + alignment, np.uint8))
        return -(-self.blocks[-1].ctypes.data // alignment) * alignment

    def deallocate(self, memory: int) -> bool:
        return True


def test_prepare_prepares_both_branches() -> None:
    network = network_of(deep)
    engine = load(build(network, dynamic(network, 1, 4, 8)))
    context = engine.create_execution_context()
    allocator = Allocator()
    context.temporary_allocator = allocator
    x = np.abs(random(8, 64))
    context.set_input_shape("x", x.shape)
    y = np.zeros_like(x)
    context.set_tensor_address("x", x.ctypes.data)
    context.set_tensor_address("y", y.ctypes.data)
    context.prepare()
    asked = len(allocator.blocks)
    assert sum(block.size for block in allocator.blocks) >= 8 * 512 * 4
    run(context, x)
    run(context, -x)
    assert len(allocator.blocks) == asked


def test_debug_tensors_in_branches() -> None:
    def make(network: Any, x: Any) -> tuple[Any, Any]:
        b, c = deep(network, x)
        for layer in network:
            tensor = layer.get_output(0)
            if tensor is not None and tensor.name == "a":
                assert network.mark_debug(tensor)
        return b, c

    network = network_of(make)
    engine = load(build(network, dynamic(network, 1, 4, 8)))
    assert engine.is_debug_tensor("a")
    context, listener = engine.create_execution_context(), Listener()
    context.set_debug_listener(listener)
    assert context.set_tensor_debug_state("a", True)
    assert context.get_debug_state("a")
    for rows in (4, 8):
        x = np.abs(random(rows, 64))
        context.set_input_shape("x", x.shape)
        listener.seen.clear()
        run(context, -x)
        assert not listener.seen
        run(context, x)
        wanted = np.broadcast_to(x.mean(1, keepdims=True), (rows, 512))
        np.testing.assert_allclose(listener.seen["a"], wanted, rtol=1e-4)


def test_reports_and_selectors_know_branches() -> None:
    phases: list[str] = []
    limit = 100

    class Monitor(trt.IProgressMonitor):
        def phase_start(self, name: str, parent: Any, steps: int) -> None:
            phases.append(name)

        def step_complete(self, name: str, step: int) -> bool:
            return phases.count("Timing candidates") < limit

    network = network_of(deep)
    config = dynamic(network, 1, 4, 8)
    selector = Keeps()
    config.progress_monitor = Monitor()
    config.algorithm_selector = selector
    build(network, config)
    assert phases.count("Building") == 1
    assert phases.count("Timing candidates") == 3  # and of each branch
    assert len(selector.taken) > 4
    shapes = {"x": [(1, 64), (4, 64), (8, 64)]}
    model = trt.compile(network, device="cpu", shapes=shapes)
    report = json.loads(model.report_json)
    sequences = {step.get("sequence") for step in report["steps"]}
    assert sequences == {None, "choice/true", "choice/false"}
    assert report["memory"] >= 4 * 512 * 4
    assert "choice/true: " in model.report
    # A build ends in a branch, too.
    phases.clear()
    limit = 2
    config.algorithm_selector = None
    with pytest.raises(trt.Error, match="cancelled"):
        build(network, config)


def below(network: Any, x: Any, limit: float) -> Any:
    bound = constant(network, np.full((1, 1), limit, np.float32))
    return network.add_elementwise(x, bound, OP.LESS).get_output(0)


def test_assertions_in_branches() -> None:
    """One is of the branch whose tensors it reads; one about what comes in, and one
    outside, hold in any case."""

    def make(network: Any, x: Any) -> tuple[Any, Any]:
        twice = network.add_elementwise(x, x, OP.SUM).get_output(0)
        network.add_assertion(below(network, twice, 10), "twice is small")
        network.add_assertion(below(network, x, 100), "x is small")
        return twice, x

    network = network_of(make, (2, 4))
    network.add_assertion(below(network, network.get_input(0), 1000), "outside")
    context = load(build(network, trt.Builder().create_builder_config()))
    context = context.create_execution_context()
    x = np.ones((2, 4), np.float32)

    def runs(value: Any) -> Any:
        y = np.zeros_like(value)
        return context.execute_v2([value.ctypes.data, y.ctypes.data]) and y

    np.testing.assert_array_equal(runs(x), 2 * x)
    np.testing.assert_array_equal(runs(-8 * x), -8 * x)
    mixed = -200 * x
    mixed[0, 0] = 50
    np.testing.assert_array_equal(runs(mixed), mixed)
    for value, message in (
        (8 * x, "twice is small"),
        (np.where(mixed > 0, 150, mixed).astype(np.float32), "x is small"),
        (np.where(mixed > 0, 1100, mixed).astype(np.float32), "is small|outside"),
    ):
        with pytest.raises(trt.Error, match=message):
            runs(value)
    np.testing.assert_array_equal(runs(x), 2 * x)

    def both(network: Any, x: Any) -> tuple[Any, Any]:
        twice = network.add_elementwise(x, x, OP.SUM).get_output(0)
        minus = network.add_unary(x, trt.UnaryOperation.NEG).get_output(0)
        less = network.add_elementwise(minus, twice, OP.LESS).get_output(0)
        network.add_assertion(less, "both")
        return twice, minus

    with pytest.raises(trt.Error, match=r"'choice': the asserted .* of both branches"):
        build(network_of(both, (2, 4)), trt.Builder().create_builder_config())


def test_debug_tensors_that_no_output_needs() -> None:
    def make(network: Any, x: Any) -> tuple[Any, Any]:
        twice = network.add_elementwise(x, x, OP.SUM).get_output(0)
        seen = network.add_unary(twice, trt.UnaryOperation.NEG).get_output(0)
        seen.name = "seen"
        assert network.mark_debug(seen)
        return twice, x

    network = network_of(make, (2, 4))
    engine = load(build(network, trt.Builder().create_builder_config()))
    context, listener = engine.create_execution_context(), Listener()
    context.set_debug_listener(listener)
    assert context.set_tensor_debug_state("seen", True)
    x = np.abs(random(2, 4))
    run(context, -x)
    assert not listener.seen
    run(context, x)
    np.testing.assert_array_equal(listener.seen["seen"], -2 * x)


@pytest.mark.parametrize("best", [4, 15])
def test_branches_for_other_shapes(best: int) -> None:
    """A branch that the present shapes do not fit is no obstacle to preparing and
    measuring; a run that takes it fails."""

    def make(network: Any, x: Any) -> tuple[Any, Any]:
        ten = network.add_slice(x, (0, 0), (10, 64), (1, 1)).get_output(0)
        return ten, network.add_elementwise(x, x, OP.SUM).get_output(0)

    network = network_of(make)
    engine = load(build(network, dynamic(network, 1, best, 20)))
    context = engine.create_execution_context()
    for rows, sign in ((12, 1), (4, -1), (20, 1), (20, -1), (1, -1)):
        x = np.abs(random(rows, 64)) * np.float32(sign)
        y = np.zeros_like(x)
        context.set_input_shape("x", x.shape)
        context.set_tensor_address("x", x.ctypes.data)
        context.set_tensor_address("y", y.ctypes.data)
        assert context.update_device_memory_size_for_shapes() > 0
        assert context.prepare()
        context.execute_async_v3(0)
        np.testing.assert_array_equal(y[:10], x[:10] if sign > 0 else 2 * x[:10])
    context.set_input_shape("x", (4, 64))
    with pytest.raises(trt.OutOfRangeError, match="has 4 elements"):
        run(context, np.abs(random(4, 64)))
