"""What a way of a branch changes in objects that outlive it: attributes of modules, lists,
dictionaries, caches. The other way begins without it, and data selects afterwards."""

from __future__ import annotations

import types
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

MISSING = object()
"""The value of an attribute, or a key, that is not there."""

# Values that hold no others, and what an export does not run through.
_LEAVES = (
    bool, int, float, complex, str, bytes, type(None), type, types.ModuleType,
    types.FunctionType, types.BuiltinFunctionType, torch.Tensor, torch.SymInt, torch.SymFloat,
    torch.SymBool, torch.dtype, torch.device, torch.Size,
)  # fmt: skip
_HOLDERS = (dict, list, set, deque)
_MOST = 200_000  # objects, which takes a tenth of a second


class TooManyObjectsError(Exception):
    """More objects can be reached than are looked at."""


def _is_torchs(holder: Any) -> bool:
    """Whether it is part of torch's own machinery."""
    module = type(holder).__module__
    is_module = isinstance(holder, torch.nn.Module)
    return module.split(".")[0] in ("torch", "sympy", "numpy") and not is_module


def _holders(roots: Iterable[Any]) -> Iterator[Any]:
    """The dictionaries, lists and sets that can be reached."""
    stack: list[Any] = list(roots)
    seen: set[int] = set()
    while stack:
        if len(seen) >= _MOST:
            raise TooManyObjectsError(
                f"a branch may change objects, of which more than {_MOST} can be reached"
            )
        one = stack.pop()
        if isinstance(one, _LEAVES) or id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, types.MethodType):
            stack.append(one.__self__)
            continue
        if isinstance(one, _HOLDERS):
            yield one
        if isinstance(one, (tuple, *_HOLDERS)):
            stack += one.values() if isinstance(one, dict) else one
        if not _is_torchs(one):
            stack.append(getattr(one, "__dict__", None))


class Objects:
    """What objects hold now."""

    def __init__(self, roots: Iterable[Any]) -> None:
        self._kept = [(state, _copied(state)) for state in _holders(roots)]

    def undo(self) -> list[tuple[Any, Any, Any]]:
        """Puts back what has changed: (state, before, after) of each."""
        found = []
        for state, before in self._kept:
            if not _same(state, before):
                found.append((state, before, _copied(state)))
                _put(state, before)
        return found


def _copied(state: Any) -> Any:
    """What it holds, in a plain type: those derived from these have a copy() of their own."""
    plain = next(kind for kind in _HOLDERS if isinstance(state, kind))
    return plain(state)


def _same(one: Any, other: Any) -> bool:
    """Whether two dictionaries, lists or sets hold the same objects."""
    if len(one) != len(other):
        return False
    if isinstance(one, dict):
        return all(other.get(key, MISSING) is value for key, value in one.items())
    if isinstance(one, set):
        return bool(one == other)
    return all(a is b for a, b in zip(one, other, strict=True))


def _put(state: Any, contents: Any) -> None:
    """Makes it hold these. Outputs of transformers refuse update()."""
    if isinstance(state, (list, deque)):
        state.clear()
        state.extend(contents)
        return
    plain = next(kind for kind in (OrderedDict, dict, set) if isinstance(state, kind))
    plain.clear(state)
    plain.update(state, contents)


def merge(
    one: list[tuple[Any, Any, Any]],
    other: list[tuple[Any, Any, Any]],
    select: Callable[[str, Any, Any], Any],
    refuse: Callable[[str], None],
) -> None:
    """Makes objects hold what `select(name, value, value)` takes of what two ways left."""
    ways: dict[int, list[Any]] = {}
    for which, changes in enumerate((one, other)):
        for state, before, after in changes:
            ways.setdefault(id(state), [state, before, before])[1 + which] = after
    for state, first, second in ways.values():
        if isinstance(state, dict):
            keys = [*first, *(key for key in second if key not in first)]
            pairs = ((k, first.get(k, MISSING), second.get(k, MISSING)) for k in keys)
            chosen: Any = {
                key: a if a is b else select(str(key), a, b) for key, a, b in pairs
            }
        elif isinstance(state, set) or len(first) != len(second):
            if not _same(first, second):
                refuse(f"a branch changes what a {type(state).__name__} holds")
            chosen = first
        else:
            chosen = [
                a if a is b else select(f"[{i}]", a, b)
                for i, (a, b) in enumerate(zip(first, second, strict=True))
            ]
        _put(state, chosen)
