"""Architectures drawn from the zoo on a GPU, in FP16, beside torch.compile: the time of
one synchronous call, replayed from a graph, and what bounds each class of layers."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from zoo import near_real

from . import peers
from .gpu_bounds import BANDWIDTH, PEAK, bounds
from .layer_classes import COLUMNS, groups
from .models import milliseconds
from .options import Options
from .report import Section
from .rounds import Rounds, Spread, ratios, take_turns
from .worker import (
    ContestantError,
    Field,
    Spec,
    Worker,
    alone,
    disagreement,
    log_file,
    starting,
)
from .zoo import summary

PRECISION = "fp16"
BATCHES = (1, 8)
BOUND = 5e-2
"""Largest difference from FP32, over the largest value; where torch is further off, twice
what it is."""
START_SECONDS = 600.0
"""That all contestants together may take to be ready; options.limit: at most three
quarters of it."""
PEER_SHARE = 0.4
"""Of the limit, what a peer may take to be ready where Rabbet's builds wait for it: one
that never ends would leave no time for any build."""
ANSWER_SECONDS = FACTS_SECONDS = 20.0
LOOK_SECONDS = 0.5
"""Between looks at who is ready."""


@dataclass(frozen=True)
class Case:
    """An architecture at one batch."""

    key: str
    batch: int

    @property
    def name(self) -> str:
        return f"{self.key}, {self.batch}"

    def file(self, options: Options, suffix: str) -> Path:
        return options.scratch / f"{self.key.replace('/', '-')}-{self.batch}{suffix}"


def cases(options: Options) -> list[Case]:
    """Those drawn, or those named, each with "/BATCH" if wanted."""
    if options.models is None:
        drawn = near_real.draw(options.zoo, options.seed, fixed=True)
        return [Case(key, batch) for key in drawn for batch in BATCHES]
    found = []
    for text in options.models:
        library, name, *rest = text.split("/")
        key = f"{library}/{name}"
        if key not in near_real.architectures():
            raise ValueError(f"no model {key}; python -m zoo --list names them")
        found += [Case(key, int(n)) for n in rest or map(str, BATCHES)]
    return found


# ---- Contestants ----


def _specs(found: Sequence[Case], options: Options) -> list[Spec]:
    """torch's come first where Rabbet's builds wait for them to be compiled, else
    architecture by architecture."""
    specs = {}
    for peer in reversed(peers.GPU_ZOO):
        if not options.wanted(peer.name):
            continue
        for place, case in enumerate(found):
            given: dict[str, Any] = {
                "key": case.key,
                "batch": case.batch,
                "precision": PRECISION,
                "expected": str(case.file(options, ".npz")),
                "stages": str(options.scratch / "stages"),
            }
            if peer.name == peers.RABBET:
                given["builds"] = options.builds
            name = f"{peer.name}, {case.name}"
            spec = replace(
                options.spec(name, peer.factory, 1, given), answer_s=ANSWER_SECONDS
            )
            if peer.name != peers.RABBET and options.builds == 1:
                share = min(START_SECONDS, PEER_SHARE * options.limit)
                spec = replace(spec, start_s=share)
            specs[len(specs) if options.builds == 1 else (place, len(specs))] = spec
    return [specs[place] for place in sorted(specs)]


def _of(field_: Field, case: Case) -> Field:
    """The contestants of a case, under their plain names, Rabbet first."""
    end = f", {case.name}"
    workers = {
        peer.name: field_.workers[peer.name + end]
        for peer in peers.GPU_ZOO
        if peer.name + end in field_.workers
    }
    absent = {
        name.removesuffix(end): reason
        for name, reason in field_.absent.items()
        if name.endswith(end)
    }
    return Field(workers, absent)


def errors(
    workers: Mapping[str, Worker], expected: Mapping[str, Any]
) -> dict[str, float | str]:
    """How far each contestant is from FP32, or why it has no results."""
    found: dict[str, float | str] = {}
    for name, worker in workers.items():
        try:
            outputs = worker.outputs()
            found[name] = max(
                disagreement(outputs[k], v) if k in outputs else float("inf")
                for k, v in expected.items()
            )
        except ContestantError as error:
            found[name] = str(error)
    return found


def wrong(name: str, told: Mapping[str, float | str]) -> str | None:
    """Why a contestant does not count."""
    own = told[name]
    if isinstance(own, str):
        return own
    others = [e for n, e in told.items() if n != name and isinstance(e, float)]
    allowed = max([BOUND, *(2 * e for e in others)])
    if own <= allowed or any(np.isnan(others)):
        return None
    return f"{name} is wrong: it is {own:.2g} off FP32, {allowed:.2g} is allowed"


def in_place(facts: Mapping[str, Any]) -> list[float] | None:
    """Seconds of each layer in a replayed graph; None where steps and kernels are not
    the same in number."""
    spans = [us / 1e6 for _, us in facts.get("kernels", ())]
    layers = json.loads(facts["layers"])["Layers"]
    return spans if len(spans) == len(layers) else None


# ---- Measuring ----


@dataclass
class Row:
    """What is known of a case. facts: by contestant; {} where there was no time."""

    case: Case
    own: Field
    errors: dict[str, float | str] = field(default_factory=dict)
    medians: Rounds = field(default_factory=dict)
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)

    def ratio(self) -> Spread | None:
        names = [peer.name for peer in peers.GPU_ZOO]
        if not all(self.medians.get(name) for name in names):
            return None
        return Spread.of(ratios(self.medians, *names))

    def times(self) -> list[str]:
        """Cells: model, batch, milliseconds, ratio, errors."""
        found = self.ratio()
        off = [self.errors.get(peer.name) for peer in peers.GPU_ZOO]
        return [
            self.case.key,
            str(self.case.batch),
            *(milliseconds(self.medians, peer.name) for peer in peers.GPU_ZOO),
            found.text() if found else "-",
            " / ".join(f"{e:.1g}" if isinstance(e, float) else "-" for e in off),
        ]

    def bounds(self) -> list[str]:
        """Cells: the build, steps, and what bounds them."""
        facts = self.facts.get(peers.RABBET, {})
        if "layers" not in facts:
            return ["-"] * 5
        found = bounds(facts["layers"])
        return [
            f"{facts['build_s']:.1f}",
            str(found.launches),
            f"{found.at_bandwidth() * 1e6:.0f}",
            f"{found.at_compute(PRECISION) * 1e6:.0f}",
            found.kernels(),
        ]

    def classes(self) -> list[list[str]]:
        """Rows: each class of layers."""
        facts = self.facts.get(peers.RABBET, {})
        if "layers" not in facts:
            return []
        spent = in_place(facts)
        found = groups(facts["layers"], BANDWIDTH, PEAK[PRECISION], spent)
        total = sum(one.seconds for one in found)
        label = [self.case.key, str(self.case.batch)]
        return [[*label, *one.cells(total)] for one in found]


def _last_words(options: Options, name: str, lines: int = 40) -> str:
    """The end of a contestant's log."""
    file = log_file(options.scratch, name)
    text = file.read_text(errors="replace") if file.exists() else ""
    return "\n".join(text.splitlines()[-lines:])


def _measured(case: Case, everyone: Field, options: Options, left: float) -> Row:
    row = Row(case, _of(everyone, case))
    own, file = row.own, case.file(options, ".npz")
    row.logs = {n: _last_words(options, f"{n}, {case.name}") for n in own.absent}
    if left <= 0:
        own.absent["not measured"] = "no time was left"
        return row
    if file.exists():
        with np.load(file) as expected:
            row.errors = errors(own.workers, dict(expected.items()))
    for name in row.errors:
        reason = wrong(name, row.errors)
        if reason is not None:
            own.absent[name] = reason
            del own.workers[name]
    try:
        with alone(own.workers):
            row.medians = take_turns(
                own.workers, rounds=options.rounds, seconds=options.seconds
            )
    except ContestantError as error:
        own.absent["while timed"] = str(error)
    for name in own.absent:
        row.logs.setdefault(name, _last_words(options, f"{name}, {case.name}"))
    return row


def _ask(rows: Collection[Row], seconds: float) -> None:
    """Takes the facts of all, which are no part of what is timed."""

    def ask(row: Row, name: str) -> None:
        try:
            row.facts[name] = row.own.workers[name].facts(seconds)
        except ContestantError as error:
            row.logs[name] = str(error)

    asked = [(row, name) for row in rows for name in row.own.workers]
    if asked:
        with ThreadPoolExecutor(len(asked)) as pool:
            list(pool.map(lambda one: ask(*one), asked))


def _sections(rows: Sequence[Row], options: Options) -> list[Section]:
    times = Section(
        f"GPU, models of the zoo, {PRECISION}: milliseconds of a call",
        ["model", "batch", *(peer.name for peer in peers.GPU_ZOO), "ratio", "error",
         "build, s", "steps", "us at bandwidth", "us at compute",
         "kernels, by the tuner's time"],
    )  # fmt: skip
    times.note(f"the draw's seed: {options.seed}")
    if options.builds > 1:
        times.note(f"{options.builds} of Rabbet's builds took place at the same time")
    times.note(
        "torch.compile: its kernels, weights frozen, in one CUDA graph of its own; both "
        "compile the same module with the same weights. error: of Rabbet and of torch "
        "from FP32, over the largest value"
    )
    classes = Section(
        "GPU, models of the zoo: classes of layers and their limits",
        ["model", "batch", *COLUMNS],
    )
    classes.note(
        "us: of each kernel in its place in a replayed graph where every step is one "
        "kernel, else what the tuner measured of it alone; the limit: the larger of 4.28 "
        "TB/s and 989 TFLOP/s, layer by layer"
    )
    for row in rows:
        times.rows.append([*row.times(), *row.bounds()])
        classes.rows += row.classes()
        for reason in row.own.absent.values():
            times.note(f"{row.case.name}: {reason}")
        times.data.append(
            {"model": row.case.key, "batch": row.case.batch, "rounds": row.medians,
             "absent": row.own.absent, "errors": row.errors, "facts": row.facts,
             "logs": row.logs}
        )  # fmt: skip
    found = [ratio.median for row in rows if (ratio := row.ratio()) is not None]
    for line in summary(found):
        times.note(line)
    return [times, classes]


class _Told:
    """The lines of a file that are new."""

    def __init__(self, file: Path) -> None:
        self.file, self.known = file, 0

    def show(self) -> None:
        if self.file.exists():
            lines = self.file.read_text().splitlines(keepends=True)
            print("".join(lines[self.known :]), end="", flush=True)
            self.known = len(lines)


def _are_decided(case: Case, specs: Sequence[Spec], everyone: Field) -> bool:
    """Whether all contestants of a case are ready or absent."""
    names = [spec.name for spec in specs if spec.name.endswith(f", {case.name}")]
    return all(n in everyone.workers or n in everyone.absent for n in names)


def run(options: Options) -> list[Section]:
    """Milliseconds of a call of each model drawn, at each batch.

    All contestants start together, `jobs` of them at a time: torch's compile side by
    side, Rabbet's export meanwhile and are built after those, one by one, or several at a
    time beside them. A case is measured as soon as its contestants are ready; the others
    stand still meanwhile.
    """
    found, begin = cases(options), time.monotonic()
    specs, rows = _specs(found, options), {}
    told = _Told(options.scratch / "stages")
    ready_by = begin + min(START_SECONDS, options.limit * 3 / 4)

    def left() -> float:
        return options.limit - (time.monotonic() - begin)

    with starting(specs, options.scratch, options.jobs, ready_by) as everyone:
        waiting = list(found)
        while waiting:
            case = next((c for c in waiting if _are_decided(c, specs, everyone)), None)
            told.show()
            if case is None:
                time.sleep(LOOK_SECONDS)
                continue
            waiting.remove(case)
            rows[case] = _measured(case, everyone, options, left())
            lines = [" | ".join(rows[case].times()), *rows[case].own.absent.values()]
            print("\n".join(f"  {line}" for line in lines), flush=True)
        if left() > 0:
            _ask(rows.values(), min(FACTS_SECONDS, left()))
    return _sections([rows[case] for case in found], options)
