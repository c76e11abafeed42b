"""Options and providers of sessions with ONNX Runtime's interface."""

from __future__ import annotations

import contextlib
import enum
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from . import _enums as e
from ._callbacks import ILogger
from ._errors import (
    CancelledError,
    InvalidArgumentError,
    UnavailableError,
    UnsupportedError,
)
from ._ort_values import device_name, has_device, onnx_type

# Of each provider of ONNX Runtime: the device that does its work here.
_DEVICES = {
    "CPUExecutionProvider": "cpu",
    "CUDAExecutionProvider": "cuda",
    "TensorrtExecutionProvider": "cuda",
    "NvTensorRTRTXExecutionProvider": "cuda",
}


class GraphOptimizationLevel(enum.IntEnum):
    """How much a build tries; DISABLE_ALL times nothing, the others are equal."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    """Order of the nodes, which a plan fixes."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class NodeArg:
    """Name, type and shape of an input or output; a dynamic dimension is its name, or
    None."""

    def __init__(self, name: str, dtype: e.DataType, shape: Sequence[Any]) -> None:
        self.name, self.type, self.shape = name, onnx_type(dtype), list(shape)

    def __repr__(self) -> str:
        return f"NodeArg(name='{self.name}', type='{self.type}', shape={self.shape})"

    __str__ = __repr__


class SessionOptions:
    """Options of a session. intra_op_num_threads, graph_optimization_level (0: nothing is
    timed), log_severity_level and dimension overrides have an effect; the others that
    ONNX Runtime has are accepted without one."""

    def __init__(self) -> None:
        self.intra_op_num_threads = 0
        self.inter_op_num_threads = 0
        self.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
        self.log_severity_level = 2
        self.log_verbosity_level = 0
        self.logid = ""
        self.execution_mode = ExecutionMode.ORT_SEQUENTIAL
        self.enable_cpu_mem_arena = True
        self.enable_mem_pattern = True
        self.enable_mem_reuse = True
        self.use_deterministic_compute = False
        self.use_per_session_threads = True
        self.optimized_model_filepath = ""
        self._entries: dict[str, str] = {}
        self._extents: dict[str, int] = {}

    @property
    def enable_profiling(self) -> bool:
        """Always False."""
        return False

    @enable_profiling.setter
    def enable_profiling(self, value: bool) -> None:
        if value:
            raise UnsupportedError(
                "enable_profiling: no file of events is written; "
                "session.model.profile(...) returns the times of the layers"
            )

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Keeps an entry, which has no effect."""
        self._entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """An entry."""
        if key not in self._entries:
            raise InvalidArgumentError(f"there is no configuration entry '{key}'")
        return self._entries[key]

    def add_free_dimension_override_by_name(self, name: str, value: int) -> None:
        """Fixes a dimension that the model names."""
        self._extents[name] = value

    @property
    def extents(self) -> Mapping[str, int]:
        """The dimensions that are fixed, by name."""
        return self._extents

    def register_custom_ops_library(self, path: str) -> None:
        """Refused."""
        raise UnsupportedError(
            f"register_custom_ops_library: '{path}' has ONNX Runtime's interface; "
            "InferenceSession(plugins=) takes files that register operators here"
        )


class RunOptions:
    """Options of runs. `terminate` has an effect; the others are accepted without one."""

    def __init__(self) -> None:
        self._terminate = False
        # Model and thread of each run that has these options.
        self._runs: list[tuple[Any, int]] = []
        self.log_severity_level = 2
        self.log_verbosity_level = 0
        self.logid = ""
        self.only_execute_path_to_fetches = False
        self._entries: dict[str, str] = {}

    @property
    def terminate(self) -> bool:
        """True, which another thread may set, ends the runs with these options: they
        raise CancelledError, and so does each later one until it is False again."""
        return self._terminate

    @terminate.setter
    def terminate(self, value: bool) -> None:
        self._terminate = bool(value)
        for run in list(self._runs) if value else ():
            model, thread = run
            # A run that has not begun to compute cannot be cancelled yet.
            while not model._cancel(thread) and run in self._runs:
                if thread == threading.get_ident():  # a handler of signals
                    break
                time.sleep(0.001)

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Keeps an entry."""
        self._entries[key] = value


@contextlib.contextmanager
def terminable(options: Any, model: Any) -> Iterator[None]:
    """A run of the model by this thread, which the options may end. Those of ONNX
    Runtime's own class are looked at before the run alone."""
    run = (model, threading.get_ident())
    runs = options._runs if isinstance(options, RunOptions) else []
    runs.append(run)
    try:
        if getattr(options, "terminate", False):
            raise CancelledError("the run was cancelled: its options' terminate is True")
        yield
    finally:
        runs.remove(run)


class ModelMetadata:
    """Texts of a model."""

    def __init__(self, graph_name: str) -> None:
        self.graph_name = graph_name
        self.producer_name = self.domain = self.description = self.graph_description = ""
        self.version = 0
        self.custom_metadata_map: dict[str, str] = {}


def _provider(given: Any) -> tuple[str, dict[str, Any]]:
    """Name and options of a provider, from a name or a pair."""
    if isinstance(given, str):
        return given, {}
    if (
        isinstance(given, Sequence)
        and len(given) == 2
        and isinstance(given[0], str)
        and isinstance(given[1], Mapping)
    ):
        return given[0], dict(given[1])
    raise TypeError(f"providers: expected names or pairs (name, options), got {given!r}")


def providers_of(
    providers: Iterable[Any] | None, options: Iterable[Mapping[str, Any]] | None
) -> list[tuple[str, dict[str, Any]]]:
    """The providers that were asked for, with their options."""
    if isinstance(providers, (str, bytes)):
        raise TypeError(f"providers: expected a list, got {providers!r}")
    found = [_provider(given) for given in providers or ()]
    if options is None:
        return found
    listed = [dict(each) for each in options]
    if len(listed) != len(found):
        raise InvalidArgumentError(
            f"provider_options: {len(listed)} for {len(found)} providers"
        )
    return [(name, each) for (name, _), each in zip(found, listed, strict=True)]


def get_available_providers() -> list[str]:
    """Providers whose device is there, the fastest first."""
    gpu = ["CUDAExecutionProvider"] if has_device("cuda") else []
    return [*gpu, "CPUExecutionProvider"]


def get_device() -> str:
    """ "GPU" or "CPU"."""
    return "GPU" if has_device("cuda") else "CPU"


def choose(
    asked: list[tuple[str, dict[str, Any]]], device: str | None, log: ILogger
) -> tuple[str, str]:
    """Provider and device: the first that is there."""
    if device is not None:
        kind = "CPU" if device == "cpu" else "CUDA"
        return f"{kind}ExecutionProvider", device
    asked = asked or [(name, {}) for name in get_available_providers()]
    for name, options in asked:
        if name in _DEVICES:
            chosen = device_name(_DEVICES[name], int(options.get("device_id", 0)))
            if has_device(chosen):
                return name, chosen
            text = f"'{name}': there is no device '{chosen}'"
        else:
            text = f"'{name}' is not known; there are {', '.join(_DEVICES)}"
        log.log(e.Severity.WARNING, f"InferenceSession: provider {text}")
    raise UnavailableError(
        "InferenceSession: none of the providers can be had: "
        + ", ".join(name for name, _ in asked)
    )
