"""Reductions, running sums, orders."""

from __future__ import annotations

import math
from typing import Any

import sympy
import torch
from torch.utils._sympy import functions as integers

from ._graph import Graph, Value, expression, numel
from ._table import TABLE, as_floats, as_numbers, aten, axes_of, axis_of, fixed

_INT64 = torch.int64


def reduced(
    g: Graph, kind: str, x: str, rank: int, dims: Any = None, keep: bool = False
) -> str:
    """A reduction over axes; all for None."""
    if rank == 0:
        return x
    axes = g.ints(axes_of(dims, rank))
    return g.op(kind, x, axes, keepdims=int(keep))


def demand(g: Graph, holds: str, x: Value, message: str) -> None:
    """Runs fail where torch raises an error: unless a condition holds for all elements."""
    number = reduced(g, "ReduceMin", g.cast(holds, torch.int32), x.rank)
    g.check(g.cast(number, torch.bool), f"{g.operator}: {message}")


def _reduction(kind: str) -> Any:
    def write(
        g: Graph, out: Any, x: Value, dim: Any = None, keepdim: bool = False, **kwargs: Any
    ) -> str:
        return reduced(g, kind, g.to(x, out.dtype), x.rank, dim, keepdim)

    return write


for _name, _kind in {
    "sum": "ReduceSum", "mean": "ReduceMean", "amax": "ReduceMax", "amin": "ReduceMin",
    "prod": "ReduceProd",
}.items():  # fmt: skip
    for _variant in ("default", "dim", "dim_IntList", "dim_int"):
        TABLE[f"aten.{_name}.{_variant}"] = _reduction(_kind)
TABLE["aten.max.default"] = _reduction("ReduceMax")
TABLE["aten.min.default"] = _reduction("ReduceMin")


def _truth(kind: str) -> Any:
    def write(
        g: Graph, out: Any, x: Value, dim: Any = None, keepdim: bool = False
    ) -> str:
        number = g.cast(g.to(x, torch.bool), torch.int32)
        return g.cast(reduced(g, kind, number, x.rank, dim, keepdim), out.dtype)

    return write


for _variant in ("default", "dim", "dims"):
    TABLE[f"aten.any.{_variant}"] = _truth("ReduceMax")
    TABLE[f"aten.all.{_variant}"] = _truth("ReduceMin")
TABLE["aten._is_any_true.default"] = _truth("ReduceMax")
TABLE["aten._is_all_true.default"] = _truth("ReduceMin")


def _place(g: Graph, kind: str, x: Value, **given: int) -> str:
    """The place of the best element, or of a NaN: ONNX's least element is a number if one
    is there, its greatest is NaN."""
    if kind == "ArgMin" and x.is_float:
        return g.op("ArgMax", g.op("Neg", x), **given)
    return g.op(kind, x, **given)


def _with_index(kind: str) -> Any:
    def write(
        g: Graph, out: Any, x: Value, dim: int = 0, keepdim: bool = False
    ) -> list[str]:
        if x.rank == 0:
            return [x, g.constant(0, _INT64)]
        axis = axis_of(dim, x.rank)
        best = reduced(g, f"Reduce{kind}", x, x.rank, axis, keepdim)
        return [best, _place(g, f"Arg{kind}", x, axis=axis, keepdims=int(keepdim))]

    return write


TABLE["aten.max.dim"] = _with_index("Max")
TABLE["aten.min.dim"] = _with_index("Min")


def _argument(kind: str) -> Any:
    def write(
        g: Graph, out: Any, x: Value, dim: Any = None, keepdim: bool = False
    ) -> str:
        if x.rank == 0:
            return g.constant(0, _INT64)
        if dim is None:
            flat = Value.make(g.op("Reshape", x, g.ints([-1])), x.dtype, [numel(x.shape)])
            found = _place(g, kind, flat, axis=0, keepdims=0)
            return g.op("Reshape", found, g.ints([1] * x.rank)) if keepdim else found
        return _place(g, kind, x, axis=axis_of(dim, x.rank), keepdims=int(keepdim))

    return write


TABLE["aten.argmax.default"] = _argument("ArgMax")
TABLE["aten.argmin.default"] = _argument("ArgMin")


def _count(g: Graph, x: Value, axes: list[int], correction: Any, dtype: Any) -> str:
    """Elements that a variance divides by."""
    elements = numel([x.shape[a] for a in axes])
    count = g.scalar(elements, dtype)
    if not correction:
        return count
    rest = g.op("Sub", count, g.scalar(correction, dtype))
    return g.op("Max", rest, g.scalar(0, dtype))


def _moments(
    g: Graph, x: Value, dim: Any, correction: Any, keepdim: bool
) -> tuple[str, str]:
    axes = axes_of(dim, x.rank)
    mean = reduced(g, "ReduceMean", x, x.rank, axes, True)
    apart = g.op("Sub", x, mean)
    squares = reduced(g, "ReduceSum", g.op("Mul", apart, apart), x.rank, axes, keepdim)
    variance = g.op("Div", squares, _count(g, x, axes, correction, x.dtype))
    if not keepdim:
        mean = g.op("Squeeze", mean, g.ints(axes))
    return variance, mean


def _variance(is_root: bool, has_mean: bool) -> Any:
    def write(
        g: Graph,
        out: Any,
        x: Value,
        dim: Any = None,
        unbiased: Any = None,
        keepdim: bool = False,
        correction: Any = None,
    ) -> Any:
        if isinstance(dim, bool):  # the variant without axes
            dim, unbiased = None, dim
        if correction is None:
            correction = 1 if unbiased is None else int(unbiased)
        variance, mean = _moments(g, x, dim, correction, keepdim)
        result = g.op("Sqrt", variance) if is_root else variance
        return [result, mean] if has_mean else result

    return write


def _variance_corrected(is_root: bool, has_mean: bool) -> Any:
    inner = _variance(is_root, has_mean)

    def write(
        g: Graph,
        out: Any,
        x: Value,
        dim: Any = None,
        *,
        correction: Any = None,
        keepdim: bool = False,
    ) -> Any:
        return inner(g, out, x, dim, None, keepdim, correction)

    return write


for _name, _root, _mean in (
    ("var", False, False), ("std", True, False), ("var_mean", False, True),
    ("std_mean", True, True),
):  # fmt: skip
    TABLE[f"aten.{_name}.correction"] = as_floats(_variance_corrected(_root, _mean))
    for _variant in ("default", "dim"):
        TABLE[f"aten.{_name}.{_variant}"] = as_floats(_variance(_root, _mean))


@aten("linalg_vector_norm.default", "norm.ScalarOpt_dim", "norm.Scalar")
@as_floats
def norm(
    g: Graph, out: Any, x: Value, order: Any = 2, dim: Any = None, keepdim: bool = False,
    *, dtype: Any = None,
) -> str:  # fmt: skip
    """The p-norm over axes."""
    value = g.to(x, out.dtype)
    order = 2 if order is None else order
    kinds = {1: "ReduceL1", 2: "ReduceL2", float("inf"): "ReduceMax",
             float("-inf"): "ReduceMin"}  # fmt: skip
    kind = kinds.get(order)
    if kind is None:
        if order == 0:
            there = g.op("Not", g.op("Equal", value, g.scalar(0.0, out.dtype)))
            return reduced(
                g, "ReduceSum", g.cast(there, out.dtype), x.rank, dim, keepdim
            )
        powers = g.op("Pow", g.op("Abs", value), g.scalar(fixed(order), out.dtype))
        total = reduced(g, "ReduceSum", powers, x.rank, dim, keepdim)
        return g.op("Pow", total, g.scalar(1 / order, out.dtype))
    if x.rank == 0 or abs(order) == float("inf"):
        value = g.op("Abs", value)
    return reduced(g, kind, value, x.rank, dim, keepdim)


@aten("logsumexp.default")
def _logsumexp(g: Graph, out: Any, x: Value, dim: Any, keepdim: bool = False) -> str:
    return reduced(g, "ReduceLogSumExp", g.to(x, out.dtype), x.rank, dim, keepdim)


def _running(kind: str) -> Any:
    def write(g: Graph, out: Any, x: Value, dim: int, *, dtype: Any = None) -> str:
        if x.rank == 0:
            return g.to(x, out.dtype)
        axis = g.scalar(axis_of(dim, x.rank), _INT64)
        return g.op(kind, g.to(x, out.dtype), axis)

    return write


TABLE["aten.cumsum.default"] = _running("CumSum")
TABLE["aten.cumprod.default"] = _running("CumProd")


def _prefixes(g: Graph, out: Any, x: Value, dim: int, rest: float | int) -> str:
    """A further, last axis with the elements up to each place of an axis, and `rest` behind
    them; the axis is the last but one."""
    axis, last = axis_of(dim, x.rank), x.rank - 1
    value = g.to(x, out.dtype)
    if axis != last:
        value = g.op("Transpose", value, perm=_swapped(x.rank, axis))
    zero, one = g.scalar(0, _INT64), g.scalar(1, _INT64)
    places = g.op("Range", zero, g.scalar(x.shape[axis], _INT64), one)
    is_behind = g.op("Greater", places, g.op("Unsqueeze", places, g.ints([1])))
    wide = g.op("Unsqueeze", value, g.ints([-2]))
    return g.op("Where", is_behind, g.scalar(rest, out.dtype), wide)


def _swapped(rank: int, axis: int) -> list[int]:
    """The order of axes in which one of them and the last have changed places."""
    order = list(range(rank))
    order[axis], order[-1] = order[-1], order[axis]
    return order


def _restored(g: Graph, made: str, x: Value, dim: int) -> str:
    """The axis of prefixes where it was."""
    axis = axis_of(dim, x.rank)
    if axis == x.rank - 1:
        return made
    return g.op("Transpose", made, perm=_swapped(x.rank, axis))


def _limit(dtype: Any, sign: int) -> float | int:
    """The lowest (-1) or the highest (1) number."""
    if dtype.is_floating_point:
        return sign * math.inf
    limits = torch.iinfo(torch.uint8 if dtype is torch.bool else dtype)
    return limits.min if sign < 0 else limits.max


def _running_best(kind: str, sign: int) -> Any:
    """The best of each prefix and its last place, as torch has it. No operator runs along an
    axis but sums, so a prefix is a row: memory grows with the square of the extent."""

    def write(g: Graph, out: Any, x: Value, dim: int) -> list[str]:
        if x.rank == 0:
            return [x, g.constant(0, _INT64)]
        rows = _prefixes(g, out[0], x, dim, _limit(x.dtype, sign))
        last = g.ints([x.rank])
        best = g.op(f"Reduce{kind}", rows, last, keepdims=0)
        wide = Value.make(rows, x.dtype, [*x.shape, 1])
        at = _place(
            g, f"Arg{kind}", wide, axis=x.rank, keepdims=0, select_last_index=1
        )
        return [_restored(g, each, x, dim) for each in (best, at)]

    return write


TABLE["aten.cummax.default"] = _running_best("Max", -1)
TABLE["aten.cummin.default"] = _running_best("Min", 1)


@aten("logcumsumexp.default")
def _logcumsumexp(g: Graph, out: Any, x: Value, dim: int) -> str:
    if x.rank == 0:
        return x
    rows = _prefixes(g, out, x, dim, -math.inf)
    made = g.op("ReduceLogSumExp", rows, g.ints([x.rank]), keepdims=0)
    return _restored(g, made, x, dim)


@aten("kthvalue.default")
def _kthvalue(
    g: Graph, out: Any, x: Value, k: Any, dim: int = -1, keepdim: bool = False
) -> list[str]:
    """The last of the k least."""
    if x.rank == 0:
        return [x, g.constant(0, _INT64)]
    axis = axis_of(dim, x.rank)
    least = g.ops("TopK", x, g.ints([k]), count=2, axis=axis, largest=0, sorted=1)
    at = g.constant([-1] if keepdim else -1, _INT64)
    return [g.op("Gather", each, at, axis=axis) for each in least]


def _middle(extent: Any) -> Any:
    """Which of so many elements is torch's median, from 1: the lower one of two."""
    return integers.FloorDiv(expression(extent) - 1, sympy.Integer(2)) + 1


@aten("median.dim")
def _median_dim(
    g: Graph, out: Any, x: Value, dim: int, keepdim: bool = False
) -> list[str]:
    """The middle one in order; a NaN is the median of elements that it is among."""
    if x.rank == 0:
        return [x, g.constant(0, _INT64)]
    axis = axis_of(dim, x.rank)
    best, at = _kthvalue(g, out, x, _middle(x.shape[axis]), axis, keepdim)
    if not x.is_float:
        return [best, at]
    is_nan = g.cast(g.op("IsNaN", x), torch.int32)
    has_nan = g.cast(reduced(g, "ReduceMax", is_nan, x.rank, axis, keepdim), torch.bool)
    first = g.op("ArgMax", is_nan, axis=axis, keepdims=int(keepdim))
    best = g.op("Where", has_nan, g.scalar(math.nan, x.dtype), best)
    return [best, g.op("Where", has_nan, first, at)]


@aten("median.default")
def _median(g: Graph, out: Any, x: Value) -> str:
    flat = Value.make(g.op("Reshape", x, g.ints([-1])), x.dtype, [numel(x.shape)])
    return _median_dim(g, out, flat, 0)[0]


def _without_nan(g: Graph, x: Value, axis: int, keepdim: bool) -> list[str]:
    """The median of the elements of an axis that are numbers; NaN where none is."""
    is_nan = g.op("IsNaN", x)
    there = g.cast(g.op("Not", is_nan), _INT64)
    count = reduced(g, "ReduceSum", there, x.rank, axis, True)
    # NaN are behind all numbers, so that the first ones are in order.
    most = g.scalar(math.inf, x.dtype)
    values = g.op("Where", is_nan, most, x)
    extent = g.size(x.shape[axis])
    ordered = g.ops("TopK", values, extent, count=2, axis=axis, largest=0, sorted=1)
    one = g.scalar(1, _INT64)
    half = g.op("Div", g.op("Sub", g.op("Max", count, one), one), g.scalar(2, _INT64))
    best, at = (g.op("GatherElements", each, half, axis=axis) for each in ordered)
    is_none = g.op("Equal", count, g.scalar(0, _INT64))
    best = g.op("Where", is_none, g.scalar(math.nan, x.dtype), best)
    if keepdim:
        return [best, at]
    return [g.op("Squeeze", each, g.ints([axis])) for each in (best, at)]


@aten("nanmedian.dim")
def _nanmedian_dim(
    g: Graph, out: Any, x: Value, dim: int, keepdim: bool = False
) -> list[str]:
    if not x.is_float or x.rank == 0:
        return _median_dim(g, out, x, dim, keepdim)
    return _without_nan(g, x, axis_of(dim, x.rank), keepdim)


@aten("nanmedian.default")
def _nanmedian(g: Graph, out: Any, x: Value) -> str:
    flat = Value.make(g.op("Reshape", x, g.ints([-1])), x.dtype, [numel(x.shape)])
    return _nanmedian_dim(g, out, flat, 0)[0]


@aten("mode.default")
def _mode(
    g: Graph, out: Any, x: Value, dim: int = -1, keepdim: bool = False
) -> list[str]:
    """The least of the values that are most often there, and its last place. Elements are
    compared with each other, so memory grows with the square of the extent."""
    if x.rank == 0:
        return [x, g.constant(0, _INT64)]
    axis = axis_of(dim, x.rank)
    extent = g.size(x.shape[axis])
    least, _ = g.ops("TopK", x, extent, count=2, axis=axis, largest=0, sorted=1)
    rows, columns = (g.op("Unsqueeze", least, g.ints([axis + i])) for i in (0, 1))
    same = g.cast(g.op("Equal", rows, columns), _INT64)
    counts = g.op("ReduceSum", same, g.ints([axis]), keepdims=0)
    first = g.op("ArgMax", counts, axis=axis, keepdims=1)
    best = g.op("GatherElements", least, first, axis=axis)
    # The last place of the value in the tensor as it was.
    is_best = g.cast(g.op("Equal", x, best), torch.int32)
    at = g.op("ArgMax", is_best, axis=axis, keepdims=1, select_last_index=1)
    if keepdim:
        return [best, at]
    return [g.op("Squeeze", each, g.ints([axis])) for each in (best, at)]


@aten("topk.default")
def _topk(
    g: Graph,
    out: Any,
    x: Value,
    k: Any,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
) -> list[str]:
    if x.rank == 0:
        return [x, g.constant(0, _INT64)]
    axis = axis_of(dim, x.rank)
    return g.ops(
        "TopK", x, g.ints([k]), count=2, axis=axis, largest=int(largest), sorted=1
    )


@aten("sort.default")
def _sort(
    g: Graph, out: Any, x: Value, dim: int = -1, descending: bool = False
) -> list[str]:
    if x.rank == 0:
        return [x, g.constant(0, _INT64)]
    return _topk(g, out, x, x.shape[axis_of(dim, x.rank)], dim, descending)


@aten("sort.stable")
def _sort_stable(
    g: Graph, out: Any, x: Value, *, stable: Any = None, dim: int = -1,
    descending: bool = False,
) -> list[str]:  # fmt: skip
    return _sort(g, out, x, dim, descending)


@aten("_unique2.default")
def _unique(
    g: Graph, out: Any, x: Value, is_sorted: bool = True, has_inverse: bool = False,
    has_counts: bool = False,
) -> list[str | None]:  # fmt: skip
    flat = g.op("Reshape", x, g.ints([-1]))
    values, _, inverse, counts = g.ops("Unique", flat, count=4, sorted=1)
    places = g.op("Reshape", inverse, g.ints(list(x.shape))) if has_inverse else None
    return [values, places, counts if has_counts else None]


@aten("unique_dim.default")
def _unique_dim(
    g: Graph, out: Any, x: Value, dim: int, is_sorted: bool = True, has_inverse: bool = False,
    has_counts: bool = False,
) -> list[str | None]:  # fmt: skip
    values, _, inverse, counts = g.ops(
        "Unique", x, count=4, sorted=1, axis=axis_of(dim, x.rank)
    )
    return [values, inverse if has_inverse else None, counts if has_counts else None]


@aten("unique_consecutive.default")
def _unique_consecutive(
    g: Graph, out: Any, x: Value, has_inverse: bool = False, has_counts: bool = False,
    dim: Any = None,
) -> list[str | None]:  # fmt: skip
    """Each run of equal elements, or slices, once."""
    whole = x.rank <= 1 or dim is None
    flat = g.op("Reshape", x, g.ints([-1])) if dim is None or x.rank == 0 else str(x)
    axis = 0 if whole else axis_of(dim, x.rank)
    one, end = g.ints([1]), g.ints([2**63 - 1])
    later = g.op("Slice", flat, one, end, g.ints([axis]))
    earlier = g.op("Slice", flat, g.ints([0]), g.ints([-1]), g.ints([axis]))
    is_new = g.op("Not", g.op("Equal", earlier, later))
    if not whole:
        others = g.ints([i for i in range(x.rank) if i != axis])
        is_new = g.cast(
            g.op("ReduceMax", g.cast(is_new, torch.int32), others, keepdims=0), torch.bool
        )
    extent = g.size(numel(x.shape) if whole else x.shape[axis])
    true = g.op("Expand", g.scalar(True, torch.bool), g.op("Min", extent, one))
    begins = g.op("Concat", true, is_new, axis=0)
    places = g.op("Squeeze", g.op("NonZero", begins), g.ints([0]))
    values = g.op("Gather", flat, places, axis=axis)
    inverse = counts = None
    if has_inverse:
        run = g.op("CumSum", g.cast(begins, _INT64), g.scalar(0, _INT64))
        inverse = g.op("Sub", run, g.scalar(1, _INT64))
        if whole:
            inverse = g.op("Reshape", inverse, g.ints(list(x.shape)))
    if has_counts:
        bounds = g.op("Concat", places, extent, axis=0)
        after = g.op("Slice", bounds, one, end, g.ints([0]))
        counts = g.op("Sub", after, places)
    return [values, inverse, counts]


@aten("argsort.default")
def _argsort(g: Graph, out: Any, x: Value, dim: int = -1, descending: bool = False) -> str:
    return _sort(g, out, x, dim, descending)[1]


@aten("argsort.stable")
def _argsort_stable(
    g: Graph, out: Any, x: Value, *, stable: bool, dim: int = -1, descending: bool = False
) -> str:
    return _sort(g, out, x, dim, descending)[1]


# Those that compare elements, which ONNX's operators do with numbers alone.
for _name in (
    "max.dim", "min.dim", "argmax.default", "argmin.default", "cummax.default",
    "cummin.default", "kthvalue.default", "median.dim", "median.default", "mode.default",
    "topk.default", "sort.default", "sort.stable", "argsort.default", "argsort.stable",
    "nanmedian.dim", "nanmedian.default", "unique_dim.default", "_unique2.default",
    "max.default", "min.default", "amax.default", "amin.default",
):  # fmt: skip
    TABLE[f"aten.{_name}"] = as_numbers(TABLE[f"aten.{_name}"])
