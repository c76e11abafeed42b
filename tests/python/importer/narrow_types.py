"""Models with element types of 8 bits and fewer, beside what ml_dtypes and NumPy compute."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import rabbet
from onnx import TensorProto, helper

from tests.python.support.onnx_evaluate import held

REALS = {
    "FLOAT8E4M3FN": ml_dtypes.float8_e4m3fn,
    "FLOAT8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "FLOAT8E5M2": ml_dtypes.float8_e5m2,
    "FLOAT8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "FLOAT6E2M3": ml_dtypes.float6_e2m3fn,
    "FLOAT6E3M2": ml_dtypes.float6_e3m2fn,
    "FLOAT4E2M1": ml_dtypes.float4_e2m1fn,
}
INTEGERS = {
    "INT2": ml_dtypes.int2,
    "UINT2": ml_dtypes.uint2,
    "INT4": ml_dtypes.int4,
    "UINT4": ml_dtypes.uint4,
    "INT8": np.int8,
    "UINT8": np.uint8,
    "INT16": np.int16,
    "UINT16": np.uint16,
}
TYPES = {**INTEGERS, **REALS}
OPSET = 28


def run(nodes: list[Any], x: np.ndarray, weights: list[Any] = (), device: str = "cpu") -> Any:
    """The value `y` of a model with the input `x` of any number of rows."""
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", kind, ["rows", *x.shape[1:]])],
        [onnx.ValueInfoProto(name="y")],
        list(weights),
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    return rabbet.compile(
        model.SerializeToString(),
        device=device,
        optimization_level=0,
        shapes={"x": tuple((rows, *x.shape[1:]) for rows in (0, x.shape[0], x.shape[0]))},
    )(held(x))


def values(name: str) -> np.ndarray:
    """Numbers of the type, those between two neighbours, too large ones, infinities, NaN."""
    dtype = REALS[name]
    bits = 4 if "4E" in name else 6 if "6E" in name else 8
    codes = np.arange(2**bits, dtype=np.uint8).view(dtype).astype(np.float32)
    finite = np.unique(codes[np.isfinite(codes)])
    middle = (finite[1:] + finite[:-1]) / 2
    largest = finite[-1]
    edges = [largest * f for f in (1.01, 1.03, 1.0625, 1.125, 1.25, 1.5, 2, 1e4)]
    more = np.array([*edges, 1e-30, 0, np.inf, np.nan], np.float32)
    near = np.concatenate([np.nextafter(middle, np.float32(s)) for s in (-1e9, 1e9)])
    x = np.concatenate([finite, middle, near, more, -more]).astype(np.float32)
    return np.resize(x, (-(-x.size // 8), 8))


def cast_of(name: str, x: np.ndarray, saturate: bool) -> np.ndarray:
    """The table of the operator Cast; ml_dtypes rounds as it asks without saturation."""
    dtype = REALS[name]
    y = x.astype(dtype)
    most = np.float32(ml_dtypes.finfo(dtype).max)
    if saturate:
        y = np.where(np.isnan(x), x, np.clip(x, -most, most)).astype(dtype)
    return y


def check_cast(name: str, saturate: bool, device: str) -> None:
    x = values(name)
    node = helper.make_node(
        "Cast", ["x"], ["y"], to=TensorProto.DataType.Value(name), saturate=int(saturate)
    )
    found = np.asarray(run([node], x, device=device))
    expected = held(cast_of(name, x, saturate))
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found.astype(np.float32), expected.astype(np.float32))


def _parameters(layout: str, shape: tuple[int, int], name: str) -> tuple[Any, Any, Any, Any]:
    """Scale, zero point, both beside each element, and the attributes that say so."""
    rng = np.random.default_rng(len(layout))
    of = {"one": (), "axis": (shape[1],), "blocks": (shape[0], -(-shape[1] // 4))}[layout]
    scale = rng.uniform(0.3, 2, of).astype(np.float32)
    zero = np.zeros(of, np.float32)
    if name in INTEGERS:
        limits = ml_dtypes.iinfo(INTEGERS[name])
        zero = rng.integers(limits.min, limits.max, of, endpoint=True)
    wide = [np.asarray(scale), np.asarray(zero)]
    if layout == "blocks":
        wide = [np.repeat(w, 4, axis=1)[:, : shape[1]] for w in wide]
    return scale, zero.astype(TYPES[name]), wide, {"blocks": {"block_size": 4}}.get(layout, {})


def check_quantize(name: str, layout: str, device: str) -> None:
    """QuantizeLinear, then DequantizeLinear; the numbers between them, and those after."""
    shape, dtype = (6, 10), TYPES[name]
    rng = np.random.default_rng(7)
    scale, zero, (wide, wide_zero), attrs = _parameters(layout, shape, name)
    x = rng.uniform(-9, 9, shape).astype(np.float32)
    scaled = x / wide
    if name in INTEGERS:
        limits = ml_dtypes.iinfo(dtype)
        q = np.clip(np.rint(scaled) + wide_zero, limits.min, limits.max)
    else:
        q = cast_of(name, scaled, True).astype(np.float32)
    weights = [onnx.numpy_helper.from_array(a, n) for n, a in (("s", scale), ("z", zero))]
    quantize = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=1, **attrs)
    back = helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=1, **attrs)
    same = helper.make_node("Identity", ["q"], ["y"])
    found = np.asarray(run([quantize, same], x, weights, device)).astype(np.float32)
    np.testing.assert_array_equal(found, q)
    expected = ((q - wide_zero) * wide).astype(np.float32)
    np.testing.assert_allclose(run([quantize, back], x, weights, device), expected, rtol=1e-6)
