"""Scatters to constant places: those that are one part of an axis are concatenations."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import rabbet
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

DATA = (3, 6, 4)


def _elements(*places: int, rows: int = 3) -> Any:
    """Indices along axis 1, the same for all other places."""
    return np.tile(np.array(places)[None, :, None], (rows, 1, 4))


def _points(*places: int) -> Any:
    return np.array(places)[:, None]


def _box(first: range, second: range) -> Any:
    return np.stack(np.meshgrid(first, second, indexing="ij"), -1)


# Operator, indices, attributes; whether it stays a scatter.
CASES: dict[str, tuple[str, Any, dict[str, Any], bool]] = {
    "elements": ("ScatterElements", _elements(2, 3, 4), {"axis": 1}, False),
    "first elements": ("ScatterElements", _elements(0, 1), {"axis": -2}, False),
    "all elements": ("ScatterElements", _elements(*range(6)), {"axis": 1}, False),
    "from the end": ("ScatterElements", _elements(-2, -1), {"axis": 1}, False),
    "swapped": ("ScatterElements", _elements(3, 2), {"axis": 1}, True),
    "apart": ("ScatterElements", _elements(1, 3), {"axis": 1}, True),
    "twice": ("ScatterElements", _elements(2, 2), {"axis": 1}, True),
    "some rows": ("ScatterElements", _elements(2, 3, rows=2), {"axis": 1}, True),
    "added": (
        "ScatterElements", _elements(2, 3), {"axis": 1, "reduction": "add"}, True,
    ),
    "points": ("ScatterND", _points(1, 2), {}, False),
    "one point": ("ScatterND", _points(-1), {}, False),
    "other points": ("ScatterND", _points(2, 1), {}, True),
    "box": ("ScatterND", _box(range(3), range(2, 5)), {}, False),
    "whole box": ("ScatterND", _box(range(3), range(6)), {}, False),
    "inner box": ("ScatterND", _box(range(2), range(2, 5)), {}, True),
    "points added": ("ScatterND", _points(1, 2), {"reduction": "add"}, True),
}  # fmt: skip


def _updates(kind: str, indices: Any) -> tuple[int, ...]:
    if kind == "ScatterElements":
        return tuple(indices.shape)
    return (*indices.shape[:-1], *DATA[indices.shape[-1] :])


@pytest.mark.parametrize("name", CASES)
def test_scatter(name: str) -> None:
    kind, indices, attrs, stays = CASES[name]
    shape = _updates(kind, indices)
    given = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, DATA),
        helper.make_tensor_value_info("u", TensorProto.FLOAT, shape),
    ]
    graph = helper.make_graph(
        [
            helper.make_node(kind, ["x", "i", "u"], ["s"], **attrs),
            helper.make_node("Neg", ["s"], ["y"]),
        ], "scatter", given,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, DATA)],
        [numpy_helper.from_array(indices.astype(np.int64), "i")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    onnx.checker.check_model(model)
    rng = np.random.default_rng(0)
    inputs = {
        "x": rng.standard_normal(DATA, np.float32),
        "u": rng.standard_normal(shape, np.float32),
    }
    compiled = rabbet.compile(model, device="cpu", optimization_level=0)
    want = ReferenceEvaluator(model).run(None, inputs)[0]
    np.testing.assert_allclose(compiled(**inputs), want, rtol=1e-6)
    assert ("cpu.scatter" in str(compiled.report)) == stays
