"""Quantized networks, against NumPy and ONNX Runtime."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
import rabbet as trt
from onnx import TensorProto, helper, numpy_helper

FP8 = ml_dtypes.float8_e4m3fn
RNG = np.random.default_rng(7)
TYPES = {
    trt.DataType.INT8: np.int8, trt.DataType.UINT8: np.uint8, trt.DataType.FP8: FP8,
}


def onnx_model(nodes, inputs, outputs, initializers=(), opset=21):
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(np.dtype(t)), s)
         for n, t, s in inputs],
        [helper.make_empty_tensor_value_info(n) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in initializers],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return model.SerializeToString()


def runtime(model, *arrays):
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    return session.run(None, dict(zip(names, arrays, strict=True)))


# ---- Layers -----------------------------------------------------------------


def network_run(make, *arrays):
    """The arrays through the layers that `make` adds to a network."""
    builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
    flags = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    network = builder.create_network(flags)
    inputs = [network.add_input(f"x{i}", trt._arrays.dtype_of(a.dtype), a.shape)
              for i, a in enumerate(arrays)]
    tensor = make(network, *inputs)
    network.mark_output(tensor)
    return trt.compile(network, device="cpu", optimization_level=0)(*arrays)


@pytest.mark.parametrize("to", TYPES, ids=str)
@pytest.mark.parametrize("constant", [True, False], ids=["constant", "computed"])
@pytest.mark.parametrize("shape", [(), (4,), (1, 4, 1)], ids=str)
def test_layers(shape, constant, to):
    x = RNG.uniform(-3, 3, (2, 4, 5)).astype(np.float32)
    scale = RNG.uniform(0.02, 0.1, shape).astype(np.float32)

    def make(network, x, *given):
        s = given[0] if given else network.add_constant(shape, scale).get_output(0)
        q = network.add_quantize(x, s, to)
        q.axis = 1
        d = network.add_dequantize(q.get_output(0), s, trt.DataType.FLOAT)
        d.axis = 1
        assert (q.to_type, d.to_type) == (to, trt.DataType.FLOAT)
        assert (q.type, d.type) == (trt.LayerType.QUANTIZE, trt.LayerType.DEQUANTIZE)
        return d.get_output(0)

    wide = scale.reshape(1, 4, 1) if shape == (4,) else scale
    y = x / wide
    if to == trt.DataType.FP8:
        expected = np.clip(y, -448, 448).astype(FP8)
    else:
        info = np.iinfo(TYPES[to])
        expected = np.clip(np.rint(y), info.min, info.max)
    arrays = [x] if constant else [x, scale]
    np.testing.assert_array_equal(
        network_run(make, *arrays), expected.astype(np.float32) * wide)


def test_layers_say_what_is_wrong():
    def make(network, x):
        s = network.add_constant((3,), np.ones(3, np.float32)).get_output(0)
        return network.add_quantize(x, s, trt.DataType.INT8).get_output(0)

    with pytest.raises(trt.Error, match=r"'scale'\) has shape \(3,\)"):
        network_run(make, np.zeros((2, 4), np.float32))


# ---- ONNX -------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8], ids=str)
def test_onnx_axis_and_zero_point(dtype, axis):
    x = RNG.uniform(-3, 3, (3, 4, 5)).astype(np.float32)
    count = x.shape[axis]
    model = onnx_model(
        [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=axis),
         helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=axis)],
        [("x", np.float32, x.shape)], ["q", "y"],
        [("s", RNG.uniform(0.02, 0.05, count).astype(np.float32)),
         ("z", RNG.integers(0, 60, count).astype(dtype))])
    found = trt.compile(model, device="cpu", optimization_level=0)(x)
    for a, b in zip(found, runtime(model, x), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("axis", [0, 1])
def test_onnx_blocks(axis):
    x = RNG.uniform(-3, 3, (8, 12)).astype(np.float32)
    shape = (2, 12) if axis == 0 else (8, 3)
    scale = RNG.uniform(0.02, 0.05, shape).astype(np.float32)
    zero = RNG.integers(-9, 9, shape).astype(np.int8)
    model = onnx_model(
        [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=axis,
                          block_size=4),
         helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=axis,
                          block_size=4)],
        [("x", np.float32, x.shape)], ["q", "y"], [("s", scale), ("z", zero)])
    wide = np.repeat(scale, 4, axis)
    expected = np.clip(np.rint(x / wide) + np.repeat(zero, 4, axis), -128, 127)
    q, y = trt.compile(model, device="cpu", optimization_level=0)(x)
    np.testing.assert_array_equal(q, expected.astype(np.int8))
    np.testing.assert_array_equal(y, (expected - np.repeat(zero, 4, axis)) * wide)


def test_onnx_fp8():
    x = np.linspace(-600, 600, 64, dtype=np.float32).reshape(4, 16)
    nodes = [helper.make_node("QuantizeLinear", ["x", "s"], ["q"],
                              output_dtype=TensorProto.FLOAT8E4M3FN),
             helper.make_node("DequantizeLinear", ["q", "s"], ["y"])]
    model = onnx_model(nodes, [("x", np.float32, x.shape)], ["y"],
                       [("s", np.float32(0.5))])
    expected = np.clip(x / np.float32(0.5), -448, 448).astype(FP8)
    found = trt.compile(model, device="cpu", optimization_level=0)(x)
    np.testing.assert_array_equal(found, expected.astype(np.float32) * 0.5)


@pytest.mark.parametrize(("attrs", "message"), [
    ({"axis": 5}, "axis is 5, but input 0 has rank 2"),
    ({"output_dtype": TensorProto.COMPLEX64}, "output_dtype.*COMPLEX64"),
    ({"block_size": 3}, r"has shape \(2, 4\).*'block_shape' it must have shape \(2, 2\)"),
])
def test_onnx_errors(attrs, message):
    scale = np.ones((2, 4) if "block_size" in attrs else 4, np.float32)
    model = onnx_model(
        [helper.make_node("QuantizeLinear", ["x", "s"], ["y"], **attrs)],
        [("x", np.float32, (2, 4))], ["y"], [("s", scale)])
    with pytest.raises(trt.Error, match=message):
        trt.compile(model, device="cpu")


# ---- Models -----------------------------------------------------------------


def small_model(size=12, channels=16):
    """Convolutions with a residual, then a dense layer."""
    rng = np.random.default_rng(3)

    def weights(name, *shape):
        scale = np.sqrt(2 / max(1, np.prod(shape[1:])))
        return name, (rng.standard_normal(shape) * scale).astype(np.float32)

    c = channels
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c0"], pads=[1] * 4),
        helper.make_node("Relu", ["c0"], ["r0"]),
        helper.make_node("Conv", ["r0", "w1", "b1"], ["c1"], pads=[1] * 4),
        helper.make_node("Add", ["c1", "r0"], ["a"]),
        helper.make_node("Relu", ["a"], ["r1"]),
        helper.make_node("GlobalAveragePool", ["r1"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "w2", "b2"], ["y"], transB=1),
    ]
    return onnx_model(
        nodes, [("x", np.float32, (1, 3, size, size))], ["y"],
        [weights("w0", c, 3, 3, 3), weights("b0", c), weights("w1", c, c, 3, 3),
         weights("b1", c), weights("w2", 10, c), weights("b2", 10)], opset=17)


def quantized_model(folder, per_channel, activations):
    quantization = pytest.importorskip("onnxruntime.quantization")
    rng = np.random.default_rng(5)

    class Samples(quantization.CalibrationDataReader):
        def __init__(self):
            shape = (1, 3, 12, 12)
            self.left = [{"x": rng.standard_normal(shape).astype(np.float32)} for _ in range(4)]

        def get_next(self):
            return self.left.pop() if self.left else None

    (folder / "float.onnx").write_bytes(small_model())
    quantization.quantize_static(
        folder / "float.onnx", folder / "int8.onnx", Samples(),
        quant_format=quantization.QuantFormat.QDQ, per_channel=per_channel,
        activation_type=getattr(quantization.QuantType, activations),
        weight_type=quantization.QuantType.QInt8,
        extra_options={"ActivationSymmetric": activations == "QInt8"})
    return folder / "int8.onnx"


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("activations", ["QInt8", "QUInt8"])
@pytest.mark.parametrize("per_channel", [False, True], ids=["tensor", "channel"])
def test_model(per_channel, activations, level, tmp_path):
    path = quantized_model(tmp_path, per_channel, activations)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    model = trt.compile(path, device="cpu", optimization_level=level, threads=1)
    scale = max(float(numpy_helper.to_array(i)) for i in onnx.load(path).graph.initializer
                if i.name == "y_scale")
    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal((1, 3, 12, 12))
        x = x.astype(np.float32)
        # Where a sum lies in the middle of two numbers, either may be taken.
        np.testing.assert_allclose(
            model(x), session.run(None, {"x": x})[0], atol=2.01 * scale)


@pytest.mark.parametrize("level", [0, 3])
def test_weights_that_are_an_output_too(level):
    """The tensor that the product reads as 8 bits leaves the network in floating point."""
    weights = RNG.integers(-127, 128, (16, 8, 1, 1)).astype(np.int8)
    node = helper.make_node
    nodes = [
        node("DequantizeLinear", ["w", "s", "z"], ["weights"]),
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("Conv", ["d", "weights"], ["y"]),
    ]
    constants = [("w", weights), ("s", np.float32(0.02)), ("z", np.int8(0))]
    x = RNG.uniform(-1, 1, (2, 8, 5, 5)).astype(np.float32)
    model = onnx_model(nodes, [("x", np.float32, x.shape)], ["y", "weights"], constants)
    found = trt.compile(model, device="cpu", optimization_level=level)(x)
    expected = runtime(model, x)
    np.testing.assert_array_equal(found[1], expected[1])
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=1e-4)


def test_flags_are_accepted():
    config = trt.Builder(trt.Logger()).create_builder_config()
    for flag in (trt.BuilderFlag.INT8, trt.BuilderFlag.FP8):
        config.set_flag(flag)
        assert config.get_flag(flag)
        config.clear_flag(flag)
        assert not config.get_flag(flag)
