"""ONNX Runtime's names, for scripts that were written for it.

    import rabbet.onnxruntime as ort    # was: import onnxruntime as ort
"""

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
    "get_available_providers",
    "get_device",
]
