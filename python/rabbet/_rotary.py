"""Rotary embedding: pairs of elements turned by angles that depend on positions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from . import _enums as e
from ._composites import (
    Composite,
    IUnsqueezeLayer,
    Places,
    _compose,
    _out,
    reshaping,
)
from ._flags import flag
from ._layer import ITensor

if TYPE_CHECKING:
    from ._network import INetworkDefinition


_UNSET = "unset positions of a rotary embedding"


class IRotaryEmbeddingLayer(Composite):
    """Turns pairs of elements of [batch, heads, sequence, size]. Input 3, positions
    [batch, sequence], is there when the caches are [positions, size / 2]."""

    __slots__ = ()
    _type = e.LayerType.ROTARY_EMBEDDING

    def get_input(self, index: int) -> ITensor | None:
        """An input; None for positions that are not set."""
        tensor = super().get_input(index)
        producer = tensor.producer if tensor else None
        return None if producer and producer.name.startswith(_UNSET) else tensor

    @property
    def interleaved(self) -> bool:
        """Pairs are neighbours, not one of each half."""
        return cast(bool, self._parts["interleaved"])

    @interleaved.setter
    def interleaved(self, interleaved: bool) -> None:
        import numpy as np

        parts = self._parts
        parts["interleaved"] = flag(interleaved, "interleaved")
        for layer, order in zip(
            parts["orders"],
            _orders(parts["turned"], parts["size"], flag(interleaved, "interleaved")),
            strict=True,
        ):
            layer.weights = np.array(order, np.int64)

    @property
    def rotary_embedding_dim(self) -> int:
        """Elements that are turned; 0: all."""
        return cast(int, self._parts["wanted"])

    @rotary_embedding_dim.setter
    def rotary_embedding_dim(self, dim: int) -> None:
        self._keep("rotary_embedding_dim", self.rotary_embedding_dim, dim)


def _orders(turned: int, size: int, interleaved: bool) -> list[list[int]]:
    """Which elements are first in pairs, which second, and where each result is."""
    half = turned // 2
    every = list(range(turned))
    first, second = (
        (every[0::2], every[1::2]) if interleaved else (every[:half], every[half:])
    )
    back = [0] * turned
    for place, element in enumerate(first + second):
        back[element] = place
    return [first, second, [*back, *range(turned, size)]]


def rotary_embedding(
    network: INetworkDefinition,
    x: ITensor,
    caches: tuple[ITensor, ITensor],
    interleaved: bool,
    dim: int,
) -> IRotaryEmbeddingLayer:
    """Products and sums of the two halves, then their order again."""
    import numpy as np

    size = x.shape[-1] if len(x.shape) == 4 else -1
    turned = dim or size
    if size < 0 or turned % 2 or not 0 < turned <= size:
        raise ValueError(
            f"add_rotary_embedding: {tuple(x.shape)} and rotary_embedding_dim {dim}: "
            "it takes 4 dimensions, the last one known, and turns an even part of it"
        )
    ranks = {len(cache.shape) for cache in caches}
    if ranks not in ({2}, {3}):
        raise ValueError(
            "add_rotary_embedding: caches are [batch, sequence, size / 2], or "
            "[positions, size / 2] with positions as input 3, not "
            f"{[tuple(cache.shape) for cache in caches]}"
        )
    inputs: list[Places] = [[], [], []]
    kind = e.ElementWiseOperation

    def part(order: list[int]) -> tuple[Any, ITensor]:
        indices = network.add_constant((len(order),), np.array(order, np.int64))
        layer = network.add_gather(x, _out(indices), 3)
        inputs[0].append((layer, 0))
        return indices, _out(layer)

    def angle(index: int) -> ITensor:
        cache = caches[index]
        place = inputs[1 + index]
        if ranks == {2}:
            first = network.add_constant((1, 1), np.zeros((1, 1), np.int64))
            gather = network.add_gather(cache, _out(first), 0)
            gather.name = f"{gather.name}: input 3 of a rotary embedding"
            place.append((gather, 0))
            positions.append((gather, 1))
            cache = _out(gather)
        at = network.add_constant((1,), np.ones(1, np.int64))
        wide = reshaping(network, IUnsqueezeLayer, cache, _out(at))
        if not place:
            place.extend(wide._parts["inputs"][0])
        return _out(wide)

    def both(a: ITensor, b: ITensor, operation: e.ElementWiseOperation) -> ITensor:
        return _out(network.add_elementwise(a, b, operation))

    positions: Places = []
    first, second, order = _orders(turned, size, interleaved)
    (a_order, a), (b_order, b) = part(first), part(second)
    cos, sin = angle(0), angle(1)
    results = [
        both(both(a, cos, kind.PROD), both(b, sin, kind.PROD), kind.SUB),
        both(both(a, sin, kind.PROD), both(b, cos, kind.PROD), kind.SUM),
    ]
    if turned < size:
        results.append(part(list(range(turned, size)))[1])
    joined = network.add_concatenation(results)
    joined.axis = 3
    back = network.add_constant((size,), np.array(order, np.int64))
    last = network.add_gather(_out(joined), _out(back), 3)
    if positions:
        inputs.append(positions)
    layer = _compose(
        network,
        IRotaryEmbeddingLayer,
        last,
        inputs,
        interleaved=flag(interleaved, "interleaved"),
        wanted=dim,
        turned=turned,
        size=size,
        orders=[a_order, b_order, back],
    )
    if positions:
        # No network with it is right, until positions are given.
        unset = network.add_constant((1, 1), np.zeros((1, 1), np.float32))
        unset.name = _UNSET
        layer.set_input(3, _out(unset))
    return layer
