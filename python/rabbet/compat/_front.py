"""Classes of the alias `tensorrt`: subclasses of the package's, whose methods log a
failure and return the value by which TensorRT reports it."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable
from typing import Any

import rabbet

# Methods that run users' code (plugins, callbacks): any exception counts as a failure.
_RUNS = frozenset(
    """build_serialized_network build_serialized_network_to_stream
    build_engine_with_config deserialize_cuda_engine create_execution_context
    execute_async_v3 execute_v2 parse parse_from_file parse_with_weight_descriptors
    parse_model_proto""".split()
)


def _dims() -> Any:
    return rabbet.Dims()


# Values that failed calls return; a function is called to make the value each time.
_ANSWERS: dict[str, dict[str, Any]] = {
    "Builder": {
        "create_network": None,
        "build_serialized_network": None,
        "build_serialized_network_to_stream": False,
        "build_engine_with_config": None,
        "is_network_supported": False,
    },
    "IBuilderConfig": {
        "set_flag": None,
        "clear_flag": None,
        "set_memory_pool_limit": None,
        "get_memory_pool_limit": 0,
        "add_optimization_profile": -1,
        "create_timing_cache": None,
        "set_timing_cache": False,
        "set_quantization_flag": None,
        "set_calibration_profile": False,
        "set_device_type": None,
        "set_tactic_sources": False,
    },
    "INetworkDefinition": {
        "remove_tensor": None,
        "mark_output": None,
        "unmark_output": None,
        "mark_output_for_shapes": False,
        "unmark_output_for_shapes": False,
        "mark_debug": False,
        "unmark_debug": False,
        "set_weights_name": False,
        "mark_weights_refittable": False,
        "unmark_weights_refittable": False,
    },
    "Runtime": {
        "deserialize_cuda_engine": None,
        "load_cuda_engine": None,
        "load_runtime": None,
    },
    "ICudaEngine": {
        "create_execution_context": None,
        "create_execution_context_without_device_memory": None,
        "serialize_with_config": None,
        "get_tensor_shape": _dims,
        "get_tensor_dtype": rabbet.DataType.FLOAT,
        "get_tensor_location": rabbet.TensorLocation.DEVICE,
        "get_tensor_format": rabbet.TensorFormat.LINEAR,
        "get_tensor_format_desc": "Unknown format",
        "get_tensor_bytes_per_component": -1,
        "get_tensor_components_per_element": -1,
        "get_tensor_vectorized_dim": -1,
        "get_tensor_profile_shape": list,
        "get_tensor_profile_values": list,
        "get_aliased_input_tensor": None,
        "is_shape_inference_io": False,
    },
    "IExecutionContext": {
        "set_input_shape": False,
        "set_tensor_address": False,
        "set_optimization_profile_async": False,
        "set_output_allocator": False,
        "set_debug_listener": False,
        "set_tensor_debug_state": False,
        "set_all_tensors_debug_state": False,
        "get_debug_state": False,
        "set_input_consumed_event": False,
        "set_device_memory": None,
        "update_device_memory_size_for_shapes": 0,
        "set_communicator": False,
        "get_tensor_shape": _dims,
        "get_tensor_strides": _dims,
        "get_tensor_address": 0,
        "get_max_output_size": -1,
        "infer_shapes": list,
        "execute_async_v3": False,
        "execute_v2": False,
    },
    "OnnxParser": {
        "parse": False,
        "parse_from_file": False,
        "parse_with_weight_descriptors": False,
        "parse_model_proto": False,
        "load_initializer": False,
        "get_layer_output_tensor": None,
    },
    "Refitter": {
        "set_weights": False,
        "set_named_weights": False,
        "unset_named_weights": False,
        "get_named_weights": rabbet.Weights,
        "get_weights_prototype": rabbet.Weights,
        "refit_cuda_engine": False,
        "refit_cuda_engine_async": False,
        "set_dynamic_range": False,
    },
    "OnnxParserRefitter": {
        "refit_from_bytes": False,
        "refit_from_file": False,
        "refit_model_proto": False,
        "load_initializer": False,
    },
    "IPluginRegistry": {
        "register_creator": False,
        "deregister_creator": False,
        "load_library": None,
        "deregister_library": None,
        "acquire_plugin_resource": None,
        "release_plugin_resource": -1,
    },
}


class Logger(rabbet.Logger):
    """Prints lines as TensorRT's does: [time] [TRT] [E] message."""

    def log(self, severity: rabbet.Severity, msg: str) -> None:
        """Prints one line."""
        if severity <= self.min_severity:
            letter = "FEWIV"[int(severity)]
            now = time.strftime("%m/%d/%Y-%H:%M:%S")
            print(f"[{now}] [TRT] [{letter}] {msg}", flush=True)


def _report(self: Any, name: str, error: Exception) -> None:
    logger = getattr(self, "_logger", None)
    if logger is None:
        logger = rabbet.Logger()
    text = str(error) or type(error).__name__
    if not isinstance(error, rabbet.Error):
        text = f"{type(error).__name__}: {text}"
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", []))
    logger.log(rabbet.Severity.ERROR, f"{type(self).__name__}::{name}: {text}{notes}")


def _answering(
    name: str, method: Callable[..., Any], answer: Any
) -> Callable[..., Any]:
    expected: tuple[type[Exception], ...] = (
        rabbet.Error,
        ValueError,
        LookupError,
        OSError,
    )
    failures = (Exception,) if name in _RUNS else expected

    signature = inspect.signature(method)

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if name in _RUNS:
            signature.bind(self, *args, **kwargs)  # wrong arguments raise TypeError
        try:
            return method(self, *args, **kwargs)
        except failures as error:
            _report(self, name, error)
        return answer() if callable(answer) else answer

    return call


def _setting(base: Any) -> Callable[..., None]:
    """A __setattr__ that logs refused values; unknown names raise AttributeError."""

    def put(self: Any, name: str, value: Any) -> None:
        try:
            base.__setattr__(self, name, value)
        except (rabbet.Error, ValueError) as error:
            _report(self, name, error)

    return put


def _plain(layer: Any) -> Any:
    """The layer as an ILayer, as TensorRT returns layers that it looks up: `type` is
    their LayerType, and scripts set `__class__` for more."""
    return layer._as(rabbet.ILayer)


# The default of TensorRT 10, which leaves cuBLAS and cuDNN out, as it has kernels of its
# own. Rabbet's default has them.
_DEFAULT_SOURCES = 24


def _choosing(base: Any) -> dict[str, Any]:
    """Methods of a configuration that report and take Rabbet's default tactic sources
    as TensorRT's default."""

    def get_tactic_sources(self: Any) -> int:
        if self._has_default_sources():
            return _DEFAULT_SOURCES
        return int(base.get_tactic_sources(self))

    def set_tactic_sources(self: Any, tactic_sources: int) -> bool:
        if tactic_sources == _DEFAULT_SOURCES:
            self._reset_sources()
            return True
        return bool(base.set_tactic_sources(self, tactic_sources))

    return {
        "get_tactic_sources": get_tactic_sources,
        "set_tactic_sources": set_tactic_sources,
    }


def _front(base: type, answers: dict[str, Any]) -> type:
    # Without __slots__ an object would accept misspelt attributes.
    body: dict[str, Any] = {
        "__slots__": (),
        "__doc__": base.__doc__,
        "__module__": "tensorrt",
        "__setattr__": _setting(base),
    }
    if base is rabbet.INetworkDefinition:
        body["_as_found"] = staticmethod(_plain)
        made = [name for name in dir(base) if name.startswith("add_")]
        answers = {**answers, **dict.fromkeys(made)}
    if base is rabbet.IBuilderConfig:
        body |= _choosing(base)
    for name, answer in answers.items():
        method = body.get(name) or getattr(base, name, None)
        if method is not None:
            body[name] = _answering(name, method, answer)
    return type(base.__name__, (base,), body)


@functools.cache
def front_classes() -> dict[str, type]:
    """The classes by name. Their methods return objects of these classes."""
    made = {
        name: _front(getattr(rabbet, name), answers)
        for name, answers in _ANSWERS.items()
        if hasattr(rabbet, name)
    }
    made["Builder"]._network_class = made["INetworkDefinition"]  # type: ignore[attr-defined]
    made["Builder"]._config_class = made["IBuilderConfig"]  # type: ignore[attr-defined]
    made["Builder"]._runtime_class = made["Runtime"]  # type: ignore[attr-defined]
    made["Runtime"]._engine_class = made["ICudaEngine"]  # type: ignore[attr-defined]
    made["ICudaEngine"]._context_class = made["IExecutionContext"]  # type: ignore[attr-defined]
    for name in ("Builder", "Runtime"):
        made[name].get_plugin_registry = lambda self: front_registry()  # type: ignore[attr-defined]
    return made


@functools.cache
def front_registry() -> Any:
    """The process's registry as an object of the alias's class."""
    kind: Any = front_classes()["IPluginRegistry"]
    registry = kind.__new__(kind)
    registry.__dict__ = rabbet.get_plugin_registry().__dict__
    return registry


def get_plugin_registry() -> Any:
    """The registry of plugin creators, of which a process has one."""
    return front_registry()


def get_builder_plugin_registry(capability: Any, /) -> Any:
    """The registry for an engine capability: the same for all."""
    rabbet.get_builder_plugin_registry(capability)  # checks the argument
    return front_registry()
