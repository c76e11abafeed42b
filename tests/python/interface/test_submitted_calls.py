"""Calls on a model's own threads: submit and acall."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import CancelledError
from typing import Any

import numpy as np
import pytest
import rabbet as trt
import rabbet.plugin as trtp

from tests.python.support.plugins import call, new_id


class Gate:
    """A model whose calls wait until they may go on."""

    def __init__(self, **options: Any) -> None:
        self.entered, self.open = threading.Semaphore(0), threading.Event()
        self.lock, self.inside, self.most = threading.Lock(), 0, 0
        self.threads: set[int] = set()
        plugin_id = new_id("gate")

        @trtp.register(plugin_id)
        def gate(x: trtp.TensorDesc) -> trtp.TensorDesc:
            return x.like()

        @trtp.impl(plugin_id)
        def run(x: trtp.Tensor, outputs: Any) -> None:
            self.run(np.from_dlpack(x), np.from_dlpack(outputs[0]))

        network = trt.Builder().create_network()
        x = network.add_input("x", trt.float32, (2,))
        network.mark_output(network.add_plugin(call(plugin_id)(x)).get_output(0))
        self.model = trt.compile(network, device="cpu", try_plugins=False, **options)

    def run(self, x: Any, y: Any) -> None:
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
            self.threads.add(threading.get_ident())
        self.entered.release()
        assert self.open.wait(60)
        with self.lock:
            self.inside -= 1
        if x[0] < 0:
            raise ValueError("less than nothing")
        y[...] = x * 2


def pair(value: float) -> Any:
    return np.array([value, value + 1], np.float32)


def test_results_and_out() -> None:
    gate = Gate()
    gate.open.set()
    out = np.zeros(2, np.float32)
    futures = [gate.model.submit(pair(i)) for i in range(20)]
    assert gate.model.submit(x=pair(9), out=out).result(60) is out
    assert out.tolist() == [18, 20]
    assert [f.result(60).tolist() for f in futures] == [[2 * i, 2 * i + 2] for i in range(20)]
    assert threading.get_ident() not in gate.threads


@pytest.mark.parametrize("contexts", [None, 1, 3])
def test_threads_are_as_many_as_contexts(contexts: int | None) -> None:
    gate = Gate(contexts=contexts)
    count = contexts or 2
    futures = [gate.model.submit(pair(i)) for i in range(8)]
    for _ in range(count):
        assert gate.entered.acquire(timeout=60)
    gate.open.set()
    for future in futures:
        future.result(60)
    assert gate.most == count
    assert len(gate.threads) == count


def test_errors_are_delivered() -> None:
    gate = Gate()
    gate.open.set()
    with pytest.raises(ValueError, match="less than nothing"):
        gate.model.submit(pair(-1)).result(60)
    with pytest.raises(trt.OutOfRangeError):
        gate.model.submit(np.zeros(7, np.float32)).result(60)
    with pytest.raises(TypeError, match="is missing"):
        gate.model.submit().result(60)
    assert gate.model.submit(pair(1)).result(60).tolist() == [2, 4]


def test_a_cancelled_call_is_not_run() -> None:
    gate = Gate(contexts=1)
    first, second, third = (gate.model.submit(pair(i)) for i in range(3))
    assert gate.entered.acquire(timeout=60)
    assert not first.cancel()
    assert second.cancel()
    gate.open.set()
    assert third.result(60).tolist() == [4, 6]
    with pytest.raises(CancelledError):
        second.result()
    assert gate.entered.acquire(timeout=60)
    assert not gate.entered.acquire(blocking=False)


def test_awaited_calls() -> None:
    gate = Gate(contexts=2)
    model = gate.model
    assert inspect.iscoroutinefunction(model.acall)

    async def main() -> None:
        tasks = [asyncio.create_task(model.acall(pair(i))) for i in range(4)]
        while gate.inside < 2:  # the loop goes on meanwhile
            await asyncio.sleep(0.001)
        tasks[3].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[3]
        gate.open.set()
        results = await asyncio.gather(*tasks[:3])
        assert [y.tolist() for y in results] == [[2 * i, 2 * i + 2] for i in range(3)]
        with pytest.raises(ValueError, match="less than nothing"):
            await model.acall(pair(-1))
        out = np.zeros(2, np.float32)
        assert await model.acall(pair(5), out=out) is out

    asyncio.run(main())
    assert len(gate.threads) == 2


def running(prefix: str = "rabbet-model") -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith(prefix)]


def test_threads_begin_with_the_first_call_and_end_with_the_model() -> None:
    before = running()  # of models that registered operators hold
    gate = Gate()
    gate.open.set()
    gate.model(pair(1))
    assert running() == before
    gate.model.submit(pair(1)).result(60)
    threads = [thread for thread in running() if thread not in before]
    assert threads
    del gate.model
    gc.collect()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_the_last_reference_may_be_the_call_s() -> None:
    before = running()
    gate = Gate()
    future = gate.model.submit(pair(1))
    threads = [thread for thread in running() if thread not in before]
    assert gate.entered.acquire(timeout=60)
    del gate.model
    gc.collect()
    gate.open.set()
    assert future.result(60).tolist() == [2, 4]
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_a_copy_has_threads_of_its_own() -> None:
    gate = Gate()
    gate.open.set()
    gate.model.submit(pair(1)).result(60)
    again = pickle.loads(pickle.dumps(gate.model))
    assert again._pools == {}
    assert again.submit(pair(1)).result(60).tolist() == [2, 4]


PROGRAM = """
import os, sys
import numpy as np
import rabbet as trt
network = trt.Builder().create_network()
x = network.add_input("x", trt.float32, (2,))
y = network.add_activation(x, trt.ActivationType.RELU).get_output(0)
network.mark_output(y)
model = trt.compile(network, device="cpu")
x = np.array([-1, 2], np.float32)
assert model.submit(x).result(60).tolist() == [0, 2]
"""


def program(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-"], input=PROGRAM + text, capture_output=True, text=True,
        timeout=120, env=dict(os.environ),
    )  # fmt: skip


def test_a_fork_s_child() -> None:
    ended = program("""
child = os.fork()
if child == 0:
    good = model.submit(x).result(60).tolist() == [0, 2]
    sys.exit(0 if good else 1)
assert os.waitpid(child, 0)[1] == 0
assert model.submit(x).result(60).tolist() == [0, 2]
print("done")
""")
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr


def test_the_end_of_the_program() -> None:
    ended = program("""
futures = [model.submit(x) for _ in range(50)]
futures[-1].add_done_callback(lambda future: print(future.result().tolist()))
""")
    assert (ended.returncode, ended.stdout) == (0, "[0.0, 2.0]\n"), ended.stderr


def test_torch_s_stream_is_the_caller_s(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    gate = Gate()
    gate.open.set()
    seen: list[Any] = []

    class Engine:
        device = "cuda:1"

    class Entered:
        def __init__(self, stream: Any) -> None:
            self.stream = stream

        def __enter__(self) -> None:
            seen.append((self.stream, threading.get_ident()))

        def __exit__(self, *error: object) -> None:
            pass

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda d: (d, threading.get_ident()))
    monkeypatch.setattr(torch.cuda, "stream", Entered)
    model, own = gate.model, gate.model._engine
    model._engine = Engine()
    future = model.submit(pair(1))
    model._engine = own
    assert future.result(60).tolist() == [2, 4]
    ((stream, thread),) = seen
    assert stream == ("cuda:1", threading.get_ident())
    assert thread in gate.threads
