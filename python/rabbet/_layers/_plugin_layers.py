"""Layers of plugins."""

from __future__ import annotations

from typing import Any

from .. import _enums as e
from .. import _rabbet
from ._layer import LAYER_CLASSES, ILayer


class _PluginLayer(ILayer):
    __slots__ = ()

    def _put_name(self, name: str) -> None:
        _rabbet.NetworkLayer.name.__set__(self, name)  # type: ignore[attr-defined]
        calls = getattr(self._instance, "calls", None)
        if calls is not None:  # a class, whose errors tell the layer
            calls.layer = name

    name = property(
        lambda self: _rabbet.NetworkLayer.name.__get__(self),  # type: ignore[attr-defined]
        _put_name,
        doc="Name.",
    )

    @property
    def plugin(self) -> Any:
        """The plugin object that the network holds; None for one of a library."""
        return getattr(self._instance, "plugin", self._instance)


class IPluginV3Layer(_PluginLayer):
    """An operator that a plugin computes."""

    __slots__ = ()
    _type = e.LayerType.PLUGIN_V3


class IPluginV2Layer(_PluginLayer):
    """An operator that a plugin of class IPluginV2DynamicExt computes."""

    __slots__ = ()
    _type = e.LayerType.PLUGIN_V2


LAYER_CLASSES["plugin"] = IPluginV3Layer
