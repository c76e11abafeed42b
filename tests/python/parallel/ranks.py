"""Starts processes as ranks on the stand-ins for the GPU and for NCCL."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[3]
BUILD = Path(os.environ.get("RABBET_BUILD") or ROOT / "build")
WITH = BUILD / "tests" / "cuda_stand_in" / "with_stand_in"
WORKER = Path(__file__).with_name("worker.py")
SECONDS = 60


class Rank(NamedTuple):
    """How a rank ended."""

    code: int
    results: Any  # of each case; None: it did not come so far
    errors: str  # of one that hangs, too: with where it stood


def run(
    folder: Path, cases: list[dict[str, Any]], ranks: int, environment: dict[str, str],
    seconds: float = SECONDS,
) -> list[Rank]:  # fmt: skip
    """Runs the worker in each rank. `environment` is of all ranks."""
    (folder / "cases").write_bytes(pickle.dumps(cases))
    shared = {
        "RABBET_RENDEZVOUS": str(folder),
        "WORLD_SIZE": str(ranks),
        "RABBET_THREADS": "1",
        "RABBET_TEST_SECONDS": str(seconds),
    }
    processes = []
    for rank in range(ranks):
        out = folder / f"results{rank}"
        command = [sys.executable, WORKER, folder / "cases", out]
        if "RABBET_TEST_REAL_GPUS" not in environment:
            command.insert(0, WITH)
        here = {**os.environ, **shared, **environment, "RANK": str(rank)}
        errors = (folder / f"errors{rank}").open("w")
        processes.append(subprocess.Popen(command, env=here, stderr=errors))
    found = []
    for rank, process in enumerate(processes):
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
            errors = (folder / f"errors{rank}").read_text()
            found.append(Rank(code, "hang", errors))
            continue
        out = folder / f"results{rank}"
        results = pickle.loads(out.read_bytes()) if out.exists() else None
        found.append(Rank(code, results, (folder / f"errors{rank}").read_text()))
    return found
