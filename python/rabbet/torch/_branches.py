"""Branches of a module's Python code that data decides, in exports.

torch.export cannot follow `if x.isinf().any(): x = x.clamp(...)`. Where it gives up at such
a line, the function is rewritten and exported anew: both ways are computed and the data
selects among the variables that they set; a way that only raises an error becomes a check.
What the rewritten code decides in Python, as sizes and options, it decides as before.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import gc
import inspect
import itertools
import linecache
import os
import re
import textwrap
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import CodeType, FrameType, FunctionType
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import (
    free_unbacked_symbols,
    statically_known_false,
    statically_known_true,
)
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakIdKeyDictionary

from ._graph import fraction
from ._known import changed_by
from ._objects import MISSING, Objects, TooManyObjectsError, merge

CHECK = "rabbet: "
"""How the messages of checks begin that a plan makes."""

_OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep
_TORCH = os.path.dirname(torch.__file__) + os.sep
# Parts of torch that are written as modules are: they check what they are given.
_AS_MODULES = tuple(os.path.join(_TORCH, part) for part in ("distributions", "nn"))
_TALKS = {"logger", "logging", "warnings", "print"}


# ---- What rewritten functions call ----


class _Unset:
    """A variable that one way leaves without a value."""

    def __repr__(self) -> str:
        return "a variable that only one of two ways sets"


_UNSET = _Unset()


class CannotSelectError(RuntimeError):
    """Two ways set a variable to values among which no plan can select."""


class _Export(threading.local):
    """The export that is under way in this thread. Other threads may run a function that it
    has rewritten: there, Python decides as before."""

    value_of: Callable[[Any], Any] | None = None
    ways: Ways | None = None


_export = _Export()
_exports = threading.RLock()


def _is_asked(value: Any) -> bool:
    """Whether Python cannot tell what a tensor holds, or whether a condition on sizes that
    data tells is met, while an export is under way."""
    value_of = _export.value_of
    if isinstance(value, torch.SymInt):
        value = value != 0
    if isinstance(value, torch.SymBool):
        told = value_of is not None and bool(free_unbacked_symbols(value))
        return told and not (statically_known_true(value) or statically_known_false(value))
    if value_of is None or not isinstance(value, torch.Tensor) or value.numel() != 1:
        return False
    return value_of(value) is None


class Ways(TorchFunctionMode):
    """Refuses a way of a branch that changes a tensor from before the branch other than
    by a variable of its own: as both ways are computed, the other way would see it. What a
    way changes in objects is put back behind it."""

    def __init__(self, roots: Any = ()) -> None:
        """roots: the module and its arguments."""
        super().__init__()
        self._roots = tuple(roots)
        # Tensors with memory of their own that each way, outer ones first, has made.
        self._made: list[list[torch.Tensor]] = []
        self._before: list[Objects] = []
        self._first: list[Any] = []  # what first ways changed
        self.sources = WeakIdKeyDictionary()  # of what nonzero() gave

    def __enter__(self) -> Ways:
        _export.ways = self
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        _export.ways = None
        super().__exit__(*error)

    def begin(self, others: Sequence[Any] = ()) -> None:
        """What follows belongs to a way. others: what its variables hold."""
        try:
            objects = Objects((*self._roots, *others))
        except TooManyObjectsError as error:
            raise CannotSelectError(str(error)) from None
        self._made.append([])
        self._before.append(objects)

    def end(self) -> Any:
        """The end of the innermost way: what it changed in objects, which is put back."""
        made = self._made.pop()
        if self._made:
            self._made[-1] += made
        return self._before.pop().undo()

    def second(self, others: Sequence[Any] = ()) -> None:
        """The end of a first way, and the begin of the second one."""
        first = self.end()
        self.begin(others)
        self._first.append(first)

    def joined(self, condition: Any) -> torch.Tensor:
        """The end of the second way. Returns which of them counts."""
        second = self.end()
        which = truth(condition)

        def refuse(reason: str) -> None:
            raise CannotSelectError(reason)

        def select(name: str, one: Any, other: Any) -> Any:
            if one is MISSING or other is MISSING:
                raise CannotSelectError(f"only one of two ways sets the attribute '{name}'")
            return _selected(which, name, one, other)

        merge(self._first.pop(), second, select, refuse)
        return which

    def within(self) -> bool:
        """Whether data may decide that what is computed now counts for nothing."""
        return bool(self._made)

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") == "nonzero" and len(args) == 1 and not kwargs:
            result = func(*args)
            self.sources[result] = args[0]
            return result
        if not self._made or torch.compiler.is_dynamo_compiling():
            return func(*args, **kwargs)
        for tensor in changed_by(func, args, kwargs):
            if not _shares(tensor, self._made[-1]):
                raise CannotSelectError("a branch changes a tensor that a call was given")
        result = func(*args, **kwargs)
        given = _tensors((args, kwargs))
        self._made[-1] += [t for t in _tensors(result) if not _shares(t, given)]
        return result


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _shares(tensor: torch.Tensor, others: Sequence[torch.Tensor]) -> bool:
    """Whether a tensor has its memory in common with one of the others."""
    alias: Any = torch._C._is_alias_of  # type: ignore[attr-defined]
    return any(alias(tensor, other) for other in others)


def undecided(value: Any) -> bool:
    """Whether data decides a condition."""
    return _is_asked(value)


def item(value: Any) -> Any:
    """A tensor stays one where only data tells its number."""
    return value if _is_asked(value) else value.item()


def whole(value: Any) -> Any:
    """int(value), or a tensor of it."""
    if isinstance(value, torch.SymInt):
        return value
    if not _is_asked(value):
        return int(value)
    return value.trunc() if value.is_floating_point() else value


_MOST_PLACES = 256


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """(whether it is there, row) of the rows of a tensor. Of those that nonzero() found, all
    that there may be."""
    ways = _export.ways
    source = None if ways is None or not _is_tensor(value) else ways.sources.get(value)
    if source is None or any(isinstance(n, torch.SymInt) for n in source.shape):
        yield from ((True, row) for row in value)
        return
    if source.numel() > _MOST_PLACES:
        raise CannotSelectError(f"a loop over up to {source.numel()} places of nonzero()")
    for place in itertools.product(*map(range, source.shape)):
        yield source[place] != 0, torch.tensor(place, device=source.device)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def length(value: Any) -> Any:
    """len(value), which Python wants to be known."""
    return value.shape[0] if isinstance(value, torch.Tensor) and value.dim() else len(value)


def _of_size(kind: Callable[[Any], Any], value: Any) -> Any:
    """int(value) or float(value) of a size. A plan computes a truncated quotient of sizes;
    what depends on how Python's numbers round is the example's."""
    if kind is float:
        return torch.sym_float(value)
    if isinstance(value, torch.SymInt):
        return value
    parts = fraction(value.node.expr)
    is_exact = parts is not None and parts[0].is_nonnegative
    return torch.sym_int(value) if is_exact else int(value)


def number(kind: Callable[[Any], Any], value: Any, *others: Any) -> Any:
    """int(value) or float(value), as a number that data or sizes tell where torch has such
    ones: it may be an extent."""
    if isinstance(value, (torch.SymInt, torch.SymFloat)) and not others:
        return _of_size(kind, value)
    if others or not isinstance(value, torch.Tensor) or not _is_asked(value):
        return kind(value, *others)
    if kind is int:
        return value.reshape(()).long().item()
    return value.reshape(()).float().item()


def truth(value: Any) -> Any:
    """bool(value), or a tensor of it."""
    if isinstance(value, torch.SymInt):
        value = value != 0
    if isinstance(value, torch.SymBool) and _is_asked(value):
        return torch.scalar_tensor(torch.sym_ite(value, 1, 0)) > 0
    return value.reshape(()).bool() if _is_asked(value) else bool(value)


def no(value: Any) -> Any:
    """not value."""
    return truth(value).logical_not() if _is_asked(value) else not value


def _joined(parts: Sequence[Callable[[], Any]], ends: bool) -> Any:
    """The parts, in order, up to one that Python finds to be `ends`."""
    found: Any = None
    for part in parts:
        value = part()
        if not _is_asked(value):
            if bool(value) is ends:
                return value
            found = value if found is None else found
        elif _is_asked(found):
            one, other = truth(found), truth(value)
            found = one | other if ends else one & other
        else:
            found = value
    return found


def both(*parts: Callable[[], Any]) -> Any:
    """The parts, joined by `and`."""
    return _joined(parts, False)


def either(*parts: Callable[[], Any]) -> Any:
    """The parts, joined by `or`."""
    return _joined(parts, True)


def values(known: Mapping[str, Any], names: Sequence[str]) -> tuple[Any, ...]:
    """The values of variables."""
    return tuple(known.get(name, _UNSET) for name in names)


_IMMUTABLE = (
    bool, int, float, complex, str, bytes, tuple, type(None), torch.SymInt, torch.SymFloat,
    torch.SymBool, _Unset,
)  # fmt: skip


def begun(
    is_second: bool, found: Sequence[Any], changed: Sequence[bool], others: Sequence[Any]
) -> tuple[Any, ...]:
    """Values for one way: those that it changes in place are copies, which no other
    variable that the way reads may have for its memory."""
    assert _export.ways is not None
    (_export.ways.second if is_second else _export.ways.begin)((*found, *others))
    for value, change in zip(found, changed, strict=True):
        if change and not isinstance(value, (torch.Tensor, list, dict, *_IMMUTABLE)):
            raise CannotSelectError(f"a branch changes a {type(value).__name__} in place")
    places = [*zip(found, changed, strict=True), *((value, False) for value in others)]
    tensors = [(v, change) for v, change in places if isinstance(v, torch.Tensor)]
    for (one, change), (other, _) in itertools.permutations(tensors, 2):
        same = torch._C._is_alias_of(one, other)  # type: ignore[attr-defined]
        if change and one is not other and same:
            raise CannotSelectError("a branch changes a tensor that it has two names for")
    return tuple(
        value.clone() if change and isinstance(value, torch.Tensor) else value
        for value, change in zip(found, changed, strict=True)
    )


def _selected(which: torch.Tensor, name: str, one: Any, other: Any) -> Any:
    if one is other or one is _UNSET or other is _UNSET:
        return one if one is other else _UNSET
    tensors = isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)
    if tensors and one.shape == other.shape and one.dtype == other.dtype:
        return torch.where(which, one, other)
    plain = (bool, int, float, str, type(None))
    if type(one) is type(other) and isinstance(one, plain) and one == other:
        return one
    lists = type(one) is type(other) and type(one) in (tuple, list)
    if lists and len(one) == len(other):
        pairs = zip(one, other, strict=True)
        return type(one)(_selected(which, name, a, b) for a, b in pairs)
    raise CannotSelectError(f"data selects among two values of '{name}'")


def selected(
    condition: Any, names: Sequence[str], changed: Sequence[bool], before: Sequence[Any],
    one: Sequence[Any], other: Sequence[Any],
) -> tuple[Any, ...]:  # fmt: skip
    """The variables after both ways."""
    assert _export.ways is not None
    which = _export.ways.joined(condition)
    found = []
    for name, change, old, a, b in zip(names, changed, before, one, other, strict=True):
        value = _selected(which, name, a, b)
        if change and isinstance(old, torch.Tensor):
            value = old.copy_(value)  # other names for it see the change
        found.append(value)
    return tuple(found)


def chosen(
    condition: Any, one: Callable[[], Any], other: Callable[[], Any]
) -> Any:
    """`one() if condition else other()`."""
    if not _is_asked(condition):
        return one() if condition else other()
    assert _export.ways is not None
    cells = [cell for each in (one, other) for cell in each.__closure__ or ()]
    read = [cell.cell_contents for cell in cells]
    _export.ways.begin(read)
    first = one()
    _export.ways.second(read)
    second = other()
    found = _selected(_export.ways.joined(condition), "an expression", first, second)
    if found is _UNSET:
        raise CannotSelectError("a variable has no value")
    return found


def never(condition: Any, message: str) -> None:
    """Runs in which the condition holds fail."""
    if _export.ways is not None and _export.ways.within():
        raise CannotSelectError(f"a branch calls a function with a check: {message}")
    torch._assert_async(truth(condition).logical_not(), CHECK + message)


# ---- Rewriting ----


def _names_set(body: Sequence[ast.stmt]) -> dict[str, bool] | None:
    """The variables that statements set, and whether in place; None if they do anything
    else, or change a variable in place and then set it anew."""
    found: dict[str, bool] = {}

    def fits_before(name: str, changes: bool) -> bool:
        """What is set and then changed is a tensor of the way's own, as Ways sees to."""
        return not found.setdefault(name, changes) or changes

    def target(node: ast.expr, changes: bool = False) -> bool:
        if isinstance(node, ast.Name):
            return fits_before(node.id, changes)
        if isinstance(node, (ast.Tuple, ast.List)):
            return all(map(target, node.elts))
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            return target(node.value, True)
        # Attributes and elements: Objects restores them after each way.
        return isinstance(node, (ast.Attribute, ast.Subscript))

    for one in body:
        changed = _changed_by_method(one)
        if changed is not None:
            if not target(changed, True) or any(map(_changes_unseen, one.value.args)):  # type: ignore[attr-defined]
                return None
            continue
        if isinstance(one, ast.Assign):
            fits = all(map(target, one.targets))
        elif isinstance(one, ast.AugAssign):
            fits = target(one.target, True)
        elif isinstance(one, ast.AnnAssign):
            fits = one.value is None or target(one.target)
        elif isinstance(one, ast.If):
            inner = _names_set([*one.body, *one.orelse])
            fits = inner is not None and all(
                fits_before(name, changes) for name, changes in inner.items()
            )
        else:
            is_call = isinstance(one, ast.Expr) and isinstance(one.value, ast.Call)
            fits = isinstance(one, ast.Pass) or is_call or _is_talk(one)
        if not fits or _changes_unseen(one.test if isinstance(one, ast.If) else one):
            return None
    return found


def _changed_by_method(one: ast.stmt) -> ast.Name | None:
    """The variable of a statement such as `x.index_add_(0, rows, y)`."""
    call = one.value if isinstance(one, ast.Expr) else None
    method = call.func if isinstance(call, ast.Call) else None
    if not isinstance(method, ast.Attribute) or not isinstance(method.value, ast.Name):
        return None
    return method.value if re.fullmatch(r".*[^_]_", method.attr) else None


def _is_talk(one: ast.stmt) -> bool:
    """Whether a statement is a comment, or tells something to the user."""
    if not isinstance(one, ast.Expr):
        return False
    value: Any = one.value
    if isinstance(value, ast.Call):
        value = value.func
        while isinstance(value, ast.Attribute):
            value = value.value
        return isinstance(value, ast.Name) and value.id in _TALKS
    return isinstance(value, ast.Constant)


def _changes_unseen(one: ast.AST) -> bool:
    """Whether a method such as add_ changes a tensor within an expression, or the
    statement does what a second way must not repeat."""
    for node in ast.walk(one):
        if isinstance(node, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)):
            return True
        method = getattr(node, "func", None)
        if isinstance(method, ast.Attribute) and re.fullmatch(r".*[^_]_", method.attr):
            return True
    return False


class _Condition(ast.NodeTransformer):
    """Conditions whose tensors stay tensors."""

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.op, ast.Not):
            return _call("no", node.operand)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        parts = map(_lambda, node.values)
        return _call("both" if isinstance(node.op, ast.And) else "either", *parts)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "item" and not node.args:
            return _call("item", node.func.value)
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        form = {"bool": "truth", "int": "whole", "len": "length"}.get(name)
        return _call(form, *node.args) if form and len(node.args) == 1 else node

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        return node


def _lambda(value: ast.expr) -> ast.Lambda:
    return ast.Lambda(ast.arguments([], [], None, [], [], None, []), value)


def _call(name: str, *args: ast.expr) -> ast.Call:
    function = ast.Attribute(ast.Name("_rabbet", ast.Load()), name, ast.Load())
    return ast.Call(function, list(args), [])


def _returns(body: Sequence[ast.stmt]) -> bool:
    """Whether a block is statements that set variables, and a return."""
    ends = bool(body) and isinstance(body[-1], ast.Return)
    return ends and _names_set(body[:-1]) is not None and not _changes_unseen(body[-1])


def _one_return(body: list[ast.stmt]) -> list[ast.stmt]:
    """Statements in which a branch that returns a value sets it, and what follows is
    the other way."""
    for place, one in enumerate(body):
        if not isinstance(one, ast.If) or not _returns(one.body):
            continue
        rest = _one_return([*one.orelse, *body[place + 1 :]])
        if not _returns(rest):
            continue
        ways = []
        for way in (one.body, rest):
            value = way[-1].value or ast.Constant(None)  # type: ignore[attr-defined]
            to = ast.Name("_rabbet_result", ast.Store())
            last = ast.copy_location(ast.Assign([to], value), way[-1])
            ways.append([*way[:-1], last])
        both_ways = ast.copy_location(ast.If(one.test, *ways), one)
        end = ast.Return(ast.Name("_rabbet_result", ast.Load()))
        return [*body[:place], both_ways, ast.copy_location(end, one)]
    return body


class _Statements(ast.NodeTransformer):
    """Rewrites a function's statements."""

    def __init__(
        self, lines: Collection[int], file: str, outside: Collection[str] = ()
    ) -> None:
        """lines: those of the conditions that data decides. outside: the global variables
        that the function sets, which are none of its locals()."""
        self.lines, self.file, self.outside = lines, file, outside
        self.written = self.depth = 0

    def _nested(self, node: Any) -> Any:
        """A function's own statements are rewritten, not those of functions in it."""
        if self.depth:
            return node
        self.depth += 1
        self.generic_visit(node)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        return self._nested(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> Any:
        return self._nested(node)

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        return self._nested(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        if not self.depth:
            node.body = _one_return(node.body)
        return self._nested(node)

    def visit_For(self, node: ast.For) -> Any:
        is_meant = isinstance(node.iter, ast.Name) and self._is_meant(node.iter)
        node.body = self._without_continue(node.body, is_meant)
        self.generic_visit(node)
        return self._loop(node) if is_meant and not node.orelse else node

    def _loop(self, node: ast.For) -> Any:
        """A loop over the places that nonzero() found: of all places, each of them a branch."""
        names = [f"_rabbet_is_{self.written}", f"_rabbet_place_{self.written}"]
        found, place = (ast.Name(name, ast.Load()) for name in names)
        take = ast.copy_location(ast.Assign([node.target], place), node)
        way = ast.If(found, [take, *node.body], [])
        for each in ast.walk(way.test):
            ast.copy_location(each, node.iter)
        branch = self._branch(ast.copy_location(way, node))
        if branch is way:
            return node
        target = ast.Tuple([ast.Name(name, ast.Store()) for name in names], ast.Store())
        loop = ast.For(target, _call("places", node.iter), branch, [])
        return ast.fix_missing_locations(ast.copy_location(loop, node))

    def _without_continue(
        self, body: list[ast.stmt], always: bool = False
    ) -> list[ast.stmt]:
        """The body of a loop in which what follows a `continue` is the other way."""
        for place, one in enumerate(body):
            if not isinstance(one, ast.If) or not (always or self._is_meant(one.test)):
                continue
            if not isinstance(one.body[-1], ast.Continue) or place + 1 == len(body):
                continue
            last = ast.copy_location(ast.Pass(), one.body[-1])
            rest = self._without_continue([*one.orelse, *body[place + 1 :]], always)
            way = ast.copy_location(ast.If(one.test, [*one.body[:-1], last], rest), one)
            return [*body[:place], way]
        return body

    def visit_Call(self, node: ast.Call) -> Any:
        """Numbers that data tells may be extents: int(lengths.max())."""
        self.generic_visit(node)
        kind = node.func.id if isinstance(node.func, ast.Name) else ""
        if kind not in ("int", "float", "len") or not node.args or not self._is_meant(node):
            return node
        self.written += 1
        if kind == "len":
            return _call("length", *node.args)
        return _call("number", node.func, *node.args)

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        if not self._is_meant(node.test) or _changes_unseen(node):
            self.generic_visit(node)
            return node
        node.body, node.orelse = self.visit(node.body), self.visit(node.orelse)
        self.written += 1
        test = _Condition().visit(node.test)
        return _call("chosen", test, _lambda(node.body), _lambda(node.orelse))

    def visit_If(self, node: ast.If) -> Any:
        for way in (node.body, node.orelse):
            way[:] = self._visited(way)
        found = self._branch(node) if self._is_meant(node.test) else node
        if found is node:
            node.test = self.visit(node.test)
        return found

    def _visited(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for each in map(self.visit, body):
            found += each if isinstance(each, list) else [each]
        return found

    def _is_meant(self, node: Any) -> bool:
        return any(node.lineno <= line <= node.end_lineno for line in self.lines)

    def visit_Assert(self, node: ast.Assert) -> Any:
        if not self._is_meant(node):
            return node
        test = ast.UnaryOp(ast.Not(), node.test)
        plain = ast.Assert(ast.UnaryOp(ast.Not(), ast.Name("_rabbet_0", ast.Load())), node.msg)
        return self._written(
            "_rabbet_0 = TEST\n"
            "if _rabbet.undecided(_rabbet_0): _rabbet.never(_rabbet_0, MESSAGE)\n"
            "else: PLAIN",
            {"TEST": test, "MESSAGE": self._message(node)},
            {"PLAIN": [plain]},
            node,
        )

    def _message(self, node: ast.stmt) -> ast.expr:
        line = linecache.getline(self.file, node.lineno).strip()
        return ast.Constant(f"{line} ({self.file}:{node.lineno})")

    def _branch(self, node: ast.If) -> Any:
        if any(isinstance(each, ast.NamedExpr) for each in ast.walk(node.test)):
            return node
        count = self.written
        if isinstance(node.body[-1], ast.Raise) and _names_set(node.body[:-1]) is not None:
            form, sets = "_rabbet.never(_rabbet_0, MESSAGE); ELSE", None
        else:
            sets = _names_set([*node.body, *node.orelse])
            if sets is None or not sets.keys().isdisjoint(self.outside):
                return node
            form = (
                "_rabbet_1 = _rabbet.values(locals(), NAMES)\n"
                "TARGETS = _rabbet.begun(False, _rabbet_1, CHANGED, "
                "_rabbet.values({**globals(), **locals()}, OTHERS))\n"
                "BODY\n"
                "_rabbet_2 = _rabbet.values(locals(), NAMES)\n"
                "TARGETS = _rabbet.begun(True, _rabbet_1, CHANGED, "
                "_rabbet.values({**globals(), **locals()}, OTHERS))\n"
                "ELSE\n"
                "_rabbet_3 = _rabbet.values(locals(), NAMES)\n"
                "TARGETS = _rabbet.selected(_rabbet_0, NAMES, CHANGED, _rabbet_1, _rabbet_2, "
                "_rabbet_3)"
            )
        sets = sets or {}
        said = [*node.body, *node.orelse]
        if "TARGETS" in form and all(isinstance(s, ast.Pass) or _is_talk(s) for s in said):
            form = "pass"
        names = ast.Tuple([ast.Constant(name) for name in sets], ast.Load())
        changed = ast.Tuple([ast.Constant(c) for c in sets.values()], ast.Load())
        loads = [each for way in (*node.body, *node.orelse) for each in ast.walk(way)]
        read = {each.id for each in loads if isinstance(each, ast.Name)}
        others = ast.Tuple([ast.Constant(n) for n in sorted(read - {*sets})], ast.Load())
        targets = ast.Tuple([ast.Name(name, ast.Store()) for name in sets], ast.Store())
        text = "_rabbet_0 = TEST\nif _rabbet.undecided(_rabbet_0):\n"
        text += textwrap.indent(form, "    ") + "\nelif _rabbet_0: BODY\nelse: ELSE"
        text = text.replace("_rabbet_", f"_rabbet_{count}_")
        return self._written(
            text,
            {"TEST": node.test, "MESSAGE": self._message(node.body[-1]), "NAMES": names,
             "CHANGED": changed, "TARGETS": targets, "OTHERS": others},
            {"BODY": node.body, "ELSE": node.orelse or [ast.Pass()]},
            node,
        )  # fmt: skip

    def _written(
        self, text: str, parts: Mapping[str, ast.expr],
        blocks: Mapping[str, list[ast.stmt]], like: ast.stmt,
    ) -> list[ast.stmt]:  # fmt: skip
        """Statements with these in the places of names, on the line of `like`."""
        self.written += 1
        tests = {**parts, "TEST": _Condition().visit(copy.deepcopy(parts["TEST"]))}
        tree = ast.parse(text)
        for each in ast.walk(tree):
            if isinstance(each, (ast.stmt, ast.expr)):
                each.lineno = each.end_lineno = like.lineno
        return _Filled(tests, blocks).visit(tree).body


class _Filled(ast.NodeTransformer):
    """Expressions and blocks for the names that stand for them."""

    def __init__(self, parts: Any, blocks: Any) -> None:
        self.parts, self.blocks = parts, blocks

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return copy.deepcopy(self.parts.get(node.id, node))

    def visit_Expr(self, node: ast.Expr) -> Any:
        if isinstance(node.value, ast.Name) and node.value.id in self.blocks:
            return copy.deepcopy(self.blocks[node.value.id])
        return self.generic_visit(node)


def _rewritten(code: CodeType, wanted: Collection[int]) -> CodeType | None:
    """A function's code in which data may decide the branches of these lines; None if one
    is none of those that can be rewritten."""
    try:
        lines, first = inspect.getsourcelines(code)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, SyntaxError, TypeError):
        return None
    function = tree.body[0]
    if not isinstance(function, ast.FunctionDef):
        return None
    function.decorator_list = []
    for each in ast.walk(function):
        if isinstance(each, ast.arg):
            each.annotation = None
    function.returns = None
    function.args.defaults = [ast.Constant(None) for _ in function.args.defaults]
    some = [default and ast.Constant(None) for default in function.args.kw_defaults]
    function.args.kw_defaults = some
    ast.increment_lineno(tree, first - 1)
    outside = [n for g in ast.walk(function) if isinstance(g, ast.Global) for n in g.names]
    ways = _Statements(wanted, code.co_filename, outside)
    ways.visit(function)
    if ways.written < len(wanted):
        return None
    own = ast.parse("import rabbet.torch._branches as _rabbet").body
    function.body[:0] = own
    body: list[ast.stmt] = [function]
    owner = code.co_qualname.split(".")[-2:-1]
    free = list(code.co_freevars)
    if owner and owner[0].isidentifier():  # names that begin with __ are the class's
        body = [ast.parse(f"class {owner[0]}: pass").body[0]]
        body[0].body = [function]  # type: ignore[attr-defined]
        free = [name for name in free if name != "__class__"]
    outer = ast.parse("def outer(): pass").body[0]
    sets = [ast.parse(f"{name} = None").body[0] for name in free]
    if function.name not in free:  # a function that calls itself, or passes itself on
        sets.insert(0, ast.Global([function.name]))
    outer.body = [*sets, *body]  # type: ignore[attr-defined]
    module = ast.fix_missing_locations(ast.Module([outer], []))
    return _found(compile(module, code.co_filename, "exec"), code)


def _signature(code: CodeType) -> tuple[Any, ...]:
    count = code.co_argcount + code.co_kwonlyargcount
    return code.co_name, code.co_freevars, code.co_argcount, code.co_varnames[:count]


def _found(within: CodeType, like: CodeType) -> CodeType | None:
    """The code of the same name and arguments within another."""
    for each in within.co_consts:
        if not isinstance(each, CodeType):
            continue
        if _signature(each) == _signature(like):
            return each.replace(co_qualname=like.co_qualname)
        if (found := _found(each, like)) is not None:
            return found
    return None


# ---- Exports ----


def place_of(error: BaseException) -> tuple[FrameType, int] | None:
    """The innermost line of Python that is neither of torch's machinery nor ours."""
    found = None
    trace = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        is_theirs = file.startswith((_TORCH, _OURS, "<"))
        if not is_theirs or file.startswith(_AS_MODULES):
            found = trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next
    return found


class Rewritten:
    """Functions whose code is exchanged while an export is under way."""

    def __init__(self, value_of: Callable[[Any], Any]) -> None:
        """value_of: values of tensors that Python knows."""
        self._value_of = value_of
        self._undone = contextlib.ExitStack()
        self._lines: dict[CodeType, set[int]] = {}
        self._tried: set[tuple[CodeType, int]] = set()

    def __enter__(self) -> Rewritten:
        self._undone.enter_context(_exports)  # functions belong to the process
        self._undone.callback(setattr, _export, "value_of", _export.value_of)
        _export.value_of = self._value_of
        return self

    def __exit__(self, *_: Any) -> None:
        self._undone.close()

    def at(self, error: BaseException) -> bool:
        """Rewrites the line at which torch gave up; whether there is one to rewrite."""
        place = place_of(error)
        return place is not None and self._rewrite(place[0].f_code, place[1])

    def numbers(self, lines: Collection[tuple[str, int]]) -> bool:
        """Rewrites lines, of files, whose int() or float() fixed a size; whether there are
        any."""
        found = False
        if not lines:
            return False
        for function in [f for f in gc.get_objects() if isinstance(f, FunctionType)]:
            code = function.__code__
            for file, line in lines:
                if code.co_filename == file and line in {n for *_, n in code.co_lines()}:
                    found |= self._rewrite(function.__code__, line)
        return found

    def _rewrite(self, code: CodeType, line: int) -> bool:
        """Whether a line could be rewritten."""
        known = self._lines.get(code, set())
        # A function that the export defines anew is not the one that was rewritten.
        if line in known or (code, line) in self._tried:
            return False
        self._tried.add((code, line))
        new = _rewritten(code, known | {line})
        functions = [f for f in gc.get_referrers(code) if isinstance(f, FunctionType)]
        if new is None or not functions:
            return False
        for function in functions:
            if function.__code__ is code:
                self._undone.callback(setattr, function, "__code__", code)
                function.__code__ = new
        self._lines[new] = known | {line}
        return True
