"""Complex numbers as pairs of tensors, which plans have no type for.

Operators that move elements or add them are written twice, for the real and for the
imaginary parts (_ELEMENTS); those that mix the parts have functions of their own here. Inputs and
outputs have a last axis of two parts, as torch.view_as_real gives it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ._graph import Graph, Value
from ._table import TABLE, axis_of, refuse

# The type of the parts.
PARTS = {torch.complex64: torch.float32, torch.complex128: torch.float64}

Handler = Callable[..., Any]

MIXED: dict[str, Handler] = {}
"""Operators whose operands or results are complex, and which mix the parts."""


class Pair(NamedTuple):
    """A complex tensor."""

    re: Value
    im: Value

    @property
    def dtype(self) -> Any:
        """The complex type."""
        return next(whole for whole, part in PARTS.items() if part is self.re.dtype)

    @property
    def shape(self) -> Any:
        """Of each part."""
        return self.re.shape

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return self.re.rank


# Operators that are written for each part, and which of their arguments have elements;
# others are sizes, indices, conditions and real factors.
_ELEMENTS: Mapping[str, tuple[int, ...]] = {
    "aten." + name: which
    for which, names in (
        ((0,), (
            "view.default", "reshape.default", "_unsafe_view.default", "squeeze.default",
            "squeeze.dim", "squeeze.dims", "unsqueeze.default", "permute.default",
            "transpose.int", "t.default", "expand.default", "slice.Tensor", "select.int",
            "diagonal.default", "unfold.default", "split.Tensor",
            "split_with_sizes.default", "unbind.int", "repeat.default", "roll.default",
            "flip.default", "tril.default", "triu.default", "index_select.default",
            "gather.default", "index.Tensor", "embedding.default", "alias.default",
            "clone.default", "detach.default", "contiguous.default",
            "lift_fresh_copy.default", "resolve_conj.default", "resolve_neg.default",
            "sum.default", "sum.dim_IntList", "mean.default", "mean.dim",
            "cumsum.default", "neg.default", "zeros_like.default", "new_zeros.default",
            "cat.default", "stack.default", "_to_copy.default",
        )),
        ((0, 1), (
            "add.Tensor", "add.Scalar", "sub.Tensor", "sub.Scalar", "rsub.Scalar",
            "slice_scatter.default", "select_scatter.default", "copy.default",
            "full_like.default",
        )),
        ((0, 2), ("index_put.default", "constant_pad_nd.default")),
        ((), ("zeros.default",)),
        ((1,), ("full.default",)),
        ((1, 2), ("where.self",)),
    )
    for name in names
} | {"prims.convert_element_type.default": (0,)}  # fmt: skip


def _name(kind: str) -> Callable[[Handler], Handler]:
    def register(function: Handler) -> Handler:
        MIXED[f"aten.{kind}"] = function
        return function

    return register


def takes(name: str) -> bool:
    """Whether an operator is written for complex numbers."""
    return name in MIXED or name in _ELEMENTS


def write(g: Graph, name: str, out: Any, args: Any, kwargs: Any) -> Any:
    """Writes an operator that has a complex operand or result; lists for several."""
    if name in MIXED:
        return MIXED[name](g, out, *args, **kwargs)
    if not isinstance(out, list) and not out.dtype.is_complex:
        if out.dtype is torch.bool:
            refuse("complex numbers as conditions")
        return _written(g, name, 0, out, args, kwargs)
    made = [_written(g, name, part, out, args, kwargs) for part in range(2)]
    if isinstance(made[0], list):
        return list(zip(*made, strict=True))
    return tuple(made)


def _written(g: Graph, name: str, part: int, out: Any, args: Any, kwargs: Any) -> Any:
    """An operator on the real or the imaginary parts."""
    like = _map(_part_of_like, out)
    dtype = (like[0] if isinstance(like, list) else like).dtype
    given = [
        _map(lambda v: _part(g, v, part, dtype), value)
        if i in _ELEMENTS[name]
        else value
        for i, value in enumerate(args)
    ]
    others = [v for i, v in enumerate(args) if i not in _ELEMENTS[name]]
    for each in (*others, *kwargs.values()):
        if isinstance(each, complex):
            refuse(f"the complex factor {each}")
    return TABLE[name](g, like, *given, **kwargs)


def _map(function: Any, value: Any) -> Any:
    if isinstance(value, (list, tuple)) and not isinstance(value, Pair):
        return [_map(function, each) for each in value]
    return function(value)


def _part_of_like(like: Any) -> Any:
    return (
        Value.make("", PARTS[like.dtype], like.shape) if like.dtype in PARTS else like
    )


def _part(g: Graph, value: Any, part: int, dtype: Any) -> Any:
    """The part of elements; real ones have imaginary parts of 0 in the type."""
    if isinstance(value, Pair):
        return value[part]
    if isinstance(value, complex):
        return (value.real, value.imag)[part]
    if part == 0 or value is None:
        return value
    if not isinstance(value, Value):
        return 0
    zeros = g.op("Expand", g.scalar(0.0, dtype), g.op("Shape", value))
    return Value.make(zeros, dtype, value.shape)


def pair(g: Graph, value: Any, dtype: Any) -> tuple[Any, Any]:
    """The parts of an operand in a type; the imaginary one of a real operand is None."""
    part = PARTS[dtype]
    if isinstance(value, Pair):
        return tuple(Value.of(g.to(v, part), v) for v in value)  # type: ignore[return-value]
    if isinstance(value, complex):
        parts = (g.scalar(value.real, part), g.scalar(value.imag, part))
        return tuple(Value.make(v, part, ()) for v in parts)  # type: ignore[return-value]
    real = g.to(value, part)
    return Value.make(real, part, getattr(value, "shape", ())), None


def joined(g: Graph, value: Pair) -> str:
    """One tensor whose last axis has the two parts."""
    last = g.ints([value.rank])
    return g.op("Concat", *(g.op("Unsqueeze", v, last) for v in value), axis=value.rank)


def parted(g: Graph, x: str, dtype: Any, shape: Sequence[Any]) -> Pair:
    """The parts of a tensor whose last axis has them."""
    part, axis = PARTS[dtype], len(shape)
    found = (g.op("Gather", x, g.constant(i, torch.int64), axis=axis) for i in range(2))
    return Pair(*(Value.make(v, part, shape) for v in found))


# ---- Operators ----


@_name("view_as_real.default")
def _view_as_real(g: Graph, out: Any, z: Pair) -> str:
    return joined(g, z)


@_name("view_as_complex.default")
def _view_as_complex(g: Graph, out: Any, x: Value) -> Pair:
    return parted(g, x, out.dtype, out.shape)


@_name("complex.default")
def _complex(g: Graph, out: Any, re: Value, im: Value) -> tuple[str, str]:
    shape = g.ints(list(out.shape))
    parts = [g.to(v, PARTS[out.dtype]) for v in (re, im)]
    if re.shape == im.shape:
        return parts[0], parts[1]
    return g.op("Expand", parts[0], shape), g.op("Expand", parts[1], shape)


@_name("polar.default")
def _polar(g: Graph, out: Any, size: Value, angle: Value) -> tuple[str, str]:
    return (
        g.op("Mul", size, g.op("Cos", angle)),
        g.op("Mul", size, g.op("Sin", angle)),
    )


@_name("real.default")
def _real(g: Graph, out: Any, z: Pair) -> str:
    return z.re


@_name("imag.default")
def _imag(g: Graph, out: Any, z: Pair) -> str:
    return z.im


def _conj(g: Graph, out: Any, z: Pair) -> tuple[str, str]:
    return z.re, g.op("Neg", z.im)


for _kind in ("_conj.default", "conj.default", "_conj_physical.default",
              "conj_physical.default"):  # fmt: skip
    MIXED[f"aten.{_kind}"] = _conj


def product(g: Graph, kind: str, a: Any, b: Any, dtype: Any) -> tuple[str, str]:
    """A product, of elements or of matrices."""
    (a_re, a_im), (b_re, b_im) = pair(g, a, dtype), pair(g, b, dtype)
    if a_im is None:
        return g.op(kind, a_re, b_re), g.op(kind, a_re, b_im)
    if b_im is None:
        return g.op(kind, a_re, b_re), g.op(kind, a_im, b_re)
    re = g.op("Sub", g.op(kind, a_re, b_re), g.op(kind, a_im, b_im))
    im = g.op("Add", g.op(kind, a_re, b_im), g.op(kind, a_im, b_re))
    return re, im


def _product(kind: str) -> Handler:
    return lambda g, out, a, b: product(g, kind, a, b, out.dtype)


for _kind in ("mul.Tensor", "mul.Scalar"):
    MIXED[f"aten.{_kind}"] = _product("Mul")
for _kind in ("mm", "bmm", "matmul", "dot", "mv"):
    MIXED[f"aten.{_kind}.default"] = _product("MatMul")


@_name("einsum.default")
def _einsum(
    g: Graph, out: Any, equation: str, tensors: Sequence[Any], **kw: Any
) -> tuple[str, str]:
    """A sum for each choice of a part of each operand; imaginary parts multiply to powers of i."""
    parts = [[v for v in pair(g, x, out.dtype) if v is not None] for x in tensors]
    sums: list[list[tuple[bool, str]]] = [[], []]
    for choice in itertools.product(*(range(len(each)) for each in parts)):
        chosen = [each[which] for each, which in zip(parts, choice, strict=True)]
        made = g.op("Einsum", *chosen, equation=equation.replace(" ", ""))
        sums[sum(choice) % 2].append((sum(choice) % 4 >= 2, made))
    re, im = (_signed_sum(g, terms) for terms in sums)
    return re, im


def _signed_sum(g: Graph, terms: Sequence[tuple[bool, str]]) -> str:
    """The first term is positive."""
    total = terms[0][1]
    for is_negative, term in terms[1:]:
        total = g.op("Sub" if is_negative else "Add", total, term)
    return total


@_name("vdot.default")
def _vdot(g: Graph, out: Any, a: Pair, b: Pair) -> tuple[str, str]:
    turned = Pair(a.re, Value.of(g.op("Neg", a.im), a.im))
    return product(g, "MatMul", turned, b, out.dtype)


def _size(g: Graph, re: str, im: str, dtype: Any) -> str:
    """The absolute value. Squares of large and of small numbers have no place in the type:
    the smaller part is counted in the larger one."""
    parts = g.op("Abs", re), g.op("Abs", im)
    most, least = g.op("Max", *parts), g.op("Min", *parts)
    one = g.scalar(1.0, dtype)
    ratio = g.op("Where", g.op("Equal", most, least), one, g.op("Div", least, most))
    root = g.op("Sqrt", g.op("Add", one, g.op("Mul", ratio, ratio)))
    return g.op("Mul", most, root)


def _hypot(g: Graph, out: Any, a: Any, b: Any) -> str:
    return _size(g, g.to(a, out.dtype), g.to(b, out.dtype), out.dtype)


TABLE["aten.hypot.default"] = _hypot


@_name("div.Tensor")
def _div(g: Graph, out: Any, a: Any, b: Any) -> tuple[str, str]:
    """By Smith's method, as torch: the smaller part of the divisor is counted in the larger
    one. Zeros divide each part alone; a real tensor is a divisor with no imaginary part."""
    (a_re, a_im), (b_re, b_im) = pair(g, a, out.dtype), pair(g, b, out.dtype)
    if b_im is None and not isinstance(b, Value):
        return g.op("Div", a_re, b_re), g.op("Div", a_im, b_re)
    zero = g.scalar(0.0, PARTS[out.dtype])
    a_im, b_im = a_im or zero, b_im or zero
    sizes = g.op("Abs", b_re), g.op("Abs", b_im)
    is_wide = g.op("GreaterOrEqual", *sizes)
    most, least = g.op("Where", is_wide, b_re, b_im), g.op("Where", is_wide, b_im, b_re)
    ratio = g.op("Div", least, most)
    divisor = g.op("Add", most, g.op("Mul", least, ratio))
    re = g.op(
        "Add",
        g.op("Where", is_wide, a_re, a_im),
        g.op("Mul", g.op("Where", is_wide, a_im, a_re), ratio),
    )
    im = g.op(
        "Where",
        is_wide,
        g.op("Sub", a_im, g.op("Mul", a_re, ratio)),
        g.op("Sub", g.op("Mul", a_im, ratio), a_re),
    )
    is_zero = g.op("Equal", g.op("Add", *sizes), zero)
    parts = zip((a_re, a_im), (re, im), sizes, strict=True)
    found = [
        g.op("Where", is_zero, g.op("Div", part, size), g.op("Div", whole, divisor))
        for part, whole, size in parts
    ]
    return found[0], found[1]


MIXED["aten.div.Scalar"] = _div


@_name("reciprocal.default")
def _reciprocal(g: Graph, out: Any, z: Pair) -> tuple[str, str]:
    return _div(g, out, 1.0, z)


@_name("pow.Tensor_Scalar")
def _pow(g: Graph, out: Any, z: Pair, power: Any) -> Any:
    if power not in (1, 2, 3):
        return refuse(f"the power {power} of complex numbers")
    found = z
    for _ in range(int(power) - 1):
        parts = product(g, "Mul", found, z, out.dtype)
        found = Pair(*(Value.of(v, z.re) for v in parts))
    return found


@_name("abs.default")
def _abs(g: Graph, out: Any, z: Pair) -> str:
    return _size(g, *z, z.re.dtype)


@_name("angle.default")
def _angle(g: Graph, out: Any, z: Pair) -> str:
    return TABLE["aten.atan2.default"](g, out, z.im, z.re)  # type: ignore[no-any-return]


@_name("exp.default")
def _exp(g: Graph, out: Any, z: Pair) -> tuple[str, str]:
    size = g.op("Exp", z.re)
    return g.op("Mul", size, g.op("Cos", z.im)), g.op("Mul", size, g.op("Sin", z.im))


@_name("log.default")
def _log(g: Graph, out: Any, z: Pair) -> tuple[str, str]:
    angle = TABLE["aten.atan2.default"](g, z.re, z.im, z.re)
    return g.op("Log", _abs(g, z.re, z)), angle


# ---- Fourier transforms ----


def _scaled(
    g: Graph, x: str, like: Any, mode: int, axes: Sequence[int], back: bool
) -> str:
    """Undoes ONNX's scale, of inverse transforms, and applies torch's: 0 is none, 1 the
    root of the number of elements, 2 this number. like: has the transforms' lengths."""
    numbers = [like.shape[axis] for axis in axes]
    if not all(isinstance(n, int) for n in numbers):
        if mode == (2 if back else 0):
            return x
        refuse("the scale of a Fourier transform of dynamic extents")
    count = 1
    for n in numbers:
        count *= n
    factor = {0: 1.0, 1: count**-0.5, 2: 1 / count}[mode] * (count if back else 1)
    if factor == 1:
        return x
    return g.op("Mul", x, g.scalar(factor, PARTS.get(like.dtype, like.dtype)))


def _transform(g: Graph, x: str, axis: int, **given: Any) -> str:
    length = given.pop("length", None)
    size = None if length is None else g.scalar(length, torch.int64)
    return g.op("DFT", x, size, g.constant(axis, torch.int64), **given)


def _spectrum(g: Graph, x: str, out: Any) -> Pair:
    return parted(g, x, out.dtype, out.shape)


@_name("_fft_r2c.default")
def _fft_r2c(
    g: Graph, out: Any, x: Value, dim: Sequence[int], mode: int, onesided: bool
) -> Pair:
    axes = [axis_of(d, x.rank) for d in dim]
    value = g.op("Unsqueeze", x, g.ints([x.rank]))
    value = _transform(g, value, axes[-1], onesided=int(onesided) or None)
    for axis in axes[:-1]:
        value = _transform(g, value, axis)
    return _spectrum(g, _scaled(g, value, x, mode, axes, False), out)


@_name("_fft_c2c.default")
def _fft_c2c(
    g: Graph, out: Any, z: Pair, dim: Sequence[int], mode: int, forward: bool
) -> Pair:
    axes = [axis_of(d, z.rank) for d in dim]
    value = joined(g, z)
    for axis in axes:
        value = _transform(g, value, axis, inverse=None if forward else 1)
    return _spectrum(g, _scaled(g, value, z, mode, axes, not forward), out)


@_name("_fft_c2r.default")
def _fft_c2r(
    g: Graph, out: Any, z: Pair, dim: Sequence[int], mode: int, last: Any
) -> str:
    axes = [axis_of(d, z.rank) for d in dim]
    value = joined(g, z)
    for axis in axes[:-1]:
        value = _transform(g, value, axis, inverse=1)
    value = _transform(g, value, axes[-1], inverse=1, onesided=1, length=last)
    value = _scaled(g, value, out, mode, axes, True)
    return g.op("Squeeze", value, g.ints([-1]))
