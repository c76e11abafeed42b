"""Operands that follow from shapes or from data: each operator that takes such, in small
networks, at several shapes, against ONNX Runtime.

Nothing of what follows from shapes is read back while a model runs: the plan says so.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import rabbet as trt

from tests.python.support import onnx_text
from tests.python.support.onnx_text import check, compiled, expected, model_of

EXTENTS = [
    (4, 6),
    (2, 3),
    (7, 8),
    (5, 3),
]  # of x in each run; the first is the usual one

# Names that the bodies below use: the shape of x and its elements, small constants.
COMMON = """
    shape = Shape(x)
    zero = Constant<value_int = 0>()
    one = Constant<value_int = 1>()
    two = Constant<value_int = 2>()
    zeros = Constant<value_ints = [0]>()
    ones = Constant<value_ints = [1]>()
    n = Gather(shape, zero)
    m = Gather(shape, one)
    n1 = Unsqueeze(n, zeros)
    m1 = Unsqueeze(m, zeros)
    nf = Cast<to = 1>(n)
    mf = Cast<to = 1>(m)
    half = Constant<value_float = 0.5>()
    zerof = Constant<value_float = 0.0>()
"""

# name: outputs, body
SHAPES = {
    "range": ("int64[k] y", "y = Range(zero, n, one)"),
    "range_int32": (
        "int32[k] y",
        "a = Cast<to = 6>(zero) b = Cast<to = 6>(m) c = Cast<to = 6>(two) y = Range(a, b, c)",
    ),
    "range_float": ("float[k] y", "y = Range(zerof, nf, half)"),
    "range_back": (
        "int64[k] y",
        "d = Constant<value_int = -2>() y = Range(n, zero, d)",
    ),
    "range_step": ("int64[k] y", "e = Constant<value_int = 20>() y = Range(zero, e, n)"),
    "range_step_back": (
        "int64[k] y",
        "e = Constant<value_int = -20>() d = Neg(n) y = Range(zero, e, d)",
    ),
    "range_of_ones": (
        "int64[r, k] y",
        "o = ConstantOfShape<value = int64[1] {1}>(n1) y = NonZero(o)",
    ),
    "range_of_ones_as_index": (
        "float[n, m] y",
        "o = ConstantOfShape<value = float[1] {-2}>(m1) r = NonZero(o)"
        " s = Squeeze(r, zeros) f = Cast<to = 1>(s) y = Add(x, f)",
    ),
    "range_between": ("int64[k] y", "e = Add(n, m) y = Range(n, e, one)"),
    "range_of_nothing": ("int64[k] y", "y = Range(n, m, one)"),
    "range_of_size": ("int64[k] y", "s = Size(x) y = Range(zero, s, one)"),
    "range_as_index": (
        "float[n, m] y",
        "r = Range(zero, n, one) last = Sub(n, one) b = Sub(last, r) y = Gather(x, b)",
    ),
    "range_added": (
        "float[n, m] y",
        "r = Range(zero, m, one) f = Cast<to = 1>(r) y = Add(x, f)",
    ),
    "range_known_length": (
        "float[k, m] y",
        "e = Add(n, two) r = Range(n, e, one) k = Mod(r, n) y = Gather(x, k)",
    ),
    "length_by_ceil": (
        "int64[k] y",
        "h = Mul(nf, half) c = Ceil(h) l = Cast<to = 7>(c) y = Range(zero, l, one)",
    ),
    "length_by_floor": (
        "int64[k] y",
        "h = Div(mf, nf) c = Floor(h) l = Cast<to = 7>(c) y = Range(zero, l, one)",
    ),
    "length_by_round": (
        "int64[k] y",
        "h = Mul(nf, half) c = Round(h) l = Cast<to = 7>(c) y = Range(zero, l, one)",
    ),
    "length_by_cast": (
        "int64[k] y",
        "t = Constant<value_float = 0.7>() h = Mul(nf, t) l = Cast<to = 7>(h)"
        " y = Range(zero, l, one)",
    ),
    "length_by_negative": (
        "int64[k] y",
        "t = Constant<value_float = -0.7>() h = Mul(nf, t) c = Floor(h) a = Neg(c)"
        " b = Abs(a) l = Cast<to = 7>(b) y = Range(zero, l, one)",
    ),
    "length_by_maximum": (
        "int64[k] y",
        "h = Mul(nf, half) t = Constant<value_float = 2.5>() c = Max(h, t) d = Min(c, mf)"
        " e = Ceil(d) l = Cast<to = 7>(e) y = Range(zero, l, one)",
    ),
    "length_by_comparison": (
        "int64[k] y",
        "h = Mul(nf, half) t = Constant<value_float = 2.0>() c = Greater(h, t)"
        " d = Where(c, nf, mf) l = Cast<to = 7>(d) y = Range(zero, l, one)",
    ),
    "length_by_double": (
        "int64[k] y",
        "d = Cast<to = 11>(n) t = Constant<value = double {0.3}>() h = Mul(d, t) c = Ceil(h)"
        " l = Cast<to = 7>(c) y = Range(zero, l, one)",
    ),
    "length_by_reciprocal": (
        "int64[k] y",
        "t = Reciprocal(nf) u = Constant<value_float = 12.0>() h = Mul(t, u) c = Ceil(h)"
        " l = Cast<to = 7>(c) y = Range(zero, l, one)",
    ),
    "length_by_power": (
        "float[k] y",
        "q = Pow(n1, two) y = ConstantOfShape(q)",
    ),
    "length_by_gathered_floats": (
        "int64[k] y",
        "f = Cast<to = 1>(shape) h = Constant<value_floats = [0.5, 2.0]>() g = Mul(f, h)"
        " c = Ceil(g) d = Gather(c, one) l = Cast<to = 7>(d) y = Range(zero, l, one)",
    ),
    "trilu": ("float[n, m] y", "y = Trilu(x)"),
    "trilu_lower": (
        "float[n, m] y",
        "k = Constant<value_int = -1>() y = Trilu<upper = 0>(x, k)",
    ),
    "trilu_k": ("float[n, m] y", "k = Sub(m, n) y = Trilu(x, k)"),
    "trilu_k_lower": ("float[n, m] y", "k = Sub(m, n) y = Trilu<upper = 0>(x, k)"),
    "trilu_far": (
        "float[n, m] y, float[n, m] z",
        "k = Constant<value_int = 9223372036854775807>() y = Trilu(x, k)"
        " z = Trilu<upper = 0>(x, k)",
    ),
    "trilu_bool": (
        "bool[n, m] y",
        "b = Greater(x, half) y = Trilu<upper = 0>(b)",
    ),
    "eye_like": ("float[n, m] y", "y = EyeLike(x)"),
    "eye_like_k": ("int64[n, m] y", "y = EyeLike<k = 1, dtype = 7>(x)"),
    "eye_like_below": ("float[n, m] y", "y = EyeLike<k = -2, dtype = 1>(x)"),
    "one_hot": (
        "float[a, b] y",
        "v = Constant<value_floats = [0.5, 2.0]>() i = Constant<value_ints = [0, 1, -1, 9]>()"
        " y = OneHot(i, n, v)",
    ),
    "one_hot_front": (
        "int64[a, b] y",
        "v = Constant<value_ints = [3, 4]>() i = Constant<value_ints = [0, 1, -1, 9]>()"
        " y = OneHot<axis = 0>(i, m1, v)",
    ),
    "constant_of_shape": (
        "float[n, m] y",
        "y = ConstantOfShape<value = float[1] {2.0}>(shape)",
    ),
    "constant_of_no_shape": (
        "float[k, m] y",
        "s = Concat<axis = 0>(zeros, m1) y = ConstantOfShape(s)",
    ),
    "tile": ("float[a, b] y", "y = Tile(x, shape)"),
    "expand": (
        "float[a, n, m] y",
        "e = Concat<axis = 0>(n1, shape) y = Expand(x, e)",
    ),
    "expand_where": (
        "float[a, b] y",
        "w = Constant<value_ints = [-1, 1]>() o = Constant<value_ints = [1, 1]>()"
        " d = Constant<value_int = -1>() q = Equal(w, d) e = Where(q, o, w) y = Expand(x, e)",
    ),
    "reshape": ("float[a, b, c] y", "s = Concat<axis = 0>(m1, ones, n1) y = Reshape(x, s)"),
    "reshape_scattered": (
        "float[a, b] y",
        "i = Constant<value = int64[1, 1] {1}>() v = Constant<value_ints = [-1]>()"
        " s = ScatterND(shape, i, v) y = Reshape(x, s)",
    ),
    "flat": ("float[k] y", "s = ReduceProd<keepdims = 1>(shape) y = Reshape(x, s)"),
    "slice_step": (
        "float[a, b] y",
        "e = Constant<value_ints = [99]>() t = Constant<value_ints = [2]>() s = Div(n1, t)"
        " y = Slice(x, zeros, e, ones, s)",
    ),
    "slice_step_back": (
        "float[a, b] y",
        "b = Constant<value_ints = [-1]>() e = Constant<value_ints = [-99]>()"
        " t = Constant<value_ints = [2]>() h = Div(n1, t) s = Neg(h)"
        " y = Slice(x, b, e, zeros, s)",
    ),
    "slice_step_either": (
        "float[a, b] y",
        "d = Sub(n1, m1) t = Constant<value_ints = [2]>() s0 = Mul(d, t) s = Add(s0, ones)"
        " b = Constant<value_ints = [1]>() e = Constant<value_ints = [5]>()"
        " y = Slice(x, b, e, zeros, s)",
    ),
    "slice_back_to_start": (
        "float[a, b] y",
        "b = Sub(n1, ones) e = Constant<value_ints = [-99]>() s = Constant<value_ints = [-1]>()"
        " y = Slice(x, b, e, zeros, s)",
    ),
    "slice_back_of_nothing": (
        "float[a, b] y",
        "e = Constant<value_ints = [99]>() s = Constant<value_ints = [-1]>() b = Sub(n1, ones)"
        " y = Slice(x, b, e, zeros, s)",
    ),
    "split": (
        "float[a, m] y, float[b, m] z",
        "r = Sub(n1, ones) s = Concat<axis = 0>(ones, r) y, z = Split<axis = 0>(x, s)",
    ),
    "pad": ("float[a, b] y", "p = Concat<axis = 0>(shape, shape) y = Pad(x, p)"),
    "pad_to_multiple": (
        "float[a, b] y",
        "k = Constant<value_ints = [4]>() r = Mod(n1, k) d = Sub(k, r) p = Mod(d, k)"
        " q = Concat<axis = 0>(zeros, zeros, p, zeros) y = Pad<mode = \"edge\">(x, q)",
    ),
    "top_k": (
        "float[n, k] y, int64[n, k] z",
        "h = Div(m1, two) y, z = TopK(x, h)",
    ),
    "cumulative_axis": (
        "float[n, m] y",
        "r = Size(shape) a = Sub(r, one) y = CumSum(x, a)",
    ),
    "gather_last": ("float[m] y", "l = Sub(n, one) y = Gather(x, l)"),
    "shape_part": ("float[a] y", "s = Shape<start = -1>(x) y = ConstantOfShape(s)"),
    "length_by_reduced_floats": (
        "int64[k] y",
        "f = Cast<to = 1>(shape) h = Constant<value_floats = [0.5, 0.25]>() g = Mul(f, h)"
        " p = ReduceProd<keepdims = 0>(g) q = ReduceMax<keepdims = 0>(g) r = Add(p, q)"
        " c = Ceil(r) l = Cast<to = 7>(c) y = Range(zero, l, one)",
    ),
    "resize_by_scales": (
        "float[a, b] y",
        "f = Cast<to = 1>(shape) k = Constant<value_floats = [2.0, 3.0]>() t = Mul(f, k)"
        " s = Div(t, f) y = Resize<mode = \"linear\">(x, , s)",
    ),
    "resize_by_uneven_scales": (
        "float[a, b] y",
        "f = Cast<to = 1>(shape) k = Constant<value_floats = [1.5, 1.0]>() t = Mul(f, k)"
        " u = Constant<value_floats = [1.0, 1.0]>() v = Sub(t, u) s = Div(v, f)"
        " y = Resize<mode = \"linear\">(x, , s)",
    ),
    "resize_by_other_scales": (
        "float[a, b] y",
        "a0 = Div(mf, nf) a1 = Unsqueeze(a0, zeros) b0 = Div(nf, mf) b1 = Unsqueeze(b0, zeros)"
        " s = Concat<axis = 0>(a1, b1)"
        " y = Resize<mode = \"nearest\", nearest_mode = \"floor\">(x, , s)",
    ),
    "resize_by_sizes": (
        "float[a, b] y",
        "k = Constant<value_ints = [2, 3]>() t = Mul(shape, k)"
        " y = Resize<mode = \"linear\">(x, , , t)",
    ),
    "resize_by_policy": (
        "float[a, b] y",
        "k = Constant<value_ints = [12, 20]>()"
        " y = Resize<mode = \"linear\", keep_aspect_ratio_policy = \"not_larger\">(x, , , k)",
    ),
    "unsqueeze": ("float[a, b, c] y", "r = Size(shape) a = Unsqueeze(r, zeros)"
                  " y = Unsqueeze(x, a)"),
}  # fmt: skip


def reads(model: trt.Model) -> list[str]:
    """Tensors that the host reads while the model runs."""
    inspector = model.engine.create_engine_inspector()
    text = inspector.get_engine_information(trt.LayerInformationFormat.JSON)
    return [name for layer in json.loads(text)["Layers"] for name in layer["HostReads"]]


def numbers(*shape: int) -> Any:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("name", SHAPES)
def test_operands_from_shapes(name: str) -> None:
    outputs, body = SHAPES[name]
    model = model_of("float[n, m] x", outputs, COMMON + body)
    made = check(model, [{"x": numbers(*extents)} for extents in EXTENTS])
    assert reads(made) == []


def lengths(*values: int) -> list[Any]:
    return [np.array(v, np.int64) for v in values]


MASKS = [np.arange(12).reshape(3, 4) % k == 0 for k in (2, 3, 1, 20)]
X = [numbers(*extents) for extents in EXTENTS]


def test_squeeze_without_axes() -> None:
    """Extents that are not known are not 1, else the run is refused: the rank is fixed."""
    model = model_of("float[n, 1, m, 1] x", "float[n, m] y", "y = Squeeze(x)")
    made = check(
        model, [{"x": numbers(n, 1, m, 1)} for n, m in [(4, 6), (2, 1), (3, 2)]][::2]
    )
    assert reads(made) == []
    made = compiled(model, [{"x": numbers(n, 1, m, 1)} for n, m in [(4, 6), (2, 1)]])
    with pytest.raises(trt.Error, match="axis 2 of 'x' has extent 1, which node"):
        made.run({"x": numbers(2, 1, 1, 1)})
    found = made.run({"x": numbers(3, 1, 2, 1)})["y"]
    np.testing.assert_array_equal(np.asarray(found), numbers(3, 1, 2, 1)[:, 0, :, 0])


# name: inputs, their arrays in each run, outputs, body. The host reads something.
DATA = {
    "range_of_values": (
        "int64[n] x", {"x": [np.arange(k) for k in (4, 2, 7, 5)]}, "int64[k] y",
        "z = Constant<value_int = 0>() o = Constant<value_int = 1>()"
        " l = ReduceSum<keepdims = 0>(x) y = Range(z, l, o)",
    ),
    "range_of_floats": (
        "float[n] x", {"x": [np.arange(k, dtype=np.float32) / 2 for k in (4, 2, 7, 5)]},
        "float[k] y",
        "z = Constant<value_float = 0.0>() o = Constant<value_float = 0.75>()"
        " l = ReduceSum<keepdims = 0>(x) y = Range(z, l, o)",
    ),
    "mask": (
        "bool[3, 4] b, float[3, 4] x", {"b": MASKS, "x": [numbers(3, 4)] * 4},
        "float[k] y",
        "i = NonZero(b) t = Transpose(i) y = GatherND(x, t)",
    ),
    "mask_of_rows": (
        "bool[n] b, float[n, 4] x",
        {"b": [np.arange(k) % 2 == 0 for k in (3, 2, 7, 5)],
         "x": [numbers(k, 4) for k in (3, 2, 7, 5)]},
        "float[k, 4] y",
        "y = Compress<axis = 0>(x, b)",
    ),
    "mask_then_sum": (
        "bool[3, 4] b, float[3, 4] x", {"b": MASKS, "x": [numbers(3, 4)] * 4},
        "float y",
        "i = NonZero(b) t = Transpose(i) g = GatherND(x, t) y = ReduceSum<keepdims = 0>(g)",
    ),
    "mask_of_lengths": (
        "int64[b] l",
        {"l": [np.array(v) for v in ([1, 5, 2], [1], [7, 3, 2, 4], [2, 9])]},
        "bool[b, k] y, float[b, k] w",
        "m = ReduceMax<keepdims = 0>(l) z = Constant<value_int = 0>()"
        " o = Constant<value_int = 1>() r = Range(z, m, o)"
        " z1 = Constant<value_ints = [0]>() o1 = Constant<value_ints = [1]>()"
        " r1 = Unsqueeze(r, z1) l1 = Unsqueeze(l, o1) y = Less(r1, l1)"
        " m1 = Unsqueeze(m, z1) t = Shape(l) s = Concat<axis = 0>(t, m1)"
        " a = ConstantOfShape(s) c = Cast<to = 1>(y) w = Add(a, c)",
    ),
    "reshape_by_values": (
        "float[12] x, float[2] f",
        {"x": [numbers(12)] * 4,
         "f": [np.array(v, np.float32) for v in ([3, 4], [2, 6], [-1, 2], [12, -1])]},
        "float[a, b] y",
        "s = Cast<to = 7>(f) y = Reshape(x, s)",
    ),
    "reshape_by_values_that_copy": (
        "float[n, m] x, float[2] f",
        {"x": X,
         "f": [np.array(v, np.float32) for v in ([0, 6], [0, -1], [-1, 0], [5, 3])]},
        "float[a, b] y",
        "s = Cast<to = 7>(f) y = Reshape(x, s)",
    ),
    "slice_by_values": (
        "float[n, m] x, float[3] f",
        {"x": X,
         "f": [np.array(v, np.float32)
               for v in ([0, 3, 1], [-1, -9, -1], [1, 9, 2], [4, -9, -2])]},
        "float[a, m] y",
        "s = Cast<to = 7>(f) z = Constant<value_ints = [0]>() o = Constant<value_ints = [1]>()"
        " t = Constant<value_ints = [2]>() h = Constant<value_ints = [3]>()"
        " b = Slice(s, z, o) e = Slice(s, o, t) d = Slice(s, t, h) y = Slice(x, b, e, z, d)",
    ),
    "split_by_values": (
        "float[n, m] x, float f",
        {"x": X, "f": [np.array(v, np.float32) for v in (1, 2, 0, 3)]},
        "float[a, m] y, float[b, m] z",
        "c = Cast<to = 7>(f) u = Constant<value_ints = [0]>() a = Unsqueeze(c, u)"
        " n = Shape<end = 1>(x) r = Sub(n, a) s = Concat<axis = 0>(a, r)"
        " y, z = Split<axis = 0>(x, s)",
    ),
    "top_k_by_values": (
        "float[n, m] x, float[1] f",
        {"x": X, "f": [np.array([v], np.float32) for v in (2, 1, 0, 3)]},
        "float[n, k] y, int64[n, k] z",
        "k = Cast<to = 7>(f) y, z = TopK(x, k)",
    ),
    "resize_by_values": (
        "float[n, m] x, float[2] f",
        {"x": X, "f": [np.array(v, np.float32) for v in ([2, 3], [1.5, 1], [1.25, 0.5], [1, 2])]},
        "float[a, b] y",
        "y = Resize<mode = \"linear\">(x, , f)",
    ),
    "pad_by_values": (
        "float[n, m] x, float[4] f",
        {"x": X,
         "f": [np.array(v, np.float32)
               for v in ([1, 2, 0, 0], [0, 0, 0, 0], [-1, 0, 2, -3], [0, -1, -2, 4])]},
        "float[a, b] y",
        "p = Cast<to = 7>(f) y = Pad(x, p)",
    ),
    "constant_of_values": (
        "float[2] f",
        {"f": [np.array(v, np.float32) for v in ([2, 3], [0, 4], [5, 1], [1, 1])]},
        "float[a, b] y",
        "s = Cast<to = 7>(f) y = ConstantOfShape<value = float[1] {3.0}>(s)",
    ),
}  # fmt: skip

# The same; what the sizes follow from are inputs, which the host knows.
SIZES = {
    "expand_to_maximum": (
        "int64[3] l, float[3, 1] x",
        {"l": [np.array(v) for v in ([1, 5, 2], [1, 1, 1], [7, 3, 2], [2, 2, 9])],
         "x": [numbers(3, 1)] * 4},
        "float[3, k] y",
        "m = ReduceMax<keepdims = 0>(l) z = Constant<value_ints = [0]>() m1 = Unsqueeze(m, z)"
        " t = Constant<value_ints = [3]>() s = Concat<axis = 0>(t, m1) y = Expand(x, s)",
    ),
    "tile_by_values": (
        "float[n, m] x, int64[1] r", {"x": X, "r": lengths([1], [3], [2], [0])},
        "float[a, m] y",
        "o = Constant<value_ints = [1]>() c = Concat<axis = 0>(r, o) y = Tile(x, c)",
    ),
    "trilu_by_values": (
        "float[n, m] x, float f",
        {"x": X, "f": [np.array(v, np.float32) for v in (1, -2, 0, 30)]},
        "float[n, m] y",
        "k = Cast<to = 7>(f) y = Trilu(x, k)",
    ),
    "one_hot_by_values": (
        "int64[4] i", {"i": [np.array(v) for v in ([0, 1, 2, 3], [0, 0, 1, 1], [5, 2, 1, 0],
                                                   [1, 1, 1, 1])]},
        "float[4, k] y",
        "m = ReduceMax<keepdims = 0>(i) o = Constant<value_int = 1>() d = Add(m, o)"
        " v = Constant<value_floats = [0.0, 1.0]>() y = OneHot(i, d, v)",
    ),
    "range_to_input": (
        "int64 l", {"l": lengths(4, 1, 7, 0)}, "int64[k] y",
        "z = Constant<value_int = 0>() o = Constant<value_int = 1>() y = Range(z, l, o)",
    ),
    "range_through_float": (
        "int64 l", {"l": lengths(4, 1, 7, 0)}, "int64[k] y",
        "z = Constant<value_int = 0>() o = Constant<value_int = 1>() f = Cast<to = 1>(l)"
        " h = Constant<value_float = 1.5>() g = Mul(f, h) c = Ceil(g) m = Cast<to = 7>(c)"
        " y = Range(z, m, o)",
    ),
    "expand_to_input": (
        "float[n, 1] x, int64[2] l",
        {"x": [numbers(k, 1) for k in (4, 2, 7, 5)],
         "l": lengths([4, 3], [1, 5], [7, 1], [1, 1])},
        "float[a, b] y",
        "y = Expand(x, l)",
    ),
    "reshape_to_input": (
        "float[12] x, int64[2] l",
        {"x": [numbers(12)] * 4, "l": lengths([3, 4], [-1, 6], [1, -1], [12, 1])},
        "float[a, b] y",
        "y = Reshape(x, l)",
    ),
    "slice_to_input": (
        "float[n, m] x, int64[1] l", {"x": X, "l": lengths([2], [-1], [9], [-9])},
        "float[a, m] y",
        "z = Constant<value_ints = [0]>() y = Slice(x, z, l)",
    ),
}  # fmt: skip


def runs_of(arrays: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [
        dict(zip(arrays, run, strict=True))
        for run in zip(*arrays.values(), strict=True)
    ]


@pytest.mark.parametrize("name", DATA)
def test_operands_from_data(name: str) -> None:
    inputs, arrays, outputs, body = DATA[name]
    made = check(model_of(inputs, outputs, body), runs_of(arrays))
    assert reads(made)


@pytest.mark.parametrize("values", [True, False])
@pytest.mark.parametrize("name", SIZES)
def test_inputs_that_are_sizes(name: str, values: bool) -> None:
    inputs, arrays, outputs, body = SIZES[name]
    made = check(model_of(inputs, outputs, body), runs_of(arrays), values)
    assert reads(made) == []


# Steps a little above and below the decimal number that was meant.
STEPS = [0.1, 0.7, 0.3, 1 / 3, 0.05, -0.1, -0.7, 3.0, 1e-3]


def test_lengths_of_float_ranges() -> None:
    """As many numbers as ONNX Runtime makes, which divides in DOUBLE."""
    model = model_of(
        "float[1] a, float[1] b, float[1] c", "float[k] y",
        "z = Constant<value_ints = [0]>() start = Squeeze(a, z) limit = Squeeze(b, z)"
        " delta = Squeeze(c, z) y = Range(start, limit, delta)")  # fmt: skip
    made = trt.compile(model.SerializeToString(), device=onnx_text.DEVICE)
    random = np.random.default_rng(0)
    for step in STEPS * 20:
        start = random.choice(np.float32([0, 0.1, 1, 1e7, random.random()]))
        count = random.choice([0, 1, 7, 10, 11, 50, 100, 99.5, -3])
        run = {"a": start, "b": start + np.float32(count) * np.float32(step), "c": step}
        arrays = {name: np.array([v], np.float32) for name, v in run.items()}
        (want,) = expected(model, arrays)
        found = np.asarray(made.run(arrays)["y"])
        assert found.shape == want.shape, arrays
        steps = np.arange(len(want)) * np.float64(np.float32(step))
        np.testing.assert_allclose(found, start + steps, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("start", [0.0, 0.1])
def test_lengths_of_float_ranges_to_extents(start: float, step: float) -> None:
    sign = "" if step > 0 else "m = Neg(l) "
    model = model_of(
        "float[n] x", "float[k] y",
        f"a = Constant<value_float = {start:.8f}>() d = Constant<value_float = {step:.8f}>()"
        " s = Shape(x) z = Constant<value_ints = [0]>() t = Squeeze(s, z)"
        f" l = Cast<to = 1>(t) {sign}y = Range(a, {'m' if sign else 'l'}, d)")  # fmt: skip
    runs = [{"x": numbers(n)} for n in (7, 1, 9, 10, 14, 21, 30, 33, 70)]
    made = compiled(model, runs)
    assert reads(made) == []
    for run in runs:  # whose numbers are sums of steps, with the error of each
        (want,) = expected(model, run)
        assert np.asarray(made.run(run)["y"]).shape == want.shape


def test_grids_whose_points_have_coordinates_that_only_a_run_tells() -> None:
    model = model_of(
        "float[a,b,c,d] x, float[a,e,f,g] grid", "float[a,b,e,f] y",
        "y = GridSample(x, grid)")  # fmt: skip
    random = np.random.default_rng(0)
    runs = [
        {
            "x": random.standard_normal((batch, 3, 8, 9), np.float32),
            "grid": random.uniform(-1.1, 1.1, (batch, 5, 6, 2)).astype(np.float32),
        }
        for batch in (1, 2)
    ]
    least, most = (1, 1, 1, 1), (2, 9, 9, 9)
    ranges = {name: (least, array.shape, most) for name, array in runs[0].items()}
    made = trt.compile(model.SerializeToString(), device=onnx_text.DEVICE, shapes=ranges)
    for run in runs:
        np.testing.assert_allclose(
            made.run(run)["y"], expected(model, run)[0], rtol=1e-5, atol=1e-6
        )
    runs[0]["grid"] = np.zeros((1, 5, 6, 3), np.float32)
    with pytest.raises(trt.Error, match=r"\(1, 5, 6, 3\); expected \(batch, channels"):
        made.run(runs[0])


@pytest.mark.parametrize("real", ["float", "double"])
def test_sizes_of_known_extents_are_rounded_as_the_type_is(real: str) -> None:
    """floor(90 * 0.7) is 63 in FLOAT and 62 in DOUBLE; of 1.3 it is 116 and 117."""
    factors = (0.7, 1.3, 2.3, 0.35, 1 / 3)
    cast, dtype = {"float": (1, np.float32), "double": (11, np.float64)}[real]
    for extent in (90, 340):
        steps, outputs, weights = "", [], []
        for i, factor in enumerate(factors):
            weights.append(onnx.numpy_helper.from_array(np.array([factor], dtype), f"t{i}"))
            rounded = "Floor" if i % 2 else "Identity"
            steps += (
                f"h{i} = Mul(nf, t{i}) f{i} = {rounded}(h{i}) l{i} = Cast<to = 7>(f{i}) "
                f"y{i} = Expand(one, l{i}) "
            )
            outputs.append(f"int64[k{i}] y{i}")
        model = onnx.parser.parse_model(
            f'<ir_version: 8, opset_import: ["": 18]> g (float[{extent}] x) => '
            f"({', '.join(outputs)}) {{ one = Constant<value_ints = [1]>() n = Shape(x) "
            f"nf = Cast<to = {cast}>(n) {steps} }}"
        )
        model.graph.initializer.extend(weights)
        x = np.zeros(extent, np.float32)
        session = onnxruntime.InferenceSession(model.SerializeToString())
        found = trt.compile(model, device="cpu", optimization_level=0, double=True)(x)
        wanted = [one.shape for one in session.run(None, {"x": x})]
        assert [one.shape for one in found] == wanted


def test_resized_extents_are_rounded_as_scales_are() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]> g (float[1, 1, 90, 170] x) => '
        "(float[a, b, c, d] y) <float[4] scales = {1.0, 1.0, 1.3, 0.7}> "
        '{ y = Resize<mode = "linear">(x, , scales) }'
    )
    x = np.random.default_rng(0).random((1, 1, 90, 170), np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    found = trt.compile(model, device="cpu", optimization_level=0)(x)
    np.testing.assert_allclose(found, session.run(None, {"x": x})[0], rtol=1e-4, atol=1e-5)
