"""Attention of shapes that models have, drawn at random: head sizes, lengths, masks,
the order in memory in which exporters leave keys, and where they put the scale.
RABBET_TEST_SEEDS=FIRST:END takes others."""

from __future__ import annotations

import math
import os
import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
import rabbet
from onnx import TensorProto, helper, numpy_helper

from tests.python.randomized.random_onnx import seeds

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)

SMALL = cuda_driver.is_stand_in()

# (heads, columns of a head, queries, keys)
FAMILIES = {
    "vit": (12, 64, 197, 197),
    "deit": (3, 64, 198, 198),
    "swin": (4, 32, 49, 49),
    "whisper": (8, 64, 1500, 1500),
    "whisper cross": (6, 64, 4, 1500),
    "latent diffusion": (8, 40, 1024, 1024),
    "latent diffusion cross": (8, 40, 1024, 77),
    "large heads": (8, 160, 64, 77),
    "bert": (12, 64, 128, 128),
    "odd bert": (12, 64, 101, 101),
    "gpt decode": (12, 64, 1, 1025),
    "llama decode": (8, 128, 1, 333),
    "speculative": (8, 128, 5, 261),
    "detr": (8, 32, 100, 850),
    "small heads": (4, 16, 60, 60),
    "odd heads": (4, 20, 33, 33),
    "t5": (8, 64, 77, 77),
    "256": (4, 256, 130, 130),
}
TYPES = {
    "FP16": TensorProto.FLOAT16,
    "BF16": TensorProto.BFLOAT16,
    "FP32": TensorProto.FLOAT,
}
# Largest difference over the largest value; FP32 is computed as TF32.
BOUNDS = {"FP16": 1e-2, "BF16": 6e-2, "FP32": 5e-3}


@dataclass(frozen=True)
class Case:
    family: str
    batch: int
    heads: int
    columns: int
    queries: int
    keys: int
    dtype: str
    scale: str  # "after" the product, the root "both" before, "query", "none"
    turn: str  # keys: "transpose" to [.., columns, keys], or "given" so
    order: str  # inputs: [batch, rows, heads, columns] or heads first
    mask: str  # "none", "causal", "padding", "full", "bool"


def draw(seed: int) -> Case:
    rng = random.Random(seed)
    family = rng.choice(sorted(FAMILIES))
    heads, columns, queries, keys = FAMILIES[family]
    if SMALL:
        heads, columns = min(heads, 2), columns if columns <= 64 else columns // 4
        queries, keys = -(-queries // 13), -(-keys // 11)
    masks = ["none", "none", "padding", "full", "bool"]
    return Case(
        family,
        rng.choice([1, 1, 2]),
        heads,
        columns,
        queries,
        keys,
        rng.choice(["FP16", "FP16", "BF16", "FP32"]),
        rng.choice(["after", "both", "both", "query", "none"]),
        rng.choice(["transpose", "transpose", "given"]),
        rng.choice(["rows", "heads"]),
        rng.choice(["causal", *masks] if queries == keys else masks),
    )


def constant(name: str, array: Any, dtype: int) -> Any:
    made = numpy_helper.from_array(np.asarray(array, np.float32), name)
    return made if dtype == TensorProto.FLOAT else cast_tensor(made, name, dtype)


def cast_tensor(tensor: Any, name: str, dtype: int) -> Any:
    array = numpy_helper.to_array(tensor)
    return helper.make_tensor(
        name, dtype, array.shape, array.astype(np.float32).ravel().tolist()
    )


def network(case: Case) -> onnx.ModelProto:
    """Inputs and output are FLOAT; the rest is of the case's type."""
    dtype, nodes, constants, inputs = TYPES[case.dtype], [], [], []

    def add(op: str, args: list[str], **attributes: Any) -> str:
        name = f"{op}_{len(nodes)}"
        nodes.append(helper.make_node(op, args, [name], **attributes))
        return name

    def number(value: float) -> str:
        name = f"number_{len(constants)}"
        constants.append(constant(name, value, dtype))
        return name

    def given(name: str, shape: tuple[int, ...]) -> str:
        inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return add("Cast", [name], to=dtype)

    def heads(name: str, rows: int, turned: bool = False) -> str:
        b, h, d = case.batch, case.heads, case.columns
        if turned and case.turn == "given":
            return given(name, (b, h, d, rows))
        if case.order == "heads":
            x = given(name, (b, h, rows, d))
            return add("Transpose", [x], perm=[0, 1, 3, 2]) if turned else x
        x = given(name, (b, rows, h, d))
        return add("Transpose", [x], perm=[0, 2, 3, 1] if turned else [0, 2, 1, 3])

    scale = 1 / math.sqrt(case.columns)
    q, k = heads("q", case.queries), heads("k", case.keys, turned=True)
    if case.scale in ("both", "query"):
        root = math.sqrt(scale) if case.scale == "both" else scale
        q = add("Mul", [q, number(root)])
        k = add("Mul", [k, number(root)]) if case.scale == "both" else k
    scores = add("MatMul", [q, k])
    if case.scale == "after":
        scores = add("Mul", [scores, number(scale)])
    if case.mask != "none":
        shape = mask_shape(case)
        if case.mask == "causal":
            constants.append(constant("mask", causal(case), dtype))
            scores = add("Add", [scores, "mask"])
        elif case.mask == "bool":
            kept = helper.make_tensor_value_info("mask", TensorProto.BOOL, shape)
            inputs.append(kept)
            scores = add("Where", ["mask", scores, number(-1e4)])
        else:
            scores = add("Add", [scores, given("mask", shape)])
    weights = add("Softmax", [scores], axis=-1)
    y = add("MatMul", [weights, heads("v", case.keys)])
    y = add("Transpose", [y], perm=[0, 2, 1, 3])
    nodes.append(helper.make_node("Cast", [y], ["y"], to=TensorProto.FLOAT))
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "attention", inputs, outputs, constants)
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=9)


def mask_shape(case: Case) -> tuple[int, ...]:
    rows = 1 if case.mask == "padding" else case.queries
    heads = case.heads if case.mask == "full" else 1
    return (case.batch, heads, rows, case.keys)


def causal(case: Case) -> Any:
    keep = np.tril(np.ones((case.queries, case.keys), bool))
    return np.where(keep, 0, -1e4).astype(np.float32)


def arrays(case: Case, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)

    def rows(count: int, turned: bool = False) -> Any:
        b, h, d = case.batch, case.heads, case.columns
        if turned and case.turn == "given":
            shape = (b, h, d, count)
        else:
            shape = (b, h, count, d) if case.order == "heads" else (b, count, h, d)
        return rounded(rng.standard_normal(shape), case.dtype)

    found = {
        "q": rows(case.queries),
        "k": rows(case.keys, turned=True),
        "v": rows(case.keys),
    }
    if case.mask in ("padding", "full", "bool"):
        keep = rng.random(mask_shape(case)) < 0.8
        keep[..., 0] = True
        found["mask"] = keep if case.mask == "bool" else np.where(keep, 0, -1e4)
        if case.mask != "bool":
            found["mask"] = rounded(found["mask"], case.dtype)
    return found


def rounded(array: Any, dtype: str) -> Any:
    """FP32 that the type holds exactly."""
    array = np.asarray(array, np.float32)
    if dtype == "FP16":
        return array.astype(np.float16).astype(np.float32)
    if dtype == "BF16":
        return (array.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    return array


def reference(case: Case, given: dict[str, Any]) -> Any:
    def heads(name: str) -> Any:
        x = given[name].astype(np.float64)
        return x if case.order == "heads" else x.transpose(0, 2, 1, 3)

    q, v = heads("q"), heads("v")
    k = given["k"].astype(np.float64) if case.turn == "given" else (
        heads("k").swapaxes(2, 3)
    )  # fmt: skip
    scores = q @ k * (1 if case.scale == "none" else 1 / math.sqrt(case.columns))
    if case.mask == "causal":
        scores = scores + causal(case)
    elif case.mask == "bool":
        scores = np.where(given["mask"], scores, -1e4)
    elif case.mask != "none":
        scores = scores + given["mask"]
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return (weights @ v).transpose(0, 2, 1, 3)


SEEDS = os.environ.get("RABBET_TEST_SEEDS", "0:6" if SMALL else "0:40")


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_attention(seed: int) -> None:
    case = draw(seed)
    given = arrays(case, seed)
    model = rabbet.compile(
        network(case), device="cuda", optimization_level=1 if SMALL else 2
    )
    want = reference(case, given)
    found = np.asarray(model(**given), np.float32)
    # Scores that are not scaled pick single rows: rounded scores pick others.
    bound = BOUNDS[case.dtype] * (8 if case.scale == "none" else 1)
    assert np.abs(found - want).max() <= bound * np.abs(want).max(), case
