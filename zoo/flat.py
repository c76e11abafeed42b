"""A module whose inputs and outputs are plain lists of tensors, as exporters want it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from .entries import Entry


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of what a model returns, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors(item)
    elif hasattr(value, "layers"):  # keys and values that transformers keeps
        for layer in value.layers:
            for name in ("keys", "values", "conv_states", "recurrent_states"):
                yield from tensors(getattr(layer, name, None))
    elif hasattr(value, "self_attention_cache"):  # decoders that read an encoder
        yield from tensors(value.self_attention_cache)
    elif hasattr(value, "sample"):  # diffusers' results
        yield from tensors(value.sample)


class Flat(nn.Module):
    """`module` as a function of `entry`'s inputs. With `half`, it computes in that type,
    while its inputs and outputs stay in FP32."""

    def __init__(
        self, entry: Entry, module: nn.Module, half: torch.dtype | None = None
    ):
        super().__init__()
        self.module = module if half is None else module.to(half)
        self._call = entry.call
        self._half = half

    def _inward(self, value: torch.Tensor) -> torch.Tensor:
        cast = self._half is not None and value.is_floating_point()
        return value.to(self._half) if cast else value

    def _outward(self, value: torch.Tensor) -> torch.Tensor:
        return value.float() if value.dtype == self._half else value

    def forward(self, *args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = [self._inward(value) for value in args]
        result = self._call(self.module, *given) if self._call else self.module(*given)
        return tuple(self._outward(value) for value in tensors(result))
