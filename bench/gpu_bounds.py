"""The bounds of a model on a GPU, from the inspector's view of its plan: bytes and
operations counted layer by layer, against what the GPU can do."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

BYTES = {"FP32": 4, "FP16": 2, "BF16": 2, "FP8": 1, "INT8": 1, "UINT8": 1, "BOOL": 1,
         "INT32": 4, "INT64": 8}  # fmt: skip
BANDWIDTH = 4.28e12  # a copy's, read and written, on an H200
PEAK = {"fp32": 67e12, "tf32": 495e12, "fp16": 989e12, "bf16": 989e12}
"""Bytes, and operations of matrix units without sparsity, in a second."""
LAUNCH, WAIT = 1.0e-6, 8.0e-6
"""Seconds of a node in a graph that does next to nothing, and of launching and waiting
for a graph."""

Shape = list[int]


def shape_of(tensor: dict[str, Any]) -> Shape:
    return [int(n) for n in tensor["Dimensions"]]


def tensor_bytes(tensor: dict[str, Any]) -> int:
    """Bytes of a tensor's elements, without the padding of blocked formats."""
    kind = tensor["Format/Datatype"].split()[-1]
    return math.prod(shape_of(tensor)) * BYTES.get(kind, 4)


def _products(a: Shape, others: Sequence[Shape], count: int) -> int:
    """Operations of `count` products of a [..., M, K] with [..., K, N] each."""
    total = 0
    for shape in others:
        wide = [n for n in shape if n > 1]
        if count == 0 or len(shape) < 2 or len(wide) < 2:
            continue
        inner = a[-1] if a[-1] in shape[-2:] else a[-2]
        if inner not in shape[-2:]:
            continue
        batch = math.prod(shape[:-2])
        total += 2 * math.prod(a) * math.prod(shape) // (inner * batch)
        count -= 1
    return total


def operations(layer: dict[str, Any]) -> int:
    """Multiplications and additions of products and convolutions; those of all else do
    not count beside its bytes."""
    kinds = Counter(part["Operator"] for part in layer["Layers"])
    shapes = [shape_of(tensor) for tensor in layer["Inputs"]]
    products = kinds["matrix_multiply"]
    if kinds["attention"] or (products == 2 and kinds["softmax"]):
        # q [B, N, S, D] with all keys, and the weights with all values.
        return 4 * math.prod(shapes[0]) * shapes[0][-2]
    if products:
        return _products(shapes[0], shapes[1:], products)
    if kinds["convolution"]:
        out, weights = shape_of(layer["Outputs"][0]), shapes[1]
        return 2 * math.prod(out) * math.prod(weights) // weights[0]
    if kinds["deconvolution"]:
        return 2 * math.prod(shapes[0]) * math.prod(shapes[1]) // shapes[1][0]
    return 0


def layer_bytes(layer: dict[str, Any]) -> int:
    """Bytes that a layer reads and writes."""
    tensors = layer["Inputs"] + layer["Outputs"]
    # A gather does not read its whole input.
    if any(part["Operator"] == "gather" for part in layer["Layers"]):
        tensors = tensors[1:] + layer["Outputs"]
    return sum(tensor_bytes(tensor) for tensor in tensors)


@dataclass
class Bounds:
    """Sums over a plan's layers. tuned: seconds that the tuner measured, by kernel."""

    launches: int = 0
    bytes: int = 0
    operations: int = 0
    tuned: Counter[str] = field(default_factory=Counter)
    layers: Counter[str] = field(default_factory=Counter)

    def at_bandwidth(self) -> float:
        return self.bytes / BANDWIDTH

    def at_compute(self, precision: str) -> float:
        return self.operations / PEAK[precision]

    def verdict(self, precision: str, seconds: float) -> str:
        """The largest of the three, with its share of what a call takes; where that is
        less than half, what is left is kernels too small to fill the GPU, or slow."""
        spans = {
            "bandwidth": self.at_bandwidth(),
            "compute": self.at_compute(precision),
            "launches": self.launches * LAUNCH + WAIT,
        }
        name = max(spans, key=spans.__getitem__)
        share = spans[name] / seconds
        if share < 0.5:
            return f"latency of {self.launches} kernels ({name} {share:.0%})"
        return f"{name} {share:.0%}"

    def kernels(self, count: int = 3) -> str:
        """The classes that take most of the time, each with its launches."""
        total = sum(self.tuned.values()) or 1.0
        return ", ".join(
            f"{name} {self.layers[name]}x {spent / total:.0%}"
            for name, spent in self.tuned.most_common(count)
        )


def bounds(text: str) -> Bounds:
    """From the inspector's JSON of an engine."""
    found = Bounds()
    for layer in json.loads(text)["Layers"]:
        kernel = layer["Kernel"]
        found.launches += 1
        found.layers[kernel] += 1
        found.tuned[kernel] += (layer.get("TimeUs") or 0.0) / 1e6
        found.bytes += layer_bytes(layer)
        found.operations += operations(layer)
    return found
