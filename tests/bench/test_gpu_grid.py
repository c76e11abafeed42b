"""The grid's plumbing on the CPU: what it counts, compares and shows."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from bench import gpu_grid, grid_rows  # noqa: E402
from bench.grid_rows import Row  # noqa: E402
from bench.peers import RABBET  # noqa: E402

PRODUCT = Row(
    "product", "8 x 64 x 32",
    lambda: grid_rows.Layer(lambda m, x: m.linear(x), linear=torch.nn.Linear(64, 32)),
    ((8, 64),), ("eager",),
)  # fmt: skip


def told(row: Row, monkeypatch: pytest.MonkeyPatch) -> gpu_grid.Told:
    monkeypatch.setattr(grid_rows, "rows", lambda: [row])
    gpu_grid._prepare(0, "cpu")
    return gpu_grid._measure(0, 2, 1e-4, False)


def test_a_row_is_counted_checked_and_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = told(PRODUCT, monkeypatch)
    numbers = 8 * 64 + 64 * 32 + 32 + 8 * 32
    assert found.megabytes == pytest.approx(2 * numbers / 1e6)
    assert found.gflop == pytest.approx(2 * 8 * 64 * 32 / 1e9)
    assert found.limit_us == pytest.approx(2 * numbers / 4.28e12 * 1e6)
    assert 0 < found.error < PRODUCT.bound
    assert {name: len(own) for name, own in found.rounds.items()} == {RABBET: 2, "eager": 2}
    assert found.rival() == "eager"
    assert not found.absent


def test_wrong_results_are_not_timed_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    row = replace(PRODUCT, bound=0.0)
    found = told(row, monkeypatch)
    assert RABBET not in found.rounds
    cells = gpu_grid._cells(row, found)
    assert cells[-1].startswith("rabbet is wrong: ")
    assert cells[5] == cells[8] == "-"


def test_ratio_and_share() -> None:
    rounds = {RABBET: [3.0, 3.0, 6.0], "eager": [4.0, 4.0, 4.0], "compiled": [2.0, 2.0, 2.0]}
    found = gpu_grid.Told(limit_us=1.5, rounds=rounds)
    ratio = found.ratio()
    assert ratio is not None
    assert (found.rival(), ratio.median, found.share()) == ("compiled", 1.5, 0.5)
    assert found.is_doubtful()
    assert not gpu_grid.Told(limit_us=3.0, rounds={RABBET: [3.0], "eager": [4.0]}).is_doubtful()


def test_each_class_has_its_mean() -> None:
    def of(own: float) -> gpu_grid.Told:
        return gpu_grid.Told(limit_us=1.0, rounds={RABBET: [own], "eager": [2.0]})

    rows = [replace(PRODUCT, text=str(i)) for i in range(3)]
    other = replace(PRODUCT, kind="softmax")
    told = dict(zip([*rows, other], [of(4.0), of(1.0), "no time was left", of(2.0)], strict=True))
    assert gpu_grid._by_class(told).rows == [
        ["product", "2", "1", "1.00", "2.00", "25% to 100%"],
        ["softmax", "1", "1", "1.00", "1.00", "50% to 50%"],
        ["all", "3", "2", "1.00", "2.00", "25% to 100%"],
    ]


def test_the_rows_are_of_all_classes_in_turns() -> None:
    rows = grid_rows.rows()
    names = [row.name for row in rows]
    assert max(Counter(names).values()) == 1
    assert len({row.kind for row in rows[: len(grid_rows.CLASSES)]}) == len(grid_rows.CLASSES)
