"""Products of few rows with the RMS normalization before them and the second product of a
gated perceptron in one kernel. NumPy computes what is expected."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnx
import pytest
import rabbet as trt
from onnx import TensorProto, helper, numpy_helper

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)

K, FFN = 64, 96
EPSILON = 1e-5


def weights(random: np.random.Generator, layers: int) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    for i in range(layers):
        found[f"scale{i}"] = random.uniform(0.5, 1.5, K)
        for name, (k, n) in {
            "gate": (K, FFN),
            "up": (K, FFN),
            "down": (FFN, K),
        }.items():
            found[f"{name}{i}"] = random.normal(size=(k, n)) / np.sqrt(k)
    return {name: array.astype(np.float16) for name, array in found.items()}


def perceptrons(
    rows: Any, layers: int, given: dict[str, np.ndarray], gated: bool
) -> Any:
    """x + down(silu(gate(y)) * up(y)), or x + down(silu(gate(y))), where y is the
    normalized x; several times."""
    nodes, x = [], "x"

    def add(kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"t{len(nodes)}"
        nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    for i in range(layers):
        y = add(
            "SimplifiedLayerNormalization", x, f"scale{i}", epsilon=EPSILON, axis=-1
        )
        gate = add("MatMul", y, f"gate{i}")
        gate = add("Mul", gate, add("Sigmoid", gate))
        if gated:
            gate = add("Mul", gate, add("MatMul", y, f"up{i}"))
        x = add("Add", x, add("MatMul", gate, f"down{i}"))
    graph = helper.make_graph(
        nodes, "perceptrons",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, (1, rows, K))],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT16, (1, rows, K))],
        [numpy_helper.from_array(array, name) for name, array in given.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])


def expected(x: Any, layers: int, given: dict[str, np.ndarray], gated: bool) -> Any:
    x = x.astype(np.float64)
    real = {name: array.astype(np.float64) for name, array in given.items()}
    for i in range(layers):
        y = x / np.sqrt(np.mean(x * x, -1, keepdims=True) + EPSILON) * real[f"scale{i}"]
        gate = y @ real[f"gate{i}"]
        gate = gate / (1 + np.exp(-gate))
        if gated:
            gate = gate * (y @ real[f"up{i}"])
        x = x + gate @ real[f"down{i}"]
    return x


def operators(model: Any) -> list[list[str]]:
    """Of each step."""
    inspector = model.engine.create_engine_inspector()
    text = inspector.get_engine_information(trt.LayerInformationFormat.JSON)
    return [
        [p["Operator"] for p in layer["Layers"]] for layer in json.loads(text)["Layers"]
    ]


def built(model: onnx.ModelProto, tmp_path: Any, **settings: Any) -> Any:
    file = tmp_path / "model.onnx"
    file.write_bytes(model.SerializeToString())
    return trt.compile(file, device="cuda", **settings)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("rows", [1, 3, 8])
def test_results(rows: int, gated: bool, tmp_path: Any) -> None:
    """Results are right whatever the tuner chooses."""
    random = np.random.default_rng(rows)
    given = weights(random, 2)
    x = random.normal(size=(1, rows, K)).astype(np.float16)
    model = perceptrons(rows, 2, given, gated)
    for level in (1, 3):
        plan = built(model, tmp_path, optimization_level=level)
        found = np.asarray(plan(x))
        want = expected(x, 2, given, gated)
        np.testing.assert_allclose(
            found, want, rtol=2e-3, atol=4e-3 * np.abs(want).max()
        )
    products = [step.count("matrix_multiply") for step in operators(plan)]
    assert sum(products) == (6 if gated else 4)


def test_the_kernel_is_offered(tmp_path: Any) -> None:
    """At a level at which the largest groups are taken without timing others."""
    given = weights(np.random.default_rng(0), 1)
    plan = built(perceptrons(1, 1, given, True), tmp_path, optimization_level=1)
    first = operators(plan)[0]
    assert first.count("normalization") == 1
    assert first.count("matrix_multiply") == 2


@pytest.mark.parametrize("first", [True, False])
def test_packed_weights(first: bool, tmp_path: Any) -> None:
    """Which are dequantized before the normalization, or after it."""
    random = np.random.default_rng(4)
    given = weights(random, 1)
    codes = {
        name: random.integers(-100, 101, given[name].shape).astype(np.int8)
        for name in ("gate0", "up0", "down0")
    }
    scale = np.float16(1 / 512)
    model = perceptrons(1, 1, {"scale0": given["scale0"]}, True)
    nodes = []
    for name, array in codes.items():
        model.graph.initializer.append(numpy_helper.from_array(array, f"{name}.q"))
        inputs = [f"{name}.q", "s"]
        nodes.append(helper.make_node("DequantizeLinear", inputs, [name]))
        given[name] = array.astype(np.float16) * scale
    model.graph.initializer.append(numpy_helper.from_array(np.array(scale), "s"))
    place = 0 if first else 1  # behind the normalization
    for node in reversed(nodes):
        model.graph.node.insert(place, node)
    plan = built(model, tmp_path, optimization_level=1)
    step = operators(plan)[0]
    assert step.count("normalization") == 1
    assert step.count("matrix_multiply") == 2
    x = random.normal(size=(1, 1, K)).astype(np.float16)
    want = expected(x, 1, given, True)
    found = np.asarray(plan(x))
    np.testing.assert_allclose(found, want, rtol=4e-3, atol=4e-3 * np.abs(want).max())


def test_rows_that_a_run_tells(tmp_path: Any) -> None:
    """Kernels for a token's row compute a prompt's, too."""
    random = np.random.default_rng(5)
    given = weights(random, 1)
    model = perceptrons("rows", 1, given, True)
    ranges = {"x": ((1, 1, K), (1, 1, K), (1, 300, K))}
    plan = built(model, tmp_path, optimization_level=1, shapes=ranges)
    assert "normalization" in operators(plan)[0]
    for rows in (1, 2, 300):
        x = random.normal(size=(1, rows, K)).astype(np.float16)
        want = expected(x, 1, given, True)
        found = np.asarray(plan(x))
        np.testing.assert_allclose(
            found, want, rtol=2e-3, atol=4e-3 * np.abs(want).max()
        )


def test_a_normalization_with_other_readers_stays_apart(tmp_path: Any) -> None:
    """Its result is stored, as an output of the network."""
    random = np.random.default_rng(6)
    given = weights(random, 1)
    model = perceptrons(1, 1, given, True)
    model.graph.output.append(
        helper.make_tensor_value_info("t0", TensorProto.FLOAT16, (1, 1, K))
    )
    plan = built(model, tmp_path, optimization_level=1)
    assert ["normalization"] in operators(plan)
    x = random.normal(size=(1, 1, K)).astype(np.float16)
    found = [np.asarray(y).astype(np.float64) for y in plan(x)]
    row = x.astype(np.float64)
    row = row / np.sqrt(np.mean(row * row, -1, keepdims=True) + EPSILON)
    want = [expected(x, 1, given, True), row * given["scale0"].astype(np.float64)]
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=4e-3 * np.abs(b).max())
