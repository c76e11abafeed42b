"""rabbet.parallel.launch: ranks are started, told who they are, and ended."""

from __future__ import annotations

from pathlib import Path

import pytest
import rabbet
from rabbet import parallel
from rabbet.parallel import _launch

SCRIPT = """
import os, signal, sys, time
rank, folder = os.environ["RANK"], sys.argv[1]
open(f"{folder}/{rank} of {os.environ['WORLD_SIZE']}", "w").close()
if len(sys.argv) > 2:  # the last one fails, the others never end by themselves
    if rank == "2":
        while len(os.listdir(folder)) < 5:
            time.sleep(0.01)
        sys.exit(7)
    if rank == "1":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    open(f"{folder}/ready {rank}", "w").close()
    time.sleep(600)
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    (tmp_path / "script.py").write_text(SCRIPT)
    return str(tmp_path / "script.py")


def test_each_rank_runs(script: str, tmp_path: Path) -> None:
    (made := tmp_path / "made").mkdir()
    assert parallel.launch(3, [script, str(made)]) == 0
    assert sorted(p.name for p in made.iterdir()) == ["0 of 3", "1 of 3", "2 of 3"]


def test_a_rank_that_fails_ends_the_others(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that ignores SIGTERM, too."""
    (made := tmp_path / "made").mkdir()
    monkeypatch.setattr(_launch, "_GRACE", 0.2)
    assert parallel.launch(3, [script, str(made), "fail"]) == 7


def test_no_ranks() -> None:
    with pytest.raises(rabbet.InvalidArgumentError, match="ranks is 0; expected 1 or more"):
        parallel.launch(0, ["script.py"])
