"""Layers of TensorRT that networks here refuse: their classes exist, so that scripts
which name them run, and INetworkDefinition.add_... says why there are none."""

from __future__ import annotations

from typing import Any

from .._managed import refuse_class, refused
from ._layer import ILayer

_DEVICES = "a plan runs on one device"


@refuse_class(_DEVICES)
class IDistCollectiveLayer(ILayer):
    """Refused: see devices above."""

    __slots__ = ()


class RefusedLayers:
    """The methods of INetworkDefinition that add them."""

    __slots__ = ()

    @refused(_DEVICES)
    def add_dist_collective(
        self,
        input: Any,
        dist_collective_op: Any,
        reduce_op: Any,
        root: Any,
        groups: Any,
    ) -> Any:
        """Refused."""
