"""Products of few rows by constant weights [k, n], as exporters write them: they are stored
along k, for the kernels that read them so. NumPy computes what is expected."""

from __future__ import annotations

import itertools
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


def chain(dims: tuple[int, ...], weights: list[np.ndarray], rank: int) -> bytes:
    """x times each of the weights, one after the other."""
    tensors = [numpy_helper.from_array(w.reshape((1,) * (rank - 2) + w.shape), f"w{i}")
               for i, w in enumerate(weights)]  # fmt: skip
    names = ["x", *(f"y{i}" for i in range(len(weights)))]
    nodes = [
        helper.make_node("MatMul", [names[i], f"w{i}"], [names[i + 1]])
        for i in range(len(weights))
    ]
    last = (*dims[:-1], weights[-1].shape[1])
    graph = helper.make_graph(
        nodes, "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, dims)],
        [helper.make_tensor_value_info(names[-1], TensorProto.FLOAT16, last)],
        tensors,
    )  # fmt: skip
    opset = [helper.make_opsetid("", 20)]
    return onnx.helper.make_model(graph, opset_imports=opset).SerializeToString()


def kernels(model: Any) -> set[str]:
    steps = json.loads(model._report[1])["steps"]
    return {a["kernel"] for step in steps for a in [step, *step["alternatives"]]}


@pytest.mark.parametrize("seed", range(5))
def test_weights_are_stored_along_k(seed: int, tmp_path: Any) -> None:
    random = np.random.default_rng(seed)
    rank = int(random.integers(2, 4))
    rows = int(random.integers(1, 17))
    dims = (rows,) if rank == 2 else (rows, 1) if random.integers(2) else (1, rows)
    extents = [8 * int(random.integers(1, 40)) for _ in range(3)]
    weights = [
        (random.uniform(-1, 1, (k, n)) / np.sqrt(k)).astype(np.float16)
        for k, n in itertools.pairwise(extents)
    ]
    file = tmp_path / "chain.onnx"
    file.write_bytes(chain((*dims, extents[0]), weights, rank))
    model = trt.compile(file, device="cuda", optimization_level=2)
    assert "cuda.matmul.few" in kernels(model)
    x = random.uniform(-1, 1, (*dims, extents[0])).astype(np.float16)
    expected = x.astype(float)
    for w in weights:
        expected = expected @ w.astype(float)
    (found,) = [model(x)]
    np.testing.assert_allclose(found, expected, 0, 4e-3)


def test_weights_of_many_rows_stay(tmp_path: Any) -> None:
    weights = [np.eye(64, dtype=np.float16)]
    file = tmp_path / "chain.onnx"
    file.write_bytes(chain((17, 64), weights, 2))
    model = trt.compile(file, device="cuda", optimization_level=2)
    assert "cuda.matmul.few" not in kernels(model)
    x = np.random.default_rng(0).uniform(-1, 1, (17, 64)).astype(np.float16)
    np.testing.assert_array_equal(model(x), x)
