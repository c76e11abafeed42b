"""From a translated graph to a model that runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sympy

from .._build import build_model
from .._builder import Builder
from .._callbacks import Logger
from .._enums import Severity
from .._errors import Error
from .._model import Model
from .._network import INetworkDefinition
from .._onnx import OnnxParser
from .._plugins import load_plugins
from ._graph import Graph

# The largest extent of a dimension that torch does not bound.
UNBOUNDED = 2**20

Range = tuple[int, int, int]


class RefusedPartError(Error):
    """The importer does not take the node that an operator of torch was written as."""

    def __init__(self, origin: str, message: str) -> None:
        self.origin = origin
        super().__init__(message)


def bounds(low: Any, hint: int, high: Any) -> Range:
    """(min, opt, max) of a symbol from torch's range and its value in the example."""
    most = max(UNBOUNDED, hint) if _is_infinite(high) else int(high)
    least = 0 if _is_infinite(low) else max(int(low), 0)
    return min(least, hint), hint, max(most, hint)


def _is_infinite(value: Any) -> bool:
    return not sympy.sympify(value).is_Integer


def _at(extent: Any, ranges: Mapping[sympy.Symbol, Range], which: int) -> int:
    if isinstance(extent, int):
        return extent
    values = {symbol: ranges[symbol][which] for symbol in extent.free_symbols}
    try:
        return int(extent.subs(values))
    except ZeroDivisionError:  # rows // (height // 4), of no height: the least tensor
        return 0


def _profile(shape: Any, ranges: Mapping[sympy.Symbol, Range]) -> Any:
    """(min, opt, max) of an input's shape."""
    rows = []
    for extent in shape:
        found = [_at(extent, ranges, which) for which in range(3)]
        rows.append((min(found), found[1], max(found)))
    return tuple(zip(*rows, strict=True))


def network_of(graph: Graph, logger: Any) -> INetworkDefinition:
    """The network; RefusedPartError names the operator of torch that is not imported."""
    network = Builder(logger).create_network()
    parser = OnnxParser(network, logger)
    parser.double = graph.double
    parser._lend_initializers(graph.weights)
    network._shared_weights = tuple(graph.weights[name] for name in graph.lent)
    try:
        parser.parse(graph.model())
    except Error as error:
        for i in range(parser.num_errors):
            found = parser.get_error(i)
            if found.node_name() in graph.parts:
                origin = graph.parts[found.node_name()]
                raise RefusedPartError(origin, found.desc()) from error
        raise
    _add_checks(network, graph)
    return network


def _add_checks(network: INetworkDefinition, graph: Graph) -> None:
    """Conditions, which ONNX has no operator for, are outputs of the graph."""
    outputs = [network.get_output(i) for i in range(network.num_outputs)]
    for tensor in outputs:
        if tensor.name in graph.checks:
            network.unmark_output(tensor)
            network.add_assertion(tensor, graph.checks[tensor.name])


def build(
    graph: Graph,
    shapes: Mapping[str, Any],
    numbers: Mapping[str, sympy.Expr],
    profiles: Sequence[Mapping[sympy.Symbol, Range]],
    options: Mapping[str, Any],
) -> Model:
    """Builds the graph. shapes: of the inputs; numbers: inputs that are integers of
    torch; profiles: the range of each symbol."""
    load_plugins(options.get("plugins"))
    verbose = options.get("verbose")
    logger = options.get("logger") or Logger(
        Severity.VERBOSE if verbose else Severity.WARNING
    )
    network = network_of(graph, logger)
    varying = {
        name: shape
        for name, shape in shapes.items()
        if any(not isinstance(extent, int) for extent in shape)
    }
    tensors = [network.get_input(i) for i in range(network.num_inputs)]
    sizes = {tensor.name for tensor in tensors if tensor.is_shape_tensor}
    given_shapes, given_values = [], []
    for ranges in profiles:
        given_shapes.append(
            {n: _profile(shape, ranges) for n, shape in varying.items()}
        )
        given_values.append(
            {
                name: tuple([_at(number, ranges, which)] for which in range(3))
                for name, number in numbers.items()
                if name in sizes and number.free_symbols <= ranges.keys()
            }
        )
    given = {name: value for name, value in options.items() if value is not None}
    given.pop("logger", None)
    if any(given_shapes) or any(given_values):
        given.update(profiles=given_shapes, values=given_values)
    return build_model(network, logger=logger, **given)
