"""rabbet quantize: the file and table that it writes, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.python.support.command import FLOAT, command, save_model

RANDOM = np.random.default_rng(0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """m.onnx: y = relu(x w) v, and x.npz."""
    made = tmp_path_factory.mktemp("quantize")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "first"),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("MatMul", ["b", "v"], ["y"], "second"),
    ]
    weights = {
        name: RANDOM.standard_normal((64, 64)).astype(np.float32) for name in "wv"
    }
    x, y = {"x": (FLOAT, ["rows", 64])}, {"y": (FLOAT, ["rows", 64])}
    save_model(made / "m.onnx", nodes, x, y, weights)
    np.savez(made / "x.npz", x=RANDOM.standard_normal((8, 64)).astype(np.float32))
    return made


def test_model_and_table(folder: Path) -> None:
    text = command(
        "quantize", "m.onnx", "--calibration", "x.npz", "--device", "cpu",
        "--exclude", "sec*", cwd=folder,
    ).stdout  # fmt: skip
    assert "first  MatMul    64x64" in text
    assert "left (excluded): second" in text
    assert text.endswith("wrote m.int8.onnx\n")
    model = onnx.load(folder / "m.int8.onnx")
    kinds = [node.op_type for node in model.graph.node]
    assert kinds.count("QuantizeLinear") == 1
    done = command(
        "run", "m.int8.onnx", "--device", "cpu", "--shapes", "x:2x64", cwd=folder
    )
    assert "(2, 64)" in done.stdout or "2x64" in done.stdout


def test_report_in_json(folder: Path) -> None:
    made = folder / "made.onnx"
    text = command("quantize", folder / "m.onnx", "--int4", "--json", "-o", made).stdout
    report = json.loads(text)
    assert report["to"] == "int4"
    assert [row["quantized"] for row in report["layers"]] == [True, True]
    assert made.stat().st_size < (folder / "m.onnx").stat().st_size / 4


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["m.onnx"], 2, "int8 needs calibration data"),
        (["m.onnx", "--calibration", "none.npz"], 3, "none.npz"),
        (["m.onnx", "--calibration", "x.npz", "--exclude", "no"], 2, "named 'no'"),
        (["x.npz", "--int4"], 3, "is not an ONNX model"),
        (["m.onnx", "--int4", "-o", "m.onnx"], 2, "is the model itself"),
        (["m.onnx", "--int4", "--samples", "x"], 2, "--samples is 'x'; expected an int"),
        (["m.onnx", "--calibraton", "x.npz"], 2, "no option '--calibraton'"),
    ],
)
def test_failures(folder: Path, arguments: list[str], code: int, message: str) -> None:
    error = command("quantize", *arguments, cwd=folder, code=code).stderr
    assert error.startswith("rabbet quantize: ")
    assert message in error
    assert error.count("\n") == 1


def test_without_a_python_that_has_the_package(folder: Path) -> None:
    error = command(
        "quantize", folder / "m.onnx", "--int4", env={"RABBET_PYTHON": "/no/python"}, code=6
    ).stderr
    assert "this command needs an interpreter with the package rabbet" in error
