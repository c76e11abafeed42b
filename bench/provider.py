"""Rabbet as a provider of ONNX Runtime: what the session costs, and what it gains."""

from __future__ import annotations

from . import models, peers
from .options import Options, installed
from .report import Section
from .rounds import Rounds, Spread, ratios
from .worker import Spec, drop_wrong, started

MODELS = ("mlp", "light_squeezenet", "elementwise200", "resnet50")
_, SESSION, PEER = (peer.name for peer in peers.IN_SESSION)


def _specs(prepared: models.Prepared, options: Options, threads: int) -> list[Spec]:
    return [
        options.spec(
            peer.name, peer.factory, threads, models.arguments(prepared, peer.name, threads)
        )
        for peer in peers.IN_SESSION
        if installed(peer.package)
    ]


def _ratio(medians: Rounds, other: str) -> str:
    if not medians.get(SESSION) or not medians.get(other):
        return "-"
    return Spread.of(ratios(medians, SESSION, other)).text()


def _one(section: Section, prepared: models.Prepared, options: Options, threads: int) -> None:
    with started(_specs(prepared, options, threads), options.scratch) as field_:
        drop_wrong(field_, prepared.expected, prepared.case.bound)
        medians = models.take_turns(
            field_.workers, rounds=options.rounds, seconds=options.seconds
        )
        starts = {name: worker.start for name, worker in field_.workers.items()}
    for reason in field_.absent.values():
        section.note(f"{prepared.name}, {threads} threads: {reason}")
    cells = [models.milliseconds(medians, peer.name) for peer in peers.IN_SESSION]
    of_plan, of_peer = _ratio(medians, peers.RABBET), _ratio(medians, PEER)
    section.rows.append([prepared.name, str(threads), *cells, of_plan, of_peer])
    labels = {"model": prepared.name, "threads": threads, "absent": field_.absent}
    section.data.append(models.record(medians, starts, **labels))


def run(options: Options) -> Section:
    """Milliseconds of one call; the session with Rabbet beside the other two."""
    columns = ["model", "threads", *(peer.name for peer in peers.IN_SESSION)]
    title = "ONNX Runtime's sessions: milliseconds of a call"
    section = Section(title, [*columns, "session / plan", "session / onnxruntime"])
    for name, case in models.named(options.models or MODELS).items():
        prepared = models.prepare(name, case, options)
        for threads in options.threads:
            _one(section, prepared, options, threads)
            print("  " + " | ".join(section.rows[-1]), flush=True)
    return section
