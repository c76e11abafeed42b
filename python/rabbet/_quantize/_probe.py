"""Errors of single layers: each is computed a second time, quantized, beside itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ._layers import Layer
from ._model import Model, Node, ValueInfo
from ._numbers import ratio
from ._rewrite import Rewrite, place
from ._run import Arrays, Run, Settings
from ._samples import Sample
from ._tensor import BOOL, FLOAT, Tensor

# Bytes of weights, as floats, of layers that one model computes twice.
_LIMIT = 1 << 29
# Connects a layer to its quantized inputs: returns the names that the node reads then.
Inputs = Callable[[Rewrite, Layer], list[str]]


class Comparison:
    """Differences of a model's floating outputs."""

    def __init__(self) -> None:
        self.sums: dict[str, list[float]] = {}
        self.is_comparable = True

    def add(self, found: Arrays, wanted: Arrays) -> None:
        """Counts the outputs of one run."""
        import numpy as np

        for name, expected in wanted.items():
            if expected.dtype.kind not in "fV":
                continue
            actual = found[name]
            if actual.shape != expected.shape:
                self.is_comparable = False
                continue
            x, y = actual.astype(np.float64), expected.astype(np.float64)
            good = np.isfinite(x) & np.isfinite(y)
            # Masks hold infinities, which quantization does not change.
            lost = np.inf if (x[~good] != y[~good]).any() else 0.0
            lost += float(np.square(x[good] - y[good]).sum())
            sums = self.sums.setdefault(name, [0.0, 0.0])
            sums[0] += lost
            sums[1] += float(np.square(y[good]).sum())

    @property
    def error(self) -> float | None:
        """The largest relative error of an output; None: nothing can be compared."""
        if not self.sums or not self.is_comparable:
            return None
        return max(ratio(*each) for each in self.sums.values())


def _parts(layers: Sequence[Layer]) -> list[list[Layer]]:
    """Layers whose weights are together not too large."""
    import math

    parts: list[list[Layer]] = [[]]
    total = 0
    for layer in layers:
        size = 4 * math.prod(layer.shape) if layer.weights else 0
        if parts[-1] and total + size > _LIMIT:
            parts.append([])
            total = 0
        parts[-1].append(layer)
        total += size
    return parts


class _Double:
    """The nodes that compute a layer a second time, and compare."""

    def __init__(self, model: Model, rewrite: Rewrite, layer: Layer, reads: list[str]):
        self.model, self.layer = model, layer
        self.output = layer.node.outputs[0]
        copy = Node(layer.op, reads, [model.name("rabbet_double")])
        copy.attributes, copy.rest = layer.node.attributes, []
        self.copy = copy
        self.names = [model.name(f"rabbet_{what}") for what in ("lost", "whole")]
        self.made: list[Node] = [copy]

    def compare(self, output: str) -> None:
        """Sums of squares of the differences, and of the output."""
        difference = self.model.name("rabbet_difference")
        pairs = [
            Node("Sub", [self.copy.outputs[0], output], [difference]),
        ]
        self.made += pairs
        for name, of in zip(self.names, (difference, output), strict=True):
            wide = self.model.name("rabbet_wide")
            self.made += [
                Node("Cast", [of], [wide], to=FLOAT),
                Node("ReduceSumSquare", [wide], [name], keepdims=0),
            ]

    def switch(self, index: int, switches: str) -> None:
        """Lets readers have one of the two, as an element of `switches` says."""
        import numpy as np

        at, chosen, kept = (
            self.model.name(f"rabbet_{what}") for what in ("index", "switch", "float")
        )
        self.model.graph.initializers[at] = Tensor.of(at, np.array(index, np.int64))
        self.layer.node.outputs = [kept, *self.layer.node.outputs[1:]]
        self.made += [
            Node("Gather", [switches, at], [chosen]),
            Node("Where", [chosen, self.copy.outputs[0], kept], [self.output]),
        ]


def _build(
    model: Model,
    layers: Sequence[Layer],
    samples: Sequence[Sample],
    settings: Settings,
    inputs: Inputs,
    to: str,
    switches: str,
) -> tuple[Run, list[_Double]]:
    """A model that computes layers twice; with `switches`, readers have either."""
    with model.scratch():
        rewrite = Rewrite(model, to)
        doubles = []
        for index, layer in enumerate(layers):
            double = _Double(model, rewrite, layer, inputs(rewrite, layer))
            doubles.append(double)
            if switches:
                double.switch(index, switches)
            else:
                double.compare(double.output)
            place(layer.graph, (), [(layer.node.outputs[0], double.made)])
        if switches:
            model.graph.inputs = [
                *model.graph.inputs,
                ValueInfo(switches, BOOL, [len(layers)]),
            ]
        rewrite.finish()
        names = [] if switches else [name for d in doubles for name in d.names]
        return Run(model, samples, settings, names), doubles


def layer_errors(
    model: Model,
    layers: Sequence[Layer],
    samples: Sequence[Sample],
    settings: Settings,
    inputs: Inputs,
    to: str,
) -> None:
    """Sets the error of each layer's output, for the inputs that it has where nothing
    else is quantized."""
    for part in _parts(layers):
        if not part:
            continue
        run, doubles = _build(model, part, samples, settings, inputs, to, "")
        sums = dict.fromkeys((name for d in doubles for name in d.names), 0.0)

        def look(name: str, values: Any, sums: dict[str, float] = sums) -> None:
            if name in sums:
                sums[name] += float(values)

        for sample in samples:
            run(sample, look)
        for double in doubles:
            lost, whole = (sums[name] for name in double.names)
            double.layer.error = ratio(lost, whole)


def outputs_of(
    model: Model, samples: Sequence[Sample], settings: Settings
) -> list[Arrays]:
    """The model's outputs for each sample."""
    run = Run(model, samples, settings)
    return [run(sample) for sample in samples]


def errors_alone(
    model: Model,
    layers: Sequence[Layer],
    samples: Sequence[Sample],
    wanted: Sequence[Mapping[str, Any]],
    settings: Settings,
    inputs: Inputs,
    to: str,
) -> None:
    """Sets the error of the model's outputs where one layer alone is quantized."""
    import numpy as np

    for part in _parts(layers):
        if not part:
            continue
        switches = model.name("rabbet_switches")
        choices = np.zeros(len(part), np.bool_)
        given = [{**sample, switches: choices} for sample in samples]
        run, _ = _build(model, part, given, settings, inputs, to, switches)
        for index, layer in enumerate(part):
            choices[:] = False
            choices[index] = True
            comparison = Comparison()
            for sample, expected in zip(given, wanted, strict=True):
                comparison.add(run(sample), dict(expected))
            layer.alone = comparison.error
