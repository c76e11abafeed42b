"""torch.cond, while_loop, scan, associative_scan and map: nodes with graphs of their own.

An inner graph of torch has all that it reads as arguments; one of ONNX sees the names of
the graph around it. So arguments are what stands for them outside, but states and slices,
which are inputs of the body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import fx

from .._errors import UnsupportedError
from ._graph import Graph, Inner, Value, described, extent_of


def is_size(value: Any) -> bool:
    """Whether it is an expression of sizes."""
    return hasattr(value, "free_symbols")


# A Translation, whose module imports this one.
Translation = Any


def _graph_of(translation: Translation | None, node: fx.Node) -> fx.GraphModule:
    if node.op == "get_attr":
        found = node.graph.owning_module
        for part in str(node.target).split("."):
            found = getattr(found, part)
        return found  # type: ignore[return-value]
    assert translation is not None
    return translation.values[node]  # type: ignore[no-any-return]


def inner_nodes(node: fx.Node) -> Iterator[fx.Node]:
    """The operators of a node's inner graphs."""
    for arg in node.args:
        if isinstance(arg, fx.Node) and arg.op == "get_attr":
            graph = _graph_of(None, arg).graph
            yield from (each for each in graph.nodes if each.op == "call_function")


def _values(translation: Translation, args: Any) -> list[Any]:
    """What stands for the arguments of an inner graph."""
    found: list[Any] = fx.node.map_aggregate(list(args), translation._value)
    return found


def _bind(graph: Graph, nodes: Sequence[fx.Node], values: Sequence[Any]) -> list[Any]:
    """The arguments of an inner graph, which may have symbols of its own for sizes."""
    likes = [described(node.meta.get("val")) for node in nodes]
    bound: list[tuple[Any, Any]] = []
    found: list[Any] = []
    for like, value in zip(likes, values, strict=True):
        if isinstance(value, Value) and isinstance(like, Value):
            found.append(Value.make(value, value.dtype, like.shape))
            for axis, (own, outer) in enumerate(
                zip(like.shape, value.shape, strict=True)
            ):
                if getattr(own, "is_Symbol", False) and own != outer:
                    bound.append((own, (value, axis)))
        elif not isinstance(value, Value) and getattr(like, "is_Symbol", False):
            found.append(like)
            if like != value:
                bound.append((like, graph.scalar(value, torch.int64)))
        else:
            found.append(value)
    for symbol, to in bound:
        graph.rebind(symbol, to)
    return found


def _enter(
    translation: Translation, module: fx.GraphModule, args: Sequence[Any]
) -> list[Any]:
    """Writes the nodes of an inner graph where the graph's nodes are now; returns what
    stands for its results."""
    graph: Graph = translation.graph
    nodes = _placeholders(module)
    translation.values.update(zip(nodes, _bind(graph, nodes, args), strict=True))
    for node in module.graph.nodes:
        if node.op == "call_function":
            translation.add(node)
        elif node.op == "get_attr" and isinstance(
            tensor := getattr(module, str(node.target)), torch.Tensor
        ):
            translation.add_weight(node, node.name, tensor)
    output = next(node for node in module.graph.nodes if node.op == "output").args[0]
    results = output if isinstance(output, (tuple, list)) else [output]
    return _values(translation, results)


def _type_of(result: Any) -> Any:
    """The type of a result; numbers are scalars of INT64."""
    return result.dtype if isinstance(result, Value) else torch.int64


def _tensor_of(graph: Graph, value: Any) -> str:
    """A result of an inner graph; numbers are scalars of INT64."""
    if isinstance(value, Value):
        return value
    if isinstance(value, bool) or not (isinstance(value, int) or is_size(value)):
        raise UnsupportedError(f"a result of an inner graph is {value!r}")
    return graph.scalar(value, torch.int64)


def _results(graph: Graph, names: Iterable[str], node: fx.Node) -> list[Any]:
    """The node's results: tensors, and integers that the run tells."""
    found = []
    for name, value in zip(names, node.meta["val"], strict=True):
        like = extent_of(value) if isinstance(value, torch.SymInt) else described(value)
        if isinstance(like, Value):
            like = Value.of(name, like)
            graph.know(like)
        elif getattr(like, "is_Symbol", False):
            graph.numbers[like] = name
        found.append(like)
    return found


def _predicate(graph: Graph, value: Any) -> str:
    return value if isinstance(value, Value) else graph.truth(value)


def _cond(translation: Translation, node: fx.Node) -> list[Any]:
    """cond(predicate, true graph, false graph, operands)"""
    graph: Graph = translation.graph
    predicate: Any
    branches: Any
    predicate, *branches, operands = node.args
    condition = _predicate(graph, translation._value(predicate))
    args = _values(translation, operands)
    if any(value is None for value in node.meta["val"]):
        raise UnsupportedError("a branch has None among its results")
    types = [_type_of(described(value)) for value in node.meta["val"]]
    bodies = []
    for branch in branches:
        with graph.inner() as inner:
            results = _enter(translation, _graph_of(translation, branch), args)
            for result, dtype in zip(results, types, strict=True):
                inner.output(_tensor_of(graph, result), dtype)
            bodies.append(inner.attribute())
    graph.origin = node.name
    names = graph.ops(
        "If", condition, count=len(types), then_branch=bodies[0], else_branch=bodies[1]
    )
    return _results(graph, names, node)


def _state(graph: Graph, inner: Inner, node: fx.Node, value: Any) -> Any:
    """An input of a body for a state or slice."""
    dtype = _type_of(value)
    name = Value.make(inner.input(node.name, dtype), dtype, ())
    like = described(node.meta.get("val"))
    if isinstance(like, Value):
        for axis, extent in enumerate(like.shape):
            if getattr(extent, "is_Symbol", False) and extent not in graph.extents:
                graph.rebind(extent, (name, axis))
        return Value.of(name, like)
    if not getattr(like, "is_Symbol", False):
        raise UnsupportedError(f"a state of a loop is {like!r} in its body")
    graph.rebind(like, name)
    return like


def _placeholders(module: fx.GraphModule) -> list[fx.Node]:
    return list(module.graph.find_nodes(op="placeholder"))


def _condition(translation: Translation, module: fx.GraphModule, args: Any) -> str:
    graph: Graph = translation.graph
    with graph.scope():
        (found,) = _enter(translation, module, args)
        condition = _predicate(graph, found)
    # ONNX's conditions have one element and no axis.
    return graph.op(
        "Reshape", condition, graph.literal(torch.empty(0, dtype=torch.int64))
    )


def _while(translation: Translation, node: fx.Node) -> list[Any]:
    """while_loop(condition graph, body graph, states, further arguments)"""
    graph: Graph = translation.graph
    test, body = (_graph_of(translation, each) for each in node.args[:2])  # type: ignore[arg-type]
    states, further = (_values(translation, each) for each in node.args[2:4])
    first = _condition(translation, test, [*states, *further])
    types = [_type_of(value) for value in states]
    with graph.inner() as inner:
        inner.input("iteration", torch.int64)
        inner.input("goes_on", torch.bool)
        nodes = _placeholders(body)[: len(states)]
        here = [
            _state(graph, inner, each, value)
            for each, value in zip(nodes, states, strict=True)
        ]
        results = _enter(translation, body, [*here, *further])
        names = [_tensor_of(graph, result) for result in results]
        # The next condition sees the new states, in the place of those of the body.
        after = [
            Value.of(name, result) if isinstance(result, Value) else result
            for name, result in zip(names, results, strict=True)
        ]
        inner.output(_condition(translation, test, [*after, *further]), torch.bool)
        for name, dtype in zip(names, types, strict=True):
            inner.output(name, dtype)
        attribute = inner.attribute()
    graph.origin = node.name
    given = [_tensor_of(graph, value) for value in states]
    made = graph.ops("Loop", None, first, *given, count=len(states), body=attribute)
    return _results(graph, made, node)


def _scanned(
    translation: Translation,
    node: fx.Node,
    module: fx.GraphModule,
    states: Sequence[Any],
    slices: Sequence[Any],
    further: Sequence[Any],
    *,
    keeps_states: bool = False,
) -> list[str]:
    """Runs a body for each slice along axis 0; returns the last states, and what
    iterations gave. keeps_states: that are the states."""
    graph: Graph = translation.graph
    with graph.inner() as inner:
        nodes = _placeholders(module)
        count = len(states) + len(slices)
        here = [
            _state(graph, inner, each, value)
            for each, value in zip(nodes[:count], [*states, *slices], strict=True)
        ]
        results = _enter(translation, module, [*here, *further])
        names = [_tensor_of(graph, result) for result in results]
        types = [_type_of(result) for result in results]
        if keeps_states:
            names, types = names * 2, types * 2
        for name, dtype in zip(names, types, strict=True):
            inner.output(name, dtype)
        attribute = inner.attribute()
    graph.origin = node.name
    given = [_tensor_of(graph, value) for value in (*states, *slices)]
    return graph.ops(
        "Scan", *given, count=len(names), body=attribute, num_scan_inputs=len(slices)
    )


def _scan(translation: Translation, node: fx.Node) -> list[Any]:
    """scan(graph, states, sequences, further arguments)"""
    module, *lists = node.args
    made = _scanned(
        translation,
        node,
        _graph_of(translation, module),  # type: ignore[arg-type]
        *(_values(translation, each) for each in lists),
    )
    return _results(translation.graph, made, node)


def _associative_scan(translation: Translation, node: fx.Node) -> list[Any]:
    """associative_scan(graph of two slices, sequences, further arguments): the first slice
    is the state with which the others are combined."""
    graph: Graph = translation.graph
    module, *lists = node.args
    slices, further = (_values(translation, each) for each in lists)
    if slices[0].shape[0] == 1:
        return list(slices)
    zero, one, end = (graph.ints([n]) for n in (0, 1, 2**63 - 1))
    first = [graph.op("Slice", x, zero, one) for x in slices]
    states = [
        Value.make(graph.op("Squeeze", each, zero), x.dtype, x.shape[1:])
        for each, x in zip(first, slices, strict=True)
    ]
    rest = [
        Value.make(graph.op("Slice", x, one, end), x.dtype, (x.shape[0] - 1, *x.shape[1:]))
        for x in slices
    ]
    body = _graph_of(translation, module)  # type: ignore[arg-type]
    made = _scanned(translation, node, body, states, rest, further, keeps_states=True)
    names = [
        graph.op("Concat", begin, others, axis=0)
        for begin, others in zip(first, made[len(states) :], strict=True)
    ]
    return _results(graph, names, node)


def _map(translation: Translation, node: fx.Node) -> list[Any]:
    """map_impl(graph, sequences, further arguments)"""
    module, slices, further = node.args
    made = _scanned(
        translation,
        node,
        _graph_of(translation, module),  # type: ignore[arg-type]
        [],
        _values(translation, slices),
        _values(translation, further),
    )
    return _results(translation.graph, made, node)


WRITERS: dict[str, Callable[[Translation, fx.Node], list[Any]]] = {
    "cond": _cond,
    "while_loop": _while,
    "scan": _scan,
    "associative_scan": _associative_scan,
    "map_impl": _map,
}
"""Those that are written, by the names of torch's operators."""
