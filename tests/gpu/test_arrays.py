"""Arrays that models take and give on a GPU, of libraries that are known by their
protocols alone. Such libraries are stood in for by classes around our own memory;
where CuPy, JAX or torch with CUDA is installed, they are tested, too."""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any

import numpy as np
import pytest
import rabbet as trt
from rabbet import _rabbet

from tests.python.support.plugins import random

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)

SHAPE = (3, 8)


def make_model(device: str = "cuda", dtype: trt.DataType = trt.float32) -> trt.Model:
    """y = -x, z = x + x."""
    network = trt.Builder().create_network()
    x = network.add_input("x", dtype, SHAPE)
    y = network.add_unary(x, trt.UnaryOperation.NEG).get_output(0)
    z = network.add_elementwise(x, x, trt.ElementWiseOperation.SUM).get_output(0)
    for tensor, name in ((y, "y"), (z, "z")):
        tensor.name = name
        network.mark_output(tensor)
    return trt.compile(network, device=device)


@pytest.fixture(scope="module")
def model() -> trt.Model:
    return make_model()


class OnlyDLPack:
    """An array of a library that speaks DLPack and nothing else."""

    imported: int = 0

    def __init__(self, tensor: Any, device: int = 0, capsule: Any = None) -> None:
        self.tensor, self.number, self.capsule = tensor, device, capsule
        self.streams: list[Any] = []

    @classmethod
    def from_dlpack(cls, other: Any) -> OnlyDLPack:
        cls.imported += 1
        assert other.__dlpack_device__() == (2, 0)
        return cls(other)

    def __array_namespace__(self) -> Any:
        return types.SimpleNamespace(from_dlpack=OnlyDLPack.from_dlpack)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.number

    def __dlpack__(self, *, stream: Any = None) -> Any:
        self.streams.append(stream)
        return self.tensor.__dlpack__() if self.capsule is None else self.capsule


class OnlyInterface:
    """An array with the CUDA array interface and nothing else, as Numba's."""

    def __init__(self, tensor: Any, **changed: Any) -> None:
        self.tensor, self.changed = tensor, changed

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self.tensor.__cuda_array_interface__, **self.changed}


def on_gpu(model: trt.Model, value: Any) -> Any:
    """Our own array on the GPU."""
    dtype = trt.DataType.HALF if value.dtype == np.float16 else trt.DataType.FLOAT
    tensor = _rabbet.device_array(model.engine, int(dtype), value.shape)
    with cuda_driver.current():
        cuda_driver.write(tensor.data_ptr, value)
    return tensor


def to_host(tensor: Any) -> Any:
    with cuda_driver.current():
        return cuda_driver.read(tensor.data_ptr, tuple(tensor.shape))


def test_dlpack(model: trt.Model) -> None:
    value = random(*SHAPE)
    x = OnlyDLPack(on_gpu(model, value))
    before = OnlyDLPack.imported
    y, z = model(x)
    assert x.streams == [1]  # the default stream waits for what made it
    assert OnlyDLPack.imported == before + 2
    assert isinstance(y, OnlyDLPack)
    np.testing.assert_array_equal(to_host(y.tensor), -value)
    np.testing.assert_array_equal(to_host(z.tensor), 2 * value)
    assert y.tensor.data_ptr != z.tensor.data_ptr


def test_results_are_the_caller_s(model: trt.Model) -> None:
    kept = []
    for seed in range(6):
        value = random(*SHAPE, seed=seed)
        kept.append((model(OnlyDLPack(on_gpu(model, value))).y, -value))
    for found, wanted in kept:
        np.testing.assert_array_equal(to_host(found.tensor), wanted)


def test_our_own_arrays_and_the_interface(model: trt.Model) -> None:
    value = random(*SHAPE)
    x = on_gpu(model, value)
    for given in (x, OnlyInterface(x), OnlyInterface(x, stream=1, strides=None)):
        y, _ = model(given)
        assert y.device == "cuda:0"
        np.testing.assert_array_equal(to_host(y), -value)
    again, _ = model(y)
    np.testing.assert_array_equal(to_host(again), value)


def test_memory_outlives_the_model() -> None:
    model = make_model()
    value = random(*SHAPE)
    y = model(on_gpu(model, value)).y
    capsule = y.__dlpack__(stream=1)
    del model
    address, shape, *_ = _rabbet.dlpack_view(capsule)
    del y
    with cuda_driver.current():
        np.testing.assert_array_equal(cuda_driver.read(address, shape), -value)


def test_out(model: trt.Model) -> None:
    value = random(*SHAPE)
    x = on_gpu(model, value)
    y, z = on_gpu(model, 0 * value), on_gpu(model, 0 * value)
    for given in (x, value):  # on the GPU, or on the host
        for out in ((y, z), (OnlyInterface(y), OnlyDLPack(z)), {"z": z, "y": y}):
            assert model(given, out=out) is out
            np.testing.assert_array_equal(to_host(y), -value)
            np.testing.assert_array_equal(to_host(z), 2 * value)
    host = np.empty(SHAPE, np.float32)
    model(x, out=(host, z))
    np.testing.assert_array_equal(host, -value)


def test_runs_with_arrays_of_unknown_streams_are_waited_for(
    model: trt.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With out=, too: the inputs' owner may write them next."""
    waited = []
    real = _rabbet.synchronize

    def synchronize(engine: Any, stream: int) -> None:
        waited.append(stream)
        real(engine, stream)

    monkeypatch.setattr(_rabbet, "synchronize", synchronize)
    x = on_gpu(model, random(*SHAPE))
    y, z = on_gpu(model, random(*SHAPE)), on_gpu(model, random(*SHAPE))
    model(x, out=(y, z))
    model(x)
    assert waited == [0, 0]


def test_errors(model: trt.Model) -> None:
    value = random(*SHAPE)
    x = on_gpu(model, value)
    half = on_gpu(model, value.astype(np.float16))
    with pytest.raises(TypeError, match="'x' is on cuda:1, the model runs on cuda:0"):
        model(OnlyDLPack(x, device=1))
    with pytest.raises(TypeError, match="'x' is float16, the model takes float32"):
        model(half)
    with pytest.raises(TypeError, match="'x' is float16, the model takes float32"):
        model(OnlyInterface(half))
    with pytest.raises(ValueError, match="'x' is not row-major"):
        model(OnlyInterface(x, strides=(4, 12)))
    with pytest.raises(BufferError, match="not a DLPack tensor of version 1"):
        model(OnlyDLPack(x, capsule=object()))
    with pytest.raises(trt.Error, match="'x'"):
        model(on_gpu(model, random(3, 9)))
    for bad in (half, on_gpu(model, random(3, 9))):
        with pytest.raises(ValueError, match=r"output 'z' is float32 \(3, 8\), got"):
            model(x, out=(x, bad))
    with pytest.raises(ValueError, match=r"out: the array for 'y' is on cuda:1"):
        model(x, out=(OnlyDLPack(x, device=1), x))
    with pytest.raises(ValueError, match="must be row-major and writable"):
        model(x, out=(OnlyInterface(x, data=(x.data_ptr, True)), x))
    with pytest.raises(TypeError, match="expected an array of NumPy, torch, CuPy"):
        model(x, out=("y", "z"))
    np.testing.assert_array_equal(to_host(model(x).y), -value)  # all is well


def test_a_model_on_the_cpu(model: trt.Model) -> None:
    x = on_gpu(model, random(*SHAPE))
    cpu = make_model("cpu")
    for given in (x, OnlyDLPack(x), OnlyInterface(x)):
        with pytest.raises(TypeError, match="'x' is on a GPU, the model runs on cpu"):
            cpu(given)
    host = np.empty(SHAPE, np.float32)
    with pytest.raises(ValueError, match="'y' is on a GPU, the model runs on cpu"):
        cpu(host, out=(x, x))


def test_jax_arrays_cannot_be_written(
    model: trt.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    jax = types.ModuleType("jax")
    jax.Array = OnlyDLPack  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jax", jax)
    x = on_gpu(model, random(*SHAPE))
    with pytest.raises(TypeError, match="arrays of JAX cannot be written"):
        model(x, out=(OnlyDLPack(x), x))


# ---- The libraries themselves, where they are installed ----


def imported(name: str) -> Any:
    """The library, if it is there and sees the GPU."""
    try:
        module = importlib.import_module(name)
        sees = {
            "torch": lambda: module.cuda.is_available(),
            "cupy": lambda: module.cuda.runtime.getDeviceCount() > 0,
            "jax": lambda: module.devices()[0].platform in ("gpu", "cuda"),
        }[name]()
    except Exception as error:
        pytest.skip(f"{name}: {error}")
    return module if sees else pytest.skip(f"{name} sees no GPU")


@pytest.mark.parametrize("side", [False, True])
def test_torch(model: trt.Model, side: bool) -> None:
    torch = imported("torch")
    stream = torch.cuda.Stream() if side else torch.cuda.current_stream()
    with torch.cuda.stream(stream):
        x = torch.randn(SHAPE, device="cuda")
        for _ in range(8):
            x = x + 1
            y, z = model(x)
            assert y.device == x.device
            assert torch.equal(y, -x)
            assert torch.equal(z, x + x)
        out = (torch.empty_like(x), torch.empty_like(x))
        assert model(x, out=out) is out
        assert torch.equal(out[0], -x)
        assert model(x.cpu().numpy(), out=out) is out
        assert torch.equal(out[1], x + x)
        with pytest.raises(TypeError, match="float16"):
            model(x.half())


@pytest.mark.parametrize("side", [False, True])
def test_cupy(model: trt.Model, side: bool) -> None:
    cupy = imported("cupy")
    with cupy.cuda.Stream(non_blocking=True) if side else cupy.cuda.Stream.null:
        x = cupy.random.standard_normal(SHAPE, dtype=cupy.float32)
        for _ in range(8):
            x = x + 1
            y, z = model(x)
            assert isinstance(y, cupy.ndarray)
            cupy.testing.assert_array_equal(y, -x)
            cupy.testing.assert_array_equal(z, x + x)
        out = (cupy.empty_like(x), cupy.empty_like(x))
        assert model(x, out=out) is out
        cupy.testing.assert_array_equal(out[0], -x)
        y, _ = model(cupy.asfortranarray(x))
        cupy.testing.assert_array_equal(y, -x)
        with pytest.raises(TypeError, match="'x' is float64, the model takes float32"):
            model(x.astype(cupy.float64))


def test_jax(model: trt.Model) -> None:
    jax = imported("jax")
    x = jax.numpy.arange(24, dtype="float32").reshape(SHAPE)
    for _ in range(8):
        x = x * 1.5 + 1
        y, z = model(x)
        assert isinstance(y, jax.Array)
        assert y.device == x.device
        np.testing.assert_array_equal(np.asarray(y + 0), -np.asarray(x))
        np.testing.assert_array_equal(np.asarray(z), 2 * np.asarray(x))
    with pytest.raises(TypeError, match="arrays of JAX cannot be written"):
        model(x, out=(x, x))
    with pytest.raises(TypeError, match="'x' is int32, the model takes float32"):
        model(x.astype("int32"))
