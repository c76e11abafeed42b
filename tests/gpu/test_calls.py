"""Memory of calls, model(x), on a GPU: results that the engine allocates, and outputs
whose size the run tells. Who reads a result when it is dropped, and where, nobody knows."""

from __future__ import annotations

import concurrent.futures
import ctypes
import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import rabbet as trt

from tests.python.support.plugins import random
from tests.python.support.sizes import chosen, chosen_by_numpy

from . import cuda_driver
from .test_arrays import (
    OnlyDLPack,
    OnlyInterface,
    imported,
    make_model,
    on_gpu,
    to_host,
)
from .test_contexts import stream, wait
from .test_memory import InOrder, Plain
from .test_sizes import SHAPES, check, compiled, some_zeros

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)
SHAPE = (3, 8)


@pytest.fixture(scope="module")
def model() -> trt.Model:
    return make_model()


@pytest.fixture(scope="module")
def finder() -> trt.Model:
    return compiled(chosen, shapes=SHAPES)


def used() -> int:
    """Bytes of the GPU's memory."""
    available, total = ctypes.c_size_t(), ctypes.c_size_t()
    with cuda_driver.current():
        result = cuda_driver.driver().cuMemGetInfo_v2(
            ctypes.byref(available), ctypes.byref(total)
        )
    cuda_driver.check(result, "cuMemGetInfo")
    return total.value - available.value


def host_arrays(found: Any) -> tuple[Any, ...]:
    """Results of `finder` as NumPy arrays, wherever they are."""
    types = (np.int32, np.int64, np.float32)
    with cuda_driver.current():
        return tuple(
            one
            if isinstance(one, np.ndarray)
            else cuda_driver.read(one.data_ptr, tuple(one.shape), dtype)
            for one, dtype in zip(found, types, strict=True)
        )


def given(model: trt.Model, kind: str, value: Any) -> Any:
    """An array on the host, or on the GPU in one of the ways that libraries have."""
    if kind == "host":
        return value
    tensor = on_gpu(model, value)
    return OnlyInterface(tensor) if kind == "interface" else tensor


# ---- Loops ----


@pytest.mark.parametrize("wrap", [OnlyInterface, OnlyDLPack])
def test_a_loop_is_replayed_and_its_memory_bounded(wrap: Callable[..., Any]) -> None:
    model = make_model()
    value = random(*SHAPE)
    x = on_gpu(model, value)
    before = 0
    for call in range(40):
        if call == 10:
            before = used()
        result = model(wrap(x))
    assert used() == before
    # Two sets of addresses, each recorded once it came twice.
    assert model.graph_info.replays >= 30
    y = result.y.tensor if wrap is OnlyDLPack else result.y
    np.testing.assert_array_equal(to_host(y), -value)


@pytest.mark.parametrize("kind", ["host", "interface", "dlpack"])
def test_sizes_that_runs_tell(finder: trt.Model, kind: str) -> None:
    """The bound is taken for the run alone."""
    before = 0
    for call, rows in enumerate((4000, 3, 4000, 1, 4000, 4000, 4000, 1, 4000)):
        x = some_zeros(rows)
        check(host_arrays(finder(given(finder, kind, x))), chosen_by_numpy(x))
        if call == 4:
            before = used()
    assert used() <= before
    nothing = np.zeros((2, 5, 4), np.float32)
    expected = chosen_by_numpy(nothing)
    check(host_arrays(finder(given(finder, kind, nothing))), expected)


def test_a_loop_of_such_is_replayed(finder: trt.Model) -> None:
    x = some_zeros(700)
    before = finder.graph_info.replays
    for _call in range(12):
        found = finder(x)
    check(found, chosen_by_numpy(x))
    assert finder.graph_info.replays >= before + 8


def test_memory_goes_with_the_last_model() -> None:
    gc.collect()
    before = used()
    model = compiled(chosen, shapes=SHAPES)
    found = model(given(model, "interface", some_zeros(4000)))
    del model
    expected = chosen_by_numpy(some_zeros(4000))
    check(host_arrays(found), expected)
    del found
    gc.collect()
    assert used() <= before + (64 << 20)  # what the driver loads once
    if cuda_driver.is_stand_in():
        assert used() <= before


# ---- Readers that nobody told us about ----


def test_a_reader_on_another_stream(model: trt.Model) -> None:
    """It has the result although that was dropped before it began."""
    value = random(*SHAPE)
    x, others = on_gpu(model, value), [on_gpu(model, random(*SHAPE, seed=9))] * 4
    driver = cuda_driver.driver()
    with stream() as side, cuda_driver.memory(value.nbytes) as target:
        y = model(x).y
        address = y.__cuda_array_interface__["data"][0]
        result = driver.cuMemcpyDtoDAsync_v2(
            ctypes.c_uint64(target), ctypes.c_uint64(address),
            ctypes.c_size_t(value.nbytes), ctypes.c_void_p(side),
        )  # fmt: skip
        cuda_driver.check(result, "cuMemcpyDtoDAsync")
        del y
        for other in others:
            model(other)
        wait(side)
        np.testing.assert_array_equal(cuda_driver.read(target, SHAPE), -value)


def test_results_outlive_stream_thread_and_model() -> None:
    model = make_model()
    value = random(*SHAPE)
    x = on_gpu(model, value)
    with stream() as handle:
        y = model(OnlyInterface(x, stream=handle)).y
    del model
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        found = pool.submit(to_host, y).result()
        np.testing.assert_array_equal(found, -value)
        held = [y]
        del y
        pool.submit(held.clear).result()  # dropped there


@pytest.mark.parametrize("kind", ["host", "interface"])
def test_threads(finder: trt.Model, kind: str) -> None:
    def calls(seed: int) -> None:
        for round_ in range(4):
            x = some_zeros(100 + seed + round_)
            check(host_arrays(finder(given(finder, kind, x))), chosen_by_numpy(x))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(calls, seed) for seed in range(8)]:
            done.result()


def test_a_stream_that_is_captured(model: trt.Model) -> None:
    """Nothing of a call may become part of others' graphs."""
    x = on_gpu(model, random(*SHAPE))
    driver, graph = cuda_driver.driver(), ctypes.c_void_p()
    with stream() as handle:
        result = driver.cuStreamBeginCapture_v2(ctypes.c_void_p(handle), 2)
        cuda_driver.check(result, "cuStreamBeginCapture")
        with pytest.raises(trt.Error, match="is being captured into a CUDA graph"):
            model(OnlyInterface(x, stream=handle))
        result = driver.cuStreamEndCapture(ctypes.c_void_p(handle), ctypes.byref(graph))
        cuda_driver.check(result, "cuStreamEndCapture")
        cuda_driver.check(driver.cuGraphDestroy(graph), "cuGraphDestroy")
    np.testing.assert_array_equal(to_host(model(x).y), -to_host(x))


# ---- Memory of the caller's ----


class Refuses(Plain):
    """Has nothing to give once it is told so."""

    empty = False

    def allocate(self, size: int, alignment: int, flags: int) -> Any:
        return None if self.empty else super().allocate(size, alignment, flags)


@pytest.mark.parametrize("kind", ["host", "interface"])
@pytest.mark.parametrize("allocator_kind", [Plain, InOrder])
def test_the_engine_s_allocator_is_asked_first(
    finder: trt.Model, allocator_kind: Any, kind: str
) -> None:
    allocator = allocator_kind()
    runtime = trt.Runtime(trt.Logger())
    runtime.gpu_allocator = allocator
    model = trt.Model(runtime.deserialize_cuda_engine(finder.engine.serialize()))
    x = some_zeros(50)
    model(given(model, kind, x))
    asked, held = allocator.asked, len(allocator.owned)
    found = model(given(model, kind, x))
    check(host_arrays(found), chosen_by_numpy(x))
    assert allocator.asked > asked
    del found
    gc.collect()
    assert len(allocator.owned) <= held
    del model
    gc.collect()
    assert not allocator.owned


def test_an_allocator_that_refuses(finder: trt.Model) -> None:
    allocator = Refuses()
    runtime = trt.Runtime(trt.Logger())
    runtime.gpu_allocator = allocator
    model = trt.Model(runtime.deserialize_cuda_engine(finder.engine.serialize()))
    x = some_zeros(50)
    check(model(x), chosen_by_numpy(x))
    allocator.empty = True
    with pytest.raises(trt.Error, match="allocator gave no memory for"):
        model(x)
    allocator.empty = False
    check(model(x), chosen_by_numpy(x))
    del model
    gc.collect()
    assert not allocator.owned


# ---- torch itself ----


@pytest.mark.parametrize("side", [False, True])
def test_torch_and_sizes(side: bool) -> None:
    torch = imported("torch")
    count = 1 << 24
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.bool, (count,))
    network.mark_output(network.add_non_zero(x).get_output(0))
    model = trt.compile(network, device="cuda")
    order = torch.cuda.Stream() if side else torch.cuda.current_stream()
    with torch.cuda.stream(order):
        before = 0
        for call in range(12):
            given = torch.rand(count, device="cuda") < (0.0, 0.01, 0.6)[call % 3]
            found = model(given)
            assert found.is_cuda
            assert torch.equal(found[0].long(), torch.nonzero(given)[:, 0])
            del given, found
            if call == 5:
                torch.cuda.synchronize()
                torch.cuda.empty_cache()
                before = used()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        assert used() <= before


def test_a_reader_of_torch_on_a_side_stream() -> None:
    torch = imported("torch")
    model = make_model()
    side, found, values = torch.cuda.Stream(), [], []
    for seed in range(6):
        value = random(*SHAPE, seed=seed)
        y = model(OnlyInterface(on_gpu(model, value))).y
        with torch.cuda.stream(side):
            seen = torch.as_tensor(y, device="cuda")
            torch.cuda._sleep(10_000_000)  # type: ignore[no-untyped-call]
            found.append(seen + 0)
        values.append(value)
        del y, seen
    torch.cuda.synchronize()
    for one, value in zip(found, values, strict=True):
        np.testing.assert_array_equal(one.cpu().numpy(), -value)
