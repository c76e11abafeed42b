"""Runtime, engines, contexts: the object interface for running plans."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any, NamedTuple

from . import _enums as e
from . import _rabbet
from ._callbacks import IErrorRecorder, ILogger, IOutputAllocator, IProfiler, check_logger
from ._dims import Dims
from ._errors import FailedPreconditionError, NotFoundError
from ._managed import Fixed, Managed
from ._recorder import recorded, report


class IoInfo(NamedTuple):
    """An input or output of an engine."""

    name: str
    is_input: bool
    is_shape_input: bool
    dtype: e.DataType
    format: e.TensorFormat
    shape: tuple[int, ...]
    dim_names: tuple[str | None, ...]
    aliased_input: int


class GraphInfo(NamedTuple):
    """What was recorded into graphs of the device, and replayed."""

    graph_steps: int
    other_steps: int
    recordings: int
    replays: int


class ICudaEngine(_rabbet.Engine, Managed):
    """A loaded plan; shared by threads, each with a context of its own."""

    error_recorder: IErrorRecorder | None = None
    engine_capability = Fixed(e.EngineCapability.STANDARD, "What the plan may hold.")
    hardware_compatibility_level = Fixed(
        e.HardwareCompatibilityLevel.NONE, "The plan is for the machine that made it."
    )
    has_implicit_batch_dimension = Fixed(False, "The batch is a dimension like others.")
    num_aux_streams = Fixed(0, "A run uses one stream.")
    refittable = Fixed(False, "Weights are part of the plan.")
    streamable_weights_size = Fixed(0, "Weights are not streamed.")
    _table: dict[str, tuple[int, IoInfo]] | None = None

    def _ios(self) -> dict[str, tuple[int, IoInfo]]:
        if self._table is None:
            infos = [IoInfo(*self._io(i)) for i in range(self._io_count())]
            self._table = {info.name: (i, info) for i, info in enumerate(infos)}
        return self._table

    def _find(self, name: str) -> tuple[int, IoInfo]:
        try:
            return self._ios()[name]
        except KeyError:
            raise NotFoundError(
                f"the engine has no input or output '{name}'; it has "
                + ", ".join(f"'{n}'" for n in self._ios())
            ) from None

    @property
    def name(self) -> str:
        """Name of the network."""
        return self._name()

    @property
    def device(self) -> str | None:
        """Device that the plan is for."""
        return self._device()

    @property
    def num_io_tensors(self) -> int:
        """Number of inputs and outputs."""
        return self._io_count()

    @property
    def num_layers(self) -> int:
        """Number of steps."""
        return self._layer_count()

    @property
    def num_optimization_profiles(self) -> int:
        """Number of profiles."""
        return self._profile_count()

    @property
    def device_memory_size(self) -> int:
        """Bytes that a context allocates for the largest profile, which prepares it."""
        sizes = [self._context_bytes(i) for i in range(self._profile_count())]
        return max(sizes, default=0)

    device_memory_size_v2 = device_memory_size

    def get_device_memory_size_for_profile(self, profile_index: int) -> int:
        """Bytes for intermediate tensors and workspaces at a profile's maximum."""
        return self._context_bytes(profile_index)

    get_device_memory_size_for_profile_v2 = get_device_memory_size_for_profile

    def get_tensor_name(self, index: int) -> str:
        """Name of an input or output; inputs come first."""
        return self._io(index)[0]

    __getitem__ = get_tensor_name

    def get_tensor_mode(self, name: str) -> e.TensorIOMode:
        """INPUT or OUTPUT; NONE for a name that is neither."""
        found = self._ios().get(name)
        if found is None:
            return e.TensorIOMode.NONE
        return e.TensorIOMode.INPUT if found[1].is_input else e.TensorIOMode.OUTPUT

    def get_tensor_shape(self, name: str) -> Dims:
        """Shape; -1 where it is dynamic."""
        return Dims(self._find(name)[1].shape)

    def get_tensor_dtype(self, name: str) -> e.DataType:
        """Type of the elements."""
        return self._find(name)[1].dtype

    def get_tensor_format(self, name: str, profile_index: int = 0) -> e.TensorFormat:
        """How the caller must lay it out, or finds it."""
        return self._find(name)[1].format

    def get_tensor_format_desc(self, name: str, profile_index: int = 0) -> str:
        """The format and type in words."""
        info = self._find(name)[1]
        return f"{info.format.name} format, {info.dtype.name}"

    def get_tensor_location(self, name: str) -> e.TensorLocation:
        """HOST for inputs whose values the host reads."""
        host = self._find(name)[1].is_shape_input
        return e.TensorLocation.HOST if host else e.TensorLocation.DEVICE

    def is_shape_inference_io(self, name: str) -> bool:
        """Whether its values are read on the host."""
        return self._find(name)[1].is_shape_input

    def get_tensor_bytes_per_component(self, name: str, profile_index: int = 0) -> int:
        """Bytes of one element."""
        return int(self._find(name)[1].dtype.itemsize)

    def get_tensor_profile_shape(self, name: str, profile_index: int) -> list[Dims]:
        """[min, opt, max] of an input."""
        return [
            Dims(d) for d in self._profile_shape(profile_index, self._find(name)[0])
        ]

    def get_tensor_profile_values(
        self, name: str, profile_index: int
    ) -> list[list[int]]:
        """[min, opt, max] of the values of a shape input."""
        values = self._profile_values(profile_index, self._find(name)[0])
        return [list(v) for v in values]

    def get_aliased_input_tensor(self, name: str) -> str | None:
        """The input whose memory an output shares."""
        index = self._find(name)[1].aliased_input
        return None if index < 0 else self._io(index)[0]

    @recorded
    def create_execution_context(
        self,
        strategy: e.ExecutionContextAllocationStrategy = (
            e.ExecutionContextAllocationStrategy.STATIC
        ),
    ) -> IExecutionContext:
        """A context: one stream of runs."""
        if strategy is e.ExecutionContextAllocationStrategy.USER_MANAGED:
            raise NotImplementedError(
                "contexts allocate their memory themselves; use STATIC"
            )
        context = _rabbet.create_context(IExecutionContext, self)
        context.error_recorder = self.error_recorder
        return context

    def create_engine_inspector(self) -> EngineInspector:
        """An inspector of this engine."""
        return EngineInspector(self)

    def serialize(self) -> _rabbet.IHostMemory:
        """The plan; a view that keeps the engine alive."""
        return self._plan()


class IExecutionContext(_rabbet.Context, Managed):
    """One stream of runs of an engine; for one thread at a time."""

    name = ""
    error_recorder: IErrorRecorder | None = None
    debug_sync = Fixed(False, "Errors tell the layer anyway.")
    persistent_cache_limit = Fixed(0, "No device here has such a cache.")
    enqueue_emits_profile = True
    _profiler: IProfiler | None = None
    _allocators: dict[str, IOutputAllocator] | None = None

    @property
    def engine(self) -> ICudaEngine:
        """The engine that it runs."""
        return self._keep()

    @property
    def threads(self) -> int:
        """CPU threads of a run."""
        return self._threads()

    @threads.setter
    def threads(self, count: int) -> None:
        self._set_threads(count)

    @property
    def graphs(self) -> bool:
        """Whether runs are recorded into CUDA graphs and replayed; off at first.

        Runs whose shapes and addresses come again are then one launch. Plugins are
        recorded if `capturable=True` says that they may be, or if a trial has shown
        it; what cannot be recorded runs in between, and the log names it.
        """
        return self._graphs()

    @graphs.setter
    def graphs(self, on: bool) -> None:
        self._set_graphs(on)

    @property
    def graph_info(self) -> GraphInfo:
        """Steps of the last run by graphs and without; recordings and replays so
        far."""
        return GraphInfo(*self._graph_info())

    @property
    def active_optimization_profile(self) -> int:
        """Index of the profile in use."""
        return self._profile()

    @active_optimization_profile.setter
    def active_optimization_profile(self, index: int) -> None:
        self._set_profile(index)

    def set_optimization_profile_async(
        self, profile_index: int, stream_handle: int = 0
    ) -> bool:
        """Chooses a profile."""
        self._set_profile(profile_index)
        return True

    @recorded
    def set_input_shape(self, name: str, shape: Iterable[int]) -> bool:
        """Shape of a dynamic input; the error names the profile's range."""
        self._set_shape(name, tuple(Dims(shape)))
        return True

    def get_tensor_shape(self, name: str) -> Dims:
        """Shape as far as it is known; -1 elsewhere."""
        return Dims(self._shape(name))

    def get_tensor_strides(self, name: str) -> Dims:
        """Elements from one index to the next on each axis."""
        shape = self._shape(name)
        format_ = self.engine.get_tensor_format(name)
        if format_ is e.TensorFormat.HWC and len(shape) >= 3:
            order = [0, *range(2, len(shape)), 1]
        elif format_ is e.TensorFormat.LINEAR:
            order = list(range(len(shape)))
        else:
            raise NotImplementedError(f"'{name}' is in {format_}: it has no strides")
        strides, step = [0] * len(shape), 1
        for axis in reversed(order):
            strides[axis] = step
            step *= shape[axis]
        return Dims(strides)

    @recorded
    def set_tensor_address(self, name: str, memory: int) -> bool:
        """Where a run reads or writes; kept between runs."""
        self._set_address(name, memory)
        return True

    def get_tensor_address(self, name: str) -> int:
        """The address that was set, or 0."""
        return self._address(name) or 0

    def get_max_output_size(self, name: str) -> int:
        """Bytes that an output needs at the present input shapes."""
        return self._bytes(name)

    @recorded
    def infer_shapes(self) -> list[str]:
        """Names of inputs whose shape or address is missing; none: all is there."""
        return [self.engine.get_tensor_name(i) for i in self._infer()]

    @property
    def all_shape_inputs_specified(self) -> bool:
        """Whether every input whose values shapes need has an address."""
        return not any(self.engine.is_shape_inference_io(n) for n in self.infer_shapes())

    @property
    def all_binding_shapes_specified(self) -> bool:
        """Whether every input has a shape."""
        return not self.infer_shapes()

    @recorded
    def set_output_allocator(self, name: str, output_allocator: Any) -> bool:
        """Asked for an output's memory in each run; None: the address is used."""
        if output_allocator is not None and not isinstance(
            output_allocator, IOutputAllocator
        ):
            raise TypeError(
                f"expected an IOutputAllocator for '{name}', got {output_allocator!r}"
            )
        self._set_allocator(name, output_allocator)
        if self._allocators is None:
            self._allocators = {}
        self._allocators[name] = output_allocator
        return True

    def get_output_allocator(self, name: str) -> IOutputAllocator | None:
        """The allocator that was set."""
        return (self._allocators or {}).get(name)

    @property
    def profiler(self) -> IProfiler | None:
        """Told the time of each layer after each run."""
        return self._profiler

    @profiler.setter
    def profiler(self, profiler: IProfiler | None) -> None:
        if profiler is not None and not isinstance(profiler, IProfiler):
            raise TypeError(
                "profiler: expected a class derived from rabbet.IProfiler, got "
                f"{profiler!r}"
            )
        self._set_profiler(profiler)
        self._profiler = profiler

    def report_to_profiler(self) -> bool:
        """Accepted: each run reports by itself."""
        return True

    # Without the decorator, as calls of small plans would notice it.
    def execute_async_v3(self, stream_handle: int = 0) -> bool:
        """Runs on a stream; on the CPU (stream 0) it is done when this returns."""
        try:
            self._execute(stream_handle)
        except Exception as error:
            report(self, error)
            raise
        return True

    @recorded
    def execute_v2(self, bindings: Iterable[int]) -> bool:
        """Runs with addresses in the order of get_tensor_name."""
        addresses = list(bindings)
        count = self.engine.num_io_tensors
        if len(addresses) != count:
            raise ValueError(
                f"execute_v2 takes {count} addresses, one for each input and output; "
                f"got {len(addresses)}"
            )
        for i, address in enumerate(addresses):
            self._set_address(self.engine.get_tensor_name(i), int(address))
        self._execute(0)
        return True


class EngineInspector:
    """Tells what a plan does."""

    error_recorder: IErrorRecorder | None = None

    def __init__(self, engine: ICudaEngine) -> None:
        self._engine = engine
        self.execution_context: IExecutionContext | None = None

    def _inspect(self, layer: int, format: e.LayerInformationFormat) -> str:
        as_json = e.LayerInformationFormat(format) is e.LayerInformationFormat.JSON
        return self._engine._inspect(self.execution_context, layer, int(as_json))

    def get_engine_information(
        self, format: e.LayerInformationFormat = e.LayerInformationFormat.ONELINE
    ) -> str:
        """All layers."""
        return self._inspect(-1, format)

    def get_layer_information(
        self,
        layer_index: int,
        format: e.LayerInformationFormat = e.LayerInformationFormat.ONELINE,
    ) -> str:
        """One layer."""
        if not 0 <= layer_index < self._engine.num_layers:
            raise IndexError(
                f"layer {layer_index}: the engine has {self._engine.num_layers}"
            )
        return self._inspect(layer_index, format)

    def as_dict(self) -> Any:
        """All layers as parsed JSON."""
        return json.loads(self._inspect(-1, e.LayerInformationFormat.JSON))


class Runtime(Managed):
    """Loads plans."""

    error_recorder: IErrorRecorder | None = None
    DLA_core = Fixed(-1, "There is none.")
    num_DLA_cores = Fixed(0, "There are none.")

    def __init__(self, logger: ILogger | None = None) -> None:
        self._logger = check_logger(logger)
        self.engine_host_code_allowed = False
        self.device: str | None = None

    @property
    def logger(self) -> ILogger:
        """Where messages go."""
        return self._logger

    @recorded
    def deserialize_cuda_engine(self, serialized_engine: Any) -> ICudaEngine:
        """An engine from a plan's bytes, or from an IStreamReader."""
        data = serialized_engine
        if callable(getattr(data, "read", None)):
            data = _read_all(data)
        engine = _rabbet.deserialize_engine(
            ICudaEngine, data, self.device, self._logger, self.engine_host_code_allowed
        )
        engine.error_recorder = self.error_recorder
        return engine

    @recorded
    def load_cuda_engine(self, path: str) -> ICudaEngine:
        """An engine from a file, used in place."""
        os.stat(path)  # FileNotFoundError, as from open()
        engine = _rabbet.load_engine(
            ICudaEngine, path, self.device, self._logger, self.engine_host_code_allowed
        )
        engine.error_recorder = self.error_recorder
        return engine


def _read_all(reader: Any) -> bytes:
    parts = []
    while part := reader.read(1 << 24):
        parts.append(bytes(part))
    if not parts:
        raise FailedPreconditionError("the reader gave no bytes")
    return b"".join(parts)
