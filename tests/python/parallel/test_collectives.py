"""Collectives over ranks that are processes, on stand-ins for the GPU and NCCL: results are
those of NumPy, and a rank that fails ends the others' waiting."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.python.parallel.ranks import ROOT, WITH, Rank, run
from tests.python.parallel.worker import matrix

pytestmark = pytest.mark.skipif(not WITH.exists(), reason="no stand-in GPU was built")

_REDUCE = {
    "SUM": lambda x: np.sum(x, 0),
    "PROD": lambda x: np.prod(x, 0),
    "MAX": lambda x: np.fmax.reduce(x, 0),  # as NCCL's: of NaN and a number the number
    "MIN": lambda x: np.fmin.reduce(x, 0),
    "AVG": lambda x: np.mean(x, 0),
}
_TYPES = {
    "FLOAT": np.float32,
    "HALF": np.float16,
    "DOUBLE": np.float64,
    "INT8": np.int8,
    "UINT8": np.uint8,
    "INT32": np.int32,
    "INT64": np.int64,
    "BOOL": np.bool_,
}


def _expected(step: dict[str, Any], inputs: list[np.ndarray]) -> list[np.ndarray]:
    """What each rank has of one exchange."""
    group = step.get("groups") or list(range(len(inputs)))
    mine = [inputs[r] for r in group]
    op, n = step["op"], len(group)
    wide = np.float64 if inputs[0].dtype.kind == "f" else np.int64
    dtype, root = inputs[0].dtype, step.get("root", -1)
    total = None
    if "reduce" in step:
        total = _REDUCE[step["reduce"]](np.stack(mine).astype(wide)).astype(dtype)
    whole = np.concatenate(mine)
    blocks = [np.split(x, n) for x in mine] if len(mine[0]) % n == 0 else []
    outputs = []
    for rank in range(len(inputs)):
        at = group.index(rank) if rank in group else -1
        if op == "ALL_REDUCE":
            y, made = total, at >= 0
        elif op == "REDUCE":
            y, made = total, rank == root
        elif op == "BROADCAST":
            y, made = inputs[root], at >= 0
        elif op == "ALL_GATHER":
            y, made = whole, at >= 0
        elif op == "GATHER":
            y, made = whole, rank == root
        elif op == "REDUCE_SCATTER":
            y, made = np.split(total, n)[at], at >= 0
        elif op == "SCATTER":
            y, made = np.split(inputs[root], n)[at], at >= 0
        else:
            y, made = np.concatenate([b[at] for b in blocks]), at >= 0
        outputs.append(y if made else np.zeros_like(y))
    return outputs


def _input(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    if dtype == "BOOL":
        return rng.random(shape) < 0.5
    if np.dtype(_TYPES[dtype]).kind == "f":
        return rng.standard_normal(shape).astype(_TYPES[dtype])
    return rng.integers(0, 5, shape).astype(_TYPES[dtype])


def _case(
    rng: np.random.Generator,
    ranks: int,
    steps: list[dict[str, Any]],
    dtype: str = "FLOAT",
    runs: int = 1,
    **more: Any,
) -> dict[str, Any]:
    shape = more.pop("shape", (2 * ranks, 3))
    shapes = more.pop("shapes", [shape] * runs)
    inputs = [[_input(rng, dtype, s) for s in shapes] for _ in range(ranks)]
    return {
        "ranks": ranks,
        "steps": steps,
        "dtype": dtype,
        "shape": shape,
        "inputs": inputs,
        **more,
    }


def _check(case: dict[str, Any], got: list[Any]) -> None:
    for i in range(len(case["inputs"][0])):
        values = [inputs[i] for inputs in case["inputs"]]
        for step in case["steps"]:
            values = _expected(step, values)
            if case.get("twice"):
                values = [v + v for v in values]
            if case.get("weights"):
                values = [v @ matrix(v.shape[1]) for v in values]
        for rank, value in enumerate(values):
            where = f"{case['steps']} {case['dtype']} rank {rank} run {i}"
            assert not isinstance(got[rank][-1], str), f"{where}: {got[rank][-1]}"
            close = 5e-3 if value.dtype == np.float16 else 1e-5
            close = 5e-3 if case.get("weights") else close  # TF32
            np.testing.assert_allclose(
                got[rank][i].astype(np.float64),
                value.astype(np.float64),
                rtol=close,
                atol=close,
                err_msg=where,
            )


def _run(
    tmp_path: Path, cases: list[dict[str, Any]], ranks: int, direct: bool = True
) -> None:
    ended = run(tmp_path, cases, ranks, {"RABBET_CUDA_DIRECT": str(int(direct))})
    for rank in ended:
        assert rank.code == 0, rank.errors
    for i, case in enumerate(cases):
        _check(case, [rank.results[i] for rank in ended])


_REDUCING = ("ALL_REDUCE", "REDUCE", "REDUCE_SCATTER")
_ROOTED = ("BROADCAST", "REDUCE", "GATHER", "SCATTER")
_OPS = (*_REDUCING, "BROADCAST", "GATHER", "SCATTER", "ALL_GATHER", "ALL_TO_ALL")


def _step(op: str, reduce: str = "SUM", root: int = 0) -> dict[str, Any]:
    step: dict[str, Any] = {"op": op}
    if op in _REDUCING:
        step["reduce"] = reduce
    if op in _ROOTED:
        step["root"] = root
    return step


@pytest.mark.parametrize(
    ("ranks", "direct"),
    [(2, True), (2, False), (4, True), pytest.param(4, False, marks=pytest.mark.full)],
)
def test_operations(tmp_path: Path, ranks: int, direct: bool) -> None:
    """Each operation, reduction and root, of two ranks each type; one alone and one behind
    the other. Small exchanges are NCCL's or take place in memory of all ranks."""
    rng = np.random.default_rng(ranks)
    cases = [_case(rng, ranks, [_step(op, root=ranks - 1)]) for op in _OPS]
    for reduce in _REDUCE:
        cases += [_case(rng, ranks, [_step(op, reduce)]) for op in _REDUCING[:2]]
    for dtype in _TYPES if ranks == 2 or not direct else ("HALF", "INT8"):
        ops = ["ALL_GATHER", "ALL_TO_ALL"] + ["ALL_REDUCE"] * (dtype != "BOOL")
        cases += [_case(rng, ranks, [_step(op)], dtype) for op in ops]
    several = [_step("ALL_GATHER"), _step("REDUCE_SCATTER"), _step("ALL_REDUCE", "MAX")]
    cases.append(_case(rng, ranks, several, twice=True))
    _run(tmp_path, cases, ranks, direct)


def test_groups(tmp_path: Path) -> None:
    """Ranks of a group exchange in its order; the others have zeros."""
    rng = np.random.default_rng(7)
    cases = []
    for groups in ([2, 0], [1, 3, 2], [3, 2, 1, 0], [0, 1]):
        for op in _OPS:
            step = {**_step(op, root=groups[-1]), "groups": groups}
            cases.append(_case(rng, 4, [step], shape=(12, 2)))
    steps = [{**_step("ALL_REDUCE"), "groups": [0, 1]}, _step("ALL_REDUCE", "MAX")]
    cases.append(_case(rng, 4, steps))
    _run(tmp_path, cases, 4)


def size_cases(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Of two ranks: from a few bytes over what lines of direct exchanges hold to what NCCL
    exchanges, in turns; products stand behind sums."""
    shapes = [(n, 4) for n in (1, 3, 700, 2, 4096, 1, 4095, 8200, 5, 1)]
    several = [_step("ALL_REDUCE"), _step("ALL_REDUCE", "MAX"), _step("ALL_GATHER")]
    open_rows = {"dynamic": True, "low": 1, "high": 8200, "shape": (4, 4)}
    cases = [
        _case(rng, 2, several, dtype, shapes=shapes, **open_rows)
        for dtype in ("FLOAT", "HALF")
    ]
    cases += [
        _case(rng, 2, [_step(op)], dtype, shape=(1, n))
        for op, dtype, n in (("ALL_GATHER", "INT8", 5), ("ALL_REDUCE", "HALF", 7),
                             ("ALL_GATHER", "BOOL", 9), ("ALL_REDUCE", "FLOAT", 1))
    ]  # fmt: skip
    sums = [_step("ALL_REDUCE"), _step("ALL_REDUCE", "AVG")]
    behind = {"runs": 6, "graphs": True, "weights": True}
    return [*cases, _case(rng, 2, sums, shape=(4, 128), **behind)]


def test_sizes_of_direct_exchanges(tmp_path: Path) -> None:
    _run(tmp_path, size_cases(np.random.default_rng(11)), 2)


def step_cases(rng: np.random.Generator, ranks: int) -> list[dict[str, Any]]:
    """Exchanges in one step, in two and by NCCL in turns: some ranks have no line of the last
    ones, blocks are not aligned, threads have several lines."""
    sizes = (1, 4095, 75001, 3, 262144, 140001, 16391, 262145, 2)
    open_rows = {"dynamic": True, "low": 1, "high": 262145}
    several = {"shapes": [(n, 1) for n in sizes], "shape": (4, 1)}
    cases = [
        _case(rng, ranks, [_step("ALL_REDUCE", reduce)], dtype, **several, **open_rows)
        for dtype, reduce in (("FLOAT", "SUM"), ("HALF", "MIN"))
    ]
    blocks = {
        "shapes": [(n * ranks, 1) for n in (1, 6001, 3, 30003)],
        "shape": (4 * ranks, 1),
    }
    open_rows |= {"low": ranks, "high": 30003 * ranks}
    cases += [
        _case(rng, ranks, [_step(op)], dtype, **blocks, **open_rows)
        for op, dtype in (("REDUCE_SCATTER", "HALF"), ("ALL_TO_ALL", "INT8"),
                          ("ALL_GATHER", "INT8"))
    ]  # fmt: skip
    both = [_step("REDUCE_SCATTER"), _step("ALL_GATHER")]
    return [
        *cases,
        _case(rng, ranks, both, "HALF", runs=5, graphs=True, shape=(ranks, 5)),
    ]


@pytest.mark.parametrize("ranks", [2, 3, 4, pytest.param(8, marks=pytest.mark.full)])
def test_steps_of_direct_exchanges(tmp_path: Path, ranks: int) -> None:
    _run(tmp_path, step_cases(np.random.default_rng(ranks), ranks), ranks)


@pytest.mark.parametrize(
    ("shapes", "counters"),
    [
        # Lines that nobody has written yet have the flag 0.
        ([(7, 1), *[(500, 1)] * 4], {1: 2**32 - 1}),
        # Two exchanges in two steps with the number 1. Between them are those of one step
        # that clean both sets of lines. Rank 2 has no line of the last sums, so that it
        # awaits the others' before they can be there.
        ([(65996, 1), *[(22000, 1)] * 3, (65996, 1)], {1: (1 << 20) - 1, 4: 0}),
    ],
)
def test_numbers_of_direct_exchanges_come_again(
    tmp_path: Path, shapes: list[tuple[int, int]], counters: dict[int, int]
) -> None:
    """Lines that keep the number of an exchange of long ago are not taken for today's.
    Counters are set so that even and odd numbers take turns."""
    open_rows = {"dynamic": True, "low": 1, "high": 65996, "shape": (4, 1)}
    rng = np.random.default_rng(2)
    case = _case(rng, 3, [_step("ALL_REDUCE")], shapes=shapes, **open_rows)
    _run(tmp_path, [{**case, "counters": counters}], 3)


def nan_cases() -> list[dict[str, Any]]:
    """Of two ranks: NaN in one, in the other, in both."""
    cases = []
    for dtype in ("FLOAT", "HALF"):
        for reduce in ("MAX", "MIN"):
            case = _case(
                np.random.default_rng(4), 2, [_step("ALL_REDUCE", reduce)], dtype
            )
            for rank in range(2):
                case["inputs"][rank][0].flat[[0, rank + 1]] = np.nan
            cases.append(case)
    return cases


@pytest.mark.parametrize("direct", [True, False])
def test_greatest_with_nan(tmp_path: Path, direct: bool) -> None:
    """The greatest and the least are those of the numbers, unless all are NaN, whoever
    exchanges."""
    _run(tmp_path, nan_cases(), 2, direct)


def test_dynamic_shapes_and_graphs(tmp_path: Path) -> None:
    """Shapes change between runs; graphs hold the exchanges."""
    rng = np.random.default_rng(3)
    shapes = [(4, 3), (2, 3), (8, 3), (4, 3), (6, 3)]
    cases = [
        _case(
            rng,
            2,
            [_step(op)],
            dynamic=True,
            low=2,
            high=8,
            shape=(4, 3),
            shapes=shapes,
        )
        for op in _OPS
    ]
    cases += [
        _case(rng, 2, [_step(op)], runs=6, graphs=True, twice=True) for op in _OPS
    ]
    _run(tmp_path, cases, 2)


# ---- Failures ------------------------------------------------------------------


def _fail(
    tmp_path: Path,
    fault: str,
    seconds: str = "1",
    ranks: int = 2,
    op: str = "ALL_REDUCE",
) -> list[Rank]:
    rng = np.random.default_rng(5)
    case = _case(rng, ranks, [_step(op)], runs=3)
    more = {"RABBET_STAND_IN_NCCL_FAULT": fault, "RABBET_COLLECTIVE_SECONDS": seconds}
    more |= {"RABBET_TEST_JOIN_SECONDS": "5", "RABBET_CUDA_DIRECT": "0"}
    return run(tmp_path, [case], ranks, more)


def test_rank_that_dies_amid_direct_exchanges(tmp_path: Path) -> None:
    """The other rank's kernel, which waits for memory to be written, ends, too. NCCL is
    not called for such exchanges: its call would fail."""
    rng = np.random.default_rng(5)
    case = _case(rng, 2, [_step("ALL_REDUCE")], runs=4)
    more = {"RABBET_STAND_IN_NCCL_FAULT": "ncclAllReduce 0 3 -1"}
    for rank in run(tmp_path, [case], 2, more):
        assert all(isinstance(y, np.ndarray) for y in rank.results[0]), rank
    more["RABBET_COLLECTIVE_SECONDS"] = "1"
    ended = run(tmp_path, [{**case, "dies": {"rank": 1, "run": 2}}], 2, more)
    assert ended[1].code == -9
    assert "did not end within 1 seconds" in ended[0].results[0][-1]


def test_rank_that_dies_amid_two_steps(tmp_path: Path) -> None:
    """Both steps end for those that are left."""
    rng = np.random.default_rng(6)
    case = _case(rng, 3, [_step("ALL_REDUCE")], runs=3, shape=(70000, 1))
    case["dies"] = {"rank": 1, "run": 1}
    ended = run(tmp_path, [case], 3, {"RABBET_COLLECTIVE_SECONDS": "5"})
    assert ended[1].code == -9
    for rank in (0, 2):
        assert "gave up its exchanges" in ended[rank].results[0][-1], ended[rank]


# Exchanges 0 and 1 are those by which ranks join; runs have the others.
_EXCHANGES = pytest.mark.parametrize("exchange", [1, 3])


@_EXCHANGES
def test_rank_that_dies(tmp_path: Path, exchange: int) -> None:
    """The other rank ends by the time limit, with a message in its log."""
    ended = _fail(tmp_path, f"run {exchange} -1 1")
    assert ended[1].code == -9
    error = ended[0].results[0][-1]
    assert error.startswith("UnavailableError"), error
    assert "did not end within 1 seconds" in error
    assert "rank 0 of 2 gives up its exchanges" in ended[0].errors


@pytest.mark.parametrize("exchange", [0, 1, 3])
def test_rank_that_sleeps(tmp_path: Path, exchange: int) -> None:
    """A rank that is too late ends both, and no result is wrong."""
    ended = _fail(tmp_path, f"run {exchange} -2 0")
    for rank in ended:
        assert "gave up its exchanges" in rank.results[0][-1], rank


@_EXCHANGES
def test_error_that_nccl_reports(tmp_path: Path, exchange: int) -> None:
    """An asynchronous error ends the rank at once, the other by the limit."""
    ended = _fail(tmp_path, f"run {exchange} 6 0", seconds="2")
    assert "remote process exited" in ended[0].results[0][-1]
    assert "did not end within 2 seconds" in ended[1].results[0][-1]


def test_communicator_of_another_gpu(tmp_path: Path) -> None:
    """It is refused before a rank waits for others."""
    cases = [_case(np.random.default_rng(3), 2, [_step("ALL_REDUCE")])]
    ended = run(tmp_path, cases, 2, {"RABBET_NCCL_STAND_IN_DEVICE": "1"})
    for rank in ended:
        assert "one of GPU 1; the engine is on GPU 0" in rank.results[0][-1]


_CALLS = [
    ("ncclCommSplit", 0, "ALL_REDUCE"),
    ("ncclSend", 1, "ALL_TO_ALL"),  # in the middle of a group
]
_FULL_CALLS = [
    ("ncclCommCount", 0, "ALL_REDUCE"),
    ("ncclCommUserRank", 0, "ALL_REDUCE"),
    ("ncclCommCuDevice", 0, "ALL_REDUCE"),
    ("ncclGetVersion", 1, "ALL_REDUCE"),  # number 0 is Python's
    ("ncclAllReduce", 1, "ALL_REDUCE"),
    ("ncclReduce", 0, "REDUCE"),
    ("ncclAllGather", 0, "ALL_GATHER"),
    ("ncclReduceScatter", 0, "REDUCE_SCATTER"),
    ("ncclBroadcast", 0, "BROADCAST"),
    ("ncclRecv", 0, "GATHER"),
    ("ncclSend", 0, "GATHER"),
    ("ncclRecv", 1, "ALL_TO_ALL"),
    ("ncclGroupStart", 0, "SCATTER"),
    ("ncclGroupEnd", 0, "SCATTER"),
]


@pytest.mark.parametrize(
    ("call", "number", "op"),
    [*_CALLS, *(pytest.param(*each, marks=pytest.mark.full) for each in _FULL_CALLS)],
)
def test_calls_that_fail(tmp_path: Path, call: str, number: int, op: str) -> None:
    """The rank whose call fails names it; the other does not hang."""
    ended = _fail(tmp_path, f"{call} {number} 3 0", op=op)
    assert call in ended[0].results[0][-1], ended[0]
    assert isinstance(ended[1].results[0][-1], str), ended[1]
    assert all(rank.code in (0, 86) for rank in ended)


@pytest.mark.full
@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("ncclGetVersion", "does not tell its version"),
        ("ncclGetUniqueId", "ncclGetUniqueId"),
        ("ncclCommInitRankConfig", "rank 0 of 2 joins the others"),
        ("ncclCommGetAsyncError", "rank 0 of 2 joins the others"),
    ],
)
def test_joining_that_fails(tmp_path: Path, call: str, text: str) -> None:
    """A rank that cannot make its communicator says why; the other gives up in time."""
    for rank, each in enumerate(_fail(tmp_path, f"{call} 0 3 0")):
        assert each.code == 1, each
        assert "UnavailableError" in each.errors
        assert rank == 1 or text in each.errors


def test_wrong_communicators(tmp_path: Path) -> None:
    """A communicator of another size names the layer, and so does a foreign group."""
    rng = np.random.default_rng(1)
    three = {**_case(rng, 2, [_step("ALL_REDUCE")]), "ranks": 3}
    group = _case(rng, 2, [{**_step("ALL_REDUCE"), "groups": [0, 5]}])
    for rank in run(tmp_path, [three, group], 2, {}):
        assert rank.code == 0, rank.errors
        assert "is made for 3 ranks, and the communicator has 2" in rank.results[0][0]
        assert "has rank 5 in its group" in rank.results[1][0]


def test_cancel(tmp_path: Path) -> None:
    """A run that waits for another rank ends, and the engine goes on."""
    processes = []
    for rank in range(2):
        more = {
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "RABBET_RENDEZVOUS": str(tmp_path),
        }
        processes.append(
            subprocess.Popen(
                [WITH, sys.executable, "-m", "tests.python.parallel.cancelled"],
                env={**os.environ, **more},
                cwd=ROOT,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    texts = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], texts
    assert texts[0].count("the run was cancelled") == 2
    assert all("went on" in text for text in texts)


def test_example(tmp_path: Path) -> None:
    """The example starts its ranks itself, and says where GPUs are missing."""
    command = [
        WITH,
        sys.executable,
        ROOT / "examples/collective/run.py",
        "--ranks",
        "2",
    ]
    few = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False
    )
    assert few.returncode == 1
    assert "needs 2 GPUs, and there are 1" in few.stderr
    shared = {
        **os.environ,
        "RABBET_EXAMPLE_SHARE_GPUS": "1",
        "RABBET_RENDEZVOUS": str(tmp_path),
    }
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env=shared
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("largest error") == 2
    none = subprocess.run(
        [*command[:-1], "0"], capture_output=True, text=True, timeout=60, check=False
    )
    assert none.returncode == 2
    assert "--ranks is 0; expected a divisor of 64" in none.stderr
