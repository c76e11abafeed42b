"""CuPy's RawKernel on the stand-in GPU, for examples that use nothing else of it."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
from typing import Any

import numpy as np

from tests.gpu import cuda_driver

# Modules that are loaded are unloaded in the end; the stand-in counts.
_open = contextlib.ExitStack()
_open.enter_context(cuda_driver.session())
atexit.register(_open.close)
_TYPES = {
    np.dtype(np.int32): ctypes.c_int32,
    np.dtype(np.uint64): ctypes.c_uint64,
    np.dtype(np.float32): ctypes.c_float,
}


class _Stream:
    """A stream that is current."""

    now: _Stream

    def __init__(self, ptr: int) -> None:
        self.ptr = ptr

    def use(self) -> None:
        """Makes it the current one."""
        _Stream.now = self


_Stream.now = _Stream(0)


class cuda:  # noqa: N801
    """The parts of cupy.cuda that Rabbet uses: the current stream, and others' streams."""

    class Stream:
        """The legacy one."""

        null = _Stream(0)

    @staticmethod
    def ExternalStream(ptr: int, device: int = -1) -> _Stream:  # noqa: N802
        return _Stream(ptr)

    @staticmethod
    def get_current_stream(device: int = -1) -> _Stream:
        return _Stream.now


class RawKernel:
    """A kernel of CUDA C++, launched on the current stream."""

    def __init__(self, code: str, name: str, options: tuple[str, ...] = ()) -> None:
        # The options are macros, for all that is compiled here.
        macros = [option.removeprefix("-D").replace("=", " ", 1) for option in options]
        lines = "".join(f"#define {macro}\n" for macro in macros)
        self.function = cuda_driver.Function(lines + code, name)

    def __call__(self, grid: tuple[int, ...], block: tuple[int, ...], args: Any) -> None:
        values = [_TYPES[arg.dtype](arg.item()) for arg in args]
        self.function(grid[0], block[0], _Stream.now.ptr, *values)
