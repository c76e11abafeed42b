"""Engines and the contexts that run them."""

from __future__ import annotations

import contextlib
import operator
from typing import Any, NamedTuple, Self, SupportsIndex

from . import _enums as e
from . import _rabbet
from ._allocators import IGpuAllocator
from ._callbacks import (
    IDebugListener,
    IErrorRecorder,
    ILogger,
    IOutputAllocator,
    IProfiler,
)
from ._checked import Integers, Shape, checks_arguments, unchecked
from ._dims import Dims
from ._engine_config import IRuntimeConfig, ISerializationConfig
from ._engine_tensors import EngineTensors
from ._errors import FailedPreconditionError
from ._managed import Fixed, Managed, no_effect
from ._pickling import Origin, copied_engine, reduce_engine
from ._recorder import recorded, report


class GraphInfo(NamedTuple):
    """Counts of steps in graphs of the device, of recordings and of replays."""

    graph_steps: int
    other_steps: int
    recordings: int
    replays: int


@checks_arguments
class ICudaEngine(EngineTensors, Managed):
    """A loaded plan. Threads share it, each with its own execution context.

    A pickle of it holds the plan (see Model)."""

    error_recorder: IErrorRecorder | None = None
    engine_capability = Fixed(e.EngineCapability.STANDARD, "What the plan may hold.")
    hardware_compatibility_level = Fixed(
        e.HardwareCompatibilityLevel.NONE, "The plan is for the machine that made it."
    )
    has_implicit_batch_dimension = Fixed(False, "The batch is a dimension like others.")
    num_aux_streams = Fixed(0, "A run uses one stream.")
    tactic_sources = Fixed(0, "Tuning tries every library that is there.")
    # Weights stay on the device while the engine lives.
    streamable_weights_size = Fixed(0, "Weights are not streamed.")
    weight_streaming_budget = Fixed(0, "Weights are not streamed.")
    weight_streaming_budget_v2 = Fixed(0, "Weights are not streamed.")
    minimum_weight_streaming_budget = Fixed(0, "Weights are not streamed.")
    weight_streaming_scratch_memory_size = Fixed(0, "Weights are not streamed.")
    _allocator: IGpuAllocator | None = None
    _logger: ILogger | None = None
    _context_class: type[IExecutionContext]
    # Pickles hold how the engine was loaded, from where, with which plugins.
    _origin = Origin()
    _path: str | None = None  # of the plan, or of the folder from which it was chosen
    _choice: str | None = None
    _plugins: tuple[str, ...] = ()
    _digest: bytes | None = None  # SHA-256 of the plan, once it is known
    # Memory of the caller that constants may be read from.
    _lent: tuple[Any, ...] = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return reduce_engine(self, operator.index(protocol))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: Any) -> ICudaEngine:
        return copied_engine(self)

    @property
    def name(self) -> str:
        """Name of the network."""
        return self._name()

    @property
    def refittable(self) -> bool:
        """Whether a Refitter can replace its weights."""
        return self._refittable()

    @property
    def device(self) -> str | None:
        """Device for which the plan was built."""
        return self._device()

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
        """Bytes that a context allocates for the largest profile. Reading it prepares the
        kernels of all profiles."""
        sizes = [self._context_bytes(i) for i in range(self._profile_count())]
        return max(sizes, default=0)

    device_memory_size_v2 = device_memory_size

    def get_device_memory_size_for_profile(self, profile_index: int) -> int:
        """Bytes for intermediate tensors and workspaces at the profile's maximum
        shapes."""
        return self._context_bytes(profile_index)

    get_device_memory_size_for_profile_v2 = get_device_memory_size_for_profile

    def get_weight_streaming_automatic_budget(self) -> int:
        """Always 0: weights are not streamed."""
        return 0

    @property
    def profiling_verbosity(self) -> e.ProfilingVerbosity:
        """DETAILED if the plan lists the candidates of each layer."""
        if any(self._layer_report(i) for i in range(self._layer_count())):
            return e.ProfilingVerbosity.DETAILED
        return e.ProfilingVerbosity.LAYER_NAMES_ONLY

    def _layer_report(self, layer: int) -> bool:
        import json

        text = self._inspect(None, layer, 1)
        return bool(json.loads(text)["Alternatives"])

    @recorded
    def create_execution_context(
        self,
        strategy: e.ExecutionContextAllocationStrategy | IRuntimeConfig = (
            e.ExecutionContextAllocationStrategy.STATIC
        ),
        *,
        runtime_config: IRuntimeConfig | None = None,
    ) -> IExecutionContext:
        """Makes a context, which runs one inference at a time. It allocates memory when
        a run first needs it, for the shapes of that run; with USER_MANAGED the caller
        supplies it by set_device_memory."""
        config = runtime_config or (
            strategy if isinstance(strategy, IRuntimeConfig) else None
        )
        if config is None:
            config = IRuntimeConfig(strategy)  # type: ignore[arg-type]
        context = _rabbet.create_context(self._context_class, self)
        context._config = config
        context._logger = self._logger
        context.error_recorder = self.error_recorder
        if config._strategy is e.ExecutionContextAllocationStrategy.USER_MANAGED:
            context._set_memory(0, 0)
        return context

    def create_execution_context_without_device_memory(self) -> IExecutionContext:
        """Makes a context whose memory the caller supplies by set_device_memory."""
        return self.create_execution_context(
            e.ExecutionContextAllocationStrategy.USER_MANAGED
        )

    def create_runtime_config(self) -> IRuntimeConfig:
        """Makes the settings of a context."""
        return IRuntimeConfig()

    def create_serialization_config(self) -> ISerializationConfig:
        """Makes the settings of serialize_with_config."""
        return ISerializationConfig()

    def get_engine_stat(
        self, stat: e.EngineStat = e.EngineStat.TOTAL_WEIGHTS_SIZE
    ) -> int:
        """Bytes of all constants, or of those stripped from the plan."""
        return self._weight_bytes()[int(stat)]

    def create_engine_inspector(self) -> EngineInspector:
        """An inspector of this engine."""
        return EngineInspector(self)

    def serialize(self) -> _rabbet.IHostMemory:
        """The plan with the present weights, as a view that keeps the engine alive. A
        later refit changes its contents."""
        return self._plan()

    @recorded
    def serialize_with_config(
        self, config: ISerializationConfig
    ) -> _rabbet.IHostMemory:
        """The plan; EXCLUDE_WEIGHTS omits the refittable weights."""
        if config.get_flag(e.SerializationFlag.EXCLUDE_WEIGHTS):
            return self._stripped_plan()
        return self._plan()

    def is_debug_tensor(self, name: str) -> bool:
        """Whether a tensor was marked by INetworkDefinition.mark_debug."""
        return name in self._debug_names()


@checks_arguments
class IExecutionContext(_rabbet.Context, Managed):
    """Runs an engine, one inference at a time; for one thread at a time."""

    name = ""
    error_recorder: IErrorRecorder | None = None
    debug_sync = Fixed(False, "Errors tell the layer anyway.")
    persistent_cache_limit = Fixed(0, "No device here has such a cache.")
    enqueue_emits_profile = True
    _profiler: IProfiler | None = None
    _nvtx_verbosity = e.ProfilingVerbosity.LAYER_NAMES_ONLY
    _config: IRuntimeConfig = IRuntimeConfig()
    _temporary_allocator: IGpuAllocator | None = None
    _debug_listener: IDebugListener | None = None
    _debug_states: dict[str, bool] | None = None
    _consumed_event = 0
    _communicator: Any = None
    _logger: ILogger | None = None
    _allocators: dict[str, IOutputAllocator | None] | None = None

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
    def iteration_limit(self) -> int:
        """The most iterations of a loop whose number a run tells; 0: no limit. A run
        raises OutOfRangeError, which names the loop, in the place of one more."""
        return self._iteration_limit()

    @iteration_limit.setter
    def iteration_limit(self, limit: int) -> None:
        self._set_iteration_limit(limit)

    @property
    def graphs(self) -> bool:
        """Whether runs are recorded into CUDA graphs and replayed; default False.

        A run with the shapes and addresses of an earlier one is then a single launch.
        Plugins are recorded if they have `capturable=True` or a trial succeeded. Others
        run between the graphs, and the log names them.
        """
        return self._graphs()

    @graphs.setter
    def graphs(self, on: bool) -> None:
        self._set_graphs(on)

    @property
    def check_finite(self) -> bool:
        """Whether runs check the outputs of each step, and raise
        FailedPreconditionError at the first step that makes an infinity or NaN from
        finite inputs; default False."""
        return self._checks_finite()

    @check_finite.setter
    def check_finite(self, on: bool) -> None:
        self._set_check_finite(on)

    @property
    def graph_info(self) -> GraphInfo:
        """Numbers of the last run's steps with and without graphs; total numbers of
        recordings and replays."""
        return GraphInfo(*self._graph_info())

    @property
    def active_optimization_profile(self) -> int:
        """Index of the active profile."""
        return self._profile()

    @active_optimization_profile.setter
    def active_optimization_profile(self, index: int) -> None:
        self._set_profile(index)

    def set_optimization_profile_async(
        self, profile_index: int, stream_handle: int = 0
    ) -> bool:
        """Activates a profile."""
        self._set_profile(profile_index)
        return True

    @recorded
    def set_input_shape(self, name: str, shape: Shape) -> bool:
        """Sets the shape of a dynamic input; the error for an invalid one contains the
        profile's range."""
        self._set_shape(name, tuple(shape))
        return True

    def get_tensor_shape(self, name: str) -> Dims:
        """Shape of a tensor; -1 for unknown dimensions."""
        return Dims._of([*self._shape(name)])

    def get_tensor_strides(self, name: str) -> Dims:
        """Stride of each axis, in elements."""
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
        """Sets the address that runs read or write; kept for later runs."""
        self._set_address(name, memory)
        return True

    def get_tensor_address(self, name: str) -> int:
        """The address that was set, or 0."""
        return self._address(name) or 0

    def get_max_output_size(self, name: str) -> int:
        """Size in bytes that an output needs at the present input shapes."""
        return self._bytes(name)

    @recorded
    def infer_shapes(self) -> list[str]:
        """Names of the inputs whose shape or address is missing; empty if complete."""
        return [self.engine.get_tensor_name(i) for i in self._infer()]

    @property
    def all_shape_inputs_specified(self) -> bool:
        """Whether every shape input has an address."""
        return not any(
            self.engine.is_shape_inference_io(n) for n in self.infer_shapes()
        )

    @property
    def all_binding_shapes_specified(self) -> bool:
        """Whether every input has a shape."""
        return not self.infer_shapes()

    @recorded
    def set_output_allocator(
        self, name: str, output_allocator: IOutputAllocator | None
    ) -> bool:
        """Sets the allocator of an output's memory, called in each run; None: the
        address that was set is used."""
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
        """Callback that receives the time of each layer after each run."""
        return self._profiler

    @profiler.setter
    def profiler(self, profiler: IProfiler | None) -> None:
        self._set_profiler(profiler)
        self._profiler = profiler

    # ---- Memory

    def get_runtime_config(self) -> IRuntimeConfig:
        """The settings with which the context was made."""
        return self._config

    def set_device_memory(self, memory: int, size: int) -> None:
        """Sets the memory for intermediate tensors and workspaces, of `size` bytes,
        which the caller keeps while the context uses it: at least
        update_device_memory_size_for_shapes() bytes, or
        get_device_memory_size_for_profile(i) for all shapes of profile i."""
        self._set_memory(memory, size)

    def _put_device_memory(self, memory: int) -> None:
        self._set_memory(
            memory, self.engine.get_device_memory_size_for_profile(self._profile())
        )

    device_memory = property(
        None, _put_device_memory, doc="set_device_memory, with the profile's size."
    )

    @recorded
    def update_device_memory_size_for_shapes(self) -> int:
        """Bytes that a run with the present input shapes needs; prepares the run."""
        return self._memory_bytes()

    @property
    def temporary_allocator(self) -> IGpuAllocator | None:
        """Allocator of the context's memory, in place of the engine's one."""
        return self._temporary_allocator

    @temporary_allocator.setter
    def temporary_allocator(self, allocator: IGpuAllocator | None) -> None:
        self._set_device_allocator(allocator)
        self._temporary_allocator = allocator

    # ---- Debug tensors

    def set_debug_listener(self, listener: IDebugListener | None) -> bool:
        """Sets the callback that receives each enabled debug tensor in each run; None:
        none."""
        self._set_debug_listener(listener)
        self._debug_listener = listener
        return True

    def get_debug_listener(self) -> IDebugListener | None:
        """The listener that was set."""
        return self._debug_listener

    def set_tensor_debug_state(self, name: str, flag: bool) -> bool:
        """Enables or disables a debug tensor."""
        self._set_debug_state(name, flag)
        return True

    def get_debug_state(self, name: str) -> bool:
        """Whether a debug tensor is enabled."""
        return self._debug_state(name)

    def set_all_tensors_debug_state(self, flag: bool) -> bool:
        """Enables or disables all debug tensors, including those of
        mark_unfused_tensors_as_debug_tensors."""
        for name in self.engine._debug_names():
            self._set_debug_state(name, flag)
        with contextlib.suppress(FailedPreconditionError):  # they were not marked
            self._set_debug_state(None, flag)
        return True

    @property
    def unfused_tensors_debug_state(self) -> bool:
        """Whether the listener also receives all tensors between kernels."""
        return self._debug_state(None)

    @unfused_tensors_debug_state.setter
    def unfused_tensors_debug_state(self, flag: bool) -> None:
        self._set_debug_state(None, flag)

    # ---- Streams

    def set_input_consumed_event(self, event: int) -> bool:
        """Sets a CUDA event that each run records once the inputs may be overwritten;
        0: none."""
        self._set_consumed_event(event)
        self._consumed_event = event
        return True

    def get_input_consumed_event(self) -> int:
        """The event that was set."""
        return self._consumed_event

    @no_effect("a run uses one stream")
    def set_aux_streams(self, aux_streams: Integers) -> None:
        """Accepted without effect: runs use no auxiliary streams."""

    @recorded
    def set_communicator(self, communicator: Any) -> bool:
        """Sets the communicator by which collective layers exchange data with the other
        processes (ranks) that run the plan: a PyCapsule "ncclComm_t" or a
        rabbet.parallel.Communicator, which must outlive the context; None: none.

        The next run, or prepare(), makes communicators of its own from it, for which
        all ranks are needed."""
        self._set_communicator(getattr(communicator, "capsule", communicator))
        self._communicator = communicator
        return True

    @property
    @no_effect("runs make no NVTX ranges")
    def nvtx_verbosity(self) -> e.ProfilingVerbosity:
        """The verbosity that was set."""
        return self._nvtx_verbosity

    @nvtx_verbosity.setter
    def nvtx_verbosity(self, verbosity: e.ProfilingVerbosity) -> None:
        self._nvtx_verbosity = verbosity

    def report_to_profiler(self) -> bool:
        """Accepted without effect: each run reports by itself."""
        return True

    @recorded
    def prepare(self) -> bool:
        """Prepares kernels and memory for the present shapes and addresses, so that the
        next run can be captured into a CUDA graph.

        This happens automatically once all addresses are set and the shape of each
        dynamic input was set since the last run, unless shapes depend on input values.
        Capturing a run that is not prepared is an error, and so is capturing a run of a
        plan with data-dependent sizes.
        """
        self._prepare()
        return True

    # Without the call of a decorator, which is noticeable in runs of small plans.
    @unchecked
    def execute_async_v3(self, stream_handle: int = 0) -> bool:
        """Runs on a stream; on the CPU (stream 0) the run is complete on return."""
        try:
            self._execute(stream_handle)
        except Exception as error:
            report(self, error)
            raise
        return True

    @unchecked
    def cancel(self) -> bool:
        """Ends the run that another thread has under way: it raises CancelledError before
        its next step or iteration of a loop, and the next run is a usual one. Work that
        a GPU was given goes on, loops in graphs included. False: there was no run, and
        nothing happens."""
        return self._cancel()

    @recorded
    def execute_v2(self, bindings: Integers) -> bool:
        """Runs with addresses in the order of get_tensor_name, and waits for the run."""
        count = self.engine.num_io_tensors
        if len(bindings) != count:
            raise ValueError(
                f"execute_v2 takes {count} addresses, one for each input and output; "
                f"got {len(bindings)}"
            )
        for i, address in enumerate(bindings):
            self._set_address(self.engine.get_tensor_name(i), address)
        self._execute(0)
        self._check(0)  # assertions: the run is to be done when this returns
        return True


ICudaEngine._context_class = IExecutionContext


@checks_arguments
class EngineInspector:
    """Describes the layers of a plan."""

    error_recorder: IErrorRecorder | None = None
    execution_context: IExecutionContext | None = None

    def __init__(self, engine: ICudaEngine) -> None:
        self._engine = engine

    def _inspect(self, layer: int, format: e.LayerInformationFormat) -> str:
        as_json = format is e.LayerInformationFormat.JSON
        return self._engine._inspect(self.execution_context, layer, int(as_json))

    def get_engine_information(
        self, format: e.LayerInformationFormat = e.LayerInformationFormat.ONELINE
    ) -> str:
        """Description of all layers."""
        return self._inspect(-1, format)

    def get_layer_information(
        self,
        layer_index: int,
        format: e.LayerInformationFormat = e.LayerInformationFormat.ONELINE,
    ) -> str:
        """Description of one layer."""
        if not 0 <= layer_index < self._engine.num_layers:
            raise IndexError(
                f"layer {layer_index}: the engine has {self._engine.num_layers}"
            )
        return self._inspect(layer_index, format)

    def as_dict(self) -> Any:
        """All layers as parsed JSON."""
        import json

        return json.loads(self._inspect(-1, e.LayerInformationFormat.JSON))
