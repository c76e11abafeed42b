"""Writes the messages of an ONNX model.

The package `onnx` is not needed for it, and weights are no part of the bytes: the model
names them, and the importer gets their memory (docs/decisions.md).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# Versions of the formats of models and of the operator set that is written.
IR_VERSION = 10
OPSET = 24

# ONNX's numbers of the kinds of attributes.
_FLOAT, _INT, _STRING, _FLOATS, _INTS, _STRINGS = 1, 2, 3, 6, 7, 8


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _integer(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _text(field: int, text: str) -> bytes:
    return _bytes(field, text.encode())


def _float(field: int, value: float) -> bytes:
    return _varint(field << 3 | 5) + struct.pack("<f", value)


def _attribute(name: str, value: Any) -> bytes:
    """An AttributeProto of an int, float, str or a sequence of one of these."""
    if isinstance(value, str):
        kind, data = _STRING, _text(4, value)
    elif isinstance(value, int):
        kind, data = _INT, _integer(3, value)
    elif isinstance(value, float):
        kind, data = _FLOAT, _float(2, value)
    elif value and isinstance(value[0], str):
        kind, data = _STRINGS, b"".join(_text(9, item) for item in value)
    elif value and any(isinstance(item, float) for item in value):
        kind, data = _FLOATS, b"".join(_float(7, item) for item in value)
    else:
        kind, data = _INTS, b"".join(_integer(8, item) for item in value)
    return _text(1, name) + data + _integer(20, kind)


def node(
    kind: str,
    inputs: Iterable[str],
    outputs: Iterable[str],
    name: str,
    domain: str,
    attributes: Mapping[str, Any],
) -> bytes:
    """A NodeProto."""
    parts = [_text(1, each) for each in inputs]
    parts += [_text(2, each) for each in outputs]
    parts += [_text(3, name), _text(4, kind)]
    parts += [_bytes(5, _attribute(*item)) for item in attributes.items()]
    if domain:
        parts.append(_text(7, domain))
    return b"".join(parts)


def tensor(name: str, dtype: int, shape: Sequence[int], data: bytes | None) -> bytes:
    """A TensorProto; data=None for one whose data is given to the importer."""
    parts = [_integer(1, extent) for extent in shape]
    parts += [_integer(2, dtype), _text(8, name)]
    if data is not None:
        parts.append(_bytes(9, data))
    return b"".join(parts)


def value_info(name: str, dtype: int, shape: Sequence[int | str] | None) -> bytes:
    """A ValueInfoProto; a dynamic dimension is its name. shape=None: not written."""
    kind = _integer(1, dtype)
    if shape is not None:
        dims = [
            _text(2, extent) if isinstance(extent, str) else _integer(1, extent)
            for extent in shape
        ]
        kind += _bytes(2, b"".join(_bytes(1, dim) for dim in dims))
    return _text(1, name) + _bytes(2, _bytes(1, kind))


def model(
    nodes: Iterable[bytes],
    initializers: Iterable[bytes],
    inputs: Iterable[bytes],
    outputs: Iterable[bytes],
    domains: Iterable[str],
) -> bytes:
    """A ModelProto."""
    graph = b"".join(
        [
            *(_bytes(1, each) for each in nodes),
            _text(2, "torch"),
            *(_bytes(5, each) for each in initializers),
            *(_bytes(11, each) for each in inputs),
            *(_bytes(12, each) for each in outputs),
        ]
    )
    opsets = [_text(1, "") + _integer(2, OPSET)]
    opsets += [_text(1, domain) + _integer(2, 1) for domain in domains]
    return b"".join(
        [
            _integer(1, IR_VERSION),
            _text(2, "rabbet.torch"),
            _bytes(7, graph),
            *(_bytes(8, each) for each in opsets),
        ]
    )
