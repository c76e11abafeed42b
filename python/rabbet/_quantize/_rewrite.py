"""Writes QuantizeLinear and DequantizeLinear into a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ._layers import Layer, Scope, constant
from ._model import Graph, Model, Node
from ._numbers import Quantized, packed, scale_type
from ._tensor import FLOAT, FP8, INT4, INT8, Tensor, stored

TYPES = {"int8": INT8, "fp8": FP8, "int4": INT4}


class Rewrite:
    """Edits of one model. Quantized weights are shared between layers of a graph with the
    same ones, and tensors between their readers. Constants lie in the graph that reads
    them: ONNX Runtime looks for weights of INT4 there alone."""

    def __init__(self, model: Model, to: str) -> None:
        self.model, self.to = model, to
        self.front: dict[int, list[Node]] = {}  # nodes to put first in a graph
        self.behind: dict[int, list[tuple[str, list[Node]]]] = {}
        self.constants: dict[tuple[Any, ...], tuple[str, ...]] = {}
        self.tensors: dict[tuple[int, str], str] = {}

    # ---- Constants

    def _tensor(
        self, graph: Graph, base: str, dtype: int, dims: Sequence[int], data: Any
    ) -> str:
        import numpy as np

        name = self.model.name(base)
        raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        graph.initializers[name] = Tensor(name, dtype, dims, raw)
        return name

    def _scales(self, graph: Graph, base: str, scales: Any, dtype: int) -> str:
        kept = stored(scales, dtype)
        return self._tensor(graph, f"{base}_scale", dtype, kept.shape, kept)

    def _zeros(self, graph: Graph, shape: tuple[int, ...]) -> list[str]:
        """Zero points of INT8, which say the type as well. Of FP8 an attribute does: with
        a zero point, ONNX Runtime 1.32 takes it for the least number and drops a Relu."""
        import numpy as np

        if self.to != "int8":
            return []
        key = ("zeros", id(graph), shape)
        if key not in self.constants:
            zeros = np.zeros(shape, np.int8)
            base = "rabbet_zero" + "".join(f"_{extent}" for extent in shape)
            self.constants[key] = (self._tensor(graph, base, INT8, shape, zeros),)
        return list(self.constants[key])

    def _cast(self, nodes: list[Node], name: str, dtype: int, base: str) -> str:
        made = self.model.name(f"{base}_cast")
        nodes.append(Node("Cast", [name], [made], made, to=dtype))
        return made

    # ---- Weights

    def weights(self, layer: Layer, made: Quantized, block: int) -> str:
        """The name of a layer's weights, dequantized."""
        base, graph = layer.weights, layer.graph
        key = (layer.key, id(graph), block)
        if key not in self.constants:
            data = packed(made.numbers) if self.to == "int4" else made.numbers
            numbers = self._tensor(
                graph, f"{base}_{self.to}", TYPES[self.to], made.numbers.shape, data
            )
            one = made.scales.size == 1 and not block
            scales = made.scales.reshape(()) if one else made.scales
            names = [numbers, self._scales(graph, base, scales, made.scale_type)]
            self.constants[key] = (*names, *self._zeros(graph, scales.shape))
        inputs = self.constants[key]
        real = self.model.name(f"{base}_dequantized")
        node = Node("DequantizeLinear", inputs, [real], real)
        if block:
            node.set("axis", 1 - layer.axis)
            node.set("block_size", block)
        elif made.scales.size > 1:
            node.set("axis", layer.axis)
        nodes = self.front.setdefault(id(graph), [])
        nodes.append(node)
        if made.scale_type != layer.dtype:
            real = self._cast(nodes, real, layer.dtype, real)
        return real

    # ---- Activations

    def activation(self, layer: Layer, scale: float, dtype: int) -> str:
        """The name of a layer's activation after a way through 8 bits."""
        import numpy as np

        key = id(layer.graph), layer.activation
        if key in self.tensors:
            return self.tensors[key]
        name = layer.activation
        nodes: list[Node] = []
        scales_of = scale_type(dtype, scale)
        number = np.array(scale, np.float32)
        scales = self._scales(layer.graph, name, number, scales_of)
        inner = name
        if scales_of != dtype:
            inner = self._cast(nodes, name, FLOAT, name)
        few, real = (
            self.model.name(f"{name}_{what}") for what in (self.to, "dequantized")
        )
        ends = [scales, *self._zeros(layer.graph, ())]
        nodes.append(Node("QuantizeLinear", [inner, *ends], [few], few))
        if self.to != "int8":
            nodes[-1].set("output_dtype", TYPES[self.to])
        nodes.append(Node("DequantizeLinear", [few, *ends], [real], real))
        if scales_of != dtype:
            real = self._cast(nodes, real, dtype, real)
        self.behind.setdefault(id(layer.graph), []).append((name, nodes))
        self.tensors[key] = real
        return real

    # ---- Finishing

    def finish(self) -> None:
        """Puts the nodes into their graphs, and drops what nothing reads any more."""
        for graph in self.model.graph.all():
            place(graph, self.front.get(id(graph), []), self.behind.get(id(graph), []))
        sweep(self.model)


def place(
    graph: Graph, front: Sequence[Node], behind: Iterable[tuple[str, Sequence[Node]]]
) -> None:
    """Puts nodes first into a graph, or behind the node that makes a tensor."""
    makers = {name: i for i, node in enumerate(graph.nodes) for name in node.outputs}
    after: dict[int, list[Node]] = {}
    for name, nodes in behind:
        after.setdefault(makers.get(name, -1), []).extend(nodes)
    made = [*front, *after.get(-1, [])]
    for i, node in enumerate(graph.nodes):
        made += [node, *after.get(i, [])]
    graph.nodes[:] = made


def sweep(model: Model) -> None:
    """Drops constants that nothing reads, and nodes that made such weights."""
    while True:
        used: set[str] = set()
        for graph in model.graph.all():
            used.update(each.name for each in graph.outputs)
            for node in graph.nodes:
                used.update(node.inputs)
        count = 0
        for scope in list(Scope.walk(model.graph)):
            graph = scope.graph
            for name in [name for name in graph.initializers if name not in used]:
                del graph.initializers[name]
                count += 1
            gone = [
                node
                for node in graph.nodes
                if not any(name in used for name in node.outputs)
                and all(constant(scope, name) is not None for name in node.outputs)
            ]
            for node in gone:
                graph.nodes.remove(node)
            count += len(gone)
        if not count:
            return
