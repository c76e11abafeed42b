"""Arguments of models that are not simply used: copies, other libraries, errors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from ._arrays import dtype_of, is_torch, nptype, storage_type
from ._enums import DataType, TensorFormat
from ._runtime import IoInfo


def _type_name(dtype: DataType) -> str:
    return str(storage_type(dtype)) if dtype is not DataType.BF16 else "bfloat16"


def _same_type(found: Any, info: IoInfo) -> bool:
    try:
        return getattr(found, "isnative", True) and dtype_of(found) is info.dtype
    except TypeError:
        return False


def _check_type(found: Any, info: IoInfo, how: str) -> None:
    if not _same_type(found, info):
        wanted = _type_name(info.dtype)
        raise TypeError(
            f"input '{info.name}' is {found}, the model takes {wanted}; convert it: "
            + how.format(wanted)
        )


def _check_linear(info: IoInfo) -> None:
    if info.format is not TensorFormat.LINEAR:
        raise NotImplementedError(
            f"'{info.name}' is in {info.format}: use the object interface "
            "(set_tensor_address), which takes memory in that format"
        )


def _torch_input(value: Any, info: IoInfo, device: str) -> Any:
    import torch

    if value.device.type != "cpu":
        raise TypeError(
            f"input '{info.name}' is on {value.device}, the model runs on {device}; "
            "pass x.cpu()" + ("" if device == "cpu" else f", or x.to('{device}')")
        )
    _check_type(value.dtype, info, "x.to(torch.{})")
    tensor = value.detach().contiguous()
    if tensor.dtype in (torch.bfloat16,):
        tensor = tensor.view(torch.int16)
    return tensor.numpy()


def _plain_input(value: Any, info: IoInfo) -> Any:
    """Lists and numbers, which have no type of their own."""
    import numpy as np

    wanted = np.dtype(nptype(info.dtype))
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"input '{info.name}': {error}") from None
    if array.dtype == object or not np.can_cast(array.dtype, wanted, "same_kind"):
        raise TypeError(
            f"input '{info.name}': {type(value).__name__} of {array.dtype}, the model "
            f"takes {wanted}"
        )
    return array.astype(wanted)


def _exporter(value: Any) -> Callable[[Any], Any] | None:
    """Makes arrays of the library that `value` is from of NumPy arrays."""
    namespace = getattr(value, "__array_namespace__", None)
    if namespace is not None:
        return getattr(namespace(), "from_dlpack", None)
    module = sys.modules.get(type(value).__module__.partition(".")[0])
    return getattr(module, "from_dlpack", None)


def _foreign_input(value: Any, info: IoInfo, on: str) -> tuple[Any, Any]:
    import numpy as np

    finish = None
    if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray):
        device = value.__dlpack_device__()
        if int(device[0]) != 1:
            raise TypeError(
                f"input '{info.name}' is on DLPack device {tuple(device)}, the model "
                f"runs on {on}; copy it there"
            )
        array = np.from_dlpack(value)
        finish = _exporter(value)
    else:
        array = np.asarray(value)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    _check_type(array.dtype, info, "x.astype({!r})")
    return array, finish


def _number(device: str) -> int:
    return int(device.partition(":")[2] or 0)


def _cupy_maker(outputs: Sequence[IoInfo]) -> Callable[..., Any]:
    import cupy

    def make(index: int, shape: tuple[int, ...]) -> tuple[Any, int]:
        array = cupy.empty(shape, storage_type(outputs[index].dtype))
        return array, array.data.ptr

    return make


def device_input(
    value: Any, info: IoInfo, device: str, outputs: Sequence[IoInfo]
) -> tuple[int, tuple[int, ...], Any, Any, int] | None:
    """(address, shape, maker of outputs, what holds the memory, stream) of an array
    that lies on the model's GPU; None for others. The maker is None for torch."""
    if device == "cpu":
        return None
    if is_torch(value):
        if str(value.device) != device and not (
            value.device.type == "cuda" and value.device.index == _number(device)
        ):
            return None
        _check_linear(info)
        _check_type(value.dtype, info, "x.to(torch.{})")
        tensor = value.detach().contiguous()
        return tensor.data_ptr(), tuple(tensor.shape), None, tensor, 0
    if sys.modules.get("cupy") is None or not hasattr(value, "__cuda_array_interface__"):
        return None
    import cupy

    array = cupy.asarray(value)
    if array.device.id != _number(device):
        return None
    _check_linear(info)
    _check_type(array.dtype, info, "x.astype({!r})")
    array = cupy.ascontiguousarray(array)
    stream = cupy.cuda.get_current_stream(array.device.id).ptr
    return array.data.ptr, tuple(array.shape), _cupy_maker(outputs), array, stream


def convert_input(
    value: Any, info: IoInfo, device: str = "cpu"
) -> tuple[Any, tuple[int, ...], Any]:
    """(row-major buffer of the right type, shape, what makes outputs of it)."""
    import numpy as np

    _check_linear(info)
    finish = None
    if is_torch(value):
        array = _torch_input(value, info, device)
    elif isinstance(value, (list, tuple, int, float, bool, np.generic)):
        array = _plain_input(value, info)
    elif value is None or isinstance(value, (str, dict, set)):
        raise TypeError(f"input '{info.name}' is {value!r}; an array is expected")
    else:
        array, finish = _foreign_input(value, info, device)
    shape = tuple(array.shape)
    usable = np.require(array, requirements=("C", "A"))
    return usable.reshape(-1).view(np.uint8), shape, finish


def torch_dtype(dtype: DataType) -> Any:
    """torch's name for a type."""
    import torch

    return getattr(torch, _type_name(dtype))


def create_output(info: IoInfo, shape: tuple[int, ...]) -> tuple[Any, int]:
    """A fresh NumPy array and its address."""
    import numpy as np

    array = np.empty(shape, storage_type(info.dtype))
    return array, array.ctypes.data


def take_output(
    array: Any, info: IoInfo, shape: tuple[int, ...], device: str = "cpu"
) -> tuple[Any, int, bool]:
    """The address of an array that the caller gave to be filled, and whether it is
    one of the model's GPU."""
    _check_linear(info)
    if -1 in shape:
        raise ValueError(
            f"out: the shape of output '{info.name}' is known only after the run; "
            "leave "
            "out= away"
        )
    if not hasattr(array, "shape") or not (is_torch(array) or hasattr(array, "ctypes")):
        raise TypeError(
            f"out: expected a NumPy array or a torch tensor for output '{info.name}', "
            f"got {array!r}"
        )
    if tuple(array.shape) != shape or not _same_type(array.dtype, info):
        raise ValueError(
            f"out: output '{info.name}' is {_type_name(info.dtype)} {shape}, got "
            f"{array.dtype} {tuple(array.shape)}"
        )
    if is_torch(array):
        here = array.device.type == "cuda" and array.device.index == _number(device)
        on_device = device != "cpu" and here
        if not (on_device or array.device.type == "cpu") or not array.is_contiguous():
            where = "the CPU" if device == "cpu" else f"{device} or the CPU"
            raise ValueError(
                f"out: the tensor for output '{info.name}' must be row-major and on "
                + where
            )
        return array, array.data_ptr(), on_device
    if not (array.flags.c_contiguous and array.flags.writeable):
        raise ValueError(
            f"out: the array for output '{info.name}' must be row-major and writable"
        )
    return array, array.ctypes.data, False
