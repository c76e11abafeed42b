"""Tables of the plugins defined in this process, and the interfaces that their users need.
Networks, plans, the registry and plugins import this module instead of each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

Key = tuple[str, str, str]  # name, version, namespace


class ClassDefinition(Protocol):
    """A creator of plugins that are classes."""

    creator: Any
    key: Key
    origin: str

    def create(self, attrs: dict[str, Any], layer: str | None, phase: int) -> Any:
        """A plugin for a layer (phase 0), or for a step of a plan (1)."""


class DecoratedDefinition(Protocol):
    """A plugin that was defined by decorators."""

    def all_functions(self) -> list[Callable[..., Any]]:
        """The functions that define it."""

    def deregister(self) -> None:
        """Removes it; layers and plans that use it stay valid."""


class LayerCall:
    """An argument of network.add_plugin: a plugin with its tensors and attributes."""

    def add_to(self, network: Any, request: Any) -> Any:
        """Adds the layer."""
        raise NotImplementedError


CLASSES: dict[Key, ClassDefinition] = {}
DECORATED: dict[str, DecoratedDefinition] = {}  # by id: "namespace::name"


def find_class(name: str, version: str, namespace: str) -> ClassDefinition | None:
    """The definition of a class under a key. A creator registered under another
    namespace is also found by its own."""
    found = CLASSES.get((name, version, namespace))
    if found is not None:
        return found
    fitting = [
        definition
        for key, definition in CLASSES.items()
        if key[:2] == (name, version)
        and definition.creator.plugin_namespace == namespace
    ]
    return fitting[0] if len(fitting) == 1 else None


def find_decorated(key: Key) -> DecoratedDefinition | None:
    """The decorated definition under a key of the registry."""
    name, _, namespace = key
    return DECORATED.get(f"{namespace}::{name}")
