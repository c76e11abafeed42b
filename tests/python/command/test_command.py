"""The command inside Python: plugin files of --plugins."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper

SOURCE = """
import numpy as np
import rabbet.plugin as trtp

@trtp.register("command::scale")
def scale(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()

@trtp.impl("command::scale")
def run(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
    np.asarray(outputs[0])[...] = np.asarray(x) * 3
"""


def command(*arguments: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rabbet._cli", *map(os.fspath, arguments)],
        capture_output=True,
        text=True,
    )


def test_build_and_run_with_a_plugin_file(tmp_path: Path) -> None:
    plugin, plan = tmp_path / "ops.py", tmp_path / "m.plan"
    plugin.write_text(SOURCE)
    node = helper.make_node("scale", ["x"], ["y"], plugin_namespace="command")
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in "xy"]
    graph = helper.make_graph([node], "g", [info[0]], [info[1]])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.savez(tmp_path / "in.npz", x=x)

    built = command(
        "build", tmp_path / "m.onnx", "-o", plan, "--plugins", plugin, "--device", "cpu"
    )
    assert built.returncode == 0, built.stderr
    ran = command(
        "run",
        plan,
        "--inputs",
        tmp_path / "in.npz",
        "--output",
        tmp_path / "out.npz",
        "--plugins",
        plugin,
    )
    assert ran.returncode == 0, ran.stderr
    assert np.array_equal(np.load(tmp_path / "out.npz")["y"], 3 * x)

    missing = command("run", plan)
    assert missing.returncode != 0
    assert "scale" in missing.stderr
    assert "ops.py" in missing.stderr


def test_exit_codes_pass_through() -> None:
    assert command("version").returncode == 0
    assert command("no-such-command").returncode == 2
