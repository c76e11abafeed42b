"""An ONNX file with a convolution and ReLU, and its weights."""

from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save


def convolution_model(folder: Path) -> Path:
    """Writes m.onnx and w.npy into the folder, which it returns."""
    w = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    np.save(folder / "w.npy", w)
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1] * 4),
            helper.make_node("Relu", ["c"], ["y"], name="relu"),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4, 8, 8])],
        [numpy_helper.from_array(w, "w")],
    )
    opsets = [helper.make_opsetid("", 17)]
    save(helper.make_model(graph, opset_imports=opsets, ir_version=9), folder / "m.onnx")
    return folder
