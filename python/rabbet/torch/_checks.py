"""Conditions on sizes of arguments: computed in Python, with Python's numbers, when a call
needs it. They are kept as nested lists, so that a saved model has them as JSON."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import sympy

from .._errors import Error, FailedPreconditionError, UnsupportedError

# Python's function for each class of expressions, SymPy's and torch's own.
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Abs": abs,
    "Add": lambda *values: sum(values),
    "And": lambda *values: all(values),
    "BitwiseFn_bitwise_and": operator.and_,
    "BitwiseFn_bitwise_or": operator.or_,
    "BitwiseFn_bitwise_xor": operator.xor,
    "CeilDiv": lambda a, b: -(-a // b),
    "CeilToInt": math.ceil,
    "CleanDiv": operator.floordiv,
    "Equality": operator.eq,
    "FloatPow": lambda a, b: float(a) ** float(b),
    "FloatTrueDiv": lambda a, b: float(a) / float(b),
    "FloorDiv": operator.floordiv,
    "FloorToInt": math.floor,
    "GreaterThan": operator.ge,
    "ITE": lambda holds, a, b: a if holds else b,
    "Identity": lambda a: a,
    "IntTrueDiv": operator.truediv,
    "LShift": operator.lshift,
    "LessThan": operator.le,
    "Max": max,
    "Min": min,
    "Mod": operator.mod,
    "ModularIndexing": lambda x, divisor, modulus: x // divisor % modulus,
    "Mul": lambda *values: math.prod(values),
    "Not": operator.not_,
    "Or": lambda *values: any(values),
    "Pow": operator.pow,
    "PowByNatural": operator.pow,
    "PythonMod": operator.mod,
    "RShift": operator.rshift,
    "RoundDecimal": round,
    "RoundToInt": round,
    "StrictGreaterThan": operator.gt,
    "StrictLessThan": operator.lt,
    "ToFloat": float,
    "TruncToFloat": lambda a: float(math.trunc(a)),
    "TruncToInt": math.trunc,
    "Unequality": operator.ne,
    "Where": lambda holds, a, b: a if holds else b,
    "ceiling": math.ceil,
    "floor": math.floor,
}
_FUNCTIONS.update(
    (f"OpaqueUnaryFn_{name}", getattr(math, name))
    for name in (
        "acos", "asin", "asinh", "atan", "cos", "cosh", "exp", "log", "log2", "sin", "sinh",
        "sqrt", "tan", "tanh",
    )
)  # fmt: skip


def listed(expr: Any) -> Any:
    """An expression as lists [class, operand, ...], numbers, and names of sizes."""
    if expr in (sympy.true, sympy.false):
        return bool(expr)
    if isinstance(expr, sympy.Symbol):
        return expr.name
    if isinstance(expr, sympy.Integer):
        return int(expr)
    if isinstance(expr, sympy.Number):
        return float(expr)
    kind = type(expr).__name__
    if kind not in _FUNCTIONS:
        raise UnsupportedError(f"'{expr}' is of the class {kind}, which no table has")
    return [kind, *map(listed, expr.args)]


def computed(tree: Any, sizes: Mapping[str, int]) -> Any:
    """The value of an expression that listed() made."""
    if isinstance(tree, str):
        return sizes[tree]
    if not isinstance(tree, list):
        return tree
    kind, *operands = tree
    return _FUNCTIONS[kind](*(computed(each, sizes) for each in operands))


def _holds(tree: Any, sizes: Mapping[str, int]) -> bool:
    """Sizes by which a condition divides by 0 do not meet it."""
    try:
        return bool(computed(tree, sizes))
    except (ArithmeticError, ValueError):
        return False


class Checks:
    """The conditions of a compiled module. Each has `told`, its text; `tree`, the listed
    expression; `sizes`, {name: [argument, axis or None for a number]}; `where`, the line that
    it comes from; and `in_plan`, whether the plan checks it in each run."""

    def __init__(self, conditions: Sequence[Mapping[str, Any]] = ()) -> None:
        self._all = list(conditions)
        self.own = [each for each in self._all if not each["in_plan"]]
        """Those that a plan cannot compute."""

    def before(self, leaves: Sequence[Any]) -> None:
        """Fails unless the conditions hold that a plan cannot compute."""
        for limit, values in _broken(self.own, leaves):
            raise FailedPreconditionError(f"{limit}; {values}")

    def explain(self, leaves: Sequence[Any], error: Error) -> None:
        """Adds the condition that arguments do not meet to the message of a failed run."""
        for limit, values in _broken(self._all, leaves):
            first = str(error.args[0]) if error.args else ""
            told = first if limit in first else f"{first}: {limit}"
            error.args = (f"{told}; {values}", *error.args[1:])
            return


def size_of(argument: Any, axis: int | None) -> Any:
    """A size of an argument, or the number that it is; None if it has no such axis."""
    if axis is None:
        return argument
    shape = argument.shape if hasattr(argument, "shape") else np.shape(argument)
    return shape[axis] if axis < len(shape) else None


def _broken(conditions: Any, leaves: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """Conditions that do not hold and the sizes in them, in words. A run says what is wrong
    with arguments that do not have these sizes."""
    for condition in conditions:
        sizes = {
            name: size_of(leaves[leaf], axis)
            for name, (leaf, axis) in condition["sizes"].items()
        }
        is_known = all(size is not None for size in sizes.values())
        if is_known and not _holds(condition["tree"], sizes):
            values = " and ".join(f"{name} is {size}" for name, size in sizes.items())
            yield limited(condition["told"], condition["where"]), values


def limited(told: str, where: str) -> str:
    """What an export holds for, in words. where: the line of the condition, or empty."""
    origin = f" ({where})" if where else ""
    return f"torch exported the module for sizes with {told} alone{origin}"
