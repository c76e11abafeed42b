"""Plans of a split model, and a rank that runs one.

python split_worker.py FOLDER save     # FOLDER/plan.0, ...: of the job in FOLDER/job
python split_worker.py FOLDER          # with RANK and WORLD_SIZE set; outputs to results.RANK

The job is a pickled dict: `model` (an ONNX file), `how` it is split (a function of
rabbet.parallel), `ranks`, `shapes` and the inputs of each run, `runs`. An input that is missing
in a run is what the last run gave under the name that `carried` has for it, as caches are. With
`compiled` the ranks build their models themselves. A rank takes the inputs that it has."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import rabbet
from rabbet import parallel

_REAL = "RABBET_TEST_REAL_GPUS" in os.environ
# Of float products as of NumPy's; level 0 measures nothing.
OPTIONS: dict[str, Any] = {"tf32": False, "optimization_level": 0}


def split_of(job: dict[str, Any]) -> Any:
    """The model, split."""
    return getattr(parallel, job["how"])(job["model"], job["ranks"])


def save(folder: Path, job: dict[str, Any]) -> None:
    """Plans of all ranks, built by one process."""
    split = split_of(job)
    made = split.save(folder / "plan", device="cuda", shapes=job["shapes"], **OPTIONS)
    assert made == [folder / f"plan.{rank}" for rank in range(job["ranks"])]


def load(folder: Path, job: dict[str, Any], rank: int, gpu: int) -> Any:
    """The model of the rank."""
    if not job["compiled"]:
        return rabbet.load(folder / f"plan.{rank}", device=f"cuda:{gpu}")
    split = split_of(job)
    return split.compile(rank, device=f"cuda:{gpu}", shapes=job["shapes"], **OPTIONS)


def run(folder: Path, job: dict[str, Any]) -> list[dict[str, np.ndarray]]:
    """This rank's outputs of each run."""
    rank = parallel.place().rank
    gpu = rank if _REAL else 0  # the stand-in GPU is one for each process
    parts = split_of(job).parts()
    model, results = load(folder, job, rank, gpu), []
    with parallel.communicator(gpu=gpu, seconds=60) as communicator:
        model.set_communicator(communicator)
        for given in job["runs"]:
            feeds = {}
            for name in (each.name for each in model.inputs):
                if name in given:
                    feeds[name] = mine(parts, name, given[name], rank)
                else:
                    feeds[name] = results[-1][job["carried"][name]]
            found = model.run(feeds)
            results.append({name: np.array(y) for name, y in found.items()})
        model.set_communicator(None)
    return results


def mine(parts: Any, name: str, x: np.ndarray, rank: int) -> np.ndarray:
    """The rank's part of a whole input."""
    if name not in parts:
        return x
    axis, part = parts[name]
    return np.ascontiguousarray(np.split(x, x.shape[axis] // part[axis], axis)[rank])


def main() -> None:
    """One of the two."""
    folder = Path(sys.argv[1])
    job = pickle.loads((folder / "job").read_bytes())
    if sys.argv[2:] == ["save"]:
        save(folder, job)
        return
    results = run(folder, job)
    name = f"results.{parallel.place().rank}"
    (folder / name).write_bytes(pickle.dumps(results))


if __name__ == "__main__":
    main()
