"""What tests/gpu/run.sh keeps of a benchmark's output."""

from __future__ import annotations

import pytest

from tests.gpu import run

WHOLE = """gpu_calls ...
  a | 1 | 2
gpu_calls: 3 s

# Measured 2026-11-21

## Calls

| a | b |
| --- | --- |
| a | 1 |

- a note

written: /tmp/x.md
"""


def test_tables() -> None:
    lines = run.tables(WHOLE)
    assert lines[0] == "## Calls"
    assert "| a | 1 |" in lines
    assert lines[-1] == "- a note"
    assert run.tables("gpu ...\n  a | 1 | 2\n  b | 3 | 4\n") == [
        "a | 1 | 2",
        "b | 3 | 4",
    ]


def test_the_summary_has_the_tables() -> None:
    results = [
        run.Result("bench", "calls", "passed", 3.0, run.tables(WHOLE)),
        run.Result("tests", "pytest", "failed", 1.0, ["1 failed"]),
    ]
    text = run.summary(results, "a GPU")
    assert "### Calls" in text
    assert "\n| a | 1 |\n" in text
    assert "## tests: 1 failed" in text


def test_unknown_benches() -> None:
    with pytest.raises(SystemExit):
        run.main(["bench", "--benches", "calls,nothing"])
