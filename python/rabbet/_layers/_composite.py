"""Composite layers: single in TensorRT, several layers here (scale, padding, attention, ...).

An object of these classes stands for its last layer. The network keeps the layers that
its properties read. Devices see the single layers, and fuse them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, cast

from .. import _enums as e
from .._arrays import storage_type
from .._errors import UnsupportedError
from ._layer import ILayer, ITensor
from ._layers import IConstantLayer
from ._operator_layers import OperatorLayers

Places = list[tuple[ILayer, int]]  # inputs of layers
C = TypeVar("C", bound="Composite")


class Composite(ILayer):
    """Base of composite layers."""

    __slots__ = ()

    @property
    def _parts(self) -> dict[str, Any]:
        parts: dict[str, Any] = self._network()._composites[hash(self)]
        return parts

    @property
    def num_inputs(self) -> int:
        """Number of inputs."""
        return len(self._parts["inputs"])

    def get_input(self, index: int) -> ITensor | None:
        """An input."""
        if not 0 <= index < self.num_inputs:
            return None
        layer, place = self._parts["inputs"][index][0]
        return layer.get_input(place)  # type: ignore[no-any-return]

    def set_input(self, index: int, tensor: ITensor | None) -> None:
        """Replaces an input."""
        if not 0 <= index < self.num_inputs:
            raise IndexError(
                f"layer '{self.name}' has {self.num_inputs} inputs; there is no input {index}"
            )
        for layer, place in self._parts["inputs"][index]:
            layer.set_input(place, tensor)

    def _keep(self, name: str, now: Any, wanted: Any) -> None:
        if now != wanted:
            raise UnsupportedError(
                f"{type(self).__name__}.{name} of layer '{self.name}' is {now}: add another "
                f"layer to make it {wanted}"
            )


def compose(
    network: OperatorLayers,
    kind: type[C],
    last: ILayer,
    inputs: list[Places],
    **parts: Any,
) -> C:
    """Makes a composite of layers. `last` is its last layer, `inputs` are the places of
    its inputs in its layers, and `parts` are the values that its properties use."""
    network._composites[hash(last)] = {"inputs": inputs, **parts}
    return last._as(kind)


def out(layer: ILayer) -> ITensor:
    """The layer's first output."""
    return cast(ITensor, layer.get_output(0))


def constant(
    network: OperatorLayers, values: Any, dtype: e.DataType, shape: Sequence[int]
) -> tuple[IConstantLayer, ITensor]:
    """Adds a constant of `dtype` that is not one of the user's weights. The values are
    stored in a type that NumPy has."""
    import numpy as np

    floats = dtype in (e.DataType.FLOAT, e.DataType.HALF, e.DataType.BF16)
    known = e.DataType.FLOAT if floats else dtype
    array = np.broadcast_to(np.asarray(values, storage_type(known)), tuple(shape))
    layer = network.add_constant(shape, np.ascontiguousarray(array))
    tensor = out(layer)
    tensor._set_role(None, int(e.WeightsRole.CONSTANT))
    # Not tensor.dtype: the network may be wrong while it is being changed.
    if known is not dtype:
        tensor = out(network.add_cast(tensor, dtype))
    return layer, tensor
