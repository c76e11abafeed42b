"""torch on a GPU: eager, compiled, and compiled kernels in one CUDA graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .torch_cpu import folded

TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


def module_of(path: str, shapes: dict[str, tuple[int, ...]], after: Any) -> Any:
    """torch's best form of an ONNX file: written for torch where there is one, else
    the graph operator by operator; with its inputs' and outputs' names."""
    from .onnx_to_torch import convert
    from .torch_transformers import native

    return native(path, after=after) or convert(folded(path, shapes))


def captured(function: Any) -> tuple[Any, Any]:
    """A graph of what `function` enqueues, after warm-up, and its results."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _index in range(3):
            function()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = function()
    return graph, results


class Eager:
    """An ONNX file as a torch module on the GPU.

    precision: "fp32", "tf32", "fp16" or "bf16": what floating tensors are, and
    whether matrix products of FP32 may use TF32. after: what follows each layer of a
    transformer.
    """

    after: Any = None

    def __init__(self, *, path: str, inputs: str, precision: str, **_: object) -> None:
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        torch.backends.cudnn.allow_tf32 = precision == "tf32"
        torch.backends.cudnn.benchmark = True
        with np.load(inputs) as arrays:
            given = {name: np.array(array) for name, array in arrays.items()}
        shapes = {name: array.shape for name, array in given.items()}
        module, names, self.names = module_of(path, shapes, self.after)
        self.dtype = TYPES.get(precision, torch.float32)
        module = module.cuda().to(self.dtype)
        if any(array.ndim == 4 for array in given.values()):
            module = module.to(memory_format=torch.channels_last)
        self.inputs = [self._on_gpu(given[name]) for name in names]
        self.results: Any = None
        with torch.inference_mode():
            self.module = self.prepare(module)
        self.call()

    def _on_gpu(self, array: np.ndarray[Any, Any]) -> torch.Tensor:
        tensor = torch.from_numpy(array).cuda()
        if tensor.is_floating_point():
            tensor = tensor.to(self.dtype)
        if tensor.dim() == 4:
            tensor = tensor.contiguous(memory_format=torch.channels_last)
        return tensor

    def prepare(self, module: Any) -> Any:
        return module

    def run(self) -> None:
        """Enqueues one call."""
        with torch.inference_mode():
            self.results = self.module(*self.inputs)

    def call(self) -> None:
        self.run()
        torch.cuda.current_stream().synchronize()

    def outputs(self) -> dict[str, Any]:
        self.call()
        tensors = zip(self.names, self.results, strict=True)
        return {name: tensor.float().cpu().numpy() for name, tensor in tensors}

    def facts(self) -> dict[str, Any]:
        """Bytes of GPU memory: the most that tensors had, and that torch held."""
        return {
            "allocated_bytes": torch.cuda.max_memory_allocated(),
            "reserved_bytes": torch.cuda.max_memory_reserved(),
        }


class ReduceOverhead(Eager):
    """torch.compile(mode="reduce-overhead")."""

    def prepare(self, module: Any) -> Any:
        compiled = torch.compile(module, mode="reduce-overhead")
        for _index in range(3):
            compiled(*self.inputs)
        torch.cuda.synchronize()
        return compiled


class EagerGraph(Eager):
    """The kernels of eager torch, captured into one graph by hand."""

    def prepare(self, module: Any) -> Any:
        self.graph, self.results = captured(lambda: module(*self.inputs))
        return module

    def run(self) -> None:
        self.graph.replay()


class OwnGraph(Eager):
    """The kernels of torch.compile, frozen, captured into one graph by hand."""

    def prepare(self, module: Any) -> Any:
        from torch._inductor import config

        config.freezing = True
        compiled = torch.compile(module)
        self.graph, self.results = captured(lambda: compiled(*self.inputs))
        return compiled

    def run(self) -> None:
        self.graph.replay()
