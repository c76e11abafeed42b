"""PluginField and its collections."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
import rabbet as trt
from rabbet import PluginField, PluginFieldCollection, PluginFieldCollection_
from rabbet import PluginFieldType as T
from rabbet._classes._fields import decode_fields, encode_fields, field_of_attribute

NUMBERS = {
    T.FLOAT16: np.float16,
    T.FLOAT32: np.float32,
    T.FLOAT64: np.float64,
    T.INT8: np.int8,
    T.INT16: np.int16,
    T.INT32: np.int32,
    T.INT64: np.int64,
}


def stored(field: PluginField) -> PluginField:
    """The field after a plan: what create_plugin gets at load."""
    (found,) = decode_fields(encode_fields([field]))
    return found


def test_numbers_are_stable() -> None:
    assert [int(kind) for kind in T] == list(range(14))


@pytest.mark.parametrize("kind", NUMBERS)
def test_arrays(kind: T) -> None:
    values = np.array([[1, -2, 3], [4, 5, 6]], NUMBERS[kind])
    field = PluginField("f", values, kind)
    assert (field.name, field.type, field.size) == ("f", kind, 6)
    for found in (field, stored(field)):
        assert found.data is not None
        assert found.data.dtype == values.dtype
        assert np.array_equal(found.data, values.ravel())
        assert (found.name, found.type, found.size) == ("f", kind, 6)


@pytest.mark.parametrize("kind", NUMBERS)
def test_one_element_is_a_number(kind: T) -> None:
    """As scripts have it: int(field.data), whatever NumPy thinks of it."""
    field = PluginField("f", np.array([3], NUMBERS[kind]), kind)
    for found in (field.data, stored(field).data):
        assert isinstance(found, np.ndarray)
        assert found.shape == (1,)
        assert int(found) == 3
        assert float(found) == 3.0
        assert found[0] == 3
    with pytest.raises(TypeError):
        int(PluginField("f", np.zeros(2, NUMBERS[kind]), kind).data)


def test_data_is_a_copy_of_the_callers_memory() -> None:
    values = np.arange(3, dtype=np.int32)
    field = PluginField("f", values, T.INT32)
    copy = field.data
    assert copy is not None
    copy[0] = 100
    assert values[0] == 0
    values[1] = 7  # the field refers to it
    assert field.data is not None
    assert field.data.tolist() == [0, 7, 2]


def test_memory_lives_as_long_as_the_field() -> None:
    class Array(np.ndarray[Any, Any]):
        """One that can be referred to weakly."""

    values = np.arange(1000, dtype=np.float32).view(Array)
    gone = weakref.ref(values)
    fields = PluginFieldCollection([PluginField("f", values, T.FLOAT32)])
    del values
    gc.collect()
    assert fields[0].data is not None
    assert fields[0].data.sum() == np.arange(1000, dtype=np.float32).sum()
    fields.clear()
    gc.collect()
    assert gone() is None


def test_arrays_that_are_not_contiguous() -> None:
    values = np.arange(12, dtype=np.int32).reshape(3, 4)[:, ::2]
    data = PluginField("f", values, T.INT32).data
    assert data is not None
    assert data.tolist() == [0, 2, 4, 6, 8, 10]


def test_text_and_bytes() -> None:
    field = stored(PluginField("s", "déjà".encode(), T.CHAR))
    assert field.data is not None
    assert field.data.tobytes().decode() == "déjà"
    field = PluginField("b", b"\0\1\2")
    assert (field.type, field.size) == (T.UNKNOWN, 3)
    assert field.data is not None
    assert field.data.tolist() == [0, 1, 2]
    assert stored(PluginField("e", b"", T.CHAR)).size == 0
    with pytest.raises(TypeError, match=r"'s': data is a str; pass data.encode"):
        PluginField("s", "text", T.CHAR)


def test_scalars_and_truths() -> None:
    field = PluginField("b", np.array(True), T.INT8)
    assert field.size == 1
    assert field.data is not None
    assert field.data.tolist() == [1]
    assert PluginField("i", 3, T.INT32).size == 1


def test_names_alone_and_empty_arrays() -> None:
    field = PluginField("f")
    assert (field.name, field.data, field.size) == ("f", None, 0)
    field = PluginField("f", np.array([]), T.INT32)  # as creators declare them
    assert field.size == 0
    assert field.data is not None
    assert field.data.dtype == np.int32
    assert PluginField().name == ""


def test_other_element_types_convert_where_nothing_is_lost() -> None:
    data = PluginField("f", np.array([1, 2], np.int64), T.INT32).data
    assert data is not None
    assert data.tolist() == [1, 2]
    data = PluginField("f", np.array([1, 2]), T.FLOAT32).data
    assert data is not None
    assert data.tolist() == [1, 2]
    with pytest.raises(ValueError, match="an array of int64 does not convert to"):
        PluginField("f", np.array([2**40]), T.INT32)
    with pytest.raises(ValueError, match="FLOAT32"):
        PluginField("f", np.array([0.1]), T.FLOAT32)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("value", "kind"), [
    (np.nan, T.INT32), (np.inf, T.INT64), (2.0**63, T.INT64), (1e300, T.FLOAT32),
    (70000, T.FLOAT16),
])  # fmt: skip
def test_numbers_that_a_type_does_not_have(value: float, kind: T) -> None:
    with pytest.raises(ValueError, match=f"'f'.* does not convert to .*{kind.name} without"):
        PluginField("f", np.array([1, value]), kind)
    data = PluginField("f", np.array([np.nan, np.inf]), T.FLOAT32).data
    np.testing.assert_array_equal(data, np.array([np.nan, np.inf], np.float32))


def test_types_that_numpy_lacks() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    values = np.array([1.5, -2], ml_dtypes.bfloat16)
    field = stored(PluginField("f", values, T.BF16))
    assert field.data is not None
    assert field.data.tolist() == [1.5, -2]
    values = np.array([1.5, -2], ml_dtypes.float8_e4m3fn)
    field = stored(PluginField("f", values, T.FP8))
    assert field.data is not None
    assert field.data.tolist() == [1.5, -2]


def test_bits_of_types_that_numpy_lacks() -> None:
    bits = np.array([0x3FC0, 0xC000], np.uint16)  # 1.5, -2 in BF16
    field = stored(PluginField("f", bits, T.BF16))
    assert field.tobytes() == bits.tobytes()
    assert field.size == 2


def test_setting() -> None:
    field = PluginField("f", np.array([1, 2], np.int32), T.INT32)
    field.name = "g"
    field.type = T.INT16
    field.size = 4
    assert field.data is not None
    assert field.data.tolist() == [1, 0, 2, 0]
    field.data = np.array([5, 6, 7, 8], np.int16)
    assert field.data.tolist() == [5, 6, 7, 8]
    field.size = 5
    with pytest.raises(ValueError, match=r"is 5 elements of .*, 10 bytes, but its data have 8"):
        _ = field.data


@pytest.mark.parametrize("data", [object(), ["a"], np.array(["a"])])
def test_what_is_no_data(data: Any) -> None:
    with pytest.raises(TypeError, match="PluginField 'f': data is"):
        PluginField("f", data, T.INT32)


def test_wrong_types() -> None:
    with pytest.raises(TypeError, match="expected a PluginFieldType, got 5"):
        PluginField("f", None, 5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"PluginField.name: expected a str, got 1"):
        PluginField(1)  # type: ignore[arg-type]


def test_collections() -> None:
    a, b, c = (PluginField(name) for name in "abc")
    fields = PluginFieldCollection([a])
    fields.append(b)
    fields.extend([c])
    assert fields.index(b) == 1
    assert [f.name for f in fields[1:]] == ["b", "c"]
    del fields[0]
    fields.insert(0, c)
    assert [f.name for f in fields] == ["c", "b", "c"]
    assert fields.pop() is c
    fields[0] = a
    assert len(fields) == 2
    assert not PluginFieldCollection()
    for wrong in (
        lambda: PluginFieldCollection(["a"]),  # type: ignore[list-item]
        lambda: fields.append("a"),  # type: ignore[arg-type]
        lambda: fields.__setitem__(0, "a"),
        lambda: PluginFieldCollection_(["a"]),  # type: ignore[list-item]
    ):
        with pytest.raises(TypeError, match="expected PluginFields, got 'a'"):
            wrong()


def test_collections_that_creators_get() -> None:
    fields = PluginFieldCollection_(PluginFieldCollection([PluginField("a")]))
    assert len(fields) == 1
    assert fields[0].name == "a"
    assert [f.name for f in fields] == ["a"]
    for index in (1, -1):
        with pytest.raises(IndexError, match="of 1 fields"):
            _ = fields[index]


def test_fields_of_one_name() -> None:
    with pytest.raises(ValueError, match="the field name 'a' comes twice"):
        encode_fields([PluginField("a"), PluginField("a")])
    with pytest.raises(ValueError, match=r"'rabbet.x' comes which no field may have"):
        encode_fields([PluginField("rabbet.x")])


@pytest.mark.parametrize(
    ("value", "kind", "data"),
    [
        (3, T.INT32, [3]),
        (2**40, T.INT64, [2**40]),
        ([1, 2], T.INT32, [1, 2]),
        (1.5, T.FLOAT32, [1.5]),
        ([1.5, 2.0], T.FLOAT32, [1.5, 2]),
        ([], T.INT32, []),
        (b"ab", T.CHAR, list(b"ab\0")),
        (["a", "b"], T.CHAR, list(b"a\0b\0")),
        (
            (trt.float32, (2, 1), np.array([1, 2], np.float32).tobytes()),
            T.FLOAT32,
            [1, 2],
        ),
    ],
)
def test_attributes_of_onnx(value: Any, kind: T, data: list[Any]) -> None:
    field = field_of_attribute("f", value)
    assert field.type == kind
    assert field.data is not None
    assert field.data.tolist() == data
