"""Checked calls of methods that users define: errors name class, method and layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from .._errors import PluginError


def class_name(thing: Any) -> str:
    """'Name' of an object's class."""
    return type(thing).__name__


def _arguments(stub: Any) -> str:
    """Arguments of a method that users define, for messages."""
    import inspect
    import re

    marked = getattr(stub, "_rabbet_stub", "(self, ...)")
    if isinstance(marked, str):
        return marked
    text = str(inspect.signature(stub)).split(" -> ")[0]
    return re.sub(r": '[^']*'", "", text)


class Caller:
    """Calls methods for one layer."""

    def __init__(self, layer: str | None) -> None:
        self.layer = layer

    def where(self, owner: Any, method: str) -> str:
        """'Class.method() of layer 'x''."""
        place = f" of layer '{self.layer}'" if self.layer else ""
        return f"{class_name(owner)}.{method}(){place}"

    def fail(self, owner: Any, method: str, message: str) -> NoReturn:
        """Raises PluginError."""
        raise PluginError(f"{self.where(owner, method)}: {message}")

    def has(self, owner: Any, method: str) -> bool:
        """Whether the user's class defines a method."""
        function = getattr(owner, method, None)
        return callable(function) and not getattr(function, "_rabbet_stub", False)

    def find(self, owner: Any, method: str, default: Any = None) -> Callable[..., Any]:
        """A method; raises PluginError if the class does not define it and there is no
        default."""
        if self.has(owner, method):
            found: Callable[..., Any] = getattr(owner, method)
            return found
        if default is not None:
            return lambda *args: default
        self._missing(owner, method)

    def _missing(self, owner: Any, method: str) -> NoReturn:
        import difflib

        kind = type(owner)
        own = [n for n in dir(kind) if not n.startswith("_") and self.has(kind, n)]
        close = difflib.get_close_matches(method, own, 1)
        hint = f"; did you mean {close[0]}() to be it?" if close else ""
        arguments = _arguments(getattr(kind, method, None))
        message = f"the class does not define it: def {method}{arguments}{hint}"
        self.fail(owner, method, message)

    def call(self, owner: Any, method: str, *args: Any, default: Any = None) -> Any:
        """Calls a method; exceptions get a note."""
        function = self.find(owner, method, default)
        try:
            return function(*args)
        except Exception as error:
            self.note(error, owner, method)
            raise

    def note(self, error: BaseException, owner: Any, method: str) -> None:
        """Adds the class, method and layer to an exception."""
        error.add_note(f"in {self.where(owner, method)}")

    def attribute(self, owner: Any, name: str) -> Any:
        """An attribute; raises PluginError if it is not set."""
        try:
            return getattr(owner, name)
        except AttributeError as error:
            place = f"layer '{self.layer}': " if self.layer else ""
            raise PluginError(f"{place}{error}") from None

    # ---- Results of methods ----

    def integer(self, owner: Any, method: str, value: Any, least: int) -> int:
        """An int of at least `least`."""
        try:
            number = value.__index__()
        except (AttributeError, TypeError):
            self.fail(owner, method, f"it returned {value!r}; expected an int")
        if number < least:
            self.fail(
                owner, method, f"it returned {number}; expected {least} or more"
            )
        return int(number)

    def items(
        self, owner: Any, method: str, value: Any, kind: type, count: int | None
    ) -> list[Any]:
        """A list of `count` objects of a class."""
        if isinstance(value, kind) or not isinstance(value, Iterable):
            self.fail(
                owner,
                method,
                f"it returned {value!r}; expected a list of {kind.__name__}",
            )
        found = list(value)
        for i, item in enumerate(found):
            if not isinstance(item, kind):
                self.fail(
                    owner,
                    method,
                    f"item {i} of the list that it returned is {item!r}; expected "
                    f"{kind.__name__}",
                )
        if count is not None and len(found) != count:
            self.fail(
                owner,
                method,
                f"it returned {len(found)} items, but num_outputs is {count}",
            )
        return found

    def dims(
        self, owner: Any, method: str, builder: Any, index: int, dims: Any
    ) -> tuple[int, ...]:
        """Expression numbers of an output's DimsExprs."""
        for axis, item in enumerate(dims):
            place = f"dimension {axis} of output {index}"
            if item is None:
                self.fail(owner, method, f"{place} was never set")
            if item._builder is not builder:
                self.fail(
                    owner,
                    method,
                    f"{place} is an expression of an earlier call; they are valid only "
                    "during the call",
                )
        return tuple(item._dim for item in dims)

    def copy(self, original: Any, made: Any, method: str, kind: type) -> Any:
        """Checks that a copy has the right class and shares no mutable state with the
        original."""
        if made is original:
            self.fail(
                original,
                method,
                "it returned the object itself; the copies run with shapes and tactics "
                "of their own, so return a new object",
            )
        if not isinstance(made, kind):
            self.fail(
                original, method, f"it returned {made!r}; expected an {kind.__name__}"
            )
        ours = getattr(original, "__dict__", None)
        if ours is not None and ours is getattr(made, "__dict__", None):
            self.fail(
                original,
                method,
                "the copy has the same __dict__ object, so that each sees the "
                "other's changes; copy it: clone.__dict__.update(self.__dict__)",
            )
        return made

    def copied(self, original: Any, ours: Any, theirs: Any, but: str = "") -> None:
        """Checks that a clone has the attributes that the engine reads."""
        for name, expected in ours._rabbet_native.items():
            found = theirs._rabbet_native.get(name, getattr(type(theirs), name, None))
            if name not in theirs._rabbet_native and not isinstance(found, (int, str)):
                self.fail(
                    original,
                    "clone",
                    f"the copy has no {name}, which is {expected!r} here; attributes that "
                    "the engine reads are not in __dict__: set them in __init__, or in "
                    "clone() as well",
                )
            if found != expected and name != but:
                self.fail(
                    original,
                    "clone",
                    f"{name} of the copy is {found!r}, not {expected!r}",
                )


def same(a: Any, b: Any) -> bool:
    """Whether two attributes of plugins are equal; True if they cannot be compared."""
    import numpy as np

    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        try:
            return bool(np.array_equal(np.asarray(a), np.asarray(b)))
        except (TypeError, ValueError):
            return False
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, (int, float, str, bytes, bool, type(None))):
        return bool(a == b)
    return True  # not comparable
