"""Plugins of class IPluginV2DynamicExt."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

from .. import _rabbet
from .._enums import DataType, TensorFormat, TensorRTPhase
from .._layers._plugin_layers import IPluginV2Layer
from .._plugin_base import find_class
from ._bases import IPluginV2DynamicExt
from ._calls import Caller, same
from ._exprs import (
    DimsExprs,
    Range,
    builder_for,
    dynamic_desc,
    exprs,
    given_desc,
    made_desc,
)
from ._instance import (
    Bound,
    ClassInstance,
    DescribedInput,
    QueryTensor,
    View,
    destroy,
)

DATA = "rabbet.v2"


def clone(calls: Caller, plugin: Any) -> Any:
    """A checked copy."""
    method = "clone"
    made = calls.copy(plugin, calls.call(plugin, method), method, IPluginV2DynamicExt)
    calls.copied(plugin, plugin, made, but="plugin_namespace")
    made.plugin_namespace = plugin.plugin_namespace  # the registry's
    return made


class V2Instance(ClassInstance):
    """A plugin of class IPluginV2DynamicExt."""

    layer_class = IPluginV2Layer

    def __init__(
        self, plugin: Any, layer: str | None, phase: TensorRTPhase, shape_inputs: int = 0
    ) -> None:
        super().__init__(plugin, layer, 0)
        if not isinstance(plugin, IPluginV2DynamicExt):
            raise TypeError(
                f"expected a plugin of class IPluginV2DynamicExt, got {plugin!r}"
            )
        if shape_inputs:
            warnings.warn(
                f"layer '{layer}': plugins of class IPluginV2DynamicExt have no shape "
                "inputs; they are inputs like others. Derive from IPluginV3",
                stacklevel=2,
            )
        self.phase = phase
        self.output_count = self._count_outputs(plugin)

    @property
    def key(self) -> tuple[str, str, str]:
        """Name, version and namespace of the creator that deserializes it."""
        return self._creator_of(self.plugin, "plugin_type")

    def __del__(self) -> None:
        if getattr(self, "phase", None) is not None:
            destroy(self.calls, self.plugin)

    # ---- Outputs ----

    def describe(
        self, builder: _rabbet.DimBuilder, inputs: Sequence[DescribedInput]
    ) -> list[tuple[int, tuple[int, ...], int, bool]]:
        """(type, dims, aliased input, is size tensor) for each output."""
        types = [item[0] for item in inputs]
        plugin, calls = self.plugin, self.calls
        maker = builder_for(builder)
        found = []
        for i in range(self.output_count):
            method = "get_output_datatype"
            dtype = calls.call(plugin, method, i, list(types))
            if not isinstance(dtype, DataType):
                calls.fail(
                    plugin,
                    method,
                    f"for output {i} it returned {dtype!r}; expected a DataType",
                )
            method = "get_output_dimensions"
            given = [exprs(builder, item[1]) for item in inputs]
            dims = calls.call(plugin, method, i, given, maker)
            if not isinstance(dims, DimsExprs):
                calls.fail(
                    plugin,
                    method,
                    f"for output {i} it returned {dims!r}; expected DimsExprs",
                )
            found.append((int(dtype), calls.dims(plugin, method, builder, i, dims)))
        return [
            (dtype, dims, -1, i in maker._sizes) for i, (dtype, dims) in enumerate(found)
        ]

    # ---- Types and formats ----

    def _limit(self) -> int:
        return self.plugin.FORMAT_COMBINATION_LIMIT

    def _query_desc(
        self, dtype: DataType, format_: TensorFormat, extent: Range
    ) -> Any:
        return made_desc(dtype, format_, extent[0])

    def tactics(
        self, device: str, tensors: Sequence[QueryTensor], num_inputs: int
    ) -> list[int]:
        """None: plugins of this kind have no tactics."""
        return []

    def _configure(self, plugin: Any, tensors: Sequence[QueryTensor], inputs: int) -> None:
        descs = [dynamic_desc(t[0], t[1], t[2:]) for t in tensors]
        self.calls.call(plugin, "configure_plugin", descs[:inputs], descs[inputs:])

    # ---- Running ----

    def bind(
        self, device: str, tactic: int, inputs: Sequence[View], outputs: Sequence[View]
    ) -> Bound:
        """The plugin prepared to run with these shapes."""
        calls = self.calls
        plugin = clone(calls, self.plugin)
        views = [*inputs, *outputs]
        count = len(inputs)
        if calls.has(plugin, "attach_to_context"):
            calls.call(plugin, "attach_to_context", 0, 0, None)
        concrete = [(t, f, dims, dims, dims, dims) for t, f, dims in views]
        self._configure(plugin, concrete, count)
        descs = [made_desc(*view) for view in views]
        method = "get_workspace_size"
        size = calls.call(plugin, method, descs[:count], descs[count:], default=0)
        workspace = calls.integer(plugin, method, size, 0)
        if calls.has(plugin, "initialize"):
            calls.call(plugin, "initialize")
            # Plugins write shapes to memory that initialize allocates.
            self._configure(plugin, concrete, count)
        return self._bound(
            plugin,
            tuple(given_desc(device, *view) for view in inputs),
            tuple(given_desc(device, *view) for view in outputs),
            tuple(range(count)),
            workspace=workspace,
            extra=None,
            release=partial(_release, calls, plugin),
            declared=plugin,
        )

    # ---- Stored data ----

    def serialize(
        self,
        device: str,
        tensors: Sequence[QueryTensor],
        num_inputs: int,
        tactic: int,
    ) -> dict[str, Any]:
        """The plugin's serialized bytes."""
        plugin = clone(self.calls, self.plugin)
        self._configure(plugin, tensors, num_inputs)
        data = _data(self.calls, plugin)
        self._check_round_trip(plugin, data, tensors, num_inputs)
        destroy(self.calls, plugin)
        return {DATA: data}

    def _check_round_trip(
        self,
        plugin: Any,
        data: bytes,
        tensors: Sequence[QueryTensor],
        num_inputs: int,
    ) -> None:
        """Checks that the creator makes an equal plugin from the bytes."""
        definition = find_class(*self.key)
        if definition is None:
            return
        calls = self.calls
        try:
            restored = definition.create({DATA: data}, calls.layer, 1).plugin
            again = _data(calls, restored)
        except Exception as error:
            error.add_note(
                "while checking that a plugin can be restored from the bytes of "
                f"{calls.where(plugin, 'serialize')}"
            )
            raise
        if again == data:
            return
        # Equal contents may have different bytes (pickle, the order of keys).
        self._configure(restored, tensors, num_inputs)
        ours, theirs = vars(plugin), vars(restored)
        for name in ours.keys() & theirs.keys():
            if not same(ours[name], theirs[name]):
                calls.fail(
                    plugin,
                    "serialize",
                    f"the bytes do not round-trip: attribute '{name}' was "
                    f"{ours[name]!r:.80} and is {theirs[name]!r:.80} in the plugin that "
                    f"{type(definition.creator).__name__}.deserialize_plugin() made of "
                    "them",
                )

    def timing_key(self) -> None:
        """Not known: it is timed in each build."""


def _data(calls: Caller, plugin: Any) -> bytes:
    """The bytes of serialize(), which must be the same twice."""
    method = "serialize"
    found = []
    for _ in range(2):
        data = calls.call(plugin, method)
        if isinstance(data, str):
            data = data.encode()
        if not isinstance(data, (bytes, bytearray, memoryview)):
            calls.fail(plugin, method, f"it returned {data!r}; expected bytes")
        found.append(bytes(data))
    if found[0] != found[1]:
        calls.fail(
            plugin,
            method,
            "it returned other bytes when it was called again; it must give the same",
        )
    size_method = "get_serialization_size"
    if calls.has(plugin, size_method):
        size = calls.integer(plugin, size_method, calls.call(plugin, size_method), 0)
        if size != len(found[0]):
            calls.fail(
                plugin,
                size_method,
                f"it returned {size}, but serialize() gave {len(found[0])} bytes; leave "
                "the method out and they are counted",
            )
    return found[0]


def _release(calls: Caller, plugin: Any) -> None:
    for method in ("terminate", "detach_from_context"):
        if calls.has(plugin, method):
            calls.call(plugin, method)
    destroy(calls, plugin)
