"""Rotary embedding: rotates pairs of elements by angles that depend on positions."""

from __future__ import annotations

from typing import cast

from .. import _enums as e
from ._composite import Composite, Places, compose, out
from ._layer import ITensor
from ._layers import IConstantLayer
from ._operator_layers import OperatorLayers
from ._reshapes import IUnsqueezeLayer, reshaping

_UNSET = "unset positions of a rotary embedding"


class IRotaryEmbeddingLayer(Composite):
    """Rotates pairs of elements of [batch, heads, sequence, size]. Input 3, positions
    [batch, sequence], is present if the caches are [positions, size / 2]."""

    __slots__ = ()
    _type = e.LayerType.ROTARY_EMBEDDING

    def get_input(self, index: int) -> ITensor | None:
        """An input; None for absent positions."""
        tensor = super().get_input(index)
        producer = tensor.producer if tensor else None
        return None if producer and producer.name.startswith(_UNSET) else tensor

    @property
    def interleaved(self) -> bool:
        """Whether pairs are adjacent elements, rather than one from each half."""
        return cast(bool, self._parts["interleaved"])

    @interleaved.setter
    def interleaved(self, interleaved: bool) -> None:
        import numpy as np

        parts = self._parts
        parts["interleaved"] = interleaved
        orders = _orders(parts["turned"], parts["size"], interleaved)
        for layer, order in zip(parts["orders"], orders, strict=True):
            layer.weights = np.array(order, np.int64)

    @property
    def rotary_embedding_dim(self) -> int:
        """Number of elements that are rotated; 0: all."""
        return cast(int, self._parts["wanted"])

    @rotary_embedding_dim.setter
    def rotary_embedding_dim(self, dim: int) -> None:
        self._keep("rotary_embedding_dim", self.rotary_embedding_dim, dim)


def _orders(turned: int, size: int, interleaved: bool) -> list[list[int]]:
    """Indices of the first and second elements of pairs, and the place of each
    result."""
    half = turned // 2
    every = list(range(turned))
    first, second = (
        (every[0::2], every[1::2]) if interleaved else (every[:half], every[half:])
    )
    back = [0] * turned
    for place, element in enumerate(first + second):
        back[element] = place
    return [first, second, [*back, *range(turned, size)]]


class _Rotation:
    """A rotary embedding under construction."""

    def __init__(
        self, network: OperatorLayers, x: ITensor, caches: tuple[ITensor, ITensor]
    ) -> None:
        self.network, self.x, self.caches = network, x, caches
        self.inputs: list[Places] = [[], [], []]
        self.positions: Places = []  # empty: the caches are by batch and sequence

    def part(self, order: list[int]) -> tuple[IConstantLayer, ITensor]:
        """Some of the last axis' elements; the layer that says which."""
        import numpy as np

        network = self.network
        indices = network.add_constant((len(order),), np.array(order, np.int64))
        layer = network.add_gather(self.x, out(indices), 3)
        self.inputs[0].append((layer, 0))
        return indices, out(layer)

    def angle(self, index: int) -> ITensor:
        """Cosines (0) or sines (1) for each head."""
        import numpy as np

        network, cache = self.network, self.caches[index]
        places = self.inputs[1 + index]
        if len(cache.shape) == 2:
            first = network.add_constant((1, 1), np.zeros((1, 1), np.int64))
            gather = network.add_gather(cache, out(first), 0)
            gather.name = f"{gather.name}: input 3 of a rotary embedding"
            places.append((gather, 0))
            self.positions.append((gather, 1))
            cache = out(gather)
        at = network.add_constant((1,), np.ones(1, np.int64))
        wide = reshaping(network, IUnsqueezeLayer, cache, out(at))
        if not places:
            places.extend(wide._parts["inputs"][0])
        return out(wide)

    def turned(self, a: ITensor, b: ITensor) -> list[ITensor]:
        """Both elements of the rotated pairs (a, b)."""
        kind = e.ElementWiseOperation

        def both(x: ITensor, y: ITensor, operation: e.ElementWiseOperation) -> ITensor:
            return out(self.network.add_elementwise(x, y, operation))

        cos, sin = self.angle(0), self.angle(1)
        return [
            both(both(a, cos, kind.PROD), both(b, sin, kind.PROD), kind.SUB),
            both(both(a, sin, kind.PROD), both(b, cos, kind.PROD), kind.SUM),
        ]


def _check_sizes(x: ITensor, caches: tuple[ITensor, ITensor], dim: int) -> tuple[int, int]:
    """Extent of the last axis, and how many of its elements are rotated."""
    size = x.shape[-1] if len(x.shape) == 4 else -1
    turned = dim or size
    if size < 0 or turned % 2 or not 0 < turned <= size:
        raise ValueError(
            f"add_rotary_embedding: {tuple(x.shape)} and rotary_embedding_dim {dim}: "
            "it takes 4 dimensions, the last one known, and turns an even part of it"
        )
    if {len(cache.shape) for cache in caches} not in ({2}, {3}):
        raise ValueError(
            "add_rotary_embedding: caches are [batch, sequence, size / 2], or "
            "[positions, size / 2] with positions as input 3, not "
            f"{[tuple(cache.shape) for cache in caches]}"
        )
    return size, turned


def rotary_embedding(
    network: OperatorLayers,
    x: ITensor,
    caches: tuple[ITensor, ITensor],
    interleaved: bool,
    dim: int,
) -> IRotaryEmbeddingLayer:
    """Products and sums of the two halves, then their order again."""
    import numpy as np

    size, turned = _check_sizes(x, caches, dim)
    rotation = _Rotation(network, x, caches)
    first, second, order = _orders(turned, size, interleaved)
    (a_order, a), (b_order, b) = rotation.part(first), rotation.part(second)
    results = rotation.turned(a, b)
    if turned < size:
        results.append(rotation.part(list(range(turned, size)))[1])
    joined = network.add_concatenation(results)
    joined.axis = 3
    back = network.add_constant((size,), np.array(order, np.int64))
    last = network.add_gather(out(joined), out(back), 3)
    positions = rotation.positions
    layer = compose(
        network,
        IRotaryEmbeddingLayer,
        last,
        rotation.inputs + [positions] * bool(positions),
        interleaved=interleaved,
        wanted=dim,
        turned=turned,
        size=size,
        orders=[a_order, b_order, back],
    )
    if positions:
        # The network is invalid until positions are set.
        unset = network.add_constant((1, 1), np.zeros((1, 1), np.float32))
        unset.name = _UNSET
        layer.set_input(3, out(unset))
    return layer
