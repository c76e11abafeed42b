"""Plugins of TensorRT's library that files name, on CUDA beside the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.python.importer.test_trt_layers import (
    PYRAMIDS,
    RESULTS,
    onnx_nms_case,
    pyramid_case,
    run,
    tensor,
)

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)
RNG = np.random.default_rng(0)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def boxes() -> Any:
    corner = RNG.uniform(0, 1, (2, 9, 3, 2))
    return np.concatenate([corner, corner + 0.3], -1).astype(np.float32)


CASES = [
    (helper.make_node("BatchedNMS_TRT", ["boxes", "scores"], RESULTS, shareLocation=0, topK=6,
                      keepTopK=5, scoreThreshold=0.3, iouThreshold=0.25),
     {"boxes": boxes(), "scores": RNG.random((2, 9, 3)).astype(np.float32)}),
    (helper.make_node("CustomQKVToContextPluginDynamic", ["x", "n"], ["y"], hidden_size=8,
                      num_heads=2),
     {"x": normal(5, 3, 24, 1, 1), "n": np.array([5, 2, 4], np.int32)}),
    (helper.make_node("CustomSkipLayerNormPluginDynamic", ["x", "s"], ["y"],
                      gamma=tensor(normal(8)), beta=tensor(normal(8))),
     {"x": normal(5, 3, 8, 1, 1), "s": normal(5, 3, 8, 1, 1)}),
    pyramid_case(1, PYRAMIDS[1]),
    onnx_nms_case(12, 0.8, 0)[:2],
]  # fmt: skip


@pytest.mark.parametrize(("node", "inputs"), CASES, ids=[n.op_type for n, _ in CASES])
def test_plugin(node: Any, inputs: dict[str, Any]) -> None:
    for found, expected in zip(run(node, inputs, "cuda"), run(node, inputs), strict=True):
        np.testing.assert_allclose(found, expected, rtol=5e-3, atol=5e-3)  # TF32
