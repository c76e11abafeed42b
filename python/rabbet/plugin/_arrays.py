"""Plugins' tensors to NumPy, for types that its protocols cannot carry."""

from __future__ import annotations

from typing import Any

from .._arrays import storage_type
from .._enums import DataType

_BIT_TYPES = {
    DataType.BF16: DataType.HALF,
    DataType.FP8: DataType.UINT8,
    DataType.E8M0: DataType.UINT8,
}


def tensor_to_numpy(tensor: Any, dtype: Any = None, copy: Any = None) -> Any:
    """The result of np.asarray(tensor); types of ml_dtypes where it is installed."""
    import ctypes

    import numpy as np

    if tensor.device != "cpu":
        raise TypeError(f"{tensor!r} is not in host memory; use torch or CuPy")
    if tensor.dtype not in _BIT_TYPES:
        array = np.asarray(memoryview(tensor))
    else:
        storage = storage_type(tensor.dtype)
        if storage.kind == "u":
            raise TypeError(
                f"NumPy has no type for {tensor.dtype}: install ml_dtypes, or use "
                "torch.from_dlpack"
            )
        strides = [s * storage.itemsize for s in tensor.strides]
        span = sum(s * (d - 1) for s, d in zip(strides, tensor.shape, strict=True))
        size = span + storage.itemsize if tensor.numel() else 0
        block: Any = (ctypes.c_char * max(size, 0)).from_address(tensor.data_ptr or 0)
        block._tensor = tensor
        array = np.ndarray(tuple(tensor.shape), storage, block, 0, strides)
        array.flags.writeable = _writable(tensor)
    if dtype is not None and array.dtype != np.dtype(dtype):
        return array.astype(dtype)
    return array.copy() if copy else array


def _writable(tensor: Any) -> bool:
    return "read-only" not in repr(tensor)
