"""Runs a model on samples, and gives tensors in the middle of it to a function."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from .. import _rabbet
from .._builder import Builder
from .._calibration import DebugReader, Outputs, elements
from .._callbacks import ILogger
from .._network import INetworkDefinition
from .._onnx import OnnxParser
from .._profiles import add_profile
from .._runtime import Runtime
from ._model import Model

Look = Callable[[str, Any], None]
Arrays = dict[str, Any]


class Settings:
    """How models run: on which device, with which logger and threads."""

    def __init__(self, device: str | None, threads: int | None, logger: ILogger) -> None:
        self.device, self.threads, self.logger = device, threads, logger


class _Results(Outputs):
    """Memory for outputs, and their shapes."""

    def __init__(self, engine: Any) -> None:
        super().__init__(engine)
        self.shapes: dict[str, tuple[int, ...]] = {}

    def notify_shape(self, tensor_name: str, shape: Any) -> None:
        self.shapes[tensor_name] = tuple(shape)

    def array(self, name: str) -> Any:
        """A copy of an output."""
        import numpy as np

        shape = self.shapes[name]
        dtype = self.engine.get_tensor_dtype(name)
        if math.prod(shape) == 0:
            return np.zeros(shape, np.float32)
        address = self.blocks[name][0].data_ptr
        values = elements(self.engine, address, dtype, math.prod(shape), 0)
        return values.reshape(shape).copy()


def network_of(model: Model, logger: ILogger) -> INetworkDefinition:
    """The network of a model, whose weights it uses in place."""
    data, lent = model.graph_bytes()
    network = Builder(logger).create_network()
    parser = OnnxParser(network, logger)
    parser._lend_initializers(lent)
    parser.parse(data)
    return network


def _mark(network: INetworkDefinition, names: Iterable[str]) -> set[str]:
    """Marks tensors to be given to the listener; returns those that there are."""
    wanted, found = set(names), set()
    for layer in network:
        for i in range(layer.num_outputs):
            tensor = layer.get_output(i)
            short = tensor.name.rpartition("/")[2] if tensor is not None else ""
            if tensor is not None and short in wanted:
                network.mark_debug(tensor)
                found.add(short)
    return found


def _ranges(samples: Sequence[Mapping[str, Any]], names: Iterable[str]) -> Arrays:
    """{input: (min, opt, max)} of the samples' shapes."""
    ranges = {}
    for name in names:
        shapes = [sample[name].shape for sample in samples]
        low = tuple(min(extents) for extents in zip(*shapes, strict=True))
        high = tuple(max(extents) for extents in zip(*shapes, strict=True))
        ranges[name] = (low, shapes[0], high)
    return ranges


class Run:
    """A model that was built to run on samples."""

    def __init__(
        self,
        model: Model,
        samples: Sequence[Mapping[str, Any]],
        settings: Settings,
        names: Iterable[str] = (),
    ) -> None:
        logger = settings.logger
        network = network_of(model, logger)
        self.seen = _mark(network, names)
        builder = Builder(logger)
        config = builder.create_builder_config()
        config.device = settings.device
        if settings.threads is not None:
            config.threads = settings.threads
        # Kernels by rules, not by measured times: most models run a few times.
        config.builder_optimization_level = 0
        inputs = [network.get_input(i) for i in range(network.num_inputs)]
        dynamic = [t.name for t in inputs if any(extent < 0 for extent in t.shape)]
        if dynamic:
            add_profile(builder, network, config, _ranges(samples, dynamic), {})
        self.on_host = {t.name for t in inputs if t.is_shape_tensor}
        self.inputs = [t.name for t in inputs]
        plan = _rabbet.build(network, config, None)[0]
        runtime = Runtime(logger)
        runtime.device = settings.device
        runtime.engine_host_code_allowed = True  # it comes from here
        self.engine = runtime.deserialize_cuda_engine(plan)
        count = range(network.num_outputs)
        self.outputs = [network.get_output(i).name for i in count]
        self.context = self.engine.create_execution_context()
        self.results = _Results(self.engine)
        for name in self.outputs:
            self.context.set_output_allocator(name, self.results)

    def _bind(self, name: str, array: Any) -> Any:
        """Memory of an input, which must live until the run has ended."""
        if self.engine.device == "cpu" or name in self.on_host or array.size == 0:
            self.context.set_tensor_address(name, array.ctypes.data)
            return array
        dtype = int(self.engine.get_tensor_dtype(name))
        memory = _rabbet.device_array(self.engine, dtype, array.shape)
        _rabbet.copy_to_device(self.engine, memory.data_ptr, array, 0)
        self.context.set_tensor_address(name, memory.data_ptr)
        return memory

    def __call__(self, sample: Mapping[str, Any], look: Look | None = None) -> Arrays:
        """The outputs; `look` gets the observed tensors."""
        listener = None
        if look is not None:
            # In bodies names have a path; those that are observed have no slash.
            listener = DebugReader(
                self.engine, lambda name: partial(look, name.rpartition("/")[2])
            )
        self.context.set_debug_listener(listener)
        self.context.set_all_tensors_debug_state(listener is not None)
        kept = []
        for name in self.inputs:
            self.context.set_input_shape(name, sample[name].shape)
            kept.append(self._bind(name, sample[name]))
        self.context.execute_async_v3(0)
        _rabbet.synchronize(self.engine, 0)
        if listener is not None and listener.error is not None:
            raise listener.error
        return {name: self.results.array(name) for name in self.outputs}
