"""`rabbet exec` on a GPU: copies, outputs on the device, layers' times after both."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.python.support.command import command, save_model

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)


@pytest.mark.parametrize(
    "flags", [(), ("--useCudaGraph",), ("--noDataTransfers", "--useCudaGraph")]
)
def test_exec(tmp_path: Path, flags: tuple[str, ...]) -> None:
    save_model(
        tmp_path / "m.onnx",
        [
            helper.make_node("MatMul", ["x", "w"], ["a"], name="product"),
            helper.make_node("Softmax", ["a"], ["y"], name="softmax"),
        ],
        {"x": (TensorProto.FLOAT, ["n", 4])},
        {"y": (TensorProto.FLOAT, ["n", 2])},
        {"w": np.arange(8, dtype=np.float32).reshape(4, 2)},
    )
    done = command(
        *("exec", "--onnx=m.onnx", "--optShapes=x:2x4", "--maxShapes=x:8x4"),
        *("--minShapes=x:1x4", "--duration=0.02", "--warmUp=0", "--iterations=3"),
        *("--dumpOutput", "--dumpProfile", "--exportProfile=p.json", *flags),
        cwd=tmp_path,
        env={"RABBET_DEVICE": "cuda"},
        code=0,
    )
    assert "[I] GPU Compute Time: min" in done.stdout
    assert "=== Profile (20 iterations ) ===" in done.stdout
    assert "product" in (tmp_path / "p.json").read_text()
    assert done.stdout.splitlines()[-1].startswith("&&&& PASSED rabbet.exec")
