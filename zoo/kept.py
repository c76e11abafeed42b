"""Results that are kept in the repository, zoo/results.jsonl, so that a run of a part of
the catalogue changes the rows of that part alone.

The first line is a list of the runs. Each other line is an architecture: its key, and
for each device, form and type the number of the run, the verdict, the error or the
cause, and where it was measured the time over that of ONNX Runtime."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .verdicts import verdict

Place = tuple[str, str, str, str]
"""Architecture, device, form and type."""


@dataclass(frozen=True, order=True)
class Origin:
    """The run that produced a result. when: its time in UTC, to the second. libraries:
    those that made the files and the one compared with, with their versions."""

    when: str
    machine: str = ""
    commit: str = ""
    libraries: str = ""


@dataclass(frozen=True)
class Finding:
    """The outcome for one file. worst: the largest relative error, where it ran. cause: of a
    failure. ratio: of times."""

    place: Place
    origin: Origin
    verdict: str
    worst: float | None = None
    cause: str = ""
    ratio: float | None = None

    key = property(lambda self: self.place[0])
    device = property(lambda self: self.place[1])
    form = property(lambda self: self.place[2])
    type = property(lambda self: self.place[3])


def cause(error: str) -> str:
    """An error without the names and numbers of its model."""
    text = " ".join(error.split())
    node = re.search(r"node \d+ '[^']*' \((\w+),[^)]*\): (.*)", text)
    if node is not None:
        rest = re.split(r"; node \d+|\. node \d+", node[2])[0]
        text = f"{node[1]}: {rest}"
    text = re.sub(r"'(?!aten::)[^']*'", "'…'", text)
    text = re.sub(r"(/[\w.-]+){2,}", "…", text)
    text = re.sub(r"\d+(\.\d+)?", "N", text)
    return text[:160]


def finding(result: Mapping[str, Any]) -> Finding:
    """Of one line of a run's results."""
    place = tuple(result[k] for k in ("key", "device", "form", "type"))
    word = verdict(result)
    ratio = None
    if "seconds" in result:
        ratio = float(f"{result['seconds'] / result['ort_seconds']:.2f}")
    worst = float(f"{result['worst']:.1e}") if "worst" in result else None
    # An error after the comparison is one of timing.
    text = "" if worst is not None and "crash" not in result else result["error"]
    origin = Origin(**result.get("run", {"when": ""}))
    return Finding(place, origin, word, worst, cause(text), ratio)


def newest(findings: Iterable[Finding]) -> list[Finding]:
    """The last result of each place, in the order of the places."""
    found: dict[Place, Finding] = {}
    for one in findings:
        known = found.get(one.place)
        if known is None or one.origin.when >= known.origin.when:
            found[one.place] = one
    return [found[place] for place in sorted(found)]


def read(path: Path) -> list[Finding]:
    if not path.exists():
        return []
    first, *lines = map(json.loads, path.read_text().splitlines())
    origins = [Origin(**run) for run in first["runs"]]
    return [
        _parsed(key, place, origins, cells)
        for line in lines
        for key, places in line.items()
        for place, cells in places.items()
    ]


def _parsed(key: str, place: str, origins: list[Origin], cells: list[Any]) -> Finding:
    device, form, kind = place.split()
    number, word, *rest = cells
    text = rest[0] if rest and isinstance(rest[0], str) else ""
    worst = rest[0] if rest and not text else None
    ratio = rest[1] if len(rest) > 1 else None
    return Finding((key, device, form, kind), origins[number], word, worst, text, ratio)


def _cells(one: Finding, number: int) -> list[Any]:
    """Nothing is at the end where the value is not known."""
    if one.cause:
        return [number, one.verdict, one.cause]
    cells = [number, one.verdict, one.worst, one.ratio]
    while cells[-1] is None:
        cells.pop()
    return cells


def write(path: Path, findings: Iterable[Finding]) -> None:
    found = newest(findings)
    origins = sorted({one.origin for one in found})
    lines: dict[str, dict[str, Any]] = {}
    for one in found:
        cells = _cells(one, origins.index(one.origin))
        lines.setdefault(one.key, {})[" ".join(one.place[1:])] = cells
    text = [json.dumps({"runs": [vars(origin) for origin in origins]})]
    text += [
        json.dumps({key: places}, ensure_ascii=False) for key, places in lines.items()
    ]
    temporary = path.with_suffix(".part")
    temporary.write_text("\n".join(text) + "\n")
    temporary.replace(path)
