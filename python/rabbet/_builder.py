"""Builder: makes networks and configurations, and builds plans."""

from __future__ import annotations

from typing import Any, NoReturn

from . import _enums as e
from . import _rabbet
from ._allocators import IGpuAllocator
from ._calibration import calibrated
from ._callbacks import IErrorRecorder, ILogger, IStreamWriter, Logger
from ._checked import checks_arguments
from ._classes._registry import IPluginRegistry, get_plugin_registry
from ._config import IBuilderConfig, IOptimizationProfile
from ._engine import ICudaEngine
from ._errors import UnsupportedError
from ._idle import warnings_of
from ._managed import Fixed, Managed, no_effect
from ._network import INetworkDefinition
from ._recorder import recorded
from ._runtime import Runtime

IHostMemory = _rabbet.IHostMemory


@checks_arguments
class Builder(Managed):
    """Makes networks and configurations, and builds plans."""

    error_recorder: IErrorRecorder | None = None
    # Classes of the objects that it makes; rabbet.compat replaces them.
    _network_class = INetworkDefinition
    _config_class = IBuilderConfig
    _runtime_class = Runtime
    platform_has_fast_fp16 = Fixed(True, "Tuning takes FP16 where it is faster.")
    platform_has_fast_int8 = Fixed(True, "Tuning takes INT8 where it is faster.")
    platform_has_tf32 = Fixed(True, "Tuning takes TF32 on GPUs where it is faster.")
    num_DLA_cores = Fixed(0, "There are none.")  # noqa: N815
    max_DLA_batch_size = Fixed(0, "There are no DLA cores.")  # noqa: N815
    max_threads = Fixed(1, "Times are taken on one thread; see config.threads.")

    def __init__(self, logger: ILogger | None = None) -> None:
        self._logger = logger or Logger()
        self._report: tuple[str, str] | None = None

    def get_plugin_registry(self) -> IPluginRegistry:
        """The registry of plugin creators."""
        return get_plugin_registry()

    @property
    def logger(self) -> ILogger:
        """The logger that receives messages."""
        return self._logger

    @no_effect("a build measures in memory of the device's own; see Runtime")
    def _gpu_allocator_is_write_only(self) -> NoReturn:
        raise AttributeError("gpu_allocator can only be set")

    def _put_gpu_allocator(self, allocator: IGpuAllocator | None) -> None:
        self._gpu_allocator = allocator

    gpu_allocator = property(
        _gpu_allocator_is_write_only,
        _put_gpu_allocator,
        doc="Asked for the device memory of engines of build_engine_with_config.",
    )
    _gpu_allocator: IGpuAllocator | None = None

    def create_network(self, flags: int = 0) -> INetworkDefinition:
        """An empty network; flags are bits 1 << NetworkDefinitionCreationFlag."""
        network = self._network_class(flags, self._logger)
        network._builder = self
        network.error_recorder = self.error_recorder
        return network

    def create_builder_config(self) -> IBuilderConfig:
        """A configuration with default values."""
        return self._config_class(self._logger)

    def create_optimization_profile(self) -> IOptimizationProfile:
        """A profile without ranges."""
        return IOptimizationProfile()

    @recorded
    def build_serialized_network(
        self,
        network: INetworkDefinition,
        config: IBuilderConfig,
        kernel_text: IHostMemory | None = None,
    ) -> IHostMemory:
        """A plan of the network, which is not changed. `kernel_text` is for kernels
        that TensorRT writes apart from a plan: here they are in it."""
        if kernel_text is not None:
            raise UnsupportedError(
                "kernel_text: kernels are part of the plan; leave it out"
            )
        return self._plan(network, config)

    def _plan(
        self, network: INetworkDefinition, config: IBuilderConfig, target: Any = None
    ) -> Any:
        """The plan in memory, or None where it goes to `target`: a file's path, or a
        function that takes its bytes in pieces."""
        for text in warnings_of(config.flags):
            self._logger.log(e.Severity.WARNING, text)
        with calibrated(network, config, self._logger):
            memory, text, json = _rabbet.build(
                network,
                config,
                config.progress_monitor,
                config.algorithm_selector,
                target,
            )
        self._report = (text, json)
        return memory

    @recorded
    def build_serialized_network_to_stream(
        self, network: INetworkDefinition, config: IBuilderConfig, writer: IStreamWriter
    ) -> bool:
        """Builds a plan and writes it to the stream, in pieces: it is never whole in
        memory."""
        self._plan(network, config, writer.write)
        return True

    @recorded
    def build_engine_with_config(
        self, network: INetworkDefinition, config: IBuilderConfig
    ) -> ICudaEngine:
        """Builds a plan and loads it."""
        plan = self._plan(network, config)
        runtime = self._runtime_class(self._logger)
        runtime.gpu_allocator = self._gpu_allocator
        return runtime.deserialize_cuda_engine(plan)

    def is_network_supported(
        self, network: INetworkDefinition, config: IBuilderConfig
    ) -> bool:
        """True for a valid network; raises an error that names the fault of an invalid
        one."""
        network.validate()
        return True

    @property
    def report(self) -> str | None:
        """Table of the alternatives and choices of the last build."""
        return self._report[0] if self._report else None

    @property
    def report_json(self) -> str | None:
        """The report as JSON."""
        return self._report[1] if self._report else None

    def reset(self) -> None:
        """Discards the report of the last build."""
        self._report = None
