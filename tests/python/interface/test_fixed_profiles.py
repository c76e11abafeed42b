"""Profiles that leave one shape, or one set of values: what they fix is no dynamic
dimension any more, as clients that make buffers by the engine's shapes expect."""

from __future__ import annotations

import numpy as np
import pytest
import rabbet as trt


def engine_of(profiles, values=None, name="x"):
    """y = reduce(x reshaped by s), where s is a shape input if `values` are given."""
    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)
    network = builder.create_network()
    x = network.add_input(name, trt.float32, (-1, -1, 4))
    if values is None:
        y = network.add_unary(x, trt.UnaryOperation.ABS).get_output(0)
    else:
        shape = network.add_input("s", trt.int64, (2,))
        shuffle = network.add_shuffle(x)
        shuffle.set_input(1, shape)
        y = shuffle.get_output(0)
    y.name = "y"
    network.mark_output(y)
    config = builder.create_builder_config()
    for i, (low, best, high) in enumerate(profiles):
        profile = builder.create_optimization_profile()
        profile.set_shape(name, low, best, high)
        if values is not None:
            profile.set_shape_input("s", *values[i])
        config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)
    return trt.Runtime(logger).deserialize_cuda_engine(plan)


ONE = (2, 3, 4)
TWO = (5, 3, 4)


@pytest.mark.parametrize(("profiles", "shape"), [
    ([(ONE, ONE, ONE)], ONE),
    ([(ONE, ONE, ONE), (ONE, ONE, ONE)], ONE),
    ([(ONE, ONE, ONE), (TWO, TWO, TWO)], (-1, 3, 4)),
    ([(ONE, ONE, TWO)], (-1, 3, 4)),
    ([((1, 1, 4), ONE, TWO)], (-1, -1, 4)),
])  # fmt: skip
def test_shapes(profiles, shape):
    engine = engine_of(profiles)
    assert tuple(engine.get_tensor_shape("x")) == shape
    assert tuple(engine.get_tensor_shape("y")) == shape


def run(engine, given, shape):
    context = engine.create_execution_context()
    out = np.full(shape, np.nan, np.float32)
    for name, array in {**given, "y": out}.items():
        context.set_tensor_address(name, array.ctypes.data)
    assert context.execute_async_v3(0)
    return out


def test_a_context_needs_to_be_told_nothing():
    engine = engine_of([(ONE, ONE, ONE)])
    assert engine.create_execution_context().all_binding_shapes_specified
    x = np.random.default_rng(0).normal(size=ONE).astype(np.float32)
    np.testing.assert_array_equal(run(engine, {"x": x}, ONE), abs(x))


def test_other_shapes_are_refused_still():
    context = engine_of([(ONE, ONE, ONE)]).create_execution_context()
    assert context.set_input_shape("x", ONE)
    with pytest.raises(trt.Error, match="x"):
        context.set_input_shape("x", TWO)
    assert tuple(context.get_tensor_shape("y")) == ONE


@pytest.mark.parametrize(("values", "shape"), [
    ([([4, 6], [4, 6], [4, 6])], (4, 6)),
    ([([4, 1], [4, 6], [4, 24])], (4, -1)),
])  # fmt: skip
def test_values(values, shape):
    engine = engine_of([(ONE, ONE, ONE)], values)
    assert tuple(engine.get_tensor_shape("y")) == shape
    if -1 not in shape:
        x = np.arange(24, dtype=np.float32).reshape(ONE)
        found = run(engine, {"x": x, "s": np.array(shape)}, shape)
        np.testing.assert_array_equal(found, x.reshape(shape))
