"""Mixtures of experts by gathered matrices, as transformers and others write them, against
torch. Each becomes one layer of experts, for any number of tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import rabbet as trt
import torch

HIDDEN, INNER, EXPERTS, CHOSEN = 40, 56, 5, 2
silu = torch.nn.functional.silu


class Experts(torch.nn.Module):
    """Weights [experts, outputs, inputs], as most models have them."""

    def __init__(self, write: Callable[..., Any], scale: float = 0.3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.write = write
        for name, shape in {
            "both": (2 * INNER, HIDDEN),
            "down": (HIDDEN, INNER),
            "both_bias": (2 * INNER,),
            "down_bias": (HIDDEN,),
        }.items():
            given = torch.randn(EXPERTS, *shape) * scale
            self.register_parameter(name, torch.nn.Parameter(given))
        self.router = torch.nn.Parameter(torch.randn(HIDDEN, EXPERTS))

    def forward(self, x: Any) -> Any:
        scores, chosen = (x.float() @ self.router.float()).softmax(-1).topk(CHOSEN, -1)
        return self.write(self, x, chosen, scores.to(x.dtype))


def halves(y: Any) -> Any:
    gate, up = y.chunk(2, dim=-1)
    return silu(gate) * up


def in_turns(y: Any) -> Any:
    """GPT-OSS."""
    gate, up = y[..., ::2].clamp(max=2.0), y[..., 1::2].clamp(min=-2.0, max=2.0)
    return (up + 1) * (gate * torch.sigmoid(gate * 1.702))


def summed(y: Any, scores: Any) -> Any:
    y = y * scores.reshape(-1, 1)
    return y.view(-1, CHOSEN, HIDDEN).sum(1)


def batched(e: Experts, x: Any, chosen: Any, scores: Any) -> Any:
    """transformers' `batched_mm`."""
    index, rows = chosen.reshape(-1), x.repeat_interleave(CHOSEN, dim=0)
    y = torch.bmm(e.both[index], rows.unsqueeze(-1)).squeeze(-1)
    y = torch.bmm(e.down[index], halves(y).unsqueeze(-1)).squeeze(-1)
    return summed(y, scores)


def biased(e: Experts, x: Any, chosen: Any, scores: Any) -> Any:
    index, rows = chosen.reshape(-1), x.repeat_interleave(CHOSEN, dim=0)
    y = torch.bmm(e.both[index], rows.unsqueeze(-1)).squeeze(-1) + e.both_bias[index]
    y = (
        torch.bmm(e.down[index], in_turns(y).unsqueeze(-1)).squeeze(-1)
        + e.down_bias[index]
    )
    return summed(y, scores)


def clamped(e: Experts, x: Any, chosen: Any, scores: Any) -> Any:
    """Ranks of parallel experts have numbers beyond their own, which count nothing."""
    index, rows = (chosen + 2).reshape(-1), x.repeat_interleave(CHOSEN, dim=0)
    none, index = index >= EXPERTS, index.clamp(0, EXPERTS - 1)
    y = torch.bmm(rows.unsqueeze(1), e.both[index].transpose(1, 2)).squeeze(1)
    y = torch.bmm(halves(y).unsqueeze(1), e.down[index].transpose(1, 2)).squeeze(1)
    return summed(y, scores.reshape(-1).masked_fill(none, 0.0))


def negative(e: Experts, x: Any, chosen: Any, scores: Any) -> Any:
    return batched(e, x, chosen - 3, scores)


def einsum(e: Experts, x: Any, chosen: Any, scores: Any) -> Any:
    """gpt-fast."""
    gate, up = e.both.chunk(2, dim=1)
    y = silu(torch.einsum("ti,taoi->tao", x, gate[chosen]))
    y = y * torch.einsum("ti,taoi->tao", x, up[chosen])
    y = torch.einsum("tao,taio->tai", y, e.down[chosen])
    return torch.einsum("tai,ta->ti", y, scores)


def matmul(e: Experts, x: Any, chosen: Any, scores: Any) -> Any:
    """Indices of rank 2."""
    y = (e.both[chosen] @ x[:, None, :, None]).squeeze(-1)
    y = (e.down[chosen] @ halves(y)[..., None]).squeeze(-1)
    return (y * scores[..., None]).sum(1)


def grouped(e: Experts, x: Any, chosen: Any, scores: Any) -> Any:
    """transformers' `grouped_mm`."""
    index, order = torch.sort(chosen.reshape(-1))
    count = torch.histc(index.float(), bins=EXPERTS, min=0, max=EXPERTS - 1)
    ends = torch.cumsum(count, 0, dtype=torch.int32)
    y = torch._grouped_mm(x[order // CHOSEN], e.both.transpose(1, 2), ends)
    y = torch._grouped_mm(halves(y), e.down.transpose(1, 2), ends)
    y = y * scores.reshape(-1)[order].unsqueeze(-1)
    return y[torch.argsort(order)].view(-1, CHOSEN, HIDDEN).sum(1)


FORMS: dict[str, Callable[..., Any]] = {
    "batched": batched,
    "biased": biased,
    "clamped": clamped,
    "negative": negative,
    "einsum": einsum,
    "matmul": matmul,
    "grouped": grouped,
}
NARROW = [
    ("biased", torch.float16),
    ("biased", torch.bfloat16),
    ("grouped", torch.bfloat16),
]
"""torch has grouped products of BF16 alone."""
# Others differ in how a gather is written alone, which src/builder's tests have, too.
WIDE = [
    pytest.param(
        form, marks=[] if form in ("batched", "negative") else pytest.mark.full
    )
    for form in FORMS
    if form != "grouped"
]
TOLERANCES = {torch.float16: 1e-2, torch.bfloat16: 6e-2}


def layers_of(model: Any) -> tuple[int, int]:
    """How many layers of experts there are, and gathers."""
    lines = str(model.report).splitlines()
    moe, gathers = (
        sum(f".{kind}" in line for line in lines) for kind in ("moe", "gather")
    )
    return moe, gathers


def check(device: str, form: str, dtype: Any, tolerance: float, **options: Any) -> None:
    net = Experts(FORMS[form]).eval().to(dtype)
    tokens = torch.export.Dim("tokens", min=1, max=64)
    given = torch.randn(7, HIDDEN).to(dtype)
    model = trt.compile(
        net, (given,), dynamic_shapes=({0: tokens},), device=device, optimization_level=0,
        **options,
    )  # fmt: skip
    moe, gathers = layers_of(model)
    assert moe == 1, model.report
    assert gathers == 0 or form == "grouped", model.report
    with torch.no_grad():
        for rows in (7, 1, 33):
            x = torch.randn(rows, HIDDEN).to(dtype)
            found, expected = model(x).float(), net(x).float()
            off = (found - expected).abs().max() / expected.abs().max()
            assert off < tolerance


@pytest.mark.parametrize("form", WIDE)
def test_experts(form: str) -> None:
    check("cpu", form, torch.float32, 1e-5)


@pytest.mark.parametrize(("form", "dtype"), NARROW, ids=str)
def test_narrow_types(form: str, dtype: Any) -> None:
    check("cpu", form, dtype, TOLERANCES[dtype])
