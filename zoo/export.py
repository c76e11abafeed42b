"""Exports one architecture in one form, in all the types that are asked for.

Runs in a process of its own. For each type it leaves NAME.onnx and NAME.json, which
says what the file takes and how it was made.
"""

from __future__ import annotations

import contextlib
import copy
import math
import os
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from . import catalogue, feeds
from .entries import Entry
from .files import stem, write_json
from .reference import SEED

OPSET = 17
"""Of TorchScript's exporter; the other takes its own default."""
OPSET_BF16 = 22
"""The first in which convolutions, poolings and many others take BF16."""
LEAST_CHANGE = 0.02
"""How far results for two inputs lie apart at least, over their size."""
MOST_UNREST = 1e-4
"""How far results move at most when inputs are a millionth off: rounding has the same
effect."""
MOST_ERROR = 0.25
"""How far a module's own results in FP16 and BF16 may be from FP32."""


class UnfitError(Exception):
    """The module cannot be used: its results say nothing."""


def _spec(entry: Entry, dynamic: bool) -> dict[str, Any]:
    """The facts about an entry that check needs."""
    dims = dict(entry.dims)
    if not dynamic:
        dims = {name: (usual,) * 3 for name, (_, usual, _) in dims.items()}
    inputs = [vars(i) for i in entry.inputs]
    shapes = {
        where: {i.name: feeds.shape_at(i.shape, sizes) for i in entry.inputs}
        for where, sizes in feeds.points(dims).items()
    }
    return {"inputs": inputs, "dims": dims, "shapes": shapes}


def _tensors(entry: Entry, seed: int, place: str = "usual") -> tuple[Any, ...]:
    """place: one of `feeds.points`."""
    import torch

    sizes = feeds.points(entry.dims).get(place, feeds.usual(entry.dims))
    found = feeds.arrays(entry.inputs, sizes, seed)
    return tuple(torch.from_numpy(array) for array in found.values())


def _varying(entry: Entry) -> list[dict[int, str]]:
    """For each input, a name for each axis whose extent may vary."""
    return [
        {axis: str(d) for axis, d in enumerate(i.shape) if isinstance(d, str)}
        for i in entry.inputs
    ]


def _symbol(expression: str) -> str:
    """A name that exporters accept."""
    words = {"+": "plus", "*": "times", "-": "minus", "//": "over"}
    return "_".join(words.get(word, word) for word in expression.split())


def _write(
    entry: Entry,
    flat: Any,
    path: Path,
    form: str,
    kind: str,
    outputs: int,
    optimize: bool,
) -> None:
    """optimize: by torch.export's exporter, after it wrote the graph."""
    import torch

    args = _tensors(entry, 1)
    exporter, sizes = form.split("-")
    names = [i.name for i in entry.inputs]
    results = [f"output_{i}" for i in range(outputs)]
    options: dict[str, Any] = {"input_names": names, "output_names": results}
    if exporter == "ts":
        options |= {"dynamo": False, "opset_version": OPSET}
        if sizes == "dynamic":
            options["dynamic_axes"] = {
                name: {axis: _symbol(d) for axis, d in axes.items()}
                for name, axes in zip(names, _varying(entry), strict=True)
            }
    else:
        options |= {"dynamo": True, "verbose": False, "external_data": False}
        if (
            kind == "bf16"
        ):  # optimized, convolutions have a normalization's FP32 weights
            options |= {"opset_version": OPSET_BF16, "optimize": False}
        if sizes == "dynamic":
            auto = torch.export.Dim.AUTO
            shapes = tuple(dict.fromkeys(axes, auto) for axes in _varying(entry))
            options["dynamic_shapes"] = (shapes,)
    is_script = isinstance(flat.module, torch.jit.ScriptModule)  # part of no trace
    torch.onnx.export(flat.module if is_script else flat, args, str(path), **options)


def _unrest(flat: Any, tensors: Sequence[Any], results: Sequence[Any]) -> float:
    """How much `results` change when the inputs change by a millionth."""
    import torch

    from .weights import difference

    generator = torch.Generator().manual_seed(0)
    near = [
        t * (1 + 1e-6 * torch.randn(t.shape, generator=generator))
        if t.is_floating_point()
        else t
        for t in tensors
    ]
    return max(difference(list(flat(*near)), results), default=0.0)


def _settled(
    entry: Entry, make: Callable[[], Any]
) -> tuple[Any, list[Any], dict[str, float]]:
    """The module with its weights, its results, and how far these vary."""
    import torch

    from .flat import Flat
    from .weights import difference, settle

    torch.manual_seed(0)
    module = make().eval()
    for parameter in module.parameters():  # scripts have no requires_grad_
        parameter.requires_grad_(False)
    flat = Flat(entry, module).eval()
    unrest = math.inf
    for sample in (1, 3, 4):
        # At the largest sizes, where convolutions see the least padding and sums are longest.
        inputs = _tensors(entry, sample, "largest")
        settle(module, lambda given=inputs: flat(*given))
        with torch.no_grad():
            first, second = (list(flat(*_tensors(entry, seed))) for seed in (1, 2))
            unrest = _unrest(flat, _tensors(entry, 2), second)
        if unrest <= MOST_UNREST:
            break
    if not all(bool(torch.isfinite(t).all()) for t in first + second):
        raise UnfitError("the module's FP32 results are not finite")
    if not unrest <= MOST_UNREST:
        raise UnfitError(f"inputs a millionth off move the results by {unrest:.2g}")
    changes = difference(first, second)
    if changes and max(changes) < LEAST_CHANGE:
        raise UnfitError(
            f"results for two inputs differ by {max(changes):.2g} of their size"
        )
    facts = {
        "parameters": sum(p.numel() for p in module.parameters()),
        "change": max(changes, default=1.0),
        "unchanged_outputs": sum(c < LEAST_CHANGE for c in changes),
    }
    return module, first, facts


def _halved(entry: Entry, module: Any, kind: str) -> tuple[Any, dict[str, float]]:
    """The module in FP16 or BF16, and how far torch's own results then are from FP32, at
    each size and for the inputs that checks take."""
    import torch

    from .flat import Flat
    from .weights import difference

    half = {"fp16": torch.float16, "bf16": torch.bfloat16}[kind]
    whole = Flat(entry, module).eval()
    flat = Flat(entry, copy.deepcopy(module), half).eval()
    errors = {}
    for where in feeds.points(entry.dims):
        given = _tensors(entry, SEED, where)
        with torch.no_grad():
            first, results = list(whole(*given)), list(flat(*given))
        if not all(bool(torch.isfinite(t).all()) for t in results):
            raise UnfitError(f"the module's {kind.upper()} results are not finite")
        if any(a.shape != b.shape for a, b in zip(first, results, strict=True)):
            raise UnfitError(f"in {kind.upper()} the results have other sizes")
        errors[where] = max(difference(results, first), default=0.0)
    if max(errors.values()) > MOST_ERROR:
        worst = max(errors.values())
        raise UnfitError(f"in {kind.upper()} the module itself is {worst:.0%} off")
    return flat, errors


def _load(path: Path) -> None:
    """Fails where ONNX Runtime refuses the file. That it has no kernels for the CPU of
    FP16 or BF16 does not matter: it finds so when all types are known to fit."""
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as native

    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.graph_optimization_level = level
    providers = ["CPUExecutionProvider"]
    with contextlib.suppress(native.NotImplemented):
        onnxruntime.InferenceSession(str(path), options, providers=providers)


def _one(
    entry: Entry,
    module: Any,
    form: str,
    kind: str,
    first: list[Any],
    folder: Path,
    optimize: bool = True,
) -> dict[str, Any]:
    import torch

    from .flat import Flat

    facts: dict[str, Any] = {}
    if kind != "fp32" and isinstance(module, torch.jit.ScriptModule):
        raise UnfitError("a script is exported as it is, in FP32")
    if kind == "bf16" and form.startswith("ts"):
        raise UnfitError("TorchScript's exporter does not write BF16")
    if kind == "fp32":
        flat = Flat(entry, module).eval()
    else:
        flat, facts["torch_errors"] = _halved(entry, module, kind)
    path = folder / f"{stem(entry.key, form, kind)}.onnx"
    temporary = path.with_suffix(".onnx.part")
    with torch.no_grad():
        _write(entry, flat, temporary, form, kind, len(first), optimize)
    if kind != "fp32":  # exporters leave operands of other types there at times
        _load(temporary)
    os.replace(temporary, path)
    return {"file": path.name, **facts}


def _reason(error: BaseException) -> str:
    """An error's innermost cause, in a few lines."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:400]}"


def _written_out(entry: Entry, module: Any) -> Any:
    """The module as `entry.fallback` makes it, with the same weights."""
    import torch

    assert entry.fallback is not None
    other = entry.fallback().eval().requires_grad_(False)
    values = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    with torch.no_grad():
        for name, value in [*other.named_parameters(), *other.named_buffers()]:
            value.copy_(values[name])
    return other


def _halves(
    entry: Entry, module: Any, form: str, kind: str, first: list[Any], folder: Path
) -> dict[str, Any]:
    """Exports in other ways if the exporter mixes types: the optimizer of
    torch.export's gives convolutions a normalization's weights in FP32, and
    TorchScript's adds masks in FP32 to products in FP16."""
    given = (form, kind, first, folder)
    ways = [lambda: _one(entry, module, *given)]
    if kind == "bf16":
        ways.append(lambda: _one(entry, module, *given, optimize=False))
    if entry.fallback is not None:
        ways.append(lambda: _one(entry, _written_out(entry, module), *given))
    errors = []
    for way in ways:
        try:
            return way()
        except Exception as error:
            errors.append(error)
    raise errors[0]


def _attempt(
    entry: Entry, make: Callable[[], Any], form: str, kinds: Sequence[str], folder: Path
) -> list[dict[str, Any]]:
    """Exports all types of a module that `make` gives. FP32 is first: the others are
    compared with it."""
    found: list[dict[str, Any]] = []
    module = first = None
    facts: dict[str, Any] = {}
    for kind in kinds:
        begin = time.perf_counter()
        try:
            if module is None:
                module, first, facts = _settled(entry, make)
            export_one = _one if kind == "fp32" else _halves
            found.append(facts | export_one(entry, module, form, kind, first, folder))
        except Exception as error:
            found.append(facts | {"error": _reason(error)})
        found[-1] |= {"type": kind, "seconds": time.perf_counter() - begin}
        if module is None or "error" in found[0]:
            break
    return found


def export(
    key: str, form: str, kinds: Sequence[str], folder: str, version: str
) -> None:
    """Exports with the installed library. An error is written to the JSON file, under
    "error"."""
    import torch

    torch.set_num_threads(1)
    # torch's own fused layer has no form in ONNX.
    torch.backends.mha.set_fastpath_enabled(False)
    warnings.simplefilter("ignore")
    entry = catalogue.entries()[key]
    base = {
        "key": key,
        "form": form,
        "version": version,
        "reference": f"{stem(key, form, 'fp32')}.onnx",
        **_spec(entry, form.endswith("dynamic")),
    }
    found = _attempt(entry, entry.make, form, kinds, Path(folder))
    if "error" in found[0] and entry.fallback is not None:
        again = _attempt(entry, entry.fallback, form, kinds, Path(folder))
        found = found if "error" in again[0] else again
    for one in found:
        write_json(Path(folder) / f"{stem(key, form, one['type'])}.json", base | one)
