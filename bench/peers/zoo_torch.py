"""Architectures of the zoo on a GPU: the module as its library has it, with generated
weights, compiled by torch."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from zoo import feeds, near_real
from zoo.flat import Flat
from zoo.weights import settle

from .torch_cuda import TYPES, captured

SEED = 1


class Stages:
    """A file with a line for each stage of each contestant, written as it ends, and turns
    between them."""

    def __init__(self, file: str, name: str) -> None:
        self.file, self.name = Path(file), name
        self.begin = time.monotonic()

    def end(self, stage: str) -> float:
        """Notes a stage; returns its seconds."""
        seconds, self.begin = time.monotonic() - self.begin, time.monotonic()
        with self.file.open("a") as lines:
            lines.write(f"{time.strftime('%X')} {self.name}: {stage} {seconds:.1f} s\n")
        return seconds

    @contextlib.contextmanager
    def turn(self, builds: int = 0) -> Iterator[None]:
        """Among contestants that compile, any number of which may at a time (0), or that
        measure while they build: one alone after those that compile, or `builds` of them
        beside these. Processes that a contestant starts do not hold its turn."""
        kind = fcntl.LOCK_EX if builds else fcntl.LOCK_SH
        first = 1 if builds > 1 else 0
        places = itertools.cycle(range(first, first + max(1, builds)))
        for place in places:
            with Path(f"{self.file}.{place}").open("a") as lock:
                try:
                    fcntl.flock(lock, kind | fcntl.LOCK_NB)
                except BlockingIOError:
                    time.sleep(0.02)
                    continue
                try:
                    yield
                finally:
                    fcntl.flock(lock, fcntl.LOCK_UN)
                return


def arrays_of(entry: Any) -> list[np.ndarray[Any, Any]]:
    return list(feeds.arrays(entry.inputs, feeds.usual(entry.dims), SEED).values())


def settled(key: str, batch: int) -> tuple[Flat, list[torch.Tensor]]:
    """The architecture with its weights, in FP32, and its inputs, both on the CPU. The
    weights are the same for each batch."""
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    one = near_real.entry(key)
    module = one.make().eval().requires_grad_(False)
    flat = Flat(one, module).eval()
    settle(module, lambda: flat(*map(torch.from_numpy, arrays_of(one))))
    given = arrays_of(near_real.entry(key, batch))
    return flat, [torch.from_numpy(array) for array in given]


def on_gpu(
    flat: Flat, inputs: list[torch.Tensor], precision: str
) -> tuple[Flat, list[torch.Tensor]]:
    """Both in the type, on the GPU."""
    dtype = TYPES.get(precision, torch.float32)

    def moved(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.cuda().to(dtype) if tensor.is_floating_point() else tensor.cuda()

    return flat.cuda().to(dtype), [moved(tensor) for tensor in inputs]


def numpy_of(results: Any) -> dict[str, Any]:
    """Results by their places."""
    return {
        f"output {i}": tensor.float().cpu().numpy() for i, tensor in enumerate(results)
    }


def in_place(
    call: Callable[[], None], turn: Stages, times: int = 5
) -> list[list[Any]]:
    """The kernels of a call in their order, each with its microseconds where it stands:
    medians over several calls, or one call's where the calls differ. turn: one process at
    a time has the GPU."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]):
        call()  # the profiler starts, which takes seconds
    with turn.turn(1), profile(activities=[ProfilerActivity.CUDA]) as found:
        for _index in range(times):
            call()
    spans = [e for e in found.events() if e.device_type.name == "CUDA"]
    spans.sort(key=lambda event: event.time_range.start)
    count, rest = divmod(len(spans), times)
    if rest or not count:
        return [[e.name[:160], e.time_range.elapsed_us()] for e in spans]
    calls = [spans[i : i + count] for i in range(0, len(spans), count)]
    return [
        [each[0].name[:160], statistics.median(e.time_range.elapsed_us() for e in each)]
        for each in zip(*calls, strict=True)
    ]


def kernels(call: Callable[[], None], turn: Stages) -> dict[str, Any]:
    """What `in_place` finds, or why it finds nothing."""
    try:
        return {"kernels": in_place(call, turn)}
    except Exception as error:
        return {"kernels_error": str(error)}


class OwnGraph:
    """torch.compile, the kernels captured into one graph by hand.

    expected: file for the results in FP32. stages: file of `Stages`.
    """

    def __init__(
        self, *, key: str, batch: int, precision: str, expected: str, stages: str
    ) -> None:
        self.told = told = Stages(stages, f"torch.compile, {key}, {batch}")
        with told.turn(), torch.no_grad():
            torch.backends.cudnn.benchmark = True
            flat, inputs = settled(key, batch)
            told.end("module")
            self._expect(flat.cuda(), [tensor.cuda() for tensor in inputs], expected)
            told.end("FP32")
            flat, self.inputs = on_gpu(flat, inputs, precision)
            if any(tensor.dim() == 4 for tensor in self.inputs):
                flat = flat.to(memory_format=torch.channels_last)
                self.inputs = [self._laid(tensor) for tensor in self.inputs]
            try:
                self._capture(flat, freezing=True)
            except Exception:
                self._capture(flat, freezing=False)
            self.compile_s = told.end("compiled")

    def _expect(self, flat: Flat, inputs: list[torch.Tensor], file: str) -> None:
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        np.savez(file, **numpy_of(flat(*inputs)))

    def _laid(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dim() != 4:
            return tensor
        return tensor.contiguous(memory_format=torch.channels_last)

    def _capture(self, flat: Flat, freezing: bool) -> None:
        from torch._inductor import config

        config.freezing = freezing
        torch._dynamo.reset()
        self.compiled = torch.compile(flat)
        with torch.inference_mode():
            self.graph, self.results = captured(lambda: self.compiled(*self.inputs))
        self.freezing = freezing

    def call(self) -> None:
        self.graph.replay()
        torch.cuda.current_stream().synchronize()

    def outputs(self) -> dict[str, Any]:
        self.call()
        return numpy_of(self.results)

    def facts(self) -> dict[str, Any]:
        return {
            "allocated_bytes": torch.cuda.max_memory_allocated(),
            "reserved_bytes": torch.cuda.max_memory_reserved(),
            "frozen": self.freezing,
            "compile_s": self.compile_s,
            **kernels(self.call, self.told),
        }
