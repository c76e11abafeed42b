"""Timing caches: times of kernels, kept for the next build."""

from __future__ import annotations

import operator
from typing import Self, SupportsIndex

from . import _rabbet
from ._checked import checks_arguments
from ._errors import NotFoundError

IHostMemory = _rabbet.IHostMemory


@checks_arguments
class TimingCacheKey:
    """Key of an entry: 32 hexadecimal digits, a hash of everything that a time depends
    on (device, operators, attributes, types, formats, shapes, kernel and tactic)."""

    __slots__ = ("_number",)
    _number: int

    def __new__(cls) -> Self:
        raise TypeError("TimingCacheKey: take one of queryKeys(), or use parse(text)")

    @classmethod
    def _of(cls, number: int) -> Self:
        self = super().__new__(cls)
        self._number = number
        return self

    @staticmethod
    def parse(text: str) -> TimingCacheKey:
        """Parses the result of str()."""
        digits = text.removeprefix("0x")
        try:
            number = int(digits, 16) if len(digits) == 32 else -1
        except ValueError:
            number = -1
        if number < 0:
            raise ValueError(
                f"a timing cache key has 32 hexadecimal digits, got {text!r}"
            )
        return TimingCacheKey._of(number)

    def _parts(self) -> tuple[int, int]:
        return self._number >> 64, self._number & 0xFFFF_FFFF_FFFF_FFFF

    def __str__(self) -> str:
        return f"0x{self._number:032x}"

    def __repr__(self) -> str:
        return f"TimingCacheKey({self})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TimingCacheKey):
            return NotImplemented
        return self._number == other._number

    def __hash__(self) -> int:
        return hash(self._number)


@checks_arguments
class TimingCacheValue:
    """Value of an entry: the tactic, as the low half of its key (which also identifies
    the tactic), and its time in ms; negative for unusable kernels."""

    __slots__ = ("_workspace", "tacticHash", "timingMSec")

    def __init__(self, tacticHash: SupportsIndex, timingMSec: float, /) -> None:  # noqa: N803
        self.tacticHash = operator.index(tacticHash)  # of 64 bits without a sign
        self.timingMSec = timingMSec
        self._workspace: int | None = None

    def __repr__(self) -> str:
        return f"TimingCacheValue({self.tacticHash:#x}, {self.timingMSec:g} ms)"


@checks_arguments
class ITimingCache(_rabbet.TimingCache):
    """Measured times of kernels, kept for later builds."""

    def serialize(self) -> IHostMemory:
        """The cache as bytes, to be written to a file."""
        return self._serialize()

    def combine(self, input_cache: ITimingCache, ignore_mismatch: bool = False) -> bool:
        """Adds the entries of another cache that this one lacks."""
        self._combine(input_cache)
        return True

    def reset(self) -> bool:
        """Removes all entries."""
        self._reset()
        return True

    def queryKeys(self) -> list[TimingCacheKey]:  # noqa: N802
        """The keys of all entries."""
        return [TimingCacheKey._of(high << 64 | low) for high, low in self._keys()]

    def query(self, key: TimingCacheKey) -> TimingCacheValue:
        """An entry; NotFoundError if there is none."""
        high, low = key._parts()
        us, workspace = self._query(high, low)
        value = TimingCacheValue(low, us / 1000)
        value._workspace = workspace
        return value

    def update(self, key: TimingCacheKey, value: TimingCacheValue) -> bool:
        """Sets or replaces an entry; builds trust its time."""
        high, low = key._parts()
        if value.tacticHash not in (0, low):
            raise ValueError(
                f"key {key} stands for tactic {low:#x}, not {value.tacticHash:#x}: "
                "update the entry of that tactic"
            )
        workspace = value._workspace
        if workspace is None:
            try:
                workspace = self._query(high, low)[1]
            except NotFoundError:
                workspace = 0
        self._update(high, low, value.timingMSec * 1000, workspace)
        return True

    def __bool__(self) -> bool:
        return True
