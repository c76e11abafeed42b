"""Exports one architecture in its near-real size:
python -m zoo.near_export KEY FOLDER

Leaves in the folder model.onnx (FP32, batch 1, no size varies), inputs.npz, results.npz
(the module's own), and facts.json, with an error if there is no file.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from . import near_real
from .entries import Entry, usual_forms
from .export import _reason, _tensors, _write
from .files import write_json

SEED = 1


def _made(entry: Entry, make: Any) -> tuple[Any, list[Any]]:
    """The module with its weights, flat, and its results."""
    import torch

    from .flat import Flat
    from .weights import settle

    torch.manual_seed(0)
    module = make().eval()
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    flat = Flat(entry, module).eval()
    inputs = _tensors(entry, SEED)
    settle(module, lambda: flat(*inputs))
    with torch.no_grad():
        return flat, list(flat(*inputs))


def _attempt(entry: Entry, make: Any, form: str, folder: Path) -> dict[str, Any]:
    import torch

    flat, results = _made(entry, make)
    arrays = {f"output_{i}": value.numpy() for i, value in enumerate(results)}
    if not all(np.isfinite(a).all() for a in arrays.values() if a.dtype.kind == "f"):
        raise ValueError("the module's results are not finite")
    file = folder / "model.onnx"
    with torch.no_grad():
        _write(entry, flat, file, form, "fp32", len(results), True)
    inputs = {
        i.name: tensor.numpy()
        for i, tensor in zip(entry.inputs, _tensors(entry, SEED), strict=True)
    }
    np.savez(folder / "inputs.npz", **_read_by(file, inputs))
    np.savez(folder / "results.npz", **arrays)
    size = sum(p.numel() for p in flat.parameters())
    return {"form": form, "parameters": size, "torch": torch.__version__}


def _read_by(file: Path, inputs: dict[str, Any]) -> dict[str, Any]:
    """The inputs that the file has: exporters leave out those that nothing reads."""
    import onnx

    model = onnx.load(file, load_external_data=False)
    names = {info.name for info in model.graph.input}
    return {name: value for name, value in inputs.items() if name in names}


def export(key: str, folder: Path) -> dict[str, Any]:
    """By the exporter that the name draws, or by another if that one cannot."""
    import torch

    torch.set_num_threads(1)
    torch.backends.mha.set_fastpath_enabled(False)
    warnings.simplefilter("ignore")
    entry = near_real.entry(key)
    forms = ["dynamo-fixed", "ts-fixed"]
    if usual_forms(key)[1] != "dynamo-dynamic":
        forms.reverse()
    ways = [(entry.make, form) for form in forms]
    if entry.fallback is not None:
        ways += [(entry.fallback, form) for form in forms]
    errors = []
    for make, form in ways:
        try:
            return _attempt(entry, make, form, folder)
        except Exception as error:
            errors.append(f"{form}: {_reason(error)}")
    return {"error": "; ".join(errors)}


def main() -> int:
    key, folder = sys.argv[1], Path(sys.argv[2])
    try:
        facts = export(key, folder)
    except Exception as error:
        facts = {"error": _reason(error)}
    write_json(folder / "facts.json", {"key": key, **facts})
    return 0


if __name__ == "__main__":
    sys.exit(main())
