"""The transformers of tests/models as torch modules written for torch: one product
for queries, keys and values, and scaled_dot_product_attention. The weights are those
of the ONNX file.

Shapes: B batch, S sequence, H hidden, N heads, D = H / N.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor, nn
from torch.nn import functional

Weights = dict[str, np.ndarray[Any, Any]]
HEADS = 12


def _linear(weights: Weights, *names: str) -> nn.Linear:
    """x @ [in, out] + [out]; several are put side by side."""
    matrix = np.concatenate([weights[f"{name}.weight"] for name in names], axis=1)
    bias = np.concatenate([weights[f"{name}.bias"] for name in names])
    layer = nn.Linear(*matrix.shape)
    layer.weight.data = torch.from_numpy(np.ascontiguousarray(matrix.T))
    layer.bias.data = torch.from_numpy(bias)
    return layer


def _norm(weights: Weights, name: str) -> nn.LayerNorm:
    scale = weights[f"{name}.weight"]
    layer = nn.LayerNorm(scale.shape, eps=1e-5)
    layer.weight.data = torch.from_numpy(np.array(scale))
    layer.bias.data = torch.from_numpy(np.array(weights[f"{name}.bias"]))
    return layer


def _table(values: np.ndarray[Any, Any]) -> nn.Parameter:
    return nn.Parameter(torch.from_numpy(np.array(values)), requires_grad=False)


def _attend(qkv: Tensor, heads: int, mask: Tensor | None, causal: bool) -> Tensor:
    """[B, S, 3 H] -> [B, S, H]."""
    batch, length, triple = qkv.shape
    parts = qkv.view(batch, length, 3, heads, triple // 3 // heads)
    q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
    y = functional.scaled_dot_product_attention(q, k, v, mask, is_causal=causal)
    return y.transpose(1, 2).reshape(batch, length, triple // 3)


class BertLayer(nn.Module):
    """Post-norm attention and feed-forward; `after`: what follows, or None."""

    def __init__(self, weights: Weights, name: str, heads: int, after: Any) -> None:
        super().__init__()
        attention = f"{name}.attention"
        self.heads = heads
        parts = [f"{attention}.{part}" for part in ("query", "key", "value")]
        self.qkv = _linear(weights, *parts)
        self.output = _linear(weights, f"{attention}.output")
        self.norm1 = _norm(weights, f"{attention}.norm")
        self.expand = _linear(weights, f"{name}.intermediate")
        self.shrink = _linear(weights, f"{name}.output")
        self.norm2 = _norm(weights, f"{name}.norm")
        self.after = after

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        y = _attend(self.qkv(x), self.heads, mask, False)
        x = self.norm1(x + self.output(y))
        y = self.norm2(x + self.shrink(functional.gelu(self.expand(x))))
        return y if self.after is None else self.after(y)


class Bert(nn.Module):
    """input_ids and attention_mask int64 [B, S] -> last_hidden_state [B, S, H] and
    pooler_output [B, H]."""

    def __init__(self, weights: Weights, after: Any, heads: int = HEADS) -> None:
        super().__init__()
        self.words = _table(weights["embeddings.word.weight"])
        kind = weights["embeddings.token_type"]
        self.positions = _table(weights["embeddings.position.weight"] + kind)
        self.norm = _norm(weights, "embeddings.norm")
        self.layers = nn.ModuleList(
            BertLayer(weights, f"encoder.{index}", heads, after)
            for index in range(_count(weights, "encoder"))
        )
        pooler = weights["pooler.weight"]
        self.pooler = nn.Linear(*pooler.shape)
        self.pooler.weight.data = torch.from_numpy(np.array(pooler))
        self.pooler.bias.data = torch.from_numpy(np.array(weights["pooler.bias"]))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, ...]:
        length = input_ids.shape[1]
        words = functional.embedding(input_ids, self.words)
        x = self.norm(words + self.positions[:length])
        given = attention_mask[:, None, None, :].to(x.dtype)
        # As wide as the scores: the fused forms of attention read it without a copy.
        mask = ((1 - given) * torch.finfo(x.dtype).min).expand(-1, 1, length, -1)
        for layer in self.layers:
            x = layer(x, mask)
        return x, torch.tanh(self.pooler(x[:, 0]))


class GptLayer(nn.Module):
    """Pre-norm causal attention and feed-forward."""

    def __init__(self, weights: Weights, name: str, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = _norm(weights, f"{name}.ln_1")
        self.qkv = _linear(weights, f"{name}.attn.c_attn")
        self.output = _linear(weights, f"{name}.attn.c_proj")
        self.norm2 = _norm(weights, f"{name}.ln_2")
        self.expand = _linear(weights, f"{name}.mlp.c_fc")
        self.shrink = _linear(weights, f"{name}.mlp.c_proj")

    def forward(self, x: Tensor) -> Tensor:
        y = _attend(self.qkv(self.norm1(x)), self.heads, None, True)
        x = x + self.output(y)
        y = functional.gelu(self.expand(self.norm2(x)), approximate="tanh")
        return x + self.shrink(y)


class Gpt(nn.Module):
    """input_ids int64 [B, S] -> hidden_states [B, S, H]."""

    def __init__(self, weights: Weights, after: Any, heads: int = HEADS) -> None:
        if after is not None:
            raise ValueError("no operator can be put after this model's layers")
        super().__init__()
        self.words = _table(weights["embeddings.word.weight"])
        self.positions = _table(weights["embeddings.position.weight"])
        self.layers = nn.ModuleList(
            GptLayer(weights, f"h.{index}", heads)
            for index in range(_count(weights, "h"))
        )
        self.norm = _norm(weights, "ln_f")

    def forward(self, input_ids: Tensor) -> tuple[Tensor, ...]:
        words = functional.embedding(input_ids, self.words)
        x = words + self.positions[: input_ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return (self.norm(x),)


def _count(weights: Weights, prefix: str) -> int:
    """Layers PREFIX.0, PREFIX.1, ..."""
    return len({n.split(".")[1] for n in weights if n.startswith(f"{prefix}.")})


# The graph's name -> the module, and its inputs in order.
MODULES: dict[str, tuple[Callable[..., nn.Module], tuple[str, ...]]] = {
    "bert": (Bert, ("input_ids", "attention_mask")),
    "gpt2": (Gpt, ("input_ids",)),
}


def native(
    path: str, *, after: Any = None, heads: int = HEADS
) -> tuple[nn.Module, list[str], list[str]] | None:
    """A module of the ONNX file at `path` with its inputs' and outputs' names, or
    None if the file is none of these models. after: called on each layer's result."""
    model = onnx.load(path)
    inputs = {info.name for info in model.graph.input}
    if model.graph.name not in MODULES:
        return None
    make, names = MODULES[model.graph.name]
    if inputs != set(names):
        return None
    weights = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    outputs = [info.name for info in model.graph.output]
    return make(weights, after, heads=heads).eval(), list(names), outputs
