"""The protocols of a plugin's tensors, seen from inside impl."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import rabbet as trt
import rabbet.plugin as trtp
from rabbet.plugin import Tensor, TensorDesc

from tests.python.support.plugins import build, call, new_id, random


def inside(
    check: Callable[[Tensor, Tensor], None],
    value: Any,
    dtype: trt.DataType = trt.float32,
    layout: str = "LINEAR",
) -> Any:
    """Runs `check(input, output)` in a plugin; returns what it wrote."""
    plugin_id = new_id("inside")
    name = {"FLOAT": "FP32", "HALF": "FP16"}.get(dtype.name, dtype.name)

    @trtp.register(plugin_id)
    def register(x: TensorDesc) -> TensorDesc:
        return x.like()

    @trtp.autotune(plugin_id)
    def tune(x: TensorDesc, outputs: tuple[TensorDesc]) -> Any:
        return [trtp.AutoTuneCombination(f"{name}, {name}", layout)]

    @trtp.impl(plugin_id)
    def run(x: Tensor, outputs: tuple[Tensor], stream: int) -> None:
        check(x, outputs[0])

    def make(network: trt.INetworkDefinition) -> Any:
        x = network.add_input("x", dtype, value.shape)
        return network.add_plugin(call(plugin_id)(x)).get_output(0)

    strong = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    return build(make, flags=strong)(value)


def test_properties() -> None:
    def check(x: Tensor, y: Tensor) -> None:
        assert x.shape == (2, 3, 4)
        assert x.ndim == 3
        assert x.numel() == 24
        assert x.strides == (12, 4, 1)
        assert x.dtype is trt.float32
        assert x.format is trt.TensorFormat.LINEAR
        assert x.device == "cpu"
        assert x.data_ptr == np.asarray(x).ctypes.data
        assert not x.is_data_dependent
        assert "read-only" in repr(x)
        assert "read-only" not in repr(y)
        with pytest.raises(AttributeError):
            x.shape = (1,)  # type: ignore[misc]
        with pytest.raises(TypeError):
            type(x)()

    inside(check, random(2, 3, 4))


def test_cuda_interface_does_not_exist_here() -> None:
    def check(x: Tensor, y: Tensor) -> None:
        assert not hasattr(x, "__cuda_array_interface__")
        assert hasattr(x, "__array_interface__")

    inside(check, random(2))


@pytest.mark.parametrize(
    "convert",
    [
        np.asarray,
        np.from_dlpack,
        lambda t: np.asarray(memoryview(t)),
        lambda t: np.frombuffer(t, np.float32).reshape(2, 3),
        lambda t: np.ndarray(buffer=memoryview(t), shape=(2, 3), dtype=np.float32),
    ],
    ids=["asarray", "dlpack", "memoryview", "frombuffer", "ndarray"],
)
def test_numpy_without_copies(convert: Callable[[Any], Any]) -> None:
    value = random(2, 3)

    def check(x: Tensor, y: Tensor) -> None:
        source, target = convert(x), convert(y)
        assert source.ctypes.data == x.data_ptr
        assert not source.flags.writeable
        assert target.flags.writeable
        target[...] = source * 2

    assert np.array_equal(inside(check, value), value * 2)


def test_array_interface() -> None:
    def check(x: Tensor, y: Tensor) -> None:
        interface = x.__array_interface__
        assert interface["data"] == (x.data_ptr, True)
        assert y.__array_interface__["data"] == (y.data_ptr, False)
        assert interface["shape"] == (2, 3)
        assert interface["strides"] == (12, 4)
        assert interface["typestr"] == "<f4"

    inside(check, random(2, 3))


def test_dlpack_versions_and_refusals() -> None:
    def check(x: Tensor, y: Tensor) -> None:
        assert x.__dlpack_device__() == (1, 0)
        assert '"dltensor"' in repr(x.__dlpack__())
        assert '"dltensor"' in repr(x.__dlpack__(max_version=(0, 8)))
        assert '"dltensor_versioned"' in repr(x.__dlpack__(max_version=(1, 0)))
        with pytest.raises(BufferError, match="copy"):
            x.__dlpack__(copy=True)
        with pytest.raises(BufferError, match="device"):
            x.__dlpack__(dl_device=(2, 0))
        assert memoryview(x).readonly
        assert not memoryview(y).readonly

    inside(check, random(2, 3))


def test_torch_without_copies() -> None:
    torch = pytest.importorskip("torch")
    value = random(2, 3)

    def check(x: Tensor, y: Tensor) -> None:
        target = torch.from_dlpack(y)
        assert target.data_ptr() == y.data_ptr
        source = torch.as_tensor(np.asarray(x).copy())
        torch.mul(source, 3, out=target)

    assert np.array_equal(inside(check, value), value * 3)


def test_torch_reads_inputs() -> None:
    torch = pytest.importorskip("torch")
    value = random(2, 3)

    def check(x: Tensor, y: Tensor) -> None:
        source = torch.utils.dlpack.from_dlpack(x.__dlpack__())
        assert source.data_ptr() == x.data_ptr
        torch.from_dlpack(y).copy_(source)

    assert np.array_equal(inside(check, value), value)


@pytest.mark.parametrize(
    "dtype", [np.float32, np.float16, np.int32, np.int64, np.bool_, np.uint8]
)
def test_types(dtype: Any) -> None:
    value = (random(3, 4) * 3).astype(dtype)

    def check(x: Tensor, y: Tensor) -> None:
        for convert in (np.asarray, np.from_dlpack):
            assert convert(x).dtype == dtype
        np.asarray(y)[...] = np.asarray(x)

    code = trt._arrays.dtype_of(np.dtype(dtype))
    assert np.array_equal(inside(check, value, code), value)


def test_bfloat16() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    value = random(3, 4).astype(ml_dtypes.bfloat16)

    def check(x: Tensor, y: Tensor) -> None:
        source, target = np.asarray(x), np.asarray(y)
        assert source.dtype == ml_dtypes.bfloat16
        assert source.ctypes.data == x.data_ptr
        with pytest.raises(ValueError, match="read-only"):
            source[0] = 1
        with pytest.raises(BufferError, match="from_dlpack"):
            memoryview(x)
        target[...] = source

    result = inside(check, value, trt.bfloat16)
    assert result.dtype == ml_dtypes.bfloat16
    assert np.array_equal(result, value)


def test_aliased_shapes() -> None:
    def check(x: Tensor, y: Tensor) -> None:
        flat = x.aliased((6,))
        assert flat.shape == (6,)
        assert flat.get_aliased() is x
        assert np.asarray(flat).ctypes.data == x.data_ptr
        assert not np.asarray(flat).flags.writeable
        assert x.aliased().shape == x.shape
        assert y.aliased(trtp.Shape((3, 2))).shape == (3, 2)
        assert y.aliased([2]).numel() == 2
        with pytest.raises(ValueError, match="7 elements do not fit in a tensor of 6"):
            x.aliased((7,))
        with pytest.raises(TypeError):
            x.aliased("ab")
        np.asarray(y.aliased((6,)))[...] = np.asarray(flat)

    value = random(2, 3)
    assert np.array_equal(inside(check, value), value)


@pytest.mark.parametrize(
    ("layout", "channels", "physical"),
    [("CHW4", 6, (2, 2, 3, 5, 4)), ("CHW16", 6, (2, 1, 3, 5, 16)), ("HWC", 6, None)],
)
def test_formats(layout: str, channels: int, physical: tuple[int, ...] | None) -> None:
    value = random(2, channels, 3, 5)

    def check(x: Tensor, y: Tensor) -> None:
        assert x.format.name == layout
        assert x.shape == value.shape
        source, target = np.asarray(x), np.asarray(y)
        if physical is None or source.shape == value.shape:
            assert x.strides[1] == 1
        else:
            assert source.shape == physical
            with pytest.raises(ValueError, match="no strides"):
                _ = x.strides
        target[...] = source * 2

    assert np.array_equal(inside(check, value, layout=layout), value * 2)


def test_zero_size_and_scalars() -> None:
    def check(x: Tensor, y: Tensor) -> None:
        np.asarray(y)[...] = np.asarray(x)
        np.from_dlpack(x)

    empty = np.zeros((0, 3), np.float32)
    assert inside(check, empty).shape == (0, 3)
    scalar = np.array(2.5, np.float32)
    assert inside(check, scalar) == 2.5
