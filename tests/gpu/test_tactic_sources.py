"""Libraries that a build may use."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import numpy as np
import pytest
import rabbet as trt

from tests.python.support.plugins import random

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)

SOURCE = trt.TacticSource
SHAPE = (2, 8, 8, 8)


class Log(trt.ILogger):
    def __init__(self) -> None:
        super().__init__()
        self.warnings: list[str] = []

    def log(self, severity: trt.ILogger.Severity, msg: str) -> None:
        if severity == trt.ILogger.WARNING:
            self.warnings.append(msg)


def build(*sources: trt.TacticSource) -> tuple[Any, dict[str, str], list[str]]:
    """(plan, kernels by layer, warnings) of a convolution and a vector's product."""
    log = Log()
    builder = trt.Builder(log)
    network = builder.create_network()
    x = network.add_input("x", trt.float32, SHAPE)
    conv = network.add_convolution_nd(x, 8, (3, 3), random(8, 8, 3, 3, seed=1))
    conv.name, conv.padding_nd = "conv", (1, 1)
    v = network.add_input("v", trt.float32, (1, 64))
    w = network.add_constant((64, 32), random(64, 32, seed=2)).get_output(0)
    none = trt.MatrixOperation.NONE
    product = network.add_matrix_multiply(v, none, w, none)
    product.name = "product"
    for layer, name in ((conv, "y"), (product, "z")):
        layer.get_output(0).name = name
        network.mark_output(layer.get_output(0))
    config = builder.create_builder_config()
    config.device = "cuda"
    config.builder_optimization_level = 1
    bits = sum(1 << int(source) for source in sources)
    assert config.set_tactic_sources(bits)
    assert config.get_tactic_sources() == bits
    plan = builder.build_serialized_network(network, config)
    steps = json.loads(builder.report_json)["steps"]
    return plan, {step["name"]: step["kernel"] for step in steps}, log.warnings


def run(plan: Any) -> list[Any]:
    engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(plan)
    context = engine.create_execution_context()
    arrays = {"x": random(*SHAPE, seed=3), "v": random(1, 64, seed=4)}
    shapes = {"y": SHAPE, "z": (1, 32)}
    with contextlib.ExitStack() as stack:
        for name in (*arrays, *shapes):
            address = stack.enter_context(cuda_driver.memory(8192))
            context.set_tensor_address(name, address)
            if name in arrays:
                cuda_driver.write(address, arrays[name])
        context.execute_async_v3(0)
        return [
            cuda_driver.read(context.get_tensor_address(name), shape)
            for name, shape in shapes.items()
        ]


def close(found: list[Any], expected: list[Any]) -> None:
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-2, atol=2e-2)  # TF32


def test_libraries_that_are_left_out() -> None:
    plan, kernels, warnings = build(*SOURCE.__members__.values())
    assert kernels["conv"] == "cuda.convolution"
    assert not warnings
    expected = run(plan)
    # Own kernels compute the product; nothing but cuDNN the convolution.
    plan, kernels, warnings = build(SOURCE.CUDNN)
    assert kernels["conv"] == "cuda.convolution"
    assert kernels["product"] == "cuda.gemv"
    assert not warnings
    close(run(plan), expected)
    plan, kernels, warnings = build(SOURCE.CUBLAS)
    assert kernels["conv"] == "cuda.convolution"
    assert any("'conv' is computed by cuda.convolution" in line for line in warnings)
    close(run(plan), expected)
