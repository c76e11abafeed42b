"""Makes the engine's stream the current one of torch and CuPy during a call."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

Undo = Callable[[], Any]

# Streams seen that are kept as objects of other libraries.
_MOST_STREAMS = 64


class _Torch:
    """torch's current stream."""

    def __init__(self, torch: Any) -> None:
        self.torch, self.native = torch, torch._C
        self.handle = torch._C._cuda_getCurrentRawStream
        self.known: dict[tuple[int, int], dict[str, int]] = {}

    def _find(self, device: int, stream: int) -> dict[str, int]:
        """torch's numbers for a stream, valid as long as its handle."""
        self.torch.cuda.init()
        outside = self.torch.cuda.ExternalStream(stream, device=device)
        if len(self.known) >= _MOST_STREAMS:
            self.known.clear()
        found = {
            "stream_id": outside.stream_id,
            "device_index": outside.device_index,
            "device_type": outside.device_type,
        }
        self.known[device, stream] = found
        return found

    def use(self, device: int, stream: int) -> Undo:
        """Makes a stream current; returns a function that restores the previous one."""
        wanted = self.known.get((device, stream)) or self._find(device, stream)
        number, index, kind = self.native._cuda_getCurrentStream(device)
        use = self.native._cuda_setStream
        use(**wanted)
        return lambda: use(stream_id=number, device_index=index, device_type=kind)


class _CuPy:
    """CuPy's current stream."""

    def __init__(self, cupy: Any) -> None:
        self.cupy, self.cuda = cupy, cupy.cuda
        self.current = cupy.cuda.get_current_stream
        self.known: dict[tuple[int, int], Any] = {}

    def handle(self, device: int) -> int:
        """The current stream on a GPU."""
        return int(self.current(device).ptr)

    def _find(self, device: int, stream: int) -> Any:
        if len(self.known) >= _MOST_STREAMS:
            self.known.clear()
        outside = (
            self.cuda.ExternalStream(stream, device) if stream else self.cuda.Stream.null
        )
        self.known[device, stream] = outside
        return outside

    def use(self, device: int, stream: int) -> Undo:
        """Makes a stream current; returns a function that restores the previous one."""
        before = self.current(device)
        (self.known.get((device, stream)) or self._find(device, stream)).use()
        return before.use  # type: ignore[no-any-return]


_torch: _Torch | None = None
_cupy: _CuPy | None = None
# A torch or CuPy that cannot use the GPU, for example built for other drivers.
_unusable_torch: Any = None
_unusable: Any = None


def _find_torch() -> _Torch | None:
    """None while torch is not imported, or being imported, or cannot use a GPU."""
    global _torch, _unusable_torch
    torch = sys.modules.get("torch")
    if torch is None or torch is _unusable_torch:
        return None
    native = getattr(torch, "_C", None)
    if not (hasattr(native, "_cuda_getCurrentRawStream") and hasattr(torch, "cuda")):
        return None
    available = getattr(torch.cuda, "is_available", None)
    if available is not None and not available():
        _unusable_torch = torch
        return None
    _torch = _Torch(torch)
    return _torch


def _find_cupy() -> _CuPy | None:
    """None while CuPy is not imported, or being imported, or cannot work here."""
    global _cupy, _unusable
    cupy = sys.modules.get("cupy")
    if cupy is None or cupy is _unusable:
        return None
    if not hasattr(getattr(cupy, "cuda", None), "get_current_stream"):
        return None
    found = _CuPy(cupy)
    try:
        found.handle(-1)
    except Exception:  # reported when it is used
        _unusable = cupy
        return None
    _cupy = found
    return found


def libraries() -> tuple[Any, Any]:
    """torch and CuPy as modules, as far as `enter` found them."""
    return (
        None if _torch is None else _torch.torch,
        None if _cupy is None else _cupy.cupy,
    )


def enter(device: int, stream: int) -> Undo | None:
    """Makes `stream` current in torch and CuPy, as far as they are loaded; what
    puts things back, or None where nothing was to be done."""
    undo: Undo | None = None
    torch = _torch or _find_torch()
    if torch is not None and torch.handle(device) != stream:
        undo = torch.use(device, stream)
    cupy = _cupy or _find_cupy()
    if cupy is None:
        return undo
    try:
        if cupy.handle(device) == stream:
            return undo
        other = cupy.use(device, stream)
    except BaseException:
        if undo:
            undo()
        raise
    return _both(undo, other) if undo else other


def _both(first: Undo, second: Undo) -> Undo:
    def undo() -> None:
        try:
            second()
        finally:
            first()

    return undo
