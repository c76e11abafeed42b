"""The rows of gpu_grid: layers of many shapes, a class after the other, as torch has them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Shape = tuple[int, ...]
BACKENDS = ("flash", "cudnn", "efficient")
PLAIN = ("eager", "compiled")


class Layer(nn.Module):
    """A function of a module's parts and its inputs."""

    def __init__(self, function: Callable[..., Any], **parts: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(self, *inputs)


@dataclass(frozen=True)
class Row:
    """A layer. ways: how torch may compute it; part: of the operations that torch counts,
    those that must be done; bound: the largest difference from FP32, over the largest
    value."""

    kind: str
    text: str
    make: Callable[[], nn.Module]
    shapes: tuple[Shape, ...]
    ways: tuple[str, ...] = PLAIN
    part: float = 1.0
    bound: float = 1e-2

    @property
    def name(self) -> str:
        return f"{self.kind}: {self.text}"


def _row(
    kind: str, text: str, shapes: Shape | tuple[Shape, ...],
    function: Callable[..., Any], bound: float = 1e-2, **parts: Callable[[], nn.Module],
) -> Row:  # fmt: skip
    def make() -> nn.Module:
        return Layer(function, **{name: part() for name, part in parts.items()})

    several = shapes if isinstance(shapes[0], tuple) else (shapes,)
    return Row(kind, text, make, several, bound=bound)  # type: ignore[arg-type]


def _sizes(shape: Shape) -> str:
    return "x".join(map(str, shape))


# ---- Attention ----


def _attention(
    kind: str, batch: int, heads: int, queries: int, keys: int, size: int,
    key_heads: int | None = None, causal: bool = False, mask: Shape | None = None,
) -> Row:  # fmt: skip
    shared = key_heads or heads

    def attend(_: nn.Module, q: Any, k: Any, v: Any, added: Any = None) -> Any:
        return F.scaled_dot_product_attention(
            q, k, v, added, is_causal=causal, enable_gqa=shared != heads
        )

    cache = (batch, shared, keys, size)
    shapes = ((batch, heads, queries, size), cache, cache, *([mask] if mask else []))
    text = f"{batch}x{heads}{f'/{shared}' if key_heads else ''}, {queries}x{keys}, {size}"
    text += ", causal" if causal else ""
    text += f", + {_sizes(mask)}" if mask else ""
    # Half of the products lie behind the diagonal.
    part = 0.5 if causal else 1.0
    return Row(kind, text, lambda: Layer(attend), shapes, BACKENDS, part)


def attention() -> Iterator[Row]:
    whole = [
        (8, 12, 197, 64), (2, 10, 4096, 64), (8, 20, 1500, 64), (8, 16, 577, 72),
        (2, 8, 4096, 40), (8, 8, 1024, 16), (8, 16, 577, 64), (4, 16, 1024, 128),
        (4, 8, 1024, 80), (4, 8, 577, 160), (2, 8, 4096, 256), (4, 8, 1024, 96),
        (8, 8, 1024, 32), (1, 12, 197, 64), (1, 20, 1500, 64),
    ]  # fmt: skip
    for batch, heads, length, size in whole:
        yield _attention("attention", batch, heads, length, length, size)


def causal_attention() -> Iterator[Row]:
    yield _attention("attention, causal", 1, 32, 4096, 4096, 128, 8, causal=True)
    yield _attention("attention, causal", 8, 12, 1024, 1024, 64, causal=True)
    yield _attention("attention, causal", 1, 16, 2048, 2048, 256, causal=True)
    yield _attention("attention, causal", 4, 32, 1000, 1000, 80, causal=True)
    yield _attention("attention, causal", 1, 32, 8192, 8192, 128, 8, causal=True)


def masked_attention() -> Iterator[Row]:
    windows = [(512, 3, 32), (128, 6, 32), (32, 12, 32), (512, 4, 24)]
    for batch, heads, size in windows:
        bias = (1, heads, 49, 49)
        yield _attention("attention, added", batch, heads, 49, 49, size, mask=bias)
    yield _attention("attention, added", 8, 12, 577, 577, 64, mask=(1, 12, 577, 577))
    yield _attention("attention, added", 32, 12, 128, 128, 64, mask=(32, 1, 1, 128))
    yield _attention("attention, added", 2, 10, 4096, 4096, 64, mask=(2, 1, 1, 4096))
    yield _attention("attention, added", 1, 32, 2048, 2048, 128, 8, mask=(1, 1, 2048, 2048))


def cross_attention() -> Iterator[Row]:
    for batch, heads, queries, size in [(2, 10, 4096, 64), (2, 8, 4096, 40), (8, 8, 1024, 80)]:
        yield _attention("attention, cross", batch, heads, queries, 77, size)


def decoding() -> Iterator[Row]:
    one = [
        (1, 32, 8192, 128, 8), (8, 32, 4096, 128, 8), (1, 32, 32768, 128, 8),
        (1, 32, 1024, 128, 8), (1, 32, 4096, 64, 8), (1, 16, 4096, 256, 4),
        (8, 20, 1500, 64, None), (16, 32, 1024, 128, 8),
    ]  # fmt: skip
    for batch, heads, keys, size, shared in one:
        yield _attention("attention, decoding", batch, heads, 1, keys, size, shared)


# ---- Convolutions ----


def _convolution(
    kind: str, batch: int, channels: int, extent: int, size: int, groups: int,
    stride: int = 1, dilation: int = 1, last: bool = True,
) -> Row:  # fmt: skip
    """With bias and SiLU; last: of NHWC tensors."""
    pad = dilation * (size - 1) // 2

    def convolve(m: Any, x: Any) -> Any:
        if not last:
            return F.silu(m.conv(x))
        return F.silu(m.conv(x.permute(0, 3, 1, 2))).permute(0, 2, 3, 1)

    def part() -> nn.Module:
        made = nn.Conv2d(channels, channels, size, stride, pad, dilation, groups)
        return made.to(memory_format=torch.channels_last) if last else made

    shape = (batch, channels, extent, extent)
    if last:
        shape = (batch, extent, extent, channels)
    text = f"{size}x{size}, {_sizes(shape)}, {'NHWC' if last else 'NCHW'}"
    text += f", {channels // groups} a group" if groups != channels else ""
    text += f", stride {stride}" if stride > 1 else ""
    text += f", dilation {dilation}" if dilation > 1 else ""
    return _row(kind, text, shape, convolve, conv=part)


def depthwise() -> Iterator[Row]:
    def one(batch: int, channels: int, extent: int, size: int, *rest: Any) -> Row:
        kind = "depthwise convolution"
        return _convolution(kind, batch, channels, extent, size, channels, *rest)

    yield one(8, 96, 56, 7)
    yield one(8, 144, 56, 3)
    yield one(8, 96, 112, 3, 2)
    yield one(8, 240, 28, 5)
    yield one(8, 256, 56, 3, 1, 2)
    yield one(8, 144, 56, 3, 1, 1, False)
    yield one(8, 384, 14, 7)
    yield one(8, 96, 56, 7, 1, 1, False)
    yield one(8, 144, 56, 5, 2)
    yield one(32, 192, 56, 3)
    yield one(1, 144, 56, 3)
    yield one(8, 256, 28, 3, 1, 6)
    yield one(8, 672, 14, 5, 1, 1, False)
    yield one(32, 96, 56, 7)


def depthwise_lines() -> Iterator[Row]:
    for batch, channels, length, size in [(8, 512, 1000, 31), (8, 4096, 2048, 4), (1, 256, 500, 9)]:
        yield _row(
            "depthwise convolution 1-D", f"{size}, {batch}x{channels}x{length}",
            (batch, channels, length), lambda m, x: F.silu(m.conv(x)),
            conv=lambda c=channels, k=size: nn.Conv1d(c, c, k, 1, k // 2, 1, c),
        )  # fmt: skip
    yield _row(
        "depthwise convolution 1-D", "31, 8x1000x512, NLC", (8, 1000, 512),
        lambda m, x: F.silu(m.conv(x.transpose(1, 2))).transpose(1, 2),
        conv=lambda: nn.Conv1d(512, 512, 31, 1, 15, 1, 512),
    )  # fmt: skip


def grouped() -> Iterator[Row]:
    kind = "grouped convolution"
    for batch, channels, extent, groups, stride, last in [
        (8, 128, 56, 32, 1, True), (8, 256, 28, 32, 1, True), (8, 240, 28, 10, 1, True),
        (8, 512, 14, 32, 1, True), (8, 128, 56, 32, 1, False), (8, 216, 28, 9, 2, True),
        (32, 512, 28, 8, 1, True),
    ]:  # fmt: skip
        yield _convolution(kind, batch, channels, extent, 3, groups, stride, 1, last)
    yield _convolution(kind, 8, 240, 28, 1, 3)
    yield _row(
        kind, "128 1-D, 4x768x499, 48 a group", (4, 768, 499),
        lambda m, x: F.gelu(m.conv(x)),
        conv=lambda: nn.Conv1d(768, 768, 128, 1, 64, 1, 16),
    )  # fmt: skip


# ---- Normalizations ----


def layers() -> Iterator[Row]:
    kind = "layer normalization"
    for shape in [(8, 1500, 1280), (8, 3136, 96), (32, 128, 768), (2, 4096, 320), (1, 197, 768)]:
        yield _row(kind, f"last axis, {_sizes(shape)}", shape, lambda m, x: m.norm(x),
                   norm=lambda c=shape[-1]: nn.LayerNorm(c))  # fmt: skip
    for shape in [(8, 96, 56, 56), (8, 384, 14, 14), (32, 192, 56, 56)]:
        yield _row(
            kind, f"channels of NCHW, {_sizes(shape)}", shape,
            lambda m, x: m.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2).contiguous(),
            norm=lambda c=shape[1]: nn.LayerNorm(c),
        )  # fmt: skip
    yield _row(kind, "of a sum, 8x1500x1280", ((8, 1500, 1280), (8, 1500, 1280)),
               lambda m, x, y: (x + y, m.norm(x + y)), norm=lambda: nn.LayerNorm(1280))  # fmt: skip


def other_norms() -> Iterator[Row]:
    kind = "other normalization"
    yield _row(kind, "group 32 + SiLU, 2x320x64x64", (2, 320, 64, 64),
               lambda m, x: F.silu(m.norm(x)), norm=lambda: nn.GroupNorm(32, 320))  # fmt: skip
    yield _row(kind, "RMS, 8x1024x4096", (8, 1024, 4096), lambda m, x: m.norm(x),
               norm=lambda: nn.RMSNorm(4096, 1e-6))  # fmt: skip
    yield _row(kind, "instance, 4x64x256x256", (4, 64, 256, 256), lambda m, x: m.norm(x),
               norm=lambda: nn.InstanceNorm2d(64, affine=True))  # fmt: skip
    yield _row(kind, "group 32 + SiLU, 1x128x512x512", (1, 128, 512, 512),
               lambda m, x: F.silu(m.norm(x)), norm=lambda: nn.GroupNorm(32, 128))  # fmt: skip
    yield _row(
        kind, "RMS of a sum, 1x16x2048", ((1, 16, 2048), (1, 16, 2048)),
        lambda m, x, y: (x + y, m.norm(x + y)), norm=lambda: nn.RMSNorm(2048, 1e-6),
    )  # fmt: skip
    yield _row(
        kind, "group 32 + SiLU, 2x64x64x320 NHWC", (2, 64, 64, 320),
        lambda m, x: F.silu(m.norm(x.permute(0, 3, 1, 2))).permute(0, 2, 3, 1).contiguous(),
        norm=lambda: nn.GroupNorm(32, 320),
    )  # fmt: skip
    yield _row(kind, "group 1, 8x64x56x56", (8, 64, 56, 56), lambda m, x: m.norm(x),
               norm=lambda: nn.GroupNorm(1, 64))  # fmt: skip


def softmax() -> Iterator[Row]:
    last = [(8, 12, 197, 197), (64, 50257), (4096, 1001), (32, 16, 77, 77), (8, 8, 1500, 1500)]
    for shape in last:
        yield _row("softmax", _sizes(shape), shape, lambda m, x: x.softmax(-1))
    yield _row("softmax", "axis 1, 8x21x256x256", (8, 21, 256, 256), lambda m, x: x.softmax(1))


# ---- Products ----


def gated() -> Iterator[Row]:
    def swiglu(m: Any, x: Any) -> Any:
        return F.silu(m.gate(x)) * m.up(x)

    def geglu(m: Any, x: Any) -> Any:
        up, gate = m.both(x).chunk(2, -1)
        return up * F.gelu(gate)

    for rows, k, n in [(2048, 4096, 14336), (1, 4096, 14336), (8, 4096, 14336), (512, 2048, 8192)]:
        yield _row("gated product", f"SwiGLU, {rows}x{k}x{n}", (1, rows, k), swiglu,
                   gate=lambda k=k, n=n: nn.Linear(k, n, bias=False),
                   up=lambda k=k, n=n: nn.Linear(k, n, bias=False))  # fmt: skip
    for rows, k, n in [(8192, 320, 1280), (2048, 1280, 5120)]:
        yield _row("gated product", f"GEGLU, {rows}x{k}x{n}", (2, rows // 2, k), geglu,
                   both=lambda k=k, n=n: nn.Linear(k, 2 * n))  # fmt: skip
    yield _row("gated product", "gate alone, 4096x2x14336", (1, 4096, 28672),
               lambda m, x: F.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1])  # fmt: skip


def few_rows() -> Iterator[Row]:
    """Chains, whose weights together are more than the L2 cache holds."""

    def chain(width: int, inner: int, count: int) -> nn.Module:
        pairs = ((nn.Linear(width, inner), nn.Linear(inner, width)) for _ in range(count))
        return nn.Sequential(*itertools.chain.from_iterable(pairs))

    for rows, width, inner, count in [
        (1, 4096, 4096, 2), (8, 2048, 8192, 2), (1, 768, 3072, 12), (4, 4096, 14336, 1),
        (16, 4096, 4096, 2), (2, 1280, 5120, 6), (1, 2048, 128256, 1),
    ]:  # fmt: skip
        yield _row(
            "product of few rows", f"{rows} x {width}-{inner}-{width}, {count} times",
            (rows, width), lambda m, x: m.chain(x),
            chain=lambda w=width, i=inner, c=count: chain(w, i, c),
        )  # fmt: skip


def odd_columns() -> Iterator[Row]:
    """Vocabularies and other widths that are no multiple of 8."""
    kind = "product of odd columns"
    for rows, k, n, bias in [
        (1576, 768, 30522, True), (512, 768, 50257, False), (1024, 1024, 51865, False),
        (16, 4096, 32001, False), (2048, 512, 1001, True),
    ]:  # fmt: skip
        yield _row(
            kind, f"{rows}x{k}x{n}{' + bias' if bias else ''}", (1, rows, k),
            lambda m, x: m.head(x), head=lambda k=k, n=n, b=bias: nn.Linear(k, n, bias=b),
        )  # fmt: skip
    yield _row(kind, "sum of columns alone, 1576x30522", ((1576, 30522), (30522,)),
               lambda m, x, y: x + y)  # fmt: skip


# ---- Moves ----


def moves() -> Iterator[Row]:
    def one(text: str, shapes: Any, function: Callable[..., Any]) -> Row:
        return _row("moves", text, shapes, lambda m, *x: function(*x), 0.0)

    def shuffle(x: Any) -> Any:
        n, c, h, w = x.shape
        return x.view(n, 3, c // 3, h, w).transpose(1, 2).reshape(n, c, h, w)

    def partition(x: Any) -> Any:
        n, h, w, c = x.shape
        x = x.roll((-3, -3), (1, 2)).view(n, h // 7, 7, w // 7, 7, c)
        return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, 49, c)

    def reverse(x: Any) -> Any:
        x = x.view(-1, 8, 8, 7, 7, x.shape[-1]).permute(0, 1, 3, 2, 4, 5)
        return x.reshape(-1, 56, 56, x.shape[-1]).roll((3, 3), (1, 2))

    def heads(x: Any) -> Any:
        n, s, c = x.shape
        return x.view(n, s, 3, 12, c // 36).permute(2, 0, 3, 1, 4).contiguous()

    yield one("windows 7 with roll 3, 8x56x56x96", (8, 56, 56, 96), partition)
    yield one("NCHW to NHWC, 8x96x56x56", (8, 96, 56, 56),
              lambda x: x.permute(0, 2, 3, 1).contiguous())  # fmt: skip
    yield one("channel shuffle 3, 8x240x28x28", (8, 240, 28, 28), shuffle)
    yield one("concatenation of channels, 8x(256 + 128)x56x56",
              ((8, 256, 56, 56), (8, 128, 56, 56)), lambda x, y: torch.cat((x, y), 1))  # fmt: skip
    yield one("windows 7 reversed, roll 3, 8x56x56x96", (512, 49, 96), reverse)
    yield one("heads of Q, K and V, 8x197x2304", (8, 197, 2304), heads)
    yield one("split of rows in 3, 8x197x2304", (8, 197, 2304),
              lambda x: tuple(part.contiguous() for part in x.split(768, -1)))  # fmt: skip
    yield one("NHWC to NCHW, 32x56x56x256", (32, 56, 56, 256),
              lambda x: x.permute(0, 3, 1, 2).contiguous())  # fmt: skip
    yield one("concatenation of rows, 8x3136x(96 + 33)", ((8, 3136, 96), (8, 3136, 33)),
              lambda x, y: torch.cat((x, y), -1))  # fmt: skip
    yield one("windows 7 with roll 3, 32x56x56x128", (32, 56, 56, 128), partition)
    yield one("pixels to channels 2, 8x64x112x112", (8, 64, 112, 112),
              lambda x: F.pixel_unshuffle(x, 2))  # fmt: skip
    yield one("heads merged, 8x12x197x64", (8, 12, 197, 64),
              lambda x: x.transpose(1, 2).reshape(8, 197, 768))  # fmt: skip


CLASSES = (
    attention, depthwise, masked_attention, grouped, decoding, moves, layers, few_rows,
    causal_attention, other_norms, gated, depthwise_lines, cross_attention, softmax,
    odd_columns,
)  # fmt: skip


def rows() -> list[Row]:
    """All, one of each class after the other."""
    found = itertools.zip_longest(*(one() for one in CLASSES))
    return [row for each in found for row in each if row is not None]
