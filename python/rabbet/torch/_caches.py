"""Caches of keys and values as an operator of torch, which a plan updates in place."""

from __future__ import annotations

from typing import Any

import torch

from ._graph import Graph, Value
from ._table import TABLE


@torch.library.custom_op("rabbet::kv_cache_update", mutates_args=())
def kv_cache_update(
    cache: torch.Tensor, update: torch.Tensor, starts: torch.Tensor
) -> torch.Tensor:
    """The cache [batch, heads, room, size] with update [batch, heads, length, size] in the
    rows from starts[batch] (INT64) on; rows past the end are left out. A plan writes the
    update into the cache's memory if a caller binds the result there."""
    rows = starts[:, None] + torch.arange(update.shape[2], device=update.device)
    at = torch.arange(cache.shape[2], device=cache.device)
    # [batch, room]: the row of the update that goes there.
    source = at[None, :] - starts[:, None]
    taken = (source >= 0) & (source < rows.shape[1])
    source = source.clamp(0, max(rows.shape[1] - 1, 0))
    found = update.gather(2, source[:, None, :, None].expand_as(cache))
    return torch.where(taken[:, None, :, None], found, cache)


@kv_cache_update.register_fake
def _(cache: torch.Tensor, update: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(cache)


def _write(g: Graph, out: Any, cache: Value, update: Value, starts: Value) -> str:
    return g.op("TensorScatter", cache, update, starts, axis=2, mode="linear")


TABLE["rabbet.kv_cache_update.default"] = _write
