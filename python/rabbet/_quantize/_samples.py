"""Calibration data: samples of a model's inputs, as each run takes them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .._arrays import as_numpy
from .._errors import DataLossError, InvalidArgumentError
from ._model import ValueInfo
from ._tensor import BFLOAT16, FLOAT, FLOAT16, NAMES, narrowed

Sample = dict[str, Any]


def _arrays_of(path: Path, inputs: Sequence[ValueInfo]) -> dict[str, Any]:
    """What a file holds, by name; a lone array is the only input's."""
    import zipfile

    import numpy as np

    try:
        found = np.load(path, allow_pickle=False)
        if not isinstance(found, np.ndarray):
            with found as file:
                return {name: file[name] for name in file.files}
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataLossError(f"calibration: '{path}' is no .npz file: {error}") from error
    return {_only(inputs, f"'{path}'"): found}


def _only(inputs: Sequence[ValueInfo], what: str) -> str:
    if len(inputs) != 1:
        names = ", ".join(each.name for each in inputs)
        raise InvalidArgumentError(
            f"calibration: {what} is one array, and the model has {len(inputs)} inputs "
            f"({names}): give arrays by name"
        )
    return inputs[0].name


def _groups(
    given: Any, inputs: Sequence[ValueInfo]
) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """(where from, {input: array}, whether that may be one run) of each file or item."""
    if isinstance(given, (str, os.PathLike)):
        path = Path(given)
        if not path.is_dir():
            yield f"'{path}'", _arrays_of(path, inputs), False
            return
        files = sorted(p for p in path.iterdir() if p.suffix in (".npz", ".npy"))
        if not files:
            raise InvalidArgumentError(f"calibration: '{path}' has no .npz files")
        for file in files:
            yield f"'{file}'", _arrays_of(file, inputs), False
    elif isinstance(given, Mapping):
        yield "the data", dict(given), False
    elif hasattr(given, "shape"):
        yield "the data", {_only(inputs, "the data"): given}, False
    elif isinstance(given, Iterable) and not isinstance(given, (bytes, bytearray)):
        for index, item in enumerate(given):
            where = f"item {index}"
            if not isinstance(item, Mapping):
                item = {_only(inputs, where): item}
            yield where, dict(item), True
    else:
        raise TypeError(
            "calibration: expected a .npz file, a folder of such, {input: array}, or an "
            f"iterable of such, got {type(given).__name__}"
        )


def _converted(info: ValueInfo, value: Any, where: str) -> Any:
    """An array of the input's type; floats become others, and integers do."""
    import numpy as np

    wanted = NAMES.get(info.dtype)
    array = as_numpy(value)
    if wanted is None:
        raise InvalidArgumentError(
            f"calibration: input '{info.name}' has type {info.dtype} of ONNX, which NumPy "
            "lacks"
        )
    floating = info.dtype in (FLOAT, FLOAT16, BFLOAT16, 11)
    kind = np.dtype("f4" if info.dtype == BFLOAT16 else wanted)
    kinds = "f" if floating else "b" if kind.kind == "b" else "iu"
    if array.dtype.kind not in kinds:
        raise InvalidArgumentError(
            f"calibration: {where} has {array.dtype} for input '{info.name}'; expected "
            f"{kind.name}"
        )
    with np.errstate(over="ignore"):
        made = np.asarray(array, kind, order="C")
    if floating and not np.isfinite(made).all():
        raise InvalidArgumentError(
            f"calibration: {where} has NaN or infinity for input '{info.name}'"
            + ("" if not np.isfinite(array).all() else f", as {kind.name}")
        )
    if not floating and array.size and not np.array_equal(made, array):
        raise InvalidArgumentError(
            f"calibration: {where} has numbers for input '{info.name}' that are beyond "
            f"those of {kind.name}"
        )
    return narrowed(made).reshape(array.shape) if info.dtype == BFLOAT16 else made


def _cut(info: ValueInfo, array: Any, where: str) -> list[Any]:
    """The array of each run: its first axis is samples, of which the model takes a batch
    at a time, or those of an axis more."""
    shape = info.shape
    if shape is None or array.ndim not in (len(shape), len(shape) + 1):
        known = "unknown" if shape is None else f"{len(shape)} dimensions, {_shown(shape)}"
        if shape is None:
            return [array]
        raise InvalidArgumentError(
            f"calibration: {where} has shape {array.shape} for input '{info.name}', which "
            f"has {known}"
        )
    own = array.shape[array.ndim - len(shape) :]
    axis_more = array.ndim > len(shape)
    first = 0 if axis_more or not shape else 1
    for wanted, found in zip(shape[first:], own[first:], strict=True):
        if wanted not in (-1, found):
            raise InvalidArgumentError(
                f"calibration: {where} has shape {array.shape} for input '{info.name}'; "
                f"expected {_shown(shape)}, with any number of samples first"
            )
    if array.size == 0:
        raise InvalidArgumentError(
            f"calibration: {where} has shape {array.shape} for input '{info.name}': no "
            "samples"
        )
    if axis_more:
        return list(array)
    if not shape:
        return [array]
    batch = max(shape[0], 1)
    if len(array) < batch:
        raise InvalidArgumentError(
            f"calibration: {where} has {len(array)} samples for input '{info.name}', "
            f"which takes {batch} at a time"
        )
    return [array[i : i + batch] for i in range(0, len(array) - batch + 1, batch)]


def _shown(shape: Sequence[int]) -> str:
    return "(" + ", ".join("?" if d < 0 else str(d) for d in shape) + ")"


def _fits(info: ValueInfo, array: Any) -> bool:
    """Whether the input takes the array as it is."""
    shape = array.shape if info.shape is None else info.shape
    return len(shape) == array.ndim and all(
        wanted in (-1, found) for wanted, found in zip(shape, array.shape, strict=True)
    )


def _runs(
    where: str, arrays: Mapping[str, Any], is_run: bool, inputs: Sequence[ValueInfo]
) -> list[Sample]:
    names = [each.name for each in inputs]
    missing = [name for name in names if name not in arrays]
    unknown = [name for name in arrays if name not in names]
    if missing:
        raise InvalidArgumentError(
            f"calibration: {where} lacks input{'s' * (len(missing) > 1)} "
            f"{', '.join(map(repr, missing))}; it has "
            f"{', '.join(map(str, arrays)) or 'none'}"
        )
    if unknown:
        raise InvalidArgumentError(
            f"calibration: {where} has {', '.join(map(repr, unknown))}, and the model no "
            f"such input; it has {', '.join(names)}"
        )
    made = {info.name: _converted(info, arrays[info.name], where) for info in inputs}
    if is_run and all(_fits(info, made[info.name]) for info in inputs):
        if made and not any(array.size for array in made.values()):
            raise InvalidArgumentError(f"calibration: {where} has no samples: all is empty")
        return [made]
    cut = {info.name: _cut(info, made[info.name], where) for info in inputs}
    counts = {name: len(parts) for name, parts in cut.items()}
    count = max(counts.values())
    # An input with one part is the same in all runs.
    if any(each not in (1, count) for each in counts.values()):
        listed = ", ".join(f"'{name}' {each}" for name, each in counts.items())
        raise InvalidArgumentError(
            f"calibration: {where} has different numbers of samples: {listed}"
        )
    return [
        {name: parts[i if len(parts) > 1 else 0] for name, parts in cut.items()}
        for i in range(count)
    ]


def read_samples(
    given: Any, inputs: Sequence[ValueInfo], limit: int | None
) -> list[Sample]:
    """The inputs of each run, at most `limit` of them. InvalidArgumentError says what is
    wrong with data, and where."""
    found: list[Sample] = []
    for where, arrays, is_run in _groups(given, inputs):
        found += _runs(where, arrays, is_run, inputs)
        if limit is not None and len(found) >= limit:
            return found[:limit]
    if not found:
        raise InvalidArgumentError("calibration: the data are empty")
    return found


def spread(samples: Sequence[Sample], count: int) -> list[Sample]:
    """So many of the samples, evenly from all."""
    step = max(len(samples) / count, 1.0)
    return [samples[int(i * step)] for i in range(min(count, len(samples)))]
