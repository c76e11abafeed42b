"""Conversions between data types and array libraries. NumPy is imported on first use."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ._enums import DataType
from ._flags import enumerator, shown

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_NUMPY_NAMES = {
    DataType.FLOAT: "float32",
    DataType.HALF: "float16",
    DataType.INT8: "int8",
    DataType.INT32: "int32",
    DataType.INT64: "int64",
    DataType.BOOL: "bool",
    DataType.UINT8: "uint8",
    DataType.DOUBLE: "float64",
}
_DTYPES = {name: dtype for dtype, name in _NUMPY_NAMES.items()}
_ML_DTYPES_NAMES = {
    DataType.BF16: "bfloat16",
    DataType.FP8: "float8_e4m3fn",
    DataType.E8M0: "float8_e8m0fnu",
}


def nptype(trt_type: DataType) -> Any:
    """The NumPy scalar type of a DataType; TypeError where NumPy has none."""
    import numpy as np

    name = _NUMPY_NAMES.get(enumerator(DataType, trt_type, "nptype: trt_type"))
    if name is None:
        raise TypeError(f"NumPy has no type for {trt_type}")
    return np.bool_ if name == "bool" else getattr(np, name)


def storage_type(dtype: DataType) -> Any:
    """Like nptype, but with ml_dtypes' types for those that NumPy lacks, or bytes
    without ml_dtypes."""
    import numpy as np

    if dtype in _NUMPY_NAMES:
        return np.dtype(nptype(dtype))
    name = _ML_DTYPES_NAMES.get(dtype)
    if name is not None:
        try:
            import ml_dtypes
        except ImportError:
            return np.dtype(np.uint16 if dtype is DataType.BF16 else np.uint8)
        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(np.uint8)


def dtype_of(value: Any, what: str = "") -> DataType:
    """DataType of a NumPy dtype, a NumPy or torch type, or a DataType; `what` names it in
    errors."""
    if isinstance(value, DataType):
        return value
    try:
        name = str(getattr(value, "name", None) or value).removeprefix("torch.")
    except Exception:  # a class of users
        name = ""
    if isinstance(value, type):
        name = value.__name__
    name = {"bool_": "bool", "float": "float32", "half": "float16"}.get(name, name)
    if name in _DTYPES:
        return _DTYPES[name]
    for dtype, other in _ML_DTYPES_NAMES.items():
        if name == other:
            return dtype
    raise TypeError(
        f"{what}{': ' if what else ''}no DataType for {shown(value)}; there are "
        + ", ".join([*_DTYPES, *_ML_DTYPES_NAMES.values()])
    )


def is_torch(value: Any) -> bool:
    """Whether a value is a torch tensor; does not import torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def as_numpy(value: Any) -> npt.NDArray[Any]:
    """A NumPy view of a CPU array of any library, without a copy."""
    import numpy as np

    if isinstance(value, np.ndarray):
        return value
    if is_torch(value):
        return value.detach().cpu().numpy()
    return np.asarray(value)


def from_bytes(
    dtype: DataType, data: bytes | bytearray, shape: Any = -1
) -> np.ndarray[Any, Any]:
    """Array of row-major elements."""
    import numpy as np

    return np.frombuffer(data, storage_type(dtype)).reshape(shape)
