"""Small modules of many kinds, each with example inputs and what varies in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

B = "b"
S = "s"


class Case(NamedTuple):
    """A module, and functions of sizes that give its arguments."""

    make: Callable[[], nn.Module]
    args: Callable[[int, int], tuple[Any, ...]]
    dims: tuple[Any, ...]  # {axis: B or S} or None for each argument
    kwargs: dict[str, Any] = {}  # noqa: RUF012


def _images(b: int, s: int, size: int = 16) -> torch.Tensor:
    return torch.randn(b, 3, size, size)


class Conv(nn.Module):
    """Convolutions of several kinds, poolings, batch normalization."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.deep = nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=8)
        self.up = nn.ConvTranspose2d(8, 4, 4, stride=2, padding=1)
        self.head = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> Any:
        """Logits, features and a size."""
        x = F.relu(self.norm(self.first(x)), inplace=True)
        x = F.max_pool2d(F.hardswish(self.deep(x)), 2)
        y = self.up(F.avg_pool2d(F.pad(x, (1, 1, 0, 1)), 3, stride=1))
        y = F.interpolate(y, scale_factor=2.0, mode="bilinear", align_corners=False)
        logits = self.head(F.adaptive_avg_pool2d(y, 1).flatten(1))
        return {"logits": logits, "maps": [y, None], "batch": x.shape[0]}


class Transformer(nn.Module):
    """Embedding, encoder layers, a causal attention with a mask of padding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(30, 32, padding_idx=0)
        self.places = nn.Parameter(torch.randn(64, 32) * 0.1)
        self.layer = nn.TransformerEncoderLayer(32, 4, 48, batch_first=True)
        self.query = nn.Linear(32, 96)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, *, scale: float = 1.0) -> Any:
        """Hidden states and the best positions."""
        x = self.embed(ids) + self.places[: ids.shape[1]]
        x = self.layer(x, src_key_padding_mask=mask)
        q, k, v = self.query(x).view(*ids.shape, 3, 4, 8).permute(2, 0, 3, 1, 4)
        bias = torch.zeros_like(mask, dtype=x.dtype).masked_fill(mask, -1e4)
        y = F.scaled_dot_product_attention(q, k, v, bias[:, None, None, :])
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return y * scale, (z.transpose(1, 2).flatten(2), x.argmax(-1))


class Recurrent(nn.Module):
    """LSTM, GRU and RNN."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 8, 2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(16, 5)
        self.rnn = nn.RNN(5, 4, nonlinearity="relu", bias=False)

    def forward(self, x: torch.Tensor) -> Any:
        """Outputs and last states."""
        y, (h, c) = self.lstm(x)
        y, last = self.gru(y.transpose(0, 1))
        return (*self.rnn(y), h, c, last)


class Indexed(nn.Module):
    """Gathers, scatters, slices, joins, orders."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("order", torch.tensor([2, 0, 1]))

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> Any:
        """Many parts of x."""
        b, s = x.shape[:2]
        rows = torch.arange(b, device=x.device)
        picked = x[rows, index % s]
        wrote = x.clone()
        wrote[:, 0] = 0
        wrote[rows, index % s, 1:2] += 1.5
        wrote[..., 1:] *= 2
        top, at = x[:, :, :4].topk(2, dim=-1)
        low, ordered = x.sort(dim=1, descending=True)
        return (
            picked, wrote, top, at, low, ordered[..., :1],
            torch.cat([x, x.flip(-1)], -1), torch.stack([x, -x], 1).sum((1, 2)),
            x.gather(2, (index[:, None, None] % 4).expand(b, s, 1)),
            x.new_zeros(b, 8).scatter_add(1, (index[:, None] % 8), x[:, 0, :1]),
            x[..., self.order], torch.roll(x, 1, 1), x.chunk(2, -1)[1].unbind(-1)[0],
            x.repeat(1, 1, 2).view(b, s, 2, -1).transpose(1, 2).reshape(b, -1),
            torch.tril(x @ x.transpose(1, 2)), x.narrow(1, 1, 1).squeeze(1),
            torch.where(x > 0, x, 0.5), x.max(), *x.min(1), x.any(), (x > 0).all(-1),
        )  # fmt: skip


class Numbers(nn.Module):
    """Arithmetic with promotion of types, numbers of rank 0, integers and truth."""

    def forward(self, x: torch.Tensor, n: torch.Tensor, on: torch.Tensor) -> Any:
        """Many functions of each element."""
        k = n + 1
        positive = x.abs() + 0.1
        return (
            x + n, x * 2, n * 2.5, n / 2, n // 3, n % 3, -n // 2, x // 0.3, x % 0.7,
            torch.fmod(x, 0.7), n.pow(2), positive**1.5, 2**x, positive.rsqrt(),
            torch.div(n, 3, rounding_mode="trunc"), torch.div(x, 0.3, rounding_mode="floor"),
            x.clamp(-0.5, 0.5), n.clamp(min=0), x.clamp(max=0.2), x.sigmoid().log1p(),
            x.expm1(), positive.log2(), positive.log10(), x.exp2(), x.trunc(), x.round(),
            torch.atan2(x, positive - 0.5), x.sign(), n & 3, n | 4, n ^ 1, ~n, on & ~on,
            on | (x > 0), on ^ (x > 0), (x > n), n == 2, n != k, x >= 0.1, on == (x > 0),
            torch.logical_and(n, on), torch.maximum(x, positive / 2), x.square(),
            x.mean(), x.sum(-1), n.sum(), x.std(0), x.var(-1, unbiased=False),
            x.norm(dim=-1), x.norm(1, -1), torch.logsumexp(x, -1), x.cumsum(-1), n.cumsum(0),
            x.prod(-1), x.amax((0, 1)), torch.var_mean(x, -1)[1], n.float().mean(),
            on.sum(), on.float() - x, x.to(torch.float16).float(), n.to(torch.int32),
            x.double() * 2, torch.full_like(x, 3), torch.ones_like(n), x.new_full((2,), 7),
            torch.arange(3, device=x.device) + n[0], torch.eye(3, device=x.device) + x[0, 0],
            torch.linspace(0, 1, 5, device=x.device) * x.max(),
            torch.isnan(x / 0), x.masked_fill(on, 9.0), torch.lerp(x, positive, 0.3),
            torch.addcmul(x, x, positive, value=0.5), torch.where(on, n, k), x.floor(),
        )  # fmt: skip


class Activations(nn.Module):
    """Activations and normalizations."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(
            [nn.LayerNorm(8), nn.RMSNorm(8), nn.LayerNorm(8, elementwise_affine=False)]
        )
        self.groups = nn.GroupNorm(2, 6)
        self.instance = nn.InstanceNorm1d(6, affine=True)
        self.prelu = nn.PReLU(6)

    def forward(self, x: torch.Tensor) -> Any:
        """Of each."""
        functions = [
            F.gelu, lambda v: F.gelu(v, approximate="tanh"), F.silu, F.mish, F.elu, F.selu,
            F.celu, F.softplus, F.hardsigmoid, F.relu6, F.leaky_relu, F.logsigmoid,
            F.softsign, F.hardshrink, F.softshrink, F.tanhshrink, F.glu,
            lambda v: F.softmax(v, -1), lambda v: F.log_softmax(v, 1),
            lambda v: F.threshold(v, 0.1, 2.0), lambda v: F.normalize(v, dim=-1),
            lambda v: F.local_response_norm(v, 3),
        ]  # fmt: skip
        found = [function(x) for function in functions]
        found += [norm(x) for norm in self.norms]
        return (*found, self.groups(x), self.instance(x), self.prelu(x))


class Images(nn.Module):
    """Resizing, padding, sampling, shuffling."""

    def forward(self, x: torch.Tensor) -> Any:
        """Of each."""
        turns = torch.eye(2, 3, device=x.device).expand(x.shape[0], 2, 3)
        grid = F.affine_grid(turns, [x.shape[0], 1, 5, 6], False)
        return (
            F.interpolate(x, scale_factor=2), F.interpolate(x, size=(9, 5)),
            F.interpolate(x, size=(9, 5), mode="bicubic"),
            F.interpolate(x, size=(5, 4), mode="bicubic", antialias=True),
            F.interpolate(x, size=(4, 13), mode="bilinear", antialias=True),
            F.interpolate(x, size=(20, 20), mode="bilinear", align_corners=True),
            F.interpolate(x, size=(7, 7), mode="nearest-exact"),
            F.pad(x, (1, 2, 0, 1), mode="reflect"), F.pad(x, (1, 2, 3, 0), mode="replicate"),
            F.pad(x, (2, 1, 1, 1), mode="circular"), F.pad(x, (1, -2, 0, 1), value=2.0),
            F.grid_sample(x, grid, align_corners=False),
            F.pixel_unshuffle(x, 2), F.pixel_shuffle(x.repeat(1, 4, 1, 1), 2),
            F.adaptive_avg_pool2d(x, (3, 5)), F.adaptive_max_pool2d(x, 4),
            F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
            F.max_pool2d(x, 3, 2, 1, dilation=2), F.unfold(x, 3, padding=1, stride=2),
            F.fold(F.unfold(x, 2, stride=2), (16, 16), 2, stride=2), x.unfold(2, 4, 3),
            F.lp_pool2d(x, 2, 2), torch.diagonal(x, 1, 2, 3), F.interpolate(
                x.flatten(2), size=100, mode="linear"
            ),
        )  # fmt: skip


class Products(nn.Module):
    """Products of matrices and sums of Einstein."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 6, 8))
        self.bilinear = nn.Bilinear(8, 8, 3)

    def forward(self, x: torch.Tensor) -> Any:
        """Of each."""
        return (
            torch.einsum("bsd,hkd->bhsk", x, self.weight), x @ self.weight[0].T,
            torch.einsum("bsd,btd->bst", x, x), torch.bmm(x, x.transpose(1, 2)),
            torch.baddbmm(x @ x.mT, x, x.mT, beta=0.5, alpha=2), x[0] @ self.weight[0, 0],
            torch.addmm(torch.ones(1, 6, device=x.device), x[0], self.weight[0].T),
            self.bilinear(x, x),
            torch.outer(x[0, 0], x[0, 0]), torch.dot(x[0, 0], x[0, 1]),
            torch.cdist(self.weight, self.weight * x.mean()),
        )  # fmt: skip


class Stateful(nn.Module):
    """A buffer and an argument that calls change."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> Any:
        """The number of calls, an argument as it is."""
        self.count += 1
        x.mul_(2)
        return x.sum() + self.count, x, self.count.clone(), 7, "text"


class Complex(nn.Module):
    """Rotary embedding by complex numbers, Fourier transforms, products."""

    def __init__(self) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(32.0), 10000 ** (-torch.arange(0, 8, 2) / 8))
        turns = torch.polar(torch.ones_like(angles), angles)
        self.register_buffer("turns", turns, persistent=False)

    def forward(self, x: torch.Tensor, z: torch.Tensor) -> Any:
        """Of a sequence [batch, length, 8] and of complex numbers."""
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        turned = torch.view_as_real(pairs * self.turns[: x.shape[1]]).flatten(2)
        spectrum = torch.fft.rfft(x, dim=2) * torch.complex(x[..., :5], x[..., 1:6])
        back = torch.fft.irfft(spectrum, n=8, dim=2)
        made = torch.polar(x.abs(), x) / (pairs.abs().sum() + 2j)
        both = torch.cat([z, z.conj().transpose(0, 1)], 1) * (1 + 2j) - x.sum()
        return (
            turned, back, torch.fft.fft2(z, norm="ortho"), torch.fft.ifft(z, dim=0), both,
            z @ z + 1, torch.angle(z), z.exp().imag, made.real, (z / (z + 3)).abs(), z.mT,
        )  # fmt: skip


class Bags(nn.Module):
    """Embedding bags, scattered reductions, sorted edges, running moments."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = nn.EmbeddingBag(10, 4, mode="max", padding_idx=2)
        self.mean = nn.EmbeddingBag(10, 4, mode="mean", include_last_offset=True)
        self.sum = nn.EmbeddingBag(10, 4, mode="sum", padding_idx=1)
        self.norm = nn.BatchNorm1d(4).train()

    def forward(self, ids: torch.Tensor, starts: torch.Tensor, x: torch.Tensor) -> Any:
        """Bags of a vector of indices, of which some are empty."""
        weights = x.flatten()[: ids.shape[0]].sigmoid()
        ends = torch.cat([starts, torch.full((1,), ids.shape[0], device=ids.device)])
        at = ids[: x.shape[0], None].expand(-1, 4).contiguous() % 3
        begun = torch.ones(5, 4, device=x.device)
        found = [
            begun.scatter_reduce(0, at, values, kind, include_self=itself)
            for kind in ("mean", "amax", "amin", "prod", "sum")
            for itself in (False, True)
            for values in (x, (x * 4).trunc())
        ]
        edges = torch.tensor([-1.0, 0.0, 0.5, 1.5], device=x.device)
        return (
            self.largest(ids, starts), self.mean(ids, ends), *found,
            self.sum(ids, starts, per_sample_weights=weights),
            torch.bucketize(x, edges), torch.searchsorted(edges, x, right=True),
            self.norm(x), ids << 1, ids >> 1,
        )  # fmt: skip

    def train(self, mode: bool = True) -> Bags:
        """The normalization stays in training."""
        super().train(mode)
        self.norm.train()
        return self


class Strided(nn.Module):
    """Elements by their places in memory, also of views."""

    def forward(self, x: torch.Tensor) -> Any:
        """Windows of [batch, length, 8], by torch.as_strided."""
        y = x.exp().transpose(1, 2)
        n, m = x.shape[:2]
        windows = y.as_strided((n, m - 1, 2, 8), (m * 8, 8, 8, 1))
        inner = x.relu()[:, 1:].as_strided((3, 4), (4, 1))
        moved = x.sin().transpose(0, 1).contiguous().as_strided((2, n), (1, 8), 3)
        return windows, inner, moved, F.adaptive_avg_pool1d(y, 3)


class Repeated(nn.Module):
    """Constants repeated along the batch before layers of constants."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("places", torch.randn(1, 6, 6, 3))
        self.linear = nn.Linear(3, 2)
        self.gate = nn.Parameter(torch.randn(2))

    def forward(self, x: torch.Tensor) -> Any:
        """Shares by place mixed with shares by content, as in ConViT."""
        places = self.linear(self.places.expand(x.shape[0], -1, -1, -1))
        shares = places.permute(0, 3, 1, 2).softmax(dim=-1)
        gate = self.gate.sigmoid().view(1, -1, 1, 1)
        content = torch.stack([x @ x.mT, x @ x.exp().mT], 1).softmax(-1)
        mixed = (1 - gate) * content + gate * shares
        return mixed / mixed.sum(-1, keepdim=True), shares.transpose(0, 1).relu()


CASES = {
    "conv": Case(Conv, lambda b, s: (_images(b, s),), ({0: B},)),
    "transformer": Case(
        Transformer,
        lambda b, s: (torch.randint(0, 30, (b, s)), torch.arange(s) >= torch.full((b, 1), 2)),
        ({0: B, 1: S}, {0: B, 1: S}),
        {"scale": 0.5},
    ),
    "recurrent": Case(Recurrent, lambda b, s: (torch.randn(b, 5, 6),), (None,)),
    "indexed": Case(
        Indexed,
        lambda b, s: (torch.randn(b, s, 4), torch.randint(0, 100, (b,))),
        ({0: B, 1: S}, {0: B}),
    ),
    "numbers": Case(
        Numbers,
        lambda b, s: (
            torch.randn(b, s, 3), torch.randint(-5, 9, (3,)), torch.rand(b, s, 3) > 0.5,
        ),
        ({0: B, 1: S}, None, {0: B, 1: S}),
    ),
    "activations": Case(Activations, lambda b, s: (torch.randn(b, 6, 8),), ({0: B},)),
    "images": Case(Images, lambda b, s: (_images(b, s),), ({0: B},)),
    "products": Case(Products, lambda b, s: (torch.randn(b, s, 8),), ({0: B, 1: S},)),
    "complex": Case(
        Complex,
        lambda b, s: (torch.randn(b, s, 8), torch.randn(5, 5, dtype=torch.complex64)),
        ({0: B, 1: S}, None),
    ),
    "bags": Case(
        Bags,
        lambda b, s: (
            torch.randint(0, 10, (2 * s,)), torch.tensor([0, 2, 2, 4]), torch.randn(s, 4),
        ),
        ({0: "2s"}, None, {0: S}),
    ),
    "strided": Case(Strided, lambda b, s: (torch.randn(b, 6, 8),), ({0: B},)),
    "repeated": Case(Repeated, lambda b, s: (torch.randn(b, 6, 8),), ({0: B},)),
    "stateful": Case(Stateful, lambda b, s: (torch.randn(b, 2),), ({0: B},)),
}  # fmt: skip

# Sizes of batches and sequences: those of the example first.
SIZES = ((3, 6), (2, 11), (5, 4))


def made(name: str) -> tuple[nn.Module, Case]:
    """A seeded module in evaluation, and its case."""
    torch.manual_seed(sum(map(ord, name)))
    case = CASES[name]
    return case.make().eval(), case
