"""ONNX models made to do harm: each ends in an error that names what is wrong, soon
and without much memory. (What random changes of models found: hostile_onnx.py.)"""

import os

import numpy as np
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


# ---- External data


def model_with_external_data(path, location):
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])],
        initializer=[tensor],
    )
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def runs(path):
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(trt.compile(path, device="cpu")(x), 2 * x)


@pytest.fixture
def folders(tmp_path):
    """A folder for a model, with a folder `sub`, and data outside of it."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "model" / "sub").mkdir(parents=True)
    for folder in ("outside", "model/sub"):
        (tmp_path / folder / "w.bin").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    return tmp_path / "model", tmp_path / "outside"


@pytest.mark.parametrize("location", ["w.bin", "sub/link/w.bin"])
def test_links_do_not_leave_the_folder(folders, location):
    inside, outside = folders
    (inside / "w.bin").symlink_to(outside / "w.bin")
    (inside / "sub" / "link").symlink_to("../../outside")
    path = model_with_external_data(inside / "model.onnx", location)
    with pytest.raises(trt.InvalidArgumentError, match=f"'{location}' is a link to .*outside/w"):
        trt.compile(path, device="cpu")


def test_links_within_the_folder_are_followed(folders):
    inside, outside = folders
    (inside / "w.bin").symlink_to("sub/w.bin")
    runs(model_with_external_data(inside / "model.onnx", "w.bin"))
    # The model's folder may be reached by a link.
    (outside / "link").symlink_to(inside)
    runs(outside / "link" / "model.onnx")


def test_a_model_that_is_a_link_has_its_targets_folder(folders):
    """As in the caches of hubs: files by their hash, and links that name them."""
    inside, outside = folders
    model_with_external_data(outside / "0123abcd", "w.bin")
    (inside / "model.onnx").symlink_to("../outside/0123abcd")
    (inside / "w.bin").symlink_to("../outside/w.bin")
    runs(inside / "model.onnx")


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_external_data_is_a_regular_file(tmp_path, kind):
    data = tmp_path / "w.bin"
    if kind == "pipe":
        os.mkfifo(data)
    elif kind == "folder":
        data.mkdir()
    path = model_with_external_data(tmp_path / "model.onnx", "w.bin")
    if kind == "device":
        data.symlink_to("/dev/zero")
    error = "is a link to '/dev/zero'" if kind == "device" else f"it is a {kind}"
    with pytest.raises(trt.Error, match=error):
        trt.compile(path, device="cpu")
