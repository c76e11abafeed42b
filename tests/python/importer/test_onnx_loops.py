"""ONNX Loop and Scan against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
import rabbet
from onnx import helper, numpy_helper

from tests.python.support.plugins import random

FLOAT, INT64, BOOL = 1, 7, 9


def info(name: str, dtype: int = FLOAT, shape: Any = None) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def constant(name: str, value: Any, dtype: Any = np.float32) -> Any:
    return numpy_helper.from_array(np.asarray(value, dtype), name)


def model_of(nodes: Any, inputs: Any, outputs: Any, weights: Any = ()) -> Any:
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(weights))
    opsets = [helper.make_opsetid("", 19)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def compare(model: Any, *values: Any) -> None:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    feed = dict(zip((i.name for i in session.get_inputs()), values, strict=True))
    found = rabbet.compile(model, device="cpu", threads=1, optimization_level=1)(
        *values
    )
    found = found if isinstance(found, tuple) else (found,)
    for ours, wanted in zip(found, session.run(None, feed), strict=True):
        assert ours.shape == wanted.shape
        assert ours.dtype == wanted.dtype
        np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=1e-5)


def loop(body: Any, inputs: Any, outputs: Any) -> Any:
    return helper.make_node("Loop", inputs, outputs, name="steps", body=body)


def product_body(extra: Any = (), condition: str = "c") -> Any:
    """state @ W, W of the graph around; the number of the iteration is added."""
    nodes = [
        helper.make_node("MatMul", ["state", "W"], ["product"]),
        helper.make_node("Cast", ["i"], ["number"], to=FLOAT),
        helper.make_node("Add", ["product", "number"], ["moved"]),
        helper.make_node("Tanh", ["moved"], ["next"]),
        helper.make_node("ReduceMax", ["next"], ["most"], keepdims=0),
        *extra,
    ]
    inputs = [info("i", INT64, []), info("c", BOOL, []), info("state")]
    outputs = [info(condition, BOOL, []), info("next"), info("most"), info("moved")]
    return helper.make_graph(nodes, "body", inputs, outputs)


def test_counted_loop() -> None:
    nodes = [loop(product_body(condition="c"), ["m", "", "x"], ["y", "ms", "zs"])]
    # A condition that is handed on is that of the node; none is true.
    nodes[0].attribute[0].g.node.append(helper.make_node("Identity", ["c"], ["d"]))
    nodes[0].attribute[0].g.output[0].name = "d"
    weights = [constant("m", 4, np.int64), constant("W", random(3, 3))]
    outputs = [info("y"), info("ms"), info("zs")]
    compare(model_of(nodes, [info("x", FLOAT, [2, 3])], outputs, weights), random(2, 3))


def test_condition_of_the_iteration_number() -> None:
    extra = [
        helper.make_node("Constant", [], ["limit"], value_int=2),
        helper.make_node("Less", ["i", "limit"], ["on"]),
    ]
    nodes = [loop(product_body(extra, "on"), ["", "t", "x"], ["y", "ms", "zs"])]
    weights = [constant("t", True, np.bool_), constant("W", random(3, 3))]
    outputs = [info("y"), info("ms"), info("zs")]
    compare(model_of(nodes, [info("x", FLOAT, [2, 3])], outputs, weights), random(2, 3))


def test_iteration_number_of_one_element() -> None:
    """Torch's exporter takes slices from there on, which are no scalars."""
    nodes = [
        helper.make_node("Add", ["i", "one"], ["end"]),
        helper.make_node("Slice", ["x", "i", "end", "axes"], ["part"]),
        helper.make_node("Identity", ["c"], ["again"]),
    ]
    weights = [constant("one", [1], np.int64), constant("axes", [1], np.int64)]
    body = helper.make_graph(
        nodes,
        "body",
        [info("i", INT64, [1]), info("c", BOOL, [])],
        [info("again", BOOL, []), info("part")],
        weights,
    )
    model = model_of(
        [loop(body, ["count", ""], ["parts"])],
        [info("x", shape=[2, 5])],
        [info("parts", shape=None)],
        [constant("count", [3], np.int64)],
    )
    compare(model, random(2, 5))


def test_states_may_grow() -> None:
    body = helper.make_graph(
        [
            helper.make_node("Concat", ["state", "x"], ["next"], axis=0),
            helper.make_node("Identity", ["c"], ["on"]),
        ],
        "body",
        [info("i", INT64, []), info("c", BOOL, []), info("state")],
        [info("on", BOOL, []), info("next")],
    )
    nodes = [loop(body, ["m", "t", "x"], ["y"])]
    weights = [constant("m", 3, np.int64), constant("t", True, np.bool_)]
    x = [info("x", FLOAT, [2, 3])]
    compare(model_of(nodes, x, [info("y", FLOAT, [None, 3])], weights), random(2, 3))


def test_loop_in_a_loop() -> None:
    inner = helper.make_graph(
        [
            helper.make_node("Mul", ["s", "outer"], ["t"]),
            helper.make_node("Identity", ["ic"], ["ion"]),
        ],
        "inner",
        [info("j", INT64, []), info("ic", BOOL, []), info("s")],
        [info("ion", BOOL, []), info("t")],
    )
    # Its count is the outer iteration's number.
    nested = helper.make_node("Loop", ["i", "", "state"], ["next"], body=inner)
    body = helper.make_graph(
        [
            helper.make_node("Add", ["state", "half"], ["outer"]),
            nested,
            helper.make_node("Identity", ["c"], ["on"]),
        ],
        "body",
        [info("i", INT64, []), info("c", BOOL, []), info("state")],
        [info("on", BOOL, []), info("next"), info("outer")],
        [constant("half", 0.5)],
    )
    nodes = [loop(body, ["m", "", "x"], ["y", "z"])]
    model = model_of(
        nodes,
        [info("x", FLOAT, [4])],
        [info("y"), info("z")],
        [constant("m", 4, np.int64)],
    )
    compare(model, random(4))


def test_no_iteration() -> None:
    body = product_body()
    shapes = (("next", [2, 3]), ("most", []), ("moved", [2, 3]))
    for i, (name, shape) in enumerate(shapes, 1):
        body.output[i].CopyFrom(info(name, FLOAT, shape))
    body.node.append(helper.make_node("Identity", ["c"], ["d"]))
    body.output[0].name = "d"
    nodes = [
        loop(body, ["m", "", "x"], ["y", "ms", "zs"]),
        helper.make_node("Shape", ["zs"], ["extents"]),
    ]
    weights = [constant("m", 0, np.int64), constant("W", random(3, 3))]
    outputs = [info("y"), info("ms"), info("extents", INT64)]
    compare(model_of(nodes, [info("x", FLOAT, [2, 3])], outputs, weights), random(2, 3))


@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("axis", [0, 1])
def test_scan(reverse: int, axis: int) -> None:
    """Two states, two scanned tensors, two stacks."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["s", "a"], ["s2"]),
            helper.make_node("Mul", ["p", "b"], ["p2"]),
            helper.make_node("Sub", ["s2", "p2"], ["d"]),
            helper.make_node("Identity", ["s2"], ["e"]),
        ],
        "body",
        [info(n, FLOAT, [4]) for n in ("s", "p", "a", "b")],
        [info(n, FLOAT, [4]) for n in ("s2", "p2", "d", "e")],
    )
    node = helper.make_node(
        "Scan",
        ["x", "y", "z", "w"],
        ["s", "p", "ds", "es"],
        body=body,
        num_scan_inputs=2,
        scan_input_axes=[axis, 1],
        scan_input_directions=[reverse, 1 - reverse],
        scan_output_axes=[1, 0],
        scan_output_directions=[1 - reverse, reverse],
    )
    shape = [3, 4] if axis == 0 else [4, 3]
    inputs = [info("x", FLOAT, [4]), info("y", FLOAT, [4])]
    inputs += [info("z", FLOAT, shape), info("w", FLOAT, [4, 3])]
    model = model_of([node], inputs, [info(n) for n in ("s", "p", "ds", "es")])
    compare(
        model,
        random(4),
        random(4, seed=1),
        random(*shape, seed=2),
        random(4, 3, seed=3),
    )


def test_weights_of_a_body_are_in_a_plan_once() -> None:
    body = product_body()
    body.node.append(helper.make_node("Identity", ["c"], ["d"]))
    body.output[0].name = "d"
    body.initializer.append(constant("W", random(256, 256)))
    sizes = []
    for trips in (1, 5):
        nodes = [loop(body, ["m", "", "x"], ["y", "ms", "zs"])]
        model = model_of(
            nodes,
            [info("x", FLOAT, [2, 256])],
            [info("y")],
            [constant("m", trips, np.int64)],
        )
        built = rabbet.compile(model, device="cpu", threads=1, optimization_level=0)
        sizes.append(len(memoryview(built.engine.serialize())))
    assert sizes[1] - sizes[0] < 100_000


# ---- Mistakes


def failure(model: Any) -> str:
    with pytest.raises(rabbet.Error) as caught:
        rabbet.compile(model, device="cpu", optimization_level=0)
    return str(caught.value)


def test_errors_tell_the_iteration() -> None:
    body = product_body()
    body.node.append(helper.make_node("Identity", ["c"], ["d"]))
    body.node.append(helper.make_node("Concat", ["next", "x"], ["grown"], axis=1))
    body.output[0].name, body.output[1].name = "d", "grown"
    nodes = [loop(body, ["m", "", "x"], ["y", "ms", "zs"])]
    weights = [constant("m", 4, np.int64), constant("W", random(3, 3))]
    text = failure(model_of(nodes, [info("x", FLOAT, [2, 3])], [info("y")], weights))
    assert "'steps' (Loop" in text
    assert "iteration 1" in text
    assert "(MatMul" in text


def test_extents_of_scans_must_agree() -> None:
    body = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["c"])],
        "body",
        [info("a"), info("b")],
        [info("c")],
    )
    node = helper.make_node("Scan", ["x", "y"], ["z"], body=body, num_scan_inputs=2)
    inputs = [info("x", FLOAT, [3, 2]), info("y", FLOAT, [4, 2])]
    model = model_of([node], inputs, [info("z")])
    assert "scan input 'y' has 4 slices, but others have 3" in failure(model)


def test_endless_loops_are_refused() -> None:
    body = helper.make_graph(
        [],
        "body",
        [info("i", INT64, []), info("c", BOOL, []), info("state")],
        [info("c", BOOL, []), info("state")],
    )
    nodes = [loop(body, ["", "", "x"], ["y"])]
    text = failure(model_of(nodes, [info("x", FLOAT, [2])], [info("y")]))
    assert "'steps' (Loop" in text
    assert "always true: it would never end" in text


def scan_of_sequences(names: list[str], states: Any, slices: Any) -> Any:
    """A running sum, as opset 8 has it: input 0 tells lengths, axis 0 is the batch."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["s", "e"], ["t"]),
            helper.make_node("Identity", ["t"], ["o"]),
        ],
        "body",
        [info("s", FLOAT, [2]), info("e", FLOAT, [2])],
        [info("t", FLOAT, [2]), info("o", FLOAT, [2])],
    )
    node = helper.make_node("Scan", names, ["y", "z"], body=body, num_scan_inputs=1)
    inputs = [info("s", FLOAT, states), info("x", FLOAT, slices)]
    graph = helper.make_graph([node], "g", inputs, [info("y"), info("z")])
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=8
    )


def test_scan_of_sequences() -> None:
    model = scan_of_sequences(["", "s", "x"], [3, 2], [3, 4, 2])
    compare(model, random(3, 2), random(3, 4, 2, seed=1))


@pytest.mark.parametrize(("names", "states", "slices", "message"), [
    (["", "", "x"], [3, 2], [3, 4, 2], "input 1 is missing"),
    (["", "s", ""], [3, 2], [3, 4, 2], "input 2 is missing"),
    (["", "s", "x"], [2, 2], [3, 4, 2],
     "input 1 has shape (2, 2); expected a batch axis of 3 sequences"),
    (["", "s", "x"], [2**62, 2], [2**62, 4, 2], "RABBET_ONNX_MAX_NODES"),
])  # fmt: skip
def test_scans_of_sequences_that_are_wrong(
    names: list[str], states: Any, slices: Any, message: str
) -> None:
    assert message in failure(scan_of_sequences(names, states, slices))
