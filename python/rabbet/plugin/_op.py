"""rabbet.plugin.op.NAMESPACE.NAME(...): plugins as layers of a network."""

from __future__ import annotations

from ._definition import near
from ._plugin import QDP_REGISTRY, PluginDef


class _Namespace:
    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, name: str) -> PluginDef:
        found = QDP_REGISTRY.get(f"{self.__name__}::{name}")
        if found is not None:
            return found
        known = self.__dir__()
        raise AttributeError(
            f"no plugin '{self.__name__}::{name}' is registered{near(name, known)} "
            f"The namespace has {', '.join(known) or 'none'}"
        )

    def __dir__(self) -> list[str]:
        found = list(QDP_REGISTRY.values())  # a copy: other threads may add plugins
        return [d.name for d in found if d.namespace == self.__name__]


class _Namespaces:
    """op.NAMESPACE.NAME is the plugin 'NAMESPACE::NAME'."""

    def __getattr__(self, name: str) -> _Namespace:
        known = self.__dir__()
        if name in known:
            return _Namespace(name)
        raise AttributeError(
            f"no plugin of namespace '{name}' is registered{near(name, known)} "
            f"There are the namespaces {', '.join(known) or '(none)'}"
        )

    def __dir__(self) -> list[str]:
        return sorted({d.namespace for d in list(QDP_REGISTRY.values())})


op = _Namespaces()
