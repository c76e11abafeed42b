"""Calibration on CUDA: batches in the device's memory, tensors copied to the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import rabbet as trt
from rabbet._calibration import read_cache

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)

SHAPE = (2, 8, 6, 6)


def batches() -> Any:
    random = np.random.default_rng(4)
    return random.uniform(-2, 2, (3, *SHAPE)).astype(np.float32)


class Calibrator(trt.IInt8MinMaxCalibrator):
    def __init__(self, address: int) -> None:
        super().__init__()
        self.address, self.left = address, list(batches())
        self.cache = b""

    def get_batch_size(self) -> int:
        return SHAPE[0]

    def get_batch(self, names: list[str]) -> list[int] | None:
        if not self.left:
            return None
        cuda_driver.write(self.address, self.left.pop())
        return [self.address]

    def write_calibration_cache(self, cache: bytes) -> None:
        self.cache = cache


def test_ranges_and_results() -> None:
    random = np.random.default_rng(5)
    w = random.uniform(-1, 1, (8, 8, 1, 1)).astype(np.float32)
    m = random.uniform(-1, 1, (1, 1, 6, 8)).astype(np.float32)

    def network(builder: Any) -> Any:
        net = builder.create_network()
        x = net.add_input("x", trt.float32, SHAPE)
        conv = net.add_convolution_nd(x, 8, (1, 1), w)
        relu = net.add_activation(conv.get_output(0), trt.ActivationType.RELU)
        relu.get_output(0).name = "relu"
        factor = net.add_constant(m.shape, m).get_output(0)
        none = trt.MatrixOperation.NONE
        product = net.add_matrix_multiply(relu.get_output(0), none, factor, none)
        conv.precision = product.precision = trt.int8
        product.get_output(0).name = "y"
        net.mark_output(product.get_output(0))
        return net

    builder = trt.Builder()
    config = builder.create_builder_config()
    config.device = "cuda"
    config.builder_optimization_level = 1
    config.set_flag(trt.BuilderFlag.INT8)
    with cuda_driver.memory(4 * int(np.prod(SHAPE))) as address:
        given = Calibrator(address)
        config.int8_calibrator = given
        plan = builder.build_serialized_network(network(builder), config)
    _, ranges = read_cache(given.cache)
    seen = batches()
    middle = np.maximum(np.einsum("kc,nbchw->nbkhw", w[..., 0, 0], seen), 0)
    assert ranges["x"] == pytest.approx(np.abs(seen).max(), rel=1e-5)
    assert ranges["relu"] == pytest.approx(middle.max(), rel=1e-3)

    def bytes_of(values: Any, scale: Any) -> Any:
        return np.clip(np.rint(values / scale), -127, 127) * scale

    x = seen[0]
    wq = bytes_of(w, np.abs(w).max((1, 2, 3), keepdims=True) / 127)
    mq = bytes_of(m, np.abs(m).max(2, keepdims=True) / 127)
    xq = bytes_of(x, ranges["x"] / 127)
    r = np.maximum(np.einsum("kc,nchw->nkhw", wq[..., 0, 0], xq), 0)
    expected = bytes_of(r, ranges["relu"] / 127) @ mq
    engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(plan)
    context = engine.create_execution_context()
    with (
        cuda_driver.memory(x.nbytes) as first,
        cuda_driver.memory(expected.nbytes) as second,
    ):
        cuda_driver.write(first, x)
        context.set_tensor_address("x", first)
        context.set_tensor_address("y", second)
        context.execute_async_v3(0)
        found = cuda_driver.read(second, expected.shape)
    error = np.sqrt(((found - expected) ** 2).sum() / (expected**2).sum())
    assert error < 3e-3  # now and then a tie goes the other way
