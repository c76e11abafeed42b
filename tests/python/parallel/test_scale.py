"""tools/scale.py: estimates against sums done by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[3] / "tools/scale.py"
# Round numbers: 10 GB at 1000 GB/s are 10 ms; a link of 100 GB/s, 10 us.
PLAIN = ["--weights=10", "--layers=10", "--hidden=5000", "--memory=1000", "--arithmetic=1000",
         "--size=8", "--link=100", "--latency=10"]  # fmt: skip


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(TOOL), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def rows(*arguments: str) -> dict[tuple[str, int], list[str]]:
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    cells = [line.strip("| ").split(" | ") for line in done.stdout.splitlines()[2:]]
    return {(row[0], int(row[1])): row[2:] for row in cells}


def test_one_row() -> None:
    found = rows(*PLAIN, "--ranks=1,2,4")
    assert found["one GPU", 1] == ["10.0", "10", "0", "1.00", "100", "no"]
    # 5 ms, and 20 all-reduces of 10 us and 10 kB at 100 GB/s (0.1 us).
    time = 5 + 20 * (0.010 + 0.0001)
    assert found["tensor", 2] == [
        "5.0",
        f"{time:.3g}",
        "0.202",
        "0.52",
        f"{1e3 / time:.4g}",
        "yes",
    ]
    # Four ranks: 1.4 times the latency, 1.5 times the bytes.
    exchanged = 20 * (0.014 + 0.00015)
    assert float(found["tensor", 4][2]) == pytest.approx(exchanged, rel=0.01)
    # A pipeline is as slow for one batch, and computes two at a time.
    assert found["pipeline", 2][:2] == ["5.0", "10"]
    assert float(found["pipeline", 2][4]) == pytest.approx(2e3 / 10.0101, rel=0.001)
    assert found["data", 2] == ["10.0", "10", "0", "1.00", "200", "no"]


def test_what_no_split_shortens() -> None:
    found = rows(*PLAIN, "--other=2", "--ranks=1,2")
    assert float(found["one GPU", 1][1]) == pytest.approx(12)
    assert float(found["tensor", 2][1]) == pytest.approx(5 + 2 + 20 * 0.0101, rel=0.01)


@pytest.mark.parametrize(
    ("arguments", "times"),
    [
        ("--weights=16 --layers=32 --other=0.61", (4.35, 2.96, 2.22)),
        ("--weights=16 --layers=32 --other=0.28 --latency=5.4", (4.02, 2.50, 1.67)),
        ("--weights=16 --layers=32 --memory=3100 --other=0.24 --latency=5.4", (5.40, 3.17, 1.99)),
        ("--weights=3.49 --layers=8 --rows=2048 --memory=3100 --arithmetic=620 --other=1.5 "
         "--latency=5.4", (13.0, 8.1, 5.4)),
    ],
)  # fmt: skip
def test_measured_steps(arguments: str, times: tuple[float, ...]) -> None:
    """Tokens of 8B parameters in FP16 on H200s, on H100s, a prompt on these (docs/scale.md);
    within a tenth."""
    found = rows("--hidden=4096", "--ranks=1,2,4", *arguments.split())
    for ranks, time in zip((1, 2, 4), times, strict=True):
        way = "tensor" if ranks > 1 else "one GPU"
        assert float(found[way, ranks][1]) == pytest.approx(time, rel=0.1)


def test_many_rows_are_bound_by_arithmetic() -> None:
    # 5e9 weights, two operations each, 4000 rows at 1000 TFLOP/s: 40 ms.
    found = rows(*PLAIN, "--rows=4000", "--ranks=1,2")
    assert float(found["one GPU", 1][1]) == pytest.approx(40)
    # 40 MB to each all-reduce: 0.4 ms and the latency, 20 times.
    assert float(found["tensor", 2][2]) == pytest.approx(20 * 0.41, rel=0.01)


def test_caches_and_experts() -> None:
    found = rows(*PLAIN, "--active=2", "--cache=0.5", "--rows=4", "--ranks=1,2")
    assert float(found["one GPU", 1][1]) == pytest.approx(4)  # 2 GB and 4 * 0.5 GB
    assert found["tensor", 2][0] == "5.0"
    assert found["tensor", 2][5] == "yes"  # 5 GB and 1 GB of 8


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--ranks=two", "--ranks is 'two'"),
        ("--ranks=0", "--ranks has 0; expected numbers of 1 or more"),
        ("--link=0", "--link is 0.0; expected a number above 0"),
        ("--active=11", "--active is 11.0; expected a number above 0, at most --weights (10.0)"),
        ("--memory=inf", "--memory is inf; expected a number above 0"),
        ("--latency=nan", "--latency is nan; expected a number, 0 or more"),
    ],
)
def test_mistakes(argument: str, message: str) -> None:
    done = run(*PLAIN, argument)
    assert done.returncode == 2
    assert message in done.stderr
