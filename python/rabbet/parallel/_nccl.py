"""The functions of NCCL and of the CUDA driver that make communicators, by ctypes."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import glob
import os
import site
import sys
from collections.abc import Iterator
from typing import Any

from .._errors import UnavailableError

ID_BYTES = 128
SUCCESS, IN_PROGRESS = 0, 7
_UNDEFINED = -(2**31)
_OLDEST = 21900


class UniqueId(ctypes.Structure):
    """ncclUniqueId."""

    _fields_ = [("internal", ctypes.c_char * ID_BYTES)]


class _Config(ctypes.Structure):
    # ncclConfig_t of NCCL 2.19, which newer libraries take.
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("magic", ctypes.c_uint),
        ("version", ctypes.c_uint),
        ("blocking", ctypes.c_int),
        ("cga_cluster_size", ctypes.c_int),
        ("min_ctas", ctypes.c_int),
        ("max_ctas", ctypes.c_int),
        ("net_name", ctypes.c_char_p),
        ("split_share", ctypes.c_int),
    ]


def config() -> _Config:
    """A configuration for communicators that do not block."""
    size, none = ctypes.sizeof(_Config), _UNDEFINED
    return _Config(size, 0xCAFEBEEF, _OLDEST, 0, none, none, none, None, none)


_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "ncclGetVersion": (ctypes.POINTER(ctypes.c_int),),
    "ncclGetUniqueId": (ctypes.POINTER(UniqueId),),
    "ncclCommInitRankConfig": (
        ctypes.POINTER(ctypes.c_void_p),
        ctypes.c_int,
        UniqueId,
        ctypes.c_int,
        ctypes.POINTER(_Config),
    ),
    "ncclCommGetAsyncError": (ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)),
    "ncclCommAbort": (ctypes.c_void_p,),
}


def _candidates() -> Iterator[str]:
    """Files, in the order in which the CUDA device looks for them (docs/cuda.md)."""
    if named := os.environ.get("RABBET_NCCL"):
        yield named
        return
    yield from _loaded("libnccl.so")
    folders = [f for f in os.environ.get("RABBET_CUDA_PATH", "").split(":") if f]
    for folder in folders:
        yield os.path.join(folder, "libnccl.so.2")
    sites = [*folders, *sys.path, *site.getsitepackages()]
    for folder in dict.fromkeys(sites):
        for pattern in ("nvidia/cu[0-9]*/lib", "nvidia/*/lib"):
            yield from sorted(glob.glob(os.path.join(folder, pattern, "libnccl.so.2")))
    yield "libnccl.so.2"
    yield "libnccl.so"


def _loaded(name: str) -> Iterator[str]:
    """Libraries of that name that the process has loaded."""
    with contextlib.suppress(OSError), open("/proc/self/maps") as maps:
        for line in maps:
            path = line.split(maxsplit=5)[-1].strip()
            if os.path.basename(path).startswith(name):
                yield path
                return


@functools.cache
def library() -> ctypes.CDLL:
    """NCCL. UnavailableError: it is not found, or too old."""
    found, why = None, "it is not found"
    for path in _candidates():
        try:
            found = ctypes.CDLL(path)
            break
        except OSError as error:
            why = str(error)
    if found is None:
        raise UnavailableError(
            f"NCCL cannot be opened ({why}): pip install nvidia-nccl-cu13 (or -cu12), "
            "or name its file in RABBET_NCCL"
        )
    for name, arguments in _FUNCTIONS.items():
        function = getattr(found, name)
        function.argtypes, function.restype = arguments, ctypes.c_int
    found.ncclGetErrorString.restype = ctypes.c_char_p
    version = ctypes.c_int()
    result = found.ncclGetVersion(ctypes.byref(version))
    if result != SUCCESS:
        raise UnavailableError(f"NCCL does not tell its version ({result})")
    if version.value < _OLDEST:
        raise UnavailableError(
            f"NCCL has version {version.value}; {_OLDEST} or newer is needed"
        )
    return found


def checked(result: int, what: str) -> None:
    """Raises unless the result is success."""
    if result not in (SUCCESS, IN_PROGRESS):
        text = library().ncclGetErrorString(result) or b"no text"
        raise UnavailableError(f"{what}: {text.decode()} ({result})")


@functools.cache
def _driver() -> ctypes.CDLL:
    name = os.environ.get("RABBET_CUDA_DRIVER") or "libcuda.so.1"
    try:
        driver = ctypes.CDLL(name)
    except OSError as error:
        raise UnavailableError(f"there is no CUDA driver: {error}") from None
    if driver.cuInit(0):
        raise UnavailableError("the CUDA driver finds no GPU that it can use")
    return driver


def gpu_count() -> int:
    """Number of GPUs that the driver shows."""
    count = ctypes.c_int()
    _driver().cuDeviceGetCount(ctypes.byref(count))
    return count.value


@contextlib.contextmanager
def current(gpu: int) -> Iterator[None]:
    """Makes the primary context of a GPU current on this thread."""
    driver, device = _driver(), ctypes.c_int()
    context, before = ctypes.c_void_p(), ctypes.c_void_p()
    count = gpu_count()
    if not 0 <= gpu < count:
        raise UnavailableError(f"GPU {gpu} is asked for, and the driver shows {count}")
    driver.cuCtxGetCurrent(ctypes.byref(before))
    if driver.cuDeviceGet(ctypes.byref(device), gpu) or (
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    ):
        raise UnavailableError(f"GPU {gpu} cannot be used")
    try:
        driver.cuCtxSetCurrent(context)
        yield
    finally:
        driver.cuCtxSetCurrent(before)
        driver.cuDevicePrimaryCtxRelease_v2(device)
