"""What an export holds for: conditions on sizes that torch met while it ran the module, and
least extents that the caller stated."""

from __future__ import annotations

import functools
import inspect
import linecache
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import sympy
import torch
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree
from torch.utils._sympy import functions as integers

from .._errors import UnsupportedError
from ._checks import limited, listed
from ._graph import Graph, expression, multiple_of
from ._guard_text import read


class Condition(NamedTuple):
    """A condition. Its symbols are sizes of arguments, which Sizes made."""

    expr: sympy.Basic
    where: str
    """The line that it comes from, as far as that is known."""


def _environment(program: torch.export.ExportedProgram) -> Any:
    """Torch's table of the program's symbols, or None."""
    for value in _arguments_of(program).values():
        sizes = value.shape if isinstance(value, torch.Tensor) else (value,)
        for size in sizes:
            if isinstance(size, torch.SymInt):
                return size.node.shape_env
    return None


def _arguments_of(program: torch.export.ExportedProgram) -> dict[str, Any]:
    """The program's arguments as torch traced them, by name."""
    nodes = program.graph.find_nodes(op="placeholder")
    specs = program.graph_signature.input_specs
    return {
        node.name: node.meta.get("val")
        for node, spec in zip(nodes, specs, strict=True)
        if spec.kind is InputKind.USER_INPUT
    }


class Sizes:
    """Sizes of a program's arguments, as symbols with names such as `x.shape[0]`."""

    def __init__(self, program: torch.export.ExportedProgram) -> None:
        self._program = program
        self._arguments = _arguments_of(program)
        self._names = list(self._arguments)
        self.places: dict[sympy.Symbol, tuple[int, int | None]] = {}
        # Torch's symbols as expressions of ours.
        self.traced: dict[sympy.Symbol, sympy.Expr] = {}
        for name, value in self._arguments.items():
            if isinstance(value, torch.Tensor):
                for axis, extent in enumerate(value.shape):
                    self._trace(extent, self._symbol(name, axis))
            else:
                self._trace(value, self._symbol(name, None))

    def _symbol(self, name: str, axis: int | None) -> sympy.Symbol:
        told = name if axis is None else f"{name}.shape[{axis}]"
        symbol = sympy.Symbol(told, integer=True, **({} if axis is None else _IS_EXTENT))
        self.places[symbol] = self._names.index(name), axis
        return symbol

    def _trace(self, size: Any, own: sympy.Symbol) -> None:
        if not isinstance(size, torch.SymInt):
            return
        # `expr` has what torch later put in the symbol's place, such as its only value.
        for expr in (size.node._expr, size.node.expr):
            if isinstance(expr, sympy.Symbol):
                self.traced.setdefault(expr, own)
            elif (found := multiple_of(expr)) is not None:
                symbol, factor, rest = found
                self.traced.setdefault(symbol, integers.FloorDiv(own - rest, factor))

    def named(self, path: str, axis: int | None) -> sympy.Symbol:
        """The size by the path of its argument in a guard's text."""
        name = self._names[self._leaf(path)]
        if isinstance(self._arguments[name], torch.Tensor) != (axis is not None):
            raise KeyError(name)
        return self._symbol(name, axis)

    def _leaf(self, path: str) -> int:
        flat = re.fullmatch(r"\['flat_args'\]\[(\d+)\]", path)
        if flat:
            return int(flat[1])
        # The signature has a name for each of `*args`.
        of_rest = re.sub(r"^\['(\w+)'\]\[(\d+)\]", r"['\1_\2']", path)
        return self._leaves[path if path in self._leaves else of_rest]

    @functools.cached_property
    def _leaves(self) -> dict[str, int]:
        """Numbers of the arguments, by paths such as `['x'][0]`. Names of the program do not
        tell paths: `x_0` is an element of x or an argument."""
        spec = self._program.call_spec.in_spec
        signature = self._program.module_call_graph[0].signature
        names = signature.forward_arg_names or ()
        args, kwargs = pytree.tree_unflatten(range(spec.num_leaves), spec)
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        return {pytree.keystr(path): i for path, i in pytree.tree_flatten_with_path(given)[0]}

    def extents(self, program: torch.export.ExportedProgram) -> dict[Any, sympy.Expr]:
        """The sizes as expressions of a program's symbols."""
        values = list(_arguments_of(program).values())
        found = {}
        for symbol, (leaf, axis) in self.places.items():
            size = values[leaf] if axis is None else values[leaf].shape[axis]
            if isinstance(size, (int, torch.SymInt)):
                found[symbol] = expression(size)
        return found


_IS_EXTENT = {"nonnegative": True}


def _unreadable(text: Any, error: object) -> UnsupportedError:
    return UnsupportedError(
        f"torch's export holds for sizes with '{text}' alone, which Rabbet cannot check: "
        f"{error}"
    )


class Conditions:
    """Conditions under which a program is the module: it has one side of each `if` on sizes.
    They are those of the caller's export. Decomposing adds guards on strides in memory, which
    plans do not have, and on what the export has guards for already."""

    def __init__(self, program: torch.export.ExportedProgram) -> None:
        self.ranges = program.range_constraints
        """Ranges of the program's symbols."""
        self._sizes = Sizes(program)
        self._environment = _environment(program)
        self._replaced: set[Any] = set()
        found: list[Condition] = []
        if self._environment is not None:
            self._replaced = set(self._environment.replacements)
            is_loaded = not self._environment.var_to_sources
            found = self._as_text(program) if is_loaded else self._traced()
        self.all = _distinct(found)

    def _as_text(self, program: torch.export.ExportedProgram) -> list[Condition]:
        return [Condition(self._read(text), "") for text in program._guards_code]

    def _read(self, text: str) -> sympy.Basic:
        try:
            return read(text, self._sizes.named)
        except (ValueError, SyntaxError, LookupError, TypeError) as error:
            raise _unreadable(text, f"no such form is known ({error!r})") from error

    def _traced(self) -> list[Condition]:
        """Guards on sizes of arguments; others are of numbers that data tells."""
        told = self._environment.var_to_sources
        return [
            Condition(self._of_arguments(guard.expr), _place(guard.sloc))
            for guard in self._environment.guards
            if guard.expr.free_symbols <= told.keys()
        ]

    def _of_arguments(self, expr: sympy.Basic) -> sympy.Basic:
        unknown = expr.free_symbols - self._sizes.traced.keys()
        if unknown:
            raise _unreadable(expr, f"no argument tells {unknown.pop()}")
        return expr.xreplace(self._sizes.traced)

    def specialize(self) -> None:
        """Adds what decomposing has specialized the program for: sizes that torch has made
        equal to others, or to numbers. Its other guards are not read."""
        if self._environment is None:
            return
        traced = self._sizes.traced
        added = [
            Condition(sympy.Eq(traced[symbol], expr.xreplace(traced)), "")
            for symbol, expr in self._environment.replacements.items()
            if symbol not in self._replaced and {symbol, *expr.free_symbols} <= traced.keys()
        ]
        self.all = _distinct([*self.all, *added])

    def write(
        self, graph: Graph, program: torch.export.ExportedProgram
    ) -> list[dict[str, Any]]:
        """Adds the conditions to the graph of the decomposed program; runs that do not meet
        them fail. Returns all of them for Checks, with those that a graph cannot compute."""
        extents = self._sizes.extents(program)
        for expr, where in graph.assumed:
            self._assume(graph, expr, where)
        return [self._written(each, graph, extents) for each in self.all]

    def _assume(self, graph: Graph, expr: sympy.Basic, where: str) -> None:
        """Adds a condition of a node, which data may decide."""
        if expr.free_symbols <= self._sizes.traced.keys():
            own = Condition(expr.xreplace(self._sizes.traced), where)
            self.all = _distinct([*self.all, own])
        elif not _check(graph, expr, limited(str(expr), where)):
            raise _unreadable(expr, f"{where} needs it")

    def _written(
        self, condition: Condition, graph: Graph, extents: Mapping[Any, sympy.Expr]
    ) -> dict[str, Any]:
        told, where = str(condition.expr), condition.where
        try:
            tree = listed(condition.expr)
        except UnsupportedError as error:
            raise _unreadable(told, error) from error
        symbols = sorted(condition.expr.free_symbols, key=str)
        sizes = {symbol.name: self._sizes.places[symbol] for symbol in symbols}
        is_in_plan = _check(graph, condition.expr.xreplace(extents), limited(told, where))
        return {
            "told": told, "where": where, "tree": tree, "sizes": sizes,
            "in_plan": is_in_plan,
        }  # fmt: skip

    def sizes_of(self, shape: Any) -> tuple[list[Any], dict[str, Any]]:
        """The extents of a shape as listed() gives them, and where the sizes in them are."""
        exprs = [expression(extent).xreplace(self._sizes.traced) for extent in shape]
        symbols = {symbol for expr in exprs for symbol in expr.free_symbols}
        unknown = symbols - self._sizes.places.keys()
        if unknown:
            raise UnsupportedError(f"the size '{unknown.pop()}', which no argument tells")
        places = {symbol.name: self._sizes.places[symbol] for symbol in symbols}
        return [listed(expr) for expr in exprs], places

    def symbols(self, program: torch.export.ExportedProgram) -> set[sympy.Symbol]:
        """The program's symbols that conditions read, unless they always hold."""
        extents = self._sizes.extents(program)
        left = (each.expr.xreplace(extents) for each in self.all)
        return {symbol for expr in left for symbol in expr.free_symbols}


def lines_that_fix(program: torch.export.ExportedProgram) -> set[tuple[str, int]]:
    """Lines of Python, with their files, by whose int() or float() torch fixed a size."""
    environment = _environment(program)
    found = set()
    for guard in environment.guards if environment is not None else ():
        frame = guard.sloc.framework_loc
        if isinstance(guard.expr, sympy.Eq) and hasattr(frame, "lineno"):
            line = linecache.getline(frame.filename, frame.lineno)
            if re.search(r"\b(int|float)\(", line):
                found.add((frame.filename, frame.lineno))
    return found


def _check(graph: Graph, expr: sympy.Basic, message: str) -> bool:
    """Adds a condition to the graph, unless the graph has no exact form for it."""
    if expr == sympy.true:
        return True
    graph.origin = "guard"
    try:
        holds = graph.truth(expr)
    except UnsupportedError:
        return False
    graph.check(holds, message)
    return True


def _distinct(conditions: list[Condition]) -> list[Condition]:
    """One for each expression that sizes decide."""
    found = {c.expr: c for c in reversed(conditions) if c.expr != sympy.true}
    return list(reversed(found.values()))


def _place(sloc: Any) -> str:
    """Where torch met a guard, in words."""
    frame = sloc.framework_loc
    if sloc.maybe_user_loc:
        return str(sloc.maybe_user_loc)
    if frame is None or isinstance(frame, str):
        return frame or ""
    if frame.name == "__torch_function__":  # of an export's modes, which all operators pass
        return "in an operator of torch"
    return f"{frame.filename}, line {frame.lineno}, in {frame.name}"


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
