"""Rabbet on a GPU."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import rabbet as trt
import torch

TYPES = {"fp16": trt.float16, "bf16": trt.bfloat16}
FLAGS = {"fp16": trt.BuilderFlag.FP16, "bf16": trt.BuilderFlag.BF16}
TORCH = {
    trt.float32: torch.float32,
    trt.float16: torch.float16,
    trt.bfloat16: torch.bfloat16,
    trt.int64: torch.int64,
    trt.int32: torch.int32,
    trt.bool: torch.bool,
    trt.uint8: torch.uint8,
}


def free_bytes() -> int:
    """Of the GPU, for all processes, once its work is done."""
    torch.cuda.synchronize()
    return int(torch.cuda.mem_get_info()[0])


class Model:
    """An ONNX file, tuned, through the object interface, with graphs.

    precision: "fp32", "tf32", "fp16" or "bf16": what inputs and outputs are, and
    what the builder may compute in. plan, timing_cache: files that are read if they
    are there, and else written; with a plan nothing is built.
    """

    graphs = True

    def __init__(
        self,
        *,
        path: str,
        inputs: str,
        precision: str,
        plugins: list[str] | None = None,
        timing_cache: str | None = None,
        plan: str | None = None,
        **_: object,
    ) -> None:
        torch.cuda.init()
        free = free_bytes()
        with np.load(inputs) as arrays:
            given = {name: np.array(array) for name, array in arrays.items()}
        trt.load_plugins(plugins or [])
        self.known: dict[str, Any] = {}
        begin = time.perf_counter()
        if plan is not None and Path(plan).exists():
            data: Any = Path(plan).read_bytes()
        else:
            data = self._build(path, precision, timing_cache)
            self.known["build_s"] = time.perf_counter() - begin
            if plan is not None:
                Path(plan).write_bytes(data)
        self.known["plan_bytes"] = len(memoryview(data))
        begin = time.perf_counter()
        self.engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(data)
        self.context = self.engine.create_execution_context()
        self.known["load_s"] = time.perf_counter() - begin
        self.context.graphs = self.graphs
        self.tensors = {
            name: self._tensor(name, given.get(name)) for name in self._names()
        }
        for name, tensor in self.tensors.items():
            self.context.set_tensor_address(name, tensor.data_ptr())
        self.stream = torch.cuda.Stream()
        for _index in range(4):
            self.call()
        own = torch.cuda.memory_reserved()  # inputs and outputs
        self.known["device_bytes"] = free - free_bytes() - own

    def _names(self) -> list[str]:
        count = self.engine.num_io_tensors
        return [self.engine.get_tensor_name(i) for i in range(count)]

    def _tensor(self, name: str, array: Any) -> torch.Tensor:
        dtype = TORCH[self.engine.get_tensor_dtype(name)]
        if array is not None:
            return torch.from_numpy(array).cuda().to(dtype)
        shape = tuple(self.context.get_tensor_shape(name))
        return torch.empty(shape, dtype=dtype, device="cuda")

    def _build(self, path: str, precision: str, timing_cache: str | None) -> Any:
        builder = trt.Builder()
        network = builder.create_network()
        parser = trt.OnnxParser(network, trt.Logger())
        if not parser.parse_from_file(path):
            raise RuntimeError(f"{path} cannot be parsed: {parser.get_error(0).desc()}")
        config = builder.create_builder_config()
        config.device = "cuda"
        if precision in TYPES:
            config.set_flag(FLAGS[precision])
            ends = [network.get_input(i) for i in range(network.num_inputs)]
            ends += [network.get_output(i) for i in range(network.num_outputs)]
            for tensor in ends:
                if tensor.dtype == trt.float32:
                    tensor.dtype = TYPES[precision]
        if precision != "fp32":
            config.set_flag(trt.BuilderFlag.TF32)
        else:
            config.clear_flag(trt.BuilderFlag.TF32)
        kept = Path(timing_cache) if timing_cache else None
        if kept is not None:
            known = kept.read_bytes() if kept.exists() else b""
            config.set_timing_cache(config.create_timing_cache(known))
        plan = builder.build_serialized_network(network, config)
        if kept is not None:
            kept.write_bytes(config.get_timing_cache().serialize())
        return plan

    def run(self) -> None:
        """Enqueues one call."""
        self.context.execute_async_v3(self.stream.cuda_stream)

    def call(self) -> None:
        self.run()
        self.stream.synchronize()

    def facts(self) -> dict[str, Any]:
        """Seconds of building and of loading, bytes of the plan and of the GPU, and
        the steps of a run that come from a graph and that do not."""
        info = self.context.graph_info
        return {
            **self.known,
            "graph_steps": info.graph_steps,
            "other_steps": info.other_steps,
            "layers": self._layers(),
        }

    def _layers(self) -> Any:
        """The inspector's view of the plan."""
        inspector = self.engine.create_engine_inspector()
        return inspector.get_engine_information(trt.LayerInformationFormat.JSON)

    def outputs(self) -> dict[str, Any]:
        self.call()
        mode = trt.TensorIOMode.OUTPUT
        return {
            name: tensor.float().cpu().numpy()
            for name, tensor in self.tensors.items()
            if self.engine.get_tensor_mode(name) == mode
        }


class Launches(Model):
    """Without graphs: each step launched from the host."""

    graphs = False
