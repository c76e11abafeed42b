"""ONNX Loop and Scan whose number of iterations only a run knows, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
import rabbet
from onnx import helper

from tests.python.importer.test_onnx_loops import (
    BOOL,
    FLOAT,
    INT64,
    constant,
    info,
    loop,
    model_of,
    product_body,
)
from tests.python.support.plugins import random


def compare_all(model: Any, runs: Any, **options: Any) -> None:
    """Each tuple of inputs in turn, in one context."""
    session = onnxruntime.InferenceSession(model.SerializeToString())
    options.setdefault("device", "cpu")
    compiled = rabbet.compile(model, threads=1, optimization_level=1, **options)
    for values in runs:
        feed = dict(zip((i.name for i in session.get_inputs()), values, strict=True))
        found = compiled(*values)
        found = found if isinstance(found, tuple) else (found,)
        for ours, wanted in zip(found, session.run(None, feed), strict=True):
            assert ours.shape == wanted.shape
            assert ours.dtype == wanted.dtype
            np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=1e-5)


def int64(value: Any) -> Any:
    return np.asarray(value, np.int64)


@pytest.mark.parametrize("condition", ["c", "on"])
def test_counts_that_are_inputs(condition: str) -> None:
    """With a condition that a body hands on, and with one that it computes."""
    extra = [
        helper.make_node("Constant", [], ["limit"], value_float=0.2),
        helper.make_node("ReduceMin", ["next"], ["least"], keepdims=0),
        helper.make_node("Less", ["least", "limit"], ["on"]),
    ]
    extra = extra if condition == "on" else [helper.make_node("Identity", ["c"], ["d"])]
    body = product_body(extra, "on" if condition == "on" else "d")
    nodes = [loop(body, ["m", "", "x"], ["y", "ms", "zs"])]
    inputs = [info("x", FLOAT, [2, 3]), info("m", INT64, [])]
    outputs = [info("y"), info("ms"), info("zs")]
    model = model_of(nodes, inputs, outputs, [constant("W", random(3, 3))])
    runs = [(random(2, 3), int64(m)) for m in (4, 1, 7, 4)]
    compare_all(model, runs)


@pytest.mark.parametrize("condition", ["c", "on"])
def test_negative_counts_are_of_no_iterations(condition: str) -> None:
    body = helper.make_graph(
        [
            helper.make_node("SequenceInsert", ["had", "x"], ["has"]),
            helper.make_node("Constant", [], ["limit"], value_int=9),
            helper.make_node("Less", ["i", "limit"], ["on"]),
            helper.make_node("Identity", ["c"], ["d"]),
            helper.make_node("Neg", ["x"], ["element"]),
        ],
        "body",
        [
            info("i", INT64, []),
            info("c", BOOL, []),
            helper.make_tensor_sequence_value_info("had", FLOAT, None),
        ],
        [
            info("on" if condition == "on" else "d", BOOL, []),
            helper.make_tensor_sequence_value_info("has", FLOAT, None),
            info("element", FLOAT, [2]),
        ],
    )
    nodes = [
        helper.make_node("SequenceEmpty", [], ["none"]),
        loop(body, ["m", "", "none"], ["s", "elements"]),
        helper.make_node("SequenceLength", ["s"], ["length"]),
        helper.make_node("SequenceInsert", ["s", "x"], ["longer"]),
        helper.make_node("SequenceAt", ["longer", "last"], ["y"]),
        helper.make_node("Concat", ["elements", "rows"], ["z"], axis=0),
    ]
    model = model_of(
        nodes,
        [info("x", FLOAT, [2]), info("m", INT64, [])],
        [info("length", INT64), info("y"), info("z")],
        [constant("last", -1, np.int64), constant("rows", random(1, 2))],
    )
    compare_all(model, [(random(2), int64(m)) for m in (3, -1, 0, -7, 2)])


def test_a_condition_that_is_an_input() -> None:
    extra = [
        helper.make_node("Constant", [], ["limit"], value_float=3.0),
        helper.make_node("Less", ["number", "limit"], ["on"]),
    ]
    nodes = [loop(product_body(extra, "on"), ["m", "t", "x"], ["y"])]
    nodes[0].attribute[0].g.output.pop()
    nodes[0].attribute[0].g.output.pop()
    inputs = [info("x", FLOAT, [2, 3]), info("m", INT64, [1]), info("t", BOOL, [])]
    model = model_of(nodes, inputs, [info("y")], [constant("W", random(3, 3))])
    compare_all(
        model,
        [
            (random(2, 3), int64([m]), np.asarray(t))
            for m in (2, 9)
            for t in (True, False)
        ],
    )


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_scans_of_a_dynamic_length(axis: int, reverse: int) -> None:
    body = helper.make_graph(
        [
            helper.make_node("Add", ["sum", "part"], ["next"]),
            helper.make_node("Tanh", ["next"], ["element"]),
        ],
        "body",
        [info("sum"), info("part")],
        [info("next"), info("element")],
    )
    scan = helper.make_node(
        "Scan",
        ["start", "x"],
        ["total", "elements"],
        body=body,
        num_scan_inputs=1,
        scan_input_axes=[axis],
        scan_input_directions=[reverse],
        scan_output_axes=[axis],
        scan_output_directions=[reverse],
    )
    shape: list[Any] = [3, 3]
    shape[axis] = "n"
    model = model_of(
        [scan],
        [info("x", FLOAT, shape)],
        [info("total"), info("elements")],
        [constant("start", np.zeros(3))],
    )
    extents = [(n, 3) if axis == 0 else (3, n) for n in (4, 1, 9)]
    least, most = extents[1], extents[2]
    compare_all(
        model,
        [(random(*e),) for e in extents],
        profiles=[{"x": (least, extents[0], most)}],
    )


def test_a_conditional_in_a_loop() -> None:
    """Both branches read the state, and one of them a tensor from outside of the loop."""
    yes = helper.make_graph(
        [helper.make_node("Add", ["state", "x"], ["yes"])], "yes", [], [info("yes")]
    )
    no = helper.make_graph(
        [helper.make_node("Neg", ["state"], ["no"])], "no", [], [info("no")]
    )
    body = helper.make_graph(
        [
            helper.make_node("ReduceSum", ["state"], ["sum"], keepdims=0),
            helper.make_node("Constant", [], ["zero"], value_float=0.0),
            helper.make_node("Less", ["sum", "zero"], ["small"]),
            helper.make_node(
                "If", ["small"], ["next"], then_branch=yes, else_branch=no
            ),
            helper.make_node("Identity", ["c"], ["d"]),
        ],
        "body",
        [info("i", INT64, []), info("c", BOOL, []), info("state", FLOAT, [4])],
        [info("d", BOOL, []), info("next", FLOAT, [4]), info("sum", FLOAT, [])],
    )
    model = model_of(
        [loop(body, ["m", "", "x"], ["y", "sums"])],
        [info("x", FLOAT, [4]), info("m", INT64, [])],
        [info("y"), info("sums")],
    )
    compare_all(model, [(random(4), int64(m)) for m in (5, 2, 1)])


def test_slices_by_the_iteration_number() -> None:
    body = helper.make_graph(
        [
            helper.make_node("Add", ["i", "one"], ["end"]),
            helper.make_node("Slice", ["x", "i", "end", "axes"], ["part"]),
            helper.make_node("Slice", ["x", "none", "end", "axes"], ["all"]),
            helper.make_node("ReduceSum", ["all", "axes"], ["sum"], keepdims=1),
            helper.make_node("Identity", ["c"], ["again"]),
        ],
        "body",
        [info("i", INT64, [1]), info("c", BOOL, [])],
        [info("again", BOOL, []), info("part"), info("sum")],
        [constant("one", [1], np.int64), constant("none", [0], np.int64)],
    )
    model = model_of(
        [loop(body, ["m", ""], ["parts", "sums"])],
        [info("x", shape=[2, 5]), info("m", INT64, [])],
        [info("parts"), info("sums")],
        [constant("axes", [1], np.int64)],
    )
    compare_all(model, [(random(2, 5), int64(m)) for m in (3, 5, 1)])


def test_states_that_grow() -> None:
    """Of a loop whose end only a run knows; and as many elements as iterations."""
    body = helper.make_graph(
        [
            helper.make_node("Concat", ["state", "x"], ["next"], axis=0),
            helper.make_node("ReduceSum", ["next"], ["sum"], keepdims=0),
            helper.make_node("Shape", ["next"], ["shape"]),
            helper.make_node("Less", ["sum", "most"], ["on"]),
        ],
        "body",
        [info("i", INT64, []), info("c", BOOL, []), info("state")],
        [info("on", BOOL, []), info("next"), info("sum"), info("shape", INT64)],
    )
    model = model_of(
        [
            loop(body, ["", "", "none"], ["y", "sums", "shapes"]),
            helper.make_node("Add", ["y", "x"], ["z"]),
        ],
        [info("x", FLOAT, [1, 3]), info("most", FLOAT, [])],
        [info("y"), info("sums"), info("shapes", INT64), info("z")],
        [constant("none", np.zeros((0, 3)))],
    )
    x = np.abs(random(1, 3))
    compare_all(model, [(x, np.asarray(m, np.float32)) for m in (9, 0, 30, 9)])


def test_states_that_grow_in_loops_that_may_not_run() -> None:
    body = helper.make_graph(
        [
            helper.make_node("Concat", ["state", "x"], ["next"], axis=1),
            helper.make_node("Identity", ["c"], ["on"]),
        ],
        "body",
        [info("i", INT64, []), info("c", BOOL, []), info("state")],
        [info("on", BOOL, []), info("next")],
    )
    for outputs in (["y"], ["rows"], ["y", "rows"]):
        model = model_of(
            [
                loop(body, ["m", "", "x"], ["y"]),
                helper.make_node("Unsqueeze", ["y", "axes"], ["rows"]),
            ],
            [info("x", FLOAT, [2, 2]), info("m", INT64, [])],
            [info(name) for name in outputs],
            [constant("axes", [1], np.int64)],
        )
        compare_all(model, [(random(2, 2), int64(m)) for m in (3, 0, 12, 1)])


@pytest.mark.parametrize("most", [0, 1, 3])
def test_loops_in_loops_without_names(most: int) -> None:
    """Nodes at the same place of both bodies, so that their made-up names are alike."""

    def nested(name: str, inner: list[Any], last: str) -> list[Any]:
        nodes = [
            *inner,
            helper.make_node("ReduceMean", [last], [f"{name}_mean"], keepdims=0),
            helper.make_node("Less", [f"{name}_mean", "limit"], [f"{name}_on"]),
        ]
        body = helper.make_graph(
            nodes,
            f"{name}_body",
            [
                info(f"{name}_i", INT64, []),
                info(f"{name}_c", BOOL, []),
                info(f"{name}_state", FLOAT, ["n", 2]),
            ],
            [info(f"{name}_on", BOOL, []), info(last, FLOAT, ["n", 2])],
        )
        state = "x" if name == "outer" else "outer_state"
        return [
            helper.make_node("Identity", ["most"], [f"{name}_most"]),
            helper.make_node("Loop", [f"{name}_most", "yes", state], [name], body=body),
        ]

    add = helper.make_node("Add", ["inner_state", "x"], ["inner_next"])
    inner = nested("inner", [add], "inner_next")
    copied = helper.make_node("Identity", ["inner"], ["outer_next"])
    model = model_of(
        nested("outer", [*inner, copied], "outer_next"),
        [info("x", FLOAT, ["n", 2])],
        [info("outer")],
        [
            constant("most", most, np.int64),
            constant("yes", True, np.bool_),
            constant("limit", 1.5, np.float32),
        ],
    )
    shapes = {"x": ((1, 2), (2, 2), (5, 2))}
    compare_all(model, [(np.abs(random(n, 2)),) for n in (2, 1, 5)], shapes=shapes)


def growing_loop(count: str, start: str, added: str, result: str) -> Any:
    """A state to which each iteration adds rows; the elements are sums."""
    body = helper.make_graph(
        [
            helper.make_node("Concat", [f"{result}_s", added], [f"{result}_n"], axis=0),
            helper.make_node("Identity", [f"{result}_c"], [f"{result}_d"]),
        ],
        "body",
        [
            info(f"{result}_i", INT64, []),
            info(f"{result}_c", BOOL, []),
            info(f"{result}_s"),
        ],
        [info(f"{result}_d", BOOL, []), info(f"{result}_n")],
    )
    return loop(body, [count, "", start], [result])


def conditional_of_loops() -> list[Any]:
    """y: rows of a loop in the one branch, x or its first row in the other."""
    yes = helper.make_graph(
        [growing_loop("m", "x", "x", "grown")], "yes", [], [info("grown")]
    )
    no = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["same"])], "no", [], [info("same")]
    )
    return [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Less", ["sum", "zero"], ["small"]),
        helper.make_node("If", ["small"], ["y"], then_branch=no, else_branch=yes),
    ]


@pytest.mark.parametrize("outputs", [["y"], ["z"], ["y", "z", "shape"]])
def test_loops_that_grow_in_branches(outputs: list[str]) -> None:
    """The size of what leaves the branch has no bound before the branch has run."""
    nodes = [
        *conditional_of_loops(),
        helper.make_node("Exp", ["y"], ["z"]),
        helper.make_node("Shape", ["y"], ["shape"]),
    ]
    model = model_of(
        nodes,
        [info("x", FLOAT, ["n", 2]), info("m", INT64, [])],
        [info(o, INT64 if o == "shape" else FLOAT) for o in outputs],
        [constant("zero", 0, np.float32)],
    )
    x = np.abs(random(3, 2))
    runs = [(s * x[:n], int64(m)) for s, n, m in
            [(1, 3, 4), (-1, 3, 4), (1, 2, 0), (1, 1, 30), (-1, 1, 2), (1, 3, 1)]]  # fmt: skip
    compare_all(model, runs, shapes={"x": ((1, 2), (2, 2), (3, 2))})


def test_loops_that_grow_in_branches_of_loops() -> None:
    """If in Loop in If: the outer loop carries what leaves the inner branch."""
    body = helper.make_graph(
        [*conditional_of_loops(), helper.make_node("Identity", ["c"], ["d"])],
        "body",
        [info("i", INT64, []), info("c", BOOL, []), info("x")],
        [info("d", BOOL, []), info("y")],
    )
    yes = helper.make_graph([loop(body, ["k", "", "v"], ["r"])], "yes", [], [info("r")])
    no = helper.make_graph([growing_loop("k", "v", "v", "g")], "no", [], [info("g")])
    model = model_of(
        [
            helper.make_node("Less", ["k", "two"], ["few"]),
            helper.make_node("If", ["few"], ["w"], then_branch=no, else_branch=yes),
            helper.make_node("ReduceMean", ["w"], ["mean"], keepdims=0),
        ],
        [info("v", FLOAT, [2, 2]), info("m", INT64, []), info("k", INT64, [])],
        [info("w"), info("mean")],
        [constant("zero", 0, np.float32), constant("two", 2, np.int64)],
    )
    v = np.abs(random(2, 2))
    runs = [(s * v, int64(m), int64(k)) for s, m, k in
            [(1, 1, 2), (1, 2, 3), (-1, 2, 2), (1, 2, 1), (1, 0, 0), (1, 1, 3)]]  # fmt: skip
    compare_all(model, runs)


def test_a_loop_that_reads_its_outer_loop_within_its_body_alone() -> None:
    """In a body with a loop between them, and in a branch that does not depend on the
    loop around it."""
    deep = helper.make_graph(
        [
            helper.make_node("Add", ["outer", "deep"], ["deeper"]),
            helper.make_node("Identity", ["dc"], ["dd"]),
        ],
        "deep",
        [info("di", INT64, []), info("dc", BOOL, []), info("deep", FLOAT, [2])],
        [info("dd", BOOL, []), info("deeper", FLOAT, [2])],
    )
    within = helper.make_graph(
        [loop(deep, ["m", "", "x"], ["sum"])], "a", [], [info("sum")]
    )
    without = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["less"])], "b", [], [info("less")]
    )
    body = helper.make_graph(
        [
            helper.make_node(
                "If", ["flag"], ["chosen"], then_branch=within, else_branch=without
            ),
            helper.make_node("Mul", ["chosen", "outer"], ["next"]),
            helper.make_node("Identity", ["c"], ["d"]),
        ],
        "body",
        [info("i", INT64, []), info("c", BOOL, []), info("outer", FLOAT, [2])],
        [info("d", BOOL, []), info("next", FLOAT, [2])],
    )
    model = model_of(
        [loop(body, ["m", "", "x"], ["y"])],
        [info("x", FLOAT, [2]), info("m", INT64, []), info("flag", BOOL, [])],
        [info("y")],
    )
    compare_all(
        model,
        [(random(2), int64(m), np.asarray(f)) for m in (3, 1) for f in (True, False)],
    )


@pytest.mark.parametrize("declared", [[None, 2], ["rows", 2]])
def test_elements_of_loops_that_never_run(declared: list[Any]) -> None:
    """Extents of which the body tells nothing are 0, as in ONNX Runtime."""
    body = helper.make_graph(
        [
            helper.make_node("Compress", ["x", "f"], ["element"], axis=0),
            helper.make_node("Identity", ["c"], ["d"]),
        ],
        "body",
        [info("i", INT64, []), info("c", BOOL, [])],
        [info("d", BOOL, []), info("element", FLOAT, declared)],
    )
    model = model_of(
        [loop(body, ["none", ""], ["y"])],
        [info("x", FLOAT, [2, 2]), info("f", BOOL, [2])],
        [info("y")],
        [constant("none", 0, np.int64)],
    )
    compare_all(model, [(random(2, 2), np.array([True, False]))])
