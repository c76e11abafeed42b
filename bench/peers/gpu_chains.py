"""Chains of one small kernel on a GPU: what the host spends on each launch, and what
the GPU spends when the chain is replayed. Each contestant has a chain of LENGTH and one
of twice that."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.gpu import cuda_driver

from ..options import ROOT

LENGTH = 64
COUNT = 256
"""Elements; a block's threads."""


def library_path() -> Path:
    """bench/plugins/gpu_calls.c, built here or carried here."""
    name = "libbench_gpu_calls.so"
    given = os.environ.get("RABBET_BENCH_LIBRARY")
    places = [ROOT / ".gpu" / "lib" / name, ROOT / "build" / "bench" / name]
    for path in [Path(given)] if given else places:
        if path.is_file():
            return path
    raise FileNotFoundError(
        f"there is no {name} in .gpu/lib or build/bench: run make build, or "
        "tests/gpu/pack.sh where Rabbet is built"
    )


class _Gpu:
    """The primary context, made current; a stream; memory for two tensors."""

    def __init__(self) -> None:
        context, driver = ctypes.c_void_p(), cuda_driver.driver()
        cuda_driver.check(driver.cuInit(0), "cuInit")
        result = driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        cuda_driver.check(result, "cuDevicePrimaryCtxRetain")
        cuda_driver.check(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent")
        handle = ctypes.c_void_p()
        result = driver.cuStreamCreate(ctypes.byref(handle), 1)
        cuda_driver.check(result, "cuStreamCreate")
        self.stream = int(handle.value or 0)
        self.x, self.y = self._memory(), self._memory()
        cuda_driver.write(self.x, np.zeros(COUNT, np.float32))

    def _memory(self) -> int:
        address = ctypes.c_uint64()
        size = ctypes.c_size_t(4 * COUNT)
        result = cuda_driver.driver().cuMemAlloc_v2(ctypes.byref(address), size)
        cuda_driver.check(result, "cuMemAlloc")
        return address.value

    def wait(self) -> None:
        stream = ctypes.c_void_p(self.stream)
        result = cuda_driver.driver().cuStreamSynchronize(stream)
        cuda_driver.check(result, "cuStreamSynchronize")

    def event(self) -> ctypes.c_void_p:
        event = ctypes.c_void_p()
        result = cuda_driver.driver().cuEventCreate(ctypes.byref(event), 0)
        cuda_driver.check(result, "cuEventCreate")
        return event

    def record(self, event: ctypes.c_void_p) -> None:
        stream = ctypes.c_void_p(self.stream)
        result = cuda_driver.driver().cuEventRecord(event, stream)
        cuda_driver.check(result, "cuEventRecord")

    def between(self, begin: ctypes.c_void_p, end: ctypes.c_void_p) -> float:
        """Seconds, once `end` has happened."""
        milliseconds, driver = ctypes.c_float(), cuda_driver.driver()
        cuda_driver.check(driver.cuEventSynchronize(end), "cuEventSynchronize")
        result = driver.cuEventElapsedTime(ctypes.byref(milliseconds), begin, end)
        cuda_driver.check(result, "cuEventElapsedTime")
        return milliseconds.value / 1e3


class Pair:
    """A chain of LENGTH and one of 2 LENGTH; subclasses enqueue them."""

    checked = True
    """Whether the chain adds 1 in each of its operators."""

    def __init__(self, **_: object) -> None:
        self.gpu = _Gpu()
        self.prepare()
        for _index in range(3):
            self.call()

    def prepare(self) -> None:
        """Makes what enqueue needs."""

    def enqueue(self, times: int) -> None:
        """LENGTH or 2 LENGTH operators on the stream, not waited for."""
        raise NotImplementedError

    def wait(self) -> None:
        self.gpu.wait()

    def call(self) -> None:
        for times in (LENGTH, 2 * LENGTH):
            self.enqueue(times)
            self.wait()

    def time_calls(self, seconds: float, least: int) -> list[float]:
        """Seconds of the host for one operator more, sampled."""
        clock, samples = time.perf_counter_ns, []
        end = clock() + int(seconds * 1e9)
        while len(samples) < least or clock() < end:
            spans = []
            for times in (LENGTH, 2 * LENGTH):
                begin = clock()
                self.enqueue(times)
                spans.append(clock() - begin)
                self.wait()
            samples.append((spans[1] - spans[0]) / LENGTH / 1e9)
        return samples

    def result(self) -> Any:
        """After a chain of LENGTH, an even number, from zeros in x."""
        return cuda_driver.read(self.gpu.x, (COUNT,))

    def outputs(self) -> dict[str, Any]:
        if not self.checked:
            return {"y": np.full(COUNT, LENGTH, np.float32)}
        cuda_driver.write(self.gpu.x, np.zeros(COUNT, np.float32))
        self.enqueue(LENGTH)
        self.wait()
        return {"y": self.result()}


# ---- Launches without an engine ----


class Bare(Pair):
    """cuLaunchKernel in a loop in C."""

    def prepare(self) -> None:
        self.library = opened()

    def enqueue(self, times: int) -> None:
        result = self.library.gpu_calls_launch(
            times, ctypes.c_void_p(self.gpu.x), ctypes.c_void_p(self.gpu.y), COUNT,
            ctypes.c_void_p(self.gpu.stream),
        )  # fmt: skip
        cuda_driver.check(result, "cuLaunchKernel")


class _Looped(Pair):
    """A Python function (x, y) called in a loop, forth and back."""

    launch: Callable[[Any, Any], None]
    ends: tuple[Any, Any]

    def enqueue(self, times: int) -> None:
        launch, (x, y) = self.launch, self.ends
        for _index in range(times // 2):
            launch(x, y)
            launch(y, x)


class Ctypes(_Looped):
    """cuLaunchKernel by ctypes, as the plugin `launch` does it."""

    def prepare(self) -> None:
        from ..plugins.gpu_calls import launcher

        launch, stream = launcher(), self.gpu.stream
        self.launch = lambda x, y: launch(x, y, stream)
        self.ends = (self.gpu.x, self.gpu.y)


class CudaPython(_Looped):
    """cuLaunchKernel of NVIDIA's Python bindings."""

    def prepare(self) -> None:
        from cuda.bindings import driver

        from ..plugins.gpu_calls import launcher

        function = driver.CUfunction(launcher().function.value)
        stream = driver.CUstream(self.gpu.stream)
        types = (ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)

        def launch(x: int, y: int) -> None:
            (error,) = driver.cuLaunchKernel(
                function, 1, 1, 1, COUNT, 1, 1, 0, stream, ((x, COUNT, y), types), 0
            )
            if error:
                raise RuntimeError(str(error))

        self.launch, self.ends = launch, (self.gpu.x, self.gpu.y)


class _Torch(_Looped):
    """On torch's tensors and its current stream."""

    def prepare(self) -> None:
        import torch

        self.torch = torch
        self.ends = tuple(torch.zeros(COUNT, device="cuda") for _side in range(2))
        self.launch = self.function()

    def function(self) -> Callable[[Any, Any], None]:
        raise NotImplementedError

    def wait(self) -> None:
        self.torch.cuda.synchronize()

    def outputs(self) -> dict[str, Any]:
        if not self.checked:
            return super().outputs()
        self.ends[0].zero_()
        self.enqueue(LENGTH)
        return {"y": self.ends[0].cpu().numpy()}


class Triton(_Torch):
    """A launch of a Triton kernel."""

    def function(self) -> Callable[[Any, Any], None]:
        from ..plugins.triton_kernels import add_one

        kernel = add_one[(1,)]
        return lambda x, y: kernel(x, COUNT, y, BLOCK=COUNT)


class CustomOp(_Torch):
    """torch.library.custom_op, its body empty."""

    checked = False

    def function(self) -> Callable[[Any, Any], None]:
        torch = self.torch

        def noop(x: Any, y: Any) -> None:
            pass

        return torch.library.custom_op(
            "bench::noop",
            noop,
            mutates_args={"y"},
            schema="(Tensor x, Tensor(a!) y) -> ()",
        )

    def enqueue(self, times: int) -> None:
        with self.torch.inference_mode():
            super().enqueue(times)


class Cupy(_Looped):
    """A launch of CuPy's RawKernel."""

    def prepare(self) -> None:
        import cupy

        from ..plugins.gpu_calls import SOURCE

        self.cupy, count = cupy, np.int32(COUNT)
        self.ends = (cupy.zeros(COUNT, "f4"), cupy.zeros(COUNT, "f4"))
        kernel = cupy.RawKernel(SOURCE, "add_one")
        self.launch = lambda x, y: kernel((1,), (COUNT,), (x, count, y))

    def wait(self) -> None:
        self.cupy.cuda.get_current_stream().synchronize()

    def outputs(self) -> dict[str, Any]:
        self.ends[0].fill(0)
        self.enqueue(LENGTH)
        return {"y": self.ends[0].get()}


# ---- Rabbet ----


def opened() -> ctypes.CDLL:
    """The library with its kernel loaded into the current context."""
    from ..plugins.gpu_calls import code

    library = ctypes.CDLL(str(library_path()))
    cuda_driver.check(library.gpu_calls_use(code(), b"add_one"), "gpu_calls_use")
    return library


class Chain(Pair):
    """Plugins in a row, without a graph. body: "NAMESPACE::NAME"."""

    graphs = False

    def __init__(self, *, body: str, torch: bool = False, **_: object) -> None:
        self.body, self.torch = body, torch
        super().__init__()

    def load(self) -> None:
        import rabbet as trt

        namespace = self.body.partition("::")[0]
        if namespace == "bench_c":
            opened()
            trt.load_plugins(str(library_path()))
        elif namespace == "bench_triton":
            trt.load_plugins("bench.plugins.gpu_triton")
        else:
            trt.load_plugins("bench.plugins.gpu_calls")
        if self.torch:
            import torch

            torch.zeros(1, device="cuda")

    def prepare(self) -> None:
        self.load()
        self.engines, self.contexts = [], {}
        for times in (LENGTH, 2 * LENGTH):
            self.contexts[times] = self._context(times)

    def _context(self, times: int) -> Any:
        import rabbet as trt

        from ..chain import chain_model

        namespace, name = self.body.split("::")
        builder = trt.Builder()
        network = builder.create_network()
        parser = trt.OnnxParser(network, trt.Logger())
        model = chain_model(name, times, (COUNT,), domain=namespace)
        if not parser.parse(model.SerializeToString()):
            raise RuntimeError("the chain cannot be parsed")
        config = builder.create_builder_config()
        config.device = "cuda"
        plan = builder.build_serialized_network(network, config)
        engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(plan)
        self.engines.append(engine)
        context = engine.create_execution_context()
        context.graphs = self.graphs
        context.set_tensor_address("x", self.gpu.x)
        context.set_tensor_address("y", self.gpu.y)
        return context

    def enqueue(self, times: int) -> None:
        self.contexts[times].execute_async_v3(self.gpu.stream)

    def result(self) -> Any:
        return cuda_driver.read(self.gpu.y, (COUNT,))


class NoBody(Chain):
    """The plugin does nothing."""

    checked = False


class Replayed(Chain):
    """The chain of 2 LENGTH from a graph: its time on the GPU."""

    graphs = True
    replays = 20

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.events = self.gpu.event(), self.gpu.event()
        info = self.contexts[2 * LENGTH].graph_info
        if info.replays == 0 or info.other_steps:
            raise RuntimeError(f"the chain is not replayed from a graph: {info}")

    def time_calls(self, seconds: float, least: int) -> list[float]:
        """Seconds of the GPU for one operator of the chain, sampled."""
        clock, samples = time.monotonic, []
        end = clock() + seconds
        begin_event, end_event = self.events
        self.enqueue(2 * LENGTH)  # the GPU has work while the host begins
        while len(samples) < least or clock() < end:
            self.gpu.record(begin_event)
            for _index in range(self.replays):
                self.enqueue(2 * LENGTH)
            self.gpu.record(end_event)
            spent = self.gpu.between(begin_event, end_event)
            samples.append(spent / self.replays / (2 * LENGTH))
        return samples
