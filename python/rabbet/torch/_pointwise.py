"""Operators of each element: arithmetic, comparisons, activations, types."""

from __future__ import annotations

import math
from typing import Any

import torch

from ._graph import Graph, Value
from ._table import TABLE, aten, fixed, refuse

# ---- Functions of one operand ----

_UNARY = {
    "acos": "Acos", "acosh": "Acosh", "asin": "Asin", "asinh": "Asinh", "atan": "Atan",
    "atanh": "Atanh", "cos": "Cos", "cosh": "Cosh", "erf": "Erf", "exp": "Exp",
    "log": "Log", "reciprocal": "Reciprocal", "sigmoid": "Sigmoid", "sin": "Sin",
    "sinh": "Sinh", "sqrt": "Sqrt", "tan": "Tan", "tanh": "Tanh",
    "abs": "Abs", "neg": "Neg", "sign": "Sign", "sgn": "Sign", "relu": "Relu",
    "mish": "Mish",
}  # fmt: skip
_ROUNDING = {"ceil": "Ceil", "floor": "Floor", "round": "Round"}


def _unary(kind: str) -> Any:
    def write(g: Graph, out: Any, x: Value) -> str:
        if out.dtype is torch.bool:  # sign and abs are the truth value itself
            return x
        return g.op(kind, g.to(x, out.dtype))

    return write


def _rounding(kind: str) -> Any:
    return lambda g, out, x: g.op(kind, x) if x.is_float else x


TABLE.update({f"aten.{name}.default": _unary(kind) for name, kind in _UNARY.items()})
TABLE.update({f"aten.{name}.default": _rounding(k) for name, k in _ROUNDING.items()})


def same(g: Graph, out: Any, x: Value, *args: Any, **kwargs: Any) -> str:
    """The tensor itself: its memory is no matter of a graph."""
    return g.to(x, out.dtype)


for _name in (
    "alias.default", "clone.default", "detach.default", "contiguous.default",
    "lift_fresh_copy.default", "_to_copy.default", "to.dtype", "to.device",
    "to.dtype_layout", "type_as.default", "dropout.default", "feature_dropout.default",
    "lift.default", "lift_fresh.default", "detach_copy.default", "alias_copy.default",
    "_conj.default", "conj.default", "real.default", "resolve_conj.default",
    "resolve_neg.default", "_assert_tensor_metadata.default",
):  # fmt: skip
    TABLE[f"aten.{_name}"] = same

TABLE["prims.convert_element_type.default"] = same


@aten("dropout.default", "feature_dropout.default")
def _dropout(g: Graph, out: Any, x: Value, p: float, train: bool) -> str:
    return refuse("dropout in training; call eval()") if train and p else x


@aten("native_dropout.default")
def _native_dropout(g: Graph, out: Any, x: Value, p: float, train: Any) -> list[str]:
    if train and p:
        refuse("dropout in training; call eval()")
    return [x, g.op("Cast", g.op("Equal", x, x), to=9)]


@aten("rsqrt.default")
def _rsqrt(g: Graph, out: Any, x: Value) -> str:
    return g.op("Reciprocal", g.op("Sqrt", g.to(x, out.dtype)))


@aten("square.default")
def _square(g: Graph, out: Any, x: Value) -> str:
    value = g.to(x, out.dtype)  # of truth values, torch's result is INT64
    return g.op("Mul", value, value)


@aten("trunc.default", "fix.default")
def _trunc(g: Graph, out: Any, x: Value) -> str:
    if not x.is_float:
        return x
    return g.op("Mul", g.op("Sign", x), g.op("Floor", g.op("Abs", x)))


@aten("frac.default")
def _frac(g: Graph, out: Any, x: Value) -> str:
    return g.op("Sub", x, _trunc(g, out, x))


@aten("round.decimals")
def _round_decimals(g: Graph, out: Any, x: Value, *, decimals: int) -> str:
    scale = g.scalar(10.0**decimals, out.dtype)
    return g.op("Div", g.op("Round", g.op("Mul", x, scale)), scale)


def _of_log(base: float) -> Any:
    def write(g: Graph, out: Any, x: Value) -> str:
        scale = g.scalar(1 / math.log(base), out.dtype)
        return g.op("Mul", g.op("Log", g.to(x, out.dtype)), scale)

    return write


TABLE["aten.log2.default"] = _of_log(2)
TABLE["aten.log10.default"] = _of_log(10)


@aten("log1p.default")
def _log1p(g: Graph, out: Any, x: Value) -> str:
    """Kahan's form: log(u) x / (u - 1) with u = 1 + x has the error of that sum taken out."""
    value, one = g.to(x, out.dtype), g.scalar(1.0, out.dtype)
    above = g.op("Add", value, one)
    log = g.op("Log", above)
    rounded = g.op("Sub", above, one)
    scaled = g.op("Mul", log, g.op("Div", value, rounded))
    near = g.op("Where", g.op("Equal", above, one), value, scaled)
    return g.op("Where", g.op("Equal", above, value), log, near)


@aten("expm1.default")
def _expm1(g: Graph, out: Any, x: Value) -> str:
    """tanh(x / 2) (exp(x) + 1), which has no difference of close numbers."""
    value, one = g.to(x, out.dtype), g.scalar(1.0, out.dtype)
    half = g.op("Tanh", g.op("Mul", value, g.scalar(0.5, out.dtype)))
    return g.op("Mul", half, g.op("Add", g.op("Exp", value), one))


@aten("exp2.default")
def _exp2(g: Graph, out: Any, x: Value) -> str:
    return g.op("Pow", g.scalar(2.0, out.dtype), g.to(x, out.dtype))


@aten("isnan.default")
def _isnan(g: Graph, out: Any, x: Value) -> str:
    if x.is_float:
        return g.op("IsNaN", x)
    return g.op("Not", g.op("Equal", x, x))


@aten("isinf.default")
def _isinf(g: Graph, out: Any, x: Value) -> str:
    if x.is_float:
        return g.op("IsInf", x)
    return g.op("Not", g.op("Equal", x, x))


@aten("logical_not.default")
def _logical_not(g: Graph, out: Any, x: Value) -> str:
    return g.op("Not", g.to(x, torch.bool))


@aten("bitwise_not.default")
def _bitwise_not(g: Graph, out: Any, x: Value) -> str:
    return g.op("Not" if x.dtype is torch.bool else "BitwiseNot", x)


# ---- Functions of two operands ----


def common_type(*operands: Any) -> Any:
    """The type in which torch computes with these."""
    found: Any = None
    for operand in operands:
        like: Any
        if isinstance(operand, Value):
            like = torch.empty((1,) * operand.rank, dtype=operand.dtype, device="meta")
        else:
            like = operand if isinstance(operand, (bool, int, float)) else 1
        found = like if found is None else _joined(found, like)
    return found.dtype if isinstance(found, torch.Tensor) else found


def _joined(a: Any, b: Any) -> Any:
    rank = max(getattr(a, "ndim", 0), getattr(b, "ndim", 0))
    dtype = torch.result_type(a, b)
    return torch.empty((1,) * rank, dtype=dtype, device="meta")


def binary(g: Graph, kind: str, a: Any, b: Any, dtype: Any) -> str:
    """A node whose operands have a type."""
    return g.op(kind, g.to(a, dtype), g.to(b, dtype))


def _scaled(g: Graph, b: Any, alpha: Any, dtype: Any) -> Any:
    if isinstance(alpha, (int, float)) and alpha == 1:
        return b
    if not isinstance(b, Value) and isinstance(b, (int, float)):
        return b * alpha
    return Value.make(binary(g, "Mul", b, alpha, dtype), dtype, getattr(b, "shape", ()))


@aten("add.Tensor", "add.Scalar")
def _add(g: Graph, out: Any, a: Any, b: Any, alpha: Any = 1) -> str:
    if out.dtype is torch.bool:
        added = b if alpha else False
        return binary(g, "Or", a, added, torch.bool)
    return binary(g, "Add", a, _scaled(g, b, alpha, out.dtype), out.dtype)


@aten("sub.Tensor", "sub.Scalar")
def _sub(g: Graph, out: Any, a: Any, b: Any, alpha: Any = 1) -> str:
    return binary(g, "Sub", a, _scaled(g, b, alpha, out.dtype), out.dtype)


@aten("rsub.Tensor", "rsub.Scalar")
def _rsub(g: Graph, out: Any, a: Any, b: Any, alpha: Any = 1) -> str:
    return binary(g, "Sub", b, _scaled(g, a, alpha, out.dtype), out.dtype)


@aten("mul.Tensor", "mul.Scalar")
def _mul(g: Graph, out: Any, a: Any, b: Any) -> str:
    return binary(g, "And" if out.dtype is torch.bool else "Mul", a, b, out.dtype)


@aten("div.Tensor", "div.Scalar", "true_divide.Tensor")
def _div(g: Graph, out: Any, a: Any, b: Any) -> str:
    return binary(g, "Div", a, b, out.dtype)


@aten("div.Tensor_mode", "div.Scalar_mode")
def _div_mode(g: Graph, out: Any, a: Any, b: Any, rounding_mode: Any = None) -> str:
    if rounding_mode == "floor":
        return _floor_divide(g, out, a, b)
    quotient = Value.of(_div(g, out, a, b), out)
    return quotient if rounding_mode is None else _trunc(g, out, quotient)


def _is_exact_divisor(b: Any) -> bool:
    """Whether quotients by a number are exact: a power of two."""
    is_number = isinstance(b, (int, float)) and b != 0
    return is_number and abs(math.frexp(b)[0]) == 0.5


def _rest(g: Graph, x: str, y: str, dtype: Any) -> tuple[str, str]:
    """What truncated division leaves, and where floored division leaves it and a divisor."""
    zero = g.scalar(0.0, dtype)
    rest = g.op("Mod", x, y, fmod=1)
    differs = g.op("Xor", g.op("Less", rest, zero), g.op("Less", y, zero))
    return rest, g.op("And", g.op("Not", g.op("Equal", rest, zero)), differs)


@aten("floor_divide.default", "floor_divide.Scalar")
def _floor_divide(g: Graph, out: Any, a: Any, b: Any) -> str:
    """A quotient near an integer may be rounded to it, so the rest decides, as in torch."""
    x, y = g.to(a, out.dtype), g.to(b, out.dtype)
    if not out.dtype.is_floating_point:
        return g.op("Div", g.op("Sub", x, g.op("Mod", x, y)), y)
    if _is_exact_divisor(b):
        return g.op("Floor", g.op("Div", x, y))
    one, half = g.scalar(1.0, out.dtype), g.scalar(0.5, out.dtype)
    rest, is_below = _rest(g, x, y, out.dtype)
    quotient = g.op("Div", g.op("Sub", x, rest), y)
    quotient = g.op("Where", is_below, g.op("Sub", quotient, one), quotient)
    floor = g.op("Floor", quotient)
    is_above = g.op("Greater", g.op("Sub", quotient, floor), half)
    found = g.op("Where", is_above, g.op("Add", floor, one), floor)
    is_zero = g.op("Equal", y, g.scalar(0.0, out.dtype))
    return g.op("Where", is_zero, g.op("Div", x, y), found)


@aten("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor")
def _remainder(g: Graph, out: Any, a: Any, b: Any) -> str:
    x, y = g.to(a, out.dtype), g.to(b, out.dtype)
    if not out.dtype.is_floating_point:
        return g.op("Mod", x, y)
    if _is_exact_divisor(b):
        return g.op("Sub", x, g.op("Mul", g.op("Floor", g.op("Div", x, y)), y))
    rest, is_below = _rest(g, x, y, out.dtype)
    return g.op("Where", is_below, g.op("Add", rest, y), rest)


@aten("fmod.Tensor", "fmod.Scalar")
def _fmod(g: Graph, out: Any, a: Any, b: Any) -> str:
    return g.op("Mod", g.to(a, out.dtype), g.to(b, out.dtype), fmod=1)


@aten("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def _pow(g: Graph, out: Any, a: Any, b: Any) -> str:
    if isinstance(b, (int, float)) and b in (1, 2, 3, 0.5, -0.5, -1):
        x = g.to(a, out.dtype)
        if b in (1, 2, 3):
            result = x
            for _ in range(int(b) - 1):
                result = g.op("Mul", result, x)
            return result
        root = x if b == -1 else g.op("Sqrt", x)
        return root if b == 0.5 else g.op("Reciprocal", root)
    return binary(g, "Pow", a, b, out.dtype)


@aten("maximum.default", "max.other", "clamp_min.default", "clamp_min.Tensor")
def _maximum(g: Graph, out: Any, a: Any, b: Any) -> str:
    return binary(g, "Or" if out.dtype is torch.bool else "Max", a, b, out.dtype)


@aten("minimum.default", "min.other", "clamp_max.default", "clamp_max.Tensor")
def _minimum(g: Graph, out: Any, a: Any, b: Any) -> str:
    return binary(g, "And" if out.dtype is torch.bool else "Min", a, b, out.dtype)


def _best_number(kind: str) -> Any:
    """The larger or smaller one; NaN only where both are NaN."""

    def write(g: Graph, out: Any, a: Any, b: Any) -> str:
        x, y = g.to(a, out.dtype), g.to(b, out.dtype)
        if out.dtype is torch.bool:
            return g.op("Or" if kind == "Max" else "And", x, y)
        found = g.op(kind, x, y)
        if not out.dtype.is_floating_point:
            return found
        found = g.op("Where", g.op("IsNaN", x), y, found)
        return g.op("Where", g.op("IsNaN", y), x, found)

    return write


TABLE["aten.fmax.default"] = _best_number("Max")
TABLE["aten.fmin.default"] = _best_number("Min")


@aten("clamp.default", "clamp.Tensor", "hardtanh.default", "clip.default")
def _clamp(g: Graph, out: Any, x: Value, low: Any = None, high: Any = None) -> str:
    result = Value.make(g.to(x, out.dtype), out.dtype, out.shape)
    numbers = (low, high)
    if all(not isinstance(n, Value) for n in numbers) and out.dtype.is_floating_point:
        bounds = [None if n is None else g.scalar(n, out.dtype) for n in numbers]
        return g.op("Clip", result, *bounds)
    for kind, bound in (("Max", low), ("Min", high)):
        if bound is not None:
            result = Value.of(binary(g, kind, result, bound, out.dtype), out)
    return result


TABLE["aten.hardtanh.default"] = lambda g, out, x, low=-1.0, high=1.0: _clamp(
    g, out, x, low, high
)
TABLE["aten.relu6.default"] = lambda g, out, x: _clamp(g, out, x, 0.0, 6.0)


@aten("atan2.default")
def _atan2(g: Graph, out: Any, a: Any, b: Any) -> str:
    y, x = g.to(a, out.dtype), g.to(b, out.dtype)
    zero, one = g.scalar(0.0, out.dtype), g.scalar(1.0, out.dtype)
    pi = g.scalar(math.pi, out.dtype)
    rise, run = g.op("Abs", y), g.op("Abs", x)
    # 0 / 0 and inf / inf have angles of their own.
    level = g.op("Where", g.op("Equal", rise, zero), zero, one)
    slope = g.op("Where", g.op("Equal", rise, run), level, g.op("Div", rise, run))
    angle = g.op("Atan", slope)
    angle = g.op("Where", _has_sign(g, x, out.dtype), g.op("Sub", pi, angle), angle)
    return g.op("Where", _has_sign(g, y, out.dtype), g.op("Neg", angle), angle)


def _has_sign(g: Graph, x: str, dtype: Any) -> str:
    """Where a number is below zero or -0."""
    zero, one = g.scalar(0.0, dtype), g.scalar(1.0, dtype)
    is_below = g.op("Less", g.op("Div", one, x), zero)
    return g.op("Or", g.op("Less", x, zero), is_below)


@aten("angle.default")
def _angle(g: Graph, out: Any, x: Value) -> str:
    """Of real numbers: pi below zero."""
    value = g.to(x, out.dtype)
    zero = g.scalar(0.0, out.dtype)
    turn = g.op("Where", g.op("Less", value, zero), g.scalar(math.pi, out.dtype), zero)
    return g.op("Where", g.op("IsNaN", value), value, turn) if x.is_float else turn


@aten("ldexp.Tensor")
def _ldexp(g: Graph, out: Any, x: Value, power: Value) -> str:
    factor = g.op("Pow", g.scalar(2.0, out.dtype), g.to(power, out.dtype))
    return g.op("Mul", g.to(x, out.dtype), factor)


# ---- Bits ----


@aten("view.dtype", "view_copy.dtype")
def _bits_as(g: Graph, out: Any, x: Value, dtype: Any) -> str:
    """The same bits as another type."""
    if x.dtype.itemsize != out.dtype.itemsize:
        refuse(f"bits of {x.dtype} as {out.dtype}, which is of another size")
    if any(g.held(each) for each in (x.dtype, out.dtype)):
        refuse(f"bits of {x.dtype} as {out.dtype}, of which plans hold one in another type")
    return x if x.dtype is out.dtype else g.op("BitCast", x, to=g.type(out.dtype))


def _as_float(g: Graph, x: Value) -> str:
    if x.dtype is not torch.float32:
        refuse(f"the bits of {x.dtype}; there are those of float32")
    return x


@aten("nextafter.default")
def _next_after(g: Graph, out: Any, a: Value, b: Value) -> str:
    """One more or one less in the bits of a number, which are in the order of sizes."""
    x, to = _as_float(g, a), _as_float(g, b)
    integers = g.type(torch.int32)
    zero, one = g.scalar(0.0, torch.float32), g.scalar(1, torch.int32)
    bits = g.op("BitCast", x, to=integers)
    grows = g.op("Equal", g.op("Greater", to, x), g.op("Greater", x, zero))
    moved = g.op("Where", grows, g.op("Add", bits, one), g.op("Sub", bits, one))
    found = g.op("BitCast", moved, to=g.type(torch.float32))
    least = g.literal(torch.tensor(1, dtype=torch.int32).view(torch.float32))
    signed = g.op("Where", g.op("Less", to, zero), g.op("Neg", least), least)
    found = g.op("Where", g.op("Equal", x, zero), signed, found)
    found = g.op("Where", g.op("Equal", x, to), to, found)
    is_nan = g.op("Or", g.op("IsNaN", x), g.op("IsNaN", to))
    return g.op("Where", is_nan, g.op("Add", x, to), found)


@aten("frexp.Tensor")
def _frexp(g: Graph, out: Any, x: Value) -> list[str]:
    """A fraction from 0.5 to 1, and the power of two that it is of."""
    value = _as_float(g, x)
    integers, floats = g.type(torch.int32), g.type(torch.float32)

    def number(n: int) -> str:
        return g.scalar(n, torch.int32)

    # Numbers below the least normal one are moved up first.
    size = g.op("Abs", value)
    is_small = g.op("Less", size, g.scalar(2.0**-126, torch.float32))
    scale = g.op("Where", is_small, g.scalar(2.0**24, torch.float32), g.scalar(1.0, torch.float32))
    moved = g.op("Mul", value, scale)
    bits = g.op("BitCast", moved, to=integers)
    plain = g.op("BitCast", g.op("Abs", moved), to=integers)
    steps = g.op("Div", plain, number(1 << 23))
    power = g.op("Sub", steps, number(126))
    power = g.op("Sub", power, g.op("Where", is_small, number(24), number(0)))
    shift = g.op("Mul", g.op("Sub", steps, number(126)), number(1 << 23))
    fraction = g.op("BitCast", g.op("Sub", bits, shift), to=floats)
    is_plain = g.op("Less", size, g.scalar(math.inf, torch.float32))
    is_plain = g.op("And", is_plain, g.op("Greater", size, g.scalar(0.0, torch.float32)))
    return [
        g.op("Where", is_plain, fraction, value),
        g.op("Where", is_plain, power, number(0)),
    ]


@aten("signbit.default")
def _signbit(g: Graph, out: Any, x: Value) -> str:
    if x.dtype is torch.bool:
        return g.op("And", x, g.scalar(False, torch.bool))
    if not x.is_float:
        return g.op("Less", x, g.scalar(0, x.dtype))
    return _has_sign(g, x, x.dtype)


@aten("copysign.Tensor", "copysign.Scalar")
def _copysign(g: Graph, out: Any, a: Any, b: Any) -> str:
    size = g.op("Abs", g.to(a, out.dtype))
    if isinstance(b, (int, float)):
        return g.op("Neg", size) if math.copysign(1.0, b) < 0 else size
    is_negative = _has_sign(g, g.to(b, out.dtype), out.dtype)
    return g.op("Where", is_negative, g.op("Neg", size), size)


_COMPARISONS = {
    "eq": "Equal", "lt": "Less", "gt": "Greater", "le": "LessOrEqual",
    "ge": "GreaterOrEqual",
}  # fmt: skip


def _compare(kind: str) -> Any:
    def write(g: Graph, out: Any, a: Any, b: Any) -> str:
        dtype = common_type(a, b)
        if dtype is torch.bool and kind != "Equal":
            dtype = torch.int32
        return binary(g, kind, a, b, dtype)

    return write


for _name, _kind in _COMPARISONS.items():
    TABLE[f"aten.{_name}.Tensor"] = TABLE[f"aten.{_name}.Scalar"] = _compare(_kind)


@aten("ne.Tensor", "ne.Scalar")
def _ne(g: Graph, out: Any, a: Any, b: Any) -> str:
    return g.op("Not", _compare("Equal")(g, out, a, b))


def _bits(kind: str) -> Any:
    def write(g: Graph, out: Any, a: Any, b: Any) -> str:
        node = kind if out.dtype is torch.bool else f"Bitwise{kind}"
        return binary(g, node, a, b, out.dtype)

    return write


def _logical(kind: str) -> Any:
    return lambda g, out, a, b: binary(g, kind, a, b, torch.bool)


for _name, _kind in {"and": "And", "or": "Or", "xor": "Xor"}.items():
    TABLE[f"aten.logical_{_name}.default"] = _logical(_kind)
    for _variant in ("Tensor", "Scalar", "Scalar_Tensor"):
        TABLE[f"aten.bitwise_{_name}.{_variant}"] = _bits(_kind)
        TABLE[f"aten.__{_name}__.{_variant}"] = _bits(_kind)


def _shift(direction: str) -> Any:
    def write(g: Graph, out: Any, a: Any, b: Any) -> str:
        power = g.op("Pow", g.scalar(2, out.dtype), g.to(b, out.dtype))
        x = Value.of(g.to(a, out.dtype), out)
        if direction == "LEFT":
            return g.op("Mul", x, power)
        return _floor_divide(g, out, x, Value.of(power, out))

    return write


for _word, _side in (("left_shift", "LEFT"), ("right_shift", "RIGHT")):
    for _variant in ("Tensor", "Tensor_Scalar", "Scalar_Tensor"):
        TABLE[f"aten.bitwise_{_word}.{_variant}"] = _shift(_side)
    for _variant in ("Tensor", "Scalar"):
        TABLE[f"aten.__{_side[0].lower()}shift__.{_variant}"] = _shift(_side)


# ---- Choices ----


@aten("where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar")
def _where(g: Graph, out: Any, condition: Value, a: Any, b: Any) -> str:
    chosen = g.to(condition, torch.bool)
    return g.op("Where", chosen, g.to(a, out.dtype), g.to(b, out.dtype))


@aten("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(g: Graph, out: Any, x: Value, mask: Value, value: Any) -> str:
    return g.op("Where", mask, g.to(value, out.dtype), x)


# ---- Activations ----


@aten("gelu.default")
def _gelu(g: Graph, out: Any, x: Value, approximate: str = "none") -> str:
    return g.op("Gelu", x, approximate=approximate)


@aten("silu.default")
def _silu(g: Graph, out: Any, x: Value) -> str:
    return g.op("Mul", x, g.op("Sigmoid", x))


@aten("leaky_relu.default")
def _leaky_relu(g: Graph, out: Any, x: Value, slope: float = 0.01) -> str:
    return g.op("LeakyRelu", x, alpha=fixed(slope))


@aten("elu.default")
def _elu(
    g: Graph, out: Any, x: Value, alpha: float = 1.0, scale: float = 1.0, inner: float = 1.0
) -> str:
    if inner != 1:
        negative = g.op("Elu", g.op("Mul", x, g.scalar(inner, x.dtype)), alpha=fixed(alpha))
        positive = g.op("Greater", x, g.scalar(0.0, x.dtype))
        result = g.op("Where", positive, x, negative)
    else:
        result = g.op("Elu", x, alpha=fixed(alpha))
    return result if scale == 1 else g.op("Mul", result, g.scalar(scale, x.dtype))


@aten("celu.default")
def _celu(g: Graph, out: Any, x: Value, alpha: float = 1.0) -> str:
    return g.op("Celu", x, alpha=fixed(alpha))


@aten("selu.default")
def _selu(g: Graph, out: Any, x: Value) -> str:
    return g.op("Selu", x)


@aten("softplus.default")
def _softplus(
    g: Graph, out: Any, x: Value, beta: float = 1.0, threshold: float = 20.0
) -> str:
    if beta == 1:
        scaled: str = x
        found = g.op("Softplus", x)
    else:
        scale = g.scalar(beta, x.dtype)
        scaled = g.op("Mul", x, scale)
        found = g.op("Div", g.op("Softplus", scaled), scale)
    if threshold >= 20:  # from where the function is its operand, to the digits of FLOAT
        return found
    is_above = g.op("Greater", scaled, g.scalar(threshold, x.dtype))
    return g.op("Where", is_above, x, found)


@aten("hardswish.default")
def _hardswish(g: Graph, out: Any, x: Value) -> str:
    return g.op("HardSwish", x)


@aten("hardsigmoid.default")
def _hardsigmoid(g: Graph, out: Any, x: Value) -> str:
    return g.op("HardSigmoid", x, alpha=1 / 6, beta=0.5)


@aten("prelu.default", "_prelu_kernel.default")
def _prelu(g: Graph, out: Any, x: Value, slope: Value) -> str:
    if slope.rank == 1 and x.rank > 2:
        return g.op("PRelu", x, g.op("Reshape", slope, g.ints([-1] + [1] * (x.rank - 2))))
    return g.op("PRelu", x, slope)


@aten("threshold.default")
def _threshold(g: Graph, out: Any, x: Value, threshold: Any, value: Any) -> str:
    above = g.op("Greater", x, g.scalar(threshold, x.dtype))
    return g.op("Where", above, x, g.scalar(value, x.dtype))


@aten("log_sigmoid_forward.default")
def _log_sigmoid(g: Graph, out: Any, x: Value) -> list[str]:
    result = g.op("Neg", g.op("Softplus", g.op("Neg", x)))
    return [result, result]
