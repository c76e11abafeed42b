"""Real models: one call, Rabbet beside its peers."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.models import model_path, reference, sample_inputs
from tests.models.light import names as light_names

from . import peers
from .options import Options, installed
from .report import Section
from .rounds import Rounds, Spread, best, ratios, take_turns
from .worker import Field, Spec, Start, drop_wrong, started

PLUGIN_FILE = Path(__file__).parent / "plugins" / "circular_padding.py"
BOUND = 1e-3
"""Largest difference from ONNX Runtime's plain result, over its largest value.
Winograd convolutions and sums in other orders stay far below it."""
ROUNDED = 0.1
"""That of models whose tensors are rounded to 8 bits: one step of one tensor early in
the model becomes several of the result."""


@dataclass(frozen=True)
class Case:
    """A model, the lengths of its symbolic dimensions, and, where Rabbet gets a
    form with plugins, the options of that form."""

    model: str
    options: dict[str, Any] = field(default_factory=dict)
    dims: dict[str, int] = field(default_factory=dict)
    plugin_options: dict[str, Any] | None = None
    quick: bool = False
    bound: float = BOUND

    def path(self) -> Path:
        return model_path(self.model, **self.options)

    def rabbet_path(self) -> Path:
        options = self.plugin_options
        return self.path() if options is None else model_path(self.model, **options)

    def plugins(self) -> list[str]:
        return [] if self.plugin_options is None else [str(PLUGIN_FILE)]


_STATIC = {"batch": 1, "sequence": 128}

CASES: dict[str, Case] = {
    "resnet50": Case("resnet50", quick=True),
    "resnet50_circular": Case(
        "resnet50_circular", {"padding": "slices"}, plugin_options={}
    ),
    "bert_base": Case("bert_base", _STATIC),
    "bert_base_dynamic": Case("bert_base", {}, _STATIC),
    "gpt2_small": Case("gpt2_small", _STATIC),
    "unet256": Case("unet256"),
    "mlp": Case("mlp", quick=True),
    "lstm": Case("lstm", quick=True),
    "lstm_batch8": Case("lstm", {"batch": 8}),
    "elementwise200": Case("elementwise200", quick=True),
    **{name: Case(name) for name in light_names()},
    "light_squeezenet": Case("light_squeezenet", quick=True),
    "resnet50_int8": Case("resnet50_int8", bound=ROUNDED),
    "resnet50_int8_operators": Case(
        "resnet50_int8", {"form": "operators"}, bound=ROUNDED
    ),
    **{
        f"{name}_int8": Case("light_int8", {"model": name}, bound=ROUNDED)
        for name in ("light_squeezenet", "light_shufflenet", "light_densenet121")
    },
    "decoder_step": Case("decoder_int4", {"bits": 0}),
    "decoder_step_int8": Case("decoder_int4", {"bits": 8}, bound=ROUNDED),
    "decoder_step_int4": Case("decoder_int4"),
    "decoder_step_int4_rounded": Case(
        "decoder_int4", {"accuracy_level": 4}, bound=ROUNDED
    ),
}


def named(names: Sequence[str]) -> dict[str, Case]:
    """The cases of these names."""
    unknown = sorted(set(names) - set(CASES))
    if unknown:
        known = ", ".join(CASES)
        raise ValueError(f"no model {', '.join(unknown)}; there are {known}")
    return {name: CASES[name] for name in names}


def chosen(options: Options) -> dict[str, Case]:
    """The cases that this run measures."""
    if options.models is not None:
        return named(options.models)
    return {n: case for n, case in CASES.items() if case.quick or not options.quick}


@dataclass(frozen=True)
class Prepared:
    """A case with its inputs in a file and its expected results."""

    name: str
    case: Case
    inputs: Path
    expected: dict[str, Any]


def prepare(name: str, case: Case, options: Options) -> Prepared:
    """Makes the model and its inputs, and computes the expected results."""
    inputs = sample_inputs(case.path(), dims=case.dims)
    file = options.scratch / f"{name}.npz"
    np.savez(file, **inputs)
    return Prepared(name, case, file, reference(case.path(), inputs))


def arguments(prepared: Prepared, peer: str, threads: int) -> dict[str, Any]:
    """The arguments of a contestant's constructor."""
    case = prepared.case
    given: dict[str, Any] = {"inputs": str(prepared.inputs), "threads": threads}
    if peer != peers.RABBET:
        return {**given, "path": str(case.path())}
    stem = prepared.inputs.with_suffix("")
    return {
        **given,
        "path": str(case.rabbet_path()),
        "plugins": case.plugins(),
        "plan": f"{stem}-{threads}.plan",
        "dims": case.dims,
        "names": list(prepared.expected),
    }


def specs(
    prepared: Prepared, options: Options, threads: int
) -> tuple[list[Spec], list[str]]:
    """The contestants to start, and the names of those not installed."""
    found, absent = [], []
    for peer in peers.MODELS:
        if not options.wanted(peer.name) or (options.quick and not peer.quick):
            continue
        if not installed(peer.package):
            absent.append(peer.name)
            continue
        given = arguments(prepared, peer.name, threads)
        found.append(options.spec(peer.name, peer.factory, threads, given))
    return found, absent


def milliseconds(medians: Rounds, name: str) -> str:
    """The median over rounds, with about three digits."""
    if not medians.get(name):
        return "-"
    value = 1e3 * statistics.median(medians[name])
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def compared(medians: Rounds) -> tuple[str | None, Spread | None]:
    """The best peer, and Rabbet's ratio to it."""
    others = [name for name in medians if not name.startswith(peers.RABBET)]
    rival = best(medians, others)
    if rival is None or not medians.get(peers.RABBET):
        return rival, None
    return rival, Spread.of(ratios(medians, peers.RABBET, rival))


def record(
    medians: Rounds, starts: Mapping[str, Start], **labels: object
) -> dict[str, Any]:
    """The facts about one case in the .json file."""
    rival, ratio = compared(medians)
    return {
        **labels,
        "seconds": {
            name: Spread.of(values).as_dict() for name, values in medians.items()
        },
        "rounds": medians,
        "best_peer": rival,
        "ratio": ratio.as_dict() if ratio else None,
        "start": {name: vars(start) for name, start in starts.items()},
    }


def _row(section: Section, name: str, threads: int, medians: Rounds) -> None:
    rival, ratio = compared(medians)
    cells = [milliseconds(medians, peer.name) for peer in peers.MODELS]
    result = f"{ratio.text()} of {rival}" if ratio else "-"
    section.rows.append([name, str(threads), *cells, result])


def _one(section: Section, prepared: Prepared, options: Options, threads: int) -> None:
    wanted, absent = specs(prepared, options, threads)
    for name in absent:
        section.note(f"{name} is not installed")
    logs = options.scratch
    with started(wanted, logs) as field_:
        drop_wrong(field_, prepared.expected, prepared.case.bound)
        medians = _measure(field_, options)
        starts = {name: worker.start for name, worker in field_.workers.items()}
    for reason in field_.absent.values():
        section.note(f"{prepared.name}, {threads} threads: {reason}")
    _row(section, prepared.name, threads, medians)
    labels = {"model": prepared.name, "threads": threads, "absent": field_.absent}
    section.data.append(record(medians, starts, **labels))


def _measure(field_: Field, options: Options) -> Rounds:
    return take_turns(field_.workers, rounds=options.rounds, seconds=options.seconds)


def run(options: Options) -> Section:
    """Milliseconds of one call of each model on each number of threads."""
    columns = ["model", "threads", *(peer.name for peer in peers.MODELS)]
    section = Section("Models: milliseconds of a call", [*columns, "ratio"])
    for name, case in chosen(options).items():
        prepared = prepare(name, case, options)
        for threads in options.threads:
            _one(section, prepared, options, threads)
            print("  " + " | ".join(section.rows[-1]), flush=True)
    return section
