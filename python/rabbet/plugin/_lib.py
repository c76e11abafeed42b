"""The tables of decorated plugins, under TensorRT's names, which tools read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .._classes._registry import get_plugin_registry
from ._plugin import QDP_REGISTRY, VERSION, PluginDef


class _Creators(Mapping[str, Any]):
    """Creators of the decorated plugins that the engine knows, by id."""

    def __getitem__(self, plugin_id: str) -> Any:
        definition = QDP_REGISTRY[plugin_id]
        creator = get_plugin_registry().get_creator(
            definition.name, VERSION, definition.namespace
        )
        if creator is None:
            raise KeyError(plugin_id)
        return creator

    def __iter__(self) -> Iterator[str]:
        return (key for key, d in list(QDP_REGISTRY.items()) if d.is_registered)

    def __len__(self) -> int:
        return sum(1 for _ in self)


QDP_CREATORS: Mapping[str, Any] = _Creators()

__all__ = ["QDP_CREATORS", "QDP_REGISTRY", "PluginDef"]
