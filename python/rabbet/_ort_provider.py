"""Rabbet as an execution provider in ONNX Runtime's own sessions."""

from __future__ import annotations

import importlib
import os
import threading
import warnings
from typing import Any

from . import _rabbet
from ._errors import UnavailableError
from ._plugins import load_plugins

_NAME = "RabbetExecutionProvider"
_LIBRARY = "libonnxruntime_ep_rabbet.so"

_lock = threading.Lock()


def get_ep_name() -> str:
    """The provider's name, for `providers=`."""
    return _NAME


def get_ep_names() -> list[str]:
    """The names of the providers in the library."""
    return [_NAME]


def get_library_path() -> str:
    """The library that has the provider, for programs that register it by themselves:
    onnxruntime.register_execution_provider_library("rabbet", path)."""
    path = os.path.join(_rabbet.library_folder(), _LIBRARY)
    if not os.path.exists(path):
        raise UnavailableError(
            f"'{path}' is not there: this installation of Rabbet lacks the provider"
        )
    return path


def _onnxruntime() -> Any:
    try:
        onnxruntime: Any = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise UnavailableError(
            "register: the package onnxruntime is not installed; the provider needs "
            "1.24 or newer"
        ) from error
    if not hasattr(onnxruntime, "register_execution_provider_library"):
        raise UnavailableError(
            f"register: onnxruntime is version {onnxruntime.__version__}; the provider "
            "needs 1.24 or newer"
        )
    return onnxruntime


def _register(plugins: Any) -> Any:
    """The package onnxruntime, which knows the provider."""
    onnxruntime = _onnxruntime()
    load_plugins(plugins)
    with _lock:
        # Version 1.24 has it among its devices alone, not in get_available_providers().
        if all(each.ep_name != _NAME for each in onnxruntime.get_ep_devices()):
            onnxruntime.register_execution_provider_library("rabbet", get_library_path())
    return onnxruntime


def register(plugins: Any = None) -> str:
    """Makes the provider known to ONNX Runtime, once in a process, and returns its name.

    Sessions then use it by providers=["RabbetExecutionProvider"], or by its devices
    (onnxruntime.get_ep_devices). Version 1.24 of onnxruntime passes over the name, of which
    a warning tells.

    plugins: files (.py, .so) or modules that register operators, as compile() takes
        them; what is registered otherwise counts, too.
    """
    onnxruntime = _register(plugins)
    if _NAME not in onnxruntime.get_available_providers():
        warnings.warn(
            f"onnxruntime {onnxruntime.__version__} does not know this provider by name "
            f"(1.25 and newer do): providers=['{_NAME}'] would run on the CPU's provider; "
            "use add_provider",
            stacklevel=2,
        )
    return _NAME


def add_provider(session_options: Any, *, plugins: Any = None, **options: Any) -> Any:
    """Adds the provider to onnxruntime.SessionOptions, and returns them. Unlike
    `providers=`, which ONNX Runtime reads once the model is loaded, this lets sessions
    load models with operators of your own.

    options: those of the provider: device, threads, fp16, dims...
    """
    onnxruntime = _register(plugins)
    devices = [each for each in onnxruntime.get_ep_devices() if each.ep_name == _NAME]
    cpu = onnxruntime.OrtHardwareDeviceType.CPU
    chosen = [each for each in devices if each.device.type == cpu][:1]
    texts = {
        name: str(int(value) if isinstance(value, bool) else value)
        for name, value in options.items()
    }
    session_options.add_provider_for_devices(chosen, texts)
    return session_options
