"""Products, convolutions, poolings, normalizations, attention, resizing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch.utils._sympy import functions as integers

from ._graph import Graph, Value, broadcast, expression, extent_of, numel
from ._pointwise import binary
from ._reductions import norm, reduced
from ._shapes import filled, reshape
from ._table import TABLE, as_floats, aten, axis_of, fixed, refuse

_INT64 = torch.int64

# ---- Products ----


@aten(
    "mm.default", "bmm.default", "matmul.default", "dot.default", "mv.default",
)  # fmt: skip
def _matmul(g: Graph, out: Any, a: Value, b: Value) -> str:
    return g.matmul(a, b)


def _groups(g: Graph, ends: Value, rows: Any, count: Any) -> str:
    """The group of each row: how many ends lie at it or before it. Rows behind the last
    group, whose results are not defined, are of a group that does not exist."""
    none = g.op("Expand", g.scalar(0, _INT64), g.ints([rows + 1]))
    one = g.op("Expand", g.scalar(1, _INT64), g.ints([count]))
    passed = g.op("ScatterElements", none, g.to(ends, _INT64), one, axis=0, reduction="add")
    passed = g.op("Slice", passed, g.ints([0]), g.ints([rows]), g.ints([0]))
    return g.op("CumSum", passed, g.scalar(0, _INT64))


@aten("_grouped_mm.default", others=("transformers.grouped_mm_fallback.default",))
def _grouped_mm(
    g: Graph, out: Any, x: Value, weights: Value, ends: Any = None, bias: Any = None,
    dtype: Any = None,
) -> str:  # fmt: skip
    """Rows of x, by groups that end at `ends`, by a matrix for each group: mixtures of
    experts. Each row gets the matrix of its group."""
    if ends is None or (x.rank, weights.rank) != (2, 3) or bias is not None:
        refuse("grouped products of other forms than rows by a matrix for each group")
    rows, count = x.shape[0], weights.shape[0]
    # The products of an expert have the same ends: the build can join them.
    groups = g.once(
        ("groups", str(ends), rows, count), lambda: _groups(g, ends, rows, count)
    )
    made = g.ops("GroupedMatMul", x, groups, weights, count=1, domain="rabbet")[0]
    return g.to(Value.make(made, x.dtype, ()), out.dtype)


@aten("linear.default")
def _linear(g: Graph, out: Any, x: Value, weight: Value, bias: Any = None) -> str:
    if weight.rank == 1:
        product = g.op("MatMul", x, weight)
    else:
        product = g.matmul(x, g.transpose(weight, [1, 0]))
    return product if bias is None else g.op("Add", product, bias)


def _sum_of(g: Graph, out: Any, x: Value, product: str, beta: Any, alpha: Any) -> str:
    if alpha != 1:
        product = g.op("Mul", product, g.scalar(alpha, out.dtype))
    if beta == 0:
        return product
    added: str = x
    if beta != 1:
        added = g.op("Mul", x, g.scalar(beta, out.dtype))
    return g.op("Add", product, added)


@aten("addbmm.default")
def _addbmm(
    g: Graph, out: Any, x: Value, a: Value, b: Value, *, beta: Any = 1, alpha: Any = 1
) -> str:
    products = g.op("ReduceSum", g.matmul(a, b), g.ints([0]), keepdims=0)
    return _sum_of(g, out, x, products, beta, alpha)


@aten("mm.dtype", "bmm.dtype")
def _matmul_of(g: Graph, out: Any, a: Value, b: Value, dtype: Any) -> str:
    return g.op("MatMul", g.to(a, out.dtype), g.to(b, out.dtype))


@aten("addmm.dtype", "baddbmm.dtype")
def _addmm_of(
    g: Graph, out: Any, x: Value, a: Value, b: Value, dtype: Any, *, beta: Any = 1,
    alpha: Any = 1,
) -> str:  # fmt: skip
    product = _matmul_of(g, out, a, b, dtype)
    return _sum_of(g, out, Value.of(g.to(x, out.dtype), x), product, beta, alpha)


@aten("addmm.default", "baddbmm.default", "addmv.default")
def _addmm(
    g: Graph, out: Any, x: Value, a: Value, b: Value, *, beta: Any = 1, alpha: Any = 1
) -> str:
    return _sum_of(g, out, x, g.matmul(a, b), beta, alpha)


@aten("_linalg_det.default")
def _det(g: Graph, out: Any, x: Value) -> list[str | None]:
    return [g.op("Det", x), None, None]


@aten("einsum.default")
def _einsum(g: Graph, out: Any, equation: str, tensors: Sequence[Value], **kw: Any) -> str:
    operands = [g.to(x, out.dtype) for x in tensors]
    return g.op("Einsum", *operands, equation=equation.replace(" ", ""))


@aten("_trilinear.default")
def _trilinear(
    g: Graph, out: Any, a: Value, b: Value, c: Value, expand_a: Any, expand_b: Any,
    expand_c: Any, sums: Sequence[int], *args: Any,
) -> str:  # fmt: skip
    spread = [
        g.op("Unsqueeze", x, g.ints(list(axes))) if axes else x
        for x, axes in ((a, expand_a), (b, expand_b), (c, expand_c))
    ]
    product = g.op("Mul", g.op("Mul", spread[0], spread[1]), spread[2])
    return g.op("ReduceSum", product, g.ints(list(sums)), keepdims=0)


@aten("dist.default")
def _dist(g: Graph, out: Any, a: Value, b: Value, p: float = 2) -> str:
    shape = broadcast(a.shape, b.shape)
    return norm(g, out, Value.make(g.op("Sub", a, b), out.dtype, shape), p)


@aten("_pdist_forward.default")
def _pdist(g: Graph, out: Any, x: Value, p: float = 2) -> str:
    """Distances of each two rows."""
    if not isinstance(x.shape[0], int):
        refuse("distances of as many rows as a run tells")
    if 0 in out.shape:
        return filled(g, 0, out)
    pairs = torch.triu_indices(x.shape[0], x.shape[0], 1)
    rows = [g.op("Gather", x, g.literal(side.contiguous()), axis=0) for side in pairs]
    apart = Value.make(g.op("Sub", *rows), out.dtype, [*out.shape, x.shape[1]])
    return norm(g, out, apart, p, [1])


@aten("_cdist_forward.default")
def _cdist(g: Graph, out: Any, a: Value, b: Value, p: float, *args: Any) -> str:
    rows = g.op("Unsqueeze", a, g.ints([-2]))
    columns = g.op("Unsqueeze", b, g.ints([-3]))
    apart = Value.make(g.op("Sub", rows, columns), out.dtype, [*out.shape, 1])
    return norm(g, out, apart, p, [-1])


# ---- Convolutions and poolings ----


def _spread(values: Any, count: int) -> list[Any]:
    listed = [values] if isinstance(values, int) else list(values)
    return listed * count if len(listed) == 1 else listed


@aten("convolution.default")
def _convolution(
    g: Graph,
    out: Any,
    x: Value,
    weight: Value,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> str:
    count = weight.rank - 2
    batched = x.rank == weight.rank
    value: str = x if batched else g.op("Unsqueeze", x, g.ints([0]))
    pads = _spread(padding, count)
    given = {
        "strides": _spread(stride, count),
        "pads": pads + pads,
        "dilations": _spread(dilation, count),
        "group": groups,
    }
    if not (isinstance(groups, int) and all(isinstance(n, int) for n in weight.shape)):
        if not batched:
            refuse("a convolution of one image whose kernels vary in number or size")
        return _convolution_of_sizes(g, out, x, weight, bias, given, transposed)
    more = _spread(output_padding, count)
    is_fixed = all(isinstance(each, int) for each in more)
    if transposed:
        given["output_padding"] = more if is_fixed else _most_more(given)
    kind = "ConvTranspose" if transposed else "Conv"
    result = g.op(kind, value, weight, bias, **given)
    if transposed and not is_fixed:
        zeros, axes = g.ints([0] * count), g.ints(list(range(2, 2 + count)))
        result = g.op("Slice", result, zeros, g.ints(out.shape[-count:]), axes)
    return result if batched else g.op("Squeeze", result, g.ints([0]))


def _convolution_of_sizes(
    g: Graph, out: Any, x: Value, weight: Value, bias: Any, given: Any, transposed: bool
) -> str:
    """A convolution with as many kernels or groups as sizes tell, such as one for each image:
    the windows of each group, by its matrix. Transposed, the products are summed as windows."""
    groups, kernel = expression(given["group"]), list(weight.shape[2:])
    rows = expression(weight.shape[0]) / groups
    fits = all(isinstance(n, int) for n in weight.shape[1:])
    if not (fits and rows.is_integer):
        refuse(f"kernels of the shape {list(weight.shape)} in {groups} groups")
    rows, columns, area = extent_of(rows), int(weight.shape[1]), math.prod(kernel)
    batch = expression(x.shape[0]) * groups
    places = {key: given[key] for key in ("strides", "pads", "dilations")}
    if transposed:
        matrices = g.op("Reshape", weight, g.ints([groups, rows, columns * area]))
        matrices = g.op("Transpose", matrices, perm=[0, 2, 1])
        values = g.op("Reshape", x, g.ints([x.shape[0], groups, rows, -1]))
        windows = g.op("MatMul", matrices, values)
        windows = g.op("Reshape", windows, g.ints([batch, columns * area, -1]))
        size, block = g.ints(list(out.shape[2:])), g.ints(kernel)
        result = g.op("Col2Im", windows, size, block, **places)
    else:
        one_hot = torch.eye(area, dtype=x.dtype).reshape(area, 1, *kernel)
        one_hot = one_hot.repeat(columns, *[1] * (1 + len(kernel)))
        images = g.op("Reshape", x, g.ints([batch, columns, *x.shape[2:]]))
        windows = g.op("Conv", images, g.literal(one_hot), group=columns, **places)
        windows = g.op("Reshape", windows, g.ints([x.shape[0], groups, columns * area, -1]))
        matrices = g.op("Reshape", weight, g.ints([groups, rows, columns * area]))
        result = g.op("MatMul", matrices, windows)
    result = g.op("Reshape", result, g.ints(list(out.shape)))
    if bias is None:
        return result
    return g.op("Add", result, g.op("Reshape", bias, g.ints([-1, *[1] * len(kernel)])))


def _most_more(given: Any) -> list[int]:
    """The most that output_padding allows, of which sizes cut off what is too much."""
    pairs = zip(given["strides"], given["dilations"], strict=True)
    return [max(pair) - 1 for pair in pairs]


def _pool_input(g: Graph, x: Value, count: int) -> tuple[str, bool]:
    batched = x.rank == count + 2
    return (x if batched else g.op("Unsqueeze", x, g.ints([0]))), batched


def _max_pool(count: int, has_index: bool) -> Any:
    def write(
        g: Graph,
        out: Any,
        x: Value,
        kernel: Any,
        stride: Any = (),
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Any:
        value, batched = _pool_input(g, x, count)
        size = _spread(kernel, count)
        pads = _spread(padding, count)
        found = g.ops(
            "MaxPool", value, count=1 + (has_index and 1 in g.used), kernel_shape=size,
            strides=_spread(stride, count) if stride not in ((), []) else size,
            pads=pads + pads, dilations=_spread(dilation, count), ceil_mode=int(ceil_mode),
        )  # fmt: skip
        if len(found) > 1:
            # ONNX counts positions in the whole tensor, torch in each image.
            extents = [expression(extent) for extent in x.shape[-count:]]
            found[1] = g.op("Mod", found[1], g.size(sympy.Mul(*extents)))
        results = [f if batched else g.op("Squeeze", f, g.ints([0])) for f in found]
        return [*results, None][:2] if has_index else results[0]

    return write


for _count in (1, 2, 3):
    TABLE[f"aten.max_pool{_count}d_with_indices.default"] = _max_pool(_count, True)
    TABLE[f"aten.max_pool{_count}d.default"] = _max_pool(_count, False)


def _window_sums(
    g: Graph, value: str, x: Value, size: list[int], steps: list[int], pads: list[int],
    wanted: Sequence[Any],
) -> str:  # fmt: skip
    """Sums of windows, of which some may reach beyond the padding (ceil_mode)."""
    count = len(size)
    behind: list[Any] = []
    for i, extent in enumerate(x.shape[-count:]):
        reach = (wanted[i] - 1) * steps[i] + size[i] - pads[i] - extent
        varies = not isinstance(reach, int)
        behind.append(sympy.Max(0, expression(reach)) if varies else max(reach, 0))
    padded = g.op("Pad", value, g.ints([0, 0, *pads, 0, 0, *behind]), g.scalar(0, x.dtype))
    mean = g.op("AveragePool", padded, kernel_shape=size, strides=steps)
    return g.op("Mul", mean, g.scalar(float(math.prod(size)), x.dtype))


def _avg_pool(count: int) -> Any:
    def write(
        g: Graph,
        out: Any,
        x: Value,
        kernel: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: Any = None,
    ) -> str:
        value, batched = _pool_input(g, x, count)
        size = _spread(kernel, count)
        pads = _spread(padding, count)
        if divisor_override is not None:
            steps = _spread(stride, count) if stride not in ((), [], None) else size
            wanted = out.shape[-count:]
            summed = _window_sums(g, value, x, size, steps, pads, wanted)
            result = g.op("Div", summed, g.scalar(float(divisor_override), x.dtype))
            return result if batched else g.op("Squeeze", result, g.ints([0]))
        result = g.op(
            "AveragePool", value, kernel_shape=size,
            strides=_spread(stride, count) if stride not in ((), [], None) else size,
            pads=pads + pads, ceil_mode=int(ceil_mode),
            count_include_pad=int(count_include_pad),
        )  # fmt: skip
        return result if batched else g.op("Squeeze", result, g.ints([0]))

    return write


for _count in (1, 2, 3):
    TABLE[f"aten.avg_pool{_count}d.default"] = _avg_pool(_count)


def _windows(extent: int, size: int) -> list[tuple[int, int]]:
    """Where torch's adaptive windows begin and end."""
    return [(i * extent // size, -(-(i + 1) * extent // size)) for i in range(size)]


def _adaptive(count: int, kind: str) -> Any:
    def write(g: Graph, out: Any, x: Value, output_size: Any) -> Any:
        value, batched = _pool_input(g, x, count)
        sizes = _spread(output_size, count)
        extents = list(x.shape[-count:])
        if all(size == 1 for size in sizes):
            node = "GlobalMaxPool" if kind == "Max" else "GlobalAveragePool"
            result = g.op(node, value)
        elif [expression(s) for s in sizes] == [expression(e) for e in extents]:
            result = value
        elif any(not isinstance(e, int) for e in extents):
            if all(isinstance(s, int) or s == e for s, e in zip(sizes, extents, strict=True)):
                result = _sliding_windows(g, value, kind, sizes, extents)
            elif kind == "Max":
                refuse("adaptive maxima of dynamic extents to dynamic ones")
            else:
                result = _computed_windows(g, value, sizes, extents, x.dtype)
        else:
            result = _adaptive_windows(g, value, kind, sizes, extents, x.dtype)
        return result if batched else g.op("Squeeze", result, g.ints([0]))

    return write


def _adaptive_windows(
    g: Graph, value: str, kind: str, sizes: list[int], extents: list[int], dtype: Any
) -> str:
    """Windows that differ in size are reduced axis by axis."""
    count = len(sizes)
    if all(extent % size == 0 for extent, size in zip(extents, sizes, strict=True)):
        size = [extent // n for extent, n in zip(extents, sizes, strict=True)]
        node = "MaxPool" if kind == "Max" else "AveragePool"
        return g.op(node, value, kernel_shape=size, strides=size)
    for i in range(count):
        axis = 2 + i
        windows = _windows(extents[i], sizes[i])
        if kind == "Max":
            parts = []
            for first, last in windows:
                part = g.op("Slice", value, g.ints([first]), g.ints([last]), g.ints([axis]))
                parts.append(g.op("ReduceMax", part, g.ints([axis]), keepdims=1))
            value = g.op("Concat", *parts, axis=axis)
            continue
        weights = torch.zeros(sizes[i], extents[i])
        for row, (first, last) in enumerate(windows):
            weights[row, first:last] = 1 / (last - first)
        factor = g.literal(weights.to(dtype).t().contiguous())
        last_axis = 1 + count
        order = list(range(2 + count))
        order[axis], order[last_axis] = order[last_axis], order[axis]
        straight = axis == last_axis
        moved = value if straight else g.op("Transpose", value, perm=order)
        product = g.op("MatMul", moved, factor)
        value = product if straight else g.op("Transpose", product, perm=order)
    return value


def _computed_windows(
    g: Graph, value: str, sizes: list[Any], extents: list[Any], dtype: Any
) -> str:
    """Means of as many windows as sizes tell: products with matrices of their shares."""
    for axis, (count, extent) in enumerate(zip(sizes, extents, strict=True), 2):
        if expression(count) == expression(extent):
            continue
        shares = _shares(g, count, extent, dtype)
        order = list(range(2 + len(sizes)))
        order[axis], order[-1] = order[-1], order[axis]
        moved = g.op("Transpose", value, perm=order)
        value = g.op("Transpose", g.op("MatMul", moved, shares), perm=order)
    return value


def _shares(g: Graph, count: Any, extent: Any, dtype: Any) -> str:
    """[extent, count]: 1 / its size for the elements of a window, else 0."""
    total, whole = (g.scalar(each, torch.int64) for each in (count, extent))
    zero, one = g.scalar(0, torch.int64), g.scalar(1, torch.int64)
    windows = g.op("Range", zero, total, one)
    first = g.op("Div", g.op("Mul", windows, whole), total)
    reach = g.op("Add", g.op("Mul", g.op("Add", windows, one), whole), total)
    last = g.op("Div", g.op("Sub", reach, one), total)
    elements = g.op("Unsqueeze", g.op("Range", zero, whole, one), g.ints([1]))
    is_inside = g.op(
        "And", g.op("GreaterOrEqual", elements, first), g.op("Less", elements, last)
    )
    size = g.cast(g.op("Sub", last, first), dtype)
    return g.op("Div", g.cast(is_inside, dtype), size)


def _sliding_windows(
    g: Graph, value: str, kind: str, sizes: list[int], extents: list[Any]
) -> str:
    """Windows of dynamic extents. All windows of an axis that share a row of others have
    one size, so that a mean is a mean of means."""
    for axis, (count, extent) in enumerate(zip(sizes, extents, strict=True), 2):
        if expression(count) == expression(extent):
            continue
        parts = []
        at, whole = g.ints([axis]), expression(extent)
        for i in range(count):
            first = g.size(integers.FloorDiv(whole * i, sympy.Integer(count)))
            last = g.size(
                integers.FloorDiv(whole * (i + 1) + count - 1, sympy.Integer(count))
            )
            part = g.op("Slice", value, first, last, at)
            node = "ReduceMax" if kind == "Max" else "ReduceMean"
            parts.append(g.op(node, part, at, keepdims=1))
        value = g.op("Concat", *parts, axis=axis)
    return value


for _count in (1, 2, 3):
    for _prefix in ("", "_"):
        TABLE[f"aten.{_prefix}adaptive_avg_pool{_count}d.default"] = _adaptive(
            _count, "Average"
        )


def _uneven_maxima(
    g: Graph, out: Any, x: Value, extents: Any, sizes: Sequence[int]
) -> list[str | None]:
    """Maxima of windows that differ in size, and their places: windows are rows of a table
    of places, the shorter ones with their first place repeated."""
    grid = torch.arange(math.prod(extents)).reshape(tuple(extents))
    parts = [_windows(extent, size) for extent, size in zip(extents, sizes, strict=True)]
    rows = [
        grid[tuple(slice(*window) for window in windows)].reshape(-1)
        for windows in itertools.product(*parts)
    ]
    most = max(map(len, rows))
    table = torch.stack([torch.cat([r, r[:1].expand(most - len(r))]) for r in rows])
    lead = list(x.shape[: -len(sizes)])
    flat = g.op("Reshape", x, g.ints([*lead, -1]))
    found = g.op("Gather", flat, g.literal(table), axis=len(lead))
    best = g.op("ReduceMax", found, g.ints([-1]), keepdims=0)
    at = g.op("ArgMax", found, axis=-1, keepdims=0)
    first = g.literal(torch.arange(len(rows)) * most)
    places = g.op("Gather", g.literal(table.reshape(-1)), g.op("Add", at, first), axis=0)
    shape = g.ints(list(out[0].shape))
    return [g.op("Reshape", each, shape) for each in (best, places)]


def _adaptive_max(count: int) -> Any:
    inner = _adaptive(count, "Max")

    def write(g: Graph, out: Any, x: Value, output_size: Any) -> list[str | None]:
        if 1 not in g.used:
            return [inner(g, out, x, output_size), None]
        extents, sizes = x.shape[-count:], _spread(output_size, count)
        pairs = list(zip(extents, sizes, strict=True))
        if not all(isinstance(n, int) for pair in pairs for n in pair):
            refuse("positions of the maxima of adaptive windows whose size varies")
        if any(e % size for e, size in pairs):
            return _uneven_maxima(g, out, x, extents, sizes)
        kernel = [e // size for e, size in pairs]
        return _max_pool(count, True)(g, out, x, kernel)  # type: ignore[no-any-return]

    return write


for _count in (2, 3):
    TABLE[f"aten.adaptive_max_pool{_count}d.default"] = _adaptive_max(_count)


# ---- Normalizations ----


def _as_vector(g: Graph, x: Any, extent: Any, fill: float, dtype: Any) -> str:
    if x is not None:
        return g.to(x, dtype)
    return g.op("Expand", g.scalar(fill, dtype), g.ints([extent]))


@aten("_softmax.default", "softmax.int")
def _softmax(g: Graph, out: Any, x: Value, dim: int, *args: Any, **kwargs: Any) -> str:
    value = g.to(x, out.dtype)
    if x.rank == 0:
        return g.op("Exp", g.op("Sub", value, value))
    return g.op("Softmax", value, axis=axis_of(dim, x.rank))


@aten("_log_softmax.default", "log_softmax.int")
def _log_softmax(g: Graph, out: Any, x: Value, dim: int, *args: Any, **kw: Any) -> str:
    value = g.to(x, out.dtype)
    if x.rank == 0:
        return g.op("Sub", value, value)
    return g.op("LogSoftmax", value, axis=axis_of(dim, x.rank))


@aten("_safe_softmax.default")
def _safe_softmax(g: Graph, out: Any, x: Value, dim: int, dtype: Any = None) -> str:
    found = g.op("Softmax", g.to(x, out.dtype), axis=axis_of(dim, x.rank))
    return g.op("Where", g.op("IsNaN", found), g.scalar(0.0, out.dtype), found)


@aten("layer_norm.default")
def _layer_norm(
    g: Graph, out: Any, x: Value, shape: Any, weight: Any = None, bias: Any = None,
    eps: float = 1e-5, *args: Any,
) -> str:  # fmt: skip
    if weight is None:
        weight = g.op("Expand", g.scalar(1.0, x.dtype), g.ints(list(shape)))
    axis = -len(shape)
    return g.op("LayerNormalization", x, weight, bias, axis=axis, epsilon=fixed(eps))


def _statistics(
    g: Graph, out: Any, rows: Value, axes: Sequence[int], eps: float
) -> list[str | None]:
    """Mean and reciprocal deviation over axes, if the graph reads them."""
    if not g.used & {1, 2}:
        return [None, None]
    value = g.to(rows, out[1].dtype)
    mean = g.op("ReduceMean", value, g.ints(list(axes)), keepdims=1)
    apart = g.op("Sub", value, mean)
    squares = g.op("ReduceMean", g.op("Mul", apart, apart), g.ints(list(axes)), keepdims=1)
    root = g.op("Sqrt", g.op("Add", squares, g.scalar(eps, out[1].dtype)))
    shape = g.ints(list(out[1].shape))
    return [g.op("Reshape", each, shape) for each in (mean, g.op("Reciprocal", root))]


@aten("native_layer_norm.default")
def _native_layer_norm(
    g: Graph, out: Any, x: Value, shape: Any, weight: Any, bias: Any, eps: float
) -> list[str | None]:
    axes = range(x.rank - len(shape), x.rank)
    made = _layer_norm(g, out[0], x, shape, weight, bias, eps)
    return [made, *_statistics(g, out, x, axes, eps)]


@aten("rms_norm.default")
def _rms_norm(
    g: Graph, out: Any, x: Value, shape: Any, weight: Any = None, eps: Any = None
) -> str:
    if eps is None:  # that of the type in which torch adds squares
        wide = x.dtype if x.dtype is torch.float64 else torch.float32
        eps = torch.finfo(wide).eps
    if weight is None:
        weight = g.op("Expand", g.scalar(1.0, x.dtype), g.ints(list(shape)))
    return g.op("RMSNormalization", x, weight, axis=-len(shape), epsilon=fixed(eps))


@aten("_fused_rms_norm.default")
def _fused_rms_norm(g: Graph, out: Any, x: Value, *args: Any) -> list[str | None]:
    return [_rms_norm(g, out[0], x, *args), None]


@aten("group_norm.default")
def _group_norm(
    g: Graph, out: Any, x: Value, groups: int, weight: Any = None, bias: Any = None,
    eps: float = 1e-5, *args: Any,
) -> str:  # fmt: skip
    channels = x.shape[1]
    scale = _as_vector(g, weight, channels, 1.0, x.dtype)
    shift = _as_vector(g, bias, channels, 0.0, x.dtype)
    last = g.ints([2])  # ONNX's operator wants an axis behind the channels
    value = g.op("Unsqueeze", x, last) if x.rank == 2 else x
    made = g.op(
        "GroupNormalization", value, scale, shift, num_groups=groups, epsilon=fixed(eps)
    )
    return g.op("Squeeze", made, last) if x.rank == 2 else made


@aten("native_group_norm.default")
def _native_group_norm(
    g: Graph, out: Any, x: Value, weight: Any, bias: Any, n: Any, c: Any, area: Any,
    groups: int, eps: float,
) -> list[str | None]:  # fmt: skip
    made = _group_norm(g, out[0], x, groups, weight, bias, eps)
    if not g.used & {1, 2}:
        return [made, None, None]
    shape = [n, groups, -1]
    rows = Value.make(g.op("Reshape", x, g.ints(shape)), x.dtype, shape)
    return [made, *_statistics(g, out, rows, [2], eps)]


def _batch_norm(
    g: Graph, x: Value, weight: Any, bias: Any, mean: Any, variance: Any, eps: float
) -> str:
    channels = x.shape[1]
    scale = _as_vector(g, weight, channels, 1.0, x.dtype)
    shift = _as_vector(g, bias, channels, 0.0, x.dtype)
    average, spread = g.to(mean, x.dtype), g.to(variance, x.dtype)
    return g.op(
        "BatchNormalization", x, scale, shift, average, spread, epsilon=fixed(eps)
    )


@aten("_native_batch_norm_legit_no_training.default")
def _batch_norm_inference(
    g: Graph, out: Any, x: Value, weight: Any, bias: Any, mean: Value, variance: Value,
    momentum: float, eps: float,
) -> list[str | None]:  # fmt: skip
    return [_batch_norm(g, x, weight, bias, mean, variance, eps), None, None]


@aten("batch_norm.default", "cudnn_batch_norm.default")
def _batch_norm_of(
    g: Graph, out: Any, x: Value, weight: Any, bias: Any, mean: Any, variance: Any,
    training: bool, momentum: float, eps: float, *args: Any,
) -> str:  # fmt: skip
    if training or mean is None:
        made: str = _normalized_by_batch(g, out, x, weight, bias, eps)
        return made
    return _batch_norm(g, x, weight, bias, mean, variance, eps)


def _of_batch(g: Graph, x: Value) -> tuple[list[int], str, str, str]:
    """Axes of the batch's moments; x without its mean; mean and variance, kept as axes."""
    axes = [0, *range(2, x.rank)]
    mean = reduced(g, "ReduceMean", x, x.rank, axes, True)
    apart = g.op("Sub", x, mean)
    spread = reduced(g, "ReduceMean", g.op("Mul", apart, apart), x.rank, axes, True)
    return axes, apart, mean, spread


def _by_batch(
    g: Graph, x: Value, weight: Any, bias: Any, eps: float, moments: Any = None
) -> str:
    """Normalized by the batch's own moments."""
    _, apart, _, spread = moments or _of_batch(g, x)
    root = g.op("Sqrt", g.op("Add", spread, g.scalar(eps, x.dtype)))
    result = g.op("Div", apart, root)
    column = g.ints([-1] + [1] * (x.rank - 2))
    if weight is not None:
        result = g.op("Mul", result, g.op("Reshape", weight, column))
    if bias is not None:
        result = g.op("Add", result, g.op("Reshape", bias, column))
    return result


@as_floats
def _normalized_by_batch(
    g: Graph, out: Any, x: Value, weight: Any, bias: Any, eps: float
) -> str:
    return _by_batch(g, x, weight, bias, eps)


@aten("_native_batch_norm_legit_functional.default")
def _batch_norm_functional(
    g: Graph, out: Any, x: Value, weight: Any, bias: Any, mean: Value, variance: Value,
    training: bool, momentum: float, eps: float,
) -> list[str | None]:  # fmt: skip
    """As in training: by the batch's moments, which move the running ones."""
    if not training:
        result = _batch_norm(g, x, weight, bias, mean, variance, eps)
        return [result, None, None, mean, variance]
    found: list[str | None] = _moved_by_batch(
        g, out, x, weight, bias, mean, variance, momentum, eps
    )
    return found


@as_floats
def _moved_by_batch(
    g: Graph, out: Any, x: Value, weight: Any, bias: Any, mean: Value, variance: Value,
    momentum: float, eps: float,
) -> list[str | None]:  # fmt: skip
    moments = _of_batch(g, x)
    axes, _, own_mean, own_variance = moments
    result = _by_batch(g, x, weight, bias, eps, moments)
    count = g.scalar(numel([x.shape[axis] for axis in axes]), x.dtype)
    unbiased = g.op("Div", count, g.op("Sub", count, g.scalar(1, x.dtype)))
    own_variance = g.op("Mul", own_variance, unbiased)
    running = []
    for old, new in ((mean, own_mean), (variance, own_variance)):
        flat = g.to(Value.of(g.op("Squeeze", new, g.ints(axes)), x), old.dtype)
        share = g.op("Mul", flat, g.scalar(momentum, old.dtype))
        kept = g.op("Mul", old, g.scalar(1 - momentum, old.dtype))
        running.append(g.op("Add", kept, share))
    return [result, None, None, *running]


@aten("_native_batch_norm_legit.no_stats")
def _batch_norm_no_stats(
    g: Graph, out: Any, x: Value, weight: Any, bias: Any, training: bool, momentum: float,
    eps: float,
) -> list[str | None]:  # fmt: skip
    return [_normalized_by_batch(g, out[0], x, weight, bias, eps), None, None]


@aten("instance_norm.default")
def _instance_norm(
    g: Graph, out: Any, x: Value, weight: Any, bias: Any, mean: Any, variance: Any,
    by_input: bool, momentum: float, eps: float, *args: Any,
) -> str:  # fmt: skip
    if not by_input:
        return _batch_norm(g, x, weight, bias, mean, variance, eps)
    channels = x.shape[1]
    scale = _as_vector(g, weight, channels, 1.0, x.dtype)
    shift = _as_vector(g, bias, channels, 0.0, x.dtype)
    return g.op("InstanceNormalization", x, scale, shift, epsilon=fixed(eps))


# ---- Attention ----


def _attention(
    g: Graph, out: Any, q: Value, k: Value, v: Value, mask: Any, causal: bool,
    scale: Any, grouped: bool = False,
) -> str:  # fmt: skip
    rank = out.ndim
    if rank != 4:  # ONNX has a batch and heads
        lead = [1] * (4 - rank) if rank < 4 else None
        if lead is None:
            shapes = [[-1, *x.shape[-3:]] for x in (q, k, v)]
        else:
            shapes = [[*lead, *x.shape] for x in (q, k, v)]
        if rank > 4 and mask is not None:
            return refuse(f"attention of rank {rank} with a mask")
        q, k, v = (
            Value.make(g.op("Reshape", x, g.ints(s)), x.dtype, s)
            for x, s in zip((q, k, v), shapes, strict=True)
        )
    bias: Any = mask
    if mask is not None:
        if mask.dtype is not torch.bool:
            bias = g.to(mask, q.dtype)
        if mask.rank < 2:
            bias = g.op("Reshape", bias, g.ints([1, -1]))
        if mask.rank == 3:
            bias = g.op("Unsqueeze", bias, g.ints([0]))
    result = g.op(
        "Attention", q, k, v, bias, is_causal=int(causal) or None,
        scale=None if scale is None else fixed(scale),
    )  # fmt: skip
    return result if rank == 4 else g.op("Reshape", result, g.ints(list(out.shape)))


@aten("scaled_dot_product_attention.default")
def _sdpa(
    g: Graph, out: Any, q: Value, k: Value, v: Value, attn_mask: Any = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: Any = None,
    enable_gqa: bool = False,
) -> str:  # fmt: skip
    if dropout_p:
        refuse("dropout in training; call eval()")
    return _attention(g, out, q, k, v, attn_mask, is_causal, scale, enable_gqa)


@aten("_scaled_dot_product_flash_attention_for_cpu.default")
def _flash_on_cpu(
    g: Graph, out: Any, q: Value, k: Value, v: Value, dropout_p: float = 0.0,
    is_causal: bool = False, *, attn_mask: Any = None, scale: Any = None,
) -> list[str | None]:  # fmt: skip
    return [_attention(g, out[0], q, k, v, attn_mask, is_causal, scale), None]


@aten("_scaled_dot_product_flash_attention.default")
def _flash(
    g: Graph, out: Any, q: Value, k: Value, v: Value, dropout_p: float = 0.0,
    is_causal: bool = False, return_debug_mask: bool = False, *, scale: Any = None,
) -> list[str | None]:  # fmt: skip
    found = _attention(g, out[0], q, k, v, None, is_causal, scale)
    return [found] + [None] * (len(out) - 1)


@aten(
    "_scaled_dot_product_efficient_attention.default",
    "_scaled_dot_product_cudnn_attention.default",
)
def _efficient(
    g: Graph, out: Any, q: Value, k: Value, v: Value, attn_bias: Any, log_sums: bool,
    dropout_p: float = 0.0, is_causal: bool = False, *args: Any, scale: Any = None,
) -> list[str | None]:  # fmt: skip
    found = _attention(g, out[0], q, k, v, attn_bias, is_causal, scale)
    return [found] + [None] * (len(out) - 1)


def _heads(g: Graph, x: str, batch: Any, steps: Any, heads: int) -> str:
    apart = g.op("Reshape", x, g.ints([batch, steps, heads, -1]))
    return g.op("Transpose", apart, perm=[0, 2, 1, 3])


def _fused_attention(
    g: Graph, x: str, like: Value, heads: int, qkv: Sequence[Value], proj: Sequence[Value],
    mask: Any, mask_type: Any,
) -> str:  # fmt: skip
    """Self-attention of torch's fused encoder layer: a true mask shuts out."""
    batch, steps, width = like.shape
    joint = _linear(g, None, Value.of(x, like), *qkv)
    thirds = g.ops("Split", joint, g.ints([width] * 3), count=3, axis=2)
    q, k, v = (
        Value.make(_heads(g, part, batch, steps, heads), like.dtype, (batch, heads, steps, 1))
        for part in thirds
    )
    if mask is not None:
        admitted = g.op("Not", g.to(mask, torch.bool))
        if mask_type == 1:
            admitted = g.op("Unsqueeze", admitted, g.ints([1, 2]))
        rank = 4 if mask_type == 1 else mask.rank
        mask = Value.make(admitted, torch.bool, [1] * rank)
    found = _attention(g, q, q, k, v, mask, False, None)
    joined = g.op("Transpose", found, perm=[0, 2, 1, 3])
    return _linear(
        g, None, Value.of(g.op("Reshape", joined, g.ints([0, 0, -1])), like), *proj
    )


@aten("_transformer_encoder_layer_fwd.default")
def _encoder_layer(
    g: Graph, out: Any, x: Value, width: int, heads: int, qkv_weight: Value,
    qkv_bias: Value, proj_weight: Value, proj_bias: Value, use_gelu: bool, norm_first: bool,
    eps: float, weight_1: Value, bias_1: Value, weight_2: Value, bias_2: Value,
    up: Value, up_bias: Value, down: Value, down_bias: Value, mask: Any = None,
    mask_type: Any = None,
) -> str:  # fmt: skip
    def normalize(value: str, weight: Value, bias: Value) -> str:
        like = Value.of(value, x)
        return _layer_norm(g, x, like, [width], weight, bias, eps)

    def attend(value: str) -> str:
        qkv, proj = (qkv_weight, qkv_bias), (proj_weight, proj_bias)
        return _fused_attention(g, value, x, heads, qkv, proj, mask, mask_type)

    def feed(value: str) -> str:
        inner = _linear(g, None, Value.of(value, x), up, up_bias)
        active = g.op("Gelu" if use_gelu else "Relu", inner)
        return _linear(g, None, Value.of(active, x), down, down_bias)

    if norm_first:
        y = g.op("Add", x, attend(normalize(x, weight_1, bias_1)))
        return g.op("Add", y, feed(normalize(y, weight_2, bias_2)))
    y = normalize(g.op("Add", x, attend(x)), weight_1, bias_1)
    return normalize(g.op("Add", y, feed(y)), weight_2, bias_2)


# ---- Resizing ----


def _by_products(g: Graph, out: Any, x: Value, mode: str) -> str:
    """Smoothed images with aligned corners: a product with torch's weights for each axis."""
    extents = [*x.shape[-2:], *out.shape[-2:]]
    if not all(isinstance(n, int) for n in extents):
        refuse("antialias with align_corners of sizes that vary")
    tall, wide, rows, columns = extents
    if (tall, rows) == (1, 1) or (wide, columns) == (1, 1):
        refuse("antialias with align_corners of lines")  # whose step is 0 in torch
    kind = "bilinear" if mode == "linear" else "bicubic"

    def weights(extent: int, size: int) -> torch.Tensor:
        given = {"mode": kind, "align_corners": True, "antialias": True}
        lines = torch.eye(extent)[None, :, :, None].repeat(1, 1, 1, 2)
        made = torch.nn.functional.interpolate(lines, (size, 2), **given)  # type: ignore[arg-type]
        return made[0, :, :, 0].to(x.dtype)  # [extent, size]

    across = g.op("MatMul", x, g.literal(weights(wide, columns)))
    return g.op("MatMul", g.literal(weights(tall, rows).t().contiguous()), across)


def _resize(
    mode: str, coordinates: str, nearest: str | None = None, smooth: bool = False
) -> Any:
    # torch's cubic is another where it smooths, and taps beyond the image count for nothing.
    cubic = (-0.5 if smooth else -0.75) if mode == "cubic" else None

    def write(g: Graph, out: Any, x: Value, size: Any, *args: Any, **kwargs: Any) -> str:
        aligned = bool(args) and args[0] is True and mode != "nearest"
        count = x.rank - 2
        scales = args[-1] if args and isinstance(args[-1], (list, tuple)) else None
        how = "align_corners" if aligned else coordinates
        if aligned and smooth:  # positions are neither ONNX's nor those without antialias
            return _by_products(g, out, x, mode)
        given = {
            "mode": mode, "coordinate_transformation_mode": how, "nearest_mode": nearest,
            "cubic_coeff_a": cubic, "antialias": int(smooth), "exclude_outside": int(smooth),
        }  # fmt: skip
        if size is None and scales is not None and not aligned:
            numbers = [1.0, 1.0, *map(float, scales)]
            factors = g.constant(numbers, torch.float32)
            return g.op("Resize", x, None, factors, **given)
        sizes = g.ints([*x.shape[:2], *out.shape[-count:]])
        return g.op("Resize", x, None, None, sizes, **given)

    return write


for _name, _count in (("bilinear", 2), ("linear", 1), ("trilinear", 3)):
    TABLE[f"aten.upsample_{_name}{_count}d.vec"] = _resize("linear", "half_pixel")
    TABLE[f"aten.upsample_{_name}{_count}d.default"] = _resize("linear", "half_pixel")
TABLE["aten.upsample_bicubic2d.vec"] = _resize("cubic", "half_pixel")
TABLE["aten.upsample_bicubic2d.default"] = _resize("cubic", "half_pixel")
for _variant in ("vec", "default"):
    TABLE[f"aten._upsample_bilinear2d_aa.{_variant}"] = _resize(
        "linear", "half_pixel", smooth=True
    )
    TABLE[f"aten._upsample_bicubic2d_aa.{_variant}"] = _resize(
        "cubic", "half_pixel", smooth=True
    )
for _count in (1, 2, 3):
    for _variant in ("vec", "default"):
        TABLE[f"aten.upsample_nearest{_count}d.{_variant}"] = _resize(
            "nearest", "asymmetric", "floor"
        )
        TABLE[f"aten._upsample_nearest_exact{_count}d.{_variant}"] = _resize(
            "nearest", "half_pixel", "round_prefer_ceil"
        )


@aten("grid_sampler_2d.default", "grid_sampler_3d.default", "grid_sampler.default")
def _grid_sample(
    g: Graph, out: Any, x: Value, grid: Value, mode: int, padding: int, aligned: bool
) -> str:
    return g.op(
        "GridSample", x, grid, mode=("linear", "nearest", "cubic")[mode],
        padding_mode=("zeros", "border", "reflection")[padding],
        align_corners=int(aligned),
    )  # fmt: skip


# ---- Others ----


@aten("glu.default")
def _glu(g: Graph, out: Any, x: Value, dim: int = -1) -> str:
    axis = axis_of(dim, x.rank)
    halves = g.ints([out.shape[axis]] * 2)
    left, right = g.ops("Split", x, halves, count=2, axis=axis)
    return g.op("Mul", left, g.op("Sigmoid", right))


def _with_factor(kind: str) -> Any:
    def write(
        g: Graph, out: Any, x: Value, a: Value, b: Value, *, value: Any = 1
    ) -> str:
        part = binary(g, kind, a, b, out.dtype)
        if value != 1:
            part = g.op("Mul", part, g.scalar(value, out.dtype))
        return g.op("Add", g.to(x, out.dtype), part)

    return write


TABLE["aten.addcmul.default"] = _with_factor("Mul")
TABLE["aten.addcdiv.default"] = _with_factor("Div")


@aten("im2col.default")
def _im2col(
    g: Graph, out: Any, x: Value, kernel: Any, dilation: Any, padding: Any, stride: Any
) -> str:
    if x.rank != 4 or not isinstance(x.shape[1], int):
        return refuse("unfold of an unbatched or dynamic number of channels")
    channels, area = x.shape[1], kernel[0] * kernel[1]
    one_hot = torch.eye(area).reshape(area, 1, *kernel).repeat(channels, 1, 1, 1)
    windows = g.op(
        "Conv", x, g.literal(one_hot.to(x.dtype)), group=channels,
        strides=list(stride), dilations=list(dilation), pads=[*padding, *padding],
    )  # fmt: skip
    return reshape(g, out, Value(windows))


@aten("col2im.default")
def _col2im(
    g: Graph, out: Any, x: Value, size: Any, kernel: Any, dilation: Any, padding: Any,
    stride: Any,
) -> str:  # fmt: skip
    return g.op(
        "Col2Im", x, g.ints(list(size)), g.ints(list(kernel)), dilations=list(dilation),
        pads=[*padding, *padding], strides=list(stride),
    )  # fmt: skip
