"""Attention as torch exports it: scaled_dot_product_attention in modules, by both
exporters, whose scales, casts and transposes stand in different places."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
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


class All(torch.nn.Module):
    """Every module, as an export takes as long for one."""

    def __init__(self) -> None:
        super().__init__()
        self.plain, self.causal, self.added_mask, self.bool_mask = (
            Layer(), Layer(causal=True), Layer(), Layer()
        )  # fmt: skip
        self.shared_heads, self.step, self.scale = Shared(kv_heads=1), Step(), Scaled()

    def forward(self, x: Any, added: Any, kept: Any, k: Any, v: Any) -> Any:
        return (
            self.plain(x),
            self.causal(x),
            self.added_mask(x, added),
            self.bool_mask(x, kept),
            self.shared_heads(x),
            self.step(x[:, :1], k, v),
            self.scale(x),
        )


NAMES = ["plain", "causal", "added mask", "bool mask", "shared heads", "step", "scale"]


def inputs(dtype: Any, dynamo: bool) -> dict[str, Any]:
    kept = torch.rand(BATCH, 1, TOKENS, TOKENS) > 0.2
    # Nothing is kept in a row: torch gives zeros, as does what the older exporter
    # writes. The newer one has a finite number for the mask.
    kept[0, 0, 3] = dynamo
    cache = torch.randn(2, BATCH, HEADS, TOKENS, WIDTH // HEADS).to(dtype)
    return {
        "x": torch.randn(BATCH, TOKENS, WIDTH).to(dtype),
        "added": torch.randn(BATCH, 1, 1, TOKENS).to(dtype),
        "kept": kept,
        "k": cache[0],
        "v": cache[1],
    }


def exported(
    path: Path, dtype: str, dynamo: bool, opset: int | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Writes the model; its inputs as NumPy arrays, and the results by torch in FP32,
    by name. From opset 23 on attention is an operator."""
    torch.manual_seed(0)
    given = inputs(getattr(torch, dtype), dynamo)
    module = All().eval().to(getattr(torch, dtype))
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module, tuple(given.values()), str(path), input_names=list(given),
            dynamo=dynamo, opset_version=opset or (18 if dynamo else 17), verbose=False,
            **({"external_data": False} if dynamo else {}),
        )  # fmt: skip
        exact = [a.float() if a.is_floating_point() else a for a in given.values()]
        want = [result.numpy() for result in module.float()(*exact)]
    arrays = {name: tensor.numpy() for name, tensor in given.items()}
    return arrays, dict(zip(NAMES, want, strict=True))


def check(model: Any, given: dict[str, Any], want: dict[str, Any], bound: float) -> None:
    """`bound`: largest difference over the largest value."""
    for (name, wanted), result in zip(want.items(), model(**given), strict=True):
        error = np.abs(np.asarray(result, np.float32) - wanted).max()
        assert error <= bound * np.abs(wanted).max(), name
