"""Checks and conversions of users' values; errors name the argument."""

from __future__ import annotations

import enum
import operator
import os
from typing import Any, TypeVar

from ._errors import InvalidArgumentError, OutOfRangeError

E = TypeVar("E", bound=enum.Enum)


def shown(value: Any) -> str:
    """A value as one short line for an error message."""
    try:
        line = " ".join(repr(value).split())
    except Exception:  # integers of thousands of digits; classes of users
        return f"an object of {type(value).__name__} that cannot be shown"
    return line if len(line) <= 200 else f"{line[:200]}..."


def same(a: Any, b: Any) -> bool:
    """Whether two values are equal; False for arrays, whose comparison is not a bool."""
    try:
        return bool(a == b)
    except (TypeError, ValueError):
        return False


def flag(value: Any, name: str = "") -> bool:
    """The option's value: True or False, also as 1 or 0 and as NumPy's bool. All else is a
    mistake: "no" and "0" would count as true."""
    if isinstance(value, bool):
        return value
    if type(value).__module__ == "numpy" and getattr(value, "dtype", None) == "bool":
        if value.ndim == 0:
            return bool(value)
    elif _index(value) in (0, 1):
        return bool(_index(value))
    raise TypeError(
        f"{name}{': ' if name else ''}expected True or False, got {shown(value)}"
    )


def _index(value: Any) -> int | None:
    """An integer of any library, or None."""
    try:
        return operator.index(value)
    except TypeError:
        return None


def integer(value: Any, name: str) -> int:
    """The option's value, of 64 bits; numbers with a fraction and texts are mistakes."""
    number = _index(value)
    if number is None:
        raise TypeError(f"{name}: expected an integer, got {shown(value)}")
    if not -(2**63) <= number < 2**63:
        raise OutOfRangeError(f"{name}: expected an integer of 64 bits, got {shown(number)}")
    return number


def real(value: Any, name: str) -> float:
    """The option's value, a number; texts are mistakes, also those of digits."""
    try:
        if not isinstance(value, (str, bytes, bytearray)):
            return float(value)
    except OverflowError:
        raise ValueError(
            f"{name}: expected a number, got one too large: {shown(value)}"
        ) from None
    except (TypeError, ValueError):
        pass
    raise TypeError(f"{name}: expected a number, got {shown(value)}")


def enumerator(kind: type[E], value: Any, name: str) -> E:
    """The option's value, a member of an enumeration or its number."""
    if isinstance(value, kind):
        return value
    number = None if isinstance(value, (bool, enum.Enum)) else _index(value)
    members = ", ".join(kind.__members__)
    wanted = f"{name}: expected one of {kind.__name__} ({members})"
    if number is None:
        raise TypeError(f"{wanted}, got {shown(value)}")
    try:
        return kind(number)
    except ValueError:
        raise ValueError(f"{wanted}, got {shown(number)}") from None


def text(value: Any, name: str) -> str:
    """The option's value, a str."""
    if not isinstance(value, str):
        raise TypeError(f"{name}: expected a str, got {shown(value)}")
    return value


def file_path(file: Any, name: str) -> str:
    """The option's value, a path."""
    try:
        path = os.fsdecode(file)
    except TypeError:
        raise TypeError(f"{name}: expected a path, got {shown(file)}") from None
    if "\0" in path:
        raise InvalidArgumentError(
            f"{name}: expected a path, got {shown(file)}, which has a NUL byte"
        )
    return path
