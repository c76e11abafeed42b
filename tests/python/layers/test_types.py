"""Enumerations, dimensions, weights, exceptions."""

from __future__ import annotations

import enum
import inspect
import re
import subprocess
import sys
import typing
from typing import Any

import numpy as np
import pytest
import rabbet as trt
import rabbet.plugin as trtp
from rabbet import _enums, _errors


def test_enum_numbers() -> None:
    assert int(trt.DataType.BF16) == 7
    assert trt.float32 is trt.DataType.FLOAT
    assert int(trt.TensorFormat.HWC16) == 11
    assert int(trt.LayerType.PLUGIN_V3) == 46
    assert int(trt.ElementWiseOperation.LESS) == 13
    assert int(trt.BuilderFlag.TF32) == 6


def test_every_member_is_explained() -> None:
    """In the docstring of its class, a line each; the summary comes first."""
    kinds = {
        kind
        for kind in vars(_enums).values()
        if isinstance(kind, type) and issubclass(kind, enum.Enum) and kind.__members__
    }
    assert len(kinds) > 50
    for kind in kinds:
        text = inspect.cleandoc(kind.__doc__ or "")
        summary, _, members = text.partition("\n\n")
        assert summary.endswith("."), kind
        explained = re.findall(r"^(\w+): \S", members, re.M)
        assert explained == list(kind.__members__), kind


@pytest.mark.parametrize("function", [trt.compile, trt.load, trtp.call])
def test_every_argument_is_explained(function: Any) -> None:
    text = inspect.getdoc(function)
    for name in inspect.signature(function).parameters:
        assert name == "more" or re.search(rf"^(\w+, )*{name}\b.*:", text, re.M), name


def test_what_type_checkers_see() -> None:
    assert typing.get_type_hints(trt.ILayer.get_output)["return"] is trt.ITensor
    assert typing.get_type_hints(trt.INetworkDefinition.add_input)["return"] is trt.ITensor
    context = typing.get_type_hints(trt.Model.create_execution_context)["return"]
    assert context is trt.IExecutionContext


def test_enums_behave_as_users_expect() -> None:
    assert {trt.DataType.FLOAT: 1}[trt.DataType(0)] == 1
    assert trt.DataType.__members__["HALF"] is trt.DataType.HALF
    assert trt.DataType.FLOAT != 0
    # Clients of pybind11's enumerations tell them by their table of entries.
    for kind in (trt.GatherMode, trt.DataType, trt.BuilderFlag):
        entries = getattr(kind, "__entries")
        assert {name: member for name, (member, _) in entries.items()} == dict(
            kind.__members__
        )
        assert hasattr(next(iter(kind)), "__entries")
    assert trt.BuilderFlag.FP16 == 0
    assert 1 << trt.BuilderFlag.REFIT == 16
    assert str(trt.DataType.FLOAT) == "DataType.FLOAT"
    assert str(trt.BuilderFlag.FP16) == "BuilderFlag.FP16"
    assert trt.Logger.Severity.VERBOSE is trt.Logger.VERBOSE


@pytest.mark.parametrize(
    ("dtype", "size"),
    [(trt.float32, 4), (trt.float16, 2), (trt.int64, 8), (trt.int4, 0.5)],
)
def test_item_sizes(dtype: trt.DataType, size: float) -> None:
    assert dtype.itemsize == size


def test_bytes_of_packed_weights() -> None:
    data = np.zeros(2, np.uint8)
    assert trt.Weights(trt.int4, data.ctypes.data, 3).nbytes == 2
    assert trt.Weights(trt.int4, data.ctypes.data, 4).nbytes == 2


def test_nptype() -> None:
    assert trt.nptype(trt.float16) is np.float16
    assert trt.nptype(trt.bool) is np.bool_
    with pytest.raises(TypeError, match="BF16"):
        trt.nptype(trt.bfloat16)


def test_dims() -> None:
    dims = trt.Dims((2, 3, -1))
    assert len(dims) == 3
    assert dims == (2, 3, -1)
    assert dims == [2, 3, -1]
    assert dims == trt.Dims([2, 3, -1])
    assert dims != (2, 3)
    assert dims[1:] == (3, -1)
    dims[0] = np.int64(7)
    assert tuple(dims) == (7, 3, -1)
    assert str(dims) == "(7, 3, -1)"
    assert trt.Dims3(1, 2, 3)[2] == 3
    assert list(trt.Dims2()) == [0, 0]
    window = trt.DimsHW((3, 5))
    window.w = 4
    assert (window.h, window.w) == (3, 4)
    assert list(trt.Permutation([1, 0])) == [1, 0]
    assert trt.volume((2, 3, 4)) == 24
    with pytest.raises(ValueError, match="at most 8"):
        trt.Dims(range(9))
    with pytest.raises(ValueError, match="3 dimensions, got 2"):
        trt.Dims3(1, 2)
    with pytest.raises(TypeError):
        hash(dims)
    with pytest.raises(TypeError):
        trt.Dims((1.5,))


def test_weights() -> None:
    array = np.arange(6, dtype=np.float16).reshape(2, 3)
    weights = trt.Weights(array)
    assert (weights.dtype, weights.size, weights.nbytes) == (trt.float16, 6, 12)
    assert np.shares_memory(weights.numpy(), array)
    by_address = trt.Weights(trt.float16, array.ctypes.data, 6)
    assert np.array_equal(by_address.numpy(), array.ravel())
    assert len(trt.Weights(trt.int32)) == 0
    assert trt.Weights(np.zeros(2)).dtype is trt.float64
    with pytest.raises(TypeError, match="complex64"):
        trt.Weights(np.zeros(2, np.complex64))


def test_exceptions_are_of_both_kinds() -> None:
    for error in _errors.STATUS_ERRORS:
        assert issubclass(error, trt.Error)
    assert issubclass(trt.InvalidArgumentError, ValueError)
    assert issubclass(trt.NotFoundError, LookupError)
    assert issubclass(trt.OutOfRangeError, IndexError)
    assert issubclass(trt.OutOfMemoryError, MemoryError)
    assert issubclass(trt.UnsupportedError, NotImplementedError)
    assert issubclass(trt.IoError, OSError)


def test_import_needs_no_numpy() -> None:
    code = (
        "import sys; sys.modules['numpy'] = None; import rabbet, rabbet.plugin;"
        "n = rabbet.Builder().create_network();"
        "x = n.add_input('x', rabbet.float32, (2,));"
        "print(n.add_softmax(x).get_output(0).shape)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "(2,)"


def test_unknown_options_are_refused() -> None:
    config = trt.Builder().create_builder_config()
    with pytest.raises(AttributeError):
        config.bulider_optimization_level = 5
    with pytest.raises(ValueError, match="WORKSPACE"):
        config.set_memory_pool_limit(trt.MemoryPoolType.DLA_LOCAL_DRAM, 1)


def test_every_name_in_all_exists() -> None:
    for name in trt.__all__:
        assert hasattr(trt, name), name


@pytest.mark.parametrize("precision", [trt.float16, trt.float32])
def test_precision_of_a_layer_that_broadcasts(precision: trt.DataType) -> None:
    """Each element is computed in it; what is spread over them may have its own type."""
    builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
    network = builder.create_network()
    x = network.add_input("x", trt.float32, (3, 4))
    row = network.add_input("row", trt.float32, (1, 4))
    column = network.add_input("column", trt.float32, (3, 1))
    for a, b in ((x, row), (column, row)):
        layer = network.add_elementwise(a, b, trt.ElementWiseOperation.SUM)
        layer.precision = precision
        network.mark_output(layer.get_output(0))
    config = builder.create_builder_config()
    config.device = "cpu"
    config.set_flag(trt.BuilderFlag.FP16)
    model = trt.Model(builder.build_engine_with_config(network, config))
    values = [np.arange(n, dtype=np.float32).reshape(s) for n, s in
              ((12, (3, 4)), (4, (1, 4)), (3, (3, 1)))]  # fmt: skip
    full, both = model(*values)
    np.testing.assert_array_equal(full, values[0] + values[1])
    np.testing.assert_array_equal(both, values[2] + values[1])
