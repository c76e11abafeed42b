"""Attention and rotary embeddings of com.microsoft, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import rabbet

from tests.python.support import onnx_text
from tests.python.support.onnx_runtime_nodes import Case, check, feeds_of, model_of

SIZES = [{"b": 2, "s": 5, "p": 3}, {"b": 1, "s": 1, "p": 6}, {"b": 3, "s": 7, "p": 1}]
for size in SIZES:
    size["t"] = size["s"] + size["p"]
    size["two"] = 2 * size["b"]


def ends(n: dict[str, int]) -> Any:
    return [1 + i % n["t"] for i in range(n["b"])]


def kept(*shape: str) -> Any:
    def mask(n: dict[str, int]) -> Any:
        found = np.random.default_rng(1).random([n[name] for name in shape]) > 0.4
        found[..., 0] = True
        return found

    return mask


QKV = "float[b,s,32] q, float[b,t,32] k, float[b,t,32] v"
OWN = "float[b,s,32] q, float[b,s,32] k, float[b,s,32] v"
PAST = "float[b,4,p,8] past_k, float[b,4,p,8] past_v"
BOTH = "float[b,s,32] y, float[b,4,t,8] present_k, float[b,4,t,8] present_v"
X = "float[b,s,24] x, float[24,96] w, float[96] c"
MHA = "com.microsoft.MultiHeadAttention<num_heads = 4>"
CAUSAL = MHA.replace(">", ", unidirectional = 1>")
ATTENTION = "com.microsoft.Attention<num_heads = 4>"

CASES = {
    "plain": Case(QKV, "float[b,s,32] y", f"y = {MHA}(q, k, v)"),
    "scaled": Case(
        QKV, "float[b,s,32] y", f"y = {MHA.replace('>', ', scale = 0.5>')}(q, k, v)"),
    "values of another size": Case(
        "float[b,s,32] q, float[b,t,32] k, float[b,t,16] v, float[80] c", "float[b,s,16] y",
        f"y = {MHA}(q, k, v, c)", "c"),
    "bias": Case(
        f"{QKV}, float[96] c, float[1,4,s,t] added", "float[b,s,32] y",
        f"y = {MHA}(q, k, v, c, , added)"),
    "mask of ends": Case(
        f"{QKV}, int32[b] mask", "float[b,s,32] y", f"y = {MHA}(q, k, v, , mask)",
        values={"mask": ends}),
    "mask of keys": Case(
        f"{QKV}, int32[b,t] mask", "float[b,s,32] y", f"y = {MHA}(q, k, v, , mask)",
        values={"mask": kept("b", "t")}),
    "mask of queries and keys": Case(
        f"{QKV}, int32[b,s,t] mask, float[b,1,s,t] added", "float[b,s,32] y",
        f"y = {MHA}(q, k, v, , mask, added)", values={"mask": kept("b", "s", "t")}),
    "keys with heads first": Case(
        "float[b,s,32] q, float[b,4,t,8] k, float[b,4,t,8] v", "float[b,s,32] y",
        f"y = {MHA}(q, k, v)"),
    "past": Case(
        f"{OWN}, {PAST}", BOTH,
        f"y, present_k, present_v = {MHA}(q, k, v, , , , past_k, past_v)"),
    "causal with a past, bias and mask": Case(
        f"{OWN}, float[96] c, int32[b,t] mask, {PAST}", BOTH,
        f"y, present_k, present_v = {CAUSAL}(q, k, v, c, mask, , past_k, past_v)",
        values={"mask": kept("b", "t")}),
    "Attention": Case(X, "float[b,s,32] y", f"y = {ATTENTION}(x, w, c)", "w c"),
    "Attention without a bias": Case(
        X.replace(", float[96] c", ""), "float[b,s,32] y", f"y = {ATTENTION}(x, w)", "w"),
    "Attention with a mask of keys": Case(
        f"{X}, int32[b,s] mask", "float[b,s,32] y", f"y = {ATTENTION}(x, w, c, mask)", "w c",
        {"mask": kept("b", "s")}),
    "Attention with a mask of ends": Case(
        f"{X}, int32[b] mask", "float[b,s,32] y", f"y = {ATTENTION}(x, w, c, mask)", "w c",
        {"mask": lambda n: [1 + i % n["s"] for i in range(n["b"])]}),
    "Attention with an added bias": Case(
        f"{X}, float[1,4,s,s] added", "float[b,s,32] y", f"y = {ATTENTION}(x, w, c, , , added)",
        "w c"),
    "Attention with values of another size": Case(
        "float[b,s,24] x, float[24,80] w, float[80] c", "float[b,s,16] y",
        f"y = {ATTENTION.replace('>', ', qkv_hidden_sizes = [32, 32, 16]>')}(x, w, c)", "w c"),
    "causal Attention with a past": Case(
        f"{X}, int32[b,t] mask, float[2,b,4,p,8] past",
        "float[b,s,32] y, float[2,b,4,t,8] present",
        f"y, present = {ATTENTION.replace('>', ', unidirectional = 1>')}"
        "(x, w, c, mask, past)", "w c", {"mask": kept("b", "t")}),
    "QAttention": Case(
        "uint8[b,s,24] x, int8[24,96] w, float[96] c, float xs, float[96] ws, int32[b,s] mask, "
        "uint8 xz, int8[96] wz", "float[b,s,32] y",
        "y = com.microsoft.QAttention<num_heads = 4>(x, w, c, xs, ws, mask, xz, wz)",
        "w c ws wz", {"mask": kept("b", "s"), "xs": 0.01, "ws": [0.01] * 96, "wz": [0] * 96}),
    "RotaryEmbedding": Case(
        "float[b,s,32] x, int64[b,s] at, float[9,4] cosines, float[9,4] sines",
        "float[b,s,32] y", "y = com.microsoft.RotaryEmbedding(x, at, cosines, sines)"),
    "RotaryEmbedding from a position on": Case(
        "float[b,4,s,8] x, int64[1] at, float[12,4] cosines, float[12,4] sines",
        "float[b,4,s,8] y",
        "y = com.microsoft.RotaryEmbedding<interleaved = 1>(x, at, cosines, sines)"),
    "RotaryEmbedding of a part": Case(
        "float[b,s,32] x, int64[b,s] at, float[9,2] cosines, float[9,2] sines",
        "float[b,s,32] y",
        "y = com.microsoft.RotaryEmbedding<num_heads = 4, rotary_embedding_dim = 4, scale = 2.0>"
        "(x, at, cosines, sines)"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_as_onnx_runtime(name: str) -> None:
    check(CASES[name], SIZES, most=1e-4)


def test_mask_of_ends_and_beginnings() -> None:
    case = Case(
        X.replace("b,s", "2,5") + ", int32[4] mask", "float[2,5,32] y",
        f"y = {ATTENTION}(x, w, c, mask)", "w c", {"mask": [4, 5, 1, 0]})  # fmt: skip
    check(case, most=1e-4)


@pytest.mark.parametrize("keys", [3, 2])
def test_packed_operands(keys: int) -> None:
    """ONNX Runtime's CPU has them apart only."""
    inputs = "float[b,s,4,3,8] q" if keys == 3 else "float[b,s,32] q, float[b,t,4,2,8] kv"
    packed = Case(inputs, "float[b,s,32] y", f"y = {MHA}({'q' if keys == 3 else 'q, kv'})")
    apart = model_of(Case(QKV, "float[b,s,32] y", f"y = {MHA}(q, k, v)"))
    runs = [feeds_of(packed, model_of(packed), sizes, i) for i, sizes in enumerate(SIZES)]
    made = onnx_text.compiled(model_of(packed), runs)
    for run in runs:
        last = run["q" if keys == 3 else "kv"]
        parts = [last[:, :, :, i].reshape(*last.shape[:2], 32) for i in range(keys)]
        if keys == 2:
            parts.insert(0, run["q"])
        want = onnx_text.expected(apart, dict(zip("qkv", parts, strict=True)))[0]
        np.testing.assert_allclose(made.run(run)["y"], want, 1e-4, 1e-5)


# ---- GroupQueryAttention -----------------------------------------------------

# Prompts, and what follows them: t is the longest sequence with what is new, p the cache's room.
PROMPTS = [
    {"b": 2, "s": 5, "p": 0, "t": 5},
    {"b": 1, "s": 1, "p": 8, "t": 9},
    {"b": 3, "s": 1, "p": 12, "t": 6},
    {"b": 1, "s": 3, "p": 4, "t": 7},
    {"b": 2, "s": 4, "p": 9, "t": 4},
]


def positions(n: dict[str, int]) -> Any:
    before = 0 if n["t"] == n["s"] else np.asarray(STEPS["lengths"](n))[:, None] + 1 - n["s"]
    return before + np.tile(np.arange(n["s"]), (n["b"], 1))


STEPS: dict[str, Any] = {
    "at": positions,
    "lengths": lambda n: [max(n["t"] - 1 - i % 2 * (n.get("p", 0) > 0), 0) for i in range(n["b"])],
    "total": lambda n: n["t"],
}
CACHE = "float[b,2,p,16] past_k, float[b,2,p,16] past_v, int32[b] lengths, int32 total"
GROUPS = f"float[b,s,64] q, float[b,s,32] k, float[b,s,32] v, {CACHE}"
TABLES = "float[16,8] cosines, float[16,8] sines"
ALL = "float[b,s,64] y, float[b,2,r,16] present_k, float[b,2,r,16] present_v"
GQA = "com.microsoft.GroupQueryAttention<num_heads = 4, kv_num_heads = 2>"
GIVEN = "q, k, v, past_k, past_v, lengths, total"


def group(inputs: str, more: str = "", given: str = GIVEN) -> Case:
    node = GQA.replace(">", f"{more}>")
    values = {name: value for name, value in STEPS.items() if f" {name}" in inputs}
    return Case(inputs, ALL, f"y, present_k, present_v = {node}({given})", values=values)


GROUP_CASES = {
    "plain": group(GROUPS),
    "scaled and capped": group(GROUPS, ", scale = 0.2, softcap = 3.0"),
    "window": group(GROUPS, ", local_window_size = 2"),
    "rotary": group(f"{GROUPS}, {TABLES}", ", do_rotary = 1", f"{GIVEN}, cosines, sines"),
    "rotary interleaved, packed": group(
        f"float[b,s,128] q, {CACHE}, {TABLES}", ", do_rotary = 1, rotary_interleaved = 1",
        "q, , , past_k, past_v, lengths, total, cosines, sines"),
    "rotary at positions": group(
        f"{GROUPS}, {TABLES}, int64[b,s] at", ", do_rotary = 1", f"{GIVEN}, cosines, sines, at"),
    "smooth": group(GROUPS, ", smooth_softmax = 1"),
    "sink": group(f"{GROUPS}, float[4] sink", "", f"{GIVEN}, , , , , sink"),
    "added bias": group(
        f"{GROUPS}, float[b,1,s,t] added", "", f"{GIVEN}, , , , added"),
    "no past": group(
        "float[b,s,64] q, float[b,s,32] k, float[b,s,32] v, int32[b] lengths, int32 total", "",
        "q, k, v, , , lengths, total"),
}  # fmt: skip


@pytest.mark.parametrize("name", GROUP_CASES)
def test_group_query_attention(name: str) -> None:
    case = GROUP_CASES[name]
    model = model_of(case)
    sizes = PROMPTS if name != "no past" else [{"b": 2, "s": 5, "t": 5}, {"b": 1, "s": 3, "t": 3}]
    runs = [feeds_of(case, model, one, i) for i, one in enumerate(sizes)]
    made = onnx_text.compiled(model, runs)
    for run in runs:
        want = onnx_text.expected(model, run)
        found = made.run({name: array.copy() for name, array in run.items()})
        for output, array in zip(model.graph.output, want, strict=True):
            got = found[output.name]
            assert got.shape == array.shape
            # Values behind a sequence's end are undefined.
            if output.name != "y":
                got, array = np.swapaxes(got, 1, 2), np.swapaxes(array, 1, 2)
            counts = np.arange(array.shape[1]) <= run["lengths"][:, None]
            if output.name != "y" or array.shape[1] == run["total"]:
                got, array = got[counts], array[counts]
            np.testing.assert_allclose(got, array, 1e-4, 1e-5)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (
            Case("float[2,5,30] q", "float[2,5,30] y", f"y = {MHA}(q, q, q)"),
            "attribute 'num_heads' is 4.* whose extent is 30",
        ),
        (
            Case("float[2,5,32] q, int32[7] m", "float[2,5,32] y", f"y = {MHA}(q, q, q, , m)"),
            r"the mask 'm' has 7 elements; expected 2 .* or 4 \(",
        ),
        (
            Case("float[2,5,32] q, int32[2,1,5,5] m", "float[2,5,32] y",
                 f"y = {MHA}(q, q, q, , m)"),
            "the mask 'm' has rank 4; expected 1, 2 or 3",
        ),
        (
            Case("float[2,5,32] q, float[2,4,3,8] p", "float[2,5,32] y",
                 f"y = {MHA}(q, q, q, , , , p)"),
            "past_key and past_value must both be given",
        ),
        (
            Case("float[2,5,24] x, float[24,96] w", "float[2,5,32] y",
                 f"y = {ATTENTION.replace('>', ', do_rotary = 1>')}(x, w)"),
            r"attribute 'do_rotary' is 1 \(rotary embeddings inside\); expected 0",
        ),
        (
            group("float[1,5,64] q, int32[1] lengths, int32 total, float[16] w", "",
                  "q, q, q, , , lengths, total, , , , , , , , w, w"),
            r"input 14 \(q_norm_weight\) is given, which is not imported; expected none",
        ),
    ],
)  # fmt: skip
def test_mistakes_are_named(case: Case, message: str) -> None:
    with pytest.raises(rabbet.Error, match=message):
        rabbet.compile(model_of(case).SerializeToString())
