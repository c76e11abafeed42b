"""Conditionals on a GPU: the host reads the condition, branches are recorded."""

from __future__ import annotations

from typing import Any

import pytest
import rabbet as trt

from tests.python.support.conditionals import CHECKS, is_large, out, unary
from tests.python.support.plugins import build

from . import cuda_driver
from .test_capture import stream

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)


@pytest.mark.parametrize("check", CHECKS)
def test_numpy_agrees(check: Any) -> None:
    check("cuda")


def test_capturing_is_refused() -> None:
    def make(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (4,))
        choice = network.add_if_conditional()
        choice.set_condition(is_large(network, x))
        inside = out(choice.add_input(x))
        yes = unary(network, inside, trt.UnaryOperation.EXP)
        return out(choice.add_output(yes, inside))

    model = build(make, device="cuda")
    with cuda_driver.memory(1024) as at, stream() as made:
        context = model.engine.create_execution_context()
        context.set_tensor_address("x", at)
        context.set_tensor_address("y0", at + 512)
        assert context.prepare()
        with pytest.raises(trt.FailedPreconditionError, match="host reads conditions"):
            made.capture(context)
