"""Arguments of models that need conversion: copies, arrays of other libraries,
errors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from ._arrays import dtype_of, is_torch, nptype, storage_type
from ._device_arrays import (
    UNREADABLE,
    CuPyMaker,
    DLPackMaker,
    Found,
    find,
    is_cupy,
    same_type,
)
from ._engine import ICudaEngine
from ._engine_tensors import IoInfo
from ._enums import DataType, TensorFormat


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
    # NumPy lacks these types: their bits are lent.
    if tensor.dtype is torch.bfloat16:
        tensor = tensor.view(torch.int16)
    elif tensor.dtype.is_floating_point and tensor.itemsize == 1:
        tensor = tensor.view(torch.uint8)
    return tensor.numpy()


def _plain_input(value: Any, info: IoInfo) -> Any:
    """NumPy array of a list or number, which has no type of its own."""
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


def exporter(value: Any) -> Callable[[Any], Any] | None:
    """Function from NumPy arrays to arrays of the library of `value`."""
    namespace = getattr(value, "__array_namespace__", None)
    if namespace is not None:
        library = namespace()
    else:
        library = sys.modules.get(type(value).__module__.partition(".")[0])
    from_dlpack = getattr(library, "from_dlpack", None)
    if from_dlpack is None:
        return None

    def export(array: Any) -> Any:
        try:
            return from_dlpack(array)
        except BufferError:  # types that NumPy's DLPack lacks, such as BF16
            return library.asarray(array)

    return export


def _imported(value: Any) -> Any:
    """NumPy view of an array in host memory, without a copy."""
    import numpy as np

    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError):  # read-only, or a type that NumPy lacks
        return np.asarray(value)


def _foreign_input(value: Any, info: IoInfo, on: str) -> tuple[Any, Any]:
    import numpy as np

    finish = None
    if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray):
        array, device = _read(value, info)
        if device is not None:
            raise TypeError(
                f"input '{info.name}' is on DLPack device {device}, the model "
                f"runs on {on}; copy it there"
            )
        finish = exporter(value)
    else:
        array = np.asarray(value)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    # JAX truncates 64-bit types to 32 bits unless configured otherwise.
    narrows = _is_jax(value) and info.dtype is DataType.INT64
    how = "numpy.asarray(x, {!r})" if narrows else "x.astype({!r})"
    _check_type(array.dtype, info, how)
    return array, finish


def _read(value: Any, info: IoInfo) -> tuple[Any, tuple[int, int] | None]:
    """NumPy view of a DLPack array; or its device, if that is not the host."""
    try:
        kind, number = value.__dlpack_device__()
        if int(kind) != 1:
            return None, (int(kind), int(number))
        return _imported(value), None
    except UNREADABLE as error:
        raise TypeError(
            f"input '{info.name}' is not an array that can be read, but a "
            f"{type(value).__name__}: {error}"
        ) from error


def _number(device: str) -> int:
    return int(device.partition(":")[2] or 0)


def _is_here(tensor: Any, device: str) -> bool:
    """Whether a torch tensor is on the model's GPU."""
    return tensor.device.type == "cuda" and tensor.device.index == _number(device)


def _wrong_gpu(what: str, where: str, device: str) -> str:
    return f"{what} is on {where}, the model runs on {device}; copy it there"


def device_input(
    value: Any, info: IoInfo, engine: ICudaEngine, outputs: Sequence[IoInfo]
) -> tuple[int, tuple[int, ...], Any, Any, int] | None:
    """(address, shape, maker of outputs, owner of the memory, stream) of an array on
    the model's GPU; None for arrays on the host and for torch tensors elsewhere. The
    maker is None for torch."""
    device = engine.device or "cpu"
    if is_torch(value):
        if device == "cpu" or not _is_here(value, device):
            return None
        _check_linear(info)
        _check_type(value.dtype, info, "x.to(torch.{})")
        tensor = value.detach().contiguous()
        return tensor.data_ptr(), tuple(tensor.shape), None, tensor, 0
    found = find(value, -1 if device == "cpu" else _number(device))
    if found is None:
        return None
    if device == "cpu" or found.device != _number(device):
        where = "a GPU" if device == "cpu" else f"cuda:{found.device}"
        raise TypeError(_wrong_gpu(f"input '{info.name}'", where, device))
    _check_linear(info)
    _check_found(found, info)
    if is_cupy(value):
        maker: Any = CuPyMaker(outputs)
        if not found.row_major:
            found = _row_major(value)
    else:
        maker = DLPackMaker(engine, outputs, exporter(value))
    if not found.row_major:
        raise ValueError(
            f"input '{info.name}' is not row-major, and Rabbet cannot copy arrays of "
            f"{type(value).__module__.partition('.')[0]}; make a contiguous copy"
        )
    return found.address, found.shape, maker, found.holder, found.stream


def _row_major(array: Any) -> Found:
    """Row-major copy of a CuPy array."""
    import cupy

    found = find(cupy.ascontiguousarray(array), array.device.id)
    assert found is not None
    return found


def _check_found(found: Found, info: IoInfo) -> None:
    if not same_type(found, info):
        dtype = found.dtype
        name = _type_name(dtype) if isinstance(dtype, DataType) else str(dtype)
        wanted = _type_name(info.dtype)
        raise TypeError(
            f"input '{info.name}' is {name}, the model takes {wanted}; convert it: "
            f"x.astype({wanted!r})"
        )


def convert_input(
    value: Any, info: IoInfo, device: str = "cpu"
) -> tuple[Any, tuple[int, ...], Any]:
    """(row-major buffer of the right type, shape, maker of outputs)."""
    import numpy as np

    _check_linear(info)
    finish = None
    if is_torch(value):
        array = _torch_input(value, info, device)
    elif isinstance(value, (list, tuple, int, float, bool, np.generic)):
        array = _plain_input(value, info)
    elif isinstance(value, dict):
        raise TypeError(
            f"input '{info.name}' is a dict; an array is expected: a dict of inputs is "
            "for model.run(inputs), or model(**inputs)"
        )
    elif value is None or isinstance(value, (str, set)):
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
    """A new NumPy array and its address."""
    import numpy as np

    array = np.empty(shape, storage_type(info.dtype))
    return array, array.ctypes.data


def _check_out(
    info: IoInfo, shape: tuple[int, ...], got: Any, dtype: Any, same_type: bool
) -> None:
    if tuple(got) != shape or not same_type:
        raise ValueError(
            f"out: output '{info.name}' is {_type_name(info.dtype)} {shape}, got "
            f"{dtype} {tuple(got)}"
        )


def _torch_out(array: Any, info: IoInfo, device: str) -> tuple[Any, int, bool, int]:
    import torch

    on_device = device != "cpu" and _is_here(array, device)
    if not (on_device or array.device.type == "cpu") or not array.is_contiguous():
        where = "the CPU" if device == "cpu" else f"{device} or the CPU"
        raise ValueError(
            f"out: the tensor for output '{info.name}' must be row-major and on " + where
        )
    stream = torch.cuda.current_stream(array.device).cuda_stream if on_device else 0
    return array, array.data_ptr(), on_device, stream


def _device_out(
    array: Any, found: Found, info: IoInfo, shape: tuple[int, ...], device: str
) -> tuple[Any, int, bool, int]:
    if device == "cpu" or found.device != _number(device):
        where = "a GPU" if device == "cpu" else f"cuda:{found.device}"
        raise ValueError(_wrong_gpu(f"out: the array for '{info.name}'", where, device))
    _check_out(info, shape, found.shape, found.dtype, same_type(found, info))
    if not found.row_major or found.read_only:
        raise ValueError(
            f"out: the array for output '{info.name}' must be row-major and writable"
        )
    return array, found.address, True, found.stream


def _is_jax(array: Any) -> bool:
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(array, jax.Array)


def take_output(
    array: Any, info: IoInfo, shape: tuple[int, ...], device: str = "cpu"
) -> tuple[Any, int, bool, int]:
    """For an array given as out=: its address, whether it is on the model's GPU, and
    the stream that its library uses."""
    _check_linear(info)
    if -1 in shape:
        raise ValueError(
            f"out: the shape of output '{info.name}' is known only after the run; "
            "omit out="
        )
    if _is_jax(array):
        raise TypeError(
            f"out: arrays of JAX cannot be written (output '{info.name}'); omit out="
        )
    if is_torch(array) or hasattr(array, "ctypes"):
        same = _same_type(array.dtype, info)
        _check_out(info, shape, array.shape, array.dtype, same)
        if is_torch(array):
            return _torch_out(array, info, device)
        if not (array.flags.c_contiguous and array.flags.writeable):
            raise ValueError(
                f"out: the array for output '{info.name}' must be row-major and writable"
            )
        return array, array.ctypes.data, False, 0
    found = find(array, -1 if device == "cpu" else _number(device))
    if found is None:
        raise TypeError(
            "out: expected an array of NumPy, torch, CuPy or one with the CUDA array "
            f"interface for output '{info.name}', got {array!r}"
        )
    return _device_out(array, found, info, shape, device)
