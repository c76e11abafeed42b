"""Configurations of builds, and profiles of shapes."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from typing import Annotated, Any, Self

from . import _enums as e
from . import _rabbet
from ._algorithms import IAlgorithmSelector
from ._calibrators import IInt8Calibrator
from ._callbacks import ILogger, IProgressMonitor
from ._checked import Integers, Shape, bits_of, checks_arguments
from ._dims import Dims
from ._errors import UnsupportedError
from ._flags import enumerator, integer
from ._layers._layer import ILayer
from ._managed import Fixed, Kept, Managed, no_effect
from ._timing_cache import ITimingCache

_FLAGS = _rabbet.NUMBERS["OPTION_FLAGS"]
_LEVEL = _rabbet.NUMBERS["OPTION_OPTIMIZATION_LEVEL"]
_WORKSPACE = _rabbet.NUMBERS["OPTION_WORKSPACE_LIMIT"]
_SAMPLES = _rabbet.NUMBERS["OPTION_AVG_TIMING"]
_MAX_TACTICS = _rabbet.NUMBERS["OPTION_MAX_TACTICS"]
_VERBOSITY = _rabbet.NUMBERS["OPTION_PROFILING_VERBOSITY"]
_THREADS = _rabbet.NUMBERS["OPTION_THREADS"]
_MISS = _rabbet.NUMBERS["OPTION_ERROR_ON_TIMING_CACHE_MISS"]
_SOURCE = _rabbet.NUMBERS["OPTION_KEEP_PLUGIN_SOURCE"]
_SOURCES = _rabbet.NUMBERS["OPTION_TACTIC_SOURCES"]
_TRY_PLUGINS = _rabbet.NUMBERS["OPTION_TRY_PLUGINS"]
_TACTIC_MEMORY = _rabbet.NUMBERS["OPTION_TACTIC_MEMORY"]

# Memory pools, and the option that limits each.
_POOLS = {
    e.MemoryPoolType.WORKSPACE: _WORKSPACE,
    e.MemoryPoolType.TACTIC_DRAM: _TACTIC_MEMORY,
}
# Memory pools without effect here, and their default limits.
_HINT_POOLS = {e.MemoryPoolType.TACTIC_SHARED_MEMORY: 1 << 30}
_ALL_SOURCES = sum(1 << int(source) for source in e.TacticSource)
_TacticSources = Annotated[int, bits_of(e.TacticSource)]
_QuantizationFlags = Annotated[int, bits_of(e.QuantizationFlag)]


def _at_least_0(value: Any, name: str) -> int:
    number = integer(value, name)
    if number < 0:
        raise ValueError(f"{name}: expected a number of at least 0, got {number}")
    return number


def _names(what: str, given: Any) -> list[str]:
    if isinstance(given, (str, os.PathLike)) or not isinstance(given, Iterable):
        raise TypeError(f"{what}: expected a list of names, got {given!r}")
    return [os.fspath(name) for name in given]


@checks_arguments
class IOptimizationProfile(_rabbet.Profile):
    """Minimum, optimal and maximum shapes of the inputs."""

    extra_memory_target = 1.0

    def set_shape(self, input: str, min: Shape, opt: Shape, max: Shape) -> None:
        """Range of an input's shape; the plan is tuned for opt."""
        self._set_shape(input, min, opt, max)

    def get_shape(self, input: str) -> list[Dims]:
        """[min, opt, max] of an input."""
        return [Dims(dims) for dims in self._shape(input)]

    def set_shape_input(
        self, input: str, min: Integers, opt: Integers, max: Integers
    ) -> None:
        """Range of the values of a shape input."""
        if not len(min) == len(opt) == len(max):
            raise ValueError(
                f"shape input '{input}': min, opt and max have {len(min)}, {len(opt)} and "
                f"{len(max)} values; they must have as many each"
            )
        self._set_values(input, [*min, *opt, *max])

    def get_shape_input(self, input: str) -> list[list[int]]:
        """[min, opt, max] of the values of a shape input."""
        return [list(values) for values in self._values(input)]

    def __bool__(self) -> bool:
        return True

    __nonzero__ = __bool__


@checks_arguments
class IBuilderConfig(_rabbet.BuilderConfig, Managed):
    """Settings of a build: made by Builder.create_builder_config."""

    # Setting an unknown attribute is an error: a misspelt option would be ignored.
    __slots__ = (
        "_cache",
        "_calibration_profile",
        "_calibrator",
        "_kept",
        "_logger",
        "_preview",
        "_profiles",
        "_progress_monitor",
        "_quantization",
        "_selector",
    )
    _logger: ILogger | None
    _progress_monitor: IProgressMonitor | None
    _profiles: list[IOptimizationProfile]
    _cache: ITimingCache | None
    _calibrator: IInt8Calibrator | None
    _calibration_profile: IOptimizationProfile | None
    _quantization: int
    _selector: IAlgorithmSelector | None
    _preview: int
    _kept: dict[str, Any]  # hints, by property; limits of memory pools, by pool

    engine_capability = Fixed(e.EngineCapability.STANDARD, "What plans may hold.")
    DLA_core = Fixed(-1, "There is none.")
    default_device_type = Fixed(e.DeviceType.GPU, "There is no DLA.")
    remote_auto_tuning_config = Fixed("", "Tuning is done here.")
    hardware_compatibility_level = Kept(
        e.HardwareCompatibilityLevel.NONE,
        functools.partial(enumerator, e.HardwareCompatibilityLevel),
        "Plans run on any machine with their kind of device.",
    )
    runtime_platform = Kept(
        e.RuntimePlatform.SAME_AS_BUILD,
        functools.partial(enumerator, e.RuntimePlatform),
        "Plans are for the system that made them.",
    )
    tiling_optimization_level = Kept(
        e.TilingOptimizationLevel.NONE,
        functools.partial(enumerator, e.TilingOptimizationLevel),
        "Fusion is part of tuning.",
    )
    l2_limit_for_tiling = Kept(-1, integer, "Fusion is part of tuning.")
    max_aux_streams = Kept(0, _at_least_0, "A run uses one stream.")
    profile_stream = Kept(0, _at_least_0, "Tuning uses the device's own stream.")

    def __new__(cls, logger: ILogger | None = None) -> Self:
        self = super().__new__(cls, logger)
        self._logger = logger
        self._start()
        return self

    def _start(self) -> None:
        self._progress_monitor = None
        self._profiles = []
        self._cache = None
        self._calibrator = None
        self._calibration_profile = None
        self._quantization = 0
        self._selector = None
        self._preview = 1 << int(e.PreviewFeature.PROFILE_SHARING_0806)
        self._kept = {}

    def reset(self) -> None:
        """Restores the default values; profiles stay."""
        fresh = _rabbet.BuilderConfig()
        for name, option in _rabbet.NUMBERS.items():
            if name.startswith("OPTION_"):
                self._set(option, fresh._get(option))
        profiles = self._profiles
        self._set_device(None)
        self._set_libraries([])
        self._set_modules([])
        self.set_timing_cache(None)
        self._start()
        self._profiles = profiles

    # ---- INT8 without quantize layers

    @property
    def int8_calibrator(self) -> IInt8Calibrator | None:
        """Calibrator that finds missing ranges of tensors for BuilderFlag.INT8."""
        return self._calibrator

    @int8_calibrator.setter
    def int8_calibrator(self, calibrator: IInt8Calibrator | None) -> None:
        self._calibrator = calibrator

    @property
    def quantization_flags(self) -> int:
        """Bits 1 << QuantizationFlag."""
        return self._quantization

    @quantization_flags.setter
    def quantization_flags(self, bits: _QuantizationFlags) -> None:
        self._quantization = bits

    def set_quantization_flag(self, flag: e.QuantizationFlag) -> None:
        """Sets a flag of calibration."""
        self._quantization |= 1 << int(flag)

    def clear_quantization_flag(self, flag: e.QuantizationFlag) -> None:
        """Clears a flag of calibration."""
        self._quantization &= ~(1 << int(flag))

    def get_quantization_flag(self, flag: e.QuantizationFlag) -> bool:
        """Whether a flag of calibration is set."""
        return bool(self._quantization >> int(flag) & 1)

    def set_calibration_profile(self, profile: IOptimizationProfile) -> bool:
        """Sets the profile whose optimal shapes calibration uses; default: the first
        profile."""
        self._calibration_profile = profile
        return True

    def get_calibration_profile(self) -> IOptimizationProfile | None:
        """The profile that set_calibration_profile set."""
        return self._calibration_profile

    # ---- Which tactics

    @property
    def algorithm_selector(self) -> IAlgorithmSelector | None:
        """Callback that chooses among implementations of layers, and receives the
        choice."""
        return self._selector

    @algorithm_selector.setter
    def algorithm_selector(self, selector: IAlgorithmSelector | None) -> None:
        self._selector = selector

    @no_effect("all layers are for the configuration's device")
    def set_device_type(self, layer: ILayer, device_type: e.DeviceType) -> None:
        """Accepts only GPU, which stands for the configuration's device."""
        if device_type is not e.DeviceType.GPU:
            raise UnsupportedError(f"layer '{layer.name}': there is no {device_type}")

    def get_device_type(self, layer: ILayer) -> e.DeviceType:
        """Always GPU, which stands for the configuration's device."""
        return e.DeviceType.GPU

    def is_device_type_set(self, layer: ILayer) -> bool:
        """Always False: there is only one device type."""
        return False

    @no_effect("a layer's device has one value")
    def reset_device_type(self, layer: ILayer) -> None:
        """Accepted without effect: there is only one device type."""

    def can_run_on_DLA(self, layer: ILayer) -> bool:  # noqa: N802
        """Always False: there is no DLA."""
        return False

    def set_tactic_sources(self, tactic_sources: _TacticSources) -> bool:
        """Sets the libraries whose kernels may be used, as bits 1 << TacticSource:
        CUBLAS and CUBLAS_LT mean cuBLASLt, CUDNN means cuDNN. A layer without any other
        kernel still uses them, with a warning. Rabbet's own kernels and the CPU's are
        always allowed."""
        self._set(_SOURCES, tactic_sources)
        return True

    def get_tactic_sources(self) -> int:
        """The sources that set_tactic_sources set; all by default."""
        return self._get(_SOURCES) & _ALL_SOURCES

    def _has_default_sources(self) -> bool:
        return self._get(_SOURCES) == self._default_sources()

    def _reset_sources(self) -> None:
        self._set(_SOURCES, self._default_sources())

    @staticmethod
    def _default_sources() -> int:
        return _rabbet.BuilderConfig()._get(_SOURCES)  # type: ignore[no-any-return]

    @property
    def progress_monitor(self) -> IProgressMonitor | None:
        """Callback that receives the progress of a build and may stop it."""
        return self._progress_monitor

    @progress_monitor.setter
    def progress_monitor(self, monitor: IProgressMonitor | None) -> None:
        self._progress_monitor = monitor

    @property
    def flags(self) -> int:
        """Bits 1 << BuilderFlag."""
        return self._get(_FLAGS)

    @flags.setter
    def flags(self, bits: int) -> None:
        self._set(_FLAGS, bits)
        miss = bits >> e.BuilderFlag.ERROR_ON_TIMING_CACHE_MISS & 1
        self._set(_MISS, miss)

    def set_flag(self, flag: e.BuilderFlag) -> None:
        """Sets a flag."""
        self.flags |= 1 << int(flag)

    def clear_flag(self, flag: e.BuilderFlag) -> None:
        """Clears a flag."""
        self.flags &= ~(1 << int(flag))

    def get_flag(self, flag: e.BuilderFlag) -> bool:
        """Whether a flag is set."""
        return bool(self.flags >> int(flag) & 1)

    @property
    def builder_optimization_level(self) -> int:
        """0 (fast build) to 5 (tries all kernels); default 3."""
        return self._get(_LEVEL)

    @builder_optimization_level.setter
    def builder_optimization_level(self, level: int) -> None:
        self._set(_LEVEL, level)

    @property
    def avg_timing_iterations(self) -> int:
        """Number of timing samples of each kernel."""
        return self._get(_SAMPLES)

    @avg_timing_iterations.setter
    def avg_timing_iterations(self, count: int) -> None:
        self._set(_SAMPLES, count)

    @property
    def max_num_tactics(self) -> int:
        """Maximum number of kernels timed for a layer; -1: no limit."""
        return self._get(_MAX_TACTICS)

    @max_num_tactics.setter
    def max_num_tactics(self, count: int) -> None:
        self._set(_MAX_TACTICS, count)

    @property
    def profiling_verbosity(self) -> e.ProfilingVerbosity:
        """Level of detail that the plan keeps for its inspector."""
        return e.ProfilingVerbosity(self._get(_VERBOSITY))

    @profiling_verbosity.setter
    def profiling_verbosity(self, verbosity: e.ProfilingVerbosity) -> None:
        self._set(_VERBOSITY, int(verbosity))

    @property
    def threads(self) -> int:
        """CPU threads to tune for; 0: the device's default."""
        return self._get(_THREADS)

    @threads.setter
    def threads(self, count: int) -> None:
        self._set(_THREADS, count)

    @property
    def device(self) -> str | None:
        """Device to build for: "cpu", "cuda", "cuda:1"; None: the default one."""
        return self._device()

    @device.setter
    def device(self, name: str | None) -> None:
        self._set_device(name)

    # ---- Code that the plan carries

    @property
    def plugins_to_serialize(self) -> list[str]:
        """Paths of plugin libraries that the plan carries, as they are when it is
        built. A loaded plan runs them only if Runtime.engine_host_code_allowed is
        set."""
        return self._libraries()

    @plugins_to_serialize.setter
    def plugins_to_serialize(self, paths: Iterable[str | os.PathLike[str]]) -> None:
        self._set_libraries(_names("plugins_to_serialize", paths))

    @property
    def keep_plugin_source(self) -> bool:
        """Whether the plan carries the source of the modules that define the network's
        Python plugins, and of source_modules. A process without the plugins runs it if
        Runtime.engine_host_code_allowed is set."""
        return bool(self._get(_SOURCE))

    @keep_plugin_source.setter
    def keep_plugin_source(self, keep: bool) -> None:
        self._set(_SOURCE, int(keep))

    @property
    def try_plugins(self) -> bool:
        """Whether a build runs each plugin of the plan once and raises its error, even
        at optimization level 0; default False (rabbet.compile: True)."""
        return bool(self._get(_TRY_PLUGINS))

    @try_plugins.setter
    def try_plugins(self, wanted: bool) -> None:
        self._set(_TRY_PLUGINS, int(wanted))

    @property
    def source_modules(self) -> list[str]:
        """Importable names of further modules for keep_plugin_source; a package
        includes all its modules."""
        return self._modules()

    @source_modules.setter
    def source_modules(self, names: Iterable[str]) -> None:
        self._set_modules(_names("source_modules", names))

    def set_memory_pool_limit(self, pool: e.MemoryPoolType, pool_size: int) -> None:
        """Limits, in bytes, the scratch memory of a kernel (WORKSPACE), or the memory
        of the device that timings of a build hold (TACTIC_DRAM; kernels that need more
        are not timed). A limit of TACTIC_SHARED_MEMORY is stored without effect."""
        if pool in _POOLS:
            self._set(_POOLS[pool], pool_size)
        elif pool in _HINT_POOLS:
            self._kept[pool.name] = _at_least_0(pool_size, f"limit of {pool}")
        else:
            raise ValueError(
                f"no device here has the memory pool {pool}; use WORKSPACE"
            )

    def get_memory_pool_limit(self, pool: e.MemoryPoolType) -> int:
        """Limit in bytes that was set, else the default; 0 for pools that no device
        has."""
        if pool in _POOLS:
            return self._get(_POOLS[pool])
        return int(self._kept.get(pool.name, _HINT_POOLS.get(pool, 0)))

    def add_optimization_profile(self, profile: IOptimizationProfile) -> int:
        """Adds a profile and returns its index."""
        self._add_profile(profile)
        self._profiles.append(profile)
        return len(self._profiles) - 1

    @property
    def num_optimization_profiles(self) -> int:
        """Number of profiles."""
        return self._profile_count()

    def create_timing_cache(self, serialized_timing_cache: Any = b"") -> ITimingCache:
        """Makes a timing cache from its bytes; empty without bytes."""
        return ITimingCache(bytes(memoryview(serialized_timing_cache)))

    def set_timing_cache(
        self, cache: ITimingCache | None, ignore_mismatch: bool = False
    ) -> bool:
        """Sets the timing cache; None: each build has its own."""
        self._set_timing_cache(cache)
        self._cache = cache
        return True

    def get_timing_cache(self) -> ITimingCache | None:
        """The timing cache that was set."""
        return self._cache

    def set_preview_feature(self, feature: e.PreviewFeature, enable: bool) -> None:
        """Accepted without effect: preview features are always on."""
        bit = 1 << int(feature)
        self._preview = self._preview | bit if enable else self._preview & ~bit

    def get_preview_feature(self, feature: e.PreviewFeature) -> bool:
        """Whether set_preview_feature turned it on."""
        return bool(self._preview >> int(feature) & 1)
