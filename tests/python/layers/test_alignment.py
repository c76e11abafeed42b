"""Inputs and outputs of the CPU at any address that elements may have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import rabbet as trt

SHAPE = (2, 16, 24)


def made(dtype: Any) -> trt.Model:
    network = trt.Builder().create_network()
    x = network.add_input("x", dtype, SHAPE)
    none, turned = trt.MatrixOperation.NONE, trt.MatrixOperation.TRANSPOSE
    scores = network.add_matrix_multiply(x, none, x, turned).get_output(0)
    soft = network.add_softmax(scores)
    soft.axes = 1 << 2
    y = network.add_matrix_multiply(soft.get_output(0), none, x, none).get_output(0)
    y = network.add_activation(y, trt.ActivationType.TANH).get_output(0)
    y.name = "y"
    network.mark_output(y)
    return trt.compile(network, device="cpu", optimization_level=0)


@pytest.mark.parametrize("offset", [0, 1, 2, 4, 6, 8, 12])
@pytest.mark.parametrize("kind", ["float32", "float16"])
def test_addresses(offset: int, kind: str) -> None:
    model = made(getattr(trt, kind))
    value = np.random.default_rng(0).normal(size=SHAPE).astype(kind)
    x, y = (np.zeros(value.nbytes + 64, np.uint8) for _ in range(2))
    x, y = (a[-a.ctypes.data % 64 :][offset:] for a in (x, y))
    context = model.create_execution_context()
    if offset % value.itemsize:
        with pytest.raises(trt.Error, match=f"'x' .* multiple of {value.itemsize}"):
            context.set_tensor_address("x", x.ctypes.data)
        return
    context.set_tensor_address("x", x.ctypes.data)
    context.set_tensor_address("y", y.ctypes.data)
    for sign in (1, -1):
        x[: value.nbytes] = np.frombuffer((sign * value).tobytes(), np.uint8)
        assert context.execute_async_v3(0)
        found = np.frombuffer(y[: value.nbytes].tobytes(), kind).reshape(SHAPE)
        want = np.asarray(model(sign * value))
        np.testing.assert_allclose(found, want, rtol=2e-3, atol=2e-3)
