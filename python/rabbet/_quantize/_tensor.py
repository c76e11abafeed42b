"""Tensors of ONNX models: weights, and constants in attributes."""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from .. import _protobuf as pb
from .._errors import DataLossError, InvalidArgumentError, UnsupportedError

# ONNX's numbers of types.
FLOAT, UINT8, INT8, INT32, INT64, STRING, BOOL = 1, 2, 3, 6, 7, 8, 9
FLOAT16, DOUBLE, BFLOAT16, FP8, INT4 = 10, 11, 16, 17, 22
FLOATS = (FLOAT, FLOAT16, BFLOAT16)
# Names of types in NumPy; those that it lacks are read as their bits.
NAMES = {
    FLOAT: "<f4", UINT8: "u1", INT8: "i1", 4: "<u2", 5: "<i2", INT32: "<i4", INT64: "<i8",
    BOOL: "?", FLOAT16: "<f2", DOUBLE: "<f8", 12: "<u4", 13: "<u8", BFLOAT16: "<u2",
    FP8: "u1",
}  # fmt: skip
# Fields of elements that are not raw bytes: floats, integers, doubles.
_TYPED = {4: "<f4", 10: "<f8"}
_VARINTS = (5, 7, 11)
_RAW, _EXTERNAL = 9, 13


def nested(field: int, chunks: list[Any]) -> list[Any]:
    """A message in a field."""
    size = sum(len(chunk) for chunk in chunks)
    return [pb.varint(field << 3 | pb.BYTES) + pb.varint(size), *chunks]


def narrowed(values: Any) -> Any:
    """float32 as the bits of bfloat16, to nearest, ties to even."""
    import numpy as np

    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def widened(bits: Any) -> Any:
    """The bits of bfloat16 as float32."""
    import numpy as np

    return (bits.astype(np.uint32) << 16).view(np.float32)


def stored(values: Any, dtype: int) -> Any:
    """float32 as elements of a floating type."""
    import numpy as np

    if dtype == BFLOAT16:
        return narrowed(values)
    return np.ascontiguousarray(values, NAMES[dtype])


class Tensor:
    """A tensor, whose elements are bytes of a file, or an array."""

    def __init__(self, name: str, dtype: int, dims: Sequence[int], data: Any) -> None:
        self.name, self.dtype, self.dims = name, dtype, list(dims)
        self._data = data  # elements as raw bytes; None: in `_typed`
        self._typed: list[tuple[int, int, Any]] = []
        self._raw: Any = None  # the message, where its elements lie in it
        # Where a file of weights has it: (file, offset).
        self.placed: tuple[str, int] | None = None
        self.is_lent = False

    @classmethod
    def of(cls, name: str, values: Any) -> Self:
        """A tensor of a NumPy array."""
        import numpy as np

        array = np.asarray(values)
        array = np.ascontiguousarray(array).reshape(array.shape)
        kinds = {np.dtype(text): number for number, text in reversed(NAMES.items())}
        kinds[np.dtype("u1")] = UINT8
        return cls(name, kinds[array.dtype], array.shape, array.reshape(-1).view(np.uint8))

    @classmethod
    def parse(cls, data: memoryview, folder: Path | None) -> Self:
        """Reads the message."""
        self = cls("", 0, [], None)
        external: dict[str, str] = {}
        for number, encoding, value, _ in pb.fields(data):
            if number == 1:
                packed = encoding == pb.BYTES
                self.dims += _varints(value) if packed else [pb.signed(value)]
            elif number == 2:
                self.dtype = value
            elif number == 8:
                self.name = str(value, "utf-8", "surrogateescape")
            elif number == _RAW:
                self._data = value
            elif number == _EXTERNAL:
                entry = {n: str(v, "utf-8") for n, _, v, _ in pb.fields(value)}
                external[entry.get(1, "")] = entry.get(2, "")
            elif number in _TYPED or number in _VARINTS or number == 6:
                self._typed.append((number, encoding, value))
        if external:
            self._data = _mapped_data(self.name, external, folder)
        else:
            self._raw = data
        return self

    # ---- Elements

    @property
    def count(self) -> int:
        """Number of elements."""
        return math.prod(self.dims)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, where they are raw."""
        return 0 if self._data is None else len(self._data)

    @property
    def can_lend(self) -> bool:
        """Whether the importer can be given its memory."""
        return self.dtype != STRING and self.nbytes >= 1024

    def buffer(self) -> Any:
        """The elements' bytes."""
        return self._data

    def array(self) -> Any:
        """The elements as NumPy has them; UnsupportedError for other types."""
        import numpy as np

        if self.dtype not in NAMES:
            raise UnsupportedError(f"tensor '{self.name}' has type {self.dtype}")
        kind = np.dtype(NAMES[self.dtype])
        if self._data is not None:
            found = np.frombuffer(self._data, kind)
        else:
            try:
                found = self._from_fields(kind)
            except ValueError as error:
                raise DataLossError(f"tensor '{self.name}': {error}") from error
        if found.size != self.count:
            raise DataLossError(
                f"tensor '{self.name}' has {found.size} elements; its dimensions "
                f"{self.dims} make {self.count}"
            )
        return found.reshape(self.dims)

    def _from_fields(self, kind: Any) -> Any:
        import numpy as np

        parts = []
        for number, encoding, value in self._typed:
            if number in _TYPED:
                parts.append(np.frombuffer(value, _TYPED[number]))
            else:
                found = _varints(value) if encoding == pb.BYTES else [pb.signed(value)]
                parts.append(np.array(found, np.int64))
        flat = np.concatenate(parts) if parts else np.zeros(0, kind)
        if self.dtype in (FLOAT16, BFLOAT16):  # integers with the elements' bits
            return flat.astype(np.uint16).view(kind)
        return flat.astype(kind)

    def floats(self) -> Any:
        """The elements as float32."""
        import numpy as np

        array = self.array()
        if self.dtype == BFLOAT16:
            return widened(array)
        return array if array.dtype == np.float32 else array.astype(np.float32)

    # ---- Writing

    def chunks(self) -> list[Any]:
        """The message."""
        if self._raw is not None and not self.is_lent and self.placed is None:
            return [self._raw]
        parts: list[Any] = [
            *(pb.integer(1, extent) for extent in self.dims),
            pb.integer(2, self.dtype),
            pb.text(8, self.name),
        ]
        if self.is_lent:
            return parts
        if self.placed is None:
            return [*parts, *nested(_RAW, [self._data])]
        file, offset = self.placed
        entries = {"location": file, "offset": str(offset), "length": str(self.nbytes)}
        for key, value in entries.items():
            parts.append(pb.nested(_EXTERNAL, pb.text(1, key) + pb.text(2, value)))
        return [*parts, pb.integer(14, 1)]


def _varints(data: Any) -> list[int]:
    found, at = [], 0
    while at < len(data):
        value, at = pb.read_varint(data, at)
        found.append(pb.signed(value))
    return found


def _mapped_data(name: str, entries: dict[str, str], folder: Path | None) -> Any:
    """Elements that lie in another file, which is mapped."""
    location = entries.get("location", "")
    if folder is None:
        raise InvalidArgumentError(
            f"weights '{name}' lie in the file '{location}', and the model was given "
            "without a folder: give the path of the model"
        )
    # The importer refuses the same: a model names no file outside of its folder.
    if not location or os.path.isabs(location) or ".." in Path(location).parts:
        raise DataLossError(f"weights '{name}' lie in '{location}', not beside the model")
    path = folder / location
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
    except FileNotFoundError:
        raise FileNotFoundError(
            f"weights '{name}' lie in '{path}', which does not exist"
        ) from None
    try:
        offset = int(entries.get("offset", "0") or 0)
        length = int(entries.get("length", "0") or size - offset)
    except ValueError:
        raise DataLossError(f"weights '{name}': offset or length is no number") from None
    if offset < 0 or length < 0 or offset + length > size:
        raise DataLossError(
            f"weights '{name}': bytes {offset} to {offset + length} of '{path}', which "
            f"has {size}"
        )
    return memoryview(mapped)[offset : offset + length]
