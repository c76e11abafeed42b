"""The table of what came of each architecture: docs/models.md."""

from __future__ import annotations

import collections
import re
import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from . import catalogue
from .run import verdict

Result = Mapping[str, Any]

HEAD = """# Models

What `make zoo` found: architectures of torchvision, timm, transformers, diffusers and
ultralytics, made small, with random weights under which results vary with inputs,
exported by TorchScript's exporter (opset 17) and by torch.export's, with fixed and with
varying sizes. Each file is built and run, and compared with ONNX Runtime (unoptimized) at the usual
sizes, at the least, at the largest, and at some of both. This file is generated:

    make zoo                                # all, hours; ZOO="--only 'timm/*'" takes options
    python -m zoo --help

"right" is within a relative error of 1e-3 in FP32 (2e-2 on a GPU, which uses TF32), 2e-2 in
FP16 and 1e-1 in BF16 (norm of the difference over norm of the result) of ONNX Runtime's FP32
results, or twice as far off as torch's own module in that type. "mixed" is the FP32
file, built with FP16 allowed; the other two are exports of modules in that type. Behind it
is the median time over that of ONNX Runtime, one thread each, in turns. Files that the
exporter did not write ("not exported"), or that ONNX Runtime does not run ("no reference"),
do not count.
"""


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


def _judged(results: Iterable[Result]) -> list[Result]:
    """Those that count: the exporter wrote a file, and ONNX Runtime runs it."""
    return [r for r in results if verdict(r) not in ("no export", "no ORT")]


def _totals(results: list[Result]) -> list[str]:
    lines = [
        "| device | type | exports | right | wrong | not imported | not built | not run | crash |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    groups = collections.defaultdict(list)
    for result in _judged(results):
        groups[result["device"], result["type"]].append(verdict(result))
    for (device, kind), words in groups.items():
        counts = collections.Counter(words)
        columns = ("right", "WRONG", "NO IMPORT", "NO BUILD", "NO RUN")
        dead = counts["CRASH"] + counts["LIMIT"]
        cells = [len(words), *(counts[c] for c in columns), dead]
        lines.append(f"| {device} | {kind} | {' | '.join(map(str, cells))} |")
    return lines


def _by_library(results: list[Result]) -> list[str]:
    lines = [
        "| library | in the catalogue | tried | exports | right | time beside ONNX Runtime's |",
        "|---|---|---|---|---|---|",
    ]
    groups = collections.defaultdict(list)
    for result in results:
        if result["device"] == "cpu" and result["type"] == "fp32":
            groups[result["key"].split("/")[0]].append(result)
    for library, found in groups.items():
        keys = {r["key"] for r in found}
        judged = _judged(found)
        right = sum(verdict(r) == "right" for r in judged)
        times = [r["seconds"] / r["ort_seconds"] for r in judged if "seconds" in r]
        ratio = f"{statistics.median(times):.2f}" if times else ""
        known = sum(e.library == library for e in catalogue.entries().values())
        cells = [library, known, len(keys), len(judged), right, ratio]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


class _Causes:
    """Causes by how often they come, and their numbers."""

    def __init__(self, results: Iterable[Result]) -> None:
        texts = [cause(r["error"]) for r in results if "error" in r]
        self._counts = collections.Counter(texts).most_common()
        self._numbers = {text: i + 1 for i, (text, _) in enumerate(self._counts)}

    def number(self, result: Result) -> str:
        return f"({self._numbers[cause(result['error'])]})"

    def lines(self) -> list[str]:
        lines = ["| | exports | |", "|---|---|---|"]
        for number, (text, count) in enumerate(self._counts, 1):
            escaped = text.replace("|", "\\|").replace("<", "&lt;")
            lines.append(f"| ({number}) | {count} | {escaped} |")
        return lines


def _cell(result: Result | None, causes: _Causes) -> str:
    if result is None:
        return ""
    word = verdict(result)
    if word == "right":
        if "seconds" not in result:
            return "right"
        return f"right {result['seconds'] / result['ort_seconds']:.2f}"
    if word == "WRONG":
        return f"**wrong** {result['worst']:.0e}"
    if word in ("no export", "no ORT"):
        return {"no export": "not exported", "no ORT": "no reference"}[word]
    return f"{word.lower()} {causes.number(result)}"


def _halves(results: list[Result], causes: _Causes) -> str:
    """Types beside FP32, those that are right first."""
    right, others = [], []
    for result in results:
        word = verdict(result)
        if word == "right":
            right.append(result["type"])
        elif word not in ("no export", "no ORT"):
            others.append(f"{result['type']} {_cell(result, causes)}")
    return ", ".join([*dict.fromkeys(right), *others])


def _architectures(results: list[Result], causes: _Causes) -> list[str]:
    lines = []
    libraries = collections.defaultdict(lambda: collections.defaultdict(list))
    for result in results:
        library, name = result["key"].split("/", 1)
        libraries[library][name].append(result)
    for library, names in libraries.items():
        lines += [
            "",
            f"### {library}",
            "",
            "| | TorchScript | torch.export | other types |",
        ]
        lines.append("|---|---|---|---|")
        for name, found in sorted(names.items()):
            plain = {r["form"]: r for r in found if r["type"] == "fp32"}
            cells = [
                ", ".join(
                    f"{form.split('-')[1]}: {_cell(r, causes)}"
                    for form, r in sorted(plain.items())
                    if form.startswith(exporter)
                )
                for exporter in ("ts", "dynamo")
            ]
            rest = _halves([r for r in found if r["type"] != "fp32"], causes)
            lines.append(f"| {name} | {cells[0]} | {cells[1]} | {rest} |")
    return lines


def table(results: Iterable[Result]) -> str:
    found = sorted(results, key=lambda r: (r["device"], r["key"], r["form"], r["type"]))
    failures = _Causes(r for r in _judged(found) if verdict(r) != "right")
    unwritten = _Causes(r for r in found if verdict(r) in ("no export", "no ORT"))
    devices = dict.fromkeys(r["device"] for r in found)
    parts = [
        [HEAD],
        [
            "## Totals",
            "",
            *_totals(found),
            "",
            "In FP32 on the CPU:",
            "",
            *_by_library(found),
        ],
        ["", "## Why not", "", *failures.lines()],
        ["", "## What does not count", "", *unwritten.lines()],
    ]
    for device in devices:
        there = [r for r in found if r["device"] == device]
        parts.append(
            ["", f"## Architectures: {device}", *_architectures(there, failures)]
        )
    return "\n".join(line for part in parts for line in part) + "\n"
