"""Architectures of the zoo on a GPU: the module as its library has it, with generated
weights, compiled by torch."""

from __future__ import annotations

import contextlib
import fcntl
import statistics
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


@contextlib.contextmanager
def turn(file: str, alone: bool) -> Iterator[None]:
    """Many may compile at once; who measures while he builds does it alone, after
    those."""
    with Path(file).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


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


def in_place(call: Callable[[], None], times: int = 5) -> list[list[Any]]:
    """The kernels of a call in their order, each with its microseconds where it stands:
    medians over several calls, or one call's where the calls differ."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as found:
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


def kernels(call: Callable[[], None]) -> dict[str, Any]:
    """What `in_place` finds, or why it finds nothing."""
    try:
        return {"kernels": in_place(call)}
    except Exception as error:
        return {"kernels_error": str(error)}


class OwnGraph:
    """torch.compile, the kernels captured into one graph by hand.

    expected: file for the results in FP32. lock: see `turn`.
    """

    def __init__(
        self, *, key: str, batch: int, precision: str, expected: str, lock: str
    ) -> None:
        with turn(lock, alone=False), torch.no_grad():
            torch.backends.cudnn.benchmark = True
            flat, inputs = settled(key, batch)
            self._expect(flat.cuda(), [tensor.cuda() for tensor in inputs], expected)
            flat, self.inputs = on_gpu(flat, inputs, precision)
            if any(tensor.dim() == 4 for tensor in self.inputs):
                flat = flat.to(memory_format=torch.channels_last)
                self.inputs = [self._laid(tensor) for tensor in self.inputs]
            try:
                self._capture(flat, freezing=True)
            except Exception:
                self._capture(flat, freezing=False)

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
            **kernels(self.call),
        }
