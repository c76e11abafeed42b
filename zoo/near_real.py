"""The architectures of the catalogue in sizes in which people deploy them, for measuring.

A library's own defaults are the published sizes of most; what is larger has fewer layers,
or the widths of a smaller member of its family, so that a model has some 100 million
parameters at most. Inputs have the sizes that are usual for a model: images of 224 to 1024
pixels, prompts of 256 tokens, texts of 128, clips of 16 frames, sound of three seconds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from . import catalogue
from .entries import BATCH, Dims, Entry, Input, image
from .near_real_sizes import (
    CLIPS,
    DIFFUSERS,
    LEFT_OUT,
    LENGTHS,
    OWN_LENGTHS,
    PICTURES,
    TENSORS,
    TORCHVISION,
    VARYING,
    options_of,
)

# ---- The draw ----


def architectures(fixed: bool = False) -> list[str]:
    """The architectures with near-real sizes. fixed: those alone whose results' sizes
    the inputs' sizes tell, which a recorded graph can compute."""
    found = [
        key
        for key in catalogue.entries()
        if not key.startswith("torch/") and key not in LEFT_OUT
    ]
    return [key for key in found if not (fixed and key in VARYING)]


def draw(count: int, seed: str, fixed: bool = False) -> list[str]:
    """Architectures at random. One that comes or goes leaves the order of the others."""

    def place(key: str) -> str:
        return hashlib.sha256(f"{seed} {key}".encode()).hexdigest()

    return sorted(architectures(fixed), key=place)[:count]


# ---- Entries ----


def entry(key: str, batch: int = 1) -> Entry:
    """An architecture in its near-real size, with inputs of one size. Imports its
    library."""
    library = key.partition("/")[0]
    small = catalogue.entries()[key]
    found = _MAKERS[library](small)
    return replace(found, dims=_fixed({**found.dims, "batch": (batch,) * 3}))


def _fixed(dims: Dims) -> Dims:
    return {name: (usual,) * 3 for name, (_, usual, _) in dims.items()}


def _usual(**sizes: int) -> Dims:
    return {name: (size,) * 3 for name, size in sizes.items()}


def _timm_module(name: str) -> Any:
    import timm

    return timm.create_model(name, pretrained=False)


def _timm(small: Entry) -> Entry:
    import timm

    size = timm.get_pretrained_cfg(small.name).input_size[-1]
    make = partial(_timm_module, small.name)
    return replace(small, make=make, inputs=[image(size)], dims=BATCH)


def _torchvision_module(name: str, options: Mapping[str, Any]) -> Any:
    import torchvision

    return torchvision.models.get_model(name, weights=None, **options)


def _torchvision(small: Entry) -> Entry:
    name, size, options = TORCHVISION[small.name]
    if small.name in CLIPS:
        inputs = [Input("x", ("batch", 3, 16, size, size))]
    elif len(small.inputs) == 2:
        inputs = [replace(i, shape=("batch", 3, size, size)) for i in small.inputs]
    elif small.call is not None:  # detectors
        inputs = [Input("x", (3, 480, size), "unit")]
    else:
        inputs = [image(size)]
    make = partial(_torchvision_module, name, options)
    return replace(small, make=make, inputs=inputs, dims=BATCH)


def _still(make: Callable[[], Any]) -> Any:
    """A detector whose anchors are made once, for its one size."""
    module = make()
    for child in module.modules():
        if hasattr(child, "dynamic"):
            child.dynamic = False
    return module


def _ultralytics(small: Entry) -> Entry:
    size = 224 if small.name.endswith("-cls") else 640
    make = partial(_still, small.make)
    return replace(small, make=make, inputs=[image(size)], dims=BATCH)


def _diffusers(small: Entry) -> Entry:
    make, options = small.make.func, small.make.args[-1]  # type: ignore[attr-defined]
    factory = small.make.args[0]  # type: ignore[attr-defined]
    sizes, shapes, dims = DIFFUSERS[small.name]
    inputs = [replace(i, shape=shapes.get(i.name, i.shape)) for i in small.inputs]
    given = {**options, **sizes}
    made = partial(make, factory, {k: v for k, v in given.items() if v is not None})
    return replace(small, make=made, inputs=inputs, dims=_usual(**dims))


def _past(options: Mapping[str, Any]) -> list[Input]:
    """Keys and values of a decoder's step, which DECODER's sizes make."""
    layers = options.get("num_hidden_layers", options.get("n_layer", 4))
    heads = options.get("num_key_value_heads", 16)
    return [
        Input(f"past_{part}_{i}", ("batch", heads, "past", 64))
        for i in range(layers)
        for part in ("key", "value")
    ]


def _transformers(small: Entry) -> Entry:
    make: Any = small.make
    kind, auto, attention, given = make.args
    options = options_of(small.name, auto, given)
    size = PICTURES.get(small.name, (224, 224))
    inputs = []
    for one in small.inputs:
        if one.name.startswith(("past_key_", "past_value_")):
            continue
        shape: tuple[int | str, ...] = one.shape
        if one.name == "pixel_values":
            shape = (*one.shape[:-2], *size)
        inputs.append(replace(one, shape=TENSORS.get((small.name, one.name), shape)))
    if len(inputs) < len(small.inputs):
        inputs += _past(options)
    made = partial(make.func, kind, auto, attention, options)
    other = small.fallback and partial(make.func, kind, auto, "eager", options)
    dims = _usual(**{**LENGTHS, **OWN_LENGTHS.get(small.name, {})})
    return replace(small, make=made, fallback=other, inputs=inputs, dims=dims)


_MAKERS = {
    "timm": _timm,
    "torchvision": _torchvision,
    "ultralytics": _ultralytics,
    "diffusers": _diffusers,
    "transformers": _transformers,
}
