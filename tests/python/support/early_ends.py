"""Runs of loops that end early: a limit of iterations, a caller that cancels."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import rabbet as trt

ENDLESS = 2**31 - 1


def network_of(builder: Any, marked: bool = False) -> Any:
    """Of x, doubled `count` times in the loop 'again'. `marked`: each iteration shows a
    debug tensor."""
    network = builder.create_network()
    x = network.add_input("x", trt.float32, (4,))
    count = network.add_input("count", trt.int32, ())
    loop = network.add_loop()
    loop.name = "again"
    loop.add_trip_limit(count, trt.TripLimit.COUNT)
    state = loop.add_recurrence(x)
    value = state.get_output(0)
    twice = network.add_elementwise(value, value, trt.ElementWiseOperation.SUM)
    state.set_input(1, twice.get_output(0))
    if marked:
        network.mark_debug(twice.get_output(0))
    last = loop.add_loop_output(value, trt.LoopOutput.LAST_VALUE).get_output(0)
    last.name = "y"
    network.mark_output(last)
    return network


def engine_of(device: str, *, marked: bool = False, **settings: Any) -> Any:
    """An engine of that network; `settings`: of the runtime."""
    builder = trt.Builder()
    network = network_of(builder, marked)
    config = builder.create_builder_config()
    config.device = device
    runtime = trt.Runtime(trt.Logger())
    runtime.device = device
    for name, value in settings.items():
        setattr(runtime, name, value)
    return runtime.deserialize_cuda_engine(
        builder.build_serialized_network(network, config)
    )


class Repeated:
    """A context and its tensors; `place(name, array)` gives the address of a copy and
    `fetch(name)` its contents."""

    def __init__(self, context: Any, place: Callable[[str, Any], int], fetch: Any) -> None:
        self.context, self._place, self._fetch = context, place, fetch

    def bind(self, x: Any, count: int) -> None:
        """Sets the addresses."""
        arrays = {"x": x, "count": np.asarray(count, np.int32), "y": np.zeros_like(x)}
        for name, array in arrays.items():
            self.context.set_tensor_address(name, self._place(name, array))

    def __call__(self, count: int) -> None:
        """Runs; the result must be right if the run succeeds."""
        x = np.arange(4, dtype=np.float32)
        self.bind(x, count)
        assert self.context.execute_async_v3(0)
        np.testing.assert_array_equal(self._fetch("y"), x * 2.0**count)


def check_limit(run: Repeated) -> None:
    run.context.iteration_limit = 5
    run(5)
    wanted = r"'again': .*does not end within 5 iterations, the context's limit"
    with pytest.raises(trt.OutOfRangeError, match=wanted):
        run(6)
    run.context.iteration_limit = 0
    run(6)


def check_cancel(run: Repeated) -> None:
    """Another thread cancels once there is a run, which would not end by itself soon."""
    assert not run.context.cancel()
    run.context.iteration_limit = 100_000_000

    def end() -> None:
        while not run.context.cancel():
            pass

    thread = threading.Thread(target=end)
    thread.start()
    with pytest.raises(trt.CancelledError, match=r"'again'.*the run was cancelled"):
        run(ENDLESS)
    thread.join()
    run(3)
