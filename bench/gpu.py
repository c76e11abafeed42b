"""Real models on a GPU: one call, waited for, Rabbet beside torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.models import model_path, reference, sample_inputs

from . import peers
from .models import compared, milliseconds, record
from .options import Options, installed
from .report import Section
from .rounds import take_turns
from .worker import drop_wrong, started

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
    """What this run measures; options.models are names, each with suffixes
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


def _one(section: Section, case: Case, options: Options) -> None:
    inputs = sample_inputs(case.path())
    file = options.scratch / f"{case.model}-{case.batch}.npz"
    np.savez(file, **inputs)
    given = {
        "path": str(case.path()),
        "inputs": str(file),
        "precision": case.precision,
    }
    specs = [
        options.spec(peer.name, peer.factory, options.threads[0], given)
        for peer in peers.GPU_MODELS
        if options.wanted(peer.name) and installed(peer.package)
    ]
    with started(specs, options.scratch) as field_:
        drop_wrong(field_, reference(case.path(), inputs), BOUNDS[case.precision])
        medians = take_turns(
            field_.workers, rounds=options.rounds, seconds=options.seconds
        )
        starts = {name: worker.start for name, worker in field_.workers.items()}
    for reason in field_.absent.values():
        section.note(f"{case.name}: {reason}")
        print(f"  {case.name}: {reason}", flush=True)
    rival, ratio = compared(medians)
    cells = [milliseconds(medians, peer.name) for peer in peers.GPU_MODELS]
    result = f"{ratio.text()} of {rival}" if ratio else "-"
    section.rows.append([case.model, case.precision, str(case.batch), *cells, result])
    labels = {"model": case.model, "batch": case.batch, "precision": case.precision}
    section.data.append(record(medians, starts, **labels, absent=field_.absent))


def run(options: Options) -> Section:
    """Milliseconds of one call of each model, precision and batch."""
    columns = ["model", "type", "batch", *(peer.name for peer in peers.GPU_MODELS)]
    section = Section("GPU: milliseconds of a call", [*columns, "ratio"])
    for case in cases(options):
        _one(section, case, options)
        print("  " + " | ".join(section.rows[-1]), flush=True)
    return section
