"""Operators of a compiled graph that stay with torch, and the reasons."""

from __future__ import annotations

import threading
from typing import NamedTuple


class Left(NamedTuple):
    """An operator that runs in torch."""

    op: str
    node: str
    reason: str


class Report:
    """One graph that torch.compile handed over: its engines, and what runs in torch."""

    def __init__(self) -> None:
        self.name = ""
        self.engines = 0
        self.operators = 0  # in engines
        self.left: list[Left] = []

    def __str__(self) -> str:
        lines = [
            f"{self.name}: {self.operators} operators in {self.engines} engine"
            f"{'s' * (self.engines != 1)}, {len(self.left)} in torch"
        ]
        counts: dict[tuple[str, str], int] = {}
        for each in self.left:
            key = (each.op, each.reason)
            counts[key] = counts.get(key, 0) + 1
        lines += [f"  {n} x {op}: {reason}" for (op, reason), n in counts.items()]
        return "\n".join(lines)


_reports: list[Report] = []
_lock = threading.Lock()


def keep(report: Report) -> None:
    """Adds the report of a graph that was compiled."""
    with _lock:
        report.name = f"graph {len(_reports)}"
        _reports.append(report)


def reports() -> list[Report]:
    """Reports of the graphs that torch.compile(backend="rabbet") has compiled in this
    process, in order."""
    with _lock:
        return list(_reports)
