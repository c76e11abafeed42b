"""Layers of random networks: each function adds one to a Net, or raises Unfit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import rabbet as trt

from . import random_classes as classes
from . import random_plugins as p
from .plugins import call
from .random_networks import FLOATS, ROUNDING, Net, Unfit, Value

E, U, A, R = (
    trt.ElementWiseOperation,
    trt.UnaryOperation,
    trt.ActivationType,
    trt.ReduceOperation,
)
NONE, TRANSPOSE, VECTOR = (
    trt.MatrixOperation.NONE,
    trt.MatrixOperation.TRANSPOSE,
    trt.MatrixOperation.VECTOR,
)


def numeric(v: Value) -> bool:
    return v.dtype in (*FLOATS, trt.int32, trt.int64)


def real(v: Value) -> bool:
    return v.is_float


def exact_real(v: Value) -> bool:
    return v.is_float and v.exact


def integral(v: Value) -> bool:
    return v.exact and v.dtype in (trt.int32, trt.int64)


# ---- Element by element


def partner(net: Net, x: Value) -> Value:
    """A second operand: of the same shape, broadcast, itself, or a constant."""
    def fits(v: Value) -> bool:
        return (
            v.dtype is x.dtype
            and v.rank == x.rank
            and v.unknown is x.unknown
            and all(
                all(a in (b, 1) for a, b in zip(small, large, strict=True))
                for small, large in zip(v.shapes, x.shapes, strict=True)
            )
        )

    if net.chance(0.5):
        return net.value(fits)
    shape = [x.tensor.shape[i] if x.fixed(i) and net.chance(0.5) else 1 for i in range(x.rank)]
    if x.dtype is trt.bool:
        return net.constant(net.random.integers(0, 2, tuple(shape)).astype(bool), x.dtype)
    return net.constant(net.numbers(shape), x.dtype)


def product_error(x: Value, y: Value, terms: int, rounding: float) -> float:
    both = x.bound * y.error + y.bound * x.error + x.error * y.error
    return terms * (both + rounding * max(1.0, x.bound * y.bound))


ARITHMETIC: dict[Any, Any] = {
    E.SUM: np.add, E.SUB: np.subtract, E.PROD: np.multiply, E.MAX: np.maximum,
    E.MIN: np.minimum, E.DIV: np.divide,
}  # fmt: skip


def combine(net: Net, op: Any, x: Value, y: Value) -> Value:
    """A function of two elements."""
    rounding = net.rounding(x.dtype)
    step, error = 0.0, 0.0
    if op is E.DIV:  # by what is 1 or more
        error = x.error + (x.bound + 1) * y.error + 2 * rounding * max(1.0, x.bound)
    elif x.exact and y.exact:
        step = x.step * y.step if op is E.PROD else min(x.step, y.step)
    elif op is E.PROD:
        error = product_error(x, y, 1, rounding)
    else:
        error = x.error + y.error + rounding * max(1.0, x.bound + y.bound)
    return net.layer(
        f"elementwise {op.name}", lambda: net.network.add_elementwise(x.tensor, y.tensor, op),
        [x, y], ARITHMETIC[op], None, step, error,
    )  # fmt: skip


def elementwise(net: Net) -> None:
    x = net.value(numeric)
    y = partner(net, x)
    if net.chance(0.5):
        x, y = y, x
    combine(net, net.pick([E.SUM, E.SUB, E.PROD, E.MAX, E.MIN]), x, y)


def comparison(net: Net) -> None:
    x = net.value(lambda v: numeric(v) and v.exact)
    y = partner(net, x)
    if not y.exact:
        raise Unfit
    kinds = {E.EQUAL: np.equal, E.GREATER: np.greater, E.LESS: np.less}
    op = net.pick(list(kinds))
    net.layer(
        f"elementwise {op.name}", lambda: net.network.add_elementwise(x.tensor, y.tensor, op),
        [x, y], kinds[op], trt.bool, 1.0, 0.0,
    )  # fmt: skip


def logical(net: Net) -> None:
    x = net.value(lambda v: v.dtype is trt.bool)
    if net.chance(0.3):
        net.layer("unary NOT", lambda: net.network.add_unary(x.tensor, U.NOT), [x], np.logical_not)
        return
    y = partner(net, x)
    kinds = {E.AND: np.logical_and, E.OR: np.logical_or, E.XOR: np.logical_xor}
    op = net.pick(list(kinds))
    net.layer(
        f"elementwise {op.name}", lambda: net.network.add_elementwise(x.tensor, y.tensor, op),
        [x, y], kinds[op],
    )  # fmt: skip


def unary(net: Net) -> None:
    x = net.value(lambda v: v.is_float or integral(v))
    kinds: dict[Any, Any] = {U.NEG: np.negative, U.ABS: np.abs}
    if exact_real(x):
        kinds |= {U.FLOOR: np.floor, U.CEIL: np.ceil, U.ROUND: np.round, U.SIGN: np.sign}
    op = net.pick(list(kinds))
    step = 1.0 if op in (U.FLOOR, U.CEIL, U.ROUND, U.SIGN) else x.step
    net.layer(
        f"unary {op.name}", lambda: net.network.add_unary(x.tensor, op), [x], kinds[op],
        None, step,
    )  # fmt: skip


def activation(net: Net) -> None:
    x = net.value(real)
    kinds: dict[str, Any] = {
        "RELU": lambda a: np.maximum(a, 0),
        "CLIP": lambda a: np.clip(a, -4, 4),
        "LEAKY_RELU": lambda a: np.where(a > 0, a, a / 2),
        "TANH": np.tanh,
        "SIGMOID": lambda a: (1 + np.tanh(a / 2)) / 2,
    }
    name = net.pick(list(kinds))
    smooth = name in ("TANH", "SIGMOID")

    def make() -> Any:
        layer = net.network.add_activation(x.tensor, getattr(A, name))
        if name == "CLIP":
            layer.alpha, layer.beta = -4.0, 4.0
        if name == "LEAKY_RELU":
            layer.alpha = 0.5
        return layer

    step = 0.0 if smooth else x.step / 2 if name == "LEAKY_RELU" else x.step
    error = x.error + (0 if step else net.rounding(x.dtype) * max(1.0, x.bound))
    net.layer(f"activation {name}", make, [x], kinds[name], None, step, error)


def clip(net: Net) -> None:
    """Keeps numbers small."""
    x = net.value(lambda v: exact_real(v) and v.bound / v.step > 64)

    def make() -> Any:
        layer = net.network.add_activation(x.tensor, A.CLIP)
        layer.alpha, layer.beta = -8.0, 8.0
        return layer

    whole = net.layer("activation CLIP", make, [x], lambda a: np.clip(a, -8, 8))
    if whole.step < 1:
        net.layer(
            "unary FLOOR", lambda: net.network.add_unary(whole.tensor, U.FLOOR), [whole],
            np.floor, None, 1.0,
        )  # fmt: skip


def cast(net: Net) -> None:
    x = net.value(lambda v: v.exact and v.dtype is not trt.int8)
    types = [trt.float32, trt.float16, trt.int32, trt.int64]
    to = net.pick([t for t in types if t is not x.dtype])
    step = 1.0 if to not in FLOATS or not x.is_float else x.step
    kind = np.float64 if to in FLOATS else np.int64
    net.layer(
        f"cast {to.name}", lambda: net.network.add_cast(x.tensor, to), [x],
        lambda a: a.astype(kind), to, step,
    )  # fmt: skip


def identity(net: Net) -> None:
    x = net.value()
    if x.dtype is trt.int8:
        raise Unfit
    net.layer("identity", lambda: net.network.add_identity(x.tensor), [x], lambda a: a)


def select(net: Net) -> None:
    c = net.value(lambda v: v.dtype is trt.bool)
    x = net.value(
        lambda v: numeric(v) and v.rank == c.rank and v.dims == c.dims
        and v.unknown is c.unknown
    )  # fmt: skip
    y = partner(net, x)
    exact = x.exact and y.exact
    net.layer(
        "select", lambda: net.network.add_select(c.tensor, x.tensor, y.tensor), [c, x, y],
        np.where, x.dtype, min(x.step, y.step) if exact else 0.0, max(x.error, y.error),
    )  # fmt: skip


# ---- Moving


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


def number(net: Net, x: Value, value: float, step: float = 0.0) -> Value:
    """A constant that is spread over x, and stays what it is."""
    made = net.constant(np.full((1,) * x.rank, value), x.dtype, step or abs(value))
    net.nodes[-1].constant = None
    return made


def inexact(net: Net, x: Value, factor: float, what: str, make: Any, function: Any) -> Value:
    """A smooth function, whose slope is at most `factor`."""
    error = factor * x.error + 2 * net.rounding(x.dtype) * max(1.0, x.bound)
    return net.layer(what, make, [x], function, None, 0.0, error)


# ---- What builders look for: several layers that are one kernel, or one that is left out


def gelu(net: Net) -> None:
    """x / 2 (1 + erf(x / sqrt(2)))."""
    x = net.value(lambda v: v.is_float and v.rank >= 1 and v.bound < 20)
    root = net.constant(np.full((1,) * x.rank, 2**-0.5), x.dtype, 0.0)
    root.error = net.rounding(x.dtype)
    net.nodes[-1].constant = None
    inner = combine(net, E.PROD, x, root)
    erf = inexact(
        net, inner, 1.2, "unary ERF", lambda: net.network.add_unary(inner.tensor, U.ERF),
        np.vectorize(math.erf, otypes=[float]),
    )  # fmt: skip
    one = combine(net, E.SUM, erf, number(net, x, 1.0))
    half = combine(net, E.PROD, x, number(net, x, 0.5))
    combine(net, E.PROD, half, one)


def layer_norm(net: Net) -> None:
    """Of the last axis, layer by layer."""
    x = net.value(lambda v: v.is_float and v.rank >= 2 and v.bound < 20 and v.unknown is None)
    if any(0 in s for s in x.shapes):
        raise Unfit
    axis = x.rank - 1
    n = net.network

    def mean(v: Value) -> Value:
        return inexact(
            net, v, 1.0, "reduce AVG",
            lambda: n.add_reduce(v.tensor, R.AVG, 1 << axis, True),
            lambda a: a.mean(axis, keepdims=True),
        )  # fmt: skip

    centred = combine(net, E.SUB, x, mean(x))
    square = combine(net, E.PROD, centred, centred)
    raised = combine(net, E.SUM, mean(square), number(net, x, 1.0))
    root = inexact(
        net, raised, 1.0, "unary SQRT", lambda: n.add_unary(raised.tensor, U.SQRT), np.sqrt
    )
    normal = combine(net, E.DIV, centred, root)
    width = x.tensor.shape[-1] if x.fixed(axis) else 1
    shape = (1,) * axis + (width,)
    scaled = combine(net, E.PROD, normal, net.constant(net.numbers(shape, 2), x.dtype))
    combine(net, E.SUM, scaled, net.constant(net.numbers(shape, 2), x.dtype))


def multiply(net: Net, x: Value, y: Value, turned: bool) -> Value:
    """x y, or x y^T."""
    terms = max(x.dim(x.rank - 1))
    step, error = 0.0, product_error(x, y, max(terms, 1), net.rounding(x.dtype))
    if x.exact and y.exact:
        step, error = x.step * y.step, 0.0
        if terms * x.bound * y.bound / step > 2**23:
            raise Unfit
    kind = TRANSPOSE if turned else NONE
    return net.layer(
        "matrix_multiply",
        lambda: net.network.add_matrix_multiply(x.tensor, NONE, y.tensor, kind), [x, y],
        lambda a, b: a @ (np.swapaxes(b, -1, -2) if turned else b), None, step, error,
    )  # fmt: skip


def attention(net: Net) -> None:
    """softmax(x y^T / 4 + mask) y."""
    x = net.value(
        lambda v: v.is_float and v.rank in (3, 4) and v.bound <= 4 and v.unknown is None
        and all(0 not in s for s in v.shapes) and max(v.dim(v.rank - 1)) <= 40
    )  # fmt: skip
    y = net.value(
        lambda v: v.dtype is x.dtype and v.rank == x.rank and v.unknown is None
        and v.dims[:-2] == x.dims[:-2] and v.dims[-1] == x.dims[-1] and v.bound <= 4
        and all(0 not in s for s in v.shapes)
    )  # fmt: skip
    scores = combine(net, E.PROD, multiply(net, x, y, True), number(net, x, 0.25))
    if net.chance(0.5):
        column = net.constant(net.numbers((1,) * x.rank, 2), x.dtype)
        scores = combine(net, E.SUM, scores, column)
    if scores.bound > 60:
        raise Unfit
    axis = x.rank - 1

    def make() -> Any:
        layer = net.network.add_softmax(scores.tensor)
        layer.axes = 1 << axis
        return layer

    def function(a: Any) -> Any:
        e = np.exp(a - a.max(axis, keepdims=True))
        return e / e.sum(axis, keepdims=True)

    error = 2 * scores.error + 4 * net.rounding(x.dtype) * max(1.0, scores.bound)
    shares = net.layer("softmax", make, [scores], function, None, 0.0, error)
    multiply(net, shares, y, False)


def product_and_more(net: Net) -> None:
    """A product, a bias, a function, and the sum with another tensor."""
    x = net.value(lambda v: v.is_float and v.rank in (2, 3, 4) and v.fixed(v.rank - 1)
                  and v.unknown is None and 1 <= v.tensor.shape[-1] <= 64)  # fmt: skip
    depth, width = x.tensor.shape[-1], net.pick([x.tensor.shape[-1], 8, 16])
    shape = (1,) * (x.rank - 2) + (depth, width)
    y = multiply(net, x, net.constant(net.numbers(shape, 1), x.dtype), False)
    row = (1,) * (x.rank - 1) + (width,)
    y = combine(net, E.SUM, y, net.constant(net.numbers(row), x.dtype))
    y = net.layer(
        "activation RELU", lambda: net.network.add_activation(y.tensor, A.RELU), [y],
        lambda a: np.maximum(a, 0),
    )  # fmt: skip
    others = [v for v in net.values if same(y)(v) and v is not y]
    if others:
        combine(net, E.SUM, y, net.pick(others))


def convolution_and_more(net: Net) -> None:
    """With groups, steps, dilation; then factors and terms by channel, a function, and
    the sum with another tensor."""
    x = net.value(
        lambda v: v.rank == 4 and v.is_float and v.fixed(1) and v.unknown is None
        and all(0 not in s for s in v.shapes) and v.bound <= 64 and v.tensor.shape[1] <= 64
    )  # fmt: skip
    channels = x.tensor.shape[1]
    groups = net.pick([1, 1, 1, *[g for g in (2, 4, channels) if channels % g == 0]])
    maps = groups * net.pick([1, 2, 4, 5, 8]) if groups < channels else channels
    size, stride, far = net.pick([1, 2, 3]), net.pick([1, 1, 2]), net.pick([1, 1, 2])
    before, after = net.integer(0, size - 1), net.integer(0, size - 1)
    reach = (size - 1) * far + 1
    if min(x.dim(2)) + before + after < reach or min(x.dim(3)) + before + after < reach:
        raise Unfit
    weights = net.numbers((maps, channels // groups, size, size), 1)
    bias = net.numbers((maps,), 3)
    has_bias = net.chance(0.5)
    kind = np.float32 if x.dtype is trt.float32 else np.float16

    def make() -> Any:
        layer = net.network.add_convolution_nd(
            x.tensor, maps, (size, size), weights.astype(kind),
            bias.astype(kind) if has_bias else None,
        )  # fmt: skip
        layer.pre_padding, layer.post_padding = (before, before), (after, after)
        layer.stride_nd, layer.dilation_nd = (stride, stride), (far, far)
        layer.num_groups = groups
        return layer

    def function(a: Any) -> Any:
        pads = ((0, 0), (0, 0), (before, after), (before, after))
        wide = np.pad(a, pads)
        windows = np.lib.stride_tricks.sliding_window_view(wide, (reach, reach), (2, 3))
        windows = windows[:, :, ::stride, ::stride, ::far, ::far]
        parts = np.split(windows, groups, axis=1)
        kernels = np.split(weights, groups, axis=0)
        y = np.concatenate(
            [np.einsum("nchwij,mcij->nmhw", p, k) for p, k in zip(parts, kernels, strict=True)],
            axis=1,
        )  # fmt: skip
        return y + bias[:, None, None] if has_bias else y

    terms = channels // groups * size * size
    error = convolution_error(net, x, terms, function)
    what = (
        f"convolution {weights.shape} groups {groups} stride {stride} dilation {far} "
        f"pads {before} {after} bias {has_bias}"
    )
    y = net.layer(what, make, [x], function, None, 0.0, error)
    if net.chance(0.5):
        y = combine(net, E.PROD, y, net.constant(net.numbers((1, maps, 1, 1), 2), x.dtype))
    if net.chance(0.5):
        y = combine(net, E.SUM, y, net.constant(net.numbers((1, maps, 1, 1), 2), x.dtype))
    others = [v for v in net.values if same(y)(v) and v is not y]
    if others and net.chance(0.7):
        y = combine(net, E.SUM, y, net.pick(others))
    if net.chance(0.7):
        net.layer(
            "activation RELU", lambda: net.network.add_activation(y.tensor, A.RELU), [y],
            lambda a: np.maximum(a, 0),
        )  # fmt: skip


def channels_and_space(net: Net) -> None:
    """Channels become pixels, or the other way round: reshape, transpose, reshape."""
    x = net.value(
        lambda v: v.rank == 4 and v.unknown is None and all(v.fixed(i) for i in (1, 2, 3))
        and v.tensor.shape[1] % 4 == 0 and v.tensor.shape[1] > 0 and v.dtype is not trt.int8
    )  # fmt: skip
    _, c, h, w = x.tensor.shape

    def shuffle(v: Value, dims: Any, order: Any, what: str, function: Any) -> Value:
        def make() -> Any:
            layer = net.network.add_shuffle(v.tensor)
            layer.reshape_dims = dims
            if order:
                layer.second_transpose = order
            return layer

        return net.layer(what, make, [v], function)

    order = net.pick([(0, 3, 4, 1, 5, 2), (0, 1, 4, 2, 5, 3)])
    first = (0, 2, 2, c // 4, h, w) if order[1] == 3 else (0, c // 4, 2, 2, h, w)
    y = shuffle(
        x, first, order, f"reshape {first}, transpose {order}",
        lambda a: a.reshape((a.shape[0], *first[1:])).transpose(order),
    )  # fmt: skip
    last = (0, c // 4, 2 * h, 2 * w)
    shuffle(y, last, None, f"reshape {last}", lambda a: a.reshape((a.shape[0], *last[1:])))


def quantized_product(net: Net) -> None:
    """A convolution or matrix product of 8 bits, with what quantizes around it."""
    x = net.value(
        lambda v: v.dtype is trt.float32 and v.exact and v.unknown is None
        and all(0 not in s for s in v.shapes)
        and ((v.rank == 4 and v.fixed(1)) or (v.rank in (2, 3) and v.fixed(v.rank - 1)))
    )  # fmt: skip
    n = net.network
    convolves = x.rank == 4
    maps = net.pick([4, 8, 16, 17])
    depth = x.tensor.shape[1 if convolves else -1]
    size = net.pick([1, 3]) if convolves else 1
    shape = (maps, depth, size, size) if convolves else (1,) * (x.rank - 2) + (depth, maps)
    scale, own = 2.0 ** net.integer(-1, 1), 2.0 ** net.integer(-2, 0)
    numbers = net.random.integers(-3, 4, shape)

    def constant(value: Any) -> Any:
        array = np.asarray(value)
        return n.add_constant(array.shape, array).get_output(0)

    def eight(v: Value) -> Value:
        q = net.layer(
            "quantize", lambda: n.add_quantize(v.tensor, constant(np.float32(scale))), [v],
            lambda a: np.clip(np.round(a / scale), -128, 127).astype(np.int64), trt.int8, 1.0,
        )  # fmt: skip
        return net.layer(
            "dequantize", lambda: n.add_dequantize(q.tensor, constant(np.float32(scale))), [q],
            lambda a: a * scale, trt.float32, scale,
        )  # fmt: skip

    y = eight(x)
    if depth * size * size * y.bound * 3 / scale > 2**22:
        raise Unfit

    def make() -> Any:
        weights = n.add_dequantize(constant(numbers.astype(np.int8)), constant(np.float32(own)))
        if not convolves:
            return n.add_matrix_multiply(y.tensor, NONE, weights.get_output(0), NONE)
        layer = n.add_convolution_nd(y.tensor, maps, (size, size), trt.Weights(), trt.Weights())
        layer.set_input(1, weights.get_output(0))
        layer.padding_nd = (size // 2, size // 2)
        return layer

    def function(a: Any) -> Any:
        if not convolves:
            return a @ (numbers * own)
        r = size // 2
        wide = np.pad(a, ((0, 0), (0, 0), (r, r), (r, r)))
        windows = np.lib.stride_tricks.sliding_window_view(wide, (size, size), (2, 3))
        return np.einsum("nchwij,mcij->nmhw", windows, numbers * own)

    if convolves:
        error = convolution_error(net, y, depth * size * size, function)
        net.layer(f"convolution {shape}", make, [y], function, None, 0.0, error)
    else:
        z = net.layer(f"matrix_multiply {shape}", make, [y], function, None, scale * own)
        if net.chance(0.5):
            eight(z)


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


# ---- Summing


def reduce(net: Net) -> None:
    x = net.value(lambda v: v.rank >= 1 and (v.is_float or integral(v)))
    if any(0 in s for s in x.shapes):
        raise Unfit
    bits = net.integer(1, 2**x.rank - 1)
    axes = tuple(i for i in range(x.rank) if bits >> i & 1)
    keep = net.chance(0.6)
    kinds: dict[Any, Any] = {R.SUM: np.sum, R.MAX: np.max, R.MIN: np.min}
    if x.is_float:
        kinds[R.AVG] = np.mean
    op = net.pick(list(kinds))
    count = max(math.prod(s[i] for i in axes) for s in x.shapes)
    step, error = x.step, x.error
    if op is R.AVG:
        step, error = 0.0, x.error + 2 * net.rounding(x.dtype) * max(1.0, x.bound)
    elif op is R.SUM and not x.exact:
        error = count * (x.error + net.rounding(x.dtype) * max(1.0, x.bound))
    elif op is R.SUM and count * x.bound / x.step > 2**23:
        raise Unfit
    function = kinds[op]
    net.layer(
        f"reduce {op.name} {axes}",
        lambda: net.network.add_reduce(x.tensor, op, bits, keep), [x],
        lambda a: np.asarray(function(a, axis=axes, keepdims=keep)), None, step, error,
    )  # fmt: skip


def matrix_multiply(net: Net) -> None:
    x = net.value(lambda v: v.rank >= 2 and v.is_float)
    n = net.network
    ops = (NONE, TRANSPOSE)
    swap = lambda a: np.swapaxes(a, -1, -2)  # noqa: E731
    if net.chance(0.6) and x.fixed(x.rank - 1):
        depth, width = x.tensor.shape[-1], net.pick([1, 3, 8, 16, 17])
        turned = net.chance(0.5)
        shape = (width, depth) if turned else (depth, width)
        y = net.constant(
            net.numbers((1,) * (x.rank - 2) + shape, 2), x.dtype
        )  # fmt: skip
        make = lambda: n.add_matrix_multiply(x.tensor, NONE, y.tensor, ops[turned])  # noqa: E731
        function = lambda a, b: a @ (swap(b) if turned else b)  # noqa: E731
    else:
        y = net.value(
            lambda v: v.dtype is x.dtype and v.rank == x.rank and v.unknown is None
            and v.dims[:-2] == x.dims[:-2] and v.dims[-1] == x.dims[-1]
        )  # fmt: skip
        make = lambda: n.add_matrix_multiply(x.tensor, NONE, y.tensor, TRANSPOSE)  # noqa: E731
        function = lambda a, b: a @ swap(b)  # noqa: E731
    terms = max(x.dim(x.rank - 1))
    if x.exact and y.exact:
        step, error = x.step * y.step, 0.0
        if terms * x.bound * y.bound / step > 2**23:
            raise Unfit
    else:
        step, error = 0.0, product_error(x, y, max(terms, 1), net.rounding(x.dtype))
    net.layer("matrix_multiply", make, [x, y], function, None, step, error)


def softmax(net: Net) -> None:
    x = net.value(lambda v: v.rank >= 1 and v.is_float)
    if any(0 in s for s in x.shapes) or x.bound > 50:
        raise Unfit
    axis = net.integer(0, x.rank - 1)

    def make() -> Any:
        layer = net.network.add_softmax(x.tensor)
        layer.axes = 1 << axis
        return layer

    def function(a: Any) -> Any:
        e = np.exp(a - a.max(axis, keepdims=True))
        return e / e.sum(axis, keepdims=True)

    error = 2 * x.error + 4 * net.rounding(x.dtype) * max(1.0, x.bound)
    net.layer(f"softmax axis {axis}", make, [x], function, None, 0.0, error)


def normalization(net: Net) -> None:
    """Layer normalization of the last axes, or instance normalization."""
    x = net.value(lambda v: v.rank >= 3 and v.is_float)
    if any(0 in s for s in x.shapes) or x.bound > 100:
        raise Unfit
    first = net.pick([i for i in (2, x.rank - 1) if i < x.rank])
    axes = tuple(range(first, x.rank))
    kind = [1] * x.rank
    if first == 2 and x.fixed(1):
        kind[1] = x.tensor.shape[1]
    elif first == x.rank - 1 and x.fixed(x.rank - 1) and first != 2:
        kind[-1] = x.tensor.shape[-1]
    else:
        raise Unfit
    scale = net.constant(net.numbers(kind, 2), x.dtype)
    bias = net.constant(net.numbers(kind, 2), x.dtype)
    bits = sum(1 << i for i in axes)

    def make() -> Any:
        layer = net.network.add_normalization(x.tensor, scale.tensor, bias.tensor, bits)
        layer.epsilon = 1.0
        return layer

    def function(a: Any, s: Any, b: Any) -> Any:
        mean = a.mean(axes, keepdims=True)
        return (a - mean) / np.sqrt(a.var(axes, keepdims=True) + 1.0) * s + b

    error = 8 * x.error + 8 * net.rounding(x.dtype) * max(1.0, x.bound) + 1e-6
    net.layer(f"normalization {axes}", make, [x, scale, bias], function, None, 0.0, error)


def convolution_error(net: Net, x: Value, terms: int, function: Any) -> float:
    """Sums are taken in FLOAT, maybe of transformed tiles, and rounded once."""
    most = max(float(np.abs(function(a)).max()) for a in x.arrays)
    sums = 10 * ROUNDING[trt.float32] * max(1.0, x.bound * terms)
    return terms * x.error + sums + 2 * net.rounding(x.dtype) * max(1.0, most)


def convolution(net: Net) -> None:
    x = net.value(
        lambda v: v.rank == 4 and v.dtype is trt.float32 and v.exact and v.fixed(1)
        and min(v.dim(2)) > 0 and min(v.dim(3)) > 0 and v.unknown is None
    )  # fmt: skip
    channels, maps, size = x.tensor.shape[1], net.pick([1, 4, 8, 16, 17]), net.pick([1, 3])
    if channels < 1 or min(x.dim(0)) < 1:
        raise Unfit
    weights = net.numbers((maps, channels, size, size), 1)
    bias = net.numbers((maps,), 3)
    if channels * size * size * x.bound / x.step > 2**22:
        raise Unfit

    def make() -> Any:
        layer = net.network.add_convolution_nd(
            x.tensor, maps, (size, size), weights.astype(np.float32), bias.astype(np.float32)
        )
        layer.padding_nd = (size // 2, size // 2)
        return layer

    def function(a: Any) -> Any:
        r = size // 2
        wide = np.pad(a, ((0, 0), (0, 0), (r, r), (r, r)))
        windows = np.lib.stride_tricks.sliding_window_view(wide, (size, size), (2, 3))
        return np.einsum("nchwij,mcij->nmhw", windows, weights) + bias[:, None, None]

    error = convolution_error(net, x, channels * size * size, function)
    net.layer(f"convolution {weights.shape}", make, [x], function, None, 0.0, error)


def pooling(net: Net) -> None:
    x = net.value(
        lambda v: v.rank == 4 and exact_real(v) and v.unknown is None
        and min(v.dim(2)) >= 2 and min(v.dim(3)) >= 2 and min(v.dim(0)) > 0
        and min(v.dim(1)) > 0
    )  # fmt: skip
    mean = net.chance(0.5)
    kind = trt.PoolingType.AVERAGE if mean else trt.PoolingType.MAX

    def make() -> Any:
        layer = net.network.add_pooling_nd(x.tensor, kind, (2, 2))
        layer.stride_nd = (1, 1)
        return layer

    def function(a: Any) -> Any:
        windows = np.lib.stride_tricks.sliding_window_view(a, (2, 2), (2, 3))
        return windows.mean((4, 5)) if mean else windows.max((4, 5))

    step = x.step / 4 if mean else x.step
    net.layer(f"pooling {kind.name}", make, [x], function, None, step)


def quantize(net: Net) -> None:
    """To INT8 and back, by one scale or one for each channel."""
    x = net.value(
        lambda v: v.dtype is trt.float32 and v.exact and v.rank >= 2
    )
    n = net.network
    by_channel = x.fixed(1) and net.chance(0.4)
    count = x.tensor.shape[1] if by_channel else 1
    scales = 2.0 ** net.random.integers(-1, 2, count)
    data = scales.astype(np.float32)
    constant = lambda: n.add_constant((count,) if by_channel else (), data).get_output(0)  # noqa: E731
    factor = scales.reshape(-1, *[1] * (x.rank - 2)) if by_channel else scales[0]

    def layer_of(add: Any, tensor: Any) -> Any:
        layer = add(tensor, constant())
        if by_channel:
            layer.axis = 1
        return layer

    q = net.layer(
        f"quantize {'by channel' if by_channel else ''}",
        lambda: layer_of(n.add_quantize, x.tensor), [x],
        lambda a: np.clip(np.round(a / factor), -128, 127).astype(np.int64), trt.int8, 1.0,
    )  # fmt: skip
    # INT8 is read by dequantize layers and plugins alone.
    if net.chance(0.5) and q.bound < 120:
        attrs = {"a": -1.0, "b": 2.0, **plan_of(net, [q], [q.dtype], False)}
        x8 = q
        q = net.add(
            f"plugin affine {attrs}", lambda: [add_plugin(net, "affine", x8, **attrs)],
            [x8], lambda v: (2 - v,), [trt.int8],
        )[0]  # fmt: skip
    net.layer(
        "dequantize", lambda: layer_of(n.add_dequantize, q.tensor), [q],
        lambda a: a * factor, trt.float32, float(scales.min()),
    )  # fmt: skip


# ---- Control


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

    def make() -> Any:
        made = n.add_loop()
        count = n.add_constant((), np.array(trips, np.int32)).get_output(0)
        made.add_trip_limit(count, trt.TripLimit.COUNT)
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
        f"loop {trips} {kind} iterator {axis} plugin {add if with_plugin else ''}", make, [x],
        function,
    )  # fmt: skip


def shape(net: Net) -> None:
    x = net.value(lambda v: v.rank >= 1)
    net.layer(
        "shape", lambda: net.network.add_shape(x.tensor), [x],
        lambda a: np.array(a.shape, np.int64), trt.int64, 1.0, 0.0,
    )  # fmt: skip


# ---- Plugins


def layouts_for(v: Value) -> list[str]:
    """Formats that fit a value's rank."""
    return [f for f, (_, _, least) in p.FORMATS.items() if v.rank >= least]


def layout(net: Net, v: Value) -> str:
    return str(net.pick(["LINEAR", *layouts_for(v)]))


TYPE_NAMES = {t: name for name, t in p.NAMES.items()}


def plan_of(net: Net, values: list[Value], outputs: list[Any], together: bool) -> dict[str, Any]:
    """Types, formats and tactics that a decorated plugin offers. together: all are of one
    type and format."""
    count = len(values) + len(outputs)
    own = [TYPE_NAMES[v.dtype] for v in values] + [TYPE_NAMES[t] for t in outputs]
    if all(name == "FP32" for name in own) and net.chance(0.5):
        types = ", ".join(["FP32|FP16"] * count)
    else:
        types = ", ".join(own)
    rows = [layout(net, values[0]) for _ in range(net.integer(1, 3))]
    rows = list(dict.fromkeys(rows))
    formats = "|".join(rows)
    if together or net.chance(0.4):
        formats = ", ".join([formats] * count)
    else:
        options = [
            list(dict.fromkeys(layout(net, values[0]) for _ in range(2))) for _ in range(count)
        ]
        formats = ", ".join("*".join(o) for o in options)
    tactics = [int(t) for t in net.random.permutation(9)[: net.integer(0, 2)] + 1]
    return {"types": types, "formats": formats, "tactics": tactics or [4]}


def pluggable(v: Value) -> bool:
    return v.dtype in FLOATS


def single(v: Value) -> bool:
    return v.dtype is trt.float32


def plugin_error(net: Net, x: Value, factor: float, add: float) -> float:
    if x.exact:
        return 0.0
    return factor * x.error + net.rounding(x.dtype) * max(1.0, factor * x.bound + add)


def add_plugin(net: Net, name: str, x: Value, **attrs: Any) -> Any:
    """The output of a decorated plugin of one input."""
    func = call(f"{p.SPACE}::{name}")
    return net.network.add_plugin(func(x.tensor, **attrs)).get_output(0)


def plugin_affine(net: Net) -> None:
    x = net.value(lambda v: v.rank >= (0 if v.is_float else 1) and numeric(v))
    name = net.pick(["affine", "affine_in_place", "by_channel", "recorded", "ahead"])
    kernels = name in ("recorded", "ahead")
    if (name == "by_channel" and x.rank < 3) or (kernels and not single(x)):
        raise Unfit
    a, b = float(net.pick([1, -1, 2])), float(net.integer(-2, 2))
    attrs: dict[str, Any] = {"b": b}
    if name != "by_channel":
        attrs["a"] = a
    if kernels:
        if not x.exact and net.least is not trt.float32:
            raise Unfit
        one = layout(net, x)
        attrs["formats"] = f"{one}, {one}"
    else:
        attrs |= plan_of(net, [x], [x.dtype], name == "affine_in_place")

    def function(v: Any) -> Any:
        made = p.by_channel(v, b) if name == "by_channel" else p.affine(v, a, b)
        return (made[0].astype(v.dtype),)

    net.add(
        f"plugin {name} {attrs}",
        lambda: [add_plugin(net, name, x, **attrs)],
        [x], function, [x.dtype], [x.step and min(x.step, 1.0)],
        [plugin_error(net, x, 3, abs(b))],
    )  # fmt: skip


def plugin_pair(net: Net) -> None:
    x = net.value(lambda v: pluggable(v) and v.exact and v.step >= 1)
    b = float(net.integer(-2, 2))
    attrs = plan_of(net, [x], [x.dtype, trt.int32], False)

    def make() -> Any:
        layer = net.network.add_plugin(call(f"{p.SPACE}::pair")(x.tensor, b=b, **attrs))
        return [layer.get_output(0), layer.get_output(1)]

    net.add(
        f"plugin pair {attrs}", make, [x],
        lambda v: (p.pair(v, b)[0], p.pair(v, b)[1].astype(np.int64)),
        [x.dtype, trt.int32], [x.step, 1.0],
    )  # fmt: skip


def same(x: Value) -> Any:
    return lambda v: v.dtype is x.dtype and v.dims == x.dims and v.unknown is x.unknown


def plugin_two(net: Net) -> None:
    """Two tensors of one shape, which may be one tensor."""
    x = net.value(pluggable)
    y = net.value(same(x))
    name = net.pick(["mix", "accumulate", "swap"])
    attrs = plan_of(net, [x, y], [x.dtype] * (2 if name == "swap" else 1), name != "mix")
    function = {"mix": p.mix, "accumulate": p.accumulate, "swap": p.swap}[name]

    def make() -> Any:
        layer = net.network.add_plugin(
            call(f"{p.SPACE}::{name}")(x.tensor, y.tensor, **attrs)
        )
        return [layer.get_output(i) for i in range(layer.num_outputs)]

    count = 2 if name == "swap" else 1
    step = min(x.step, y.step)
    error = 0.0 if step else 2 * (x.error + y.error) + 2 * net.rounding(x.dtype) * max(
        1.0, x.bound + 2 * y.bound
    )
    net.add(
        f"plugin {name} {attrs}", make, [x, y], function, [x.dtype] * count, [step] * count,
        [error] * count,
    )  # fmt: skip


def plugin_channels(net: Net) -> None:
    """More or fewer channels than the input has."""
    x = net.value(
        lambda v: pluggable(v) and v.rank >= 3 and min(v.dim(1)) > 0 and max(v.dim(1)) < 80
        and v.unknown is None
    )  # fmt: skip
    attrs = plan_of(net, [x], [x.dtype], False)
    name, more = net.pick(["widen", "fold"]), net.pick([1, 3, 4, 8, 16])
    if name == "widen":
        attrs["more"] = more
    function = (lambda v: p.widen(v, more)) if name == "widen" else p.fold
    error = x.error + (0 if x.exact else net.rounding(x.dtype) * max(1.0, x.bound))
    net.add(
        f"plugin {name} {attrs}",
        lambda: [add_plugin(net, name, x, **attrs)],
        [x], function, [x.dtype], [x.step], [error],
    )  # fmt: skip


def plugin_keep(net: Net) -> None:
    """An extent that only the run tells, and the number."""
    x = net.value(
        lambda v: v.dtype is trt.float32 and v.exact and 1 <= v.rank <= 4 and v.unknown is None
    )

    def make() -> Any:
        layer = net.network.add_plugin(call(f"{p.SPACE}::keep")(x.tensor))
        return [layer.get_output(0), layer.get_output(1)]

    made = net.add(
        "plugin keep", make, [x], p.keep, [x.dtype, trt.int32], [x.step, 1.0],
        unknown=object(),
    )  # fmt: skip
    made[1].unknown = None


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


def plugin_spread(net: Net) -> None:
    """A shape input: constants, a network's input, or what a shape layer tells."""
    x = net.value(lambda v: v.dtype is trt.float32 and 1 <= v.rank <= 4)
    t = net.value(
        lambda v: getattr(v, "is_shape", False) and v.rank == 1 and v.shapes[0] == (x.rank,)
    ) if net.chance(0.6) else net.constant(
        net.random.integers(1, 3, x.rank), net.pick([trt.int32, trt.int64])
    )  # fmt: skip
    net.add(
        "plugin spread",
        lambda: [
            net.network.add_plugin(call(f"{p.SPACE}::spread")(x.tensor, t.tensor)).get_output(0)
        ],
        [x, t], p.spread, [x.dtype], [x.step], [x.error],
    )  # fmt: skip


def plugin_class_sizes(net: Net) -> None:
    """A class with an extent that only the run tells, in a shape that a shape input
    tells."""
    x = net.value(lambda v: v.dtype is trt.float32 and v.exact and v.rank == 2
                  and v.unknown is None)  # fmt: skip
    t = net.value(
        lambda v: getattr(v, "is_shape", False) and v.shapes[0][0] >= 1
    ) if net.chance(0.6) else net.constant(
        net.random.integers(1, 3, 2), net.pick([trt.int32, trt.int64])
    )  # fmt: skip

    def make() -> Any:
        layer = net.network.add_plugin_v3(
            [x.tensor], [t.tensor], classes.SizesV3(net.pick([[], [1, 2]]))
        )
        return [layer.get_output(0), layer.get_output(1)]

    made = net.add(
        "plugin class 3 sizes", make, [x, t], classes.sizes, [x.dtype, trt.int32],
        [x.step, 1.0], unknown=object(),
    )  # fmt: skip
    made[1].unknown = None


def plugin_class(net: Net) -> None:
    """IPluginV3 or IPluginV2DynamicExt, asked about each position."""
    x = net.value(pluggable)
    old = net.chance(0.4)
    kind = net.pick(["sum", "channel"] if old else ["sum", "channel", "in_place"])
    if kind == "channel" and (x.rank < 3 or not x.exact or x.step < 1):
        raise Unfit
    inputs = [x] if kind == "channel" else [x, net.value(same(x))]
    delta = float(net.integer(-2, 2))
    count = classes.num_outputs(kind)
    rows = []
    for _ in range(net.integer(1, 3)):
        dtype = net.pick([x.dtype, x.dtype, trt.float16])
        row = [(dtype, layout(net, x)) for _ in range(len(inputs) + 1)]
        if kind == "in_place":
            row = [row[0], row[1], row[0]]
        if count == 2:
            row.append((trt.int32, "LINEAR"))  # classes are asked about no other
        rows.append(row)
    if all(row[0][0] is not x.dtype for row in rows):
        rows.append([(trt.int32 if t is trt.int32 else x.dtype, "LINEAR") for t, _ in row])
    tensors = [v.tensor for v in inputs]
    tactics = [int(t) for t in net.random.permutation(9)[: net.integer(0, 2)] + 1]

    def make() -> Any:
        if old:
            layer = net.network.add_plugin_v2(tensors, classes.RandomV2(kind, delta, rows))
        else:
            plugin = classes.RandomV3(kind, delta, rows, tactics)
            layer = net.network.add_plugin_v3(tensors, [], plugin)
        return [layer.get_output(i) for i in range(count)]

    def function(*arrays: Any) -> Any:
        results = classes.compute(kind, delta, *arrays)
        return (results[0], results[1].astype(np.int64)) if count == 2 else results

    step = min(v.step for v in inputs)
    error = 0.0 if step else sum(v.error for v in inputs) + 2 * net.rounding(x.dtype) * max(
        1.0, sum(v.bound for v in inputs) + 2
    )
    net.add(
        f"plugin class {2 if old else 3} {kind} {classes.to_text(rows)}", make, inputs,
        function, [x.dtype, trt.int32][:count], [step and min(step, 1.0), 1.0][:count],
        [error, 0.0][:count],
    )  # fmt: skip


def twice(net: Net) -> None:
    """The same in-place plugin after itself."""
    x = net.value(pluggable)
    attrs = plan_of(net, [x], [x.dtype], True)
    for _ in range(2):
        y = x
        net.add(
            f"plugin affine_in_place (twice) {attrs}",
            lambda y=y: [add_plugin(net, "affine_in_place", y, a=-1.0, b=1.0, **attrs)],
            [y], lambda v: p.affine(v, -1.0, 1.0), [y.dtype], [y.step and min(y.step, 1.0)],
            [plugin_error(net, y, 1, 1)],
        )  # fmt: skip
        x = net.values[-1]


LAYERS = [
    (elementwise, 6), (comparison, 1), (logical, 1), (unary, 2), (activation, 3), (clip, 3),
    (cast, 1.5), (identity, 1), (select, 1.5), (transpose, 3), (reshape, 2),
    (reshape_by_tensor, 1.5), (slices, 3), (slice_outside, 1), (concatenation, 3),
    (gather, 1), (gather_by_values, 1), (reduce, 2), (matrix_multiply, 2), (softmax, 1),
    (normalization, 1), (convolution, 2), (pooling, 1), (quantize, 1.5), (conditional, 1),
    (loop, 1.5), (nested_loop, 0.5), (shape, 0.5), (small_shape, 0.5),
    (plugin_affine, 8), (plugin_pair, 3), (plugin_two, 5),
    (plugin_channels, 3), (plugin_keep, 1), (plugin_spread, 1.5), (plugin_class, 5),
    (plugin_class_sizes, 0.7), (twice, 1.5), (gelu, 0.7), (layer_norm, 0.7), (attention, 1),
    (product_and_more, 1.2), (channels_and_space, 0.8), (convolution_and_more, 3),
    (quantized_product, 1.2),
]  # fmt: skip


WISHED = (
    trt.LayerType.ELEMENTWISE, trt.LayerType.ACTIVATION, trt.LayerType.MATRIX_MULTIPLY,
    trt.LayerType.SOFTMAX, trt.LayerType.REDUCE, trt.LayerType.POOLING,
)  # fmt: skip


def grow(net: Net, layers: int) -> None:
    """Adds layers."""
    weights = np.array([w for _, w in LAYERS], float)
    tries = 0
    while sum(not n.what.startswith(("constant", "input")) for n in net.nodes) < layers:
        tries += 1
        if tries > 400:
            raise Unfit
        add = LAYERS[int(net.random.choice(len(LAYERS), p=weights / weights.sum()))][0]
        before = net.network.num_layers
        try:
            add(net)
        except Unfit:
            continue
        if net.least is not trt.float32 and net.chance(0.15):
            for i in range(before, net.network.num_layers):
                if net.network[i].type in WISHED:
                    net.network[i].precision = net.pick([trt.float32, net.least])
