"""Small transformers of several families as torch modules, with what exporters make hard:
fused weights, heads that share keys, caches, relative positions, experts."""

from __future__ import annotations

import io
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


def export(module: nn.Module, args: tuple[Any, ...], dynamic: dict[str, Any]) -> bytes:
    """An ONNX file by the exporter that traces, with inputs x0, x1, ..."""
    names = [f"x{i}" for i in range(len(args))]
    with torch.no_grad():
        results = module(*args)
    count = len(results) if isinstance(results, tuple) else 1
    file = io.BytesIO()
    torch.onnx.export(
        module, args, file, dynamo=False, opset_version=17, input_names=names,
        output_names=[f"y{i}" for i in range(count)], dynamic_axes=dynamic,
    )  # fmt: skip
    return file.getvalue()


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x: Any) -> Any:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


def rotated(x: Any, first: Any) -> Any:
    """Rotary embedding of x[rows, heads, length, size] from position `first` on."""
    half = x.shape[-1] // 2
    places = torch.arange(x.shape[2]) + first
    angles = places[:, None] * 10000.0 ** (-torch.arange(half) / half)
    cos, sin = torch.cat([angles] * 2, -1).cos(), torch.cat([angles] * 2, -1).sin()
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


class LlamaBlock(nn.Module):
    """Query heads share key heads; a gated perceptron."""

    def __init__(self, width: int, heads: int, keys: int, inner: int) -> None:
        super().__init__()
        self.heads, self.keys, self.size = heads, keys, width // heads
        self.before, self.after = RMSNorm(width), RMSNorm(width)
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, keys * self.size, bias=False)
        self.v = nn.Linear(width, keys * self.size, bias=False)
        self.o = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Any, past_k: Any, past_v: Any) -> Any:
        b, n, _ = x.shape
        y = self.before(x)
        q = self.q(y).view(b, n, -1, self.size).transpose(1, 2)
        k = self.k(y).view(b, n, -1, self.size).transpose(1, 2)
        v = self.v(y).view(b, n, -1, self.size).transpose(1, 2)
        past = past_k.shape[2]
        q, k = rotated(q, past), rotated(k, past)
        k, v = torch.cat([past_k, k], 2), torch.cat([past_v, v], 2)
        shape = (b, self.keys, self.heads // self.keys, past + n, self.size)
        many = [t[:, :, None].expand(shape).reshape(b, self.heads, past + n, self.size)
                for t in (k, v)]  # fmt: skip
        scores = q @ many[0].transpose(2, 3) / self.size**0.5
        mask = torch.ones(n, past + n).tril(past).log()
        y = (scores + mask).softmax(-1) @ many[1]
        x = x + self.o(y.transpose(1, 2).reshape(b, n, -1))
        y = self.after(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y)), k, v


class Llama(nn.Module):
    def __init__(
        self, width: int = 64, heads: int = 8, keys: int = 4, layers: int = 2
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(96, width)
        self.blocks = nn.ModuleList(
            LlamaBlock(width, heads, keys, 2 * width) for _ in range(layers)
        )
        self.norm = RMSNorm(width)
        self.head = nn.Linear(width, 96, bias=False)

    def forward(self, ids: Any, *past: Any) -> Any:
        x, made = self.embed(ids), []
        for i, block in enumerate(self.blocks):
            x, k, v = block(x, past[2 * i], past[2 * i + 1])
            made += [k, v]
        return self.head(self.norm(x)), *made


class GPT2(nn.Module):
    """One weight for queries, keys and values; the embedding is the vocabulary's product."""

    def __init__(self, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.embed, self.places = nn.Embedding(100, width), nn.Embedding(32, width)
        self.qkv = nn.Linear(width, 3 * width)
        self.o, self.up, self.down = (
            nn.Linear(width, width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        )  # fmt: skip
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))

    def forward(self, ids: Any) -> Any:
        x = self.embed(ids) + self.places(torch.arange(ids.shape[1]))
        q, k, v = self.qkv(self.norms[0](x)).split(x.shape[2], 2)
        b, n, width = x.shape
        q, k, v = (t.view(b, n, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        scores = q @ k.transpose(2, 3) / (width / self.heads) ** 0.5
        y = (scores + torch.ones(n, n).tril().log()).softmax(-1) @ v
        x = x + self.o(y.transpose(1, 2).reshape(b, n, width))
        x = x + self.down(F.gelu(self.up(self.norms[1](x)), approximate="tanh"))
        return self.norms[2](x) @ self.embed.weight.T


class Encoder(nn.Module):
    """torch's own encoder (BERT): rows and heads are one axis in its attention."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            64, 4, 128, activation="gelu", batch_first=True
        )
        self.embed = nn.Embedding(100, 64)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, ids: Any) -> Any:
        return self.encoder(self.embed(ids))


class Vision(nn.Module):
    """Patches by a convolution; one axis of three for queries, keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 64, 8, 8)
        self.norm, self.qkv, self.o = (
            nn.LayerNorm(64),
            nn.Linear(64, 192),
            nn.Linear(64, 64),
        )
        self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, image: Any) -> Any:
        x = self.patch(image).flatten(2).transpose(1, 2)
        b, n, _ = x.shape
        qkv = self.qkv(self.norm(x)).reshape(b, n, 3, 4, 16).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.o(y.transpose(1, 2).reshape(b, n, 64))
        return x + self.down(F.gelu(self.up(x)))


class T5(nn.Module):
    """A table of relative positions with a column for each head, for both layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.table = nn.Embedding(64, 48), nn.Embedding(16, 4)
        self.products = nn.ModuleList(nn.Linear(48, 64, bias=False) for _ in range(6))
        self.outs = nn.ModuleList(nn.Linear(64, 48, bias=False) for _ in range(2))
        self.norms = nn.ModuleList(RMSNorm(48) for _ in range(3))

    def forward(self, ids: Any) -> Any:
        x = self.embed(ids)
        b, n, _ = x.shape
        places = torch.arange(n)
        near = (places[None] - places[:, None]).clamp(-8, 7) + 8
        bias = self.table(near).permute(2, 0, 1)[None]
        for i in range(2):
            y = self.norms[i](x)
            q, k, v = (p(y).view(b, n, 4, 16).transpose(1, 2)
                       for p in self.products[3 * i : 3 * i + 3])  # fmt: skip
            y = (q @ k.transpose(2, 3) + bias).softmax(-1) @ v
            x = x + self.outs[i](y.transpose(1, 2).reshape(b, n, 64))
        return self.norms[2](x)


class Experts(nn.Module):
    """Mixtral's, each computed for all tokens and weighed by the router."""

    def __init__(self, count: int = 4) -> None:
        super().__init__()
        self.router = nn.Linear(32, count, bias=False)
        self.gate = nn.Parameter(torch.randn(count, 32, 96) / 6)
        self.up = nn.Parameter(torch.randn(count, 32, 96) / 6)
        self.down = nn.Parameter(torch.randn(count, 96, 32) / 10)

    def forward(self, x: Any) -> Any:
        values, chosen = self.router(x).softmax(-1).topk(2, -1)
        weights = torch.zeros_like(self.router(x)).scatter(-1, chosen, values)
        y = F.silu(x @ self.gate) * (x @ self.up) @ self.down
        return x + (y * weights.T[:, :, None]).sum(0)


class Parallel(nn.Module):
    """GPT-J's: attention and perceptron are added at once."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.q, self.k, self.v = (nn.Linear(64, 64, bias=False) for _ in range(3))
        self.o, self.up, self.down = (
            nn.Linear(64, 64),
            nn.Linear(64, 256),
            nn.Linear(256, 64),
        )

    def forward(self, x: Any) -> Any:
        y, (b, n, _) = self.norm(x), x.shape
        q, k, v = (
            p(y).view(b, n, 4, 16).transpose(1, 2) for p in (self.q, self.k, self.v)
        )
        z = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, 64)
        return self.o(z) + self.down(F.gelu(self.up(y))) + x


class Whisper(nn.Module):
    """Two convolutions over time, positions, and a layer of torch's encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(20, 64, 3, padding=1)
        self.second = nn.Conv1d(64, 64, 3, 2, 1)
        self.places = nn.Parameter(torch.randn(12, 64))
        self.layer = nn.TransformerEncoderLayer(
            64, 4, 256, activation="gelu", batch_first=True, norm_first=True
        )

    def forward(self, mel: Any) -> Any:
        x = F.gelu(self.second(F.gelu(self.first(mel)))).transpose(1, 2)
        return self.layer(x + self.places)
