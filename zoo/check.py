"""Builds and runs one exported file, and compares it with ONNX Runtime.

Runs in a process of its own. Findings are written to a JSON file one by one, so that
after a crash the file names the stage in which it happened.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .files import write_json
from .reference import Reference, error, make_reference, session
from .tf32 import rounded

BOUNDS = {"fp32": 1e-3, "mixed": 2e-2, "fp16": 2e-2, "bf16": 1e-1}
"""Norm of the difference from ONNX Runtime's FP32 results, over the norm of these.
"mixed" is the FP32 file, built with FP16 allowed."""
TF32_BOUND = 2e-2
"""Of "fp32" on a GPU, which multiplies FLOAT as TF32."""
ROUNDS = 5
MOST_ROUNDS = 100
SECONDS = 0.3


class _Findings:
    """The findings so far, in a file."""

    def __init__(self, path: Path, known: dict[str, Any]) -> None:
        self._path = path
        self._known = known

    def __call__(self, **found: Any) -> None:
        self._known |= found
        write_json(self._path, self._known)


def _import(path: Path) -> None:
    """Only imports the file, so that its failures can be told from those of the
    build."""
    import rabbet

    logger = rabbet.Logger(rabbet.Logger.ERROR)
    network = rabbet.Builder(logger).create_network()
    parser = rabbet.OnnxParser(network, logger)
    parser.parse_from_file(str(path))


def _errors(model: Any, reference: Reference, where: str) -> list[float]:
    results = list(model.run(reference.inputs[where]).values())
    pairs = zip(results, reference.outputs[where], strict=True)
    return [error(np.asarray(a), b) for a, b in pairs]


def compare(model: Any, reference: Reference) -> dict[str, list[float]]:
    """Errors of each output, at each size."""
    return {where: _errors(model, reference, where) for where in reference.inputs}


def again(
    model: Any, reference: Reference, errors: Mapping[str, Sequence[float]]
) -> dict[str, list[float]]:
    """Errors in FP32 at the sizes where they are too large because the reference jumps
    there: with inputs at which it does not."""
    found = {}
    for where, each in errors.items():
        if max(each, default=0.0) > BOUNDS["fp32"]:
            steady = reference.steady(where)
            if steady is not reference:
                found[where] = _errors(model, steady, where)
    return found


def _turns(calls: Sequence[Callable[[], Any]]) -> list[float]:
    """Median seconds of each call; they take turns."""
    samples: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + SECONDS * len(calls)
    for number in range(MOST_ROUNDS):
        if number >= ROUNDS and time.perf_counter() > end:
            break
        for call, times in zip(calls, samples, strict=True):
            begin = time.perf_counter()
            call()
            times.append(time.perf_counter() - begin)
    return [statistics.median(times) for times in samples]


@dataclass(frozen=True)
class Task:
    """spec: the JSON file of an export. kind: a key of BOUNDS. result: the file for what
    is found. torch_errors: at each size, how far torch's own results in that type are from
    FP32."""

    spec: str
    kind: str
    result: str
    device: str
    threads: int
    timed: bool
    level: int | None = None
    torch_errors: Mapping[str, float] = field(default_factory=dict)


def _as_tf32(task: Task) -> bool:
    return task.kind == "fp32" and task.device != "cpu"


def _inherent(task: Task, reference: Reference, path: Path) -> dict[str, float]:
    """The error that the type alone causes, at each size: that of torch's results, or
    of ONNX Runtime's for the model with factors rounded to TF32."""
    if not _as_tf32(task):
        return dict(task.torch_errors)
    exact = session(rounded(path), task.threads, optimized=False)
    found = {}
    for where, arrays in reference.inputs.items():
        pairs = zip(exact.run(None, arrays), reference.outputs[where], strict=True)
        found[where] = max((error(a, b) for a, b in pairs), default=0.0)
    return found


def judge(
    task: Task, reference: Reference, path: Path, errors: Mapping[str, Sequence[float]]
) -> dict[str, Any]:
    """Whether results are right; where some are further off than the usual bound, twice as
    much as is inherent at that size is."""
    least = TF32_BOUND if _as_tf32(task) else BOUNDS[task.kind]
    worst = {where: max(each, default=0.0) for where, each in errors.items()}
    facts = {"errors": errors, "worst": max(worst.values(), default=0.0)}
    if facts["worst"] <= least:
        return facts | {"right": True}
    inherent = _inherent(task, reference, path)
    bounds = {where: max(least, 2 * inherent.get(where, 0.0)) for where in worst}
    right = all(worst[where] <= bounds[where] for where in worst)
    return facts | {"right": right, "inherent": inherent}


def check(task: Task) -> None:
    """The result has an error under "error", with the stage it was in."""
    spec = json.loads(Path(task.spec).read_text())
    known = {k: spec[k] for k in ("key", "form")} | {"level": task.level}
    note = _Findings(
        Path(task.result), known | {"type": task.kind, "device": task.device}
    )
    try:
        _check(task, spec, note)
    except Exception as failure:
        note(error=f"{type(failure).__name__}: {failure}"[:1500])


def _check(task: Task, spec: Mapping[str, Any], note: _Findings) -> None:
    folder = Path(task.spec).parent
    note(stage="reference")
    reference = make_reference(spec, folder / spec["reference"])

    import rabbet

    path = folder / spec["file"]
    note(stage="import")
    _import(path)
    note(stage="build")
    begin = time.perf_counter()
    model = rabbet.compile(
        path,
        shapes=reference.ranges or None,
        device=task.device,
        threads=task.threads,
        fp16=task.kind == "mixed",
        optimization_level=task.level,
    )
    note(stage="run", build_s=time.perf_counter() - begin)
    errors = compare(model, reference)
    if task.kind == "fp32" and not _as_tf32(task):
        moved = again(model, reference, errors)
        if moved:
            note(jumped={where: errors[where] for where in moved})
        errors |= moved
    verdict = judge(task, reference, folder / spec["reference"], errors)
    note(stage="done", sizes=len(reference.inputs), **verdict)
    if task.timed:
        note(stage="time")
        arrays = reference.inputs["usual"]
        usual = session(folder / spec["reference"], task.threads, optimized=True)
        ours, theirs = _turns(
            [lambda: model.run(arrays), lambda: usual.run(None, arrays)]
        )
        note(seconds=ours, ort_seconds=theirs)
