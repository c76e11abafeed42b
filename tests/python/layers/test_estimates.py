"""Sizes that agree in each run though no expression says so: kernels are timed at estimates
of them, which contradict each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import rabbet as trt
import rabbet.plugin as trtp

from tests.python.randomized.random_onnx import Options, failure
from tests.python.randomized.random_onnx_graphs import Network, Rejected
from tests.python.randomized.random_onnx_sizes import agreeing
from tests.python.support.onnx_text import check, model_of
from tests.python.support.plugins import call, new_id

INPUTS = "float[7, 5] x, float[7] a, float[5] b"


class Log(trt.ILogger):
    """Messages about estimates."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def log(self, severity: Any, message: str) -> None:
        if "data-dependent" in message:
            self.found.append(message)


MASKS = [
    (np.array(a, np.float32), np.array(b, np.float32))
    for a, b in [
        ([1, 0, 1, 1, 1, 0, 1], [0, 1, 1, 1, 0]),
        ([1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1]),
        ([0, 0, 0, 1, 0, 0, 0], [1, 0, 0, 0, 1]),
    ]
]

# y: the rows and columns of x that two masks take; n, m: how many these are, as numbers;
# e: ones of that shape.
COMMON = """
    ab = Cast<to = 9>(a) bb = Cast<to = 9>(b) r = Compress<axis = 0>(x, ab)
    y = Compress<axis = 1>(r, bb)
    zeros = Constant<value_ints = [0]>()
    ones = Constant<value_ints = [1]>()
    zero = Constant<value_int = 0>()
    one = Constant<value_int = 1>()
    ai = Cast<to = 7>(a)
    bi = Cast<to = 7>(b)
    n = ReduceSum<keepdims = 1>(ai, zeros)
    m = ReduceSum<keepdims = 1>(bi, zeros)
    n0 = Squeeze(n, zeros)
    m0 = Squeeze(m, zeros)
    nm = Concat<axis = 0>(n, m)
    e = ConstantOfShape<value = float[1] {1.0}>(nm)
    rows = Range(zero, n0, one)
    columns = Range(zero, m0, one)
"""

BODIES = {
    "add": ("float[k, l] z", "z = Add(y, e)"),
    "stacked": (
        "float[k, l, p] z",
        "y3 = Unsqueeze(y, zeros) e3 = Unsqueeze(e, zeros) z = Concat<axis = 0>(y3, e3)",
    ),
    "joined": ("float[k, l] z", "z = Concat<axis = 1>(y, e)"),
    "product": ("float[k, l] z", "t = Transpose<perm = [1, 0]>(e) z = MatMul(y, t)"),
    "batches": (
        "float[k, l, p] z",
        "y3 = Unsqueeze(y, ones) s = Constant<value_ints = [2]>() e3 = Unsqueeze(e, s)"
        " z = MatMul(y3, e3)",
    ),
    "batches_squared": (
        "float[k, l, p] z",
        "s = Concat<axis = 0>(n, m, m) f = ConstantOfShape<value = float[1] {1.0}>(s)"
        " y3 = Unsqueeze(y, ones) z = MatMul(y3, f)",
    ),
    "reshaped": ("float[k] z", "p = Mul(n, m) z = Reshape(y, p)"),
    "reshaped_there": (
        "float[k, l, p] z",
        "s = Concat<axis = 0>(m, ones, n) z = Reshape(y, s)",
    ),
    "chosen": ("float[k, l] z", "c = Greater(y, e) z = Where(c, y, e)"),
    "gathered": (
        "float[k, l] z",
        "i = Unsqueeze(rows, ones) j = Expand(i, nm) z = GatherElements<axis = 0>(y, j)",
    ),
    "scattered": (
        "float[k, l] z",
        "i = Unsqueeze(columns, zeros) j = Expand(i, nm)"
        " z = ScatterElements<axis = 1>(y, j, e)",
    ),
    "scattered_rows": (
        "float[k, l] z",
        "i = Unsqueeze(rows, ones) z = ScatterND(e, i, y)",
    ),
    "from_the_last": (
        "float[k, l] z",
        "l = Sub(nm, ones) s = Constant<value_ints = [-1, -1]>()"
        " e9 = Constant<value_ints = [-9, -9]>()"
        " d = Constant<value_ints = [0, 1]>() z = Slice(y, l, e9, d, s)",
    ),
    "the_first_half": (
        "float[k, l] z",
        "two = Constant<value_ints = [2]>() h = Div(n, two) k = Concat<axis = 0>(h, m)"
        " o = Constant<value_ints = [0, 0]>() p = Slice(y, o, k) f = ConstantOfShape(k)"
        " z = Concat<axis = 0>(p, f)",
    ),
    "split": (
        "float[k, l] z, float[p, q] w",
        "h = Sub(n, ones) s = Concat<axis = 0>(h, ones) z, w = Split<axis = 0>(y, s)",
    ),
    "normalized": ("float[k, l] z", "c = Squeeze(n) g = ConstantOfShape<value = float[1] {2.0}>(m)"
                   " z = LayerNormalization<axis = -1>(y, g)"),
    "padded": (
        "float[k, l] z",
        "s = Shape(x) d = Sub(s, nm) o = Constant<value_ints = [0, 0]>()"
        " p = Concat<axis = 0>(o, d) q = Pad(y, p) z = Add(q, x)",
    ),
    "tiled": (
        "float[k, l] z",
        "t = Tile(y, nm) p = Mul(nm, nm) f = ConstantOfShape(p) z = Add(t, f)",
    ),
}  # fmt: skip


def runs() -> list[dict[str, Any]]:
    numbers = np.random.default_rng(3)
    return [
        {"x": numbers.standard_normal((7, 5)).astype(np.float32), "a": a, "b": b}
        for a, b in MASKS
    ]


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("name", BODIES)
def test_estimates_that_contradict(name: str, level: int) -> None:
    outputs, body = BODIES[name]
    check(model_of(INPUTS, outputs, COMMON + body), runs(), level=level)


def test_plugins_that_check_shapes() -> None:
    """An exception at estimates is a warning: the operator is right in each run."""
    plugin_id = new_id("same")

    @trtp.register(plugin_id)
    def same(x: trtp.TensorDesc, y: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def same_impl(x: Any, y: Any, outputs: Any, stream: int) -> None:
        if tuple(x.shape) != tuple(y.shape):
            raise ValueError(f"shapes {x.shape} and {y.shape} differ")
        np.asarray(outputs[0])[...] = np.asarray(x) - np.asarray(y)

    model = model_of(INPUTS, "float[k, l] y, float[k, l] e", COMMON)
    log = Log()
    builder = trt.Builder(log)
    network = builder.create_network()
    assert trt.OnnxParser(network, log).parse(model.SerializeToString())
    inputs = [network.get_output(i) for i in range(2)]
    for tensor in inputs:
        network.unmark_output(tensor)
    made = network.add_plugin(call(plugin_id)(*inputs)).get_output(0)
    made.name = "z"
    network.mark_output(made)
    for level in (0, 3):
        config = builder.create_builder_config()
        config.device, config.builder_optimization_level = "cpu", level
        config.try_plugins = level > 0
        plan = builder.build_serialized_network(network, config)
        assert bool(log.found) == (level > 0)
        found = trt.Model(trt.Runtime(log).deserialize_cuda_engine(plan))
        for run in runs():
            (z,) = found.run(run).values()
            rows, columns = (run[name].astype(bool) for name in "ab")
            np.testing.assert_allclose(z, run["x"][rows][:, columns] - 1, rtol=1e-6)


def test_random_networks() -> None:
    """Some of agreeing() alone; random_onnx.py has it among all others."""
    built = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        g = Network(rng, 1e-5, 1)
        try:
            g.input([g.symbol(8) for _ in range(int(rng.integers(1, 4)))])
            for _ in range(2):
                agreeing(g)
        except Rejected:
            continue
        g.finish()
        g.prune()
        options = Options.by_chance(np.random.default_rng([seed, 7]), seed, "cpu")
        options.types, options.profiles, options.level = "FP32", 1, 3
        if not g.outputs:
            continue
        built += 1
        assert failure(g, options) is None, g.describe()
    assert built > 3
