"""Element types of 8 bits and fewer: constants, Cast, QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
import rabbet
import rabbet.plugin
from onnx import TensorProto, helper

from tests.python.importer.narrow_types import (
    REALS,
    TYPES,
    check_cast,
    check_quantize,
    run,
)
from tests.python.support.plugins import new_id


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("name", REALS)
def test_cast(name, saturate):
    check_cast(name, saturate, "cpu")


@pytest.mark.parametrize("layout", ["one", "axis", "blocks"])
@pytest.mark.parametrize("name", TYPES)
def test_quantize(name, layout):
    check_quantize(name, layout, "cpu")


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("name", REALS)
def test_constants_hold_every_number(name, raw):
    bits = 4 if "4E" in name else 6 if "6E" in name else 8
    codes = np.arange(2**bits, dtype=np.uint8).view(REALS[name])[: 2**bits - 1]
    constant = onnx.numpy_helper.from_array(codes, "w")
    if not raw:
        entries = codes.view(np.uint8).tolist()
        if bits == 4:
            entries = list(constant.raw_data)
        constant.ClearField("raw_data")
        constant.int32_data.extend(entries)
    nodes = [
        helper.make_node("Cast", ["w"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["x", "f"], ["y"]),
    ]
    x = np.zeros((1, codes.size), np.float32)
    np.testing.assert_array_equal(run(nodes, x, [constant])[0], codes.astype(np.float32))


def powers(x, mode, saturate):
    """E8M0 in FLOAT, by logarithms."""
    x = x.astype(np.float64)
    down = np.floor(np.log2(np.where(x > 0, x, 1)))
    up = np.ceil(np.log2(np.where(x > 0, x, 1)))
    near = np.where(x < 1.5 * 2.0**down, down, up)
    exponent = {"up": up, "down": down, "nearest": near}[mode]
    y = np.where(exponent > 127, 2.0**127 if saturate else np.nan, 2.0 ** np.minimum(exponent, 127))
    y = np.where(x == 0, 2.0**-127 if saturate else np.nan, y)
    return np.where(x < 0, np.nan, y)


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
def test_powers_of_two(mode, saturate):
    x = np.array([[0, 1, 1.1, 1.49, 1.5, 1.51, 2, 3, 0.3, 1e-37, 3e38, -1]], np.float32)
    node = helper.make_node(
        "Cast", ["x"], ["p"], to=TensorProto.FLOAT8E8M0, round_mode=mode, saturate=int(saturate)
    )
    back = helper.make_node("Cast", ["p"], ["y"], to=TensorProto.FLOAT)
    np.testing.assert_array_equal(run([node, back], x), powers(x, mode, saturate))


@pytest.mark.parametrize(
    ("from_type", "to"),
    [
        (np.float32, "UINT32"),
        (np.float16, "INT16"),
        (ml_dtypes.bfloat16, "UINT16"),
        (np.int16, "FLOAT16"),
        (np.uint16, "BFLOAT16"),
        (np.uint32, "FLOAT"),
        (np.int64, "UINT64"),
        (np.int8, "UINT8"),
        (np.uint8, "FLOAT8E4M3FN"),
        (ml_dtypes.float8_e8m0fnu, "INT8"),
        (ml_dtypes.int4, "UINT4"),
        (ml_dtypes.uint2, "INT2"),
    ],
)
def test_bit_cast(from_type, to):
    dtype = np.dtype(from_type)
    rng = np.random.default_rng(3)
    count = 2 ** (2 if "int2" in dtype.name else 4 if "int4" in dtype.name else 8)
    x = np.arange(count, dtype=np.uint8)[None].view(dtype)
    if dtype.itemsize > 1:
        x = rng.standard_normal((1, 64)) * 100
        x = np.abs(x) if to == "UINT64" or dtype.kind == "u" else x
        x = x.astype(dtype)
    number = TensorProto.DataType.Value(to)
    expected = x.view(helper.tensor_dtype_to_np_dtype(number))
    node = helper.make_node("BitCast", ["x"], ["y"], to=number)
    found = np.asarray(run([node], x))
    np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))


@pytest.mark.parametrize(
    ("from_type", "to", "message"),
    [
        (np.float32, "INT16", "FLOAT of 32 bits; attribute 'to' is INT16 of 16"),
        (np.int64, "DOUBLE", "the bits of DOUBLE are not those of FLOAT"),
        (np.uint8, "FLOAT8E5M2", "the bits of FLOAT8E5M2 are not those of HALF"),
        (np.float32, "STRING", "attribute 'to': element type STRING"),
    ],
)
def test_bits_that_are_not_there(from_type, to, message):
    node = helper.make_node("BitCast", ["x"], ["y"], to=TensorProto.DataType.Value(to))
    with pytest.raises(rabbet.Error, match=message):
        run([node], np.zeros((1, 2), from_type))


@pytest.mark.parametrize(
    ("op", "inputs", "attributes"),
    [
        ("BitCast", ["n"], {"to": TensorProto.UINT8}),
        ("CastLike", ["x", "n"], {}),
        ("QuantizeLinear", ["x", "s", "n"], {}),
    ],
)
def test_types_that_only_plugins_make_are_refused(op, inputs, attributes):
    plugin_id = new_id("narrow")

    @rabbet.plugin.register(plugin_id)
    def described(x: rabbet.plugin.TensorDesc) -> rabbet.plugin.TensorDesc:
        y = x.like()
        y.dtype = rabbet.int4
        return y

    nodes = [
        helper.make_node(plugin_id.split("::")[1], ["x"], ["n"], plugin_namespace="test"),
        helper.make_node(op, inputs, ["y"], **attributes),
    ]
    scale = onnx.numpy_helper.from_array(np.float32(1), "s")
    with pytest.raises(rabbet.Error, match="'n' is INT4, which the operator does not take"):
        run(nodes, np.zeros((1, 2), np.float32), [scale])


def test_arithmetic_of_narrow_reals_is_refused():
    node = helper.make_node("Add", ["x", "x"], ["y"])
    with pytest.raises(rabbet.Error, match="not imported for FLOAT8E5M2"):
        run([node], np.zeros((1, 2), ml_dtypes.float8_e5m2))


@pytest.mark.parametrize("name", ["INT4", "UINT2", "FLOAT8E5M2", "FLOAT4E2M1"])
def test_moves(name):
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 3, (4, 6)).astype(TYPES[name])
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]),
        helper.make_node("Unsqueeze", ["t", "axis"], ["u"]),
        helper.make_node("Squeeze", ["u", "axis"], ["y"]),
    ]
    axis = onnx.numpy_helper.from_array(np.array([1]), "axis")
    found = np.asarray(run(nodes, x, [axis]))
    np.testing.assert_array_equal(found.astype(np.float32), x.T.astype(np.float32))


@pytest.mark.parametrize("name", ["ReduceL1", "ReduceL2", "ReduceSumSquare"])
def test_norms_of_half(name):
    """Squares are added up in FLOAT: 300 squared is infinite in HALF."""
    x = np.random.default_rng(1).uniform(-300, 300, (3, 40)).astype(np.float16)
    if name == "ReduceSumSquare":
        x /= 16
    wide = x.astype(np.float64)
    want = {
        "ReduceL1": np.abs(wide).sum(1),
        "ReduceL2": np.sqrt((wide**2).sum(1)),
        "ReduceSumSquare": (wide**2).sum(1),
    }[name]
    axes = onnx.numpy_helper.from_array(np.array([1]), "axes")
    node = helper.make_node(name, ["x", "axes"], ["y"], keepdims=0)
    found = np.asarray(run([node], x, [axes]))
    assert found.dtype == np.float16
    np.testing.assert_allclose(found.astype(np.float64), want, rtol=2e-3)
