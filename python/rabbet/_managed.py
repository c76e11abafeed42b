"""Properties of TensorRT's classes that scripts rely on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Generic, NoReturn, Self, TypeVar

from ._errors import UnsupportedError
from ._flags import same, shown

T = TypeVar("T")
Method = TypeVar("Method", bound=Callable[..., Any])

# Attribute of marked functions, properties and classes: (kind in
# docs/reference/names.md, reason).
_MARK = "_rabbet_mark"


def _name(self: Any, method: Any) -> str:
    owner = self if isinstance(self, type) else type(self)
    return f"{owner.__name__}.{method.__name__}"


def refused(why: str) -> Callable[[Method], Method]:
    """Makes a method raise UnsupportedError with the reason. Its definition supplies
    only the signature and docstring."""

    def decorate(method: Method) -> Method:
        @functools.wraps(method)
        def call(self: Any = None, *args: Any, **kwargs: Any) -> NoReturn:
            name = method.__name__ if self is None else _name(self, method)
            raise UnsupportedError(f"{name}: {why}")

        setattr(call, _MARK, ("refused", why))
        return call  # type: ignore[return-value]

    return decorate


def no_effect(why: str) -> Callable[[T], T]:
    """Marks functions and properties that are accepted without effect."""

    def decorate(thing: T) -> T:
        setattr(thing, _MARK, ("no effect", why))
        return thing

    return decorate


def is_refused(thing: Any) -> bool:
    """Whether `refused` or refuse_class marked it."""
    return bool(getattr(thing, _MARK, ("",))[0] == "refused")


def refuse_class(why: str) -> Callable[[T], T]:
    """Marks a class that exists only so that scripts may derive from it or name it."""

    def decorate(kind: T) -> T:
        setattr(kind, _MARK, ("refused", why))
        return kind

    return decorate


class Managed:
    """Supports `with Builder(logger) as builder:`. Leaving the block does nothing:
    objects live as long as they are referenced."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        """Does nothing."""

    def __del__(self) -> None:
        """Does nothing: Python frees objects without references."""


class Fixed(Generic[T]):
    """A property that has one value here; another is refused, not ignored."""

    def __init__(self, value: T, doc: str) -> None:
        self.value, self.__doc__ = value, doc
        self._rabbet_mark = "no effect", f"always {value}. {doc}"

    def __set_name__(self, owner: Any, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: Any) -> T:
        return self.value

    def __set__(self, instance: Any, value: Any) -> None:
        if not same(value, self.value):
            self._refuse(instance, value)

    def _refuse(self, instance: Any, value: Any) -> NoReturn:
        raise ValueError(
            f"{type(instance).__name__}.{self.name} is {self.value!r} here, and cannot "
            f"be {shown(value)}"
        )


class Kept(Generic[T]):
    """A property that stores its value without effect, for scripts that read it again.
    `check` validates the value and receives its name for errors."""

    def __init__(self, default: T, check: Callable[[Any, str], T], doc: str) -> None:
        self.default, self.check, self.__doc__ = default, check, doc
        self._rabbet_mark = "no effect", f"kept; {default} at first. {doc}"

    def __set_name__(self, owner: Any, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: Any) -> Any:
        return self if instance is None else instance._kept.get(self.name, self.default)

    def __set__(self, instance: Any, value: Any) -> None:
        name = f"{type(instance).__name__}.{self.name}"
        instance._kept[self.name] = self.check(value, name)
