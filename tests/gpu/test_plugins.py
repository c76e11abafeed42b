"""Python plugins on CUDA: their own function, and kernels made ahead of time."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rabbet as trt
import rabbet.plugin as trtp

from tests.python.support.plugins import call, new_id, random

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)

ADD = """
extern "C" __global__ void add(const float* x, int count, short delta, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) y[i] = x[i] + delta;
}
"""
RANGE = {"x": ((1, 8), (4, 8), (40, 8))}


def one_plugin(plugin_id: str, aot: bool | None = None, **attrs: Any) -> Any:
    """A network of one layer with a dynamic batch."""
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (-1, 8))
    layer = network.add_plugin(call(plugin_id)(x, **attrs), aot=aot)
    layer.get_output(0).name = "y"
    network.mark_output(layer.get_output(0))
    return network


def compiled(network: Any, **options: Any) -> trt.Model:
    return trt.compile(network, device="cuda", shapes=RANGE, **options)


# ---- impl ----


def scale_plugin() -> str:
    """y = 2 x by a kernel that is launched from Python."""
    plugin_id = new_id("scale")
    kernel = cuda_driver.Function(
        'extern "C" __global__ void twice(const float* x, int n, float* y) {'
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;"
        "  if (i < n) y[i] = 2 * x[i]; }",
        "twice",
    )

    @trtp.register(plugin_id)
    def scale(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id, device="cuda")
    def scale_impl(x, outputs, stream):
        kernel(
            -(-x.numel() // 64), 64, stream,
            ctypes.c_void_p(x.data_ptr), ctypes.c_int(x.numel()),
            ctypes.c_void_p(outputs[0].data_ptr),
        )  # fmt: skip

    return plugin_id


def test_impl() -> None:
    model = compiled(one_plugin(scale_plugin()))
    for rows in (1, 40, 3):
        x = random(rows, 8)
        np.testing.assert_array_equal(model(x), 2 * x)
    assert model.engine.device == "cuda:0"


def test_output_given() -> None:
    model = compiled(one_plugin(scale_plugin()))
    x, y = random(5, 8), np.zeros((5, 8), np.float32)
    assert model(x, out=y) is y
    np.testing.assert_array_equal(y, 2 * x)


def test_what_impl_is_given() -> None:
    plugin_id = new_id("look")
    seen: dict[str, Any] = {}

    @trtp.register(plugin_id)
    def look(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def look_impl(x, outputs, stream):
        seen.update(
            device=x.device,
            dlpack=x.__dlpack_device__(),
            cuda=x.__cuda_array_interface__,
            host=hasattr(x, "__array_interface__"),
            stream=stream,
        )

    compiled(one_plugin(plugin_id))(random(3, 8))
    assert seen["device"] == "cuda:0"
    assert seen["dlpack"] == (2, 0)
    assert seen["cuda"]["shape"] == (3, 8)
    assert seen["cuda"]["typestr"] == "<f4"
    assert seen["host"] is False
    assert isinstance(seen["stream"], int)


def test_exception_arrives_as_itself() -> None:
    plugin_id = new_id("broken")

    @trtp.register(plugin_id)
    def broken(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def broken_impl(x, outputs):
        raise KeyError("gone")

    model = compiled(one_plugin(plugin_id), try_plugins=False)
    with pytest.raises(KeyError, match="gone"):
        model(random(2, 8))


# ---- aot_impl ----


def add_plugin(code: Any = None) -> str:
    """y = x + delta by a kernel made ahead of time."""
    plugin_id = new_id("add")

    @trtp.register(plugin_id)
    def add(x: trtp.TensorDesc, delta: int) -> trtp.TensorDesc:
        return x.like()

    @trtp.aot_impl(plugin_id)
    def add_aot(
        x: trtp.TensorDesc, delta: int, outputs: tuple[trtp.TensorDesc], tactic: int
    ) -> tuple[str, bytes, trtp.KernelLaunchParams, trtp.SymExprs]:
        count = x.shape_expr.numel()
        launch = trtp.KernelLaunchParams(grid_x=trtp.cdiv(count, 64), block_x=64)
        extra = trtp.SymIntExprs.from_tuple(
            [trtp.SymInt32(count), trtp.SymInt16(delta)]
        )
        given = code if code is not None else cuda_driver.compile_code(ADD)
        return "add", given, launch, extra

    return plugin_id


@pytest.mark.parametrize("kind", ["PTX", "CUBIN"])
def test_aot(kind: str, tmp_path: Path) -> None:
    plugin_id = add_plugin(cuda_driver.compile_code(ADD, kind))
    model = compiled(one_plugin(plugin_id, delta=-3), save=tmp_path / "add.plan")
    for rows in (1, 40):
        x = random(rows, 8)
        np.testing.assert_array_equal(model(x), x - np.float32(3))
    assert "cuda.aot" in model.inspect()
    trtp._plugin.QDP_REGISTRY[plugin_id].deregister()
    loaded = trt.load(tmp_path / "add.plan")
    np.testing.assert_array_equal(loaded(x), x - np.float32(3))


def test_aot_by_architecture() -> None:
    cubin = cuda_driver.compile_code(ADD, "CUBIN")
    here = {"sm_999": b"\x7fELF none", cuda_driver.architecture(): cubin}
    x = random(2, 8)
    model = compiled(one_plugin(add_plugin(here), delta=1))
    np.testing.assert_array_equal(model(x), x + np.float32(1))
    with pytest.raises(trt.Error, match="machine code for sm_999 and no PTX"):
        compiled(one_plugin(add_plugin({"sm_999": b"\x7fELF none"}), delta=1))


def test_several_kernels_with_a_workspace() -> None:
    plugin_id = new_id("two")
    code = cuda_driver.compile_code(
        """
        extern "C" __global__ void squares(const float* x, float* part, int n) {
          int i = blockIdx.x * blockDim.x + threadIdx.x;
          if (i < n) part[i] = x[i] * x[i];
        }
        extern "C" __global__ void rows(const float* part, float factor, float* y) {
          float sum = 0;
          for (int i = 0; i < 8; ++i) sum += part[8 * blockIdx.x + i];
          if (threadIdx.x == 0) y[blockIdx.x] = factor * sum;
        }
        """
    )

    @trtp.register(plugin_id)
    def two(x: trtp.TensorDesc, factor: float) -> trtp.TensorDesc:
        return trtp.from_shape_expr((x.shape_expr[0],), x.dtype)

    @trtp.aot_impl(plugin_id)
    def two_aot(x, factor, outputs):
        count = x.shape_expr.numel()
        part = trtp.Workspace(256)
        first = trtp.Kernel(
            "squares", code,
            trtp.KernelLaunchParams(grid_x=trtp.cdiv(count, 32), block_x=32),
            [x, part, count],
        )  # fmt: skip
        second = trtp.Kernel(
            "rows", code, trtp.KernelLaunchParams(grid_x=x.shape_expr[0], block_x=32),
            [part, factor, outputs[0]],
        )  # fmt: skip
        return trtp.Kernels([first, second], workspace=256 + 4 * count)

    model = compiled(one_plugin(plugin_id, factor=0.5))
    for rows in (1, 33):
        x = random(rows, 8)
        expected = 0.5 * (x.astype(np.float64) ** 2).sum(axis=1)
        np.testing.assert_allclose(model(x), expected, rtol=1e-6)


def test_tactics_and_types_of_the_combination() -> None:
    plugin_id = new_id("tuned")
    asked = []

    @trtp.register(plugin_id)
    def tuned(x: trtp.TensorDesc, delta: int) -> trtp.TensorDesc:
        return x.like()

    @trtp.autotune(plugin_id)
    def tuned_tune(x, outputs) -> list[trtp.AutoTuneCombination]:
        return [trtp.AutoTuneCombination("FP32, FP32", "LINEAR", [32, 64])]

    @trtp.aot_impl(plugin_id)
    def tuned_aot(x, delta, outputs, tactic):
        asked.append((tactic, x.dtype, x.format))
        count = x.shape_expr.numel()
        launch = trtp.KernelLaunchParams(grid_x=trtp.cdiv(count, tactic), block_x=tactic)
        args = trtp.SymIntExprs.from_tuple([count, trtp.SymInt16(delta)])
        return "add", cuda_driver.compile_code(ADD), launch, args

    model = compiled(one_plugin(plugin_id, delta=7))
    x = random(3, 8)
    np.testing.assert_array_equal(model(x), x + np.float32(7))
    assert {item[0] for item in asked} == {32, 64}
    assert {item[1:] for item in asked} == {(trt.float32, trt.TensorFormat.LINEAR)}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "it returns .kernel name, code"),
        (("add", b"x", trtp.KernelLaunchParams()), "3 items; expected four"),
        (("add", b"x", "launch", trtp.SymExprs(0)), "the launch is 'launch'"),
        (("add", 3, trtp.KernelLaunchParams(), trtp.SymExprs(0)), "the code is 3"),
        (("", b"x", trtp.KernelLaunchParams(), trtp.SymExprs(0)), "name is ''"),
        (("add", b"x", trtp.KernelLaunchParams(), [1]), "the fourth item"),
        (("add", b"x", trtp.KernelLaunchParams(), trtp.SymExprs(0)), "text that is not PTX"),
        (
            trtp.Kernel("add", b".entry add()", trtp.KernelLaunchParams(), [object()]),
            "argument 0 is <object",
        ),
        (
            trtp.Kernel("add", b".entry add()", trtp.KernelLaunchParams(), [trtp.TensorDesc()]),
            "neither an input nor an output",
        ),
    ],
)
def test_wrong_answers(answer: Any, message: str) -> None:
    plugin_id = new_id("wrong")

    @trtp.register(plugin_id)
    def wrong(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.aot_impl(plugin_id)
    def wrong_aot(x, outputs, tactic):
        return answer

    with pytest.raises(trtp.DefinitionError, match=message):
        compiled(one_plugin(plugin_id))


PTX = """
.visible .entry add(
    .param .u64 add_param_0,
    .param .u32 add_param_1,
    .param .u16 add_param_2,
    .param .u64 add_param_3
)
{ ret; }
"""


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([trtp.SymInt32(1)], "kernel 'add' takes 4 parameters, 3 arguments are given"),
        ([1, trtp.SymInt16(1), 1], "takes 4 parameters, 5 arguments are given"),
        ([1, 1], "kernel 'add', argument 2 is of 4 bytes, its parameter of 2"),
    ],
)
def test_arguments_that_the_kernel_does_not_take(args: Any, message: str) -> None:
    plugin_id = new_id("unfit")

    @trtp.register(plugin_id)
    def unfit(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.aot_impl(plugin_id)
    def unfit_aot(x, outputs):
        launch = trtp.KernelLaunchParams(grid_x=1, block_x=32)
        return trtp.Kernel("add", PTX, launch, [x, *args, outputs[0]])

    with pytest.raises(trtp.DefinitionError, match=message):
        compiled(one_plugin(plugin_id))


def test_wrong_geometry_and_missing_kernel() -> None:
    plugin_id = new_id("large")

    @trtp.register(plugin_id)
    def large(x: trtp.TensorDesc, block: int, name: str) -> trtp.TensorDesc:
        return x.like()

    @trtp.aot_impl(plugin_id)
    def large_aot(x, block, name, outputs):
        launch = trtp.KernelLaunchParams(grid_x=1, block_x=block)
        args = trtp.SymIntExprs.from_tuple([x.shape_expr.numel(), trtp.SymInt16(1)])
        return name, cuda_driver.compile_code(ADD), launch, args

    with pytest.raises(trt.Error, match=r"block_x is 2048 .* it must be 1 to 1024"):
        compiled(one_plugin(plugin_id, block=2048, name="add"))(random(1, 8))
    with pytest.raises(trt.Error, match="kernel 'sub'"):
        compiled(one_plugin(plugin_id, block=32, name="sub"))


def test_both_ways_are_timed_or_one_is_asked_for() -> None:
    plugin_id = add_plugin()
    calls = []

    @trtp.impl(plugin_id, device="cuda")
    def run(x, delta, outputs, stream):
        calls.append(stream)

    for aot, kernel in ((True, "cuda.aot"), (False, "plugin")):
        model = compiled(one_plugin(plugin_id, aot=aot, delta=1))
        assert kernel in model.inspect()
    calls.clear()
    report = compiled(one_plugin(plugin_id, delta=1)).report
    assert calls
    assert "plugin default" in report
    assert "cuda.aot default" in report


# ---- Calls on arrays alone ----


def test_call() -> None:
    x = random(5, 8)
    np.testing.assert_array_equal(trtp.call(scale_plugin(), x, device="cuda"), 2 * x)


def test_a_call_finds_what_is_written_beside() -> None:
    plugin_id = new_id("beside")
    kernel = cuda_driver.Function(
        'extern "C" __global__ void beside(float* x, int n, float* y) {'
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;"
        "  if (i == 1) x[i] = 0; "
        "  if (i && i <= n) y[i] = 0; }",
        "beside",
    )

    @trtp.register(plugin_id)
    def described(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id, device="cuda")
    def run(x, outputs, stream):
        kernel(
            1, 64, stream,
            ctypes.c_void_p(x.data_ptr), ctypes.c_int(x.numel()),
            ctypes.c_void_p(outputs[0].data_ptr),
        )  # fmt: skip

    with pytest.raises(trtp.CheckError) as raised:
        trtp.call(plugin_id, random(2, 3), device="cuda")
    message = str(raised.value)
    assert "input 0 ('x'): 1 of 6 elements, the first at [0, 1], are written" in message
    assert "output 0: 4 bytes behind it are overwritten" in message
    assert "output 0: 1 of 6 elements, the first at [0, 0], are not written" in message
