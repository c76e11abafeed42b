"""Attention whose queries, keys and values are one product, in the ways in which
libraries take them apart: torch's MultiheadAttention, timm, transformers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

BATCH, TOKENS, WIDTH, HEADS = 2, 24, 64, 2
SIZE = WIDTH // HEADS
LEFT_OUT = 3  # tokens that are not rotated


class Packed(torch.nn.Module):
    """Queries, keys and values [batch, heads, tokens, size] of one product."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.out = torch.nn.Linear(WIDTH, WIDTH)

    def parts(self, x: Any) -> Any:
        """timm's vision transformers."""
        joint = self.qkv(x).reshape(x.shape[0], TOKENS, 3, HEADS, SIZE)
        return joint.permute(2, 0, 3, 1, 4).unbind(0)

    def attend(self, q: Any, k: Any, v: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    def forward(self, x: Any) -> Any:
        y = self.attend(*self.parts(x)).transpose(1, 2)
        return self.out(y.reshape(x.shape[0], TOKENS, WIDTH))


class Indexed(Packed):
    """Parts by index, the last of them counted from the end."""

    def parts(self, x: Any) -> Any:
        joint = self.qkv(x).reshape(x.shape[0], TOKENS, 3, HEADS, SIZE)
        joint = joint.permute(2, 0, 3, 1, 4)
        return joint[0], joint[1], joint[-1]


class Scaled(Packed):
    """Swin: queries are scaled and keys transposed by the model."""

    def attend(self, q: Any, k: Any, v: Any) -> Any:
        scores = (q * 0.25) @ k.transpose(-2, -1)
        return scores.softmax(-1) @ v


class Split(Packed):
    """GPT-2: columns are split before heads are."""

    def parts(self, x: Any) -> Any:
        parts = self.qkv(x).split(WIDTH, 2)
        return [p.view(x.shape[0], TOKENS, HEADS, SIZE).transpose(1, 2) for p in parts]


class OfHeads(Packed):
    """GPT-NeoX: each head has its queries, keys and values beside each other."""

    def parts(self, x: Any) -> Any:
        joint = self.qkv(x).view(x.shape[0], TOKENS, HEADS, 3 * SIZE).transpose(1, 2)
        return joint.chunk(3, -1)


class Inner(Packed):
    """The same with an axis of its own, which is not the first of its part."""

    def parts(self, x: Any) -> Any:
        joint = self.qkv(x).view(x.shape[0], TOKENS, HEADS, 3, SIZE)
        return joint.permute(3, 0, 2, 1, 4).unbind(0)


def turned(x: Any) -> Any:
    """Halves of the last axis, swapped, the first of them negated."""
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1)


class Rotated(Packed):
    """Queries and keys of all but the first tokens are rotated, as timm does; angles
    differ between heads."""

    def __init__(self) -> None:
        super().__init__()
        angles = torch.randn(HEADS, TOKENS - LEFT_OUT, SIZE // 2).repeat(1, 1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def rotated(self, x: Any) -> Any:
        lead, x = x[:, :, :LEFT_OUT], x[:, :, LEFT_OUT:]
        return torch.cat([lead, x * self.cos + turned(x) * self.sin], 2)

    def attend(self, q: Any, k: Any, v: Any) -> Any:
        return super().attend(self.rotated(q), self.rotated(k), v)


class RotatedOfHeads(OfHeads):
    """GPT-NeoX: the first elements of each head, by tables that the model computes."""

    factor: Any = 0.1

    def rotated(self, x: Any) -> Any:
        part, rest = x[..., : SIZE // 2], x[..., SIZE // 2 :]
        angles = torch.arange(TOKENS)[:, None] * torch.arange(SIZE // 4)
        angles = angles.repeat(1, 2).to(x.dtype) * self.factor
        return torch.cat([part * angles.cos() + turned(part) * angles.sin(), rest], -1)

    def attend(self, q: Any, k: Any, v: Any) -> Any:
        return super().attend(self.rotated(q), self.rotated(k), v)


class RotatedByInput(RotatedOfHeads):
    """The same by tables that depend on the input."""

    def parts(self, x: Any) -> Any:
        self.factor = x.mean() * 0.1
        return super().parts(x)


class RotatedApart(Rotated):
    """Keys are rotated by other angles, or not at all."""

    def __init__(self, keys: bool) -> None:
        super().__init__()
        self.keys = keys

    def attend(self, q: Any, k: Any, v: Any) -> Any:
        other = self.rotated(-k.flip(2)).flip(2) if self.keys else k
        return Packed.attend(self, self.rotated(q), other, v)


class Shared(Packed):
    """What is taken apart is read by others, too."""

    def forward(self, x: Any) -> Any:
        joint = self.qkv(x).reshape(x.shape[0], TOKENS, 3, HEADS, SIZE)
        joint = joint.permute(2, 0, 3, 1, 4)
        y = self.attend(joint[0], joint[1], joint[2]).transpose(1, 2)
        return self.out(y.reshape(x.shape[0], TOKENS, WIDTH)) + joint.mean()


class Torch(torch.nn.Module):
    """torch.nn.MultiheadAttention."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.batch_first = batch_first
        self.layer = torch.nn.MultiheadAttention(WIDTH, HEADS, batch_first=batch_first)

    def forward(self, x: Any) -> Any:
        x = x if self.batch_first else x.transpose(0, 1)
        y, _ = self.layer(x, x, x, need_weights=False)
        return y if self.batch_first else y.transpose(0, 1)


def modules() -> dict[str, Any]:
    return {
        "timm": Packed(), "by index": Indexed(), "swin": Scaled(), "split": Split(),
        "heads": OfHeads(), "inner": Inner(), "shared": Shared(),
        "rotated": Rotated(), "rotated heads": RotatedOfHeads(),
        "rotated by input": RotatedByInput(),
        "torch, batch first": Torch(True), "torch": Torch(False),
    }  # fmt: skip


class All(torch.nn.Module):
    """Every module, as an export takes as long for one."""

    def __init__(self, found: dict[str, Any]) -> None:
        super().__init__()
        self.list = torch.nn.ModuleList(found.values())

    def forward(self, x: Any) -> Any:
        return tuple(module(x) for module in self.list)


NAMES = list(modules())
ROTATED = [name for name in NAMES if name.startswith("rotated")]


def apart() -> dict[str, Any]:
    """Queries and keys whose rotations cannot be one."""
    return {"other keys": RotatedApart(True), "queries": RotatedApart(False)}


def exported(
    path: Path, dtype: str, varying: bool, made: Callable[[], Any] = modules
) -> tuple[Any, dict[str, Any]]:
    """Writes the modules, with a batch of any size if `varying`; their input as an array,
    and the results by torch in FP32, by name."""
    torch.manual_seed(0)
    found = made()
    module = All(found).eval().to(getattr(torch, dtype))
    x = torch.randn(BATCH, TOKENS, WIDTH).to(getattr(torch, dtype))
    # With gradients: without, MultiheadAttention is one operator, which is not exported.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module, (x,), str(path), input_names=["x"], dynamo=False, opset_version=17,
            dynamic_axes={"x": {0: "batch"}} if varying else None,
        )  # fmt: skip
        want = [result.detach().numpy() for result in module.float()(x.float())]
    return x.numpy(), dict(zip(found, want, strict=True))
