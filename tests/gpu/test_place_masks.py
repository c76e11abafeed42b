"""Masks that compare places of queries and keys and are too large to be folded: attention
takes them as a band of keys, for each layer that shares them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import rabbet
from onnx import TensorProto, helper

from . import cuda_driver
from .test_transformers import kernels

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)

LENGTH, COLUMNS = 1040, 32  # more than 2^20 scores


def network(layers: int, **attributes: Any) -> onnx.ModelProto:
    """Each layer's result is the queries of the next."""
    half = TensorProto.FLOAT16
    names = ["q", *(f"layer_{i}" for i in range(layers - 1)), "y"]
    nodes = [
        helper.make_node(
            "Attention", [names[i], "k", "v"], [names[i + 1]], **attributes
        )
        for i in range(layers)
    ]
    inputs = [
        helper.make_tensor_value_info(name, half, (1, 1, LENGTH, COLUMNS))
        for name in "qkv"
    ]
    outputs = [helper.make_tensor_value_info("y", half, None)]
    graph = helper.make_graph(nodes, "attention", inputs, outputs)
    opset = 25 if "left_window_size" in attributes else 23
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def attention(q: Any, k: Any, v: Any, left: int, right: int, cap: float) -> Any:
    scores = q @ k.swapaxes(2, 3) / np.sqrt(COLUMNS)
    if cap:
        scores = cap * np.tanh(scores / cap)
    place = np.arange(LENGTH)
    ahead = place[None] - place[:, None]
    scores = np.where((ahead >= -left) & (ahead <= right), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize(
    ("layers", "attributes", "reach", "kernel"),
    [
        (2, {"is_causal": 1}, (LENGTH, 0, 0.0), "cuda.attention.causal"),
        (
            1,
            {"is_causal": 1, "softcap": 3.0},
            (LENGTH, 0, 3.0),
            "cuda.attention.causal",
        ),
        (
            2,
            {"left_window_size": 40, "right_window_size": 7, "softcap": 2.0},
            (40, 7, 2.0),
            "cuda.attention.tiles",
        ),
    ],
)
def test_places(
    layers: int, attributes: dict[str, Any], reach: tuple[int, int, float], kernel: str
) -> None:
    rng = np.random.default_rng(7)
    shape = (1, 1, LENGTH, COLUMNS)
    q, k, v = (rng.standard_normal(shape).astype(np.float16) for _ in range(3))
    model = rabbet.compile(
        network(layers, **attributes), device="cuda", optimization_level=0
    )
    names = kernels(model)
    assert len(names) == layers, names
    assert all(kernel in name for name in names), names
    want = q.astype(np.float64)
    for _ in range(layers):
        want = attention(want, k.astype(np.float64), v.astype(np.float64), *reach)
    found = np.asarray(model(q, k, v), np.float64)
    assert np.abs(found - want).max() <= 5e-3 * np.abs(want).max()
