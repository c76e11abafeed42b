"""torch, eager and compiled with frozen weights."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch


def folded(path: str, shapes: dict[str, tuple[int, ...]]) -> Any:
    """The model with fixed input shapes, its shape arithmetic and batch
    normalisations folded by ONNX Runtime's basic optimisations."""
    import onnx
    import onnxruntime

    model = onnx.load(path)
    for info in model.graph.input:
        if info.name in shapes:
            dims = info.type.tensor_type.shape.dim
            for dim, length in zip(dims, shapes[info.name], strict=True):
                dim.dim_value = length
    for info in model.graph.output:
        info.type.tensor_type.ClearField("shape")
    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.graph_optimization_level = level
        options.optimized_model_filepath = str(Path(folder) / "folded.onnx")
        options.log_severity_level = 3
        onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return onnx.load(options.optimized_model_filepath)


class Eager:
    """An ONNX file as a torch module."""

    def __init__(self, *, path: str, inputs: str, threads: int, **_: object) -> None:
        from .onnx_to_torch import convert

        torch.set_num_threads(threads)
        with np.load(inputs) as arrays:
            given = {name: np.array(array) for name, array in arrays.items()}
        shapes = {name: array.shape for name, array in given.items()}
        module, names, self.names = convert(folded(path, shapes))
        self.inputs = [torch.from_numpy(given[name]) for name in names]
        with torch.inference_mode():
            self.module = self.prepare(module)

    def prepare(self, module: Any) -> Any:
        return module

    def call(self) -> None:
        with torch.inference_mode():
            self.module(*self.inputs)

    def outputs(self) -> dict[str, Any]:
        with torch.inference_mode():
            results = self.module(*self.inputs)
        tensors = zip(self.names, results, strict=True)
        return {name: tensor.numpy() for name, tensor in tensors}


class Frozen(Eager):
    """torch.compile with weights taken for constants."""

    def prepare(self, module: Any) -> Any:
        from torch._inductor import config

        config.freezing = True
        config.compile_threads = 1  # no helpers left running beside the clock
        try:
            return self.compiled(module)
        except torch._dynamo.exc.BackendCompilerFailed:
            # Its rewriting of attention fails on masks of some shapes.
            torch._dynamo.reset()
            config.pattern_matcher = False
            return self.compiled(module)

    def compiled(self, module: Any) -> Any:
        """The module compiled, and run until no compilation is left."""
        result = torch.compile(module)
        for _index in range(2):
            result(*self.inputs)
        return result


@torch.library.custom_op("bench::noop", mutates_args=())
def noop(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("bench::add_one", mutates_args=())
def add_one(x: torch.Tensor) -> torch.Tensor:
    return x + 1


class Chain:
    """torch.library.custom_op in a row, eager."""

    def __init__(
        self, *, length: int, shape: tuple[int, ...], body: str, **_: object
    ) -> None:
        self.operators = [{"noop": noop, "add_one": add_one}[body]] * length
        self.x = torch.zeros(shape)

    def run(self) -> torch.Tensor:
        x = self.x
        with torch.inference_mode():
            for custom in self.operators:
                x = custom(x)
        return x

    def call(self) -> None:
        self.run()

    def outputs(self) -> dict[str, Any]:
        return {"y": self.run().numpy()}


class Padding:
    """torch.nn.functional.pad."""

    def __init__(self, *, inputs: str, pad: int, threads: int, **_: object) -> None:
        torch.set_num_threads(threads)
        with np.load(inputs) as arrays:
            self.x = torch.from_numpy(np.array(arrays["x"]))
        self.pad = pad

    def run(self) -> torch.Tensor:
        with torch.inference_mode():
            pads = [self.pad] * 4
            return torch.nn.functional.pad(self.x, pads, mode="circular")

    def call(self) -> None:
        self.run()

    def outputs(self) -> dict[str, Any]:
        return {"y": self.run().numpy()}
