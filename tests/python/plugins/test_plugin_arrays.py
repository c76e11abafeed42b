"""Tensor.numpy() and Tensor.torch(): arrays that are made once, and what keeps them."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import rabbet as trt
import rabbet.plugin as trtp

from tests.python.support.plugins import call, new_id, one_layer, random


def define(body: Callable[[Any, Any], None], *, tactics: Any = ()) -> str:
    plugin_id = new_id("arrays")

    @trtp.register(plugin_id)
    def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def run(x: trtp.Tensor, outputs: tuple[trtp.Tensor, ...]) -> None:
        body(x, outputs[0])

    if tactics:

        @trtp.autotune(plugin_id)
        def tune(x: trtp.TensorDesc, outputs: tuple[trtp.TensorDesc]) -> Any:
            return [trtp.AutoTuneCombination("FP32, FP32", "LINEAR", tactics)]

    return plugin_id


def address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def test_the_array_is_the_same_while_the_memory_is() -> None:
    seen: list[tuple[int, int, bool]] = []

    def body(x: Any, y: Any) -> None:
        array = y.numpy()
        assert array is y.numpy()
        assert array.shape == (3, 4)
        assert array.dtype == np.float32
        assert address(array) == y.data_ptr
        assert address(x.numpy()) == x.data_ptr
        assert array.flags.writeable
        assert not x.numpy().flags.writeable
        np.multiply(x.numpy(), 2, out=array)
        seen.append((id(array), address(array), gc.is_tracked(array)))

    model = one_layer(define(body), (3, 4))
    first, second = np.empty((3, 4), np.float32), np.empty((3, 4), np.float32)
    x = random(3, 4)
    for out in (first, first, second, second, first):
        model(x, out=out)
        np.testing.assert_array_equal(out, 2 * x)
        assert seen[-1][1] == address(out)
    assert seen[-5][0] == seen[-4][0]
    assert seen[-3][0] == seen[-2][0]


@pytest.mark.parametrize(
    "keep",
    [
        lambda t: t.numpy(),
        lambda t: t.numpy()[1:],
        lambda t: t.numpy().reshape(-1),
        lambda t: memoryview(t.numpy()),
        lambda t: t.numpy().base,
        lambda t: t.aliased((12,)).numpy(),
    ],
    ids=["array", "slice", "reshaped", "memoryview", "base", "aliased"],
)
def test_what_is_kept_stays(keep: Callable[[Any], Any]) -> None:
    """The memory of a run is held by whatever a call kept, and only by that."""
    kept: list[Any] = []
    wanted = False

    def body(x: Any, y: Any) -> None:
        np.multiply(x.numpy(), 2, out=y.numpy())
        if wanted:
            kept.append(keep(y))

    model = one_layer(define(body), (3, 4))
    wanted = True
    values = [random(3, 4, seed=i) for i in range(20)]
    for x in values:
        np.testing.assert_array_equal(model(x), 2 * x)  # the result is not kept here
    for x, array in zip(values, kept, strict=True):
        whole = (2 * x).ravel()
        found = np.asarray(array).ravel()
        np.testing.assert_array_equal(found, whole[-found.size :])


def test_nothing_is_held_without_need() -> None:
    def body(x: Any, y: Any) -> None:
        np.multiply(x.numpy(), 2, out=y.numpy())

    class Array(np.ndarray):
        """Can be referred to weakly."""

    model = one_layer(define(body), (3, 4))
    x = random(3, 4).view(Array)
    out = np.empty((3, 4), np.float32).view(Array)
    model(x, out=out)
    left = weakref.ref(x), weakref.ref(out)
    del x, out
    gc.collect()
    assert left[0]() is None
    assert left[1]() is None


def test_keeping_in_a_timing_run_is_an_error() -> None:
    kept: list[Any] = []

    def body(x: Any, y: Any) -> None:
        kept.append(x.numpy())

    plugin_id = define(body, tactics=[1, 2])
    with pytest.raises(RuntimeError, match="copy what is to be kept"):
        one_layer(plugin_id, (3, 4))


def test_after_an_exception() -> None:
    frames: list[BaseException] = []

    def body(x: Any, y: Any) -> None:
        array = x.numpy()
        if array[0] < 0:
            raise ValueError("negative")
        y.numpy()[...] = array

    model = one_layer(define(body), (4,), try_plugins=False)
    for i in range(3):
        with pytest.raises(ValueError, match="negative") as caught:
            model(np.full(4, -1 - i, np.float32))
        frames.append(caught.value)
        x = random(4, seed=i) ** 2
        np.testing.assert_array_equal(model(x), x)
    for i, error in enumerate(frames):
        trace = error.__traceback__
        while trace and trace.tb_next:
            trace = trace.tb_next
        assert trace is not None
        np.testing.assert_array_equal(trace.tb_frame.f_locals["array"], -1 - i)


def test_a_size_that_a_run_tells() -> None:
    plugin_id = new_id("found")

    @trtp.register(plugin_id)
    def describe(x: trtp.TensorDesc) -> tuple[trtp.TensorDesc, trtp.TensorDesc]:
        count = x.shape_expr[0]
        size = trtp.size_tensor(count // 2, count)
        return trtp.from_shape_expr((size.expr(),), x.dtype), size

    @trtp.impl(plugin_id)
    def run(x: trtp.Tensor, outputs: tuple[trtp.Tensor, ...]) -> None:
        found = x.numpy()[x.numpy() > 0]
        with pytest.raises(BufferError, match="its shape is what this run tells"):
            outputs[0].numpy()
        outputs[0].aliased(found.shape).numpy()[...] = found
        outputs[1].numpy()[...] = len(found)

    model = one_layer(plugin_id, (50,))
    for seed in range(4):
        x = random(50, seed=seed)
        np.testing.assert_array_equal(model(x)[0], x[x > 0])


def test_types_of_ml_dtypes() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")

    def body(x: Any, y: Any) -> None:
        assert x.numpy().dtype == ml_dtypes.bfloat16
        y.numpy()[...] = x.numpy() * 2

    network = trt.Builder().create_network(
        1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    )
    x = network.add_input("x", trt.bfloat16, (8,))
    network.mark_output(network.add_plugin(call(define(body))(x)).get_output(0))
    model = trt.compile(network, device="cpu")
    value = np.arange(8).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(np.asarray(model(value)), value * 2)


def test_torch() -> None:
    torch = pytest.importorskip("torch")
    kept: list[Any] = []
    wanted = False

    def body(x: Any, y: Any) -> None:
        source, target = x.torch(), y.torch()
        assert source.data_ptr() == x.data_ptr
        assert tuple(target.shape) == (3, 4)
        torch.mul(source, 2, out=target)
        if wanted:
            kept.append(target[1:])

    model = one_layer(define(body), (3, 4))
    values = [torch.from_numpy(random(3, 4, seed=i)) for i in range(10)]
    for x in values[:5]:
        torch.testing.assert_close(model(x), 2 * x)
    wanted = True
    for x in values[5:]:
        model(x)
    for x, part in zip(values[5:], kept, strict=True):
        torch.testing.assert_close(part, 2 * x[1:])


def test_after_the_call() -> None:
    """A Tensor that was kept gives arrays as before."""
    kept: list[Any] = []
    wanted = False

    def body(x: Any, y: Any) -> None:
        y.numpy()[...] = x.numpy()
        if wanted:
            kept.append(y)

    model = one_layer(define(body), (4,))
    wanted = True
    x = random(4)
    model(x)
    model(x + 1)
    array = kept[0].numpy()
    np.testing.assert_array_equal(array, x)
    np.testing.assert_array_equal(kept[1].numpy(), x + 1)
    assert kept[0].numpy() is not array  # nobody looks after it any more
