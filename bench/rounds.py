"""Contestants that take turns, and statistics of their times."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from .worker import Worker

Rounds = dict[str, list[float]]
"""Contestant -> the median seconds of a call in each round."""

REST_SECONDS = 0.02
"""Between turns: the last contestant's threads stop spinning meanwhile."""


@dataclass(frozen=True)
class Spread:
    """A median with its quartiles."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """The spread of one value or more."""
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(middle, low, high)

    def as_dict(self) -> dict[str, float]:
        return asdict(self)

    def scaled(self, factor: float) -> Spread:
        return Spread(self.median * factor, self.low * factor, self.high * factor)

    def text(self, digits: int = 2) -> str:
        """ "0.85 (0.83 to 0.88)"."""
        parts = [f"{v:.{digits}f}" for v in (self.median, self.low, self.high)]
        return "{} ({} to {})".format(*parts)


def take_turns(
    workers: Mapping[str, Worker],
    *,
    rounds: int,
    seconds: float,
    least: int = 3,
    of_turn: Callable[[list[float]], float] = statistics.median,
) -> Rounds:
    """Times all workers in each round, each first in turn and with at least `least` calls;
    one round more is run before and not counted. of_turn: what a turn's calls say."""
    names = list(workers)
    medians: Rounds = {name: [] for name in names}
    for number in range(rounds + 1):
        first = number % len(names) if names else 0
        for name in names[first:] + names[:first]:
            time.sleep(REST_SECONDS)
            samples = workers[name].time(seconds, least)
            if number:
                medians[name].append(of_turn(samples))
    return medians


def best(medians: Rounds, names: Sequence[str]) -> str | None:
    """The quickest of `names`, by the median over rounds."""
    there = [name for name in names if medians.get(name)]
    return min(there, key=lambda n: statistics.median(medians[n]), default=None)


def ratios(medians: Rounds, name: str, other: str) -> list[float]:
    """Time of `name` over time of `other`, round by round."""
    pairs = zip(medians[name], medians[other], strict=True)
    return [mine / theirs for mine, theirs in pairs]
