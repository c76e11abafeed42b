"""Names that are no UTF-8, and names that a terminal would obey."""

import json

import numpy as np
import pytest
import rabbet as trt
from onnx import TensorProto, helper

from tests.python.support.command import command

ESCAPES = "\x1b]0;owned\x07\x9b2J\u202e"
SHOWN = r"\x1b]0;owned\x07\x9b2J\u202e"
OBEYED = set("\x1b\x07\x9b\u202e")


def model_of(name):
    """y = relu(x), every name of which has `name` in it."""
    node = helper.make_node("Relu", [f"x{name}"], [f"y{name}"], f"n{name}")
    return helper.make_model(
        helper.make_graph(
            [node],
            f"g{name}",
            [helper.make_tensor_value_info(f"x{name}", TensorProto.FLOAT, [f"d{name}", 3])],
            [helper.make_tensor_value_info(f"y{name}", TensorProto.FLOAT, None)],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )


# ---- UTF-8


@pytest.mark.parametrize("name", ["NodeProto.name", "ValueInfoProto.name", "GraphProto.name"])
def test_a_model_with_names_that_are_not_utf8_is_refused(tmp_path, name):
    letter = {"NodeProto.name": b"n", "ValueInfoProto.name": b"x", "GraphProto.name": b"g"}
    data = model_of("QQ").SerializeToString()
    path = tmp_path / "model.onnx"
    # The node's name comes before the graph's, whose inputs come last.
    path.write_bytes(data.replace(letter[name] + b"QQ", letter[name] + b"\xff\xfe"))
    done = command("build", path, "-o", tmp_path / "a.plan", code=3)
    assert f"{name} at offset" in done.stderr or name == "ValueInfoProto.name"
    assert "is not UTF-8" in done.stderr
    assert not (tmp_path / "a.plan").exists()
    with pytest.raises(trt.DataLossError, match="is not UTF-8"):
        trt.compile(path, device="cpu")


def test_names_given_in_python_are_utf8():
    network = trt.Builder().create_network()
    with pytest.raises(ValueError, match="utf-8"):
        network.add_input("x\udcff", trt.float32, (2,))
    x = network.add_input("x", trt.float32, (2,))
    with pytest.raises(ValueError, match=r"(?i)utf-8"):
        x.name = "a\ud800"
    with pytest.raises(ValueError, match=r"(?i)utf-8"):
        network.name = "\udc80"


# ---- Terminals


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp(f"names{ESCAPES}")
    path = folder / "model.onnx"
    path.write_bytes(model_of(ESCAPES).SerializeToString())
    return path, folder / "model.plan"


def printed(*arguments, code=0):
    done = command(*arguments, code=code)
    for text in (done.stdout, done.stderr):
        assert not OBEYED & set(text), repr(text)
    return done


def test_the_command_prints_names_escaped(paths):
    path, plan = paths
    shapes = ("--shapes", f"'x{ESCAPES}':2x3")
    done = printed("build", path, "-o", plan, "--verbose", *shapes)
    assert f"n{SHOWN}" in done.stdout
    assert SHOWN in done.stderr  # "wrote" and the path
    done = printed("inspect", plan)
    assert f"n{SHOWN}" in done.stdout
    assert f"x{SHOWN}" in done.stdout
    assert f"y{SHOWN}" in printed("run", plan).stdout
    assert f"n{SHOWN}" in printed("bench", plan, "--layers", "--duration", "0").stdout
    done = printed("run", plan, "--inputs", f"nothing{ESCAPES}.npy", code=3)
    assert SHOWN in done.stderr
    printed("run", f"{plan}{ESCAPES}", code=3)
    printed(f"{ESCAPES}", code=2)
    printed("exec", f"--onnx={path}", f"--shapes='x{ESCAPES}':2x3", "--duration=0",
            "--iterations=1", "--dumpProfile", "--dumpLayerInfo", "--verbose")


def test_json_escapes_names_and_keeps_them(paths):
    path, plan = paths
    command("build", path, "-o", plan, "--shapes", f"'x{ESCAPES}':2x3")
    done = printed("inspect", plan, "--json")
    layers = json.loads(done.stdout)["Layers"]
    assert f"n{ESCAPES}" in {layer["Name"] for layer in layers}


def test_python_prints_names_escaped(paths, capsys):
    path, _ = paths
    model = trt.compile(path, device="cpu", shapes={f"x{ESCAPES}": (2, 3)})
    x = np.array([[-1, 0, 1], [2, -3, 4]], np.float32)
    context = model.engine.create_execution_context()
    context.profiler = trt.Profiler()
    np.testing.assert_array_equal(model(x), np.maximum(x, 0))
    inspector = model.engine.create_engine_inspector()
    text = inspector.get_engine_information(trt.LayerInformationFormat.ONELINE)
    assert f"n{SHOWN}" in text
    assert not OBEYED & set(text)
    trt.Profiler().report_layer_time(f"n{ESCAPES}", 1.0)
    assert capsys.readouterr().out == f"n{SHOWN}: 1.0000 ms\n"
    with pytest.raises(trt.IncompatibleError) as caught:
        trt.load(path)
    assert not OBEYED & set(str(caught.value))
