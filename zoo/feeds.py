"""Arrays for the inputs of a model, from a seed, and the shapes they take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .entries import Dims, Input

Array = NDArray[Any]
Sizes = Mapping[str, int]


def _mask(rng: np.random.Generator, shape: Sequence[int], high: int) -> Array:
    """Ones; each row of a batch ends one element earlier than the row before."""
    mask = np.ones(shape, np.int64)
    for row in range(shape[0] if len(shape) == 2 else 0):
        mask[row, max(1, shape[1] - row) :] = 0
    return mask


def _box_mask(rng: np.random.Generator, shape: Sequence[int], high: int) -> Array:
    mask = np.zeros(shape, np.float32)
    mask[..., : (shape[-1] + 1) // 2] = 1
    return mask


def _boxes(rng: np.random.Generator, shape: Sequence[int], high: int) -> Array:
    """Corners of boxes in images of `high` pixels."""
    corners = np.sort(rng.random((*shape[:-1], 2, 2)), axis=-2).reshape(shape)
    return (corners * high).astype(np.float32)


def _normal(rng: np.random.Generator, shape: Sequence[int], high: int) -> Array:
    """Noise over stripes and a level of each plane: of noise alone, each mean over many
    values is the same, and a network that pools cannot tell its inputs apart."""
    values = rng.standard_normal(shape, np.float32)
    if len(shape) < 3:
        return values
    level = rng.standard_normal((*shape[:-2], 1, 1), np.float32)
    stripes = rng.standard_normal((*shape[:-2], 1, shape[-1]), np.float32)
    return np.float32(0.6) * (values + level + stripes)


KINDS = {
    "normal": _normal,
    "unit": lambda rng, shape, high: rng.random(shape, np.float32),
    "wide": lambda rng, shape, high: rng.random(shape, np.float32) * high,
    # The first few numbers are special in many vocabularies.
    "ids": lambda rng, shape, high: rng.integers(min(5, high - 1), high, shape),
    "step": lambda rng, shape, high: rng.integers(0, high, shape),
    "zero": lambda rng, shape, high: np.zeros(shape, np.int64),
    "bytes": lambda rng, shape, high: rng.integers(0, 256, shape, np.uint8),
    "mask": _mask,
    "boolean": lambda rng, shape, high: _mask(rng, shape, high).astype(bool),
    "area": _box_mask,
    "boxes": _boxes,
    "corners": lambda rng, shape, high: np.sort(
        rng.integers(0, high, (*shape[:-1], 2, 2)), axis=-2
    ).reshape(shape),
}


def shape_at(shape: Sequence[int | str], sizes: Sizes) -> tuple[int, ...]:
    """A shape with its expressions evaluated; they come from the catalogue alone."""
    return tuple(
        d if isinstance(d, int) else int(eval(d, {"__builtins__": {}}, dict(sizes)))
        for d in shape
    )


def usual(dims: Dims) -> dict[str, int]:
    return {name: values[1] for name, values in dims.items()}


def points(dims: Dims) -> dict[str, dict[str, int]]:
    """Sizes to run a model with: the usual ones, the least, the largest, and some of each."""
    if not dims or all(low == high for low, _, high in dims.values()):
        return {"usual": usual(dims)}
    found = {
        "usual": usual(dims),
        "least": {name: values[0] for name, values in dims.items()},
        "largest": {name: values[2] for name, values in dims.items()},
        "mixed": {
            name: values[2 if i % 2 else 0]
            for i, (name, values) in enumerate(dims.items())
        },
    }
    return found


def arrays(inputs: Sequence[Input], sizes: Sizes, seed: int) -> dict[str, Array]:
    """The inputs by name."""
    rng = np.random.default_rng(seed)
    return {
        i.name: np.asarray(
            KINDS[i.kind](rng, shape_at(i.shape, sizes), i.high), order="C"
        )
        for i in inputs
    }
