"""onnx-tensorrt's backend tests (onnx_backend_test.py) on the alias.

    python tests/clients/run_onnx_tensorrt.py CHECKOUT [--part=I/N] [PYTEST'S ARGUMENTS ...]

Its backend allocates by PyCUDA, which is replaced by NumPy here.
"""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import report


class _Array:
    """pycuda.gpuarray.GPUArray in the host's memory."""

    def __init__(self, shape: Any, dtype: Any) -> None:
        self.array = np.empty(shape, dtype)

    @property
    def ptr(self) -> int:
        """Its address; an empty one has one, too."""
        return int(self.array.ctypes.data)

    def set_async(self, array: Any, stream: Any) -> None:
        """Takes the elements of an array."""
        self.array[...] = array.reshape(self.array.shape)

    def get_async(self, stream: Any, array: Any) -> None:
        """Puts its elements into an array."""
        array[...] = self.array


def _stream() -> Any:
    return SimpleNamespace(handle=0, synchronize=lambda: None)


def _replace_cuda() -> None:
    driver, gpuarray = ModuleType("pycuda.driver"), ModuleType("pycuda.gpuarray")
    driver.pagelocked_empty, driver.Stream = np.empty, _stream  # type: ignore[attr-defined]
    gpuarray.empty = _Array  # type: ignore[attr-defined]
    pycuda = ModuleType("pycuda")
    pycuda.driver, pycuda.gpuarray = driver, gpuarray  # type: ignore[attr-defined]
    modules = (pycuda, driver, gpuarray, ModuleType("pycuda.autoinit"))
    sys.modules.update({module.__name__: module for module in modules})
    runtime = SimpleNamespace(
        cudaSetDevice=lambda index: 0, cudaGetErrorString=SimpleNamespace()
    )
    load = ctypes.cdll.LoadLibrary
    ctypes.cdll.LoadLibrary = lambda name: (  # type: ignore[method-assign]
        runtime if name == "libcudart.so" else load(name)
    )


def main() -> int:
    """pytest's exit status."""
    checkout = Path(sys.argv[1]).resolve()
    sys.path.insert(0, str(checkout))
    report.install_alias()
    _replace_cuda()
    # A plugin of pytest that newer releases of onnx lack; it only counts.
    name = "onnx.backend.test.report"
    if importlib.util.find_spec(name) is None:
        sys.modules[name] = ModuleType(name)
    return report.run(checkout, [*sys.argv[2:], str(checkout / "onnx_backend_test.py")])


if __name__ == "__main__":
    raise SystemExit(main())
