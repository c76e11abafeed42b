"""PluginField: a named parameter of a plugin, or a value that it stores in a plan."""

from __future__ import annotations

import functools
import operator
import warnings
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from .._arrays import from_bytes
from .._enums import PluginFieldType
from .._numbers import Attr

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[Any]

T = PluginFieldType
# NumPy's type name for each type; names with a dot are those of ml_dtypes.
_ELEMENTS = {
    T.FLOAT16: "float16",
    T.FLOAT32: "float32",
    T.FLOAT64: "float64",
    T.INT8: "int8",
    T.INT16: "int16",
    T.INT32: "int32",
    T.INT64: "int64",
    T.CHAR: "int8",
    T.UNKNOWN: "int8",
    T.BF16: ".bfloat16",
    T.FP8: ".float8_e4m3fn",
    T.INT4: ".int4",
    T.FP4: ".float4_e2m1fn",
    T.DIMS: "int64",
}
_BITS = {T.INT4: 4, T.FP4: 4, T.BF16: 16, T.FP8: 8}


def element_type(kind: PluginFieldType) -> np.dtype[Any] | None:
    """NumPy's type of the elements; None if it needs ml_dtypes, which is not
    installed."""
    import numpy as np

    name = _ELEMENTS[kind]
    if not name.startswith("."):
        return np.dtype(name)
    try:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name[1:]))
    except (ImportError, AttributeError):
        return None


def element_bits(kind: PluginFieldType) -> int:
    """Bits of an element in memory."""
    import numpy as np

    return _BITS.get(kind) or np.dtype(_ELEMENTS[kind]).itemsize * 8


def _shown(kind: PluginFieldType) -> str:
    return f"PluginFieldType.{kind.name}"


def _view(name: str, data: Any) -> Array:
    """Flat array of the caller's memory; copies only if it is not contiguous."""
    import numpy as np

    if isinstance(data, str):
        raise TypeError(
            f"PluginField '{name}': data is a str; pass data.encode() with "
            "PluginFieldType.CHAR"
        )
    if isinstance(data, (bytes, bytearray, memoryview)):
        return np.frombuffer(data, np.int8) if len(data) else np.empty(0, np.int8)
    try:
        array = np.asarray(data)
    except Exception as error:
        raise TypeError(f"PluginField '{name}': data is {data!r}: {error}") from None
    if array.dtype.hasobject or array.dtype.kind in "USMm":
        raise TypeError(
            f"PluginField '{name}': data is {data!r}; expected a NumPy array of numbers, "
            "or bytes"
        )
    return np.ascontiguousarray(array).reshape(-1)


def _fitting(name: str, array: Array, kind: PluginFieldType) -> Array:
    """The array if its elements have the size of `kind`, else converted to it, if
    no value changes by that."""
    import numpy as np

    bits = element_bits(kind)
    same = array.dtype.itemsize * 8 == bits or (array.dtype.itemsize == 1 and bits == 4)
    element = element_type(kind)
    if kind is T.UNKNOWN or array.size == 0:
        return array
    if same and (
        array.dtype.itemsize == 1
        or element is None
        or array.dtype.kind == element.kind
        or array.dtype.kind in "uV"
    ):
        return array
    if element is not None and array.dtype.kind in "iufb":
        with np.errstate(all="ignore"):  # a NaN or infinity, or a number too large
            converted = array.astype(element)
            back = converted.astype(array.dtype)
        floats = element.kind == array.dtype.kind == "f"
        if np.array_equal(back, array, equal_nan=floats):
            return converted
    raise ValueError(
        f"PluginField '{name}': an array of {array.dtype} does not convert to "
        f"{_shown(kind)} without a change of its values; give an array of the type's own "
        "elements"
    )


@functools.cache
def _number_type() -> Any:
    """The type of arrays of one element. Scripts say int(field.data), which NumPy takes
    of arrays with dimensions only before 2.4."""
    import numpy as np

    class Number(np.ndarray):  # type: ignore[type-arg]
        def __int__(self) -> int:
            return int(self.item())

        def __float__(self) -> float:
            return float(self.item())

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            int(np.zeros(1))
    except TypeError:
        return Number
    return np.ndarray


class PluginField:
    """A name, a type, and data: elements of a NumPy array, or bytes.

    The array is referred to, not copied, unless it must be converted.
    """

    __slots__ = ("_array", "_name", "_size", "_type")

    def __init__(
        self, name: str = "", data: Any = None, type: PluginFieldType = T.UNKNOWN
    ) -> None:
        self._array: Array | None = None
        self.name = name
        self.type = type
        self._size = 0
        if data is not None:
            self._array = _fitting(name, _view(name, data), self._type)
            self._size = self._array.size

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"PluginField.name: expected a str, got {name!r}")
        self._name = name

    @property
    def type(self) -> PluginFieldType:
        """The type of its elements."""
        return self._type

    @type.setter
    def type(self, kind: PluginFieldType) -> None:
        if not isinstance(kind, PluginFieldType):
            raise TypeError(
                f"PluginField '{self._name}': type: expected a PluginFieldType, got {kind!r}"
            )
        self._type = kind

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._size

    @size.setter
    def size(self, size: int) -> None:
        self._size = operator.index(size)

    @property
    def data(self) -> Array | None:
        """Copy of the elements; None for a field without data."""
        if self._array is None:
            return None
        element = element_type(self._type)
        if element is None:
            raise AttributeError(
                f"PluginField '{self._name}': NumPy has no type for "
                f"{_shown(self._type)}; install ml_dtypes, or use tobytes()"
            )
        import numpy as np

        content = self.tobytes()
        if _BITS.get(self._type) == 4:  # two to a byte; ml_dtypes has one to a byte
            halves = np.frombuffer(content, np.uint8)
            content = np.stack([halves & 15, halves >> 4], -1).tobytes()[: self._size]
        array = np.frombuffer(content, element).copy()
        return array.view(_number_type()) if array.size == 1 else array

    @data.setter
    def data(self, data: Any) -> None:
        self._array = _view(self._name, data)

    def tobytes(self) -> bytes:
        """The elements' bytes in memory."""
        if self._array is None:
            return b""
        content = self._array.tobytes()
        if self._type is T.UNKNOWN:
            return content
        packed = self._array.dtype.itemsize * self._array.size
        needed = (self._size * element_bits(self._type) + 7) // 8
        if needed > packed:
            raise ValueError(
                f"PluginField '{self._name}': size is {self._size} elements of "
                f"{_shown(self._type)}, {needed} bytes, but its data have {packed}"
            )
        return content[:needed]

    def __repr__(self) -> str:
        return f"<PluginField '{self._name}', {self._size} x {self._type.name}>"


def field_of_bytes(
    name: str, content: bytes, kind: PluginFieldType, size: int
) -> PluginField:
    """A field from its elements' bytes in memory."""
    import numpy as np

    field = PluginField(name)
    field._type, field._size = kind, size
    field._array = np.frombuffer(content, np.uint8)
    return field


class PluginFieldCollection(list[PluginField]):
    """A list of PluginFields."""

    __slots__ = ()

    def __init__(self, fields: Iterable[PluginField] = ()) -> None:
        super().__init__(_checked(field) for field in fields)

    def __bool__(self) -> bool:
        return len(self) > 0

    def append(self, field: PluginField) -> None:
        """Appends a field."""
        super().append(_checked(field))

    def extend(self, fields: Iterable[PluginField]) -> None:
        """Appends several fields."""
        super().extend(_checked(field) for field in fields)

    def insert(self, index: Any, field: PluginField) -> None:
        """Inserts a field."""
        super().insert(index, _checked(field))

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            value = [_checked(field) for field in value]
        else:
            _checked(value)
        super().__setitem__(index, value)


def _checked(field: Any) -> PluginField:
    if not isinstance(field, PluginField):
        raise TypeError(f"PluginFieldCollection: expected PluginFields, got {field!r}")
    return field


class PluginFieldCollection_:  # noqa: N801
    """PluginFields as creators are given them."""

    __slots__ = ("_fields",)

    def __init__(self, fields: Iterable[PluginField] = ()) -> None:
        self._fields = tuple(_checked(field) for field in fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __getitem__(self, index: int) -> PluginField:
        position = operator.index(index)
        if not 0 <= position < len(self._fields):
            raise IndexError(
                f"PluginFieldCollection_: {position} of {len(self._fields)} fields"
            )
        return self._fields[position]

    def __iter__(self) -> Iterator[PluginField]:
        return iter(self._fields)

    def __repr__(self) -> str:
        return f"PluginFieldCollection_({list(self._fields)})"


# ---- In plans and from ONNX ----

# Types and sizes of the fields; each field is stored as bytes.
_INDEX = "rabbet.fields"


def encode_fields(fields: Iterable[PluginField]) -> dict[str, Any]:
    """Fields as attributes of a plan. ValueError for two fields of the same name."""
    attrs: dict[str, Any] = {}
    index: list[int] = []
    for field in fields:
        if not field.name or field.name in attrs or field.name.startswith("rabbet."):
            why = "twice" if field.name in attrs else "which no field may have"
            raise ValueError(f"the field name '{field.name}' comes {why}")
        attrs[field.name] = field.tobytes()
        index += [int(field.type), field.size]
    attrs[_INDEX] = (Attr.INTS, index)
    return attrs


def are_fields(attrs: dict[str, Any]) -> bool:
    """Whether attributes have the form of encode_fields; Rabbet's own fields are
    allowed."""
    return _INDEX in attrs or all(name.startswith("rabbet.") for name in attrs)


def decode_fields(attrs: dict[str, Any]) -> list[PluginField]:
    """The fields in the attributes of encode_fields. Other attributes of Rabbet are
    skipped."""
    index = attrs.get(_INDEX, [])
    index = index[1] if isinstance(index, tuple) else index  # not stored yet
    names = [name for name in attrs if not name.startswith("rabbet.")]
    return [
        field_of_bytes(name, attrs[name], T(index[2 * i]), index[2 * i + 1])
        for i, name in enumerate(names)
    ]


def field_of_attribute(name: str, value: Any) -> PluginField:
    """The field of an ONNX attribute: numbers are FLOAT32 and INT32 (INT64 if out of
    range), text is CHAR with a terminating NUL."""
    import numpy as np

    if isinstance(value, tuple) and len(value) == 3:  # a tensor
        dtype, _, content = value
        kind = _TENSOR_TYPES.get(dtype.name)
        if kind is None:
            raise TypeError(f"attribute '{name}': a tensor of {dtype} makes no PluginField")
        return PluginField(name, from_bytes(dtype, content), kind)
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogateescape")
    if isinstance(value, bytes):
        return PluginField(name, value + b"\0", T.CHAR)
    items = value if isinstance(value, list) else [value]
    if items and isinstance(items[0], str):
        texts = [t.encode("utf-8", "surrogateescape") + b"\0" for t in items]
        return PluginField(name, b"".join(texts), T.CHAR)
    if any(isinstance(item, float) for item in items):
        return PluginField(name, np.array(items, np.float32), T.FLOAT32)
    small = all(-(2**31) <= item < 2**31 for item in items)
    if small:
        return PluginField(name, np.array(items, np.int32), T.INT32)
    return PluginField(name, np.array(items, np.int64), T.INT64)


_TENSOR_TYPES = {
    "FLOAT": T.FLOAT32,
    "HALF": T.FLOAT16,
    "BF16": T.BF16,
    "INT8": T.INT8,
    "UINT8": T.INT8,
    "BOOL": T.INT8,
    "INT32": T.INT32,
    "INT64": T.INT64,
    "FP8": T.FP8,
}
