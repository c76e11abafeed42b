"""Outputs and intermediates whose sizes follow from data: their bounds, and memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import rabbet as trt

from tests.python.interface.test_objects import OneBuffer
from tests.python.support.onnx_text import model_of

COMMON = """
    zero = Constant<value_int = 0>() one = Constant<value_int = 1>()
    sum = ReduceSum<keepdims = 0>(x) n = Cast<to = 7>(sum)
"""
RANGE = "y = Range(zero, n, one)"
# A bound that the model states; FLOAT is not followed, so that Min is of INT64.
BOUNDED = "most = Constant<value_int = 50>() m = Min(n, most) y = Range(zero, m, one)"
INSIDE = "r = Range(zero, n, one) f = Cast<to = 1>(r) y = ReduceSum<keepdims = 0>(f)"


def compiled(body: str, output: str = "int64[k] y") -> trt.Model:
    model = model_of("float[2] x", output, COMMON + body)
    return trt.compile(model.SerializeToString(), device="cpu")


def context_of(model: trt.Model, x: Any) -> Any:
    context = model.engine.create_execution_context()
    context.set_tensor_address("x", x.ctypes.data)
    return context


X = np.float32([3, 4])


def test_an_output_without_bound_needs_an_allocator() -> None:
    model = compiled(RANGE)
    assert np.asarray(model(X)).tolist() == list(range(7))
    context = context_of(model, X)
    with pytest.raises(trt.FailedPreconditionError, match="output 'y' has no bound"):
        context.get_max_output_size("y")
    small = np.zeros(2, np.int64)
    context.set_tensor_address("y", small.ctypes.data)
    with pytest.raises(trt.FailedPreconditionError, match=r"'y' has no bound.*allocator"):
        context.execute_async_v3(0)
    assert small.tolist() == [0, 0]
    allocator = OneBuffer()
    context.set_output_allocator("y", allocator)
    assert context.execute_async_v3(0)
    assert allocator.shape == ("y", [7])


def test_a_bound_that_the_model_states() -> None:
    model = compiled(BOUNDED)
    context = context_of(model, X)
    assert context.get_max_output_size("y") == 50 * 8
    memory = np.full(50, -1, np.int64)
    context.set_tensor_address("y", memory.ctypes.data)
    assert context.execute_async_v3(0)
    assert memory[:8].tolist() == [0, 1, 2, 3, 4, 5, 6, -1]
    for big in (1e9, 1e13):
        assert len(np.asarray(model(np.float32([big, 0])))) == 50


def test_more_than_memory_has_names_the_tensor() -> None:
    model = compiled(INSIDE, "float y")
    assert float(np.asarray(model(X))) == 21
    with pytest.raises(trt.OutOfMemoryError, match=r"tensor '.*bytes, more memory than"):
        model(np.float32([1e13, 0]))
    with pytest.raises(trt.OutOfMemoryError, match="'y'"):
        compiled(RANGE)(np.float32([1e14, 0]))
    assert float(np.asarray(model(X))) == 21
