"""Rabbet on a GPU."""

from __future__ import annotations

import time
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
}


class Model:
    """An ONNX file, tuned, through the object interface, with graphs.

    precision: "fp32", "tf32", "fp16" or "bf16": what inputs and outputs are, and
    what the builder may compute in.
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
        **_: object,
    ) -> None:
        with np.load(inputs) as arrays:
            given = {name: np.array(array) for name, array in arrays.items()}
        begin = time.perf_counter()
        self.engine = self._build(path, given, precision, plugins, timing_cache)
        self.build_s = time.perf_counter() - begin
        self.context = self.engine.create_execution_context()
        self.context.graphs = self.graphs
        self.tensors = {
            name: self._tensor(name, given.get(name)) for name in self._names()
        }
        for name, tensor in self.tensors.items():
            self.context.set_tensor_address(name, tensor.data_ptr())
        self.stream = torch.cuda.Stream()
        for _index in range(4):
            self.call()

    def _names(self) -> list[str]:
        count = self.engine.num_io_tensors
        return [self.engine.get_tensor_name(i) for i in range(count)]

    def _tensor(self, name: str, array: Any) -> torch.Tensor:
        dtype = TORCH[self.engine.get_tensor_dtype(name)]
        if array is not None:
            return torch.from_numpy(array).cuda().to(dtype)
        shape = tuple(self.context.get_tensor_shape(name))
        return torch.empty(shape, dtype=dtype, device="cuda")

    def _build(
        self,
        path: str,
        given: dict[str, Any],
        precision: str,
        plugins: list[str] | None,
        timing_cache: str | None,
    ) -> Any:
        trt.load_plugins(plugins or [])
        builder = trt.Builder()
        network = builder.create_network()
        parser = trt.OnnxParser(network, trt.Logger())
        parser.parse_from_file(path)
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
        if timing_cache is not None:
            with open(timing_cache, "rb") as file:
                config.set_timing_cache(config.create_timing_cache(file.read()))
        plan = builder.build_serialized_network(network, config)
        self.report = builder._report[0]
        self.plan_bytes = plan.nbytes
        runtime = trt.Runtime(trt.Logger())
        return runtime.deserialize_cuda_engine(plan)

    def run(self) -> None:
        """Enqueues one call."""
        self.context.execute_async_v3(self.stream.cuda_stream)

    def call(self) -> None:
        self.run()
        self.stream.synchronize()

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
