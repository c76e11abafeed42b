"""Assertions of networks: when they are looked at, and what they say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import rabbet as trt

from tests.python.support.plugins import constant

OP = trt.ElementWiseOperation


def network_of() -> Any:
    return trt.Builder(trt.Logger()).create_network()


def compare(network: Any, a: Any, b: Any, op: Any) -> Any:
    return network.add_elementwise(a, b, op).get_output(0)


def finished(network: Any, x: Any, **options: Any) -> Any:
    last = network.add_unary(x, trt.UnaryOperation.NEG).get_output(0)
    last.name = "y"
    network.mark_output(last)
    return trt.compile(network, device="cpu", optimization_level=1, **options)


def test_the_layer() -> None:
    network = network_of()
    x = network.add_input("x", trt.bool, (2,))
    layer = network.add_assertion(x, "both")
    assert type(layer) is trt.IAssertionLayer
    assert layer.type is trt.LayerType.ASSERTION
    assert (layer.num_inputs, layer.num_outputs) == (1, 0)
    assert layer.message == "both"
    layer.message = "all of them"
    assert layer.message == "all of them"
    assert layer.get_input(0).name == "x"
    with pytest.raises(TypeError, match="message: expected a str, got 3"):
        network.add_assertion(x, 3)
    for wrong, error, says in [
        ("a\0b", ValueError, "'message'.* null character at 1 of its 3 bytes"),
        (None, TypeError, "message of layer 'assertion_0': expected a str, got None"),
    ]:
        with pytest.raises(error, match=says):
            layer.message = wrong
    with pytest.raises(ValueError, match="null character at 1"):
        network.add_assertion(x, "a\0b")
    assert layer.message == "all of them"
    network.add_assertion(network.add_input("f", trt.float32, (2,)), "no")
    with pytest.raises(trt.Error, match=r"'condition'\) has type FLOAT; .* takes BOOL"):
        network.validate()


@pytest.mark.parametrize("size", [2, 5000])
def test_constants_are_checked_at_build(size: int) -> None:
    for holds in (True, False):
        network = network_of()
        x = network.add_input("x", trt.float32, (2,))
        values = np.ones(size, np.bool_)
        values[-1] = holds
        layer = network.add_assertion(
            constant(network, values, np.bool_), "they differ"
        )
        layer.name = "same"
        if holds:
            assert finished(network, x)(np.ones(2, np.float32)).tolist() == [-1, -1]
            continue
        with pytest.raises(
            trt.Error, match=r"layer 'same' \(assertion\) never holds: they differ"
        ):
            finished(network, x)


def rows_below(network: Any, x: Any, limit: int) -> None:
    """The extent of axis 0 is below a number."""
    shape = network.add_shape(x).get_output(0)
    rows = network.add_gather(shape, constant(network, 0, np.int32), 0).get_output(0)
    below = compare(network, rows, constant(network, limit, np.int64), OP.LESS)
    layer = network.add_assertion(below, f"fewer than {limit} rows are possible")
    layer.name = "rows"


def test_shapes_are_checked_when_they_are_set() -> None:
    network = network_of()
    x = network.add_input("x", trt.float32, (-1, 3))
    rows_below(network, x, 4)
    model = finished(network, x, shapes={"x": [(1, 3), (2, 3), (8, 3)]})
    says = r"layer 'rows' \(assertion\) does not hold: fewer than 4 rows"
    for count in (3, 5, 2, 4):
        value = np.ones((count, 3), np.float32)
        if count < 4:
            assert np.array_equal(model(value), -value)
        else:
            with pytest.raises(trt.Error, match=says):
                model(value)
    context = model.engine.create_execution_context()
    context.set_input_shape("x", (3, 3))
    assert context.infer_shapes() == []
    context.set_input_shape("x", (6, 3))
    with pytest.raises(trt.Error, match=says):
        context.infer_shapes()


def test_fixed_shapes_are_checked_at_build() -> None:
    network = network_of()
    x = network.add_input("x", trt.float32, (9, 3))
    rows_below(network, x, 4)
    with pytest.raises(trt.Error, match=r"layer 'rows' .* never holds: fewer than 4"):
        finished(network, x)


def test_data_are_checked_in_runs() -> None:
    network = network_of()
    x = network.add_input("x", trt.float32, (2, 3))
    flag = network.add_input("flag", trt.bool, ())
    for name, op, limit in (("low", OP.GREATER, -10), ("high", OP.LESS, 10)):
        bound = constant(network, [[limit]], np.float32)
        layer = network.add_assertion(
            compare(network, x, bound, op), f"{name}: {limit}"
        )
        layer.name = name
    network.add_assertion(flag, "the flag is down").name = "flag"
    model = finished(network, x)
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    yes, no = np.array(True), np.array(False)
    for _ in range(2):
        assert np.array_equal(model(value, yes), -value)
        with pytest.raises(trt.Error, match=r"layer 'high' \(assertion\) .*: high: 10"):
            model(value + 8, yes)
        with pytest.raises(trt.Error, match=r"layer 'low' \(assertion\) .*: low: -10"):
            model(value - 11, yes)
        with pytest.raises(trt.Error, match=r"layer 'flag' .*: the flag is down"):
            model(value, no)
    assert model.engine.num_io_tensors == 3


def test_values_of_shape_inputs_are_checked() -> None:
    network = network_of()
    x = network.add_input("x", trt.float32, (6,))
    size = network.add_input("size", trt.int32, (2,))
    reshaped = network.add_shuffle(x)
    reshaped.set_input(1, size)
    even = compare(network, size, constant(network, [2, 3], np.int32), OP.EQUAL)
    network.add_assertion(even, "two rows of three").name = "shape"
    network.mark_output(reshaped.get_output(0))
    builder = trt.Builder(trt.Logger())
    config = builder.create_builder_config()
    config.device = "cpu"
    profile = builder.create_optimization_profile()
    profile.set_shape_input("size", [1, 1], [2, 3], [6, 6])
    config.add_optimization_profile(profile)
    model = trt.Model(builder.build_engine_with_config(network, config))
    value = np.arange(6, dtype=np.float32)
    assert model(value, np.array([2, 3], np.int32)).shape == (2, 3)
    with pytest.raises(trt.Error, match=r"layer 'shape' .*: two rows of three"):
        model(value, np.array([3, 2], np.int32))


def test_assertions_within_loops_tell_the_iteration() -> None:
    network = network_of()
    x = network.add_input("x", trt.float32, (2,))
    loop = network.add_loop()
    loop.name = "doubling"
    loop.add_trip_limit(constant(network, 4, np.int32), trt.TripLimit.COUNT)
    state = loop.add_recurrence(x)
    now = state.get_output(0)
    limit = constant(network, [20], np.float32)
    network.add_assertion(
        compare(network, now, limit, OP.LESS), "too large"
    ).name = "size"
    state.set_input(1, compare(network, now, now, OP.SUM))
    last = loop.add_loop_output(now, trt.LoopOutput.LAST_VALUE).get_output(0)
    model = finished(network, last)
    assert model(np.array([1, 2], np.float32)).tolist() == [-16, -32]
    with pytest.raises(trt.Error, match=r"layer 'doubling\[2\]/size' .*: too large"):
        model(np.array([1, 5], np.float32))


def test_execution_contexts_report_them() -> None:
    network = network_of()
    x = network.add_input("x", trt.float32, (2,))
    limit = constant(network, [1], np.float32)
    network.add_assertion(
        compare(network, x, limit, OP.LESS), "at least 1"
    ).name = "low"
    engine = finished(network, x).engine
    context = engine.create_execution_context()
    value, result = np.zeros(2, np.float32), np.zeros(2, np.float32)
    addresses = [value.ctypes.data, result.ctypes.data]
    assert context.execute_v2(addresses)
    value[:] = 2
    with pytest.raises(trt.Error, match=r"layer 'low' .*: at least 1"):
        context.execute_v2(addresses)
    value[:] = 0
    assert context.execute_v2(addresses)
    # A plan that is saved has them, too.
    again = trt.Runtime(trt.Logger()).deserialize_cuda_engine(engine.serialize())
    context = again.create_execution_context()
    value[:] = 2
    with pytest.raises(trt.Error, match=r"layer 'low' .*: at least 1"):
        context.execute_v2(addresses)
