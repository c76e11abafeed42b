"""Layers of random networks that add up: products, reductions, windows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import rabbet as trt

from tests.python.randomized.random_elements import exact_real, integral, product_error
from tests.python.randomized.random_networks import (
    NONE,
    ROUNDING,
    TRANSPOSE,
    Net,
    R,
    Unfit,
    Value,
)
from tests.python.randomized.random_plugin_layers import add_plugin, plan_of


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


def shares(net: Net, x: Value, axis: int) -> Value:
    """Softmax along an axis."""

    def make() -> Any:
        layer = net.network.add_softmax(x.tensor)
        layer.axes = 1 << axis
        return layer

    def function(a: Any) -> Any:
        e = np.exp(a - a.max(axis, keepdims=True))
        return e / e.sum(axis, keepdims=True)

    error = 2 * x.error + 4 * net.rounding(x.dtype) * max(1.0, x.bound)
    return net.layer(f"softmax axis {axis}", make, [x], function, None, 0.0, error)


def softmax(net: Net) -> None:
    x = net.value(lambda v: v.rank >= 1 and v.is_float)
    if any(0 in s for s in x.shapes) or x.bound > 50:
        raise Unfit
    shares(net, x, net.integer(0, x.rank - 1))


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
