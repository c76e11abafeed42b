"""Inputs and outputs as an ONNX model declares them.

A plan holds some types in wider ones and forgets the names of outputs' dimensions; sessions
with ONNX Runtime's methods show and take what the model says.
"""

from __future__ import annotations

import mmap
import os
from typing import Any, NamedTuple

from ._protobuf import BYTES, fields

# Types that plans hold in others, by ONNX's numbers: ONNX's name and NumPy's.
HELD = {
    4: ("tensor(uint16)", "uint16"),
    5: ("tensor(int16)", "int16"),
    11: ("tensor(double)", "float64"),
    12: ("tensor(uint32)", "uint32"),
    13: ("tensor(uint64)", "uint64"),
}


class Declared(NamedTuple):
    """Type by ONNX's number, and extents: integers, names or None."""

    number: int
    shape: list[Any] | None


def _entries(message: Any, number: int) -> list[Any]:
    """The nested messages of a field."""
    found = fields(memoryview(message))
    return [value for key, kind, value, _ in found if key == number and kind == BYTES]


def _extent(dimension: Any) -> Any:
    for key, kind, value, _ in fields(memoryview(dimension)):
        if key == 1 and kind != BYTES:
            return value
        if key == 2 and kind == BYTES:
            return bytes(value).decode() or None
    return None


def _value_info(info: Any) -> tuple[str, Declared] | None:
    names = _entries(info, 1)
    tensors = [tensor for kind in _entries(info, 2) for tensor in _entries(kind, 1)]
    if not names or not tensors:
        return None
    number = next(
        (v for k, kind, v, _ in fields(tensors[0]) if k == 1 and kind != BYTES), 0
    )
    shapes = _entries(tensors[0], 2)
    shape = [_extent(each) for each in _entries(shapes[0], 1)] if shapes else None
    return bytes(names[0]).decode(), Declared(number, shape)


def _read(model: Any) -> tuple[dict[str, Declared], dict[str, Declared]]:
    graphs = _entries(model, 7)
    if not graphs:
        return {}, {}
    inputs, outputs = (
        dict(
            found
            for info in _entries(graphs[-1], number)
            if (found := _value_info(info))
        )
        for number in (11, 12)
    )
    return inputs, outputs


def declared(model: Any) -> tuple[dict[str, Declared], dict[str, Declared]]:
    """Of a model's file or bytes: inputs and outputs, by name. The model can be imported."""
    if not isinstance(model, (str, os.PathLike)):
        return _read(model)
    with open(model, "rb") as file:
        return _read(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
