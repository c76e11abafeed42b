"""Arrays of libraries other than torch on the model's GPU: reading inputs, making
outputs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from . import _rabbet
from ._arrays import dtype_of, storage_type
from ._engine import ICudaEngine
from ._engine_tensors import IoInfo
from ._enums import DataType

_CUDA = 2  # DLPack's number
_LEGACY_STREAM = 1  # CUDA's default stream in DLPack and the array interface
# DLPack's types: (code, bits).
_DLPACK_TYPES = {
    (2, 32): DataType.FLOAT,
    (2, 16): DataType.HALF,
    (2, 64): DataType.DOUBLE,
    (4, 16): DataType.BF16,
    (0, 8): DataType.INT8,
    (0, 32): DataType.INT32,
    (0, 64): DataType.INT64,
    (6, 8): DataType.BOOL,
    (1, 8): DataType.UINT8,
    (10, 8): DataType.FP8,
}


class Found:
    """Memory of an array on a GPU."""

    def __init__(
        self,
        address: int,
        shape: tuple[int, ...],
        dtype: Any,
        row_major: bool,
        device: int,
        holder: Any,
        stream: int,
        read_only: bool = False,
    ) -> None:
        self.address, self.shape, self.dtype = address, shape, dtype
        self.row_major, self.device, self.read_only = row_major, device, read_only
        self.holder, self.stream = holder, stream


def _is_row_major(shape: Sequence[int], strides: Sequence[int] | None, step: int) -> bool:
    if strides is None or 0 in shape:
        return True
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != step:
            return False
        step *= extent
    return True


def is_cupy(value: Any) -> bool:
    """Whether a value is a CuPy array; does not import CuPy."""
    kind = getattr(sys.modules.get("cupy"), "ndarray", None)
    return kind is not None and isinstance(value, kind)


def _find_cupy(array: Any) -> Found:
    import cupy

    stream = cupy.cuda.get_current_stream(array.device.id).ptr
    return Found(
        array.data.ptr, tuple(array.shape), array.dtype,
        bool(array.flags.c_contiguous), array.device.id, array, stream,
    )  # fmt: skip


def _find_dlpack(value: Any, number: int) -> Found:
    # From now on the default stream waits for the array's producer.
    capsule = value.__dlpack__(stream=_LEGACY_STREAM)
    address, shape, strides, code, bits, lanes, _, device = _rabbet.dlpack_view(capsule)
    dtype = _DLPACK_TYPES.get((code, bits)) if lanes == 1 else None
    found = dtype if dtype is not None else f"DLPack type {code}, {bits} bits"
    row_major = _is_row_major(shape, strides, 1)
    return Found(address, shape, found, row_major, device, capsule, 0)


def _find_interface(value: Any, number: int) -> Found:
    """Reads the CUDA array interface, which lacks the device: the model's is assumed."""
    import numpy as np

    interface = value.__cuda_array_interface__
    address, read_only = interface["data"]
    shape = tuple(interface["shape"])
    dtype = np.dtype(interface["typestr"])
    stream = interface.get("stream")
    if stream is None or stream == _LEGACY_STREAM:
        stream = 0
    row_major = _is_row_major(shape, interface.get("strides"), dtype.itemsize)
    return Found(address, shape, dtype, row_major, number, value, stream, read_only)


# Libraries raise these for a traced array, or one whose memory is freed.
UNREADABLE = (AttributeError, BufferError, RuntimeError, TypeError, ValueError)


def find(value: Any, number: int) -> Found | None:
    """Memory of an array on a GPU; None for other values. `number`: index of the
    model's GPU."""
    if is_cupy(value):
        return _find_cupy(value)
    if hasattr(value, "__dlpack_device__"):
        try:
            kind, device = value.__dlpack_device__()
        except UNREADABLE:
            return None
        if int(kind) != _CUDA:
            return None
        if int(device) != number:
            return Found(0, (), None, True, int(device), None, 0)
        return _find_dlpack(value, number)
    if hasattr(value, "__cuda_array_interface__"):
        return _find_interface(value, number)
    return None


def same_type(found: Found, info: IoInfo) -> bool:
    """Whether the array has the type of an input or output."""
    try:
        return dtype_of(found.dtype) is info.dtype
    except TypeError:
        return False


# ---- Outputs ----


class Maker(Protocol):
    """Makes outputs on the GPU; called by runner.c."""

    def make(self, index: int, shape: tuple[int, ...], stream: int) -> tuple[Any, int]:
        """Returns an array for an output of a run on the stream, and its address."""

    def wait(self, stream: int) -> None:
        """Called after the run is enqueued on the stream."""

    def finish(self, array: Any) -> Any:
        """Returns the array for the caller, after `wait`."""


class CuPyMaker:
    """Makes CuPy arrays, for inputs from CuPy."""

    def __init__(self, outputs: Sequence[IoInfo]) -> None:
        self.outputs = outputs

    def make(self, index: int, shape: tuple[int, ...], stream: int) -> tuple[Any, int]:
        import cupy

        array = cupy.empty(shape, storage_type(self.outputs[index].dtype))
        return array, array.data.ptr

    def wait(self, stream: int) -> None:
        """CuPy's arrays are ordered by its current stream."""

    def finish(self, array: Any) -> Any:
        return array


class DLPackMaker:
    """Makes outputs in the engine's memory and converts them by DLPack to the inputs'
    library; unconverted if that has no from_dlpack."""

    def __init__(
        self,
        engine: ICudaEngine,
        outputs: Sequence[IoInfo],
        exporter: Callable[[Any], Any] | None,
    ) -> None:
        self.engine, self.outputs, self.exporter = engine, outputs, exporter

    def make(self, index: int, shape: tuple[int, ...], stream: int) -> tuple[Any, int]:
        dtype = self.outputs[index].dtype
        array = _rabbet.device_array(self.engine, int(dtype), shape, stream)
        return array, array.data_ptr

    def wait(self, stream: int) -> None:
        """Waits for the stream: the streams of later readers of the outputs and writers
        of the inputs are unknown."""
        _rabbet.synchronize(self.engine, stream)

    def finish(self, array: Any) -> Any:
        return array if self.exporter is None else self.exporter(array)
