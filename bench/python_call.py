"""The cost of one more operator in a chain: an empty function in Python."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import peers
from .options import Options, installed
from .report import Section
from .rounds import Rounds, Spread, ratios, take_turns
from .worker import Field, Spec, drop_wrong, started

SHAPES = ((16,), (10, 3, 32, 32))
SHORT, LONG = 1, 65
LENGTHS = (1, 10, 100)
DIRECT = "direct"


def _specs(
    options: Options, length: int, shape: tuple[int, ...], body: str
) -> list[Spec]:
    given = {"length": length, "shape": shape, "body": body}
    return [
        options.spec(f"{peer.name}/{length}", peer.factory, 1, given)
        for peer in peers.CHAINS
        if installed(peer.package)
        and (peer.name == DIRECT or options.wanted(peer.name.split()[0]))
    ]


def _check(section: Section, options: Options, shape: tuple[int, ...]) -> set[str]:
    """Names of the contestants whose chain of adders gives the right sum."""
    specs = _specs(options, LONG, shape, "add_one")
    with started(specs, options.scratch) as field_:
        expected = {"y": np.full(shape, LONG, np.float32)}
        if shape == (16,):
            drop_wrong(field_, expected, 0.0)
        _tell(section, field_)
        return {name.split("/")[0] for name in field_.workers}


def _tell(section: Section, field_: Field) -> None:
    for reason in field_.absent.values():
        section.note(reason)


def _each(medians: Rounds, name: str) -> list[float]:
    """Seconds for one operator more, by rounds."""
    pairs = zip(medians[f"{name}/{SHORT}"], medians[f"{name}/{LONG}"], strict=True)
    return [(long - short) / (LONG - SHORT) for short, long in pairs]


def _entry(name: str, each: list[float], direct: list[float]) -> dict[str, Any]:
    above = [mine - call for mine, call in zip(each, direct, strict=True)]
    return {
        "name": name,
        "seconds": Spread.of(each).as_dict(),
        "above_direct": Spread.of(above).as_dict(),
        "rounds": each,
    }


def _measure(section: Section, options: Options, shape: tuple[int, ...]) -> None:
    names = _check(section, options, shape)
    specs = [
        spec
        for length in (SHORT, LONG)
        for spec in _specs(options, length, shape, "noop")
        if spec.name.split("/")[0] in names
    ]
    with started(specs, options.scratch) as field_:
        _tell(section, field_)
        medians = take_turns(
            field_.workers, rounds=options.rounds, seconds=options.seconds / 3
        )
    direct = _each(medians, DIRECT)
    label = "x".join(str(n) for n in shape)
    for peer in peers.CHAINS:
        if (
            f"{peer.name}/{LONG}" not in medians
            or f"{peer.name}/{SHORT}" not in medians
        ):
            continue
        entry = _entry(peer.name, _each(medians, peer.name), direct)
        section.data.append({"shape": shape, **entry})
        cells = [
            Spread(**entry[key]).scaled(1e6).text(3)
            for key in ("seconds", "above_direct")
        ]
        section.rows.append([label, peer.name, *cells])


def _steps(medians: Rounds, name: str, low: int, high: int) -> list[float]:
    """Seconds for one operator more between two lengths, by rounds."""
    pairs = zip(medians[f"{name}/{low}"], medians[f"{name}/{high}"], strict=True)
    return [(long - short) / (high - low) for short, long in pairs]


def _kinds(options: Options) -> Section:
    """The kinds of plugins beside each other, in chains of 1, 10 and 100."""
    section = Section(
        "Kinds of Python plugins: chains of empty operators",
        ["plugin", "1 operator, us", "100 operators, us", "100 of 100 times 1",
         "one more, us", "of a decorated one's", "from 10 to 100, of from 1 to 10"],
    )  # fmt: skip
    first, second, last = LENGTHS
    kinds = [peer for peer in peers.CHAINS if peer.name.startswith(peers.RABBET)]
    specs = [
        spec
        for length in LENGTHS
        for spec in _specs(options, length, SHAPES[0], "noop")
        if spec.name.split("/")[0] in {peer.name for peer in kinds}
    ]
    with started(specs, options.scratch) as field_:
        _tell(section, field_)
        medians = take_turns(
            field_.workers, rounds=options.rounds, seconds=options.seconds / 3
        )
    more: Rounds = {}
    for peer in kinds:
        if any(f"{peer.name}/{length}" not in medians for length in LENGTHS):
            continue
        more[peer.name] = _steps(medians, peer.name, first, last)
        ends = [Spread.of(medians[f"{peer.name}/{n}"]) for n in (first, last)]
        share = [
            long / (last * one)
            for one, long in zip(
                medians[f"{peer.name}/{first}"], medians[f"{peer.name}/{last}"],
                strict=True,
            )
        ]  # fmt: skip
        early = _steps(medians, peer.name, first, second)
        late = _steps(medians, peer.name, second, last)
        growth = [b / a for a, b in zip(early, late, strict=True)]
        spreads = {
            "one": ends[0],
            "hundred": ends[1],
            "share": Spread.of(share),
            "one_more": Spread.of(more[peer.name]),
            "of_decorated": Spread.of(ratios(more, peer.name, peers.RABBET)),
            "growth": Spread.of(growth),
        }
        section.data.append(
            {"name": peer.name, **{k: v.as_dict() for k, v in spreads.items()}}
        )
        section.rows.append(
            [
                peer.name if peer.name != peers.RABBET else "decorated",
                spreads["one"].scaled(1e6).text(2),
                spreads["hundred"].scaled(1e6).text(2),
                spreads["share"].text(3),
                spreads["one_more"].scaled(1e6).text(4),
                spreads["of_decorated"].text(2),
                spreads["growth"].text(2),
            ]
        )
    section.note(
        "goals: a class's enqueue costs at most what a decorated plugin costs; 100 "
        "operators no more than 100 times one"
    )
    return section


def run(options: Options) -> list[Section]:
    """Microseconds, from chains on one thread."""
    return [_peers(options), _kinds(options)]


def _peers(options: Options) -> Section:
    """Microseconds, from chains of 1 and 65 operators on one thread."""
    section = Section(
        "Python call: microseconds for one operator more in a chain",
        ["elements", "contestant", "one more", "above a direct call"],
    )
    section.notes += [
        f"{peer.name} is not installed"
        for peer in peers.CHAINS
        if not installed(peer.package)
    ]
    for shape in SHAPES:
        _measure(section, options, shape)
    return section
