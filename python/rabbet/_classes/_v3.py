"""Plugins of class IPluginV3."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from .. import _rabbet
from .._enums import DataType, PluginCapabilityType, TensorFormat, TensorRTPhase
from .._errors import PluginError
from .._layers._plugin_layers import IPluginV3Layer
from .._plugin_base import find_class
from ._bases import (
    IPluginResourceContext,
    IPluginV3,
    IPluginV3OneBuild,
    IPluginV3OneBuildV2,
    IPluginV3OneCore,
    IPluginV3OneRuntime,
    IPluginV3QuickBuild,
    IPluginV3QuickCore,
    IPluginV3QuickRuntime,
)
from ._calls import Caller
from ._exprs import (
    DimsExprs,
    Range,
    builder_for,
    dynamic_desc,
    exprs,
    given_desc,
    made_desc,
)
from ._fields import (
    PluginField,
    decode_fields,
    encode_fields,
)
from ._instance import (
    METADATA,
    SHAPE_INPUTS,
    WORKSPACE,
    Bound,
    ClassInstance,
    DescribedInput,
    QueryTensor,
    View,
    combination,
    destroy,
    source_digest,
)

_CAPABILITIES: dict[PluginCapabilityType, tuple[type, ...]] = {
    PluginCapabilityType.CORE: (IPluginV3OneCore, IPluginV3QuickCore),
    PluginCapabilityType.BUILD: (IPluginV3OneBuild, IPluginV3QuickBuild),
    PluginCapabilityType.RUNTIME: (IPluginV3OneRuntime, IPluginV3QuickRuntime),
}


def capability(calls: Caller, plugin: Any, kind: PluginCapabilityType) -> Any:
    """The object that implements a capability of a plugin."""
    found = calls.call(plugin, "get_capability_interface", kind)
    if isinstance(found, _CAPABILITIES[kind]):
        return found
    names = " or ".join(accepted.__name__ for accepted in _CAPABILITIES[kind])
    calls.fail(
        plugin,
        "get_capability_interface",
        f"for {kind.name} it returned {found!r}; expected an object of a class that "
        f"derives from {names} (normally self)",
    )


def clone(calls: Caller, plugin: Any) -> Any:
    """A checked copy."""
    made = calls.copy(plugin, calls.call(plugin, "clone"), "clone", IPluginV3)
    core = PluginCapabilityType.CORE
    ours, theirs = capability(calls, plugin, core), capability(calls, made, core)
    if ours is not plugin:
        calls.copied(plugin, ours, theirs)
    calls.copied(plugin, plugin, made)
    return made


class Configured(NamedTuple):
    """A plugin configured for types and formats."""

    plugin: Any
    tactics: list[int]
    workspace: int


class V3Instance(ClassInstance):
    """A plugin of class IPluginV3 with the capabilities IPluginV3One..."""

    layer_class = IPluginV3Layer

    def __init__(
        self,
        plugin: Any,
        layer: str | None,
        phase: TensorRTPhase,
        shape_inputs: int = 0,
        attrs: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(plugin, layer, shape_inputs)
        if not isinstance(plugin, IPluginV3):
            raise TypeError(f"expected a plugin of class IPluginV3, got {plugin!r}")
        self.phase = phase
        self._configurations: dict[Any, Configured] = {}
        self._stored_workspace = 0
        self.core = capability(self.calls, plugin, PluginCapabilityType.CORE)
        if phase is TensorRTPhase.BUILD:
            self.build = capability(self.calls, plugin, PluginCapabilityType.BUILD)
        self._check_runtime()
        if phase is TensorRTPhase.BUILD:
            self.output_count = self._count_outputs(self.build)
            self._metadata = self._metadata_string()
        elif attrs is not None:
            self.shape_inputs = attrs.get(SHAPE_INPUTS, 0)
            self._stored_workspace = attrs.get(WORKSPACE, 0)
            self._metadata = attrs.get(METADATA)

    def _check_runtime(self) -> None:
        capability(self.calls, self.plugin, PluginCapabilityType.RUNTIME)

    def _metadata_string(self) -> str | None:
        text: str | None = self.build.metadata_string
        return text

    @property
    def key(self) -> tuple[str, str, str]:
        """Name, version and namespace of the creator that deserializes it."""
        return self._creator_of(self.core, "plugin_name")

    def __del__(self) -> None:
        if getattr(self, "_configurations", None) is None:
            return
        self._forget()
        destroy(self.calls, self.plugin)

    def _forget(self) -> None:
        """Discards the copies configured for a build: the plugin may change before the
        next one."""
        configurations, self._configurations = self._configurations, {}
        for configured in configurations.values():
            destroy(self.calls, configured.plugin)

    def _begin(self, device: str) -> None:
        super()._begin(device)
        self._forget()

    # ---- Outputs ----

    def describe(
        self, builder: _rabbet.DimBuilder, inputs: Sequence[DescribedInput]
    ) -> list[tuple[int, tuple[int, ...], int, bool]]:
        """(type, dims, aliased input, is size tensor) for each output."""
        numbers = self._numbers(len(inputs))
        types = self._output_types(inputs, numbers)
        maker = builder_for(builder)
        method = "get_output_shapes"
        shapes = self.calls.items(
            self.build,
            method,
            self.calls.call(
                self.build,
                method,
                [exprs(builder, inputs[i][1]) for i in numbers],
                self._shape_values(builder, inputs),
                maker,
            ),
            DimsExprs,
            self.output_count,
        )
        return [
            (
                int(dtype),
                self.calls.dims(self.build, method, builder, i, dims),
                self._alias(i, numbers),
                i in maker._sizes,
            )
            for i, (dtype, dims) in enumerate(zip(types, shapes, strict=True))
        ]

    def _output_types(
        self, inputs: Sequence[DescribedInput], numbers: tuple[int, ...]
    ) -> list[DataType]:
        method = "get_output_data_types"
        types = self.calls.call(self.build, method, *self._type_arguments(inputs, numbers))
        return self.calls.items(self.build, method, types, DataType, self.output_count)

    def _type_arguments(
        self, inputs: Sequence[DescribedInput], numbers: tuple[int, ...]
    ) -> tuple[Any, ...]:
        return ([inputs[i][0] for i in numbers],)

    def _shape_values(
        self, builder: _rabbet.DimBuilder, inputs: Sequence[DescribedInput]
    ) -> list[DimsExprs]:
        found = []
        for i, (_, _, values) in enumerate(inputs):
            if not self._is_shape(i):
                continue
            if values is None or len(values) > 8:
                count = "no" if values is None else len(values)
                raise PluginError(
                    f"layer '{self.calls.layer}': shape input {i} has {count} values; a "
                    "class can be given up to 8 of each shape input"
                )
            found.append(exprs(builder, values))
        return found

    def _alias(self, output: int, numbers: tuple[int, ...]) -> int:
        if not self._has_aliases():
            return -1
        method = "get_aliased_input"
        value = self.calls.call(self.build, method, output, default=-1)
        index = self.calls.integer(self.build, method, value, -1)
        if index >= len(numbers):
            self.calls.fail(
                self.build,
                method,
                f"for output {output} it returned {index}, but there are {len(numbers)} "
                "inputs",
            )
        return -1 if index < 0 else numbers[index]

    def _has_aliases(self) -> bool:
        return isinstance(self.build, IPluginV3OneBuildV2)

    # ---- Types, formats, tactics ----

    def _asked(self) -> Any:
        if self.phase is TensorRTPhase.BUILD:
            return self.build
        kind = PluginCapabilityType.BUILD
        found = self.calls.call(self.plugin, "get_capability_interface", kind)
        return found if isinstance(found, _CAPABILITIES[kind]) else None

    def _limit(self) -> int:
        limit: int = self.build.format_combination_limit
        return max(limit, 1)

    def _query_desc(
        self, dtype: DataType, format_: TensorFormat, extent: Range
    ) -> Any:
        return dynamic_desc(dtype, format_, extent)

    def tactics(
        self, device: str, tensors: Sequence[QueryTensor], num_inputs: int
    ) -> list[int] | None:
        """Tactics for the tensors' combination; None in a loaded plan, as a plugin
        lists them only after configure_plugin."""
        if self.phase is TensorRTPhase.RUNTIME:
            return None
        seen, inputs = self._seen(tensors, num_inputs)
        self._ranges = [tensor[2:] for tensor in seen]
        return self._configure(combination(seen), inputs).tactics

    def _configure(self, key: tuple[Any, ...], inputs: int) -> Configured:
        """A copy of the plugin configured for types and formats."""
        assert self._ranges is not None
        found = self._configurations.get((key, tuple(self._ranges)))
        if found is not None:
            return found
        plugin = clone(self.calls, self.plugin)
        build = capability(self.calls, plugin, PluginCapabilityType.BUILD)

        def descs() -> tuple[list[Any], list[Any]]:
            made = [
                dynamic_desc(choice[0], choice[1], extent)
                for choice, extent in zip(key, self._ranges or (), strict=True)
            ]
            return made[:inputs], made[inputs:]

        self.calls.call(build, "configure_plugin", *descs())
        method = "get_workspace_size"
        tactics = self._valid_tactics(build)
        workspace = self.calls.integer(
            build, method, self.calls.call(build, method, *descs(), default=0), 0
        )
        configured = Configured(plugin, tactics, workspace)
        self._configurations[key, tuple(self._ranges)] = configured
        return configured

    def _valid_tactics(self, build: Any) -> list[int]:
        method = "get_valid_tactics"
        answer = self.calls.call(build, method, default=[])
        if answer is None or isinstance(answer, (str, bytes)):
            self.calls.fail(build, method, f"it returned {answer!r}; expected a list of ints")
        try:
            tactics = [self.calls.integer(build, method, item, 1) for item in answer]
        except TypeError:
            self.calls.fail(build, method, f"it returned {answer!r}; expected a list of ints")
        if len(set(tactics)) != len(tactics):
            self.calls.fail(
                build, method, f"it returned {tactics}; tactics must be different"
            )
        return tactics

    # ---- Running ----

    def _attach(self, source: Any, device: str, tactic: int) -> tuple[Any, Any]:
        """A copy for a context, with its tactic set; and its runtime capability."""
        runtime = capability(self.calls, source, PluginCapabilityType.RUNTIME)
        method = "attach_to_context"
        attached = self.calls.call(runtime, method, IPluginResourceContext(device))
        self.calls.copy(source, attached, method, IPluginV3)
        runtime = capability(self.calls, attached, PluginCapabilityType.RUNTIME)
        self.calls.call(runtime, "set_tactic", tactic)
        return attached, runtime

    def bind(
        self, device: str, tactic: int, inputs: Sequence[View], outputs: Sequence[View]
    ) -> Bound:
        """The plugin prepared to run with these shapes."""
        numbers = self._numbers(len(inputs))
        seen = [inputs[i] for i in numbers]
        source, workspace = self.plugin, self._stored_workspace
        if self.phase is TensorRTPhase.BUILD:
            views = [*seen, *outputs]
            key = combination(views)
            if self._ranges is None:  # its combinations were not asked for
                self._ranges = [(view[2],) * 4 for view in views]
            configured = self._configure(key, len(numbers))
            source, workspace = configured.plugin, configured.workspace
        attached, runtime = self._attach(source, device, tactic)
        self.calls.call(
            runtime,
            "on_shape_change",
            [made_desc(*view) for view in seen],
            [made_desc(*view) for view in outputs],
        )
        return self._bound(
            runtime,
            tuple(given_desc(device, *view) for view in seen),
            tuple(given_desc(device, *view) for view in outputs),
            numbers,
            workspace=workspace,
            extra=None,
            release=partial(destroy, self.calls, attached),
            declared=attached,
        )

    # ---- Stored data ----

    def serialize(
        self,
        device: str,
        tensors: Sequence[QueryTensor],
        num_inputs: int,
        tactic: int,
    ) -> dict[str, Any]:
        """The plugin's fields, and Rabbet's own ones."""
        seen, inputs = self._seen(tensors, num_inputs)
        self._ranges = [tensor[2:] for tensor in seen]
        configured = self._configure(combination(seen), inputs)
        kind = PluginCapabilityType.RUNTIME
        runtime = capability(self.calls, configured.plugin, kind)
        attrs = self._fields(runtime)
        self._check_round_trip(runtime, attrs)
        if self.shape_inputs:
            attrs[SHAPE_INPUTS] = self.shape_inputs
        if configured.workspace:
            attrs[WORKSPACE] = configured.workspace
        if self._metadata is not None:
            attrs[METADATA] = self._metadata
        return attrs

    def _fields(self, runtime: Any) -> dict[str, Any]:
        method = "get_fields_to_serialize"
        fields = self.calls.items(
            runtime, method, self.calls.call(runtime, method), PluginField, None
        )
        try:
            return encode_fields(fields)
        except ValueError as error:
            self.calls.fail(runtime, method, str(error))

    def _check_round_trip(self, runtime: Any, attrs: dict[str, Any]) -> None:
        """Checks that the creator makes an equal plugin from the fields."""
        definition = find_class(*self.key)
        if definition is None:
            return
        try:
            restored: Any = definition.create(attrs, self.calls.layer, 1)
            again = restored._fields(
                capability(self.calls, restored.plugin, PluginCapabilityType.RUNTIME)
            )
        except Exception as error:
            error.add_note(
                "while checking that a plugin can be restored from the fields of "
                f"{self.calls.where(runtime, 'get_fields_to_serialize')}"
            )
            raise
        ours, theirs = decode_fields(attrs), decode_fields(again)
        if again != attrs:
            self.calls.fail(
                runtime,
                "get_fields_to_serialize",
                f"the fields do not round-trip: {_difference(ours, theirs)} in the plugin "
                f"that {type(definition.creator).__name__}.create_plugin() made of them in "
                "phase RUNTIME",
            )

    def timing_key(self) -> dict[str, Any] | None:
        """Key of everything besides shapes and types that determines the speed; None:
        unknown."""
        identity = self._timing_cache_id()
        if identity is None:
            return None
        return {"id": identity, "class": source_digest(self.plugin)}

    def _timing_cache_id(self) -> str | None:
        identity: str | None = self.build.timing_cache_id
        return identity


def _difference(ours: list[PluginField], theirs: list[PluginField]) -> str:
    found = {field.name: field for field in theirs}
    for field in ours:
        other = found.pop(field.name, None)
        if other is None:
            return f"'{field.name}' is missing"
        if (other.type, other.tobytes()) != (field.type, field.tobytes()):
            return f"'{field.name}' was {_value(field)} and is {_value(other)}"
    if found:
        return f"'{next(iter(found))}' has come in addition"
    return "the fields have another order"


def _value(field: PluginField) -> str:
    try:
        data = field.data
    except (AttributeError, ValueError):
        data = None
    shown = field.tobytes() if data is None else data.tolist()
    return f"{field.type.name} {shown!r:.80}"


