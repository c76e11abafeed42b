"""Parts of networks that are made of a given one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .._enums import DataType, ElementWiseOperation
from .._numbers import Attr
from ._graph import Tensor

INTS = {DataType.INT64: np.int64, DataType.INT32: np.int32}


def elementwise(network: Any, kind: str, a: Any, b: Any, name: str) -> Any:
    """A function of two tensors, as a layer of that name."""
    op = int(ElementWiseOperation[kind])
    return network._add_layer("elementwise", name, [a, b], {"op": op})._get_output(0)


class Maker:
    """Makes a network with parts of another one, which it keeps alive."""

    def __init__(self, like: Any) -> None:
        self.network = _copy_empty(like)
        self.names: dict[str, int] = {}

    def name(self, base: str) -> str:
        """A layer's name that is free."""
        count = self.names[base] = self.names.get(base, -1) + 1
        return f"{base}.{count}" if count else base

    def constant(
        self, values: Any, dtype: DataType, shape: list[int], name: Any
    ) -> Any:
        """Weights of an array, which the network keeps."""
        block = np.ascontiguousarray(values)
        count = math.prod(shape)
        return self.network._add_weights(
            name, int(dtype), block.ctypes.data, count, tuple(shape), block
        )

    def integers(self, values: list[int], like: DataType) -> Any:
        """A vector of the type of a shape."""
        array = np.array(values, INTS[like])
        return self.constant(array, like, [len(values)], None)

    def elementwise(self, kind: str, a: Any, b: Any, base: str) -> Any:
        """A function of two tensors."""
        return elementwise(self.network, kind, a, b, self.name(base))

    def shuffle(self, tensor: Any, order: list[int], base: str) -> Any:
        """A transpose."""
        if order == list(range(len(order))):
            return tensor
        attrs = {"first_transpose": (Attr.INTS, order)}
        layer = self.network._add_layer("shuffle", self.name(base), [tensor], attrs)
        return layer._get_output(0)

    def whole_constant(self, tensor: Tensor) -> Any:
        """A constant as the given network has it."""
        if tensor.producer is None:
            return self.network._copy_source(tensor.object)
        layer = self.network._copy_layer(tensor.producer.layer, "", [])
        return layer._get_output(0)

    def mark_output(self, tensor: Tensor, made: Any) -> None:
        """Marks what was made of an output of the given network, under its name."""
        if tensor.is_input and made.is_network_input:
            self.network._mark_output(made)
            return
        if made.name != tensor.name:
            other = self.network._find_tensor(tensor.name)
            if other is not None:
                other.name = f"{tensor.name}/part"
            made.name = tensor.name
        self.network._mark_output(made)


def _copy_empty(network: Any) -> Any:
    made = network._copy_empty()
    made._creation_flags = network._creation_flags
    made._logger = network._logger
    made._given_weights = {}
    made._composites = {}
    made._conditionals = network._conditionals
    made._builder = network._builder
    made.error_recorder = network.error_recorder
    return made
