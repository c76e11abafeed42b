"""The engine's stream as the current one of other libraries, around a call."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

Undo = Callable[[], Any]

# Made when a library is first seen: the handle of its current stream on a GPU,
# and what makes another one current.
_torch_current: Callable[[int], int] | None = None
_cupy_current: Callable[[int], int] | None = None


def _find_torch() -> Callable[[int], int] | None:
    global _torch_current
    torch = sys.modules.get("torch")
    native = getattr(torch, "_C", None)
    # While torch is being imported, or built without CUDA, there is none.
    _torch_current = getattr(native, "_cuda_getCurrentRawStream", None)
    return _torch_current


def _find_cupy() -> Callable[[int], int] | None:
    global _cupy_current
    backend = sys.modules.get("cupy_backends.cuda.stream")
    current = getattr(backend, "get_current_stream_ptr", None)
    if current is not None:
        _cupy_current = lambda _device: current()  # noqa: E731
    return _cupy_current


def _use_in_torch(device: int, stream: int) -> Undo:
    import torch

    before = torch.cuda.current_stream(device)
    torch.cuda.set_stream(torch.cuda.ExternalStream(stream, device=device))
    return lambda: torch.cuda.set_stream(before)


def _use_in_cupy(device: int, stream: int) -> Undo:
    import cupy

    before = cupy.cuda.get_current_stream(device)
    if stream:
        cupy.cuda.ExternalStream(stream, device).use()
    else:
        cupy.cuda.Stream.null.use()
    return before.use


def enter(device: int, stream: int) -> list[Undo] | None:
    """Makes `stream` current in torch and CuPy, as far as they are loaded; what
    puts things back, or None where nothing was to be done."""
    undo: list[Undo] | None = None
    current = _torch_current or _find_torch()
    if current is not None and current(device) != stream:
        undo = [_use_in_torch(device, stream)]
    current = _cupy_current or _find_cupy()
    if current is not None and current(device) != stream:
        undo = [*(undo or []), _use_in_cupy(device, stream)]
    return undo
