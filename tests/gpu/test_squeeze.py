"""Gates of squeeze and excitation: means of channels and the convolutions of them are one
kernel, where nothing else reads what is between."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
import pytest
import rabbet
from onnx import TensorProto

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)
CHANNELS, HIDDEN = 24, 6
MANY = 2056  # FLOATs of more than 512 vectors, a block's threads
CHAINS = {
    "relu": [("Relu", ["{x}"], {})],
    "swish": [("Sigmoid", ["{x}"], {}), ("Mul", ["{x}", "{y}"], {})],
    "sigmoid": [("Sigmoid", ["{x}"], {})],
    "hard sigmoid": [
        ("Add", ["{x}", "three"], {}),
        ("Clip", ["{y}", "zero", "six"], {}),
        ("Div", ["{y}", "six"], {}),
    ],
}


def gate(
    chains: list[str], pooling: str = "GlobalAveragePool", reader: bool = False,
    channels: int = CHANNELS,
) -> onnx.ModelProto:  # fmt: skip
    """x * gate(x), a convolution for each chain; `reader`: the first one's result is an
    output, too."""
    random = np.random.default_rng(len(chains))
    nodes: list[onnx.NodeProto] = []
    inits: dict[str, Any] = {
        "three": np.float32(3), "zero": np.float32(0), "six": np.float32(6)
    }  # fmt: skip
    if pooling == "ReduceMean":
        nodes.append(oh.make_node(pooling, ["x"], ["pooled"], axes=[2, 3], keepdims=1))
    else:
        nodes.append(oh.make_node(pooling, ["x"], ["pooled"]))
    at, width = "pooled", channels
    for i, chain in enumerate(chains):
        last = i + 1 == len(chains)
        outputs = channels if last else HIDDEN
        inits[f"w{i}"] = random.standard_normal((outputs, width, 1, 1), np.float32) / 3
        inits[f"b{i}"] = random.standard_normal(outputs, np.float32)
        nodes.append(oh.make_node("Conv", [at, f"w{i}", f"b{i}"], [f"c{i}"]))
        x = y = f"c{i}"
        for k, (kind, names, attributes) in enumerate(CHAINS[chain]):
            given = [name.format(x=x, y=y) for name in names]
            y = f"{i}.{k}"
            nodes.append(oh.make_node(kind, given, [y], **attributes))
        at, width = y, outputs
    nodes.append(oh.make_node("Mul", ["x", at], ["y"]))
    outputs_ = [oh.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    if reader:
        outputs_.append(oh.make_tensor_value_info("c0", TensorProto.FLOAT, None))
    graph = oh.make_graph(
        nodes, "gate",
        [oh.make_tensor_value_info("x", TensorProto.FLOAT, ["n", channels, "h", 10])],
        outputs_,
        [onnx.numpy_helper.from_array(v, k) for k, v in inits.items()],
    )  # fmt: skip
    return oh.make_model(
        graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=9
    )


def by_onnxruntime(model: onnx.ModelProto, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString())
    return np.asarray(session.run(["y"], {"x": x})[0])


def build(model: onnx.ModelProto, **given: Any) -> tuple[Any, list[str]]:
    """The model and the kernels of its plan, without timing: the largest groups."""
    shape = {"min": (1, CHANNELS, 1, 10), "opt": (2, CHANNELS, 9, 10), "max": (5, CHANNELS, 40, 10)}
    built = rabbet.compile(
        model.SerializeToString(), device="cuda", optimization_level=0,
        shapes={"x": tuple(shape.values())}, **given,
    )  # fmt: skip
    return built, [step["kernel"] for step in json.loads(built.report_json)["steps"]]


@pytest.mark.parametrize("fp16", [False, True])
@pytest.mark.parametrize(
    ("chains", "pooling"),
    [
        (["swish", "sigmoid"], "GlobalAveragePool"),
        (["relu", "hard sigmoid"], "ReduceMean"),
        (["hard sigmoid"], "GlobalAveragePool"),
    ],
)
def test_against_onnxruntime(chains: list[str], pooling: str, fp16: bool) -> None:
    model = gate(chains, pooling)
    built, kernels = build(model, fp16=fp16)
    assert "cuda.squeeze" in kernels
    assert "cuda.reduce" not in kernels
    random = np.random.default_rng(1)
    for batch, height in ((2, 9), (1, 1), (5, 40)):
        x = random.standard_normal((batch, CHANNELS, height, 10), np.float32)
        np.testing.assert_allclose(
            np.asarray(built(x)), by_onnxruntime(model, x), atol=1e-2 if fp16 else 1e-5
        )


def test_another_reader() -> None:
    """What something else reads is made by a kernel of its own."""
    model = gate(["relu", "sigmoid"], reader=True)
    built, kernels = build(model, tf32=False)
    x = np.random.default_rng(2).standard_normal((2, CHANNELS, 9, 10), np.float32)
    np.testing.assert_allclose(np.asarray(built(x)[0]), by_onnxruntime(model, x), atol=1e-5)
    assert len(kernels) > 2


def test_more_vectors_of_channels_than_threads() -> None:
    """Channels last, for which a thread has one vector."""
    model = gate(["sigmoid"], channels=MANY)
    network = rabbet.Builder().create_network()
    assert rabbet.OnnxParser(network).parse(model.SerializeToString())
    for tensor in (network.get_input(0), network.get_output(0)):
        tensor.allowed_formats = 1 << int(rabbet.TensorFormat.HWC)
    config = rabbet.Builder().create_builder_config()
    config.device, config.builder_optimization_level = "cuda", 0
    config.clear_flag(rabbet.BuilderFlag.TF32)
    profile = rabbet.Builder().create_optimization_profile()
    profile.set_shape("x", *3 * [(1, MANY, 1, 10)])
    config.add_optimization_profile(profile)
    plan = rabbet.Builder().build_serialized_network(network, config)
    engine = rabbet.Runtime(rabbet.Logger()).deserialize_cuda_engine(plan)
    context = engine.create_execution_context()
    x = np.random.default_rng(3).standard_normal((1, MANY, 1, 10), np.float32)
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    with cuda_driver.memory(x.nbytes) as source, cuda_driver.memory(x.nbytes) as target:
        cuda_driver.write(source, last)
        context.set_input_shape("x", x.shape)
        context.set_tensor_address("x", source)
        context.set_tensor_address("y", target)
        assert context.execute_async_v3(0)
        found = cuda_driver.read(target, last.shape).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(found, by_onnxruntime(model, x), atol=1e-5)
