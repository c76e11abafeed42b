"""Numbers that follow from extents of the model's inputs: extents of tensors that a rank
receives, and elements of shape tensors that other ranks compute.

The network has them as expressions. A rank computes them from its own inputs: an input
that is there for its extents alone is enough.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from .._enums import DataType, SampleMode
from .._numbers import Attr
from ._axes import Size
from ._graph import Graph, Tensor
from ._make import Maker


class Derivation:
    """Which numbers follow from which inputs."""

    def __init__(self, graph: Graph) -> None:
        self.expressions: list[Any] = graph.network._expressions()
        self.inputs = {tensor.name: tensor for tensor in graph.inputs}
        # Inputs of which a dimension has a name share its symbol.
        self._axes: dict[int, list[tuple[Tensor, int]]] = {}
        for tensor in self.inputs.values():
            for axis, (factor, symbols) in enumerate(tensor.extents):
                if factor == 1 and len(symbols) == 1:
                    self._axes.setdefault(symbols[0], []).append((tensor, axis))
        self._follows: list[bool] = []  # of each expression; operands come first
        for kind, *operands in self.expressions:
            if kind == "symbol":
                known = operands[1] is not None
            else:
                known = kind == "constant" or all(self._follows[o] for o in operands)
            self._follows.append(known)

    def covers(self, sizes: Iterable[Size]) -> bool:
        """Whether all of them follow from inputs."""
        return all(self._follows[each] for _, symbols in sizes for each in symbols)

    def source(
        self, expression: int, at_hand: Iterable[Tensor]
    ) -> tuple[str, Any, int]:
        """What a symbol is: ("extent" or "value", input, index); of equals one at hand."""
        _, kind, name, index = self.expressions[expression]
        found = [each for each in self._axes.get(expression, ())
                 if any(each[0] is tensor for tensor in at_hand)]  # fmt: skip
        if kind == "extent" and found:
            return kind, *found[0]
        return kind, self.inputs[name], index

    def needed(self, sizes: Iterable[Size], at_hand: list[Tensor]) -> list[Tensor]:
        """`at_hand`, and further inputs from which the sizes follow."""
        made, seen = list(at_hand), set()
        stack = [each for _, symbols in sizes for each in symbols]
        while stack:
            expression = stack.pop()
            if expression in seen:
                continue
            seen.add(expression)
            kind, *operands = self.expressions[expression]
            if kind == "symbol":
                tensor = self.source(expression, made)[1]
                if not any(tensor is each for each in made):
                    made.append(tensor)
            elif kind != "constant":
                stack += operands
        return made


class Numbers:
    """Layers that compute such numbers, as vectors of one element."""

    def __init__(self, maker: Maker, derivation: Derivation, inputs: dict[int, Any]) -> None:
        self.maker, self.derivation = maker, derivation
        self.inputs = inputs  # of the network, by the tensors that they are made of
        self._made: dict[Any, Any] = {}

    def vector(self, sizes: list[Size]) -> Any:
        """The numbers as one vector of INT64."""
        if not sizes or not any(symbols for _, symbols in sizes):
            return self.maker.integers([factor for factor, _ in sizes], DataType.INT64)
        if len(sizes) == 1:
            return self._size(sizes[0])
        parts = [self._size(size) for size in sizes]
        return self._layer("concatenation", parts, {"axis": 0})

    def zeros(self, tensor: Tensor) -> Any:
        """Zeros of a tensor's type and extents."""
        rank = len(tensor.extents)
        count = int(tensor.dtype.itemsize) or 1
        zero = self.maker.constant(
            np.zeros(count, np.uint8), tensor.dtype, [1] * rank, None
        )
        return zero if rank == 0 else self._spread(zero, tensor.extents)

    def elements(self, tensor: Tensor) -> Any:
        """A shape tensor, from its elements' expressions."""
        assert tensor.values is not None
        made = self.vector(tensor.values)
        if tensor.dtype != DataType.INT64:
            made = self._cast(made, tensor.dtype)
        if len(tensor.extents) == 0:
            made = self._layer("shuffle", [made], {"reshape_to_scalar": True})
        return made

    def _layer(self, op: str, inputs: list[Any], attrs: dict[str, Any]) -> Any:
        name = self.maker.name(f"extents/{op}")
        layer = self.maker.network._add_layer(op, name, inputs, attrs)
        return layer._get_output(0)

    def _cast(self, tensor: Any, dtype: DataType) -> Any:
        return self._layer("cast", [tensor], {"to_type": int(dtype)})

    def _spread(self, one: Any, sizes: list[Size]) -> Any:
        """One element, in all places of the extents."""
        rank = len(sizes)
        attrs = {
            "start": (Attr.INTS, [0] * rank),
            "stride": (Attr.INTS, [1] * rank),
            "mode": int(SampleMode.CLAMP),
        }
        if any(symbols for _, symbols in sizes):
            return self._layer("slice", [one, None, self.vector(sizes)], attrs)
        attrs["shape"] = (Attr.INTS, [factor for factor, _ in sizes])
        return self._layer("slice", [one], attrs)

    def _size(self, size: Size) -> Any:
        factor, symbols = size
        made = None if factor == 1 and symbols else self._constant(factor)
        for each in symbols:
            term = self._expression(each)
            made = term if made is None else self._binary("PROD", made, term)
        return made

    def _constant(self, value: int) -> Any:
        if ("constant", value) not in self._made:
            made = self.maker.integers([value], DataType.INT64)
            self._made["constant", value] = made
        return self._made["constant", value]

    def _binary(self, kind: str, a: Any, b: Any) -> Any:
        return self.maker.elementwise(kind, a, b, f"extents/{kind.lower()}")

    def _expression(self, expression: int) -> Any:
        if expression not in self._made:
            self._made[expression] = self._compute(expression)
        return self._made[expression]

    def _compute(self, expression: int) -> Any:
        kind, *operands = self.derivation.expressions[expression]
        if kind == "constant":
            return self._constant(operands[0])
        if kind == "symbol":
            return self._symbol(expression)
        a, b = (self._expression(each) for each in operands)
        if kind in ("equal", "less"):
            return self._cast(self._binary(kind.upper(), a, b), DataType.INT64)
        if kind == "ceil_div":  # -(-a // b)
            zero = self._constant(0)
            down = self._binary("FLOOR_DIV", self._binary("SUB", zero, a), b)
            return self._binary("SUB", zero, down)
        if kind == "broadcast":
            return self._broadcast(operands)
        return self._binary(kind.upper(), a, b)

    def _broadcast(self, operands: list[int]) -> Any:
        """The extent of a sum of two tensors that nobody computes: so the builder sees
        the expression that the model has."""
        zero = self.maker.constant(np.zeros(1, np.float32), DataType.FLOAT, [1], None)
        parts = [self._spread(zero, [(1, (each,))]) for each in operands]
        return self._layer("shape", [self._binary("SUM", *parts)], {})

    def _symbol(self, expression: int) -> Any:
        tensors = [t for t in self.derivation.inputs.values() if t.index in self.inputs]
        kind, tensor, index = self.derivation.source(expression, tensors)
        if (kind, tensor.index) not in self._made:
            made = self.inputs[tensor.index]
            if kind == "extent":
                made = self._layer("shape", [made], {})
            else:
                if tensor.dtype != DataType.INT64:
                    made = self._cast(made, DataType.INT64)
                made = self._layer(
                    "shuffle", [made], {"reshape_dims": (Attr.INTS, [-1])}
                )
            self._made[kind, tensor.index] = made
        attrs = {
            "start": (Attr.INTS, [index]),
            "shape": (Attr.INTS, [1]),
            "stride": (Attr.INTS, [1]),
        }
        return self._layer("slice", [self._made[kind, tensor.index]], attrs)
