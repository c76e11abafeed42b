"""Bases of enumerations (_enumerations.py); _DataType is that of DataType.

Enumerations that support arithmetic in TensorRT (flags, formats) are integers here."""

from __future__ import annotations

import enum
from typing import Any


class _Entries:
    """The table by which clients of pybind11's modules tell that a value is a member of an
    enumeration: (member, docstring) by name."""

    def __get__(self, member: Any, kind: Any) -> dict[str, tuple[Any, None]]:
        return {name: (value, None) for name, value in kind.__members__.items()}


class _Enum(enum.Enum):
    """A closed set of names; `int(x)` and `Class(number)` convert."""

    def __int__(self) -> int:
        return int(self.value)

    def __index__(self) -> int:
        return int(self.value)

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


class _IntEnum(enum.IntEnum):
    """A closed set of names that are also integers."""

    __str__ = _Enum.__str__


for _kind in (_Enum, _IntEnum):
    setattr(_kind, "__entries", _Entries())


_ITEM_SIZES = {
    "FLOAT": 4,
    "HALF": 2,
    "BF16": 2,
    "INT8": 1,
    "INT32": 4,
    "INT64": 8,
    "BOOL": 1,
    "UINT8": 1,
    "FP8": 1,
    "INT4": 0.5,
    "FP4": 0.5,
    "E8M0": 1,
    "DOUBLE": 8,
    "NF4": 0.5,
}


class _DataType(_Enum):
    @property
    def itemsize(self) -> float:
        """Bytes of one element; 0.5 where two share a byte."""
        return _ITEM_SIZES[self.name]
