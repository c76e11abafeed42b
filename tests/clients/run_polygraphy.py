"""Polygraphy's own tests (tools/Polygraphy of TensorRT's repository) on the alias.

    python tests/clients/run_polygraphy.py CHECKOUT [--part=I/N] [PYTEST'S ARGUMENTS ...]

Without arguments those of the TensorRT backend, of CUDA and of the comparator; those of the
command are in tests/tools. The CUDA runtime is replaced by memory of the host. Some of the
command's tests start it as a process, for which `import tensorrt` must work without this
runner: python -m rabbet.compat --install.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import Any

import report


class HostCuda:
    """polygraphy.cuda.Cuda in the host's memory; work is done when a call returns."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(None)
        self.library.aligned_alloc.restype = ctypes.c_void_p
        self.library.aligned_alloc.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
        self.library.free.argtypes = [ctypes.c_void_p]

    def create_stream(self) -> int:
        """The one stream."""
        return 0

    def nothing(self, pointer: int) -> None:
        """There is nothing to wait for, and nothing to destroy."""

    stream_synchronize = destroy_stream = nothing

    def malloc(self, nbytes: int) -> int:
        """Memory."""
        return int(self.library.aligned_alloc(256, -(-max(nbytes, 1) // 256) * 256))

    def free(self, pointer: int) -> None:
        """Gives it back."""
        self.library.free(pointer)

    def memcpy(
        self, dst: int, src: int, nbytes: int, kind: Any, stream_ptr: Any = None
    ) -> None:
        """Copies."""
        ctypes.memmove(dst, src, nbytes)


def main() -> int:
    """pytest's exit status."""
    checkout = Path(sys.argv[1]).resolve() / "tools" / "Polygraphy"
    sys.path.insert(0, str(checkout))
    # The command in processes of its own.
    commands = (checkout / "bin", Path(sys.executable).parent, os.environ["PATH"])
    os.environ["PATH"] = os.pathsep.join(map(str, commands))
    packages = (str(checkout), os.environ.get("PYTHONPATH", ""))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, packages))
    os.environ["POLYGRAPHY_INTERNAL_CORRECTNESS_CHECKS"] = "1"  # as its Makefile sets it
    os.chdir(checkout)
    report.install_alias()
    import polygraphy.cuda.cuda as cuda

    cuda.Cuda = HostCuda
    arguments = sys.argv[2:]
    if all(argument.startswith("--part=") for argument in arguments):
        arguments += ["tests/backend/trt", "tests/backend/common", "tests/cuda",
                      "tests/comparator"]  # fmt: skip
    return report.run(checkout, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
