"""Models by name, made once and kept under build/models/."""

from __future__ import annotations

import fcntl
import hashlib
import inspect
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import onnx

from . import light, quantized, resnet, simple, transformer

ROOT = Path(__file__).resolve().parents[2]
_EXTERNAL_BYTES = 1024  # smaller tensors stay inside the file


@dataclass(frozen=True)
class Recipe:
    """How a named model is made: a function and the options that it takes."""

    make: Callable[..., onnx.ModelProto]
    preset: dict[str, Any] = field(default_factory=dict)

    def options(self, given: dict[str, Any]) -> dict[str, Any]:
        """All options with their values; an unknown one is an error."""
        known = {
            name: parameter.default
            for name, parameter in inspect.signature(self.make).parameters.items()
        }
        for name in given:
            if name not in known:
                raise ValueError(
                    f"no option '{name}'; there are {', '.join(sorted(known))}"
                )
        return {**known, **self.preset, **given}


RECIPES: dict[str, Recipe] = {
    "resnet50": Recipe(resnet.resnet50),
    "resnet50_circular": Recipe(resnet.resnet50, {"padding": "plugin"}),
    "bert_base": Recipe(transformer.bert_base),
    "gpt2_small": Recipe(transformer.gpt2_small),
    "unet256": Recipe(simple.unet256),
    "mlp": Recipe(simple.mlp),
    "lstm": Recipe(simple.lstm),
    "elementwise200": Recipe(simple.elementwise200),
    "demo": Recipe(simple.demo),
    "resnet50_int8": Recipe(quantized.resnet50_int8),
    "light_int8": Recipe(quantized.light_int8),
    "decoder_int4": Recipe(quantized.decoder_int4),
    **{name: Recipe(light.light, {"model": name}) for name in light.names()},
}


def recipe(name: str) -> Recipe:
    """The recipe of a name."""
    if name not in RECIPES:
        raise ValueError(f"no model '{name}'; there are {', '.join(RECIPES)}")
    return RECIPES[name]


def make(name: str, **options: Any) -> onnx.ModelProto:
    """A model in memory."""
    chosen = recipe(name)
    return chosen.make(**chosen.options(options))


def save(model: onnx.ModelProto, path: Path, *, external: bool = False) -> None:
    """Writes a model; external: large tensors go to PATH.data beside it.

    Readers see the old file or the whole new one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    data = path.name + ".data"
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        unfinished = Path(folder) / path.name
        if external:
            copy = onnx.ModelProto()
            copy.CopyFrom(model)
            onnx.save_model(
                copy,
                unfinished,
                save_as_external_data=True,
                all_tensors_to_one_file=True,
                location=data,
                size_threshold=_EXTERNAL_BYTES,
            )
            if (Path(folder) / data).exists():
                os.replace(Path(folder) / data, path.with_name(data))
        else:
            onnx.save_model(model, unfinished)
        os.replace(unfinished, path)


@cache
def _sources() -> str:
    """A hash of what makes the models, so that edits are never served stale."""
    digest = hashlib.sha256(onnx.__version__.encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        if not source.name.startswith("test_"):
            digest.update(source.read_bytes())
    return digest.hexdigest()[:10]


def folder() -> Path:
    """Where models are kept: RABBET_MODEL_CACHE, or build/models/."""
    return Path(os.environ.get("RABBET_MODEL_CACHE", ROOT / "build" / "models"))


def cached(stem: str, key: str, write: Callable[[Path], None]) -> Path:
    """The file STEM-KEY.onnx, written by `write` unless it is there.

    Files that older sources made for the same key are removed. Processes that
    ask at once wait for the one that writes.
    """
    prefix = f"{stem}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"
    path = folder() / f"{prefix}-{_sources()}.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.parent / f"{prefix}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            for old in path.parent.glob(f"{prefix}-*"):
                shutil.rmtree(old) if old.is_dir() else old.unlink()
            write(path)
    return path


def model_path(name: str, *, external: bool = False, **options: Any) -> Path:
    """The file of a model, made if it is not there."""
    chosen = recipe(name)
    full = chosen.options(options)
    key = repr((sorted(full.items()), external))
    write = partial(save, external=external)
    return cached(name, key, lambda path: write(chosen.make(**full), path))
