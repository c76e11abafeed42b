"""Architectures of the zoo on a GPU, compiled by Rabbet from torch's exported program."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import rabbet as trt
import torch

from .rabbet_cuda import TORCH
from .zoo_torch import kernels, numpy_of, on_gpu, settled, turn


class Compiled:
    """rabbet.compile() of the program; runs are replayed from a graph.

    lock: held while kernels are timed.
    """

    def __init__(
        self,
        *,
        key: str,
        batch: int,
        precision: str,
        lock: str,
        timing_cache: str | None = None,
        **_: object,
    ) -> None:
        with torch.no_grad():
            flat, inputs = on_gpu(*settled(key, batch), precision)
            begin = time.perf_counter()
            program = torch.export.export(flat, tuple(inputs), strict=False)
            export_s = time.perf_counter() - begin
        self.inputs = inputs
        begin = time.perf_counter()
        with contextlib.ExitStack() as held:
            built: list[float] = []

            def progress(phase: str, step: int, steps: int) -> bool:
                if not built:  # translated, which others may do at the same time
                    held.enter_context(turn(lock, alone=True))
                    built.append(time.perf_counter())
                return True

            self.compiled = trt.compile(
                program, timing_cache=timing_cache, progress=progress
            )
            build_s = time.perf_counter() - (built or [begin])[0]
        self.known = {"export_s": export_s, "build_s": build_s}
        given = dict(zip(program.graph_signature.user_inputs, inputs, strict=True))
        self._bind(given)

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
