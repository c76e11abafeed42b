"""Layers of a plan by class, each class with the time that it would take at the limits of
its device: the work list of kernels."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .gpu_bounds import layer_bytes, operations, shape_of

# The class of a group is that of its first operator in this order.
_RANKED = (
    ("attention", "attention"),
    ("convolution", "convolution"),
    ("deconvolution", "deconvolution"),
    ("matrix_multiply", "product"),
    ("rnn", "recurrent"),
    ("normalization", "normalization"),
    ("softmax", "softmax"),
    ("reduce", "reduction"),
    ("pooling", "pooling"),
    ("resize", "resize"),
    ("topk", "top k"),
)
_MOVES = {"shuffle", "slice", "concatenation", "gather", "identity", "cast", "padding"}
_THIN = 16
"""Rows of a product that reads its weights and computes little."""


def _convolution(layer: dict[str, Any]) -> str:
    data, weights = shape_of(layer["Inputs"][0]), shape_of(layer["Inputs"][1])
    kernel, axes = weights[2:], len(weights) - 2
    kind = "convolution"
    if weights[1] < data[1]:
        kind = "depthwise convolution" if weights[1] == 1 else "grouped convolution"
    return f"{kind} {'x'.join(map(str, kernel)) if axes > 1 else f'1-D {kernel[0]}'}"


def class_of(layer: dict[str, Any]) -> str:
    """A layer's class, named after its main operator."""
    kinds = [part["Operator"] for part in layer["Layers"]]
    if kinds.count("matrix_multiply") == 2 and "softmax" in kinds:
        return "attention"
    if {"convolution", "reduce"} <= set(kinds):
        return "squeeze and excitation"
    for operator, name in _RANKED:
        if operator not in kinds:
            continue
        if operator == "convolution":
            return _convolution(layer)
        if operator == "matrix_multiply":
            rows = math.prod(shape_of(layer["Outputs"][0])[:-1])
            return "product of few rows" if rows <= _THIN else "product"
        return name
    if set(kinds) <= _MOVES:
        return "moves"
    return "element-wise" if len(kinds) > 1 or kinds[0] in _POINTWISE else kinds[0]


_POINTWISE = {"elementwise", "activation", "unary", "select", "scale"}


@dataclass
class Group:
    """Sums over the layers of a class. seconds: as timed; limit: the larger of bandwidth
    and compute of each layer."""

    name: str
    layers: int = 0
    seconds: float = 0.0
    limit: float = 0.0
    kernels: Counter[str] = field(default_factory=Counter)

    def add(self, other: Group) -> None:
        self.layers += other.layers
        self.seconds += other.seconds
        self.limit += other.limit
        self.kernels.update(other.kernels)

    def cells(self, total: float) -> list[str]:
        """Of a row: class, kernels, layers, us, us at the limit, and two shares."""
        names = ", ".join(f"{k} {n}x" for k, n in self.kernels.most_common(3))
        share = f"{self.limit / self.seconds:.0%}" if self.seconds else "-"
        part = f"{self.seconds / total:.0%}" if total else "-"
        return [self.name, names, str(self.layers), f"{self.seconds * 1e6:.0f}",
                f"{self.limit * 1e6:.0f}", share, part]  # fmt: skip


COLUMNS = ["class", "kernels", "layers", "us", "us at the limit", "share of the limit",
           "of all steps"]  # fmt: skip


def groups(
    text: str,
    bandwidth: float,
    peak: float,
    seconds: Sequence[float] | None = None,
) -> list[Group]:
    """The classes of an engine's JSON, the slowest first. seconds: of each layer;
    default: those of the tuner."""
    found: dict[str, Group] = {}
    for index, layer in enumerate(json.loads(text)["Layers"]):
        spent = (layer.get("TimeUs") or 0.0) / 1e6
        if seconds is not None:
            spent = seconds[index]
        name = class_of(layer)
        group = found.setdefault(name, Group(name))
        group.layers += 1
        group.seconds += spent
        group.limit += max(layer_bytes(layer) / bandwidth, operations(layer) / peak)
        group.kernels[layer["Kernel"]] += 1
    return ordered(found)


def ordered(found: Mapping[str, Group]) -> list[Group]:
    """The slowest first."""
    return sorted(found.values(), key=lambda group: -group.seconds)
