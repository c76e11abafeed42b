"""A contestant in a process of its own, and the handle to it.

The child answers one request at a time and does nothing in between, so that
only the contestant whose turn it is uses the cores.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import importlib
import itertools
import multiprocessing
import os
import signal
import sys
import textwrap
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

SAMPLE_NS = 200_000
"""Calls are grouped until one sample takes about this long."""
START_SECONDS = 900.0


class Contestant(Protocol):
    """The interface of classes in bench/peers: they load in their constructors."""

    def call(self) -> None:
        """Runs once. This is what is timed."""

    def outputs(self) -> dict[str, Array]:
        """The results of one more run, by name."""

    # Optional:
    #   time_calls(seconds, least) -> list[float]   another way to take its time
    #   facts() -> dict[str, float]                 what else there is to tell


@dataclass(frozen=True)
class Spec:
    """Which contestant to load, how, and on how many cores.

    factory: "package.module:Class". environment: set before the child starts,
    since libraries read it when loaded. start_s, answer_s: seconds that its start and
    each of its answers may take.
    """

    name: str
    factory: str
    arguments: dict[str, Any] = field(default_factory=dict)
    threads: int = 1
    pin: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)
    start_s: float = START_SECONDS
    processor: bool = False
    answer_s: float = START_SECONDS


@dataclass(frozen=True)
class Start:
    """How a contestant started. Seconds, and bytes of peak resident memory:
    of the bare process, after the imports, and after the first result."""

    import_s: float
    load_s: float
    first_call_s: float
    bare_bytes: int
    import_bytes: int
    peak_bytes: int


def _status(key: str) -> int:
    """A size in bytes that /proc reports of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no line {key}")


def peak_memory() -> int:
    """The largest resident size of this process so far, in bytes."""
    return _status("VmHWM")


def resident() -> int:
    """The resident size of this process now, in bytes."""
    return _status("VmRSS")


def time_calls(
    call: Callable[[], None],
    seconds: float,
    least: int,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> list[float]:
    """Seconds of single calls, sampled for `seconds` and at least `least` times. Short
    calls are timed in groups, so that the cost of reading the clock does not show.
    """
    begin = clock()
    call()
    once = max(clock() - begin, 1)
    group = range(max(1, min(10_000, SAMPLE_NS // once)))
    end = clock() + int(seconds * 1e9)
    samples: list[float] = []
    while len(samples) < least or clock() < end:
        begin = clock()
        for _ in group:
            call()
        samples.append((clock() - begin) / len(group) / 1e9)
    return samples


def _pin(threads: int) -> None:
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[: max(1, threads)])


def _start(spec: Spec) -> tuple[Contestant, Start]:
    bare = peak_memory()
    times = [time.perf_counter()]
    module_name, class_name = spec.factory.split(":")
    factory = getattr(importlib.import_module(module_name), class_name)
    times.append(time.perf_counter())
    imported = peak_memory()
    contestant = factory(**spec.arguments)
    times.append(time.perf_counter())
    contestant.call()
    times.append(time.perf_counter())
    spans = [after - before for before, after in itertools.pairwise(times)]
    return contestant, Start(*spans, bare, imported, peak_memory())


def _brief(error: BaseException) -> str:
    """An error's type and the beginning of its message, in one line."""
    return textwrap.shorten(f"{type(error).__name__}: {error}", 300)


def _serve(connection: Connection, spec: Spec, log: str) -> None:
    """The child's main loop: requests are ("time" | "outputs", *arguments)."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    try:
        if spec.pin:
            _pin(spec.threads)
        clock = time.process_time_ns if spec.processor else time.perf_counter_ns
        contestant, start = _start(spec)
        connection.send(("ok", start))
        while True:
            request, *arguments = connection.recv()
            if request == "time":
                own = getattr(contestant, "time_calls", None)
                timed = own or partial(time_calls, contestant.call, clock=clock)
                connection.send(("ok", timed(*arguments)))
            elif request == "facts":
                own = getattr(contestant, "facts", dict)
                connection.send(("ok", {"resident_bytes": resident(), **own()}))
            elif request == "outputs":
                connection.send(("ok", contestant.outputs()))
            else:
                return
    except EOFError:
        return
    except BaseException as error:
        traceback.print_exc()
        sys.stderr.flush()
        connection.send(("error", _brief(error)))


class ContestantError(RuntimeError):
    """A contestant could not be loaded or run; the message says why."""


_starting = threading.Lock()  # a process gets this one's environment


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    saved = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in saved.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def log_file(logs: Path, name: str) -> Path:
    """The file that a contestant's output goes to."""
    return logs / f"{name.replace('/', '_').replace(' ', '_')}.log"


class Worker:
    """The parent's handle to a contestant's process."""

    def __init__(self, spec: Spec, logs: Path) -> None:
        self.spec = spec
        self.log = log_file(logs, spec.name)
        context = multiprocessing.get_context("spawn")
        self._connection, child = context.Pipe()
        arguments = (child, spec, str(self.log))
        self._process = context.Process(target=_serve, args=arguments, daemon=True)
        with _starting, _environment(spec.environment):
            self._process.start()
        child.close()
        try:
            self.start: Start = self._answer(spec.start_s)
        except ContestantError:
            self.stop(0)
            raise

    @property
    def process(self) -> int | None:
        """The number of its process."""
        return self._process.pid

    def _answer(self, seconds: float) -> Any:
        name = self.spec.name
        if not self._connection.poll(seconds):
            raise ContestantError(f"{name} gave no answer in {seconds:.0f} s")
        try:
            kind, value = self._connection.recv()
        except (EOFError, ConnectionResetError):
            self._process.join(10)
            code = self._process.exitcode
            tail = self.log.read_text(errors="replace").splitlines()[-3:]
            ending = f"; its last words: {' | '.join(tail)}" if tail else ""
            raise ContestantError(f"{name} ended with code {code}{ending}") from None
        if kind == "error":
            raise ContestantError(f"{name}: {value}")
        return value

    def _asked(self, limit: float, *request: Any) -> Any:
        with contextlib.suppress(OSError):  # it has ended, which the answer tells
            self._connection.send(request)
        return self._answer(limit)

    def time(self, seconds: float, least: int = 3) -> list[float]:
        """Seconds of single calls, sampled for about `seconds`."""
        return self._asked(self.spec.answer_s, "time", seconds, least)

    def outputs(self) -> dict[str, Array]:
        """The results of one run."""
        return self._asked(self.spec.answer_s, "outputs")

    def facts(self, limit: float = START_SECONDS) -> dict[str, Any]:
        """The contestant's own facts, and its resident_bytes."""
        return self._asked(limit, "facts")

    def stop(self, seconds: float = 5) -> None:
        """Ends the process, at the latest after so many seconds."""
        with contextlib.suppress(OSError):
            self._connection.send(("stop",))
        self._process.join(seconds)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._connection.close()


@dataclass
class Field:
    """The contestants of one case: those that run, and why others do not."""

    workers: dict[str, Worker]
    absent: dict[str, str]


def _start_into(field_: Field, spec: Spec, logs: Path) -> None:
    try:
        field_.workers[spec.name] = Worker(spec, logs)
    except ContestantError as error:
        field_.absent[spec.name] = str(error)


@contextlib.contextmanager
def started(specs: Sequence[Spec], logs: Path, jobs: int = 1) -> Iterator[Field]:
    """Starts all contestants, `jobs` at a time; ends them in the end."""
    field_ = Field({}, {})
    try:
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            list(pool.map(lambda spec: _start_into(field_, spec, logs), specs))
        yield field_
    finally:
        for worker in field_.workers.values():
            worker.stop()


@contextlib.contextmanager
def starting(
    specs: Sequence[Spec], logs: Path, jobs: int, ready_by: float
) -> Iterator[Field]:
    """Like `started`, but those that are not ready yet start meanwhile. Each becomes a
    worker, or absent, by `ready_by` (of time.monotonic()) at the latest."""
    field_ = Field({}, {})

    def start(spec: Spec) -> None:
        left = ready_by - time.monotonic()
        if left <= 0:
            field_.absent[spec.name] = f"{spec.name} was not begun: no time was left"
        else:
            least = replace(spec, start_s=min(spec.start_s, left))
            _start_into(field_, least, logs)

    strangers = set(multiprocessing.active_children())
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        tasks = [pool.submit(start, spec) for spec in specs]
        try:
            yield field_
        finally:
            for task in tasks:
                task.cancel()
            for child in set(multiprocessing.active_children()) - strangers:
                child.kill()


def _children(process: int) -> list[int]:
    """The processes that a process started."""
    found: list[int] = []
    with contextlib.suppress(OSError):  # it has ended
        for task in Path(f"/proc/{process}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def _signal_tree(process: int, number: int) -> None:
    """Sends a signal to a process and all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)
    for child in _children(process):
        _signal_tree(child, number)


@contextlib.contextmanager
def alone(workers: Mapping[str, Worker]) -> Iterator[None]:
    """All other contestants of this process, those that are starting as well, stand still
    meanwhile, with what they started; no other starts."""
    own = {worker.process for worker in workers.values()}
    with _starting:
        others = [
            child.pid
            for child in multiprocessing.active_children()
            if child.pid is not None and child.pid not in own
        ]
        try:
            for process in others:
                _signal_tree(process, signal.SIGSTOP)
            yield
        finally:
            for process in others:
                _signal_tree(process, signal.SIGCONT)


def disagreement(actual: Array, expected: Array) -> float:
    """The largest difference over the largest magnitude expected."""
    if actual.shape != expected.shape:
        return float("inf")
    difference = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
    worst = float(difference.max(initial=0.0))
    scale = float(np.abs(expected.astype(np.float64)).max(initial=0.0))
    return worst / scale if scale else worst


def drop_wrong(field_: Field, expected: Mapping[str, Array], bound: float) -> None:
    """Moves contestants whose results disagree with `expected` to the absent."""
    for name, worker in list(field_.workers.items()):
        try:
            outputs = worker.outputs()
            missing = set(expected) - set(outputs)
            errors = {
                output: disagreement(outputs[output], values)
                for output, values in expected.items()
                if output in outputs
            }
            worst = max(errors, key=errors.__getitem__, default="")
            if missing:
                reason = f"{name} lacks the outputs {', '.join(sorted(missing))}"
            elif errors[worst] <= bound:
                continue
            else:
                reason = (
                    f"{name} is wrong: output {worst} differs by "
                    f"{errors[worst]:.2g} of the largest value, {bound:g} is allowed"
                )
        except ContestantError as error:
            reason = str(error)
        field_.absent[name] = reason
        field_.workers.pop(name).stop()
