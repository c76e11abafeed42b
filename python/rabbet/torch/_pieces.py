"""Pieces of a graph of torch's operators, each of them an engine."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import sympy
import torch
from torch import fx
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from .._errors import Error, UnsupportedError
from .._model import Model
from ._building import Range, RefusedPartError, bounds, build
from ._control import WRITERS
from ._graph import described, expression
from ._lent import LentModel
from ._random import DRAWS
from ._report import Left, Report
from ._translate import (
    RefusedNodeError,
    Translation,
    is_number,
    operator_name,
    refusal,
)
from ._views import is_view, on_torch_side, order_in_memory

# A piece with fewer operators that compute is not worth a call.
_FEWEST = 2

# New tensors of one value, which are no work either.
_FILLS = {
    "aten." + name
    for name in (
        "clone.default", "lift_fresh_copy.default", "full.default", "scalar_tensor.default",
        "empty.memory_format", "_unsafe_view.default",
    )
}  # fmt: skip


def _computes(node: fx.Node) -> bool:
    if node.op != "call_function" or is_number(node):
        return False
    name = operator_name(node)
    return name not in _FILLS and name != "getitem" and not is_view(node)


def _work(nodes: Iterable[fx.Node]) -> int:
    """Number of operators that compute; a choice or a loop is worth a call by itself."""
    found = [node for node in nodes if _computes(node)]
    return len(found) + sum(operator_name(node) in WRITERS for node in found)


def _device_of(value: Any) -> torch.device | None:
    if isinstance(value, torch.Tensor):
        return value.device
    if isinstance(value, (tuple, list)):
        return next((_device_of(v) for v in value if _device_of(v) is not None), None)
    return None


class _Support(OperatorSupportBase):
    """Nodes that engines may take."""

    def __init__(self, refused: Collection[str]) -> None:
        self.refused = refused

    def is_node_supported(self, submodules: Any, node: fx.Node) -> bool:
        """Whether an engine may have the node."""
        if node.op != "call_function":
            return False
        source: Any = node
        while operator_name(source) == "getitem":
            source = source.args[0]
        # Of numbers, only those that an engine computes.
        if is_number(node) and operator_name(source) not in WRITERS:
            return False
        return source.op == "call_function" and source.name not in self.refused


# How an output is given: "tensor", "complex" or "number", and the permutation that gives
# torch's dimensions.
_Output = tuple[str, Sequence[int] | None]


class Piece(torch.nn.Module):
    """An engine in the place of a part of the graph."""

    def __init__(
        self,
        model: Model,
        reads: Sequence[int],
        outputs: Sequence[_Output],
        device: torch.device,
        lent: Iterable[torch.Tensor],
    ) -> None:
        """reads: the arguments that the engine has, in its order; lent: parameters whose
        memory it may read."""
        super().__init__()
        self._runs = LentModel(model, lent)
        self._reads, self._device = tuple(reads), device
        self._outputs = tuple(outputs)

    def forward(self, *args: Any) -> Any:
        """Runs the engine."""
        model = self._runs.model()
        found = model(*(self._input(args[i]) for i in self._reads))
        if not isinstance(found, tuple):
            return self._output(found, self._outputs[0])
        return tuple(map(self._output, found, self._outputs))

    def _input(self, value: Any) -> torch.Tensor:
        if not isinstance(value, torch.Tensor):
            return torch.tensor(value, device=self._device)
        if value.is_complex():
            value = torch.view_as_real(value.resolve_conj())
        return value if value.device == self._device else value.to(self._device)

    def _output(self, value: Any, how: _Output) -> Any:
        found = torch.as_tensor(value, device=self._device)
        kind, order = how
        if kind == "number":
            return found.item()
        if kind == "complex":
            found = torch.view_as_complex(found)
        return found if order is None else found.permute(*order)


class _Part:
    """A piece that is being translated and built."""

    def __init__(
        self,
        module: fx.GraphModule,
        weights: Mapping[int, torch.Tensor],
        graphs: Mapping[int, fx.GraphModule],
        outer: Mapping[sympy.Expr, fx.Node],
    ) -> None:
        """weights, graphs: arguments that are no inputs; outer: integers of the whole graph
        that are known before the piece."""
        self.module, self.outer = module, outer
        self.more: list[fx.Node] = []  # of them, those that became arguments
        self.translation = Translation()
        self.graph = self.translation.graph
        self.shapes: dict[str, Any] = {}
        self.numbers: dict[str, sympy.Expr] = {}
        self.reads: list[int] = []
        self.symbols: dict[sympy.Symbol, int] = {}
        self.limits: dict[sympy.Symbol, Any] = {}
        self.integers: list[tuple[int, fx.Node, Any]] = []
        self.outputs: list[_Output] = []
        self.placeholders = module.graph.find_nodes(op="placeholder")
        for index, node in enumerate(self.placeholders):
            if index in graphs:
                self.translation.values[node] = graphs[index]
            else:
                self._add_input(index, node, weights.get(index))
        self.graph.missing = self._number

    def _add_input(self, index: int, node: fx.Node, weight: Any) -> None:
        value = node.meta["val"]
        if isinstance(value, torch.Tensor):
            like = described(value)
            if weight is not None:
                self.translation.add_weight(node, node.name, weight)
                return
            name = self.translation.add_input(node, like)
            self.shapes[name] = name.shape
            self.reads.append(index)
            for extent in value.shape:
                self._know(extent)
        else:
            number = described(value)
            self.translation.values[node] = number
            self._know(value)
            if isinstance(value, torch.SymInt):
                self.integers.append((index, node, number))

    def _know(self, value: Any) -> None:
        """Ranges and examples of the symbols in a size or condition."""
        if not isinstance(value, (torch.SymInt, torch.SymBool)):
            return
        shapes = value.node.shape_env
        for symbol in value.node.expr.free_symbols:
            hint = shapes.backed_var_to_val.get(symbol) if hasattr(
                shapes, "backed_var_to_val"
            ) else shapes.var_to_val.get(symbol)
            self.symbols[symbol] = 16 if hint is None else int(hint)
            self.limits[symbol] = shapes.var_to_range[symbol]

    def _number(self, expr: sympy.Expr) -> str:
        """A size that no input has: an integer of the piece or of the graph becomes an
        input."""
        for index, node, number in self.integers:
            if number == expr:
                return self._add_number(node.name, expr, index)
        if expr not in self.outer:
            raise UnsupportedError(f"no input's shape tells the size '{expr}'")
        node = self.outer[expr]
        self._know(node.meta["val"])
        self.more.append(node)
        return self._add_number(
            node.name, expr, len(self.placeholders) + len(self.more) - 1
        )

    def _add_number(self, base: str, expr: sympy.Expr, index: int) -> str:
        name = self.graph.input(base, torch.int64, ())
        self.numbers[name] = expr
        self.reads.append(index)
        return name

    def translate(self) -> None:
        """Writes the nodes and outputs."""
        for node in self.module.graph.nodes:
            if node.op == "call_function":
                self.translation.add(node)
            elif node.op == "output":
                found = node.args[0]
                for each in found if isinstance(found, (tuple, list)) else (found,):
                    self._add_output(each)

    def _add_output(self, node: fx.Node) -> None:
        """An output with torch's order of dimensions in memory."""
        value = self.translation.values[node]
        if is_number(node):
            name = self.graph.scalar(value, torch.int64)
            self.graph.output("output", name, torch.int64)
            self.outputs.append(("number", None))
            return
        order = order_in_memory(node.meta["val"])
        if order == sorted(order or ()):
            order = None
        self.translation.add_output("output", value, order)
        back = None if order is None else [order.index(i) for i in range(len(order))]
        kind = "complex" if value.dtype.is_complex else "tensor"
        self.outputs.append((kind, back))

    def ranges(self) -> dict[sympy.Symbol, Range]:
        """The range of each symbol."""
        return {
            symbol: bounds(self.limits[symbol].lower, hint, self.limits[symbol].upper)
            for symbol, hint in self.symbols.items()
        }

    def build(self, device: torch.device, options: Mapping[str, Any]) -> Piece:
        """The engine."""
        given = {**options, "device": options.get("device") or str(device)}
        model = build(self.graph, self.shapes, self.numbers, [self.ranges()], given)
        return Piece(model, self.reads, self.outputs, device, self.graph.lent.values())


def _main_device(graph: fx.Graph) -> torch.device:
    """The device of most results; engines are made for it."""
    counts: dict[torch.device, int] = {}
    for node in graph.nodes:
        found = _device_of(node.meta.get("val"))
        if found is not None:
            counts[found] = counts.get(found, 0) + 1
    return max(counts, key=lambda each: counts[each]) if counts else torch.device("cpu")


def _refused(graph: fx.Graph, device: torch.device) -> dict[str, str]:
    """Nodes that are known to stay with torch, and why."""
    found = {}
    for node in graph.nodes:
        if node.op == "get_attr":
            continue
        if node.op != "call_function" or operator_name(node) == "getitem":
            continue
        reason = refusal(node, narrow=False)
        if reason is None and operator_name(node) in DRAWS:
            reason = "torch draws random numbers"
        own = _device_of(node.meta.get("val"))
        if reason is None and own is not None and own != device:
            reason = f"it runs on {own}, the engines on {device}"
        if reason is not None:
            found[node.name] = reason
    return found


class _Divided:
    """A copy of the graph with its pieces cut out."""

    partitioner: Any

    def __init__(self, source: fx.GraphModule, refused: Mapping[str, str]) -> None:
        self.small: set[str] = set()
        total = _work(source.graph.nodes)
        kept = self._propose(source, refused)
        # Operators in no piece run in torch, and may be given other views.
        while more := self._in_none(kept, min(_FEWEST, total)):
            self.small |= more
            kept = self._propose(source, refused)
        self.module = self.partitioner.fuse_partitions(kept, prefix="rabbet_")
        self.pieces = [
            node
            for node in self.module.graph.nodes
            if node.op == "call_module" and str(node.target).startswith("rabbet_")
        ]

    def _propose(self, source: fx.GraphModule, refused: Mapping[str, str]) -> Any:
        self.module = fx.GraphModule(source, copy.deepcopy(source.graph))
        outside = self.small | refused.keys()
        views = on_torch_side(self.module.graph, outside)
        self.partitioner = CapabilityBasedPartitioner(
            self.module, _Support(outside | views), allows_single_node_partition=True
        )
        return self.partitioner.propose_partitions()

    def _in_none(self, kept: list[Any], fewest: int) -> set[str]:
        """Nodes of the pieces that are too small, which are taken from the list."""
        found: set[str] = set()
        for partition in list(kept):
            if _work(partition.nodes) < fewest:
                kept.remove(partition)
                found |= {node.name for node in partition.nodes}
        return found


def divide(
    source: fx.GraphModule,
    statics: Mapping[str, torch.Tensor],
    options: Mapping[str, Any],
    report: Report,
) -> fx.GraphModule:
    """The graph with engines in the place of what they can take.

    statics: the placeholders that are parameters. What turns out to be refused while a
    piece is written or built stays with torch, and the graph is divided again.
    """
    device = _main_device(source.graph)
    refused = _refused(source.graph, device)
    while True:
        divided = _Divided(source, refused)
        more = _fill(divided, statics, device, options, report)
        if not more:
            break
        if more.keys() <= refused.keys():
            again = ", ".join(f"{name} ({why})" for name, why in more.items())
            raise RuntimeError(f"operators that stay with torch are refused again: {again}")
        refused.update(more)
    names = {node.name: node for node in source.graph.nodes}
    few = "a piece of so few operators is not worth a call"
    small = [name for name in divided.small if _computes(names[name])]
    left = {**refused, **dict.fromkeys(sorted(small), few)}
    report.left = [
        Left(operator_name(names[name]), name, reason) for name, reason in left.items()
    ]
    return divided.module


def _integers_before(node: fx.Node) -> dict[sympy.Expr, fx.Node]:
    """Integers of torch that are known where a piece begins."""
    found: dict[sympy.Expr, fx.Node] = {}
    for each in node.graph.nodes:
        if each is node:
            break
        value = each.meta.get("val")
        if isinstance(value, torch.SymInt):
            found.setdefault(expression(value), each)
    return found


def _fill(
    divided: _Divided,
    statics: Mapping[str, torch.Tensor],
    device: torch.device,
    options: Mapping[str, Any],
    report: Report,
) -> dict[str, str]:
    """Builds the pieces; what one of them refuses is returned, and nothing is built."""
    parts = []
    for node in divided.pieces:
        inner = getattr(divided.module, str(node.target))
        weights = {
            i: statics[arg.name]
            for i, arg in enumerate(node.args)
            if isinstance(arg, fx.Node) and arg.name in statics
        }
        # Tensors that the graph has as attributes are inputs.
        graphs = {
            i: graph
            for i, arg in enumerate(node.args)
            if isinstance(arg, fx.Node) and arg.op == "get_attr"
            and isinstance(graph := getattr(divided.module, str(arg.target)), fx.GraphModule)
        }  # fmt: skip
        part = _Part(inner, weights, graphs, _integers_before(node))
        try:
            part.translate()
        except RefusedNodeError as error:
            return {error.node.name: error.reason}
        node.args = (*node.args, *part.more)
        parts.append((node, inner, part))
    report.engines = report.operators = 0
    for node, inner, part in parts:
        try:
            piece = part.build(device, options)
        except RefusedPartError as error:
            return {error.origin: str(error)}
        except Error as error:
            names = [n.name for n in inner.graph.nodes if n.op == "call_function"]
            return dict.fromkeys(names, f"its piece cannot be built: {error}")
        setattr(divided.module, str(node.target), piece)
        report.engines += 1
        report.operators += sum(map(_computes, inner.graph.nodes))
    divided.module.recompile()
    return {}
