"""Runs that end early on the CPU: limits, cancelling, Ctrl-C, callbacks that fail."""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import rabbet as trt

from tests.python.support.early_ends import (
    ENDLESS,
    Repeated,
    check_cancel,
    check_limit,
    engine_of,
    network_of,
)


@pytest.fixture(scope="module")
def engine() -> Any:
    return engine_of("cpu")


def repeated(engine: Any) -> Repeated:
    arrays: dict[str, Any] = {}

    def place(name: str, array: Any) -> int:
        arrays[name] = array
        return int(array.ctypes.data)

    return Repeated(engine.create_execution_context(), place, arrays.__getitem__)


def test_limit_of_iterations(engine: Any) -> None:
    check_limit(repeated(engine))


def test_limit_of_an_engine_is_that_of_its_contexts() -> None:
    run = repeated(engine_of("cpu", iteration_limit=4))
    assert run.context.iteration_limit == 4
    with pytest.raises(trt.OutOfRangeError, match="does not end within 4 iterations"):
        run(5)


@pytest.mark.parametrize(("limit", "error"), [(-1, ValueError), ("5", TypeError)])
def test_limits_that_are_none(engine: Any, limit: Any, error: Any) -> None:
    context = engine.create_execution_context()
    with pytest.raises(error, match=r"iteration.limit"):
        context.iteration_limit = limit
    assert context.iteration_limit == 0
    with pytest.raises(error, match=r"iteration.limit"):
        engine_of("cpu", iteration_limit=limit)


def test_another_thread_cancels(engine: Any) -> None:
    check_cancel(repeated(engine))


X = np.ones(4, np.float32)


def count_of(number: int) -> Any:
    return np.asarray(number, np.int32)


@pytest.fixture(scope="module")
def model() -> Any:
    network = network_of(trt.Builder())
    return trt.compile(network, device="cpu", iteration_limit=100_000_000)


def test_a_model_has_a_limit_of_iterations() -> None:
    model = trt.compile(network_of(trt.Builder()), device="cpu", iteration_limit=5)
    np.testing.assert_array_equal(model(X, count_of(5)), X * 32)
    with pytest.raises(trt.OutOfRangeError, match="does not end within 5 iterations"):
        model(X, count_of(6))


def test_another_thread_cancels_the_calls_of_a_model(model: Any) -> None:
    assert not model.cancel()

    def end() -> None:
        while not model.cancel():
            pass

    thread = threading.Thread(target=end)
    thread.start()
    with pytest.raises(trt.CancelledError, match="the run was cancelled"):
        model(X, count_of(ENDLESS))
    thread.join()
    np.testing.assert_array_equal(model(X, count_of(3)), X * 8)


@pytest.fixture
def sigint() -> Iterator[None]:
    """Python's handler: a process that a shell starts in the background ignores the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("sigint")
def test_an_interrupt_ends_the_run(engine: Any) -> None:
    """That of a signal is looked at by the main thread, which runs a loop in C."""
    run = repeated(engine)
    run.context.iteration_limit = 100_000_000

    def interrupt() -> None:
        while True:  # until there is a run: the limit cannot be set beside one
            try:
                run.context.iteration_limit = run.context.iteration_limit
            except trt.FailedPreconditionError:
                return _thread.interrupt_main()

    thread = threading.Thread(target=interrupt)
    run.bind(np.zeros(4, np.float32), ENDLESS)
    with pytest.raises(KeyboardInterrupt) as caught:
        thread.start()
        run.context.execute_async_v3(0)
    thread.join()
    assert "'again': iteration" in caught.value.__notes__[0]
    run(3)


def test_a_callback_that_fails_ends_the_run() -> None:
    class Failing(trt.IDebugListener):
        calls = 0

        def process_debug_tensor(self, *_: Any) -> bool:
            self.calls += 1
            raise ValueError("of a listener")

    run = repeated(engine_of("cpu", marked=True))
    run.context.iteration_limit = 100_000_000
    run.context.set_debug_listener(listener := Failing())
    run.context.set_all_tensors_debug_state(True)
    run.bind(np.zeros(4, np.float32), ENDLESS)
    with pytest.raises(ValueError, match="of a listener"):
        run.context.execute_async_v3(0)
    assert listener.calls == 1
