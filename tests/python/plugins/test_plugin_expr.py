"""Symbolic dimensions: the engine's results against Python's integers."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import rabbet as trt
import rabbet.plugin as trtp
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.python.support.plugins import build, call, new_id

small = st.integers(min_value=1, max_value=9)


def described(formula: Callable[[Any, Any], Any], a: int, b: int) -> int:
    """Extent that the engine finds for formula(d0, d1) with dynamic d0, d1."""
    plugin_id = new_id("expr")

    @trtp.register(plugin_id)
    def register(x: trtp.TensorDesc) -> trtp.TensorDesc:
        d0, d1 = x.shape_expr
        return trtp.from_shape_expr((formula(d0, d1),), trt.float32)

    @trtp.impl(plugin_id)
    def fill(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
        np.asarray(outputs[0])[...] = 1

    def make(network: trt.INetworkDefinition) -> Any:
        x = network.add_input("x", trt.float32, (-1, -1))
        return network.add_plugin(call(plugin_id)(x)).get_output(0)

    model = build(make, shapes={"x": ((1, 1), (5, 5), (9, 9))})
    extent = model(np.zeros((a, b), np.float32)).shape[0]
    trtp._plugin.QDP_REGISTRY[plugin_id].deregister()
    return extent


FORMULAS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[int, int], int]]] = {
    "sum": (lambda a, b: a + b, operator.add),
    "reflected": (lambda a, b: 3 + a * 2 - 1 + b // 1, lambda a, b: 3 + a * 2 - 1 + b),
    "product": (lambda a, b: a * b, operator.mul),
    "difference": (lambda a, b: 20 - a - b, lambda a, b: 20 - a - b),
    "quotient": (lambda a, b: (a * 7) // b, lambda a, b: a * 7 // b),
    "ceil": (lambda a, b: trtp.cdiv(a, b), lambda a, b: -(-a // b)),
    "max": (
        lambda a, b: trtp.max(a, b) + trtp.max(a, 4),
        lambda a, b: max(a, b) + max(a, 4),
    ),
    "min": (
        lambda a, b: trtp.min(a, b) + trtp.min(5, b),
        lambda a, b: min(a, b) + min(5, b),
    ),
    "modulo": (lambda a, b: a % b + 1, lambda a, b: a % b + 1),
    "equal": (lambda a, b: (a == b) + 1, lambda a, b: int(a == b) + 1),
    "unequal": (lambda a, b: (a != b) + 1, lambda a, b: int(a != b) + 1),
    "less": (lambda a, b: (a < b) + 1, lambda a, b: int(a < b) + 1),
    "greater": (lambda a, b: (a > b) + (a > 3) + 1, lambda a, b: (a > b) + (a > 3) + 1),
    "at most": (
        lambda a, b: (a <= b) + (b >= 2) + 1,
        lambda a, b: (a <= b) + (b >= 2) + 1,
    ),
    "at least": (lambda a, b: (a >= b) + 1, lambda a, b: (a >= b) + 1),
    "negated": (lambda a, b: -a + 20 + b, lambda a, b: -a + 20 + b),
}


@pytest.mark.parametrize("name", FORMULAS)
@settings(max_examples=4, deadline=None)
@given(a=small, b=small)
def test_formulas(name: str, a: int, b: int) -> None:
    symbolic, plain = FORMULAS[name]
    assert described(symbolic, a, b) == plain(a, b)


@given(a=st.integers(-50, 50), b=st.integers(-50, 50))
def test_constants_fold(a: int, b: int) -> None:
    x, y = trtp.ShapeExpr(a), trtp.ShapeExpr(b)
    assert (x + y).constant_value() == a + b
    assert (x * y - 3).constant_value() == a * b - 3
    assert trtp.max(x, b).constant_value() == max(a, b)
    assert bool(x < y) == (a < b)
    if b:
        assert (x // y).constant_value() == a // b
        assert trtp.cdiv(x, y).constant_value() == -(-a // b)


def test_fakes_and_truth() -> None:
    fake = trtp.ShapeExpr()
    assert fake.is_fake
    assert (fake + 1).is_fake
    with pytest.raises(RuntimeError, match="fake"):
        _ = fake.is_constant
    with pytest.raises(RuntimeError, match="truth"):
        bool(fake)
    with pytest.raises(ValueError, match="// 0"):
        trtp.ShapeExpr(1) // 0
    with pytest.raises(TypeError, match="cdiv"):
        trtp.ShapeExpr(1) / 2
    with pytest.raises(TypeError):
        trtp.ShapeExpr(1) + 1.5
    with pytest.raises(ValueError, match="builtins"):
        trtp.max(1, 2)
    with pytest.raises(TypeError):
        hash(fake)


def test_lists_of_expressions() -> None:
    exprs = trtp.ShapeExprs.from_tuple((2, trtp.ShapeExpr(3)))
    assert exprs.numel().constant_value() == 6
    exprs[-1] = 5
    assert [e.constant_value() for e in exprs] == [2, 5]
    with pytest.raises(IndexError):
        exprs[2] = 1
    with pytest.raises(ValueError, match="8"):
        trtp.ShapeExprs(9)
    with pytest.raises(ValueError, match="never set"):
        trtp.ShapeExprs(1).numel()
    with pytest.raises(ValueError, match="ShapeExpr takes"):
        exprs[0] = "3"
    assert len(trtp.SymIntExprs.from_tuple([trtp.SymInt32(1)])) == 1


def test_launch_parameters() -> None:
    params = trtp.KernelLaunchParams(grid_x=4, block_x=trtp.SymInt32(256))
    params.shared_mem = trtp.ShapeExpr(8) * 2
    assert params.shared_mem.constant_value() == 16
    with pytest.raises(AttributeError):
        params.grid = 1


def test_shape() -> None:
    shape = trtp.Shape((2, 3))
    shape[0] = np.int64(5)
    assert list(shape) == [5, 3]
    assert shape == (5, 3)
    assert shape.numel() == 15
    assert str(shape) == "Shape(5, 3)"
    assert shape[-1] == 3
    assert np.prod(shape) == 15
    assert np.empty(shape).shape == (5, 3)
    with pytest.raises(IndexError):
        shape[2] = 1
    with pytest.raises(ValueError, match="static"):
        _ = shape.max
    dynamic = trtp.Shape((2, -1))
    assert dynamic.is_dynamic
    with pytest.raises(ValueError, match="dynamic"):
        dynamic.numel()
    with pytest.raises(AttributeError, match="profile"):
        _ = dynamic.opt


def test_lists_that_are_too_long() -> None:
    """Not by taking the memory for them first."""
    for wrong in (-1, 2**40):
        with pytest.raises(ValueError, match=f"SymExprs: expected 0 to 4096 .*{wrong}"):
            trtp.SymExprs(wrong)
        with pytest.raises(ValueError, match="a tensor has"):
            trt.DimsExprs(wrong)
    with pytest.raises(TypeError):
        trtp.SymExprs("1")
