"""Operators that read and write elements by their places or by masks: gathers, scatters."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import torch

from ._graph import Graph, Value, broadcast, numel
from ._reductions import demand, norm
from ._shapes import expand, filled
from ._table import TABLE, as_numbers, aten, axis_of, refuse

_INT64 = torch.int64

# ---- Gathers ----


@aten("embedding.default")
def _embedding(g: Graph, out: Any, weight: Value, index: Value, *args: Any) -> str:
    return g.op("Gather", weight, index, axis=0)


@aten("embedding_renorm.default")
def _renormed(
    g: Graph, out: Any, weight: Value, index: Value, most: float, p: float
) -> str:
    """Rows that are looked up, scaled down to a norm."""
    norms = norm(g, weight, weight, p, [1], True)
    limit, small = g.scalar(most, weight.dtype), g.scalar(1e-7, weight.dtype)
    scaled = g.op("Mul", weight, g.op("Div", limit, g.op("Add", norms, small)))
    rows = g.ints([weight.shape[0]])
    none = g.op("Expand", g.scalar(0, _INT64), rows)
    at = g.op("Unsqueeze", g.op("Reshape", g.to(index, _INT64), g.ints([-1])), g.ints([1]))
    one = g.op("Expand", g.scalar(1, _INT64), g.op("Shape", at, start=0, end=1))
    is_read = g.cast(g.op("ScatterND", none, at, one), torch.bool)
    is_read = g.op("Unsqueeze", is_read, g.ints([1]))
    is_long = g.op("Greater", norms, limit)
    return g.op("Where", g.op("And", is_read, is_long), scaled, weight)


@aten("_embedding_bag.default", "_embedding_bag_forward_only.default")
def _embedding_bag(
    g: Graph, out: Any, weight: Value, index: Value, offsets: Value, by_frequency: bool = False,
    mode: int = 0, sparse: bool = False, weights: Any = None, last: bool = False,
    padding: int = -1,
) -> list[str | None]:  # fmt: skip
    """Rows of the weight, reduced over bags that begin at the offsets. mode: 0 is the sum,
    1 the mean, 2 the maximum; an empty bag is zero."""
    found, (bags, width) = out[0], out[0].shape
    starts = g.to(offsets, _INT64)
    if last:
        starts = g.op("Slice", starts, g.ints([0]), g.ints([-1]))
    count = index.shape[0]
    zero, one = g.scalar(0, _INT64), g.scalar(1, _INT64)
    places = g.op("Range", zero, g.scalar(count, _INT64), one)
    # [count, bags]: whether a bag begins at or before a place.
    begun = g.op("LessOrEqual", starts, g.op("Unsqueeze", places, g.ints([1])))
    bag = g.op("ReduceSum", g.cast(begun, _INT64), g.ints([1]), keepdims=0)
    bag = g.op("Sub", bag, one)
    rows = g.op("Gather", weight, index, axis=0)
    if weights is not None:
        rows = g.op("Mul", rows, g.op("Unsqueeze", weights, g.ints([1])))
    counted = None
    if padding >= 0:
        same = g.op("Equal", index, g.scalar(padding, index.dtype))
        counted = g.op("Unsqueeze", g.op("Not", same), g.ints([1]))
    empty = -math.inf if mode == 2 else 0.0
    if counted is not None:
        rows = g.op("Where", counted, rows, g.scalar(empty, found.dtype))
    shape = g.ints([bags, width])
    begin = g.op("Expand", g.scalar(empty, found.dtype), shape)
    points = g.op("Unsqueeze", bag, g.ints([1]))
    kind = "max" if mode == 2 else "add"
    result = g.op("ScatterND", begin, points, rows, reduction=kind)
    if mode == 0:
        return [result, None, None, None]
    ones = g.op("Expand", g.scalar(1.0, found.dtype), g.ints([count, 1]))
    if counted is not None:
        ones = g.cast(counted, found.dtype)
    none = g.op("Expand", g.scalar(0.0, found.dtype), g.ints([bags, 1]))
    sizes = g.op("ScatterND", none, points, ones, reduction="add")
    if mode == 1:
        divisor = g.op("Max", sizes, g.scalar(1.0, found.dtype))
        return [g.op("Div", result, divisor), None, None, None]
    filled = g.op("Greater", sizes, g.scalar(0.0, found.dtype))
    result = g.op("Where", filled, result, g.scalar(0.0, found.dtype))
    return [result, None, None, None]


@aten("bucketize.Tensor", "searchsorted.Tensor", "bucketize.Scalar", "searchsorted.Scalar")
def _bucketize(g: Graph, out: Any, a: Any, b: Any, **kwargs: Any) -> str:
    """Both operators: bucketize(x, edges), searchsorted(edges, x)."""
    is_search = g.operator.startswith("aten.searchsorted")
    edges, x = (a, b) if is_search else (b, a)
    if not isinstance(x, Value):
        dtype = edges.dtype if isinstance(x, int) or edges.is_float else torch.float32
        x = Value.make(g.scalar(x, dtype), dtype, ())
    right = kwargs.get("right") or kwargs.get("side") == "right"
    sorter = kwargs.get("sorter")
    if sorter is not None:
        made = g.op("GatherElements", edges, sorter, axis=edges.rank - 1)
        edges = Value.of(made, edges)
    dtype = torch.promote_types(edges.dtype, x.dtype)
    value = g.op("Unsqueeze", g.to(x, dtype), g.ints([-1]))
    rows = g.to(edges, dtype)
    if edges.rank > 1:  # each row of x has edges of its own
        rows = g.op("Unsqueeze", rows, g.ints([-2]))
    below = g.op("LessOrEqual" if right else "Less", rows, value)
    count = g.op("ReduceSum", g.cast(below, _INT64), g.ints([-1]), keepdims=0)
    return g.to(Value.make(count, _INT64, out.shape), out.dtype)


@aten("index_select.default")
def _index_select(g: Graph, out: Any, x: Value, dim: int, index: Value) -> str:
    if x.rank == 0:
        return x
    if index.rank == 0:
        index = Value.make(g.op("Reshape", index, g.ints([1])), index.dtype, (1,))
    return g.op("Gather", x, index, axis=axis_of(dim, x.rank))


@aten("gather.default")
def _gather(g: Graph, out: Any, x: Value, dim: int, index: Value, **kwargs: Any) -> str:
    if x.rank == 0:
        return x
    if 0 in index.shape:
        return filled(g, 0, out)
    at = index if index.dtype in (torch.int32, _INT64) else g.cast(index, _INT64)
    return g.op("GatherElements", x, at, axis=axis_of(dim, x.rank))


@aten("take_along_dim.default")
def _take_along(g: Graph, out: Any, x: Value, index: Value, dim: Any = None) -> str:
    if dim is None:
        flat = g.op("Reshape", x, g.ints([-1]))
        at = g.op("Reshape", index, g.ints([-1]))
        return g.op("GatherElements", flat, at, axis=0)
    axis = axis_of(dim, x.rank)
    shape = [out.shape[i] if i != axis else n for i, n in enumerate(x.shape)]
    wide = g.op("Expand", x, g.ints(shape))
    at = g.op("Expand", index, g.ints(list(out.shape)))
    return g.op("GatherElements", wide, at, axis=axis)


def _as_indices(
    g: Graph, x: Value, indices: Sequence[Any]
) -> tuple[list[int], list[Any]]:
    """The axes that are indexed, and INT64 indices for them."""
    given = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    for _, index in given:
        if index.dtype in (torch.bool, torch.uint8):
            refuse("an index of truth values, whose result has a size that data tells")
    return [axis for axis, _ in given], [index for _, index in given]


def _together(g: Graph, indices: Sequence[Value]) -> tuple[list[str], list[Any]]:
    """Indices broadcast to one shape."""
    shape = broadcast(*(index.shape for index in indices))
    if all(list(index.shape) == shape for index in indices):
        return list(indices), shape
    return [g.op("Expand", index, g.ints(shape)) for index in indices], shape


@aten("index.Tensor", "_unsafe_index.Tensor")
def _index(g: Graph, out: Any, x: Value, indices: Sequence[Any]) -> str:
    if len(indices) == 1 and indices[0] is not None and indices[0].dtype is torch.bool:
        return _masked(g, x, indices[0])
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    if len(axes) == 1 and indices[axes[0]].dtype is torch.bool:
        return _masked_behind(g, x, indices[axes[0]], axes[0])
    axes, found = _as_indices(g, x, indices)
    if len(axes) == 1:
        return g.op("Gather", x, found[0], axis=axes[0])
    at, shape = _together(g, found)
    others = [i for i in range(x.rank) if i not in axes]
    moved = g.op("Transpose", x, perm=axes + others)
    last = g.ints([len(shape)])
    points = g.op("Concat", *(g.op("Unsqueeze", i, last) for i in at), axis=len(shape))
    result = g.op("GatherND", moved, points)
    adjacent = axes == list(range(axes[0], axes[0] + len(axes)))
    if not adjacent or axes[0] == 0:
        return result
    # The axes of the index go where the indexed axes were.
    rank, own = len(shape) + len(others), len(shape)
    order = [*range(own, own + axes[0]), *range(own), *range(own + axes[0], rank)]
    return g.op("Transpose", result, perm=order)


def _masked(g: Graph, x: Value, mask: Value) -> str:
    """The elements where a mask is true; how many tells the run."""
    points = g.op("Transpose", g.op("NonZero", mask), perm=[1, 0])
    return g.op("GatherND", x, points)


def _masked_behind(g: Graph, x: Value, mask: Value, axis: int) -> str:
    """The elements of axes behind others where a mask of these axes is true."""
    joined = [*x.shape[:axis], numel(mask.shape), *x.shape[axis + mask.rank :]]
    flat = x if mask.rank == 1 else g.op("Reshape", x, g.ints(joined))
    places = g.op("NonZero", g.op("Reshape", mask, g.ints([-1])))
    return g.op("Gather", flat, g.op("Squeeze", places, g.ints([0])), axis=axis)


@aten("bincount.default")
def _bincount(g: Graph, out: Any, x: Value, weights: Any = None, least: int = 0) -> str:
    if not isinstance(out.shape[0], int):
        one = g.op("Expand", g.scalar(-1, _INT64), g.ints([1]))
        top = g.op(
            "ReduceMax", g.op("Concat", g.to(x, _INT64), one, axis=0), keepdims=1
        )
        size = g.op("Max", g.op("Add", top, g.ints([1])), g.ints([least]))
    else:
        size = g.ints([out.shape[0]])
    dtype = out.dtype
    begin = g.op("Expand", g.scalar(0, dtype), size)
    added = g.to(weights if weights is not None else 1, dtype)
    if weights is None:
        added = g.op("Expand", added, g.op("Shape", x))
    points = g.op("Unsqueeze", g.to(x, _INT64), g.ints([1]))
    return g.op("ScatterND", begin, points, added, reduction="add")


@aten("histc.default")
def _histc(
    g: Graph, out: Any, x: Value, bins: int = 100, low: Any = 0, high: Any = 0
) -> str:
    if low == high:
        refuse("histc whose range is that of its values")
    flat = g.op("Reshape", g.to(x, torch.float32), g.ints([-1]))
    place = g.op("Sub", flat, g.scalar(float(low), torch.float32))
    scaled = g.op("Mul", place, g.scalar(float(bins), torch.float32))
    # In FLOAT, as torch: a value near a border is on its side.
    width = float(torch.tensor(float(high)) - torch.tensor(float(low)))
    place = g.op("Floor", g.op("Div", scaled, g.scalar(width, torch.float32)))
    inside = g.op("LessOrEqual", flat, g.scalar(float(high), torch.float32))
    last = g.scalar(float(bins - 1), torch.float32)
    place = g.op("Where", inside, g.op("Min", place, last), place)
    numbers = g.literal(torch.arange(bins, dtype=torch.float32))
    found = g.op("Equal", g.op("Unsqueeze", place, g.ints([1])), numbers)
    return g.op("ReduceSum", g.cast(found, out.dtype), g.ints([0]), keepdims=0)


@aten("nonzero.default")
def _nonzero(g: Graph, out: Any, x: Value) -> str:
    return g.op("Transpose", g.op("NonZero", x), perm=[1, 0])


@aten("masked_select.default")
def _masked_select(g: Graph, out: Any, x: Value, mask: Value) -> str:
    shape = broadcast(x.shape, mask.shape) or [1]
    same = [
        v if list(v.shape) == shape else Value.make(
            g.op("Expand", v, g.ints(shape)), v.dtype, shape
        )
        for v in (x, mask)
    ]  # fmt: skip
    return _masked(g, *same)


@aten("masked_scatter.default")
def _masked_scatter(g: Graph, out: Any, x: Value, mask: Value, source: Value) -> str:
    """Elements of a source, in their order, where a mask is true."""
    shape = g.ints(list(out.shape))
    wide = mask if mask.shape == out.shape else g.op("Expand", mask, shape)
    chosen = g.op("Reshape", g.cast(wide, _INT64), g.ints([-1]))
    before = g.op("CumSum", chosen, g.scalar(0, _INT64), exclusive=1)
    # Where the mask is false, the index may exceed the source: a gather gives 0 there.
    taken = g.op("Gather", g.op("Reshape", source, g.ints([-1])), before, axis=0)
    return g.op("Where", wide, g.op("Reshape", taken, shape), x)


# ---- Scatters ----


@aten("scatter.src", "scatter.value", "scatter.reduce", "scatter.value_reduce")
def _scatter(
    g: Graph, out: Any, x: Value, dim: int, index: Value, src: Any, reduce: Any = None
) -> str:
    if x.rank == 0:
        x, index, src = (_as_vector(g, v) for v in (x, index, src))
        return g.op("Reshape", _scatter(g, out, x, 0, index, src, reduce), g.ints([]))
    axis = axis_of(dim, x.rank)
    if not isinstance(src, Value):
        wide = g.op("Expand", g.scalar(src, x.dtype), g.op("Shape", index))
        src = Value.make(wide, x.dtype, index.shape)
    how = {None: None, "add": "add", "multiply": "mul"}[reduce]
    return _scattered(g, x, index, src, axis, how)


def _as_vector(g: Graph, x: Any) -> Any:
    """A tensor of rank 0 as one of rank 1."""
    if not isinstance(x, Value) or x.rank:
        return x
    return Value.make(g.op("Reshape", x, g.ints([1])), x.dtype, (1,))


@aten("scatter_add.default")
def _scatter_add(
    g: Graph, out: Any, x: Value, dim: int, index: Value, src: Value
) -> str:
    return _scatter(g, out, x, dim, index, src, "add")


@aten("scatter_reduce.two")
def _scatter_reduce(
    g: Graph,
    out: Any,
    x: Value,
    dim: int,
    index: Value,
    src: Value,
    reduce: str,
    *,
    include_self: bool = True,
) -> str:
    if x.rank == 0:
        x, index, src = (_as_vector(g, v) for v in (x, index, src))
        made = _scatter_reduce(
            g, out, x, 0, index, src, reduce, include_self=include_self
        )
        return g.op("Reshape", made, g.ints([]))
    axis = axis_of(dim, x.rank)
    if not include_self:
        start = g.op("Expand", _identity(g, reduce, x.dtype), g.op("Shape", index))
        x = Value.of(g.op("ScatterElements", x, index, start, axis=axis), x)
    kind = _SCATTERED[reduce]
    found = _scattered(g, x, index, src, axis, kind)
    if reduce != "mean":
        return found
    one = g.scalar(1, x.dtype)
    ones = Value.of(g.op("Expand", one, g.op("Shape", index)), index)
    begun = g.op(
        "Expand", one if include_self else g.scalar(0, x.dtype), g.op("Shape", x)
    )
    count = g.op(
        "Max", _scattered(g, Value.of(begun, x), index, ones, axis, "add"), one
    )
    if x.is_float:
        return g.op("Div", found, count)
    rest = g.op("Mod", found, count)  # rounded down
    return g.op("Div", g.op("Sub", found, rest), count)


_SCATTERED = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}


def _identity(g: Graph, reduce: str, dtype: Any) -> str:
    """What a reduction of nothing begins with."""
    if reduce in ("sum", "mean", "prod"):
        return g.scalar(int(reduce == "prod"), dtype)
    sign = -1 if reduce == "amax" else 1
    if dtype.is_floating_point:
        return g.scalar(sign * math.inf, dtype)
    limits = torch.iinfo(dtype)
    return g.scalar(limits.min if sign < 0 else limits.max, dtype)


def _scattered(
    g: Graph, x: Value, index: Value, src: Value, axis: int, kind: str | None
) -> str:
    """Elements of src, as far as there are indices, written into x."""
    if list(src.shape) != list(index.shape):
        starts = g.ints([0] * x.rank)
        src = Value.of(g.op("Slice", src, starts, g.op("Shape", index)), src)
    return g.op("ScatterElements", x, index, src, axis=axis, reduction=kind)


@aten("index_put.default", "_unsafe_index_put.default")
def _index_put(
    g: Graph,
    out: Any,
    x: Value,
    indices: Sequence[Any],
    values: Value,
    accumulate: bool = False,
) -> str:
    if accumulate and x.dtype is torch.bool:
        numbers = [Value.make(g.cast(v, torch.int32), torch.int32, v.shape) for v in (x, values)]
        like = Value.make("", torch.int32, out.shape)
        made = _index_put(g, like, numbers[0], indices, numbers[1], True)
        return g.cast(made, torch.bool)
    if len(indices) == 1 and indices[0] is not None and indices[0].dtype is torch.bool:
        mask = indices[0]
        if values.rank == 0 or (values.rank == 1 and values.shape[0] == 1):
            extra = x.rank - mask.rank
            axes = list(range(mask.rank, x.rank))
            wide = g.op("Unsqueeze", mask, g.ints(axes)) if extra else mask
            given = g.op("Add", x, values) if accumulate else values
            return g.op("Where", wide, given, x)
        points = g.op("Transpose", g.op("NonZero", mask), perm=[1, 0])
        if values.rank < x.rank - mask.rank + 1 or values.shape[0] == 1:
            count = g.op("Shape", points, start=0, end=1)
            rest = g.op("Shape", x, start=mask.rank)
            values = Value.of(
                g.op("Expand", values, g.op("Concat", count, rest, axis=0)), values
            )
        return g.op(
            "ScatterND", x, points, values, reduction="add" if accumulate else None
        )
    axes, found = _as_indices(g, x, indices)
    at, shape = _together(g, found)
    others = [i for i in range(x.rank) if i not in axes]
    order = axes + others
    last = g.ints([len(shape)])
    points = g.op("Concat", *(g.op("Unsqueeze", i, last) for i in at), axis=len(shape))
    wanted = [*shape, *(x.shape[i] for i in others)]
    adjacent = axes == list(range(axes[0], axes[0] + len(axes)))
    if adjacent and axes[0] > 0:
        # Values have the axes of the index where the indexed axes were.
        before = [x.shape[i] for i in range(axes[0])]
        after = [x.shape[i] for i in others[axes[0] :]]
        spread = g.op("Expand", values, g.ints([*before, *shape, *after]))
        lead, own = len(before), len(shape)
        total = lead + own + len(after)
        turn = [*range(lead, lead + own), *range(lead), *range(lead + own, total)]
        updates = g.op("Transpose", spread, perm=turn)
    else:
        updates = g.op("Expand", values, g.ints(wanted))
    straight = order == list(range(x.rank))
    moved = x if straight else g.op("Transpose", x, perm=order)
    points = _wrapped(g, points, moved, len(axes))
    result = g.op(
        "ScatterND", moved, points, updates, reduction="add" if accumulate else None
    )
    back = [order.index(i) for i in range(x.rank)]
    return result if straight else g.op("Transpose", result, perm=back)


def _wrapped(g: Graph, points: str, x: str, count: int) -> str:
    """Indices below zero count from the end."""
    extents = g.op("Shape", x, start=0, end=count)
    zero = g.scalar(0, _INT64)
    points = g.op("Cast", points, to=7)
    below = g.op("Less", points, zero)
    return g.op("Where", below, g.op("Add", points, extents), points)


def _positions(g: Graph, start: Any, end: Any, step: Any, extent: Any) -> str:
    """Indices of a slice of an axis."""
    first = 0 if start is None else start
    last = (
        extent if end is None or (isinstance(end, int) and end == sys.maxsize) else end
    )
    if isinstance(first, int) and first < 0:
        first = first + extent
    if isinstance(last, int) and last < 0:
        last = last + extent
    if isinstance(last, int) and isinstance(extent, int):
        last = min(last, extent)
    return g.op(
        "Range", g.scalar(first, _INT64), g.scalar(last, _INT64), g.scalar(step, _INT64)
    )


def _put(g: Graph, x: Value, axis: int, at: str, values: str) -> str:
    """Writes along one axis."""
    order = [axis, *(i for i in range(x.rank) if i != axis)]
    back = [order.index(i) for i in range(x.rank)]
    moved = g.op("Transpose", x, perm=order) if axis else x
    updates = g.op("Transpose", values, perm=order) if axis else values
    result = g.op("ScatterND", moved, g.op("Unsqueeze", at, g.ints([1])), updates)
    return g.op("Transpose", result, perm=back) if axis else result


def _part(g: Graph, x: Value, axis: int, first: int, last: int) -> str:
    at = g.ints([first]), g.ints([last]), g.ints([axis])
    return g.op("Slice", x, *at)


def _replaced(g: Graph, x: Value, axis: int, first: int, count: int, src: str) -> str:
    """`count` places of an axis, from `first` on, are those of `src`."""
    extent, end = x.shape[axis], first + count
    parts = [_part(g, x, axis, 0, first)] if first else []
    parts.append(src)
    if not isinstance(extent, int) or end < extent:
        parts.append(_part(g, x, axis, end, sys.maxsize))
    return g.op("Concat", *parts, axis=axis) if len(parts) > 1 else src


def _columns(g: Graph, x: Value, axis: int, first: int, step: int, src: str) -> str:
    """Each `step`-th place of an axis of a whole number of steps: a place of an axis of
    the steps' elements."""
    shape = [*x.shape[:axis], x.shape[axis] // step, step, *x.shape[axis + 1 :]]
    rows = Value.make(g.op("Reshape", x, g.ints(shape)), x.dtype, shape)
    src = g.op("Unsqueeze", src, g.ints([axis + 1]))
    result = _replaced(g, rows, axis + 1, first, 1, src)
    return g.op("Reshape", result, g.ints(list(x.shape)))


@aten("slice_scatter.default")
def _slice_scatter(
    g: Graph,
    out: Any,
    x: Value,
    src: Value,
    dim: int = 0,
    start: Any = None,
    end: Any = None,
    step: Any = 1,
) -> str:
    axis = axis_of(dim, x.rank)
    if list(src.shape) == list(x.shape):
        return src
    given = g.to(src, x.dtype)
    first = 0 if start is None else start
    count, extent = src.shape[axis], x.shape[axis]
    if isinstance(first, int) and first < 0 and isinstance(extent, int):
        first = max(first + extent, 0)
    if isinstance(first, int) and first >= 0 and isinstance(count, int):
        if step == 1:
            return _replaced(g, x, axis, first, count, given)
        fixed = all(isinstance(n, int) for n in x.shape)
        if fixed and first < step and count * step == extent:
            return _columns(g, x, axis, first, step, given)
    at = _positions(g, start, end, step, extent)
    return _put(g, x, axis, at, given)


@aten("select_scatter.default")
def _select_scatter(
    g: Graph, out: Any, x: Value, src: Value, dim: int, index: Any
) -> str:
    axis = axis_of(dim, x.rank)
    if isinstance(index, int) and index < 0:
        index = index + x.shape[axis]
    given = g.op("Unsqueeze", g.to(src, x.dtype), g.ints([axis]))
    if isinstance(index, int):
        return _replaced(g, x, axis, index, 1, given)
    return _put(g, x, axis, g.ints([index]), given)


@aten("index_copy.default")
def _index_copy(
    g: Graph, out: Any, x: Value, dim: int, index: Value, src: Value
) -> str:
    if x.rank == 0:
        return g.op("Reshape", src, g.ints([]))
    axis, index = axis_of(dim, x.rank), _as_vector(g, index)
    if src.rank < x.rank:
        src = Value.make(g.op("Unsqueeze", src, g.ints([axis])), src.dtype, x.shape)
    return _put(g, x, axis, _wrapped_axis(g, x, axis, index), src)


@aten("index_reduce.default")
def _index_reduce(
    g: Graph, out: Any, x: Value, dim: int, index: Value, src: Value, reduce: str, *,
    include_self: bool = True,
) -> str:  # fmt: skip
    """As scatter_reduce, with one index for a slice."""
    if x.rank == 0:
        x, src = _as_vector(g, x), _as_vector(g, src)
    index, axis = _as_vector(g, index), axis_of(dim, x.rank)
    at = g.op("Unsqueeze", index, g.ints([i for i in range(x.rank) if i != axis]))
    wide = g.op("Expand", at, g.ints(list(src.shape)))
    made = _scatter_reduce(
        g, out, x, axis, Value.make(wide, index.dtype, src.shape), src, reduce,
        include_self=include_self,
    )  # fmt: skip
    return made if out.ndim else g.op("Reshape", made, g.ints([]))


@aten("put.default")
def _put_flat(
    g: Graph, out: Any, x: Value, index: Value, src: Value, accumulate: bool = False
) -> str:
    """Elements by their places in the flattened tensor."""
    flat = Value.make(g.op("Reshape", x, g.ints([-1])), x.dtype, [numel(x.shape)])
    at = Value.make(g.op("Reshape", index, g.ints([-1])), index.dtype, [numel(index.shape)])
    values = g.op("Reshape", src, g.ints([-1]))
    kind = "add" if accumulate else None
    made = g.op("ScatterElements", flat, at, values, axis=0, reduction=kind)
    return g.op("Reshape", made, g.ints(list(out.shape)))


def _put_at(g: Graph, x: Value, places: torch.Tensor, src: Value) -> str:
    """Elements of a source at known places of the flattened tensor."""
    flat = g.op("Reshape", x, g.ints([-1]))
    values = g.op("Reshape", g.to(src, x.dtype), g.ints([-1]))
    at = g.literal(places.reshape(-1, 1).contiguous())
    return g.op("Reshape", g.op("ScatterND", flat, at, values), g.ints(list(x.shape)))


def _numbered(x: Value) -> torch.Tensor:
    if not all(isinstance(extent, int) for extent in x.shape):
        refuse("places in a tensor whose sizes vary")
    return torch.arange(numel(x.shape)).reshape(tuple(x.shape))


@aten("diagonal_scatter.default")
def _diagonal_scatter(
    g: Graph, out: Any, x: Value, src: Value, offset: int = 0, a: int = 0, b: int = 1
) -> str:
    return _put_at(g, x, torch.diagonal(_numbered(x), offset, a, b), src)


@aten("as_strided_scatter.default")
def _strided_scatter(
    g: Graph, out: Any, x: Value, src: Value, size: Any, stride: Any, offset: Any = None
) -> str:
    """Of a tensor in the order of its axes, as functional graphs have them."""
    places = torch.as_strided(_numbered(x), tuple(size), tuple(stride), offset or 0)
    return _put_at(g, x, places, src)


@aten("nonzero_static.default")
def _nonzero_static(
    g: Graph, out: Any, x: Value, *, size: Any, fill_value: int = -1
) -> str:
    """The first places, and a number in the rest of so many rows."""
    found = g.op("Transpose", g.op("NonZero", x), perm=[1, 0])
    rest = g.op("Expand", g.scalar(fill_value, _INT64), g.ints(list(out.shape)))
    whole = g.op("Concat", found, rest, axis=0)
    return g.op("Slice", whole, g.ints([0]), g.ints([size]), g.ints([0]))


@aten("repeat_interleave.Tensor")
def _repeats(g: Graph, out: Any, counts: Value, *, output_size: Any = None) -> str:
    """Each place as often as its count says: as many ends lie at it or before."""
    zero, one = g.scalar(0, _INT64), g.scalar(1, _INT64)
    numbers = g.to(counts, _INT64)
    holds = g.op("GreaterOrEqual", numbers, zero)
    demand(g, holds, counts, "a number of repetitions is negative")
    ends = g.op("CumSum", numbers, zero)
    total = g.op("Reshape", g.op("ReduceSum", numbers), g.ints([]))
    places = g.op("Range", zero, total, one)
    passed = g.op("LessOrEqual", ends, g.op("Unsqueeze", places, g.ints([1])))
    made = g.op("ReduceSum", g.cast(passed, _INT64), g.ints([1]), keepdims=0)
    return g.to(Value.make(made, _INT64, out.shape), out.dtype)


def _wrapped_axis(g: Graph, x: Value, axis: int, index: Value) -> str:
    at = g.to(index, _INT64)
    below = g.op("Less", at, g.scalar(0, _INT64))
    return g.op("Where", below, g.op("Add", at, g.size(x.shape[axis])), at)


@aten("copy.default")
def _copy(g: Graph, out: Any, x: Value, src: Value, *args: Any) -> str:
    given = g.to(src, out.dtype)
    return given if list(src.shape) == list(out.shape) else expand(g, out, Value(given))


# Sums and extremes of truth values are those of numbers.
for _name in (
    "scatter_add.default", "scatter_reduce.two", "scatter.reduce", "scatter.value_reduce",
    "index_reduce.default", "put.default",
):  # fmt: skip
    TABLE[f"aten.{_name}"] = as_numbers(TABLE[f"aten.{_name}"])
