"""Options that are true or false, integers, texts, or paths."""

from __future__ import annotations

import operator
import os
from typing import Any

from ._errors import OutOfRangeError


def flag(value: Any, name: str = "") -> bool:
    """The option's value: True or False, also as 1 or 0 and as NumPy's bool. All else is a
    mistake: "no" and "0" would count as true."""
    if isinstance(value, bool):
        return value
    if type(value).__module__ == "numpy" and getattr(value, "dtype", None) == "bool":
        if value.ndim == 0:
            return bool(value)
    elif hasattr(type(value), "__index__"):
        number = operator.index(value)
        if number in (0, 1):
            return bool(number)
    raise TypeError(f"{name}{': ' if name else ''}expected True or False, got {value!r}")


def integer(value: Any, name: str) -> int:
    """The option's value, of 64 bits; numbers with a fraction and texts are mistakes."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: expected an integer, got {value!r}") from None
    if not -(2**63) <= number < 2**63:
        raise OutOfRangeError(f"{name}: {number} is not an integer of 64 bits")
    return number


def text(value: Any, name: str) -> str:
    """The option's value, a str."""
    if not isinstance(value, str):
        raise TypeError(f"{name}: expected a str, got {value!r}")
    return value


def file_path(file: Any, name: str) -> str:
    """The option's value, the path of a file."""
    try:
        return os.fsdecode(file)
    except TypeError:
        raise TypeError(f"{name}: expected the path of a file, got {file!r}") from None
