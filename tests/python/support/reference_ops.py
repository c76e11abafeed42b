"""Runs one operator's reference kernel, by ctypes: `evaluate` and `OpError`."""

from __future__ import annotations

import ctypes as ct
import functools
import os
from pathlib import Path

import ml_dtypes
import numpy as np

ROOT = Path(__file__).resolve().parents[3]

# Numbers of rabbet_dtype_t.
DTYPES = {
    np.dtype(np.float32): 0,
    np.dtype(np.float16): 1,
    np.dtype(np.int8): 2,
    np.dtype(np.int32): 3,
    np.dtype(np.bool_): 4,
    np.dtype(np.uint8): 5,
    np.dtype(ml_dtypes.float8_e4m3fn): 6,
    np.dtype(ml_dtypes.bfloat16): 7,
    np.dtype(np.int64): 8,
}
BY_NUMBER = {number: dtype for dtype, number in DTYPES.items()}
INT, FLOAT, BOOL, STRING, INTS, FLOATS, TENSOR = 1, 2, 3, 4, 6, 7, 10
MAX_RANK = 8


class Dims(ct.Structure):
    _fields_ = [("rank", ct.c_int32), ("d", ct.c_int64 * MAX_RANK)]


class Attr(ct.Structure):
    _fields_ = [
        ("name", ct.c_char_p),
        ("type", ct.c_int),
        ("data", ct.c_void_p),
        ("count", ct.c_size_t),
        ("dtype", ct.c_int),
        ("dims", Dims),
        ("reserved", ct.c_uint64 * 2),
    ]


class View(ct.Structure):
    _fields_ = [
        ("data", ct.c_void_p),
        ("dtype", ct.c_int),
        ("format", ct.c_int),
        ("dims", Dims),
    ]


class Allocator(ct.Structure):
    _fields_ = [("self", ct.c_void_p), ("resize", ct.c_void_p)]


class OpError(Exception):
    """The library's message."""


@functools.cache
def library():
    folder = Path(os.environ.get("RABBET_BUILD_DIR", ROOT / "build"))
    lib = ct.CDLL(str(folder / "lib" / "librabbet_runtime.so"))
    lib.rabbet_allocator_system.restype = Allocator
    lib.rabbet_op_evaluate.restype = ct.c_void_p
    lib.rabbet_op_evaluate.argtypes = [
        ct.c_char_p,
        ct.POINTER(Attr),
        ct.c_size_t,
        ct.POINTER(View),
        ct.c_size_t,
        Allocator,
        ct.POINTER(View),
    ]
    lib.rabbet_status_message.restype = ct.c_char_p
    lib.rabbet_status_message.argtypes = [ct.c_void_p]
    lib.rabbet_status_free.argtypes = [ct.c_void_p]
    lib.rabbet_free_aligned.argtypes = [Allocator, ct.c_void_p, ct.c_size_t]
    return lib


def dims_of(shape):
    return Dims(len(shape), (ct.c_int64 * MAX_RANK)(*shape))


def attr_of(name, value):
    """An attribute, and what must outlive it."""
    attr = Attr(name=name.encode(), count=1)
    if isinstance(value, np.ndarray):
        attr.type, keep = TENSOR, np.asarray(value, order="C")
        attr.dtype, attr.dims = DTYPES[value.dtype], dims_of(value.shape)
        attr.count, attr.data = value.size, keep.ctypes.data
    elif isinstance(value, str):
        attr.type, keep = STRING, ct.create_string_buffer(value.encode())
        attr.count, attr.data = len(value.encode()), ct.addressof(keep)
    else:
        kinds = {bool: (BOOL, np.int64), int: (INT, np.int64), float: (FLOAT, float)}
        floats = not np.isscalar(value) and any(isinstance(v, float) for v in value)
        lists = (FLOATS, float) if floats else (INTS, np.int64)
        attr.type, dtype = kinds.get(type(value), lists)
        keep = np.atleast_1d(np.array(value, dtype))
        attr.count, attr.data = keep.size, keep.ctypes.data
    return attr, keep


def view_of(array):
    if array is None:
        return View(dtype=-1)
    return View(array.ctypes.data, DTYPES[array.dtype], 0, dims_of(array.shape))


def array_of(view):
    dtype, rank = BY_NUMBER[view.dtype], view.dims.rank
    shape = tuple(view.dims.d[:rank])
    size = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer(ct.string_at(view.data, size), dtype).reshape(shape)


def evaluate(op, /, *inputs, **attrs):
    """The operator's output. Inputs are arrays; None omits an optional one."""
    return evaluate_all(op, 1, *inputs, **attrs)[0]


def evaluate_all(op, count, /, *inputs, **attrs):
    """The operator's outputs, `count` of them."""
    lib = library()
    inputs = [None if x is None else np.asarray(x, order="C") for x in inputs]
    pairs = [attr_of(name, value) for name, value in attrs.items()]
    c_attrs = (Attr * max(len(pairs), 1))(*(attr for attr, _ in pairs))
    views = (View * max(len(inputs), 1))(*map(view_of, inputs))
    output = (View * count)()
    allocator = lib.rabbet_allocator_system()
    status = lib.rabbet_op_evaluate(
        op.encode(), c_attrs, len(pairs), views, len(inputs), allocator, output
    )
    if status:
        message = lib.rabbet_status_message(status).decode()
        lib.rabbet_status_free(status)
        raise OpError(message)
    try:
        return [array_of(view) for view in output]
    finally:
        for view in output:
            lib.rabbet_free_aligned(allocator, view.data, 64)
