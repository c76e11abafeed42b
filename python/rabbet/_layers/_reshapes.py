"""Padding, squeeze and unsqueeze, composed of a slice or a reshape and its shape."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar, cast

from .. import _enums as e
from .._arrays import storage_type
from .._checked import Shape
from .._dims import Dims
from .._errors import UnsupportedError
from ._composite import Composite, compose, out
from ._layer import ITensor
from ._layers import IShuffleLayer, ISliceLayer
from ._operator_layers import OperatorLayers

# ---- Padding


class IPaddingLayer(Composite):
    """Zeros around the last axes; negative padding removes elements."""

    __slots__ = ()
    _type = e.LayerType.PADDING

    @property
    def pre_padding_nd(self) -> Dims:
        """Elements before each of the last axes."""
        return Dims(self._parts["before"])

    @pre_padding_nd.setter
    def pre_padding_nd(self, padding: Shape) -> None:
        _pad(self, self._parts | {"before": list(padding)})

    @property
    def post_padding_nd(self) -> Dims:
        """Elements after each of the last axes."""
        return Dims(self._parts["after"])

    @post_padding_nd.setter
    def post_padding_nd(self, padding: Shape) -> None:
        _pad(self, self._parts | {"after": list(padding)})


def _pad(layer: IPaddingLayer, parts: dict[str, Any]) -> None:
    """Start and extents of the slice that pads."""
    import numpy as np

    before, after = parts["before"], parts["after"]
    dims = list(cast(ITensor, layer.get_input(0)).shape)
    if len(before) != len(after) or len(before) > len(dims):
        raise ValueError(
            f"padding of layer '{layer.name}': {before} before and {after} after, for a "
            f"tensor of {len(dims)} dimensions"
        )
    rest = [0] * (len(dims) - len(before))
    grown = np.array(
        [*rest, *(a + b for a, b in zip(before, after, strict=True))], np.int64
    )
    parts["slice"].start = [*rest, *(-b for b in before)]
    parts["grown"].weights = grown
    layer._network()._composites[hash(layer)] = parts


def padding(
    network: OperatorLayers, x: ITensor, before: Iterable[int], after: Iterable[int]
) -> IPaddingLayer:
    """The extents are computed when shapes are known."""
    import numpy as np

    rank = len(x.shape)
    shape = network.add_shape(x)
    grown = network.add_constant((rank,), np.zeros(rank, np.int64))
    total = e.ElementWiseOperation.SUM
    extents = network.add_elementwise(out(shape), out(grown), total)
    last: ISliceLayer = network.add_slice(x, [0] * rank, [0] * rank, [1] * rank)
    last.mode = e.SampleMode.FILL
    last.set_input(2, out(extents))
    inputs = [[(last, 0), (shape, 0)]]
    parts = {"slice": last, "grown": grown, "before": [], "after": []}
    layer = compose(network, IPaddingLayer, last, inputs, **parts)
    lists = {"before": list(before), "after": list(after)}
    _pad(layer, layer._parts | lists)
    return layer


# ---- Squeeze and unsqueeze


class _Reshaping(Composite):
    """A reshape to the input's dimensions and ones."""

    __slots__ = ()

    def _order(self, rank: int, axes: list[int]) -> list[int]:
        """For each axis of the result, one of the input, or `rank` for a 1."""
        raise NotImplementedError

    def set_input(self, index: int, tensor: ITensor | None) -> None:
        """Replaces an input; axes must be constant."""
        if index == 1 and tensor is not None:
            self._reshape(tensor)
        else:
            super().set_input(index, tensor)

    def get_input(self, index: int) -> ITensor | None:
        """The tensor, or the axes."""
        return self._parts["axes"] if index == 1 else super().get_input(index)

    def _reshape(self, axes: ITensor) -> None:
        import numpy as np

        parts, network = self._parts, self._network()
        found = axes._weights()
        if found is None or found[0] not in (e.DataType.INT32, e.DataType.INT64):
            raise UnsupportedError(
                f"layer '{self.name}': axes must be a constant of INT32 or INT64"
            )
        values = np.frombuffer(found[1], storage_type(found[0])).tolist()
        rank = len(cast(ITensor, super().get_input(0)).shape)
        order = np.array(self._order(rank, values), np.int64)
        indices = network.add_constant((order.size,), order)
        parts["gather"].set_input(1, out(indices))
        parts["axes"] = axes


def axes_of(axes: list[int], rank: int) -> list[int]:
    """Non-negative axes; an axis that occurs twice is an error."""
    fixed = [axis + rank if axis < 0 else axis for axis in axes]
    if len(set(fixed)) != len(fixed) or any(not 0 <= axis < rank for axis in fixed):
        raise ValueError(f"axes {axes} of {rank} dimensions")
    return fixed


R = TypeVar("R", bound=_Reshaping)


class ISqueezeLayer(_Reshaping):
    """Removes axes of extent 1."""

    __slots__ = ()
    _type = e.LayerType.SQUEEZE

    def _order(self, rank: int, axes: list[int]) -> list[int]:
        away = axes_of(axes, rank)
        return [axis for axis in range(rank) if axis not in away]


class IUnsqueezeLayer(_Reshaping):
    """Inserts axes of extent 1."""

    __slots__ = ()
    _type = e.LayerType.UNSQUEEZE

    def _order(self, rank: int, axes: list[int]) -> list[int]:
        new = axes_of(axes, rank + len(axes))
        old = iter(range(rank))
        return [rank if axis in new else next(old) for axis in range(rank + len(axes))]


def reshaping(
    network: OperatorLayers, kind: type[R], x: ITensor, axes: ITensor
) -> R:
    """The shape is computed when the input's is known."""
    import numpy as np

    shape = network.add_shape(x)
    one = network.add_constant((1,), np.ones(1, np.int64))
    every = network.add_concatenation([out(shape), out(one)])
    every.axis = 0
    first = network.add_constant((1,), np.zeros(1, np.int64))
    gather = network.add_gather(out(every), out(first), 0)
    last: IShuffleLayer = network.add_shuffle(x)
    last.set_input(1, out(gather))
    last.zero_is_placeholder = False
    inputs = [[(last, 0), (shape, 0)], []]
    layer = compose(network, kind, last, inputs, gather=gather, axes=axes)
    layer._reshape(axes)
    return layer
