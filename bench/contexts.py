"""Contexts beside each other: N threads call, each with M threads inside."""

from __future__ import annotations

import importlib
import threading
from typing import Any

from . import peers
from .models import BOUND, Case, named, prepare, specs
from .options import Options
from .report import Section
from .rounds import Rounds, Spread, take_turns
from .worker import Contestant, Spec, disagreement, drop_wrong, started

LAYOUTS = ((1, 1), (1, 2), (2, 1), (2, 2), (4, 2))
"""Contexts x threads in each. On two cores the first uses half of them, the
next two all, and the last two ask for more than there are."""

SKIPPED = ("torch freeze",)


def _members(factory: Any, count: int, arguments: dict[str, Any]) -> list[Contestant]:
    """`count` contestants: contexts of one model where there is such a thing,
    else models of their own."""
    first = factory(**arguments)
    another = getattr(first, "another", None)
    rest = range(count - 1)
    return [first, *(another() if another else factory(**arguments) for _ in rest)]


class Parallel:
    """`contexts` contestants, each called from a thread of its own."""

    def __init__(self, *, contexts: int, inner: str, arguments: dict[str, Any]) -> None:
        module, name = inner.split(":")
        factory = getattr(importlib.import_module(module), name)
        self.members = _members(factory, contexts, arguments)
        # Models that were built apart may sum in other orders.
        self.bound = 0.0 if hasattr(self.members[0], "another") else BOUND
        self.begin = threading.Barrier(contexts + 1)
        self.end = threading.Barrier(contexts + 1)
        self.error: BaseException | None = None
        self.results: list[dict[str, Any]] | None = None
        for index in range(contexts):
            threading.Thread(target=self._loop, args=(index,), daemon=True).start()

    def _loop(self, index: int) -> None:
        member = self.members[index]
        while True:
            self.begin.wait()
            try:
                if self.results is None:
                    member.call()
                else:
                    self.results[index] = member.outputs()
            except BaseException as error:
                self.error = error
                self.end.abort()
                return
            self.end.wait()

    def call(self) -> None:
        """Calls all contexts once, at the same time."""
        self.begin.wait()
        try:
            self.end.wait()
        except threading.BrokenBarrierError:
            raise RuntimeError(f"a context failed: {self.error!r}") from self.error

    def outputs(self) -> dict[str, Any]:
        """The results of the last context, computed beside those of the others;
        all must agree."""
        results: list[dict[str, Any]] = [{} for _ in self.members]
        self.results = results
        try:
            self.call()
        finally:
            self.results = None
        for name, expected in results[0].items():
            worst = max(disagreement(other[name], expected) for other in results)
            if not worst <= self.bound:
                raise AssertionError(
                    f"contexts disagree on output {name} by {worst:.2g} of its "
                    f"largest value, {self.bound:g} is allowed"
                )
        return results[-1]


def _spec(spec: Spec, contexts: int, threads: int, options: Options) -> Spec:
    given = {"contexts": contexts, "inner": spec.factory, "arguments": spec.arguments}
    name = f"{spec.name} {contexts}x{threads}"
    made = options.spec(name, "bench.contexts:Parallel", threads, given)
    # The cores are those of the whole machine: pinning would hide the others.
    return Spec(name, made.factory, given, threads, False, made.environment)


def _one(section: Section, name: str, case: Case, options: Options) -> None:
    prepared = prepare(name, case, options)
    wanted: list[Spec] = []
    for contexts, threads in LAYOUTS:
        found, absent = specs(prepared, options, threads)
        for peer in absent:
            section.note(f"{peer} is not installed")
        wanted += [
            _spec(spec, contexts, threads, options)
            for spec in found
            if spec.name not in SKIPPED
        ]
    with started(wanted, options.scratch) as field_:
        drop_wrong(field_, prepared.expected, BOUND)
        medians = take_turns(
            field_.workers, rounds=options.rounds, seconds=options.seconds
        )
    for reason in field_.absent.values():
        section.note(f"{name}: {reason}")
    for peer in peers.MODELS:
        if medians.get(f"{peer.name} 1x1"):
            _row(section, name, peer.name, medians)


def _row(section: Section, model: str, peer: str, medians: Rounds) -> None:
    """Throughputs of one contestant in all layouts."""
    base = medians[f"{peer} 1x1"]
    cells = []
    for contexts, threads in LAYOUTS:
        values = medians.get(f"{peer} {contexts}x{threads}")
        if not values:
            cells.append("-")
            continue
        pairs = zip(base, values, strict=True)
        gain = Spread.of([contexts * one / each for one, each in pairs])
        cells.append(gain.text())
        section.data.append(
            {
                "model": model,
                "name": peer,
                "contexts": contexts,
                "threads": threads,
                "seconds_of_a_round": Spread.of(values).as_dict(),
                "throughput_over_1x1": gain.as_dict(),
            }
        )
    section.rows.append([model, peer, *cells])


def run(options: Options) -> Section:
    """Calls a second over those of one context with one thread."""
    layouts = [f"{contexts}x{threads}" for contexts, threads in LAYOUTS]
    section = Section(
        "Contexts x threads: throughput, one context with one thread being 1",
        ["model", "contestant", *layouts],
    )
    section.note("not pinned; all contexts of a contestant are in one process, of one model "
        "where it can have several")
    for name, case in named(options.models or ("light_squeezenet",)).items():
        _one(section, name, case, options)
    return section
