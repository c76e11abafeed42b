"""Systems of linear equations, inverses and Cholesky's factors: loops over the columns of a
matrix, of any size and any batch.

Singular matrices fail the run, as in torch. Decompositions whose loops end when they have
converged (eigenvalues, singular values) are not written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ._graph import Graph, Value, broadcast
from ._shapes import expand, filled
from ._table import HINTS, aten

_INT64 = torch.int64


def _last(g: Graph, x: str) -> str:
    return g.op("Unsqueeze", x, g.ints([-1]))


def _last_but_one(g: Graph, x: str) -> str:
    return g.op("Unsqueeze", x, g.ints([-2]))


def _turned(g: Graph, x: Value) -> Value:
    """Matrices with rows and columns exchanged."""
    order = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    shape = [x.shape[i] for i in order]
    return Value.make(g.transpose(x, order), x.dtype, shape)


def _loop(
    g: Graph, count: Any, states: Sequence[Value], step: Callable[..., Sequence[str]]
) -> list[str]:
    """The states after so many steps. step: (number of the step, *states) -> states."""
    with g.inner() as inner:
        at = inner.input("step", _INT64)
        goes_on = inner.input("goes_on", torch.bool)
        here = [Value.of(inner.input("state", x.dtype), x) for x in states]
        after = step(at, *here)
        inner.output(goes_on, torch.bool)
        for name, x in zip(after, states, strict=True):
            inner.output(name, x.dtype)
        body = inner.attribute()
    trips = g.scalar(count, _INT64)
    return g.ops("Loop", trips, None, *states, count=len(states), body=body)


def _places(g: Graph, count: Any) -> str:
    zero, one = g.scalar(0, _INT64), g.scalar(1, _INT64)
    return g.op("Range", zero, g.scalar(count, _INT64), one)


class _Pivot:
    """A step of elimination with the largest element of a column as its pivot."""

    def __init__(self, g: Graph, at: str, x: Value, rows: str) -> None:
        """rows: the numbers of the rows."""
        self.g, self.at = g, at
        column = g.op("Gather", x, at, axis=x.rank - 1)
        is_done = g.op("Less", rows, at)
        sizes = g.op("Where", is_done, g.scalar(-1.0, x.dtype), g.op("Abs", column))
        self.place = g.op("ArgMax", sizes, axis=x.rank - 2, keepdims=0)
        upright = _last(g, rows)
        chosen = _last(g, _last(g, self.place))
        shape = g.ints([*x.shape[:-2], 1, x.shape[-1]])
        index = g.op("Expand", chosen, shape)
        self.row = g.op("GatherElements", x, index, axis=x.rank - 2)
        own = _last_but_one(g, g.op("Gather", x, at, axis=x.rank - 2))
        self.rest = g.op("Where", g.op("Equal", upright, chosen), own, x)
        self.pivot = g.op("Gather", self.row, at, axis=x.rank - 1)  # [..., 1]
        self.is_here = g.op("Equal", upright, at)
        self.axis = x.rank - 1

    def eliminated(self) -> str:
        """The matrix with the pivot's column cleared, and the pivot's row divided."""
        g = self.g
        row = g.op("Div", self.row, _last(g, self.pivot))
        factors = _last(g, g.op("Gather", self.rest, self.at, axis=self.axis))
        less = g.op("Sub", self.rest, g.op("Mul", factors, row))
        return g.op("Where", self.is_here, row, less)


def _is_empty(out: Value) -> bool:
    return any(isinstance(extent, int) and extent == 0 for extent in out.shape)


def _solved(g: Graph, a: Value, b: Value) -> tuple[str, str]:
    """X of A X = B, and torch's `info`: the first column without a pivot, from 1, or 0."""
    n, dtype = a.shape[-1], a.dtype
    joint = Value.make(
        g.op("Concat", a, b, axis=a.rank - 1), dtype, [*a.shape[:-1], n + b.shape[-1]]
    )
    rows = _places(g, n)
    none = Value.make("", torch.int32, a.shape[:-2])
    info = Value.of(filled(g, 0, none), none)

    def step(at: str, x: Value, info: Value) -> list[str]:
        found = _Pivot(g, at, x, rows)
        pivot = g.op("Squeeze", found.pivot, g.ints([-1]))
        is_first = g.op(
            "And",
            g.op("Equal", pivot, g.scalar(0.0, dtype)),
            g.op("Equal", info, g.scalar(0, torch.int32)),
        )
        number = g.cast(g.op("Add", at, g.scalar(1, _INT64)), torch.int32)
        return [found.eliminated(), g.op("Where", is_first, number, info)]

    x, info_after = _loop(g, n, [joint, info], step)
    ends = g.ints([n]), g.ints([2**63 - 1]), g.ints([-1])
    return g.op("Slice", x, *ends), info_after


def check_info(g: Graph, info: Value, what: str) -> None:
    """Runs fail where torch raises an error: a matrix has no inverse, or no factor."""
    if 0 in info.shape:
        return
    # Of no matrices, as a batch of a run may be, the sum is 0.
    failures = g.op("ReduceSum", info, keepdims=0) if info.rank else info
    holds = g.op("Equal", failures, g.scalar(0, torch.int32))
    reason = "positive definite" if "cholesky" in what else "invertible"
    g.check(holds, f"{what}: the input matrix is not {reason}")


@aten("linalg_inv_ex.default")
def _inverse(g: Graph, out: Any, x: Value, *, check_errors: bool = False) -> list[str]:
    if _is_empty(out[0]):
        return [filled(g, 0, each) for each in out]
    square = Value.make("", x.dtype, [x.shape[-2], x.shape[-1]])
    one = g.op("EyeLike", filled(g, 0, square))
    found, info = _solved(g, x, Value.of(expand(g, out[0], Value.of(one, square)), out[0]))
    if check_errors:
        check_info(g, Value.of(info, out[1]), "linalg.inv_ex")
    return [found, info]


def _batched(g: Graph, a: Value, b: Value) -> tuple[Value, Value]:
    """Matrices with one batch."""
    batch = broadcast(a.shape[:-2], b.shape[:-2])
    made = []
    for x in (a, b):
        like = Value.make("", x.dtype, [*batch, *x.shape[-2:]])
        same = tuple(like.shape) == tuple(x.shape)
        made.append(x if same else Value.of(expand(g, like, x), like))
    return made[0], made[1]


@aten("_linalg_solve_ex.default")
def _solve_ex(
    g: Graph, out: Any, a: Value, b: Value, *, left: bool = True, check_errors: bool = False
) -> list[str | None]:
    if _is_empty(out[0]):
        return [filled(g, 0, out[0]), None, None, filled(g, 0, out[3])]
    # A vector for each matrix, as torch tells it.
    is_vector = b.rank == 1 or (
        a.rank - 1 == b.rank and tuple(b.shape) == tuple(a.shape[:-1])
    )
    if is_vector:
        b = Value.make(_last(g, b), b.dtype, [*b.shape, 1])
    a, b = _batched(g, a, b)
    if not left:
        a, b = _turned(g, a), _turned(g, b)
    found, info = _solved(g, a, b)
    if not left:
        found = _turned(g, Value.of(found, b))
    if is_vector:
        found = g.op("Squeeze", found, g.ints([-1]))
    if check_errors:
        check_info(g, Value.of(info, out[3]), "linalg.solve_ex")
    return [found, None, None, info]


@aten("_linalg_slogdet.default")
def _slogdet(g: Graph, out: Any, x: Value) -> list[str | None]:
    """From the pivots; exchanged rows turn the sign."""
    dtype, batch = x.dtype, x.shape[:-2]
    like = Value.make("", dtype, batch)
    states = [x, *(Value.of(filled(g, begin, like), like) for begin in (1, 0))]
    if _is_empty(x):
        return [states[1], states[2], None, None]
    rows, zero = _places(g, x.shape[-1]), g.scalar(0.0, dtype)

    def step(at: str, x: Value, sign: Value, size: Value) -> list[str]:
        found = _Pivot(g, at, x, rows)
        pivot = g.op("Squeeze", found.pivot, g.ints([-1]))
        stays = g.op("Equal", found.place, at)
        turn = g.op("Where", stays, g.scalar(1.0, dtype), g.scalar(-1.0, dtype))
        sign_after = g.op("Mul", g.op("Mul", sign, turn), g.op("Sign", pivot))
        # Behind a pivot of 0 there is NaN, which changes nothing any more.
        sign_after = g.op("Where", g.op("Equal", sign, zero), zero, sign_after)
        size_after = g.op("Add", size, g.op("Log", g.op("Abs", pivot)))
        return [found.eliminated(), sign_after, size_after]

    _, sign, size = _loop(g, x.shape[-1], states, step)
    least = g.scalar(float("-inf"), dtype)
    size = g.op("Where", g.op("Equal", sign, zero), least, size)
    # A matrix with NaN has the sign 0, too, in torch.
    return [g.op("Where", g.op("IsNaN", sign), zero, sign), size, None, None]


def _substituted(
    g: Graph, a: Value, b: Value, upper: bool, is_unit: bool = False
) -> str:
    """X of A X = B for a triangular A, whose other half is not read."""
    n = a.shape[-1]
    half = g.op("Trilu", a, g.scalar(0, _INT64), upper=int(upper))
    rows = _last(g, _places(g, n))
    begin = Value.of(filled(g, 0, b), b)

    def step(at: str, x: Value) -> list[str]:
        if upper:
            last = g.scalar(n - 1, _INT64)
            at = g.op("Sub", last, at)
        row = g.op("Gather", half, at, axis=a.rank - 2)
        known = g.op("MatMul", _last_but_one(g, row), x)
        wanted = _last_but_one(g, g.op("Gather", b, at, axis=b.rank - 2))
        found = g.op("Sub", wanted, known)
        if not is_unit:
            own = _last(g, _last(g, g.op("Gather", row, at, axis=a.rank - 2)))
            found = g.op("Div", found, own)
        return [g.op("Where", g.op("Equal", rows, at), found, x)]

    return _loop(g, n, [begin], step)[0]


def _triangular(
    g: Graph, out: Value, a: Value, b: Value, upper: bool, left: bool, is_unit: bool
) -> str:
    if _is_empty(out):
        return filled(g, 0, out)
    a, b = _batched(g, a, b)
    if left:
        return _substituted(g, a, b, upper, is_unit)
    b = _turned(g, b)
    found = _substituted(g, _turned(g, a), b, not upper, is_unit)
    return _turned(g, Value.of(found, b))


@aten("linalg_solve_triangular.default")
def _solve_triangular(
    g: Graph, out: Any, a: Value, b: Value, *, upper: bool, left: bool = True,
    unitriangular: bool = False,
) -> str:  # fmt: skip
    return _triangular(g, out, a, b, upper, left, unitriangular)


@aten("triangular_solve.default")
def _triangular_solve(
    g: Graph, out: Any, b: Value, a: Value, upper: bool = True, transpose: bool = False,
    unitriangular: bool = False,
) -> list[str]:  # fmt: skip
    like = expand(g, out[1], a) if tuple(out[1].shape) != tuple(a.shape) else str(a)
    if transpose:
        a, upper = _turned(g, a), not upper
    return [_triangular(g, out[0], a, b, upper, True, unitriangular), like]


def _cholesky_factor(g: Graph, x: Value, upper: bool) -> str:
    """Column by column, from the lower half of the matrix."""
    n, dtype = x.shape[-1], x.dtype
    a = _turned(g, x) if upper else x
    places = _places(g, n)
    rows = _last(g, places)
    begin = Value.of(filled(g, 0, x), x)

    def step(at: str, low: Value) -> list[str]:
        row = g.op("Gather", low, at, axis=x.rank - 2)
        known = g.op("MatMul", low, _last(g, row))
        column = _last(g, g.op("Gather", a, at, axis=x.rank - 1))
        rest = g.op("Sub", column, known)
        root = g.op("Sqrt", _last_but_one(g, g.op("Gather", rest, at, axis=x.rank - 2)))
        zero = g.scalar(0.0, dtype)
        made = g.op("Where", g.op("Less", rows, at), zero, g.op("Div", rest, root))
        return [g.op("Where", g.op("Equal", places, at), made, low)]

    found = Value.of(_loop(g, n, [begin], step)[0], x)
    return _turned(g, found) if upper else found


@aten("cholesky.default")
def _cholesky(g: Graph, out: Any, x: Value, upper: bool = False) -> str:
    return filled(g, 0, out) if _is_empty(out) else _cholesky_factor(g, x, upper)


@aten("linalg_cholesky_ex.default")
def _cholesky_ex(
    g: Graph, out: Any, x: Value, *, upper: bool = False, check_errors: bool = False
) -> list[str]:
    if _is_empty(out[0]):
        return [filled(g, 0, each) for each in out]
    made = _cholesky_factor(g, x, upper)
    # Behind a column that has no root there is NaN; the first one is the `info`.
    roots = g.op("ReduceSum", made, g.ints([-1 if not upper else -2]), keepdims=0)
    is_nan = g.cast(g.op("IsNaN", roots), torch.int32)
    first = g.op("ArgMax", is_nan, axis=x.rank - 2, keepdims=0)
    is_any = g.op("ReduceMax", is_nan, g.ints([-1]), keepdims=0)
    number = g.cast(g.op("Add", first, g.scalar(1, _INT64)), torch.int32)
    info = g.op("Mul", number, is_any)
    if check_errors:
        check_info(g, Value.of(info, out[1]), "linalg.cholesky_ex")
    return [made, info]


def _by_factor(g: Graph, factor: Value, b: Value, upper: bool) -> str:
    """X of A X = B by Cholesky's factor of A."""
    factor, b = _batched(g, factor, b)
    first, second = (_turned(g, factor), factor) if upper else (factor, _turned(g, factor))
    between = Value.of(_substituted(g, first, b, False), b)
    return _substituted(g, second, between, True)


@aten("cholesky_solve.default", "_cholesky_solve_helper.default")
def _cholesky_solve(
    g: Graph, out: Any, b: Value, factor: Value, upper: bool = False
) -> str:
    return filled(g, 0, out) if _is_empty(out) else _by_factor(g, factor, b, upper)


@aten("cholesky_inverse.default")
def _cholesky_inverse(g: Graph, out: Any, factor: Value, upper: bool = False) -> str:
    if _is_empty(out):
        return filled(g, 0, out)
    square = Value.make("", factor.dtype, factor.shape[-2:])
    one = Value.of(g.op("EyeLike", filled(g, 0, square)), square)
    return _by_factor(g, factor, Value.of(expand(g, factor, one), factor), upper)


_SUPPORTED = "linalg.inv, solve, solve_triangular, cholesky and slogdet are supported"

for _name in (
    "_linalg_eigh", "linalg_eig", "_linalg_svd", "linalg_qr", "linalg_lu_factor_ex", "linalg_lu",
    "linalg_ldl_factor_ex", "linalg_lstsq", "geqrf",
):  # fmt: skip
    HINTS[f"aten.{_name}.default"] = _SUPPORTED
