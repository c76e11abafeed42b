"""Sequences whose length a run tells: loops fill them, branches choose them, other loops
read them. The results are compared with ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
import rabbet
from onnx import parser

HEAD = '<ir_version: 8, opset_import: ["" : 18]>\n'

YES = "yes = Constant <value = bool {1}> () n = Shape <end = 1> (x) "
LOOP = YES + "count = Squeeze (n) "
ROW = "d = Identity (c) r = Gather <axis = 0> (x, i) "


def loop(body: str, initial: str = "e = SequenceEmpty ()", of: str = "s") -> str:
    """A loop over the rows of x with one state, a sequence: `had`, then `has`."""
    return (
        f"{LOOP} {initial} {of} = Loop (count, yes, e) <body = b (int64 i, bool c, "
        f"seq(float) had) => (bool d, seq(float) has) {{ {ROW} {body} }}> "
    )


def appended(item: str = "r") -> str:
    return f"has = SequenceInsert (had, {item})"


def chosen(then: str, other: str) -> str:
    """A branch for rows whose sum is positive."""
    return (
        "sum = ReduceSum <keepdims = 0> (r) none = Constant <value_float = 0.0> () "
        "on = Greater (sum, none) has = If (on) <then_branch = t () => (seq(float) a) "
        f"{{ {then} }}, else_branch = f () => (seq(float) a2) {{ {other} }}> "
    )


# Rows 0 to i of x.
FRONT = (
    "one = Constant <value_ints = [1]> () zero = Constant <value_ints = [0]> () "
    "iv = Reshape (i, one) end = Add (iv, one) part = Slice (x, zero, end) "
)
AT = {at: f"k = Constant <value_int = {at}> () " for at in (-1, 0)}



def rows(body: str, item: str) -> str:
    """The initial sequence of a loop: what another loop makes."""
    return (
        "none = SequenceEmpty () e = Loop (count, yes, none) <body = b0 (int64 i, bool c, "
        f"seq(float) had) => (bool d, seq(float) has) {{ {ROW} {body} "
        f"has = SequenceInsert (had, {item}) }}>"
    )


STACKED = rows("two4 = Constant <value_ints = [2, 4]> () q = Expand (r, two4)", "q")
JOINED = "z = ConcatFromSequence <axis = 0> (s)"

# Name -> graph: input `x` [n, 4], one output `z`.
GRAPHS = {
    "stacked": loop(appended()) + "z = ConcatFromSequence <axis = 0, new_axis = 1> (s)",
    "stacked along the last axis":
        loop(appended()) + "z = ConcatFromSequence <axis = -1, new_axis = 1> (s)",
    "joined": loop(appended()) + "z = ConcatFromSequence <axis = 0> (s)",
    "matrices joined along each axis":
        loop("col = Constant <value_ints = [2, 2]> () m = Reshape (r, col) " + appended("m"))
        + "a = ConcatFromSequence <axis = 0> (s) b = ConcatFromSequence <axis = 1> (s) "
        "bt = Transpose <perm = [1, 0]> (b) z = Concat <axis = 1> (a, bt)",
    "two in each iteration":
        loop("q = Neg (r) h = SequenceInsert (had, r) has = SequenceInsert (h, q)")
        + "z = ConcatFromSequence <axis = 0, new_axis = 1> (s)",
    "behind others":
        loop(appended(), "w = ReduceMax <keepdims = 0> (x, ax) "
             "ax = Constant <value_ints = [0]> () e = SequenceConstruct (w, w)")
        .replace("w = ReduceMax <keepdims = 0> (x, ax) ax = Constant <value_ints = [0]> ()",
                 "ax = Constant <value_ints = [0]> () w = ReduceMax <keepdims = 0> (x, ax)")
        + "z = ConcatFromSequence <axis = 0, new_axis = 1> (s)",
    "of several lengths": loop(FRONT + appended("part"))
        + "z = ConcatFromSequence <axis = 0> (s)",
    "of several lengths, one picked": loop(FRONT + appended("part"))
        + AT[-1] + "p = SequenceAt (s, k) z = Concat <axis = 0> (p, x)",
    "the last one is read":
        loop(AT[-1] + "last = SequenceAt (had, k) y = Add (last, r) " + appended("y"),
             "first = Constant <value_floats = [1.0, 2.0, 3.0, 4.0]> () "
             "e = SequenceConstruct (first)")
        + "z = ConcatFromSequence <axis = 0, new_axis = 1> (s)",
    "its length is read":
        loop("len = SequenceLength (had) f = Cast <to = 1> (len) y = Mul (f, r) "
             + appended("y")) + "z = ConcatFromSequence <axis = 0, new_axis = 1> (s)",
    "inserted in front": loop(AT[0] + "has = SequenceInsert (had, r, k)")
        + "z = ConcatFromSequence <axis = 0, new_axis = 1> (s)",
    "a window of three":
        loop(AT[0] + "long = SequenceInsert (had, r) has = SequenceErase (long, k)",
             "w = Constant <value_floats = [1.0, 2.0, 3.0, 4.0]> () "
             "e = SequenceConstruct (w, w, w)")
        + "z = ConcatFromSequence <axis = 0, new_axis = 1> (s)",
    "some are added":
        loop(chosen("a = SequenceInsert (had, r)", "a2 = Identity (had)"),
             "w = Constant <value_floats = [1.0, 2.0, 3.0, 4.0]> () "
             "e = SequenceConstruct (w)")
        + "z = ConcatFromSequence <axis = 0, new_axis = 1> (s)",
    "one or two are added to nothing":
        loop(chosen("q = Neg (r) h = SequenceInsert (had, q) a = SequenceInsert (h, r)",
                    "a2 = SequenceInsert (had, r)"))
        + "z = ConcatFromSequence <axis = 0> (s)",
    "one of several lengths or x is added to nothing":
        loop(FRONT + chosen("a = SequenceInsert (had, part)", "a2 = SequenceInsert (had, x)"))
        + "z = ConcatFromSequence <axis = 0> (s)",
    "by a loop in a loop":
        loop("has = Loop (count, yes, had) <body = b2 (int64 j, bool c2, seq(float) in) => "
             "(bool d2, seq(float) out) { d2 = Identity (c2) v = Gather <axis = 0> (x, j) "
             "y = Sub (r, v) out = SequenceInsert (in, y) }>")
        + "z = ConcatFromSequence <axis = 0, new_axis = 1> (s)",
    "read backward by another loop":
        loop(appended()) + "len = SequenceLength (s) zero4 = Constant <value_floats = "
        "[0.0, 0.0, 0.0, 0.0]> () last = Constant <value_int = -1> () "
        "t, z = Loop (len, yes, zero4) <body = b3 (int64 j, bool c3, float[4] sum) => "
        "(bool d3, float[4] next, float[4] told) { d3 = Identity (c3) "
        "back = Sub (last, j) v = SequenceAt (s, back) half = Constant "
        "<value_float = 0.5> () part = Mul (sum, half) next = Add (part, v) "
        "told = Identity (next) }>",
    "split into rows of a run":
        YES + "s = SplitToSequence <axis = 0, keepdims = 0> (x) " + AT[-1]
        + "r = SequenceAt (s, k) z = Add (x, r)",
    "split along another axis, as it was":
        YES + "xt = Transpose <perm = [1, 0]> (x) s = SplitToSequence <axis = 1> (xt) "
        "z = ConcatFromSequence <axis = 0> (s)",
    "split into pairs and a rest":
        YES + "two = Constant <value_int = 2> () s = SplitToSequence (x, two) " + AT[-1]
        + "r = SequenceAt (s, k) z = Concat <axis = 0> (r, x)",
    "split into parts of an extent that a run tells, along another axis":
        YES + "xt = Transpose <perm = [1, 0]> (x) three = Constant <value_ints = [3]> () "
        "least = Min (n, three) size = Squeeze (least) s = SplitToSequence <axis = 1> "
        "(xt, size) " + AT[0] + "less = SequenceErase (s, k) first = SequenceAt (s, k) "
        "all = SequenceInsert (less, first) z = ConcatFromSequence <axis = 1> (all)",
    "split into parts of 0, 1, 2, ... rows and the rest":
        LOOP + "zero = Constant <value_int = 0> () one = Constant <value_int = 1> () "
        "half = Range (zero, count, one) two = Constant <value_ints = [2]> () "
        "few = Div (half, two) some = Cast <to = 6> (few) sum = ReduceSum <keepdims = 1> (few) "
        "most = Mul (n, n) rest = Sub (most, sum) last = Cast <to = 6> (rest) "
        "sizes = Concat <axis = 0> (some, last) one1 = Constant <value_ints = [1]> () "
        "tiles = Concat <axis = 0> (n, one1) tall = Tile (x, tiles) "
        "s = SplitToSequence (tall, sizes) " + AT[-1]
        + "r = SequenceAt (s, k) z = Concat <axis = 0> (r, x)",
    "rows repeated as often as a run tells, as torch writes repeat_interleave":
        LOOP + "zero = Constant <value_int = 0> () one = Constant <value_int = 1> () "
        "repeats = Range (zero, count, one) ones = ConstantOfShape "
        "<value = int64[1] {1}> (n) e = SequenceEmpty () xs = SplitToSequence (x, ones) "
        "rs = SplitToSequence (repeats, ones) s = Loop (count, yes, e) <body = b "
        "(int64 i, bool c, seq(float) had) => (bool d, seq(float) has) { "
        "d = Identity (c) row = SequenceAt (xs, i) times = SequenceAt (rs, i) "
        "four = Constant <value_ints = [4]> () dims = Concat <axis = 0> (times, four) "
        "q = Expand (row, dims) has = SequenceInsert (had, q) }> " + JOINED,
    "picked where a run says":
        YES + "a = Neg (x) b = Abs (x) s = SequenceConstruct (x, a, b) "
        "top = ReduceMax <keepdims = 0> (x) two = Constant <value_float = 2.0> () "
        "m = Mod <fmod = 1> (top, two) at = Cast <to = 7> (m) z = SequenceAt (s, at)",
    "joined behind stacked ones": loop(FRONT + appended("part"), STACKED) + JOINED,
    "stacked behind joined ones":
        loop("two4 = Constant <value_ints = [2, 4]> () q = Expand (r, two4) "
             + appended("q"), rows(FRONT, "part")) + JOINED,
    "joined along axis 1 behind stacked ones":
        loop(FRONT + "ct = Transpose <perm = [1, 0]> (part) " + appended("ct"),
             rows("one4 = Constant <value_ints = [4, 1]> () c1 = Reshape (r, one4) "
                  "two = Constant <value_ints = [4, 2]> () q = Expand (c1, two)", "q"))
        + "z = ConcatFromSequence <axis = 1> (s)",
    "joined behind x":
        loop(FRONT + appended("part"), "e = SequenceConstruct (x)") + JOINED,
    "of another shape than x":
        loop("two4 = Constant <value_ints = [2, 4]> () q = Expand (r, two4) "
             + appended("q"), "e = SequenceConstruct (x)") + JOINED,
    "of two shapes in each iteration":
        loop("d2 = Constant <value_ints = [2, 4]> () d3 = Constant <value_ints = [3, 4]> () "
             "q = Expand (r, d2) p = Expand (r, d3) h = SequenceInsert (had, q) "
             "has = SequenceInsert (h, p)") + JOINED,
    "of a size that the body tells, stacked":
        loop("nz = NonZero (r) fl = Cast <to = 1> (nz) " + appended("fl"))
        + "z = ConcatFromSequence <axis = 0, new_axis = 1> (s)",
    "of several lengths, the first taken out and put between":
        loop(FRONT + appended("part")) + AT[0] + "first = SequenceAt (s, k) "
        "less = SequenceErase (s, k) long = SequenceInsert (less, x) "
        "all = SequenceInsert (long, first, k) z = ConcatFromSequence <axis = 0> (all)",
    "joined or split by a condition":
        loop(FRONT + appended("part")) + "top = ReduceMax <keepdims = 0> (x) "
        "half = Constant <value_float = 0.5> () on = Greater (top, half) "
        "s3 = If (on) <then_branch = tb () => (seq(float) a) { a = Identity (s) }, "
        "else_branch = fb () => (seq(float) a2) { a2 = SplitToSequence <axis = 0> (x) }> "
        "z = ConcatFromSequence <axis = 0> (s3)",
    "of extents that follow from an input's":
        loop("q = Mul (tail, r) " + chosen("a = SequenceInsert (had, q)",
                                           "a2 = SequenceInsert (had, tail)"),
             "ax0 = Constant <value_ints = [0]> () minus = Constant <value_ints = [-2]> () "
             "far = Constant <value_ints = [99]> () tail = Slice (x, minus, far, ax0) "
             "e = SequenceEmpty ()") + JOINED,
    "chosen by a condition":
        YES + "top = ReduceMax <keepdims = 0> (x) two = Constant <value_float = 2.0> () "
        "on = Greater (top, two) q = Neg (x) s = If (on) <then_branch = t () => "
        "(seq(float) a) { a = SequenceConstruct (x, q) }, else_branch = f () => "
        "(seq(float) a2) { a2 = SequenceConstruct (q) }> "
        "z = ConcatFromSequence <axis = 0> (s)",
    "until a condition":
        YES + "e = SequenceEmpty () zero = Constant <value_int = 0> () "
        "none = Constant <value = int64 {9223372036854775807}> () most = Squeeze (n) "
        "k, s = Loop (none, yes, zero, e) <body = b (int64 i, bool c, int64 at, "
        "seq(float) had) => (bool d, int64 next, seq(float) has) { "
        "two = Constant <value_int = 2> () next = Add (at, two) d = Less (next, most) "
        "r = Gather <axis = 0> (x, at) has = SequenceInsert (had, r) }> "
        "z = ConcatFromSequence <axis = 0, new_axis = 1> (s)",
}  # fmt: skip


def model_of(graph: str) -> onnx.ModelProto:
    model = parser.parse_model(
        f"{HEAD} g (float[n, 4] x) => (float[] z) {{ {graph} }}"
    )
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


@pytest.mark.parametrize("name", sorted(GRAPHS))
def test_like_onnx_runtime(name: str) -> None:
    data = model_of(GRAPHS[name]).SerializeToString()
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    model = rabbet.compile(
        data, device="cpu", shapes={"x": ((1, 4), (3, 4), (9, 4))}, optimization_level=0
    )
    for rows in (4, 1, 9, 4):
        x = np.random.default_rng(rows).standard_normal((rows, 4), np.float32)
        found, expected = model(x), session.run(None, {"x": x})[0]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_loop_that_does_not_run_gives_an_empty_sequence() -> None:
    graph = loop(appended()) + "z = ConcatFromSequence <axis = 0, new_axis = 1> (s)"
    model = rabbet.compile(
        model_of(graph).SerializeToString(), device="cpu", optimization_level=0,
        shapes={"x": ((0, 4), (3, 4), (9, 4))},
    )  # fmt: skip
    assert model(np.zeros((0, 4), np.float32)).shape == (0, 4)


def test_an_output_is_the_stack_of_a_sequence() -> None:
    model = model_of(loop(appended()))
    model.graph.output[0].CopyFrom(
        onnx.helper.make_tensor_sequence_value_info("s", onnx.TensorProto.FLOAT, None)
    )
    run = rabbet.compile(
        model.SerializeToString(), device="cpu", optimization_level=0,
        shapes={"x": ((1, 4), (3, 4), (9, 4))},
    )  # fmt: skip
    x = np.random.default_rng(1).standard_normal((5, 4), np.float32)
    assert [one.name for one in run.outputs] == ["s"]
    np.testing.assert_array_equal(run(x), x)


def test_extents_that_share_their_parts() -> None:
    """Each of 60 extents is in the next one twice, where a walk would take 2^60 steps."""
    body = (
        "one = Constant <value_ints = [1]> () two = Constant <value_ints = [2]> () "
        "nine = Constant <value_ints = [9]> () four = Constant <value_ints = [4]> () "
        "h0 = Shape <start = 0, end = 1> (x) value = Constant <value_float = 1.0> () "
    )
    for i in range(60):
        body += f"p{i} = Div (h{i}, two) q{i} = Sub (nine, h{i}) h{i + 1} = Max (p{i}, q{i}) "
    body += "h = Min (h60, one) dims = Concat <axis = 0> (h, four) part = Expand (value, dims) "
    graph = loop(body + appended("part")) + "z = ConcatFromSequence <axis = 0> (s)"
    model = rabbet.compile(
        model_of(graph).SerializeToString(), device="cpu", optimization_level=0,
        shapes={"x": ((1, 4), (3, 4), (9, 4))},
    )  # fmt: skip
    np.testing.assert_array_equal(model(np.zeros((5, 4), np.float32)), np.ones((5, 4)))


WRONG = {
    loop(AT[-1] + "last = SequenceAt (had, k) y = Add (last, r) " + appended("y")):
        "it reads a sequence that the loop begins empty, before anything is inserted",
    YES + "none = Constant <value_int = 0> () s = SplitToSequence (x, none) "
    "z = ConcatFromSequence <axis = 0> (s)":
        r"input 1 \('split'\) is 0; expected a positive number",
}  # fmt: skip


@pytest.mark.parametrize("graph", sorted(WRONG))
def test_what_is_wrong(graph: str) -> None:
    with pytest.raises(rabbet.Error, match=WRONG[graph]):
        rabbet.compile(
            model_of(graph).SerializeToString(), device="cpu", optimization_level=0,
            shapes={"x": ((1, 4), (3, 4), (9, 4))},
        )  # fmt: skip


def test_parts_that_are_not_all_of_an_axis_fail_the_run() -> None:
    sizes = "sizes = ConstantOfShape <value = int64[1] {2}> (n) "
    for split, of in ((sizes, "sizes"), (sizes.replace("{2}", "{1}"), "tail")):
        tail = "far = Constant <value_ints = [9]> () one = Constant <value_ints = [1]> () "
        tail += "tail = Slice (sizes, one, far) "
        graph = f"{YES} {split} {tail} s = SplitToSequence (x, {of}) {JOINED}"
        model = rabbet.compile(
            model_of(graph).SerializeToString(), device="cpu", optimization_level=0,
            shapes={"x": ((1, 4), (3, 4), (9, 4))},
        )  # fmt: skip
        with pytest.raises(rabbet.Error, match="the sizes of a split add up to the extent"):
            model(np.zeros((3, 4), np.float32))


def test_tensors_of_several_shapes_are_not_stacked() -> None:
    graph = loop(FRONT + appended("part")) + "z = ConcatFromSequence <axis = 1> (s)"
    model = rabbet.compile(
        model_of(graph).SerializeToString(), device="cpu", optimization_level=0,
        shapes={"x": ((1, 4), (3, 4), (9, 4))},
    )  # fmt: skip
    x = np.random.default_rng(1).standard_normal((3, 4), np.float32)
    np.testing.assert_array_equal(model(x[:1]), x[:1])
    with pytest.raises(rabbet.Error, match="of a sequence that are stacked have one shape"):
        model(x)


@pytest.mark.parametrize(("node", "wanted"), [
    ("Concat <axis = 1>", r"'x' \(3, 4\), 'y' \(2, 4\): layer 'Concat_0' \(concatenation\)"),
    ("Add", r"dimension 0 of 'z', of step 'Add_0', has no value: broadcast\(n, m\), of 3 and 2,"),
])  # fmt: skip
def test_shapes_that_do_not_fit_name_layer_and_tensors(node: str, wanted: str) -> None:
    model = model_of(f"z = {node} (x, y)")
    model.graph.input.append(
        onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["m", 4])
    )
    run = rabbet.compile(
        model.SerializeToString(), device="cpu", optimization_level=0,
        shapes=dict.fromkeys("xy", ((1, 4), (3, 4), (9, 4))),
    )  # fmt: skip
    with pytest.raises(rabbet.OutOfRangeError, match=wanted):
        run(np.zeros((3, 4), np.float32), np.zeros((2, 4), np.float32))


def test_a_bias_that_does_not_fit_is_named() -> None:
    """Though the importer gives it an axis, in a tensor of another name."""
    model = parser.parse_model(
        f"{HEAD} g (float[2, 4] x, float[n] bias) => (float[2, m] z) "
        "<float[4, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}> "
        "{ z = Gemm (x, w, bias) }"
    )
    run = rabbet.compile(
        model.SerializeToString(), device="cpu", optimization_level=0,
        shapes={"bias": ((1,), (3,), (9,))},
    )  # fmt: skip
    x = np.ones((2, 4), np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for n in (3, 1):
        bias = np.ones(n, np.float32)
        wanted = session.run(None, {"x": x, "bias": bias})[0]
        np.testing.assert_allclose(run(x, bias), wanted)
    with pytest.raises(rabbet.OutOfRangeError, match=r"\(1, 4\) made of 'bias' \(4,\)"):
        run(x, np.ones(4, np.float32))
