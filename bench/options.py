"""Options of all subjects."""

from __future__ import annotations

import importlib.util
import statistics
from dataclasses import dataclass
from pathlib import Path

from .worker import Spec

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Options:
    """Settings of a run. scratch: a folder for plans and logs, removed later.

    peers: None for all that are installed. jobs: contestants that may compile at the
    same time, where that is not what is measured. zoo, seed: how many architectures of
    the zoo are drawn, and of which draw. limit: seconds after which no model is begun.
    processor: calls of one thread are timed by their time on the processor, which other
    programs hardly change. least_call: the quickest call of a turn counts, not the median.
    builds: of Rabbet's on a GPU, how many may take place at the same time.
    """

    scratch: Path
    threads: tuple[int, ...] = (1, 2)
    rounds: int = 11
    seconds: float = 0.3
    quick: bool = False
    pin: bool = True
    peers: tuple[str, ...] | None = None
    models: tuple[str, ...] | None = None
    jobs: int = 1
    zoo: int = 24
    seed: str = "0"
    limit: float = float("inf")
    processor: bool = False
    least_call: bool = False
    builds: int = 1

    def wanted(self, peer: str) -> bool:
        return peer == "rabbet" or self.peers is None or peer in self.peers

    def spec(
        self, name: str, factory: str, threads: int, arguments: dict[str, object]
    ) -> Spec:
        """A contestant with this run's pinning, and with OpenMP's thread count
        set for those libraries that know no other way."""
        environment = {"OMP_NUM_THREADS": str(threads)}
        if self.jobs > 1:
            environment["TORCHINDUCTOR_COMPILE_THREADS"] = "2"
        return Spec(
            name, factory, arguments, threads, self.pin, environment,
            processor=self.processor and threads == 1,
        )  # fmt: skip

    def describe(self) -> str:
        pinned = "pinned" if self.pin else "not pinned"
        clock = ", one thread by processor time" if self.processor else ""
        call = ", the quickest call of each" if self.least_call else ""
        return (
            f"{self.rounds} rounds of {self.seconds} s a contestant{call}, {pinned}{clock}"
        )

    def of_turn(self, calls: list[float]) -> float:
        """What the seconds of a turn's calls say."""
        return min(calls) if self.least_call else statistics.median(calls)


def installed(package: str) -> bool:
    """Whether a package can be imported (it is not imported to find out)."""
    return importlib.util.find_spec(package) is not None
