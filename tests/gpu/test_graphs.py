"""Python plugins in CUDA graphs: recorded where that is safe, named where not."""

from __future__ import annotations

import ctypes
import subprocess
import sys
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

SHAPE = (6, 8)
SOURCE = """
extern "C" __global__ void axpb(const float* x, int n, float a, float b, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + b;
}
"""


class Log(trt.ILogger):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def log(self, severity: Any, msg: str) -> None:
        self.lines.append(msg)

    def about_graphs(self) -> list[str]:
        return [line for line in self.lines if "recorded into a graph" in line]


class Plugin:
    """y = 2 x + 1 between two layers that are not plugins; `body` runs first."""

    def __init__(self, body: Any = None, **options: Any) -> None:
        self.id = new_id("graph")
        self.calls = 0
        self.addend = 1.0
        self.launches = True
        kernel = cuda_driver.Function(SOURCE, "axpb")

        @trtp.register(self.id)
        def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:
            return x.like()

        @trtp.impl(self.id, device="cuda", **options)
        def run(x, outputs, stream):
            self.calls += 1
            if body is not None:
                body(self, x, outputs, stream)
            if not self.launches:
                return
            kernel(
                1, 64, stream, ctypes.c_void_p(x.data_ptr), ctypes.c_int(x.numel()),
                ctypes.c_float(2), ctypes.c_float(self.addend),
                ctypes.c_void_p(outputs[0].data_ptr),
            )  # fmt: skip

        self.log = Log()

    def network(self) -> Any:
        network = trt.Builder(self.log).create_network()
        x = network.add_input("x", trt.float32, SHAPE)
        relu = network.add_activation(x, trt.ActivationType.RELU).get_output(0)
        layer = network.add_plugin(call(self.id)(relu))
        layer.name = "mine"
        y = layer.get_output(0)
        y = network.add_unary(y, trt.UnaryOperation.NEG).get_output(0)
        y.name = "y"
        network.mark_output(y)
        return network

    def model(self, **options: Any) -> trt.Model:
        model = trt.compile(self.network(), device="cuda", logger=self.log, **options)
        self.calls = 0
        return model


def expected(x: Any, addend: float = 1.0) -> Any:
    return -(2 * np.maximum(x, 0) + np.float32(addend))


def check(model: trt.Model, count: int = 6) -> None:
    """Runs with the same arrays and other numbers each time."""
    x, y = np.empty(SHAPE, np.float32), np.empty(SHAPE, np.float32)
    for seed in range(count):
        x[...] = random(*SHAPE, seed=seed)
        y.fill(np.nan)
        assert model(x, out=y) is y
        np.testing.assert_array_equal(y, expected(x))


@pytest.mark.parametrize("capturable", [True, None])
def test_recorded(capturable: bool | None) -> None:
    plugin = Plugin(capturable=capturable)
    model = plugin.model()
    check(model)
    calls, info = plugin.calls, model.graph_info
    assert info.replays > 0
    assert info.recordings == 1
    assert info.graph_steps > 0
    assert info.other_steps == 0
    check(model)
    assert plugin.calls == calls  # no Python any more
    assert model.graph_info.replays > info.replays
    assert not plugin.log.about_graphs()


def test_switched_off() -> None:
    plugin = Plugin(capturable=True)
    model = plugin.model(graphs=False)
    check(model, 4)
    assert plugin.calls == 4
    assert model.graph_info == (0, 0, 0, 0)


def test_context() -> None:
    plugin = Plugin(capturable=True)
    model = plugin.model()
    context = model.create_execution_context()
    assert context.graphs is False
    context.graphs = True
    assert context.graphs is True
    nbytes = 4 * int(np.prod(SHAPE))
    with cuda_driver.memory(nbytes) as x, cuda_driver.memory(nbytes) as y:
        context.set_tensor_address("x", x)
        context.set_tensor_address("y", y)
        for seed in range(5):
            value = random(*SHAPE, seed=seed)
            cuda_driver.write(x, value)
            assert context.execute_async_v3(0)
            np.testing.assert_array_equal(cuda_driver.read(y, SHAPE), expected(value))
    info = context.graph_info
    assert isinstance(info, trt.GraphInfo)
    assert info.recordings == 1
    assert info.replays > 0


def never(plugin: Plugin, x: Any, outputs: Any, stream: int) -> None:
    pass


def waits(plugin: Plugin, x: Any, outputs: Any, stream: int) -> None:
    """As .item() does."""
    result = cuda_driver.driver().cuStreamSynchronize(ctypes.c_void_p(stream))
    cuda_driver.check(result, "cuStreamSynchronize")


def waits_silently(plugin: Plugin, x: Any, outputs: Any, stream: int) -> None:
    """And launches nothing that would fail where that failed."""
    plugin.launches = not is_recording(stream)
    cuda_driver.driver().cuStreamSynchronize(ctypes.c_void_p(stream))


def is_recording(stream: int) -> bool:
    status = ctypes.c_int()
    result = cuda_driver.driver().cuStreamIsCapturing(
        ctypes.c_void_p(stream), ctypes.byref(status)
    )
    return result != 0 or status.value != 0


@pytest.mark.parametrize(
    ("body", "capturable", "reason"),
    [
        (never, False, None),
        (waits, None, "cuStreamSynchronize"),
        (waits, True, "cuStreamSynchronize"),
        (waits_silently, None, "something that cannot be recorded"),
        (waits_silently, True, "something that cannot be recorded"),
    ],
)
def test_not_recorded(body: Any, capturable: bool | None, reason: str | None) -> None:
    plugin = Plugin(body, capturable=capturable)
    model = plugin.model()
    check(model)
    info, before = model.graph_info, plugin.calls
    assert info.other_steps == 1
    assert info.graph_steps > 0
    check(model, 3)
    assert plugin.calls == before + 3
    if reason is not None:
        (line,) = plugin.log.about_graphs()
        assert "mine" in line
        assert reason in line


@pytest.mark.parametrize("capturable", [True, None])
def test_what_keeps_a_tensor_is_not_recorded(capturable: bool | None) -> None:
    """Nor is it tried, on memory that would be gone."""
    recorded: list[bool] = []
    kept: list[Any] = []

    def keep(plugin: Plugin, x: Any, outputs: Any, stream: int) -> None:
        recorded.append(is_recording(stream))
        kept.append(x)

    plugin = Plugin(keep, capturable=capturable)
    model = plugin.model(try_plugins=False)
    check(model)
    assert model.graph_info.other_steps == 1
    assert not any(recorded)
    (line,) = plugin.log.about_graphs()
    assert "kept a Tensor" in line
    kept.clear()


def test_what_keeps_a_tensor_of_a_recording_gets_nothing() -> None:
    kept: list[Any] = []

    def keep(plugin: Plugin, x: Any, outputs: Any, stream: int) -> None:
        if is_recording(stream):
            kept.append(x)

    plugin = Plugin(keep)
    model = plugin.model()
    check(model)
    assert model.graph_info.other_steps == 1
    with pytest.raises(RuntimeError, match="its memory is gone"):
        kept[0].__dlpack__()
    kept.clear()


def test_what_changes_is_found_by_the_trial() -> None:
    def count(plugin: Plugin, x: Any, outputs: Any, stream: int) -> None:
        plugin.addend += 1

    plugin = Plugin(count)
    model = plugin.model()
    x, y = random(*SHAPE), np.empty(SHAPE, np.float32)
    for _ in range(6):
        model(x, out=y)
        np.testing.assert_array_equal(y, expected(x, plugin.addend))
    assert model.graph_info.other_steps == 1
    (line,) = plugin.log.about_graphs()
    assert "the results of a replay differ from those of a call" in line


@pytest.mark.parametrize("error", [KeyError, AssertionError, SystemExit])
def test_exceptions_of_a_recording_are_not_told(error: type[BaseException]) -> None:
    def fail(plugin: Plugin, x: Any, outputs: Any, stream: int) -> None:
        if is_recording(stream):
            raise error("while it is recorded")

    plugin = Plugin(fail, capturable=True)
    model = plugin.model()
    check(model)
    assert model.graph_info.other_steps == 1
    assert error.__name__ in plugin.log.about_graphs()[0]


def test_exceptions_of_calls_arrive() -> None:
    def fail(plugin: Plugin, x: Any, outputs: Any, stream: int) -> None:
        if plugin.bad:  # type: ignore[attr-defined]
            raise KeyError("gone")

    plugin = Plugin(fail, capturable=True)
    plugin.bad = False  # type: ignore[attr-defined]
    model = plugin.model()
    x, y = random(*SHAPE), np.empty(SHAPE, np.float32)
    model(x, out=y)
    plugin.bad = True  # type: ignore[attr-defined]
    for _ in range(3):  # recorded, then not any more
        with pytest.raises(KeyError, match="gone") as caught:
            model(x, out=y)
        assert "mine" in caught.value.__notes__[0]
    plugin.bad = False  # type: ignore[attr-defined]
    check(model)


def test_interrupted_recordings() -> None:
    def interrupt(plugin: Plugin, x: Any, outputs: Any, stream: int) -> None:
        if is_recording(stream):
            raise KeyboardInterrupt

    plugin = Plugin(interrupt, capturable=True)
    model = plugin.model()
    x, y = random(*SHAPE), np.empty(SHAPE, np.float32)
    with pytest.raises(KeyboardInterrupt):
        for _ in range(5):
            model(x, out=y)
    check(model)


def test_new_addresses_and_new_shapes() -> None:
    """Fresh outputs of model(x), and a shape that comes again."""
    plugin_id = new_id("shapes")
    kernel = cuda_driver.Function(SOURCE, "axpb")

    @trtp.register(plugin_id)
    def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id, capturable=True)
    def run(x, outputs, stream):
        kernel(
            8, 64, stream, ctypes.c_void_p(x.data_ptr), ctypes.c_int(x.numel()),
            ctypes.c_float(3), ctypes.c_float(0),
            ctypes.c_void_p(outputs[0].data_ptr),
        )  # fmt: skip

    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (-1, 8))
    network.mark_output(network.add_plugin(call(plugin_id)(x)).get_output(0))
    model = trt.compile(network, device="cuda", shapes={"x": ((1, 8), (4, 8), (40, 8))})
    kept = []
    for i in range(12):
        value = random((3, 40)[i % 2], 8, seed=i)
        kept.append((model(value), 3 * value))
    for found, wanted in kept:
        np.testing.assert_array_equal(found, wanted)
    assert model.graph_info.replays > 0


def test_the_profiler_sees_each_layer() -> None:
    plugin = Plugin(capturable=True)
    model = plugin.model()
    check(model)
    times = model.profile(random(*SHAPE))
    assert any("mine" in name for name, _ in times)


def test_capturable_is_checked() -> None:
    with pytest.raises(trtp.DefinitionError, match="capturable is 'yes'; it is True"):
        trtp.impl("test::any", capturable="yes")  # type: ignore[arg-type]


LIBRARIES = """
import gc, sys
import numpy as np
from tests.python.support.fake_libraries import FakeCuPy, FakeTorch
torch, cupy = FakeTorch(), FakeCuPy()
sys.modules.update(torch=torch, cupy=cupy)
from tests.gpu import cuda_driver
from tests.gpu.test_graphs import Plugin, check, is_recording
seen = set()

def body(plugin, x, outputs, stream):
    current = torch._C._cuda_getCurrentRawStream(0)
    assert current == cupy.cuda.get_current_stream(0).ptr == stream
    recording = is_recording(stream)
    assert bool(torch.allocating) == (cupy.allocator is not None) == recording
    if recording:
        cupy.allocator(64)
    seen.add((recording, gc.isenabled()))

with cuda_driver.session():
    model = Plugin(body).model()
    check(model)
    assert model.graph_info.other_steps == 0
    assert seen == {(False, True), (True, False)}, seen
    assert gc.isenabled()
    assert torch._C._cuda_getCurrentRawStream(0) == 0
    # One of the trial, one of the recording; the latter while the graph lives.
    assert sorted(torch.pools.values()) == [0, 1]
    assert cupy.alive == 1
    del model
    gc.collect()
    assert sorted(torch.pools.values()) == [0, 0]
    assert cupy.alive == 0
print("fine")
"""


def test_libraries_that_allocate() -> None:
    """Streams and pools of torch and CuPy, by stand-ins for them."""
    result = subprocess.run(
        [sys.executable, "-c", LIBRARIES],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).resolve().parents[2],
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout == "fine\n"
