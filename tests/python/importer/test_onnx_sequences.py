"""Sequences of tensors and optional values, which exist while a model is imported.

The results are compared with ONNX Runtime.
"""

import numpy as np
import onnx
import onnxruntime
import pytest
import rabbet
from onnx import TensorProto, helper, parser

from tests.python.support.onnx_cases import compiled

HEAD = '<ir_version: 8, opset_import: ["" : 18]>\n'

# Name -> graph: inputs `x` [3, 4] and `y` [n, 4], one output `z`.
GRAPHS = {
    "construct and concatenate": """
        s = SequenceConstruct(x, y, x)
        z = ConcatFromSequence <axis = 0> (s)""",
    "stack along the last axis": """
        a = Relu(x)
        s = SequenceConstruct(x, a)
        z = ConcatFromSequence <axis = -1, new_axis = 1> (s)""",
    "empty, inserted at both ends": """
        zero = Constant <value_int = 0> ()
        e = SequenceEmpty()
        s = SequenceInsert(e, x)
        t = SequenceInsert(s, y, zero)
        z = ConcatFromSequence <axis = 0> (t)""",
    "inserted in front of the last": """
        last = Constant <value_int = -1> ()
        a = Abs(x)
        s = SequenceConstruct(x, y)
        t = SequenceInsert(s, a, last)
        z = ConcatFromSequence <axis = 0> (t)""",
    "erased": """
        at = Constant <value_int = -2> ()
        a = Abs(x)
        s = SequenceConstruct(x, a, y)
        t = SequenceErase(s, at)
        u = SequenceErase(t)
        z = ConcatFromSequence <axis = 0> (u)""",
    "picked from the end": """
        at = Constant <value_int = -1> ()
        s = SequenceConstruct(x, y)
        z = SequenceAt(s, at)""",
    "length": """
        s = SequenceConstruct(x, y)
        n = SequenceLength(s)
        f = Cast <to = 1> (n)
        z = Mul(y, f)""",
    "split into rows": """
        one = Constant <value_int = 1> ()
        s = SplitToSequence <axis = 0, keepdims = 0> (x)
        r = SequenceAt(s, one)
        z = Add(y, r)""",
    "split into chunks": """
        three = Constant <value_int = 3> ()
        one = Constant <value_int = 1> ()
        s = SplitToSequence <axis = 1> (x, three)
        z = SequenceAt(s, one)""",
    "split by sizes": """
        sizes = Constant <value_ints = [1, 3]> ()
        zero = Constant <value_int = 0> ()
        s = SplitToSequence <axis = -1> (y, sizes)
        z = SequenceAt(s, zero)""",
    "collected in a loop": """
        three = Constant <value_int = 3> ()
        yes = Constant <value = bool {1}> ()
        e = SequenceEmpty()
        s = Loop (three, yes, e) <body = b (int64 i, bool c, seq(float) had)
                                  => (bool d, seq(float) has) {
            d = Identity(c)
            r = Gather <axis = 0> (x, i)
            has = SequenceInsert(had, r)
        }>
        z = ConcatFromSequence <axis = 0, new_axis = 1> (s)""",
    "taken by one branch": """
        no = Constant <value = bool {0}> ()
        s = If (no) <then_branch = t () => (seq(float) a) {
            a = SequenceConstruct(x, y) },
            else_branch = e () => (seq(float) b) { b = SequenceConstruct(y, y) }>
        z = ConcatFromSequence <axis = 0> (s)""",
    "mapped": """
        s = SequenceConstruct(x, y)
        t = SequenceMap (s, x) <body = m (float[a, 4] one, float[b, 4] all)
                                => (float[c, 4] sum) {
            most = ReduceMax <axes = [0]> (all)
            sum = Sub(one, most)
        }>
        z = ConcatFromSequence <axis = 0> (t)""",
    "an optional value that is there": """
        o = Optional(y)
        h = OptionalHasElement(o)
        v = OptionalGetElement(o)
        z = If (h) <then_branch = t () => (float[k, 4] a) { a = Neg(v) },
                    else_branch = e () => (float[l, 4] b) { b = Identity(x) }>""",
}
# ONNX's own parser takes `axes` as an attribute of ReduceMax up to opset 17.
OLDER = {"mapped"}


def model_of(graph, older=False):
    text = HEAD.replace("18", "17") if older else HEAD
    text += f"g (float[3, 4] x, float[n, 4] y) => (float[] z) {{ {graph} }}"
    model = parser.parse_model(text)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


def expected_of(model, x, y):
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = {i.name for i in session.get_inputs()}
    given = {k: v for k, v in (("x", x), ("y", y)) if k in names}
    return session.run(None, given)[0]


@pytest.mark.parametrize("name", sorted(GRAPHS))
@pytest.mark.parametrize("rows", [0, 1, 5])
def test_like_onnx_runtime(name, rows):
    model = model_of(GRAPHS[name], name in OLDER)
    rng = np.random.default_rng(rows)
    x = rng.standard_normal((3, 4), np.float32)
    y = rng.standard_normal((rows, 4), np.float32)
    expected = expected_of(model, x, y)
    run = rabbet.compile(model.SerializeToString(), device="cpu",
                         shapes={"y": ((0, 4), (3, 4), (8, 4))},
                         optimization_level=0)
    np.testing.assert_allclose(run(x, y), expected, rtol=1e-6)


def test_tensors_of_a_sequence_are_outputs():
    s = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)
    model = model_of("s = SequenceConstruct(x, y)")
    del model.graph.output[:]
    model.graph.output.append(s)
    run = rabbet.compile(model.SerializeToString(), device="cpu",
                         shapes={"y": ((1, 4), (1, 4), (8, 4))})
    x, y = np.ones((3, 4), np.float32), np.zeros((2, 4), np.float32)
    found = run(x, y)
    assert [one.name for one in run.outputs] == ["s[0]", "s[1]"]
    for one, wanted in zip(found, (x, y), strict=True):
        np.testing.assert_array_equal(one, wanted)


WRONG = {
    "z = SequenceAt(x, y)": r"input 0 \('x'\) is a tensor; expected a sequence",
    "s = SequenceConstruct(x) z = Add(s, x)":
        r"Add.*input 0 \('s'\) is a sequence of tensors; expected a tensor",
    "s = SequenceConstruct(x) i = Constant <value_int = 1> () z = SequenceAt(s, i)":
        "position is 1; the sequence has 1 tensors",
    "s = SequenceEmpty() z = ConcatFromSequence <axis = 0> (s)":
        r"input 0 \('s'\) is an empty sequence",
    "s = SequenceEmpty <dtype = 7> () t = SequenceInsert(s, x) "
    "z = ConcatFromSequence <axis = 0> (t)":
        r"input 1 \('x'\) is FLOAT; expected INT64",
    "n = Constant <value_ints = [1, 1]> () s = SplitToSequence(x, n) "
    "z = ConcatFromSequence <axis = 0> (s)": "add up to 2; expected the extent of axis 0, 3",
    "o = Optional <type = float[3, 4]> () z = OptionalGetElement(o)":
        "an optional value without an element",
}


@pytest.mark.parametrize("graph", sorted(WRONG))
def test_what_is_wrong(graph):
    try:
        model = model_of(graph)
    except onnx.parser.ParseError:
        node = helper.make_node("Optional", [], ["o"], type=helper.make_tensor_type_proto(
            TensorProto.FLOAT, (3, 4)))
        model = model_of(graph.split("()")[1])
        model.graph.node.insert(0, node)
    with pytest.raises(rabbet.Error, match=WRONG[graph]):
        compiled(model, [])


def test_sequences_are_no_inputs():
    model = model_of("z = ConcatFromSequence <axis = 0> (s)")
    del model.graph.input[:]
    model.graph.input.append(
        helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, (3, 4)))
    with pytest.raises(rabbet.Error, match="sequences, maps and sparse tensors cannot be"):
        compiled(model, [])
