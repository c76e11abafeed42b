"""torch's BERT with an operator after each layer: the Triton kernel that Rabbet's
plugin launches."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor, nn

from ..bert_gate import gains
from ..plugins.triton_kernels import gate as kernel
from . import torch_cuda

BLOCK = 1024


def launched(x: Tensor, g: Tensor) -> Tensor:
    """The bare launch."""
    y = torch.empty_like(x)
    count = x.numel()
    grid = (triton.cdiv(count, BLOCK),)
    kernel[grid](x, g, y, count, WIDTH=x.shape[-1], BLOCK=BLOCK)
    return y


@torch.library.custom_op("bench::gate", mutates_args=())
def custom(x: Tensor, g: Tensor) -> Tensor:
    return launched(x, g)


@custom.register_fake
def _(x: Tensor, g: Tensor) -> Tensor:
    return torch.empty_like(x)


class Gate(nn.Module):
    """One of the two functions, with g."""

    def __init__(self, function: Any, width: int = 768) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("g", torch.from_numpy(gains(width)))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.g)


class _Custom:
    """By torch.library.custom_op."""

    @property
    def after(self) -> Any:
        return Gate(custom)


class Eager(_Custom, torch_cuda.Eager):
    """Called by eager torch."""


class EagerGraph(_Custom, torch_cuda.EagerGraph):
    """Eager torch's kernels in a graph."""


class OwnGraph(_Custom, torch_cuda.OwnGraph):
    """torch.compile's kernels in a graph."""


class Launched(torch_cuda.Eager):
    """Launched by eager torch, not as an operator of torch."""

    @property
    def after(self) -> Any:
        return Gate(launched)
