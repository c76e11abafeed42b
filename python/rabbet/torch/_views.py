"""Views of tensors: which operators make them, and how torch lays elements out in memory.

A plan computes row-major tensors. What runs in torch behind it sees strides, and may see
that two results share memory; so views at that border are torch's own (`on_torch_side`),
and what they are views of has torch's order of dimensions (`order_in_memory`).
"""

from __future__ import annotations

import operator
from collections.abc import Collection
from typing import Any

import sympy
import torch
from torch import fx

# Stands for an extent that nothing but a run tells.
_UNKNOWN = 1009


def is_view(node: fx.Node) -> bool:
    """Whether the result shares the memory of the node's first argument."""
    if node.op != "call_function" or not node.args:
        return False
    if node.target is operator.getitem:
        return isinstance(node.args[0], fx.Node) and is_view(node.args[0])
    schema = getattr(node.target, "_schema", None)
    if schema is None or schema.is_mutable or not schema.arguments:
        return False
    return schema.arguments[0].alias_info is not None and any(
        each.alias_info is not None for each in schema.returns
    )


def source_of(node: fx.Node) -> fx.Node:
    """The node that a chain of views begins with."""
    while is_view(node):
        node = node.args[0]  # type: ignore[assignment]
    return node


def on_torch_side(graph: fx.Graph, outside: Collection[str]) -> set[str]:
    """Gives the graph's output, and the nodes named in `outside`, views of their own, and
    returns the views' names. Views that nothing else reads are removed."""
    copies: dict[fx.Node, fx.Node] = {}

    def seen(node: fx.Node) -> fx.Node:
        if not is_view(node) or node.name in outside:
            return node
        if node not in copies:
            first = node.args[0]
            assert isinstance(first, fx.Node)
            base = seen(first)
            with graph.inserting_after(node):
                copies[node] = graph.node_copy(
                    node, lambda n: base if n is first else n
                )
            copies[node].meta = dict(node.meta)
        return copies[node]

    for node in list(graph.nodes):
        if node.op == "output" or node.name in outside:
            node.args = fx.node.map_arg(node.args, seen)
            node.kwargs = fx.node.map_arg(node.kwargs, seen)
    for node in reversed(list(graph.nodes)):
        if is_view(node) and not node.users:
            graph.erase_node(node)
    return {node.name for node in copies.values()}


def _number(value: Any) -> int:
    """An extent or stride of the example."""
    if isinstance(value, int):
        return value
    node = value.node
    if node.hint is not None:
        return int(node.hint)
    shapes = node.shape_env
    known = getattr(shapes, "backed_var_to_val", None) or shapes.var_to_val
    unknown = dict.fromkeys(node.expr.free_symbols, _UNKNOWN)
    return int(sympy.sympify(node.expr).xreplace({**unknown, **known}))


def order_in_memory(value: torch.Tensor) -> list[int] | None:
    """The dimensions from the outermost to the innermost one; None where elements do not
    lie close together, each once."""
    sizes = [_number(each) for each in value.shape]
    strides = [_number(each) for each in value.stride()]
    order = list(range(len(sizes)))
    if 0 in sizes:
        return order
    kept = [i for i in order if sizes[i] != 1]
    inner = sorted(kept, key=lambda i: -strides[i])
    expected = 1
    for i in reversed(inner):
        if strides[i] != expected:
            return None
        expected *= sizes[i]
    return order if inner == kept else sorted(order, key=lambda i: (-strides[i], i))
