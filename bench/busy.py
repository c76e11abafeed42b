"""Building beside a busy process: do builds agree, and are their plans as quick?"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from . import peers
from .models import Prepared, named, prepare, specs
from .options import Options
from .report import Section
from .rounds import Spread, ratios, take_turns
from .worker import Spec, Worker, drop_wrong, started

BUILDS = 10
TOLD = "bench.peers.rabbet_engine:Told"
LOADED = "bench.peers.rabbet_engine:Loaded"
ON_PROCESSOR = "bench.peers.rabbet_engine:OnProcessor"
QUIET = "alone"
SPIN = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"


@contextlib.contextmanager
def competitors() -> Iterator[None]:
    """Keeps each core busy with a process that computes all the time."""
    cores = sorted(os.sched_getaffinity(0))
    spinning = [subprocess.Popen([sys.executable, "-c", SPIN, str(c)]) for c in cores]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def _choices(report: dict[str, Any]) -> set[tuple[str, ...]]:
    keys = ("name", "kernel", "tactic_name", "types")
    return {tuple(str(step[key]) for key in keys) for step in report["steps"]}


def differing(reports: list[dict[str, Any]]) -> float:
    """The share of steps in which two builds differ."""
    sets = [_choices(report) for report in reports]
    pairs = itertools.combinations(sets, 2)
    return statistics.mean(len(a ^ b) / len(a | b) for a, b in pairs)


def _build(base: Spec, name: str, options: Options) -> tuple[Spec, dict[str, Any]]:
    """Builds once. Returns the contestant that loads the plan, and the build's
    report."""
    plan = str(options.scratch / f"{name}-{base.threads}.plan")
    arguments = {**base.arguments, "plan": plan}
    given = replace(base, name=name, factory=TOLD, arguments=arguments)
    worker = Worker(given, options.scratch)
    report = json.loads(worker.facts()["report"])
    worker.stop()
    factory = ON_PROCESSOR if base.threads == 1 else LOADED
    return replace(given, factory=factory), report


def _one(section: Section, prepared: Prepared, options: Options, threads: int) -> None:
    base = next(s for s in specs(prepared, options, threads)[0] if s.name == peers.RABBET)
    count = 3 if options.quick else BUILDS
    quiet, quiet_report = _build(base, QUIET, options)
    with competitors():
        built = [_build(base, f"busy {i}", options) for i in range(count)]
    reports = [report for _, report in built]
    with started([quiet, *(spec for spec, _ in built)], options.scratch) as field:
        drop_wrong(field, prepared.expected, 1e-3)
        times = take_turns(field.workers, rounds=options.rounds, seconds=options.seconds)
    medians = [statistics.median(ratios(times, spec.name, QUIET)) for spec, _ in built]
    spread, seconds = Spread.of(medians), [report["seconds"] for report in reports]
    unsure = [len(report.get("unsure", ())) for report in reports]
    section.rows.append([
        prepared.name, str(threads), spread.text(3), f"{max(medians) / min(medians):.3f}",
        f"{differing(reports):.0%}", f"{statistics.mean(unsure):.1f}",
        f"{statistics.median(seconds):.1f}", f"{quiet_report['seconds']:.1f}",
    ])  # fmt: skip
    section.data.append({
        "model": prepared.name, "threads": threads, "ratios": medians, "rounds": times,
        "differing": differing(reports), "unsure": unsure, "seconds": seconds,
        "alone_seconds": quiet_report["seconds"],
    })  # fmt: skip


def run(options: Options) -> Section:
    """Builds beside busy processes, then the plans in turns without them."""
    columns = [
        "model", "threads", "time / that of a build alone", "slowest / quickest",
        "steps that differ", "unsure steps", "seconds of a build", "alone",
    ]  # fmt: skip
    section = Section("Builds beside a busy process on each core", columns)
    for name, case in named(options.models or ("light_squeezenet",)).items():
        prepared = prepare(name, case, options)
        for threads in options.threads:
            _one(section, prepared, options, threads)
            print("  " + " | ".join(section.rows[-1]), flush=True)
    section.note(f"{3 if options.quick else BUILDS} builds each, timed afterwards in turns")
    section.note("the time on one thread is the processor's, else the elapsed time")
    return section
