"""ONNX Runtime's names, for scripts that were written for it, and Rabbet as a provider in
its own sessions.

    import rabbet.onnxruntime as ort    # was: import onnxruntime as ort

    import onnxruntime                  # stays, and its sessions run on Rabbet
    rabbet.onnxruntime.register()
    onnxruntime.InferenceSession(path, providers=["RabbetExecutionProvider"])
"""

from ._ort_provider import (
    add_provider,
    get_ep_name,
    get_ep_names,
    get_library_path,
    register,
)
from ._ort_values import IOBinding, OrtValue
from ._session import InferenceSession
from ._session_options import (
    ExecutionMode,
    GraphOptimizationLevel,
    ModelMetadata,
    NodeArg,
    RunOptions,
    SessionOptions,
    get_available_providers,
    get_device,
)

__all__ = [
    "ExecutionMode",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
    "add_provider",
    "get_available_providers",
    "get_device",
    "get_ep_name",
    "get_ep_names",
    "get_library_path",
    "register",
]
