"""An ONNX graph as a torch.fx module, for the operators of the models here.

The graph is one whose shape arithmetic is folded already (see torch_cpu), so
that Reshape, Slice and their like have constants for shapes and indices.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from torch import Tensor, fx, nn
from torch.nn import functional

Attributes = dict[str, Any]
Emit = Callable[[fx.Graph, list[Any], Attributes, list[Any]], Any]
"""graph, inputs (fx nodes), attributes, inputs' constants or None -> fx node."""

_DTYPES = {
    onnx.TensorProto.FLOAT: torch.float32,
    onnx.TensorProto.INT64: torch.int64,
    onnx.TensorProto.BOOL: torch.bool,
}


def _call(function: Callable[..., Any]) -> Emit:
    """A function of the inputs alone."""
    return lambda graph, inputs, _a, _c: graph.call_function(function, tuple(inputs))


def _arithmetic(function: Callable[..., Any]) -> Emit:
    """A function of two inputs, one of which may be a Python number, as code
    written for torch has it."""

    def emit(graph: fx.Graph, inputs: list[Any], _a: Attributes, c: list[Any]) -> Any:
        pairs = zip(inputs, c, strict=True)
        operands = [x if k is None or k.ndim else k.item() for x, k in pairs]
        return graph.call_function(function, tuple(operands))

    return emit


def _sum(graph: fx.Graph, inputs: list[Any], _a: Attributes, _c: list[Any]) -> Any:
    total = inputs[0]
    for item in inputs[1:]:
        total = graph.call_function(operator.add, (total, item))
    return total


def _square_pads(
    graph: fx.Graph, x: Any, attributes: Attributes, value: float
) -> tuple[Any, list[int]]:
    """The input and symmetric pads; other pads are done by functional.pad."""
    pads = attributes.get("pads", [0, 0, 0, 0])
    if attributes.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
        raise NotImplementedError(f"auto_pad {attributes['auto_pad']!r}")
    top, left, bottom, right = pads
    if (top, left) == (bottom, right):
        return x, [top, left]
    around = [left, right, top, bottom]
    return graph.call_function(functional.pad, (x, around, "constant", value)), [0, 0]


def _conv(graph: fx.Graph, inputs: list[Any], a: Attributes, _c: list[Any]) -> Any:
    x, pads = _square_pads(graph, inputs[0], a, 0.0)
    bias = inputs[2] if len(inputs) > 2 else None
    strides, dilations = a.get("strides", [1, 1]), a.get("dilations", [1, 1])
    arguments = (x, inputs[1], bias, strides, pads, dilations, a.get("group", 1))
    return graph.call_function(functional.conv2d, arguments)


def _conv_transpose(
    graph: fx.Graph, inputs: list[Any], a: Attributes, _c: list[Any]
) -> Any:
    bias = inputs[2] if len(inputs) > 2 else None
    arguments = (inputs[0], inputs[1], bias, a.get("strides", [1, 1]))
    return graph.call_function(functional.conv_transpose2d, arguments)


def _max_pool(graph: fx.Graph, inputs: list[Any], a: Attributes, _c: list[Any]) -> Any:
    x, pads = _square_pads(graph, inputs[0], a, float("-inf"))
    arguments = (x, a["kernel_shape"], a.get("strides", [1, 1]), pads)
    options = {"ceil_mode": bool(a.get("ceil_mode", 0))}
    return graph.call_function(functional.max_pool2d, arguments, options)


def _average_pool(
    graph: fx.Graph, inputs: list[Any], a: Attributes, _c: list[Any]
) -> Any:
    counted = bool(a.get("count_include_pad", 0))
    top, left, bottom, right = a.get("pads", [0, 0, 0, 0])
    if (top, left) != (bottom, right):
        raise NotImplementedError("AveragePool with unequal pads")
    arguments = (inputs[0], a["kernel_shape"], a.get("strides", [1, 1]), [top, left])
    options = {
        "ceil_mode": bool(a.get("ceil_mode", 0)),
        "count_include_pad": counted,
    }
    return graph.call_function(functional.avg_pool2d, arguments, options)


def _gemm_function(
    a: Tensor,
    b: Tensor,
    c: Tensor | None,
    alpha: float,
    beta: float,
    turned: tuple[bool, bool],
) -> Tensor:
    a = a.t() if turned[0] else a
    if c is not None and alpha == beta == 1 and c.dim() == 1:
        return functional.linear(a, b if turned[1] else b.t(), c)
    y = alpha * (a @ (b.t() if turned[1] else b))
    return y if c is None else y + beta * c


def _gemm(graph: fx.Graph, inputs: list[Any], a: Attributes, _c: list[Any]) -> Any:
    c = inputs[2] if len(inputs) > 2 else None
    turned = (bool(a.get("transA", 0)), bool(a.get("transB", 0)))
    arguments = (*inputs[:2], c, a.get("alpha", 1.0), a.get("beta", 1.0), turned)
    return graph.call_function(_gemm_function, arguments)


def _batch_norm(graph: fx.Graph, inputs: list[Any], a: Attributes, _c: Any) -> Any:
    x, scale, bias, mean, variance = inputs
    arguments = (x, mean, variance, scale, bias, False, 0.0, a.get("epsilon", 1e-5))
    return graph.call_function(functional.batch_norm, arguments)


def _layer_norm(graph: fx.Graph, inputs: list[Any], a: Attributes, c: Any) -> Any:
    if a.get("axis", -1) != -1:
        raise NotImplementedError("LayerNormalization over more than the last axis")
    bias = inputs[2] if len(inputs) > 2 else None
    arguments = (inputs[0], list(c[1].shape), inputs[1], bias, a.get("epsilon", 1e-5))
    return graph.call_function(functional.layer_norm, arguments)


def _softmax(graph: fx.Graph, inputs: list[Any], a: Attributes, _c: list[Any]) -> Any:
    if a["opset"] >= 13:
        return graph.call_function(torch.softmax, (inputs[0], a.get("axis", -1)))
    return graph.call_function(_flat_softmax, (inputs[0], a.get("axis", 1)))


def _flat_softmax(x: Tensor, axis: int) -> Tensor:
    """Softmax as before opset 13: over all axes from `axis` on."""
    return x.flatten(axis).softmax(axis).view(x.shape)


def _reshape(graph: fx.Graph, inputs: list[Any], _a: Attributes, c: list[Any]) -> Any:
    return graph.call_function(_reshape_function, (inputs[0], c[1].tolist()))


def _reshape_function(x: Tensor, shape: list[int]) -> Tensor:
    """ONNX's Reshape: a 0 keeps the input's length."""
    return x.reshape([x.shape[i] if n == 0 else n for i, n in enumerate(shape)])


def _gather(graph: fx.Graph, inputs: list[Any], a: Attributes, c: list[Any]) -> Any:
    axis = a.get("axis", 0)
    if c[1] is not None and c[1].ndim == 0:
        return graph.call_function(torch.select, (inputs[0], axis, int(c[1])))
    if axis != 0:
        raise NotImplementedError("Gather by a tensor on an axis that is not 0")
    return graph.call_function(functional.embedding, (inputs[1], inputs[0]))


def _slice(graph: fx.Graph, inputs: list[Any], _a: Attributes, c: list[Any]) -> Any:
    starts, ends = (values.tolist() for values in c[1:3])
    axes = c[3].tolist() if len(c) > 3 else list(range(len(starts)))
    if len(c) > 4 and any(step != 1 for step in c[4].tolist()):
        raise NotImplementedError("Slice with steps")
    index: dict[int, slice] = {
        axis: slice(start, None if end >= np.iinfo(np.int32).max else end)
        for start, end, axis in zip(starts, ends, axes, strict=True)
    }
    return graph.call_function(_slice_function, (inputs[0], index))


def _slice_function(x: Tensor, index: dict[int, slice]) -> Tensor:
    return x[tuple(index.get(axis, slice(None)) for axis in range(x.dim()))]


def _split(graph: fx.Graph, inputs: list[Any], a: Attributes, c: list[Any]) -> Any:
    return graph.call_function(torch.split, (inputs[0], c[1].tolist(), a["axis"]))


def _axes(a: Attributes, c: list[Any]) -> list[int]:
    return a["axes"] if "axes" in a else c[1].tolist()


def _unsqueeze(graph: fx.Graph, inputs: list[Any], a: Attributes, c: list[Any]) -> Any:
    x = inputs[0]
    for axis in sorted(_axes(a, c)):
        x = graph.call_function(torch.unsqueeze, (x, axis))
    return x


def _lrn(graph: fx.Graph, inputs: list[Any], a: Attributes, _c: list[Any]) -> Any:
    parts = (a["size"], a.get("alpha", 1e-4), a.get("beta", 0.75), a.get("bias", 1.0))
    return graph.call_function(functional.local_response_norm, (inputs[0], *parts))


def _with(function: Callable[..., Any], *names: str, **defaults: Any) -> Emit:
    """A function of the first input and some attributes."""

    def emit(graph: fx.Graph, inputs: list[Any], a: Attributes, _c: list[Any]) -> Any:
        values = [a.get(name, defaults.get(name)) for name in names]
        return graph.call_function(function, (inputs[0], *values))

    return emit


def _mean(graph: fx.Graph, inputs: list[Any], a: Attributes, c: list[Any]) -> Any:
    arguments = (inputs[0], _axes(a, c), bool(a.get("keepdims", 1)))
    return graph.call_function(torch.mean, arguments)


def _concat(graph: fx.Graph, inputs: list[Any], a: Attributes, _c: list[Any]) -> Any:
    return graph.call_function(torch.cat, (list(inputs), a["axis"]))


def _cast(graph: fx.Graph, inputs: list[Any], a: Attributes, _c: list[Any]) -> Any:
    return graph.call_method("to", (inputs[0], _DTYPES[a["to"]]))


def _global_pool(x: Tensor) -> Tensor:
    return x.mean((2, 3), keepdim=True)


EMITTERS: dict[str, Emit] = {
    "Abs": _call(torch.abs),
    "Add": _arithmetic(operator.add),
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Cast": _cast,
    "Concat": _concat,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Div": _arithmetic(operator.truediv),
    "Dropout": _with(torch.clone),
    "Erf": _call(torch.erf),
    "Flatten": _with(torch.flatten, "axis", axis=1),
    "Gather": _gather,
    "Gemm": _gemm,
    "GlobalAveragePool": _call(_global_pool),
    "Identity": _with(torch.clone),
    "LRN": _lrn,
    "LayerNormalization": _layer_norm,
    "MatMul": _call(torch.matmul),
    "Max": _call(torch.maximum),
    "MaxPool": _max_pool,
    "Min": _call(torch.minimum),
    "Mul": _arithmetic(operator.mul),
    "Neg": _call(torch.neg),
    "Pow": _arithmetic(torch.pow),
    "ReduceMean": _mean,
    "Relu": _call(functional.relu),
    "Reshape": _reshape,
    "Slice": _slice,
    "Softmax": _softmax,
    "Split": _split,
    "Sqrt": _call(torch.sqrt),
    "Sub": _arithmetic(operator.sub),
    "Sum": _sum,
    "Tanh": _call(torch.tanh),
    "Transpose": _with(torch.permute, "perm"),
    "Unsqueeze": _unsqueeze,
    "Where": _call(torch.where),
}


class _Importer:
    """Builds the fx graph node by node."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.opset = next(o.version for o in model.opset_import if not o.domain)
        self.root = nn.Module()
        self.graph = fx.Graph()
        self.values: dict[str, Any] = {}
        self.constants: dict[str, np.ndarray[Any, Any]] = {}

    def constant(self, name: str, array: np.ndarray[Any, Any]) -> None:
        """A weight: a buffer of the module, made an fx node when used."""
        self.constants[name] = array
        buffer = f"c{len(self.constants)}"
        self.root.register_buffer(buffer, torch.from_numpy(np.array(array)))
        self.values[name] = self.graph.get_attr(buffer)

    def node(self, node: onnx.NodeProto) -> None:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == "Constant":
            array = numpy_helper.to_array(attributes["value"])
            self.constant(node.output[0], array)
            return
        if node.op_type not in EMITTERS or node.domain:
            raise NotImplementedError(f"no torch form of {node.domain} {node.op_type}")
        names = list(node.input)
        inputs = [self.values.get(name) for name in names]
        constants = [self.constants.get(name) for name in names]
        attributes["opset"] = self.opset
        emitter = EMITTERS[node.op_type]
        result = emitter(self.graph, inputs, attributes, constants)
        if node.op_type != "Split":
            self.values[node.output[0]] = result
            return
        for index, name in enumerate(node.output):
            item = self.graph.call_function(operator.getitem, (result, index))
            self.values[name] = item

    def module(self) -> tuple[fx.GraphModule, list[str], list[str]]:
        """The module, and its inputs' and outputs' names in order."""
        graph = self.model.graph
        held = {tensor.name for tensor in graph.initializer}
        inputs = [info.name for info in graph.input if info.name not in held]
        for index, name in enumerate(inputs):
            self.values[name] = self.graph.placeholder(f"input{index}")
        for tensor in graph.initializer:
            self.constant(tensor.name, numpy_helper.to_array(tensor))
        for node in graph.node:
            self.node(node)
        outputs = [info.name for info in graph.output]
        self.graph.output(tuple(self.values[name] for name in outputs))
        self.graph.eliminate_dead_code()
        return fx.GraphModule(self.root, self.graph).eval(), inputs, outputs


def convert(model: onnx.ModelProto) -> tuple[fx.GraphModule, list[str], list[str]]:
    """A torch module of `model`, with its inputs' and outputs' names in order."""
    return _Importer(model).module()
