"""A rank's part of a constant."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np

from ._axes import Atom, has, leaves, local_indices, local_size, size_of
from ._graph import Tensor


def part_problem(tensor: Tensor, atom: Atom, ranks: int) -> str | None:
    """Why no part can be taken of a constant; None if it can."""
    if float(tensor.dtype.itemsize) >= 1 or not has(tensor.axes[-1], atom):
        return None
    inner = 1
    for leaf in reversed(leaves(tensor.axes[-1])):
        if leaf is atom:
            inner *= leaf.size[0] // ranks
            break
        inner *= leaf.size[0]
    if inner % 2 == 0 and size_of(tensor.axes[-1])[0] % 2 == 0:
        return None
    return f"a part of '{tensor.name}' would begin inside of a byte"


def _array(tensor: Tensor) -> tuple[Any, Any, bool]:
    """(data type, elements as numbers without a sign, whether these are pairs)"""
    dtype, address, size = tensor.object._weights_at()
    shape = [extent[0] for extent in tensor.extents]
    block: Any = (ctypes.c_char * size).from_address(address) if size else b""
    is_packed = float(dtype.itemsize) < 1
    if is_packed:
        shape[-1] //= 2
    width = 1 if is_packed else int(dtype.itemsize)
    data = np.frombuffer(block, np.dtype(f"u{width}")).reshape(shape)
    return dtype, data, is_packed


def part(
    tensor: Tensor, atom: Atom, ranks: int, rank: int
) -> tuple[Any, Any, list[int]]:
    """(data type, array of numbers without a sign, shape) of a rank's part: a view of
    the constant where it lies in one piece."""
    dtype, data, is_packed = _array(tensor)
    shape = [local_size(axis, atom, ranks)[0] for axis in tensor.axes]
    for at, axis in enumerate(tensor.axes):
        if not has(axis, atom):
            continue
        index = local_indices(axis, atom, ranks, rank)
        if is_packed and at == len(tensor.axes) - 1:
            index = index[::2] // 2
        if len(index) and index[-1] - index[0] == len(index) - 1:
            data = data[(slice(None),) * at + (slice(index[0], index[-1] + 1),)]
        else:
            data = np.take(data, index, at)
    return dtype, np.ascontiguousarray(data), shape


def zeros(tensor: Tensor) -> tuple[Any, Any, list[int]]:
    """Zeros in the place of a constant."""
    dtype = tensor.object._weights_at()[0]
    shape = [extent[0] for extent in tensor.extents]
    count = math.ceil(math.prod(shape) * float(dtype.itemsize))
    return dtype, np.zeros(count, np.uint8), shape
