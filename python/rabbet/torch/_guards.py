"""What an export holds for: conditions on sizes that torch met while it ran the module, and
least extents that the caller stated."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sympy
import torch
from torch.utils import _pytree as pytree

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


def conditions(program: torch.export.ExportedProgram) -> list[sympy.Basic]:
    """Conditions on sizes of inputs under which the program is the module: it has one side
    of each `if`. Ranges of single extents are told by `range_constraints`."""
    environment = _environment(program)
    found: dict[sympy.Basic, None] = {}
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
