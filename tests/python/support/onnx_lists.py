"""Models with inputs that are sequences or optional values, with tensors in their place.

Networks have tensors as inputs. A sequence is constructed from as many tensors as a test
gives, an optional value from its element. Outputs that are sequences the importer takes
apart itself.
"""

import onnx
from onnx import helper


def _is_tensor(value):
    return value.type.HasField("tensor_type")


def _sequence(name, type_, arrays):
    """Nodes that make the sequence, and the tensors that they take."""
    element = type_.sequence_type.elem_type.tensor_type.elem_type
    names = [f"{name}_{i}" for i in range(len(arrays))]
    inputs = [helper.make_tensor_value_info(n, element, a.shape)
              for n, a in zip(names, arrays, strict=True)]
    if not arrays:
        return [helper.make_node("SequenceEmpty", [], [name], dtype=element)], []
    return [helper.make_node("SequenceConstruct", names, [name])], inputs


def _in_place_of(value, given):
    """Nodes that make the value, the inputs and the arrays that they need."""
    optional = value.type.HasField("optional_type")
    type_ = value.type.optional_type.elem_type if optional else value.type
    if given is None:
        return [helper.make_node("Optional", [], [value.name], type=type_)], [], []
    if type_.HasField("sequence_type"):
        nodes, inputs = _sequence(value.name, type_, given)
        return nodes, inputs, list(given)
    element = f"{value.name}_element"
    shaped = helper.make_tensor_value_info(
        element, type_.tensor_type.elem_type, given.shape)
    node = helper.make_node("Optional", [element], [value.name])
    return [node], [shaped], [given]


def without_lists(model, arrays):
    """(model, arrays) whose inputs are tensors of the arrays' shapes."""
    if all(_is_tensor(v) for v in model.graph.input):
        return model, arrays
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    graph = changed.graph
    inputs, nodes, kept = [], [], []
    for value, given in zip(model.graph.input, arrays, strict=True):
        if _is_tensor(value):
            inputs.append(helper.make_tensor_value_info(
                value.name, value.type.tensor_type.elem_type, given.shape))
            kept.append(given)
            continue
        more_nodes, more_inputs, more = _in_place_of(value, given)
        nodes += more_nodes
        inputs += more_inputs
        kept += more
    nodes += graph.node
    del graph.input[:], graph.node[:]
    graph.input.extend(inputs)
    graph.node.extend(nodes)
    return changed, kept


def flat(outputs):
    """Outputs with the tensors of a sequence one after the other."""
    found = []
    for one in outputs:
        found += one if isinstance(one, list) else [one]
    return found
