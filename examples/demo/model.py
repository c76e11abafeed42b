"""The demo's model: a picture, padded circularly, through three convolutions."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HEIGHT, WIDTH, PAD = 192, 256, 48


def _weights(name: str, values: np.ndarray) -> onnx.TensorProto:
    return numpy_helper.from_array(np.ascontiguousarray(values, np.float32), name)


def make(path: Path, *, known_operators: bool) -> None:
    """Writes the model.

    With `known_operators` the padding is ONNX's Pad with mode "wrap", so that
    another engine can tell the right answer; otherwise it is a node that names
    the plugin example::CircularPad.
    """
    pads = [0, 0, PAD, PAD, 0, 0, PAD, PAD]
    rng = np.random.default_rng(7)
    weights = []
    if known_operators:
        weights.append(numpy_helper.from_array(np.array(pads, np.int64), "pads"))
        pad = helper.make_node("Pad", ["image", "pads"], ["padded"], mode="wrap")
    else:
        pad = helper.make_node(
            "CircularPad",
            ["image"],
            ["padded"],
            name="circular_pad",
            plugin_namespace="example",
            pads=pads,
        )
    nodes = [pad]
    channels = [3, 32, 32, 8]
    tensor = "padded"
    for i, (fan_in, fan_out) in enumerate(zip(channels, channels[1:])):
        scale = np.sqrt(2 / (fan_in * 9))
        kernel = rng.normal(0, scale, (fan_out, fan_in, 3, 3))
        weights += [
            _weights(f"kernel{i}", kernel),
            _weights(f"bias{i}", rng.normal(0, 0.1, fan_out)),
        ]
        nodes.append(
            helper.make_node(
                "Conv",
                [tensor, f"kernel{i}", f"bias{i}"],
                [f"conv{i}"],
                name=f"conv{i}",
                kernel_shape=[3, 3],
            )
        )
        nodes.append(helper.make_node("Relu", [f"conv{i}"], [f"relu{i}"], f"relu{i}"))
        tensor = f"relu{i}"
    image = helper.make_tensor_value_info(
        "image", TensorProto.FLOAT, [1, 3, HEIGHT, WIDTH]
    )
    padded = helper.make_tensor_value_info(
        "padded", TensorProto.FLOAT, [1, 3, HEIGHT + 2 * PAD, WIDTH + 2 * PAD]
    )
    features = helper.make_tensor_value_info(tensor, TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "demo", [image], [padded, features], weights)
    model = helper.make_model(
        graph, ir_version=9, opset_imports=[helper.make_opsetid("", 19)]
    )
    onnx.save(model, path)
