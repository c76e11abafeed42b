"""torch.cond, while_loop, scan, associative_scan and map become conditionals and loops of
the plan."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import rabbet  # noqa: E402
import rabbet.torch  # noqa: E402
from functorch.experimental.control_flow import map as torch_map  # noqa: E402
from torch._higher_order_ops.associative_scan import (  # noqa: E402
    associative_scan,
    associative_scan_op,
)
from torch._higher_order_ops.scan import scan  # noqa: E402
from torch._higher_order_ops.while_loop import while_loop  # noqa: E402

QUICK: dict[str, Any] = {"device": "cpu", "optimization_level": 0}


class Module(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.linear = torch.nn.Linear(4, 4)


class Branches(Module):
    """Parameters that one branch reads; several results."""

    def forward(self, x: Any, p: Any) -> Any:
        def true(x: Any) -> Any:
            return self.linear(x), x.sum()

        a, b = torch.cond(p.sum() > 0, true, lambda x: (x * 2, x.max()), (x,))
        return a + 1, b


class OfSizes(Module):
    def forward(self, x: Any) -> Any:
        def true(x: Any) -> Any:
            return (x * 2).sum(0)

        return torch.cond(x.shape[0] > 4, true, lambda x: (x + 1).sum(0), (x,)).relu()


class OfShapes(Module):
    """Branches whose results have different extents."""

    def forward(self, x: Any, p: Any) -> Any:
        found = torch.cond(
            p.sum() > 0, lambda x: (x[:2] * 2,), lambda x: (x + 1,), (x,)
        )
        return found[0].exp()


class Loop(Module):
    def forward(self, x: Any, n: Any) -> Any:
        def body(i: Any, x: Any) -> Any:
            return i + 1, self.linear(x).tanh()

        i, y = while_loop(lambda i, x: i < n, body, (torch.tensor(0), x))
        return i, y * 2


class States(Module):
    """States of BOOL and INT32."""

    def forward(self, x: Any, n: Any) -> Any:
        def body(f: Any, k: Any, x: Any) -> Any:
            return (x.sum() < n) & f, k * 2 + 1, x + 1.5

        first = (torch.tensor(True), torch.tensor(3, dtype=torch.int32), x)
        return while_loop(lambda f, k, x: f & (k > 0), body, first)


class Counter(Module):
    """A number of Python as a state, compared with a size."""

    def forward(self, x: Any) -> Any:
        def body(i: Any, x: Any) -> Any:
            return i + 1, x * 1.25

        i, y = while_loop(lambda i, x: i < x.shape[0], body, (0, x))
        return y + i


class Scan(Module):
    reverse = False

    def forward(self, c: Any, x: Any) -> Any:
        return scan(lambda c, x: (c + x.sin(), c * x), c, x, reverse=self.reverse)


class Backwards(Scan):
    reverse = True


class Associative(Module):
    """A recurrence of decays. torch demands that pointwise functions have tensors on a GPU,
    and writes others out, for one length."""

    def forward(self, a: Any, x: Any) -> Any:
        def combine(left: Any, right: Any) -> Any:
            return left[0] * right[0], left[1] * right[0] + right[1]

        return associative_scan(combine, (a, x), 1, reverse=True, combine_mode="generic")


class AssociativeOperator(Module):
    """What a pointwise function becomes: an operator, of any length."""

    def forward(self, a: Any, x: Any, k: Any) -> Any:
        def combine(a: Any, x: Any, b: Any, y: Any, k: Any) -> Any:
            return [a * b, x + y + k]

        a, x = associative_scan_op(combine, [a.relu(), x], (k,))
        return a + 1, x.exp()


class Map(Module):
    def forward(self, x: Any, y: Any) -> Any:
        a, b = torch_map(lambda x, y: (x * y, x.sum()), x, y)
        return a.relu(), b


class LoopInBranch(Module):
    def forward(self, x: Any, n: Any) -> Any:
        def true(x: Any) -> Any:
            def body(i: Any, x: Any) -> Any:
                return i + 1, x * 1.5

            return while_loop(lambda i, x: i < n, body, (n - 4, x))[1]

        return torch.cond(n > 2, true, lambda x: x - 1, (x,)) + 1


class BranchInLoop(Module):
    def forward(self, x: Any, n: Any) -> Any:
        def body(i: Any, x: Any) -> Any:
            def even(x: Any) -> Any:
                return x + x.shape[0]

            return i + 1, torch.cond((i % 2) == 0, even, lambda x: x * 0.5, (x,))

        return while_loop(lambda i, x: i < n, body, (torch.tensor(0), x))


def _calls() -> dict[Any, list[tuple[Any, ...]]]:
    torch.manual_seed(6)
    r, t = torch.randn, torch.tensor
    p = r(2).abs()
    return {
        Branches: [(r(3, 4), p), (r(5, 4), -p)],
        OfSizes: [(r(3, 4),), (r(5, 4),), (r(9, 4),)],
        OfShapes: [(r(3, 4), p), (r(5, 4), -p), (r(5, 4), p)],
        Loop: [(r(3, 4), t(5)), (r(6, 4), t(0)), (r(2, 4), t(100))],
        States: [(r(3, 4), t(50.0)), (r(6, 4), t(-100.0)), (r(2, 4), t(100.0))],
        Counter: [(r(3, 4),), (r(6, 4),)],
        Scan: [(r(4), r(6, 4)), (r(4), r(3, 4))],
        Backwards: [(r(4), r(6, 4)), (r(4), r(3, 4))],
        Associative: [(r(3, 5, 2), r(3, 5, 2))],
        AssociativeOperator: [(r(n, 3), r(n, 3), r(3)) for n in (4, 9, 1, 100)],
        Map: [(r(3, 4), r(4)), (r(7, 4), r(4))],
        LoopInBranch: [(r(3, 4), t(5)), (r(6, 4), t(1))],
        BranchInLoop: [(r(3, 4), t(5)), (r(6, 4), t(0)), (r(5, 4), t(8))],
    }


CALLS = _calls()


def check(model: Any, net: Any, calls: list[tuple[Any, ...]]) -> None:
    leaves = torch.utils._pytree.tree_leaves
    for args in calls:
        pairs = zip(leaves(model(*args)), leaves(net(*args)), strict=True)
        for found, expected in pairs:
            assert found.dtype == expected.dtype
            torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", CALLS)
def test_compile(kind: Any) -> None:
    net, calls = kind().eval(), CALLS[kind]
    dynamic = tuple(
        {0: torch.export.Dim.AUTO} if a.ndim > 1 else None for a in calls[0]
    )
    with torch.no_grad():
        model = rabbet.compile(net, calls[0], dynamic_shapes=dynamic, **QUICK)
        check(model, net, calls)


# Sizes are open from the first call on, not from the second: little differs behind torch's
# tracing, which takes seconds.
OPEN = [
    pytest.param(kind, True, marks=() if kind in (OfSizes, Loop, Map) else pytest.mark.full)
    for kind in CALLS
]


@pytest.mark.parametrize(("kind", "dynamic"), [*((kind, None) for kind in CALLS), *OPEN])
def test_torch_compile(kind: Any, dynamic: bool | None) -> None:
    net, calls = kind().eval(), CALLS[kind]
    torch._dynamo.reset()
    count = len(rabbet.torch.reports())
    with torch.no_grad():
        check(
            torch.compile(net, backend="rabbet", options=QUICK, dynamic=dynamic),
            net,
            calls,
        )
    reports = rabbet.torch.reports()[count:]
    assert reports
    assert all(not report.left for report in reports)


class Unknown(Module):
    def forward(self, x: Any, p: Any) -> Any:
        def true(x: Any) -> Any:
            return torch.special.bessel_j0(x)

        return torch.cond(p.sum() > 0, true, lambda x: x * 2, (x,)).relu() * 3


def test_an_operator_within_that_rabbet_lacks() -> None:
    net, p = Unknown().eval(), torch.ones(2)
    x = torch.randn(4, 4)
    with torch.no_grad():
        with pytest.raises(rabbet.Error, match=r"cond.*its operator aten\.special_bessel_j0"):
            rabbet.compile(net, (x, p), **QUICK)
        torch._dynamo.reset()
        count = len(rabbet.torch.reports())
        fast = torch.compile(net, backend="rabbet", options=QUICK)
        check(fast, net, [(x, p), (x, -p)])
    (report,) = rabbet.torch.reports()[count:]
    assert [left.op for left in report.left] == ["cond"]
    assert report.engines == 2  # before it and behind it
