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

from . import feeds
from .entries import Dims, Input
from .files import write_json
from .tf32 import rounded

BOUNDS = {"fp32": 1e-3, "mixed": 2e-2, "fp16": 2e-2, "bf16": 1e-1}
"""Norm of the difference from ONNX Runtime's FP32 results, over the norm of these.
"mixed" is the FP32 file, built with FP16 allowed."""
TF32_BOUND = 2e-2
"""Of "fp32" on a GPU, which multiplies FLOAT as TF32."""
SEED = 2
"""Of the inputs; the weights were scaled with those of another."""
ROUNDS = 5
MOST_ROUNDS = 100
SECONDS = 0.3
Array = feeds.Array


class RandomError(Exception):
    """The model draws random numbers, so that its results cannot be compared."""


class _Findings:
    """The findings so far, in a file."""

    def __init__(self, path: Path, known: dict[str, Any]) -> None:
        self._path = path
        self._known = known

    def __call__(self, **found: Any) -> None:
        self._known |= found
        write_json(self._path, self._known)


def error(result: Array, reference: Array) -> float:
    """The relative error; for integers, the share of elements that differ. Infinite if
    the sizes differ, or if elements that are not finite are not the same in both."""
    if result.shape != reference.shape:
        return float("inf")
    if reference.size == 0:
        return 0.0
    if not np.issubdtype(reference.dtype, np.floating):
        return float(np.mean(result != reference))
    expected, found = reference.astype(np.float64), result.astype(np.float64)
    finite = np.isfinite(expected)
    rest = np.where(finite, 0, expected)
    if not np.array_equal(rest, np.where(np.isfinite(found), 0, found), equal_nan=True):
        return float("inf")
    expected = np.where(finite, expected, 0)
    gap = float(np.linalg.norm(np.where(finite, found, 0) - expected))
    norm = float(np.linalg.norm(expected))
    return gap / norm if norm else float("inf") if gap else 0.0


@dataclass(frozen=True)
class Reference:
    """ONNX Runtime's results for the FP32 file, at several sizes.

    ranges: least, usual and largest shape of each input that has dynamic ones.
    inputs, outputs: by the names of `feeds.points`."""

    ranges: dict[str, tuple[Any, ...]]
    inputs: dict[str, dict[str, Array]]
    outputs: dict[str, list[Array]]


def _session(model: Path | bytes, threads: int, optimized: bool) -> Any:
    """optimized: as people run it. Without, it is the reference: what its 1.31 makes of
    yolov3-tiny's poolings is 10 % off."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    if not optimized:
        level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.graph_optimization_level = level
    providers = ["CPUExecutionProvider"]
    given = model if isinstance(model, bytes) else str(model)
    return onnxruntime.InferenceSession(given, options, providers=providers)


def _taken(
    session: Any, spec: Mapping[str, Any]
) -> tuple[dict[str, tuple[int, int, int]], list[Input]]:
    """The dimensions and inputs as the file has them: exporters drop inputs that
    change nothing, and fix sizes that a module does not let vary."""
    inputs = [Input(**{**i, "shape": tuple(i["shape"])}) for i in spec["inputs"]]
    found = {i.name: i.shape for i in session.get_inputs()}
    inputs = [i for i in inputs if i.name in found]
    dims = {name: tuple(values) for name, values in spec["dims"].items()}
    for one in inputs:
        for wanted, there in zip(one.shape, found[one.name], strict=True):
            if isinstance(there, int) and isinstance(wanted, str):
                for name in set(wanted.split()) & set(dims):
                    dims[name] = (dims[name][1],) * 3
    return dims, inputs


def make_reference(spec: Mapping[str, Any], path: Path) -> Reference:
    """Where the file does not run at all sizes, since the exporter wrote some of them
    down, at the usual ones alone."""
    session = _session(path, threads=1, optimized=False)
    dims, inputs = _taken(session, spec)
    try:
        return _reference(session, dims, inputs)
    except RandomError:
        raise
    except Exception:
        fixed = {name: (usual,) * 3 for name, (_, usual, _) in dims.items()}
        if fixed == dims:
            raise
        return _reference(session, fixed, inputs)


def _same(a: Any, b: Any) -> bool:
    """Bit for bit."""
    return np.asarray(a).tobytes() == np.asarray(b).tobytes()


def _reference(session: Any, dims: Dims, inputs: Sequence[Input]) -> Reference:
    dynamic = {
        i.name
        for i in session.get_inputs()
        if any(not isinstance(extent, int) for extent in i.shape)
    }
    corners = [{name: values[k] for name, values in dims.items()} for k in range(3)]
    ranges = {
        i.name: tuple(feeds.shape_at(i.shape, corner) for corner in corners)
        for i in inputs
        if i.name in dynamic
    }
    given = {
        where: feeds.arrays(inputs, sizes, SEED)
        for where, sizes in feeds.points(dims).items()
    }
    outputs = {where: session.run(None, arrays) for where, arrays in given.items()}
    again = session.run(None, given["usual"])
    if any(not _same(a, b) for a, b in zip(outputs["usual"], again, strict=True)):
        raise RandomError("results of two runs with the same inputs differ")
    return Reference(ranges, given, outputs)


def _import(path: Path) -> None:
    """Only imports the file, so that its failures can be told from those of the
    build."""
    import rabbet

    logger = rabbet.Logger(rabbet.Logger.ERROR)
    network = rabbet.Builder(logger).create_network()
    parser = rabbet.OnnxParser(network, logger)
    parser.parse_from_file(str(path))


def compare(model: Any, reference: Reference) -> dict[str, list[float]]:
    """Errors of each output, at each size."""
    found = {}
    for where, arrays in reference.inputs.items():
        results = list(model.run(arrays).values())
        expected = reference.outputs[where]
        found[where] = [
            error(np.asarray(a), b) for a, b in zip(results, expected, strict=True)
        ]
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
    session = _session(rounded(path), task.threads, optimized=False)
    found = {}
    for where, arrays in reference.inputs.items():
        pairs = zip(session.run(None, arrays), reference.outputs[where], strict=True)
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
    verdict = judge(task, reference, folder / spec["reference"], errors)
    note(stage="done", sizes=len(reference.inputs), **verdict)
    if task.timed:
        note(stage="time")
        arrays = reference.inputs["usual"]
        session = _session(folder / spec["reference"], task.threads, optimized=True)
        ours, theirs = _turns(
            [lambda: model.run(arrays), lambda: session.run(None, arrays)]
        )
        note(seconds=ours, ort_seconds=theirs)
