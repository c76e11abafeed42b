"""Functions of torch in forms that an export takes whole.

torch traces some functions with numbers of the example: the steps of linspace, the sizes of a
grid, square roots of sizes. The export then holds for the example's sizes alone. And torch.equal
wants an answer at once. Each has a form here that computes the same of tensors and of sizes.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import is_fake
from torch.utils import _pytree as pytree

_SYMBOLIC = (torch.SymInt, torch.SymFloat)


def varies(*values: Any) -> bool:
    """Whether a number among them depends on sizes."""
    return any(isinstance(each, _SYMBOLIC) for each in pytree.tree_leaves(values))


def _linspace(
    start: Any, end: Any, steps: Any, *, dtype: Any = None, device: Any = None, **rest: Any
) -> Any:
    """From both ends, as torch has it."""
    if not varies(start, end, steps) or isinstance(start, torch.Tensor):
        return NotImplemented
    if isinstance(end, torch.Tensor) or rest.get("out") is not None:
        return NotImplemented
    dtype = dtype or torch.get_default_dtype()
    place = torch.arange(steps, device=device).to(dtype)
    step = (end - start) / torch.sym_max(steps - 1, 1)
    upward, downward = place * step + start, end - (steps - 1 - place) * step
    return torch.where(place < steps / 2, upward, downward)


def _affine_grid(theta: Any, size: Any, align_corners: bool | None = False) -> Any:
    """The places of an image's elements, x before y, times a matrix."""
    if not varies(size):
        return NotImplemented
    batch, _, *extents = size
    rank = len(extents)
    shape = (batch, *[1] * rank, rank)
    grid = theta[..., rank].reshape(shape)
    for column, extent in enumerate(reversed(extents)):
        place = 2 * torch.arange(extent, device=theta.device).to(theta.dtype)
        if align_corners:
            axis = (place - (extent - 1)) / torch.sym_max(extent - 1, 1)
        else:
            axis = (place - (extent - 1)) / extent
        axis = axis.reshape(-1, *[1] * (column + 1))
        grid = grid + axis * theta[..., column].reshape(shape)
    return grid


def _one_hot(tensor: Any, num_classes: Any = -1) -> Any:
    if not isinstance(num_classes, torch.SymInt):
        if num_classes != -1:
            return NotImplemented
        num_classes = tensor.max().item() + 1
    classes = torch.arange(num_classes, device=tensor.device)
    return (tensor.unsqueeze(-1) == classes).long()


def _tensor_of(
    data: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Any:
    """torch.tensor and as_tensor, of numbers."""
    if not varies(data) or isinstance(data, torch.Tensor):
        return NotImplemented
    leaves = pytree.tree_leaves(data)
    if any(isinstance(each, torch.Tensor) for each in leaves):
        return NotImplemented
    if dtype is None:
        is_real = any(isinstance(each, (float, torch.SymFloat)) for each in leaves)
        dtype = torch.get_default_dtype() if is_real else torch.int64
    if isinstance(data, (list, tuple)):
        return torch.stack([_made(each, dtype, device) for each in data])
    return torch.scalar_tensor(data, dtype=dtype, device=device)


def _made(data: Any, dtype: Any, device: Any) -> Any:
    found = _tensor_of(data, dtype, device)
    return torch.tensor(data, dtype=dtype, device=device) if found is NotImplemented else found


def _new_tensor(self: Any, data: Any, *, dtype: Any = None, device: Any = None, **_: Any) -> Any:
    return _tensor_of(data, dtype or self.dtype, device or self.device)


def _take_along_dim(self: Any, indices: Any, dim: Any = None, **rest: Any) -> Any:
    if rest or dim is None or not varies(self.shape, indices.shape):
        return NotImplemented
    dim %= self.dim()
    shape = torch.broadcast_shapes(
        *((*t.shape[:dim], 1, *t.shape[dim + 1 :]) for t in (self, indices))
    )
    given = (t.expand(*shape[:dim], -1, *shape[dim + 1 :]) for t in (self, indices))
    return torch.gather(next(given), dim, next(given))


def _indices(half: Callable[[Any, Any], Any]) -> Any:
    def form(
        row: Any, col: Any, offset: Any = 0, *, dtype: Any = torch.int64, device: Any = None,
        **_: Any,
    ) -> Any:  # fmt: skip
        if not varies(row, col):
            return NotImplemented
        whole = torch.ones(row, col, dtype=torch.bool, device=device)
        return half(whole, offset).nonzero().t().to(dtype)

    return form


def _equal(one: Any, other: Any) -> Any:
    """A tensor, which a branch may ask."""
    if one.shape != other.shape:
        return False
    return (one == other).all()


def _all_close(
    one: Any, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    return torch.isclose(one, other, rtol, atol, equal_nan).all()


FORMS: dict[Any, Callable[..., Any]] = {
    torch.Tensor.allclose: _all_close,
    torch.Tensor.equal: _equal,
    torch.Tensor.is_nonzero: lambda x: x.reshape(()) != 0,
    torch.Tensor.new_tensor: _new_tensor,
    torch.Tensor.take_along_dim: _take_along_dim,
    torch.affine_grid_generator: _affine_grid,
    torch.allclose: _all_close,
    torch.as_tensor: _tensor_of,
    torch.equal: _equal,
    torch.is_nonzero: lambda x: x.reshape(()) != 0,
    torch.linspace: _linspace,
    torch.nn.functional.affine_grid: _affine_grid,
    torch.nn.functional.one_hot: _one_hot,
    torch.take_along_dim: _take_along_dim,
    torch.tensor: _tensor_of,
    torch.tril_indices: _indices(torch.tril),
    torch.triu_indices: _indices(torch.triu),
}
"""NotImplemented leaves a call to torch."""

# Python's functions of numbers, which would ask for the example's.
_OF_NUMBERS: dict[str, Callable[[Any], Any]] = {
    "sqrt": torch.sym_sqrt,  # type: ignore[attr-defined]
}
_LOCK = threading.RLock()


def _of_sizes(theirs: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    def function(x: Any, *base: Any) -> Any:
        return ours(x) if isinstance(x, _SYMBOLIC) and not base else theirs(x, *base)

    return function


@contextlib.contextmanager
def numbers_of_sizes() -> Iterator[None]:
    """While it is active, math.sqrt and its like keep sizes; of other numbers they
    compute the same, for all threads."""
    with _LOCK, contextlib.ExitStack() as undone:
        for name, ours in _OF_NUMBERS.items():
            theirs = getattr(math, name)
            undone.callback(setattr, math, name, theirs)
            setattr(math, name, _of_sizes(theirs, ours))
        yield


@contextlib.contextmanager
def conversions_of_nothing() -> Iterator[None]:
    """While it is active, layer.to(dtype) of a module that is being exported, as routers of
    experts have it in their forward, leaves the module alone if it changes no tensor. torch
    cannot put other parameters in the place of those that it traces."""
    apply = torch.nn.Module._apply

    def applied(self: Any, fn: Any, *args: Any, **kwargs: Any) -> Any:
        tensors = [*self.parameters(), *self.buffers()]
        same = any(map(is_fake, tensors)) and all(_is_alike(t, fn(t)) for t in tensors)
        return self if same else apply(self, fn, *args, **kwargs)

    with _LOCK:
        torch.nn.Module._apply = applied  # type: ignore[method-assign]
        try:
            yield
        finally:
            torch.nn.Module._apply = apply  # type: ignore[method-assign]


def _is_alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    return (one.dtype, one.device, one.shape) == (other.dtype, other.device, other.shape)
