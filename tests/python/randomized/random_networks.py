"""Networks of random layers, each with what NumPy makes of it.

A Value is a tensor with its arrays, one for each of a number of settings of the inputs.
Numbers are multiples of a power of two and small, so that most layers are exact in every
type that a build may choose; what is not carries a bound of its error, and nothing that
jumps reads it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import rabbet as trt

E, U, A, R = (
    trt.ElementWiseOperation,
    trt.UnaryOperation,
    trt.ActivationType,
    trt.ReduceOperation,
)
NONE, TRANSPOSE, VECTOR = (
    trt.MatrixOperation.NONE,
    trt.MatrixOperation.TRANSPOSE,
    trt.MatrixOperation.VECTOR,
)
FLOATS = (trt.float32, trt.float16)
# The largest number over the smallest step that a type holds exactly.
EXACT = {trt.float32: 2.0**22, trt.float16: 2.0**11, trt.bfloat16: 2.0**8,
         trt.int32: 2.0**30, trt.int64: 2.0**40, trt.int8: 127.0, trt.bool: 1.0}  # fmt: skip
ROUNDING = {trt.float32: 4e-6, trt.float16: 2e-3, trt.bfloat16: 1.6e-2}


class Unfit(Exception):
    """The layer cannot be made of these operands."""


@dataclasses.dataclass(eq=False)
class Value:
    """A tensor and its arrays. step: all numbers are multiples of it, 0 where they are
    inexact; error: how far from the arrays they may be."""

    tensor: Any
    dtype: Any
    arrays: list[Any]
    step: float
    error: float
    unknown: Any = None  # what an extent is known by that only a run tells
    index: int = -1
    readers: int = 0

    @property
    def rank(self) -> int:
        return self.arrays[0].ndim

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [a.shape for a in self.arrays]

    def dim(self, axis: int) -> tuple[int, ...]:
        """An axis' extent in all settings: what it is known by."""
        return tuple(s[axis] for s in self.shapes)

    def fixed(self, axis: int) -> bool:
        """Whether the extent is a constant of the network."""
        return self.tensor.shape[axis] >= 0  # type: ignore[no-any-return]

    @property
    def dims(self) -> tuple[tuple[int, ...], ...]:
        return tuple(self.dim(i) for i in range(self.rank))

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS

    @property
    def exact(self) -> bool:
        return self.step > 0

    @property
    def bound(self) -> float:
        return max((float(np.abs(a).max()) for a in self.arrays if a.size), default=0.0)

    @property
    def most(self) -> int:
        return max(a.size for a in self.arrays)


@dataclasses.dataclass
class Node:
    """How values come from values."""

    what: str
    function: Callable[..., Any]
    inputs: list[Value]
    outputs: list[Value]
    constant: Any = None  # of a constant that can be refitted: its name


class Net:
    """A network under construction."""

    def __init__(self, network: Any, random: Any, settings: int, least: Any) -> None:
        self.network, self.random, self.settings = network, random, settings
        self.least = least  # the least precise type of FLOAT
        self.values: list[Value] = []
        self.nodes: list[Node] = []

    def limit(self, dtype: Any) -> float:
        return EXACT[self.least if dtype is trt.float32 else dtype]

    def rounding(self, dtype: Any) -> float:
        return ROUNDING.get(self.least if dtype is trt.float32 else dtype, 0.0)

    # ---- Random choices

    def chance(self, share: float) -> bool:
        return bool(self.random.random() < share)

    def pick(self, items: Sequence[Any]) -> Any:
        if len(items) == 0:
            raise Unfit
        return items[int(self.random.integers(len(items)))]

    def integer(self, low: int, high: int) -> int:
        """low to high, both included."""
        return int(self.random.integers(low, high + 1))

    def value(self, fits: Callable[[Value], bool] = lambda v: True) -> Value:
        """A value that fits; the newest are likelier."""
        found = [v for v in self.values if fits(v)]
        if not found:
            raise Unfit
        if self.chance(0.5):
            return self.pick(found[-3:])  # type: ignore[no-any-return]
        return self.pick(found)  # type: ignore[no-any-return]

    # ---- Adding

    def add(
        self, what: str, tensors: Any, inputs: Sequence[Value], function: Any,
        dtypes: Any, steps: Any = None, errors: Any = None, unknown: Any = None,
    ) -> list[Value]:  # fmt: skip
        """Values for what a layer made. Raises Unfit, before anything is made, if
        numbers would not be exact: `tensors` makes the layers."""
        arrays = [function(*(v.arrays[i] for v in inputs)) for i in range(self.settings)]
        count = len(arrays[0])
        steps = steps if steps is not None else [1.0] * count
        errors = errors if errors is not None else [0.0] * count
        made = []
        for i in range(count):
            value = Value(None, dtypes[i], [a[i] for a in arrays], steps[i], errors[i])
            if value.most > 200000 or not all(np.isfinite(a).all() for a in value.arrays):
                raise Unfit
            if value.exact and value.bound / value.step > self.limit(value.dtype):
                raise Unfit
            if not value.exact and (value.bound > 2000 or value.error > 1 + value.bound / 50):
                raise Unfit
            value.unknown = unknown
            if unknown is None:
                value.unknown = next((v.unknown for v in inputs if v.unknown), None)
            made.append(value)
        for value, tensor in zip(made, tensors(), strict=True):
            value.tensor, value.index = tensor, len(self.values)
            self.values.append(value)
            assert tensor.dtype is value.dtype, (what, tensor.dtype, value.dtype)
            assert len(tensor.shape) == value.rank, (what, tensor.shape, value.shapes)
            for axis, extent in enumerate(tensor.shape):
                known = set(value.dim(axis))
                assert extent < 0 or known == {extent}, (what, tensor.shape, value.shapes)
        for value in inputs:
            value.readers += 1
        self.nodes.append(Node(what, function, list(inputs), made))
        return made

    def layer(self, what: str, make: Any, inputs: Sequence[Value], function: Any,
              dtype: Any = None, step: float | None = None, error: float | None = None,
              unknown: Any = None) -> Value:  # fmt: skip
        """One layer of one output, of the first input's type and step unless given."""
        first = inputs[0] if inputs else None
        assert first is not None or (dtype is not None and step is not None)
        return self.add(
            what,
            lambda: [make().get_output(0)],
            inputs,
            lambda *arrays: (function(*arrays),),
            [first.dtype if dtype is None else dtype],  # type: ignore[union-attr]
            [first.step if step is None else step],  # type: ignore[union-attr]
            [first.error if error is None else error] if first else [0.0],
            unknown,
        )[0]

    def constant(self, array: Any, dtype: Any, step: float = 1.0) -> Value:
        """A constant of numbers."""
        from tests.python.randomized.random_plugins import from_stored, to_stored

        data = to_stored(array, dtype)
        array = from_stored(data, dtype)
        made = self.layer(
            f"constant {array.shape}",
            lambda: self.network.add_constant(array.shape, data),
            [], lambda: array, dtype, step,
        )  # fmt: skip
        self.nodes[-1].constant = made.tensor.name
        return made

    def numbers(self, shape: Sequence[int], most: int = 3, step: float = 1.0) -> Any:
        """Small multiples of a step."""
        return self.random.integers(-most, most + 1, tuple(shape)) * step

    # ---- Evaluating again

    def evaluate(self, changed: dict[int, Any]) -> None:
        """Other arrays for some values, by index, and all that follows from them."""
        for index, arrays in changed.items():
            self.values[index].arrays = arrays
        for node in self.nodes:
            if any(v.index in changed for v in node.outputs):
                continue
            for i in range(self.settings):
                results = node.function(*(v.arrays[i] for v in node.inputs))
                for value, result in zip(node.outputs, results, strict=True):
                    value.arrays[i] = result

    def describe(self) -> str:
        """All layers with their shapes."""
        lines = []
        for node in self.nodes:
            ins = " ".join(f"%{v.index}" for v in node.inputs)
            outs = ", ".join(
                f"%{v.index} '{v.tensor.name}' {v.dtype.name} {tuple(v.tensor.shape)}"
                f" [{' '.join('x'.join(map(str, s)) or '()' for s in v.shapes[:3])}]"
                f" step {v.step} error {v.error:.1g}"
                for v in node.outputs
            )
            lines.append(f"{node.what} ({ins}) -> {outs}")
        return "\n".join(lines)
