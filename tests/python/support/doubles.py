"""Models of FLOAT with DOUBLE in its place."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def _tensor(tensor):
    if tensor.data_type == TensorProto.FLOAT:
        array = numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _type(type_):
    kind = type_.WhichOneof("value")
    if kind == "tensor_type" and type_.tensor_type.elem_type == TensorProto.FLOAT:
        type_.tensor_type.elem_type = TensorProto.DOUBLE
    elif kind in ("sequence_type", "optional_type"):
        _type(getattr(type_, kind).elem_type)


def _node(node):
    for attr in node.attribute:
        if attr.type == attr.TENSOR:
            _tensor(attr.t)
        elif attr.type == attr.GRAPH:
            _graph(attr.g)
        elif attr.name in ("to", "dtype", "output_datatype") and attr.i == TensorProto.FLOAT:
            attr.i = TensorProto.DOUBLE
    if node.op_type == "ConstantOfShape" and not node.attribute:
        zero = numpy_helper.from_array(np.zeros(1))
        node.attribute.append(helper.make_attribute("value", zero))


def _graph(graph):
    for value in [*graph.input, *graph.output, *graph.value_info]:
        _type(value.type)
    for tensor in graph.initializer:
        _tensor(tensor)
    for node in graph.node:
        _node(node)


def of_double(model):
    """The model with DOUBLE in the place of FLOAT, checked."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    _graph(made.graph)
    onnx.checker.check_model(made)
    onnx.shape_inference.infer_shapes(made, check_type=True, strict_mode=True)
    return made


def as_double(array):
    """An array of FLOAT as one of DOUBLE."""
    array = np.asarray(array)
    return array.astype(np.float64) if array.dtype == np.float32 else array
