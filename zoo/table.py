"""The table of results by architecture: docs/reference/models.md."""

from __future__ import annotations

import collections
import dataclasses
import statistics
from collections.abc import Iterable

from . import catalogue
from .kept import Finding
from .verdicts import UNCOUNTED

HEAD = """# Models

What `make zoo` found: architectures of torchvision, timm, transformers, diffusers and
ultralytics, made small, with random weights under which results vary with inputs,
exported by TorchScript's exporter (opset 17) and by torch.export's, with fixed and with
varying sizes. Each file is built and run, and compared with ONNX Runtime (unoptimized) at the usual
sizes, at the least, at the largest, and at some of both. This file is generated from
zoo/results.jsonl, to which a run adds what it found; the rest stays as it was:

    make zoo ZOO="--jobs 8 --checks 8"      # all, on 16 cores; --only 'timm/*' for some
    python -m zoo --help

It makes .venv-zoo (7 GB, from PyPI; nothing else is downloaded, no weights either), and
keeps what it exported in .cache/zoo (some 25 GB for all), so that a run that was ended
goes on. An architecture takes 10 to 60 s of one core for each exporter, all types together.
A run on another machine gives results to add: its `results.jsonl`, with --table-only --add.

"right" is within a relative error of 1e-3 in FP32 (2e-2 on a GPU, which uses TF32), 2e-2 in
FP16 and 1e-1 in BF16 (norm of the difference over norm of the result) of ONNX Runtime's FP32
results, or at most twice as far off as the type alone makes it at that size: torch's own module
in that type, or on a GPU in FP32 the reference with factors rounded to TF32. Where FP32 results
on the CPU are further off at a size, and ONNX Runtime's own jump there when inputs are a millionth
off, other inputs of that size count. "mixed" is the FP32
file, built with FP16 allowed; the other two are exports of modules in that type. Behind it
is the median time over that of ONNX Runtime, one thread each, in turns. Files that the
exporter did not write ("not exported"), or that ONNX Runtime does not run ("no reference"),
do not count. Numbers in round brackets are causes of failures, those in square brackets
reasons why a file does not count.
"""


def _judged(found: Iterable[Finding]) -> list[Finding]:
    """The results that count: the exporter wrote a file, and ONNX Runtime runs it."""
    return [f for f in found if f.verdict not in UNCOUNTED]


def _totals(findings: list[Finding]) -> list[str]:
    lines = [
        "| device | type | exports | right | wrong | not imported | not built | not run | crash |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    groups = collections.defaultdict(list)
    for one in _judged(findings):
        groups[one.device, one.type].append(one.verdict)
    for (device, kind), words in sorted(groups.items()):
        counts = collections.Counter(words)
        columns = ("right", "WRONG", "NO IMPORT", "NO BUILD", "NO RUN")
        dead = counts["CRASH"] + counts["LIMIT"]
        cells = [len(words), *(counts[c] for c in columns), dead]
        lines.append(f"| {device} | {kind} | {' | '.join(map(str, cells))} |")
    return lines


def _by_library(findings: list[Finding]) -> list[str]:
    lines = [
        "| library | in the catalogue | tried | exports | right | time beside ONNX Runtime's |",
        "|---|---|---|---|---|---|",
    ]
    groups = collections.defaultdict(list)
    for one in findings:
        if one.device == "cpu" and one.type == "fp32":
            groups[one.key.split("/")[0]].append(one)
    for library, found in groups.items():
        keys = {f.key for f in found}
        judged = _judged(found)
        right = sum(f.verdict == "right" for f in judged)
        times = [f.ratio for f in judged if f.ratio is not None]
        ratio = f"{statistics.median(times):.2f}" if times else ""
        known = sum(e.library == library for e in catalogue.entries().values())
        cells = [library, known, len(keys), len(judged), right, ratio]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def _runs(findings: list[Finding]) -> list[str]:
    """Where the results come from: a line for those of one day that are of one kind."""
    lines = [
        "| day | device | commit | machine | libraries | files |",
        "|---|---|---|---|---|---|",
    ]
    counts = collections.Counter(
        (f.origin.when[:10], f.device, *dataclasses.astuple(f.origin)[1:])
        for f in findings
    )
    for (day, device, machine, commit, libraries), count in sorted(counts.items()):
        cells = [day, device, commit, machine, libraries, str(count)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


class _Causes:
    """Causes by how often they come, and their numbers."""

    def __init__(self, findings: Iterable[Finding], brackets: str) -> None:
        self._brackets = brackets
        texts = [f.cause for f in findings if f.cause]
        counts = collections.Counter(texts).items()
        self._counts = sorted(counts, key=lambda item: (-item[1], item[0]))
        self._numbers = {text: i + 1 for i, (text, _) in enumerate(self._counts)}

    def _sign(self, number: int) -> str:
        return f"{self._brackets[0]}{number}{self._brackets[1]}"

    def cell(self, finding: Finding) -> str:
        """With a space before it; empty where the cause was not kept."""
        number = self._numbers.get(finding.cause)
        return "" if number is None else " " + self._sign(number)

    def lines(self) -> list[str]:
        lines = ["| | exports | |", "|---|---|---|"]
        for number, (text, count) in enumerate(self._counts, 1):
            escaped = text.replace("|", "\\|").replace("<", "&lt;")
            lines.append(f"| {self._sign(number)} | {count} | {escaped} |")
        return lines


class _Cells:
    """The table's texts for files."""

    def __init__(self, findings: list[Finding]) -> None:
        wrong = (f for f in findings if f.verdict not in UNCOUNTED)
        self.failures = _Causes(wrong, "()")
        self.uncounted = _Causes((f for f in findings if f.verdict in UNCOUNTED), "[]")

    def text(self, one: Finding) -> str:
        if one.verdict == "right":
            return "right" if one.ratio is None else f"right {one.ratio:.2f}"
        if one.verdict == "WRONG":
            worst = "" if one.worst is None else f" {one.worst:.0e}"
            return f"**wrong**{worst}"
        if one.verdict in UNCOUNTED:
            words = {"no export": "not exported", "no ORT": "no reference"}
            return words[one.verdict] + self.uncounted.cell(one)
        return one.verdict.lower() + self.failures.cell(one)


def _halves(findings: list[Finding], cells: _Cells) -> str:
    """Types beside FP32, those that are right first."""
    right, others = [], []
    for one in findings:
        if one.verdict == "right":
            right.append(one.type)
        elif one.verdict not in UNCOUNTED:
            others.append(f"{one.type} {cells.text(one)}")
    return ", ".join([*dict.fromkeys(right), *others])


def _row(name: str, findings: list[Finding], cells: _Cells) -> str:
    plain = [f for f in findings if f.type == "fp32"]
    columns = [
        ", ".join(
            f"{one.form.split('-')[1]}: {cells.text(one)}"
            for one in plain
            if one.form.startswith(exporter)
        )
        for exporter in ("ts", "dynamo")
    ]
    columns.append(_halves([f for f in findings if f.type != "fp32"], cells))
    return f"| {name} | {' | '.join(columns)} |"


def _architectures(findings: list[Finding], cells: _Cells) -> list[str]:
    lines = []
    libraries: dict[str, dict[str, list[Finding]]] = {}
    for one in findings:
        library, name = one.key.split("/", 1)
        libraries.setdefault(library, {}).setdefault(name, []).append(one)
    for library, names in libraries.items():
        lines += ["", f"### {library}", ""]
        lines += ["| | TorchScript | torch.export | other types |", "|---|---|---|---|"]
        lines += [_row(name, found, cells) for name, found in sorted(names.items())]
    return lines


def table(findings: Iterable[Finding]) -> str:
    found = sorted(findings, key=lambda f: (f.device, f.key, f.form, f.type))
    cells = _Cells(found)
    parts = [
        [HEAD],
        ["## Totals", "", *_totals(found), "", "In FP32 on the CPU:", ""],
        _by_library(found),
        ["", "## Why not", "", *cells.failures.lines()],
        ["", "## What does not count", "", *cells.uncounted.lines()],
        ["", "## Runs", "", *_runs(found)],
    ]
    for device in dict.fromkeys(f.device for f in found):
        there = [f for f in found if f.device == device]
        parts.append(["", f"## Architectures: {device}", *_architectures(there, cells)])
    return "\n".join(line for part in parts for line in part) + "\n"
