"""Operators of torch with sizes that vary and numbers at the ends of their range, as in torch."""

from __future__ import annotations

import copy
import math
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
    return (
        F.interpolate(x, size=size, mode="area"), F.adaptive_avg_pool2d(x, (size[0], 3)),
        F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, divisor_override=2),
    )  # fmt: skip


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


def _special(x: Any) -> Any:
    """Near their zeros and poles, and where other forms lose digits."""
    ends = torch.tensor([0.0, 1.0, 2.0, -1.0, -1.5, 1.46, 9.5, 40.0, torch.inf, torch.nan])
    y = torch.cat([x.flatten() * 3, ends])
    p = y.sigmoid()
    return (
        torch.erfc(y), torch.erfinv(p * 2 - 1), torch.special.erfcx(y.abs()), torch.lgamma(y),
        torch.digamma(y), torch.polygamma(1, y.abs() + 0.1), torch.special.ndtri(p),
        torch.special.log_ndtr(y),
        torch.i0(y), torch.special.i0e(y), torch.special.i1(y), torch.special.i1e(y * 5),
        torch.erfinv(ends[:4]), torch.mvlgamma(y.abs() + 3, 3), torch.logit(p),
        torch.special.xlog1py(y, p), torch.xlogy(y, p), torch.sinc(y), torch.special.entr(p),
    )  # fmt: skip


def _equations(a: Any, b: Any) -> Any:
    """Matrices of any size, of which rows must be exchanged."""
    good = a @ a.mT + torch.eye(3)
    low = torch.linalg.cholesky(good)
    return (
        torch.linalg.inv(a), torch.linalg.solve(a, b), torch.linalg.solve(a, b.mT, left=False),
        *torch.linalg.slogdet(a), low, torch.linalg.cholesky(good, upper=True),
        torch.cholesky_solve(b, low), torch.cholesky_inverse(low),
        torch.linalg.solve_triangular(a, b, upper=True),
        torch.linalg.solve_triangular(a, b.mT, upper=False, left=False, unitriangular=True),
        torch.linalg.solve(a, b[..., 0]), torch.linalg.inv(a[0]) @ b, torch.logdet(good),
    )  # fmt: skip


def _of_any_size(x: Any) -> Any:
    """Of a size that varies."""
    a = x @ x.mT + torch.eye(x.shape[0]) * 0.1
    return torch.linalg.inv(a) @ a, torch.linalg.solve(a, x), torch.linalg.cholesky(a)


def _bits(x: Any) -> Any:
    y = torch.cat([x.flatten(), torch.tensor([0.0, -0.0, 1e-40, -1e-42, torch.inf, 1.0, -2.0])])
    n = (x * 9).round().int()
    return (
        torch.nextafter(y, y.flip(0)), *torch.frexp(y), y.view(torch.int32),
        n.view(torch.float32).view(torch.int32), torch.ldexp(x, n), n << 2, n >> 1, ~n,
        torch.bitwise_right_shift(-7, n.abs() % 4), x.angle(), n.angle(),
    )  # fmt: skip


def _chosen(x: Any) -> Any:
    n, nan = _with_ties(x).long(), torch.where(x > 0.5, torch.nan, x)
    flat = n.flatten()
    return (
        n.mode(1)[0], n.mode(0, keepdim=True)[0], *nan.nanmedian(1), nan.nanmedian(),
        *torch.unique_consecutive(flat, return_inverse=True, return_counts=True),
        torch.unique_consecutive(n % 2, dim=1), x.repeat_interleave(n[0].abs(), 1),
        nan.argmin(), *nan.min(1), nan.argmin(0), (n > 0).max(1)[1],
        *torch.sort(n > 0, stable=True, dim=1),
        torch.nonzero_static(n, size=4), x.take_along_dim(n.abs() % 2), x.masked_select(x[0] > 0),
        torch.searchsorted(x[0], 0.2, sorter=x[0].argsort()), torch.dist(x, x * 2, 3),
    )  # fmt: skip


def _written(x: Any) -> Any:
    """Into parts of a tensor of known sizes."""
    y = x[:, :1] * torch.arange(1.0, 13.0).reshape(3, 4)[:, None]
    y = y.sum(1)
    rows = torch.tensor([0, 2, 0])
    source = y.flip(0)
    return [
        torch.diagonal_scatter(y, y[:, 0]),
        torch.as_strided_scatter(y, y[:2, :2], (2, 2), (4, 2), 1),
        torch.linalg.vander(y[0]), y.put(rows, y[0, :3], accumulate=True), y.msort(),
        *(y.index_reduce(0, rows, source, kind, include_self=own)
          for kind in ("prod", "mean", "amax", "amin") for own in (False, True)),
        (y > 3).index_put((rows,), y > 5, accumulate=True), torch.pdist(y), y[0, 0].scatter_add(
            0, torch.tensor(0), y[1, 1]),
    ]  # fmt: skip


def _at_edges(x: Any) -> Any:
    image = x[:1, :1].reshape(1, 1, 1, 1) * torch.arange(49.0).reshape(1, 1, 7, 7).sin()
    stack = image[0, :, :6, :6].expand(3, 6, 6)
    masked = torch.full((2, 3, 5), -torch.inf) + 0 * x[0, 0]
    return [
        F.softplus(x, 3, 0.2), torch.addbmm(image[0, 0, :6, :6], stack, stack, alpha=0.5),
        F.avg_pool2d(image, 3, 2, 1, True, True, 2), F.avg_pool2d(image, 2, 2, 1, False, False, 5),
        *F.adaptive_max_pool2d(image, (3, 2), return_indices=True), image.squeeze(()),
        F.pad(image, (-1, 2, 1, -3), "circular"), F.prelu(x, torch.tensor(0.3)),
        F.interpolate(image, (3, 11), mode="bicubic", antialias=True, align_corners=True),
        torch.add(x > 0, x > 1, alpha=False), torch.signbit(x > 0), torch.fmax(x > 0, x > 1),
        masked.amax(-1), (masked * 2).max(-1)[0], masked.cummax(1)[0],
        x.log_softmax(0)[0, 0].softmax(0),
    ]  # fmt: skip


def _kernels_of_each(x: Any) -> Any:
    """A kernel for each image or channel, and as many as there are images."""
    b, c, rows, columns = x.shape
    images, kernels = x.reshape(1, b * c, rows, columns), x[..., :3, :3]
    own = kernels.flip(1).unsqueeze(2).repeat(1, 1, c, 1, 1) * 0.5
    deep = kernels.reshape(b * c, 1, 3, 3)
    up: dict[str, Any] = {"stride": 2, "padding": 1, "output_padding": 1}
    return (
        F.conv2d(images, deep, x[..., 0, 0].reshape(-1), (1, 2), padding=1, groups=b * c),
        F.conv2d(x, kernels, dilation=(2, 1), padding=2),
        F.conv_transpose2d(images, own.reshape(b * c, c, 3, 3), groups=b, **up),
    )


def _of_sizes(x: Any) -> Any:
    """Functions that torch traces with the numbers of the example."""
    b, s = x.shape
    place = x.argmax(1)
    below = torch.tril_indices(b, s, 1)
    return (
        torch.linspace(0, 1, s), torch.linspace(0.5, s - 0.5, steps=b) * math.sqrt(s),
        torch.linspace(1 / s - 1, 1 - 1 / s, s), torch.linspace(0, b, 5),
        F.one_hot(place, s), F.one_hot(place + 1), F.one_hot((x > 0).long(), 3),
        x / x.new_tensor([s, b]).max(), x * torch.as_tensor([s, 2.5]).sum(),
        x * torch.tensor([[s * 0.5, 1], [3, b]])[0, 0], x[below[0], below[1]],
        x.take_along_dim(x.argsort(1), 1), torch.take_along_dim(x[:, :1], x.argsort(0)[:1], 0),
        x + 1 if torch.equal(x, x * 2) else x - 1,
        x if torch.allclose(x, x + 1e-9) and torch.is_nonzero(x.sum() - 1) else -x,
    )  # fmt: skip


def _transformed(x: Any, theta: Any) -> Any:
    """Spatial transformers."""
    grids = [F.affine_grid(theta, x.shape, align_corners=align) for align in (True, False)]
    image = F.grid_sample(x, grids[1], align_corners=False)
    return *grids, image, F.affine_grid(theta, [x.shape[0], 1, 1, x.shape[3]])


CASES: dict[str, Case] = {
    "of sizes": Case(_of_sizes, _matrix),
    "transformed": Case(
        _transformed,
        lambda b, s: (torch.randn(b, 1, s, s + 1), torch.randn(b, 2, 3)),
        ((0, 2, 3), (0,)),
    ),
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
    "kernels of each": Case(
        _kernels_of_each, lambda b, s: (torch.randn(b, 2, s + 2, s),), ((0, 2, 3),)
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
    "special": Case(_special, _matrix),
    "equations": Case(
        _equations,
        lambda b, s: (torch.randn(b, 3, 3), torch.randn(b, 3, s)),
        ((0,), (0, 2)),
    ),
    "of any size": Case(_of_any_size, lambda b, s: (torch.randn(b + 2, s + b + 4),)),
    "bits": Case(_bits, _matrix),
    "chosen": Case(_chosen, _matrix),
    "written": Case(_written, _matrix),
    "at edges": Case(_at_edges, _matrix),
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


class OfWeights(nn.Module):
    """What Rabbet lacks, of weights alone: torch computes it once."""

    def __init__(self) -> None:
        super().__init__()
        orthogonal = nn.utils.parametrizations.orthogonal
        self.turns = nn.Sequential(*(
            orthogonal(nn.Linear(4, 4), orthogonal_map=kind) for kind in ("matrix_exp", "cayley")
        ))  # fmt: skip
        self.register_buffer("matrix", torch.randn(4, 4))

    def forward(self, x: Any) -> Any:
        """Products with factors of a matrix."""
        u, values, v = torch.linalg.svd(self.matrix)
        spectrum = torch.view_as_real(torch.linalg.eigvals(self.matrix)).abs().sum()
        return self.turns(x) @ u.abs() @ torch.diag(values) @ v.abs() + spectrum


def test_operators_of_weights_alone() -> None:
    torch.manual_seed(4)
    _assert_same(OfWeights().eval(), Case(lambda: None, lambda b, s: (torch.randn(b, 4),), ((0,),)))


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


class Packed(nn.Module):
    """Recurrent layers of sequences of several lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 4, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(8, 5)

    def forward(self, x: Any, y: Any) -> Any:
        """Outputs, lengths and last states; a layer works on packed elements in between."""
        given = {"batch_first": True, "enforce_sorted": False}
        packed, (h, c) = self.lstm(nn.utils.rnn.pack_padded_sequence(x, y, **given))
        data, *others = packed
        packed, last = self.gru(nn.utils.rnn.PackedSequence(data.tanh() * 2, *others))
        found, lengths = nn.utils.rnn.pad_packed_sequence(packed, True)
        whole, _ = nn.utils.rnn.pad_packed_sequence(packed, False, -1.0, x.shape[1])
        return found, lengths, whole, h, c, last


def test_packed_sequences() -> None:
    torch.manual_seed(4)

    def args(b: int, s: int) -> tuple[Any, ...]:
        return torch.randn(b, s, 6), 1 + torch.arange(b) * 5 % (s - 1)

    _assert_same(Packed().eval(), Case(lambda: None, args, ((0, 1), (0,))))


def half(x: Any) -> Any:
    """Python's numbers of sizes."""
    s = x.shape[1]
    k, most = int(s * 0.5), int(s // 2 + x.shape[0])
    return x.topk(k, 1)[0] / float(s), x[:, : int(s / 4) + 2], x * float(most), int(s)


def counted(x: Any) -> Any:
    """Tensors of sizes, as Longformer has them; one that data changes is none any more."""
    pairs = torch.div(x.shape[1], 2, rounding_mode="trunc")
    other, rows = torch.tensor(x.shape[1]), torch.tensor(x.shape[0]) + 0
    other += x.argmax() * 0
    cut = x[:, : pairs * 2].reshape(x.shape[0], pairs, 2).sum(1)
    return cut, torch.zeros(rows + 1, pairs.item()), x * other


def quarter(x: Any) -> Any:
    """Of a size that the caller says to vary."""
    return x * 0.25 / float(x.shape[1])


def test_numbers_of_sizes() -> None:
    for function in (half, counted):
        _assert_same(Function(function), Case(function, _matrix))
    columns = torch.export.Dim("columns", min=4, max=99)
    model = trt.compile(
        Function(quarter), (torch.randn(3, 8), None),
        dynamic_shapes=({1: columns}, None), **OPTIONS,
    )  # fmt: skip
    x = torch.randn(3, 21)
    torch.testing.assert_close(model(x, None), quarter(x))


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


class Checked(nn.Module):
    """What fails for matrices that have no inverse or factor."""

    def forward(self, a: Any, b: Any, c: Any, d: Any, e: Any) -> Any:
        """Each function of its own matrices."""
        checked, f = {"check_errors": True}, torch.linalg
        return (
            f.inv(a), f.cholesky(b), f.inv_ex(c, **checked)[0],
            f.cholesky_ex(d, **checked)[0], f.solve_ex(e, e, **checked)[0],
        )  # fmt: skip


def test_singular_matrices() -> None:
    """A run fails, as torch does; the variants that tell where give the same place."""
    singular = torch.stack([torch.eye(3), torch.ones(3, 3)])
    found = Function(lambda x: (torch.linalg.inv_ex(x)[1], torch.linalg.cholesky_ex(x)[1]))
    infos = trt.compile(found, (singular,), **OPTIONS)(singular)
    assert all(map(torch.equal, infos, found(singular)))
    names = ("inv", "cholesky", "inv_ex", "cholesky_ex", "solve_ex")
    module = Checked()
    args = tuple(torch.eye(3).repeat(2, 1, 1) for _ in names)
    shapes = tuple({0: AUTO} for _ in names)
    model = trt.compile(module, args, dynamic_shapes=shapes, **OPTIONS)
    none = tuple(x[:0] for x in args)
    for given in (args, none):
        assert all(map(torch.equal, model(*given), module(*given)))
    for i, name in enumerate(names):
        bad = tuple(singular if k == i else x for k, x in enumerate(args))
        what = "positive definite" if "cholesky" in name else "invertible"
        with pytest.raises(trt.Error, match=f"linalg.{name}: the input matrix is not {what}"):
            model(*bad)
        with pytest.raises(torch.linalg.LinAlgError):
            module(*bad)


def test_determinants_of_bad_matrices() -> None:
    """Singular ones, with a pivot of 0 in each place, and one with NaN."""
    module = Function(torch.linalg.slogdet)
    x = torch.diag_embed(torch.tensor([[0.0, 1, 2], [1, 0, 2], [1, 2, 0], [0, 0, 0], [1, 2, -3]]))
    x[4, 1, 1] = torch.nan
    found = trt.compile(module, (x,), **OPTIONS)(x)
    torch.testing.assert_close(found, module(x), equal_nan=True)


@pytest.mark.parametrize("order", [0.0, 2.0, torch.inf])
def test_embeddings_with_a_norm(order: float) -> None:
    weight, index = torch.randn(6, 4) * 2, torch.tensor([0, 2, 2])
    module = Function(lambda x: F.embedding(x, weight.clone(), max_norm=1.0, norm_type=order))
    torch.testing.assert_close(trt.compile(module, (index,), **OPTIONS)(index), module(index))


def test_layouts_are_refused() -> None:
    rows = [torch.randn(2, 3), torch.randn(4, 3)]
    nested = torch.nested.nested_tensor(rows, layout=torch.jagged)
    for x, layout in ((nested, "nested"), (torch.eye(3).to_sparse(), "sparse_coo")):
        with pytest.raises(trt.UnsupportedError, match=rf"\[0\] is .*layout {layout}; plans"):
            trt.compile(Function(torch.relu), (x,), **OPTIONS)


class Same(nn.Module):
    """Arguments and a number that data tells."""

    def __init__(self, gives_number: bool) -> None:
        super().__init__()
        self.gives_number = gives_number

    def forward(self, x: Any) -> Any:
        """x, or two results of its mean."""
        if not self.gives_number:
            return x
        mean = x.mean().item()
        return x * mean, mean


def test_arguments_and_numbers_as_results() -> None:
    x = torch.tensor([1.5, 2.25, -0.5])
    assert trt.compile(Same(False), (x,), **OPTIONS)(x) is x
    product, mean = trt.compile(Same(True), (x,), **OPTIONS)(x)
    assert mean == pytest.approx(x.mean().item())
    torch.testing.assert_close(product, x * x.mean())


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


def _narrow_sums(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    small = x * 1e-3  # squares below the least HALF
    return (
        torch.linalg.vector_norm(x, dim=(2, 3)),
        torch.linalg.vector_norm(x, 3, dim=1),
        x.var((2, 3)) * 1e-2,
        torch.std_mean(x, 1)[0],
        torch.nn.functional.batch_norm(small, None, None, training=True, eps=1e-8),
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sums_of_narrow_floats(dtype: torch.dtype) -> None:
    """Squares are added up in FLOAT: in HALF they are infinite from 256 on, or 0."""
    torch.manual_seed(2)
    x = (torch.randn(2, 4, 5, 6) * 150).to(dtype)
    module = Function(_narrow_sums)
    found = trt.compile(module, (x,), **OPTIONS)(x)
    for a, b in zip(found, module(x), strict=True):
        assert a.dtype is dtype
        torch.testing.assert_close(a.float(), b.float(), rtol=2e-2, atol=1e-3)
