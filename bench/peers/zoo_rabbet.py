"""Architectures of the zoo on a GPU, compiled by Rabbet from torch's exported program."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import rabbet as trt
import torch
from rabbet.torch import export

from .rabbet_cuda import TORCH
from .zoo_torch import Stages, kernels, numpy_of, on_gpu, settled


def _by_phase(told: Sequence[tuple[str, float]]) -> Counter[str]:
    """Seconds from each report of a build's progress to the next, by phase."""
    spent: Counter[str] = Counter()
    for (phase, begin), (_, end) in itertools.pairwise(told):
        spent[phase] += end - begin
    return spent


class Compiled:
    """rabbet.compile() of the program; runs are replayed from a graph.

    stages: file of `Stages`. builds: how many build at the same time; one alone times its
    kernels undisturbed.
    """

    def __init__(
        self, *, key: str, batch: int, precision: str, stages: str, builds: int,
        **_: object,
    ) -> None:  # fmt: skip
        self.told = told = Stages(stages, f"rabbet, {key}, {batch}")
        with torch.no_grad():
            flat, self.inputs = on_gpu(*settled(key, batch), precision)
            told.end("module")
            program = export(flat, tuple(self.inputs))
            self.known = {"export_s": told.end("exported")}
        with contextlib.ExitStack() as held:
            phases: list[tuple[str, float]] = []

            def progress(phase: str, step: int, steps: int) -> bool:
                if not phases:  # translated, which others may do at the same time
                    held.enter_context(told.turn(builds))
                    told.end("translated, and waited")
                phases.append((phase, time.monotonic()))
                return True

            self.compiled = trt.compile(program, progress=progress)
            spent = _by_phase(phases)
            most = ", ".join(f"{name} {s:.1f}" for name, s in spent.most_common(4))
            self.known["build_s"] = told.end(f"built ({most})")
            self.phases = dict(spent)
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
            "phases": self.phases,
            **kernels(self.call, self.told),
            "graph_steps": info.graph_steps,
            "other_steps": info.other_steps,
            "layers": inspector.get_engine_information(trt.LayerInformationFormat.JSON),
        }
