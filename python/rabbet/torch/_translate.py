"""Writes a graph of torch's operators as an ONNX graph."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from .._errors import Error, UnsupportedError
from ..plugin._torch import operator_of
from . import (
    _caches,
    _complex,
    _control,
    _indexing,
    _layers,
    _linalg,
    _pointwise,
    _quantized,
    _random,
    _recurrent,
    _reductions,
    _shapes,
    _special,
    _vision,
)
from ._branches import CHECK
from ._graph import HELD, ONNX_TYPES, Graph, Value, described, expression, extent_of
from ._shapes import strided
from ._table import HINTS, TABLE, Handler
from ._views import order_in_memory, source_of

# They fill TABLE.
assert all((_caches, _indexing, _layers, _linalg, _pointwise, _quantized, _random))
assert all((_recurrent, _reductions, _shapes, _special, _vision))

# Arguments that only place a tensor, or that the result in torch tells as well.
_PLACING = {
    "device", "dtype", "generator", "implicit", "layout", "memory_format", "non_blocking",
    "pin_memory", "requires_grad", "copy", "sparse_grad",
}  # fmt: skip

# Checks, which leave no result.
_ASYNC = "aten._assert_async.msg"
_CHECKS = {
    _ASYNC, "aten._assert_scalar.default", "aten.sym_constrain_range.default",
    "aten.sym_constrain_range_for_size.default", "aten._assert_tensor_metadata.default",
}  # fmt: skip
# The check of a matrix, which torch keeps in its order by a token.
_EFFECTS = "with_effects"
_OF_MATRICES = "aten._linalg_check_errors.default"
_ITEMS = {"aten._local_scalar_dense.default", "aten.item.default"}


class RefusedNodeError(UnsupportedError):
    """An operator that is not taken: its node, its name, and why."""

    def __init__(self, node: fx.Node, reason: str) -> None:
        self.node, self.op, self.reason = node, operator_name(node), reason
        where = _source(node)
        super().__init__(
            f"torch's operator {self.op} (node '{node.name}'{where}): {reason}"
        )

    def within(self) -> str:
        """The reason for a node whose inner graph has this one."""
        return f"its operator {self.op} (node '{self.node.name}'): {self.reason}"


def _source(node: fx.Node) -> str:
    """The line of the user's module that a node comes from."""
    trace = node.meta.get("stack_trace") or ""
    lines = [line.strip() for line in trace.splitlines() if line.strip()]
    return f", from '{lines[-1]}'" if lines else ""


def operator_name(node: fx.Node) -> str:
    """The operator's name in torch, as "aten.add.Tensor"."""
    target = node.target
    if isinstance(target, str):
        return target
    text = str(target)
    if isinstance(target, torch._ops.OperatorBase) or "<" not in text:
        return text
    return getattr(target, "__name__", text)


def _is_complex(value: Any) -> bool:
    """Whether one of these is complex."""
    if isinstance(value, (list, tuple)) and not isinstance(value, _complex.Pair):
        return any(map(_is_complex, value))
    dtype = getattr(value, "dtype", None)
    return dtype is not None and bool(dtype.is_complex)


def is_number(node: fx.Node) -> bool:
    """Whether a node is a number that follows from sizes, not a tensor."""
    value = node.meta.get("val")
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool, int, float))


def _custom(node: fx.Node) -> Handler | None:
    """The function of an operator that a plugin has defined (torch=True)."""
    found = operator_of(node.target)
    if found is None:
        return None
    definition = found.definition

    def write(g: Graph, out: Any, *args: Any, **kwargs: Any) -> Any:
        tensors, attributes = found.node(args, kwargs)
        names = g.ops(
            definition.name, *tensors, count=found.num_outputs,
            domain=definition.namespace, **attributes,
        )  # fmt: skip
        return names if isinstance(out, list) else names[0]

    return write


def handler_of(node: fx.Node) -> Handler | None:
    """The function that writes a node, or None."""
    return TABLE.get(operator_name(node)) or _custom(node)


def _tensors(value: Any) -> Iterable[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _tensors(each)


def refusal(node: fx.Node, narrow: bool = True) -> str | None:
    """Why an operator is not taken, as far as it can be told without writing it; None if
    it seems to be. narrow: whether types that plans lack may be held in others."""
    name = operator_name(node)
    if node.target is operator.getitem or name in _CHECKS or is_number(node):
        return None
    if name in _ITEMS:
        return "a number that data tells"
    if name == _EFFECTS:
        held = str(node.args[1])
        known = held in _CHECKS or held == _OF_MATRICES
        # Between pieces torch passes the token on.
        return None if known and narrow else f"the effect of {held}"
    values = [node.meta.get("val"), *(n.meta.get("val") for n in node.all_input_nodes)]
    types = [tensor.dtype for tensor in _tensors(values)]
    if any(dtype.is_complex for dtype in types):
        if not _complex.takes(name):
            return "rabbet has no such operator of complex numbers"
        types = [_complex.PARTS.get(dtype, dtype) for dtype in types]
    elif name in _control.WRITERS:
        for inner in _control.inner_nodes(node):
            if (reason := refusal(inner, narrow)) is not None:
                return RefusedNodeError(inner, reason).within()
    elif handler_of(node) is None and name != "aten.as_strided.default":
        hint = HINTS.get(name)
        return "rabbet has no such operator" + (f"; {hint}" if hint else "")
    for dtype in types:
        if dtype not in ONNX_TYPES or (dtype in HELD and not narrow):
            return f"plans have no type {dtype}"
    for tensor in _tensors(values):
        if tensor.layout is not torch.strided:
            return f"a tensor of layout {tensor.layout}"
    return None


class Translation:
    """Nodes that are being written into a graph."""

    def __init__(self, double: bool = False) -> None:
        self.graph = Graph(double)
        self.values: dict[fx.Node, Any] = {}

    def add(self, node: fx.Node) -> None:
        """Writes a node."""
        self.graph.origin, self.graph.operator = node.name, operator_name(node)
        try:
            self._write(node)
        except RefusedNodeError as error:
            if error.node.graph is node.graph:
                raise
            raise RefusedNodeError(node, error.within()) from error
        except (Error, TypeError, ValueError, IndexError, AttributeError) as error:
            raise RefusedNodeError(node, str(error)) from error

    def _write(self, node: fx.Node) -> None:
        name = operator_name(node)
        if name in _CHECKS:
            if name == _ASYNC and str(node.args[1]).startswith(CHECK):
                message = str(node.args[1]).removeprefix(CHECK)
                self.graph.check(self._value(node.args[0]), message)
            return
        if name == _EFFECTS:
            if str(node.args[1]) == _OF_MATRICES:
                _linalg.check_info(self.graph, *map(self._value, node.args[2:4]))
            self.values[node] = ["token"]
            return
        if node.target is operator.getitem:
            source: Any = node.args[0]
            self.values[node] = self.values[source][node.args[1]]
            if self.values[node] is None:
                # The operator is refused, so that all of its results are torch's.
                reason = f"its result {node.args[1]} serves training"
                raise RefusedNodeError(source, reason)
            return
        if name in _ITEMS:
            self._item(node)
            return
        if is_number(node):
            self.values[node] = extent_of(node.meta["val"])
            return
        if name == "aten.as_strided.default":
            self._strided(node)
            return
        if name in _control.WRITERS:
            self.values[node] = _control.WRITERS[name](self, node)
            return
        out = described(node.meta["val"])
        self.graph.used = {
            user.args[1]  # type: ignore[misc]
            for user in node.users
            if user.target is operator.getitem
        }
        args = fx.node.map_aggregate(node.args, self._value)
        kwargs = {
            key: fx.node.map_aggregate(value, self._value)
            for key, value in node.kwargs.items()
            if key not in _PLACING or operator_of(node.target) is not None
        }
        self.values[node] = self._named(self._made(node, out, args, kwargs), out)

    def _made(self, node: fx.Node, out: Any, args: Any, kwargs: Any) -> Any:
        operands = [self.values.get(each) for each in node.all_input_nodes]
        if _is_complex(out) or _is_complex(operands):
            return _complex.write(self.graph, operator_name(node), out, args, kwargs)
        handler = handler_of(node)
        if handler is None:
            raise RefusedNodeError(node, "rabbet has no such operator")
        return handler(self.graph, out, *args, **kwargs)

    def add_input(self, node: fx.Node, like: Value) -> Value:
        """An input for a tensor of torch; complex ones have a last axis of parts."""
        if not like.dtype.is_complex:
            value = self.graph.input(node.name, like.dtype, like.shape)
            self.values[node] = value
            return value
        part = _complex.PARTS[like.dtype]
        value = self.graph.input(node.name, part, (*like.shape, 2))
        self.values[node] = _complex.parted(self.graph, value, like.dtype, like.shape)
        return value

    def add_weight(self, node: fx.Node, base: str, tensor: torch.Tensor) -> None:
        """A constant for a tensor of torch."""
        if not tensor.is_complex():
            name = self.graph.weight(base, tensor)
            self.values[node] = Value.make(name, tensor.dtype, tensor.shape)
            return
        parts = torch.view_as_real(tensor.detach().resolve_conj()).unbind(-1)
        self.values[node] = _complex.Pair(
            *(
                Value.make(
                    self.graph.weight(f"{base}.{kind}", part), part.dtype, part.shape
                )
                for kind, part in zip(("real", "imag"), parts, strict=True)
            )
        )

    def add_output(
        self, base: str, value: Any, order: Sequence[int] | None = None
    ) -> str:
        """An output, with its dimensions in an order."""
        parts: tuple[Any, ...] = (
            tuple(value) if isinstance(value, _complex.Pair) else (value,)
        )
        if order is not None:
            parts = tuple(
                Value.of(self.graph.op("Transpose", v, perm=list(order)), v)
                for v in parts
            )
        if len(parts) == 2:
            whole = _complex.joined(self.graph, _complex.Pair(*parts))
            return self.graph.output(base, whole, parts[0].dtype)
        return self.graph.output(base, parts[0], value.dtype)

    def _strided(self, node: fx.Node) -> None:
        """Elements by their places in memory: that of what the tensor is a view of."""
        first: Any = node.args[0]
        source = source_of(first)
        value, order = source.meta["val"], order_in_memory(source.meta["val"])
        if order is None:
            raise UnsupportedError("as_strided of a tensor with gaps in memory")
        if source not in self.values:
            raise UnsupportedError("as_strided of a tensor that torch has a view of")
        given = [first, *node.args[1:], None][:4]
        offset = first.meta["val"].storage_offset() if given[3] is None else given[3]
        size, stride = (fx.node.map_aggregate(each, self._value) for each in given[1:3])
        start = extent_of(value.storage_offset())
        offset = self._value(offset) - start
        offset = int(offset) if expression(offset).is_Integer else offset
        base, out = self.values[source], described(node.meta["val"])
        made = strided(self.graph, base, order, size, stride, offset)
        self.values[node] = self._named(made, out)

    def _value(self, arg: Any) -> Any:
        if isinstance(arg, fx.Node):
            return self.values[arg]
        return extent_of(arg)

    def _named(self, made: Any, out: Any) -> Any:
        if isinstance(out, list):
            return [self._named(m, o) for m, o in zip(made, out, strict=False)]
        if made is None:
            return None
        if out.dtype.is_complex:
            part = _complex.PARTS[out.dtype]
            return _complex.Pair(*(Value.make(v, part, out.shape) for v in made))
        value = Value.make(made, out.dtype, out.shape)
        self.graph.know(value)
        return value

    def _item(self, node: fx.Node) -> None:
        """A number that data tells."""
        number = node.meta["val"]
        expr = extent_of(number)
        source = self.values[node.args[0]]  # type: ignore[index]
        if isinstance(number, torch.SymBool):  # of a check: whether a symbol is 1
            (symbol,) = expr.free_symbols
            self.graph.numbers[symbol] = source
            self.values[node] = expr
            return
        if isinstance(number, torch.SymFloat) and number.node.expr.is_Symbol:
            self.graph.reals[number.node.expr] = source
            self.values[node] = number
            return
        if not isinstance(number, torch.SymInt) or not getattr(expr, "is_Symbol", False):
            raise UnsupportedError("a condition that data tells")
        self.graph.numbers[expr] = source
        self.values[node] = expr


def tables(table: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """Decompositions for operators that are not in our table."""
    kept = TABLE.keys() | {"aten.as_strided.default"}
    return {op: fn for op, fn in table.items() if str(op) not in kept}
