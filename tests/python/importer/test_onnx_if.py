"""ONNX If whose condition only a run tells, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
import rabbet as trt
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
node = helper.make_node


def value(name: str, dtype: int = FLOAT, shape: Any = None) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def graph(nodes: Any, outputs: Any, constants: Any = None) -> Any:
    """A branch."""
    tensors = [numpy_helper.from_array(v, n) for n, v in (constants or {}).items()]
    return helper.make_graph(nodes, "branch", [], outputs, tensors)


def model_of(nodes: Any, inputs: Any, outputs: Any, constants: dict[str, Any]) -> bytes:
    tensors = [numpy_helper.from_array(v, n) for n, v in constants.items()]
    whole = helper.make_graph(nodes, "g", inputs, outputs, tensors)
    model = helper.make_model(
        whole, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    return bytes(model.SerializeToString())


def check(
    nodes: Any, inputs: Any, outputs: Any, runs: Any, shapes: Any, constants: Any
) -> None:
    """Compares runs of the model with ONNX Runtime's."""
    data = model_of(nodes, inputs, outputs, constants)
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    ours = trt.compile(data, device="cpu", shapes=shapes)
    for feed in runs:
        wanted = session.run(None, feed)
        got = ours(**feed)
        got = got if isinstance(got, tuple) else (got,)
        for a, b in zip(got, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def random(*shape: int) -> Any:
    return np.abs(np.random.default_rng(1).standard_normal(shape)).astype(np.float32)


LARGE = [
    node("ReduceSum", ["x"], ["sum"], keepdims=0),
    node("Greater", ["sum", "zero"], ["large"]),
]
ZERO = {"zero": np.float32(0).reshape(())}


def test_if() -> None:
    """Names of both branches are the same; a weight in each; outer names are seen."""
    w = {"w": np.arange(9, dtype=np.float32).reshape(3, 3)}
    yes = graph(
        [node("MatMul", ["x", "w"], ["t"]), node("Add", ["t", "y"], ["r"])],
        [value("r")],
        w,
    )
    no = graph([node("Mul", ["x", "w"], ["t"]), node("Neg", ["t"], ["r"])], [value("r")],
               {"w": np.float32([[1, 2, 3]])})  # fmt: skip
    nodes = [*LARGE, node("If", ["large"], ["z"], then_branch=yes, else_branch=no)]
    x, y = random(4, 3), random(4, 3)
    runs = [{"x": a * x, "y": y} for a in (np.float32(1), np.float32(-1))]
    inputs = [value("x", shape=("n", 3)), value("y", shape=("n", 3))]
    shapes = {n: [(1, 3), (4, 3), (8, 3)] for n in "xy"}
    check(nodes, inputs, [value("z")], runs, shapes, ZERO)


def test_extents_differ() -> None:
    no = graph(
        [node("Slice", ["x", "from", "to"], ["r"]), node("Identity", ["r"], ["s"])],
        [value("r"), value("s")],
        {"from": np.array([1]), "to": np.array([3])},
    )
    yes = graph(
        [node("Concat", ["x", "x"], ["r"], axis=0), node("Relu", ["x"], ["s"])],
        [value("r"), value("s")],
    )
    nodes = [
        *LARGE,
        node("If", ["large"], ["a", "b"], then_branch=yes, else_branch=no),
        node("Exp", ["a"], ["c"]),
        node("Shape", ["a"], ["d"]),
    ]
    runs = [{"x": np.float32(s) * random(n, 2)} for n in (4, 7) for s in (1, -1)]
    outputs = [value("a"), value("b"), value("c"), value("d", INT64)]
    check(
        nodes,
        [value("x", shape=("n", 2))],
        outputs,
        runs,
        {"x": [(3, 2), (4, 2), (7, 2)]},
        ZERO,
    )


def test_nested_and_constant() -> None:
    """A branch of constants only, and an If in a branch that reads outer names. The
    condition has an axis."""
    inner = [graph([node(op, ["x"], ["q"])], [value("q")]) for op in ("Exp", "Neg")]
    yes = graph(
        [
            node("ReduceSum", ["y"], ["total"], keepdims=0),
            node("Greater", ["total", "zero"], ["more"]),
            node("If", ["more"], ["p"], then_branch=inner[0], else_branch=inner[1]),
            node("Add", ["p", "y"], ["r"]),
        ],
        [value("r")],
    )
    no = graph([], [value("k")], {"k": np.float32([5, 6, 7])})
    nodes = [
        *LARGE,
        node("Reshape", ["large", "one"], ["condition"]),
        node("If", ["condition"], ["z"], then_branch=yes, else_branch=no),
    ]
    x, y = random(3), random(3)
    runs = [
        {"x": np.float32(a) * x, "y": np.float32(b) * y}
        for a in (1, -1)
        for b in (1, -1)
    ]
    inputs = [value("x", shape=(3,)), value("y", shape=(3,))]
    check(nodes, inputs, [value("z")], runs, None, {**ZERO, "one": np.array([1])})


BOUNDED = {
    "slice": [node("Slice", ["c", "one", "many"], ["r"])],
    "crop": [node("Pad", ["c", "crop"], ["r"])],
    "steps": [node("Slice", ["c", "zero_", "many", "zero_", "two"], ["r"])],
    "resize": [node("Resize", ["c", "", "scales"], ["r"], mode="nearest")],
    "less": [node("Sub", ["many", "rows"], ["n"])],
    "parts": [node("Div", ["rows", "two"], ["n"])],
    "rest": [node("Mod", ["rows", "two"], ["n"])],
    "minus": [node("Mul", ["rows", "minus"], ["m"]), node("Add", ["m", "many"], ["n"])],
    "larger": [node("Mul", ["rows", "rows"], ["m"]), node("Sub", ["m", "rows"], ["n"])],
}


@pytest.mark.parametrize("kind", BOUNDED)
def test_extents_from_chosen_extents(kind: str) -> None:
    """Outside of the branch nothing but a range tells how many rows `r` has."""
    constants = {"one": [1], "two": [2], "zero_": [0], "many": [100], "minus": [-3],
                 "crop": [-1, 0, 0, 0]}  # fmt: skip
    steps = [
        node("Shape", ["c"], ["all"]),
        node("Slice", ["all", "zero_", "one"], ["rows"]),
        *BOUNDED[kind],
    ]
    if steps[-1].output[0] == "n":
        size = node("Concat", ["n", "two"], ["size"], axis=0)
        steps += [size, node("Expand", ["row", "size"], ["r"])]
    copies = [graph([node("Identity", [n], ["k"])], [value("k")]) for n in ("x", "y")]
    choice = node("If", ["large"], ["c"], then_branch=copies[0], else_branch=copies[1])
    yes = graph([choice, *steps], [value("r")])
    nodes = [
        *LARGE,
        node("ReduceSum", ["y"], ["total"], keepdims=0),
        node("Greater", ["total", "zero"], ["more"]),
        node("If", ["more"], ["z"], then_branch=yes, else_branch=copies[1]),
        node("Neg", ["z"], ["w"]),
    ]
    runs = [
        {"x": np.float32(a) * random(n, 2), "y": np.float32(b) * random(m, 2)}
        for a, b, n, m in ((1, 1, 7, 3), (-1, 1, 7, 3), (1, 1, 2, 9), (1, -1, 9, 9))
    ]
    inputs = [value("x", shape=("n", 2)), value("y", shape=("m", 2))]
    shapes = {name: [(1, 2), (4, 2), (9, 2)] for name in "xy"}
    whole = {name: np.array(numbers) for name, numbers in constants.items()}
    whole |= {**ZERO, "scales": np.float32([0.5, 1]), "row": np.float32([[1, 2]])}
    check(nodes, inputs, [value("z"), value("w")], runs, shapes, whole)


def check_ranks(data: bytes, shapes: Any, right: Any, wrong: Any, message: str) -> None:
    """ONNX Runtime gives both ranks, runs here one of them."""
    session = onnxruntime.InferenceSession(data)
    model = trt.compile(data, device="cpu", shapes=shapes)
    for given in (right, wrong, right):
        x = np.float32(given)
        (expected,) = session.run(None, {"x": x})
        if given is wrong:
            with pytest.raises(trt.Error, match=message):
                model.run({"x": x})
        else:
            (found,) = model.run({"x": x}).values()
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("swapped", [False, True])
def test_of_two_ranks_the_lower_is_imported(swapped: bool) -> None:
    whole = graph([node("Identity", ["x"], ["r"])], [value("r")])
    total = graph([node("ReduceSum", ["x"], ["r"], keepdims=0)], [value("r")])
    yes, no = (total, whole) if swapped else (whole, total)
    last = node("If", ["large"], ["z"], name="choice", then_branch=yes, else_branch=no)
    data = model_of([*LARGE, last], [value("x", shape=(3,))], [value("z")], ZERO)
    up, down = [3, 1, 2], [-3, -1, -2]
    right, wrong = (up, down) if swapped else (down, up)
    word = "false" if swapped else "true"
    message = (
        f"node 'choice' .If. is {word}, so its result has rank 1; rank 0 was imported"
    )
    check_ranks(data, None, right, wrong, message)


@pytest.mark.parametrize("usual", [1, 3])
def test_squeeze_of_an_extent_that_varies_as_torch_exports_it(usual: int) -> None:
    """The rank of the usual extents is imported."""
    yes = graph([node("Squeeze", ["x", "one"], ["r"])], [value("r")])
    no = graph([node("Identity", ["x"], ["r"])], [value("r")])
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "one"], ["extent"]),
        node("Equal", ["extent", "one"], ["is_one"]),
        node("If", ["is_one"], ["s"], name="squeeze", then_branch=yes, else_branch=no),
        node("Relu", ["s"], ["z"]),
    ]
    inputs = [value("x", shape=(2, "k", 2))]
    data = model_of(nodes, inputs, [value("z")], {"one": np.int64([1])})
    shapes = {"x": ((2, 1, 2), (2, usual, 2), (2, 3, 2))}
    right, wrong = np.arange(4).reshape(2, 1, 2) - 1, np.ones((2, 3, 2))
    message = "is false, so its result has rank 3; rank 2"
    if usual == 3:
        right, wrong = wrong, right
        message = "is true, so its result has rank 2; rank 3"
    check_ranks(data, shapes, right, wrong, message)


def test_two_ranks_in_a_branch() -> None:
    """A run that does not take the outer branch does not look at the inner condition."""
    inner = node(
        "If", ["big"], ["q"], name="inner",
        then_branch=graph([node("Identity", ["x"], ["a"])], [value("a")]),
        else_branch=graph([node("Unsqueeze", ["x", "axis"], ["a"])], [value("a")]),
    )  # fmt: skip
    steps = [
        node("Greater", ["x", "ten"], ["all"]),
        node("Slice", ["all", "axis", "one"], ["big"]),
    ]
    yes = graph([*steps, inner, node("Relu", ["q"], ["r"])], [value("r")])
    no = graph([node("Neg", ["x"], ["r"])], [value("r")])
    nodes = [*LARGE, node("If", ["large"], ["z"], then_branch=yes, else_branch=no)]
    constants = {
        **ZERO,
        "ten": np.float32(10),
        "axis": np.int64([0]),
        "one": np.int64([1]),
    }
    data = model_of(nodes, [value("x", shape=("n",))], [value("z")], constants)
    shapes = {"x": ((1,), (3,), (9,))}
    message = "inner' .If. is false, so its result has rank 2; rank 1"
    check_ranks(data, shapes, [20, 1, 3], [2, 1], message)
    check_ranks(data, shapes, [-20, -2], [2, 1], message)


def test_ranks_that_are_lower_in_either_branch_are_refused() -> None:
    flat = [node("ReduceSum", ["x"], ["a"], keepdims=0), node("Identity", ["x"], ["b"])]
    wide = [node("Identity", ["x"], ["a"]), node("ReduceSum", ["x"], ["b"], keepdims=0)]
    yes, no = (graph(steps, [value("a"), value("b")]) for steps in (flat, wide))
    last = node(
        "If", ["large"], ["y", "z"], name="choice", then_branch=yes, else_branch=no
    )
    data = model_of(
        [*LARGE, last], [value("x", shape=(3,))], [value("y"), value("z")], ZERO
    )
    with pytest.raises(trt.Error, match=r"choice.*of another the else_branch.*'large'"):
        trt.compile(data, device="cpu")


def test_flags_that_are_scalars_in_one_branch() -> None:
    """`a and b` of conditions as torch exports it: b has one element, False has no axis."""
    flag = TensorProto.BOOL
    first = [
        node("Slice", ["x", "start", "end"], ["part"]),
        node("Greater", ["part", "zero"], ["r"]),
    ]
    both = node(
        "If", ["large"], ["both"], then_branch=graph(first, [value("r", flag)]),
        else_branch=graph(
            [node("Identity", ["never"], ["r"])], [value("r", flag, ())],
            {"never": np.array(False)}),
    )  # fmt: skip
    chosen = node(
        "If", ["both"], ["y"], then_branch=graph([node("Neg", ["x"], ["t"])], [value("t")]),
        else_branch=graph([node("Abs", ["x"], ["t"])], [value("t")]),
    )  # fmt: skip
    runs = [{"x": np.float32(x)} for x in ([3, -1], [-1, 3], [-2, 1], [-1, 4, -1])]
    constants = {**ZERO, "start": np.int64([0]), "end": np.int64([1])}
    shapes = {"x": ((1,), (2,), (4,))}
    inputs, outputs = [value("x", shape=["n"])], [value("y")]
    check([*LARGE, both, chosen], inputs, outputs, runs, shapes, constants)


def test_a_zero_that_is_not_used_takes_the_other_rank() -> None:
    """torch exports the values of a script's `continue` as zeros without axes."""
    yes = graph(
        [node("Neg", ["x"], ["a"]), node("Identity", ["on"], ["b"])],
        [value("a"), value("b", TensorProto.BOOL)], {"on": np.array(True)},
    )  # fmt: skip
    no = graph(
        [node("Identity", ["nil"], ["a"]), node("Identity", ["off"], ["b"])],
        [value("a"), value("b", TensorProto.BOOL)],
        {"nil": np.float32(0), "off": np.array(False)},
    )  # fmt: skip
    first = node("If", ["large"], ["a", "use"], then_branch=yes, else_branch=no)
    last = node(
        "If", ["use"], ["y"], then_branch=graph([node("Exp", ["a"], ["t"])], [value("t")]),
        else_branch=graph([node("Abs", ["x"], ["t"])], [value("t")]),
    )  # fmt: skip
    runs = [{"x": np.float32(x)} for x in ([3, -1], [-1, -3], [-2, 1, 5])]
    inputs, shapes = [value("x", shape=["n"])], {"x": ((1,), (2,), (4,))}
    check([*LARGE, first, last], inputs, [value("y")], runs, shapes, ZERO)
