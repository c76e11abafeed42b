"""A folder with plans for this GPU and for the CPU: the GPU's is taken, unless it is damaged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import rabbet as trt
from onnx import helper

from tests.python.support.command import FLOAT, save_model

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)


def test_the_gpu_comes_first(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    save_model(tmp_path / "m.onnx", nodes, {"x": (FLOAT, [2, 6])}, {"y": (FLOAT, [2, 6])})
    folder = tmp_path / "plans"
    made = trt.build_plans(tmp_path / "m.onnx", folder, "cuda,cpu", optimization_level=0)
    gpu, cpu = map(Path, made)
    assert gpu.stem.startswith("sm_")
    (again,) = trt.build_plans(tmp_path / "m.onnx", folder, gpu.stem, optimization_level=0)
    assert again == str(gpu)
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(2, 6)
    for device, taken in ((None, gpu), ("cuda", gpu), ("cpu", cpu)):
        model = trt.load(folder, device=device)
        np.testing.assert_array_equal(model(x), np.maximum(x, 0))
        assert taken.name in model.choice.split("\n")[0]
    data = bytearray(gpu.read_bytes())
    data[-1] ^= 1
    gpu.write_bytes(data)
    assert cpu.name in trt.load(folder).choice.split("\n")[0]
    assert gpu.name in trt.load(folder, build=True).choice.split("\n")[0]
    gpu.unlink()
    with pytest.raises(trt.NotFoundError, match="was not asked for"):
        trt.load(folder, device="cuda")
