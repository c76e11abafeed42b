"""Runs the command `rabbet`, the C program of the build or the installation."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import rabbet
from onnx import TensorProto, helper, numpy_helper


def program() -> str:
    """The program that belongs to the package under test."""
    package = Path(rabbet.__file__).parent
    for folder in (
        Path(rabbet._rabbet.__file__).parents[2] / "bin",  # a build tree
        package / "bin",  # a wheel
    ):
        if (folder / "rabbet").is_file():
            return str(folder / "rabbet")
    found = shutil.which("rabbet")
    assert found, "the command rabbet is neither beside the package nor on PATH"
    return found


PROGRAM = program()


def command(
    *arguments: Any,
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
    code: int = 0,
) -> subprocess.CompletedProcess[str]:
    """Runs it; the exit code must be `code`. `env` adds to the environment."""
    done = subprocess.run(
        [PROGRAM, *map(os.fspath, map(str, arguments))],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "RABBET_PYTHON": sys.executable, **(env or {})},
        timeout=300,
    )
    text = f"{done.args}\n{done.stdout}\n{done.stderr}"
    assert done.returncode == code, text
    assert (code == 0) or done.stderr.startswith("rabbet"), text
    return done


def save_model(
    path: Path,
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, list[Any]]],
    outputs: dict[str, tuple[int, list[Any] | None]],
    weights: dict[str, Any] | None = None,
) -> Path:
    """Writes a model; inputs and outputs are given as (type, shape)."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, *info) for name, info in inputs.items()],
        [helper.make_tensor_value_info(name, *info) for name, info in outputs.items()],
        [numpy_helper.from_array(w, name) for name, w in (weights or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    path.write_bytes(model.SerializeToString())
    return path


FLOAT = TensorProto.FLOAT
