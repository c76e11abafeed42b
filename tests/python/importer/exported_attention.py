"""Attention as torch exports it: scaled_dot_product_attention in modules, by both
exporters, whose scales, casts and transposes stand in different places."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

BATCH, TOKENS, WIDTH, HEADS = 2, 24, 64, 2


class Layer(torch.nn.Module):
    """Self-attention between projections."""

    def __init__(self, causal: bool = False, kv_heads: int = HEADS) -> None:
        super().__init__()
        self.causal, self.kv_heads = causal, kv_heads
        kv_width = WIDTH // HEADS * kv_heads
        self.q = torch.nn.Linear(WIDTH, WIDTH)
        self.k = torch.nn.Linear(WIDTH, kv_width)
        self.v = torch.nn.Linear(WIDTH, kv_width)
        self.out = torch.nn.Linear(WIDTH, WIDTH)

    def heads(self, x: Any, count: int) -> Any:
        return x.view(x.shape[0], x.shape[1], count, WIDTH // HEADS).transpose(1, 2)

    def projected(self, x: Any) -> tuple[Any, Any, Any]:
        return (
            self.heads(self.q(x), HEADS),
            self.heads(self.k(x), self.kv_heads),
            self.heads(self.v(x), self.kv_heads),
        )

    def attend(self, q: Any, k: Any, v: Any, **options: Any) -> Any:
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)
        return self.out(y.transpose(1, 2).reshape(q.shape[0], q.shape[2], WIDTH))

    def forward(self, x: Any, mask: Any = None) -> Any:
        q, k, v = self.projected(x)
        return self.attend(q, k, v, attn_mask=mask, is_causal=self.causal)


class Shared(Layer):
    """Heads of queries share keys and values."""

    def forward(self, x: Any) -> Any:  # type: ignore[override]
        q, k, v = (
            part.repeat_interleave(HEADS // part.shape[1], 1)
            for part in self.projected(x)
        )
        return self.attend(q, k, v)


class Step(Layer):
    """One token beside a cache."""

    def forward(self, x: Any, k: Any, v: Any) -> Any:  # type: ignore[override]
        q, new_k, new_v = self.projected(x)
        return self.attend(q, torch.cat([k, new_k], 2), torch.cat([v, new_v], 2))


class Scaled(Layer):
    """A scale of its own."""

    def forward(self, x: Any) -> Any:  # type: ignore[override]
        return self.attend(*self.projected(x), scale=0.3)


def cases(dtype: Any, dynamo: bool) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Modules and their inputs by name."""
    x = torch.randn(BATCH, TOKENS, WIDTH).to(dtype)
    cache = torch.randn(2, BATCH, HEADS, TOKENS, WIDTH // HEADS).to(dtype)
    added = torch.randn(BATCH, 1, 1, TOKENS).to(dtype)
    kept = torch.rand(BATCH, 1, TOKENS, TOKENS) > 0.2
    # Nothing is kept in a row: torch gives zeros, as does what the older exporter
    # writes. The newer one has a finite number for the mask.
    kept[0, 0, 3] = dynamo
    return {
        "plain": (Layer(), (x,)),
        "causal": (Layer(causal=True), (x,)),
        "added mask": (Layer(), (x, added)),
        "bool mask": (Layer(), (x, kept)),
        "shared heads": (Shared(kv_heads=1), (x,)),
        "step": (Step(), (x[:, :1], cache[0], cache[1])),
        "scale": (Scaled(), (x,)),
    }


NAMES = ["plain", "causal", "added mask", "bool mask", "shared heads", "step", "scale"]


def in_pairs(ways: list[Any]) -> list[tuple[str, str, Any]]:
    """Names with types and ways to export: all pairs, not all triples, as an export is
    slow."""
    dtypes = ["float16", "float32"]
    return [
        (name, dtypes[(i + k) % 2], way)
        for i, name in enumerate(NAMES)
        for k, way in enumerate(ways)
    ]


def exported(
    path: Path, name: str, dtype: str, dynamo: bool, opset: int | None = None
) -> tuple[dict[str, Any], Any]:
    """Writes the model; its inputs as NumPy arrays, and the result by torch in FP32.
    From opset 23 on attention is an operator."""
    torch.manual_seed(0)
    module, args = cases(getattr(torch, dtype), dynamo)[name]
    module = module.eval().to(getattr(torch, dtype))
    names = [f"input{i}" for i in range(len(args))]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module, args, str(path), input_names=names, dynamo=dynamo,
            opset_version=opset or (18 if dynamo else 17), verbose=False,
            **({"external_data": False} if dynamo else {}),
        )  # fmt: skip
        exact = [arg.float() if arg.is_floating_point() else arg for arg in args]
        want = module.float()(*exact).numpy()
    given = {key: arg.numpy() for key, arg in zip(names, args, strict=True)}
    return given, want
