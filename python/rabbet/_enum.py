"""Bases of enumerations."""

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
    """A closed set of names that are numbers as well."""

    __str__ = _Enum.__str__


for _kind in (_Enum, _IntEnum):
    setattr(_kind, "__entries", _Entries())
