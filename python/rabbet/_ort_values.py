"""OrtValue and IOBinding of ONNX Runtime's interface: values on a device, and the values
that a session reads and writes."""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Sequence
from typing import Any

from . import _rabbet
from ._arrays import dtype_of, from_bytes, storage_type
from ._builder import Builder
from ._engine import ICudaEngine
from ._enums import DataType
from ._errors import Error, InvalidArgumentError
from ._runtime import Runtime

# Of each type: ONNX's name and number.
_ONNX_TYPES = {
    DataType.FLOAT: ("tensor(float)", 1),
    DataType.UINT8: ("tensor(uint8)", 2),
    DataType.INT8: ("tensor(int8)", 3),
    DataType.INT32: ("tensor(int32)", 6),
    DataType.INT64: ("tensor(int64)", 7),
    DataType.BOOL: ("tensor(bool)", 9),
    DataType.HALF: ("tensor(float16)", 10),
    DataType.DOUBLE: ("tensor(double)", 11),
    DataType.BF16: ("tensor(bfloat16)", 16),
    DataType.FP8: ("tensor(float8e4m3fn)", 17),
    DataType.E8M0: ("tensor(float8e8m0)", 24),
}
_NUMBERS = {number: dtype for dtype, (_, number) in _ONNX_TYPES.items()}


def onnx_type(dtype: DataType) -> str:
    """ONNX's name of a type, such as "tensor(float)"."""
    return _ONNX_TYPES[dtype][0]


def _element_type(given: Any) -> DataType:
    """The type that a NumPy type or ONNX's number means."""
    if not isinstance(given, int):
        return dtype_of(given, "element_type")
    if given not in _NUMBERS:
        raise TypeError(
            f"element_type: ONNX's type {given} has no DataType; there are "
            + ", ".join(f"{n} ({onnx_type(t)})" for n, t in _NUMBERS.items())
        )
    return _NUMBERS[given]


def device_name(device_type: str, device_id: int = 0) -> str:
    """Our name of a device: "cpu" or "cuda:N"."""
    kind = device_type.lower()
    if kind not in ("cpu", "cuda", "gpu"):
        raise InvalidArgumentError(
            f"device_type is {device_type!r}; expected 'cpu' or 'cuda'"
        )
    return "cpu" if kind == "cpu" else f"cuda:{device_id}"


@functools.cache
def _memory_of(device: str) -> ICudaEngine:
    """A plan that does nothing, since memory of a GPU belongs to an engine."""
    builder = Builder()
    network = builder.create_network()
    x = network.add_input("x", DataType.FLOAT, (1,))
    network.mark_output(network.add_identity(x).get_output(0))
    config = builder.create_builder_config()
    config.device = device
    config.builder_optimization_level = 0
    runtime = Runtime()
    runtime.device = device
    return runtime.deserialize_cuda_engine(
        builder.build_serialized_network(network, config)
    )


def has_device(device: str) -> bool:
    """Whether "cpu" or a GPU is there."""
    try:
        return device == "cpu" or _memory_of(device) is not None
    except (Error, ValueError):
        return False


class _Memory:
    """Memory of a caller's on a GPU, as an array."""

    def __init__(self, address: int, dtype: DataType, shape: tuple[int, ...]) -> None:
        self.data_ptr, self.dtype, self.shape = address, dtype, shape
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "shape": shape,
            "typestr": storage_type(dtype).str,
            "version": 3,
            "stream": 1,
        }


def _host_memory(address: int, dtype: DataType, shape: tuple[int, ...]) -> Any:
    """NumPy's view of a caller's memory."""
    import numpy as np

    size = math.prod(shape) * storage_type(dtype).itemsize
    memory = (ctypes.c_byte * size).from_address(address)
    return np.frombuffer(memory, storage_type(dtype)).reshape(shape)


class OrtValue:
    """An array on the CPU or a GPU.

    On the CPU it shares the memory of the NumPy array that it was made from.
    """

    def __init__(self, array: Any, device: str = "cpu") -> None:
        self._array, self._device = array, device

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: Any, device_type: str = "cpu", device_id: int = 0
    ) -> OrtValue:
        """From a NumPy array, which is copied for a GPU."""
        import numpy as np

        device = device_name(device_type, device_id)
        array = np.asarray(numpy_obj)
        dtype = dtype_of(array.dtype, "ortvalue_from_numpy")
        if device == "cpu":
            return cls(array)
        value = cls.ortvalue_from_shape_and_type(
            array.shape, dtype, device_type, device_id
        )
        value.update_inplace(array)
        return value

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: Any,
        device_type: str = "cpu",
        device_id: int = 0,
    ) -> OrtValue:
        """With memory that nothing was written to."""
        import numpy as np

        device = device_name(device_type, device_id)
        dtype, extents = _element_type(element_type), tuple(shape)
        if device == "cpu":
            return cls(np.empty(extents, storage_type(dtype)))
        array = _rabbet.device_array(_memory_of(device), int(dtype), extents)
        return cls(array, device)

    @classmethod
    def from_dlpack(cls, data: Any) -> OrtValue:
        """From an array of another library, which is not copied."""
        import numpy as np

        kind, number = data.__dlpack_device__()
        if int(kind) == 1:
            return cls(np.from_dlpack(data))
        return cls(data, device_name("cuda", int(number)))

    def numpy(self) -> Any:
        """The elements, copied from a GPU."""
        import numpy as np

        if self._device == "cpu":
            return self._array
        data = _rabbet.copy_to_host(
            _memory_of(self._device), self.data_ptr(), self.tensor_size_in_bytes(), 0
        )
        return np.array(from_bytes(self._dtype(), data, tuple(self.shape())))

    def update_inplace(self, np_arr: Any) -> None:
        """Writes the elements; their type and shape stay."""
        import numpy as np

        array = np.asarray(np_arr)
        found = (dtype_of(array.dtype, "update_inplace"), list(array.shape))
        if found != (self._dtype(), self.shape()):
            raise InvalidArgumentError(
                f"update_inplace: the value is {self.data_type()} {self.shape()}, got "
                f"{onnx_type(found[0])} {found[1]}"
            )
        if self._device == "cpu":
            self._array[...] = array
            return
        engine = _memory_of(self._device)
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        _rabbet.copy_to_device(engine, self.data_ptr(), data, 0)
        _rabbet.synchronize(engine, 0)

    def _dtype(self) -> DataType:
        return dtype_of(self._array.dtype)

    def shape(self) -> list[int]:
        """The shape."""
        return list(self._array.shape)

    def data_type(self) -> str:
        """ONNX's name of the type, such as "tensor(float)"."""
        return onnx_type(self._dtype())

    def element_type(self) -> int:
        """ONNX's number of the elements' type."""
        return _ONNX_TYPES[self._dtype()][1]

    def device_name(self) -> str:
        """ "cpu" or "cuda"."""
        return self._device.partition(":")[0]

    def data_ptr(self) -> int:
        """Address of the memory."""
        if self._device == "cpu":
            return int(self._array.ctypes.data)
        pointer = self._array.data_ptr
        return int(pointer() if callable(pointer) else pointer)

    def tensor_size_in_bytes(self) -> int:
        """Size of the memory."""
        return math.prod(self.shape()) * storage_type(self._dtype()).itemsize

    def has_value(self) -> bool:
        """Always True: optional values are not among a session's results."""
        return True

    def is_tensor(self) -> bool:
        """Always True."""
        return True

    def is_sparse_tensor(self) -> bool:
        """Always False."""
        return False

    def is_tensor_sequence(self) -> bool:
        """Always False."""
        return False

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self._array.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        import numpy as np

        return np.asarray(self.numpy(), dtype)


class IOBinding:
    """Inputs and outputs of runs of a session, by name.

    An output that is bound to a device without memory gets memory of its own in each run.
    """

    def __init__(self, session: Any) -> None:
        self._session = session
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, tuple[str, Any]] = {}
        self._results: list[OrtValue] = []

    # ---- Inputs ----

    def _take_input(self, name: str, array: Any) -> None:
        self._session._check_name(name, "input")
        self._inputs[name] = array

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Binds an input to a NumPy array."""
        self._take_input(name, arr_on_cpu)

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Binds an input to a value."""
        self._take_input(name, ortvalue._array)

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: Any,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Binds an input to memory, which must stay."""
        dtype, extents = _element_type(element_type), tuple(shape)
        on_host = device_name(device_type, device_id) == "cpu"
        view = _host_memory if on_host else _Memory
        self._take_input(name, view(buffer_ptr, dtype, extents))

    def synchronize_inputs(self) -> None:
        """Without effect: inputs are ordered before the run by the libraries that made
        them."""

    def clear_binding_inputs(self) -> None:
        """Forgets the inputs."""
        self._inputs.clear()

    # ---- Outputs ----

    def _take_output(self, name: str, device: str, array: Any) -> None:
        self._session._check_name(name, "output")
        self._outputs[name] = device, array

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Binds an output to memory, or, without buffer_ptr, to a device."""
        device = device_name(device_type, device_id)
        if buffer_ptr is None:
            self._take_output(name, device, None)
            return
        if element_type is None or shape is None:
            raise InvalidArgumentError(
                f"bind_output: output '{name}' has a buffer_ptr; its element_type and "
                "shape are needed as well"
            )
        view = _host_memory if device == "cpu" else _Memory
        array = view(buffer_ptr, _element_type(element_type), tuple(shape))
        self._take_output(name, device, array)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Binds an output to a value."""
        self._take_output(name, ortvalue._device, ortvalue._array)

    def synchronize_outputs(self) -> None:
        """Waits for the outputs."""
        self._session._wait()

    def clear_binding_outputs(self) -> None:
        """Forgets the outputs."""
        self._outputs.clear()

    def get_outputs(self) -> list[OrtValue]:
        """The outputs of the last run, in the order in which they were bound."""
        return list(self._results)

    def copy_outputs_to_cpu(self) -> list[Any]:
        """The outputs of the last run as NumPy arrays."""
        return [value.numpy() for value in self._results]

    # ---- A run ----

    def _run(self, model: Any) -> None:
        """Runs with what is bound."""
        import numpy as np

        if not self._outputs:
            raise InvalidArgumentError(
                "run_with_iobinding: no output is bound; bind_output() binds one"
            )
        device = model.engine.device or "cpu"
        on_gpu = any(where != "cpu" for where, _ in self._outputs.values())
        inputs = {
            name: _on_device(array, device) if on_gpu else array
            for name, array in self._inputs.items()
        }
        names = [info.name for info in model.outputs]
        given = [self._outputs.get(name, ("cpu", None)) for name in names]
        if all(array is not None for _, array in given):
            model(**inputs, out=tuple(array for _, array in given))
            results = dict(zip(names, (array for _, array in given), strict=True))
        else:
            results = model.run(inputs)
        self._results = []
        for name, (where, array) in self._outputs.items():
            found = results[name]
            at = device if hasattr(found, "data_ptr") else "cpu"
            value = OrtValue(found, at)
            if array is not None and array is not found:
                target = OrtValue(array, where)
                _copy(value, target)
                value = target
            elif where == "cpu" and at != "cpu":
                value = OrtValue(value.numpy())
            elif where != "cpu" and at == "cpu":
                value = OrtValue.ortvalue_from_numpy(
                    np.asarray(found), "cuda", int(where.partition(":")[2] or 0)
                )
            self._results.append(value)


def _copy(value: OrtValue, target: OrtValue) -> None:
    if isinstance(target._array, _Memory):
        raise InvalidArgumentError(
            "run_with_iobinding: some outputs are bound to memory of a GPU and others are "
            "not; bind all outputs to memory, or these to a device alone"
        )
    target.update_inplace(value.numpy())


def _on_device(array: Any, device: str) -> Any:
    """The array on the model's device, for outputs that stay there."""
    import numpy as np

    if device == "cpu" or not isinstance(array, np.ndarray):
        return array
    number = int(device.partition(":")[2] or 0)
    return OrtValue.ortvalue_from_numpy(array, "cuda", number)._array
