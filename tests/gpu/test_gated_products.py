"""Gated perceptrons with packed weights: both products and the gate are one kernel."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.helper as oh
import pytest
import rabbet

from tests.python.importer.test_weight_only import (
    by_onnxruntime,
    check_close,
    model_of,
    steps_of,
)

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)


def gated(
    rows: int, bits: int, zeros: bool, blocks: tuple[int, int], first: str = "gate"
) -> onnx.ModelProto:
    """silu(x gate) * (x up); `first`: the product that is written first."""
    random, k, n = np.random.default_rng(bits), 256, 48
    products, inits = {}, {}
    for name, block in zip(("gate", "up"), blocks, strict=True):
        count = k // block
        own = {
            f"{name}.w": random.integers(0, 256, (n, count, block * bits // 8), dtype=np.uint8),
            f"{name}.s": random.uniform(0.01, 0.03, (n, count)).astype(np.float32),
        }
        if zeros:
            shape = (n, (count * bits + 7) // 8)
            own[f"{name}.z"] = random.integers(0, 256, shape, dtype=np.uint8)
        inits |= own
        products[name] = oh.make_node(
            "MatMulNBits", ["x", *own], [name], domain="com.microsoft", K=k, N=n, bits=bits,
            block_size=block)  # fmt: skip
    nodes = [products.pop(first), *products.values()]
    nodes += [
        oh.make_node("Sigmoid", ["gate"], ["s"]),
        oh.make_node("Mul", ["gate", "s"], ["silu"]),
        oh.make_node("Mul", ["silu", "up"], ["y"]),
    ]
    return model_of(nodes, inits, [rows], k, n)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(
    ("rows", "blocks", "first", "kernels"),
    [
        (1, (32, 32), "gate", 1),
        (1, (128, 128), "up", 1),
        (5, (64, 64), "up", 1),
        (1, (32, 64), "gate", 2),
    ],
)
def test_against_onnxruntime(
    rows: int, blocks: tuple[int, int], first: str, kernels: int, bits: int, zeros: bool
) -> None:
    """Products whose blocks differ stay two."""
    data = gated(rows, bits, zeros, blocks, first)
    model = rabbet.compile(data.SerializeToString(), device="cuda", optimization_level=0)
    x = np.random.default_rng(1).standard_normal((rows, 256), np.float32)
    check_close(np.asarray(model(x)), by_onnxruntime(data, x))
    assert [s["Kernel"] for s in steps_of(model)] == ["cuda.matmul.weight_only"] * kernels
