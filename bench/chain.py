"""The chain of custom nodes that python_call measures."""

from __future__ import annotations

import onnx

from tests.models.graph import Graph


def chain_model(
    body: str, length: int, shape: tuple[int, ...], *, domain: str = "bench"
) -> onnx.ModelProto:
    """x -> y through `length` nodes of operator `body`, all of one shape."""
    graph = Graph("chain")
    x = graph.input("x", shape)
    for index in range(length):
        name = "y" if index == length - 1 else f"op{index}"
        x = graph.node(body, [x], name, domain=domain)
    graph.output(x, shape)
    return graph.model()
