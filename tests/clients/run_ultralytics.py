"""ultralytics: models made of its yaml files, exported to engines, and predicted with.

    python tests/clients/run_ultralytics.py [YAML ...]

No weights are downloaded: numbers come from a seed. What the engine's backend gives is
compared with what the model itself gives.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import report
import shim
import torch

MODELS = ["yolov8n.yaml", "yolov8n-seg.yaml", "yolov8n-pose.yaml", "yolov8n-cls.yaml",
          "yolo11n.yaml", "yolov5n.yaml"]  # fmt: skip
SIZE = 96


def _first(result: Any) -> torch.Tensor:
    while isinstance(result, (list, tuple)):
        result = result[0]
    return result.float()


def _export(model: Any, folder: Path, dynamic: bool, half: bool) -> Path:
    """As its exporter goes about it, which wants a GPU before it begins."""
    from ultralytics.utils.export.engine import onnx2engine

    onnx = model.export(
        format="onnx", imgsz=SIZE, device="cpu", dynamic=dynamic, simplify=False
    )
    engine = folder / "model.engine"
    metadata = {"task": model.task, "names": model.names, "stride": 32, "batch": 1,
                "imgsz": [SIZE, SIZE], "args": {"dynamic": dynamic}}  # fmt: skip
    onnx2engine(onnx, engine, quantize=16 if half else None, dynamic=dynamic,
                shape=(1, 3, SIZE, SIZE), metadata=metadata)  # fmt: skip
    return engine


def check(name: str, dynamic: bool, half: bool) -> str:
    """Exports and predicts; says how far the numbers are apart."""
    from ultralytics import YOLO
    from ultralytics.nn.backends import tensorrt as backend
    from ultralytics.nn.backends.tensorrt import TensorRTBackend

    backend.TORCH_1_10 = False  # no CUDA graphs on the host
    torch.manual_seed(1)
    model = YOLO(name)
    x = torch.rand(1, 3, SIZE, SIZE)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        model.model.eval()
        expected = _first(model.model(x))
        model.ckpt_path = str(Path(folder, "model.pt"))
        model.model.pt_path = model.ckpt_path
        engine = _export(model, Path(folder), dynamic, half)
        runner = TensorRTBackend(str(engine), torch.device("cpu"), half)
        found = _first(runner.forward(x))
        if dynamic:
            other = torch.rand(1, 3, SIZE, 2 * SIZE)
            assert _first(runner.forward(other)).shape == _first(model.model(other)).shape
            found = _first(runner.forward(x))
        image = (255 * np.random.default_rng(2).random((SIZE, SIZE, 3))).astype(np.uint8)
        results = YOLO(str(engine), task=model.task).predict(
            image, imgsz=SIZE, verbose=False
        )
        assert len(results) == 1
    scale = expected.abs().max()
    difference = float((found - expected).abs().max() / scale)
    assert difference < (2e-2 if half else 1e-4), f"{difference:.1e} apart"
    return f"{difference:.1e} apart"


def main() -> int:
    """0 if all passed."""
    report.install_alias()
    names = sys.argv[1:] or MODELS
    cases = [(name, False, False) for name in names]
    cases += [(names[0], True, False), (names[0], False, True)]
    with shim.installed():
        return report.each(
            (f"{name}{', dynamic' * dynamic}{', half' * half}",
             lambda name=name, dynamic=dynamic, half=half: check(name, dynamic, half))
            for name, dynamic, half in cases
        )  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
