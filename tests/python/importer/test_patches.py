"""Convolutions whose windows tile the input, drawn at random, with a varying batch:
embeddings of patches, of 1 to 3 spatial axes, and what follows them in networks."""

from __future__ import annotations

import random

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.python.support import onnx_text

LARGEST = {1: 16, 2: 8, 3: 4}
"""Windows by the number of spatial axes."""


def patches(seed: int) -> tuple[onnx.ModelProto, list[dict[str, np.ndarray]]]:
    """A convolution, then tokens of its pixels or another convolution, and its inputs."""
    draw = random.Random(seed)
    numbers = np.random.default_rng(seed)
    spatial = draw.choice((1, 2, 2, 3))
    channels, maps = draw.choice((1, 2, 3, 7, 8, 12, 16)), draw.choice((1, 5, 8, 24))
    window = [draw.randint(1, LARGEST[spatial]) for _ in range(spatial)]
    extents = [draw.randint(1, 5) * w for w in window]

    def weights(name: str, *shape: int) -> onnx.TensorProto:
        scale = np.prod(shape[1:]) ** -0.5
        array = (numbers.standard_normal(shape) * scale).astype(np.float32)
        return numpy_helper.from_array(array, name)

    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["y"], "stem", strides=window,
                         **draw.choice(({}, {"auto_pad": "SAME_UPPER"}))),
    ]  # fmt: skip
    given = [weights("w", maps, channels, *window), weights("b", maps)]
    then = draw.choice(("tokens", "convolution", "nothing"))
    if then == "tokens":
        given.append(numpy_helper.from_array(np.array([0, maps, -1]), "flat"))
        given.append(weights("m", maps, 6))
        nodes += [
            helper.make_node("Reshape", ["y", "flat"], ["f"]),
            helper.make_node("Transpose", ["f"], ["t"], perm=[0, 2, 1]),
            helper.make_node("MatMul", ["t", "m"], ["z"]),
        ]
    elif then == "convolution":
        given.append(weights("v", 6, maps, *[3] * spatial))
        nodes += [
            helper.make_node("Relu", ["y"], ["r"]),
            helper.make_node("Conv", ["r", "v"], ["z"], pads=[1] * 2 * spatial),
        ]
    last = nodes[-1].output[0]
    value = helper.make_tensor_value_info
    x = value("x", onnx.TensorProto.FLOAT, ["n", channels, *extents])
    graph = helper.make_graph(
        nodes, "g", [x], [value(last, onnx.TensorProto.FLOAT, None)], given
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8
    )
    runs = [
        {"x": numbers.standard_normal((n, channels, *extents)).astype(np.float32)}
        for n in (2, 1, 5)
    ]
    return model, runs


@pytest.mark.parametrize("seed", range(24))
def test_patches(seed: int) -> None:
    onnx_text.check(*patches(seed), most=1e-4)
