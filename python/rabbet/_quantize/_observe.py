"""What the layers' inputs are on the samples: ranges, and sums of products."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .._errors import InvalidArgumentError
from .._histograms import Histogram
from ._layers import Layer
from ._model import Model, Node
from ._numbers import LARGEST_HESSIAN, LIMITS
from ._rewrite import place
from ._run import Run, Settings, network_of
from ._samples import Sample

# Bytes of tensors that one pass over the samples may observe; more take more passes.
_LIMIT = 1 << 30
# Shares of a tensor's values that its range contains by these methods.
_PERCENTILE = 0.9999

METHODS: dict[str, Callable[[Histogram], float]] = {
    "max": lambda found: found.extreme(),
    "percentile": lambda found: found.quantile(_PERCENTILE, 1.0),
    "entropy": lambda found: found.entropy(),
    "mse": lambda found: found.least_squares(int(LIMITS["int8"])),
}


class HessianSum:
    """The sum of x x^T over all rows of a tensor, or of the squares if it is large."""

    def __init__(self) -> None:
        self.total: Any = None

    def add(self, values: Any) -> None:
        """Counts the rows of an array."""
        import numpy as np

        rows = values.reshape(-1, values.shape[-1]).astype(np.float32, copy=False)
        large = rows.shape[1] > LARGEST_HESSIAN
        found = np.square(rows).sum(0) if large else rows.T @ rows
        self.total = found if self.total is None else self.total + found


Observed = dict[tuple[int, str], Any]


def _batches(
    sizes: Sequence[tuple[Layer, int]], limit: int
) -> Iterator[list[Layer]]:
    """Layers in parts whose sizes are together at most the limit."""
    part: list[Layer] = []
    total = 0
    for layer, size in sizes:
        if part and total + size > limit:
            yield part
            part, total = [], 0
        part.append(layer)
        total += size
    if part:
        yield part


def _sizes(
    model: Model,
    layers: Sequence[Layer],
    samples: Sequence[Sample],
    settings: Settings,
    squares: bool,
) -> list[tuple[Layer, int]]:
    """About how many bytes each layer's input has, and the sums of its products if
    `squares`: extents that vary count as the largest of the samples."""
    network = network_of(model, settings.logger)
    dims: dict[str, Any] = {}
    for i in range(network.num_inputs):
        dims[network.get_input(i).name] = network.get_input(i).shape
    for made in network:
        for i in range(made.num_outputs):
            tensor = made.get_output(i)
            if tensor is not None:
                dims[tensor.name.rpartition("/")[2]] = tensor.shape
    largest = max(
        (extent for array in samples[0].values() for extent in array.shape), default=1
    )
    found = []
    for layer in layers:
        shape = [n if n >= 0 else largest for n in dims.get(layer.activation, ())]
        size = 4 * math.prod(shape)
        if squares and shape and shape[-1] <= LARGEST_HESSIAN:
            size += 4 * shape[-1] ** 2
        found.append((layer, size))
    return found


def observe(
    model: Model,
    layers: Sequence[Layer],
    samples: Sequence[Sample],
    settings: Settings,
    kind: type[Histogram] | type[HessianSum],
) -> Iterator[Observed]:
    """What was seen of the layers' inputs, by (graph, tensor), in parts: one for each
    pass over the samples."""
    distinct = list({layer.place: layer for layer in layers}.values())
    sizes = _sizes(model, distinct, samples, settings, kind is HessianSum)
    for part in _batches(sizes, _LIMIT):
        yield _observe_part(model, part, samples, settings, kind)


def _observe_part(
    model: Model,
    layers: Sequence[Layer],
    samples: Sequence[Sample],
    settings: Settings,
    kind: type[Histogram] | type[HessianSum],
) -> Observed:
    made: dict[str, Any] = {}
    keys: dict[str, tuple[int, str]] = {}
    with model.scratch():
        for layer in layers:
            # A tensor of its own, as others may become part of a neighbour. The sign has
            # no effect on what is observed.
            name = model.name("rabbet_observed")
            place(
                layer.graph,
                (),
                [(layer.activation, [Node("Neg", [layer.activation], [name], name)])],
            )
            made[name], keys[name] = kind(), layer.place
        run = Run(model, samples, settings, made)

    def look(name: str, values: Any) -> None:
        if name in made:
            made[name].add(values)

    for sample in samples:
        run(sample, look)
    return {keys[name]: each for name, each in made.items()}


def scale_of(histogram: Histogram, to: str, method: str) -> float:
    """The scale of a tensor; 0: it was never seen, or was zero always."""
    if not histogram.is_finite:
        raise InvalidArgumentError("holds NaN or infinity on the calibration data")
    if to == "fp8":  # floats are as fine near 0 whatever the range
        return histogram.extreme() / LIMITS["fp8"]
    return METHODS[method](histogram) / LIMITS[to]
