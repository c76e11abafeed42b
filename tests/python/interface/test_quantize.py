"""rabbet.quantize: its models in ONNX Runtime and here, errors of layers, bounds, and what
it says of wrong data."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import rabbet
from onnx import TensorProto, helper, numpy_helper

from tests.python.randomized.random_onnx import make
from tests.python.support.onnx_runtime_nodes import sums_saturate

FLOAT, HALF, BF16 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16
RANDOM = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _same_numbers_in_any_order() -> None:
    RANDOM.bit_generator.state = np.random.default_rng(1).bit_generator.state


def weights(name: str, *shape: int, scale: float = 1.0) -> onnx.TensorProto:
    values = RANDOM.standard_normal(shape) * scale / np.sqrt(np.prod(shape[1:]) or 1)
    return numpy_helper.from_array(values.astype(np.float32), name)


def model_of(
    nodes: list[onnx.NodeProto],
    constants: list[onnx.TensorProto],
    shape: list[Any],
    opset: int = 17,
    made: int = FLOAT,
) -> onnx.ModelProto:
    """A model from x to y, whose type is `made`."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", FLOAT, shape)],
        [helper.make_tensor_value_info("y", made, None)],
        constants,
    )
    ir_version = 10 if opset >= 13 else 6
    opsets = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)
    return onnx.shape_inference.infer_shapes(model)  # of y


def convolutional(opset: int = 17) -> onnx.ModelProto:
    """Normalization, a residual sum, depthwise and transposed convolutions, a classifier."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["c0"], "first", pads=[1] * 4),
        node("Relu", ["c0"], ["r0"]),
        node("Conv", ["r0", "w1"], ["c1"], "second", pads=[1] * 4),
        node("BatchNormalization", ["c1", "s", "o", "m", "v"], ["n1"]),
        node("Add", ["n1", "r0"], ["a1"], "sum"),
        node("Relu", ["a1"], ["r1"]),
        node("Conv", ["r1", "w2"], ["c2"], "depthwise", group=16, pads=[1] * 4),
        node("ConvTranspose", ["c2", "w3"], ["t"], "up", strides=[2, 2]),
        node("GlobalAveragePool", ["t"], ["p"]),
        node("Flatten", ["p"], ["f"]),
        node("Gemm", ["f", "w4", "b4"], ["y"], "classes", transB=1),
    ]
    constants = [
        weights("w0", 16, 3, 3, 3), weights("b0", 16), weights("w1", 16, 16, 3, 3),
        weights("s", 16), weights("o", 16), weights("m", 16),
        numpy_helper.from_array(np.full(16, 0.5, np.float32), "v"),
        weights("w2", 16, 1, 3, 3), weights("w3", 16, 8, 2, 2), weights("w4", 32, 8),
        weights("b4", 32),
    ]  # fmt: skip
    return model_of(nodes, constants, ["n", 3, 12, 12], opset)


IMAGES = RANDOM.standard_normal((6, 3, 12, 12)).astype(np.float32)


def block() -> onnx.ModelProto:
    """A transformer's block, whose weights are shared, transposed and constants of nodes."""
    node = helper.make_node
    value = numpy_helper.to_array(weights("", 64, 64, scale=0.2))
    nodes = [
        node("LayerNormalization", ["x", "g", "h"], ["n"]),
        node("Constant", [], ["wk"], value=numpy_helper.from_array(value, "")),
        node("Transpose", ["wq"], ["wq_t"], perm=[1, 0]),
        node("Identity", ["wq"], ["wv"]),
        node("MatMul", ["n", "wq_t"], ["q"], "query"),
        node("MatMul", ["n", "wk"], ["k"], "key"),
        node("MatMul", ["n", "wv"], ["v"], "value"),
        node("MatMul", ["n", "wq"], ["u"], "value again"),
        node("Add", ["v", "u"], ["vu"]),
        node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        node("MatMul", ["q", "kt"], ["l"], "scores"),
        node("Softmax", ["l"], ["p"], axis=-1),
        node("MatMul", ["p", "vu"], ["o"], "mixed"),
        node("Add", ["o", "x"], ["r"]),
        node("MatMul", ["r", "w1"], ["m"], "up"),
        node("Relu", ["m"], ["e"]),
        node("MatMul", ["e", "w2"], ["d"], "down"),
        node("Add", ["d", "r"], ["y"]),
    ]
    constants = [
        weights("g", 64), weights("h", 64), weights("wq", 64, 64),
        weights("w1", 64, 128, scale=1.4), weights("w2", 128, 64),
    ]  # fmt: skip
    return model_of(nodes, constants, [1, "t", 64])


WORDS = [{"x": RANDOM.standard_normal((1, t, 64)).astype(np.float32)} for t in (5, 9, 12)]


def in_onnx_runtime(model: Any, feed: dict[str, Any], optimized: bool = False) -> Any:
    options = ort.SessionOptions()
    if not optimized:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(None, feed)[0]


def here(model: Any, feed: dict[str, Any]) -> Any:
    shapes = {name: array.shape for name, array in feed.items()}
    compiled = rabbet.compile(model, shapes=shapes, device="cpu", optimization_level=0)
    return compiled(**feed)


def relative(found: Any, wanted: Any) -> float:
    found, wanted = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    return float(np.sqrt(np.square(found - wanted).sum() / np.square(wanted).sum()))


def check(
    source: onnx.ModelProto, made: rabbet.Quantization, feed: dict[str, Any]
) -> onnx.ModelProto:
    """The model is valid, means the same in both engines, and errs as it says."""
    data = made.to_bytes()
    model = onnx.load_from_string(data)
    onnx.checker.check_model(model, full_check=True)
    wanted = in_onnx_runtime(source.SerializeToString(), feed)
    found = in_onnx_runtime(data, feed)
    assert made.error is not None
    if not sums_saturate():
        assert relative(in_onnx_runtime(data, feed, True), found) < made.error / 2 + 1e-4
    assert relative(found, wanted) < 2 * made.error + 1e-3
    assert relative(here(data, feed), found) < made.error / 2 + 1e-4
    return model


def count(model: onnx.ModelProto, op: str) -> int:
    return sum(node.op_type == op for node in model.graph.node)


def quantized(made: rabbet.Quantization) -> set[str]:
    return {layer.name for layer in made.layers if layer.quantized}


# ---- Models


def test_convolutions_of_fp8() -> None:
    source = convolutional()
    made = rabbet.quantize(source, {"x": IMAGES}, fp8=True, device="cpu")
    check(source, made, {"x": IMAGES[:2]})
    assert quantized(made) == {"first", "second", "depthwise", "classes"}


def test_convolutions_of_8_bits() -> None:
    source = convolutional()
    made = rabbet.quantize(source, {"x": IMAGES}, device="cpu")
    model = check(source, made, {"x": IMAGES[:2]})
    assert quantized(made) == {"first", "second", "sum", "depthwise", "classes"}
    assert [layer.name for layer in made.left] == ["up"]
    assert 0.0005 < made.error < 0.03
    assert count(model, "BatchNormalization") == 0
    # x, the two inputs of convolutions (one is added, too), and the classifier's.
    assert count(model, "QuantizeLinear") == 4
    scales = {i.name: i.dims for i in model.graph.initializer if "scale" in i.name}
    assert [16] in [list(dims) for dims in scales.values()]
    text = str(made)
    assert "5 of 6 layers are INT8; the outputs' error is" in text
    assert "left (no kernel of 8 bits computes ConvTranspose): up" in text
    errors = [layer.error for layer in made.layers if layer.quantized]
    assert errors == sorted(errors, reverse=True)


def test_transposed_convolution_if_it_is_asked_for() -> None:
    source = convolutional()
    made = rabbet.quantize(source, {"x": IMAGES}, include="up", device="cpu")
    check(source, made, {"x": IMAGES[:1]})
    assert quantized(made) == {"up"}


@pytest.mark.parametrize("kind", ["int8", "fp8", "int4"])
def test_transformer(kind: str) -> None:
    source = block()
    made = rabbet.quantize(source, WORDS, **{kind: True}, device="cpu")
    model = check(source, made, WORDS[1])
    products = {"query", "key", "value", "value again", "up", "down"}
    assert quantized(made) == products
    assert {layer.name for layer in made.left} == {"scores", "mixed"}
    # Of equal weights there is one copy.
    narrow = (TensorProto.INT8, TensorProto.FLOAT8E4M3FN, TensorProto.INT4)
    matrices = [i for i in model.graph.initializer if i.data_type in narrow if i.dims]
    assert len([i for i in matrices if len(i.dims) == 2]) == 5
    assert "wq" not in {i.name for i in model.graph.initializer}
    # The normalized input is quantized once for four products.
    assert count(model, "QuantizeLinear") == (0 if kind == "int4" else 3)


@pytest.mark.parametrize("dtype", [HALF, BF16])
@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_narrow_floats(dtype: int, kind: str) -> None:
    cast = [
        helper.make_node("Cast", ["x"], ["h"], to=dtype),
        helper.make_node("MatMul", ["h", "w"], ["m"], "product"),
        helper.make_node("Cast", ["w32"], ["w16"], to=dtype),
        helper.make_node("MatMul", ["m", "w16"], ["o"], "of a cast"),
        helper.make_node("Cast", ["o"], ["y"], to=FLOAT),
    ]
    # So small that scales of HALF would be subnormal.
    values = numpy_helper.to_array(weights("", 64, 64)) * 1e-3
    narrow = helper.make_tensor("w", dtype, [64, 64], values.reshape(-1))
    source = model_of(cast, [narrow, weights("w32", 64, 32)], [4, 64], opset=21)
    x = RANDOM.standard_normal((8, 64)).astype(np.float32)
    made = rabbet.quantize(source, {"x": x}, **{kind: True}, max_error=0.5, device="cpu")
    assert quantized(made) == {"product", "of a cast"}
    assert made.error is not None
    assert made.error < (0.03 if kind == "int8" else 0.2)
    feed = {"x": x[:4]}
    data = made.to_bytes()
    onnx.checker.check_model(onnx.load_from_string(data), full_check=True)
    found = here(data, feed)
    wanted = here(source.SerializeToString(), feed)
    assert relative(found, wanted) < 2 * made.error
    if dtype == HALF:
        assert relative(in_onnx_runtime(data, feed), found) < 0.01


def test_old_operators_are_raised() -> None:
    node = helper.make_node
    nodes = [
        node("Pad", ["x"], ["p"], pads=[0, 0, 1, 1, 0, 0, 1, 1], value=0.5),
        node("Conv", ["p", "w0"], ["c"], "conv"),
        node("Clip", ["c"], ["k"], min=-0.4, max=0.6),
        node("Upsample", ["k", "s"], ["u"], mode="nearest"),
        node("Slice", ["u"], ["l"], axes=[2, 3], starts=[1, 0], ends=[9, 8]),
        node("Softmax", ["l"], ["f"], axis=1),
        node("Dropout", ["f"], ["d"], ratio=0.3),
        node("ReduceMean", ["d"], ["m"], axes=[2], keepdims=1),
        node("Squeeze", ["m"], ["q"], axes=[2]),
        node("Split", ["q"], ["a", "b"], axis=1, split=[3, 5]),
        node("Unsqueeze", ["b"], ["z"], axes=[3]),
        node("ReduceSum", ["z"], ["e"], axes=[3], keepdims=0),
        node("TopK", ["a"], ["t", "i"], axis=1, k=2),
        node("Concat", ["e", "t"], ["o"], axis=1),
        node("MatMul", ["o", "w1"], ["y"], "product"),
    ]
    constants = [
        weights("w0", 8, 3, 3, 3), weights("w1", 8, 6),
        numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "s"),
    ]  # fmt: skip
    source = model_of(nodes, constants, [1, 3, 6, 6], opset=9)
    # As files of old had it.
    source.ir_version = 3
    source.graph.input.extend(
        helper.make_tensor_value_info(c.name, FLOAT, c.dims) for c in constants
    )
    x = RANDOM.standard_normal((3, 3, 6, 6)).astype(np.float32)
    made = rabbet.quantize(source, {"x": x}, fp8=True, device="cpu")
    model = check(source, made, {"x": x[:1]})
    assert quantized(made) == {"conv", "product"}
    assert model.opset_import[0].version == 21


@pytest.mark.parametrize("opset", [18, 20])
def test_normalization_of_groups(opset: int) -> None:
    """Its scale is of groups until version 20, and of channels since."""
    nodes = [
        helper.make_node("GroupNormalization", ["x", "s", "o"], ["n"], num_groups=2),
        helper.make_node("MatMul", ["n", "w"], ["y"], "product"),
    ]
    constants = [weights("s", 2), weights("o", 2), weights("w", 32, 16)]
    source = model_of(nodes, constants, [1, 6, 32], opset)
    source.graph.output[0].type.CopyFrom(helper.make_tensor_type_proto(FLOAT, [1, 6, 16]))
    x = RANDOM.standard_normal((4, 6, 32)).astype(np.float32)
    made = rabbet.quantize(source, {"x": x}, int4=True, device="cpu")
    check(source, made, {"x": x[:1]})
    assert quantized(made) == {"product"}


@pytest.mark.parametrize("seed", [25, 48, 53, 71, 89])
def test_random_networks(seed: int) -> None:
    network, _ = make(seed, "cpu")
    feeds = [
        {name: network.tensors[name].runs[run][0] for name in network.inputs}
        for run in range(3)
    ]
    source = network.model()
    made = rabbet.quantize(source, feeds, max_error=10.0, device="cpu")
    found = in_onnx_runtime(made.to_bytes(), feeds[0])
    wanted = in_onnx_runtime(source.SerializeToString(), feeds[0])
    np.testing.assert_allclose(found, wanted, atol=0.1 * np.abs(wanted).max())
    actual = here(made.to_bytes(), feeds[0])
    actual = actual[0] if isinstance(actual, tuple) else actual
    np.testing.assert_allclose(actual, found, atol=1e-3 * np.abs(found).max())


def control_flow() -> onnx.ModelProto:
    node, info = helper.make_node, helper.make_tensor_value_info
    once = helper.make_graph(
        [node("MatMul", ["x", "w0"], ["a"], "then"), node("Tanh", ["a"], ["once"])],
        "once", [], [info("once", FLOAT, [2, 64])],
    )  # fmt: skip
    never = helper.make_graph(
        [node("MatMul", ["x", "w2"], ["never"], "else")],
        "never", [], [info("never", FLOAT, [2, 64])],
    )  # fmt: skip
    body = helper.make_graph(
        [
            node("MatMul", ["c", "w1"], ["b"], "again"),
            node("Tanh", ["b"], ["next"]),
            node("Identity", ["on"], ["still"]),
        ],
        "body",
        [info("i", TensorProto.INT64, []), info("on", TensorProto.BOOL, []),
         info("c", FLOAT, [2, 64])],
        [info("still", TensorProto.BOOL, []), info("next", FLOAT, [2, 64])],
        [weights("w1", 64, 64, scale=1.5)],
    )  # fmt: skip
    graph = helper.make_graph(
        [
            node("If", ["on"], ["h"], then_branch=once, else_branch=never),
            node("Loop", ["n", "", "h"], ["l"], body=body),
            node("MatMul", ["l", "w2"], ["y"], "last"),
        ],
        "graph",
        [info("x", FLOAT, [2, 64]), info("on", TensorProto.BOOL, []),
         info("n", TensorProto.INT64, [])],
        [info("y", FLOAT, [2, 64])],
        [weights("w0", 64, 64), weights("w2", 64, 64)],
    )  # fmt: skip
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_bodies_and_branches(kind: str) -> None:
    source = control_flow()
    feed = {
        "x": RANDOM.standard_normal((2, 64)).astype(np.float32),
        "on": np.array(True),
        "n": np.array(3, np.int64),
    }
    made = rabbet.quantize(source, [feed], **{kind: True}, device="cpu")
    check(source, made, feed)
    rows = {layer.name: layer for layer in made.layers}
    ran = {"then", "again", "last"}
    assert quantized(made) == (ran if kind == "int8" else {*ran, "else"})
    if kind == "int8":
        assert rows["else"].reason == "never ran on the calibration data"
    assert all(0 < (rows[name].error or 0) < 0.2 for name in ran)


def test_quantized_layers_stay() -> None:
    source = block()
    first = rabbet.quantize(source, WORDS, include="down", device="cpu")
    again = rabbet.quantize(first.to_bytes(), WORDS, device="cpu")
    rows = {layer.name: layer.reason for layer in again.layers}
    assert rows["down"] == "is quantized already"
    assert "down" not in quantized(again)
    check(source, again, WORDS[0])


# ---- Bounds and choices


def test_bound_leaves_the_worst_layer() -> None:
    """A layer with a large number in its input, beside which 8 bits round all others away."""
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "w0"], ["a"], "good"),
        node("Concat", ["a", "large"], ["b"], axis=1),
        node("MatMul", ["b", "w1"], ["c"], "bad"),
        node("MatMul", ["c", "w2"], ["y"], "fine"),
    ]
    w1 = numpy_helper.to_array(weights("", 33, 32)).copy()
    w1[32] *= 1e-3  # which has little effect on the result
    constants = [
        weights("w0", 32, 32), weights("w2", 32, 32), numpy_helper.from_array(w1, "w1"),
        numpy_helper.from_array(np.full((4, 1), 300, np.float32), "large"),
    ]  # fmt: skip
    source = model_of(nodes, constants, [4, 32])
    x = RANDOM.standard_normal((16, 32)).astype(np.float32)
    made = rabbet.quantize(source, {"x": x}, max_error=0.05, method="max", device="cpu")
    rows = {layer.name: layer for layer in made.layers}
    assert quantized(made) == {"good", "fine"}
    assert rows["bad"].reason == "the outputs' error would be above 5 %"
    assert made.layers[0].name == "bad"
    assert rows["bad"].alone > 0.05 > rows["good"].alone > 0
    assert made.error < 0.05
    check(source, made, {"x": x[:4]})
    assert "left (the outputs' error would be above 5 %): bad" in str(made)


def test_nothing_is_left_of_a_bound_of_zero() -> None:
    source = block()
    made = rabbet.quantize(source, WORDS, max_error=0, device="cpu")
    assert not quantized(made)
    assert made.error == 0
    assert "warning: no layer is quantized" in str(made)
    data = made.to_bytes()
    wanted = in_onnx_runtime(source.SerializeToString(), WORDS[0])
    np.testing.assert_array_equal(in_onnx_runtime(data, WORDS[0]), wanted)


def test_outputs_that_cannot_be_compared() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], "product"),
        helper.make_node("ArgMax", ["m"], ["y"], axis=1),
    ]
    source = model_of(nodes, [weights("w", 16, 8)], [4, 16], made=TensorProto.INT64)
    x = RANDOM.standard_normal((8, 16)).astype(np.float32)
    made = rabbet.quantize(source, {"x": x}, device="cpu")
    assert made.error is None
    assert "cannot be compared" in made.warnings[0]
    assert quantized(made) == {"product"}


def test_weights_that_are_not_finite() -> None:
    w = numpy_helper.to_array(weights("", 32, 16)).copy()
    w[3, 5] = np.inf
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["m"], "good"),
        helper.make_node("MatMul", ["m", "w"], ["y"], "bad"),
    ]
    constants = [weights("v", 32, 32), numpy_helper.from_array(w, "w")]
    source = model_of(nodes, constants, [4, 32])
    made = rabbet.quantize(source, int4=True)
    assert {layer.name: layer.reason for layer in made.left} == {
        "bad": "its weights hold NaN or infinity"
    }


def test_names_choose_layers() -> None:
    source = block()
    made = rabbet.quantize(
        source, WORDS, include=["value*", "up"], exclude="value again", device="cpu"
    )
    rows = {layer.name: layer.reason for layer in made.layers}
    assert quantized(made) == {"value", "up"}
    assert rows["value again"] == "excluded"
    assert rows["down"] == "not included"
    with pytest.raises(rabbet.NotFoundError, match="named 'dwon'; near it: down"):
        rabbet.quantize(source, WORDS, exclude="dwon")


# ---- Weights alone


def unpacked(tensor: onnx.TensorProto) -> Any:
    """INT4 as numbers, by the definition of ONNX."""
    data = np.frombuffer(tensor.raw_data, np.uint8)
    flat = np.stack([data & 15, data >> 4], 1).reshape(-1)[: np.prod(tensor.dims)]
    return (flat.astype(np.int8) ^ 8).astype(np.int8).reshape(tensor.dims) - 8


@pytest.mark.parametrize("turned", [0, 1])
def test_blocks_of_4_bits(turned: int) -> None:
    """Without data; a last block is cut off, and rows begin within a byte."""
    shape = (7, 75) if turned else (75, 7)
    w = weights("w", *shape)
    nodes = [helper.make_node("Gemm", ["x", "w"], ["y"], "product", transB=turned)]
    source = model_of(nodes, [w], [2, 75])
    made = rabbet.quantize(source, int4=True)
    model = onnx.load_from_string(made.to_bytes())
    onnx.checker.check_model(model, full_check=True)
    found = {tensor.name: tensor for tensor in model.graph.initializer}
    numbers = unpacked(found["w_int4"])
    scales = numpy_helper.to_array(found["w_scale"])
    assert scales.shape == ((7, 3) if turned else (3, 7))
    axis = 1 if turned else 0
    wide = np.repeat(scales, 32, axis)[:, :75] if turned else np.repeat(scales, 32, 0)[:75]
    real = numbers * wide
    exact = numpy_helper.to_array(w)
    # A scale is at least 0.7 of what the largest number of its block would need.
    assert (np.abs(real - exact) <= 7 * (1 / 0.7 - 1) * 1.001 * wide).all()
    assert made.layers[0].error == pytest.approx(relative(real, exact), rel=1e-4)
    assert 0.05 < made.layers[0].error < 0.12
    node = model.graph.node[0]
    attributes = {a.name: a.i for a in node.attribute}
    assert attributes == {"axis": axis, "block_size": 32}
    x = RANDOM.standard_normal((2, 75)).astype(np.float32)
    wanted = x @ (real.T if turned else real)
    assert relative(here(made.to_bytes(), {"x": x}), wanted) < 1e-5


def test_data_make_4_bits_more_exact() -> None:
    """Inputs that depend on each other make up for each other's errors."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], "product")]
    source = model_of(nodes, [weights("w", 128, 32)], [16, 128])
    mixed = RANDOM.standard_normal((16, 128))
    x = (RANDOM.standard_normal((512, 16)) @ mixed).astype(np.float32)
    errors = {}
    for data in (None, {"x": x}):
        made = rabbet.quantize(source, data, int4=True, max_error=None, device="cpu")
        feed = {"x": x[:16]}
        wanted = in_onnx_runtime(source.SerializeToString(), feed)
        errors[data is None] = relative(here(made.to_bytes(), feed), wanted)
    assert errors[False] < 0.6 * errors[True]


# ---- Files


def test_weights_in_a_file(tmp_path: Path) -> None:
    source = block()
    path, made_path = tmp_path / "model.onnx", tmp_path / "made.onnx"
    onnx.save(
        source, path, save_as_external_data=True, location="weights", size_threshold=64
    )
    folder = tmp_path / "data"
    folder.mkdir()
    for i, feed in enumerate(WORDS):
        np.savez(folder / f"{i}.npz", **feed)
    made = rabbet.quantize(path, folder, save=made_path, external_data=True, device="cpu")
    assert (tmp_path / "made.onnx.data").stat().st_size > 64 * 64 * 5
    onnx.checker.check_model(made_path, full_check=True)
    found = in_onnx_runtime(str(made_path), WORDS[0])
    np.testing.assert_array_equal(in_onnx_runtime(made.to_bytes(), WORDS[0]), found)
    assert relative(here(made_path, WORDS[0]), found) < 0.01
    (tmp_path / "weights").unlink()
    with pytest.raises(FileNotFoundError, match="weights 'g' lie in"):
        rabbet.quantize(path, folder)


def test_report_as_json() -> None:
    import json

    made = rabbet.quantize(convolutional(), int4=True)
    report = json.loads(made.json())
    assert report["to"] == "int4"
    rows = {row["name"]: row for row in report["layers"]}
    assert rows["classes"]["quantized"]
    assert rows["classes"]["weights"] == [32, 8]
    assert rows["first"]["reason"] == "INT4 is for MatMul and Gemm"


def product(values: np.ndarray) -> onnx.ModelProto:
    node = helper.make_node("MatMul", ["x", "w"], ["y"], "product")
    return model_of([node], [numpy_helper.from_array(values, "w")], ["n", len(values)])


def test_blocks_are_no_larger_than_the_sum() -> None:
    values = RANDOM.standard_normal((40, 4)).astype(np.float32)
    huge, whole = (
        rabbet.quantize(product(values), int4=True, block_size=size).to_bytes()
        for size in (1 << 40, 64)
    )
    assert huge == whole


def test_overflow_has_no_number_in_json() -> None:
    data = np.full((2, 32), 1e38, np.float32)
    made = rabbet.quantize(product(np.ones((32, 4), np.float32)), data, device="cpu")
    assert made.layers[0].error is not None
    assert "NaN" not in made.json()


def test_links_and_pipes_are_written(tmp_path: Path) -> None:
    """A device that was replaced by a file was lost to all of the machine."""
    made = rabbet.quantize(product(np.ones((32, 4), np.float32)), int4=True)
    (tmp_path / "link").symlink_to("target")
    made.save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == made.to_bytes()

    os.mkfifo(tmp_path / "pipe")
    end = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    made.save(tmp_path / "pipe")
    assert os.read(end, 1 << 16) == made.to_bytes()
    os.close(end)


# ---- Mistakes

BAD_DATA: list[tuple[Any, str]] = [
    ({}, "lacks input 'x'; it has none"),
    ({"x": IMAGES, "z": IMAGES}, "has 'z', and the model no such input; it has x"),
    ({"x": IMAGES.astype(np.int32)}, "has int32 for input 'x'; expected float32"),
    ({"x": IMAGES[:, :2]}, r"has shape \(6, 2, 12, 12\) for input 'x'; expected \(\?, 3"),
    ({"x": IMAGES[0, 0]}, r"has shape \(12, 12\) for input 'x', which has 4 dimensions"),
    ({"x": IMAGES[:0]}, r"shape \(0, 3, 12, 12\) for input 'x': no samples"),
    ({"x": np.where(IMAGES > 2, np.nan, IMAGES)}, "has NaN or infinity for input 'x'"),
    ({"x": IMAGES.astype(np.float64) * 1e300}, "infinity for input 'x', as float32"),
    ([], "the data are empty"),
    ([{"x": IMAGES}, {"y": IMAGES}], "item 1 lacks input 'x'; it has y"),
    ([{"x": IMAGES[:0]}], "item 0 has no samples"),
    ({1: IMAGES}, "lacks input 'x'; it has 1"),
    (5, "expected a .npz file, a folder of such"),
]


@pytest.mark.parametrize(("data", "message"), BAD_DATA)
def test_wrong_data(data: Any, message: str) -> None:
    with pytest.raises((rabbet.InvalidArgumentError, TypeError), match=message):
        rabbet.quantize(convolutional(), data, device="cpu")


def test_wrong_files(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    path.write_bytes(b"no archive")
    with pytest.raises(rabbet.DataLossError, match=r"x\.npz' is no \.npz file"):
        rabbet.quantize(convolutional(), path)
    with pytest.raises(rabbet.DataLossError, match="is not an ONNX model"):
        rabbet.quantize(path, {"x": IMAGES})
    np.savez(path, x=np.array([None], object))
    with pytest.raises(rabbet.DataLossError, match="Object arrays cannot be loaded"):
        rabbet.quantize(convolutional(), path)
    with pytest.raises(FileNotFoundError):
        rabbet.quantize(convolutional(), tmp_path / "none.npz")
    with pytest.raises(rabbet.InvalidArgumentError, match=r"has no \.npz files"):
        rabbet.quantize(convolutional(), tmp_path / ".." / tmp_path.name / "..")


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "int8 needs calibration data"),
    ({"fp8": True}, "fp8 needs calibration data"),
    ({"int8": True, "int4": True}, "int8 and int4 are given"),
    ({"int4": True, "max_error": 0.1}, "measured on calibration data"),
    ({"int4": True, "block_size": 24}, "block_size is 24; expected a power of two"),
    ({"calibration": IMAGES, "method": "mean"}, "method is 'mean'; expected one of mse|max"),
    ({"calibration": IMAGES, "max_error": -1.0}, "max_error is -1"),
    ({"calibration": IMAGES, "samples": 0}, "samples is 0; expected a number from 1 on"),
    ({"int4": True, "save": "a\0b"}, r"save: expected a path, got 'a\\x00b', which has a NUL"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(rabbet.InvalidArgumentError, match=message):
        rabbet.quantize(convolutional(), **options)
    with pytest.raises(TypeError, match="takes the path of an ONNX file"):
        rabbet.quantize(object(), IMAGES)
    with pytest.raises(TypeError, match="exclude: expected names of layers or operators"):
        rabbet.quantize(convolutional(), int4=True, exclude=[1])  # type: ignore[list-item]
