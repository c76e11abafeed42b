"""Models with nodes behind their readers, as tools write them and ONNX Runtime takes
them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import rabbet
from onnx import helper

from tests.python.importer import test_onnx_if as ifs
from tests.python.importer import test_onnx_loops as loops


def shuffle(nodes: Any, rng: random.Random) -> None:
    """Nodes in another order, and those of their bodies."""
    mixed = list(nodes)
    rng.shuffle(mixed)
    for node in mixed:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                shuffle(attribute.g.node, rng)
    del nodes[:]
    nodes.extend(mixed)


MADE = [
    ifs.test_if,
    loops.test_loop_in_a_loop,
    loops.test_states_may_grow,
    loops.test_condition_of_the_iteration_number,
]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("test", MADE, ids=lambda test: test.__name__)
def test_shuffled(test: Callable[[], None], seed: int, monkeypatch: Any) -> None:
    """Tests that compare with ONNX Runtime, which wants bodies in order."""
    compiled = rabbet.compile
    rng = random.Random(seed)

    def compile_shuffled(model: Any, **options: Any) -> Any:
        mixed = model if isinstance(model, onnx.ModelProto) else onnx.load_from_string(model)
        shuffle(mixed.graph.node, rng)
        return compiled(mixed, **options)

    monkeypatch.setattr(rabbet, "compile", compile_shuffled)
    test()


ORDER = """<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
g (float[3] x) => (float[3] y) {
  y = If (positive) <
    then_branch = then () => (float[3] r) {
      r = If (large) <
        then_branch = inner () => (float[3] s) { s = Add(late, x) },
        else_branch = outer () => (float[3] t) { t = Identity(late) }>
      large = Greater(sum, ten)
    },
    else_branch = otherwise () => (float[3] later) {}>
  positive = Greater(sum, zero)
  later = local.f(late)
  sum = ReduceSum<keepdims = 0>(late)
  late = Mul(x, two)
  ten = Constant<value_float = 10.0>()
  zero = Constant<value_float = 0.0>()
  two = Constant<value_float = 2.0>()
}
<domain: "local", opset_import: ["" : 17]>
f (a) => (b) {
  b = Neg(c)
  c = Abs(a)
}
"""


def test_captures_of_nested_branches() -> None:
    """Readers in branches of branches, results of branches, and a local function."""
    model = onnx.parser.parse_model(ORDER)
    run = rabbet.compile(model, device="cpu")
    for sign in (1, 4, -1):
        x = sign * np.arange(3, dtype=np.float32)
        total = 2 * x.sum()
        wanted = (3 * x if total > 10 else 2 * x) if total > 0 else -np.abs(2 * x)
        np.testing.assert_allclose(run(x), wanted)


def test_cycles_are_named() -> None:
    """Through a branch, too."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[3] x, bool c) => (float[3] y) {
      y = Neg(a)
      a = If (c) <
        then_branch = one () => (float[3] r) { r = Abs(b) },
        else_branch = two () => (float[3] s) { s = Identity(x) }>
      b = Relu(a)
    }"""
    model = onnx.parser.parse_model(text)
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.Fail):
        onnxruntime.InferenceSession(model.SerializeToString())
    with pytest.raises(rabbet.Error, match=r"cycle.*: 1 '' \(If\), 2 '' \(Relu\)$"):
        rabbet.compile(model, device="cpu")


def test_a_long_chain_backwards() -> None:
    """Each node waits for the next one."""
    count = 3000
    nodes = [helper.make_node("Neg", [f"v{i}"], [f"v{i + 1}"]) for i in range(count)]
    values = [helper.make_tensor_value_info(n, 1, [2]) for n in ("v0", f"v{count}")]
    graph = helper.make_graph(nodes[::-1], "g", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    x = np.array([1, -2], np.float32)
    np.testing.assert_array_equal(rabbet.compile(model, device="cpu", optimization_level=0)(x), x)
