"""Tensors of rank 8, the most there is: formats with blocks of channels would need
another axis, and are not tried."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import rabbet
from onnx import TensorProto, helper


def test_transpose_of_rank_8(tmp_path: Path) -> None:
    shape, order = [1, 16, 3, 2, 4, 2, 3, 5], [0, 2, 1, 4, 3, 6, 5, 7]
    graph = helper.make_graph(
        [
            helper.make_node("Relu", ["x"], ["r"]),
            helper.make_node("Transpose", ["r"], ["y"], perm=order),
        ],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, tmp_path / "model.onnx")
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    y = rabbet.compile(tmp_path / "model.onnx", device="cpu")(x)
    assert np.array_equal(np.asarray(y), np.maximum(x, 0).transpose(order))
