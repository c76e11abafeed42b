"""Rotary embeddings as models of torch write them are one layer for each of queries and
keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import rabbet.torch  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

BATCH, HEADS, TOKENS, SIZE = 2, 3, 5, 16


def _angles(ids: Any, pairs: int = SIZE // 2) -> Any:
    """[batch, 1, tokens, pairs], from the places of tokens."""
    places = torch.arange(pairs, device=ids.device)
    return ids[:, None, :, None] * 10.0 ** (-places / 4)


def _llama4(x: Any, ids: Any) -> Any:
    angles = _angles(ids, x.shape[-1] // 2)
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    turned = pairs * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(turned).flatten(3).type_as(x)


def _deepseek(x: Any, ids: Any) -> Any:
    """The first elements of each head are not rotated."""
    y = torch.empty_like(x)
    y[..., :6] = x[..., :6]
    y[..., 6:] = _llama4(x[..., 6:], ids)
    return y


def _wan(x: Any, ids: Any) -> Any:
    angles = _angles(ids)
    cos, sin = angles.cos(), angles.sin()
    a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    y = torch.empty(x.shape)
    y[..., 0::2] = a * cos - b * sin
    y[..., 1::2] = a * sin + b * cos
    return y.type_as(x)


def _parts(x: Any, ids: Any) -> Any:
    """Complex numbers without the type."""
    angles = _angles(ids)
    cos, sin = angles.cos(), angles.sin()
    a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return (
        torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(3).to(x.dtype)
    )


def _flux(x: Any, ids: Any) -> Any:
    angles = _angles(ids).repeat_interleave(2, -1)
    a, b = x.reshape(*x.shape[:-1], -1, 2).unbind(-1)
    turned = torch.stack([-b, a], -1).flatten(3)
    return (x.float() * angles.cos() + turned.float() * angles.sin()).to(x.dtype)


def _cosmos(x: Any, ids: Any) -> Any:
    angles = _angles(ids).repeat(1, 1, 1, 2)
    a, b = x.reshape(*x.shape[:-1], 2, -1).unbind(-2)
    turned = torch.cat([-b, a], -1)
    return (x.float() * angles.cos() + turned.float() * angles.sin()).to(x.dtype)


def _registers(x: Any, ids: Any) -> Any:
    """Vision transformers: the first tokens are not rotated."""
    return torch.cat([x[:, :, :2], _flux(x[:, :, 2:], ids[:, 2:])], 2)


FORMS: dict[str, Callable[[Any, Any], Any]] = {
    f.__name__.lstrip("_"): f
    for f in (_llama4, _deepseek, _wan, _parts, _flux, _cosmos, _registers)
}


class Rotated(torch.nn.Module):
    def __init__(self, form: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.form = form

    def forward(self, x: Any, ids: Any) -> Any:
        return self.form(x, ids)


def check(name: str, dtype: Any, device: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(BATCH, HEADS, TOKENS, SIZE)
    ids = torch.arange(TOKENS).repeat(BATCH, 1) + torch.tensor([[0], [7]])
    net = Rotated(FORMS[name]).eval()
    given = (x.to(dtype), ids)
    model = rabbet.compile(net, given, device=device, optimization_level=0)
    found, expected = model(*given), net(x, ids)
    bound = 1e-5 if dtype is torch.float32 else 3e-3
    torch.testing.assert_close(found.float(), expected, rtol=bound, atol=bound)
    report = str(model.model.report)
    assert report.count(".rotation") == 1, report


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("name", FORMS)
def test_rotation(name: str, dtype: Any) -> None:
    check(name, dtype, "cpu")
