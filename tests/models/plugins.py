"""Replaces the padding plugin by operators that every ONNX engine knows."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .graph import PLUGIN_OP

FORMS = ("slices", "wrap")
_MAX = np.iinfo(np.int64).max


class _Constants:
    """Adds int64 initializers to a graph, each once."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._graph = graph
        self._names = {tensor.name for tensor in graph.initializer}

    def ints(self, values: list[int]) -> str:
        name = "pad_ints_" + "_".join(str(v).replace("-", "m") for v in values)
        if name not in self._names:
            array = np.array(values, np.int64)
            self._graph.initializer.append(numpy_helper.from_array(array, name))
            self._names.add(name)
        return name


def plugin_pads(node: onnx.NodeProto) -> list[tuple[int, int]]:
    """(before, after) for each axis of a padding node's input."""
    for attribute in node.attribute:
        if attribute.name == "pads":
            flat = list(helper.get_attribute_value(attribute))
            return list(zip(flat[::2], flat[1::2], strict=True))
    raise ValueError(f"node '{node.name}' ({node.op_type}) has no attribute 'pads'")


def _wrap(node: onnx.NodeProto, constants: _Constants) -> list[onnx.NodeProto]:
    pads = plugin_pads(node)
    flat = [before for before, _ in pads] + [after for _, after in pads]
    inputs = [node.input[0], constants.ints(flat)]
    return [helper.make_node("Pad", inputs, node.output, name=node.name, mode="wrap")]


def _slices(node: onnx.NodeProto, constants: _Constants) -> list[onnx.NodeProto]:
    nodes: list[onnx.NodeProto] = []
    pads = plugin_pads(node)
    padded = [axis for axis, pair in enumerate(pads) if any(pair)]
    x = node.input[0]
    if not padded:
        return [helper.make_node("Identity", [x], node.output, name=node.name)]

    def piece(name: str, start: int, end: int, axis: int) -> str:
        inputs = [x, *(constants.ints([value]) for value in (start, end, axis))]
        nodes.append(helper.make_node("Slice", inputs, [name], name=name))
        return name

    for axis in padded:
        before, after = pads[axis]
        parts = [x]
        if before:
            parts.insert(0, piece(f"{node.name}_{axis}_head", -before, _MAX, axis))
        if after:
            parts.append(piece(f"{node.name}_{axis}_tail", 0, after, axis))
        last = axis == padded[-1]
        y = node.output[0] if last else f"{node.name}_{axis}"
        nodes.append(helper.make_node("Concat", parts, [y], name=y, axis=axis))
        x = y
    return nodes


def known_operators(model: onnx.ModelProto, form: str = "slices") -> onnx.ModelProto:
    """A copy of `model` without padding plugins, checked.

    form: "slices" (Slice and Concat; any opset from 10), or "wrap" (Pad in mode
    wrap; opset 19). All other tensors keep their names.
    """
    if form not in FORMS:
        raise ValueError(f"form is one of {', '.join(FORMS)}, not '{form}'")
    least = 19 if form == "wrap" else 10
    opset = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
    if opset < least:
        raise ValueError(f"form '{form}' needs opset {least}; the model has {opset}")
    result = onnx.ModelProto()
    result.CopyFrom(model)
    constants = _Constants(result.graph)
    rewrite = _wrap if form == "wrap" else _slices
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        nodes += rewrite(node, constants) if node.op_type == PLUGIN_OP else [node]
    del result.graph.node[:]
    result.graph.node.extend(nodes)
    used = {node.domain for node in nodes} | {"", "ai.onnx"}
    kept = [opset_id for opset_id in model.opset_import if opset_id.domain in used]
    del result.opset_import[:]
    result.opset_import.extend(kept)
    onnx.checker.check_model(result)
    return result
