"""Integers of types that networks hold in wider ones: INT16, UINT16, UINT32 and UINT64."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import rabbet
from onnx import helper, numpy_helper

from tests.python.support.onnx_evaluate import held

TYPES = ["int16", "uint16", "uint32", "uint64"]
NARROW = TYPES[:3]


def run(nodes: list[Any], inputs: dict[str, Any], constants: dict[str, Any] | None = None) -> Any:
    kinds = {name: helper.np_dtype_to_tensor_dtype(x.dtype) for name, x in inputs.items()}
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info(n, kinds[n], x.shape) for n, x in inputs.items()],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(x, n) for n, x in (constants or {}).items()])  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    compiled = rabbet.compile(
        model.SerializeToString(), device="cpu", threads=1, optimization_level=0)
    return np.asarray(compiled(*[held(x) for x in inputs.values()]))


def numbers(rng: Any, dtype: str, shape: tuple[int, ...] = (50,)) -> Any:
    info = np.iinfo(dtype)
    most = min(info.max, 2**62)
    return rng.integers(info.min, most, shape, dtype=dtype, endpoint=True)


ARITHMETIC = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("operator", ARITHMETIC)
def test_results_wrap(operator: str, dtype: str) -> None:
    rng = np.random.default_rng(len(dtype))
    a, b = numbers(rng, dtype), numbers(rng, dtype)
    found = run([helper.make_node(operator, ["a", "b"], ["y"])], {"a": a, "b": b})
    np.testing.assert_array_equal(found, held(ARITHMETIC[operator](a, b)))


@pytest.mark.parametrize("dtype", NARROW)
def test_what_follows_sees_wrapped_numbers(dtype: str) -> None:
    """a + b < a, which tells an overflow of unsigned numbers."""
    rng = np.random.default_rng(1)
    a, b = numbers(rng, dtype), numbers(rng, dtype)
    nodes = [helper.make_node("Add", ["a", "b"], ["s"]),
             helper.make_node("Less", ["s", "a"], ["y"])]
    np.testing.assert_array_equal(run(nodes, {"a": a, "b": b}), (a + b) < a)


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("operator", ["BitwiseNot", "Neg", "Abs"])
def test_one_number(operator: str, dtype: str) -> None:
    if operator != "BitwiseNot" and dtype != "int16":
        pytest.skip("of signed numbers")
    x = np.append(numbers(np.random.default_rng(2), dtype), np.array(np.iinfo(dtype).min, dtype))
    function = {"BitwiseNot": np.invert, "Neg": np.negative, "Abs": np.abs}[operator]
    found = run([helper.make_node(operator, ["a"], ["y"])], {"a": x})
    np.testing.assert_array_equal(found, held(function(x)))


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_shifts(dtype: str, direction: str) -> None:
    rng = np.random.default_rng(3)
    a, b = numbers(rng, dtype), rng.integers(0, 16, 50).astype(dtype)
    node = helper.make_node("BitShift", ["a", "b"], ["y"], direction=direction)
    shift = np.left_shift if direction == "LEFT" else np.right_shift
    np.testing.assert_array_equal(run([node], {"a": a, "b": b}), held(shift(a, b)))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("source", ["int64", "int32", "int8", "bool"])
def test_casts_take_the_low_bits(source: str, dtype: str) -> None:
    rng = np.random.default_rng(4)
    x = rng.integers(0, 2, 50) > 0 if source == "bool" else numbers(rng, source)
    to = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    found = run([helper.make_node("Cast", ["a"], ["y"], to=to)], {"a": x})
    np.testing.assert_array_equal(found, held(x.astype(dtype)))


@pytest.mark.parametrize("dtype", NARROW)
def test_a_cast_back_ends_it(dtype: str) -> None:
    """Sums of INT64 do not wrap, though they began as narrow ones."""
    rng = np.random.default_rng(5)
    a = numbers(rng, dtype)
    nodes = [helper.make_node("Cast", ["a"], ["w"], to=onnx.TensorProto.INT64),
             helper.make_node("Add", ["w", "w"], ["y"])]
    np.testing.assert_array_equal(run(nodes, {"a": a}), a.astype(np.int64) * 2)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("raw", [False, True])
def test_constants(raw: bool, dtype: str) -> None:
    x = numbers(np.random.default_rng(6), dtype, (7,))
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    tensor = helper.make_tensor("c", kind, [7], x.tobytes() if raw else x.tolist(), raw=raw)
    nodes = [helper.make_node("Constant", [], ["c"], value=tensor),
             helper.make_node("Gather", ["c", "i"], ["y"])]
    index = np.array([6, 0, 3])
    np.testing.assert_array_equal(run(nodes, {"i": index}), held(x[index]))


def test_numbers_beyond_int64_are_refused() -> None:
    x = np.array([1, 2**63], np.uint64)
    node = helper.make_node("Add", ["a", "b"], ["y"])
    with pytest.raises(rabbet.Error, match="element 1 is 9223372036854775808; numbers of UINT64"):
        run([node], {"a": np.array([1, 2], np.uint64)}, {"b": x})


def test_operators_without_a_rule_say_so() -> None:
    x = np.zeros((2, 2), np.uint32)
    with pytest.raises(rabbet.Error, match=r"\(MatMul, .* not imported for UINT32"):
        run([helper.make_node("MatMul", ["a", "a"], ["y"])], {"a": x})


@pytest.mark.parametrize("dtype", ["int16", "uint16"])
@pytest.mark.parametrize("channels", [False, True])
def test_quantization_to_16_bits(channels: bool, dtype: str) -> None:
    """Saturated, and dequantized again."""
    rng = np.random.default_rng(7)
    x = (rng.standard_normal((4, 3, 50)) * 4).astype(np.float32)
    scale = rng.uniform(5e-5, 2e-4, 3 if channels else ()).astype(np.float32)
    zero = np.asarray(rng.integers(0, 9000, scale.shape), dtype)
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=1),
             helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=1)]
    found = run(nodes, {"x": x}, {"s": scale, "z": zero})
    spread = scale[:, None] if channels else scale
    zeros = (zero[:, None] if channels else zero).astype(np.int64)
    info = np.iinfo(dtype)
    numbers = np.clip(np.rint(x / spread) + zeros, info.min, info.max)
    assert np.isin(numbers, (info.min, info.max)).any()
    np.testing.assert_allclose(found, (numbers - zeros) * spread, atol=3e-4)
