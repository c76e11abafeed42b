"""A model's execution contexts: one for each call in progress, or as many as allowed."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rabbet as trt
import rabbet.plugin as trtp

from tests.python.support.plugins import call, new_id


class Meeting:
    """An operator that tells how many calls are in it at a time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside = self.most = 0
        self.together = threading.Barrier(2)
        self.waits = False
        self.nested: Any = None
        plugin_id = new_id("contexts")

        @trtp.register(plugin_id)
        def meet(x: trtp.TensorDesc) -> trtp.TensorDesc:
            return x.like()

        @trtp.impl(plugin_id)
        def run(x: trtp.Tensor, outputs: Any) -> None:
            self.run(np.from_dlpack(x), np.from_dlpack(outputs[0]))

        network = trt.Builder().create_network()
        x = network.add_input("x", trt.float32, (2,))
        network.mark_output(network.add_plugin(call(plugin_id)(x)).get_output(0))
        self.network = network

    def run(self, x: Any, y: Any) -> None:
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        if self.waits:
            self.together.wait(60)  # two are in here
        time.sleep(0.02)  # a third would come now
        if self.nested is not None:
            self.nested(np.zeros(2, np.float32))
        with self.lock:
            self.inside -= 1
        y[...] = x * 2

    def model(self, **options: Any) -> trt.Model:
        return trt.compile(self.network, device="cpu", **options)


def called_by(threads: int, model: trt.Model) -> None:
    wrong: list[Any] = []

    def work(i: int) -> None:
        for k in range(4):
            x = np.array([i, k], np.float32)
            y = model(x)
            if y.tolist() != [2 * i, 2 * k]:
                wrong.append((x, y))

    workers = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


def test_no_more_than_allowed() -> None:
    meeting = Meeting()
    model = meeting.model(contexts=2)
    meeting.waits, meeting.most = True, 0
    called_by(4, model)
    assert meeting.most == 2


def test_one(tmp_path: Path) -> None:
    meeting = Meeting()
    meeting.model(save=tmp_path / "m.plan")
    model = trt.load(tmp_path / "m.plan", device="cpu", contexts=1)
    meeting.most = 0
    called_by(3, model)
    assert meeting.most == 1


def test_a_failed_call_gives_its_context_back() -> None:
    model = Meeting().model(contexts=1)
    for _ in range(3):
        with pytest.raises(trt.OutOfRangeError):
            model(np.zeros(7, np.float32))
    assert model(np.ones(2, np.float32)).tolist() == [2, 2]


def test_an_operator_that_calls_its_model_does_not_wait_for_itself() -> None:
    meeting = Meeting()
    model = meeting.model(contexts=1)
    meeting.nested = model
    with pytest.raises(RuntimeError, match=r"would wait for itself.*contexts="):
        model(np.zeros(2, np.float32))


@pytest.mark.parametrize("wrong", [0, -1])
def test_numbers_that_are_refused(wrong: int) -> None:
    with pytest.raises(trt.InvalidArgumentError, match=f"contexts is {wrong}; expected 1"):
        Meeting().model(contexts=wrong)
