"""A runner for Polygraphy on the CPU, where its TrtRunner has no CUDA to allocate with.

    import rabbet.compat
    rabbet.compat.install()
    from polygraphy.backend.trt import EngineFromNetwork, NetworkFromOnnxPath
    from rabbet.compat.polygraphy import CpuRunner

    with CpuRunner(EngineFromNetwork(NetworkFromOnnxPath("model.onnx"))) as runner:
        outputs = runner.infer({"x": x})

On a GPU use TrtRunner as ever.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

import rabbet
from rabbet._arrays import as_numpy, storage_type

if TYPE_CHECKING:
    BaseRunner = Any
else:
    from polygraphy.backend.base import BaseRunner


class _Outputs(rabbet.IOutputAllocator):
    """Memory of an output, which lives as long as the array made of it."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = np.empty(0, np.uint8)
        self.shape: tuple[int, ...] = ()

    def reallocate_output(
        self, tensor_name: str, memory: int, size: int, alignment: int
    ) -> int:
        block = np.empty(size + alignment, np.uint8)
        self.memory = block[-block.ctypes.data % alignment :][:size]
        return int(self.memory.ctypes.data)

    def notify_shape(self, tensor_name: str, shape: rabbet.Dims) -> None:
        self.shape = tuple(shape)

    def array(self, dtype: rabbet.DataType) -> Any:
        bytes_ = int(-(-rabbet.volume(self.shape) * dtype.itemsize // 1))
        return self.memory[:bytes_].view(storage_type(dtype)).reshape(self.shape)


class CpuRunner(BaseRunner):  # type: ignore[misc]
    """Runs an engine, or a loader's result, on the CPU; NumPy arrays in and out."""

    def __init__(
        self, engine: Any, name: str | None = None, optimization_profile: int = 0
    ) -> None:
        super().__init__(name=name, prefix="rabbet-cpu-runner")
        self._source = engine
        self._profile = optimization_profile

    def activate_impl(self) -> None:
        """Makes the engine and a context."""
        engine = self._source() if callable(self._source) else self._source
        if not isinstance(engine, rabbet.ICudaEngine):
            raise TypeError(
                f"CpuRunner takes an engine or its loader, which gave {engine!r}"
            )
        if not (engine.device or "").startswith("cpu"):
            raise rabbet.IncompatibleError(
                f"the engine is for '{engine.device}': use TrtRunner, or build it with "
                "RABBET_DEVICE=cpu"
            )
        self.engine = engine
        self.context = engine.create_execution_context()
        self.context.set_optimization_profile_async(self._profile, 0)

    def deactivate_impl(self) -> None:
        """Lets go of both."""
        del self.context, self.engine

    def get_input_metadata_impl(self) -> Any:
        """Names, types and shapes of the inputs."""
        from polygraphy.common import TensorMetadata
        from polygraphy.datatype import DataType

        metadata = TensorMetadata()
        for name in self._names(rabbet.TensorIOMode.INPUT):
            shape = list(self.engine.get_tensor_shape(name))
            dtype = DataType.from_dtype(self.engine.get_tensor_dtype(name), "tensorrt")
            metadata.add(name=name, dtype=dtype, shape=shape)
        return metadata

    def _names(self, mode: rabbet.TensorIOMode) -> list[str]:
        names = [
            self.engine.get_tensor_name(i) for i in range(self.engine.num_io_tensors)
        ]
        return [name for name in names if self.engine.get_tensor_mode(name) is mode]

    def infer_impl(self, feed_dict: Mapping[str, Any]) -> OrderedDict[str, Any]:
        """Runs once."""
        context = self.context
        kept = {}
        for name, value in feed_dict.items():
            array = np.ascontiguousarray(as_numpy(value))
            kept[name] = array
            if not context.set_input_shape(name, array.shape):
                raise ValueError(f"input '{name}' cannot have the shape {array.shape}")
            context.set_tensor_address(name, array.ctypes.data)
        outputs = {name: _Outputs() for name in self._names(rabbet.TensorIOMode.OUTPUT)}
        for name, output in outputs.items():
            context.set_output_allocator(name, output)
        start = time.perf_counter()
        if not context.execute_async_v3(0):
            raise rabbet.InternalError("the run failed; the log says why")
        self.inference_time = time.perf_counter() - start
        return OrderedDict(
            (name, output.array(self.engine.get_tensor_dtype(name)))
            for name, output in outputs.items()
        )
