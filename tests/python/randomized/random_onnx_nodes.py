"""Nodes for random networks: each function adds one, or a few that belong together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto

from tests.python.randomized.random_onnx_graphs import Network, Rejected, Tensor

MAKERS: dict[str, Callable[[Network], Any]] = {}
# Operators that jump where their input changes a little: not for types with few digits.
JUMPS = {"compare", "round", "to_integers", "topk", "arg"}

OFTEN = {"convolution", "deconvolution", "pool", "residual", "matmul", "binary", "unary",
         "fused"}  # fmt: skip


def maker(function: Callable[[Network], Any]) -> Callable[[Network], Any]:
    MAKERS[function.__name__] = function
    return function


def image(g: Network) -> Tensor:
    """A tensor with a known number of channels and one to three more axes."""
    return g.pick(lambda t: t.is_float and 3 <= t.rank <= 5 and t.fixed(1))


def window(g: Network, x: Tensor, most: int) -> dict[str, Any]:
    """Kernel, strides and pads. ONNX Runtime lets a window be larger than what it
    moves over, as its division rounds to zero; the operators' definition does not."""
    rank = x.rank - 2
    kernel = [int(k) for k in g.rng.integers(1, most + 1, rank)]
    if g.chance(0.3):
        kernel = [1] * rank
    found: dict[str, Any] = {"kernel_shape": kernel}
    if g.chance(0.4):
        found["strides"] = [int(s) for s in g.rng.integers(1, 4, rank)]
    if g.chance(0.6):
        found["pads"] = [int(g.rng.integers(0, k)) for k in kernel * 2]
    pads = found.get("pads", [0] * 2 * rank)
    for axis, k in enumerate(kernel):
        if min(x.sizes(axis + 2)) + pads[axis] + pads[axis + rank] < k:
            raise Rejected("the window is too large")
    return found


# ---- Convolutions and windows ----


@maker
def convolution(g: Network) -> Any:
    x = image(g)
    channels = x.sizes(1)[0]
    group = g.one([d for d in range(1, channels + 1) if channels % d == 0])
    if g.chance(0.5):
        group = g.one([1, channels])
    outputs = group * g.one([1, 2, 3, 4, 5, 8, 16] if group < 4 else [1, 2])
    given = window(g, x, 3)
    if g.chance(0.15):
        given["dilations"] = [2] * (x.rank - 2)
    fan = channels // group * int(np.prod(given["kernel_shape"]))
    weights = g.normal(outputs, channels // group, *given["kernel_shape"], scale=fan**-0.5)
    bias = g.constant(g.normal(outputs)) if g.chance(0.6) else None
    return g.add("Conv", [x, g.constant(weights), bias], group=group, **given)


@maker
def deconvolution(g: Network) -> Any:
    x = image(g)
    channels = x.sizes(1)[0]
    group = g.one([d for d in range(1, channels + 1) if channels % d == 0])
    if g.chance(0.6):
        group = 1
    outputs = g.one([1, 2, 3, 4, 8, 16] if group < 4 else [1, 2])
    given = window(g, x, 3)
    if "strides" in given and g.chance(0.3):
        given["output_padding"] = [int(g.rng.integers(0, s)) for s in given["strides"]]
    fan = channels // group * int(np.prod(given["kernel_shape"]))
    weights = g.normal(channels, outputs, *given["kernel_shape"], scale=fan**-0.5)
    bias = g.constant(g.normal(outputs * group)) if g.chance(0.6) else None
    return g.add("ConvTranspose", [x, g.constant(weights), bias], group=group, **given)


@maker
def pool(g: Network) -> Any:
    x = g.pick(lambda t: t.is_float and 3 <= t.rank <= 5)
    given = window(g, x, 3)
    if g.chance(0.3):
        given["ceil_mode"] = 1
    if g.chance(0.5):
        return g.add("MaxPool", [x], **given)
    # ONNX Runtime divides by what it should not where windows hang over.
    if given.get("ceil_mode"):
        given.pop("ceil_mode")
    return g.add("AveragePool", [x], count_include_pad=int(g.chance(0.5)), **given)


@maker
def global_pool(g: Network) -> Any:
    x = g.pick(lambda t: t.is_float and 3 <= t.rank <= 5)
    return g.add(g.one(["GlobalAveragePool", "GlobalMaxPool"]), [x])


@maker
def resize(g: Network) -> Any:
    x = g.pick(lambda t: t.is_float and 3 <= t.rank <= 4)
    scales = [1.0, 1.0, *(g.one([0.5, 1.0, 2.0, 3.0]) for _ in range(x.rank - 2))]
    mode = g.one(["nearest", "linear"])
    given = {"mode": mode, "coordinate_transformation_mode": g.one(
        ["asymmetric", "half_pixel"])}  # fmt: skip
    if mode == "nearest":
        given["nearest_mode"] = g.one(["floor", "round_prefer_floor"])
    return g.add("Resize", [x, None, g.constant(np.float32(scales))], **given)


# ---- Products ----


@maker
def matmul(g: Network) -> Any:
    x = g.pick(lambda t: t.is_float and t.rank >= 1)
    kind = g.rng.random()
    if kind < 0.6 and x.fixed(-1):
        k, n = x.sizes(-1)[0], g.one([1, 2, 3, 4, 5, 8, 16, 32])
        lead = [x.sizes(0)[0]] if x.rank == 3 and x.fixed(0) and g.chance(0.3) else []
        return g.add("MatMul", [x, g.constant(g.normal(*lead, k, n, scale=k**-0.5))])
    if kind < 0.8 and x.rank >= 2:
        order = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
        other = g.add("Transpose", [x], perm=order)
        return g.add("MatMul", g.one([[x, other], [other, x]]))
    dims = [g.symbol_of(x.sizes(-1)), g.one([1, 3, 4, 8, g.symbol()])]
    if x.rank > 2 and g.chance(0.6):
        lead = [1 if g.chance(0.3) else g.symbol_of(x.sizes(a)) for a in range(x.rank - 2)]
        dims = [*lead, *dims]
    scale = g.constant(np.float32(0.3))
    return g.add("MatMul", [g.add("Mul", [x, scale]), g.input(dims)])


@maker
def gemm(g: Network) -> Any:
    x = g.pick(lambda t: t.is_float and t.rank == 2)
    turned = g.chance(0.3)
    k, n = x.sizes(0 if turned else 1), g.one([1, 2, 3, 8, 10, 16])
    given: dict[str, Any] = {"transA": int(turned)}
    if g.chance(0.3):
        given.update(alpha=0.5, beta=g.one([0.25, 2.0]))
    across = g.chance(0.5)
    if len(set(k)) == 1 and g.chance(0.7):
        other = g.constant(g.normal(*((n, k[0]) if across else (k[0], n)), scale=0.3))
    else:
        size = g.symbol_of(k)
        other = g.input([n, size] if across else [size, n])
    third = g.one([None, g.constant(g.normal(n)), g.constant(g.normal(1, n)),
                   g.constant(g.normal(1)), g.constant(g.normal(1, 1))])  # fmt: skip
    return g.add("Gemm", [x, other, third], transB=int(across), **given)


@maker
def attention(g: Network) -> Any:
    """softmax(x xt) x, scaled."""
    x = g.pick(lambda t: t.is_float and t.rank >= 2)
    order = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    scores = g.add("MatMul", [x, g.add("Transpose", [x], perm=order)])
    scores = g.add("Mul", [scores, g.constant(np.float32(0.2))])
    if g.chance(0.4):
        scores = g.add("Add", [scores, g.like(scores)])
    return g.add("MatMul", [g.add("Softmax", [scores], axis=-1), x])


# ---- Element by element ----


@maker
def unary(g: Network) -> Any:
    x = g.pick()
    plain = ["Relu", "Sigmoid", "Tanh", "Abs", "Neg", "Erf", "Softplus", "Softsign",
             "HardSwish", "Sin", "Cos", "Exp", "Mish", "Identity", "Atan"]  # fmt: skip
    op = g.one([*plain, "LeakyRelu", "Elu", "HardSigmoid", "Selu", "Celu", "Square", "Gelu"])
    if op == "Square":
        return g.add("Mul", [x, x])
    if op == "Gelu":
        half = g.add("Erf", [g.add("Mul", [x, g.constant(np.float32(0.70710677))])])
        one = g.add("Add", [half, g.constant(np.float32(1))])
        return g.add("Mul", [g.add("Mul", [x, one]), g.constant(np.float32(0.5))])
    alpha = {"alpha": g.one([0.1, 0.5, 1.5])} if op in ("LeakyRelu", "Elu", "Celu") else {}
    return g.add(op, [x], **alpha)


@maker
def positive(g: Network) -> Any:
    """A function of positive numbers."""
    x = g.add("Add", [g.add("Abs", [g.pick()]), g.constant(np.float32(0.5))])
    op = g.one(["Sqrt", "Log", "Reciprocal", "Pow"])
    return g.add(op, [x] if op != "Pow" else [x, g.constant(np.float32(g.one([2, 0.5, 1.5])))])


@maker
def binary(g: Network) -> Any:
    x = g.pick()
    same = [t for t in g.tensors.values() if t.is_float and t is not x
            and t.shapes == x.shapes]  # fmt: skip
    other = g.one(same) if same and g.chance(0.4) else g.like(x)
    if g.chance(0.15):
        other = g.constant(g.normal(*(() if g.chance(0.5) else (1,))))
    pair = [x, other] if g.chance(0.5) else [other, x]
    op = g.one(["Add", "Sub", "Mul", "Max", "Min", "Add", "Mul", "Mean", "Div"])
    if op == "Div":
        pair[1] = g.add("Add", [g.add("Abs", [pair[1]]), g.constant(np.float32(0.5))])
    return g.add(op, pair)


@maker
def any_two(g: Network) -> Any:
    """Two tensors that happen to broadcast."""
    x, y = g.pick(), g.pick()
    return g.add(g.one(["Add", "Mul", "Sub"]), [x, y])


@maker
def channel_scale(g: Network) -> Any:
    x = g.pick(lambda t: t.is_float and t.rank >= 2 and t.fixed(1))
    array = g.normal(1, x.sizes(1)[0], *[1] * (x.rank - 2))
    return g.add(g.one(["Mul", "Add"]), [x, g.constant(array)])


@maker
def prelu(g: Network) -> Any:
    x = g.pick(lambda t: t.is_float and t.rank >= 2)
    slope = g.like(x)
    wide = zip(x.shapes, slope.shapes, strict=True)
    if any(np.broadcast_shapes(a, b) != a for a, b in wide):
        raise Rejected("the operator's slope broadcasts in one direction")
    return g.add("PRelu", [x, slope])


@maker
def compare(g: Network) -> Any:
    x = g.pick()
    met = g.add(g.one(["Greater", "Less", "GreaterOrEqual"]), [x, g.like(x)])
    if g.chance(0.3):
        met = g.add("Not", [met])
    if g.chance(0.3):
        return g.add("Cast", [met], to=g.one([TensorProto.FLOAT, TensorProto.INT32]))
    return g.add("Where", [met, x, g.like(x)])


@maker
def where(g: Network) -> Any:
    """The condition is an input."""
    x = g.pick()
    base = g.like(x)
    dims = g.inputs.get(base.name)
    if dims is None:
        raise Rejected("a constant")
    met = g.input(dims, np.bool_, 2)
    return g.add("Where", [met, *g.one([(x, base), (base, x), (x, g.like(x))])])


@maker
def clip(g: Network) -> Any:
    low, high = g.constant(np.float32(-0.7)), g.constant(np.float32(0.9))
    return g.add("Clip", [g.pick(), *g.one([(low, high), (low, None), (None, high)])])


@maker
def round_(g: Network) -> Any:
    return g.add(g.one(["Round", "Floor", "Ceil", "Sign"]), [g.pick()])


@maker
def to_integers(g: Network) -> Any:
    kind = g.one([TensorProto.INT32, TensorProto.INT64])
    x = g.add("Cast", [g.add("Mul", [g.pick(), g.constant(np.float32(5))])], to=kind)
    if g.chance(0.5):
        x = g.add(g.one(["Add", "Mul", "Sub"]), [x, x])
    return x


@maker
def to_float(g: Network) -> Any:
    x = g.pick(lambda t: not t.is_float and bool(t.dtype != np.int8))
    return g.add("Cast", [x], to=TensorProto.FLOAT)


@maker
def integers(g: Network) -> Any:
    x = g.pick(lambda t: t.dtype in (np.int32, np.int64))
    y = g.pick(lambda t: bool(t.dtype == x.dtype))
    return g.add(g.one(["Add", "Mul", "Sub", "Max"]), [x, y])


# ---- Shapes ----


@maker
def reshape(g: Network) -> Any:
    """Sizes are constants, 0, -1, or computed from shapes."""
    x = g.pick(lambda t: t.rank >= 1)
    kind = g.rng.random()
    if kind < 0.35:  # neighbours together
        at = int(g.rng.integers(0, x.rank))
        sizes = [0] * at + [-1]
        return g.add("Reshape", [x, g.ints(*sizes)])
    if kind < 0.6:  # one axis in two
        axis = int(g.rng.integers(0, x.rank))
        if not x.fixed(axis):
            raise Rejected("not known")
        size = x.sizes(axis)[0]
        part = g.one([d for d in range(1, size + 1) if size % d == 0])
        if axis == x.rank - 1 and g.chance(0.5):
            return g.add("Reshape", [x, g.ints(*[0] * axis, part, -1)])
        shape = g.add("Shape", [x])
        parts = [shape_part(g, shape, a) for a in range(axis)]
        parts.append(g.ints(part, size // part))
        parts += [shape_part(g, shape, a) for a in range(axis + 1, x.rank)]
        return g.add("Reshape", [x, g.add("Concat", parts, axis=0)])
    if kind < 0.8 and x.rank >= 2:  # two axes together
        axis = int(g.rng.integers(0, x.rank - 1))
        shape = g.add("Shape", [x])
        product = g.add("Mul", [shape_part(g, shape, axis), shape_part(g, shape, axis + 1)])
        parts = [shape_part(g, shape, a) for a in range(x.rank) if a not in (axis, axis + 1)]
        parts.insert(axis, g.ints(-1) if g.chance(0.3) else product)
        return g.add("Reshape", [x, g.add("Concat", parts, axis=0)])
    block = g.one([2, 3, 4])
    return g.add("Reshape", [x, g.ints(*g.one([(-1, block), (block, -1)]))])


def shape_part(g: Network, shape: Tensor, axis: int) -> Tensor:
    if g.chance(0.5):
        return g.add("Gather", [shape, g.ints(axis)], axis=0)  # type: ignore[no-any-return]
    return g.add(  # type: ignore[no-any-return]
        "Slice", [shape, g.ints(axis), g.ints(axis + 1)]
    )


@maker
def heads(g: Network) -> Any:
    """(n, s, h d) -> (n, h, s, d)."""
    x = g.pick(lambda t: t.is_float and t.rank == 3 and t.fixed(2))
    size = x.sizes(2)[0]
    part = g.one([d for d in range(1, size + 1) if size % d == 0])
    split = g.add("Reshape", [x, g.ints(0, 0, part, -1)])
    return g.add("Transpose", [split], perm=[0, 2, 1, 3])


@maker
def transpose(g: Network) -> Any:
    x = g.pick(lambda t: t.rank >= 2)
    return g.add("Transpose", [x], perm=[int(a) for a in g.rng.permutation(x.rank)])


@maker
def squeeze(g: Network) -> Any:
    x = g.pick(lambda t: t.rank >= 1)
    ones = [a for a in range(x.rank) if x.fixed(a) and x.sizes(a)[0] == 1]
    if not ones:
        raise Rejected("no axis of one")
    return g.add("Squeeze", [x, g.ints(g.one(ones))])


@maker
def unsqueeze(g: Network) -> Any:
    x = g.pick(lambda t: t.rank <= 4)
    return g.add("Unsqueeze", [x, g.ints(int(g.rng.integers(-x.rank - 1, x.rank + 1)))])


@maker
def flatten(g: Network) -> Any:
    x = g.pick(lambda t: t.rank >= 1)
    return g.add("Flatten", [x], axis=int(g.rng.integers(0, x.rank + 1)))


@maker
def expand(g: Network) -> Any:
    x = g.pick(lambda t: t.rank <= 4)
    if g.chance(0.5):
        other = g.pick(lambda t: t.rank <= 4)
        return g.add("Expand", [x, g.add("Shape", [other])])
    sizes = [1 if g.chance(0.5) else g.one([1, 2, 3]) for _ in range(x.rank + 1)]
    return g.add("Expand", [x, g.ints(*sizes)])


@maker
def tile(g: Network) -> Any:
    x = g.pick(lambda t: 1 <= t.rank <= 4)
    return g.add("Tile", [x, g.ints(*(int(n) for n in g.rng.integers(1, 3, x.rank)))])


# ---- Parts ----


@maker
def concat(g: Network) -> Any:
    x = g.pick(lambda t: t.rank >= 1)
    axis = int(g.rng.integers(0, x.rank))
    if x.rank >= 2 and g.chance(0.5):
        axis = 1

    def fits(t: Tensor) -> bool:
        return t.dtype == x.dtype and t.rank == x.rank and all(
            t.sizes(a) == x.sizes(a) for a in range(x.rank) if a != axis)  # fmt: skip

    found = [t for t in g.tensors.values() if fits(t)]
    parts = [x] + [g.one(found) for _ in range(int(g.rng.integers(0, 3)))]
    if x.is_float and g.chance(0.6):
        dims = [g.symbol_of(x.sizes(a)) for a in range(x.rank)]
        dims[axis] = g.symbol() if g.chance(0.5) else g.one([1, 3, 4, 8, 16])
        parts.append(g.input(dims))
    order = g.rng.permutation(len(parts))
    return g.add("Concat", [parts[i] for i in order], axis=axis - g.one([0, x.rank]))


@maker
def split(g: Network) -> Any:
    x = g.pick(lambda t: t.rank >= 1)
    axis = int(g.rng.integers(0, x.rank))
    if x.fixed(axis) and x.sizes(axis)[0] >= 3 and g.chance(0.5):
        at = int(g.rng.integers(1, x.sizes(axis)[0]))
        sizes = g.ints(at, x.sizes(axis)[0] - at)
        return g.add("Split", [x, sizes], 2, axis=axis)
    count = g.one([2, 3])
    if any(s % count for s in x.sizes(axis)):
        raise Rejected("not in equal parts")
    return g.add("Split", [x], count, axis=axis, num_outputs=count)


@maker
def slice_(g: Network) -> Any:
    x = g.pick(lambda t: t.rank >= 1)
    count = g.one([1, 1, min(2, x.rank)])
    axes = g.rng.permutation(x.rank)[:count]
    starts, ends, steps = [], [], []
    for axis in axes:
        size = x.sizes(int(axis))[1]
        step = g.one([1, 1, 1, 2, 3, -1, -2])
        low, high = int(g.rng.integers(0, size)), g.one([size, 2**31 - 1, -1, size - 1])
        if step > 0:
            starts.append(g.one([0, 0, low, -1 - low]))
            ends.append(high)
        else:
            starts.append(g.one([-1, 2**31 - 1, low]))
            ends.append(g.one([-(2**31), -(2**31), 0]))
        steps.append(step)
    names = [int(a) - g.one([0, x.rank]) for a in axes]
    return g.add("Slice", [x, *(g.ints(*v) for v in (starts, ends, names, steps))])


@maker
def pad(g: Network) -> Any:
    x = g.pick(lambda t: t.is_float and t.rank >= 1)
    mode = g.one(["constant", "constant", "edge", "reflect"])
    low = -1 if mode == "constant" else 0
    pads = [int(p) if g.chance(0.5) else 0 for p in g.rng.integers(low, 3, x.rank * 2)]
    value = g.constant(np.float32(g.one([0, 1.5, -3]))) if mode == "constant" else None
    return g.add("Pad", [x, g.ints(*pads), value], mode=mode)


@maker
def gather(g: Network) -> Any:
    x = g.pick(lambda t: t.rank >= 1)
    axis = int(g.rng.integers(0, x.rank))
    low = min(x.sizes(axis))
    kind = g.rng.random()
    if kind < 0.5:
        shape = g.one([(), (1,), (3,), (2, 2), (5,)])
        indices = g.constant(g.rng.integers(-low, low, shape).astype(np.int64))
    else:
        dims = [g.one([1, 3, g.symbol()]) for _ in range(g.one([1, 1, 2]))]
        indices = g.input(dims, g.one([np.int32, np.int64]), low)
    return g.add("Gather", [x, indices], axis=axis)


@maker
def gather_elements(g: Network) -> Any:
    x = g.pick(lambda t: t.is_float and t.rank >= 1)
    axis = int(g.rng.integers(0, x.rank))
    dims = [g.symbol_of(x.sizes(a)) for a in range(x.rank)]
    dims[axis] = g.one([1, 3, g.symbol()])
    indices = g.input(dims, np.int64, min(x.sizes(axis)))
    return g.add("GatherElements", [x, indices], axis=axis)


@maker
def depth_to_space(g: Network) -> Any:
    x = g.pick(lambda t: t.is_float and t.rank == 4 and t.fixed(1))
    if g.chance(0.5):
        return g.add("SpaceToDepth", [x], blocksize=2)
    return g.add("DepthToSpace", [x], blocksize=2, mode=g.one(["DCR", "CRD"]))


# ---- Along axes ----


@maker
def reduce(g: Network) -> Any:
    x = g.pick(lambda t: t.is_float and t.rank >= 1)
    op = g.one(["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceMean",
                "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp"])  # fmt: skip
    axes = [int(a) - g.one([0, x.rank]) for a in range(x.rank) if g.chance(0.5)]
    given = [g.ints(*axes)] if axes else []
    return g.add(op, [x, *given], keepdims=int(g.chance(0.6)))


@maker
def softmax(g: Network) -> Any:
    x = g.pick(lambda t: t.is_float and t.rank >= 1)
    axis = int(g.rng.integers(-x.rank, x.rank))
    return g.add(g.one(["Softmax", "Softmax", "LogSoftmax"]), [x], axis=axis)


@maker
def layer_norm(g: Network) -> Any:
    x = g.pick(lambda t: t.is_float and t.rank >= 1)
    axis = x.rank - g.one([1, 1, 2])
    if axis < 0 or not all(x.fixed(a) for a in range(axis, x.rank)):
        raise Rejected("not known")
    shape = [x.sizes(a)[0] for a in range(axis, x.rank)]
    if np.prod(shape) < 3:
        raise Rejected("of nothing but signs")
    scale, bias = g.constant(1 + g.normal(*shape, scale=0.3)), g.constant(g.normal(*shape))
    more = [bias] if g.chance(0.7) else []
    return g.add("LayerNormalization", [x, scale, *more], axis=axis - g.one([0, x.rank]),
                 epsilon=1e-3)  # fmt: skip


@maker
def norm_by_parts(g: Network) -> Any:
    """Mean and deviation written out."""
    x = g.pick(lambda t: t.is_float and t.rank >= 2)
    axis = g.ints(int(g.rng.integers(1, x.rank)))
    centred = g.add("Sub", [x, g.add("ReduceMean", [x, axis])])
    variance = g.add("ReduceMean", [g.add("Mul", [centred, centred]), axis])
    deviation = g.add("Sqrt", [g.add("Add", [variance, g.constant(np.float32(0.1))])])
    return g.add("Div", [centred, deviation])


@maker
def batch_norm(g: Network) -> Any:
    x = g.pick(lambda t: t.is_float and t.rank >= 2 and t.fixed(1))
    n = x.sizes(1)[0]
    constants = [1 + g.normal(n, scale=0.3), g.normal(n), g.normal(n),
                 0.5 + np.abs(g.normal(n))]  # fmt: skip
    return g.add("BatchNormalization", [x, *map(g.constant, constants)])


@maker
def instance_norm(g: Network) -> Any:
    x = image(g)
    n = x.sizes(1)[0]
    given = [g.constant(1 + g.normal(n, scale=0.3)), g.constant(g.normal(n))]
    return g.add("InstanceNormalization", [x, *given], epsilon=0.05)


@maker
def cumsum(g: Network) -> Any:
    x = g.pick(lambda t: t.is_float and t.rank >= 1)
    axis = g.constant(np.array(g.rng.integers(-x.rank, x.rank), np.int64))
    return g.add("CumSum", [x, axis], reverse=int(g.chance(0.3)), exclusive=int(g.chance(0.3)))


@maker
def topk(g: Network) -> Any:
    x = g.pick(lambda t: t.is_float and t.rank >= 1)
    axis = int(g.rng.integers(0, x.rank))
    count = int(g.rng.integers(1, min(x.sizes(axis)) + 1))
    return g.add("TopK", [x, g.ints(count)], 2, axis=axis, largest=int(g.chance(0.7)))


@maker
def arg(g: Network) -> Any:
    x = g.pick(lambda t: t.is_float and t.rank >= 1)
    axis = int(g.rng.integers(-x.rank, x.rank))
    return g.add(g.one(["ArgMax", "ArgMin"]), [x], axis=axis, keepdims=int(g.chance(0.5)))


# ---- Several at once ----


@maker
def residual(g: Network) -> Any:
    """x + f(x), and f(x) again."""
    x = g.pick(lambda t: t.is_float and 3 <= t.rank <= 5 and t.fixed(1))
    n = x.sizes(1)[0]
    k = g.one([1, 3])
    weights = g.normal(n, n, *[k] * (x.rank - 2), scale=(n * k ** (x.rank - 2)) ** -0.5)
    y = g.add("Conv", [x, g.constant(weights), g.constant(g.normal(n))],
              pads=[k // 2] * 2 * (x.rank - 2))  # fmt: skip
    y = g.add("Add", [x, y] if g.chance(0.5) else [y, x])
    return g.add("Relu", [y]) if g.chance(0.6) else y


@maker
def gate(g: Network) -> Any:
    """x * sigmoid(x), or of a pooled x (squeeze and excitation)."""
    x = g.pick(lambda t: t.is_float and t.rank >= 3)
    inner = x if g.chance(0.5) else g.add("GlobalAveragePool", [x])
    return g.add("Mul", [x, g.add("Sigmoid", [inner])])


@maker
def fused(g: Network) -> Any:
    """A product, and a chain that devices compute with it."""
    y = g.one([convolution, convolution, matmul, gemm, deconvolution])(g)
    for _ in range(int(g.rng.integers(1, 4))):
        kind = g.rng.random()
        if kind < 0.3:
            y = g.add(g.one(["Relu", "Sigmoid", "Tanh", "HardSwish", "Elu", "Abs"]), [y])
        elif kind < 0.7:
            pair = [y, g.like(y)]
            y = g.add(g.one(["Add", "Add", "Mul", "Sub", "Max"]), pair[:: g.one([1, -1])])
        elif kind < 0.8:
            y = g.add(g.one(["Add", "Mul", "Sub"]), [y, g.constant(np.float32(0.7))])
        elif y.rank >= 3 and y.fixed(1):
            n = y.sizes(1)[0]
            constants = [1 + g.normal(n, scale=0.3), g.normal(n), g.normal(n),
                         0.5 + np.abs(g.normal(n))]  # fmt: skip
            y = g.add("BatchNormalization", [y, *map(g.constant, constants)])
    return y


@maker
def constants(g: Network) -> Any:
    """Operators that can be computed before any run."""
    x = g.pick()
    shape = [s if g.chance(0.6) else 1 for s in x.shapes[1]]
    if any(not x.fixed(a) for a in range(x.rank)):
        shape = [s if x.fixed(a) else 1 for a, s in enumerate(shape)]
    y = g.add(g.one(["Abs", "Sin", "Identity"]), [g.constant(g.normal(*shape))])
    return g.add(g.one(["Add", "Mul"]), [x, y])


def eight_bits(g: Network, x: Tensor, scale: Any, **more: Any) -> Tensor:
    """x as numbers of 8 bits, and back."""
    given = [g.constant(np.asarray(scale)), g.constant(np.zeros(np.shape(scale), np.int8))]
    bits = x
    if x.name not in g.constants:
        bits = g.add("QuantizeLinear", [x, *given], **more)
    return g.add("DequantizeLinear", [bits, *given], **more)  # type: ignore[no-any-return]


@maker
def quantized(g: Network) -> Any:
    """A product of 8 bits."""
    convolves = g.chance(0.6)
    x = image(g) if convolves else g.pick(
        lambda t: t.is_float and t.rank >= 2 and t.fixed(-1))  # fmt: skip
    g.quantum = 0.3

    def scale(t: Tensor) -> Any:
        return np.float32(max(np.abs(r[0]).max(initial=0) for r in t.runs) / 127 + 1e-3)

    k = x.sizes(1 if convolves else -1)[0]
    n, kernel = g.one([1, 4, 8, 16, 32]), g.one([1, 3])
    if convolves:
        shape, axis, factors = (n, k, *[kernel] * (x.rank - 2)), 0, n
    else:
        shape, axis, factors = (k, n), 1, n
    bits = g.constant(g.rng.integers(-127, 128, shape).astype(np.int8))
    size = np.float32(2 / 127) * (k * kernel ** (x.rank - 2) if convolves else k) ** -0.5
    each = size * g.rng.uniform(0.5, 1, factors).astype(np.float32)
    w = eight_bits(g, bits, each if g.chance(0.6) else size, axis=axis)
    a = eight_bits(g, x, scale(x))
    if convolves:
        bias = g.constant(g.normal(n)) if g.chance(0.6) else None
        y = g.add("Conv", [a, w, bias], pads=[kernel // 2] * 2 * (x.rank - 2))
    else:
        y = g.add("MatMul", [a, w])
    if g.chance(0.3):
        y = g.add("Add", [y, x] if x.shapes == y.shapes else [y, g.like(y)])
    if g.chance(0.5):
        y = g.add("Relu", [y])
    return eight_bits(g, y, scale(y)) if g.chance(0.5) else y


# ---- Places ----


@maker
def scatter(g: Network) -> Any:
    x = g.pick(lambda t: t.is_float and t.rank >= 1)
    axis, count = 0, g.one([1, 2, 3])
    low = min(x.sizes(axis))
    if low < count:
        raise Rejected("too few rows")
    rows = g.rng.permutation(low)[:count].astype(np.int64)
    dims = [g.symbol_of(x.sizes(a)) for a in range(1, x.rank)]
    updates = g.input([count, *dims])
    return g.add("ScatterND", [x, g.constant(rows[:, None]), updates])


@maker
def scatter_elements(g: Network) -> Any:
    x = g.pick(lambda t: t.is_float and t.rank >= 1)
    axis = int(g.rng.integers(0, x.rank))
    dims: list[Any] = [g.symbol_of(x.sizes(a)) for a in range(x.rank)]
    dims[axis] = 1  # no place twice
    indices = g.input(dims, np.int64, min(x.sizes(axis)))
    return g.add("ScatterElements", [x, indices, g.input(dims)], axis=axis)


@maker
def gather_nd(g: Network) -> Any:
    x = g.pick(lambda t: t.rank >= 2)
    count = g.one([1, 2])
    low = [min(x.sizes(a)) for a in range(count)]
    indices = g.rng.integers(0, low, (3, count)).astype(np.int64)
    return g.add("GatherND", [x, g.constant(indices)])


@maker
def einsum(g: Network) -> Any:
    x = g.pick(lambda t: t.is_float and 2 <= t.rank <= 4)
    letters = "abcd"[: x.rank]
    y = g.input([g.symbol_of(x.sizes(-1)), g.one([2, 3, 4])])
    kind = g.one([f"{letters}->{letters[::-1]}", f"{letters}->{letters[0]}",
                  f"{letters},{letters[-1]}z->{letters[:-1]}z"])  # fmt: skip
    return g.add("Einsum", [x, y] if "z" in kind else [x], equation=kind)


@maker
def group_norm(g: Network) -> Any:
    x = image(g)
    n = x.sizes(1)[0]
    group = g.one([d for d in range(1, n + 1) if n % d == 0])
    given = [g.constant(1 + g.normal(group, scale=0.3)), g.constant(g.normal(group))]
    return g.add("GroupNormalization", [x, *given], num_groups=group, epsilon=0.05)


@maker
def other_norms(g: Network) -> Any:
    x = g.pick(lambda t: t.is_float and t.rank >= 3)
    if g.chance(0.5):
        return g.add("LRN", [x], size=g.one([1, 3, 5]), alpha=0.1)
    shifted = g.add("Add", [g.add("Abs", [x]), g.constant(np.float32(0.5))])
    return g.add("LpNormalization", [shifted], axis=g.one([-1, 1]), p=g.one([1, 2]))


@maker
def recurrent(g: Network) -> Any:
    x = g.pick(lambda t: t.is_float and t.rank == 3 and t.fixed(2))
    op, gates = g.one([("GRU", 3), ("LSTM", 4), ("RNN", 1)])
    size, ways = g.one([2, 4, 8]), g.one([1, 2])
    w = g.normal(ways, gates * size, x.sizes(2)[0], scale=0.4)
    r = g.normal(ways, gates * size, size, scale=0.4)
    b = g.constant(g.normal(ways, 2 * gates * size)) if g.chance(0.6) else None
    direction = "bidirectional" if ways == 2 else g.one(["forward", "reverse"])
    return g.add(op, [x, g.constant(w), g.constant(r), b], 2, hidden_size=size,
                 direction=direction)  # fmt: skip


# ---- The whole ----


def first_input(g: Network) -> Tensor:
    rank = g.one([1, 2, 2, 3, 3, 4, 4, 4, 4, 5])
    sizes = [1, 2, 3, 4, 5, 8, 16, 32] if rank < 4 else [3, 4, 5, 6, 8]
    dims: list[Any] = [
        g.symbol(g.one([3, 8, 32])) if g.chance(0.4) else g.one(sizes) for _ in range(rank)
    ]
    if rank >= 3 and g.chance(0.8):
        dims[1] = g.one([1, 2, 3, 4, 8, 8, 16, 16, 32])
    return g.input(dims)


def random_network(
    rng: np.random.Generator,
    noise: float,
    profiles: int,
    without: set[str] = frozenset(),
    large: float = 0,
) -> Network:
    """A network of 3 to 14 nodes or a few more, of some kinds of nodes. large: how
    likely it has large tensors."""
    g = Network(rng, noise, profiles, bool(rng.random() < 0.05))
    if g.chance(large):
        g.large, g.largest = True, 60000
    while not g.inputs:
        try:
            first_input(g)
        except Rejected:
            g.symbols.clear()
    kinds = [k for k in MAKERS if k.rstrip("_") not in without]
    weights = rng.random(len(kinds)) ** 3 * [1 + 2 * (k in OFTEN) for k in kinds]
    count, tries = int(rng.integers(3, 15)), 0
    while len(g.nodes) < count and tries < 60:
        tries += 1
        try:
            MAKERS[kinds[int(rng.choice(len(kinds), p=weights / weights.sum()))]](g)
        except Rejected:
            continue
        except (ValueError, ZeroDivisionError):  # what wants a range, or a fan
            if not g.empty:
                raise
    g.finish()
    g.prune()
    return g
