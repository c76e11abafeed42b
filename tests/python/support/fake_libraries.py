"""Stand-ins for what Rabbet uses of torch and CuPy on a GPU: they note what is
asked of them, with the real functions' signatures, and refuse wrong orders."""

from __future__ import annotations

import contextlib
import threading
import types
from collections.abc import Iterator
from typing import Any


class Streams(threading.local):
    """The current stream of each thread on each GPU."""

    def __init__(self) -> None:
        self.current: dict[int, int] = {}


class FakeTorch(types.ModuleType):
    """As of torch 2.8 and later; `by_stream`: as before."""

    def __init__(self, by_stream: bool = False, initialized: bool = True) -> None:
        super().__init__("torch")
        self.__version__ = "2.7.0" if by_stream else "2.11.0"
        self.events: list[Any] = []
        self.pools: dict[tuple[int, int], int] = {}  # users of each
        self.allocating: list[tuple[int, int]] = []
        self.initialized = initialized
        self.streams = Streams()
        self.Tensor = type("Tensor", (), {})
        names = {
            "_cuda_getCurrentRawStream": lambda device: self._now(device),
            "_cuda_getCurrentStream": lambda device: (self._now(device) + 7, device, 1),
            "_cuda_setStream": self._set,
            "_cuda_releasePool": self._release,
            "_cuda_clearCublasWorkspaces": lambda: self.events.append("forget"),
        }
        if by_stream:
            names["_cuda_beginAllocateToPool"] = self._begin
            names["_cuda_endAllocateCurrentStreamToPool"] = self._end
        else:
            names["_cuda_beginAllocateCurrentThreadToPool"] = self._begin
            names["_cuda_endAllocateToPool"] = self._end
        self._C = types.SimpleNamespace(**names)
        self.cuda = types.SimpleNamespace(
            init=self._initialize,
            is_initialized=lambda: self.initialized,
            ExternalStream=self._external,
            graph_pool_handle=lambda: (0, len(self.pools) + 1),
        )

    def _initialize(self) -> None:
        self.initialized = True

    def _now(self, device: int) -> int:
        return self.streams.current.get(device, 0)

    def _external(self, stream: int, device: int) -> Any:
        self.events.append(("external", device, stream))
        return types.SimpleNamespace(
            stream_id=stream + 7, device_index=device, device_type=1
        )

    def _set(self, *, stream_id: int, device_index: int, device_type: int) -> None:
        assert device_type == 1
        self.streams.current[device_index] = stream_id - 7

    def _begin(self, device: int, pool: tuple[int, int]) -> None:
        assert pool not in self.pools
        self.pools[pool] = 1
        self.allocating.append(pool)
        self.events.append(("begin", device, pool))

    def _end(self, device: int, pool: tuple[int, int]) -> None:
        self.allocating.remove(pool)
        self.events.append(("end", device, pool))

    def _release(self, device: int, pool: tuple[int, int]) -> None:
        assert pool not in self.allocating
        self.pools[pool] -= 1
        assert self.pools[pool] == 0
        self.events.append(("release", device, pool))


class FakeCuPy(types.ModuleType):
    """As of CuPy 13 and 14."""

    def __init__(self) -> None:
        super().__init__("cupy")
        self.streams = Streams()
        self.allocator: Any = None
        self.allocations: list[tuple[int, threading.Thread]] = []
        self.alive = 0
        self.device = 0
        outer = self

        class Stream:
            null: Any

            def __init__(self, ptr: int, device_id: int = -1) -> None:
                self.ptr, self.device_id = ptr, device_id

            def use(self) -> Any:
                device = outer.device if self.device_id < 0 else self.device_id
                outer.streams.current[device] = self
                return self

        Stream.null = Stream(0)

        class Device:
            def __init__(self, number: int) -> None:
                self.number = number

            def __enter__(self) -> None:
                self.before, outer.device = outer.device, self.number

            def __exit__(self, *error: object) -> None:
                outer.device = self.before

        class Memory:
            def __init__(self, size: int) -> None:
                if size > 1 << 30:
                    raise MemoryError("no more")
                outer.allocations.append((size, threading.current_thread()))
                outer.alive += 1

            def __del__(self) -> None:
                outer.alive -= 1

        class MemoryPointer:
            def __init__(self, mem: Any, offset: int) -> None:
                self.mem = mem

        class MemoryPool:
            """Keeps what it got, as the real one does."""

            def __init__(self, allocator: Any) -> None:
                self.allocator, self.kept = allocator, []

            def malloc(self, size: int) -> Any:
                pointer = self.allocator(size)
                self.kept.append(pointer)
                return pointer

        @contextlib.contextmanager
        def using_allocator(allocator: Any) -> Iterator[None]:
            before, outer.allocator = outer.allocator, allocator
            try:
                yield
            finally:
                outer.allocator = before

        self.cuda = types.SimpleNamespace(
            Stream=Stream,
            ExternalStream=Stream,
            Device=Device,
            Memory=Memory,
            MemoryPointer=MemoryPointer,
            MemoryPool=MemoryPool,
            using_allocator=using_allocator,
            get_current_stream=lambda device=-1: self.streams.current.get(
                device if device >= 0 else self.device, Stream.null
            ),
        )
