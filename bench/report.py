"""Tables on the screen and in files."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PACKAGES = ("rabbet", "onnxruntime", "openvino", "torch", "numba", "numpy", "onnx")


@dataclass
class Section:
    """One subject's results: a table for people, data for programs."""

    title: str
    columns: list[str]
    rows: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    data: list[dict[str, Any]] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Adds a note once."""
        if text not in self.notes:
            self.notes.append(text)

    def markdown(self) -> str:
        """Title, table and notes."""
        lines = [f"## {self.title}", ""]
        if self.rows:
            lines += ["| " + " | ".join(self.columns) + " |"]
            lines += ["|" + " --- |" * len(self.columns)]
            lines += ["| " + " | ".join(row) + " |" for row in self.rows]
            lines += [""]
        lines += [f"- {note}" for note in self.notes]
        return "\n".join(lines).rstrip() + "\n"


def cpu_model() -> str:
    """The processor's name, its cores at hand and its widest vectors."""
    text = Path("/proc/cpuinfo").read_text()
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    model = found.group(1) if found else platform.machine()
    flags = re.search(r"^flags\s*:\s*(.+)$", text, re.MULTILINE)
    have = set(flags.group(1).split()) if flags else set()
    vectors = next((v for v in ("avx512f", "avx2") if v in have), "")
    cores = len(os.sched_getaffinity(0))
    return f"{model.strip()}, {cores} cores{', ' + vectors if vectors else ''}"


@dataclass(frozen=True)
class Usage:
    """Seconds of processor time so far: all of the machine's cores together,
    busy or not, those busy, and those that this program and its ended children
    had."""

    total: float
    busy: float
    own: float

    @classmethod
    def now(cls) -> Usage:
        """Reads the clocks of the system."""
        line = Path("/proc/stat").read_text().splitlines()[0]
        ticks = [int(value) for value in line.split()[1:9]]
        tick = os.sysconf("SC_CLK_TCK")
        idle = ticks[3] + ticks[4]
        own = sum(os.times()[:4])
        return cls(sum(ticks) / tick, (sum(ticks) - idle) / tick, own)

    def foreign_share(self, since: Usage) -> float:
        """The part of the cores' time since `since` that others used, 0 to 1."""
        busy = (self.busy - since.busy) - (self.own - since.own)
        return max(0.0, busy / max(self.total - since.total, 1e-9))


def versions() -> dict[str, str]:
    """The installed packages that take part."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "absent"
    return found


def document(sections: list[Section], settings: str) -> str:
    """The whole report."""
    head = [
        f"# Measured {datetime.date.today()}",
        "",
        f"Machine: {cpu_model()}.",
        "Versions: " + ", ".join(f"{k} {v}" for k, v in versions().items()) + ".",
        f"Settings: {settings}.",
        "",
        "Contestants took turns in rounds, each in a process of its own on the same "
        "cores. A ratio is Rabbet's time over another's, taken round by round: its "
        "median, and its quartiles in brackets. Below 1 Rabbet is quicker.",
        "",
    ]
    return "\n".join(head) + "\n" + "\n".join(s.markdown() for s in sections)


def write(sections: list[Section], settings: str, name: str, folder: Path) -> Path:
    """Writes NAME's report as .md and .json; returns the former's path."""
    kind = re.sub(r"[^A-Za-z0-9]+", "-", cpu_model()).strip("-")
    stem = f"{datetime.date.today()}-{kind}-{name}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}.md"
    path.write_text(document(sections, settings))
    data = {
        "date": str(datetime.date.today()),
        "machine": cpu_model(),
        "versions": versions(),
        "settings": settings,
        "sections": {s.title: {"notes": s.notes, "data": s.data} for s in sections},
    }
    path.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n")
    return path
