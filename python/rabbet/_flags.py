"""Options that are true or false."""

from __future__ import annotations

import operator
from typing import Any


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
