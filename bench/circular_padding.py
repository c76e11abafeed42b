"""Circular padding: a Numba kernel in a plan, the kernel alone, and others."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import peers
from .options import Options, installed
from .report import Section
from .rounds import Spread, ratios, take_turns
from .worker import drop_wrong, started

CASES = (((10, 3, 32, 32), 1), ((8, 16, 128, 128), 3))
ALONE = "numba"


def _one(section: Section, options: Options, shape: tuple[int, ...], pad: int) -> None:
    label = f"{'x'.join(str(n) for n in shape)} by {pad}"
    file = options.scratch / f"padding-{pad}.npz"
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    np.savez(file, x=x)
    width = ((0, 0), (0, 0), (pad, pad), (pad, pad))
    expected = {"y": np.pad(x, width, mode="wrap")}
    given: dict[str, Any] = {"inputs": str(file), "pad": pad, "threads": 1}
    specs = [
        options.spec(peer.name, peer.factory, 1, given)
        for peer in peers.PADDINGS
        if installed(peer.package)
        and (peer.name == ALONE or options.wanted(peer.name.split()[0]))
    ]
    with started(specs, options.scratch) as field_:
        drop_wrong(field_, expected, 0.0)
        medians = take_turns(
            field_.workers, rounds=options.rounds, seconds=options.seconds
        )
    for reason in field_.absent.values():
        section.note(reason)
    for name, values in medians.items():
        time = Spread.of(values)
        ratio = Spread.of(ratios(medians, name, ALONE)) if ALONE in medians else None
        shown = ratio.text() if ratio else "-"
        section.rows.append([label, name, time.scaled(1e6).text(1), shown])
        section.data.append(
            {
                "case": label,
                "name": name,
                "seconds": time.as_dict(),
                "ratio": ratio.as_dict() if ratio else None,
            }
        )


def run(options: Options) -> Section:
    """Microseconds of a call on one thread, and ratios to Numba alone."""
    section = Section(
        "Circular padding: microseconds of a call",
        ["case", "contestant", "time", "ratio to Numba alone"],
    )
    section.notes += [
        f"{peer.name} is not installed"
        for peer in peers.PADDINGS
        if not installed(peer.package)
    ]
    for shape, pad in CASES:
        _one(section, options, shape, pad)
    return section
