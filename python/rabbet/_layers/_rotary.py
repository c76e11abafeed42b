"""Rotary embedding: rotates pairs of elements by angles that depend on positions."""

from __future__ import annotations

from typing import cast

from .. import _enums as e
from ._composite import Composite, Places, compose, out
from ._layer import ITensor
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
        self._set_attrs({"interleaved": interleaved})
        self._parts["interleaved"] = interleaved

    @property
    def rotary_embedding_dim(self) -> int:
        """Number of elements that are rotated; 0: all."""
        return cast(int, self._parts["wanted"])

    @rotary_embedding_dim.setter
    def rotary_embedding_dim(self, dim: int) -> None:
        self._keep("rotary_embedding_dim", self.rotary_embedding_dim, dim)


class _Tables:
    """Cosines and sines of a rotary embedding under construction."""

    def __init__(self, network: OperatorLayers, caches: tuple[ITensor, ITensor]) -> None:
        self.network, self.caches = network, caches
        self.places: list[Places] = [[], []]
        self.positions: Places = []  # empty: the caches are by batch and sequence

    def table(self, index: int) -> ITensor:
        """Cosines (0) or sines (1) for each head."""
        import numpy as np

        network, cache = self.network, self.caches[index]
        places = self.places[index]
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


def _check_sizes(x: ITensor, caches: tuple[ITensor, ITensor], dim: int) -> int:
    """How many elements of the last axis are rotated."""
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
    return turned


def rotary_embedding(
    network: OperatorLayers,
    x: ITensor,
    caches: tuple[ITensor, ITensor],
    interleaved: bool,
    dim: int,
) -> IRotaryEmbeddingLayer:
    """A rotation by tables with an axis for the heads."""
    import numpy as np

    turned = _check_sizes(x, caches, dim)
    tables = _Tables(network, caches)
    inputs = [x, tables.table(0), tables.table(1)]
    attrs = {"size": turned, "interleaved": interleaved}
    last = network._add_layer("rotation", None, inputs, attrs)
    positions = tables.positions
    layer = compose(
        network,
        IRotaryEmbeddingLayer,
        last,
        [[(last, 0)], *tables.places] + [positions] * bool(positions),
        interleaved=interleaved,
        wanted=dim,
    )
    if positions:
        # The network is invalid until positions are set.
        unset = network.add_constant((1, 1), np.zeros((1, 1), np.float32))
        unset.name = _UNSET
        layer.set_input(3, out(unset))
    return layer
