"""Random numbers of a module: torch draws them before each run of the plan."""

from __future__ import annotations

from typing import Any

import pytest
import rabbet as trt

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore")

AUTO = torch.export.Dim.AUTO
OPTIONS: dict[str, Any] = {"device": "cpu", "optimization_level": 0}


class Drawn(torch.nn.Module):
    """What torch draws in the same order."""

    def forward(self, x: Any) -> Any:
        """Some of each kind, one of a size that varies by itself."""
        b, s = x.shape
        return (
            x + torch.randn_like(x), torch.rand(2 * s, b), torch.randint(3, 9, (s,)),
            torch.randperm(6), torch.empty(s).uniform_(2, 4), torch.empty(3).normal_(1, 2),
            torch.normal(x, 2.0), torch.empty(4).exponential_(3.0),
            torch.multinomial(x.abs() + 0.1, 1), torch.randn(2, dtype=torch.float64),
        )  # fmt: skip


class Chances(torch.nn.Module):
    """Distributions whose numbers torch draws otherwise."""

    def forward(self, x: Any) -> Any:
        """Truth values, choices with replacement, numbers of trials."""
        many = x.new_ones(20000)
        return (
            torch.bernoulli(many * 0.3).mean(), torch.multinomial(x[0].abs(), 20000, True),
            torch.nn.functional.dropout1d(x[None], 0.0), many.clone().geometric_(0.25).mean(),
        )  # fmt: skip


@pytest.fixture(scope="module")
def model() -> Any:
    shapes = ({0: AUTO, 1: AUTO},)
    return trt.compile(Drawn(), (torch.randn(2, 7),), dynamic_shapes=shapes, **OPTIONS)


def test_numbers_are_torchs(model: Any, tmp_path: Any) -> None:
    file = tmp_path / "drawn.plan"
    model.save(file)
    for each in (model, trt.load(file, device="cpu")):
        for sizes in ((2, 7), (3, 5)):
            x = torch.randn(sizes)
            torch.manual_seed(5)
            expected = Drawn()(x)
            torch.manual_seed(5)
            found = each(x)
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_each_call_draws_anew(model: Any) -> None:
    x = torch.randn(2, 7)
    first, second = model(x), model(x)
    assert not torch.equal(first[0], second[0])
    assert not torch.equal(first[1], second[1])


def test_chances() -> None:
    torch.manual_seed(5)
    x = torch.tensor([[1.0, 2.0, 0.0, 5.0]])
    ones, choices, kept, trials = trt.compile(Chances(), (x,), **OPTIONS)(x)
    assert abs(ones - 0.3) < 0.02
    assert abs(trials - 4) < 0.15
    assert torch.equal(kept, x[None])
    shares = torch.bincount(choices, minlength=4) / 20000
    torch.testing.assert_close(shares, x[0] / 8, rtol=0, atol=0.02)


def test_what_is_refused() -> None:
    class Own(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.cond(x.sum() > 0, lambda v: v + torch.rand(3), lambda v: v * 2, (x,))

    with pytest.raises(trt.UnsupportedError, match="random numbers in a branch or loop"):
        trt.compile(Own(), (torch.ones(3),), **OPTIONS)


class Checked(torch.nn.Module):
    """Parameters that torch checks in each call."""

    def forward(self, x: Any) -> Any:
        """Draws of each kind."""
        return torch.multinomial(x, 1), torch.bernoulli(x[0]), torch.normal(0.0, x[0])


@pytest.mark.parametrize(("row", "message"), [
    ([0.0, 0.0], "add up to 0"), ([torch.nan, 1.0], "infinite or NaN"),
    ([-1.0, 2.0], "negative, infinite"), ([0.5, 1.5], "between 0 and 1"),
])  # fmt: skip
def test_parameters_that_torch_refuses(checked: Any, row: Any, message: str) -> None:
    x = torch.tensor([row, [0.5, 0.25]])
    with pytest.raises(RuntimeError):
        Checked()(x)
    with pytest.raises(trt.FailedPreconditionError, match=message):
        checked(x)


@pytest.fixture(scope="module")
def checked() -> Any:
    model = trt.compile(Checked(), (torch.full((2, 2), 0.5),), **OPTIONS)
    assert all(map(torch.is_tensor, model(torch.tensor([[0.0, 1.0], [0.5, 0.0]]))))
    return model
