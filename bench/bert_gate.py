"""BERT with an operator after each of its layers: y = x sigmoid(1.702 x) g."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

NAMESPACE = "bench_gate"


def gains(width: int) -> np.ndarray:
    """The constant g, the same in every layer."""
    values = np.random.default_rng(7).normal(1.0, 0.1, width)
    return values.astype(np.float32)


def _operators(x: str, y: str) -> list[onnx.NodeProto]:
    """The operator as standard ONNX nodes, which every engine knows."""
    names = [f"{y}.scaled", f"{y}.sigmoid", f"{y}.product"]
    return [
        helper.make_node("Mul", [x, "gate.factor"], [names[0]]),
        helper.make_node("Sigmoid", [names[0]], [names[1]]),
        helper.make_node("Mul", [x, names[1]], [names[2]]),
        helper.make_node("Mul", [names[2], "gate.gains"], [y]),
    ]


def with_gates(model: onnx.ModelProto, operator: str | None) -> onnx.ModelProto:
    """The model with a node `operator` of NAMESPACE after each layer, or with plain
    operators if that is None."""
    gated = onnx.ModelProto()
    gated.CopyFrom(model)
    graph = gated.graph
    weights = {tensor.name: tensor for tensor in graph.initializer}
    width = weights["encoder.0.norm.bias"].dims[0]
    ends = {n.output[0] for n in graph.node if _ends_layer(n.output[0])}
    graph.initializer.append(numpy_helper.from_array(gains(width), "gate.gains"))
    if operator is None:
        factor = np.array(1.702, np.float32)
        graph.initializer.append(numpy_helper.from_array(factor, "gate.factor"))
    nodes = []
    for node in graph.node:
        for index, name in enumerate(node.input):
            if name in ends:
                node.input[index] = f"{name}.gate"
        nodes.append(node)
        name = node.output[0]
        if name not in ends:
            continue
        if operator is None:
            nodes += _operators(name, f"{name}.gate")
            continue
        inputs, output = [name, "gate.gains"], f"{name}.gate"
        nodes.append(
            helper.make_node(operator, inputs, [output], name=output, domain=NAMESPACE)
        )
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)
    if operator is not None:
        gated.opset_import.append(helper.make_opsetid(NAMESPACE, 1))
    return gated


def _ends_layer(name: str) -> bool:
    """encoder.3.norm, say."""
    parts = name.split(".")
    return len(parts) == 3 and parts[0] == "encoder" and parts[2] == "norm"
