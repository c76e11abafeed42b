"""Operators of torch with sizes that vary and numbers at the ends of their range, as in torch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import rabbet as trt

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

AUTO = torch.export.Dim.AUTO
OPTIONS: dict[str, Any] = {"device": "cpu", "optimization_level": 0}
SIZES = ((2, 7), (3, 5), (1, 9))


class Function(nn.Module):
    """A module of a function of one or two tensors."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any, y: Any = None) -> Any:
        """Its result."""
        return self.function(x) if y is None else self.function(x, y)


class Case(NamedTuple):
    """A function, its arguments of sizes (b, s), and their axes that vary."""

    function: Callable[..., Any]
    args: Callable[[int, int], tuple[Any, ...]]
    axes: tuple[tuple[int, ...], ...] = ((0, 1),)


def _matrix(b: int, s: int) -> tuple[Any, ...]:
    return (torch.randn(b, s),)


def _with_ties(x: Any) -> Any:
    return (x * 2).round()


def _running(x: Any) -> Any:
    """The last of equal elements is the place of the best."""
    n = _with_ties(x).long()
    return (
        *x.cummax(1), *x.cummin(0), *_with_ties(x).cummax(1), *n.cummin(-1),
        x.logcumsumexp(1), (x * 50).logcumsumexp(0), x[0, 0].cummax(0)[0],
    )  # fmt: skip


def _middles(x: Any) -> Any:
    nan = torch.where(x > 1, torch.nan, x)
    return (
        *x.median(1), x.median(), *x.median(0, keepdim=True), *x.kthvalue(1, 0),
        *x.kthvalue(3, 1, keepdim=True), _with_ties(x).long().median(1)[0],
        nan.median(1)[0], nan.median(),
    )  # fmt: skip


def _small_logarithms(x: Any) -> Any:
    """Of which 1 + x has lost digits; the factors show what is left."""
    ends = [-1.0, torch.inf, 0.0, -0.0, 1e-10, -2.0, 3e38, -torch.inf]
    ends = torch.tensor(ends) + 0 * x[0, :1]
    return (
        (x * 1e-6).log1p() * 1e6, (x * 1e-6).expm1() * 1e6, (x.abs() * 1e20).log1p(),
        (x * 30).expm1(), ends.log1p(), ends.expm1(),
    )  # fmt: skip


def _signs(x: Any) -> Any:
    y = x.flip(1)
    return (
        torch.copysign(x, y), torch.copysign(x, torch.tensor(-0.0)), torch.copysign(x, -2),
        torch.hypot(x, y), torch.hypot(x * 1e25, y * 1e25), torch.hypot(x * 0, y * 0),
    )  # fmt: skip


def _places_of_all(x: Any) -> Any:
    return x.argmax(keepdim=True), x.argmin(keepdim=True), x.argmax()


def _areas(x: Any, like: Any) -> Any:
    size = like.shape[-2:]
    return F.interpolate(x, size=size, mode="area"), F.adaptive_avg_pool2d(x, (size[0], 3))


def _merge(x: Any, source: Any) -> Any:
    mask = x[..., :1] > 0
    return (
        x.masked_scatter(mask, source), x.masked_scatter(mask.expand_as(x), source),
        x.masked_scatter(mask & False, source),
    )  # fmt: skip


def _masked(x: Any, source: Any) -> Any:
    """Rows and columns that truth values choose; values of fewer axes."""
    row, block, some = x.clone(), x.clone(), x.clone()
    row[x[..., 0] > 0] = source[0]
    block[x[:, 0, 0] > 0] = source[:1]
    some[x > 0] = 0.5
    kept = torch.tensor([True, False, True])
    return row, block, some, x[..., kept] * 2, x[:, :1][:, kept[:1]] + 1


def _floored(x: Any) -> Any:
    """Tenths, of which some quotients lie just below an integer that they are rounded to."""
    tenths = (x * 10).round() / 10
    found = [
        tenths // 0.1, tenths % 0.1, tenths // -0.7, tenths % -0.7, tenths // tenths.flip(1),
        torch.div(tenths, 0.3, rounding_mode="floor"), 5 // tenths, tenths % tenths.flip(0),
        tenths // 0.5, tenths % 0.5, x // 0.0, torch.fmod(tenths, 0.1),
    ]  # fmt: skip
    return found


def _of_two_axes(x: Any) -> Any:
    four = x[:, :1] * torch.arange(1.0, 5.0)
    return F.group_norm(four, 2), x.signbit(), x[:, torch.tril_indices(3, 3)[1]]


def _distinct(x: Any) -> Any:
    """As many as a run finds."""
    n = (x * 2).round().long()
    return (*torch.unique(n, return_inverse=True, return_counts=True), torch.unique(x) * 2)


def _searched(x: Any) -> Any:
    edges, values = x.sort(1)[0], torch.cat([x, x[:, :1] + 1], 1)
    ends = [torch.searchsorted(edges, values, right=right) for right in (False, True)]
    return (*ends, torch.searchsorted(edges[0], values), torch.bucketize(x, edges[0]))


def _best_numbers(x: Any) -> Any:
    a, b = torch.where(x > 1, torch.nan, x), torch.where(x < 0, torch.nan, x * 2)
    return torch.fmax(a, b), torch.fmin(a, b), torch.fmax(x.long(), 1 - x.long())


def _complex_einsum(x: Any) -> Any:
    z, factor = torch.complex(x, x.flip(1)), torch.arange(12.0).reshape(4, 3)
    w = torch.complex(factor, 1 - factor)
    return [
        torch.view_as_real(each)
        for each in (
            torch.einsum("bi,io->bo", z, w),
            torch.einsum("b i, b i, i o -> b o", z, z.conj(), w),
            torch.einsum("bi,bi,bi,bi->b", z, z, z, z),
            torch.einsum("bi,io->bo", z, factor.to(z.dtype)),
            torch.einsum("bi->b", z),
        )
    ]


CASES: dict[str, Case] = {
    "running": Case(_running, _matrix),
    "middles": Case(_middles, _matrix),
    "small logarithms": Case(_small_logarithms, _matrix),
    "signs": Case(_signs, _matrix),
    "places of all": Case(_places_of_all, _matrix),
    "areas": Case(
        _areas,
        lambda b, s: (torch.randn(b, 2, s, s + 1), torch.randn(s + 3, 2 * s)),
        ((0, 2, 3), (0, 1)),
    ),
    "merge": Case(
        _merge,
        lambda b, s: (torch.randn(b, s, 3), torch.randn(b * s + 1, 3)),
        ((0, 1), (0,)),
    ),
    "masked": Case(
        _masked,
        lambda b, s: (torch.randn(b, s, 3), torch.randn(b * s + 1, 3)),
        ((0, 1), (0,)),
    ),
    "floored": Case(_floored, lambda b, s: (torch.randn(b, s) * 2,)),
    "of two axes": Case(_of_two_axes, _matrix),
    "distinct": Case(_distinct, _matrix),
    "searched": Case(_searched, _matrix),
    "best numbers": Case(_best_numbers, _matrix),
    "complex einsum": Case(_complex_einsum, lambda b, s: (torch.randn(b, 4),), ((0,),)),
}


def _assert_same(module: Any, case: Case) -> None:
    shapes = [dict.fromkeys(axes, AUTO) for axes in case.axes]
    named = dict(zip(("x", "y"), shapes, strict=False))
    model = trt.compile(module, case.args(*SIZES[0]), dynamic_shapes=named, **OPTIONS)
    for sizes in SIZES:
        args = case.args(*sizes)
        with torch.no_grad():
            torch.testing.assert_close(
                model(*args), module(*args), rtol=2e-5, atol=2e-5, equal_nan=True
            )


@pytest.mark.parametrize("name", CASES)
def test_operators(name: str) -> None:
    torch.manual_seed(4)
    _assert_same(Function(CASES[name].function), CASES[name])


class Upward(nn.Module):
    """Deconvolutions whose output_padding sizes tell."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1)
        self.far = nn.ConvTranspose2d(3, 4, 2, stride=2, dilation=3, groups=1)

    def forward(self, x: Any, y: Any) -> Any:
        """As large as y."""
        rows = y.shape[0] + 3
        return self.wide(x, output_size=y.shape), self.far(x, output_size=(rows, rows))


def test_deconvolutions_of_a_given_size() -> None:
    torch.manual_seed(4)

    def args(b: int, s: int) -> tuple[Any, ...]:
        return torch.randn(b, 3, s, s), torch.randn(2 * s - b % 2, 2 * s - b % 2)

    _assert_same(Upward().eval(), Case(lambda: None, args, ((0, 2, 3), (0, 1))))


class Steps(nn.Module):
    """Recurrent layers, of which the last gets states."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 4, 2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(8, 5, bias=False)
        self.rnn = nn.RNN(5, 4, nonlinearity="relu")

    def forward(self, x: Any, y: Any) -> Any:
        """Outputs and last states."""
        outputs, (h, c) = self.lstm(x)
        outputs, last = self.gru(outputs.transpose(0, 1))
        return (*self.rnn(outputs, y[None]), h, c, last, self.rnn(outputs[:, 0])[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_default_epsilon_of_rms_norm(dtype: Any) -> None:
    """It is that of FLOAT: that of the short types is as large as these squares."""
    layer, x = nn.RMSNorm(8).to(dtype), (torch.randn(3, 8) * 1e-3).to(dtype)
    model = trt.compile(layer, (x,), **OPTIONS)
    torch.testing.assert_close(model(x), layer(x).detach(), rtol=2e-2, atol=2e-2)


def test_number_of_steps_varies() -> None:
    torch.manual_seed(4)

    def args(b: int, s: int) -> tuple[Any, ...]:
        return torch.randn(b, s, 6), torch.randn(b, 4)

    _assert_same(Steps().eval(), Case(lambda: None, args, ((0, 1), (0,))))


class Rescaled(nn.Module):
    """A parameter that calls change."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((3,), 8.0))

    def forward(self, x: Any) -> Any:
        """Each time by half as much."""
        with torch.no_grad():
            self.scale.div_(2)
        return x * self.scale


def test_parameters_that_calls_change() -> None:
    module, x = Rescaled(), torch.randn(2, 3)
    model = trt.compile(copy.deepcopy(module), (x,), **OPTIONS)
    for _ in range(3):
        torch.testing.assert_close(model(x), module(x).detach())
    torch.testing.assert_close(model.buffers["scale"], module.scale.detach())


def test_checks_of_data() -> None:
    """torch's checks leave no operator in a plan, and do not keep a module from it."""

    def checked(x: Any) -> Any:
        torch._check_tensor_all(x < 10, lambda: "large")
        torch._check((x > -10).any().item(), lambda: "small")
        return x * 2

    torch.manual_seed(4)
    _assert_same(Function(checked), Case(checked, _matrix))


def test_a_projection_is_refused() -> None:
    layer, x = nn.LSTM(6, 4, proj_size=2), torch.randn(5, 2, 6)
    with pytest.raises(trt.UnsupportedError, match="a projection of the hidden state"):
        trt.compile(layer, (x,), dynamic_shapes=({0: AUTO},), **OPTIONS)
