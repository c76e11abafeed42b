"""Parts of decoders as exporters write them out, in HALF: each is one kernel."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import rabbet as trt
from onnx import parser

from tests.python.support.onnx_text import check


def model_of(inputs: str, output: str, constants: str, body: str) -> Any:
    return parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 23]>'
        f"g ({inputs}) => ({output}) <{constants}> {{ {body} }}"
    )


def kinds(model: trt.Model) -> list[str]:
    """Types of a plan's layers."""
    inspector = model.engine.create_engine_inspector()
    text = inspector.get_engine_information(trt.LayerInformationFormat.JSON)
    return [layer["LayerType"] for layer in json.loads(text)["Layers"]]


def random(*shape: int, seed: int = 0) -> Any:
    """Numbers in HALF."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float16)


WIDE = "wide = Cast<to = 1>(x) "
MEAN = "square = Pow(wide, two) mean = ReduceMean<keepdims = 1>(square, last) "
RMS = WIDE + MEAN + "sum = Add(mean, eps) "
BACK = "narrow = Cast<to = 10>(unit) y = Mul(scale, narrow)"
FORMS = {
    "division": RMS + "root = Sqrt(sum) unit = Div(wide, root) " + BACK,
    "reciprocal": RMS + "root = Sqrt(sum) inv = Reciprocal(root) unit = Mul(wide, inv) " + BACK,
    "one by the root": RMS + "root = Sqrt(sum) inv = Div(one, root) unit = Mul(inv, wide) " + BACK,
    "power": RMS + "inv = Pow(sum, minus_half) unit = Mul(wide, inv) " + BACK,
    "weights in FLOAT": RMS + "root = Sqrt(sum) unit = Div(wide, root) "
    "wide_scale = Cast<to = 1>(scale) more = Add(one, wide_scale) "
    "scaled = Mul(unit, more) y = Cast<to = 10>(scaled)",
    "two casts": RMS + "root = Sqrt(sum) inv = Reciprocal(root) again = Cast<to = 1>(x) "
    "unit = Mul(again, inv) " + BACK,
    "of HALF": "square = Mul(x, x) mean = ReduceMean<keepdims = 1>(square, last) "
    "sum = Add(mean, half_eps) root = Sqrt(sum) unit = Div(x, root) y = Mul(unit, scale)",
    "an operator": "y = RMSNormalization<epsilon = 1e-3>(x, scale)",
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_rms_normalization(form: str) -> None:
    weights = ", ".join(f"{v:.3f}" for v in random(24, seed=1))
    constants = (
        f"float[24] weights = {{{weights}}}, float two = {{2}}, float one = {{1}}, "
        "float eps = {0.001}, float minus_half = {-0.5}, int64[1] last = {-1}"
    )
    before = "scale = Cast<to = 10>(weights) half_eps = Cast<to = 10>(eps) "
    shape = "float16[2, n, 24]"
    model = model_of(f"{shape} x", f"{shape} y", constants, before + FORMS[form])
    made = check(model, [{"x": random(2, n, 24)} for n in (3, 1, 5)], most=3e-3)
    assert kinds(made) == ["NORMALIZATION"]


# Queries of 4 heads of 16, of which `turned` are rotated, by tables for each position.
HALVES = (
    "a = Slice(part, zero, half, last) b = Slice(part, half, all, last) minus = Neg(b) "
    "turned = Concat<axis = -1>(minus, a) "
)
SUM = "left = Mul(part, cos) right = Mul(turned, sin) y = Add(left, right)"
ROTATIONS = {
    "halves": (16, 16, "part = Identity(q) " + HALVES + SUM),
    "casts": (16, 16, "part = Identity(q) " + HALVES
        + "wide = Cast<to = 1>(part) also = Cast<to = 1>(turned) wide_cos = Cast<to = 1>(cos) "
        "wide_sin = Cast<to = 1>(sin) left = Mul(wide, wide_cos) right = Mul(also, wide_sin) "
        "sum = Add(left, right) y = Cast<to = 10>(sum)"),
    "a part": (8, 8, "part, rest = Split<axis = -1>(q, sizes) " + HALVES
        + SUM.replace("y =", "some =") + " y = Concat<axis = -1>(some, rest)"),
    "interleaved": (16, 16, "part = Identity(q) a = Slice(q, zero, all, last, two) "
        "b = Slice(q, one, all, last, two) minus = Neg(b) m = Unsqueeze(minus, last) "
        "n = Unsqueeze(a, last) pairs = Concat<axis = -1>(m, n) turned = Reshape(pairs, same) "
        + SUM),
    "products of halves": (16, 8, "a, b = Split<axis = -1, num_outputs = 2>(q) "
        "ac = Mul(a, cos) bs = Mul(b, sin) bc = Mul(b, cos) as = Mul(a, sin) "
        "first = Sub(ac, bs) second = Add(bc, as) y = Concat<axis = -1>(first, second)"),
    "an operator": (8, 4, "c = Squeeze(cos, heads) s = Squeeze(sin, heads) "
        "y = RotaryEmbedding<rotary_embedding_dim = 8>(q, c, s)"),
}  # fmt: skip


@pytest.mark.parametrize("form", ROTATIONS)
@pytest.mark.parametrize("split", [False, True])
def test_rotation(form: str, split: bool) -> None:
    turned, entries, body = ROTATIONS[form]
    constants = (
        f"int64[1] zero = {{0}}, int64[1] half = {{{turned // 2}}}, int64[1] all = {{{turned}}}, "
        f"int64[1] last = {{-1}}, int64[1] one = {{1}}, int64[1] two = {{2}}, "
        f"int64[2] sizes = {{{turned}, {16 - turned}}}, int64[1] heads = {{1}}, "
        "int64[4] same = {2, 4, 3, 16}, int64[4] apart = {2, 3, 4, 16}"
    )
    before, x = "q = Identity(x) ", "float16[2, 4, 3, 16] x"
    if split:
        before = "h = Reshape(x, apart) q = Transpose<perm = [0, 2, 1, 3]>(h) "
        x = "float16[2, 3, 64] x"
    tables = f"float16[2, 1, 3, {entries}]"
    model = model_of(
        f"{x}, {tables} cos, {tables} sin", "float16[2, 4, 3, 16] y", constants, before + body
    )
    given = {
        "x": random(*((2, 3, 64) if split else (2, 4, 3, 16))),
        "cos": random(2, 1, 3, entries, seed=1), "sin": random(2, 1, 3, entries, seed=2),
    }  # fmt: skip
    made = check(model, [given], most=4e-3)
    assert kinds(made) == ["ROTATION", "SHUFFLE"][: 1 + split]
