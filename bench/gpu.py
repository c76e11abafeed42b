"""Real models on a GPU, Rabbet beside torch: the time of one synchronous call, the time
of a build, memory, and the bound of each model."""

from __future__ import annotations

import multiprocessing
import statistics
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.models import model_path, reference, sample_inputs

from . import peers
from .gpu_bounds import bounds
from .models import compared, milliseconds, record
from .options import Options, installed
from .peers import Peer
from .report import Section
from .rounds import Rounds, Spread, ratios, take_turns
from .worker import ContestantError, Field, Spec, Worker, drop_wrong, started

BOUNDS = {"fp32": 1e-4, "tf32": 1e-2, "fp16": 5e-2, "bf16": 2e-1}
"""Largest difference from ONNX Runtime's FP32 result, over its largest value."""

SEQUENCE = {"sequence": 128}
MODELS: dict[str, dict[str, Any]] = {
    "resnet50": {},
    "unet256": {},
    "bert_base": SEQUENCE,
    "gpt2_small": SEQUENCE,
    "mlp": {},
    "elementwise200": {},
}
QUICK = ("mlp", "elementwise200")
OVERHEAD = "reduce-overhead"
MIB = 1 << 20


@dataclass(frozen=True)
class Case:
    """A model of static shapes in one precision."""

    model: str
    batch: int
    precision: str

    @property
    def name(self) -> str:
        return f"{self.model}, {self.precision}, {self.batch}"

    def path(self) -> Path:
        return model_path(self.model, batch=self.batch, **MODELS[self.model])


def cases(options: Options) -> list[Case]:
    """The cases of this run; options.models are names, each with suffixes
    "/PRECISION" and "/BATCH" if wanted."""
    wanted = options.models or (QUICK if options.quick else tuple(MODELS))
    found = []
    for text in wanted:
        name, *rest = text.split("/")
        if name not in MODELS:
            raise ValueError(f"no model {name}; there are {', '.join(MODELS)}")
        precisions = [p for p in rest if not p.isdigit()] or ["tf32", "fp16"]
        batches = [int(b) for b in rest if b.isdigit()] or [1, 8, 32]
        found += [Case(name, b, p) for p in precisions for b in batches]
    return found


# ---- Contestants ----


@dataclass(frozen=True)
class Prepared:
    """A case with its inputs in a file and its expected results."""

    case: Case
    inputs: Path
    expected: Mapping[str, Any]

    def given(self) -> dict[str, Any]:
        """The arguments of every contestant's constructor."""
        return {
            "path": str(self.case.path()),
            "inputs": str(self.inputs),
            "precision": self.case.precision,
        }

    def kept(self, suffix: str) -> str:
        """A file of the case's builds."""
        name = f"{self.case.model}-{self.case.precision}-{self.case.batch}"
        return str(self.inputs.with_name(name + suffix))


def _files(case: Case, file: Path) -> dict[str, Any]:
    """Writes a case's inputs and returns the expected results."""
    inputs = sample_inputs(case.path())
    np.savez(file, **inputs)
    return reference(case.path(), inputs)


def _prepared(found: Sequence[Case], options: Options) -> list[Prepared]:
    """Precisions share inputs and results."""
    known = {(case.model, case.batch): case for case in found}
    files = [options.scratch / f"{model}-{batch}.npz" for model, batch in known]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, mp_context=context) as pool:
        results = list(pool.map(_files, known.values(), files))
    made = dict(zip(known, zip(files, results, strict=True), strict=True))
    return [Prepared(case, *made[case.model, case.batch]) for case in found]


def _is_rabbet(peer: Peer) -> bool:
    return peer.name.startswith(peers.RABBET)


def _takes_part(peer: Peer, case: Case, options: Options) -> bool:
    # It loses to its own kernels in one graph; small batches are what it is for.
    if peer.name == OVERHEAD and case.batch > 1:
        return False
    return (_is_rabbet(peer) or options.wanted(peer.name)) and installed(peer.package)


def _torch_specs(found: Sequence[Prepared], options: Options) -> list[Spec]:
    return [
        options.spec(f"{peer.name}, {one.case.name}", peer.factory, 1, one.given())
        for one in found
        for peer in peers.GPU_MODELS
        if not _is_rabbet(peer) and _takes_part(peer, one.case, options)
    ]


def _rabbet_specs(prepared: Prepared, options: Options) -> list[Spec]:
    """Rabbet's contestants: the one without graphs builds the plan, which the one with
    graphs loads."""
    given = prepared.given()
    given["plan"] = prepared.kept(".plan")
    given["timing_cache"] = prepared.kept(".timing")
    own = [peer for peer in reversed(peers.GPU_MODELS) if _is_rabbet(peer)]
    return [
        options.spec(peer.name, peer.factory, 1, given)
        for peer in own
        if installed(peer.package)
    ]


LOADED = "bench.peers.rabbet_loaded:Loaded"


def _told(
    prepared: Prepared, options: Options, name: str, factory: str, **given: str
) -> dict[str, Any] | str:
    """A contestant's facts that are not timed, or its failure."""
    arguments = {**prepared.given(), **given}
    try:
        worker = Worker(options.spec(name, factory, 1, arguments), options.scratch)
        facts = worker.facts()
        worker.stop()
    except ContestantError as error:
        return str(error)
    return facts


# ---- Sections ----


class Report:
    """The subject's tables."""

    def __init__(self) -> None:
        columns = ["model", "type", "batch", *(peer.name for peer in peers.GPU_MODELS)]
        self.times = Section(
            "GPU: milliseconds of a call", [*columns, "ratio", f"of {OVERHEAD}"]
        )
        self.builds = Section(
            "GPU: builds and memory",
            ["model", "type", "batch", "build, s", "with timing cache, s", "load, s",
             "plan, MiB", "GPU, MiB", "torch in a graph: GPU, MiB", "host, MiB",
             "torch's, MiB"],
        )  # fmt: skip
        self.builds.note(
            "GPU: for Rabbet all that is gone from the device's memory after the "
            "context was made (weights, code, libraries, the recording), for "
            "torch what its allocator held at most. host: resident size; Rabbet's of a "
            "process that loaded the plan, torch's of one that compiled the model"
        )
        self.bounds = Section(
            "GPU: what bounds Rabbet",
            ["model", "type", "batch", "launches", "MB", "GFLOP", "us at bandwidth",
             "us at compute", "us by the tuner", "us of a call", "bound",
             "kernels, by the tuner's time"],
        )  # fmt: skip
        self.bounds.note(
            "bytes of every layer's inputs, weights and outputs, as if nothing stayed "
            "in the L2 cache, at 4.28 TB/s; products and convolutions at 495 TFLOP/s "
            "(TF32) and 989 (FP16); a launch in a graph at 1 us, 8 us for launching "
            "and waiting. Percentages: of a call"
        )

    def sections(self) -> list[Section]:
        return [self.times, self.builds, self.bounds]

    def time(self, case: Case, field_: Field, medians: Rounds) -> None:
        for reason in field_.absent.values():
            self.times.note(f"{case.name}: {reason}")
            print(f"  {case.name}: {reason}", flush=True)
        rival, ratio = compared(medians)
        cells = [milliseconds(medians, peer.name) for peer in peers.GPU_MODELS]
        result = f"{ratio.text()} of {rival}" if ratio else "-"
        both = medians.get(OVERHEAD) and medians.get(peers.RABBET)
        other = Spread.of(ratios(medians, peers.RABBET, OVERHEAD)) if both else None
        labels = [case.model, case.precision, str(case.batch)]
        self.times.rows.append(
            [*labels, *cells, result, other.text() if other else "-"]
        )
        print("  " + " | ".join(self.times.rows[-1]), flush=True)
        starts = {name: worker.start for name, worker in field_.workers.items()}
        kept = {"model": case.model, "batch": case.batch, "precision": case.precision}
        self.times.data.append(record(medians, starts, **kept, absent=field_.absent))

    def build(self, case: Case, facts: dict[str, Any]) -> None:
        for name, told in list(facts.items()):
            if isinstance(told, str):
                self.builds.note(f"{case.name}: {told}")
                del facts[name]
        first, again = facts.get("rabbet, launches", {}), facts.get("again", {})
        own, other = facts.get("loaded", {}), facts.get("own graph", {})

        def number(values: Mapping[str, Any], key: str, unit: float, text: str) -> str:
            return format(values[key] / unit, text) if key in values else "-"

        self.builds.rows.append(
            [case.model, case.precision, str(case.batch),
             number(first, "build_s", 1, ".1f"),
             number(again, "build_s", 1, ".1f"),
             number(own, "load_s", 1, ".2f"), number(first, "plan_bytes", MIB, ".1f"),
             number(own, "device_bytes", MIB, ".0f"),
             number(other, "reserved_bytes", MIB, ".0f"),
             number(own, "resident_bytes", MIB, ".0f"),
             number(other, "resident_bytes", MIB, ".0f")]
        )  # fmt: skip
        kept = {
            name: {k: v for k, v in values.items() if k != "layers"}
            for name, values in facts.items()
        }
        self.builds.data.append(
            {"model": case.model, "batch": case.batch, "precision": case.precision,
             "facts": kept}
        )  # fmt: skip

    def bound(self, case: Case, layers: str, seconds: float) -> None:
        found = bounds(layers)
        tuned = sum(found.tuned.values())
        self.bounds.rows.append(
            [case.model, case.precision, str(case.batch), str(found.launches),
             f"{found.bytes / 1e6:.0f}", f"{found.operations / 1e9:.1f}",
             f"{found.at_bandwidth() * 1e6:.0f}",
             f"{found.at_compute(case.precision) * 1e6:.0f}", f"{tuned * 1e6:.0f}",
             f"{seconds * 1e6:.0f}", found.verdict(case.precision, seconds),
             found.kernels()]
        )  # fmt: skip
        self.bounds.data.append(
            {"model": case.model, "batch": case.batch, "precision": case.precision,
             "launches": found.launches, "bytes": found.bytes,
             "operations": found.operations, "tuned": dict(found.tuned),
             "layers": dict(found.layers), "seconds": seconds}
        )  # fmt: skip


# ---- Running ----


def _of_case(torch_field: Field, case: Case) -> Field:
    """The contestants that were started for a case, under their plain names."""
    end = f", {case.name}"

    def own(values: Mapping[str, Any]) -> dict[str, Any]:
        return {n.removesuffix(end): v for n, v in values.items() if n.endswith(end)}

    return Field(own(torch_field.workers), own(torch_field.absent))


def _one(
    report: Report, prepared: Prepared, torch_field: Field, options: Options
) -> None:
    case = prepared.case
    with started(_rabbet_specs(prepared, options), options.scratch) as own:
        others = _of_case(torch_field, case)
        everyone = {**own.workers, **others.workers}
        names = [peer.name for peer in peers.GPU_MODELS if peer.name in everyone]
        field_ = Field({n: everyone[n] for n in names}, {**own.absent, **others.absent})
        drop_wrong(field_, prepared.expected, BOUNDS[case.precision])
        medians = take_turns(
            field_.workers, rounds=options.rounds, seconds=options.seconds
        )
        facts = {name: worker.facts() for name, worker in field_.workers.items()}
        report.time(case, field_, medians)
    for name, worker in others.workers.items():
        torch_field.workers.pop(f"{name}, {case.name}")
        worker.stop()
    if "rabbet, launches" in facts:
        plan, cache = prepared.kept(".plan"), prepared.kept(".timing")
        facts["loaded"] = _told(prepared, options, "rabbet loaded", LOADED, plan=plan)
        if case.batch == 1:
            factory = peers.GPU_MODELS[0].factory
            facts["again"] = _told(
                prepared, options, "rabbet, timing cache", factory, timing_cache=cache
            )
    if facts:
        report.build(case, facts)
    if peers.RABBET in facts and medians.get(peers.RABBET):
        seconds = statistics.median(medians[peers.RABBET])
        report.bound(case, facts[peers.RABBET]["layers"], seconds)


def run(options: Options) -> list[Section]:
    """Milliseconds of one call of each model, precision and batch; builds; bounds.

    torch's contestants of a model are started first, several at a time: they wait
    while Rabbet's builds have the GPU to themselves.
    """
    report, found = Report(), cases(options)
    for model in dict.fromkeys(case.model for case in found):
        own = _prepared([case for case in found if case.model == model], options)
        specs = _torch_specs(own, options)
        with started(specs, options.scratch, options.jobs) as torch_field:
            for prepared in own:
                _one(report, prepared, torch_field, options)
    return report.sections()
