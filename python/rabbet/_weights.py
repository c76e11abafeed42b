"""Weights: constants of a network."""

from __future__ import annotations

import ctypes
import math
import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ._arrays import as_numpy, dtype_of, storage_type
from ._dims import volume
from ._enums import DataType
from ._flags import shown

if TYPE_CHECKING:
    import numpy as np


class Weights:
    """An array of constants of one type.

    Weights(array) references the array's memory; Weights(dtype, address, count) uses
    memory that the caller keeps; Weights(dtype) is empty.
    """

    _bytes: ctypes.Array[ctypes.c_char]

    def __init__(
        self,
        type: Any = DataType.FLOAT,
        ptr: int | None = None,
        count: int = 0,
        a: Any = None,
    ) -> None:
        if a is not None:
            type = a
        self._array: np.ndarray[Any, Any] | None = None
        if isinstance(type, DataType):
            self._dtype = type
            self._address, self._size = operator.index(ptr or 0), operator.index(count)
            if self._size < 0 or (self._size > 0 and self._address <= 0):
                raise ValueError(
                    f"Weights: {count} elements at address {ptr}; expected an address, "
                    "and a count of 0 or more"
                )
            return
        import numpy as np

        array = as_numpy(type)
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        self._array = np.ascontiguousarray(array)
        self._dtype = dtype_of(self._array.dtype)
        self._address = self._array.ctypes.data
        self._size = self._array.size

    @classmethod
    def _prototype(cls, dtype: DataType, dims: Iterable[int]) -> Weights:
        """Required type and count of weights, without data."""
        self = cls(dtype)
        self._size = volume(dims)
        return self

    @classmethod
    def _of_bytes(cls, dtype: DataType, data: bytes) -> Weights:
        """Weights of any type, including those that NumPy lacks."""
        self = cls(dtype)
        self._bytes = ctypes.create_string_buffer(data, len(data))
        self._address = ctypes.addressof(self._bytes)
        self._size = int(len(data) / dtype.itemsize)
        return self

    @property
    def dtype(self) -> DataType:
        """Type of the elements."""
        return self._dtype

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._size

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return math.ceil(self._size * self._dtype.itemsize)

    def numpy(self) -> np.ndarray[Any, Any]:
        """NumPy view of the memory."""
        import numpy as np

        if self._array is not None:
            return self._array
        if self._size == 0 or not self._address:
            return np.empty(0, storage_type(self._dtype))
        block: Any = (ctypes.c_char * self.nbytes).from_address(self._address)
        return np.frombuffer(block, storage_type(self._dtype))

    def _row_major(self) -> np.ndarray[Any, Any]:
        """Its bytes, row by row; a copy only where elements do not lie so."""
        import numpy as np

        return np.ascontiguousarray(self.numpy()).reshape(-1).view(np.uint8)

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        return f"Weights({self._dtype}, {self._size} elements)"


def to_weights(value: Any, what: str) -> Weights:
    """Converts a value to Weights; errors contain `what`."""
    if isinstance(value, Weights):
        return value
    if value is None:
        return Weights()
    try:
        return Weights(value)
    except TypeError as error:
        raise TypeError(f"{what}: {error}") from None
    except ValueError as error:  # lists of several lengths
        raise TypeError(
            f"{what}: expected an array, got {shown(value)}: {error}"
        ) from None
