"""Jobs in processes of their own, so that a crash, a hang or too much memory ends one of
them and not the run."""

from __future__ import annotations

import faulthandler
import importlib
import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Job:
    """target: "module:function", called with `arguments`. What it prints goes to `log`.
    lane: which jobs it shares the machine with; those of "export" start from a process
        that has imported the libraries."""

    name: str
    target: str
    arguments: tuple[Any, ...]
    log: Path
    lane: str
    seconds: float = 300
    gigabytes: float = 8


@dataclass(frozen=True)
class Outcome:
    """trouble: how the process died, or None where the target returned."""

    job: Job
    trouble: str | None
    seconds: float


@dataclass
class _Running:
    job: Job
    process: Any
    begin: float = field(default_factory=time.monotonic)
    trouble: str | None = None

    def overdue(self) -> str | None:
        if time.monotonic() - self.begin > self.job.seconds:
            return f"took longer than {self.job.seconds:.0f} s"
        if _resident(self.process.pid) > self.job.gigabytes * 2**30:
            return f"took more than {self.job.gigabytes:g} GiB of memory"
        return None


def _resident(pid: int) -> int:
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _run(target: str, arguments: tuple[Any, ...], log: str) -> None:
    """The child's function."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    faulthandler.enable()
    module, function = target.split(":")
    getattr(importlib.import_module(module), function)(*arguments)


def _start(job: Job) -> _Running:
    context: Any = multiprocessing.get_context(
        "forkserver" if job.lane == "export" else "spawn"
    )
    job.log.parent.mkdir(parents=True, exist_ok=True)
    arguments = (job.target, job.arguments, str(job.log))
    process = context.Process(target=_run, args=arguments, daemon=True)
    process.start()
    return _Running(job, process)


def _death(code: int) -> str | None:
    if code == 0:
        return None
    return f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"


def _finish(running: _Running) -> Outcome | None:
    """The outcome, or None while the job runs."""
    process = running.process
    if process.is_alive():
        running.trouble = running.overdue()
        if running.trouble is None:
            return None
        process.kill()
    process.join()
    trouble = running.trouble or _death(process.exitcode)
    return Outcome(running.job, trouble, time.monotonic() - running.begin)


class Pool:
    """Runs jobs, in each lane at most as many at once as `limits` says."""

    def __init__(self, limits: Mapping[str, int]) -> None:
        self._limits = dict(limits)
        self._waiting: dict[str, deque[Job]] = {lane: deque() for lane in limits}
        self._running: list[_Running] = []

    def add(self, job: Job) -> None:
        self._waiting[job.lane].append(job)

    def _fill(self) -> None:
        for lane, waiting in self._waiting.items():
            busy = sum(r.job.lane == lane for r in self._running)
            for _ in range(min(self._limits[lane] - busy, len(waiting))):
                self._running.append(_start(waiting.popleft()))

    def run(self, done: Callable[[Outcome], None], end: float) -> bool:
        """Calls `done` with each outcome, which may add jobs. Stops after `end` (of
        time.monotonic): what still runs is killed and has no outcome. Returns whether
        all was done."""
        try:
            while time.monotonic() < end:
                self._fill()
                if not self._running:
                    return True
                ended = [(r, _finish(r)) for r in self._running]
                self._running = [r for r, outcome in ended if outcome is None]
                for outcome in (o for _, o in ended if o is not None):
                    done(outcome)
                time.sleep(0.02)
            return False
        finally:
            for one in self._running:
                one.process.kill()


def preload(modules: list[str]) -> None:
    """Modules that the parent of "export" jobs imports once for all of them."""
    multiprocessing.set_forkserver_preload(modules)
