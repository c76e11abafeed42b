"""Quantization: the operators of quantized exports (quantized_decomposed), and fake
quantization of modules that were trained for it.

Where the integers are those of 8 bits and scales are constants, they are ONNX's
QuantizeLinear and DequantizeLinear, of which the builder makes products of 8 bits. Others
are written as the arithmetic that they stand for.
"""

from __future__ import annotations

from typing import Any

import torch

from ._graph import Graph, Value
from ._reductions import reduced
from ._table import TABLE, axis_of, refuse

_BYTES = (torch.int8, torch.uint8)


def _fits(dtype: Any, low: int, high: int) -> bool:
    limits = torch.iinfo(dtype)
    return limits.min <= low and high <= limits.max


def _integers_of(g: Graph, zero: Any) -> list[int] | None:
    """Zero points, if they are integers that the graph knows."""
    if not isinstance(zero, Value):
        return [0 if zero is None else zero]
    if zero not in g.weights or zero.dtype.is_floating_point:
        return None
    found: list[int] = torch.from_numpy(g.weights[zero]).view(zero.dtype).tolist()
    return found


def _has_nodes(g: Graph, dtype: Any, scale: Any, zero: Any, axis: int | None) -> bool:
    """Whether ONNX's operators have such integers: of 8 bits, with constant scales (one, or
    a vector along an axis) and zero points that the type holds."""
    if dtype not in _BYTES or (isinstance(scale, Value) and scale not in g.weights):
        return False
    rank = scale.rank if isinstance(scale, Value) else 0
    zeros = _integers_of(g, zero)
    fits = zeros is not None and all(_fits(dtype, n, n) for n in zeros)
    return fits and rank == (0 if axis is None else 1)


class _Scheme:
    """Scales and zero points as tensors that broadcast against a tensor."""

    def __init__(self, g: Graph, x: Value, scale: Any, zero: Any, axis: int | None) -> None:
        """axis: that of the tensor which vectors of scales lie along; None for all."""
        self.axis = None if axis is None else axis_of(axis, x.rank)
        self.scale = self._column(g, g.to(scale, torch.float32), scale, x)
        self.zero = self._column(g, g.to(0 if zero is None else zero, torch.float32), zero, x)

    def _column(self, g: Graph, made: str, given: Any, x: Value) -> str:
        if not isinstance(given, Value) or given.rank == 0 or given.rank == x.rank:
            return made
        if self.axis is None:
            return g.op("Reshape", made, g.ints([]))
        return g.op("Reshape", made, g.ints([-1] + [1] * (x.rank - 1 - self.axis)))

    def integers(self, g: Graph, x: str, low: Any, high: Any) -> str:
        """The whole numbers that stand for a tensor, as FLOAT."""
        inverse = g.op("Reciprocal", self.scale)
        rounded = g.op("Round", g.op("Mul", x, inverse))
        limits = (g.to(low, torch.float32), g.to(high, torch.float32))
        moved = g.op("Max", g.op("Add", rounded, self.zero), limits[0])
        return g.op("Min", moved, limits[1])

    def numbers(self, g: Graph, integers: str) -> str:
        """The tensor that whole numbers of FLOAT stand for."""
        return g.op("Mul", g.op("Sub", integers, self.zero), self.scale)


def _nodes(g: Graph, scale: Any, zero: Any, dtype: Any) -> tuple[str, str]:
    """Scale and zero point of ONNX's operators."""
    steps = g.to(scale, torch.float32)
    return steps, g.to(0 if zero is None else zero, dtype)


def _quantize_bytes(
    g: Graph, x: str, scale: Any, zero: Any, axis: int | None, low: int, high: int,
    dtype: Any, rank: int,
) -> str:  # fmt: skip
    """QuantizeLinear; what is beyond narrower limits than the type's is cut off before."""
    steps, origin = _nodes(g, scale, zero, dtype)
    limits = torch.iinfo(dtype)
    if (low, high) != (limits.min, limits.max):
        scheme = _Scheme(g, Value.make(x, torch.float32, [1] * rank), scale, zero, axis)
        ends = [
            scheme.numbers(g, g.scalar(float(end), torch.float32)) for end in (low, high)
        ]
        x = g.op("Min", g.op("Max", x, ends[0]), ends[1])
    return g.op("QuantizeLinear", x, steps, origin, axis=axis)


def quantize(
    g: Graph, out: Any, x: Value, scale: Any, zero: Any, axis: int | None, low: Any, high: Any
) -> str:
    """Whole numbers of the result's type."""
    value = g.to(x, torch.float32)
    if out.dtype.is_floating_point:
        refuse(f"quantization to {out.dtype}")
    numbers = all(isinstance(end, int) for end in (low, high))
    if numbers and not _fits(out.dtype, low, high):
        refuse(f"{out.dtype} of the range {low} to {high}, which the type does not hold")
    if numbers and _has_nodes(g, out.dtype, scale, zero, axis):
        at = None if axis is None else axis_of(axis, x.rank)
        return _quantize_bytes(g, value, scale, zero, at, low, high, out.dtype, x.rank)
    made = _Scheme(g, x, scale, zero, axis).integers(g, value, low, high)
    return g.cast(made, out.dtype)


def dequantize(
    g: Graph, out: Any, x: Value, scale: Any, zero: Any, axis: int | None
) -> str:
    """The numbers that whole ones stand for."""
    if _has_nodes(g, x.dtype, scale, zero, axis):
        steps, origin = _nodes(g, scale, zero, x.dtype)
        at = None if axis is None else axis_of(axis, x.rank)
        made = g.op("DequantizeLinear", x, steps, origin, axis=at)
    else:
        made = _Scheme(g, x, scale, zero, axis).numbers(g, g.to(x, torch.float32))
    return g.to(Value.make(made, torch.float32, out.shape), out.dtype)


# ---- quantized_decomposed ----


def _register(*names: str) -> Any:
    def register(function: Any) -> Any:
        TABLE.update({f"quantized_decomposed.{name}": function for name in names})
        return function

    return register


_KINDS = ("default", "tensor", "tensor2")


@_register(*(f"quantize_per_tensor.{kind}" for kind in _KINDS))
def _quantize_per_tensor(
    g: Graph, out: Any, x: Value, scale: Any, zero: Any, low: Any, high: Any, dtype: Any
) -> str:
    return quantize(g, out, x, scale, zero, None, low, high)


@_register(*(f"dequantize_per_tensor.{kind}" for kind in _KINDS))
def _dequantize_per_tensor(
    g: Graph, out: Any, x: Value, scale: Any, zero: Any, *args: Any, **kwargs: Any
) -> str:
    return dequantize(g, out, x, scale, zero, None)


@_register("quantize_per_channel.default")
def _quantize_per_channel(
    g: Graph, out: Any, x: Value, scale: Value, zero: Value, axis: int, low: int, high: int,
    dtype: Any,
) -> str:  # fmt: skip
    return quantize(g, out, x, scale, zero, axis, low, high)


@_register("dequantize_per_channel.default")
def _dequantize_per_channel(
    g: Graph, out: Any, x: Value, scale: Value, zero: Any, axis: int, *args: Any, **kw: Any
) -> str:
    return dequantize(g, out, x, scale, zero, axis)


@_register("quantize_per_token.default")
def _quantize_per_token(
    g: Graph, out: Any, x: Value, scale: Value, zero: Value, low: int, high: int, dtype: Any
) -> str:
    made = _Scheme(g, x, scale, zero, 0).integers(g, g.to(x, torch.float32), low, high)
    return g.cast(made, out.dtype)


@_register("dequantize_per_token.default")
def _dequantize_per_token(
    g: Graph, out: Any, x: Value, scale: Value, zero: Value, *args: Any
) -> str:
    made = _Scheme(g, x, scale, zero, 0).numbers(g, g.to(x, torch.float32))
    return g.to(Value.make(made, torch.float32, out.shape), out.dtype)


def _by_group(g: Graph, x: Value, scale: Value, zero: Any, size: int) -> tuple[Any, Value]:
    """Rows in groups of so many elements, each with a scale."""
    shape = [*x.shape[:-1], -1, size]
    apart = Value.make(g.op("Reshape", g.to(x, torch.float32), g.ints(shape)),
                       torch.float32, shape)  # fmt: skip

    def column(v: Any) -> Any:
        if v is None:
            return None
        made = g.op("Unsqueeze", g.to(v, torch.float32), g.ints([-1]))
        return Value.make(made, torch.float32, shape)

    return _Scheme(g, apart, column(scale), column(zero), None), apart


@_register("quantize_per_channel_group.default")
def _quantize_per_group(
    g: Graph, out: Any, x: Value, scale: Value, zero: Value, low: int, high: int, dtype: Any,
    size: int = 128,
) -> str:  # fmt: skip
    scheme, apart = _by_group(g, x, scale, zero, size)
    made = g.op("Reshape", scheme.integers(g, apart, low, high), g.ints(list(out.shape)))
    return g.cast(made, out.dtype)


@_register("dequantize_per_channel_group.default")
def _dequantize_per_group(
    g: Graph, out: Any, x: Value, scale: Value, zero: Any, low: int, high: int, dtype: Any,
    size: int = 128, *args: Any, **kwargs: Any,
) -> str:  # fmt: skip
    scheme, apart = _by_group(g, x, scale, zero, size)
    made = g.op("Reshape", scheme.numbers(g, apart), g.ints(list(out.shape)))
    return g.to(Value.make(made, torch.float32, out.shape), out.dtype)


def _range(g: Graph, x: Value, dims: Any) -> tuple[str, str]:
    """The least and the greatest element, or 0."""
    zero, value = g.scalar(0.0, torch.float32), g.to(x, torch.float32)
    least = reduced(g, "ReduceMin", value, x.rank, dims, dims is not None)
    most = reduced(g, "ReduceMax", value, x.rank, dims, dims is not None)
    return g.op("Min", least, zero), g.op("Max", most, zero)


def _chosen(g: Graph, out: Any, scale: str, zero: Any) -> list[str]:
    """Scale and zero point with the types and shapes of the results."""
    made = [Value.make(scale, torch.float32, ()), zero]
    return [
        g.op("Reshape", g.to(v, like.dtype), g.ints(list(like.shape)))
        for v, like in zip(made, out, strict=True)
    ]


def _zero_point(g: Graph, ends: Any, scale: str, low: int, high: int) -> Value:
    moved = g.op("Round", g.op("Div", ends[0], scale))
    zero = g.op("Sub", g.scalar(float(low), torch.float32), moved)
    limits = g.scalar(float(low), torch.float32), g.scalar(float(high), torch.float32)
    return Value.make(g.op("Clip", zero, *limits), torch.float32, ())


@_register("choose_qparams.tensor")
def _choose(
    g: Graph, out: Any, x: Value, low: int, high: int, eps: float, dtype: Any
) -> list[str]:
    ends = _range(g, x, None)
    width = g.op("Sub", ends[1], ends[0])
    scale = g.op("Div", width, g.scalar(float(high - low), torch.float32))
    scale = g.op("Max", scale, g.scalar(eps, torch.float32))
    return _chosen(g, out, scale, _zero_point(g, ends, scale, low, high))


@_register("choose_qparams_symmetric.tensor")
def _choose_symmetric(
    g: Graph, out: Any, x: Value, low: int, high: int, eps: float, dtype: Any
) -> list[str]:
    ends = _range(g, x, None)
    most = g.op("Max", g.op("Neg", ends[0]), ends[1])
    scale = g.op("Div", most, g.scalar((high - low) / 2, torch.float32))
    scale = g.op("Max", scale, g.scalar(eps, torch.float32))
    return _chosen(g, out, scale, 128 if dtype is torch.uint8 else 0)


@_register(
    "choose_qparams_per_token_asymmetric.default",
    "_choose_qparams_per_token_asymmetric_impl.default",
)
def _choose_per_token_asymmetric(g: Graph, out: Any, x: Value, dtype: Any) -> list[str]:
    """As torch has it: the zero point whose rounding errs less at the ends."""
    low, high = -128.0, 127.0
    least, most = _range(g, x, [-1])
    limits = [g.scalar(n, torch.float32) for n in (low, high)]
    width = g.op("Sub", most, least)
    scale = g.op("Div", width, g.scalar(high - low, torch.float32))
    scale = g.op("Max", scale, g.scalar(torch.finfo(torch.float32).eps, torch.float32))
    down, up = g.op("Div", least, scale), g.op("Div", most, scale)
    error = g.op("Add", g.op("Add", limits[0], down), g.op("Add", limits[1], up))
    is_low = g.op("Greater", error, g.scalar(0.0, torch.float32))
    zero = g.op("Where", is_low, g.op("Sub", limits[0], down), g.op("Sub", limits[1], up))
    zero = g.op("Round", g.op("Min", g.op("Max", zero, limits[0]), limits[1]))
    return _chosen(g, out, scale, Value.make(zero, torch.float32, ()))


@_register("choose_qparams_per_token.default")
def _choose_per_token(g: Graph, out: Any, x: Value, dtype: Any) -> list[str]:
    most = reduced(g, "ReduceMax", g.op("Abs", g.to(x, torch.float32)), x.rank, [-1], True)
    if x.dtype is torch.float16:
        refuse("scales of rows of FLOAT16, which torch rounds on the way")
    most = g.op("Max", most, g.scalar(1e-5, torch.float32))
    scale = g.op("Div", most, g.scalar(127.0, torch.float32))
    shape = g.ints(list(out[1].shape))
    zero = g.op("Expand", g.scalar(0.0, torch.float32), shape)
    return _chosen(g, out, scale, Value.make(zero, torch.float32, ()))


@_register("convert_element_type.no_fuse")
def _convert(g: Graph, out: Any, x: Value, dtype: Any) -> str:
    return g.to(x, out.dtype)


# ---- Fake quantization ----


def _fake(
    g: Graph, out: Any, x: Value, scale: Any, zero: Any, axis: int | None, low: int, high: int
) -> str:
    """The numbers that whole ones of a range stand for; by a type of 8 bits if one has them."""
    like = next((dtype for dtype in _BYTES if _fits(dtype, low, high)), None)
    if like is not None and _has_nodes(g, like, scale, zero, axis):
        whole = Value.make("", like, out.shape)
        made = quantize(g, whole, x, scale, zero, axis, low, high)
        return dequantize(g, out, Value.of(made, whole), scale, zero, axis)
    scheme = _Scheme(g, x, scale, zero, axis)
    made = scheme.numbers(g, scheme.integers(g, g.to(x, torch.float32), low, high))
    return g.to(Value.make(made, torch.float32, out.shape), out.dtype)


def _fake_per_tensor(
    g: Graph, out: Any, x: Value, scale: Any, zero: Any, low: int, high: int
) -> list[str | None]:
    """The second result is the gradient's."""
    return [_fake(g, out[0], x, scale, zero, None, low, high), None]


def _fake_per_channel(
    g: Graph, out: Any, x: Value, scale: Value, zero: Value, axis: int, low: int, high: int
) -> list[str | None]:
    return [_fake_of_channels(g, out[0], x, scale, zero, axis, low, high), None]


def _fake_if_enabled(
    g: Graph, out: Any, x: Value, scale: Value, zero: Value, enabled: Value, low: int,
    high: int,
) -> list[str | None]:  # fmt: skip
    made = _fake(g, out[0], x, scale, zero, None, low, high)
    is_on = g.op("Reshape", g.to(enabled, torch.bool), g.ints([]))
    return [g.op("Where", is_on, made, x), None]


@_register("fake_quant_per_channel.default")
def _fake_of_channels(
    g: Graph, out: Any, x: Value, scale: Value, zero: Value, axis: int, low: int, high: int
) -> str:
    if zero.is_float:
        refuse("fake quantization with zero points that are no integers")
    # torch checks those of channels in each call alone, those of a tensor in the export, too.
    if any(not low <= n <= high for n in _integers_of(g, zero) or []):
        refuse(f"zero points outside of the range {low} to {high}")
    return _fake(g, out, x, scale, zero, axis, low, high)


TABLE["aten.fake_quantize_per_tensor_affine_cachemask.default"] = _fake_per_tensor
TABLE["aten.fake_quantize_per_channel_affine_cachemask.default"] = _fake_per_channel
TABLE["aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default"] = (
    _fake_if_enabled
)
