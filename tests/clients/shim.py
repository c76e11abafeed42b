"""torch.cuda on a machine without a GPU: "cuda" means the host's memory.

Client projects ask for "cuda" everywhere. While `installed()` is active, torch says that
there is a GPU; tensors that are asked for on "cuda" are tensors of the host; streams and
events do nothing, as work is done when a call returns; and the stream's number is 0, which
is what Rabbet's CPU device takes.
"""

from __future__ import annotations

import collections
import contextlib
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

HOST = torch.device("cpu")
# Clients drop a copy (contiguous, or on the GPU) once they have its address. On a GPU its
# memory is next used by later work of the stream; on the host by anybody, at once.
_copies: collections.deque[torch.Tensor] = collections.deque(maxlen=64)


def is_cuda(value: Any) -> bool:
    """Whether a value names the GPU."""
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, str) and value.partition(":")[0] == "cuda"


def to_host(value: Any) -> Any:
    """The host for the GPU, anything else as it is."""
    return HOST if is_cuda(value) else value


class HostForCuda(TorchFunctionMode):
    """Takes "cuda" for the host in every call of torch."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """The call with other devices."""
        moves = function is torch.Tensor.to and any(map(is_cuda, args))
        kwargs = {name: to_host(value) for name, value in (kwargs or {}).items()}
        if isinstance(kwargs.get("device"), int):
            kwargs["device"] = HOST
        if function is torch.Tensor.cuda:
            return args[0]
        if function is torch.Tensor.to and len(args) > 1 and isinstance(args[1], int):
            args = (args[0], HOST, *args[2:])
        if function is not torch.device:
            args = tuple(map(to_host, args))
        if kwargs.get("pin_memory"):
            del kwargs["pin_memory"]
        result = function(*args, **kwargs)
        if moves or function is torch.Tensor.contiguous:
            _copies.append(result)
        return result


def for_host(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function in which "cuda" is the host, wherever it is called."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with HostForCuda():
            return function(*args, **kwargs)

    return call


class Stream:
    """One on which everything is done."""

    cuda_stream = 0
    stream_id = 0
    device = HOST
    device_index = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *args: Any) -> None:
        pass

    def query(self) -> bool:
        """Whether all is done."""
        return True

    def record_event(self, event: Any = None) -> Any:
        """A point in time."""
        event = event or Event()
        event.record()
        return event

    def nothing(self, *args: Any, **kwargs: Any) -> None:
        """There is nothing to wait for."""

    synchronize = wait_event = wait_stream = nothing


class Event:
    """The time of the host's clock."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.time = 0.0

    def record(self, stream: Any = None) -> None:
        """Takes the time."""
        self.time = time.perf_counter()

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds to another event."""
        return 1e3 * (end.time - self.time)

    def query(self) -> bool:
        """Whether it has happened."""
        return True

    def nothing(self, *args: Any, **kwargs: Any) -> None:
        """There is nothing to wait for."""

    synchronize = wait = nothing


_PROPERTIES = SimpleNamespace(
    name="host", major=9, minor=0, multi_processor_count=1, total_memory=8 << 30,
    shared_memory_per_block_optin=227 << 10, is_integrated=False,
)  # fmt: skip


def _returns(value: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: value


@contextlib.contextmanager
def _context(*args: Any, **kwargs: Any) -> Iterator[Any]:
    yield args[0] if args else None


_CUDA = {
    "is_available": _returns(True),
    "is_initialized": _returns(True),
    "is_current_stream_capturing": _returns(False),
    "is_bf16_supported": _returns(True),
    "init": _returns(None),
    "_lazy_init": _returns(None),
    "device_count": _returns(1),
    "current_device": _returns(0),
    "set_device": _returns(None),
    "get_device_name": _returns("host"),
    "get_device_capability": _returns((9, 0)),
    "get_device_properties": _returns(_PROPERTIES),
    "mem_get_info": _returns((8 << 30, 8 << 30)),
    "memory_allocated": _returns(0),
    "max_memory_allocated": _returns(0),
    "memory_reserved": _returns(0),
    "max_memory_reserved": _returns(0),
    "reset_peak_memory_stats": _returns(None),
    "empty_cache": _returns(None),
    "ipc_collect": _returns(None),
    "synchronize": _returns(None),
    "get_rng_state": lambda *args, **kwargs: torch.get_rng_state(),
    "set_rng_state": _returns(None),
    "manual_seed": _returns(None),
    "manual_seed_all": _returns(None),
    "current_stream": lambda *args, **kwargs: Stream(),
    "default_stream": lambda *args, **kwargs: Stream(),
    "set_stream": _returns(None),
    "Stream": Stream,
    "Event": Event,
    "stream": _context,
    "device": _context,
}


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """torch with a GPU that is the host."""
    with contextlib.ExitStack() as stack:
        for name, value in _CUDA.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, value))
        # Modules move their parameters by Tensor.cuda, outside of the mode's reach.
        same = lambda self, *args, **kwargs: self  # noqa: E731
        stack.enter_context(mock.patch.object(torch.nn.Module, "cuda", same))
        stack.enter_context(
            mock.patch.object(torch.Tensor, "is_cuda", property(_returns(True)))
        )
        stack.enter_context(
            mock.patch.object(torch.Tensor, "record_stream", _returns(None), create=True)
        )
        stack.enter_context(HostForCuda())
        yield
