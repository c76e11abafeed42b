"""Architectures drawn from the zoo on a GPU, in FP16, beside torch.compile: the time of
one synchronous call, replayed from a graph, and what bounds each class of layers."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    disagreement,
    log_file,
    started,
)
from .zoo import summary

PRECISION = "fp16"
BATCHES = (1, 8)
BOUND = 5e-2
"""Largest difference from FP32, over the largest value; where torch is further off, twice
what it is."""
START_SECONDS = 240.0


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
    """torch's come first: Rabbet's builds wait for them to be compiled."""
    specs = []
    for peer in reversed(peers.GPU_ZOO):
        if not options.wanted(peer.name):
            continue
        for case in found:
            given = {
                "key": case.key,
                "batch": case.batch,
                "precision": PRECISION,
                "expected": str(case.file(options, ".npz")),
                "lock": str(options.scratch / "turn"),
            }
            name = f"{peer.name}, {case.name}"
            spec = options.spec(name, peer.factory, 1, given)
            limit = START_SECONDS if peer.name != peers.RABBET else spec.start_s
            specs.append(_within(spec, limit))
    return specs


def _within(spec: Spec, seconds: float) -> Spec:
    return Spec(**{**vars(spec), "start_s": seconds})


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


# ---- Sections ----


class Report:
    """The subject's tables."""

    def __init__(self, seed: str) -> None:
        names = [peer.name for peer in peers.GPU_ZOO]
        self.times = Section(
            f"GPU, models of the zoo, {PRECISION}: milliseconds of a call",
            ["model", "batch", *names, "ratio", "error", "build, s", "steps",
             "us at bandwidth", "us at compute", "kernels, by the tuner's time"],
        )  # fmt: skip
        self.times.note(f"the draw's seed: {seed}")
        self.times.note(
            "torch.compile: its kernels, weights frozen, in one CUDA graph of its own; "
            "both compile the same module with the same weights. error: of Rabbet and "
            "of torch from FP32, over the largest value"
        )
        self.classes = Section(
            "GPU, models of the zoo: classes of layers and their limits",
            ["model", "batch", *COLUMNS],
        )
        self.classes.note(
            "us: of each kernel in its place in a replayed graph where every step is one "
            "kernel, else what the tuner measured of it alone; the limit: the larger of "
            "4.28 TB/s and 989 TFLOP/s, layer by layer"
        )
        self.ratios: list[float] = []

    def row(
        self,
        case: Case,
        medians: Rounds,
        absent: Mapping[str, str],
        told: Mapping[str, float | str],
        facts: Mapping[str, Mapping[str, Any]],
    ) -> None:
        for reason in absent.values():
            self.times.note(f"{case.name}: {reason}")
        cells = [milliseconds(medians, peer.name) for peer in peers.GPU_ZOO]
        ratio = None
        if all(medians.get(peer.name) for peer in peers.GPU_ZOO):
            both = [peer.name for peer in peers.GPU_ZOO]
            ratio = Spread.of(ratios(medians, *both))
            self.ratios.append(ratio.median)
        off = [told.get(peer.name) for peer in peers.GPU_ZOO]
        shown = [f"{e:.1g}" if isinstance(e, float) else "-" for e in off]
        row = [case.key, str(case.batch), *cells, ratio.text() if ratio else "-",
               " / ".join(shown)]  # fmt: skip
        row += self._bounds(case, facts.get(peers.RABBET, {}))
        self.times.rows.append(row)
        print("  " + " | ".join(row), flush=True)
        for reason in absent.values():
            print(f"    {reason}", flush=True)
        self.times.data.append(
            {"model": case.key, "batch": case.batch, "rounds": medians,
             "absent": dict(absent), "errors": dict(told), "facts": dict(facts)}
        )  # fmt: skip

    def _bounds(self, case: Case, facts: Mapping[str, Any]) -> list[str]:
        if "layers" not in facts:
            return ["-"] * 5
        found = bounds(facts["layers"])
        spent = in_place(facts)
        total = sum(spent) if spent else sum(found.tuned.values())
        for one in groups(facts["layers"], BANDWIDTH, PEAK[PRECISION], spent):
            cells = one.cells(total)
            self.classes.rows.append([case.key, str(case.batch), *cells])
        return [
            f"{facts['build_s']:.1f}", str(found.launches),
            f"{found.at_bandwidth() * 1e6:.0f}",
            f"{found.at_compute(PRECISION) * 1e6:.0f}", found.kernels(),
        ]  # fmt: skip

    def sections(self) -> list[Section]:
        for line in summary(self.ratios):
            self.times.note(line)
        return [self.times, self.classes]


def _last_words(options: Options, name: str, lines: int = 40) -> str:
    """The end of a contestant's log."""
    file = log_file(options.scratch, name)
    text = file.read_text(errors="replace") if file.exists() else ""
    return "\n".join(text.splitlines()[-lines:])


def _measure(report: Report, case: Case, field_: Field, options: Options) -> None:
    own = _of(field_, case)
    told: dict[str, float | str] = {}
    file = case.file(options, ".npz")
    if file.exists():
        with np.load(file) as expected:
            told = errors(own.workers, dict(expected.items()))
    for name in told:
        reason = wrong(name, told)
        if reason is not None:
            own.absent[name] = reason
            del own.workers[name]
    medians = take_turns(own.workers, rounds=options.rounds, seconds=options.seconds)
    facts = {name: worker.facts() for name, worker in own.workers.items()}
    report.row(case, medians, own.absent, told, facts)
    report.times.data[-1]["logs"] = {
        name: _last_words(options, f"{name}, {case.name}") for name in own.absent
    }


def run(options: Options) -> list[Section]:
    """Milliseconds of a call of each model drawn, at each batch.

    All contestants start together, `jobs` of them at a time: torch's compile side by
    side, Rabbet's export meanwhile and are built one by one after those.
    """
    report, found, begin = Report(options.seed), cases(options), time.monotonic()
    specs = _specs(found, options)
    with started(specs, options.scratch, max(options.jobs, 1)) as field_:
        print(f"  started: {time.monotonic() - begin:.0f} s", flush=True)
        for case in found:
            if time.monotonic() - begin > options.limit:
                report.times.note(f"{case.name}: no time was left")
                continue
            _measure(report, case, field_, options)
    return report.sections()
