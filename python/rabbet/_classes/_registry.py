"""The registry of plugin creators."""

from __future__ import annotations

import os
import threading
from typing import Any

from .. import _rabbet
from .._callbacks import ILogger
from .._checked import File, checks_arguments
from .._enums import EngineCapability
from .._errors import NotFoundError, PluginError
from .._plugin_base import CLASSES, Key, find_decorated
from .._plugins import forget_library, load_library
from .._recorder import recorded
from ._bases import (
    IPluginCreator,
    IPluginCreatorInterface,
    IPluginCreatorV3One,
    IPluginCreatorV3Quick,
    IPluginResource,
)
from ._calls import Caller
from ._compositions import StandardCreator, standard_creators
from ._definition import Definition
from ._known import KnownCreator, QuickCreator


class _Resource:
    def __init__(self, resource: IPluginResource) -> None:
        self.resource, self.count = resource, 0


def _is_again(old: type, new: type) -> bool:
    """Whether a class redefines the old one, as when a file or a cell runs twice."""
    return old is not new and (old.__module__, old.__qualname__) == (
        new.__module__,
        new.__qualname__,
    )


class PluginLibrary:
    """A loaded plugin library: the result of IPluginRegistry.load_library."""

    def __init__(self, path: str, keys: list[Key]) -> None:
        self.path, self.keys = path, keys

    def __repr__(self) -> str:
        return f"<plugin library '{self.path}'>"


@checks_arguments
class IPluginRegistry:
    """Plugin creators by name, version and namespace; one registry for the process."""

    error_recorder: Any = None

    def __init__(self) -> None:
        self._parent_search = True
        self._lock = threading.RLock()
        self._known: dict[Key, IPluginCreatorInterface] = {}
        # Of TensorRT's library; others of the same key come first.
        self._standard: dict[Key, StandardCreator] = {}
        self._resources: dict[str, _Resource] = {}
        self._libraries: dict[str, PluginLibrary] = {}

    # ---- Creators ----

    @recorded
    def register_creator(self, creator: Any, plugin_namespace: str = "") -> bool:
        """Adds a creator under this namespace, or under its own if this one is empty. A
        class that is defined again (a file or a cell that ran twice) replaces its
        predecessor. AlreadyExistsError for another creator of the same name and
        version."""
        kinds = (IPluginCreator, IPluginCreatorV3One, IPluginCreatorV3Quick)
        if not isinstance(creator, kinds):
            raise TypeError(
                "register_creator: expected an object of a class that derives from "
                f"IPluginCreator, IPluginCreatorV3One or IPluginCreatorV3Quick, got {creator!r}"
            )
        for name in ("name", "plugin_version"):
            try:
                getattr(creator, name)
            except AttributeError as error:
                raise PluginError(f"register_creator: {error}") from None
        calls = Caller(None)
        calls.find(creator, "create_plugin")
        if isinstance(creator, IPluginCreator):
            calls.find(creator, "deserialize_plugin")
        key = (
            creator.name,
            creator.plugin_version,
            plugin_namespace or creator.plugin_namespace,
        )
        with self._lock:
            old = CLASSES.get(key)
            if old is not None and _is_again(type(old.creator), type(creator)):
                _rabbet.deregister_plugin(*key)
                del CLASSES[key]
            definition = Definition(creator, key)
            definition.register()
            CLASSES[key] = definition
        return True

    @recorded
    def deregister_creator(self, creator: Any) -> bool:
        """Removes a creator; False if it was not registered. Networks and engines that
        use its plugins stay valid."""
        with self._lock:
            for key, definition in CLASSES.items():
                if definition.creator is creator:
                    _rabbet.deregister_plugin(*key)
                    del CLASSES[key]
                    return True
            for key, known in self._known.items():
                if known is creator and key in self._keys():
                    self._deregister_known(key)
                    return True
            for key, standard in self._standard.items():
                if standard is creator:
                    del self._standard[key]
                    return True
        return False

    def _deregister_known(self, key: Key) -> None:
        definition = find_decorated(key)
        if definition is not None:
            definition.deregister()
        else:
            _rabbet.deregister_plugin(*key)

    @staticmethod
    def _keys() -> list[Key]:
        return [(name, version, space) for name, version, space, _ in _rabbet.plugins()]

    def _creator(self, key: Key) -> Any:
        definition = CLASSES.get(key)
        if definition is not None:
            return definition.creator
        if key not in self._known:
            fields = _rabbet.plugin_fields(*key)
            kind = KnownCreator if find_decorated(key) is None else QuickCreator
            self._known[key] = kind(key, fields)
        return self._known[key]

    def get_creator(self, type: str, version: str, plugin_namespace: str = "") -> Any:
        """The creator of a name, version and namespace, or None."""
        key = (type, version, plugin_namespace)
        with self._lock:
            return self._creator(key) if key in self._keys() else self._standard.get(key)

    def get_plugin_creator(
        self, type: str, version: str, plugin_namespace: str = ""
    ) -> IPluginCreator | None:
        """The creator if it is an IPluginCreator, or None."""
        found = self.get_creator(type, version, plugin_namespace)
        return found if isinstance(found, IPluginCreator) else None

    @property
    def all_creators(self) -> list[Any]:
        """All creators, in order of registration; those of TensorRT's library last."""
        with self._lock:
            keys = self._keys()
            standard = [self._standard[key] for key in self._standard if key not in keys]
            return [*map(self._creator, keys), *standard]

    def _add_standard(self, namespace: str) -> None:
        with self._lock:
            self._standard = {**standard_creators(namespace), **self._standard}

    @property
    def all_creators_recursive(self) -> list[Any]:
        """The same as all_creators: there are no parent registries."""
        return self.all_creators

    @property
    def plugin_creator_list(self) -> list[IPluginCreator]:
        """All creators that are IPluginCreators."""
        return [c for c in self.all_creators if isinstance(c, IPluginCreator)]

    @property
    def parent_search_enabled(self) -> bool:
        """Whether parent registries are searched. There are none, so it has no
        effect."""
        return self._parent_search

    @parent_search_enabled.setter
    def parent_search_enabled(self, enabled: bool) -> None:
        self._parent_search = enabled

    # ---- Libraries ----

    @recorded
    def load_library(self, plugin_path: File) -> PluginLibrary:
        """Loads a plugin library (rabbet/plugin.h). Returns the handle for
        deregister_library."""
        path = os.path.realpath(plugin_path)
        with self._lock:
            library = self._libraries.get(path)
            if library is None:
                before = set(self._keys())
                load_library(path)
                keys = [key for key in self._keys() if key not in before]
                library = self._libraries[path] = PluginLibrary(path, keys)
        return library

    @recorded
    def deregister_library(self, handle: Any) -> None:
        """Removes a library's creators. Its code stays loaded."""
        with self._lock:
            library = self._libraries.get(getattr(handle, "path", ""))
            if library is None or library is not handle:
                raise NotFoundError(
                    f"deregister_library: {handle!r} is not a library that load_library gave"
                )
            del self._libraries[library.path]
            known = set(self._keys())
            for key in library.keys:
                if key in known:
                    _rabbet.deregister_plugin(*key)
        forget_library(library.path)

    # ---- Resources ----

    @recorded
    def acquire_plugin_resource(self, key: str, resource: Any) -> Any:
        """The resource shared under a key; the first call makes it by resource.clone().
        Calls are counted; release_plugin_resource counts down."""
        with self._lock:
            entry = self._resources.get(key)
            if entry is None:
                entry = _Resource(self._cloned(resource))
                self._resources[key] = entry
            entry.count += 1
            return entry.resource

    @staticmethod
    def _cloned(resource: Any) -> IPluginResource:
        if not isinstance(resource, IPluginResource):
            raise TypeError(
                "acquire_plugin_resource: expected an object of a class that derives from "
                f"IPluginResource, got {resource!r}"
            )
        calls = Caller(None)
        calls.find(resource, "release")
        made = calls.call(resource, "clone")
        calls.copy(resource, made, "clone", IPluginResource)
        shared: IPluginResource = made
        return shared

    @recorded
    def release_plugin_resource(self, key: str) -> int:
        """Counts down; at 0 calls the resource's release(). Returns 0, or -1 for an
        unknown key."""
        with self._lock:
            entry = self._resources.get(key)
            if entry is None:
                return -1
            entry.count -= 1
            if entry.count > 0:
                return 0
            del self._resources[key]
        Caller(None).call(entry.resource, "release")
        return 0


_registry = IPluginRegistry()


def get_plugin_registry() -> IPluginRegistry:
    """The registry."""
    return _registry


@checks_arguments
def get_builder_plugin_registry(
    capability: EngineCapability = EngineCapability.STANDARD, /
) -> IPluginRegistry:
    """The plugin registry; all engine capabilities have the same one."""
    return _registry


@checks_arguments
def init_libnvinfer_plugins(logger: ILogger | None, namespace: str) -> bool:
    """Registers the creators of the plugins of TensorRT's library that are built in here,
    under this namespace; a creator of the same name, version and namespace comes first."""
    _registry._add_standard(namespace)
    return True
