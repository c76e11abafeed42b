"""Quantized convolutional networks as ONNX Runtime's quantizer writes them, against ONNX
Runtime: tensors stay in 8 bits from layer to layer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import rabbet
from onnx import TensorProto
from onnx import helper as oh
from onnx import numpy_helper as nh

CHANNELS, SIZE = 24, 9


class Graph:
    """Nodes with a quantization behind each, whose scale is a power of two: no number then
    lies so near the middle of two that the order of operations decides."""

    def __init__(self, dtype: type, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.dtype = dtype
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(nh.from_array(array, name))
        return name

    def node(self, op: str, inputs: list[str], **attributes: object) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(oh.make_node(op, inputs, [name], **attributes))
        return name

    def rounded(self, x: str, scale: float, zero: int = 0) -> str:
        pair = [self.constant(np.float32(scale)), self.constant(self.dtype(zero))]
        return self.node("DequantizeLinear", [self.node("QuantizeLinear", [x, *pair]), *pair])

    def convolution(
        self, x: str, channels: int, to: int, kernel: int, axes: int = 2, **attributes: object
    ) -> str:
        shape = (to, channels // attributes.get("group", 1), *[kernel] * axes)
        weights = self.constant(self.random.integers(-127, 128, shape, np.int8))
        scale = self.constant((2.0 ** self.random.integers(-11, -8, to)).astype(np.float32))
        zero = self.constant(np.zeros(to, np.int8))
        real = self.node("DequantizeLinear", [weights, scale, zero], axis=0)
        bias = self.constant(self.random.integers(-64, 64, to).astype(np.float32) / 64)
        return self.node("Conv", [x, real, bias], pads=[kernel // 2] * 2 * axes,
                         **attributes)  # fmt: skip

    def relu(self, x: str, scale: float) -> str:
        return self.rounded(self.node("Relu", [x]), scale)

    def model(self, y: str, shape: list[int]) -> onnx.ModelProto:
        ends = [oh.make_tensor_value_info("x", TensorProto.FLOAT, shape),
                oh.make_tensor_value_info(y, TensorProto.FLOAT, None)]  # fmt: skip
        graph = oh.make_graph(self.nodes, "g", ends[:1], ends[1:], self.constants)
        return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 13)], ir_version=8)


def network(dtype: type, zero: int) -> onnx.ModelProto:
    """A maximum, parts that are joined, a sum with a branch, channels in groups."""
    g = Graph(dtype, 3)
    x = g.rounded("x", 2**-6, zero)
    x = g.relu(g.rounded(g.convolution(x, 3, CHANNELS, 3, strides=[2, 2]), 2**-5, zero), 2**-6)
    x = g.rounded(g.node("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2]), 2**-6)
    left = g.relu(g.rounded(g.convolution(x, CHANNELS, 40, 1), 2**-4, zero), 2**-5)
    right = g.relu(g.rounded(g.convolution(x, CHANNELS, 8, 3, group=2), 2**-5, zero), 2**-5)
    joined = g.rounded(g.node("Concat", [left, right], axis=1), 2**-4, zero)
    y = g.rounded(g.convolution(joined, 48, CHANNELS, 1), 2**-4, zero)
    y = g.relu(g.rounded(g.node("Add", [y, x]), 2**-3, zero), 2**-4)
    return g.model(y, [2, 3, 4 * SIZE, 4 * SIZE])


def by_onnxruntime(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options,
                                   providers=["CPUExecutionProvider"])  # fmt: skip
    return session.run(None, {"x": x})[0]


def steps_of(model: object) -> list[dict]:
    inspector = model.engine.create_engine_inspector()
    text = inspector.get_engine_information(rabbet.LayerInformationFormat.JSON)
    return json.loads(text)["Layers"]


def test_sequences() -> None:
    g = Graph(np.int8, 5)
    x = g.rounded("x", 2**-6)
    x = g.relu(g.rounded(g.convolution(x, 12, 20, 5, axes=1, strides=[2]), 2**-5, 3), 2**-6)
    model = g.model(x, [2, 12, 31])
    x = np.random.default_rng(0).uniform(-2, 2, (2, 12, 31)).astype(np.float32)
    found = rabbet.compile(model.SerializeToString(), device="cpu", optimization_level=0)(x)
    assert np.abs(np.asarray(found) - by_onnxruntime(model, x)).max() <= 2**-6


def test_limits_between_two_quantizations() -> None:
    """9.5 of a unit is a limit, which the same quantization once more makes 10."""
    g = Graph(np.int8, 7)
    x = g.rounded("x", 2**-4)
    y = g.rounded(g.convolution(x, CHANNELS, CHANNELS, 1), 2**-3)
    limits = [g.constant(np.float32(limit)) for limit in (-0.3125, 1.1875)]
    y = g.rounded(g.node("Clip", [y, *limits]), 2**-3)
    model = g.model(g.relu(g.node("Add", [y, x]), 2**-6), [1, CHANNELS, SIZE, SIZE])
    x = np.random.default_rng(0).uniform(-2, 2, (1, CHANNELS, SIZE, SIZE)).astype(np.float32)
    engine = rabbet.compile(model.SerializeToString(), device="cpu", optimization_level=0)
    np.testing.assert_array_equal(np.asarray(engine(x)), by_onnxruntime(model, x))


@pytest.mark.parametrize(("dtype", "zero"), [(np.int8, 0), (np.int8, 5), (np.uint8, 120)])
@pytest.mark.parametrize("threads", [1, 2])
def test_bytes_between_layers(threads: int, dtype: type, zero: int) -> None:
    model = network(dtype, zero)
    x = np.random.default_rng(0).uniform(-2, 2, (2, 3, 4 * SIZE, 4 * SIZE)).astype(np.float32)
    engine = rabbet.compile(model.SerializeToString(), device="cpu", threads=threads,
                            optimization_level=0)  # fmt: skip
    found, wanted = np.asarray(engine(x)), by_onnxruntime(model, x)
    assert len(np.unique(wanted)) > 20
    # Some numbers do lie in the middle, and a sum before may be rounded another way.
    assert np.abs(found - wanted).max() <= 2 * 2**-4
    assert np.mean(found != wanted) < 0.01

    steps = steps_of(engine)
    kernels = [step["Kernel"] for step in steps]
    if "avx2" in Path("/proc/cpuinfo").read_text():
        assert kernels.count("cpu.bytes") == 4
        assert kernels.count("cpu.bytes.pooling") == 1
        inner = [tensor for step in steps[2:-1] for tensor in step["Outputs"]]
        assert all("INT8" in tensor["Format/Datatype"] for tensor in inner), steps


@pytest.mark.parametrize(("dtype", "zero"), [(np.int8, 0), (np.int8, 5), (np.uint8, 120)])
@pytest.mark.parametrize("coarser", [1, 2])
def test_channels_are_shuffled_in_bytes(dtype: type, zero: int, coarser: int) -> None:
    g = Graph(dtype, 3)
    scales = [2**-4 * coarser**i for i in range(4)]
    x = g.rounded("x", 2**-6)
    x = g.rounded(g.convolution(x, CHANNELS, CHANNELS, 1), scales[0], zero)
    split = g.constant(np.array([1, 4, CHANNELS // 4, SIZE, SIZE]))
    joined = g.constant(np.array([1, CHANNELS, SIZE, SIZE]))
    x = g.rounded(g.node("Reshape", [x, split]), scales[1], zero)
    x = g.rounded(g.node("Transpose", [x], perm=[0, 2, 1, 3, 4]), scales[2], zero)
    x = g.rounded(g.node("Reshape", [x, joined]), scales[3], zero)
    y = g.relu(g.rounded(g.convolution(x, CHANNELS, 16, 3, group=4), 2**-5), 2**-5)
    model = g.model(y, [1, CHANNELS, SIZE, SIZE])
    x = np.random.default_rng(0).uniform(-2, 2, (1, CHANNELS, SIZE, SIZE)).astype(np.float32)
    engine = rabbet.compile(model.SerializeToString(), device="cpu", optimization_level=0)
    found, wanted = np.asarray(engine(x)), by_onnxruntime(model, x)
    assert len(np.unique(wanted)) > 20
    assert np.abs(found - wanted).max() <= 2**-5
    assert np.mean(found != wanted) < 0.01

    shuffles = [step for step in steps_of(engine) if step["LayerType"] == "SHUFFLE"]
    assert shuffles
    outputs = [tensor for step in shuffles for tensor in step["Outputs"]]
    assert all("INT8" in t["Format/Datatype"] for t in outputs), shuffles
