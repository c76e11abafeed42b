"""What an export holds for: conditions on sizes that torch met while it ran the module, and
least extents that the caller stated."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sympy
import torch
from torch.utils import _pytree as pytree
from torch.utils._sympy import functions as integers

from .._errors import UnsupportedError
from ._graph import Graph


def _environment(program: torch.export.ExportedProgram) -> Any:
    """Torch's table of the program's symbols, or None."""
    for node in program.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        sizes = value.shape if isinstance(value, torch.Tensor) else (value,)
        for size in sizes:
            if isinstance(size, torch.SymInt):
                return size.node.shape_env
    return None


# Operators of torch's guards.
_OPERATORS: dict[type[ast.AST], Any] = {
    ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b,
    ast.Pow: lambda a, b: a**b, ast.FloorDiv: integers.FloorDiv, ast.Mod: integers.PythonMod,
    ast.Eq: sympy.Eq, ast.NotEq: sympy.Ne, ast.Lt: sympy.Lt, ast.LtE: sympy.Le,
    ast.Gt: sympy.Gt, ast.GtE: sympy.Ge, ast.And: sympy.And, ast.Or: sympy.Or,
    ast.Not: sympy.Not, ast.USub: lambda a: -a,
}  # fmt: skip
_SIZE = re.compile(r"L((?:\[[^]]+\])+)\.size\(\)\[(\d+)\]")


def _written(node: ast.AST, names: Mapping[str, Any]) -> Any:
    """The expression of a part of a guard."""
    if isinstance(node, ast.Constant):
        return sympy.sympify(node.value)
    if isinstance(node, ast.Name) and node.id in names:
        return names[node.id]
    if isinstance(node, ast.Compare):
        sides = [_written(side, names) for side in (node.left, *node.comparators)]
        pairs = zip(node.ops, sides, sides[1:], strict=False)
        return sympy.And(*(_OPERATORS[type(op)](a, b) for op, a, b in pairs))
    if isinstance(node, ast.BoolOp):
        return _OPERATORS[type(node.op)](*(_written(v, names) for v in node.values))
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        a, b = (_written(side, names) for side in (node.left, node.right))
        return _OPERATORS[type(node.op)](a, b)
    if isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_written(node.operand, names))
    raise ValueError(ast.unparse(node))


def _read(inputs: Mapping[str, Any], text: str) -> sympy.Basic:
    """A guard that a program has as text, which is all that a saved one keeps. inputs: the
    program's, by name."""
    names: dict[str, Any] = {}

    def named(found: re.Match[str]) -> str:
        name = "_".join(re.findall(r"\w+", found[1]))
        extent = inputs[name].shape[int(found[2])]
        number = extent.node.expr if isinstance(extent, torch.SymInt) else extent
        names[f"s{len(names)}"] = sympy.sympify(number)
        return f"s{len(names) - 1}"

    try:
        tree = ast.parse(_SIZE.sub(named, text), mode="eval")
        return _written(tree.body, names)
    except (AttributeError, IndexError, KeyError, SyntaxError, ValueError) as error:
        raise UnsupportedError(
            f"torch's export holds for sizes with '{text}' alone, which Rabbet cannot check"
        ) from error


def conditions(
    program: torch.export.ExportedProgram, texts: Sequence[str] = ()
) -> list[sympy.Basic]:
    """Conditions on sizes of inputs under which the program is the module: it has one side
    of each `if`. Ranges of single extents are told by `range_constraints`. texts: the
    guards of the program before it was decomposed, which one that was loaded has alone."""
    environment = _environment(program)
    found: dict[sympy.Basic, None] = {}
    if environment is not None and not environment.var_to_sources:  # it was loaded
        nodes = program.graph.find_nodes(op="placeholder")
        inputs = {node.name: node.meta.get("val") for node in nodes}
        found = dict.fromkeys(_read(inputs, text) for text in texts)
        return [expr for expr in found if expr not in (sympy.true, sympy.false)]
    for guard in environment.guards if environment is not None else ():
        expr = environment.replace(guard.expr)
        inputs = expr.free_symbols <= environment.var_to_sources.keys()
        if inputs and expr not in (sympy.true, sympy.false):
            found[expr] = None
    return list(found)


def write(graph: Graph, conditions: Sequence[sympy.Basic]) -> None:
    """Adds the conditions to the graph; runs that do not meet them fail."""
    for condition in conditions:
        graph.origin = "guard"
        try:
            holds = graph.truth(condition)
        except UnsupportedError as error:
            raise UnsupportedError(
                f"torch's export holds for sizes with '{condition}' alone, which Rabbet "
                f"cannot check: {error}"
            ) from error
        message = f"torch exported the module for sizes with {_told(graph, condition)} alone"
        graph.check(holds, message)


def _told(graph: Graph, condition: sympy.Basic) -> str:
    """The condition with the places of its symbols."""
    places = {str(symbol): graph.place(symbol) for symbol in condition.free_symbols}
    return re.sub(r"\w+", lambda found: places.get(found[0], found[0]), str(condition))


# ---- Ranges that the caller stated


def _arguments(module: Any, args: Any, kwargs: Any, dynamic_shapes: Any) -> Any:
    """Arguments in the structure of dynamic_shapes."""
    if not isinstance(dynamic_shapes, Mapping):
        return (*(args or ()), *(kwargs or {}).values())
    signature = inspect.signature(getattr(module, "forward", module))
    return signature.bind(*(args or ()), **(kwargs or {})).arguments


def _dims(spec: Any, value: Any) -> Iterator[tuple[torch.Tensor, int, Any]]:
    """(tensor, axis, what is said of the axis)"""
    if spec is None:
        return
    pairs: Any = ()
    if isinstance(spec, Mapping):
        items = spec.items()
    elif isinstance(spec, (tuple, list)):
        items = enumerate(spec)  # type: ignore[assignment]
    else:
        return
    if isinstance(value, torch.Tensor):
        yield from ((value, axis, dim) for axis, dim in items)
        return
    if isinstance(value, Mapping):
        pairs = ((each, value.get(key)) for key, each in items)
    elif isinstance(value, (tuple, list)) and not isinstance(spec, Mapping):
        pairs = zip(spec, value, strict=False)
    for each, part in pairs:
        yield from _dims(each, part)


def stated_least(
    module: Any, args: Any, kwargs: Any, dynamic_shapes: Any
) -> dict[tuple[int, int], int]:
    """Least extents that Dims of dynamic_shapes state, by argument and axis. Torch takes 2
    for "no least extent", so that its programs do not tell whether the caller meant it."""
    if dynamic_shapes is None or isinstance(module, torch.export.ExportedProgram):
        return {}
    if hasattr(dynamic_shapes, "dynamic_shapes"):  # a ShapesCollection
        dynamic_shapes = dynamic_shapes.dynamic_shapes(module, args or (), kwargs)
    leaves = pytree.tree_leaves((args or (), kwargs or {}))
    places = {id(leaf): i for i, leaf in enumerate(leaves)}
    found = {}
    given = _arguments(module, args, kwargs, dynamic_shapes)
    for tensor, axis, dim in _dims(dynamic_shapes, given):
        least = getattr(dim, "min", None)
        if isinstance(least, int) and id(tensor) in places:
            found[places[id(tensor)], axis] = least
    return found
