"""Assertions on data: nothing waits for them, and none is lost."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
import rabbet as trt

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)

COUNT = 1000
SAYS = r"layer 'small' \(assertion\) does not hold: below 10"


@pytest.fixture(scope="module")
def model() -> trt.Model:
    """y = -x, where x must be below 10 and above -10."""
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (COUNT,))
    for name, op, bound in (
        ("large", trt.ElementWiseOperation.GREATER, -10),
        ("small", trt.ElementWiseOperation.LESS, 10),
    ):
        limit = network.add_constant((1,), np.array([bound], np.float32)).get_output(0)
        holds = network.add_elementwise(x, limit, op).get_output(0)
        side = "above" if bound < 0 else "below"
        network.add_assertion(holds, f"{side} {bound}").name = name
    y = network.add_unary(x, trt.UnaryOperation.NEG).get_output(0)
    y.name = "y"
    network.mark_output(y)
    return trt.compile(network, device="cuda", optimization_level=1)


def good() -> Any:
    return np.linspace(-9, 9, COUNT, dtype=np.float32)


def bad(at: int = COUNT - 1) -> Any:
    value = good()
    value[at] = 11
    return value


def test_arrays_of_the_host(model: trt.Model) -> None:
    for _ in range(3):
        assert np.array_equal(model(good()), -good())
        with pytest.raises(trt.Error, match=SAYS):
            model(bad())


@pytest.mark.parametrize("graphs", [False, True])
def test_each_failure_is_told_once(model: trt.Model, graphs: bool) -> None:
    """As many runs as places, and more; the failing ones lie between others."""
    context = model.engine.create_execution_context()
    context._set_graphs(graphs)
    wanted = {3, 60, 64, 140}
    told = 0
    with cuda_driver.memory(4 * COUNT) as x, cuda_driver.memory(4 * COUNT) as y:
        context.set_tensor_address("x", x)
        context.set_tensor_address("y", y)
        ran = 0
        while ran < 200:
            # A call that tells of an earlier run does not run.
            cuda_driver.write(x, bad(ran) if ran in wanted else good())
            try:
                context.execute_async_v3(0)
                ran += 1
            except trt.Error as error:
                told += "an earlier run: layer 'small'" in str(error)
        for _ in wanted:
            try:
                context._check(0)
            except trt.Error:
                told += 1
        assert told == len(wanted)
        context._check(0)


def test_execute_v2_tells_of_its_run(model: trt.Model) -> None:
    context = model.engine.create_execution_context()
    with cuda_driver.memory(4 * COUNT) as x, cuda_driver.memory(4 * COUNT) as y:
        for value in (good(), bad(), good(), bad(0)):
            cuda_driver.write(x, value)
            fails = value.max() > 10
            with (
                pytest.raises(trt.Error, match=SAYS)
                if fails
                else contextlib.nullcontext()
            ):
                assert context.execute_v2([x, y])
            assert np.array_equal(cuda_driver.read(y, (COUNT,)), -value)
