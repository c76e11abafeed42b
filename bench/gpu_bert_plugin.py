"""An operator of one's own after each of BERT's layers on a GPU: what each costs."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tests.models import model_path, reference, sample_inputs

from .bert_gate import with_gates
from .options import Options, installed
from .report import Section
from .rounds import Rounds, Spread, take_turns
from .worker import Field, Spec, drop_wrong, started

LAYERS = 12
GOAL = "1.5"
BOUNDS = {"fp32": 1e-4, "tf32": 1e-2, "fp16": 5e-2}
RABBET, TORCH = "bench.peers.rabbet_cuda", "bench.peers.torch_cuda"
GATES = "bench.peers.torch_gate"


@dataclass(frozen=True)
class Entry:
    """A contestant. base: the same without the operator; none for those that are it.
    operator: of Rabbet's model."""

    name: str
    factory: str
    base: str | None = None
    operator: str | None = None


# Rabbet first: its builds want a GPU that does nothing else.
ENTRIES = (
    Entry("rabbet", f"{RABBET}:Model"),
    Entry("rabbet, Python plugin", f"{RABBET}:Model", "rabbet", "gate"),
    Entry("rabbet, ready-made kernel", f"{RABBET}:Model", "rabbet", "ready"),
    Entry("rabbet, launches", f"{RABBET}:Launches"),
    Entry("rabbet, launches, Python plugin", f"{RABBET}:Launches",
          "rabbet, launches", "gate"),
    Entry("torch", f"{TORCH}:Eager"),
    Entry("torch, custom_op", f"{GATES}:Eager", "torch"),
    Entry("torch, Triton launch", f"{GATES}:Launched", "torch"),
    Entry("torch in a graph", f"{TORCH}:EagerGraph"),
    Entry("torch in a graph, custom_op", f"{GATES}:EagerGraph", "torch in a graph"),
    Entry("torch compiled in a graph", f"{TORCH}:OwnGraph"),
    Entry("torch compiled in a graph, custom_op", f"{GATES}:OwnGraph",
          "torch compiled in a graph"),
)  # fmt: skip


class Models:
    """The files: without the operator, and with it in several forms."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.plain = model_path("bert_base", batch=1, sequence=128, **options)
        self.model = onnx.load(self.plain)
        self.paths: dict[str | None, Path] = {}

    def path(self, operator: str | None) -> Path:
        """The model with a node of Rabbet's operator after each layer, or with standard
        nodes."""
        if operator not in self.paths:
            path = self.folder / f"bert-{operator or 'plain'}.onnx"
            onnx.save(with_gates(self.model, operator), path)
            self.paths[operator] = path
        return self.paths[operator]


def _arguments(entry: Entry, models: Models, options: Options) -> dict[str, Any]:
    plain = entry.operator is None
    path = models.plain if plain else models.path(entry.operator)
    given: dict[str, Any] = {"path": str(path)}
    if entry.factory.startswith(RABBET):
        # Those of one model share a plan, and all share what tuning measured.
        given["plan"] = str(options.scratch / f"bert-{entry.operator}.plan")
        given["timing_cache"] = str(options.scratch / "bert.timing")
        given["plugins"] = [] if plain else ["bench.plugins.gpu_gate"]
    return given


def _checked(
    field_: Field, models: Models, inputs: Mapping[str, Any], bound: float
) -> None:
    """Drops contestants whose results are wrong, with and without the operator."""
    gated = {e.name: bool(e.base) for e in ENTRIES}
    for with_operator in (False, True):
        path = models.path(None) if with_operator else models.plain
        part = Field(
            {n: w for n, w in field_.workers.items() if gated[n] == with_operator}, {}
        )
        if not part.workers:
            continue
        started_with = set(part.workers)
        drop_wrong(part, reference(path, inputs), bound)
        for name in started_with - set(part.workers):
            del field_.workers[name]
        field_.absent.update(part.absent)


def each(medians: Rounds, entry: Entry) -> list[float] | None:
    """Seconds that one operator adds, by round."""
    if entry.base is None or not medians.get(entry.base):
        return None
    pairs = zip(medians[entry.name], medians[entry.base], strict=True)
    return [(mine - base) / LAYERS for mine, base in pairs]


def _rows(section: Section, medians: Rounds) -> None:
    for entry in ENTRIES:
        if not medians.get(entry.name):
            continue
        values = medians[entry.name]
        one = each(medians, entry)
        spread = Spread.of(one) if one else None
        goal = GOAL if entry.operator and entry.factory.endswith(":Model") else "-"
        section.rows.append(
            [entry.name, f"{1e3 * statistics.median(values):.3f}",
             spread.scaled(1e6).text() if spread else "-", goal]
        )  # fmt: skip
        section.data.append(
            {"name": entry.name, "rounds": values,
             "seconds": Spread.of(values).as_dict(),
             "each": spread.as_dict() if spread else None}
        )  # fmt: skip


def _measured(
    section: Section, specs: list[Spec], models: Models, options: Options
) -> Rounds:
    """torch's contestants start first, some at a time: they wait while Rabbet builds."""
    inputs = sample_inputs(models.plain)
    own = [spec for spec in specs if spec.factory.startswith(RABBET)]
    others = [spec for spec in specs if spec not in own]
    with (
        started(others, options.scratch, options.jobs) as torch_field,
        started(own, options.scratch) as rabbet_field,
    ):
        there = {**torch_field.workers, **rabbet_field.workers}
        names = [spec.name for spec in specs if spec.name in there]
        field_ = Field(
            {name: there[name] for name in names},
            {**torch_field.absent, **rabbet_field.absent},
        )
        _checked(field_, models, inputs, BOUNDS["fp16"])
        for reason in field_.absent.values():
            section.note(reason)
            print(f"  {reason}", flush=True)
        for name, worker in field_.workers.items():
            facts = worker.facts()
            if facts.get("other_steps") and "launches" not in name:
                section.note(f"{name}: {facts['other_steps']} steps are not in a graph")
        return take_turns(
            field_.workers, rounds=options.rounds, seconds=options.seconds
        )


def run(options: Options) -> Section:
    """Milliseconds of a call, and microseconds for each of the operators."""
    section = Section(
        f"GPU: BERT in FP16, batch 1, an operator after each of {LAYERS} layers",
        ["contestant", "milliseconds", "microseconds each", "goal"],
    )
    if not installed("triton"):
        section.note("triton is not installed")
        return section
    models = Models(options.scratch)
    inputs = sample_inputs(models.plain)
    file = options.scratch / "bert.npz"
    np.savez(file, **inputs)
    common = {"inputs": str(file), "precision": "fp16"}
    specs = [
        options.spec(entry.name, entry.factory, options.threads[0],
                     {**common, **_arguments(entry, models, options)})
        for entry in ENTRIES
        if options.wanted(entry.name.split(",")[0].split()[0])
    ]  # fmt: skip
    medians = _measured(section, specs, models, options)
    _rows(section, medians)
    for row in section.rows:
        print("  " + " | ".join(row), flush=True)
    return section
