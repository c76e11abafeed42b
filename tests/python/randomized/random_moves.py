"""Layers of random networks that move elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import rabbet as trt

from tests.python.randomized.random_elements import integral
from tests.python.randomized.random_networks import (
    E,
    Net,
    Unfit,
    Value,
)


def transpose(net: Net) -> None:
    x = net.value(lambda v: v.rank >= 2)
    order = [int(i) for i in net.random.permutation(x.rank)]

    def make() -> Any:
        layer = net.network.add_shuffle(x.tensor)
        layer.first_transpose = tuple(order)
        return layer

    net.layer(f"transpose {order}", make, [x], lambda a: a.transpose(order))


def reshape(net: Net) -> None:
    """Two neighbours become one, or one two; other axes are copied by 0."""
    x = net.value(lambda v: v.rank >= 2 and v.unknown is None)
    axis = net.integer(0, x.rank - 2)
    split = [
        (i, f) for i in range(x.rank) if x.fixed(i) for f in (2, 3, 4)
        if x.tensor.shape[i] % f == 0 and x.tensor.shape[i] > 0
    ]  # fmt: skip
    if net.chance(0.4) and split and x.rank < 5:
        at, factor = net.pick(split)
        dims = [0] * at + [x.tensor.shape[at] // factor, factor] + [-9] * (x.rank - at - 1)
        # 0 copies the extent of the same position, so what follows must be fixed, or one.
        open_axes = [i for i in range(at + 1, x.rank) if not x.fixed(i)]
        if len(open_axes) > 1:
            raise Unfit
        for i in range(at + 1, x.rank):
            dims[i + 1] = x.tensor.shape[i] if x.fixed(i) else -1
        function = lambda a: a.reshape(  # noqa: E731
            (*a.shape[:at], a.shape[at] // factor, factor, *a.shape[at + 1 :])
        )
    else:
        dims = [0] * axis + [-1] + [-9] * (x.rank - axis - 2)
        for i in range(axis + 2, x.rank):
            if not x.fixed(i):
                raise Unfit
            dims[i - 1] = x.tensor.shape[i]
        function = lambda a: a.reshape(  # noqa: E731
            (*a.shape[:axis], a.shape[axis] * a.shape[axis + 1], *a.shape[axis + 2 :])
        )
    if any(0 in s for s in x.shapes):
        raise Unfit

    def make() -> Any:
        layer = net.network.add_shuffle(x.tensor)
        layer.reshape_dims = tuple(dims)
        return layer

    net.layer(f"reshape {dims}", make, [x], function)


def reshape_by_tensor(net: Net) -> None:
    """The shape is computed: the axes' extents, two of them multiplied."""
    x = net.value(lambda v: v.rank in (2, 3, 4) and v.unknown is None)
    n = net.network
    axis = net.integer(0, x.rank - 2)

    def make() -> Any:
        shape = n.add_shape(x.tensor).get_output(0)
        one = [n.add_slice(shape, (i,), (1,), (1,)).get_output(0) for i in range(x.rank)]
        one[axis : axis + 2] = [
            n.add_elementwise(one[axis], one[axis + 1], E.PROD).get_output(0)
        ]
        if net.chance(0.5) or len(one) == 1:
            ten = one
        else:
            ten = [n.add_identity(t).get_output(0) for t in one]
        joined = n.add_concatenation(ten)
        joined.axis = 0
        layer = n.add_shuffle(x.tensor)
        layer.set_input(1, joined.get_output(0))
        layer.zero_is_placeholder = False
        return layer

    def function(a: Any) -> Any:
        first, second, *rest = a.shape[axis:]
        return a.reshape((*a.shape[:axis], first * second, *rest))

    net.layer(f"reshape by tensor, axis {axis}", make, [x], function)


def slices(net: Net) -> None:
    """Fixed axes are cut, with steps; others by what shape layers tell."""
    x = net.value(lambda v: v.rank >= 1 and v.dtype is not trt.int8)
    axis = net.integer(0, x.rank - 1)
    n = net.network
    if x.fixed(axis) and all(x.fixed(i) for i in range(x.rank)):
        extent = x.tensor.shape[axis]
        if extent == 0:
            raise Unfit
        start, step = net.integer(0, extent - 1), net.pick([1, 1, 2, 3, -1])
        size = net.integer(1, (extent - 1 - start) // step + 1 if step > 0 else start + 1)
        place = [slice(None)] * x.rank
        end = start + size * step
        place[axis] = slice(start, end if end >= 0 else None, step)
        starts, shape, steps = [0] * x.rank, list(x.tensor.shape), [1] * x.rank
        starts[axis], shape[axis], steps[axis] = start, size, step
        net.layer(
            f"slice axis {axis} {start} {size} {step}",
            lambda: n.add_slice(x.tensor, starts, shape, steps), [x],
            lambda a: a[tuple(place)],
        )  # fmt: skip
        return
    least = min(x.dim(axis))
    first = net.integer(0, min(2, least))
    less = first + net.integer(0, min(2, least - first))
    if least - less < 1:
        raise Unfit

    def make() -> Any:
        shape = n.add_shape(x.tensor).get_output(0)
        minus = np.zeros(x.rank, np.int64)
        minus[axis] = less
        taken = n.add_constant((x.rank,), minus).get_output(0)
        size = n.add_elementwise(shape, taken, E.SUB).get_output(0)
        starts = [0] * x.rank
        starts[axis] = first
        layer = n.add_slice(x.tensor, starts, [0] * x.rank, [1] * x.rank)
        layer.set_input(2, size)
        return layer

    net.layer(
        f"slice axis {axis} {first}: less {less}", make, [x],
        lambda a: a[(slice(None),) * axis + (slice(first, first + a.shape[axis] - less),)],
    )  # fmt: skip


def slice_outside(net: Net) -> None:
    """Clamps, wraps, reflects or fills what lies outside."""
    x = net.value(lambda v: v.rank >= 2 and v.unknown is None and v.is_float)
    axis = net.integer(0, x.rank - 1)
    if min(x.dim(axis)) < 2 or any(0 in s for s in x.shapes):
        raise Unfit
    mode, name = net.pick([("CLAMP", "edge"), ("WRAP", "wrap"), ("FILL", "constant"),
                           ("REFLECT", "reflect")])  # fmt: skip
    n = net.network

    def make() -> Any:
        shape = n.add_shape(x.tensor).get_output(0)
        plus = np.zeros(x.rank, np.int64)
        plus[axis] = 2
        size = n.add_elementwise(
            shape, n.add_constant((x.rank,), plus).get_output(0), E.SUM
        ).get_output(0)
        starts = [0] * x.rank
        starts[axis] = -1
        layer = n.add_slice(x.tensor, starts, [0] * x.rank, [1] * x.rank)
        layer.set_input(2, size)
        layer.mode = getattr(trt.SampleMode, mode)
        return layer

    pads = [(1, 1) if i == axis else (0, 0) for i in range(x.rank)]
    net.layer(
        f"slice {mode} axis {axis}", make, [x], lambda a: np.pad(a, pads, mode=name)
    )


def concatenation(net: Net) -> None:
    x = net.value(lambda v: v.rank >= 1 and v.dtype is not trt.int8)
    axis = net.integer(0, x.rank - 1)

    def fits(v: Value) -> bool:
        return (
            v.dtype is x.dtype and v.rank == x.rank and v.unknown is x.unknown
            and all(x.dim(i) == v.dim(i) for i in range(x.rank) if i != axis)
        )  # fmt: skip

    parts = [x] + [net.value(fits) for _ in range(net.integer(1, 3))]

    def make() -> Any:
        layer = net.network.add_concatenation([v.tensor for v in parts])
        layer.axis = axis
        return layer

    exact = all(v.exact for v in parts)
    net.layer(
        f"concatenation axis {axis}", make, parts, lambda *a: np.concatenate(a, axis), None,
        min(v.step for v in parts) if exact else 0.0, max(v.error for v in parts),
    )  # fmt: skip


def gather(net: Net) -> None:
    x = net.value(lambda v: v.rank >= 1 and v.dtype is not trt.int8)
    axis = net.integer(0, x.rank - 1)
    least = min(x.dim(axis))
    if least < 1:
        raise Unfit
    shape = (net.integer(1, 5),) if net.chance(0.7) else (2, net.integer(1, 3))
    index = net.constant(net.random.integers(0, least, shape), net.pick([trt.int32, trt.int64]))
    if x.rank + len(shape) - 1 > 5:
        raise Unfit
    net.layer(
        f"gather axis {axis}", lambda: net.network.add_gather(x.tensor, index.tensor, axis),
        [x, index], lambda a, i: np.take(a, i, axis),
    )  # fmt: skip


def gather_by_values(net: Net) -> None:
    """Indices that a run computes: a value's numbers, modulo the extent."""
    x = net.value(lambda v: v.rank >= 1 and v.unknown is None and v.dtype is not trt.int8)
    i = net.value(lambda v: integral(v) and v.rank in (1, 2) and v.unknown is None)
    axis = net.integer(0, x.rank - 1)
    least = min(x.dim(axis))
    if least < 1 or x.rank + i.rank - 1 > 5:
        raise Unfit
    n, kind = net.network, np.int32 if i.dtype is trt.int32 else np.int64

    def make() -> Any:
        ones = (1,) * i.rank
        low = n.add_constant(ones, np.zeros(ones, kind)).get_output(0)
        high = n.add_constant(ones, np.full(ones, least - 1, kind)).get_output(0)
        at = n.add_elementwise(i.tensor, low, E.MAX).get_output(0)
        at = n.add_elementwise(at, high, E.MIN).get_output(0)
        return n.add_gather(x.tensor, at, axis)

    net.layer(
        f"gather axis {axis} by values", make, [x, i],
        lambda a, b: np.take(a, np.clip(b, 0, least - 1), axis),
    )  # fmt: skip
