"""Reductions with element-wise layers: those that round do so within one kernel, too."""

from __future__ import annotations

import json

import numpy as np
import onnx
import onnx.helper as oh
import pytest
import rabbet
from onnx import TensorProto

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)


@pytest.mark.parametrize("kind", ["FLOAT8E4M3FN", "FLOAT16", "BFLOAT16"])
def test_numbers_are_rounded_to_a_type_that_only_the_chain_has(kind: str) -> None:
    nodes = [
        oh.make_node("Cast", ["x"], ["rounded"], to=getattr(TensorProto, kind)),
        oh.make_node("Cast", ["rounded"], ["again"], to=TensorProto.FLOAT),
        oh.make_node("ReduceSum", ["again", "axes"], ["y"], keepdims=0),
    ]
    graph = oh.make_graph(
        nodes, "chain",
        [oh.make_tensor_value_info("x", TensorProto.FLOAT, [4, 64])],
        [oh.make_tensor_value_info("y", TensorProto.FLOAT, [4])],
        [onnx.numpy_helper.from_array(np.array([1]), "axes")],
    )  # fmt: skip
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 19)], ir_version=9)
    x = np.full((4, 64), 1.06, np.float32)
    # 1.06 to 3, 10 and 7 bits of mantissa.
    rounded = {"FLOAT8E4M3FN": 1.0, "FLOAT16": 1.0595703125, "BFLOAT16": 1.0625}[kind]
    built = rabbet.compile(model.SerializeToString(), device="cuda", optimization_level=3)
    np.testing.assert_array_equal(np.asarray(built(x)), np.full(4, 64 * rounded, np.float32))


def test_conversions_that_change_no_number_are_in_the_kernel() -> None:
    nodes = [
        oh.make_node("Cast", ["x"], ["wide"], to=TensorProto.FLOAT),
        oh.make_node("ReduceL2", ["wide", "axes"], ["norm"], keepdims=0),
        oh.make_node("Cast", ["norm"], ["y"], to=TensorProto.FLOAT16),
    ]
    graph = oh.make_graph(
        nodes, "norm",
        [oh.make_tensor_value_info("x", TensorProto.FLOAT16, [4, 64])],
        [oh.make_tensor_value_info("y", TensorProto.FLOAT16, [4])],
        [onnx.numpy_helper.from_array(np.array([1]), "axes")],
    )  # fmt: skip
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 19)], ir_version=9)
    built = rabbet.compile(model.SerializeToString(), device="cuda", optimization_level=3)
    steps = json.loads(built.report_json)["steps"]
    assert [step["kernel"] for step in steps] == ["cuda.reduce"]
    x = np.random.default_rng(1).standard_normal((4, 64)).astype(np.float16) * 100
    wanted = np.linalg.norm(x.astype(np.float32), axis=1)
    np.testing.assert_allclose(np.asarray(built(x)), wanted, rtol=1e-3)
