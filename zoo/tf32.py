"""A model as a GPU computes it in FP32: factors of products and convolutions rounded to
TF32, which has 10 bits behind the point where FLOAT has 23."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx

_PRODUCTS = ("Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul")
_SPLIT = np.float32(2**13 + 1)
"""x * _SPLIT - (x * _SPLIT - x) has 13 bits fewer than x, rounded to nearest (Veltkamp)."""


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph, and all graphs in attributes of its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in [attribute.g, *attribute.graphs]:
                if inner.node:
                    yield from _graphs(inner)


def _floats(graph: onnx.GraphProto) -> set[str]:
    """Names of tensors that are known to be FLOAT."""
    found = {t.name for t in graph.initializer if t.data_type == onnx.TensorProto.FLOAT}
    for values in (graph.input, graph.output, graph.value_info):
        found |= {
            v.name
            for v in values
            if v.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
        }
    return found


def _rounding(name: str, to: str) -> list[onnx.NodeProto]:
    node, factor = onnx.helper.make_node, onnx.numpy_helper.from_array(_SPLIT)
    large, rest, number = f"{to}.large", f"{to}.rest", f"{to}.number"
    return [
        node("Constant", [], [number], value=factor),
        node("Mul", [name, number], [large]),
        node("Sub", [large, name], [rest]),
        node("Sub", [large, rest], [to]),
    ]


def _round(graph: onnx.GraphProto, number: int, floats: set[str]) -> None:
    nodes: list[onnx.NodeProto] = []
    done: dict[str, str] = {}
    for node in graph.node:
        # A bias is added, not multiplied.
        factors = len(node.input) if node.op_type == "Einsum" else 2
        if node.op_type in _PRODUCTS:
            for i, name in enumerate(node.input[:factors]):
                if name in floats and name not in done:
                    done[name] = f"{name}.tf32.{number}"
                    nodes += _rounding(name, done[name])
                node.input[i] = done.get(name, name)
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)


def rounded(path: Path) -> bytes:
    """The file's model, to be run without optimizations."""
    model = onnx.shape_inference.infer_shapes(onnx.load(str(path)))
    graphs = list(_graphs(model.graph))
    floats = set().union(*map(_floats, graphs))
    # Inner graphs first: a graph's nodes are copied.
    for number, graph in reversed(list(enumerate(graphs))):
        _round(graph, number, floats)
    return model.SerializeToString()
