"""Networks with conditionals whose condition only a run tells, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import rabbet as trt

from tests.python.support.plugins import build, random

OP = trt.ElementWiseOperation
SUM, PROD, GREATER = OP.SUM, OP.PROD, OP.GREATER


def out(layer: Any) -> Any:
    return layer.get_output(0)


def constant(network: Any, values: Any, dtype: Any = np.float32) -> Any:
    array = np.asarray(values, dtype)
    return out(network.add_constant(array.shape, array))


def calculate(network: Any, a: Any, b: Any, op: Any = SUM) -> Any:
    return out(network.add_elementwise(a, b, op))


def unary(network: Any, x: Any, op: Any) -> Any:
    return out(network.add_unary(x, op))


def is_large(network: Any, x: Any, level: float = 0) -> Any:
    """Whether the sum of all elements is above the level."""
    axes = 2 ** len(x.shape) - 1
    total = out(network.add_reduce(x, trt.ReduceOperation.SUM, axes, False))
    return calculate(network, total, constant(network, level), GREATER)


def check_one_branch(device: str) -> None:
    def make(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (2, 3))
        choice = network.add_if_conditional()
        choice.set_condition(is_large(network, x))
        inside = out(choice.add_input(x))
        yes = unary(network, inside, trt.UnaryOperation.EXP)
        no = calculate(network, inside, constant(network, [[3.0]]), PROD)
        return out(choice.add_output(yes, no))

    model = build(make, device=device)
    x = np.abs(random(2, 3))
    # Again and again, so that what is recorded is replayed.
    for value in (x, -x, x, x, -x, -x, -x, x):
        wanted = np.exp(value) if value.sum() > 0 else value * 3
        np.testing.assert_allclose(model(value), wanted, rtol=1e-5)


def check_different_shapes(device: str) -> None:
    def make(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (-1, 3))
        choice = network.add_if_conditional()
        choice.set_condition(is_large(network, x))
        inside = out(choice.add_input(x))
        twice = out(network.add_concatenation([inside, inside]))
        yes = unary(network, twice, trt.UnaryOperation.NEG)
        no = out(network.add_reduce(inside, trt.ReduceOperation.MAX, 1, True))
        chosen = out(choice.add_output(yes, no))
        # The rest depends on how many rows there are.
        wide = calculate(network, chosen, constant(network, [[1, 2, 3]]))
        rows = out(network.add_reduce(chosen, trt.ReduceOperation.SUM, 2, False))
        return chosen, wide, rows

    model = build(make, device=device, shapes={"x": [(1, 3), (4, 3), (9, 3)]})
    for rows in (4, 1, 9):
        for sign in (1, -1):
            x = np.abs(random(rows, 3)) * np.float32(sign)
            chosen = -np.concatenate([x, x]) if sign > 0 else x.max(0, keepdims=True)
            got = model(x)
            np.testing.assert_allclose(got[0], chosen, rtol=1e-6)
            np.testing.assert_allclose(got[1], chosen + np.float32([1, 2, 3]), rtol=1e-5)
            np.testing.assert_allclose(got[2], chosen.sum(1), rtol=1e-5)


def check_captures(device: str) -> None:
    """Several captured tensors and results; a result that is what came in; a branch
    without layers."""

    def make(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (-1, 4))
        y = network.add_input("y", trt.float32, (-1, 4))
        w = constant(network, np.arange(16).reshape(4, 4))
        choice = network.add_if_conditional()
        choice.set_condition(is_large(network, x))
        a, b = out(choice.add_input(x)), out(choice.add_input(y))
        none = trt.MatrixOperation.NONE
        product = out(network.add_matrix_multiply(a, none, w, none))
        first = choice.add_output(calculate(network, product, b), b)
        second = choice.add_output(a, constant(network, [[7, 8]]))
        return out(first), out(second)

    shapes = {name: [(1, 4), (3, 4), (5, 4)] for name in "xy"}
    model = build(make, device=device, shapes=shapes)
    w = np.arange(16, dtype=np.float32).reshape(4, 4)
    for rows in (3, 5):
        for sign in (1, -1):
            x = np.abs(random(rows, 4)) * np.float32(sign)
            y = random(rows, 4)
            first, second = model(x, y)
            np.testing.assert_allclose(first, x @ w + y if sign > 0 else y, rtol=2e-3)
            np.testing.assert_array_equal(second, x if sign > 0 else [[7, 8]])


def check_nested(device: str) -> None:
    def make(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (3,))
        y = network.add_input("y", trt.float32, (3,))
        outer = network.add_if_conditional()
        outer.set_condition(is_large(network, x))
        a = out(outer.add_input(x))
        inner = network.add_if_conditional()
        inner.set_condition(is_large(network, y))
        b, c = out(inner.add_input(a)), out(inner.add_input(y))
        yes = unary(network, b, trt.UnaryOperation.NEG)
        deep = out(inner.add_output(calculate(network, yes, c), calculate(network, b, b)))
        no = calculate(network, a, constant(network, [10]), PROD)
        return out(outer.add_output(calculate(network, deep, a, PROD), no))

    model = build(make, device=device)
    for signs in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
        x, y = (np.abs(random(3)) * np.float32(s) for s in signs)
        deep = y - x if y.sum() > 0 else x + x
        wanted = deep * x if x.sum() > 0 else x * 10
        np.testing.assert_allclose(model(x, y), wanted, rtol=1e-5)


def check_shapes_from_values(device: str) -> None:
    """A branch reshapes by numbers that come from outside."""

    def make(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (-1,))
        choice = network.add_if_conditional()
        choice.set_condition(is_large(network, x))
        a = out(choice.add_input(x))
        half = out(choice.add_input(out(network.add_shape(x))))
        rows = calculate(network, half, constant(network, [2], np.int64), OP.FLOOR_DIV)
        size = out(network.add_concatenation([rows, constant(network, [2], np.int64)]))
        pairs = network.add_shuffle(a)
        pairs.set_input(1, size)
        single = network.add_shuffle(a)
        single.reshape_dims = (1, -1)
        return out(choice.add_output(out(pairs), out(single)))

    model = build(make, device=device, shapes={"x": [(2,), (6,), (8,)]})
    for count in (6, 2, 8):
        x = np.abs(random(count))
        np.testing.assert_array_equal(model(x), x.reshape(-1, 2))
        np.testing.assert_array_equal(model(-x), -x.reshape(1, -1))


def check_in_a_loop(device: str) -> None:
    """Each iteration chooses by its own condition."""

    def make(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (4,))
        loop = network.add_loop()
        loop.add_trip_limit(constant(network, 4, np.int32), trt.TripLimit.COUNT)
        state = loop.add_recurrence(x)
        now = out(state)
        choice = network.add_if_conditional()
        choice.set_condition(is_large(network, now, 10))
        a = out(choice.add_input(now))
        half = calculate(network, a, constant(network, [0.25]), PROD)
        state.set_input(1, out(choice.add_output(half, calculate(network, a, a))))
        return out(loop.add_loop_output(now, trt.LoopOutput.LAST_VALUE))

    model = build(make, device=device)
    x = np.abs(random(4)) + 1
    wanted = x
    for _ in range(4):
        wanted = wanted / 4 if wanted.sum() > 10 else wanted * 2
    np.testing.assert_allclose(model(x), wanted, rtol=1e-6)


CHECKS = (
    check_one_branch,
    check_different_shapes,
    check_captures,
    check_nested,
    check_shapes_from_values,
    check_in_a_loop,
)
