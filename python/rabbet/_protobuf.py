"""Writes the messages of an ONNX model, and reads the fields of any message.

The package `onnx` is not needed for it, and weights are no part of the bytes: the model
names them, and the importer gets their memory (docs/decisions.md).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

# Versions of the formats of models and of the operator set that is written.
IR_VERSION = 10
OPSET = 26

# ONNX's numbers of the kinds of attributes.
_FLOAT, _INT, _STRING, _GRAPH, _FLOATS, _INTS, _STRINGS = 1, 2, 3, 5, 6, 7, 8


# How a field's value is encoded.
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_FIXED = {FIXED64: 8, FIXED32: 4}

# ---- Reading ---------------------------------------------------------------


def read_varint(data: memoryview, at: int) -> tuple[int, int]:
    """(the number at a position, the position behind it)"""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def fields(data: memoryview) -> Iterator[tuple[int, int, Any, memoryview]]:
    """(number, encoding, value, all bytes) of each field: values are integers, or views
    of the bytes. ValueError for anything but a message."""
    at, end = 0, len(data)
    try:
        while at < end:
            start = at
            key, at = read_varint(data, at)
            number, kind = key >> 3, key & 7
            if kind == VARINT:
                value, at = read_varint(data, at)
                yield number, kind, value, data[start:at]
                continue
            size = _FIXED.get(kind, 0)
            if kind == BYTES:
                size, at = read_varint(data, at)
            if (size == 0 and kind != BYTES) or at + size > end or number == 0:
                raise ValueError("a field that does not end")
            at += size
            yield number, kind, data[at - size : at], data[start:at]
    except IndexError:
        raise ValueError("a number that does not end") from None


def signed(value: int) -> int:
    """An integer of 64 bits as it was meant."""
    return value - (1 << 64) if value >= 1 << 63 else value


# ---- Writing ---------------------------------------------------------------


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def integer(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def nested(field: int, data: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(data)) + data


def text(field: int, text: str) -> bytes:
    return nested(field, text.encode())


def real(field: int, value: float) -> bytes:
    return varint(field << 3 | 5) + struct.pack("<f", value)


class Subgraph(bytes):
    """A GraphProto, as the value of an attribute."""


def attribute(name: str, value: Any) -> bytes:
    """An AttributeProto of an int, float, str, a sequence of one of these, or a graph."""
    if isinstance(value, Subgraph):
        kind, data = _GRAPH, nested(6, value)
    elif isinstance(value, str):
        kind, data = _STRING, text(4, value)
    elif isinstance(value, int):
        kind, data = _INT, integer(3, value)
    elif isinstance(value, float):
        kind, data = _FLOAT, real(2, value)
    elif value and isinstance(value[0], str):
        kind, data = _STRINGS, b"".join(text(9, item) for item in value)
    elif value and any(isinstance(item, float) for item in value):
        kind, data = _FLOATS, b"".join(real(7, item) for item in value)
    else:
        kind, data = _INTS, b"".join(integer(8, item) for item in value)
    return text(1, name) + data + integer(20, kind)


def node(
    kind: str,
    inputs: Iterable[str],
    outputs: Iterable[str],
    name: str,
    domain: str,
    attributes: Mapping[str, Any],
) -> bytes:
    """A NodeProto."""
    parts = [text(1, each) for each in inputs]
    parts += [text(2, each) for each in outputs]
    parts += [text(3, name), text(4, kind)]
    parts += [nested(5, attribute(*item)) for item in attributes.items()]
    if domain:
        parts.append(text(7, domain))
    return b"".join(parts)


def tensor(name: str, dtype: int, shape: Sequence[int], data: bytes | None) -> bytes:
    """A TensorProto; data=None for one whose data is given to the importer."""
    parts = [integer(1, extent) for extent in shape]
    parts += [integer(2, dtype), text(8, name)]
    if data is not None:
        parts.append(nested(9, data))
    return b"".join(parts)


def value_info(name: str, dtype: int, shape: Sequence[int | str] | None) -> bytes:
    """A ValueInfoProto; a dynamic dimension is its name. shape=None: not written."""
    kind = integer(1, dtype)
    if shape is not None:
        dims = [
            text(2, extent) if isinstance(extent, str) else integer(1, extent)
            for extent in shape
        ]
        kind += nested(2, b"".join(nested(1, dim) for dim in dims))
    return text(1, name) + nested(2, nested(1, kind))


def graph(
    name: str,
    nodes: Iterable[bytes],
    initializers: Iterable[bytes],
    inputs: Iterable[bytes],
    outputs: Iterable[bytes],
) -> bytes:
    """A GraphProto."""
    return b"".join(
        [
            *(nested(1, each) for each in nodes),
            text(2, name),
            *(nested(5, each) for each in initializers),
            *(nested(11, each) for each in inputs),
            *(nested(12, each) for each in outputs),
        ]
    )


def model(
    nodes: Iterable[bytes],
    initializers: Iterable[bytes],
    inputs: Iterable[bytes],
    outputs: Iterable[bytes],
    domains: Iterable[str],
) -> bytes:
    """A ModelProto."""
    opsets = [text(1, "") + integer(2, OPSET)]
    opsets += [text(1, domain) + integer(2, 1) for domain in domains]
    return b"".join(
        [
            integer(1, IR_VERSION),
            text(2, "rabbet.torch"),
            nested(7, graph("torch", nodes, initializers, inputs, outputs)),
            *(nested(8, each) for each in opsets),
        ]
    )
