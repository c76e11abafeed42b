"""Attention and RotaryEmbedding where lengths vary, against ONNX Runtime. With fixed
sizes they are in test_onnx_nodes.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import rabbet

from tests.python.support import onnx_text

HEADS, SIZE = 4, 8
LENGTHS = [(2, 5, 3), (1, 1, 4), (3, 7, 1)]
"""Batch, queries, and keys from before; the first is the usual one."""

# name: inputs, outputs, node; b, s, p and t are batch, queries, keys from before, all keys.
ATTENTIONS = {
    "plain": (
        "float[b,4,s,8] q, float[b,4,t,8] k, float[b,4,t,8] v",
        "float[b,4,s,8] y",
        "y = Attention(q, k, v)",
    ),
    "no size known": (
        "float[b,h,s,e] q, float[b,h,t,e] k, float[b,h,t,e] v",
        "float[b,h,s,e] y",
        "y = Attention(q, k, v)",
    ),
    "causal with a past": (
        "float[b,4,s,8] q, float[b,2,s,8] k, float[b,2,s,8] v, "
        "float[b,2,p,8] past_k, float[b,2,p,8] past_v",
        "float[b,4,s,8] y, float[b,2,t,8] present_k, float[b,2,t,8] present_v",
        "y, present_k, present_v = Attention<is_causal = 1>(q, k, v, , past_k, past_v)",
    ),
    "joined heads": (
        "float[b,s,32] q, float[b,t,16] k, float[b,t,16] v",
        "float[b,s,32] y",
        "y = Attention<q_num_heads = 4, kv_num_heads = 2, scale = 0.3>(q, k, v)",
    ),
    "heads that none knows": (
        "float[b,4,s,8] q, float[b,g,t,8] k, float[b,g,t,8] v",
        "float[b,4,s,8] y",
        "y = Attention(q, k, v)",
    ),
    "mask": (
        "float[b,4,s,8] q, float[b,4,t,8] k, float[b,4,t,8] v, bool[b,1,s,t] mask",
        "float[b,4,s,8] y",
        "y = Attention(q, k, v, mask)",
    ),
    "added mask": (
        "float[b,4,s,8] q, float[b,4,t,8] k, float[b,4,t,8] v, float[s,t] mask",
        "float[b,4,s,8] y",
        "y = Attention<softcap = 2.0>(q, k, v, mask)",
    ),
}
ROTATIONS = {
    "positions": (
        "float[b,4,s,8] x, float[50,4] cos, float[50,4] sin, int64[b,s] ids",
        "float[b,4,s,8] y",
        "y = RotaryEmbedding(x, cos, sin, ids)",
    ),
    "joined heads": (
        "float[b,s,32] x, float[b,s,4] cos, float[b,s,4] sin",
        "float[b,s,32] y",
        "y = RotaryEmbedding<num_heads = 4, interleaved = 1>(x, cos, sin)",
    ),
    "a part": (
        "float[b,4,s,8] x, float[b,s,2] cos, float[b,s,2] sin",
        "float[b,4,s,8] y",
        "y = RotaryEmbedding<rotary_embedding_dim = 4>(x, cos, sin)",
    ),
    "no size known": (
        "float[b,h,s,e] x, float[b,s,f] cos, float[b,s,f] sin",
        "float[b,h,s,e] y",
        "y = RotaryEmbedding(x, cos, sin)",
    ),
}


def model_of(case: tuple[str, str, str]) -> onnx.ModelProto:
    return onnx_text.model_of(*case, opset=23, ir=10)


def array_of(rng: np.random.Generator, value: Any, sizes: dict[str, int]) -> Any:
    shape = [
        sizes[d.dim_param] if d.dim_param else d.dim_value
        for d in value.type.tensor_type.shape.dim
    ]
    kind = value.type.tensor_type.elem_type
    if kind == onnx.TensorProto.INT64:
        return rng.integers(0, 50, shape)
    if kind == onnx.TensorProto.BOOL:
        kept = rng.random(shape) > 0.4
        kept[..., 0, :] = False  # nothing counts in the first row
        return kept
    return rng.standard_normal(shape, np.float32)


def arrays(model: onnx.ModelProto, lengths: tuple[int, int, int]) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    batch, queries, past = lengths
    sizes = {"b": batch, "s": queries, "p": past, "t": queries + past}
    sizes |= {"h": HEADS, "g": HEADS // 2, "e": SIZE, "f": SIZE // 2}
    return {v.name: array_of(rng, v, sizes) for v in model.graph.input}


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=name) for name, case in ATTENTIONS.items()]
    + [pytest.param(case, id=f"rotary {name}") for name, case in ROTATIONS.items()],
)
def test_lengths_that_vary(case: tuple[str, str, str]) -> None:
    model = model_of(case)
    usual, *rest = (arrays(model, lengths) for lengths in LENGTHS)
    each = {
        name: [given[name].shape for given in (usual, *rest)]
        for name, value in zip(usual, model.graph.input, strict=True)
        if any(d.dim_param for d in value.type.tensor_type.shape.dim)
    }
    ranges = {
        name: (tuple(map(min, *shapes)), shapes[0], tuple(map(max, *shapes)))
        for name, shapes in each.items()
    }
    data = model.SerializeToString()
    ours = rabbet.compile(data, shapes=ranges, optimization_level=0)
    theirs = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    for given in (usual, *rest):
        found = list(ours.run(given).values())
        for a, b in zip(found, theirs.run(None, given), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (
            ("float[2,3,5,8] q, float[2,2,5,8] k", "float[2,3,5,8] y",
             "y = Attention(q, k, k)"),
            "3 heads of queries cannot share 2 heads of keys",
        ),
        (
            ("float[2,5,30] q", "float[2,5,30] y",
             "y = Attention<q_num_heads = 4, kv_num_heads = 4>(q, q, q)"),
            "'q_num_heads' is 4.* whose extent is 30",
        ),
        (
            ("float[5,8] q", "float[5,8] y", "y = Attention(q, q, q)"),
            r"Q \('q'\) has rank 2; expected 4, or 3 with the heads joined",
        ),
        (
            ("float[2,3,5,8] q", "float[2,3,5,8] y", "y = Attention(q, q, q, , q)"),
            "past_key and past_value must both be given",
        ),
    ],
)  # fmt: skip
def test_mistakes_are_named(case: tuple[str, str, str], message: str) -> None:
    with pytest.raises(rabbet.Error, match=message):
        rabbet.compile(model_of(case).SerializeToString())
