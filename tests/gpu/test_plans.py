"""Plans for a GPU: what they keep of their kernels."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.python.support.command import command

from . import cuda_driver

pytestmark = pytest.mark.skipif(not cuda_driver.available(), reason="no GPU")


def space_to_depth(path: Path) -> Path:
    """Moves of x[1,4,6,8]: kernels of our own alone."""
    graph = helper.make_graph(
        [
            helper.make_node("Transpose", ["x"], ["turned"], perm=[0, 2, 3, 1]),
            helper.make_node("DepthToSpace", ["x"], ["y"], blocksize=2),
        ],
        "moves",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 6, 8])],
        [
            helper.make_tensor_value_info("turned", TensorProto.FLOAT, [1, 6, 8, 4]),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, 12, 16]),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, path)
    return path


def test_a_plan_runs_without_a_compiler(tmp_path: Path) -> None:
    model, plan = space_to_depth(tmp_path / "moves.onnx"), tmp_path / "moves.plan"
    command("build", model, "--device", "cuda", "-o", plan)
    listed = json.loads(command("inspect", plan, "--json").stdout)
    kept = listed["Artifacts"]
    assert kept
    assert all(a["Name"].endswith(".cu") and a["Bytes"] > 0 for a in kept)
    assert len({a["Key"] for a in kept}) == len(kept)
    for layer in listed["Layers"]:
        assert layer["Artifacts"]
        assert all(a in kept for a in layer["Artifacts"])
    assert f"keeps  {kept[0]['Name']}: {kept[0]['Bytes']} bytes" in command(
        "inspect", plan
    ).stdout

    none = {"RABBET_NVRTC": os.fspath(tmp_path / "there is none")}
    x = np.random.default_rng(1).standard_normal((1, 4, 6, 8)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    out = tmp_path / "y.npz"
    command("run", plan, "--inputs", tmp_path / "x.npz", "-o", out, env=none)
    found = np.load(out)
    assert np.array_equal(found["turned"], x.transpose(0, 2, 3, 1))
    # Channel c of each block of 2x2 is pixel (c // 2, c % 2).
    y = x.reshape(1, 2, 2, 1, 6, 8).transpose(0, 3, 4, 1, 5, 2).reshape(1, 1, 12, 16)
    assert np.array_equal(found["y"], y)
    refused = command("build", model, "--device", "cuda", "-o", plan, env=none, code=6)
    assert "NVRTC" in refused.stderr


def test_equal_builds_keep_equal_bytes(tmp_path: Path) -> None:
    model = space_to_depth(tmp_path / "moves.onnx")
    kept = []
    for name in ("a.plan", "b.plan"):
        command("build", model, "--device", "cuda", "-o", tmp_path / name)
        listed = command("inspect", tmp_path / name, "--json").stdout
        kept.append(json.loads(listed)["Artifacts"])
    assert kept[0] == kept[1]


def row_sums(path: Path, rows: int | str) -> Path:
    """The sums of x[rows, 640] along its rows: one function of many that the source has."""
    graph = helper.make_graph(
        [helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)],
        "sums",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 640])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows])],
        [helper.make_tensor("axes", TensorProto.INT64, [1], [1])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("rows", [3, "n"])
def test_a_plan_has_the_functions_that_its_shapes_need(
    tmp_path: Path, rows: int | str
) -> None:
    model, plan = row_sums(tmp_path / "sums.onnx", rows), tmp_path / "sums.plan"
    sizes = {"min": 1, "opt": 3, "max": 4000} if rows == "n" else {}
    shapes = [a for k, n in sizes.items() for a in (f"--{k}-shapes", f"x:{n}x640")]
    command("build", model, "--device", "cuda", *shapes, "-o", plan)
    kept = json.loads(command("inspect", plan, "--json").stdout)["Artifacts"]
    if rows == 3:
        assert 1 <= len(kept) <= 4  # vectors and single elements, in parts or whole
    none = {"RABBET_NVRTC": os.fspath(tmp_path / "there is none")}
    for n in (3,) if rows == 3 else (1, 3, 4000):
        x = np.random.default_rng(n).standard_normal((n, 640)).astype(np.float32)
        np.savez(tmp_path / "x.npz", x=x)
        out = tmp_path / "y.npz"
        command("run", plan, "--inputs", tmp_path / "x.npz", "-o", out, env=none)
        np.testing.assert_allclose(np.load(out)["y"], x.sum(1), rtol=1e-4, atol=1e-4)
