"""Collectives by the real NCCL: as many ranks as there are GPUs (1, 2 or 4), a process each.

On one GPU the ranks are one, and plans of one rank need no communicator; what NCCL itself does
there is tried by a communicator of one rank in a group of one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rabbet as trt

from tests.python.parallel import ranks as ranks_module
from tests.python.parallel.test_collectives import (
    _OPS,
    _REDUCE,
    _TYPES,
    _case,
    _check,
    _step,
    nan_cases,
    size_cases,
    step_cases,
)

from . import cuda_driver

_STAND_IN = "stand_in" in os.environ.get("RABBET_CUDA_DRIVER", "")
pytestmark = pytest.mark.skipif(
    not cuda_driver.available() or _STAND_IN,
    reason="no GPU (tests/python/parallel has the same on a stand-in)",
)


def _gpus() -> int:
    from rabbet.parallel import _nccl, gpu_count

    try:
        _nccl.library()
    except trt.UnavailableError as error:
        pytest.skip(str(error))
    return gpu_count()


def _run(
    tmp_path: Path, cases: list[dict[str, Any]], count: int, more: dict[str, str]
) -> list[ranks_module.Rank]:
    environment = {**more, "RABBET_TEST_REAL_GPUS": "1"}
    # NCCL makes a communicator for each case, which takes seconds.
    return ranks_module.run(tmp_path, cases, count, environment, 150)


def test_one_rank_joins() -> None:
    """The real library makes a communicator of one rank, which a context takes."""
    _gpus()
    from rabbet import parallel

    with parallel.communicator(0, 1, gpu=0) as communicator:
        assert (communicator.rank, communicator.ranks) == (0, 1)
        assert "ncclComm_t" in repr(communicator.capsule)


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("graphs", [False, True])
def test_operations(tmp_path: Path, count: int, graphs: bool) -> None:
    """Each operation, reduction and type equals NumPy's."""
    if _gpus() < count:
        pytest.skip(f"needs {count} GPUs")
    rng = np.random.default_rng(count)
    runs = 6 if graphs else 1
    cases = [
        _case(rng, count, [_step(op, root=count - 1)], runs=runs, graphs=graphs)
        for op in _OPS
    ]
    cases += [_case(rng, count, [_step("ALL_REDUCE", reduce)]) for reduce in _REDUCE]
    cases += [_case(rng, count, [_step("ALL_GATHER")], dtype) for dtype in _TYPES]
    ended = _run(tmp_path, cases, count, {})
    for rank in ended:
        assert rank.code == 0, rank.errors
    for i, case in enumerate(cases):
        _check(case, [rank.results[i] for rank in ended])


def test_groups(tmp_path: Path) -> None:
    """Groups of two of four ranks."""
    if _gpus() < 4:
        pytest.skip("needs 4 GPUs")
    rng = np.random.default_rng(7)
    cases = [
        _case(rng, 4, [{**_step(op, root=2), "groups": [2, 0]}], shape=(8, 2))
        for op in _OPS
    ]
    ended = _run(tmp_path, cases, 4, {})
    for i, case in enumerate(cases):
        _check(case, [rank.results[i] for rank in ended])


@pytest.mark.parametrize("direct", ["1", "0"])
def test_rank_that_dies(tmp_path: Path, direct: str) -> None:
    """The others end by the time limit, and do not hang, whoever exchanges."""
    if _gpus() < 2:
        pytest.skip("needs 2 GPUs")
    rng = np.random.default_rng(5)
    case = _case(rng, 2, [_step("ALL_REDUCE")], runs=3)
    case["dies"] = {"rank": 1, "run": 1}
    # Joining counts, too, and takes seconds.
    more = {"RABBET_COLLECTIVE_SECONDS": "20", "RABBET_CUDA_DIRECT": direct}
    ended = _run(tmp_path, [case], 2, more)
    assert ended[1].code == -9, ended
    assert "did not end within 20 seconds" in ended[0].results[0][-1]


def test_sizes(tmp_path: Path) -> None:
    """Exchanges by mapped memory and by NCCL in turns, graphs, sizes that do not fill lines."""
    if _gpus() < 2:
        pytest.skip("needs 2 GPUs")
    _run_all(tmp_path, size_cases(np.random.default_rng(11)), 2)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_steps(tmp_path: Path, count: int) -> None:
    """Direct exchanges in one step and in two, of all sizes."""
    if _gpus() < count:
        pytest.skip(f"needs {count} GPUs")
    _run_all(tmp_path, step_cases(np.random.default_rng(count), count), count)


@pytest.mark.parametrize("direct", ["1", "0"])
def test_greatest_with_nan(tmp_path: Path, direct: str) -> None:
    """NCCL and direct exchanges agree."""
    if _gpus() < 2:
        pytest.skip("needs 2 GPUs")
    _run_all(tmp_path, nan_cases(), 2, {"RABBET_CUDA_DIRECT": direct})


def _run_all(
    tmp_path: Path, cases: list[dict[str, Any]], count: int, more: dict[str, str] | None = None
) -> None:
    ended = _run(tmp_path, cases, count, more or {})
    for rank in ended:
        assert rank.code == 0, rank.errors
    for i, case in enumerate(cases):
        _check(case, [rank.results[i] for rank in ended])
