"""Mixtures of experts of com.microsoft, against NumPy and, where it has them, ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import rabbet
from onnx import helper, numpy_helper

HIDDEN, INNER, EXPERTS = 16, 32, 4
MOE = ["x", "router", "w1", "b1", "w2", "b2", "w3", "b3"]
QMOE = ["x", "router", "w1", "s1", "b1", "w2", "s2", "b2", "w3", "s3", "b3", "z1", "z2", "z3",
        "mixing"]  # fmt: skip


def model_of(
    operator: str, order: list[str], feeds: dict[str, Any], **attributes: Any
) -> onnx.ModelProto:
    """Tokens and their routes are inputs, all others initializers."""
    given = [name if name in feeds else "" for name in order]
    while not given[-1]:
        given.pop()
    node = helper.make_node(operator, given, ["y"], domain="com.microsoft", **attributes)
    open_inputs = [name for name in ("x", "router", "mixing") if name in feeds]
    graph = helper.make_graph(
        [node], "g",
        [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, feeds[n].shape)
         for n in open_inputs],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(v, n) for n, v in feeds.items() if n not in open_inputs],
    )  # fmt: skip
    return helper.make_model(
        graph, ir_version=9,
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)])


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "relu2": lambda x: np.maximum(x, 0) ** 2,
    "identity": lambda x: x,
    "silu": lambda x: x * sigmoid(x),
    "gelu": lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
}


def inner(feeds: dict[str, Any], expert: int, token: Any, attributes: dict[str, Any]) -> Any:
    name = attributes.get("activation_type", "relu")
    fusion = attributes.get("swiglu_fusion", 0)

    def product(i: int) -> Any:
        bias = feeds[f"b{i}"][expert] if f"b{i}" in feeds else 0
        return feeds[f"w{i}"][expert] @ token + bias

    gate, up = product(1), product(3) if "w3" in feeds else None
    if fusion == 1:
        gate, up = gate[::2], gate[1::2]
    elif fusion == 2:
        gate, up = np.split(gate, 2)
    if name == "geglu":
        return ACTIVATIONS["gelu"](gate) * up
    if name == "swiglu":
        limit = attributes.get("swiglu_limit", np.inf)
        gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
        alpha = attributes.get("activation_alpha", 1.0)
        return gate * sigmoid(alpha * gate) * (up + attributes.get("activation_beta", 0.0))
    y = ACTIVATIONS[name](gate)
    return y if up is None else y * up


def expected(feeds: dict[str, Any], **attributes: Any) -> Any:
    x = feeds["x"].reshape(-1, HIDDEN).astype(np.float64)
    router = feeds["router"].astype(np.float64)
    chosen = np.argsort(-router, 1, "stable")[:, : attributes.get("k", 1)]
    shares = np.exp(router - router.max(1, keepdims=True))
    shares = feeds.get("mixing", shares / shares.sum(1, keepdims=True))
    y = np.zeros_like(x)
    for i, token in enumerate(x):
        share = shares[i, chosen[i]]
        if attributes.get("normalize_routing_weights"):
            share = share / share.sum()
        for weight, expert in zip(share, chosen[i], strict=True):
            out = feeds["w2"][expert] @ inner(feeds, expert, token, attributes)
            y[i] += weight * (out + (feeds["b2"][expert] if "b2" in feeds else 0))
    return y.reshape(feeds["x"].shape)


def random_feeds(rng: Any, fused: bool, third: bool, bias: bool, rank: int) -> dict[str, Any]:
    def random(*shape: int) -> Any:
        return (rng.standard_normal(shape) / 2).astype(np.float32)

    wide = INNER * (2 if fused else 1)
    feeds = {
        "x": random(6, HIDDEN) if rank == 2 else random(2, 3, HIDDEN),
        "router": random(6, EXPERTS),
        "w1": random(EXPERTS, wide, HIDDEN), "w2": random(EXPERTS, HIDDEN, INNER),
    }  # fmt: skip
    if third:
        feeds["w3"] = random(EXPERTS, INNER, HIDDEN)
    if bias:
        feeds |= {"b1": random(EXPERTS, wide), "b2": random(EXPERTS, HIDDEN)}
        if third:
            feeds["b3"] = random(EXPERTS, INNER)
    return feeds


def run(model: onnx.ModelProto, feeds: dict[str, Any]) -> Any:
    compiled = rabbet.compile(
        model.SerializeToString(), device="cpu", threads=1, optimization_level=0)
    names = [value.name for value in model.graph.input]
    return np.asarray(compiled(*[feeds[name] for name in names]))


def by_onnx_runtime(model: onnx.ModelProto, feeds: dict[str, Any]) -> Any:
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [value.name for value in model.graph.input]
    return session.run(None, {name: feeds[name] for name in names})[0]


LIMITED = {"swiglu_limit": 0.4, "activation_alpha": 1.702, "activation_beta": 1.0}
# Attributes; whether there are third weights; whether ONNX Runtime computes it.
CASES = {
    "relu": ({}, False, True),
    "normalized": ({"normalize_routing_weights": 1}, False, True),
    "relu2": ({"activation_type": "relu2"}, False, False),
    "gelu": ({"activation_type": "gelu"}, False, True),
    "silu": ({"activation_type": "silu"}, False, True),
    "identity": ({"activation_type": "identity"}, False, True),
    "gelu with fc3": ({"activation_type": "gelu"}, True, False),
    "silu with fc3": ({"activation_type": "silu"}, True, False),
    "swiglu in turns": (
        {"activation_type": "swiglu", "swiglu_fusion": 1, **LIMITED}, False, True),
    "swiglu in halves": ({"activation_type": "swiglu", "swiglu_fusion": 2}, False, False),
    "swiglu with fc3": ({"activation_type": "swiglu", **LIMITED}, True, False),
    "geglu": ({"activation_type": "geglu", "swiglu_fusion": 1}, False, False),
}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("rank", "k"), [(2, 2), (3, 1)])
@pytest.mark.parametrize("name", CASES)
def test_experts(name: str, rank: int, k: int, bias: bool) -> None:
    attributes, third, known = CASES[name]
    fused = attributes.get("swiglu_fusion", 0) > 0
    feeds = random_feeds(np.random.default_rng(len(name)), fused, third, bias, rank)
    model = model_of("MoE", MOE, feeds, k=k, **attributes)
    found, correct = run(model, feeds), expected(feeds, k=k, **attributes)
    np.testing.assert_allclose(found, correct, rtol=1e-4, atol=1e-4)
    if known:
        np.testing.assert_allclose(
            by_onnx_runtime(model, feeds), correct, rtol=1e-3, atol=1e-3)


def pack(numbers: Any, bits: int) -> Any:
    """Numbers along the last axis, the first in the lowest bits of a byte."""
    each = 8 // bits
    padding = -numbers.shape[-1] % each
    numbers = np.pad(numbers, [(0, 0)] * (numbers.ndim - 1) + [(0, padding)])
    parts = numbers.reshape(*numbers.shape[:-1], -1, each).astype(np.uint32)
    return (parts << (np.arange(each) * bits)).sum(-1).astype(np.uint8)


def quantize(rng: Any, feeds: dict[str, Any], i: int, bits: int, block: int, zeros: bool) -> Any:
    """Makes w<i> packed numbers with scales; returns what they stand for."""
    experts, rows, columns = feeds[f"w{i}"].shape
    blocks = columns // block if block else 1
    numbers = rng.integers(0, 1 << bits, (experts, rows, columns))
    scales = rng.uniform(0.01, 0.1, (experts, rows, blocks)).astype(np.float32)
    zero = np.full((experts, rows, blocks), 1 << bits - 1)
    if zeros:
        zero = rng.integers(0, 1 << bits, zero.shape)
        feeds[f"z{i}"] = pack(zero if block else zero[..., 0], bits)
    feeds[f"w{i}"] = pack(numbers, bits)
    feeds[f"s{i}"] = scales if block else scales[..., 0]
    spread = columns // blocks
    return (numbers - zero.repeat(spread, 2)) * scales.repeat(spread, 2)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("block", [0, 16])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_quantized_experts(bits: int, block: int, zeros: bool) -> None:
    rng = np.random.default_rng(bits)
    attributes = {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1,
                  "normalize_routing_weights": 1}  # fmt: skip
    feeds = random_feeds(rng, True, False, True, 2)
    exact = dict(feeds)
    for i in (1, 2):
        exact[f"w{i}"] = quantize(rng, feeds, i, bits, block, zeros)
    sizes = {"block_size": block} if block else {}
    model = model_of("QMoE", QMOE, feeds, expert_weight_bits=bits, **attributes, **sizes)
    found, correct = run(model, feeds), expected(exact, **attributes)
    np.testing.assert_allclose(found, correct, rtol=1e-4, atol=1e-3)
    if bits != 2:
        other = by_onnx_runtime(model, feeds)
        np.testing.assert_allclose(other, correct, rtol=3e-2, atol=3e-2 * abs(correct).max())


def test_weights_for_mixing() -> None:
    rng = np.random.default_rng(3)
    feeds = random_feeds(rng, False, False, False, 2)
    feeds["mixing"] = rng.uniform(0, 1, (6, EXPERTS)).astype(np.float32)
    exact = dict(feeds)
    for i in (1, 2):
        exact[f"w{i}"] = quantize(rng, feeds, i, 8, 0, False)
    attributes = {"k": 2, "activation_type": "relu"}
    model = model_of("QMoE", QMOE, feeds, expert_weight_bits=8, **attributes)
    np.testing.assert_allclose(
        run(model, feeds), expected(exact, **attributes), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("change", "message"), [
    ({"k": 9}, "'k' is 9; expected 1 to 4"),
    ({"use_sparse_mixer": 1}, "sparse mixer"),
    ({"activation_type": "odd"}, "'odd'; expected relu"),
    ({"activation_type": "swiglu"}, "weights of fc3 are missing"),
    ({"activation_type": "swiglu", "swiglu_fusion": 3}, "'swiglu_fusion' is 3"),
])  # fmt: skip
def test_experts_that_are_refused(change: dict[str, Any], message: str) -> None:
    feeds = random_feeds(np.random.default_rng(0), False, False, False, 2)
    model = model_of("MoE", MOE, feeds, **change)
    with pytest.raises(rabbet.Error, match=message):
        run(model, feeds)
