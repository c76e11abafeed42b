"""Dimensions and permutations: short sequences of integers."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Self, SupportsIndex, overload

from ._flags import integer, shown

Ints = Iterable[SupportsIndex]
_INT = {int}


class Dims:
    """Dimensions of a tensor; -1 is an unknown one.

    Any sequence of integers is accepted in place of Dims.
    """

    MAX_DIMS: ClassVar[int] = 8
    _length: ClassVar[int | None] = None
    __slots__ = ("_d",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self, *dims: SupportsIndex | Iterable[SupportsIndex], shape: Ints | None = None
    ) -> None:
        items: Iterable[SupportsIndex]
        if shape is not None:
            if dims:
                raise TypeError(f"{type(self).__name__}: both {dims} and {shape=}")
            dims = (shape,)
        if len(dims) == 1 and isinstance(dims[0], Iterable):
            items = dims[0]
        elif not dims and self._length is not None:
            items = [0] * self._length
        else:
            items = dims  # type: ignore[assignment]
        try:
            self._d = [operator.index(d) for d in items]
        except TypeError:
            given = dims[0] if len(dims) == 1 else dims
            raise TypeError(
                f"dimensions must be integers, got {shown(given)}"
            ) from None
        if self._length is not None and len(self._d) != self._length:
            raise ValueError(
                f"{type(self).__name__} has {self._length} dimensions, "
                f"got {len(self._d)}: {tuple(self._d)}"
            )
        if len(self._d) > self.MAX_DIMS:
            raise ValueError(
                f"a tensor has at most {self.MAX_DIMS} dimensions, "
                f"got {len(self._d)}: {tuple(self._d)}"
            )

    @classmethod
    def _of(cls, dims: list[int]) -> Self:
        """Wraps a list of valid integers without checks."""
        self = cls.__new__(cls)
        self._d = dims
        return self

    def __len__(self) -> int:
        return len(self._d)

    def __iter__(self) -> Iterator[int]:
        return iter(self._d)

    @overload
    def __getitem__(self, index: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[int, ...]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> int | tuple[int, ...]:
        if isinstance(index, slice):
            return tuple(self._d[index])
        return self._d[index]

    def __setitem__(
        self, index: SupportsIndex | slice, value: SupportsIndex | Iterable[int]
    ) -> None:
        if isinstance(index, slice):
            new = list(self._d)
            new[index] = [operator.index(v) for v in value]  # type: ignore[union-attr]
            if len(new) != len(self._d):
                raise ValueError(
                    "a slice assignment must keep the number of dimensions"
                )
            self._d = new
        else:
            self._d[index] = operator.index(value)  # type: ignore[arg-type]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str) or not isinstance(other, (Sequence, Dims)):
            return NotImplemented
        return tuple(self._d) == tuple(other)

    def __repr__(self) -> str:
        return repr(tuple(self._d))


def _given(
    kind: type, dims: tuple[Any, ...], named: dict[str, SupportsIndex | None]
) -> tuple[Any, ...]:
    """Dimensions given by position, by name, or first by position and then by name."""
    values = {name: value for name, value in named.items() if value is not None}
    if not values:
        return dims
    rest = list(named)[len(dims) :]
    if list(values) != rest:
        raise TypeError(
            f"{kind.__name__} takes {', '.join(named)}, got {len(dims)} by position and "
            + ", ".join(values)
        )
    return (*dims, *values.values())


class Dims2(Dims):
    """Two dimensions."""

    _length = 2
    __slots__ = ()

    def __init__(
        self,
        *dims: SupportsIndex | Ints,
        dim0: SupportsIndex | None = None,
        dim1: SupportsIndex | None = None,
        shape: Ints | None = None,
    ) -> None:
        super().__init__(
            *_given(type(self), dims, {"dim0": dim0, "dim1": dim1}), shape=shape
        )


class DimsHW(Dims2):
    """Height and width."""

    _length = 2
    __slots__ = ()

    def __init__(
        self,
        *dims: SupportsIndex | Ints,
        h: SupportsIndex | None = None,
        w: SupportsIndex | None = None,
        shape: Ints | None = None,
    ) -> None:
        Dims.__init__(self, *_given(type(self), dims, {"h": h, "w": w}), shape=shape)

    @property
    def h(self) -> int:
        """Height."""
        return self._d[0]

    @h.setter
    def h(self, value: int) -> None:
        self._d[0] = operator.index(value)

    @property
    def w(self) -> int:
        """Width."""
        return self._d[1]

    @w.setter
    def w(self, value: int) -> None:
        self._d[1] = operator.index(value)


class Dims3(Dims):
    """Three dimensions."""

    _length = 3
    __slots__ = ()

    def __init__(
        self,
        *dims: SupportsIndex | Ints,
        dim0: SupportsIndex | None = None,
        dim1: SupportsIndex | None = None,
        dim2: SupportsIndex | None = None,
        shape: Ints | None = None,
    ) -> None:
        super().__init__(
            *_given(type(self), dims, {"dim0": dim0, "dim1": dim1, "dim2": dim2}),
            shape=shape,
        )


class Dims4(Dims):
    """Four dimensions."""

    _length = 4
    __slots__ = ()

    def __init__(
        self,
        *dims: SupportsIndex | Ints,
        dim0: SupportsIndex | None = None,
        dim1: SupportsIndex | None = None,
        dim2: SupportsIndex | None = None,
        dim3: SupportsIndex | None = None,
        shape: Ints | None = None,
    ) -> None:
        super().__init__(
            *_given(
                type(self),
                dims,
                {"dim0": dim0, "dim1": dim1, "dim2": dim2, "dim3": dim3},
            ),
            shape=shape,
        )


class Permutation(Dims):
    """A permutation of axes."""

    __slots__ = ()


def volume(iterable: Iterable[int]) -> int:
    """Product of the dimensions; 1 for an empty sequence."""
    result = 1
    for d in iterable:
        result *= int(d)
    return result


def _are_plain(value: Any) -> bool:
    """Whether it is a list or tuple of int that needs no check."""
    return (
        type(value) in (tuple, list)
        and {*map(type, value)} == _INT
        and len(value) <= Dims.MAX_DIMS
        and max(value) < 2**63
        and min(value) >= -(2**63)
    )


def dims_of(value: Any, name: str) -> tuple[int, ...]:
    """Converts a user's dimensions; errors contain `name`."""
    if isinstance(value, Dims):
        value = value._d
    if _are_plain(value):  # most often, and fast
        return tuple(value)
    try:
        dims = Dims(value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from None
    return tuple(integer(d, name) for d in dims)
