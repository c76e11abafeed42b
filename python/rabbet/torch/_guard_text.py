"""Reads guards that a program of torch has as text, which is all that a saved one keeps:
Python's expressions as torch's PythonPrinter writes them. Nothing is evaluated."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any

import sympy
from torch.utils._sympy import functions as integers

SizeOf = Callable[[str, "int | None"], sympy.Expr]
"""The size of an argument's axis, or an argument that is a number (None), by the text of its
path: `['x'][0]`."""


def _divided(a: Any, b: Any) -> sympy.Expr:
    both = a.is_integer and b.is_integer
    return integers.IntTrueDiv(a, b) if both else integers.FloatTrueDiv(a, b)


def _power(a: Any, b: Any) -> sympy.Expr:
    both = a.is_integer and b.is_integer
    return integers.PowByNatural(a, b) if both else integers.FloatPow(a, b)


def _rounded(a: Any, digits: Any = None) -> sympy.Expr:
    return integers.RoundToInt(a) if digits is None else integers.RoundDecimal(a, digits)


_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: _divided,
    ast.FloorDiv: integers.FloorDiv,
    ast.Mod: integers.PythonMod,
    ast.Pow: _power,
    ast.LShift: integers.LShift,
    ast.RShift: integers.RShift,
    ast.BitAnd: lambda a, b: _bitwise("and", sympy.And, a, b),
    ast.BitOr: lambda a, b: _bitwise("or", sympy.Or, a, b),
    ast.BitXor: lambda a, b: _bitwise("xor", sympy.Xor, a, b),
    ast.Eq: sympy.Eq,
    ast.NotEq: sympy.Ne,
    ast.Lt: sympy.Lt,
    ast.LtE: sympy.Le,
    ast.Gt: sympy.Gt,
    ast.GtE: sympy.Ge,
    ast.And: sympy.And,
    ast.Or: sympy.Or,
    ast.Not: sympy.Not,
    ast.USub: lambda a: -a,
    ast.UAdd: lambda a: a,
}


def _bitwise(name: str, of_conditions: Any, a: Any, b: Any) -> Any:
    if a.is_Boolean and b.is_Boolean:
        return of_conditions(a, b)
    return getattr(integers, f"BitwiseFn_bitwise_{name}")(a, b)


_CALLS: dict[str, Callable[..., Any]] = {
    "abs": sympy.Abs,
    "max": integers.Max,
    "min": integers.Min,
    "round": _rounded,
    "float": integers.ToFloat,
    "int": integers.TruncToInt,
    "math.ceil": integers.CeilToInt,
    "math.floor": integers.FloorToInt,
    "math.trunc": integers.TruncToInt,
    "torch.sym_float": integers.ToFloat,
    "torch.sym_max": integers.Max,
    "torch.sym_min": integers.Min,
    "torch._sym_sqrt": integers.OpaqueUnaryFn_sqrt,
}
_CALLS.update(
    (f"math.{name}", getattr(integers, f"OpaqueUnaryFn_{name}"))
    for name in (
        "acos", "asin", "asinh", "atan", "cos", "cosh", "exp", "log", "log2", "sin", "sinh",
        "sqrt", "tan", "tanh",
    )
)  # fmt: skip
_CONSTANTS = {"math.inf": sympy.oo, "inf": sympy.oo, "math.pi": sympy.Float(3.141592653589793)}

_SIZE = re.compile(r"L(?P<path>(\[[^\[\]]+\]|\.\w+)+)(\.size\(\)\[(?P<axis>\d+)\])?")


def read(text: str, size_of: SizeOf) -> sympy.Basic:
    """The expression of a guard; ValueError, SyntaxError or LookupError if it is none."""
    return _Reader(size_of).expression(ast.parse(text.strip(), mode="eval").body)


class _Reader:
    def __init__(self, size_of: SizeOf) -> None:
        self._size_of = size_of

    def expression(self, node: ast.AST) -> Any:
        """The expression of a part."""
        reader = _READERS.get(type(node))
        if reader is None:
            raise ValueError(ast.unparse(node))
        return reader(self, node)

    def _constant(self, node: ast.Constant) -> Any:
        if not isinstance(node.value, (bool, int, float)):
            raise ValueError(ast.unparse(node))
        return sympy.sympify(node.value)

    def _compare(self, node: ast.Compare) -> Any:
        sides = [self.expression(side) for side in (node.left, *node.comparators)]
        pairs = zip(node.ops, sides, sides[1:], strict=False)
        return sympy.And(*(_operator(op)(a, b) for op, a, b in pairs))

    def _bool(self, node: ast.BoolOp) -> Any:
        return _operator(node.op)(*map(self.expression, node.values))

    def _binary(self, node: ast.BinOp) -> Any:
        return _operator(node.op)(self.expression(node.left), self.expression(node.right))

    def _unary(self, node: ast.UnaryOp) -> Any:
        return _operator(node.op)(self.expression(node.operand))

    def _either(self, node: ast.IfExp) -> Any:
        return integers.Where(*map(self.expression, (node.test, node.body, node.orelse)))

    def _call(self, node: ast.Call) -> Any:
        name = ast.unparse(node.func)
        if name not in _CALLS or node.keywords:
            raise ValueError(ast.unparse(node))
        return _CALLS[name](*map(self.expression, node.args))

    def _attribute(self, node: ast.AST) -> Any:
        return _CONSTANTS[ast.unparse(node)]

    def _subscript(self, node: ast.Subscript) -> Any:
        """`L['x'].size()[0]`, or a number `L['n']`."""
        whole = ast.unparse(node)
        found = _SIZE.fullmatch(whole)
        if not found:
            raise ValueError(whole)
        return self._size_of(found["path"], int(found["axis"]) if found["axis"] else None)


def _operator(op: ast.AST) -> Callable[..., Any]:
    if type(op) not in _OPERATORS:
        raise ValueError(type(op).__name__)
    return _OPERATORS[type(op)]


_READERS: dict[type[ast.AST], Callable[[_Reader, Any], Any]] = {
    ast.Attribute: _Reader._attribute,
    ast.BinOp: _Reader._binary,
    ast.BoolOp: _Reader._bool,
    ast.Call: _Reader._call,
    ast.Compare: _Reader._compare,
    ast.Constant: _Reader._constant,
    ast.IfExp: _Reader._either,
    ast.Name: _Reader._attribute,
    ast.Subscript: _Reader._subscript,
    ast.UnaryOp: _Reader._unary,
}
