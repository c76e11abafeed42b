"""ONNX RNN, GRU and LSTM against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
import rabbet
from onnx import helper, numpy_helper

from tests.python.support.plugins import random

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
STEPS, BATCH, INPUT, HIDDEN = 5, 3, 4, 6


def info(name: str, shape: Any = None) -> Any:
    return helper.make_tensor_value_info(name, 1, shape)


def model_of(
    kind: str,
    *,
    states: bool = True,
    batch: Any = BATCH,
    lengths: Any = None,
    **attrs: Any,
) -> Any:
    directions = 2 if attrs.get("direction") == "bidirectional" else 1
    rows = GATES[kind] * HIDDEN
    shapes = {
        "W": (directions, rows, INPUT),
        "R": (directions, rows, HIDDEN),
        "B": (directions, 2 * rows),
        "h": (directions, BATCH, HIDDEN),
        "c": (directions, BATCH, HIDDEN),
        "P": (directions, 3 * HIDDEN),
    }
    names = ["x", "W", "R", "B", "lengths" if lengths is not None else ""]
    if states:
        names += ["h", "c", "P"][: 3 if kind == "LSTM" else 1]
    weights = [
        numpy_helper.from_array(random(*shapes[n], seed=i) / 2, n)
        for i, n in enumerate(names)
        if n in shapes
    ]
    if lengths is not None:
        weights.append(numpy_helper.from_array(np.array(lengths, np.int32), "lengths"))
    outputs = ["y", "yh", "yc"][: 3 if kind == "LSTM" else 2]
    node = helper.make_node(
        kind, names, outputs, hidden_size=HIDDEN, name="net", **attrs
    )
    graph = helper.make_graph(
        [node],
        "g",
        [info("x", [STEPS, batch, INPUT])],
        [info(o) for o in outputs],
        weights,
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8
    )


def compare(model: Any, **options: Any) -> None:
    x = random(STEPS, BATCH, INPUT, seed=9)
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    found = rabbet.compile(
        model, device="cpu", threads=1, optimization_level=1, **options
    )(x)
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", GATES)
def test_directions(kind: str, direction: str) -> None:
    compare(model_of(kind, direction=direction))


@pytest.mark.parametrize("kind", GATES)
def test_states_that_are_left_out(kind: str) -> None:
    compare(model_of(kind, states=False))


def test_dynamic_batches() -> None:
    shapes = {"x": [(STEPS, n, INPUT) for n in (1, BATCH, 7)]}
    compare(model_of("LSTM", states=False, batch="n"), shapes=shapes)


def test_linear_before_reset() -> None:
    compare(model_of("GRU", linear_before_reset=1))


def test_input_and_forget_gate_as_one() -> None:
    compare(model_of("LSTM", input_forget=1))


@pytest.mark.parametrize("kind", GATES)
def test_clipping_and_other_functions(kind: str) -> None:
    functions = ["HardSigmoid", "Relu", "Tanh"][: {"RNN": 1, "GRU": 2, "LSTM": 3}[kind]]
    compare(
        model_of(
            kind,
            activations=functions,
            activation_alpha=[0.3, 0.0, 0.0][: len(functions)],
            activation_beta=[0.4, 0.0, 0.0][: len(functions)],
            clip=0.7,
        )
    )


def test_lengths_of_all_steps() -> None:
    compare(model_of("GRU", lengths=[STEPS] * BATCH))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"lengths": [5, 3, 5]}, "sequence_lens has 3; sequences must be as long as"),
        ({"activations": ["Sin"]}, "activation 'Sin' is not known; expected Sigmoid"),
        (
            {"direction": "bidirectional", "wrong": True},
            r"R has shape \(1, 6, 6\); expected \(2",
        ),
        ({"steps": "n"}, "number of steps of X is not known.*fixed shapes"),
    ],
)
def test_mistakes(options: dict[str, Any], says: str) -> None:
    wrong, steps = options.pop("wrong", False), options.pop("steps", None)
    model = model_of("RNN", **({} if wrong else options))
    if wrong:
        model.graph.node[0].attribute.append(
            helper.make_attribute("direction", "bidirectional")
        )
    if steps:
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = steps
    with pytest.raises(rabbet.Error, match=says) as caught:
        rabbet.compile(model, device="cpu", optimization_level=0)
    assert "'net' (RNN" in str(caught.value)
