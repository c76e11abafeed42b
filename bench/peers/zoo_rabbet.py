"""Architectures of the zoo on a GPU, compiled by Rabbet from torch's exported program."""

from __future__ import annotations

import contextlib
from typing import Any

import rabbet as trt
import torch

from .rabbet_cuda import TORCH
from .zoo_torch import Stages, kernels, numpy_of, on_gpu, settled


class Compiled:
    """rabbet.compile() of the program; runs are replayed from a graph.

    stages: file of `Stages`. builds: how many build at the same time; one alone times its
    kernels undisturbed.
    """

    def __init__(
        self, *, key: str, batch: int, precision: str, stages: str, builds: int,
        **_: object,
    ) -> None:  # fmt: skip
        told = Stages(stages, f"rabbet, {key}, {batch}")
        with torch.no_grad():
            flat, self.inputs = on_gpu(*settled(key, batch), precision)
            told.end("module")
            program = torch.export.export(flat, tuple(self.inputs), strict=False)
            self.known = {"export_s": told.end("exported")}
        with contextlib.ExitStack() as held:
            waited: list[float] = []

            def progress(phase: str, step: int, steps: int) -> bool:
                if not waited:  # translated, which others may do at the same time
                    held.enter_context(told.turn(builds))
                    waited.append(told.end("translated, and waited"))
                return True

            self.compiled = trt.compile(program, progress=progress)
            self.known["build_s"] = told.end("built")
        names = program.graph_signature.user_inputs
        self._bind(dict(zip(names, self.inputs, strict=True)))

    def _bind(self, given: dict[str, Any]) -> None:
        self.engine = self.compiled.model.engine
        self.context = self.engine.create_execution_context()
        self.context.graphs = True
        self.tensors: list[torch.Tensor] = []  # kept alive
        names = [
            self.engine.get_tensor_name(i) for i in range(self.engine.num_io_tensors)
        ]
        for name in names:
            dtype = TORCH[self.engine.get_tensor_dtype(name)]
            if name in given:
                tensor = given[name].to(dtype).contiguous()
            else:
                shape = tuple(self.context.get_tensor_shape(name))
                tensor = torch.empty(shape, dtype=dtype, device="cuda")
            self.tensors.append(tensor)
            self.context.set_tensor_address(name, tensor.data_ptr())
        self.stream = torch.cuda.Stream()

    def call(self) -> None:
        self.context.execute_async_v3(self.stream.cuda_stream)
        self.stream.synchronize()

    def outputs(self) -> dict[str, Any]:
        with torch.no_grad():
            return numpy_of(self.compiled(*self.inputs))

    def facts(self) -> dict[str, Any]:
        """Seconds of the build, the steps that come from the graph, the plan's layers."""
        info = self.context.graph_info
        inspector = self.engine.create_engine_inspector()
        return {
            **self.known,
            **kernels(self.call),
            "graph_steps": info.graph_steps,
            "other_steps": info.other_steps,
            "layers": inspector.get_engine_information(trt.LayerInformationFormat.JSON),
        }
