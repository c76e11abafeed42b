"""A little of NVIDIA's driver and NVRTC by ctypes, for tests of plugins: on a GPU,
and on the stand-ins (tests/cuda_stand_in)."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np


def _library(variable: str, names: Sequence[str]) -> ctypes.CDLL:
    given = os.environ.get(variable)
    for name in [given] if given else names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise OSError(f"none of {', '.join(names)} can be opened; set {variable}")


@functools.cache
def driver() -> ctypes.CDLL:
    """libcuda."""
    return _library("RABBET_CUDA_DRIVER", ["libcuda.so.1"])


@functools.cache
def nvrtc() -> ctypes.CDLL:
    """NVRTC."""
    return _library("RABBET_NVRTC", ["libnvrtc.so.13", "libnvrtc.so.12"])


def check(result: int, what: str) -> None:
    """Raises unless a call returned 0."""
    if result != 0:
        raise RuntimeError(f"{what}: error {result}")


def available() -> bool:
    """Whether there is a GPU, or a stand-in for one."""
    count = ctypes.c_int()
    try:
        return (
            driver().cuInit(0) == 0
            and driver().cuDeviceGetCount(ctypes.byref(count)) == 0
            and count.value > 0
        )
    except OSError:
        return False


def is_stand_in() -> bool:
    """Whether it is the stand-in, which nobody but Rabbet can use."""
    return "stand_in" in os.environ.get("RABBET_CUDA_DRIVER", "")


class StandIn(ctypes.Structure):
    """The first functions of stand_in_t (tests/cuda_stand_in/stand_in.h)."""

    _fields_ = (
        ("calls", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)),
        ("log", ctypes.CFUNCTYPE(ctypes.c_char_p)),
        ("clear_log", ctypes.CFUNCTYPE(None)),
        (
            "fail_call",
            ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_int, ctypes.c_int),
        ),
        ("failed", ctypes.CFUNCTYPE(ctypes.c_char_p)),
        ("stop_failing", ctypes.CFUNCTYPE(None)),
    )


def stand_in() -> StandIn:
    """What the stand-in was asked for, and its failures."""
    return StandIn.in_dll(driver(), "rabbet_stand_in")


def architecture() -> str:
    """ "sm_90" of the first GPU."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    for value, attribute in ((major, 75), (minor, 76)):
        result = driver().cuDeviceGetAttribute(ctypes.byref(value), attribute, 0)
        check(result, "cuDeviceGetAttribute")
    return f"sm_{major.value}{minor.value}"


def compile_code(source: str, kind: str = "PTX") -> bytes:
    """PTX or CUBIN of CUDA C++."""
    library = nvrtc()
    program = ctypes.c_void_p()
    check(
        library.nvrtcCreateProgram(
            ctypes.byref(program), source.encode(), b"test.cu", 0, None, None
        ),
        "nvrtcCreateProgram",
    )
    option = f"--gpu-architecture={architecture()}".encode()
    options = (ctypes.c_char_p * 1)(option)
    result = library.nvrtcCompileProgram(program, 1, options)
    size = ctypes.c_size_t()
    if result != 0:
        library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        library.nvrtcGetProgramLog(program, log)
        raise RuntimeError(log.value.decode())
    check(getattr(library, f"nvrtcGet{kind}Size")(program, ctypes.byref(size)), "size")
    code = ctypes.create_string_buffer(size.value)
    check(getattr(library, f"nvrtcGet{kind}")(program, code), "code")
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return code.raw


_modules: list[ctypes.c_void_p] = []


@contextlib.contextmanager
def session() -> Iterator[None]:
    """Holds the first GPU's primary context, and unloads all modules at the end."""
    context, device = ctypes.c_void_p(), 0
    check(driver().cuInit(0), "cuInit")
    result = driver().cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    check(result, "cuDevicePrimaryCtxRetain")
    yield
    check(driver().cuCtxSetCurrent(context), "cuCtxSetCurrent")
    for module in _modules:
        check(driver().cuModuleUnload(module), "cuModuleUnload")
    _modules.clear()
    check(driver().cuCtxSetCurrent(None), "cuCtxSetCurrent")
    result = driver().cuDevicePrimaryCtxRelease_v2(device)
    check(result, "cuDevicePrimaryCtxRelease")


@contextlib.contextmanager
def current() -> Iterator[None]:
    """The first GPU's primary context is current meanwhile."""
    context, before = ctypes.c_void_p(), ctypes.c_void_p()
    result = driver().cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    check(result, "cuDevicePrimaryCtxRetain")
    check(driver().cuCtxGetCurrent(ctypes.byref(before)), "cuCtxGetCurrent")
    check(driver().cuCtxSetCurrent(context), "cuCtxSetCurrent")
    try:
        yield
    finally:
        check(driver().cuCtxSetCurrent(before), "cuCtxSetCurrent")
        check(driver().cuDevicePrimaryCtxRelease_v2(0), "cuDevicePrimaryCtxRelease")


def write(address: int, array: Any) -> None:
    """Copies a NumPy array to the GPU, on the legacy stream."""
    result = driver().cuMemcpyHtoDAsync_v2(
        ctypes.c_uint64(address), ctypes.c_void_p(array.ctypes.data),
        ctypes.c_size_t(array.nbytes), None,
    )  # fmt: skip
    check(result, "cuMemcpyHtoDAsync")
    check(driver().cuStreamSynchronize(None), "cuStreamSynchronize")


def read(address: int, shape: Sequence[int], dtype: Any = np.float32) -> Any:
    """The bytes that are there once the work of the legacy stream is done."""
    array = np.empty(shape, dtype)
    result = driver().cuMemcpyDtoHAsync_v2(
        ctypes.c_void_p(array.ctypes.data), ctypes.c_uint64(address),
        ctypes.c_size_t(array.nbytes), None,
    )  # fmt: skip
    check(result, "cuMemcpyDtoHAsync")
    check(driver().cuStreamSynchronize(None), "cuStreamSynchronize")
    return array


@contextlib.contextmanager
def memory(nbytes: int) -> Iterator[int]:
    """The address of memory on the first GPU, whose context is current meanwhile."""
    with current():
        address = ctypes.c_uint64()
        result = driver().cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(nbytes))
        check(result, "cuMemAlloc")
        try:
            yield address.value
        finally:
            check(driver().cuMemFree_v2(address), "cuMemFree")


class Function:
    """A kernel of CUDA C++, launched by hand."""

    def __init__(self, source: str, name: str) -> None:
        self.code = compile_code(source, "CUBIN")
        self.name = name.encode()
        self.handle: ctypes.c_void_p | None = None

    def load(self) -> ctypes.c_void_p:
        """Loads the module once, into the current context."""
        if self.handle is None:
            module, handle = ctypes.c_void_p(), ctypes.c_void_p()
            result = driver().cuModuleLoadData(ctypes.byref(module), self.code)
            check(result, "cuModuleLoadData")
            result = driver().cuModuleGetFunction(
                ctypes.byref(handle), module, self.name
            )
            check(result, "cuModuleGetFunction")
            _modules.append(module)
            self.handle = handle
        return self.handle

    def __call__(self, blocks: int, threads: int, stream: int, *args: Any) -> None:
        """args are ctypes values."""
        pointers = (ctypes.c_void_p * len(args))(
            *[ctypes.cast(ctypes.byref(arg), ctypes.c_void_p) for arg in args]
        )
        result = driver().cuLaunchKernel(
            self.load(), blocks, 1, 1, threads, 1, 1, 0, ctypes.c_void_p(stream),
            pointers, None,
        )  # fmt: skip
        check(result, "cuLaunchKernel")
