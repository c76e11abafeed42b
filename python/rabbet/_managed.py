"""Habits of TensorRT's classes that scripts rely on."""

from __future__ import annotations

from typing import Any, Generic, NoReturn, Self, TypeVar

T = TypeVar("T")


class Managed:
    """`with Builder(logger) as builder:`; leaving does nothing, objects live as long
    as they are referred to."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        """Nothing to do."""


class Fixed(Generic[T]):
    """A property that has one value here; another is refused, not ignored."""

    def __init__(self, value: T, doc: str) -> None:
        self.value, self.__doc__ = value, doc

    def __set_name__(self, owner: Any, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: Any) -> T:
        return self.value

    def __set__(self, instance: Any, value: Any) -> None:
        if value != self.value:
            self._refuse(instance, value)

    def _refuse(self, instance: Any, value: Any) -> NoReturn:
        raise ValueError(
            f"{type(instance).__name__}.{self.name} is {self.value!r} here, and cannot "
            f"be {value!r}"
        )
