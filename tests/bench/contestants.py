"""Contestants whose behaviour the tests know."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np


class Plain:
    """Counts its calls; gives [value, calls so far]."""

    def __init__(self, *, value: float = 1.0) -> None:
        self.value = value
        self.calls = 0

    def call(self) -> None:
        self.calls += 1

    def outputs(self) -> dict[str, Any]:
        return {"y": np.array([self.value, 2.0])}


class Environment(Plain):
    """Tells the cores and the thread count that it was given."""

    def outputs(self) -> dict[str, Any]:
        cores = len(os.sched_getaffinity(0))
        return {"y": np.array([cores, int(os.environ["OMP_NUM_THREADS"])])}


class Broken:
    """Can't be loaded."""

    def __init__(self) -> None:
        raise ValueError("there is no such model")


class Dying(Plain):
    """Ends its process at once."""

    def call(self) -> None:
        os.write(2, b"all is lost\n")
        os._exit(7)


class Failing(Plain):
    """Can be loaded and not run."""

    def call(self) -> None:
        raise MemoryError("no memory left")


class Meeting(Plain):
    """Returns only when two of its kind are called at the same time."""

    gate = threading.Barrier(2, timeout=10)

    def call(self) -> None:
        self.gate.wait()

    def outputs(self) -> dict[str, Any]:
        return {"y": np.array([self.value])}


class Rounded(Plain):
    """Each that is made is off by another `step`."""

    made = 0

    def __init__(self, *, step: float) -> None:
        super().__init__(value=1.0 + step * Rounded.made)
        Rounded.made += 1


class Shared(Plain):
    """One model, a context each; the second is off by `error`."""

    def __init__(self, *, error: float = 0.0) -> None:
        super().__init__()
        self.error = error

    def another(self) -> Plain:
        return Plain(value=1.0 + self.error)


class Hanging:
    """Is never ready; starts a process of its own, and writes both numbers to a file."""

    def __init__(self, *, file: str = "") -> None:
        if file:
            child = subprocess.Popen(["sleep", "600"])
            Path(file + ".new").write_text(f"{os.getpid()} {child.pid}")
            Path(file + ".new").rename(file)
        threading.Event().wait()


class Drawn(Plain):
    """Stands for a compiled module of the zoo: gives its batch; writes what is expected."""

    def __init__(self, *, key: str, batch: int, expected: str, **_: object) -> None:
        super().__init__(value=batch)
        np.savez(expected, **self.outputs())


class Killed(Drawn):
    """Ends its process when the time of its calls is asked for."""

    def time_calls(self, seconds: float, least: int) -> list[float]:
        os._exit(9)
