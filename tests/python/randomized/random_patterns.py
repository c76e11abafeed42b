"""Patterns in random networks that builders look for: layers that are one kernel, or one
that is left out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import rabbet as trt

from tests.python.randomized.random_elements import combine, product_error
from tests.python.randomized.random_networks import (
    NONE,
    TRANSPOSE,
    A,
    E,
    Net,
    R,
    U,
    Unfit,
    Value,
)
from tests.python.randomized.random_plugin_layers import same
from tests.python.randomized.random_sums import convolution_error, shares


def number(net: Net, x: Value, value: float, step: float = 0.0) -> Value:
    """A constant that is spread over x, and stays what it is."""
    made = net.constant(np.full((1,) * x.rank, value), x.dtype, step or abs(value))
    net.nodes[-1].constant = None
    return made


def inexact(net: Net, x: Value, factor: float, what: str, make: Any, function: Any) -> Value:
    """A smooth function, whose slope is at most `factor`."""
    error = factor * x.error + 2 * net.rounding(x.dtype) * max(1.0, x.bound)
    return net.layer(what, make, [x], function, None, 0.0, error)


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
    """Of the last axis, layer by layer; with a mean, or by the mean square alone."""
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

    centred = combine(net, E.SUB, x, mean(x)) if net.chance(0.5) else x
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


def rotation(net: Net) -> None:
    """x cos + (-b, a) sin, a and b being halves of the last axis, or of a part of it."""
    x = net.value(lambda v: v.is_float and v.rank >= 2 and v.bound < 20 and v.unknown is None
                  and v.fixed(v.rank - 1) and v.tensor.shape[-1] >= 2)  # fmt: skip
    if any(0 in s for s in x.shapes):
        raise Unfit
    n, last = net.network, x.rank - 1

    def part(v: Value, first: int, size: int) -> Value:
        def make() -> Any:
            layer = n.add_slice(v.tensor, (first,), (size,), (1,))
            layer.axes = (last,)
            return layer

        return net.layer(f"slice {first} {size}", make, [v],
                         lambda a: a[..., first : first + size])  # fmt: skip

    def joined(a: Value, b: Value) -> Value:
        def make() -> Any:
            layer = n.add_concatenation([a.tensor, b.tensor])
            layer.axis = last
            return layer

        return net.layer("concatenation", make, [a, b],
                         lambda *parts: np.concatenate(parts, -1))  # fmt: skip

    width = x.tensor.shape[-1]
    half = net.integer(1, width // 2)
    whole, y = x, x
    if 2 * half < width:
        y = part(x, 0, 2 * half)
    tables = [net.constant(net.numbers((1,) * last + (2 * half,), 1), x.dtype) for _ in "cs"]
    second = part(y, half, half)
    negative = net.layer(
        "unary NEG", lambda: n.add_unary(second.tensor, U.NEG), [second], np.negative
    )
    turned = combine(net, E.PROD, joined(negative, part(y, 0, half)), tables[1])
    y = combine(net, E.SUM, combine(net, E.PROD, y, tables[0]), turned)
    if 2 * half < width:
        joined(y, part(whole, 2 * half, width - 2 * half))


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
    multiply(net, shares(net, scores, x.rank - 1), y, False)


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


