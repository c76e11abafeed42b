"""Loops in CUDA graphs: the device decides on each iteration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rabbet as trt

from tests.python.support.plugins import build, random
from tests.python.support.run_loops import (
    COUNT,
    LAST,
    LESS,
    PROD,
    REVERSE,
    STACK,
    WHILE,
    calculate,
    collatz,
    collatz_of,
    constant,
    number,
    out,
)

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)


class Log(trt.ILogger):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def log(self, severity: Any, msg: str) -> None:
        self.lines.append(msg)


def limited(network: Any, count: Any, most: int = 200) -> Any:
    """A loop with a limit that the host knows, and one that a run gives."""
    loop = network.add_loop()
    loop.add_trip_limit(constant(network, most, np.int32), COUNT)
    at = loop.add_recurrence(constant(network, 0, np.int32))
    at.set_input(1, calculate(network, out(at), constant(network, 1, np.int32)))
    loop.add_trip_limit(calculate(network, out(at), count, LESS), WHILE)
    return loop


def counted(log: Log, shape: tuple[int, ...], most: int = 200, **options: Any) -> Any:
    """x * (count + 1)."""
    network = trt.Builder(log).create_network()
    x = network.add_input("x", trt.float32, shape)
    loop = limited(network, network.add_input("count", trt.int32, ()), most)
    state = loop.add_recurrence(x)
    state.set_input(1, calculate(network, out(state), x))
    y = out(loop.add_loop_output(out(state), LAST))
    y.name = "y"
    network.mark_output(y)
    return trt.compile(network, device="cuda", logger=log, **options)


def model(make: Any, *values: Any) -> Any:
    def network_of(network: Any) -> Any:
        return make(
            network,
            *(
                network.add_input(f"x{i}", trt._arrays.dtype_of(v.dtype), v.shape)
                for i, v in enumerate(values)
            ),
        )

    return build(network_of, device="cuda")


def check(run: Any, cases: Any) -> None:
    """Each case is inputs and outputs. From the second run on, nothing runs
    outside of a graph."""
    replays = 0
    for i, (inputs, wanted) in enumerate(cases):
        found = run(*inputs)
        found = found if isinstance(found, tuple) else (found,)
        for y, expected in zip(found, wanted, strict=True):
            np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
        info = run.graph_info
        if i >= 2:
            assert (info.other_steps, info.replays) == (0, replays + 1)
        replays = info.replays


def test_numbers_of_iterations() -> None:
    """Zero, even and odd numbers of iterations; a state that is two outputs."""

    def make(network: Any, x: Any, count: Any) -> Any:
        loop = limited(network, count)
        state, other = loop.add_recurrence(x), loop.add_recurrence(x)
        state.set_input(1, calculate(network, out(state), out(other)))
        other.set_input(1, calculate(network, out(other), x))
        states = out(state), out(state), out(other)
        return tuple(out(loop.add_loop_output(s, LAST)) for s in states)

    x = random(3, 5)

    def case(trips: int) -> Any:
        state, other = x, x
        for _ in range(trips):
            state, other = state + other, other + x
        return (x, number(trips)), (state, state, other)

    check(model(make, x, number(0)), [case(i) for i in [2, 1, 0, 3, 4, 7]])


def test_conditions_and_stacks() -> None:
    """A computed condition and a limit; elements that were not made are zero."""

    def make(network: Any, start: Any) -> Any:
        loop, at = collatz(network, start)
        loop.add_trip_limit(constant(network, 20, np.int32), COUNT)
        numbers = loop.add_loop_output(out(at), STACK)
        numbers.set_input(1, constant(network, 20, np.int32))
        return out(numbers), out(loop.add_loop_output(out(at), LAST))

    def case(start: int) -> Any:
        steps = [*collatz_of(start), 1]
        made = steps[:20] if len(steps) > 20 else steps[:-1]
        numbers = [*made, *[0] * (20 - len(made))]
        return (number(start),), (numbers, steps[min(20, len(steps) - 1)])

    starts = [6, 1, 7, 2, 9, 27, 6]
    check(model(make, number(1)), [case(start) for start in starts])


def test_carried_conditions() -> None:
    def make(network: Any, goes_on: Any, limit: Any) -> Any:
        loop = network.add_loop()
        loop.add_trip_limit(constant(network, 9, np.int32), COUNT)
        state = loop.add_recurrence(goes_on)
        at = loop.add_recurrence(constant(network, 0, np.int32))
        at.set_input(1, calculate(network, out(at), constant(network, 1, np.int32)))
        state.set_input(1, calculate(network, at.get_input(1), limit, LESS))
        loop.add_trip_limit(out(state), WHILE)
        return out(loop.add_loop_output(out(at), LAST))

    def case(goes_on: bool, limit: int) -> Any:
        wanted = max(limit, 1) if goes_on else 0
        return (np.asarray(goes_on), number(limit)), (wanted,)

    cases = [case(True, 3), case(False, 3), case(True, 4), case(True, 0)]
    check(model(make, np.asarray(True), number(0)), cases)


@pytest.mark.parametrize("width", [1, 3, 8])
def test_iterators_and_stacks(width: int) -> None:
    """Both directions of both; elements of 4, 12 and 32 bytes, and of one."""
    trips, length = 67, 70

    def make(network: Any, x: Any) -> Any:
        loop = network.add_loop()
        loop.add_trip_limit(constant(network, trips, np.int32), COUNT)
        forward = loop.add_iterator(x, 0, False)
        backward = loop.add_iterator(x, 0, True)
        total = loop.add_recurrence(constant(network, np.zeros(width)))
        scaled = calculate(network, out(backward), constant(network, [2.0]), PROD)
        step = calculate(network, out(forward), scaled)
        total.set_input(1, calculate(network, out(total), step))
        less = calculate(network, out(forward), out(backward), LESS)
        results = [
            loop.add_loop_output(total.get_input(1), STACK),
            loop.add_loop_output(total.get_input(1), REVERSE),
            loop.add_loop_output(less, STACK),
        ]
        for result in results:
            result.set_input(1, constant(network, length, np.int32))
        last = loop.add_loop_output(out(total), LAST)
        return (*(out(result) for result in results), out(last))

    def case(seed: int) -> Any:
        x = random(trips, width, seed=seed)
        sums = np.cumsum(x + 2 * x[::-1], 0)
        rest = np.zeros((length - trips, width), np.float32)
        less = np.concatenate([x < x[::-1], rest != 0])
        stacks = np.concatenate([sums, rest]), np.concatenate([sums[::-1], rest])
        return (x,), (*stacks, less, sums[-1])

    check(model(make, case(0)[0][0]), [case(i) for i in range(4)])


def test_shapes_come_and_go() -> None:
    """Recordings go with what is prepared for a body, and with its memory."""

    def make(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (-1, 6))
        count = network.add_input("count", trt.int32, ())
        loop = limited(network, count)
        state = loop.add_recurrence(x)
        product = network.add_matrix_multiply(
            out(state),
            trt.MatrixOperation.NONE,
            constant(network, weights),
            trt.MatrixOperation.NONE,
        )
        activation = network.add_activation(out(product), trt.ActivationType.TANH)
        state.set_input(1, calculate(network, out(activation), out(state)))
        return out(loop.add_loop_output(out(state), LAST))

    weights = random(6, 6, seed=1) * np.float32(0.2)
    profile = {"x": ((1, 6), (4, 6), (64, 6)), "count": ((),) * 3}
    run = build(make, device="cuda", profiles=[profile])
    for rows in [1, 2, 64, 1, 2, *range(3, 12), 1, 64, 2]:
        for trips in [3, 2, 4]:
            x = random(rows, 6)
            wanted = x
            for _ in range(trips):
                wanted = np.tanh(wanted @ weights) + wanted
            np.testing.assert_allclose(run(x, number(trips)), wanted, atol=0.01)
        assert run.graph_info.other_steps == 0


stand_in_only = pytest.mark.skipif(
    not cuda_driver.is_stand_in(), reason="the driver counts no calls"
)


@stand_in_only
def test_an_execution_is_one_launch() -> None:
    """However many iterations it has, the host waits once, for the outputs."""

    def make(network: Any, start: Any) -> Any:
        loop, at = collatz(network, start)
        loop.add_trip_limit(constant(network, 200, np.int32), COUNT)
        return out(loop.add_loop_output(out(at), LAST))

    run, driver = model(make, number(1)), cuda_driver.stand_in()
    for start in [6, 7, 9]:
        assert run(number(start)) == 1
    driver.clear_log()
    assert run(number(27)) == 1  # after 111 iterations
    assert driver.calls(b"cuGraphLaunch") == 1
    assert driver.calls(b"cuLaunchKernelEx") == 0
    assert driver.calls(b"cuStreamSynchronize") == 1


@stand_in_only
def test_a_driver_that_fails() -> None:
    """Without its graph a loop is run as before; each shape has a graph."""
    log = Log()
    run = counted(log, (-1,), profiles=[{"x": ((1,), (4,), (9,)), "count": ((),) * 3}])
    driver = cuda_driver.stand_in()
    names = [
        b"cuGraphConditionalHandleCreate",
        b"cuGraphAddNode",
        b"cuStreamBeginCaptureToGraph",
        b"cuStreamEndCapture",
        b"cuGraphInstantiateWithFlags",
        b"cuGraphLaunch",
    ]
    for rows, name in enumerate(names, 1):
        x = random(rows)
        for trips in range(5):
            if trips == 1:  # the run that records
                driver.fail_call(name, 0, 999)
            np.testing.assert_allclose(run(x, number(trips)), x * (trips + 1))
            if driver.failed():
                driver.stop_failing()
        assert run.graph_info.other_steps > 0, name


LIMITS = [
    (20, 9, "it may have more iterations than the context's limit"),
    (70000, 0, "it is not known to end within 65536 iterations, and only the host"),
]


@pytest.mark.parametrize(("most", "limit", "reason"), LIMITS)
def test_only_the_host_ends_loops_early(
    tmp_path: Path, most: int, limit: int, reason: str
) -> None:
    log, x = Log(), random(4)
    counted(log, (4,), most).save(tmp_path / "plan")
    run = trt.load(tmp_path / "plan", device="cuda", logger=log, iteration_limit=limit)
    for trips in [3, 4, 5]:
        np.testing.assert_allclose(run(x, number(trips)), x * (trips + 1), rtol=1e-6)
    assert run.graph_info.other_steps > 0
    assert any(f"on each iteration: {reason}" in line for line in log.lines)


def test_the_host_decides_where_it_must(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are the same without conditional nodes, and the log says why."""
    monkeypatch.setenv("RABBET_CUDA_LOOPS", "0")
    log = Log()
    run, x = counted(log, (4,)), random(4)
    for trips in [3, 4, 5, 6]:
        np.testing.assert_allclose(run(x, number(trips)), x * (trips + 1), rtol=1e-6)
    assert run.graph_info.other_steps > 0
    (line,) = [line for line in log.lines if "is not recorded into a graph" in line]
    assert "the host decides on each iteration: RABBET_CUDA_LOOPS is 0" in line


@pytest.mark.parametrize("is_nested", [False, True])
def test_the_inspector_says_where_the_host_decides(is_nested: bool) -> None:
    """A plan also has the kernels that graphs of loops need."""

    def make(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (4,))
        count = network.add_input("count", trt.int32, ())
        return loops(network, x, count, 1 + is_nested)

    def loops(network: Any, x: Any, count: Any, depth: int) -> Any:
        if depth == 0:
            return calculate(network, x, x)
        loop = limited(network, count)
        state = loop.add_recurrence(x)
        state.set_input(1, loops(network, out(state), count, depth - 1))
        return out(loop.add_loop_output(out(state), LAST))

    reason = "its body has loops or conditionals"
    run = build(make, device="cuda")
    line = f"waits in each iteration of loop_0: {reason}"
    assert (line in run.inspect()) == is_nested
    layers = run.inspect_json()["Layers"]
    [loop] = [layer for layer in layers if layer["Name"] == "loop_0"]
    assert loop["HostDecides"] == (reason if is_nested else None)
    assert [a["Name"] for a in loop["Artifacts"]] == ["loops/loops.cu"]
