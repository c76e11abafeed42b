"""ONNX models made to do harm: each ends in an error that names what is wrong, soon
and without much memory. (What random changes of models found: hostile_onnx.py.)"""

import pytest
import rabbet as trt
from onnx import TensorProto, helper


def import_of(nodes, inputs, outputs=("y",), opset=17, constants=(), functions=(), dtype=1):
    """What the parser says of a model; None if it is imported."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, dtype, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        initializer=list(constants),
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("local", 1)],
        functions=list(functions),
        ir_version=8,
    )
    logger = trt.Logger(trt.Logger.ERROR)
    parser = trt.OnnxParser(trt.Builder(logger).create_network(), logger)
    try:
        assert parser.parse(model.SerializeToString())
    except trt.Error as error:
        return str(error)
    return None


# ---- Ranks


@pytest.mark.parametrize(("op", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize(
    ("operand", "rank"),
    [("X", 4), ("X", 2), ("X", 0), ("W", 2), ("R", 4), ("B", 3), ("initial_h", 2)],
)
def test_recurrent_layers_check_ranks(op, gates, layout, operand, rank):
    shapes = {
        "X": (2, 3, 5),
        "W": (1, 4 * gates, 5),
        "R": (1, 4 * gates, 4),
        "B": (1, 8 * gates),
        "lengths": (),
        "initial_h": (2, 1, 4) if layout else (1, 3, 4),
    }
    shapes[operand] = (*shapes[operand], 1, 1, 1, 1)[:rank]
    names = ["" if name == "lengths" else name for name in shapes]
    del shapes["lengths"]
    node = helper.make_node(op, names, ["y"], "n", hidden_size=4, layout=layout)
    error = import_of([node], shapes)
    assert error is not None
    assert f"{operand} " in error
    assert f"has rank {rank}; expected" in error or operand == "R"
