"""Conditionals, loops and shapes in random networks."""

from __future__ import annotations

from typing import Any

import numpy as np
import rabbet as trt

from tests.python.randomized import random_plugins as p
from tests.python.randomized.random_elements import exact_real, numeric
from tests.python.randomized.random_networks import (
    E,
    Net,
    R,
    U,
    Unfit,
)
from tests.python.support.plugins import call


def conditional(net: Net) -> None:
    """x + x or -x, by whether the largest number of a value is above 2."""
    x = net.value(lambda v: numeric(v) and v.rank >= 1)
    by = net.value(
        lambda v: v.dtype is trt.float32 and v.exact and v.rank >= 1 and v.unknown is None
        and all(0 not in s for s in v.shapes)
    )  # fmt: skip
    n = net.network
    with_plugin = x.dtype is trt.float32 and net.chance(0.5)

    def make() -> Any:
        top = n.add_reduce(by.tensor, R.MAX, 2**by.rank - 1, False).get_output(0)
        two = n.add_constant((), np.array(2, np.float32)).get_output(0)
        condition = n.add_elementwise(top, two, E.GREATER).get_output(0)
        choice = n.add_if_conditional()
        choice.set_condition(condition)
        inside = choice.add_input(x.tensor).get_output(0)
        yes = n.add_elementwise(inside, inside, E.SUM).get_output(0)
        if with_plugin:
            func = call(f"{p.SPACE}::affine_in_place")
            attrs = {"types": "FP32, FP32", "formats": "LINEAR", "tactics": [5]}
            yes = n.add_plugin(func(inside, a=2.0, b=0.0, **attrs)).get_output(0)
        no = n.add_unary(inside, U.NEG).get_output(0)
        return choice.add_output(yes, no)

    if x.bound * 2 > 100:
        raise Unfit
    net.layer(
        "if", make, [x, by], lambda a, b: a + a if b.max() > 2 else -a, None, None,
        2 * x.error + (0 if x.exact else net.rounding(x.dtype) * max(1.0, 2 * x.bound)),
    )  # fmt: skip


def told_count(net: Net, x: Any, count: Any) -> Any:
    """The same number as `count`, which only a run knows: no maximum is below the minimum."""
    n = net.network
    every = (1 << x.rank) - 1
    most, least = (
        n.add_reduce(x.tensor, op, every, False).get_output(0) for op in (R.MAX, R.MIN)
    )
    below = n.add_elementwise(most, least, E.LESS).get_output(0)
    zero = n.add_cast(below, trt.int32).get_output(0)
    return n.add_elementwise(count, zero, E.SUM).get_output(0)


def loop(net: Net) -> None:
    """A state that x is added to, a plugin in each iteration; last value or all."""
    x = net.value(lambda v: exact_real(v) and v.rank in (2, 3, 4) and v.unknown is None)
    n = net.network
    trips = net.integer(1, 3)
    kind = net.pick(["last", "stack", "reverse"])
    scan = [i for i in range(x.rank) if x.fixed(i) and x.tensor.shape[i] >= trips]
    axis = net.pick(scan) if scan and net.chance(0.6) else None
    with_plugin = x.dtype is trt.float32 and net.chance(0.6)
    add = net.pick(["affine", "affine_in_place"])
    if x.rank == 2 and axis is not None:
        raise Unfit
    in_run = not any(0 in s for s in x.shapes) and net.chance(0.5)

    def make() -> Any:
        made = n.add_loop()
        count = n.add_constant((), np.array(trips, np.int32)).get_output(0)
        told = told_count(net, x, count) if in_run else count
        made.add_trip_limit(told, trt.TripLimit.COUNT)
        start = x.tensor
        each = None
        if axis is not None:
            each = made.add_iterator(x.tensor, axis).get_output(0)
            size = [1 if i == axis else 0 for i in range(x.rank)]
            del size[axis]
            start = n.add_reduce(x.tensor, R.MAX, 1 << axis, False).get_output(0)
        state = made.add_recurrence(start)
        new = state.get_output(0)
        if with_plugin:
            func = call(f"{p.SPACE}::{add}")
            plugin = n.add_plugin(
                func(new, a=-1.0, b=1.0, types="FP32, FP32", formats="LINEAR", tactics=[3])
            )
            new = plugin.get_output(0)
        else:
            new = n.add_unary(new, U.NEG).get_output(0)
        new = n.add_elementwise(new, x.tensor if each is None else each, E.SUM).get_output(0)
        state.set_input(1, new)
        if kind == "last":
            return made.add_loop_output(state.get_output(0), trt.LoopOutput.LAST_VALUE)
        name = "CONCATENATE" if kind == "stack" else "REVERSE"
        every = made.add_loop_output(new, getattr(trt.LoopOutput, name), 0)
        every.set_input(1, count)
        return every

    def function(a: Any) -> Any:
        state = a if axis is None else a.max(axis)
        states = []
        for i in range(trips):
            state = -state + with_plugin + (a if axis is None else np.take(a, i, axis))
            states.append(state)
        if kind == "last":
            return state
        return np.stack(states if kind == "stack" else states[::-1])

    if axis is not None and any(0 in s for s in x.shapes):
        raise Unfit
    if (x.bound + 1) * (trips + 1) / x.step > net.limit(x.dtype):
        raise Unfit
    net.layer(
        f"loop {trips}{' in a run' if in_run else ''} {kind} iterator {axis} "
        f"plugin {add if with_plugin else ''}", make, [x],
        function,
    )  # fmt: skip


def shape(net: Net) -> None:
    x = net.value(lambda v: v.rank >= 1)
    net.layer(
        "shape", lambda: net.network.add_shape(x.tensor), [x],
        lambda a: np.array(a.shape, np.int64), trt.int64, 1.0, 0.0,
    )  # fmt: skip


def small_shape(net: Net) -> None:
    """Numbers that the host knows: extents, at most 3."""
    x = net.value(lambda v: v.rank >= 1 and v.unknown is None)
    if any(0 in s for s in x.shapes):
        raise Unfit
    n = net.network

    def make() -> Any:
        three = n.add_constant((x.rank,), np.full(x.rank, 3, np.int64)).get_output(0)
        return n.add_elementwise(n.add_shape(x.tensor).get_output(0), three, E.MIN)

    made = net.layer(
        "shape, at most 3", make, [x],
        lambda a: np.minimum(np.array(a.shape, np.int64), 3), trt.int64, 1.0, 0.0,
    )  # fmt: skip
    made.is_shape = True  # type: ignore[attr-defined]


def nested_loop(net: Net) -> None:
    """Two iterations of two, each adding x; the outer one stacks."""
    x = net.value(lambda v: exact_real(v) and v.rank in (1, 2, 3) and v.unknown is None)
    n = net.network
    if (x.bound + 1) * 6 / x.step > net.limit(x.dtype):
        raise Unfit

    def make() -> Any:
        two = n.add_constant((), np.array(2, np.int32)).get_output(0)
        outer = n.add_loop()
        outer.add_trip_limit(two, trt.TripLimit.COUNT)
        state = outer.add_recurrence(x.tensor)
        inner = n.add_loop()
        inner.add_trip_limit(two, trt.TripLimit.COUNT)
        local = inner.add_recurrence(state.get_output(0))
        local.set_input(
            1, n.add_elementwise(local.get_output(0), x.tensor, E.SUM).get_output(0)
        )
        last = inner.add_loop_output(local.get_output(0), trt.LoopOutput.LAST_VALUE)
        new = n.add_unary(last.get_output(0), U.NEG).get_output(0)
        state.set_input(1, new)
        every = outer.add_loop_output(new, trt.LoopOutput.CONCATENATE, 0)
        every.set_input(1, two)
        return every

    net.layer(
        "loop in a loop", make, [x], lambda a: np.stack([-(3 * a), -(-(3 * a) + 2 * a)])
    )
