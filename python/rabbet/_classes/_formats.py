"""Types and formats that a plugin supports, queried position by position."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .._enums import DataType, TensorFormat

Choice = tuple[DataType, TensorFormat]

_FLOATS = (DataType.FLOAT, DataType.HALF, DataType.BF16)
_LAID_OUT = (*_FLOATS, DataType.INT8, DataType.FP8)
# Minimum rank of each format; blocked formats have one more axis in memory.
_RANKS = {
    TensorFormat.HWC: 3,
    TensorFormat.HWC8: 3,
    TensorFormat.HWC16: 3,
    TensorFormat.CHW2: 3,
    TensorFormat.CHW4: 3,
    TensorFormat.CHW16: 3,
    TensorFormat.CHW32: 3,
    TensorFormat.DHWC: 5,
    TensorFormat.DHWC8: 5,
    TensorFormat.CDHW32: 5,
}
_MAX_RANK = 8


def choices(dtype: DataType, rank: int) -> list[Choice]:
    """Candidate types and formats of a tensor; its own type, row-major, comes first."""
    types = [dtype]
    if dtype in _FLOATS:
        types += [other for other in _FLOATS if other != dtype]
    found: list[Choice] = [(t, TensorFormat.LINEAR) for t in types]
    if dtype in _LAID_OUT and rank < _MAX_RANK:
        formats = [f for f, least in _RANKS.items() if rank >= least]
        found += [(t, f) for f in formats for t in types]
    return found


def search(
    options: Sequence[Sequence[Choice]],
    accepts: Callable[[int, list[Choice]], bool],
    limit: int,
) -> tuple[list[list[Choice]], int]:
    """At most `limit` combinations in which each position is accepted, given those
    before it; and the greatest number of positions accepted at once."""
    found: list[list[Choice]] = []
    deepest = 0

    def extend(chosen: list[Choice]) -> Iterator[list[Choice]]:
        nonlocal deepest
        deepest = max(deepest, len(chosen))
        if len(chosen) == len(options):
            yield list(chosen)
            return
        for choice in options[len(chosen)]:
            chosen.append(choice)
            if accepts(len(chosen) - 1, chosen):
                yield from extend(chosen)
            chosen.pop()

    # Combinations of each position's own type come first: others may be forbidden, and
    # must not use up the limit.
    for combination in extend([]):
        found.append(combination)
        if len(found) >= limit:
            break
    return found, deepest


def shown(chosen: Sequence[Any]) -> str:
    """Types and formats for an error message."""
    return ", ".join(f"{dtype.name} {format_.name}" for dtype, format_ in chosen)
