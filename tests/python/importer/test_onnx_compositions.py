"""Operators composed of others: bits, running products, random choices, layers with a
state. Shapes are random, known or not; results are NumPy's or the onnx package's."""

import numpy as np
import pytest
import rabbet
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator


def kind(array):
    return helper.np_dtype_to_tensor_dtype(np.dtype(array))


def model_of(node, inputs, constants=(), opset=28, outputs=None, free=()):
    """`free`: axes of all inputs that are not known."""
    constants = dict(constants)
    given = [helper.make_tensor_value_info(
        n, kind(a.dtype), [f"d{i}" if i in free else d for i, d in enumerate(a.shape)])
        for n, a in inputs.items()]
    outputs = outputs or dict.fromkeys(node.output, np.float32)
    graph = helper.make_graph(
        [node], "g", given,
        [helper.make_tensor_value_info(n, kind(t), None) for n, t in outputs.items()],
        [numpy_helper.from_array(a, n) for n, a in constants.items()])
    return helper.make_model(graph, ir_version=10,
                             opset_imports=[helper.make_opsetid("", opset)])


def build(model, inputs=None, free=()):
    shapes = {
        n: tuple(tuple(m if i in free else d for i, d in enumerate(a.shape))
                 for m in (1, 4, 9)) for n, a in (inputs or {}).items()}
    return rabbet.compile(model.SerializeToString(), device="cpu", optimization_level=0,
                          shapes=shapes if free else None)


def numbers(rng, dtype, *shape):
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype, endpoint=True)


def test_remainders_of_tenths():
    """Quotients just below an integer are rounded to it, and the remainder is nearly a divisor."""
    tenths = (np.arange(-40, 41) / 10).astype(np.float32)
    divisor = np.array([0.1, -0.1, 0.3, 0.7], np.float32)[:, None]
    node = helper.make_node("Mod", ["a", "b"], ["y"], fmod=1)
    inputs = {"a": tenths, "b": divisor}
    found = build(model_of(node, inputs))(tenths, divisor)
    np.testing.assert_allclose(found, np.fmod(tenths, divisor), atol=1e-6)


INTEGERS = [np.uint8, np.int8, np.int32, np.int64]
BITS = {"BitwiseAnd": np.bitwise_and, "BitwiseOr": np.bitwise_or,
        "BitwiseXor": np.bitwise_xor}


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", [*BITS, "BitwiseNot"])
def test_bits(op, dtype):
    rng = np.random.default_rng(1)
    inputs = {"a": numbers(rng, dtype, 3, 5), "b": numbers(rng, dtype, 5)}
    if op == "BitwiseNot":
        del inputs["b"]
    node = helper.make_node(op, list(inputs), ["y"])
    run = build(model_of(node, inputs, outputs={"y": dtype}))
    expected = BITS.get(op, np.bitwise_not)(*inputs.values())
    np.testing.assert_array_equal(run(*inputs.values()), expected)


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_shifts(dtype, direction):
    rng = np.random.default_rng(2)
    bits = np.dtype(dtype).itemsize * 8
    x = numbers(rng, dtype, 4, 1)
    low = 0 if dtype == np.uint8 else -2
    by = np.arange(low, bits + 3).astype(dtype)
    node = helper.make_node("BitShift", ["x", "by"], ["y"], direction=direction)
    found = build(model_of(node, {"x": x, "by": by}, outputs={"y": dtype}))(x, by)
    for i, number in enumerate(x[:, 0].tolist()):
        for j, count in enumerate(by.tolist()):
            if not 0 <= count < bits:
                y = -1 if direction == "RIGHT" and number < 0 else 0
            elif direction == "RIGHT":
                y = number >> count
            else:
                y = number << count & (1 << bits) - 1
                y -= (y >> bits - 1) << bits if low else 0
            assert found[i, j] == y, (number, count)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_running_products(seed, dynamic):
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 4))
    x = rng.standard_normal(tuple(rng.integers(1, 10, rank)), np.float32)
    axis = int(rng.integers(-rank, rank))
    node = helper.make_node("CumProd", ["x", "axis"], ["y"],
                            exclusive=int(rng.integers(2)), reverse=int(rng.integers(2)))
    free = tuple(range(rank)) if dynamic else ()
    model = model_of(node, {"x": x}, {"axis": np.array(axis)}, free=free)
    expected = ReferenceEvaluator(model).run(None, {"x": x})[0]
    np.testing.assert_allclose(build(model, {"x": x}, free)(x), expected, rtol=1e-5)


def test_running_products_of_nothing():
    x = np.zeros((2, 0), np.float32)
    node = helper.make_node("CumProd", ["x", "axis"], ["y"])
    assert build(model_of(node, {"x": x}, {"axis": np.array(1)}))(x).shape == (2, 0)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.bool_])
def test_bernoulli(dtype):
    p = np.broadcast_to(np.array([0, 0.25, 0.9, 1], np.float32), (5000, 4)).copy()
    node = helper.make_node("Bernoulli", ["p"], ["y"], dtype=kind(dtype), seed=3.0)
    run = build(model_of(node, {"p": p}, outputs={"y": dtype}))
    found = run(p)
    assert found.dtype == dtype
    assert set(np.unique(found)) == {0, 1}
    np.testing.assert_allclose(found.astype(np.float64).mean(0), p[0], atol=0.03)
    assert (found[:, 0] == 0).all()
    assert (found[:, 3] == 1).all()
    np.testing.assert_array_equal(run(p), found)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_multinomial(dtype):
    p = np.array([[0.1, 0.2, 0.7, 0], [0.5, 0, 0, 0.5], [1, 0, 0, 0]])
    with np.errstate(divide="ignore"):
        x = np.log(p).astype(np.float32)
    node = helper.make_node("Multinomial", ["x"], ["y"], sample_size=5000, seed=1.0,
                            dtype=kind(dtype))
    found = build(model_of(node, {"x": x}, outputs={"y": dtype}))(x)
    assert found.dtype == dtype
    assert found.shape == (3, 5000)
    share = np.stack([(found == i).mean(1) for i in range(4)], 1)
    np.testing.assert_allclose(share, p, atol=0.03)
    assert (share[p == 0] == 0).all()


def causal(rng):
    batch, channels, length, k = (int(n) for n in rng.integers(1, 6, 4))
    inputs = {"x": (batch, channels, length), "w": (channels, 1, k), "b": (channels,),
              "s": (batch, channels, k - 1)}
    names = ["x", "w", "b" if rng.integers(2) else "", "s" if rng.integers(2) else ""]
    attrs = {"activation": str(rng.choice(["none", "silu", "swish"]))}
    return "CausalConvWithState", attrs, names, inputs, ("x", "s")


def linear(rng):
    heads, groups, keys, values = (int(n) for n in rng.integers(1, 4, 4))
    batch, tokens = (int(n) for n in rng.integers(1, 5, 2))
    rule = str(rng.choice(["linear", "gated", "delta", "gated_delta"]))
    decays = keys if rng.integers(2) else 1
    inputs = {"q": (batch, tokens, heads * groups * keys), "k": (batch, tokens, heads * keys),
              "v": (batch, tokens, heads * values), "s": (batch, heads, keys, values),
              "g": (batch, tokens, heads * decays),
              "b": (batch, tokens, heads if rng.integers(2) else 1)}
    names = ["q", "k", "v", "s" if rng.integers(2) else "", "g" if "gated" in rule else "",
             "b" if "delta" in rule else ""]
    attrs = {"update_rule": rule, "kv_num_heads": heads, "q_num_heads": heads * groups}
    return "LinearAttention", attrs, names, inputs, tuple(inputs)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("seed", range(16))
@pytest.mark.parametrize("maker", [causal, linear])
def test_states(maker, seed, dynamic):
    rng = np.random.default_rng(seed)
    op, attrs, names, shapes, batched = maker(rng)
    inputs = {n: rng.standard_normal(shapes[n], np.float32) for n in names if n}
    node = helper.make_node(op, names, ["y", "t"], **attrs)
    constants = {n: a for n, a in inputs.items() if n not in batched}
    given = {n: a for n, a in inputs.items() if n in batched}
    free = (0,) if dynamic else ()
    model = model_of(node, given, constants, 27, free=free)
    expected = ReferenceEvaluator(model).run(None, given)
    found = build(model, given, free)(*given.values())
    for one, wanted in zip(found, expected, strict=True):
        assert one.shape == wanted.shape
        np.testing.assert_allclose(one, wanted, rtol=1e-4, atol=1e-5)


F = np.zeros((2, 3, 4), np.float32)
WRONG = [
    ("BitwiseNot", ["x"], {}, {}, "'x'. is FLOAT; expected integers"),
    ("BitShift", ["i", "i"], {"direction": "UP"}, {}, "direction is 'UP'; LEFT and RIGHT"),
    ("CumProd", ["x", "a"], {}, {"a": np.array(3)}, "axis 3"),
    ("Multinomial", ["x"], {}, {}, r"input 0 \('input'\).*rank 3; expected 2"),
    ("CausalConvWithState", ["x", "x"], {}, {}, r"shape \(2, 3, 4\); expected \(channels, 1"),
    ("LinearAttention", ["x", "x", "x"], {"q_num_heads": 1, "kv_num_heads": 1}, {},
     r"'gated_delta' needs an input 4 \('decay'\)"),
    ("LinearAttention", ["x", "x", "x"],
     {"q_num_heads": 3, "kv_num_heads": 3, "update_rule": "linear"}, {}, "do not divide"),
]


@pytest.mark.parametrize(("op", "names", "attrs", "constants", "message"), WRONG)
def test_what_is_wrong(op, names, attrs, constants, message):
    inputs = {n: a for n, a in {"x": F, "i": F.astype(np.int32)}.items() if n in names}
    model = model_of(helper.make_node(op, names, ["y"], **attrs), inputs, constants)
    with pytest.raises(rabbet.Error, match=message):
        build(model)
