"""ONNX Runtime's results for a file, and how far others are from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from . import feeds
from .entries import Dims, Input

SEED = 2
"""Of the inputs; the weights were scaled with those of another."""
OTHER_SEEDS = (5, 6, 7)
"""Of inputs that replace those at which the reference jumps."""
MOST_JUMP = 1e-3
"""How far the reference moves at most when inputs are a millionth off. Rounding has the
same effect, so results beyond it say nothing: where a detected box's edge is cut to an
integer and lies within its rounding error of one, the box's mask takes a pixel more or less."""
NEAR_INPUTS = 8
Array = feeds.Array


class RandomError(Exception):
    """The model draws random numbers, so that its results cannot be compared."""


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


def session(model: Path | bytes, threads: int, optimized: bool) -> Any:
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


def _near(arrays: Mapping[str, Array], rng: np.random.Generator) -> dict[str, Array]:
    """The inputs, those of floating types a millionth off."""
    return {
        name: (x * (1 + 1e-6 * rng.standard_normal(x.shape))).astype(x.dtype)
        if np.issubdtype(x.dtype, np.floating)
        else x
        for name, x in arrays.items()
    }


@dataclass(frozen=True)
class Reference:
    """ONNX Runtime's results for the FP32 file, at several sizes.

    ranges: least, usual and largest shape of each input that has dynamic ones.
    inputs, outputs: by the names of `feeds.points`."""

    session: Any
    dims: Dims
    specs: Sequence[Input]
    ranges: dict[str, tuple[Any, ...]]
    inputs: dict[str, dict[str, Array]]
    outputs: dict[str, list[Array]]

    def jump(self, where: str) -> float:
        """The most that results at a size move when the inputs are a millionth off."""
        rng = np.random.default_rng(SEED)
        expected, most = self.outputs[where], 0.0
        for _ in range(NEAR_INPUTS):
            moved = self.session.run(None, _near(self.inputs[where], rng))
            pairs = zip(moved, expected, strict=True)
            most = max(most, *(error(a, b) for a, b in pairs))
        return most

    def drawn(self, where: str, seed: int) -> Reference:
        """With other inputs at one size."""
        arrays = feeds.arrays(self.specs, feeds.points(self.dims)[where], seed)
        results = self.session.run(None, arrays)
        return replace(
            self,
            inputs=self.inputs | {where: arrays},
            outputs=self.outputs | {where: results},
        )

    def steady(self, where: str) -> Reference:
        """With inputs at which results do not jump at that size; itself if they do not, or
        if no other inputs are better."""
        found = self
        for seed in OTHER_SEEDS:
            if found.jump(where) <= MOST_JUMP:
                return found
            found = self.drawn(where, seed)
        return found if found.jump(where) <= MOST_JUMP else self


def _taken(
    found: Any, spec: Mapping[str, Any]
) -> tuple[dict[str, tuple[int, int, int]], list[Input]]:
    """The dimensions and inputs as the file has them: exporters drop inputs that
    change nothing, and fix sizes that a module does not let vary."""
    inputs = [Input(**{**i, "shape": tuple(i["shape"])}) for i in spec["inputs"]]
    shapes = {i.name: i.shape for i in found.get_inputs()}
    inputs = [i for i in inputs if i.name in shapes]
    dims = {name: tuple(values) for name, values in spec["dims"].items()}
    for one in inputs:
        for wanted, there in zip(one.shape, shapes[one.name], strict=True):
            if isinstance(there, int) and isinstance(wanted, str):
                for name in set(wanted.split()) & set(dims):
                    dims[name] = (dims[name][1],) * 3
    return dims, inputs


def _same(a: Any, b: Any) -> bool:
    """Bit for bit."""
    return np.asarray(a).tobytes() == np.asarray(b).tobytes()


def _reference(found: Any, dims: Dims, inputs: Sequence[Input]) -> Reference:
    dynamic = {
        i.name
        for i in found.get_inputs()
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
    outputs = {where: found.run(None, arrays) for where, arrays in given.items()}
    again = found.run(None, given["usual"])
    if any(not _same(a, b) for a, b in zip(outputs["usual"], again, strict=True)):
        raise RandomError("results of two runs with the same inputs differ")
    return Reference(found, dims, inputs, ranges, given, outputs)


def make_reference(spec: Mapping[str, Any], path: Path) -> Reference:
    """Where the file does not run at all sizes, since the exporter wrote some of them
    down, at the usual ones alone."""
    found = session(path, threads=1, optimized=False)
    dims, inputs = _taken(found, spec)
    try:
        return _reference(found, dims, inputs)
    except RandomError:
        raise
    except Exception:
        fixed = {name: (usual,) * 3 for name, (_, usual, _) in dims.items()}
        if fixed == dims:
            raise
        return _reference(found, fixed, inputs)
