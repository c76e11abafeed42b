"""Other libraries around a call on a GPU: their current stream, and the memory of
recordings. With stand-ins for the libraries; tests/gpu has the real ones."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator

import pytest
from rabbet import UnsupportedError
from rabbet.plugin import _recording, _streams

from tests.python.support.fake_libraries import FakeCuPy, FakeTorch


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeTorch]:
    fake = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", fake)
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setattr(_streams, "_torch", None)
    monkeypatch.setattr(_streams, "_cupy", None)
    yield fake
    assert fake.allocating == []


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> FakeCuPy:
    fake = FakeCuPy()
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setattr(_streams, "_torch", None)
    monkeypatch.setattr(_streams, "_cupy", None)
    return fake


def torch_now(torch: FakeTorch, device: int = 0) -> int:
    return torch.streams.current.get(device, 0)


# ---- Streams ----


def test_torch_stream(torch: FakeTorch) -> None:
    torch._set(stream_id=12, device_index=1, device_type=1)
    undo = _streams.enter(1, 100)
    assert undo is not None
    assert (torch_now(torch, 1), torch_now(torch)) == (100, 0)
    undo()
    assert torch_now(torch, 1) == 5
    assert _streams.enter(1, 5) is None  # it is the current one


def test_torch_streams_are_looked_up_once(torch: FakeTorch) -> None:
    for _ in range(3):
        undo = _streams.enter(0, 100)
        assert undo is not None
        undo()
    assert torch.events == [("external", 0, 100)]
    for stream in range(1000, 1200):
        undo = _streams.enter(0, stream)
        assert undo is not None
        assert torch_now(torch) == stream
        undo()
    assert _streams._torch is not None
    assert len(_streams._torch.known) <= 64


def test_torch_before_its_first_use(torch: FakeTorch) -> None:
    torch.initialized = False
    undo = _streams.enter(0, 100)
    assert undo is not None
    assert torch.initialized
    undo()


def test_torch_without_cuda(torch: FakeTorch, monkeypatch: pytest.MonkeyPatch) -> None:
    del torch._C._cuda_getCurrentRawStream
    assert _streams.enter(0, 100) is None
    assert _recording.begin(0, 100) is None


def test_cupy_stream(cupy: FakeCuPy) -> None:
    undo = _streams.enter(0, 100)
    assert undo is not None
    assert cupy.cuda.get_current_stream().ptr == 100
    assert _streams.enter(0, 100) is None
    undo()
    assert cupy.cuda.get_current_stream() is cupy.cuda.Stream.null
    cupy.cuda.Stream(3).use()
    undo = _streams.enter(0, 0)
    assert undo is not None
    assert cupy.cuda.get_current_stream().ptr == 0
    undo()
    assert cupy.cuda.get_current_stream().ptr == 3


def test_cupy_that_cannot_work_here(
    cupy: FakeCuPy, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def fail(device: int = -1) -> None:
        calls.append(device)
        raise RuntimeError("driver too old")

    monkeypatch.setattr(cupy.cuda, "get_current_stream", fail)
    monkeypatch.setattr(_streams, "_unusable", None)
    for _ in range(3):
        assert _streams.enter(0, 100) is None
    assert _recording.begin(0, 100) is None
    assert calls == [-1]


def test_both(
    torch: FakeTorch, cupy: FakeCuPy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch)
    undo = _streams.enter(0, 100)
    assert undo is not None
    assert (torch_now(torch), cupy.cuda.get_current_stream().ptr) == (100, 100)
    undo()
    assert (torch_now(torch), cupy.cuda.get_current_stream().ptr) == (0, 0)


def test_an_error_in_the_second_puts_back_the_first(
    torch: FakeTorch, cupy: FakeCuPy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch)

    def fail(*args: object) -> None:
        raise RuntimeError("no stream")

    monkeypatch.setattr(cupy.cuda, "ExternalStream", fail)
    with pytest.raises(RuntimeError, match="no stream"):
        _streams.enter(0, 100)
    assert torch_now(torch) == 0


def test_streams_are_the_thread_s_own(torch: FakeTorch) -> None:
    seen = []
    undo = _streams.enter(0, 100)
    thread = threading.Thread(target=lambda: seen.append(torch_now(torch)))
    thread.start()
    thread.join()
    assert seen == [0]
    assert undo is not None
    undo()


# ---- Memory of recordings ----


def begin(device: int, stream: int) -> _recording.Recording | None:
    """As plugin_scope.c calls it: in the stream's scope."""
    undo = _streams.enter(device, stream)
    try:
        return _recording.begin(device, stream)
    finally:
        if undo is not None:
            undo()


def test_torch_pool(torch: FakeTorch) -> None:
    first, second = begin(0, 100), begin(1, 100)
    assert first is not None
    assert second is not None
    second.end()
    first.end()
    assert list(torch.pools.values()) == [1, 1]
    first.release()
    first.release()  # nothing more
    assert sorted(torch.pools.values()) == [0, 1]
    second.release()
    assert [event for event in torch.events if event[0] != "external"] == [
        "forget", ("begin", 0, (0, 1)), "forget", ("begin", 1, (0, 2)),
        "forget", ("end", 1, (0, 2)), "forget", ("end", 0, (0, 1)),
        ("release", 0, (0, 1)), ("release", 1, (0, 2)),
    ]  # fmt: skip


def test_torch_that_is_not_used_yet(torch: FakeTorch) -> None:
    assert _streams.enter(0, 0) is None
    torch.initialized = False
    assert _recording.begin(0, 0) is None
    assert not torch.initialized


def test_older_torch(torch: FakeTorch, monkeypatch: pytest.MonkeyPatch) -> None:
    old = FakeTorch(by_stream=True)
    end = old._C._cuda_endAllocateCurrentStreamToPool
    monkeypatch.setitem(sys.modules, "torch", old)
    recording = begin(0, 100)
    assert recording is not None
    assert old.allocating == [(0, 1)]
    assert end is not None
    recording.end()
    assert old.allocating == []
    recording.release()


def test_torch_without_pools(torch: FakeTorch) -> None:
    del torch._C._cuda_releasePool
    with pytest.raises(UnsupportedError, match=r"torch 2.11.0 has no .*releasePool"):
        begin(0, 100)
    assert torch.allocating == []


def test_cupy_pool(cupy: FakeCuPy) -> None:
    recording = begin(1, 100)
    assert recording is not None
    pointer = cupy.allocator(512)
    ((size, thread),) = cupy.allocations
    assert size == 512
    assert thread is not threading.current_thread()  # which may not, as it records
    recording.end()
    assert cupy.allocator is None
    del pointer
    assert cupy.alive == 1  # the pool keeps it
    recording.release()
    del recording
    gc.collect()
    assert cupy.alive == 0


def test_cupy_without_memory(cupy: FakeCuPy) -> None:
    recording = begin(0, 100)
    assert recording is not None
    with pytest.raises(MemoryError, match="no more"):
        cupy.allocator(1 << 40)
    recording.end()
    recording.release()


def test_a_failure_in_the_second_ends_the_first(
    torch: FakeTorch, cupy: FakeCuPy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch)

    def fail(allocator: object) -> None:
        raise RuntimeError("no pool")

    monkeypatch.setattr(cupy.cuda, "MemoryPool", fail)
    with pytest.raises(RuntimeError, match="no pool"):
        begin(0, 100)
    assert torch.allocating == []
    assert list(torch.pools.values()) == [0]
