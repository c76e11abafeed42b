"""Plans of split models, run by a process for each rank on stand-ins for the GPU and NCCL:
results are torch's of the whole model. tests/gpu has the same on GPUs."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from . import families  # noqa: E402
from .ranks import ROOT, WITH  # noqa: E402
from .test_tensor import CACHES, IDS, made  # noqa: E402

WORKER = Path(__file__).with_name("split_worker.py")
SECONDS = 100


def processes(folder: Path, ranks: int, real: bool) -> None:
    """Saves the plans of the job in the folder and runs all ranks."""
    own = [sys.executable, str(WORKER), str(folder)]
    before = [] if real else [str(WITH)]
    more = {"RABBET_TEST_REAL_GPUS": "1"} if real else {}
    shared = {
        **os.environ,
        **more,
        "RABBET_THREADS": "1",
        "RABBET_RENDEZVOUS": str(folder),
    }
    shared["WORLD_SIZE"], shared["RABBET_COLLECTIVE_SECONDS"] = str(ranks), "60"
    if not pickle.loads((folder / "job").read_bytes())["compiled"]:
        saved = subprocess.run(
            [*before, *own, "save"], env=shared, cwd=ROOT, timeout=SECONDS, check=False,
            capture_output=True, text=True,
        )  # fmt: skip
        assert saved.returncode == 0, saved.stderr
    started = [
        subprocess.Popen([*before, *own], env={**shared, "RANK": str(rank)}, cwd=ROOT,
                         stderr=subprocess.PIPE, text=True)
        for rank in range(ranks)
    ]  # fmt: skip
    try:
        errors = [process.communicate(timeout=SECONDS)[1] for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0] * ranks, errors


def run(
    folder: Path, job: dict[str, Any], ranks: int, real: bool = False
) -> list[list[dict[str, np.ndarray]]]:
    """Each rank's outputs of each run."""
    whole = {"how": "tensor", "compiled": False, "carried": {}, **job, "ranks": ranks}
    (folder / "job").write_bytes(pickle.dumps(whole))
    processes(folder, ranks, real)
    return [
        pickle.loads((folder / f"results.{rank}").read_bytes()) for rank in range(ranks)
    ]


def decoder(folder: Path, ranks: int, real: bool = False, **more: Any) -> None:
    """A prompt, then single tokens with the caches that each rank has of its heads, or of
    its layers."""
    torch.manual_seed(1)
    module = families.Llama().eval()
    calls = [torch.randint(0, 60, (2, n)) for n in (6, 1, 1)]
    past = [torch.randn(2, 4, 3, 8) for _ in range(4)]
    file = families.export(module, (calls[0], *past), IDS | CACHES)
    caches = {f"x{i}": p.numpy() for i, p in enumerate(past, 1)}
    shapes = {"x0": ((2, 1), (2, 6), (2, 6))}
    shapes |= {
        f"x{i}": ((2, 4, 3, 8), (2, 4, 3, 8), (2, 4, 12, 8)) for i in range(1, 5)
    }
    runs = [{"x0": ids.numpy()} for ids in calls]
    runs[0] |= caches
    carried = {f"x{i}": f"y{i}" for i in range(1, 5)}
    job = {"model": file, "shapes": shapes, "runs": runs, "carried": carried, **more}
    found = run(folder, job, ranks, real)
    is_pipeline = more.get("how") == "pipeline"
    for step, ids in enumerate(calls):
        with torch.no_grad():
            logits, *past = module(ids, *past)
        mine = [each[step] for each in found]
        with_logits = [rank["y0"] for rank in mine if "y0" in rank]
        for each in with_logits:
            np.testing.assert_allclose(each, logits, rtol=1e-4, atol=1e-4)
        assert len(with_logits) == (1 if is_pipeline else ranks)
        for i, want in enumerate(past, 1):
            caches_of = [rank[f"y{i}"] for rank in mine if f"y{i}" in rank]
            assert len(caches_of) == (1 if is_pipeline else ranks)
            cache = np.concatenate(caches_of, 1)
            np.testing.assert_allclose(cache, want, rtol=1e-4, atol=1e-4)


def family(
    folder: Path, name: str, ranks: int, real: bool = False, **more: Any
) -> None:
    """One call of a model without a state."""
    file, module, given = made(name)
    feeds = {f"x{i}": value.numpy() for i, value in enumerate(given)}
    shapes = {key: value.shape for key, value in feeds.items()}
    job = {"model": file, "shapes": shapes, "runs": [feeds], **more}
    with torch.no_grad():
        want = module(*given)
    found = [rank[0]["y0"] for rank in run(folder, job, ranks, real) if rank[0]]
    assert len(found) == (1 if more.get("how") == "pipeline" else ranks)
    for each in found:
        np.testing.assert_allclose(each, want, rtol=1e-4, atol=1e-4)


_needed = pytest.mark.skipif(not WITH.exists(), reason="no stand-in GPU was built")


@_needed
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.full)])
def test_decoder(tmp_path: Path, ranks: int) -> None:
    decoder(tmp_path, ranks)


@_needed
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.full)])
def test_decoder_in_stages(tmp_path: Path, ranks: int) -> None:
    decoder(tmp_path, ranks, how="pipeline")


def overlap(folder: Path, real: bool = False) -> None:
    """Rank 0 is in its next run while rank 1 is in this one (overlapping.py)."""
    command = [sys.executable, "-m", "tests.python.parallel.overlapping"]
    shared = {**os.environ, "RABBET_THREADS": "1", "RABBET_RENDEZVOUS": str(folder)}
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "0,1").split(",")
    started = []
    for rank in range(2):
        # A rank sees its own GPU alone, as number 0.
        own = {"WORLD_SIZE": "2", "RANK": str(rank)}
        own |= {"CUDA_VISIBLE_DEVICES": gpus[rank]} if real else {}
        words = command if real else [str(WITH), *command]
        started.append(subprocess.Popen(
            words, cwd=ROOT, text=True, env={**shared, **own}, stderr=subprocess.PIPE
        ))  # fmt: skip
    try:
        errors = [process.communicate(timeout=SECONDS)[1] for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0, 0], errors
    assert not (folder / "late").exists(), "rank 1 waited in vain for rank 0's next run"


@_needed
def test_stages_overlap(tmp_path: Path) -> None:
    overlap(tmp_path)


@_needed
@pytest.mark.full
@pytest.mark.parametrize(
    "name", ["gpt2", "encoder", "vision", "t5", "experts", "whisper"]
)
def test_stages_that_ranks_compile(tmp_path: Path, name: str) -> None:
    family(tmp_path, name, 2, compiled=True, how="pipeline")


@_needed
@pytest.mark.parametrize(
    "name",
    ["experts", *(pytest.param(n, marks=pytest.mark.full)
                  for n in ("gpt2", "encoder", "vision", "t5", "parallel", "whisper"))],
)  # fmt: skip
def test_models_that_ranks_compile(tmp_path: Path, name: str) -> None:
    family(tmp_path, name, 2, compiled=True)
