"""The host's time for one operator more in a run without a graph, and the GPU's time
for it when the run is replayed from one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import peers
from .options import Options, installed
from .peers import Peer
from .report import Section
from .rounds import Rounds, Spread, ratios, take_turns
from .worker import drop_wrong, started

LENGTH, COUNT = 64, 256  # of peers.gpu_chains
BARE, READY = "bare launch", "ready-made kernel"

BODIES = {
    READY: "bench_gpu::ready",
    "C plugin": "bench_c::add_one",
    "Python plugin, no body": "bench_gpu::noop",
    "Python plugin, no body, torch": "bench_gpu::noop",
    "Python plugin, ctypes": "bench_gpu::launch",
    "Python plugin, Triton": "bench_triton::launch",
    "Python plugin, Triton, DLPack": "bench_triton::dlpack",
    "Python plugin, Triton, .torch()": "bench_triton::torch",
}

LAUNCHES = {
    READY: BARE,
    "C plugin": BARE,
    "Python plugin, ctypes": "ctypes",
    "Python plugin, Triton": "Triton",
    "Python plugin, Triton, DLPack": "Triton",
    "Python plugin, Triton, .torch()": "Triton",
    "ctypes": BARE,
    "cuda-python": BARE,
    "Triton": BARE,
    "CuPy RawKernel": BARE,
}
"""The launch that a contestant does, by itself. Others launch nothing."""

GOALS = {
    READY: "0.5",
    "C plugin": "1",
    "Python plugin, no body": "3",
    "Python plugin, no body, torch": "3",
    "Python plugin, ctypes": "3",
}
"""Microseconds above that launch."""


def _measured(
    section: Section, table: Sequence[Peer], options: Options, times: int
) -> Rounds:
    """Seconds for one operator more, by contestant and round."""
    specs = []
    for peer in table:
        if not installed(peer.package):
            section.note(f"{peer.name}: {peer.package} is not installed")
            continue
        if peer.package not in ("rabbet", "numpy") and not options.wanted(peer.package):
            continue
        given: dict[str, Any] = {"torch": peer.name.endswith("torch")}
        if peer.name in BODIES:
            given["body"] = BODIES[peer.name]
        specs.append(options.spec(peer.name, peer.factory, 1, given))
    with started(specs, options.scratch) as field_:
        drop_wrong(field_, {"y": np.full(COUNT, times, np.float32)}, 0.0)
        for reason in field_.absent.values():
            section.note(reason)
            print(f"  {reason}", flush=True)
        return take_turns(
            field_.workers, rounds=options.rounds, seconds=options.seconds / 3
        )


def above(medians: Rounds, name: str) -> list[float] | None:
    """Seconds by rounds above the launch that `name` does; None if that is missing."""
    if name == BARE:
        return None
    if name not in LAUNCHES:
        return medians[name]
    launch = medians.get(LAUNCHES[name])
    if not launch:
        return None
    return [mine - bare for mine, bare in zip(medians[name], launch, strict=True)]


def _calls(options: Options) -> Section:
    section = Section(
        "GPU: microseconds of the host for one operator more",
        ["contestant", "one more", "above", "of", "goal"],
    )
    section.note(
        f"chains of {LENGTH} and {2 * LENGTH} operators enqueued and not waited for, "
        "without graphs; the difference, for one"
    )
    medians = _measured(section, peers.GPU_CALLS, options, LENGTH)
    for name, values in medians.items():
        spent, more = Spread.of(values), above(medians, name)
        extra = Spread.of(more) if more else None
        section.rows.append(
            [name, spent.scaled(1e6).text(), extra.scaled(1e6).text() if extra else "-",
             LAUNCHES.get(name, "-"), GOALS.get(name, "-")]
        )  # fmt: skip
        section.data.append(
            {"name": name, "seconds": spent.as_dict(), "rounds": values,
             "above": extra.as_dict() if extra else None,
             "launch": LAUNCHES.get(name)}
        )  # fmt: skip
    return section


def _replays(options: Options) -> Section:
    section = Section(
        "GPU: microseconds of the GPU for one operator of a chain in a graph",
        ["contestant", "one", "of a ready-made kernel", "goal"],
    )
    medians = _measured(section, peers.GPU_REPLAYS, options, LENGTH)
    for name, values in medians.items():
        spent = Spread.of(values)
        ratio = Spread.of(ratios(medians, name, READY)) if READY in medians else None
        goal = "1.02" if name.startswith("Python") else "-"
        section.rows.append(
            [name, spent.scaled(1e6).text(3), ratio.text(3) if ratio else "-", goal]
        )
        section.data.append(
            {"name": name, "seconds": spent.as_dict(), "rounds": values,
             "ratio": ratio.as_dict() if ratio else None}
        )  # fmt: skip
    return section


def run(options: Options) -> list[Section]:
    """Microseconds, without graphs and with them."""
    sections = [_calls(options), _replays(options)]
    for section in sections:
        for row in section.rows:
            print("  " + " | ".join(row), flush=True)
    return sections
