"""Creators that are not users' classes: of decorated plugins and of libraries."""

from __future__ import annotations

from typing import Any

from .._enums import PluginFieldType, QuickPluginCreationRequest
from .._numbers import Attr
from .._plugin_base import Key
from ._bases import IPluginCreatorV3One, IPluginCreatorV3Quick, IPluginV3
from ._fields import PluginField, PluginFieldCollection


class FoundPlugin(IPluginV3):
    """A plugin of a creator that the engine knows by name: for add_plugin_v3."""

    __slots__ = ("attrs", "creator_key")

    def __init__(self, key: Key, attrs: dict[str, Any]) -> None:
        super().__init__()
        self.creator_key, self.attrs = key, attrs

    def __repr__(self) -> str:
        return f"<plugin '{self.creator_key[0]}'>"


# By the types of attributes.
_FIELD_TYPES = {
    Attr.INT: PluginFieldType.INT64,
    Attr.FLOAT: PluginFieldType.FLOAT64,
    Attr.BOOL: PluginFieldType.INT8,
    Attr.STRING: PluginFieldType.CHAR,
    Attr.INTS: PluginFieldType.INT64,
    Attr.FLOATS: PluginFieldType.FLOAT64,
    Attr.BOOLS: PluginFieldType.INT8,
    Attr.STRINGS: PluginFieldType.CHAR,
}


class _Known:
    """Base of the creators of decorated plugins and of libraries."""

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
        """Makes a plugin from its fields."""
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
        """Makes a plugin from its fields."""
        return self._make(field_collection)


def _value_of(field: PluginField, code: int) -> Any:
    """Value of a field, for the attribute that a plugin declares."""
    if code == Attr.STRING:
        return field.tobytes().decode("utf-8").rstrip("\0")
    if code == Attr.BYTES:
        return field.tobytes()
    if code == Attr.STRINGS:
        texts = field.tobytes().decode("utf-8").removesuffix("\0")
        return (code, texts.split("\0") if texts else [])
    data = field.data
    values = [] if data is None else data.tolist()
    if code in (Attr.BOOL, Attr.BOOLS):
        values = [bool(value) for value in values]
    if code in (Attr.INT, Attr.FLOAT, Attr.BOOL):
        if len(values) != 1:
            raise ValueError(
                f"PluginField '{field.name}' holds {len(values)} values; expected one"
            )
        return float(values[0]) if code == Attr.FLOAT else values[0]
    return (code, values) if code else values
