"""The functions of NCCL and of the CUDA driver that make communicators, by ctypes."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import glob
import os
from collections.abc import Iterator
from typing import Any

from .. import _rabbet
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


_NAMES = ("libnccl.so.2", "libnccl.so")
# Folders of NVIDIA's wheels in site-packages, and of libraries in a toolkit.
_WHEELS = ("nvidia/cu[0-9]*/lib", "nvidia/*/lib")
_TOOLKIT = ("lib64", "targets/x86_64-linux/lib")


def _candidates() -> Iterator[tuple[str, int]]:
    """(file or name, flags to open it), in the order that docs/cuda.md has for all
    libraries; src/device/cuda/driver/library.c has it for the CUDA device."""
    if named := os.environ.get("RABBET_NCCL"):
        yield named, 0
        return
    for name in _NAMES:
        yield name, os.RTLD_NOLOAD
    for folder in os.environ.get("RABBET_CUDA_PATH", "").split(":"):
        if folder:
            yield from _in_folder(folder)
            yield from _in_folders(folder, _WHEELS)
    # The package's own site-packages.
    own = os.path.dirname(os.path.dirname(os.path.realpath(_rabbet.__file__)))
    yield from _in_folders(own, _WHEELS)
    for name in _NAMES:
        yield name, 0
    toolkits = (
        os.environ.get("CUDA_HOME"),
        os.environ.get("CUDA_PATH"),
        "/usr/local/cuda",
    )
    for toolkit in toolkits:
        if toolkit:
            yield from _in_folders(toolkit, _TOOLKIT)


def _in_folder(folder: str) -> Iterator[tuple[str, int]]:
    for name in _NAMES:
        path = os.path.join(folder, name)
        if os.path.exists(path):
            yield path, 0


def _in_folders(root: str, patterns: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    for pattern in patterns:
        for folder in sorted(glob.glob(os.path.join(glob.escape(root), pattern))):
            yield from _in_folder(folder)


@functools.cache
def library() -> ctypes.CDLL:
    """NCCL. UnavailableError: it is not found, or too old."""
    found, why = None, "it is not found"
    for path, flags in _candidates():
        try:
            found = ctypes.CDLL(path, ctypes.DEFAULT_MODE | flags)
            break
        except OSError as error:
            why = why if flags else str(error)
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
