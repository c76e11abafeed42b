"""Scales that are found in a run, and scales of blocks, against NumPy and ONNX
Runtime."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime as ort
import pytest
import rabbet as trt
from onnx import TensorProto, helper, numpy_helper

from tests.python.support.plugins import build, random
from tests.python.support.reference_ops import OpError, evaluate_all

FP8 = ml_dtypes.float8_e4m3fn
E8M0 = ml_dtypes.float8_e8m0fnu
TYPES = {"INT8": np.int8, "FP8": FP8}
SCALES = {
    "FLOAT": np.float32,
    "HALF": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "FP8": FP8,
    "E8M0": E8M0,
}


def spread(scales: Any, blocks: Any, shape: Any) -> Any:
    """A scale for each element."""
    for axis, block in enumerate(blocks):
        count = shape[axis] if block == -1 else block
        scales = np.repeat(scales, count, axis).take(range(shape[axis]), axis)
    return scales


def expected(
    x: Any, blocks: Any, to: str, kept: str, factor: float = 1.0
) -> tuple[Any, Any]:
    """dynamic_quantize in NumPy."""
    extents = [n if b == -1 else b for n, b in zip(x.shape, blocks, strict=True)]
    most = np.abs(x.astype(np.float32))
    for axis, extent in enumerate(extents):
        most = np.maximum.reduceat(most, range(0, x.shape[axis], extent), axis)
    limit = np.float32(127 if to == "INT8" else 448)
    scale = most / limit / np.float32(factor)
    if kept == "E8M0":
        smallest = np.full_like(scale, 2.0**-127)
        scale = np.where(scale > 0, np.exp2(np.ceil(np.log2(scale))), smallest)
    if kept == "FP8":
        scale = np.minimum(scale, 448)
    stored = scale.astype(SCALES[kept])
    wide = spread(stored.astype(np.float32) * np.float32(factor), blocks, x.shape)
    y = np.divide(x.astype(np.float32), wide, out=np.zeros(x.shape, np.float32),
                  where=wide != 0)
    if to == "INT8":
        return np.clip(np.rint(y), -128, 127).astype(np.int8), stored
    return np.clip(y, -448, 448).astype(FP8), stored


def same(found: Any, wanted: Any) -> None:
    assert found.shape == wanted.shape
    np.testing.assert_array_equal(
        found.astype(np.float32), np.asarray(wanted).astype(np.float32)
    )


# ---- The operator


@pytest.mark.parametrize("kept", [k for k in SCALES if k != "E8M0"])
@pytest.mark.parametrize("to", TYPES)
@pytest.mark.parametrize("blocks", [(1, 16), (3, 5), (-1, 1), (-1, -1)], ids=str)
def test_reference(blocks: Any, to: str, kept: str) -> None:
    x = random(6, 37)
    x[0, :16] = 0
    y, scale = evaluate_all(
        "dynamic_quantize", 2, x, block_shape=list(blocks), to_type=to, scale_type=kept
    )
    wanted, scales = expected(x, blocks, to, kept)
    same(scale, scales)
    same(y, wanted)


def test_reference_along_an_axis_with_a_factor() -> None:
    x = random(4, 6, 5)
    y, scale = evaluate_all(
        "dynamic_quantize", 2, x, np.array([0.25], np.float32), axis=1, block_size=4,
        to_type="FP8", scale_type="FP8",
    )
    wanted, scales = expected(x, (1, 4, 1), "FP8", "FP8", 0.25)
    same(scale, scales)
    same(y, wanted)


def test_reference_errors() -> None:
    x = random(4, 6)
    with pytest.raises(OpError, match="'block_size' is 0"):
        evaluate_all("dynamic_quantize", 2, x)
    with pytest.raises(OpError, match=r"'block_shape' is \(2,\).*each of the 2 axes"):
        evaluate_all("dynamic_quantize", 2, x, block_shape=[2])
    with pytest.raises(OpError, match=r"'block_shape' is \(2, 0\)"):
        evaluate_all("dynamic_quantize", 2, x, block_shape=[2, 0])
    with pytest.raises(OpError, match="attribute 'axis' is 2"):
        evaluate_all("dynamic_quantize", 2, x, block_size=2, axis=2)
    with pytest.raises(OpError, match=r"'double_quant_scale'\) has shape \(2\)|\(2,\)"):
        evaluate_all("dynamic_quantize", 2, x, np.ones(2, np.float32), block_size=2)
    with pytest.raises(OpError, match=r"to_type.*INT8.*FP8"):
        evaluate_all("dynamic_quantize", 2, x, block_size=2, to_type=10)


# ---- Networks


def network_run(make: Any, *arrays: Any) -> Any:
    def made(network: Any) -> Any:
        inputs = [
            network.add_input(f"x{i}", trt._arrays.dtype_of(a.dtype), a.shape)
            for i, a in enumerate(arrays)
        ]
        return make(network, *inputs)

    strong = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    return build(made, flags=strong)(*arrays)


def test_layer() -> None:
    def make(network: Any, x: Any) -> Any:
        layer = network.add_dynamic_quantize(x, 1, 16, trt.DataType.INT8, trt.float32)
        assert isinstance(layer, trt.IDynamicQuantizeLayer)
        assert layer.type is trt.LayerType.DYNAMIC_QUANTIZE
        assert (layer.axis, layer.block_size, layer.block_shape) == (1, 16, ())
        assert (layer.to_type, layer.scale_type) == (trt.int8, trt.float32)
        layer.block_size = 8
        assert tuple(layer.get_output(1).shape) == (4, 4)
        layer.to_type = trt.fp8
        layer.scale_type = trt.float16
        assert layer.get_output(0).dtype is trt.fp8
        assert layer.get_output(1).dtype is trt.float16
        layer.axis = 0
        layer.block_shape = (2, 8)
        assert tuple(layer.get_output(1).shape) == (2, 4)
        with pytest.raises(trt.Error, match=r"'FP4'|10"):
            layer.to_type = trt.fp4
        return layer.get_output(0), layer.get_output(1)

    x = random(4, 32)
    y, scale = network_run(make, x)
    wanted, scales = expected(x, (2, 8), "FP8", "HALF")
    same(scale, scales)
    same(np.asarray(y).view(FP8), wanted)


@pytest.mark.parametrize("kept", [k for k in SCALES if k != "FP8"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=str)
@pytest.mark.parametrize("blocks", [(1, 32), (16, 16), (-1, 1)], ids=str)
def test_there_and_back(blocks: Any, dtype: Any, kept: str) -> None:
    x = random(32, 64).astype(dtype)

    def make(network: Any, x: Any) -> Any:
        layer = network.add_dynamic_quantize_v2(
            x, blocks, trt.fp8, getattr(trt.DataType, kept)
        )
        scale = layer.get_output(1)
        back = network.add_dequantize(layer.get_output(0), scale, trt.float32)
        back.block_shape = blocks
        assert tuple(back.block_shape) == blocks
        return back.get_output(0)

    y, scales = expected(x, blocks, "FP8", kept)
    wide = spread(scales.astype(np.float32), blocks, x.shape)
    np.testing.assert_array_equal(network_run(make, x), y.astype(np.float32) * wide)


def test_scales_that_are_quantized_themselves() -> None:
    x = random(8, 64)

    def make(network: Any, x: Any) -> Any:
        one = network.add_constant((), np.array(0.125, np.float32)).get_output(0)
        layer = network.add_dynamic_quantize(x, 1, 16, trt.fp8, trt.fp8)
        layer.set_input(1, one)
        scale = network.add_dequantize(layer.get_output(1), one, trt.float32)
        back = network.add_dequantize(
            layer.get_output(0), scale.get_output(0), trt.float32
        )
        return back.get_output(0)

    y, scales = expected(x, (1, 16), "FP8", "FP8", 0.125)
    wide = spread(scales.astype(np.float32) * np.float32(0.125), (1, 16), x.shape)
    np.testing.assert_array_equal(network_run(make, x), y.astype(np.float32) * wide)


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("zero", [True, False])
@pytest.mark.parametrize(
    ("shape", "blocks"),
    [((8, 12), (4, 1)), ((8, 12), (4, 3)), ((2, 8, 12), (1, 8, 6)), ((5, 6), (1, 3))],
    ids=str,
)
def test_blocks(shape: Any, blocks: Any, zero: bool, given: bool) -> None:
    x = random(*shape)
    counts = [n // b for n, b in zip(shape, blocks, strict=True)]
    scale = np.abs(random(*counts, seed=1)) / 50 + np.float32(0.01)
    shift = np.random.default_rng(3).integers(-9, 9, counts).astype(np.int8)

    def make(network: Any, x: Any, s: Any) -> Any:
        q = network.add_quantize(x, s, trt.int8)
        z = network.add_constant(counts, shift).get_output(0)
        if zero:
            q.set_input(2, z)
        if given:
            q.block_shape = blocks
        d = network.add_dequantize(q.get_output(0), s, trt.float32)
        if zero:
            d.set_input(2, z)
        return q.get_output(0), d.get_output(0)

    s, z = spread(scale, blocks, shape), spread(shift, blocks, shape) * int(zero)
    wanted = np.clip(np.rint(x / s) + z, -128, 127)
    q, d = network_run(make, x, scale)
    np.testing.assert_array_equal(q, wanted.astype(np.int8))
    np.testing.assert_array_equal(d, (wanted - z).astype(np.float32) * s)


def test_blocks_that_are_cut_off() -> None:
    x, scale = random(3, 10), np.abs(random(3, 3, seed=1)) / 50 + np.float32(0.01)

    def make(network: Any, x: Any, s: Any) -> Any:
        q = network.add_quantize(x, s, trt.int8)
        q.block_shape = (1, 4)
        return q.get_output(0)

    wanted = np.clip(np.rint(x / spread(scale, (1, 4), x.shape)), -128, 127)
    np.testing.assert_array_equal(network_run(make, x, scale), wanted.astype(np.int8))


def test_weights_in_blocks() -> None:
    """A product by weights with a scale for each 16 of a column; batches vary."""
    weights = np.random.default_rng(1).integers(-127, 127, (64, 8)).astype(np.int8)
    scale = np.abs(random(4, 8, seed=2)) / 100

    def make(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (-1, -1, 64))
        w = network.add_constant(weights.shape, weights).get_output(0)
        s = network.add_constant(scale.shape, scale).get_output(0)
        d = network.add_dequantize(w, s, trt.float32)
        d.block_shape = (16, 1)
        shape = network.add_shuffle(d.get_output(0))
        shape.reshape_dims = (1, 64, 8)
        none = trt.MatrixOperation.NONE
        y = network.add_matrix_multiply(x, none, shape.get_output(0), none)
        q = network.add_dynamic_quantize(x, 2, 32, trt.int8, trt.float32)
        d = network.add_dequantize(q.get_output(0), q.get_output(1), trt.float32)
        d.block_shape = (1, 1, 32)
        return y.get_output(0), d.get_output(0)

    shapes = {"x": ((1, 1, 64), (2, 3, 64), (4, 8, 64))}
    model = build(make, shapes=shapes)
    dense = weights * np.repeat(scale, 16, 0)
    for batch, length in ((1, 1), (2, 5), (4, 8)):
        x = random(batch, length, 64)
        y, back = model(x)
        np.testing.assert_allclose(y, x @ dense, rtol=1e-4, atol=1e-3)
        numbers, scales = expected(x, (1, 1, 32), "INT8", "FLOAT")
        np.testing.assert_array_equal(
            back, numbers.astype(np.float32) * spread(scales, (1, 1, 32), x.shape)
        )


def test_errors() -> None:
    def scaled(shape: Any, blocks: Any) -> Any:
        def make(network: Any, x: Any) -> Any:
            s = network.add_constant(shape, np.ones(shape, np.float32)).get_output(0)
            layer = network.add_quantize(x, s, trt.int8)
            layer.block_shape = blocks
            return layer.get_output(0)

        return make

    x = random(4, 6)
    with pytest.raises(trt.Error, match=r"must have shape \(4, 3\)"):
        network_run(scaled((4, 2), (1, 2)), x)
    with pytest.raises(trt.Error, match=r"'block_shape' is \(2,\)"):
        network_run(scaled((4, 2), (2,)), x)
    with pytest.raises(trt.Error, match=r"divide each axis into whole blocks"):
        network_run(scaled((4, 4), ()), x)

    def dynamic(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (4, -1))
        s = network.add_input("s", trt.float32, (4, -1))
        layer = network.add_quantize(x, s, trt.int8)
        layer.block_shape = (1, 4)
        return layer.get_output(0)

    shapes = dict.fromkeys("xs", ((4, 4), (4, 8), (4, 16)))
    with pytest.raises(trt.Error, match=r"axis 1 of the input.*extent must be constant"):
        build(dynamic, shapes=shapes)


# ---- ONNX


def onnx_model(nodes: Any, inputs: Any, outputs: Any, initializers: Any = ()) -> bytes:
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs],
        [helper.make_empty_tensor_value_info(n) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in initializers],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10
    )
    data: bytes = model.SerializeToString()
    return data


def runtime(model: bytes, **arrays: Any) -> Any:
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    return session.run(None, arrays)


@pytest.mark.parametrize("kind", ["mixed", "positive", "negative", "zero"])
def test_onnx_dynamic(kind: str) -> None:
    x = random(3, 4, 5)
    x = {"mixed": x, "positive": abs(x) + 1, "negative": -abs(x), "zero": x * 0}[kind]
    model = onnx_model(
        [helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])],
        [("x", (3, 4, 5))], ["y", "s", "z"],
    )
    found = trt.compile(model, device="cpu")(x)
    for a, b in zip(found, runtime(model, x=x), strict=True):
        assert a.dtype == b.dtype
        assert np.shape(a) == np.shape(b)
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_onnx_blocks_that_are_cut_off() -> None:
    """In a batch of any size. ONNX Runtime is asked for whole blocks alone."""
    scale = np.abs(random(1, 3, seed=1)).repeat(2, 0) / 50 + np.float32(0.01)
    model = onnx_model(
        [helper.make_node("QuantizeLinear", ["x", "s"], ["q"], axis=1, block_size=4,
                          output_dtype=TensorProto.INT8),
         helper.make_node("DequantizeLinear", ["q", "s"], ["y"], axis=1, block_size=4)],
        [("x", (2, 10))], ["y"], [("s", scale)],
    )
    x = random(2, 10)
    s = spread(scale, (1, 4), x.shape)
    wanted = np.clip(np.rint(x / s), -128, 127).astype(np.float32) * s
    np.testing.assert_array_equal(trt.compile(model, device="cpu")(x), wanted)


def test_onnx_blocks_in_a_batch_of_any_size() -> None:
    scale = (np.abs(random(1, 3, seed=1)) / 50 + 0.01).astype(np.float32)
    nodes = [
        helper.make_node("Shape", ["x"], ["n"], end=1),
        helper.make_node("Concat", ["n", "one"], ["shape"], axis=0),
        helper.make_node("Expand", ["s", "shape"], ["e"]),
        helper.make_node("QuantizeLinear", ["x", "e"], ["q"], axis=1, block_size=4,
                         output_dtype=TensorProto.INT8),
        helper.make_node("DequantizeLinear", ["q", "e"], ["y"], axis=1, block_size=4),
    ]
    model = onnx_model(
        nodes, [("x", ("batch", 12))], ["y"], [("s", scale), ("one", np.array([3]))]
    )
    shapes = {"x": ((1, 12), (2, 12), (8, 12))}
    compiled = trt.compile(model, device="cpu", shapes=shapes)
    for batch in (1, 3, 8):
        x = random(batch, 12)
        np.testing.assert_array_equal(compiled(x), runtime(model, x=x)[0])


def test_onnx_block_size() -> None:
    node = helper.make_node("QuantizeLinear", ["x", "s"], ["q"], axis=1, block_size=-4)
    model = onnx_model(
        [node], [("x", (2, 8))], ["q"], [("s", np.ones((2, 2), np.float32))]
    )
    with pytest.raises(trt.Error, match="block_size is -4; expected 0"):
        trt.compile(model, device="cpu")
