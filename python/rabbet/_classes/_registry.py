"""The registry of plugin creators, and creators for the engine."""

from __future__ import annotations

import os
import threading
from typing import Any, NoReturn

from .. import _rabbet
from .._enums import (
    EngineCapability,
    PluginFieldType,
    QuickPluginCreationRequest,
    TensorRTPhase,
)
from .._errors import NotFoundError, PluginError
from .._flags import flag
from .._recorder import recorded
from ._bases import (
    IPluginCreator,
    IPluginCreatorInterface,
    IPluginCreatorV3One,
    IPluginCreatorV3Quick,
    IPluginResource,
    IPluginV3,
)
from ._calls import Caller, class_name
from ._fields import (
    PluginField,
    PluginFieldCollection,
    PluginFieldCollection_,
    are_fields,
    decode_fields,
    field_of_attribute,
)
from ._instance import ClassInstance, origin
from ._v2 import DATA, V2Instance
from ._v3 import V3Instance

Key = tuple[str, str, str]  # name, version, namespace


class Definition:
    """A creator of a class, as the engine calls it."""

    def __init__(self, creator: IPluginCreatorInterface, key: Key) -> None:
        self.creator, self.key = creator, key
        self.origin = origin(creator)

    def register(self) -> None:
        """Makes it known to the engine."""
        fields = _field_names(self.creator)
        _rabbet.register_plugin(
            self, *self.key, self.origin, [(name, 0, False) for name in fields], 0, -1
        )

    def create(
        self,
        attrs: dict[str, Any],
        layer: str | None,
        phase: int,
        shape_inputs: int = 0,
        absent: int = 0,
    ) -> ClassInstance:
        """A plugin for a layer (phase 0: attributes of an ONNX node) or for a step of
        a plan (phase 1: what serialize gave). A class has all of its inputs."""
        calls = Caller(layer)
        when = TensorRTPhase(phase)
        if isinstance(self.creator, IPluginCreator):
            return self._create_v2(calls, attrs, when, shape_inputs)
        if when is TensorRTPhase.BUILD:
            fields = [field_of_attribute(name, value) for name, value in attrs.items()]
        else:
            if DATA in attrs or not are_fields(attrs):
                self._other_kind(calls, "create_plugin")
            fields = decode_fields(attrs)
        collection = PluginFieldCollection_(fields)
        name = layer or self.key[0]
        method = "create_plugin"
        if isinstance(self.creator, IPluginCreatorV3Quick):
            from ._quick import QuickInstance

            plugin = calls.call(
                self.creator,
                method,
                self.key[0],
                self.key[2],
                collection,
                when,
                QuickPluginCreationRequest.UNKNOWN,
            )
            self._check(calls, method, plugin, IPluginV3)
            return QuickInstance(plugin, layer, when, shape_inputs, attrs)
        plugin = calls.call(self.creator, method, name, collection, when)
        self._check(calls, method, plugin, IPluginV3)
        return V3Instance(plugin, layer, when, shape_inputs, attrs)

    def _create_v2(
        self, calls: Caller, attrs: dict[str, Any], phase: TensorRTPhase, shapes: int
    ) -> V2Instance:
        from ._bases import IPluginV2DynamicExt

        name = calls.layer or self.key[0]
        if phase is TensorRTPhase.BUILD:
            method = "create_plugin"
            fields = [field_of_attribute(key, value) for key, value in attrs.items()]
            plugin = calls.call(
                self.creator, method, name, PluginFieldCollection_(fields)
            )
        else:
            method = "deserialize_plugin"
            if DATA not in attrs:
                self._other_kind(calls, method)
            plugin = calls.call(self.creator, method, name, attrs[DATA])
        self._check(calls, method, plugin, IPluginV2DynamicExt)
        if not plugin.plugin_namespace:
            plugin.plugin_namespace = self.key[2]
        return V2Instance(plugin, calls.layer, phase, shapes)

    def _other_kind(self, calls: Caller, method: str) -> NoReturn:
        calls.fail(
            self.creator,
            method,
            f"the plan holds a plugin of another kind under the name '{self.key[0]}': "
            "register the creator that it was built with",
        )

    def _check(self, calls: Caller, method: str, plugin: Any, kind: type) -> None:
        if not isinstance(plugin, kind):
            calls.fail(
                self.creator,
                method,
                f"it returned {plugin!r}; expected an object of a class that derives "
                f"from {kind.__name__}",
            )


def _field_names(creator: IPluginCreatorInterface) -> list[str]:
    names: list[str] = []
    for field in creator.field_names:
        if not isinstance(field, PluginField) or not field.name or field.name in names:
            raise PluginError(
                f"{class_name(creator)}.field_names: {field!r} is not a PluginField with a "
                "name of its own"
            )
        names.append(field.name)
    return names


# ---- Creators that are not classes of users ----


class FoundPlugin(IPluginV3):
    """A creator's plugin that the engine knows by name: for add_plugin_v3."""

    __slots__ = ("attrs", "creator_key")

    def __init__(self, key: Key, attrs: dict[str, Any]) -> None:
        super().__init__()
        self.creator_key, self.attrs = key, attrs

    def __repr__(self) -> str:
        return f"<plugin '{self.creator_key[0]}'>"


# PluginFieldType by rabbet_attr_type_t.
_FIELD_TYPES = {
    1: PluginFieldType.INT64,
    2: PluginFieldType.FLOAT64,
    3: PluginFieldType.INT8,
    4: PluginFieldType.CHAR,
    6: PluginFieldType.INT64,
    7: PluginFieldType.FLOAT64,
    8: PluginFieldType.INT8,
    9: PluginFieldType.CHAR,
}


class _Known:
    """The base of creators of decorated plugins and of libraries."""

    def _set(self, key: Key, fields: list[tuple[str, int, bool]]) -> None:
        self.name, self.plugin_version, self.plugin_namespace = key
        self._types = {name: code for name, code, _ in fields}
        unknown = PluginFieldType.UNKNOWN
        self.field_names = PluginFieldCollection(
            PluginField(name, None, _FIELD_TYPES.get(code, unknown))
            for name, code, _ in fields
        )

    def _make(self, field_collection: Any) -> FoundPlugin:
        attrs = {
            field.name: _value_of(field, self._types.get(field.name, 0))
            for field in field_collection
        }
        return FoundPlugin((self.name, self.plugin_version, self.plugin_namespace), attrs)


class KnownCreator(_Known, IPluginCreatorV3One):
    """A creator of a library."""

    def __init__(self, key: Key, fields: list[tuple[str, int, bool]]) -> None:
        super().__init__()
        self._set(key, fields)

    def create_plugin(self, name: str, field_collection: Any, phase: Any) -> FoundPlugin:
        """A plugin of fields."""
        return self._make(field_collection)


class QuickCreator(_Known, IPluginCreatorV3Quick):
    """The creator of a decorated plugin."""

    def __init__(self, key: Key, fields: list[tuple[str, int, bool]]) -> None:
        super().__init__()
        self._set(key, fields)

    def create_plugin(
        self,
        name: str,
        namespace: str,
        field_collection: Any,
        phase: Any,
        quickPluginType: Any = QuickPluginCreationRequest.UNKNOWN,  # noqa: N803
    ) -> FoundPlugin:
        """A plugin of fields."""
        return self._make(field_collection)


def _value_of(field: PluginField, code: int) -> Any:
    """A field as the attribute (rabbet_attr_type_t) that a plugin declares."""
    if code == 4:
        return field.tobytes().decode("utf-8").rstrip("\0")
    if code == 5:
        return field.tobytes()
    if code == 9:
        texts = field.tobytes().decode("utf-8").removesuffix("\0")
        return (code, texts.split("\0") if texts else [])
    data = field.data
    values = [] if data is None else data.tolist()
    if code in (3, 8):
        values = [bool(value) for value in values]
    if code in (1, 2, 3):
        if len(values) != 1:
            raise ValueError(
                f"PluginField '{field.name}' holds {len(values)} values; expected one"
            )
        return float(values[0]) if code == 2 else values[0]
    return (code, values) if code else values


# ---- The registry ----


class _Resource:
    def __init__(self, resource: IPluginResource) -> None:
        self.resource, self.count = resource, 0


def _is_again(old: type, new: type) -> bool:
    """Whether a class is the old one defined anew: a file or a cell that ran twice."""
    return old is not new and (old.__module__, old.__qualname__) == (
        new.__module__,
        new.__qualname__,
    )


class PluginLibrary:
    """A plugin library that is loaded: what IPluginRegistry.load_library gives."""

    def __init__(self, path: str, keys: list[Key]) -> None:
        self.path, self.keys = path, keys

    def __repr__(self) -> str:
        return f"<plugin library '{self.path}'>"


class IPluginRegistry:
    """Creators of plugins by name, version and namespace; one for the process."""

    error_recorder: Any = None

    def __init__(self) -> None:
        self._parent_search = True
        self._lock = threading.RLock()
        self._definitions: dict[Key, Definition] = {}
        self._known: dict[Key, IPluginCreatorInterface] = {}
        self._resources: dict[str, _Resource] = {}
        self._libraries: dict[str, PluginLibrary] = {}

    # ---- Creators ----

    @recorded
    def register_creator(self, creator: Any, plugin_namespace: str = "") -> bool:
        """Adds a creator, under this namespace if it is not empty, else under its
        own. AlreadyExistsError if there is one of its name and version; the creator of
        a class that was defined anew (a file or a cell that ran twice) takes its
        place."""
        kinds = (IPluginCreator, IPluginCreatorV3One, IPluginCreatorV3Quick)
        if not isinstance(creator, kinds):
            raise TypeError(
                "register_creator: expected an object of a class that derives from "
                f"IPluginCreator, IPluginCreatorV3One or IPluginCreatorV3Quick, got {creator!r}"
            )
        if not isinstance(plugin_namespace, str):
            raise TypeError(f"plugin_namespace: expected a str, got {plugin_namespace!r}")
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
            old = self._definitions.get(key)
            if old is not None and _is_again(type(old.creator), type(creator)):
                _rabbet.deregister_plugin(*key)
                del self._definitions[key]
            definition = Definition(creator, key)
            definition.register()
            self._definitions[key] = definition
        return True

    @recorded
    def deregister_creator(self, creator: Any) -> bool:
        """Takes a creator away; False if it was not registered. Networks and engines
        that use its plugins stay valid."""
        with self._lock:
            for key, definition in self._definitions.items():
                if definition.creator is creator:
                    _rabbet.deregister_plugin(*key)
                    del self._definitions[key]
                    return True
            for key, known in self._known.items():
                if known is creator and key in self._keys():
                    self._deregister_known(key)
                    return True
        return False

    def _deregister_known(self, key: Key) -> None:
        from ..plugin._plugin import QDP_REGISTRY

        definition = QDP_REGISTRY.get(f"{key[2]}::{key[0]}")
        if definition is not None:
            definition.deregister()
        else:
            _rabbet.deregister_plugin(*key)

    @staticmethod
    def _keys() -> list[Key]:
        return [(name, version, space) for name, version, space, _ in _rabbet.plugins()]

    def _creator(self, key: Key) -> Any:
        definition = self._definitions.get(key)
        if definition is not None:
            return definition.creator
        if key not in self._known:
            from ..plugin._plugin import QDP_REGISTRY

            quick = f"{key[2]}::{key[0]}" in QDP_REGISTRY
            fields = _rabbet.plugin_fields(*key)
            self._known[key] = (QuickCreator if quick else KnownCreator)(key, fields)
        return self._known[key]

    def get_creator(self, type: str, version: str, plugin_namespace: str = "") -> Any:
        """The creator of a name, version and namespace, or None."""
        key = (type, version, plugin_namespace)
        with self._lock:
            return self._creator(key) if key in self._keys() else None

    def get_plugin_creator(
        self, type: str, version: str, plugin_namespace: str = ""
    ) -> IPluginCreator | None:
        """The creator if it is an IPluginCreator, or None."""
        found = self.get_creator(type, version, plugin_namespace)
        return found if isinstance(found, IPluginCreator) else None

    @property
    def all_creators(self) -> list[Any]:
        """Every creator, in the order of their registration."""
        with self._lock:
            return [self._creator(key) for key in self._keys()]

    @property
    def all_creators_recursive(self) -> list[Any]:
        """Every creator; there are no other registries to search."""
        return self.all_creators

    @property
    def plugin_creator_list(self) -> list[IPluginCreator]:
        """Every IPluginCreator."""
        return [c for c in self.all_creators if isinstance(c, IPluginCreator)]

    @property
    def parent_search_enabled(self) -> bool:
        """Whether other registries above this one are searched. There are none, so that
        it has no effect."""
        return self._parent_search

    @parent_search_enabled.setter
    def parent_search_enabled(self, enabled: bool) -> None:
        self._parent_search = flag(enabled, "parent_search_enabled")

    # ---- Libraries ----

    @recorded
    def load_library(self, plugin_path: str | os.PathLike[str]) -> PluginLibrary:
        """Loads a library of plugins (rabbet/plugin.h). The handle is for
        deregister_library."""
        path = os.path.realpath(plugin_path)
        from .._plugins import load_library

        with self._lock:
            library = self._libraries.get(path)
            if library is None:
                before = set(self._keys())
                load_library(path)
                keys = [key for key in self._keys() if key not in before]
                library = self._libraries[path] = PluginLibrary(path, keys)
        return library

    @recorded
    def deregister_library(self, handle: PluginLibrary) -> None:
        """Takes away what a library registered. Its code stays loaded."""
        with self._lock:
            if self._libraries.get(getattr(handle, "path", "")) is not handle:
                raise NotFoundError(
                    f"deregister_library: {handle!r} is not a library that load_library gave"
                )
            del self._libraries[handle.path]
            known = set(self._keys())
            for key in handle.keys:
                if key in known:
                    _rabbet.deregister_plugin(*key)
        from .._plugins import forget_library

        forget_library(handle.path)

    # ---- Resources ----

    @recorded
    def acquire_plugin_resource(self, key: str, resource: Any) -> Any:
        """The resource shared under a key: at first a clone of `resource`. Each call counts;
        release_plugin_resource counts down."""
        if not isinstance(key, str):
            raise TypeError(f"acquire_plugin_resource: key: expected a str, got {key!r}")
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
        """Counts down; nobody left: release() is called. 0, or -1 if the key is not
        known."""
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


def get_builder_plugin_registry(
    capability: EngineCapability = EngineCapability.STANDARD, /
) -> IPluginRegistry:
    """The registry of what builds engines of a capability: the one that there is."""
    if not isinstance(capability, EngineCapability):
        raise TypeError(
            f"get_builder_plugin_registry: expected an EngineCapability, got {capability!r}"
        )
    return _registry


def init_libnvinfer_plugins(logger: Any, namespace: str) -> bool:
    """Accepted, as scripts call it: there are no plugins to be registered, since
    operators that TensorRT has as plugins are operators of the network here."""
    from .._callbacks import ILogger

    if logger is not None and not isinstance(logger, ILogger):
        raise TypeError(
            f"init_libnvinfer_plugins: expected a logger or None, got {logger!r}"
        )
    if not isinstance(namespace, str):
        raise TypeError(f"init_libnvinfer_plugins: expected a str, got {namespace!r}")
    return True


def find_definition(name: str, version: str, namespace: str) -> Definition | None:
    """The definition of a class under a key; a creator that was registered under
    another namespace than its own is found by its own, too."""
    definitions = _registry._definitions
    found = definitions.get((name, version, namespace))
    if found is not None:
        return found
    fitting = [
        definition
        for key, definition in definitions.items()
        if key[:2] == (name, version)
        and definition.creator.plugin_namespace == namespace
    ]
    return fitting[0] if len(fitting) == 1 else None


