"""Kinds of nodes whose operands are sizes: those of shapes, of inputs, of data."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.python.randomized.random_onnx_graphs import RUNS, Network, Rejected, Tensor
from tests.python.randomized.random_onnx_nodes import image, maker, shape_part


@maker
def sizes_of_an_input(g: Network) -> Any:
    """Sizes are an input of the network."""
    x = g.pick(lambda t: 1 <= t.rank <= 4)
    kind = g.one(["Expand", "Slice", "Reshape", "Tile", "ConstantOfShape"])
    symbol = g.symbols[g.symbol(8)]
    if kind == "Expand":
        ones = [1] * RUNS
        columns = [symbol if set(x.sizes(a)) == {1} else ones for a in range(x.rank)]
        return g.add("Expand", [x, g.sizes_input(columns)])
    if kind == "Slice":
        axis = int(g.rng.integers(0, x.rank))
        ends = g.sizes_input([symbol])
        return g.add("Slice", [x, g.ints(0), ends, g.ints(axis)])
    if kind == "Reshape":
        columns = [x.sizes(a) for a in range(x.rank - 1)]
        shape = g.add("Concat", [g.sizes_input(columns), g.ints(-1, 1)], axis=0)
        return g.add("Reshape", [x, shape])
    if kind == "Tile":
        small = [min(s, 3) for s in symbol]
        columns = [g.one([small, [1] * RUNS]) for _ in range(x.rank)]
        return g.add("Tile", [x, g.sizes_input(columns)])
    filled = g.add("ConstantOfShape", [g.sizes_input([symbol, [2] * RUNS])])
    return g.add("Add", [filled, g.constant(np.float32(0.5))])


@maker
def sizes_of_a_tensor(g: Network) -> Any:
    """Bounds and repeats are computed from shapes."""
    x, other = g.pick(lambda t: 1 <= t.rank <= 4), g.pick(lambda t: t.rank >= 1)
    size = shape_part(g, g.add("Shape", [other]), int(g.rng.integers(0, other.rank)))
    axis = int(g.rng.integers(0, x.rank))
    kind = g.one(["Slice", "Slice", "Pad", "Tile", "Expand"])
    if kind == "Slice":
        half = g.add("Div", [size, g.ints(2)])
        bounds = g.one([(g.ints(0), half), (half, g.ints(2**31 - 1)), (g.ints(0), size)])
        return g.add("Slice", [x, *bounds, g.ints(axis)])
    if kind == "Pad":
        part = g.add("Mod", [size, g.ints(3)])
        parts = [g.ints(0)] * (2 * x.rank)
        parts[int(g.rng.integers(0, 2 * x.rank))] = part
        return g.add("Pad", [x, g.add("Concat", parts, axis=0)])
    if kind == "Tile":
        part = g.add("Add", [g.add("Mod", [size, g.ints(2)]), g.ints(1)])
        parts = [g.ints(1)] * x.rank
        parts[axis] = part
        return g.add("Tile", [x, g.add("Concat", parts, axis=0)])
    parts = [size, *([g.ints(1)] * x.rank)]
    return g.add("Expand", [x, g.add("Concat", parts, axis=0)])


def length(g: Network, most: int = 40) -> Tensor:
    """A number that is a size, up to `most`: of a shape, maybe through FLOAT, or an
    input."""
    if g.chance(0.2):
        sizes = [min(s, most) for s in g.symbols[g.symbol(8)]]
        y = g.sizes_input([sizes])
    else:
        other = g.pick(lambda t: t.rank >= 1)
        y = shape_part(g, g.add("Shape", [other]), int(g.rng.integers(0, other.rank)))
    if g.chance(0.3):
        y = g.add("Cast", [y], to=1)
        factor = g.constant(np.float32([g.one([0.5, 2, 1.5, 0.7, 1 / 3])]))
        y = g.add(g.one(["Mul", "Div"]), [y, factor])
        y = g.add("Cast", [g.add(g.one(["Floor", "Ceil", "Round"]), [y])], to=7)
    y = g.add("Min", [y, g.ints(most)])
    return g.add("Squeeze", [y, g.ints(0)])  # type: ignore[no-any-return]


def number(g: Network, value: int) -> Tensor:
    return g.constant(np.array(value, np.int64))


@maker
def range_(g: Network) -> Any:
    limit = length(g)
    start, step = number(g, g.one([0, 0, 1, 3])), number(g, g.one([1, 1, 2, 3]))
    if g.chance(0.2):
        start, limit, step = limit, number(g, g.one([0, -1])), number(g, g.one([-1, -2]))
    if g.chance(0.3):
        start, limit, step = (g.add("Cast", [t], to=1) for t in (start, limit, step))
        y = g.add("Range", [start, limit, step])
    else:
        y = g.add("Cast", [g.add("Range", [start, limit, step])], to=1)
    return g.add("Mul", [y, g.constant(np.float32(0.1))])


@maker
def positions(g: Network) -> Any:
    """Numbers along an axis are added to a tensor."""
    x = g.pick(lambda t: t.is_float and t.rank >= 1)
    axis = int(g.rng.integers(0, x.rank))
    size = shape_part(g, g.add("Shape", [x]), axis)
    limit = g.add("Squeeze", [size, g.ints(0)])
    y = g.add("Cast", [g.add("Range", [number(g, 0), limit, number(g, 1)])], to=1)
    y = g.add("Mul", [y, g.constant(np.float32(0.1))])
    if axis < x.rank - 1:
        y = g.add("Unsqueeze", [y, g.ints(*range(1, x.rank - axis))])
    return g.add("Add", [x, y])


@maker
def causal(g: Network) -> Any:
    """A comparison of rows and columns chooses."""
    x = g.pick(lambda t: t.is_float and t.rank >= 2)
    shape = g.add("Shape", [x])
    numbers = []
    for axis in (x.rank - 2, x.rank - 1):
        limit = g.add("Squeeze", [shape_part(g, shape, axis), g.ints(0)])
        numbers.append(g.add("Range", [number(g, 0), limit, number(g, 1)]))
    row = g.add("Unsqueeze", [numbers[0], g.ints(1)])
    mask = g.add(g.one(["LessOrEqual", "Greater"]), [numbers[1], row])
    return g.add("Where", [mask, x, g.constant(np.float32(-1))])


@maker
def trilu(g: Network) -> Any:
    x = g.pick(lambda t: t.is_float and t.rank >= 2)
    k = number(g, int(g.rng.integers(-2, 3)))
    if g.chance(0.3):
        k = g.add("Sub", [length(g), number(g, 2)])
    return g.add("Trilu", [x, k], upper=int(g.chance(0.5)))


@maker
def eye_like(g: Network) -> Any:
    x = g.pick(lambda t: t.is_float and t.rank == 2)
    return g.add("Add", [x, g.add("EyeLike", [x], k=g.one([-1, 0, 0, 2]))])


@maker
def one_hot(g: Network) -> Any:
    dims = [g.one([1, 3, g.symbol(8)]) for _ in range(g.one([1, 2]))]
    depth = number(g, g.one([2, 5, 8]))
    if g.chance(0.6):
        depth = length(g, 9)
    indices = g.input(dims, np.int64, 6)
    values = g.constant(np.float32([0.5, 2]))
    return g.add("OneHot", [indices, depth, values], axis=g.one([-1, 0]))


@maker
def chosen(g: Network) -> Any:
    """Rows, or elements, that a mask takes: only a run tells how many."""
    x = g.pick(lambda t: t.is_float and t.rank >= 1)
    if g.chance(0.5):
        axis = int(g.rng.integers(0, x.rank))
        mask = g.input([g.symbol_of(x.sizes(axis))], np.int64, 3)
        return g.add("Compress", [x, g.add("Cast", [mask], to=9)], axis=axis)
    count = int(g.rng.integers(1, x.rank + 1))
    mask = g.input([g.symbol_of(x.sizes(a)) for a in range(count)], np.int64, 3)
    places = g.add("NonZero", [g.add("Cast", [mask], to=9)])
    return g.add("GatherND", [x, g.add("Transpose", [places], perm=[1, 0])])


@maker
def lengths(g: Network) -> Any:
    """A mask as long as the longest of some sequences."""
    given = g.input([g.symbol(8)], np.int64, 9)
    most = g.add("Add", [g.add("ReduceMax", [given], keepdims=0), number(g, 1)])
    numbers = g.add("Range", [number(g, 0), most, number(g, 1)])
    mask = g.add("Less", [numbers, g.add("Unsqueeze", [given, g.ints(1)])])
    return g.add("Cast", [mask], to=1)


@maker
def resize_by_scales(g: Network) -> Any:
    x = image(g)
    extents = g.add("Cast", [g.add("Shape", [x])], to=1)
    factors = [1.0, 1.0, *(g.one([1, 2, 3]) for _ in range(x.rank - 2))]
    sizes = g.add("Mul", [extents, g.constant(np.float32(factors))])
    scales = g.add("Div", [sizes, extents])
    return g.add("Resize", [x, None, scales], mode=g.one(["nearest", "linear"]),
                 coordinate_transformation_mode="asymmetric", nearest_mode="floor")  # fmt: skip


@maker
def squeeze_all(g: Network) -> Any:
    x = g.pick(lambda t: t.rank >= 1)
    for axis in range(x.rank):
        if 1 in x.sizes(axis) and not x.fixed(axis):
            raise Rejected("a rank that only a run tells")
    return g.add("Squeeze", [x])


@maker
def parts(g: Network) -> Any:
    """Sizes of a split, and steps of a slice, that are computed."""
    x = g.pick(lambda t: t.rank >= 1)
    axis = int(g.rng.integers(0, x.rank))
    size = shape_part(g, g.add("Shape", [x]), axis)
    part = g.add("Div", [g.add("Add", [size, g.ints(1)]), g.ints(2)])
    if g.chance(0.5):
        rest = g.add("Concat", [part, g.add("Sub", [size, part])], axis=0)
        return g.add("Split", [x, rest], 2, axis=axis)[0]
    step = g.add("Mul", [part, g.ints(g.one([1, -1]))])
    bounds = [g.ints(0), g.ints(2**31)] if g.chance(0.5) else [g.ints(-1), g.ints(-(2**31))]
    return g.add("Slice", [x, *bounds, g.ints(axis), step])


@maker
def agreeing(g: Network) -> Any:
    """Sizes that agree in each run, since both follow from one mask: one is the
    operator's own, the other a number that is computed. No expression says so."""
    x = g.pick(lambda t: t.is_float and 1 <= t.rank <= 3)
    axis = int(g.rng.integers(0, x.rank))
    mask = g.input([g.symbol_of(x.sizes(axis))], np.int64, 3)
    mask = g.add("Min", [mask, g.ints(1)])
    limit = g.add("Squeeze", [shape_part(g, g.add("Shape", [x]), axis), g.ints(0)])
    places = g.add("Range", [number(g, 0), limit, number(g, 1)])
    first = g.add("Equal", [places, g.ints(0)])  # it is taken in any case
    mask = g.add("Max", [mask, g.add("Cast", [first], to=7)])
    y = g.add("Compress", [x, g.add("Cast", [mask], to=9)], axis=axis)
    if g.chance(0.7):  # else the mask's own elements are sizes, and no estimates
        root = g.add("Sqrt", [g.add("Cast", [mask], to=1)])
        half = g.constant(np.float32(0.5))  # it is rounded, noise or none
        mask = g.add("Cast", [g.add("Add", [root, half])], to=7)
    size = g.add("ReduceSum", [mask, g.ints(0)], keepdims=1)
    extents = [shape_part(g, g.add("Shape", [y]), a) for a in range(x.rank)]
    extents[axis] = size
    shape = extents[0] if x.rank == 1 else g.add("Concat", extents, axis=0)
    kind = g.one(["Add", "Concat", "MatMul", "Slice", "Reshape", "Gather", "ScatterND", "Pad"])
    if kind in ("Add", "Concat", "MatMul"):
        other = g.add("Expand", [g.constant(np.float32(0.5)), shape])
        if kind == "Add":
            return g.add("Add", [y, other])
        if kind == "Concat":
            return g.add("Concat", [y, other], axis=int(g.rng.integers(0, x.rank)))
        order = [*range(x.rank - 2), x.rank - 1, x.rank - 2] if x.rank > 1 else [0]
        return g.add("MatMul", [y, g.add("Transpose", [other], perm=order)])
    if kind == "Slice":  # all of it, or the last
        end = g.ints(2**31)
        start = g.one([g.ints(0), g.add("Sub", [size, g.ints(1)])])
        part = g.add("Slice", [y, start, end, g.ints(axis)])
        return g.add("Sub", [part, g.constant(np.float32(0.25))])
    if kind == "Reshape":
        rest = g.add("ReduceProd", [shape, g.ints(0)], keepdims=1)
        half = g.add("Concat", [g.ints(-1), size], axis=0)
        return g.add("Reshape", [y, g.one([rest, half, shape])])
    limit = g.add("Squeeze", [size, g.ints(0)])
    places = g.add("Range", [number(g, 0), limit, number(g, 1)])
    if kind == "Gather":
        back = g.add("Sub", [g.add("Sub", [size, g.ints(1)]), places])
        return g.add("Gather", [y, back], axis=axis)
    if kind == "ScatterND":
        rows = g.add("Unsqueeze", [places, g.ints(1)])
        order = [axis, *(a for a in range(x.rank) if a != axis)]
        front = g.add("Transpose", [y], perm=order)
        return g.add("ScatterND", [front, rows, g.add("Mul", [front, g.constant(np.float32(2))])])
    missing = g.add("Sub", [g.add("Shape", [x]), shape])
    pads = g.add("Concat", [g.ints(*[0] * x.rank), missing], axis=0)
    return g.add("Add", [x, g.add("Pad", [y, pads])])
