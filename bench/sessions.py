"""Sessions: from a model's file to the first result, in a process of its own, when the
model is built with a full timing cache, when its plan is loaded, and of peers."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from . import peers
from .report import Section
from .worker import ContestantError, Spec, Start, Worker

STARTS = 3
"""Starts of each, of which the medians are told."""
MIB = 1 << 20
OWN = BUILT, LOADED = "built again", "loaded"
_ENGINE = "bench.peers.rabbet_engine"


def _kinds(specs: Sequence[Spec]) -> dict[str, Spec]:
    """Peers by their names, and both of Rabbet's ways. What they read, the plan and the
    timing cache, an earlier start of Rabbet's has written."""
    found: dict[str, Spec] = {}
    for spec in specs:
        if spec.name == peers.RABBET:
            found[BUILT] = replace(spec, factory=f"{_ENGINE}:Model")
            found[LOADED] = replace(spec, factory=f"{_ENGINE}:Loaded")
        else:
            found[spec.name] = spec
    return found


def _once(spec: Spec, logs: Path) -> Start:
    worker = Worker(spec, logs)
    worker.stop()
    return worker.start


def seconds(starts: Sequence[Start]) -> float:
    """From the file to the first result, imports apart."""
    return statistics.median(one.load_s + one.first_call_s for one in starts)


def memory(starts: Sequence[Start]) -> float:
    """The most resident MiB until then."""
    return statistics.median(one.peak_bytes for one in starts) / MIB


@dataclass(frozen=True)
class Measure:
    """What is told of starts: in which unit, and how it is written."""

    unit: str
    form: str
    of: Callable[[Sequence[Start]], float]
    rival: str | None
    """The peer with which Rabbet is compared; None: the better of all."""

    def compared(self, values: Mapping[str, float], own: str) -> float | None:
        """The ratio of one of Rabbet's ways."""
        others = [
            value
            for name, value in values.items()
            if name == self.rival or (self.rival is None and name not in OWN)
        ]
        return values[own] / min(others) if own in values and others else None


MEASURES = (
    Measure("s", "{:.3f}", seconds, "onnxruntime"),
    Measure("MiB", "{:.0f}", memory, None),
)


def _summary(name: str, measure: Measure, ratios: Sequence[float]) -> str:
    within = sum(ratio <= 1.0 for ratio in ratios) / len(ratios)
    return (
        f"{name}, {measure.unit} over those of {measure.rival or 'the better peer'}: "
        f"{statistics.geometric_mean(ratios):.2f} (geometric mean), at most 1.0 in "
        f"{within:.0%} of {len(ratios)} rows, the worst {max(ratios):.2f}"
    )


class Sessions:
    """A table of sessions' seconds and memory."""

    def __init__(self, peer_names: Sequence[str]) -> None:
        self.names = [*OWN, *peer_names]
        units = [f"{name}, {m.unit}" for m in MEASURES for name in self.names]
        self.section = Section(
            "Models of the zoo: sessions", ["model", "threads", *units]
        )
        self.section.note(
            "s: from the file to the first result, imports apart; MiB: the most memory "
            f"until then; medians of {STARTS} starts that took turns. {BUILT}: with the "
            f"timing cache of an earlier build; {LOADED}: from the plan that it wrote"
        )
        self.ratios: dict[tuple[str, Measure], list[float]] = {}

    def measure(
        self, model: str, threads: int, specs: Sequence[Spec], logs: Path
    ) -> None:
        """Adds a row. specs: the contestants that started before."""
        kinds = _kinds(specs)
        starts: dict[str, list[Start]] = {}
        for _turn in range(STARTS):
            for name, spec in kinds.items():
                try:
                    start = _once(spec, logs)
                    starts.setdefault(name, []).append(start)
                except ContestantError as error:
                    self.section.note(f"{model}, {threads} threads, {name}: {error}")
        self.add(model, threads, starts)

    def add(
        self, model: str, threads: int, starts: Mapping[str, Sequence[Start]]
    ) -> None:
        """Adds a row of what was measured."""
        cells = [model, str(threads)]
        for measure in MEASURES:
            values = {name: measure.of(some) for name, some in starts.items()}
            for name in self.names:
                known = name in values
                cells.append(measure.form.format(values[name]) if known else "-")
            for own in OWN:
                ratio = measure.compared(values, own)
                if ratio is not None:
                    self.ratios.setdefault((own, measure), []).append(ratio)
        self.section.rows.append(cells)
        data = {name: [vars(one) for one in some] for name, some in starts.items()}
        self.section.data.append({"model": model, "threads": threads, "starts": data})

    def close(self) -> Section:
        """The table, with what its rows say together."""
        for (own, measure), ratios in self.ratios.items():
            self.section.note(_summary(own, measure, ratios))
        return self.section
