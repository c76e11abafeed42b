"""Whether tensors still hold what plans were made of."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._python_dispatch import is_traceable_wrapper_subclass


class Watched:
    """A tensor as it was when a plan was made of it."""

    __slots__ = ("_address", "_ref", "_storage", "_version")

    def __init__(self, tensor: torch.Tensor) -> None:
        self._ref = weakref.ref(tensor)
        # Inference tensors do not count changes in place.
        self._version = None if tensor.is_inference() else tensor._version
        self._address: int | None = None
        self._storage: StorageWeakRef | None = None
        if tensor.layout is torch.strided and not is_traceable_wrapper_subclass(tensor):
            self._address = tensor.data_ptr()
            # Another storage may get the address, but not while this one lives.
            self._storage = StorageWeakRef(tensor.untyped_storage())

    def is_same(self) -> bool:
        """Whether the tensor lives and is unchanged."""
        tensor = self._ref()
        return tensor is not None and self.is_unchanged(tensor)

    def is_(self, tensor: torch.Tensor) -> bool:
        """Whether this is the tensor."""
        return self._ref() is tensor

    def is_unchanged(self, tensor: torch.Tensor) -> bool:
        """Whether torch counted no change in place, and the tensor has the same memory:
        share_memory() moves elements, an assignment to `data` brings others."""
        if self._version is not None and tensor._version != self._version:
            return False
        storage = self._storage
        return storage is None or (
            tensor.data_ptr() == self._address and not storage.expired()
        )


@torch.compiler.disable
def _count_changes(tensors: list[torch.Tensor]) -> None:
    torch.autograd.graph.increment_version(tensors)


def _count_fused_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Counts changes by fused optimizers, which torch itself leaves uncounted."""
    for group in optimizer.param_groups:
        if group.get("fused"):
            _count_changes([each for each in group["params"] if each.grad is not None])


register_optimizer_step_post_hook(_count_fused_step)
