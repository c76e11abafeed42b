"""ultralytics: models made of its yaml files, exported to engines, and predicted with.

    python tests/clients/run_ultralytics.py [--size=96] [--kinds=fixed,...] [--level=0]
        [YAML ...]

A kind is `fixed`, `dynamic`, `half`, `half-dynamic`, `int8` or `int8-dynamic`: the types and
whether sizes vary. No weights are downloaded: numbers come from a seed, scaled so that
results vary with inputs. The result of the engine's backend is compared with the model's own.
INT8 is calibrated with random images; its error is compared with that of torch's model, in
which operands of convolutions are rounded to 8 bits. --level sets the builder's optimization
level, which the exporter leaves alone. Nothing is timed at 0, so that a model takes half a
minute, but hardly anything is computed in FP16 or INT8 then.
"""

from __future__ import annotations

import copy
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import report
import shim
import torch

from zoo import weights

MODELS = ["yolov8n.yaml", "yolov8n-seg.yaml", "yolov8n-pose.yaml", "yolov8n-cls.yaml",
          "yolo11n.yaml", "yolov5n.yaml"]  # fmt: skip
KINDS = ["fixed", "dynamic", "half", "half-dynamic", "int8", "int8-dynamic"]
# Per type: `quantize` of its exporter, and the bound on the error's norm over the result's.
# Of INT8: over the error of a model whose convolutions alone are rounded to 8 bits.
TYPES = {"fixed": (None, 1e-4), "half": (16, 1e-2), "int8": (8, 2.0)}


class Images:
    """Batches to calibrate with, as its data loader gives them."""

    batch_size = 2

    def __init__(self, size: int) -> None:
        self.size = size

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        generator = torch.Generator().manual_seed(5)
        shape = (self.batch_size, 3, self.size, self.size)
        for _ in range(4):
            image = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
            yield {"img": image}


def _first(result: Any) -> torch.Tensor:
    while isinstance(result, (list, tuple)):
        result = result[0]
    return result.float()


def _export(model: Any, folder: Path, kind: str, size: int) -> Path:
    """As its exporter goes about it, which wants a GPU before it begins."""
    from ultralytics.utils.export.engine import onnx2engine

    dynamic = kind.endswith("dynamic")
    quantize, _ = TYPES[_type(kind)]
    onnx = model.export(
        format="onnx", imgsz=size, device="cpu", dynamic=dynamic, simplify=False
    )
    engine = folder / "model.engine"
    metadata = {"task": model.task, "names": model.names, "stride": 32, "batch": 1,
                "imgsz": [size, size], "args": {"dynamic": dynamic}}  # fmt: skip
    if model.task == "pose":
        metadata["kpt_shape"] = list(model.model.model[-1].kpt_shape)
    onnx2engine(onnx, engine, quantize=quantize, dynamic=dynamic,
                shape=(1, 3, size, size), metadata=metadata,
                dataset=Images(size) if quantize == 8 else None)  # fmt: skip
    return engine


def _type(kind: str) -> str:
    return kind.removesuffix("dynamic").removesuffix("-") or "fixed"


def _round(values: torch.Tensor, top: Any) -> torch.Tensor:
    return torch.clamp(torch.round(values * 127 / top), -127, 127) * top / 127


class _Rounding:
    """Of a convolution's inputs: looks for the largest at first, then rounds by it."""

    def __init__(self) -> None:
        self.top = 0.0
        self.looks = True

    def __call__(self, layer: Any, inputs: Any) -> Any:
        if not self.looks:
            return (_round(inputs[0], self.top),)
        self.top = max(self.top, float(inputs[0].abs().max()))
        return None


def _rounded(model: torch.nn.Module, size: int) -> torch.nn.Module:
    """A copy whose convolutions have operands of 8 bits, weights by channel; but for those
    of the head that its exporter keeps out."""
    model = copy.deepcopy(model).eval()
    model.fuse(verbose=False)
    found = [(n, c) for n, c in model.named_modules() if isinstance(c, torch.nn.Conv2d)]
    head = max((name.split(".")[1] for name, _ in found), key=int)
    roundings = []
    for name, layer in found:
        if name.startswith(f"model.{head}.") and name.endswith((".2", ".dfl.conv")):
            continue
        layer.weight.copy_(_round(layer.weight, layer.weight.abs().amax((1, 2, 3), True)))
        roundings.append(_Rounding())
        layer.register_forward_pre_hook(roundings[-1])
    for batch in Images(size):
        model(batch["img"] / 255.0)
    for rounding in roundings:
        rounding.looks = False
    return model


def _types(engine: Path) -> set[str]:
    """Of the tensors inside an engine's file, which begins with metadata."""
    import tensorrt as trt

    data = engine.read_bytes()
    plan = data[4 + int.from_bytes(data[:4], "little") :]
    made = trt.Runtime(trt.Logger()).deserialize_cuda_engine(plan)
    text = made.create_engine_inspector().get_engine_information(
        trt.LayerInformationFormat.JSON
    )
    layers = json.loads(text)["Layers"]
    return {tensor["Format/Datatype"] for layer in layers for tensor in layer["Outputs"]}


def _difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    assert found.shape == expected.shape, f"{found.shape}, not {expected.shape}"
    return max(weights.difference([found], [expected]))


def check(name: str, kind: str, size: int) -> str:
    """Exports and predicts; says how far the numbers are apart."""
    from ultralytics import YOLO
    from ultralytics.nn.backends import tensorrt as backend
    from ultralytics.nn.backends.tensorrt import TensorRTBackend

    backend.TORCH_1_10 = False  # no CUDA graphs on the host
    torch.manual_seed(1)
    model = YOLO(name)
    inputs = [torch.rand(1, 3, size, size)]
    if kind.endswith("dynamic"):
        inputs.append(torch.rand(1, 3, size, 2 * size))
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        module = model.model.eval()
        weights.settle(module, lambda: module(torch.rand(4, 3, size, size)))
        expected = [_first(module(x)).clone() for x in inputs]
        model.ckpt_path = module.pt_path = str(Path(folder, "model.pt"))
        engine = _export(model, Path(folder), kind, size)
        runner = TensorRTBackend(str(engine), torch.device("cpu"), _type(kind) == "half")
        found = [_first(runner.forward(x)).clone() for x in inputs]
        image = (255 * np.random.default_rng(2).random((size, size, 3))).astype(np.uint8)
        results = YOLO(str(engine), task=model.task).predict(
            image, imgsz=size, verbose=False
        )
        assert len(results) == 1
        bounds = [TYPES[_type(kind)][1]] * len(inputs)
        if _type(kind) == "int8":
            other = _rounded(module, size)
            for i, x in enumerate(inputs):
                bounds[i] *= _difference(_first(other(x)), expected[i])
        types = ", ".join(sorted(_types(engine)))
    apart = [_difference(a, b) for a, b in zip(found, expected, strict=True)]
    text = " and ".join(f"{a:.1e} (below {b:.1e})" for a, b in zip(apart, bounds, strict=True))
    assert all(a < b for a, b in zip(apart, bounds, strict=True)), f"{text} apart, {types}"
    return f"{text} apart, {types}"


def _option(name: str, default: str) -> str:
    for argument in sys.argv[1:]:
        if argument.startswith(f"--{name}="):
            sys.argv.remove(argument)
            return argument.partition("=")[2]
    return default


def _set_level(level: int) -> None:
    import tensorrt as trt

    create = trt.Builder.create_builder_config

    def create_at_level(builder: Any) -> Any:
        config = create(builder)
        config.builder_optimization_level = level
        return config

    trt.Builder.create_builder_config = create_at_level


def main() -> int:
    """0 if all passed."""
    report.install_alias()
    if level := _option("level", ""):
        _set_level(int(level))
    size = int(_option("size", "96"))
    kinds = _option("kinds", ",".join(KINDS)).split(",")
    cases = [(name, kind) for name in sys.argv[1:] or MODELS for kind in kinds]
    with shim.installed():
        return report.each(
            (f"{name}, {kind}", lambda name=name, kind=kind: check(name, kind, size))
            for name, kind in cases
        )


if __name__ == "__main__":
    raise SystemExit(main())
