"""Every operator's reference kernel against NumPy and ONNX Runtime."""

from __future__ import annotations

import itertools
import math

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
import rabbet
from onnx import helper

from tests.python.support.reference_ops import OpError, evaluate, evaluate_all

BF16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = [np.float32, np.float16, BF16]
# One rounding of an exact result: half a unit in the last place, and a hair.
ROUNDING = {np.dtype(np.float32): 2**-23, np.dtype(np.float16): 2**-10, BF16: 2**-7}


def rng(*key):
    return np.random.default_rng([ord(c) for c in repr(key)])


def uniform(shape, dtype=np.float32, low=-2.0, high=2.0, key=()):
    return rng(shape, key).uniform(low, high, shape).astype(dtype)


def assert_close(found, expected, scale=1.0):
    """`expected` is exact (float64); `found` is it, rounded once."""
    assert found.shape == expected.shape
    tolerance = ROUNDING[found.dtype] * scale
    np.testing.assert_allclose(
        found.astype(np.float64), expected, rtol=tolerance, atol=tolerance * 1e-3
    )


def run_onnx(op, inputs, opset=17, **attrs):
    """One ONNX operator in ONNX Runtime."""
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    infos = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape
        )
        for name, x in zip(names, inputs, strict=True)
        if x is not None
    ]
    node = helper.make_node(op, names, ["y"], **attrs)
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9
    )
    session = ort.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    feeds = {n: x for n, x in zip(names, inputs, strict=True) if x is not None}
    return session.run(None, feeds)[0]


# ---- Activation ------------------------------------------------------------


def erf(x):
    return np.vectorize(math.erf)(x)


ACTIVATIONS = {
    "RELU": lambda x, a, b: np.maximum(x, 0),
    "SIGMOID": lambda x, a, b: 1 / (1 + np.exp(-x)),
    "TANH": lambda x, a, b: np.tanh(x),
    "LEAKY_RELU": lambda x, a, b: np.where(x >= 0, x, a * x),
    "ELU": lambda x, a, b: np.where(x >= 0, x, a * (np.exp(x) - 1)),
    "SELU": lambda x, a, b: np.where(x > 0, b * x, b * (a * np.exp(x) - a)),
    "SOFTSIGN": lambda x, a, b: x / (1 + np.abs(x)),
    "SOFTPLUS": lambda x, a, b: a * np.log(np.exp(b * x) + 1),
    "CLIP": lambda x, a, b: np.maximum(a, np.minimum(b, x)),
    "HARD_SIGMOID": lambda x, a, b: np.maximum(0, np.minimum(1, a * x + b)),
    "SCALED_TANH": lambda x, a, b: a * np.tanh(b * x),
    "THRESHOLDED_RELU": lambda x, a, b: np.where(x > a, x, 0),
    "GELU_ERF": lambda x, a, b: 0.5 * x * (1 + erf(np.sqrt(0.5) * x)),
    "GELU_TANH": lambda x, a, b: (
        0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (0.044715 * x**3 + x)))
    ),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_activation(kind, dtype):
    x = uniform((3, 5, 7), dtype, -4, 4, kind)
    found = evaluate("activation", x, type=kind, alpha=0.3, beta=0.7)
    assert found.dtype == x.dtype
    expected = ACTIVATIONS[kind](x.astype(np.float64), 0.3, 0.7)
    assert_close(found, expected)


def test_activation_extremes():
    x = np.array([-1e4, -100, -0.0, 0, 100, 1e4, np.inf, -np.inf, np.nan], np.float32)
    for kind in ACTIVATIONS:
        y = evaluate("activation", x, type=kind, alpha=0.5, beta=0.75)
        if kind not in ("GELU_ERF", "GELU_TANH", "SOFTSIGN"):
            assert np.isfinite(y[:6]).all(), kind
            assert not np.isnan(y[:8]).any(), kind
    assert np.isnan(evaluate("activation", x, type="SIGMOID")[8])


def test_activation_of_integers():
    x = np.array([-3, 0, 2**31 - 1], np.int32)
    assert evaluate("activation", x, type="RELU").tolist() == [0, 0, 2**31 - 1]
    with pytest.raises(OpError, match=r"SIGMOID needs floating point.*INT32"):
        evaluate("activation", x, type="SIGMOID")


# ---- Unary -----------------------------------------------------------------

UNARY = {
    "EXP": (np.exp, -3, 3),
    "LOG": (np.log, 0.1, 5),
    "SQRT": (np.sqrt, 0, 5),
    "RECIP": (lambda x: 1 / x, 0.2, 5),
    "ABS": (np.abs, -3, 3),
    "NEG": (np.negative, -3, 3),
    "SIN": (np.sin, -3, 3),
    "COS": (np.cos, -3, 3),
    "TAN": (np.tan, -1, 1),
    "SINH": (np.sinh, -3, 3),
    "COSH": (np.cosh, -3, 3),
    "ASIN": (np.arcsin, -1, 1),
    "ACOS": (np.arccos, -1, 1),
    "ATAN": (np.arctan, -3, 3),
    "ASINH": (np.arcsinh, -3, 3),
    "ACOSH": (np.arccosh, 1, 5),
    "ATANH": (np.arctanh, -0.9, 0.9),
    "CEIL": (np.ceil, -3, 3),
    "FLOOR": (np.floor, -3, 3),
    "ERF": (erf, -3, 3),
    "SIGN": (np.sign, -3, 3),
    "ROUND": (np.rint, -3, 3),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("op", UNARY)
def test_unary(op, dtype):
    function, low, high = UNARY[op]
    x = uniform((4, 6), dtype, low, high, op)
    found = evaluate("unary", x, op=op)
    assert found.dtype == x.dtype
    assert_close(found, function(x.astype(np.float64)))


def test_unary_rounds_half_to_even():
    x = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5], np.float32)
    assert evaluate("unary", x, op="ROUND").tolist() == [-2, -2, 0, 0, 2, 2]


def test_unary_tests_and_logic():
    x = np.array([np.inf, -np.inf, np.nan, 1], np.float16)
    assert evaluate("unary", x, op="ISINF").tolist() == [True, True, False, False]
    assert evaluate("unary", x, op="ISNAN").tolist() == [False, False, True, False]
    assert evaluate("unary", np.array([True, False]), op="NOT").tolist() == [
        False,
        True,
    ]
    with pytest.raises(OpError, match="NOT takes BOOL"):
        evaluate("unary", x, op="NOT")


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
def test_unary_of_integers(dtype):
    x = np.array([-5, 0, 7, np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)
    for op, function in [("ABS", np.abs), ("NEG", np.negative), ("SIGN", np.sign)]:
        np.testing.assert_array_equal(evaluate("unary", x, op=op), function(x))


# ---- Elementwise -----------------------------------------------------------

BINARY = {
    "SUM": np.add,
    "PROD": np.multiply,
    "MAX": np.maximum,
    "MIN": np.minimum,
    "SUB": np.subtract,
    "DIV": np.divide,
    "POW": np.power,
    "FLOOR_DIV": np.floor_divide,
}
COMPARE = {"EQUAL": np.equal, "GREATER": np.greater, "LESS": np.less}
LOGIC = {"AND": np.logical_and, "OR": np.logical_or, "XOR": np.logical_xor}
SHAPES = [
    ((2, 3, 4), (2, 3, 4)),
    ((2, 1, 4), (1, 3, 1)),
    ((1,), (5,)),
    ((), ()),
    ((0, 3), (1, 3)),
]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("op", BINARY)
def test_elementwise(op, dtype, shapes):
    low = 0.25 if op in ("POW", "DIV", "FLOOR_DIV") else -2
    a, b = (uniform(s, dtype, low, 3, (op, i)) for i, s in enumerate(shapes))
    found = evaluate("elementwise", a, b, op=op)
    assert found.dtype == a.dtype
    assert_close(found, BINARY[op](a.astype(np.float64), b.astype(np.float64)))


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.int8, np.uint8])
@pytest.mark.parametrize("op", BINARY)
def test_elementwise_of_integers(op, dtype):
    signed = np.iinfo(dtype).min < 0
    a = rng(op).integers(-9 if signed else 0, 10, (4, 5)).astype(dtype)
    b = rng(op, 1).integers(-4 if signed else 1, 5, (4, 1)).astype(dtype)
    b[b == 0] = 3
    if op == "POW":
        b = np.abs(b)
    if op == "DIV":
        expected = np.trunc(a / b).astype(dtype)
    else:
        with np.errstate(over="ignore"):
            expected = BINARY[op](a, b)
    np.testing.assert_array_equal(evaluate("elementwise", a, b, op=op), expected)


def test_elementwise_integer_edges():
    least = np.iinfo(np.int64).min
    a = np.array([7, least, least], np.int64)
    b = np.array([0, -1, 1], np.int64)
    assert evaluate("elementwise", a, b, op="DIV").tolist() == [0, least, least]
    assert evaluate("elementwise", a, b, op="FLOOR_DIV").tolist() == [0, least, least]
    top = np.array([np.iinfo(np.int32).max], np.int32)
    one = np.ones(1, np.int32)
    assert evaluate("elementwise", top, one, op="SUM")[0] == np.iinfo(np.int32).min


def test_elementwise_keeps_int64_exact():
    a = np.array([2**53 + 1, -(2**62)], np.int64)
    b = np.array([1, 3], np.int64)
    np.testing.assert_array_equal(evaluate("elementwise", a, b, op="SUM"), a + b)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, BF16, np.int32, np.int64])
@pytest.mark.parametrize("op", COMPARE)
def test_comparisons(op, dtype):
    a = rng(op).integers(0, 3, (6, 5)).astype(dtype)
    b = rng(op, 1).integers(0, 3, (6, 5)).astype(dtype)
    found = evaluate("elementwise", a, b, op=op)
    assert found.dtype == np.bool_
    np.testing.assert_array_equal(found, COMPARE[op](a, b))


@pytest.mark.parametrize("op", LOGIC)
def test_logic(op):
    a, b = np.array([[0, 0, 1, 1]], bool), np.array([[0, 1, 0, 1]], bool)
    np.testing.assert_array_equal(evaluate("elementwise", a, b, op=op), LOGIC[op](a, b))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_elementwise_bits(dtype):
    info = np.iinfo(dtype)
    rng = np.random.default_rng(3)
    a = rng.integers(info.min, info.max, (5, 7), dtype, endpoint=True)
    b = rng.integers(info.min, info.max, (5, 1), dtype, endpoint=True)
    for op, function in (("AND", np.bitwise_and), ("OR", np.bitwise_or),
                         ("XOR", np.bitwise_xor)):
        np.testing.assert_array_equal(evaluate("elementwise", a, b, op=op), function(a, b))


def test_elementwise_passes_nan():
    a = np.array([np.nan, 1, np.nan], np.float32)
    b = np.array([1, np.nan, np.nan], np.float32)
    for op in ("MAX", "MIN"):
        assert np.isnan(evaluate("elementwise", a, b, op=op)).all()


def test_elementwise_errors():
    a = np.zeros((2, 3), np.float32)
    with pytest.raises(OpError, match=r"\(2, 3\) and \(2, 4\).*dimension 1"):
        evaluate("elementwise", a, np.zeros((2, 4), np.float32), op="SUM")
    with pytest.raises(OpError, match="their ranks must be equal"):
        evaluate("elementwise", a, np.zeros(3, np.float32), op="SUM")
    with pytest.raises(OpError, match="AND takes BOOL"):
        evaluate("elementwise", a, a, op="AND")
    with pytest.raises(OpError, match=r"input 1 \('input2'\) has type HALF"):
        evaluate("elementwise", a, a.astype(np.float16), op="SUM")


# ---- Cast, identity, constant ----------------------------------------------

CAST = {
    "FLOAT": np.float32,
    "HALF": np.float16,
    "BF16": BF16,
    "INT8": np.int8,
    "UINT8": np.uint8,
    "INT32": np.int32,
    "INT64": np.int64,
    "BOOL": np.bool_,
}


@pytest.mark.parametrize("to", CAST)
@pytest.mark.parametrize("source", CAST)
def test_cast(source, to):
    x = np.array([0, 1, 2, 3, 100, 5, 64, 0], np.float64).astype(CAST[source])
    found = evaluate("cast", x, to_type=to)
    assert found.dtype == CAST[to]
    np.testing.assert_array_equal(found, x.astype(CAST[to]))


def test_cast_truncates_and_saturates():
    x = np.array([-1.9, 1.9, 1e12, -1e12, np.nan, np.inf], np.float32)
    top, least = np.iinfo(np.int32).max, np.iinfo(np.int32).min
    assert evaluate("cast", x, to_type="INT32").tolist() == [
        -1, 1, top, least, 0, top,
    ]
    assert evaluate("cast", x, to_type="UINT8").tolist() == [0, 1, 255, 0, 0, 255]
    assert evaluate("cast", x, to_type="BOOL").all()


def test_cast_rounds_once():
    big = np.array([2**24 + 1, 2**54 + 2**30 + 1, 16777217 * 2**20 + 1], np.int64)
    np.testing.assert_array_equal(
        evaluate("cast", big, to_type="FLOAT"), big.astype(np.float32)
    )


@pytest.mark.parametrize("dtype", CAST.values(), ids=str)
def test_identity_and_constant(dtype):
    x = rng(dtype).integers(0, 2, (2, 0, 3) if dtype is BF16 else (2, 3)).astype(dtype)
    np.testing.assert_array_equal(evaluate("identity", x), x)
    np.testing.assert_array_equal(evaluate("constant", weights=x), x)


# ---- Quantization ----------------------------------------------------------

FP8 = ml_dtypes.float8_e4m3fn
QUANTIZED = {"INT8": np.int8, "UINT8": np.uint8, "FP8": FP8}
SCALES = {
    "tensor": (), "one": (1,), "axis": (4,), "broadcast": (2, 1, 3), "each": (2, 4, 3),
}


def quantize(x, scale, zero, dtype):
    """As ONNX has it, in float32."""
    y = x.astype(np.float32) / scale
    if dtype is FP8:
        return np.clip(y, -448, 448).astype(FP8)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    return np.clip(np.rint(y) + zero.astype(np.float32), low, high).astype(dtype)


def spread(a):
    return a.reshape(1, 4, 1) if a.shape == (4,) else a


@pytest.mark.parametrize("shape", SCALES.values(), ids=SCALES)
@pytest.mark.parametrize("to", QUANTIZED)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_quantize(dtype, to, shape):
    x = uniform((2, 4, 3), np.float64, -40, 40).astype(dtype)
    scale = uniform(shape, np.float32, 0.01, 0.5)
    zero = np.zeros(shape, QUANTIZED[to])
    if to != "FP8":
        zero = rng(to).integers(0, 100, shape).astype(QUANTIZED[to])
    found = evaluate("quantize", x, scale, zero, axis=1, to_type=to)
    expected = quantize(x, spread(scale), spread(zero), QUANTIZED[to])
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found.view(np.uint8), expected.view(np.uint8))


@pytest.mark.parametrize("shape", SCALES.values(), ids=SCALES)
@pytest.mark.parametrize("source", [*QUANTIZED, "INT32"])
def test_dequantize(source, shape):
    dtype = QUANTIZED.get(source, np.int32)
    x = rng(source).integers(0, 100, (2, 4, 3)).astype(dtype)
    scale = uniform(shape, np.float32, 0.01, 0.5)
    zero = rng(source, 1).integers(0, 100, shape).astype(dtype)
    expected = (x.astype(np.float32) - spread(zero).astype(np.float32)) * spread(scale)
    for to in ("FLOAT", "HALF", "BF16"):
        found = evaluate("dequantize", x, scale, zero, axis=-2, to_type=to)
        np.testing.assert_array_equal(found, expected.astype(CAST[to]))
    found = evaluate("dequantize", x, scale, axis=1)
    np.testing.assert_array_equal(found, x.astype(np.float32) * spread(scale))


def test_quantize_rounds_to_even_and_saturates():
    x = np.array([0.5, 1.5, -0.5, -2.5, 1e9, -1e9, np.nan, np.inf], np.float32)
    one = np.float32(1)
    assert evaluate("quantize", x, one).tolist() == [0, 2, 0, -2, 127, -128, 0, 127]
    assert evaluate("quantize", x, one, to_type="UINT8").tolist() == [
        0, 2, 0, 0, 255, 0, 0, 255,
    ]


def test_quantize_errors():
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(OpError, match=r"'scale'\) has shape \(4,\).*axis -1"):
        evaluate("quantize", x, np.ones(4, np.float32))
    with pytest.raises(OpError, match=r"'zero_point'.* is INT8 and the output is UINT8"):
        evaluate("quantize", x, np.float32(1), np.int8(0), to_type="UINT8")
    with pytest.raises(OpError, match=r"'zero_point'.* is INT8 and input 0 is UINT8"):
        evaluate("dequantize", x.astype(np.uint8), np.float32(1), np.int8(0))
    with pytest.raises(OpError, match="axis"):
        evaluate("quantize", x, np.ones(3, np.float32), axis=2)


# ---- Reduce, softmax, normalization ----------------------------------------

REDUCE = {
    "SUM": np.sum, "PROD": np.prod, "MAX": np.max, "MIN": np.min, "AVG": np.mean,
}


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 2), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("dtype", [*FLOATS, np.int32, np.int64], ids=str)
@pytest.mark.parametrize("op", REDUCE)
def test_reduce(op, dtype, axes, keep):
    x = uniform((3, 4, 2), np.float64, -3, 3, op).astype(dtype)
    mask = sum(1 << a for a in axes)
    found = evaluate("reduce", x, op=op, axes=mask, keep_dims=keep)
    exact = x.astype(np.float64) if found.dtype.kind not in "i" else x.astype(np.int64)
    expected = REDUCE[op](exact, axis=axes, keepdims=keep)
    if found.dtype.kind == "i":
        np.testing.assert_array_equal(found, np.trunc(expected))
    else:
        # Cancellation: the sum's error is relative to its terms.
        np.testing.assert_allclose(
            found.astype(np.float64), expected,
            rtol=ROUNDING[found.dtype], atol=1e-6,
        )


def test_reduce_of_nothing():
    x = np.zeros((2, 0), np.float32)
    expected = {"SUM": 0, "PROD": 1, "MAX": -np.inf, "MIN": np.inf}
    for op, value in expected.items():
        assert evaluate("reduce", x, op=op, axes=2).tolist() == [value, value]
    assert np.isnan(evaluate("reduce", x, op="AVG", axes=2)).all()
    whole = np.zeros((2, 0), np.int32)
    assert evaluate("reduce", whole, op="MAX", axes=2)[0] == np.iinfo(np.int32).min


def test_reduce_errors():
    x = np.zeros((2, 3), np.float32)
    for axes in (0, 4, -1):
        with pytest.raises(OpError, match="attribute 'axes' is 0x"):
            evaluate("reduce", x, op="SUM", axes=axes)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("axis", range(4))
def test_softmax(axis, dtype):
    x = uniform((2, 3, 4, 5), dtype, -20, 20)
    exact = x.astype(np.float64)
    e = np.exp(exact - exact.max(axis, keepdims=True))
    expected = e / e.sum(axis, keepdims=True)
    assert_close(evaluate("softmax", x, axes=1 << axis), expected)


def test_softmax_default_axis():
    x = uniform((2, 3, 4, 5))
    np.testing.assert_array_equal(evaluate("softmax", x), evaluate("softmax", x, axes=2))
    flat = uniform((4, 5))
    np.testing.assert_array_equal(
        evaluate("softmax", flat), evaluate("softmax", flat, axes=1)
    )
    with pytest.raises(OpError, match="over one axis"):
        evaluate("softmax", x, axes=3)


def normalized(x, axes, epsilon):
    mean = x.mean(axes, keepdims=True)
    variance = x.var(axes, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon)


def assert_normalized(found, expected):
    np.testing.assert_allclose(
        found.astype(np.float64), expected,
        rtol=ROUNDING[found.dtype], atol=ROUNDING[found.dtype],
    )


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("axes", [(2, 3), (3,), (1, 2, 3), (1,)], ids=str)
def test_normalization(axes, dtype):
    x = uniform((2, 6, 4, 5), dtype)
    shape = tuple(n if i in axes else 1 for i, n in enumerate(x.shape))
    if axes == (2, 3):
        shape = (1, 6, 1, 1)
    scale, bias = uniform(shape, dtype, key=1), uniform(shape, dtype, key=2)
    mask = sum(1 << a for a in axes)
    expected = normalized(x.astype(np.float64), axes, 1e-3)
    found = evaluate("normalization", x, axes=mask, epsilon=1e-3)
    assert_normalized(found, expected)
    scaled = expected * scale.astype(np.float64) + bias.astype(np.float64)
    found = evaluate("normalization", x, scale, bias, axes=mask, epsilon=1e-3)
    assert_normalized(found, scaled)


@pytest.mark.parametrize("is_v2", [False, True])
def test_group_normalization(is_v2):
    x = uniform((2, 6, 4, 5))
    size = 6 if is_v2 else 3
    scale, bias = uniform((1, size, 1, 1), key=1), uniform((1, size, 1, 1), key=2)
    found = evaluate(
        "normalization", x, scale, bias, axes=12, num_groups=3, is_v2=is_v2
    )
    grouped = x.astype(np.float64).reshape(2, 3, 2, 4, 5)
    expected = normalized(grouped, (2, 3, 4), 1e-5).reshape(x.shape)
    repeat = 1 if is_v2 else 2
    expected = expected * scale.repeat(repeat, 1) + bias.repeat(repeat, 1)
    assert_normalized(found, expected)


def test_normalization_agrees_with_onnxruntime():
    x, scale, bias = uniform((2, 6, 8)), uniform((8,), key=1), uniform((8,), key=2)
    expected = run_onnx("LayerNormalization", [x, scale, bias], axis=-1, epsilon=1e-4)
    found = evaluate(
        "normalization", x, scale.reshape(1, 1, 8), bias.reshape(1, 1, 8),
        axes=4, epsilon=1e-4,
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_normalization_errors():
    x = uniform((2, 6, 4))
    with pytest.raises(OpError, match=r"input 1 \('scale'\) has shape \(1, 5, 1\)"):
        evaluate("normalization", x, np.ones((1, 5, 1), np.float32), axes=4)
    with pytest.raises(OpError, match="'num_groups' is 4"):
        evaluate("normalization", x, axes=4, num_groups=4)
    with pytest.raises(OpError, match="axes from 2 on"):
        evaluate("normalization", x, axes=6, num_groups=3)


# ---- Matrix multiply -------------------------------------------------------

MATRICES = [
    ((3, 4), "NONE", (4, 5), "NONE"),
    ((4, 3), "TRANSPOSE", (5, 4), "TRANSPOSE"),
    ((2, 3, 4), "NONE", (1, 4, 5), "NONE"),
    ((2, 1, 3, 4), "NONE", (1, 6, 5, 4), "TRANSPOSE"),
    ((3, 4), "NONE", (4,), "VECTOR"),
    ((4,), "VECTOR", (4, 5), "NONE"),
    ((4,), "VECTOR", (4,), "VECTOR"),
    ((2, 4), "VECTOR", (2, 4, 5), "NONE"),
    ((2, 3, 4), "NONE", (1, 4), "VECTOR"),
    ((2, 0), "NONE", (0, 3), "NONE"),
]


def matrix(x, op, column):
    if op == "TRANSPOSE":
        return x.swapaxes(-1, -2)
    if op == "VECTOR":
        return x[..., :, None] if column else x[..., None, :]
    return x


@pytest.mark.parametrize("dtype", [*FLOATS, np.int32, np.int64], ids=str)
@pytest.mark.parametrize("case", MATRICES, ids=str)
def test_matrix_multiply(case, dtype):
    shape0, op0, shape1, op1 = case
    a = uniform(shape0, np.float64, -3, 3, 0).astype(dtype)
    b = uniform(shape1, np.float64, -3, 3, 1).astype(dtype)
    found = evaluate("matrix_multiply", a, b, op0=op0, op1=op1)
    exact = np.int64 if found.dtype.kind == "i" else np.float64
    expected = np.matmul(
        matrix(a, op0, False).astype(exact), matrix(b, op1, True).astype(exact)
    )
    if op0 == "VECTOR":
        expected = expected.squeeze(-2)
    if op1 == "VECTOR":
        expected = expected.squeeze(-1)
    if found.dtype.kind == "i":
        np.testing.assert_array_equal(found, expected)
    else:
        assert found.shape == expected.shape
        np.testing.assert_allclose(
            found.astype(np.float64), expected, rtol=ROUNDING[found.dtype], atol=1e-5
        )


def test_matrix_multiply_errors():
    a, b = np.zeros((2, 3), np.float32), np.zeros((4, 5), np.float32)
    with pytest.raises(OpError, match="the inner dimensions differ"):
        evaluate("matrix_multiply", a, b)
    with pytest.raises(OpError, match="same number of batch dimensions"):
        evaluate("matrix_multiply", a[None], b)
    with pytest.raises(OpError, match="a matrix needs rank 2"):
        evaluate("matrix_multiply", a[0], b)


# ---- Determinant -----------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    "shape", [(1, 1), (2, 2), (2, 3, 3), (3, 1, 2, 5, 5), (4, 12, 12)], ids=str)
def test_determinant(shape, dtype):
    x = uniform(shape, dtype)
    found = evaluate("determinant", x)
    assert found.dtype == dtype
    assert_close(found, np.linalg.det(x.astype(np.float64)))


def test_determinant_agrees_with_onnxruntime():
    x = uniform((7, 6, 6))
    np.testing.assert_allclose(evaluate("determinant", x), run_onnx("Det", [x]), rtol=1e-4)


def test_determinant_of_nothing():
    assert (evaluate("determinant", np.zeros((3, 0, 0), np.float32)) == np.ones(3)).all()
    assert evaluate("determinant", np.zeros((2, 0, 5, 5), np.float32)).shape == (2, 0)


def test_determinant_of_permutations_and_singular_matrices():
    for order in range(1, 6):
        for places in itertools.permutations(range(order)):
            x = np.eye(order, dtype=np.float32)[list(places)]
            assert evaluate("determinant", x) == round(np.linalg.det(x))
    x = uniform((5, 5))
    x[:, 3] = 0
    assert evaluate("determinant", x) == 0
    x[:, 3] = 2 * x[:, 1]  # exact in every step
    assert evaluate("determinant", x) == 0


def test_determinant_far_from_one():
    """Pivots whose product leaves the range of FLOAT on the way."""
    x = np.diag(np.array([1e30, 1e30, 1e-30, 1e-30, 3], np.float32))
    np.testing.assert_allclose(evaluate("determinant", x), 3, rtol=1e-5)
    assert evaluate("determinant", x[:2, :2]) == np.inf
    assert evaluate("determinant", x[[1, 0]][:, [0, 1]]) == -np.inf
    assert evaluate("determinant", x[2:4, 2:4]) == 0


def test_determinant_passes_nan():
    for at in itertools.product(range(3), repeat=2):
        x = uniform((3, 3))
        x[at] = np.nan
        assert np.isnan(evaluate("determinant", x)), at
    x = np.eye(3, dtype=np.float32)
    x[1, 1] = np.inf
    assert evaluate("determinant", x) == np.inf


def test_determinant_errors():
    with pytest.raises(OpError, match="expected square matrices on the last two axes"):
        evaluate("determinant", np.zeros((2, 3), np.float32))
    with pytest.raises(OpError, match="expected square matrices on the last two axes"):
        evaluate("determinant", np.zeros(3, np.float32))


@pytest.mark.parametrize("version", [11, 22])
def test_determinant_in_models(version):
    values = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["b", "n", "m"])]
    node = helper.make_node("Det", ["x"], ["y"])
    graph = helper.make_graph([node], "g", values, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)],
                              ir_version=9)
    shapes = {"x": ((0, 0, 0), (4, 5, 5), (9, 250, 250))}
    compiled = rabbet.compile(model.SerializeToString(), device="cpu", shapes=shapes)
    for shape in ((4, 5, 5), (0, 5, 5), (2, 0, 0), (9, 1, 1), (1, 200, 200)):
        x = uniform(shape) + 20 * np.eye(shape[1], dtype=np.float32)
        x /= 20
        np.testing.assert_allclose(compiled.run({"x": x})["y"],
                                   np.linalg.det(x.astype(np.float64)), rtol=1e-4)
    with pytest.raises(rabbet.Error, match=r"shape \(2, 4, 5\); expected square matrices"):
        compiled.run({"x": uniform((2, 4, 5))})


# ---- Convolution, pooling --------------------------------------------------

CONVOLUTIONS = [
    ((2, 3, 9), (4, 3, 3), {}),
    ((2, 3, 9, 8), (4, 3, 3, 2), {"strides": [2, 1], "pads": [1, 0, 2, 1]}),
    ((1, 4, 7, 7), (6, 2, 3, 3), {"group": 2, "dilations": [2, 1]}),
    ((1, 4, 7, 7), (4, 1, 3, 3), {"group": 4, "pads": [1, 1, 1, 1]}),
    ((1, 2, 5, 6, 7), (3, 2, 2, 3, 2), {"strides": [1, 2, 1]}),
    ((2, 3, 8, 9), (4, 3, 3, 4), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ((2, 3, 8, 9), (4, 3, 4, 3), {"auto_pad": "SAME_LOWER", "strides": [3, 2]}),
    ((0, 3, 8, 9), (4, 3, 3, 3), {}),
]


def window_attrs(onnx_attrs, spatial):
    """Our attributes for those of an ONNX Conv or pool."""
    attrs = {}
    pads = onnx_attrs.get("pads", [0] * (2 * spatial))
    attrs["pre_padding"], attrs["post_padding"] = pads[:spatial], pads[spatial:]
    if "strides" in onnx_attrs:
        attrs["stride_nd"] = onnx_attrs["strides"]
    if "dilations" in onnx_attrs:
        attrs["dilation_nd"] = onnx_attrs["dilations"]
    if "auto_pad" in onnx_attrs:
        attrs["padding_mode"] = onnx_attrs["auto_pad"]
    return attrs


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_convolution(case, bias):
    shape, kernel_shape, onnx_attrs = case
    x, kernel = uniform(shape), uniform(kernel_shape, key=1)
    inputs = [x, kernel] + ([uniform(kernel_shape[:1], key=2)] if bias else [])
    attrs = window_attrs(onnx_attrs, len(shape) - 2)
    attrs["num_groups"] = onnx_attrs.get("group", 1)
    found = evaluate("convolution", *inputs, **attrs)
    expected = run_onnx("Conv", inputs, **onnx_attrs)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_convolution_rounds_up():
    x, kernel = uniform((1, 1, 6)), np.ones((1, 1, 3), np.float32)
    found = evaluate(
        "convolution", x, kernel, stride_nd=[2], padding_mode="EXPLICIT_ROUND_UP"
    )
    padded = np.pad(x[0, 0].astype(np.float64), (0, 1))
    assert_close(found[0, 0], np.array([padded[i : i + 3].sum() for i in (0, 2, 4)]), 8)


@pytest.mark.parametrize("dtype", FLOATS[1:], ids=str)
def test_convolution_of_narrow_floats(dtype):
    x, kernel = uniform((1, 3, 5, 5), dtype), uniform((2, 3, 3, 3), dtype, key=1)
    found = evaluate("convolution", x, kernel)
    expected = np.zeros((1, 2, 3, 3))
    for m, i, j in itertools.product(range(2), range(3), range(3)):
        patch = x[0, :, i : i + 3, j : j + 3].astype(np.float64)
        expected[0, m, i, j] = (patch * kernel[m].astype(np.float64)).sum()
    np.testing.assert_allclose(
        found.astype(np.float64), expected, rtol=ROUNDING[found.dtype], atol=1e-3
    )


def test_convolution_errors():
    x, kernel = uniform((1, 4, 7, 7)), uniform((6, 3, 3, 3))
    with pytest.raises(OpError, match="input 0 has 4 channels"):
        evaluate("convolution", x, kernel)
    with pytest.raises(OpError, match=r"input 2 \('bias'\) has shape \(5,\)"):
        evaluate("convolution", x[:, :3], kernel, uniform((5,)))
    with pytest.raises(OpError, match="'num_groups' is 4"):
        evaluate("convolution", x, kernel, num_groups=4)
    with pytest.raises(OpError, match="attribute 'stride_nd' has 1 elements"):
        evaluate("convolution", x[:, :3], kernel, stride_nd=[1])
    with pytest.raises(OpError, match="less than the 9 that the window covers"):
        evaluate("convolution", x[:, :3], kernel, dilation_nd=[4, 1])
    with pytest.raises(OpError, match=r"input 1 \('kernel'\) is missing"):
        evaluate("convolution", x)


DECONVOLUTIONS = [
    ((2, 3, 9), (3, 4, 3), {}),
    ((2, 3, 5, 4), (3, 4, 3, 2), {"strides": [2, 3], "pads": [1, 0, 2, 1]}),
    ((1, 4, 5, 5), (4, 3, 3, 3), {"group": 2, "dilations": [2, 1]}),
    ((1, 4, 5, 5), (4, 1, 4, 4), {"group": 4, "pads": [1, 1, 1, 1],
                                  "strides": [2, 2]}),
    ((1, 2, 3, 4, 3), (2, 3, 2, 3, 2), {"strides": [1, 2, 3]}),
    ((1, 2, 4, 4), (2, 3, 3, 3), {"strides": [3, 2], "output_padding": [2, 1]}),
    ((2, 3, 4, 5), (3, 4, 3, 4), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ((2, 3, 4, 5), (3, 4, 4, 3), {"auto_pad": "SAME_LOWER", "strides": [3, 2]}),
    ((0, 3, 8, 9), (3, 4, 3, 3), {}),
]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("case", DECONVOLUTIONS, ids=str)
def test_deconvolution(case, bias):
    shape, kernel_shape, onnx_attrs = case
    groups = onnx_attrs.get("group", 1)
    x, kernel = uniform(shape), uniform(kernel_shape, key=1)
    inputs = [x, kernel]
    if bias:
        inputs.append(uniform((kernel_shape[1] * groups,), key=2))
    attrs = window_attrs(onnx_attrs, len(shape) - 2)
    attrs["num_groups"] = groups
    attrs["output_padding"] = onnx_attrs.get("output_padding", [])
    found = evaluate("deconvolution", *inputs, **attrs)
    expected = run_onnx("ConvTranspose", inputs, **onnx_attrs)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_deconvolution_of_blocks_with_gaps():
    x = uniform((1, 1, 3))
    kernel = np.full((1, 1, 2), 2, np.float32)
    found = evaluate(
        "deconvolution", x, kernel, stride_nd=[4], padding_mode="SAME_UPPER"
    )
    expected = np.zeros((3, 4), np.float32)
    expected[:, :2] = 2 * x[0, 0, :, None]
    np.testing.assert_array_equal(found[0, 0], expected.ravel())


def test_deconvolution_errors():
    x, kernel = uniform((1, 4, 7, 7)), uniform((3, 6, 3, 3))
    with pytest.raises(OpError, match="input 0 has 4 channels; the kernel takes 3"):
        evaluate("deconvolution", x, kernel)
    with pytest.raises(OpError, match=r"input 2 \('bias'\) has shape \(5,\)"):
        evaluate("deconvolution", x[:, :3], kernel, uniform((5,)))
    with pytest.raises(OpError, match="'num_groups' is 4"):
        evaluate("deconvolution", x[:, :3], kernel, num_groups=4)
    with pytest.raises(OpError, match="'output_padding' has 1 elements"):
        evaluate("deconvolution", x[:, :3], kernel, output_padding=[1])
    with pytest.raises(OpError, match="would have 9 elements without padding"):
        evaluate("deconvolution", x[:, :3], kernel, pre_padding=[10, 0])


POOLS = [
    ((2, 3, 9), [3], {}),
    ((2, 3, 9, 8), [3, 2], {"strides": [2, 1], "pads": [1, 0, 2, 1]}),
    ((1, 2, 5, 6, 7), [2, 3, 2], {"strides": [1, 2, 2]}),
    ((2, 3, 8, 9), [3, 4], {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ((2, 3, 8, 9), [4, 3], {"auto_pad": "SAME_LOWER", "strides": [3, 2]}),
    ((1, 1, 6, 6), [3, 3], {"strides": [2, 2], "ceil_mode": 1}),
    # Windows that are larger than the image, and than the image with its padding.
    ((2, 3, 2, 2), [320, 320], {"strides": [320, 320], "ceil_mode": 1}),
    ((2, 3, 2, 5), [4, 3], {"strides": [3, 2], "ceil_mode": 1}),
    ((2, 3, 2, 3), [7, 6], {"strides": [4, 5], "pads": [1, 0, 1, 2], "ceil_mode": 1}),
]


@pytest.mark.parametrize("case", POOLS, ids=str)
@pytest.mark.parametrize("kind", ["MAX", "AVERAGE", "INCLUDE"])
def test_pooling(kind, case):
    shape, window, onnx_attrs = case
    x = uniform(shape)
    attrs = window_attrs(onnx_attrs, len(window))
    if onnx_attrs.get("ceil_mode"):
        attrs["padding_mode"] = "EXPLICIT_ROUND_UP"
    found = evaluate(
        "pooling", x, type="AVERAGE" if kind == "INCLUDE" else kind,
        window_size_nd=window, average_count_excludes_padding=kind != "INCLUDE",
        **attrs,
    )
    if kind == "MAX":
        expected = run_onnx("MaxPool", [x], kernel_shape=window, **onnx_attrs)
    else:
        expected = run_onnx(
            "AveragePool", [x], 19, kernel_shape=window,
            count_include_pad=int(kind == "INCLUDE"), **onnx_attrs,
        )
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_pooling_that_rounds_up_over_images_of_any_size():
    """A library's kernel takes windows whose last ones end in padding that ROUND_UP adds,
    at all extents of a range."""
    node = helper.make_node(
        "MaxPool", ["x"], ["y"], kernel_shape=[3, 2], strides=[2, 2], ceil_mode=1
    )
    dims = ["batch", 5, "height", "width"]
    infos = [helper.make_tensor_value_info(n, 1, d) for n, d in (("x", dims), ("y", None))]
    graph = helper.make_graph([node], "pool", infos[:1], infos[1:])
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    shapes = {"x": ((1, 5, 3, 2), (2, 5, 8, 9), (3, 5, 12, 13))}
    built = rabbet.compile(model, device="cpu", shapes=shapes)
    assert "dnnl.pooling" in built.report
    for shape in (*shapes["x"], (1, 5, 9, 8), (2, 5, 4, 3)):
        x = uniform(shape)
        options = {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1}
        np.testing.assert_array_equal(built(x), run_onnx("MaxPool", [x], **options))


LARGE_WINDOWS = [
    ((1, 5, 2, 2), {"kernel_shape": [320, 320], "strides": [320, 320]}),
    ((1, 8, 2, 3), {"kernel_shape": [7, 6], "strides": [4, 5], "pads": [1, 0, 1, 2]}),
]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("case", LARGE_WINDOWS, ids=str)
@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool", "INCLUDE"])
def test_compiled_pooling_by_windows_larger_than_images(kind, case, dynamic):
    shape, given = case
    attrs = {"ceil_mode": 1, **given}
    if kind == "INCLUDE":
        attrs["count_include_pad"] = 1
    op = "MaxPool" if kind == "MaxPool" else "AveragePool"
    node = helper.make_node(op, ["x"], ["y"], **attrs)
    dims = ["batch", "channels", "height", "width"] if dynamic else shape
    infos = [helper.make_tensor_value_info(n, 1, d) for n, d in (("x", dims), ("y", None))]
    graph = helper.make_graph([node], "pool", infos[:1], infos[1:])
    opset = [helper.make_opsetid("", 19)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=9)
    images = [tuple(n * d for d in shape) for n in ((1, 2, 3) if dynamic else (1,))]
    ranges = {"x": (images[0], images[0], images[-1])} if dynamic else None
    built = rabbet.compile(model, device="cpu", shapes=ranges)
    for image in images:
        x = uniform(image)
        expected = run_onnx(op, [x], 19, **attrs)
        found = built(x)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_pooling_too_small():
    """Rounding up adds a stride less one and no more."""
    pool = {"window_size_nd": [8], "stride_nd": [5], "type": "MAX"}
    assert evaluate(
        "pooling", uniform((1, 2, 4)), padding_mode="EXPLICIT_ROUND_UP", **pool
    ).shape == (1, 2, 1)
    with pytest.raises(OpError, match="3 elements and 4 of padding, less than the 8"):
        evaluate("pooling", uniform((1, 2, 3)), padding_mode="EXPLICIT_ROUND_UP", **pool)
    with pytest.raises(OpError, match="7 elements and 0 of padding, less than the 8"):
        evaluate("pooling", uniform((1, 2, 7)), **pool)


def test_pooling_blend():
    x = uniform((1, 2, 6, 6))
    pool = {"window_size_nd": [2, 2], "stride_nd": [2, 2]}
    high = evaluate("pooling", x, type="MAX", **pool).astype(np.float64)
    mean = evaluate("pooling", x, type="AVERAGE", **pool).astype(np.float64)
    found = evaluate("pooling", x, type="MAX_AVERAGE_BLEND", blend_factor=0.25, **pool)
    np.testing.assert_allclose(found, 0.75 * high + 0.25 * mean, rtol=1e-6, atol=1e-6)


# ---- Movement --------------------------------------------------------------

ANY = [np.float32, np.float16, BF16, np.int8, np.uint8, np.int32, np.int64, np.bool_]


def counting(shape, dtype=np.int32):
    return np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)


@pytest.mark.parametrize("dtype", ANY, ids=str)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concatenation(axis, dtype):
    shapes = [[2, 3, 4], [2, 3, 4], [2, 3, 4]]
    for i, extent in enumerate((1, 0, 5)):
        shapes[i][axis] = extent
    parts = [counting(s, dtype) for s in shapes]
    found = evaluate("concatenation", *parts, axis=axis)
    np.testing.assert_array_equal(found, np.concatenate(parts, axis))


def test_concatenation_errors():
    a = counting((2, 3))
    with pytest.raises(OpError, match=r"input 0 has shape \(2, 3\) and input 1 .*axis 1"):
        evaluate("concatenation", a, counting((3, 3)), axis=1)
    with pytest.raises(OpError, match="attribute 'axis' is 2"):
        evaluate("concatenation", a, a, axis=2)
    with pytest.raises(OpError, match="input 0 is a scalar"):
        evaluate("concatenation", counting(()), axis=0)


@pytest.mark.parametrize("dtype", ANY, ids=str)
def test_select(dtype):
    condition = np.array([[True], [False]])
    a, b = counting((2, 3), dtype), counting((1, 3), dtype)[:, ::-1]
    found = evaluate("select", condition, a, b)
    np.testing.assert_array_equal(found, np.where(condition, a, b))


@pytest.mark.parametrize("shape", [(2, 3, 0), (), (5,)], ids=str)
def test_shape(shape):
    found = evaluate("shape", np.zeros(shape, np.float16))
    assert found.dtype == np.int64
    assert found.tolist() == list(shape)


SHUFFLES = [
    ((2, 3, 4), {}, lambda x: x),
    ((2, 3, 4), {"first_transpose": [2, 0, 1]}, lambda x: x.transpose(2, 0, 1)),
    ((2, 3, 4), {"reshape_dims": [4, -1]}, lambda x: x.reshape(4, -1)),
    ((2, 3, 4), {"reshape_dims": [0, -1]}, lambda x: x.reshape(2, -1)),
    (
        (2, 3, 4),
        {
            "first_transpose": [1, 0, 2],
            "reshape_dims": [3, 2, 2, 2],
            "second_transpose": [3, 1, 2, 0],
        },
        lambda x: x.transpose(1, 0, 2).reshape(3, 2, 2, 2).transpose(3, 1, 2, 0),
    ),
    ((1, 1), {"reshape_to_scalar": True}, lambda x: x.reshape(())),
    ((0, 3), {"reshape_dims": [3, -1]}, lambda x: x.reshape(3, 0)),
    (
        (3, 0),
        {"reshape_dims": [0, 5], "zero_is_placeholder": False},
        lambda x: x.reshape(0, 5),
    ),
]


@pytest.mark.parametrize("dtype", ANY, ids=str)
@pytest.mark.parametrize("case", SHUFFLES, ids=lambda c: str(c[:2]))
def test_shuffle(case, dtype):
    shape, attrs, expected = case
    x = counting(shape, dtype)
    np.testing.assert_array_equal(evaluate("shuffle", x, **attrs), expected(x))


def test_shuffle_by_input():
    x = counting((2, 3, 4))
    found = evaluate("shuffle", x, np.array([-1, 6], np.int32))
    np.testing.assert_array_equal(found, x.reshape(4, 6))
    scalar = evaluate("shuffle", counting((1,)), np.zeros(0, np.int64))
    assert scalar.shape == ()


def test_shuffle_errors():
    x = counting((2, 3, 4))
    with pytest.raises(OpError, match=r"\(2, 3, 4\) cannot be reshaped to \(5, -1\)"):
        evaluate("shuffle", x, reshape_dims=[5, -1])
    with pytest.raises(OpError, match="the numbers of elements differ"):
        evaluate("shuffle", x, reshape_dims=[5, 5])
    with pytest.raises(OpError, match="only one can be inferred"):
        evaluate("shuffle", x, reshape_dims=[-1, -1])
    with pytest.raises(OpError, match=r"'first_transpose' is .*permutation"):
        evaluate("shuffle", x, first_transpose=[0, 0, 1])
    with pytest.raises(OpError, match="copies that dimension"):
        evaluate("shuffle", x, reshape_dims=[2, 3, 4, 0])


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("indices", [[0, 2, 1], [[1, -1], [0, 0]], 1], ids=str)
@pytest.mark.parametrize("index_dtype", [np.int32, np.int64])
def test_gather(axis, indices, index_dtype):
    x = counting((3, 4, 5), np.float32)
    index = np.array(indices, index_dtype)
    found = evaluate("gather", x, index, axis=axis)
    np.testing.assert_array_equal(found, np.take(x, index, axis))


def test_gather_out_of_bounds_is_zero():
    x = counting((3, 2), np.float32) + 1
    index = np.array([3, -4, 1, 2**40], np.int64)
    found = evaluate("gather", x, index, axis=0)
    np.testing.assert_array_equal(found, [[0, 0], [0, 0], [3, 4], [0, 0]])


def test_gather_with_shared_axes():
    x = counting((2, 3, 4, 5), np.float32)
    index = rng(0).integers(0, 4, (2, 3, 6)).astype(np.int32)
    found = evaluate("gather", x, index, axis=2, num_elementwise_dims=2)
    expected = np.take_along_axis(x, index[..., None].astype(np.int64), 2)
    np.testing.assert_array_equal(found, expected)
    index = rng(1).integers(0, 5, (2, 6)).astype(np.int32)
    found = evaluate("gather", x, index, axis=3, num_elementwise_dims=1)
    expected = np.stack([np.take(x[i], index[i], 2) for i in range(2)])
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gather_elements(axis):
    x = counting((3, 4, 5), np.float32)
    shape = [2, 3, 4]
    shape[axis] = 7
    index = rng(axis).integers(-x.shape[axis], x.shape[axis], shape)
    found = evaluate("gather", x, index, axis=axis, mode="ELEMENT")
    expected = run_onnx("GatherElements", [x, index], axis=axis)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("batch", [0, 1])
@pytest.mark.parametrize("depth", [1, 2])
def test_gather_nd(batch, depth):
    x = counting((3, 4, 5), np.float32)
    index = rng(batch, depth).integers(0, 3, (3, 2, depth))
    found = evaluate("gather", x, index, mode="ND", num_elementwise_dims=batch)
    expected = run_onnx("GatherND", [x, index], batch_dims=batch)
    np.testing.assert_array_equal(found, expected)


def test_gather_errors():
    x = counting((3, 4))
    with pytest.raises(OpError, match="mode ELEMENT needs equal ranks"):
        evaluate("gather", x, np.zeros(2, np.int32), mode="ELEMENT")
    with pytest.raises(OpError, match="last dimension to be constant"):
        evaluate("gather", x, np.zeros((2, 3), np.int32), mode="ND")
    with pytest.raises(OpError, match=r"input 1 \('indices'\) has type FLOAT"):
        evaluate("gather", x, np.zeros(2, np.float32))


# ---- Slice -----------------------------------------------------------------

PAD_MODES = {"WRAP": "wrap", "CLAMP": "edge", "REFLECT": "reflect"}


@pytest.mark.parametrize("dtype", ANY, ids=str)
def test_slice(dtype):
    x = counting((6, 7), dtype)
    found = evaluate("slice", x, start=[1, 6], shape=[3, 4], stride=[2, -2])
    np.testing.assert_array_equal(found, x[1:6:2, 6::-2])
    found = evaluate("slice", x, start=[2], shape=[3], stride=[1], axes=[-1])
    np.testing.assert_array_equal(found, x[:, 2:5])
    assert evaluate("slice", x, start=[9, 0], shape=[0, 2]).shape == (0, 2)


@pytest.mark.parametrize("mode", PAD_MODES)
def test_slice_pads(mode):
    x = counting((4, 5), np.float32)
    found = evaluate("slice", x, start=[-3, -2], shape=[10, 11], mode=mode)
    expected = np.pad(x, ((3, 3), (2, 4)), PAD_MODES[mode])
    np.testing.assert_array_equal(found, expected)
    backwards = evaluate(
        "slice", x, start=[6, 8], shape=[10, 11], stride=[-1, -1], mode=mode
    )
    np.testing.assert_array_equal(backwards, expected[::-1, ::-1])


def test_slice_fills():
    x = counting((2, 3), np.float32)
    fill = np.array(7.5, np.float32)
    ints = [np.array(v, np.int64) for v in ([-1, 0], [4, 4], [1, 1])]
    found = evaluate("slice", x, *ints, fill, mode="FILL")
    expected = np.pad(x, ((1, 1), (0, 1)), constant_values=7.5)
    np.testing.assert_array_equal(found, expected)
    found = evaluate("slice", x, start=[-1, 0], shape=[4, 4], mode="FILL")
    np.testing.assert_array_equal(found, np.pad(x, ((1, 1), (0, 1))))


def test_slice_by_inputs():
    x = counting((4, 5), np.float32)
    start, shape = np.array([1], np.int32), np.array([2], np.int32)
    axes = np.array([0], np.int64)
    found = evaluate("slice", x, start, shape, None, None, axes)
    np.testing.assert_array_equal(found, x[1:3])


@pytest.mark.parametrize("extent", [1, 2])
def test_slice_reflects_small_axes(extent):
    x = counting((extent,), np.float32) + 1
    found = evaluate("slice", x, start=[-3], shape=[9], mode="REFLECT")
    np.testing.assert_array_equal(found, np.pad(x, (3, 6 - extent), "reflect"))


def test_slice_errors():
    x = counting((4, 5))
    with pytest.raises(OpError, match=r"leave the bounds of axis 1.*5 elements"):
        evaluate("slice", x, start=[0, 3], shape=[4, 3])
    with pytest.raises(OpError, match="'start' has 1 elements; expected 2"):
        evaluate("slice", x, start=[0], shape=[4, 3])
    with pytest.raises(OpError, match="axis 1 twice"):
        evaluate("slice", x, start=[0, 0], shape=[1, 1], axes=[1, -1])
    with pytest.raises(OpError, match="leave the bounds of axis 0"):
        evaluate("slice", np.zeros(0, np.int32), start=[0], shape=[2], mode="WRAP")
    with pytest.raises(OpError, match="dimension 0 of the output would be -1"):
        evaluate("slice", x, start=[0, 0], shape=[-1, 1])


def test_unknown_operator():
    with pytest.raises(OpError, match="did you mean 'softmax'"):
        evaluate("sofmax", counting((2,)))


# ---- Resize ------------------------------------------------------------------

ENUMS = {"nearest": "NEAREST", "linear": "LINEAR", "cubic": "CUBIC"}
COORDINATES = ["half_pixel", "asymmetric", "align_corners", "half_pixel_symmetric"]


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("mode", ENUMS)
@pytest.mark.parametrize("scales", [(2, 2), (0.7, 1.5), (3, 0.4), (1, 1)], ids=str)
def test_resize(mode, coordinates, scales):
    x = uniform((2, 3, 7, 10))
    scales = np.array([1, 1, *scales], np.float32)
    found = evaluate(
        "resize", x, scales=[float(s) for s in scales], resize_mode=ENUMS[mode],
        coordinate_transformation=coordinates.upper(), nearest_rounding="HALF_DOWN",
    )
    expected = run_onnx(
        "Resize", [x, np.zeros(0, np.float32), scales], opset=19, mode=mode,
        coordinate_transformation_mode=coordinates,
    )
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil",
                                      "floor", "ceil"])
def test_resize_rounds(rounding):
    names = {"round_prefer_floor": "HALF_DOWN", "round_prefer_ceil": "HALF_UP"}
    x = uniform((1, 1, 5, 6))
    sizes = np.array([1, 1, 8, 9], np.int64)
    found = evaluate(
        "resize", x, shape=sizes.tolist(),
        coordinate_transformation="ASYMMETRIC",
        nearest_rounding=names.get(rounding, rounding.upper()),
    )
    expected = run_onnx(
        "Resize", [x, None, None, sizes], opset=19, mode="nearest", nearest_mode=rounding,
        coordinate_transformation_mode="asymmetric",
    )
    np.testing.assert_array_equal(found, expected)


def test_resize_extents_are_those_of_the_decimal_number():
    # 0.7f is a little less than 0.7: ten elements become seven all the same.
    for extent, scale, expected in [(10, 0.7, 7), (5, 0.6, 3), (3, 1 / 3, 1), (7, 2, 14)]:
        found = evaluate("resize", np.zeros(extent, np.float32), scales=[scale])
        assert found.shape == (expected,)


def test_resize_errors():
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(OpError, match="'scales' has 1 elements; expected 2"):
        evaluate("resize", x, scales=[2.0])
    with pytest.raises(OpError, match="'scales' is -1; expected a number above 0"):
        evaluate("resize", x, scales=[-1.0, 1.0])
    with pytest.raises(OpError, match="resize_mode LINEAR needs FLOAT"):
        evaluate("resize", x.astype(np.int32), scales=[1.0, 1.0], resize_mode="LINEAR")
    with pytest.raises(OpError, match="axis 0 has no elements"):
        evaluate("resize", x[:0], shape=[2, 3])


# ---- The best ----------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.int64], ids=str)
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_topk(dtype, largest, axis):
    rng = np.random.default_rng(5)
    x = rng.integers(-4, 5, (5, 6, 7)).astype(dtype)
    values, indices = evaluate_all(
        "topk", 2, x, op="MAX" if largest else "MIN", k=4, axes=1 << axis,
        indices_type="INT64",
    )
    key = -x.astype(np.float64) if largest else x.astype(np.float64)
    expected = np.argsort(key, axis, kind="stable").take(range(4), axis)
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(x, expected, axis))


def test_topk_of_special_numbers():
    x = np.array([0.0, np.nan, -0.0, np.inf, -np.inf, 1], np.float32)
    _, indices = evaluate_all("topk", 2, x, op="MAX", k=6, axes=1)
    assert indices.tolist() == [1, 3, 5, 0, 2, 4]
    _, indices = evaluate_all("topk", 2, x, op="MIN", k=6, axes=1)
    assert indices.tolist() == [4, 0, 2, 5, 3, 1]


def test_topk_errors():
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(OpError, match="k is 4; axis 1 has 3 elements"):
        evaluate_all("topk", 2, x, op="MAX", k=4, axes=2)
    with pytest.raises(OpError, match="one bit must be set"):
        evaluate_all("topk", 2, x, op="MAX", axes=3)


# ---- Running sums, scatter ---------------------------------------------------


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_cumulative(axis, reverse, exclusive):
    x = uniform((3, 4, 5))
    found = evaluate("cumulative", x, axis=axis, reverse=reverse, exclusive=exclusive)
    expected = run_onnx(
        "CumSum", [x, np.array(axis)], reverse=int(reverse), exclusive=int(exclusive)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "min", "max"])
@pytest.mark.parametrize("axis", [0, -1])
def test_scatter_elements(axis, reduction):
    rng = np.random.default_rng(3)
    x, updates = uniform((5, 6)), uniform((3, 4), key=1)
    extent = x.shape[axis]
    # Distinct in each row and column, some counted from the end.
    indices = np.stack([rng.permutation(extent)[:4] for _ in range(3)])
    if axis == 0:
        indices = np.stack([rng.permutation(extent)[:3] for _ in range(4)], 1)
    indices[::2] -= extent
    found = evaluate("scatter", x, indices, updates, mode="ELEMENT", axis=axis,
                     reduction=reduction.upper())
    expected = run_onnx("ScatterElements", [x, indices, updates], opset=18, axis=axis,
                        reduction=reduction)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "min", "max"])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_scatter_nd(depth, reduction):
    x = uniform((4, 5, 6))
    indices = np.array([[3, 1, 2], [0, 4, 5], [1, 0, 0]])[:, :depth]
    updates = uniform((3, *x.shape[depth:]), key=1)
    found = evaluate("scatter", x, indices, updates, mode="ND",
                     reduction=reduction.upper())
    expected = run_onnx("ScatterND", [x, indices, updates], opset=18,
                        reduction=reduction)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_scatter_leaves_out_what_is_out_of_bounds():
    x = np.arange(4, dtype=np.int32)
    found = evaluate("scatter", x, np.array([[4], [-5], [-1]]),
                     np.array([7, 8, 9], np.int32), mode="ND")
    assert found.tolist() == [0, 1, 2, 9]


def test_scatter_errors():
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(OpError, match="indices and updates of one shape"):
        evaluate("scatter", x, np.zeros((2, 2), np.int64), x, mode="ELEMENT")
    with pytest.raises(OpError, match=r"'updates'.* has type INT32"):
        evaluate("scatter", x, np.zeros((1, 1), np.int64), x.astype(np.int32), mode="ND")
    with pytest.raises(OpError, match="last dimension to be constant"):
        evaluate("scatter", x, np.zeros((1, 3), np.int64), x, mode="ND")


# ---- Grids -------------------------------------------------------------------


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_grid_sample(mode, padding, align):
    names = {"zeros": "FILL", "border": "CLAMP", "reflection": "REFLECT"}
    x = uniform((2, 3, 5, 6))
    grid = uniform((2, 4, 7, 2), key=1)
    found = evaluate("grid_sample", x, grid, interpolation_mode=mode.upper(),
                     sample_mode=names[padding], align_corners=align)
    expected = run_onnx("GridSample", [x, grid], opset=20, mode=mode,
                        padding_mode=padding, align_corners=int(align))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_grid_sample_of_volumes(mode, padding):
    names = {"zeros": "FILL", "border": "CLAMP", "reflection": "REFLECT"}
    x, grid = uniform((2, 3, 4, 5, 6)), uniform((2, 3, 2, 4, 3), key=1)
    found = evaluate("grid_sample", x, grid, interpolation_mode=mode.upper(),
                     sample_mode=names[padding])
    expected = run_onnx("GridSample", [x, grid], opset=20, mode=mode,
                        padding_mode=padding)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_grid_sample_errors():
    x, grid = np.zeros((1, 1, 3, 3), np.float32), np.zeros((1, 2, 2, 3), np.float32)
    with pytest.raises(OpError, match=r"expected \(batch, channels, height, width\)"):
        evaluate("grid_sample", x, grid)


# ---- Regions -----------------------------------------------------------------

ROI_MODES = {"avg": "AVERAGE", "max": "MAX"}


def roi_inputs(regions=9, key=()):
    """An image, regions inside and partly outside of it; one has no extent."""
    x = uniform((2, 5, 11, 13), key=key)
    rois = uniform((regions, 2, 2), low=-8.0, high=34.0, key=key)
    rois = np.sort(rois, axis=1).reshape(regions, 4)
    rois[0, 2:] = rois[0, :2]
    return x, rois, rng(key).integers(0, 2, regions)


def roi_align(x, rois, indices, mode="avg", coordinates="half_pixel", **attrs):
    return evaluate(
        "roi_align", x, rois, indices, mode=ROI_MODES[mode],
        coordinate_transformation_mode=coordinates.upper(), **attrs)


@pytest.mark.parametrize("ratio", [0, 1, 3])
@pytest.mark.parametrize("coordinates", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_roi_align(mode, coordinates, ratio):
    for key in range(4):
        inputs = roi_inputs(key=key)
        if ratio > 0:  # an adaptive number of samples would be negative
            inputs[1][1] = inputs[1][1, [2, 3, 0, 1]]
        attrs = {"output_height": 1 + key, "output_width": 4 - key, "sampling_ratio": ratio,
                 "spatial_scale": (0.5, 0.25, 1.0, 0.4)[key]}
        found = roi_align(*inputs, mode, coordinates, **attrs)
        expected = run_onnx("RoiAlign", inputs, opset=16, mode=mode,
                            coordinate_transformation_mode=coordinates, **attrs)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, BF16])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_roi_align_of_narrow_types(mode, dtype):
    x, rois, indices = roi_inputs()
    x, rois = x.astype(dtype), rois.astype(dtype)
    attrs = {"output_height": 3, "output_width": 2, "sampling_ratio": 2}
    expected = run_onnx("RoiAlign", [x.astype(np.float32), rois.astype(np.float32), indices],
                        opset=16, mode=mode, **attrs)
    found = roi_align(x, rois, indices, mode, **attrs)
    assert found.dtype == dtype
    np.testing.assert_allclose(found.astype(np.float32), expected,
                               rtol=2 * ROUNDING[np.dtype(dtype)], atol=1e-6)


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_roi_align_of_regions_that_are_none(mode):
    """The same with NaN in the image, which samples of nothing must not read."""
    x, rois, _ = roi_inputs(6)
    rois[0], rois[1, 2], rois[2, 0], rois[3, 2:] = np.nan, np.inf, -np.inf, 3e38
    x[1] = np.nan
    for ratio in (0, 2):
        found = roi_align(x, rois, np.array([0, 0, 0, 0, -1, 2**62]), mode,
                          output_height=2, output_width=2, sampling_ratio=ratio)
        np.testing.assert_array_equal(found, np.zeros_like(found))
    turned = np.array([[9, 9, 2, 2]], np.float32)
    assert (roi_align(x, turned, np.zeros(1, int), mode, output_height=2) == 0).all()
    assert roi_align(x, rois[:0], np.zeros(0, np.int32), mode).shape == (0, 5, 1, 1)


def test_roi_align_of_a_region_far_larger_than_the_image():
    """Samples lie at whole numbers, those at -1 and at the end count as the border's."""
    x = uniform((1, 2, 4, 3))
    far = float(2**20)
    found = roi_align(x, np.array([[-far, -far, far, far]], np.float32), np.zeros(1, int))
    rows, columns = np.array([2, 1, 1, 2.0]), np.array([2, 1, 2.0])
    expected = np.einsum("nchw,h,w->nc", x.astype(np.float64), rows, columns)
    np.testing.assert_allclose(found[:, :, 0, 0], expected / (2 * far) ** 2, rtol=1e-6)
    largest = roi_align(abs(x), np.array([[-far, -far, far, far]], np.float32),
                        np.zeros(1, int), "max")
    np.testing.assert_array_equal(largest[0, :, 0, 0], abs(x).max((0, 2, 3)))


@pytest.mark.parametrize("region", [[1, 1, 3, 3], [3, 3, 1, 1], [2, 2, 2, 2]])
def test_roi_align_of_most_samples(region):
    """Whatever the region is: a reversed one and an empty one have as many as others."""
    x, rois = uniform((1, 2, 4, 3)), np.array([region], np.float32)
    found = roi_align(x, rois, np.zeros(1, int), sampling_ratio=256)
    steps = (np.arange(256) + 0.5) / 256
    weights = []
    for first, last, extent in zip(region[:2], region[2:], (3, 4), strict=True):
        at = np.clip(first - 0.5 + steps * (last - first), 0, extent - 1)
        weights.append(np.maximum(0, 1 - abs(at[:, None] - np.arange(extent))).mean(0))
    expected = np.einsum("nchw,w,h->nc", x.astype(np.float64), *weights)
    np.testing.assert_allclose(found[:, :, 0, 0], expected, rtol=1e-5, atol=1e-6)


def test_roi_align_errors():
    x, rois, indices = roi_inputs()
    with pytest.raises(OpError, match=r"expected .*\(regions, 4\) and \(regions\)"):
        evaluate("roi_align", x, rois, indices[1:])
    with pytest.raises(OpError, match="'sampling_ratio' is -1; expected a number from 0"):
        evaluate("roi_align", x, rois, indices, sampling_ratio=-1)
    with pytest.raises(OpError, match=r"'sampling_ratio' is 257; expected a .* from 0 to 256"):
        evaluate("roi_align", x, rois, indices, sampling_ratio=257)
    with pytest.raises(OpError, match="'output_width' is 0; expected a number from 1"):
        evaluate("roi_align", x, rois, indices, output_width=0)
    with pytest.raises(OpError, match="axis 2 of the input has 0 elements"):
        evaluate("roi_align", x[:, :, :0], rois, indices)


@pytest.mark.parametrize("version", [10, 16])
def test_roi_align_in_models(version):
    """Each version has a default of its own for where elements lie."""
    x, rois, indices = roi_inputs()
    values = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), dims)
              for name, a, dims in (("x", x, x.shape), ("rois", rois, ["n", 4]),
                                    ("indices", indices, ["n"]))]
    node = helper.make_node("RoiAlign", ["x", "rois", "indices"], ["y"],
                            output_height=2, output_width=3, spatial_scale=0.5)
    graph = helper.make_graph([node], "g", values, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)],
                              ir_version=9)
    shapes = {"rois": ((0, 4), (9, 4), (9, 4)), "indices": ((0,), (9,), (9,))}
    compiled = rabbet.compile(model.SerializeToString(), device="cpu", shapes=shapes)
    for count in (9, 0, 4):
        found = compiled.run({"x": x, "rois": rois[:count], "indices": indices[:count]})["y"]
        expected = run_onnx("RoiAlign", [x, rois, indices], opset=version, output_height=2,
                            output_width=3, spatial_scale=0.5)[:count]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


# ---- Fills -------------------------------------------------------------------


def philox(seed, position):
    """The first block of NumPy's generator is for counter 1."""
    counter = [position & 0xFFFFFFFF, position >> 32, 0, 0]
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [(b >> 32) ^ counter[1] ^ key[0], b & 0xFFFFFFFF,
                   (a >> 32) ^ counter[3] ^ key[1], a & 0xFFFFFFFF]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return counter


def test_philox_gives_the_published_numbers():
    # Random123's known answers: all zeros.
    assert philox(0, 0) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def test_fill_linspace():
    found = evaluate("fill", None, np.float32(2).reshape(()),
                     np.array([10, 0.5], np.float32), operation="LINSPACE", shape=[3, 4])
    expected = 2 + 10 * np.arange(3)[:, None] + 0.5 * np.arange(4)
    np.testing.assert_array_equal(found, expected.astype(np.float32))
    found = evaluate("fill", operation="LINSPACE", shape=[5], alpha=-3.0, beta=2.0,
                     to_type="INT64")
    assert found.tolist() == [-3, -1, 1, 3, 5]


def test_fill_random():
    found = evaluate("fill", operation="RANDOM_UNIFORM", shape=[100], alpha=-1.0,
                     beta=3.0, seed=77)
    words = [philox(77, i)[0] for i in range(100)]
    expected = np.float32(-1) + np.float32(4) * np.array(
        [np.float32(w >> 8) / np.float32(2**24) for w in words], np.float32)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    found = evaluate("fill", operation="RANDOM_NORMAL", shape=[200, 100], alpha=5.0,
                     beta=2.0, seed=1)
    assert abs(found.mean() - 5) < 0.1
    assert abs(found.std() - 2) < 0.1


def test_fill_errors():
    with pytest.raises(OpError, match="random numbers are FLOAT, HALF or BF16"):
        evaluate("fill", operation="RANDOM_NORMAL", shape=[2], to_type="INT32")
    with pytest.raises(OpError, match="a step for each axis"):
        evaluate("fill", operation="LINSPACE", shape=[2, 3])
    with pytest.raises(OpError, match="'shape' is -1; expected 0 or more"):
        evaluate("fill", operation="LINSPACE", shape=[-1])
