"""Layers that mix tokens: products between transposes need none of these."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import onnx.helper as oh
import pytest
import rabbet
from onnx import numpy_helper

from tests.python.importer.test_weight_only import by_onnxruntime, check_close, steps_of

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)

TOKENS, HIDDEN, CHANNELS = 24, 40, 16


def _mixer(batch: int | str, order: str, bias: bool, hidden: bool) -> bytes:
    """x + (W2 relu(W1 x^T + b1) + b2)^T over tokens; `order`: of the bias's operands."""
    random = np.random.default_rng(5)
    sizes = [TOKENS, HIDDEN, TOKENS] if hidden else [TOKENS, TOKENS]
    nodes = [oh.make_node("Transpose", ["x"], ["t0"], perm=[0, 2, 1])]
    inits = []
    for i, (k, n) in enumerate(itertools.pairwise(sizes)):
        weights = random.standard_normal((k, n), np.float32) / np.float32(k) ** 0.5
        inits.append(numpy_helper.from_array(weights, f"w{i}"))
        inits.append(numpy_helper.from_array(random.standard_normal(n, np.float32), f"b{i}"))
        nodes.append(oh.make_node("MatMul", [f"t{i}", f"w{i}"], [f"m{i}"]))
        operands = [f"m{i}", f"b{i}"] if order == "after" else [f"b{i}", f"m{i}"]
        nodes.append(oh.make_node("Sub" if bias else "Identity",
                                  operands if bias else operands[:1] if order == "after"
                                  else operands[1:], [f"s{i}"]))  # fmt: skip
        nodes.append(oh.make_node("Relu" if i + 2 < len(sizes) else "Identity", [f"s{i}"],
                                  [f"t{i + 1}"]))  # fmt: skip
    nodes.append(oh.make_node("Transpose", [f"t{len(sizes) - 1}"], ["back"], perm=[0, 2, 1]))
    nodes.append(oh.make_node("Add", ["x", "back"], ["y"]))
    shape = [batch, TOKENS, CHANNELS]
    graph = oh.make_graph(
        nodes, "mixer", [oh.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [oh.make_tensor_value_info("y", onnx.TensorProto.FLOAT, shape)], inits)  # fmt: skip
    made = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(made)
    return made.SerializeToString()


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize(("order", "bias"), [("after", True), ("before", True), ("after", False)])
@pytest.mark.parametrize("batch", [1, 3, "b"])
def test_mixer(batch: int | str, order: str, bias: bool, hidden: bool) -> None:
    """No layer moves elements, and the numbers are ONNX Runtime's."""
    data = _mixer(batch, order, bias, hidden)
    options = {"shapes": {"x": ((1, TOKENS, CHANNELS), (3, TOKENS, CHANNELS),
                                (4, TOKENS, CHANNELS))}} if batch == "b" else {}  # fmt: skip
    model = rabbet.compile(data, device="cuda", tf32=False, optimization_level=0,
                           **options)  # fmt: skip
    for count in (1, 4) if batch == "b" else (batch,):
        shape = (count, TOKENS, CHANNELS)
        x = np.random.default_rng(1).standard_normal(shape, np.float32)
        expected = by_onnxruntime(onnx.load_model_from_string(data), x)
        check_close(np.asarray(model(x)), expected)
    kernels = {step["Kernel"] for step in steps_of(model)}
    assert not kernels & {"cuda.shuffle", "cuda.convert"}, kernels
