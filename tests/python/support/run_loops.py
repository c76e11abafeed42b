"""Loops whose number of iterations only a run knows, against NumPy."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import rabbet as trt

from tests.python.support.plugins import build, random

OP = trt.ElementWiseOperation
SUM, PROD, LESS = OP.SUM, OP.PROD, OP.LESS
COUNT, WHILE = trt.TripLimit.COUNT, trt.TripLimit.WHILE
LAST, STACK, REVERSE = (
    trt.LoopOutput.LAST_VALUE,
    trt.LoopOutput.CONCATENATE,
    trt.LoopOutput.REVERSE,
)


def constant(network: Any, values: Any, dtype: Any = np.float32) -> Any:
    array = np.asarray(values, dtype)
    return network.add_constant(array.shape, array).get_output(0)


def calculate(network: Any, a: Any, b: Any, op: Any = SUM) -> Any:
    return network.add_elementwise(a, b, op).get_output(0)


def out(layer: Any) -> Any:
    return layer.get_output(0)


def runner(device: str, make: Any, *values: Any, **options: Any) -> Any:
    """Builds what `make(network, *tensors)` makes; runs it, giving a list of outputs."""

    def network_of(network: Any) -> Any:
        tensors = [
            network.add_input(f"x{i}", trt._arrays.dtype_of(v.dtype), v.shape)
            for i, v in enumerate(values)
        ]
        return make(network, *tensors)

    run = build(network_of, device=device, **options)

    def run_all(*given: Any) -> list[Any]:
        result = run(*given)
        return list(result) if isinstance(result, tuple) else [result]

    return run_all


def number(value: int, dtype: Any = np.int32) -> Any:
    return np.asarray(value, dtype)


# ---- Counts


def last_value_of_a_count_that_is_an_input(device: str, dtype: Any) -> None:
    x = random(3, 4)

    def make(network: Any, tensor: Any, count: Any) -> Any:
        loop = network.add_loop()
        loop.add_trip_limit(count, COUNT)
        state = loop.add_recurrence(tensor)
        half = constant(network, [[0.5]])
        state.set_input(
            1, calculate(network, calculate(network, out(state), half, PROD), tensor)
        )
        return out(loop.add_loop_output(out(state), LAST))

    run = runner(device, make, x, number(0, dtype))
    wanted = x
    for trips in range(6):
        np.testing.assert_allclose(run(x, number(trips, dtype))[0], wanted, rtol=1e-6)
        wanted = wanted * np.float32(0.5) + x
    np.testing.assert_array_equal(run(x, number(-3, dtype))[0], x)


def iterators_and_stacks(device: str, axis: int, reverse: bool, kind: Any) -> None:
    x = random(3, 4)

    def make(network: Any, tensor: Any, count: Any) -> Any:
        loop = network.add_loop()
        loop.add_trip_limit(count, COUNT)
        each = loop.add_iterator(tensor, axis % 2, reverse)
        total = loop.add_recurrence(constant(network, np.zeros(7 - x.shape[axis])))
        total.set_input(1, calculate(network, out(total), out(each)))
        sums = loop.add_loop_output(total.get_input(1), kind, axis)
        padded = loop.add_loop_output(out(total), kind, axis)
        padded.set_input(1, constant(network, 6, np.int32))
        return out(sums), out(padded), out(loop.add_loop_output(out(total), LAST))

    run = runner(device, make, x, number(0))
    slices = [np.take(x, i, axis) for i in range(x.shape[axis])]
    slices = slices[::-1] if reverse else slices
    zeros = np.zeros_like(slices[0])
    for count in [2, 3, 1, 0, -2]:
        trips = max(count, 0)
        sums = [zeros, *np.cumsum(slices[:trips], 0)]
        order = slice(None, None, -1) if kind is REVERSE else slice(None)
        stacked, padded, last = run(x, number(count))
        np.testing.assert_allclose(last, sums[-1], rtol=1e-5)
        if trips:
            np.testing.assert_allclose(
                stacked, np.stack(sums[1:][order], axis), rtol=1e-5
            )
        assert stacked.shape[axis] == trips
        wanted = [*sums[:-1][order], *[zeros] * (6 - trips)]
        np.testing.assert_allclose(padded, np.stack(wanted, axis), rtol=1e-5)
    with pytest.raises(
        trt.Error, match=r"has [34] slices, but the loop runs more often"
    ):
        run(x, number(5))


# ---- Conditions


def collatz(network: Any, start: Any) -> Any:
    loop = network.add_loop()
    at = loop.add_recurrence(start)
    one, two, three = (constant(network, i, np.int32) for i in (1, 2, 3))
    n = out(at)
    half = calculate(network, n, two, OP.DIV)
    odd = calculate(network, n, calculate(network, half, two, PROD), OP.SUB)
    more = calculate(network, calculate(network, n, three, PROD), one)
    is_odd = calculate(network, odd, one, OP.EQUAL)
    at.set_input(1, out(network.add_select(is_odd, more, half)))
    loop.add_trip_limit(calculate(network, n, one, OP.GREATER), WHILE)
    return loop, at


def collatz_of(n: int) -> list[int]:
    steps = []
    while n > 1:
        steps.append(n)
        n = 3 * n + 1 if n % 2 else n // 2
    return steps


def while_of_what_a_run_gives(device: str, kind: Any) -> None:
    def make(network: Any, start: Any, x: Any) -> Any:
        loop, at = collatz(network, start)
        value = loop.add_recurrence(x)
        value.set_input(1, calculate(network, out(value), constant(network, [2]), PROD))
        numbers = loop.add_loop_output(out(at), kind)
        numbers.set_input(1, constant(network, 30, np.int32))
        return out(numbers), out(loop.add_loop_output(out(value), LAST))

    x = random(2)
    run = runner(device, make, number(1), x)
    for start in [6, 1, 7, 2, 9, 6]:
        steps = collatz_of(start)
        numbers, value = run(number(start), x)
        ordered = steps[::-1] if kind is REVERSE else steps
        assert numbers.tolist() == [*ordered, *[0] * (30 - len(steps))]
        np.testing.assert_allclose(value, x * 2.0 ** len(steps), rtol=1e-6)
    with pytest.raises(trt.Error, match=r"length of its output .* is 30, but the loop"):
        run(number(27), x)


def whichever_limit_comes_first_and_carried_conditions(device: str) -> None:
    def make(network: Any, count: Any, goes_on: Any) -> Any:
        loop = network.add_loop()
        loop.add_trip_limit(count, COUNT)
        state = loop.add_recurrence(goes_on)
        at = loop.add_recurrence(constant(network, 0, np.int32))
        one, five = constant(network, 1, np.int32), constant(network, 5, np.int32)
        at.set_input(1, calculate(network, out(at), one))
        state.set_input(1, calculate(network, at.get_input(1), five, LESS))
        loop.add_trip_limit(out(state), WHILE)
        return out(loop.add_loop_output(out(at), LAST))

    run = runner(device, make, number(0), np.asarray(True))
    for count in range(8):
        assert run(number(count), np.asarray(True))[0] == min(count, 5)
        assert run(number(count), np.asarray(False))[0] == 0


# ---- Inside each other


def nested_loops(device: str) -> None:
    """sum over i < n of x * (i + 1), by an inner loop whose count is the outer state."""

    def make(network: Any, x: Any, count: Any) -> Any:
        outer = network.add_loop()
        outer.add_trip_limit(count, COUNT)
        at = outer.add_recurrence(constant(network, 1, np.int32))
        at.set_input(1, calculate(network, out(at), constant(network, 1, np.int32)))
        total = outer.add_recurrence(constant(network, np.zeros(3)))
        inner = network.add_loop()
        inner.add_trip_limit(out(at), COUNT)
        part = inner.add_recurrence(out(total))
        part.set_input(1, calculate(network, out(part), x))
        total.set_input(1, out(inner.add_loop_output(out(part), LAST)))
        return (
            out(outer.add_loop_output(out(total), LAST)),
            out(outer.add_loop_output(out(at), STACK)),
        )

    x = random(3)
    run = runner(device, make, x, number(0))
    for trips in [3, 0, 5, 1]:
        total, numbers = run(x, number(trips))
        np.testing.assert_allclose(total, x * (trips * (trips + 1) // 2), rtol=1e-5)
        assert numbers.tolist() == list(range(1, trips + 1))


def conditional(network: Any, condition: Any, x: Any, yes: Any, no: Any) -> Any:
    branch = network.add_if_conditional()
    branch.set_condition(condition)
    inside = out(branch.add_input(x))
    return out(branch.add_output(yes(inside), no(inside)))


def conditionals_in_loops_and_loops_in_conditionals(device: str) -> None:
    def make(network: Any, x: Any, count: Any, flag: Any) -> Any:
        one, two = constant(network, 1, np.int32), constant(network, 2, np.int32)
        loop = network.add_loop()
        loop.add_trip_limit(count, COUNT)
        at = loop.add_recurrence(constant(network, 0, np.int32))
        at.set_input(1, calculate(network, out(at), one))
        state = loop.add_recurrence(x)
        few = calculate(network, out(at), two, LESS)
        ten = constant(network, [10.0])
        state.set_input(
            1,
            conditional(
                network,
                few,
                out(state),
                lambda t: calculate(network, t, t),
                lambda t: calculate(network, t, ten),
            ),
        )
        first = out(loop.add_loop_output(out(state), LAST))

        def repeat(t: Any) -> Any:
            again = network.add_loop()
            again.add_trip_limit(count, COUNT)
            value = again.add_recurrence(t)
            value.set_input(1, calculate(network, out(value), ten))
            return out(again.add_loop_output(out(value), LAST))

        second = conditional(
            network, flag, x, repeat, lambda t: calculate(network, t, t)
        )
        return first, second

    x = random(4)
    run = runner(device, make, x, number(0), np.asarray(True))
    for trips in [0, 1, 2, 5]:
        for flag in [True, False]:
            first, second = run(x, number(trips), np.asarray(flag))
            wanted = x
            for i in range(trips):
                wanted = wanted * 2 if i < 2 else wanted + 10
            np.testing.assert_allclose(first, wanted, rtol=1e-5)
            np.testing.assert_allclose(
                second, x + 10 * trips if flag else x + x, rtol=1e-5
            )


# ---- Shapes


def dynamic_shapes_and_long_loops(device: str) -> None:
    """A running maximum along a dynamic axis, and more iterations than are unrolled."""

    def make(network: Any) -> Any:
        x = network.add_input("x", trt.DataType.FLOAT, (-1, -1))
        shape = out(network.add_shape(x))
        axis = constant(network, 1, np.int32)
        loop = network.add_loop()
        loop.add_trip_limit(out(network.add_gather(shape, axis, 0)), COUNT)
        each = loop.add_iterator(x, 1)
        best = loop.add_recurrence(
            out(network.add_reduce(x, trt.ReduceOperation.MIN, 2, False))
        )
        best.set_input(1, calculate(network, out(best), out(each), OP.MAX))
        return (
            out(loop.add_loop_output(best.get_input(1), STACK, 1)),
            out(loop.add_loop_output(out(best), LAST)),
        )

    run = build(make, device=device, profiles=[{"x": ((1, 1), (4, 100), (8, 300))}])
    for shape in [(4, 100), (1, 1), (8, 300), (4, 100)]:
        x = random(*shape)
        stacked, last = run(x)
        wanted = np.maximum.accumulate(x, 1)
        np.testing.assert_array_equal(stacked, wanted)
        np.testing.assert_array_equal(last, wanted[:, -1])


def slices_whose_bounds_are_the_state(device: str) -> None:
    """sum of x[:i], where each iteration has shapes of its own."""

    def make(network: Any, x: Any, count: Any) -> Any:
        loop = network.add_loop()
        loop.add_trip_limit(count, COUNT)
        at = loop.add_recurrence(constant(network, [1], np.int32))
        at.set_input(1, calculate(network, out(at), constant(network, [1], np.int32)))
        piece = network.add_slice(x, [0], [1], [1])
        piece.set_input(2, out(at))
        sums = network.add_reduce(out(piece), trt.ReduceOperation.SUM, 1, False)
        return out(loop.add_loop_output(out(sums), STACK))

    x = random(9)
    run = runner(device, make, x, number(0))
    for trips in [4, 9, 1]:
        sums = run(x, number(trips))[0]
        np.testing.assert_allclose(sums, np.cumsum(x)[:trips], rtol=1e-5)


def elements_whose_size_the_body_tells(device: str, kind: Any) -> None:
    """Places of numbers that are not 0, as many in each row."""

    def make(network: Any, x: Any, count: Any) -> Any:
        loop = network.add_loop()
        loop.add_trip_limit(count, COUNT)
        row = out(loop.add_iterator(x))
        places = network.add_non_zero(row, trt.int32)
        return out(loop.add_loop_output(out(places), kind))

    run = runner(device, make, np.zeros((5, 7), np.float32), number(0))
    rng = np.random.default_rng(0)
    for trips, most in [(5, 3), (1, 2), (4, 7), (2, 0)]:
        wanted = np.stack([rng.permutation(7)[:most] for _ in range(5)])
        wanted.sort(1)
        x = np.zeros((5, 7), np.float32)
        np.put_along_axis(x, wanted, 1, 1)
        order = slice(None) if kind == STACK else slice(None, None, -1)
        found = run(x, number(trips))[0]
        np.testing.assert_array_equal(found, wanted[:trips][order][:, None])


CHECKS: list[Any] = [
    *(
        functools.partial(last_value_of_a_count_that_is_an_input, dtype=dtype)
        for dtype in [np.int32, np.int64]
    ),
    *(
        functools.partial(iterators_and_stacks, kind=kind, reverse=reverse, axis=axis)
        for kind in [STACK, REVERSE]
        for reverse in [False, True]
        for axis in [0, 1, -1]
    ),
    *(
        functools.partial(while_of_what_a_run_gives, kind=kind)
        for kind in [STACK, REVERSE]
    ),
    whichever_limit_comes_first_and_carried_conditions,
    nested_loops,
    conditionals_in_loops_and_loops_in_conditionals,
    dynamic_shapes_and_long_loops,
    slices_whose_bounds_are_the_state,
    *(
        functools.partial(elements_whose_size_the_body_tells, kind=kind)
        for kind in [STACK, REVERSE]
    ),
]
