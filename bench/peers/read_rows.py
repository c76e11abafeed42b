"""The best read of as many bytes as a model's weights have."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ..options import ROOT

LINE = 64


class Read:
    """Reads memory by `streams` at a time in each thread."""

    def __init__(self, *, bytes: int, streams: int, threads: int, **_: object) -> None:
        library = ctypes.CDLL(str(ROOT / "build" / "bench" / "libbench_read_rows.so"))
        self.read = library.bench_read
        self.read.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int]
        self.read.restype = ctypes.c_uint64
        self.memory = np.ones(bytes + LINE, np.uint8)
        begin = -self.memory.ctypes.data % LINE
        self.given = (self.memory.ctypes.data + begin, bytes // LINE * LINE, streams, threads)

    def call(self) -> None:
        self.read(*self.given)

    def outputs(self) -> dict[str, Any]:
        """None: it computes nothing."""
        self.call()
        return {}
