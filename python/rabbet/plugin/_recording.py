"""Memory that other libraries allocate while a call is recorded into a graph.

Replays use the same addresses again: torch and CuPy take such memory from pools
that live as long as the graph, and that nothing else takes memory from.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Protocol

from .._errors import UnsupportedError
from ._streams import libraries


class _Pool(Protocol):
    def end(self) -> None: ...

    def release(self) -> None: ...


class _TorchPool:
    """A private pool of torch's caching allocator. `begin` counts a user of it,
    which `release` takes back."""

    def __init__(self, torch: Any, device: int) -> None:
        native = torch._C
        # From 2.8 on by thread, before by stream; the recording's is current.
        if hasattr(native, "_cuda_beginAllocateCurrentThreadToPool"):
            names = ("_cuda_beginAllocateCurrentThreadToPool", "_cuda_endAllocateToPool")
        else:
            names = (
                "_cuda_beginAllocateToPool",
                "_cuda_endAllocateCurrentStreamToPool",
            )
        needed = (*names, "_cuda_releasePool")
        if not all(hasattr(native, name) for name in needed):
            raise UnsupportedError(
                f"torch {torch.__version__} has no {', '.join(needed)}, by which it "
                "allocates in recordings from memory that is kept; use a newer one"
            )
        self.native, self.device = native, device
        self.end_allocation = getattr(native, names[1])
        self.id = torch.cuda.graph_pool_handle()
        self._forget_workspaces()
        getattr(native, names[0])(device, self.id)

    def _forget_workspaces(self) -> None:
        """Those of matrix products: torch keeps them for each stream, and would let
        graphs share one that only the first of them keeps."""
        clear = getattr(self.native, "_cuda_clearCublasWorkspaces", None)
        if clear is not None:
            clear()

    def end(self) -> None:
        self._forget_workspaces()
        self.end_allocation(self.device, self.id)

    def release(self) -> None:
        self.native._cuda_releasePool(self.device, self.id)


class _CuPyPool:
    """A memory pool of CuPy, gone when nothing refers to it."""

    def __init__(self, cupy: Any, device: int) -> None:
        self.cuda, self.device = cupy.cuda, device
        self.pool = cupy.cuda.MemoryPool(self._allocate)
        self.scope = contextlib.ExitStack()
        self.scope.enter_context(cupy.cuda.using_allocator(self.pool.malloc))

    def _allocate(self, size: int) -> Any:
        """Fresh memory, by another thread, as the one that records must not."""
        result: list[Any] = []

        def work() -> None:
            try:
                with self.cuda.Device(self.device):
                    memory = self.cuda.Memory(size)
                result.append(self.cuda.MemoryPointer(memory, 0))
            except BaseException as error:
                result.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        if isinstance(result[0], BaseException):
            raise result[0]
        return result[0]

    def end(self) -> None:
        self.scope.close()

    def release(self) -> None:
        self.pool = None


class Recording:
    """The pools of one recording."""

    def __init__(self) -> None:
        self.pools: list[_Pool] = []

    def end(self) -> None:
        """Ends allocation from the pools. Call it on the thread that began."""
        with contextlib.ExitStack() as stack:
            for pool in self.pools:
                stack.callback(pool.end)

    def release(self) -> None:
        """Releases the pools; no graph uses them any more."""
        with contextlib.ExitStack() as stack:
            while self.pools:
                stack.callback(self.pools.pop().release)


def begin(device: int, stream: int) -> Recording | None:
    """Pools for this thread's allocations from now on; None: no library is loaded
    that would allocate. The stream is current in these libraries, by
    _streams.enter."""
    recording = Recording()
    torch, cupy = libraries()
    try:
        # Plugins are run before they are recorded: those that use torch have imported it.
        if torch is not None and torch.cuda.is_initialized():
            recording.pools.append(_TorchPool(torch, device))
        if cupy is not None:
            recording.pools.append(_CuPyPool(cupy, device))
    except BaseException:
        recording.end()
        recording.release()
        raise
    return recording if recording.pools else None
