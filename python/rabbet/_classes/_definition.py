"""Creators of classes, as the engine calls them."""

from __future__ import annotations

from typing import Any, NoReturn

from .. import _rabbet
from .._enums import QuickPluginCreationRequest, TensorRTPhase
from .._errors import PluginError
from .._plugin_base import Key
from ._bases import (
    IPluginCreator,
    IPluginCreatorInterface,
    IPluginCreatorV3Quick,
    IPluginV2DynamicExt,
    IPluginV3,
)
from ._calls import Caller, class_name
from ._fields import (
    PluginField,
    PluginFieldCollection_,
    are_fields,
    decode_fields,
    field_of_attribute,
)
from ._instance import ClassInstance, origin
from ._quick import QuickInstance
from ._v2 import DATA, V2Instance
from ._v3 import V3Instance


class Definition:
    """A creator of a class, as the engine calls it."""

    def __init__(self, creator: IPluginCreatorInterface, key: Key) -> None:
        self.creator, self.key = creator, key
        self.origin = origin(creator)

    def register(self) -> None:
        """Registers the creator with the engine."""
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
        """Makes a plugin for a layer (phase 0, from attributes of an ONNX node) or for
        a step of a plan (phase 1, from serialized attributes). Plugins that are classes
        have no optional inputs."""
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
