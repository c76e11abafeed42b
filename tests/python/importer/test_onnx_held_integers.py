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


def value(name: str, dtype: str, shape: Any = None) -> Any:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)),
                                         shape)


def const(name: str, x: Any) -> Any:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.asarray(x)))


@pytest.mark.parametrize("trips", [3, 70])
@pytest.mark.parametrize("dtype", NARROW)
def test_states_and_stacks_of_loops_wrap(dtype: str, trips: int) -> None:
    """Of 3 iterations, which are unrolled, and of 70, which are not."""
    rng = np.random.default_rng(2)
    a, b = numbers(rng, dtype, (5,)), numbers(rng, dtype, (5,))
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]),
         helper.make_node("Add", ["s", "b"], ["t"]), helper.make_node("Identity", ["t"], ["u"])],
        "body", [value("i", "int64", []), value("go", "bool", []), value("s", dtype, [5])],
        [value("on", "bool", []), value("t", dtype, [5]), value("u", dtype, [5])])
    nodes = [const("n", np.int64(trips)),
             helper.make_node("Loop", ["n", "", "a"], ["last", "all"], body=body),
             helper.make_node("Add", ["last", "all"], ["y"])]
    states = []
    state = a
    for _ in range(trips):
        state = state + b
        states.append(state)
    expected = state + np.stack(states)
    np.testing.assert_array_equal(run(nodes, {"a": a, "b": b}), held(expected))


@pytest.mark.parametrize("length", [3, 70])
@pytest.mark.parametrize("dtype", NARROW)
def test_slices_of_scans_wrap(dtype: str, length: int) -> None:
    rng = np.random.default_rng(3)
    a, x = numbers(rng, dtype, (4,)), numbers(rng, dtype, (length, 4))
    body = helper.make_graph(
        [helper.make_node("Mul", ["s", "v"], ["t"]), helper.make_node("Add", ["v", "v"], ["w"])],
        "body", [value("s", dtype, [4]), value("v", dtype, [4])],
        [value("t", dtype, [4]), value("w", dtype, [4])])
    nodes = [helper.make_node("Scan", ["a", "x"], ["last", "all"], body=body, num_scan_inputs=1),
             helper.make_node("Sub", ["last", "all"], ["y"])]
    state = a
    for row in x:
        state = state * row
    np.testing.assert_array_equal(run(nodes, {"a": a, "x": x}), held(state - (x + x)))


@pytest.mark.parametrize("dtype", NARROW)
def test_what_branches_give_wraps(dtype: str) -> None:
    rng = np.random.default_rng(4)
    a, b = numbers(rng, dtype), numbers(rng, dtype)
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node(kind, ["a", "b"], [name])], name, [], [value(name, dtype)])
        for name, kind in (("then", "Max"), ("else", "Min"))
    }
    nodes = [helper.make_node("If", ["c"], ["x"], **branches),
             helper.make_node("Add", ["x", "a"], ["y"])]
    for chosen in (True, False):
        picked = (np.maximum if chosen else np.minimum)(a, b)
        found = run(nodes, {"c": np.array(chosen), "a": a, "b": b})
        np.testing.assert_array_equal(found, held(picked + a))


@pytest.mark.parametrize("dtype", NARROW)
def test_tensors_of_sequences_wrap(dtype: str) -> None:
    rng = np.random.default_rng(5)
    a, b = numbers(rng, dtype, (4, 3)), numbers(rng, dtype, (2, 3))
    nodes = [
        helper.make_node("SplitToSequence", ["a"], ["s"], axis=0), const("at", np.int64(1)),
        helper.make_node("SequenceAt", ["s", "at"], ["row"]),
        helper.make_node("SequenceConstruct", ["a", "b"], ["t"]),
        helper.make_node("ConcatFromSequence", ["t"], ["joined"], axis=0),
        helper.make_node("Add", ["joined", "row"], ["y"]),
    ]
    expected = np.concatenate([a, b]) + a[1:2]
    np.testing.assert_array_equal(run(nodes, {"a": a, "b": b}), held(expected))


def of_no_shape(name: str, dtype: str) -> Any:
    return helper.make_tensor_sequence_value_info(
        name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), None)


@pytest.mark.parametrize("dtype", NARROW)
def test_tensors_of_sequences_wrap_in_branches(dtype: str) -> None:
    """A branch reads a sequence from outside."""
    rng = np.random.default_rng(7)
    a, b = numbers(rng, dtype), numbers(rng, dtype)
    branches = {
        f"{name}_branch": helper.make_graph(
            [const(f"{name}_at", np.int64(at)),
             helper.make_node("SequenceAt", ["s", f"{name}_at"], [f"{name}_x"]),
             helper.make_node("Add", [f"{name}_x", f"{name}_x"], [name])],
            name, [], [value(name, dtype)])
        for name, at in (("then", 0), ("else", 1))
    }
    nodes = [helper.make_node("SequenceConstruct", ["a", "b"], ["s"]),
             helper.make_node("If", ["c"], ["x"], **branches),
             helper.make_node("Max", ["x", "a"], ["y"])]
    for chosen in (True, False):
        one = a if chosen else b
        found = run(nodes, {"c": np.array(chosen), "a": a, "b": b})
        np.testing.assert_array_equal(found, held(np.maximum(one + one, a)))


@pytest.mark.parametrize("dtype", NARROW)
def test_sequences_that_begin_empty_wrap(dtype: str) -> None:
    """One that a branch leaves empty, and one that a loop begins empty and reads."""
    rng = np.random.default_rng(8)
    a, x = numbers(rng, dtype, (3,)), numbers(rng, dtype, (70, 3))
    empty = helper.make_node("SequenceEmpty", [], ["e"],
                             dtype=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    branches = {
        "then_branch": helper.make_graph([helper.make_node("Identity", ["e"], ["none"])], "then",
                                         [], [of_no_shape("none", dtype)]),
        "else_branch": helper.make_graph([helper.make_node("SequenceConstruct", ["a"], ["one"])],
                                         "else", [], [of_no_shape("one", dtype)]),
    }
    nodes = [empty, helper.make_node("If", ["c"], ["s"], **branches),
             helper.make_node("ConcatFromSequence", ["s"], ["joined"], axis=0),
             helper.make_node("Add", ["joined", "joined"], ["y"])]
    for chosen in (True, False):
        found = run(nodes, {"c": np.array(chosen), "a": a})
        np.testing.assert_array_equal(found, held(a[:0] if chosen else a + a))
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]),
         helper.make_node("Gather", ["x", "i"], ["row"], axis=0),
         helper.make_node("SequenceInsert", ["had", "row"], ["has"]), const("first", np.int64(0)),
         helper.make_node("SequenceAt", ["has", "first"], ["v"]),
         helper.make_node("Add", ["v", "v"], ["w"])],
        "body", [value("i", "int64", []), value("go", "bool", []), of_no_shape("had", dtype)],
        [value("on", "bool", []), of_no_shape("has", dtype), value("w", dtype, [3])])
    nodes = [empty, const("n", np.int64(70)),
             helper.make_node("Loop", ["n", "", "e"], ["s", "y"], body=body)]
    expected = np.stack([x[0] + x[0]] * 70)
    np.testing.assert_array_equal(run(nodes, {"x": x}), held(expected))


@pytest.mark.parametrize("dtype", NARROW)
def test_resized_images_wrap(dtype: str) -> None:
    rng = np.random.default_rng(6)
    a = numbers(rng, dtype, (1, 1, 3, 4))
    nodes = [const("scales", np.array([1, 1, 2, 2], np.float32)),
             helper.make_node("Resize", ["a", "", "scales"], ["big"], mode="nearest"),
             helper.make_node("Add", ["big", "big"], ["y"])]
    big = a.repeat(2, 2).repeat(2, 3)
    np.testing.assert_array_equal(run(nodes, {"a": a}), held(big + big))
