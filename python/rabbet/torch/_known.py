"""Numbers that a module reads from tensors of its own making are constants of an export.

torch.export follows no values: to it, int(torch.arange(8)[-1]) is a number that only data
tells, and so is torch.div(x.shape[0], 2, rounding_mode="trunc"). While `KnownValues` is active,
tensors that follow from constants alone have their values beside them, and those that follow
from sizes have expressions of these, which Python reads.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.weak import WeakIdKeyDictionary

# Elements of a tensor whose values are followed: positions, sizes and masks, not weights.
_MOST = 1 << 14

_READS = {"item", "tolist", "__bool__", "__int__", "__float__", "__index__"}
_MAKERS = {
    "arange", "as_tensor", "eye", "full", "linspace", "logspace", "ones", "scalar_tensor",
    "tensor", "zeros",
}  # fmt: skip
# They take sizes, places and bounds, which torch reads from tensors by itself.
_TAKE_NUMBERS = {
    "__getitem__", "arange", "chunk", "expand", "eye", "full", "linspace", "narrow", "new_full",
    "new_ones", "new_zeros", "ones", "pad", "repeat", "reshape", "roll", "select", "split",
    "tensor_split", "unflatten", "view", "zeros",
}  # fmt: skip
# Operators whose results do not follow from the values of their arguments.
_UNKNOWN = re.compile(
    r"rand|empty|resize|bernoulli|dropout|multinomial|normal|poisson|exponential|cauchy|geometric|"
    r"uniform|data_ptr|backward|^grad|^set_"
)
_IN_PLACE = re.compile(
    r".*[^_]_$|__setitem__|__set__|__i(add|sub|mul|truediv|floordiv|and|or|xor|lshift|rshift|"
    r"pow|mod|matmul)__"
)


def changed_by(func: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """The tensors that a call changes in place."""
    name = getattr(func, "__name__", "")
    in_place = _IN_PLACE.fullmatch(name) is not None or kwargs.get("inplace") is True
    changed = (args[:1] if in_place else (), kwargs.get("out"))
    leaves = pytree.tree_leaves(changed)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


# Functions of two integers, which sizes are.
_OF_SIZES: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "__add__": operator.add, "__radd__": operator.add,
    "sub": operator.sub, "__sub__": operator.sub, "__rsub__": lambda a, b: b - a,
    "mul": operator.mul, "__mul__": operator.mul, "__rmul__": operator.mul,
    "floor_divide": operator.floordiv, "__floordiv__": operator.floordiv,
}  # fmt: skip
_COPIES = {"as_tensor", "clone", "cpu", "long", "scalar_tensor", "tensor"}


class KnownValues(TorchFunctionMode):
    """While it is active, numbers read from constants are constants, and those read from
    sizes are sizes."""

    def __init__(self) -> None:
        super().__init__()
        self._values = WeakIdKeyDictionary()
        self._sizes = WeakIdKeyDictionary()  # of tensors of rank 0

    def value(self, tensor: Any) -> torch.Tensor | None:
        """The values of a tensor, on the CPU, if they are known."""
        return self._values.get(tensor)

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.compiler.is_dynamo_compiling():  # a branch of torch.cond, a loop's step
            return func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if name == "__format__" and (value := self.value(args[0])) is not None:
            return _computed(func, (value, *args[1:]), {})
        if name in _READS and len(args) == 1:
            value = self.value(args[0])
            if value is not None:
                return _computed(func, (value,), {})
            if name in ("item", "tolist") and args[0] in self._sizes:
                return self._sizes[args[0]]
        if (self._values or self._sizes) and name in _TAKE_NUMBERS:
            numbers = self._with_numbers(name, args, kwargs)
            result = func(*numbers[0], **numbers[1])
        else:
            result = func(*args, **kwargs)
        self._note(func, name, args, kwargs, result)
        return result

    def _with_numbers(self, name: str, args: Any, kwargs: Any) -> Any:
        """The arguments with numbers in the places of tensors of one known integer, or of
        one known number where a tensor is made. An index that is a tensor stays."""
        first = 0 if name in _MAKERS else 1

        def number(leaf: Any) -> Any:
            if isinstance(leaf, torch.Tensor) and leaf in self._sizes:
                return self._sizes[leaf] if first else leaf
            value = self.value(leaf) if isinstance(leaf, torch.Tensor) else None
            if value is None or value.dim() or value.dtype is torch.bool:
                return leaf
            return leaf if first and value.dtype.is_floating_point else value.item()

        if name == "__getitem__":
            return (args[0], _bounds(args[1], number)), kwargs
        rest, named = pytree.tree_map(number, (args[first:], kwargs))
        return (*args[:first], *rest), named

    def _note(self, func: Any, name: str, args: Any, kwargs: Any, result: Any) -> None:
        """Computes a result's values if the arguments' are known."""
        leaves = pytree.tree_leaves((args, kwargs))
        given = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        changes = bool(changed_by(func, args, kwargs))
        known = [self.value(tensor) for tensor in given]
        whole = all(value is not None for value in known)
        made = bool(given) or name in _MAKERS
        varies = any(isinstance(leaf, torch.SymInt | torch.SymFloat) for leaf in leaves)
        if changes:
            for tensor in changed_by(func, args, kwargs):
                self._forget_sizes(tensor)
        else:
            self._note_size(name, args, kwargs, result)
        if whole and made and not varies and not _UNKNOWN.search(name):
            self._compute(func, args, kwargs, result, changes)
        elif changes:
            for value in known:
                if value is not None:
                    self._forget(value)

    def _note_size(self, name: str, args: Any, kwargs: Any, result: Any) -> None:
        """Computes a result of rank 0 that sizes tell."""
        is_number = isinstance(result, torch.Tensor) and not result.dim()
        if not is_number or result.dtype not in (torch.int64, torch.int32):
            return
        numbers = [self._number(each) for each in args]
        if not any(isinstance(each, torch.SymInt) for each in numbers):
            return
        if name in _COPIES and len(numbers) == 1:
            self._sizes[result] = numbers[0]
        mode = kwargs.get("rounding_mode")
        function = _OF_SIZES.get(name)
        if name in ("div", "divide") and mode in ("floor", "trunc"):
            function = operator.floordiv
        if function is None or len(numbers) != 2 or None in numbers:
            return
        is_exact = mode != "trunc" or all(statically_known_true(n >= 0) for n in numbers)
        if is_exact and set(kwargs) <= {"rounding_mode"}:
            self._sizes[result] = function(*numbers)

    def _number(self, value: Any) -> Any:
        """An integer that is known, or an expression of sizes; else None."""
        if isinstance(value, torch.Tensor):
            if value in self._sizes:
                return self._sizes[value]
            known = self.value(value)
            if known is None or known.dim() or known.dtype is not torch.int64:
                return None
            return known.item()
        return value if isinstance(value, (int, torch.SymInt)) else None

    def _compute(
        self, func: Any, args: Any, kwargs: Any, result: Any, changes: bool
    ) -> None:
        results = pytree.tree_leaves(result)
        sizes = [leaf.numel() for leaf in results if isinstance(leaf, torch.Tensor)]
        if not changes and not (sizes and max(sizes) <= _MOST):
            return

        def real(leaf: Any) -> Any:
            if isinstance(leaf, torch.Tensor):
                return self.value(leaf)
            if isinstance(leaf, torch.device):
                return torch.device("cpu")
            is_place = isinstance(leaf, str) and leaf.split(":")[0] in ("cuda", "meta")
            return "cpu" if is_place else leaf

        given, named = pytree.tree_map(real, (args, kwargs))
        try:
            found = pytree.tree_leaves(_computed(func, given, named))
        except Exception:  # what it computes stays unknown
            found = []
        if len(found) != len(results):
            return
        for leaf, value in zip(results, found, strict=True):
            is_tensor = isinstance(leaf, torch.Tensor) and isinstance(value, torch.Tensor)
            if is_tensor and leaf.shape == value.shape and leaf.dtype == value.dtype:
                self._values[leaf] = value

    def _forget(self, changed: torch.Tensor) -> None:
        """Values that share memory with one that is not known any more."""
        memory = changed.untyped_storage().data_ptr()
        for tensor, value in list(self._values.items()):
            if value.untyped_storage().data_ptr() == memory:
                del self._values[tensor]

    def _forget_sizes(self, changed: torch.Tensor) -> None:
        for tensor in list(self._sizes):
            if torch._C._is_alias_of(tensor, changed):  # type: ignore[attr-defined]
                del self._sizes[tensor]


def _bounds(index: Any, number: Callable[[Any], Any]) -> Any:
    """An index with numbers for the bounds of its slices."""
    if isinstance(index, tuple):
        return tuple(_bounds(each, number) for each in index)
    if isinstance(index, slice):
        return slice(number(index.start), number(index.stop), number(index.step))
    return index


def _computed(func: Any, args: Any, kwargs: Any) -> Any:
    """The function of real tensors, of which an export that is under way sees nothing."""
    with _disable_current_modes(), torch.no_grad():
        return func(*args, **kwargs)
