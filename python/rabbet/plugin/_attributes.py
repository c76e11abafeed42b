"""Attributes of plugins: conversion between annotated types and the engine's."""

from __future__ import annotations

import operator
import types
import typing
from collections.abc import Callable
from typing import Any

from .._flags import flag
from .._numbers import Attr

SUPPORTED = (
    "int, float, bool, str, bytes, list[...] and tuple[...] of int, float, bool or "
    "str, and numpy.typing.NDArray[...] of bool, integers or floats"
)


def _to_int(value: Any) -> int:
    return operator.index(value)


def _to_float(value: Any) -> float:
    if isinstance(value, (str, bytes)):
        raise TypeError("not a number")
    return float(value)


def _to_bool(value: Any) -> bool:
    return flag(value)


def _to_str(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a str")
    return value


def _to_bytes(value: Any) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError("not bytes")
    return bytes(value)


_Converter = Callable[[Any], Any]
_SCALARS: dict[type, tuple[int, _Converter]] = {
    int: (Attr.INT, _to_int),
    float: (Attr.FLOAT, _to_float),
    bool: (Attr.BOOL, _to_bool),
    str: (Attr.STRING, _to_str),
    bytes: (Attr.BYTES, _to_bytes),
}
_LISTS: dict[type, int] = {
    int: Attr.INTS,
    float: Attr.FLOATS,
    bool: Attr.BOOLS,
    str: Attr.STRINGS,
}


class AttributeType:
    """The type of an annotation. `encode` checks a value and converts it to what the
    engine stores; `decode` converts that to the value that impl receives."""

    def __init__(
        self, annotation: Any, code: int, encode: _Converter, decode: _Converter
    ):
        self.annotation, self.code = annotation, code
        self.encode, self.decode = encode, decode

    def __str__(self) -> str:
        annotation = self.annotation
        if isinstance(annotation, type) and not typing.get_args(annotation):
            return annotation.__name__
        return str(annotation).replace("typing.", "")


def _sequence(annotation: Any, element: type, make: Any, length: int | None) -> Any:
    convert = _SCALARS[element][1]

    def encode(value: Any) -> Any:
        if isinstance(value, (str, bytes)):
            raise TypeError(f"a list of {element.__name__}, not one text")
        items = [convert(item) for item in value]
        if length is not None and len(items) != length:
            raise ValueError(f"{length} values expected, {len(items)} given")
        return (_LISTS[element], items)

    return AttributeType(annotation, _LISTS[element], encode, make)


def _array(annotation: Any, scalar: Any) -> AttributeType | None:
    import numpy as np

    dtype = np.dtype(scalar)
    codes = {"i": Attr.INTS, "u": Attr.INTS, "f": Attr.FLOATS, "b": Attr.BOOLS}
    code = codes.get(dtype.kind)
    if code is None:
        return None

    def encode(value: Any) -> Any:
        array = np.asarray(value)
        truths = dtype.kind == "b" and array.dtype.kind in "biu"
        if (
            array.size
            and not truths
            and not np.can_cast(array.dtype, dtype, "same_kind")
        ):
            raise TypeError(f"an array of {dtype}, not of {array.dtype}")
        flat = array.astype(dtype)
        if array.size and dtype.kind in "iub" and not (flat == array).all():
            raise ValueError(f"does not fit in {dtype}")
        return (code, flat.ravel().tolist())

    return AttributeType(annotation, code, encode, lambda v: np.array(v, dtype))


def plain_type(annotation: Any) -> Any:
    """The annotation without Annotated, and with type aliases (`type X = ...`) replaced
    by their values. numpy.typing.NDArray is such an alias from NumPy 2.5 on."""
    name, args = typing.get_origin(annotation), typing.get_args(annotation)
    if name is typing.Annotated:
        return plain_type(args[0])
    name = name or annotation
    if not (hasattr(name, "__value__") and hasattr(name, "__type_params__")):
        return annotation
    return plain_type(name.__value__[args] if args else name.__value__)


def _is_array(annotation: Any) -> bool:
    origin = typing.get_origin(annotation) or annotation
    return getattr(origin, "__module__", "") == "numpy" and (
        getattr(origin, "__name__", "") == "ndarray"
    )


def attribute_type(annotation: Any) -> AttributeType | None:
    """The type of an annotation; None if attributes cannot have it."""
    plain = plain_type(annotation)
    if plain is not annotation:
        made = attribute_type(plain)
        if made is not None:
            made.annotation = annotation  # as it is written
        return made
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation in _SCALARS:
        code, convert = _SCALARS[annotation]
        return AttributeType(annotation, code, convert, convert)
    if _is_array(annotation) and len(args) == 2:
        scalar = typing.get_args(args[1])
        return _array(annotation, scalar[0]) if scalar else None
    if origin is list and len(args) == 1 and args[0] in _LISTS:
        return _sequence(annotation, args[0], list, None)
    alike = bool(args) and all(a in (args[0], ...) for a in args)
    if origin is tuple and alike and args[0] in _LISTS:
        length = None if args[-1] is ... else len(args)
        return _sequence(annotation, args[0], tuple, length)
    return None


def why_not(annotation: Any) -> str:
    """Why attribute_type refuses an annotation."""
    annotation = plain_type(annotation)
    if _is_array(annotation):
        return (
            "say what the array holds, as in numpy.typing.NDArray[numpy.float32]; "
            f"attributes can be {SUPPORTED}"
        )
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return (
            "attributes have one type and are always there; give a default instead of "
            f"None. They can be {SUPPORTED}"
        )
    return f"attributes can be {SUPPORTED}"
