"""A plan on a GPU in a process that has nothing but Rabbet and NumPy: what lies in
memory."""

from __future__ import annotations

import ctypes
import time
from typing import Any

import numpy as np
import rabbet

from tests.gpu import cuda_driver


def free_bytes() -> int:
    """Of the GPU, for all processes."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    driver = cuda_driver.driver()
    with cuda_driver.current():
        result = driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
        cuda_driver.check(result, "cuMemGetInfo")
    return free.value


class Loaded:
    """rabbet.load, with graphs; arrays on the host."""

    def __init__(self, *, plan: str, inputs: str, precision: str, **_: object) -> None:
        cuda_driver.check(cuda_driver.driver().cuInit(0), "cuInit")
        context = ctypes.c_void_p()
        # Held, so that the context is no part of what Rabbet takes.
        result = cuda_driver.driver().cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        cuda_driver.check(result, "cuDevicePrimaryCtxRetain")
        free, begin = free_bytes(), time.perf_counter()
        self.model = rabbet.load(plan, device="cuda")
        self.load_s = time.perf_counter() - begin
        dtype = np.float16 if precision == "fp16" else np.float32
        with np.load(inputs) as arrays:
            self.inputs = {
                name: array.astype(dtype) if array.dtype.kind == "f" else array
                for name, array in arrays.items()
            }
        self.out = self.model(**self.inputs)
        for _index in range(3):
            self.call()
        self.device_bytes = free - free_bytes()

    def call(self) -> None:
        self.model(**self.inputs, out=self.out)

    def outputs(self) -> dict[str, Any]:
        return {}

    def facts(self) -> dict[str, Any]:
        return {"load_s": self.load_s, "device_bytes": self.device_bytes}
