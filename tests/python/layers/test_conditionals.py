"""Conditionals whose condition only a run tells, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import rabbet as trt
import rabbet.plugin as trtp

from tests.python.support.conditionals import (
    CHECKS,
    calculate,
    constant,
    is_large,
    out,
    unary,
)
from tests.python.support.plugins import build, random


@pytest.mark.parametrize("check", CHECKS)
def test_numpy_agrees(check: Any) -> None:
    check("cpu")


@trtp.register("conditionals::counted")
def counted_shape(x: trtp.TensorDesc, which: int) -> trtp.TensorDesc:
    return x.like()


@trtp.impl("conditionals::counted")
def counted(
    x: trtp.Tensor, which: int, outputs: tuple[trtp.Tensor], stream: int
) -> None:
    calls.append(which)
    outputs[0].numpy()[...] = x.numpy() * which


calls: list[int] = []


def test_only_the_branch_that_is_taken_runs() -> None:
    def make(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (3,))
        choice = network.add_if_conditional()
        choice.set_condition(is_large(network, x))
        inside = out(choice.add_input(x))
        func = trtp.op.conditionals.counted
        yes, no = (out(network.add_plugin(func(inside, which=i))) for i in (2, 3))
        return out(choice.add_output(yes, no))

    model = build(make)
    x = np.abs(random(3))
    for sign, which in ((1, 2), (-1, 3), (-1, 3), (1, 2)):
        calls.clear()
        np.testing.assert_allclose(model(sign * x), sign * x * which, rtol=1e-6)
        assert calls == [which]


@pytest.mark.parametrize("holds", [True, False])
def test_condition_that_is_constant(holds: bool) -> None:
    def make(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (3,))
        choice = network.add_if_conditional()
        choice.set_condition(constant(network, holds, np.bool_))
        a = out(choice.add_input(x))
        none = trt.UnaryOperation.NEG
        return out(choice.add_output(unary(network, a, none), calculate(network, a, a)))

    x = random(3)
    np.testing.assert_allclose(build(make)(x), -x if holds else x + x)


def test_refused() -> None:
    def network_of(make: Any) -> trt.INetworkDefinition:
        network = trt.Builder().create_network(0)
        x = network.add_input("x", trt.float32, (2, 3))
        choice = network.add_if_conditional()
        choice.name = "choice"
        choice.set_condition(is_large(network, x))
        tensor = make(network, choice, out(choice.add_input(x)))
        network.mark_output(tensor)
        return network

    def other_rank(network: Any, choice: Any, a: Any) -> Any:
        total = out(network.add_reduce(a, trt.ReduceOperation.SUM, 1, False))
        return out(choice.add_output(a, total))

    with pytest.raises(trt.Error, match=r"gives \(2, 3\) and the other \(3,\)"):
        trt.compile(network_of(other_rank), device="cpu")

    def other_type(network: Any, choice: Any, a: Any) -> Any:
        return out(choice.add_output(a, out(network.add_cast(a, trt.int32))))

    with pytest.raises(trt.Error, match=r"gives FLOAT and the other INT32"):
        trt.compile(network_of(other_type), device="cpu")

    def from_inside(network: Any, choice: Any, a: Any) -> Any:
        choice.add_output(a, a)
        return unary(network, a, trt.UnaryOperation.NEG)

    with pytest.raises(trt.Error, match=r"is made inside of conditional 'choice'"):
        trt.compile(network_of(from_inside), device="cpu")

    def own_condition(network: Any, choice: Any, a: Any) -> Any:
        second = network.add_if_conditional()
        second.name = "second"
        b = out(second.add_input(network.get_input(0)))
        second.set_condition(is_large(network, b))
        return out(second.add_output(unary(network, b, trt.UnaryOperation.NEG), b))

    with pytest.raises(trt.Error, match=r"condition .* of conditional 'second' is made inside"):
        trt.compile(network_of(own_condition), device="cpu")
