"""Operators that move whole parts of tensors: views, slices, joins, padding; and new tensors."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import sympy
import torch

from ._graph import Graph, Value, expression, quotient
from ._table import TABLE, aten, axes_of, axis_of, refuse

_INT64 = torch.int64

# ---- Views ----


@aten(
    "view.default", "reshape.default", "_unsafe_view.default", "_reshape_alias.default",
    "reshape_copy.default", "view_copy.default", "unflatten.int", "flatten.using_ints",
    "squeeze.default", "squeeze.dim", "squeeze.dims", "unsqueeze.default",
)  # fmt: skip
def reshape(g: Graph, out: Any, x: Value, *args: Any, **kwargs: Any) -> str:
    """The elements in the result's shape."""
    shape = list(out.shape)
    open_axes = [i for i, extent in enumerate(shape) if not isinstance(extent, int)]
    fixed = [extent for extent in shape if isinstance(extent, int)]
    if len(open_axes) == 1 and 0 not in fixed:
        shape[open_axes[0]] = -1
        return g.op("Reshape", x, g.ints(shape))
    return g.op("Reshape", x, g.ints(shape), allowzero=int(0 in fixed) or None)


@aten("unsqueeze.default")
def _unsqueeze(g: Graph, out: Any, x: Value, dim: int) -> str:
    return g.op("Unsqueeze", x, g.ints([axis_of(dim, x.rank + 1)]))


@aten("squeeze.default", "squeeze.dim", "squeeze.dims")
def _squeeze(g: Graph, out: Any, x: Value, dim: Any = None) -> str:
    axes = [] if x.rank == 0 or dim == [] else axes_of(dim, x.rank)
    for axis in axes:
        # Torch traces with extents of 2 and more, of which none is removed.
        if not isinstance(x.shape[axis], int):
            g.assume(sympy.Ne(x.shape[axis], 1))
    gone = [a for a in axes if isinstance(x.shape[a], int) and x.shape[a] == 1]
    return g.op("Squeeze", x, g.ints(gone)) if gone else x


@aten("permute.default", "permute_copy.default")
def _permute(g: Graph, out: Any, x: Value, dims: Sequence[int]) -> str:
    return g.transpose(x, axes_of(list(dims), x.rank)) if dims else x


@aten(
    "transpose.int",
    "t.default",
    "swapaxes.default",
    "numpy_T.default",
    "adjoint.default",
)
def _transpose(g: Graph, out: Any, x: Value, a: int = 0, b: int = 1) -> str:
    if x.rank < 2:
        return x
    order = list(range(x.rank))
    a, b = axis_of(a, x.rank), axis_of(b, x.rank)
    order[a], order[b] = order[b], order[a]
    return g.transpose(x, order)


@aten(
    "expand.default", "expand_copy.default", "broadcast_to.default", "expand_as.default"
)
def expand(g: Graph, out: Any, x: Value, *args: Any, **kwargs: Any) -> str:
    """Repeats extents of 1."""
    return g.op("Expand", x, g.ints(list(out.shape)))


@aten("slice.Tensor", "slice_copy.Tensor")
def _slice(
    g: Graph,
    out: Any,
    x: Value,
    dim: int = 0,
    start: Any = None,
    end: Any = None,
    step: Any = 1,
) -> str:
    first = 0 if start is None else start
    last = sys.maxsize if end is None else end
    if first == 0 and isinstance(last, int) and last == sys.maxsize and step == 1:
        return x
    axes = g.ints([axis_of(dim, x.rank)])
    return g.op("Slice", x, g.ints([first]), g.ints([last]), axes, g.ints([step]))


@aten("narrow.default", "narrow_copy.default")
def _narrow(g: Graph, out: Any, x: Value, dim: int, start: Any, length: Any) -> str:
    return _slice(g, out, x, dim, start, start + length)


@aten("select.int", "select_copy.int")
def _select(g: Graph, out: Any, x: Value, dim: int, index: Any) -> str:
    axis = axis_of(dim, x.rank)
    return g.op("Gather", x, g.scalar(index, _INT64), axis=axis)


@aten("diagonal.default", "diagonal_copy.default")
def _diagonal(
    g: Graph, out: Any, x: Value, offset: int = 0, a: int = 0, b: int = 1
) -> str:
    a, b = axis_of(a, x.rank), axis_of(b, x.rank)
    order = [i for i in range(x.rank) if i not in (a, b)] + [a, b]
    moved = g.op("Transpose", x, perm=order)
    count = out.shape[-1]
    steps = g.op(
        "Range",
        g.scalar(0, _INT64),
        g.scalar(count, _INT64),
        g.scalar(1, _INT64),
    )
    rows = g.op("Add", steps, g.scalar(max(-offset, 0), _INT64))
    columns = g.op("Add", steps, g.scalar(max(offset, 0), _INT64))
    # Rows and columns become one axis.
    width = x.shape[b]
    flat = g.op("Reshape", moved, g.ints([*(x.shape[i] for i in order[:-2]), -1]))
    at = g.op("Add", g.op("Mul", rows, g.scalar(width, _INT64)), columns)
    return g.op("Gather", flat, at, axis=x.rank - 2)


@aten("unfold.default", "unfold_copy.default")
def _unfold(g: Graph, out: Any, x: Value, dim: int, size: int, step: int) -> str:
    if x.rank == 0:
        return filled(g, 0, out) if size == 0 else g.op("Reshape", x, g.ints([1]))
    axis = axis_of(dim, x.rank)
    windows = out.shape[axis]
    first = g.op(
        "Range",
        g.scalar(0, _INT64),
        g.scalar(windows * step, _INT64),
        g.scalar(step, _INT64),
    )
    inside = g.constant(list(range(size)), _INT64)
    at = g.op("Add", g.op("Unsqueeze", first, g.ints([1])), inside)
    found = g.op("Gather", x, at, axis=axis)
    order = [i for i in range(x.rank + 1) if i != axis + 1] + [axis + 1]
    return g.op("Transpose", found, perm=order)


def strided(
    g: Graph, x: Value, order: Sequence[int], size: Any, stride: Any, offset: Any
) -> str:
    """Elements of x by their places in memory, where its dimensions lie in an order."""
    laid = x if list(order) == sorted(order) else g.op("Transpose", x, perm=list(order))
    flat = g.op("Reshape", laid, g.ints([-1]))
    if all(isinstance(n, int) for n in (*size, *stride, offset)):
        places = torch.full([1] * len(size), offset)
        for axis, (extent, step) in enumerate(zip(size, stride, strict=True)):
            column = torch.arange(extent).view([-1] + [1] * (len(size) - axis - 1))
            places = places + column * step
        return g.op("Gather", flat, g.literal(places.reshape(tuple(size))), axis=0)
    at = g.scalar(offset, _INT64)
    zero, one = g.scalar(0, _INT64), g.scalar(1, _INT64)
    for axis, (extent, step) in enumerate(zip(size, stride, strict=True)):
        row = g.op("Range", zero, g.scalar(extent, _INT64), one)
        places_of = g.op("Mul", row, g.scalar(step, _INT64))
        shape = g.ints([-1] + [1] * (len(size) - axis - 1))
        at = g.op("Add", at, g.op("Reshape", places_of, shape))
    return g.op("Gather", flat, at, axis=0)


# ---- Joins and parts ----


@aten("cat.default", "concat.default")
def _cat(g: Graph, out: Any, tensors: Sequence[Value], dim: int = 0) -> str:
    # torch skips empty vectors, of whatever rank the others are.
    kept = [x for x in tensors if not (x.rank == 1 and x.shape[0] == 0)] or tensors[:1]
    parts = [g.to(x, out.dtype) for x in kept]
    return g.op("Concat", *parts, axis=axis_of(dim, out.ndim))


@aten("stack.default")
def _stack(g: Graph, out: Any, tensors: Sequence[Value], dim: int = 0) -> str:
    axis = axis_of(dim, out.ndim)
    parts = [g.op("Unsqueeze", g.to(x, out.dtype), g.ints([axis])) for x in tensors]
    return g.op("Concat", *parts, axis=axis)


@aten(
    "split.Tensor", "split_with_sizes.default", "split.sizes", "chunk.default",
    "tensor_split.sections", "split_copy.Tensor", "split_with_sizes_copy.default",
    "unsafe_split.Tensor", "unsafe_chunk.default",
)  # fmt: skip
def _split(g: Graph, out: Any, x: Value, sizes: Any, dim: int = 0) -> list[str]:
    axis = axis_of(dim, x.rank)
    if len(out) == 1:
        return [x]
    extents = g.ints([part.shape[axis] for part in out])
    return g.ops("Split", x, extents, count=len(out), axis=axis)


@aten("unbind.int", "unbind_copy.int")
def _unbind(g: Graph, out: Any, x: Value, dim: int = 0) -> list[str]:
    axis = axis_of(dim, x.rank)
    return [g.op("Gather", x, g.scalar(i, _INT64), axis=axis) for i in range(len(out))]


@aten("repeat.default", "tile.default")
def _repeat(g: Graph, out: Any, x: Value, repeats: Sequence[Any]) -> str:
    counts = [1] * (x.rank - len(repeats)) + list(repeats)
    lead = len(counts) - x.rank
    if lead:
        x = Value.make(
            g.op("Unsqueeze", x, g.ints(list(range(lead)))), x.dtype, x.shape
        )
    return g.op("Tile", x, g.ints(counts)) if counts else x


@aten("repeat_interleave.self_int")
def _interleave(
    g: Graph, out: Any, x: Value, repeats: int, dim: Any = None, output_size: Any = None
) -> str:
    if dim is None:
        x, dim = Value.make(g.op("Reshape", x, g.ints([-1])), x.dtype, out.shape), 0
    axis = axis_of(dim, x.rank)
    apart = g.op("Unsqueeze", x, g.ints([axis + 1]))
    counts = [1] * (x.rank + 1)
    counts[axis + 1] = repeats
    return g.op("Reshape", g.op("Tile", apart, g.ints(counts)), g.ints(list(out.shape)))


@aten("roll.default")
def _roll(g: Graph, out: Any, x: Value, shifts: Any, dims: Any = ()) -> str:
    shifts = [shifts] if isinstance(shifts, int) else list(shifts)
    if 0 in out.shape:
        return x
    if not dims:
        flat = Value.make(g.op("Reshape", x, g.ints([-1])), x.dtype, (0,))
        rolled = _roll(g, out, flat, shifts, [0])
        return g.op("Reshape", rolled, g.ints(list(out.shape)))
    result: str = x
    for shift, dim in zip(
        shifts, [dims] if isinstance(dims, int) else dims, strict=True
    ):
        axis = g.ints([axis_of(dim, x.rank)])
        extent = x.shape[axis_of(dim, x.rank)]
        if isinstance(extent, int) and extent:
            shift %= extent
        if isinstance(shift, int) and shift == 0:
            continue
        border = g.ints([-shift])
        ends = g.ints([sys.maxsize])
        last = g.op("Slice", result, border, ends, axis)
        rest = g.op("Slice", result, g.ints([0]), border, axis)
        result = g.op("Concat", last, rest, axis=axis_of(dim, x.rank))
    return result


@aten("flip.default")
def _flip(g: Graph, out: Any, x: Value, dims: Sequence[int]) -> str:
    if not dims:
        return x
    axes, count = axes_of(list(dims), x.rank), len(dims)
    starts, ends = g.ints([-1] * count), g.ints([-sys.maxsize] * count)
    return g.op("Slice", x, starts, ends, g.ints(axes), g.ints([-1] * count))


def _triangle(upper: int) -> Any:
    def write(g: Graph, out: Any, x: Value, diagonal: int = 0) -> str:
        if x.dtype is torch.bool:
            number = g.op("Trilu", g.cast(x, torch.int32), g.scalar(diagonal, _INT64),
                          upper=upper)  # fmt: skip
            return g.cast(number, torch.bool)
        return g.op("Trilu", x, g.scalar(diagonal, _INT64), upper=upper)

    return write


TABLE["aten.tril.default"] = _triangle(0)
TABLE["aten.triu.default"] = _triangle(1)


@aten("pixel_shuffle.default")
def _pixel_shuffle(g: Graph, out: Any, x: Value, factor: int) -> str:
    return g.op("DepthToSpace", x, blocksize=factor, mode="CRD")


@aten("pixel_unshuffle.default")
def _pixel_unshuffle(g: Graph, out: Any, x: Value, factor: int) -> str:
    if 0 in out.shape:
        return filled(g, 0, out)
    *lead, c, h, w = x.shape
    n = len(lead)
    down = [quotient(extent, factor) for extent in (h, w)]
    shape = [*lead, c, down[0], factor, down[1], factor]
    order = [*range(n), n, n + 2, n + 4, n + 1, n + 3]
    apart = g.op("Transpose", g.op("Reshape", x, g.ints(shape)), perm=order)
    return g.op("Reshape", apart, g.ints(list(out.shape)))


# ---- Padding ----


def _pads(pad: Sequence[Any], rank: int) -> list[Any]:
    """ONNX's order: all beginnings, then all ends."""
    count = len(pad) // 2
    before = [0] * (rank - count) + [pad[2 * i] for i in reversed(range(count))]
    after = [0] * (rank - count) + [pad[2 * i + 1] for i in reversed(range(count))]
    return before + after


@aten("constant_pad_nd.default")
def _constant_pad(
    g: Graph, out: Any, x: Value, pad: Sequence[Any], value: Any = 0
) -> str:
    if x.dtype is torch.bool:
        number = Value.make(g.cast(x, torch.int32), torch.int32, x.shape)
        return g.cast(_constant_pad(g, out, number, pad, int(value)), torch.bool)
    return g.op("Pad", x, g.ints(_pads(pad, x.rank)), g.scalar(value, x.dtype))


def _edge_pad(mode: str) -> Any:
    return lambda g, out, x, pad: g.op("Pad", x, g.ints(_pads(pad, x.rank)), mode=mode)


for _rank in (1, 2, 3):
    TABLE[f"aten.reflection_pad{_rank}d.default"] = _edge_pad("reflect")
    TABLE[f"aten.replication_pad{_rank}d.default"] = _edge_pad("edge")


@aten("_pad_circular.default")
def _pad_circular(g: Graph, out: Any, x: Value, pad: Sequence[Any]) -> str:
    pads = _pads(pad, x.rank)
    less = [min(n, 0) if isinstance(n, int) else 0 for n in pads]
    if any(less):  # the rest wraps; ONNX's operator wraps what is cut off, too
        return _cut_circle(g, x, pads, less)
    return g.op("Pad", x, g.ints(pads), mode="wrap")


def _cut_circle(g: Graph, x: Value, pads: list[Any], less: list[int]) -> str:
    """Circular padding of which some sides are cut off: what is left wraps."""
    made: str = x
    for axis in range(x.rank):
        before, after = pads[axis], pads[axis + x.rank]
        if before == 0 and after == 0:
            continue
        extent = x.shape[axis]
        if not all(isinstance(n, int) for n in (before, after, extent)):
            refuse("circular padding with negative sides of sizes that vary")
        kept = list(range(max(-before, 0), extent + min(after, 0)))
        left, right = max(before, 0), max(after, 0)
        if max(left, right) > len(kept):
            refuse("circular padding that is wider than what the other side leaves")
        places = kept[len(kept) - left :] + kept + kept[:right]
        made = g.op("Gather", made, g.constant(places, _INT64), axis=axis)
    return made


# ---- New tensors ----


def filled(g: Graph, value: Any, out: Any) -> str:
    """A tensor of one number."""
    one = g.to(value, out.dtype)
    return g.op("Expand", one, g.ints(list(out.shape))) if out.ndim else one


@aten("full.default", "full_like.default", "fill.Scalar", "fill.Tensor")
def _full_of(g: Graph, out: Any, like: Any, value: Any, **kwargs: Any) -> str:
    return filled(g, value, out)


@aten("new_full.default")
def _new_full(g: Graph, out: Any, x: Any, size: Any, value: Any, **kwargs: Any) -> str:
    return filled(g, value, out)


def _of_number(number: int) -> Any:
    return lambda g, out, *args, **kwargs: filled(g, number, out)


# Memory that nothing was written to has any values, so zero.
for _name in (
    "zeros.default", "zeros_like.default", "new_zeros.default", "zero.default",
    "empty.memory_format", "empty_like.default", "new_empty.default",
    "empty_permuted.default", "new_empty_strided.default", "empty_strided.default",
):  # fmt: skip
    TABLE[f"aten.{_name}"] = _of_number(0)
for _name in ("ones.default", "ones_like.default", "new_ones.default"):
    TABLE[f"aten.{_name}"] = _of_number(1)


@aten("scalar_tensor.default")
def _scalar_tensor(g: Graph, out: Any, value: Any, **kwargs: Any) -> str:
    return g.to(value, out.dtype)


@aten("arange.start_step", "arange.default", "arange.start")
def _arange(g: Graph, out: Any, *args: Any, **kwargs: Any) -> str:
    start, end, step = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
    # torch truncates real numbers for integers alone.
    real = (float, torch.SymFloat) if out.dtype.is_floating_point else float
    whole = all(not isinstance(n, real) for n in (start, end, step))
    dtype = _INT64 if whole else torch.float32
    if whole and all(isinstance(n, int) for n in (start, end, step)):
        return g.literal(torch.arange(start, end, step, dtype=out.dtype))
    made = g.op("Range", *(g.scalar(n, dtype) for n in (start, end, step)))
    return g.to(Value.make(made, dtype, out.shape), out.dtype)


@aten("linspace.default")
def _linspace(
    g: Graph, out: Any, start: Any, end: Any, steps: Any, **kwargs: Any
) -> str:
    if not all(isinstance(n, (int, float)) for n in (start, end, steps)):
        return refuse("linspace with dynamic sizes")
    return g.literal(torch.linspace(start, end, steps, dtype=out.dtype))


def _known(make: Any) -> Any:
    """What follows from numbers alone, as torch makes it."""

    def write(g: Graph, out: Any, *args: Any, **kwargs: Any) -> str:
        if not all(isinstance(n, (int, float, bool)) for n in args):
            refuse("a window or frequencies whose size varies")
        return g.literal(make(*args, **kwargs, dtype=out.dtype))

    return write


for _name in ("bartlett", "blackman", "hamming", "hann", "kaiser"):
    for _variant in ("default", "periodic", "periodic_alpha", "periodic_alpha_beta", "beta"):
        TABLE[f"aten.{_name}_window.{_variant}"] = _known(
            getattr(torch, f"{_name}_window")
        )
TABLE["aten.fft_fftfreq.default"] = _known(torch.fft.fftfreq)
TABLE["aten.fft_rfftfreq.default"] = _known(torch.fft.rfftfreq)
TABLE["aten.range.step"] = TABLE["aten.range.default"] = _known(torch.range)


@aten("eye.default", "eye.m")
def _eye(g: Graph, out: Any, *args: Any, **kwargs: Any) -> str:
    zeros = g.op("Expand", g.scalar(0, out.dtype), g.ints(list(out.shape)))
    return g.op("EyeLike", zeros)


def _triangle_indices(make: Any) -> Any:
    def write(
        g: Graph, out: Any, rows: Any, columns: Any, offset: int = 0, **kwargs: Any
    ) -> str:
        if not (isinstance(rows, int) and isinstance(columns, int)):
            refuse("indices of a triangle whose size varies")
        return g.literal(make(rows, columns, offset, dtype=out.dtype))

    return write


TABLE["aten.tril_indices.default"] = _triangle_indices(torch.tril_indices)
TABLE["aten.triu_indices.default"] = _triangle_indices(torch.triu_indices)


@aten("sym_size.int")
def _sym_size(g: Graph, out: Any, x: Value, dim: int) -> str:
    return g.scalar(expression(x.shape[dim]), _INT64)
