"""Refitting: other weights for a loaded plan, and plans without weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rabbet as trt
from onnx import TensorProto, helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

from tests.python.support.plugins import random

FLAG = trt.BuilderFlag
SHAPE = (2, 4, 6, 6)


def model(seed: int, half: bool = False) -> bytes:
    """A convolution, a scale by channel and batch normalization, as ONNX."""
    rng = np.random.default_rng(seed)

    def array(*shape: int) -> Any:
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)

    weights = {
        "w": array(4, 4, 3, 3) - 1,
        "b": array(4),
        "s": array(1, 4, 1, 1),
        "gamma": array(4),
        "beta": array(4),
        "mean": array(4),
        "var": array(4),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv", pads=[1] * 4),
        helper.make_node("Mul", ["c", "s"], ["m"], name="scale"),
        helper.make_node("Relu", ["m"], ["r"], name="relu"),
        helper.make_node(
            "BatchNormalization",
            ["r", "gamma", "beta", "mean", "var"],
            ["y"],
            name="bn",
        ),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, SHAPE)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(
        graph, opset_imports=opsets, ir_version=9
    ).SerializeToString()


def expected(data: bytes, x: Any) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(data, options).run(None, {"x": x})[0]


def build(data: bytes, *flags: trt.BuilderFlag, mark: tuple[str, ...] = ()) -> Any:
    builder = trt.Builder()
    network = builder.create_network()
    trt.OnnxParser(network, trt.Logger()).parse(data)
    for name in mark:
        assert network.mark_weights_refittable(name)
        assert network.are_weights_marked_refittable(name)
    config = builder.create_builder_config()
    config.device = "cpu"
    config.builder_optimization_level = 1
    for flag in flags:
        config.set_flag(flag)
    return builder.build_serialized_network(network, config)


def load(plan: Any) -> trt.ICudaEngine:
    return trt.Runtime(trt.Logger()).deserialize_cuda_engine(plan)


def run(context: trt.IExecutionContext, x: Any) -> Any:
    y = np.zeros_like(x)
    context.set_tensor_address("x", x.ctypes.data)
    context.set_tensor_address("y", y.ctypes.data)
    context.execute_async_v3(0)
    return y


def check(context: trt.IExecutionContext, data: bytes, tolerance: float = 1e-4) -> None:
    x = random(*SHAPE, seed=9)
    want = expected(data, x)
    np.testing.assert_allclose(
        run(context, x), want, rtol=tolerance, atol=10 * tolerance
    )


def refit(engine: trt.ICudaEngine, data: bytes) -> None:
    refitter = trt.Refitter(engine, trt.Logger())
    parser = trt.OnnxParserRefitter(refitter, trt.Logger())
    assert parser.refit_from_bytes(data)
    assert parser.num_errors == 0
    assert refitter.get_missing_weights() == []
    assert refitter.refit_cuda_engine()


def test_a_whole_model() -> None:
    engine = load(build(model(0), FLAG.REFIT))
    assert engine.refittable
    context = engine.create_execution_context()
    check(context, model(0))
    for seed in (1, 2):
        refit(engine, model(seed))
        check(context, model(seed))
        check(engine.create_execution_context(), model(seed))
    # The serialized engine has the new weights, and can be refitted again.
    again = load(engine.serialize())
    check(again.create_execution_context(), model(2))
    refit(again, model(3))
    check(again.create_execution_context(), model(3))
    check(context, model(2))


def test_half_precision() -> None:
    """Weights that the plan holds in another type."""
    engine = load(build(model(0), FLAG.REFIT, FLAG.FP16))
    refit(engine, model(1))
    check(engine.create_execution_context(), model(1), 2e-2)


@pytest.mark.parametrize("turned", [False, True])
def test_weights_that_stay_packed(turned: bool) -> None:
    """Scales of blocks of INT8, which a product's kernel dequantizes."""
    shape, blocks, axis = ((40, 64), (40, 2), 1) if turned else ((64, 40), (2, 40), 0)
    numbers = np.random.default_rng(0).integers(-128, 128, shape).astype(np.int8)

    def scales(seed: int) -> Any:
        return np.random.default_rng(seed).uniform(0.01, 0.02, blocks).astype(np.float32)

    def product(seed: int) -> bytes:
        weights = {"w": numbers, "s": scales(seed)}
        ends = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in [("x", (2, 3, 64)), ("y", (2, 3, 40))]
        ]
        read = helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=axis, block_size=32)
        turn = helper.make_node("Transpose", ["d"], ["t"], perm=[1, 0])
        multiply = helper.make_node("MatMul", ["x", "t" if turned else "d"], ["y"])
        nodes = [read, turn, multiply] if turned else [read, multiply]
        initializers = [numpy_helper.from_array(v, name) for name, v in weights.items()]
        graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], initializers)
        opsets = [helper.make_opsetid("", 21)]
        made = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        return made.SerializeToString()

    engine = load(build(product(1), FLAG.REFIT))
    x = random(2, 3, 64)
    for seed in (1, 2):
        if seed > 1:
            refit(engine, product(seed))
        found = np.empty((2, 3, 40), np.float32)
        context = engine.create_execution_context()
        context.execute_v2([x.ctypes.data, found.ctypes.data])
        real = numbers * np.repeat(scales(seed), 32, axis)
        np.testing.assert_allclose(found, x @ (real.T if turned else real), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_recurrent_weights(kind: str) -> None:
    """Kernels have packed them."""

    def recurrent(seed: int) -> bytes:
        gates, hidden = (4 if kind == "LSTM" else 3), 20
        shapes = {"w": (1, gates * hidden, 6), "r": (1, gates * hidden, hidden)}
        shapes["b"] = (1, 2 * gates * hidden)
        ends = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in [("x", (2, 24, 6)), ("y", (2, 1, 24, hidden))]
        ]
        names = ["x", *shapes]
        node = helper.make_node(kind, names, ["y"], name="net", hidden_size=hidden)
        weights = [
            numpy_helper.from_array(random(*shape, seed=seed + i) / 3, name)
            for i, (name, shape) in enumerate(shapes.items())
        ]
        graph = helper.make_graph([node], "g", ends[:1], ends[1:], weights)
        opsets = [helper.make_opsetid("", 17)]
        made = helper.make_model(graph, opset_imports=opsets, ir_version=9)
        return made.SerializeToString()

    engine = load(build(recurrent(1), FLAG.REFIT))
    refit(engine, recurrent(9))
    x = random(2, 24, 6)
    found = np.empty((2, 1, 24, 20), np.float32)
    context = engine.create_execution_context()
    context.execute_v2([x.ctypes.data, found.ctypes.data])
    np.testing.assert_allclose(found, expected(recurrent(9), x), rtol=1e-4, atol=1e-5)


def test_single_weights() -> None:
    engine = load(build(model(0), FLAG.REFIT))
    refitter = trt.Refitter(engine, trt.Logger())
    assert {"w", "b", "s"} <= set(refitter.get_all_weights())
    assert refitter.get_missing() == ([], [])
    layers, roles = refitter.get_all()
    assert ("conv", trt.WeightsRole.KERNEL) in zip(layers, roles, strict=True)
    prototype = refitter.get_weights_prototype("w")
    assert (prototype.dtype, prototype.size) == (trt.float32, 4 * 4 * 3 * 3)
    assert refitter.get_named_weights("w").size == 0
    new = random(4, 4, 3, 3)
    assert refitter.set_named_weights("w", new)
    assert np.array_equal(refitter.get_named_weights("w").numpy(), new)
    assert refitter.get_weights_location("w") is trt.TensorLocation.HOST
    assert refitter.unset_named_weights("w")
    assert refitter.set_weights("conv", trt.WeightsRole.KERNEL, new)
    assert refitter.refit_cuda_engine_async(0)
    changed = model(0).replace(
        numpy_helper.from_array(_initializer(model(0), "w")).raw_data, new.tobytes()
    )
    check(engine.create_execution_context(), changed)


def _initializer(data: bytes, name: str) -> Any:
    import onnx

    graph = onnx.load_from_string(data).graph
    return next(numpy_helper.to_array(i) for i in graph.initializer if i.name == name)


@pytest.mark.parametrize("flags", [(FLAG.STRIP_PLAN,), (FLAG.STRIP_PLAN, FLAG.REFIT)])
def test_stripped_plans(flags: tuple[Any, ...]) -> None:
    plan = build(model(0), *flags)
    engine = load(plan)
    total = engine.get_engine_stat(trt.EngineStat.TOTAL_WEIGHTS_SIZE)
    stripped = engine.get_engine_stat(trt.EngineStat.STRIPPED_WEIGHTS_SIZE)
    assert total >= stripped >= 4 * 4 * 3 * 3 * 4
    assert plan.nbytes < build(model(0), FLAG.REFIT).nbytes - 4 * 4 * 3 * 3 * 4 + 64
    assert _initializer(model(0), "w").tobytes() not in bytes(plan)
    with pytest.raises(trt.Error, match=r"lacks .* bytes of weights"):
        engine.create_execution_context()
    refitter = trt.Refitter(engine, trt.Logger())
    assert set(refitter.get_missing_weights()) == set(refitter.get_all_weights())
    with pytest.raises(
        trt.Error, match="weights are missing, which the plan does not hold"
    ):
        refitter.refit_cuda_engine()
    refit(engine, model(1))
    check(engine.create_execution_context(), model(1))
    check(load(engine.serialize()).create_execution_context(), model(1))
    # And back: without weights again.
    config = engine.create_serialization_config()
    assert config.set_flag(trt.SerializationFlag.EXCLUDE_WEIGHTS)
    assert config.get_flag(trt.SerializationFlag.EXCLUDE_WEIGHTS)
    assert bytes(engine.serialize_with_config(config)) == bytes(plan)
    config.clear_flag(trt.SerializationFlag.EXCLUDE_WEIGHTS)
    assert config.flags == 0
    assert bytes(engine.serialize_with_config(config)) == bytes(engine.serialize())


def test_marked_weights() -> None:
    engine = load(build(model(0), FLAG.REFIT_INDIVIDUAL, mark=("w",)))
    refitter = trt.Refitter(engine, trt.Logger())
    assert refitter.get_all_weights() == ["w"]
    new = random(4, 4, 3, 3)
    refitter.set_named_weights("w", new)
    refitter.refit_cuda_engine()
    changed = model(0).replace(
        numpy_helper.from_array(_initializer(model(0), "w")).raw_data, new.tobytes()
    )
    check(engine.create_execution_context(), changed)


def test_names_of_weights() -> None:
    """Of a network without a file, by arrays and by layers."""
    builder = trt.Builder()
    network = builder.create_network()
    config = builder.create_builder_config()
    config.device = "cpu"
    config.set_flag(FLAG.REFIT)
    kernel, scale = random(2, 3, 1, 1), random(1, 2, 1, 1)
    x = network.add_input("x", trt.float32, (1, 3, 4, 4))
    layer = network.add_convolution_nd(x, 2, (1, 1), kernel)
    constant = network.add_constant((1, 2, 1, 1), scale)
    constant.name = "scale"
    product = trt.ElementWiseOperation.PROD
    y = network.add_elementwise(layer.get_output(0), constant.get_output(0), product)
    network.mark_output(y.get_output(0))
    y.get_output(0).name = "y"
    assert network.set_weights_name(kernel, "my kernel")
    assert network.set_weights_name(kernel, "kernel")
    with pytest.raises(LookupError, match="no layer was given these weights"):
        network.set_weights_name(random(3), "other")
    with pytest.raises(LookupError, match="no weights named 'nothing'"):
        network.mark_weights_refittable("nothing")
    with pytest.raises(ValueError, match="tensor 'x' is computed"):
        network.mark_weights_refittable("x")
    engine = builder.build_engine_with_config(network, config)
    refitter = trt.Refitter(engine)
    assert "kernel" in refitter.get_all_weights()
    assert ("scale", trt.WeightsRole.CONSTANT) in zip(*refitter.get_all(), strict=True)
    refitter.set_weights("scale", trt.WeightsRole.CONSTANT, 2 * scale)
    refitter.set_named_weights("kernel", 3 * kernel)
    refitter.refit_cuda_engine()
    context = engine.create_execution_context()
    data, out = random(1, 3, 4, 4), np.zeros((1, 2, 4, 4), np.float32)
    context.execute_v2([data.ctypes.data, out.ctypes.data])
    want = np.einsum("oi,nihw->nohw", kernel[:, :, 0, 0], data) * scale * 6
    np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-5)


def refitted(make: Any, value: Any, new: Any, x: Any) -> list[Any]:
    """Outputs of `make(network, x, weights)`, before its weights are replaced and after."""
    builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
    network = builder.create_network()
    config = builder.create_builder_config()
    config.device = "cpu"
    config.set_flag(FLAG.REFIT)
    tensor = network.add_input("x", trt.float32, x.shape)
    constant = network.add_constant(value.shape, value).get_output(0)
    constant.name = "weights"
    network.mark_output(make(network, tensor, constant))
    engine = builder.build_engine_with_config(network, config)
    model = trt.Model(engine)
    results = [model(x)]
    refitter = trt.Refitter(engine, trt.Logger())
    assert refitter.set_named_weights("weights", new)
    assert refitter.refit_cuda_engine()
    return [*results, model(x)]


def test_weights_in_other_shapes() -> None:
    """A reshape of weights lies where they do."""

    def make(network: Any, x: Any, weights: Any) -> Any:
        layer = network.add_shuffle(weights)
        layer.reshape_dims = (3, 2)
        kind = trt.ElementWiseOperation.SUM
        return network.add_elementwise(x, layer.get_output(0), kind).get_output(0)

    x, old, new = random(3, 2), random(6, seed=1), random(6, seed=2)
    before, after = refitted(make, old, new, x)
    np.testing.assert_array_equal(before, x + old.reshape(3, 2))
    np.testing.assert_array_equal(after, x + new.reshape(3, 2))


def test_integers_of_weights() -> None:
    """Few enough for the host to know them, and yet not known when a plan is built."""

    def make(network: Any, x: Any, weights: Any) -> Any:
        rounded = network.add_unary(weights, trt.UnaryOperation.ROUND).get_output(0)
        return network.add_cast(rounded, trt.int64).get_output(0)

    x, old, new = random(2), np.float32([1, 2, 3]), np.float32([-4, 5, 6])
    before, after = refitted(make, old, new, x)
    assert before.tolist() == [1, 2, 3]
    assert after.tolist() == [-4, 5, 6]


def test_the_shape_of_weights() -> None:
    """Is known, whatever they become."""

    def make(network: Any, x: Any, weights: Any) -> Any:
        layer = network.add_shuffle(x)
        layer.set_input(1, network.add_shape(weights).get_output(0))
        kind = trt.ElementWiseOperation.PROD
        return network.add_elementwise(layer.get_output(0), weights, kind).get_output(0)

    x, old, new = random(6), random(2, 3, seed=1), random(2, 3, seed=2)
    before, after = refitted(make, old, new, x)
    np.testing.assert_array_equal(before, x.reshape(2, 3) * old)
    np.testing.assert_array_equal(after, x.reshape(2, 3) * new)


def test_weights_that_shapes_are_calculated_from() -> None:
    """They cannot be replaced, at one remove neither."""

    def make(network: Any, x: Any, weights: Any) -> Any:
        layer = network.add_shuffle(x)
        layer.set_input(1, network.add_cast(weights, trt.int32).get_output(0))
        return layer.get_output(0)

    with pytest.raises(trt.Error, match="no weights that can be refitted"):
        refitted(make, np.float32([3, 2]), np.float32([2, 3]), random(6))


def test_mistakes(tmp_path: Path) -> None:
    plain = load(build(model(0)))
    assert not plain.refittable
    with pytest.raises(trt.Error, match="build it with the flag REFIT"):
        trt.Refitter(plain, trt.Logger())
    config = plain.create_serialization_config()
    config.set_flag(trt.SerializationFlag.EXCLUDE_WEIGHTS)
    with pytest.raises(trt.Error, match="not built for refitting"):
        plain.serialize_with_config(config)
    engine = load(build(model(0), FLAG.REFIT))
    refitter = trt.Refitter(engine, trt.Logger())
    with pytest.raises(LookupError, match="no weights named 'q' can be refitted"):
        refitter.set_named_weights("q", random(3))
    with pytest.raises(LookupError, match="layer 'conv' has no weights of role 3"):
        refitter.set_weights("conv", trt.WeightsRole.SCALE, random(4))
    with pytest.raises(
        ValueError, match="'b' are 4 elements of FLOAT; they cannot become 3"
    ):
        refitter.set_named_weights("b", random(3))
    with pytest.raises(ValueError, match="of HALF"):
        refitter.set_named_weights("b", random(4).astype(np.float16))
    with pytest.raises(ValueError, match="an array lies in the host's memory"):
        refitter.set_named_weights("b", random(4), trt.TensorLocation.DEVICE)
    parser = trt.OnnxParserRefitter(refitter)
    with pytest.raises(trt.Error, match="call load_model_proto"):
        parser.refit_model_proto()
    with pytest.raises(trt.Error):
        parser.refit_from_bytes(b"no model")
    assert parser.num_errors == 1
    assert parser.get_error(0).desc()
    parser.clear_errors()
    assert parser.num_errors == 0
    other = helper.make_model(
        helper.make_graph(
            [helper.make_node("Relu", ["x"], ["y"])],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, SHAPE)],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
    )
    with pytest.raises(trt.Error, match="the model has no weights 'w'"):
        parser.refit_from_bytes(other.SerializeToString())
    # In steps, and from a file.
    (tmp_path / "m.onnx").write_bytes(model(4))
    assert parser.refit_from_file(tmp_path / "m.onnx")
    assert parser.load_model_proto(model(4))
    new = np.float32([1, 2, 3, 4])
    assert parser.load_initializer("b", new, new.nbytes)
    assert parser.refit_model_proto()
    assert np.array_equal(refitter.get_named_weights("b").numpy(), new)
    # Nothing was put into the engine.
    check(engine.create_execution_context(), model(0))


def test_weights_at_an_address_of_the_device() -> None:
    """Which the CPU's is, too; they are copied, so that the memory may go."""
    engine = load(build(model(0), FLAG.REFIT))
    refitter = trt.Refitter(engine)
    new = np.arange(4, dtype=np.float32)
    address = trt.Weights(trt.float32, new.ctypes.data, new.size)
    assert refitter.set_named_weights("b", address, trt.TensorLocation.DEVICE)
    kept = refitter.get_named_weights("b").numpy()
    new[...] = np.nan
    np.testing.assert_array_equal(kept, [0, 1, 2, 3])


# ---- Names of weights that were given none


def engine_of(network: trt.INetworkDefinition, flag: trt.BuilderFlag) -> trt.ICudaEngine:
    config = trt.Builder().create_builder_config()
    config.device = "cpu"
    config.set_flag(flag)
    return trt.Builder().build_engine_with_config(network, config)


def test_default_names() -> None:
    """Of a layer and a role, as TensorRT has them; what layers are made of inside is
    nobody's weights."""
    rng = np.random.default_rng(5)
    kernel = rng.standard_normal((4, 3, 3, 3), np.float32)
    bias, factor, shift = rng.standard_normal((3, 4), np.float32)
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (1, 3, 6, 6))
    conv = network.add_convolution_nd(x, 4, (3, 3), kernel, bias)
    scale = network.add_scale(conv.get_output(0), trt.ScaleMode.CHANNEL, shift, factor)
    constant = network.add_constant((1, 4, 1, 1), bias)
    total = network.add_elementwise(
        scale.get_output(0), constant.get_output(0), trt.ElementWiseOperation.SUM
    )
    network.mark_output(total.get_output(0))
    conv.name, scale.name, constant.name = "conv", "scale", "some"
    engine = engine_of(network, FLAG.REFIT)
    refitter = trt.Refitter(engine)
    names = ["conv KERNEL", "conv BIAS", "scale SCALE", "scale SHIFT", "some CONSTANT"]
    assert sorted(refitter.get_all_weights()) == sorted(names)
    pairs = set(zip(*refitter.get_all(), strict=True))
    split = [name.split() for name in names]
    assert pairs == {(layer, trt.WeightsRole[role]) for layer, role in split}
    new = {
        name: rng.standard_normal(refitter.get_weights_prototype(name).size, np.float32)
        for name in names
    }
    for name in names[:3]:
        assert refitter.set_named_weights(name, new[name])
    for name in names[3:]:
        layer, role = name.split()
        assert refitter.set_weights(layer, trt.WeightsRole[role], new[name])
    for wrong in ("conv", "conv SCALE", "weights"):
        with pytest.raises(trt.NotFoundError, match="no weights named"):
            refitter.set_named_weights(wrong, bias)
    assert refitter.refit_cuda_engine()
    value = rng.standard_normal((1, 3, 6, 6), np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(value, (3, 3), axis=(2, 3))
    kernel = new["conv KERNEL"].reshape(4, 3, 3, 3)
    column = (1, 4, 1, 1)
    expected = np.einsum("ncyxij,ocij->noyx", windows, kernel)
    expected += new["conv BIAS"].reshape(column)
    expected = expected * new["scale SCALE"].reshape(column)
    expected += (new["scale SHIFT"] + new["some CONSTANT"]).reshape(column)
    found = trt.Model(engine)(value)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_default_names_in_the_network() -> None:
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (2,))
    one, two = (network.add_constant((2,), np.ones(2, np.float32)) for _ in range(2))
    one.name = "one"
    for constant in (one, two):
        x = network.add_elementwise(
            x, constant.get_output(0), trt.ElementWiseOperation.SUM
        ).get_output(0)
    network.mark_output(x)
    assert network.mark_weights_refittable("one CONSTANT")
    assert network.are_weights_marked_refittable("one CONSTANT")
    engine = engine_of(network, FLAG.REFIT_INDIVIDUAL)
    assert trt.Refitter(engine).get_all_weights() == ["one CONSTANT"]


FOLDED = {
    "Gemm": "y = Gemm<transB = 1, alpha = 0.5, beta = 2.0>(x, turned, b)",
    "transpose": "w = Transpose<perm = [1, 0]>(turned)\nm = MatMul(x, w)\ny = Add(m, b)",
    "reshaped bias": "r = Reshape(b, shape)\nm = MatMul(x, straight)\ny = Add(m, r)",
    "cast": "c = Cast<to = 1>(half)\ny = MatMul(x, c)",
    "scaled": "s = Mul(straight, b)\ny = MatMul(x, s)",
    "both ways": "m = MatMul(x, straight)\nw = Transpose<perm = [1, 0]>(straight)\n"
    "y = MatMul(m, w)",
    "slices": "p, q = Split<axis = 1>(straight, parts)\nm = MatMul(x, p)\nn = MatMul(x, q)\n"
    "y = Concat<axis = 1>(n, m)",
}  # fmt: skip


@pytest.mark.parametrize("nodes", FOLDED.values(), ids=FOLDED)
def test_initializers_that_the_importer_computes_with(nodes: str) -> None:
    """As exporters write them, with as many elements as are folded at import and more."""

    def model(rows: int, seed: int) -> Any:
        generator = np.random.default_rng(seed)

        def draw(*shape: int) -> Any:
            return generator.standard_normal(shape).astype(np.float32)

        weights = {
            "turned": draw(6, rows), "straight": draw(rows, 6), "b": draw(6),
            "half": draw(rows, 6).astype(np.float16), "shape": np.array([1, 6]),
            "parts": np.array([2, 4]),
        }  # fmt: skip
        text = f"""<ir_version: 8, opset_import: ["": 17]>
            folded (float[3, {rows}] x) => (float[3, n] y) {{ {nodes} }}"""
        found = parser.parse_model(text)
        used = {name for node in found.graph.node for name in node.input}
        for name in used & weights.keys():
            found.graph.initializer.append(
                numpy_helper.from_array(weights[name], name)
            )
        return found

    for rows in (8, 1024):
        first, second = model(rows, 1), model(rows, 2)
        builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
        network = builder.create_network()
        assert trt.OnnxParser(network).parse(first.SerializeToString())
        config = builder.create_builder_config()
        config.device, config.builder_optimization_level = "cpu", 0
        config.set_flag(FLAG.REFIT)
        engine = builder.build_engine_with_config(network, config)
        refitter = trt.Refitter(engine)
        importer = trt.OnnxParserRefitter(refitter)
        assert importer.refit_from_bytes(second.SerializeToString())
        assert refitter.refit_cuda_engine()
        x = random(3, rows)
        (expected,) = ReferenceEvaluator(second).run(None, {"x": x})
        np.testing.assert_allclose(trt.Model(engine)(x), expected, rtol=1e-3, atol=1e-3)
        with pytest.raises(LookupError) as error:
            refitter.set_named_weights("nothing", x)
        assert "OnnxParserRefitter" in str(error.value.__notes__)
