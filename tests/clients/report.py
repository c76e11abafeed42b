"""Runs a client's tests in this process, and prints how many passed and why others did
not: the last line of each failure, counted."""

from __future__ import annotations

import collections
import os
import re
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


def install_alias() -> None:
    """`import tensorrt` gives Rabbet, on the CPU."""
    os.environ.setdefault("RABBET_DEVICE", "cpu")
    import rabbet.compat

    rabbet.compat.install()


class Report:
    """A plugin of pytest that counts."""

    def __init__(self, part: tuple[int, int]) -> None:
        self.part = part
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.causes: dict[str, list[str]] = collections.defaultdict(list)

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Leaves every n-th test."""
        first, step = self.part
        items[:] = items[first::step]

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Counts a test once."""
        if report.when != "call" and report.outcome == "passed":
            return
        self.outcomes[report.outcome] += 1
        if report.outcome == "failed":
            self.causes[_cause(report)].append(report.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        """Counts a file that can't be imported."""
        if report.outcome == "failed":
            self.outcomes["not collected"] += 1
            self.causes[_cause(report)].append(report.nodeid)

    def show(self) -> None:
        """Prints all."""
        for cause, tests in sorted(self.causes.items(), key=lambda c: -len(c[1])):
            print(f"{len(tests):5} {cause}\n      {tests[0]}")
        print(", ".join(f"{count} {name}" for name, count in self.outcomes.items()))


def _cause(report: Any) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else str(report.longrepr).strip().rpartition("\n")[2]
    text = text.partition("To execute this test")[0]
    # Numbers, as in messages of torch.testing, do not tell causes apart.
    return re.sub(r"\d+(\.\d+)?(e[+-]?\d+)?", "#", " ".join(text.split())[:300])


def each(cases: Iterable[tuple[str, Callable[[], str]]]) -> int:
    """Runs cases that are not pytest's, each of which says what it found; 0 if all
    passed."""
    failed = passed = 0
    for name, case in cases:
        try:
            print(f"passed {name}: {case()}", flush=True)
            passed += 1
        except Exception as error:
            traceback.print_exc()
            print(f"FAILED {name}: {type(error).__name__}: {error}", flush=True)
            failed += 1
    print(f"{passed} passed, {failed} failed")
    return int(failed > 0)


def run(root: Path, arguments: list[str]) -> int:
    """pytest's exit status. --part=I/N among the arguments: every N-th test, from the
    I-th on, counted from 0."""
    import pytest

    part = (0, 1)
    for argument in [a for a in arguments if a.startswith("--part=")]:
        arguments.remove(argument)
        first, step = argument.removeprefix("--part=").split("/")
        part = int(first), int(step)
    report = Report(part)
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts=",
               "--no-header", "-rN", "--rootdir", str(root), "--show-capture=no",
               "--tb=no"]  # fmt: skip
    status = pytest.main([*options, *arguments], plugins=[report])
    report.show()
    return int(status)
