"""Layers of random networks that work element by element."""

from __future__ import annotations

from typing import Any

import numpy as np
import rabbet as trt

from tests.python.randomized.random_networks import (
    FLOATS,
    A,
    E,
    Net,
    U,
    Unfit,
    Value,
)


def numeric(v: Value) -> bool:
    return v.dtype in (*FLOATS, trt.int32, trt.int64)


def real(v: Value) -> bool:
    return v.is_float


def exact_real(v: Value) -> bool:
    return v.is_float and v.exact


def integral(v: Value) -> bool:
    return v.exact and v.dtype in (trt.int32, trt.int64)


def partner(net: Net, x: Value) -> Value:
    """A second operand: of the same shape, broadcast, itself, or a constant."""
    def fits(v: Value) -> bool:
        return (
            v.dtype is x.dtype
            and v.rank == x.rank
            and v.unknown is x.unknown
            and all(
                all(a in (b, 1) for a, b in zip(small, large, strict=True))
                for small, large in zip(v.shapes, x.shapes, strict=True)
            )
        )

    if net.chance(0.5):
        return net.value(fits)
    shape = [x.tensor.shape[i] if x.fixed(i) and net.chance(0.5) else 1 for i in range(x.rank)]
    if x.dtype is trt.bool:
        return net.constant(net.random.integers(0, 2, tuple(shape)).astype(bool), x.dtype)
    return net.constant(net.numbers(shape), x.dtype)


def product_error(x: Value, y: Value, terms: int, rounding: float) -> float:
    both = x.bound * y.error + y.bound * x.error + x.error * y.error
    return terms * (both + rounding * max(1.0, x.bound * y.bound))


ARITHMETIC: dict[Any, Any] = {
    E.SUM: np.add, E.SUB: np.subtract, E.PROD: np.multiply, E.MAX: np.maximum,
    E.MIN: np.minimum, E.DIV: np.divide,
}  # fmt: skip


def combine(net: Net, op: Any, x: Value, y: Value) -> Value:
    """A function of two elements."""
    rounding = net.rounding(x.dtype)
    step, error = 0.0, 0.0
    if op is E.DIV:  # by what is 1 or more
        error = x.error + (x.bound + 1) * y.error + 2 * rounding * max(1.0, x.bound)
    elif x.exact and y.exact:
        step = x.step * y.step if op is E.PROD else min(x.step, y.step)
    elif op is E.PROD:
        error = product_error(x, y, 1, rounding)
    else:
        error = x.error + y.error + rounding * max(1.0, x.bound + y.bound)
    return net.layer(
        f"elementwise {op.name}", lambda: net.network.add_elementwise(x.tensor, y.tensor, op),
        [x, y], ARITHMETIC[op], None, step, error,
    )  # fmt: skip


def elementwise(net: Net) -> None:
    x = net.value(numeric)
    y = partner(net, x)
    if net.chance(0.5):
        x, y = y, x
    combine(net, net.pick([E.SUM, E.SUB, E.PROD, E.MAX, E.MIN]), x, y)


def comparison(net: Net) -> None:
    x = net.value(lambda v: numeric(v) and v.exact)
    y = partner(net, x)
    if not y.exact:
        raise Unfit
    kinds = {E.EQUAL: np.equal, E.GREATER: np.greater, E.LESS: np.less}
    op = net.pick(list(kinds))
    net.layer(
        f"elementwise {op.name}", lambda: net.network.add_elementwise(x.tensor, y.tensor, op),
        [x, y], kinds[op], trt.bool, 1.0, 0.0,
    )  # fmt: skip


def logical(net: Net) -> None:
    x = net.value(lambda v: v.dtype is trt.bool)
    if net.chance(0.3):
        net.layer("unary NOT", lambda: net.network.add_unary(x.tensor, U.NOT), [x], np.logical_not)
        return
    y = partner(net, x)
    kinds = {E.AND: np.logical_and, E.OR: np.logical_or, E.XOR: np.logical_xor}
    op = net.pick(list(kinds))
    net.layer(
        f"elementwise {op.name}", lambda: net.network.add_elementwise(x.tensor, y.tensor, op),
        [x, y], kinds[op],
    )  # fmt: skip


def unary(net: Net) -> None:
    x = net.value(lambda v: v.is_float or integral(v))
    kinds: dict[Any, Any] = {U.NEG: np.negative, U.ABS: np.abs}
    if exact_real(x):
        kinds |= {U.FLOOR: np.floor, U.CEIL: np.ceil, U.ROUND: np.round, U.SIGN: np.sign}
    op = net.pick(list(kinds))
    step = 1.0 if op in (U.FLOOR, U.CEIL, U.ROUND, U.SIGN) else x.step
    net.layer(
        f"unary {op.name}", lambda: net.network.add_unary(x.tensor, op), [x], kinds[op],
        None, step,
    )  # fmt: skip


def activation(net: Net) -> None:
    x = net.value(real)
    kinds: dict[str, Any] = {
        "RELU": lambda a: np.maximum(a, 0),
        "CLIP": lambda a: np.clip(a, -4, 4),
        "LEAKY_RELU": lambda a: np.where(a > 0, a, a / 2),
        "TANH": np.tanh,
        "SIGMOID": lambda a: (1 + np.tanh(a / 2)) / 2,
    }
    name = net.pick(list(kinds))
    smooth = name in ("TANH", "SIGMOID")

    def make() -> Any:
        layer = net.network.add_activation(x.tensor, getattr(A, name))
        if name == "CLIP":
            layer.alpha, layer.beta = -4.0, 4.0
        if name == "LEAKY_RELU":
            layer.alpha = 0.5
        return layer

    step = 0.0 if smooth else x.step / 2 if name == "LEAKY_RELU" else x.step
    error = x.error + (0 if step else net.rounding(x.dtype) * max(1.0, x.bound))
    net.layer(f"activation {name}", make, [x], kinds[name], None, step, error)


def clip(net: Net) -> None:
    """Keeps numbers small."""
    x = net.value(lambda v: exact_real(v) and v.bound / v.step > 64)

    def make() -> Any:
        layer = net.network.add_activation(x.tensor, A.CLIP)
        layer.alpha, layer.beta = -8.0, 8.0
        return layer

    whole = net.layer("activation CLIP", make, [x], lambda a: np.clip(a, -8, 8))
    if whole.step < 1:
        net.layer(
            "unary FLOOR", lambda: net.network.add_unary(whole.tensor, U.FLOOR), [whole],
            np.floor, None, 1.0,
        )  # fmt: skip


def cast(net: Net) -> None:
    x = net.value(lambda v: v.exact and v.dtype is not trt.int8)
    types = [trt.float32, trt.float16, trt.int32, trt.int64]
    to = net.pick([t for t in types if t is not x.dtype])
    step = 1.0 if to not in FLOATS or not x.is_float else x.step
    kind = np.float64 if to in FLOATS else np.int64
    net.layer(
        f"cast {to.name}", lambda: net.network.add_cast(x.tensor, to), [x],
        lambda a: a.astype(kind), to, step,
    )  # fmt: skip


def identity(net: Net) -> None:
    x = net.value()
    if x.dtype is trt.int8:
        raise Unfit
    net.layer("identity", lambda: net.network.add_identity(x.tensor), [x], lambda a: a)


def select(net: Net) -> None:
    c = net.value(lambda v: v.dtype is trt.bool)
    x = net.value(
        lambda v: numeric(v) and v.rank == c.rank and v.dims == c.dims
        and v.unknown is c.unknown
    )  # fmt: skip
    y = partner(net, x)
    exact = x.exact and y.exact
    net.layer(
        "select", lambda: net.network.add_select(c.tensor, x.tensor, y.tensor), [c, x, y],
        np.where, x.dtype, min(x.step, y.step) if exact else 0.0, max(x.error, y.error),
    )  # fmt: skip
