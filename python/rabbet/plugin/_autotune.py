"""AutoTuneCombination: types, formats and tactics that a plugin supports."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Sequence
from typing import Any

from .._enums import DataType, TensorFormat
from .._errors import InvalidArgumentError

Combination = tuple[tuple[DataType, TensorFormat], ...]

_TYPE_ALIASES = {
    "FP32": DataType.FLOAT,
    "FP16": DataType.HALF,
    "BFLOAT16": DataType.BF16,
}


def _name(text: str, kind: Any, aliases: dict[str, Any], what: str) -> Any:
    found = aliases.get(text.upper()) or kind.__members__.get(text.upper())
    if found is None:
        import difflib

        known = [*aliases, *kind.__members__]
        near = difflib.get_close_matches(text.upper(), known, 3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise InvalidArgumentError(
            f"AutoTuneCombination: no {what} '{text}'{hint} There are "
            f"{', '.join(known)}"
        )
    return found


class _Options:
    """The options of one position: each `|` dependent, or each `*` independent."""

    def __init__(
        self, text: str, kind: Any, aliases: dict[str, Any], what: str
    ) -> None:
        if "|" in text and "*" in text:
            raise InvalidArgumentError(
                f"AutoTuneCombination: '{text}' mixes | and *: a position's options go "
                "either together with those of other positions (|) or by themselves (*)"
            )
        self.dependent = "|" in text
        parts = text.split("|" if self.dependent else "*")
        self.values = [_name(part.strip(), kind, aliases, what) for part in parts]


def _expand(positions: Sequence[_Options], what: str) -> list[tuple[Any, ...]]:
    """All tuples: dependent ones first, then a copy of all for each independent
    option."""
    counts = {len(p.values) for p in positions if p.dependent}
    if len(counts) > 1:
        raise InvalidArgumentError(
            f"AutoTuneCombination: {what} that go together (|) must have as many "
            f"options in each position, got {' and '.join(map(str, sorted(counts)))}"
        )
    rows = [
        tuple(p.values[k] if p.dependent else p.values[0] for p in positions)
        for k in range(counts.pop() if counts else 1)
    ]
    for i, position in enumerate(positions):
        if position.dependent or len(position.values) == 1:
            continue
        rows += [
            (*row[:i], value, *row[i + 1 :])
            for value in position.values[1:]
            for row in list(rows)
        ]
    return rows


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


class AutoTuneCombination:
    """Types and formats for each input, then each output, and tactics for them.

    AutoTuneCombination("FP32|FP16, FP32|FP16", "LINEAR*HWC", [1, 2]): positions
    are separated by commas, inputs first. `A|B`: the positions change together.
    `A*B`: this position changes by itself. One layout is repeated.
    """

    def __init__(
        self,
        io_types: str | None = None,
        layouts: str | None = None,
        tactics: Iterable[int] | None = None,
    ) -> None:
        self._types: list[str | None] = [*_split(io_types)] if io_types else []
        self._layouts: list[str | None] = [*_split(layouts)] if layouts else []
        self._by_position = False
        self._tactics: list[int] = []
        if tactics is not None:
            self.tactics(tactics)

    def pos(
        self, pos: int | Iterable[int], io_types: str, layouts: str = "LINEAR"
    ) -> None:
        """Sets the options of one position or of several."""
        indices = [pos] if isinstance(pos, int) else list(pos)
        if (self._types or self._layouts) and not self._by_position:
            raise InvalidArgumentError(
                "AutoTuneCombination: pos() after types were given to the constructor; "
                "use one or the other"
            )
        self._by_position = True
        for index in indices:
            i = operator.index(index)
            if i < 0:
                raise InvalidArgumentError(
                    f"AutoTuneCombination.pos: position {i} is negative"
                )
            missing = i + 1 - len(self._types)
            self._types += [None] * missing
            self._layouts += [None] * missing
            if self._types[i] is not None:
                raise InvalidArgumentError(
                    f"AutoTuneCombination.pos: position {i} was set already, "
                    f"to '{self._types[i]}'"
                )
            self._types[i], self._layouts[i] = io_types, layouts

    def tactics(self, tactics: Iterable[int] | int) -> None:
        """Sets the tactics of these combinations, positive numbers."""
        numbers = [tactics] if isinstance(tactics, int) else list(tactics)
        values = [operator.index(t) for t in numbers]
        bad = [t for t in values if t <= 0]
        if bad or len(set(values)) != len(values):
            raise InvalidArgumentError(
                f"AutoTuneCombination.tactics: {values} must be positive and different "
                "(0 is the default tactic, used when none is named)"
            )
        self._tactics = values

    def _positions(self, count: int) -> tuple[list[str], list[str]]:
        for i, text in enumerate(self._types):
            if text is None:
                raise InvalidArgumentError(
                    f"AutoTuneCombination: position {i} was never set by pos()"
                )
        if len(self._types) != count:
            raise InvalidArgumentError(
                f"AutoTuneCombination: types for {len(self._types)} positions, but the "
                f"plugin has {count} inputs and outputs together"
            )
        layouts = [t for t in self._layouts if t is not None] or ["LINEAR"]
        if len(layouts) == 1:
            layouts = layouts * count
        if len(layouts) != count:
            raise InvalidArgumentError(
                f"AutoTuneCombination: layouts for {len(layouts)} positions, expected "
                f"one for all or {count}"
            )
        return [t for t in self._types if t is not None], layouts

    def expand(self, count: int) -> dict[Combination, list[int]]:
        """Every combination for `count` tensors, with its tactics; in order."""
        type_texts, layout_texts = self._positions(count)
        types = [_Options(t, DataType, _TYPE_ALIASES, "data type") for t in type_texts]
        layouts = [_Options(t, TensorFormat, {}, "layout") for t in layout_texts]
        type_rows = _expand(types, "types")
        layout_rows = _expand(layouts, "layouts")
        return {
            tuple(zip(type_row, layout_row, strict=True)): list(self._tactics)
            for type_row, layout_row in itertools.product(type_rows, layout_rows)
        }

    def __repr__(self) -> str:
        return f"AutoTuneCombination({self._types}, {self._layouts}, {self._tactics})"


def expand_all(
    answers: Sequence[AutoTuneCombination], count: int
) -> dict[Combination, list[int]]:
    """Combinations of several objects; tactics of equal ones are united."""
    result: dict[Combination, list[int]] = {}
    for answer in answers:
        for combination, tactics in answer.expand(count).items():
            known = result.setdefault(combination, [])
            known += [t for t in tactics if t not in known]
    return result
