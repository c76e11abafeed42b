"""Element types of 8 bits and fewer, on CUDA; and DOUBLE, which it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import rabbet
from onnx import TensorProto, helper

from tests.python.importer.narrow_types import check_cast, check_quantize, run

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)


@pytest.mark.parametrize("name", ["FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT4E2M1"])
def test_cast(name: str) -> None:
    check_cast(name, True, "cuda")


@pytest.mark.parametrize("name", ["INT4", "FLOAT8E5M2", "FLOAT4E2M1"])
def test_quantize(name: str) -> None:
    check_quantize(name, "blocks", "cuda")


def test_bit_cast() -> None:
    x = np.linspace(-3, 3, 70, dtype=np.float16).reshape(7, 10)
    node = helper.make_node("BitCast", ["x"], ["y"], to=TensorProto.UINT16)
    np.testing.assert_array_equal(run([node], x, device="cuda"), x.view(np.uint16))


def test_double_is_refused_by_name() -> None:
    network = rabbet.Builder().create_network()
    layer = network.add_unary(
        network.add_input("x", rabbet.float64, (2, 3)), rabbet.UnaryOperation.EXP
    )
    layer.name = "grows"
    network.mark_output(layer.get_output(0))
    with pytest.raises(rabbet.Error, match=r"layer 'grows' .*DOUBLE, which the CPU"):
        rabbet.compile(network, device="cuda", optimization_level=0)
