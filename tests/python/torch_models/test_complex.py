"""Complex numbers with real operands, factors and numbers of extreme sizes, as in torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import rabbet.torch  # noqa: E402

OPTIONS = {"device": "cpu", "optimization_level": 0}

pytestmark = pytest.mark.filterwarnings("ignore")


def _complex(*shape: int) -> Any:
    generator = torch.Generator().manual_seed(6)
    return torch.randn(shape, dtype=torch.complex64, generator=generator)


def _factors(a: Any, b: Any) -> Any:
    """A factor is none of the elements: it has no parts."""
    return [
        torch.add(a, b, alpha=2.0) * a,
        torch.sub(a, b, alpha=2) * a,
        torch.add(a, b, alpha=1 + 2j) * a,
        torch.rsub(a, 1j, alpha=3),
    ]


def _with_real(a: Any, n: Any) -> Any:
    """Real operands have no imaginary parts, of whatever type they are."""
    some = n > 1
    return [
        (a + n) * a,
        (some + a) * a,
        (a + n.float()) * a,
        n.to(torch.complex64) * a,
        torch.cat([a, n[None]]) * a[0],
        torch.where(some, a, n) * a,
        n.float().sum(0, dtype=torch.complex64) * a,
        n.float().cumsum(0, dtype=torch.complex64) * a,
        (a * a).index_put((torch.tensor([0, 2]),), n[:2, None].to(a.dtype)),
        torch.full_like(a, 2) + torch.full((4,), 1 + 2j) * a,
        torch.zeros(3, 4, dtype=a.dtype) - a.new_zeros(4) + a,
    ]


def _with_infinity(a: Any, x: Any) -> Any:
    return torch.where(x > 1, a, x) * 2, torch.cat([a, x[None]])


def _sizes(a: Any) -> Any:
    """Squares of these have no place in FLOAT."""
    return (a * 1).abs() + 1, a / (a + a), (a + a).reciprocal() * a, 2 / (a + a) * a


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "factors": (_factors, (_complex(3, 4), _complex(4))),
    "with real": (_with_real, (_complex(3, 4), torch.arange(4))),
    "with infinity": (_with_infinity, (_complex(3, 2), torch.tensor([torch.inf, 1.0]))),
    "large": (_sizes, (_complex(9) * 1e25,)),
    "small": (_sizes, (_complex(9) * 1e-25,)),
}


def _assert_same(function: Callable[..., Any], args: Any) -> None:
    torch._dynamo.reset()
    before = len(rabbet.torch.reports())
    with torch.no_grad():
        found = torch.compile(function, backend="rabbet", options=OPTIONS)(*args)
        torch.testing.assert_close(found, function(*args), equal_nan=True)
    assert sum(each.engines for each in rabbet.torch.reports()[before:]) > 0


@pytest.mark.parametrize("name", CASES)
def test_complex(name: str) -> None:
    _assert_same(*CASES[name])


def test_angles_of_zeros_and_infinities() -> None:
    numbers = torch.tensor([0.0, -0.0, 1.0, -2.0, torch.inf, -torch.inf, torch.nan])
    y, x = torch.cartesian_prod(numbers, numbers).unbind(-1)
    _assert_same(
        lambda y, x: (torch.atan2(y, x) + 0, torch.complex(x, y).angle()), (y, x)
    )


class Quotients(torch.nn.Module):
    def forward(self, a: Any, b: Any, real: Any) -> Any:
        return a / b, torch.reciprocal(b), a / real


def test_quotients_of_zeros_infinities_and_nan() -> None:
    parts = [0.0, -0.0, 1.0, -2.0, 3e38, 1e-38, math.inf, -math.inf, math.nan]
    numbers = [complex(x, y) for x in parts for y in parts]
    a = torch.tensor([x for x in numbers for _ in numbers])
    b = torch.tensor(numbers * len(numbers))
    real = torch.tensor(parts * (a.numel() // len(parts)))
    net = Quotients().eval()
    model = rabbet.compile(net, (a, b, real), device="cpu", optimization_level=0)
    for found, expected in zip(model(a, b, real), net(a, b, real), strict=True):
        torch.testing.assert_close(
            torch.view_as_real(found), torch.view_as_real(expected), equal_nan=True
        )
