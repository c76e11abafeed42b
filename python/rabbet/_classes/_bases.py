"""Bases of users' plugins and creators.

The classes have no state of their own but the attributes that the engine asks
for, which lie in one place of one common base, so that several can be inherited
together and `clone.__dict__.update(self.__dict__)` leaves them alone.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, ClassVar, NoReturn, Self, TypeVar

from .. import _enums as e
from .._managed import refuse_class, refused
from .._versioned import InterfaceInfo, IVersionedInterface
from ._fields import PluginFieldCollection

F = TypeVar("F", bound=Callable[..., Any])
_UNSET = object()


def _to_int(value: Any) -> int:
    return operator.index(value)


def _to_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a str")
    return value


def _to_text_or_none(value: Any) -> str | None:
    return None if value is None else _to_text(value)


def _to_fields(value: Any) -> PluginFieldCollection:
    return (
        value
        if isinstance(value, PluginFieldCollection)
        else PluginFieldCollection(value)
    )


_EXPECTED: dict[Callable[[Any], Any], str] = {
    _to_int: "an int",
    _to_text: "a str",
    _to_text_or_none: "a str or None",
    _to_fields: "a PluginFieldCollection",
}


class Attribute:
    """An attribute of a plugin that the engine reads."""

    def __init__(self, convert: Callable[[Any], Any], doc: str, default: Any = _UNSET):
        self.convert, self.default, self.__doc__ = convert, default, doc

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        value = instance._rabbet_native.get(self.name, self.default)
        if value is _UNSET:
            raise AttributeError(
                f"{type(instance).__name__}.{self.name} was never set; set it to "
                f"{_EXPECTED[self.convert]} in __init__, which clone() must run as well"
            )
        return value() if isinstance(value, type) else value

    def __set__(self, instance: Any, value: Any) -> None:
        try:
            value = self.convert(value)
        except TypeError:
            raise TypeError(
                f"{type(instance).__name__}.{self.name}: expected "
                f"{_EXPECTED[self.convert]}, got {value!r}"
            ) from None
        # A new dict: copies of the object share the old one.
        instance._rabbet_native = {**instance._rabbet_native, self.name: value}


def stub(function: F) -> F:
    """Marks a method that users define; the base class only documents it."""
    function._rabbet_stub = True  # type: ignore[attr-defined]
    return function


def stub_of(arguments: str) -> Callable[[Any], Any]:
    """The same for a method whose arguments' names are not valid in Python."""

    def decorate(function: Any) -> Any:
        function._rabbet_stub = f"(self, {arguments})"
        return function

    return decorate


def _undefined(self: Any, name: str) -> NoReturn:
    raise NotImplementedError(
        f"{type(self).__name__} does not define {name}(); the base class has nothing to "
        "call"
    )


class _Native(IVersionedInterface):
    """Base of all classes here."""

    __slots__ = ("_rabbet_native",)
    _rabbet_native: dict[str, Any]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        self = super().__new__(cls)
        self._rabbet_native = {}
        return self

    def __init__(self, other: Any = None) -> None:
        """`other` is ignored; scripts pass it to copy an object, which clone() does."""


class IPluginCapability(_Native):
    """A part of a plugin."""

    __slots__ = ()


# ---- IPluginV3 ----


class IPluginV3(_Native):
    """A plugin. Its parts, called capabilities, are one object or several."""

    __slots__ = ()
    _rabbet_info = InterfaceInfo("PLUGIN_V3", 1, 0)

    @stub
    def get_capability_interface(self, type: e.PluginCapabilityType) -> Any:
        """The object with a capability; normally self."""
        _undefined(self, "get_capability_interface")

    @stub
    def clone(self) -> IPluginV3:
        """A new object in the same state."""
        _undefined(self, "clone")

    @stub
    def destroy(self) -> None:
        """Called when the engine lets go of the object."""


class IPluginV3OneCore(IPluginCapability):
    """The part that identifies a plugin."""

    __slots__ = ()
    _rabbet_info = InterfaceInfo("PLUGIN_V3ONE_CORE", 1, 0)
    plugin_name = Attribute(_to_text, "Its name; its creator's, too.")
    plugin_version = Attribute(_to_text, "Its version; its creator's, too.")
    plugin_namespace = Attribute(_to_text, "Its namespace; its creator's, too.")


class IPluginV3OneBuild(IPluginCapability):
    """The part that a build calls."""

    __slots__ = ()
    _rabbet_info = InterfaceInfo("PLUGIN_V3ONE_BUILD", 1, 0)
    DEFAULT_FORMAT_COMBINATION_LIMIT: ClassVar[int] = 100
    num_outputs = Attribute(_to_int, "The number of outputs.")
    format_combination_limit = Attribute(
        _to_int, "Combinations of types and formats that are tried at most.", 100
    )
    metadata_string = Attribute(_to_text_or_none, "Text for the inspector.", None)
    timing_cache_id = Attribute(
        _to_text_or_none,
        "Whether times may be kept in a timing cache (a str), and what they depend on "
        "besides shapes, types and formats. None: timed in each build.",
        None,
    )

    @stub
    def get_output_data_types(self, input_types: Any) -> Any:
        """Returns a list of the outputs' types."""
        _undefined(self, "get_output_data_types")

    @stub
    def get_output_shapes(
        self, inputs: Any, shape_inputs: Any, expr_builder: Any
    ) -> Any:
        """Returns the outputs' dimensions: a list of DimsExprs."""
        _undefined(self, "get_output_shapes")

    @stub
    def supports_format_combination(
        self, pos: int, in_out: Any, num_inputs: int
    ) -> bool:
        """Whether the type and format of in_out[pos] are supported, given those of the
        positions before."""
        _undefined(self, "supports_format_combination")

    @stub_of("in, out")
    def configure_plugin(self, *in_out: Any, **named: Any) -> None:
        """Receives the chosen types and formats, and the bounds of the dimensions."""
        _undefined(self, "configure_plugin")

    @stub_of("in, out")
    def get_workspace_size(self, *in_out: Any, **named: Any) -> int:
        """Bytes of scratch memory that enqueue needs. Default: 0."""
        return 0

    @stub
    def get_valid_tactics(self) -> Any:
        """Returns the tactics, positive numbers. Default: none, and enqueue runs with
        0."""
        return []


class IPluginV3OneBuildV2(IPluginV3OneBuild):
    """The part that a build calls, for plugins with outputs in an input's memory."""

    __slots__ = ()
    _rabbet_info = InterfaceInfo("PLUGIN_V3ONE_BUILD", 2, 0)

    @stub
    def get_aliased_input(self, output_index: int = 0) -> int:
        """Returns the input whose memory an output shares; -1 (default): none."""
        return -1


class IPluginV3OneRuntime(IPluginCapability):
    """The part that runs."""

    __slots__ = ()
    _rabbet_info = InterfaceInfo("PLUGIN_V3ONE_RUNTIME", 1, 0)

    @stub_of("in, out")
    def on_shape_change(self, *in_out: Any, **named: Any) -> None:
        """Receives the shapes of the following runs."""
        _undefined(self, "on_shape_change")

    @stub
    def set_tactic(self, tactic: int) -> None:
        """Receives the tactic of the following runs."""
        _undefined(self, "set_tactic")

    @stub
    def get_fields_to_serialize(self) -> PluginFieldCollection:
        """Returns the fields that the creator receives when the plan is loaded."""
        _undefined(self, "get_fields_to_serialize")

    @stub
    def attach_to_context(self, resource_context: Any) -> IPluginV3:
        """A copy for an execution context; normally self.clone()."""
        _undefined(self, "attach_to_context")

    @stub
    def enqueue(
        self,
        input_desc: Any,
        output_desc: Any,
        inputs: Any,
        outputs: Any,
        workspace: int,
        stream: int,
    ) -> None:
        """Computes; addresses and the stream are ints."""
        _undefined(self, "enqueue")


# ---- Quick plugins, which rabbet.plugin's decorators replace ----


class IPluginV3QuickCore(IPluginCapability):
    """The part that identifies a plugin."""

    __slots__ = ()
    _rabbet_info = InterfaceInfo("PLUGIN_V3QUICK_CORE", 1, 0)
    plugin_name = IPluginV3OneCore.__dict__["plugin_name"]
    plugin_version = IPluginV3OneCore.__dict__["plugin_version"]
    plugin_namespace = IPluginV3OneCore.__dict__["plugin_namespace"]


class IPluginV3QuickBuild(IPluginCapability):
    """The part that a build calls. Users define get_num_outputs,
    get_output_data_types(types, ranks), get_output_shapes(inputs, shape_inputs,
    expr_builder), get_supported_format_combinations(in_out, num_inputs) and
    configure_plugin(in, out); optionally get_valid_tactics, get_aliased_input(output),
    get_timing_cache_id and get_metadata_string."""

    __slots__ = ()
    _rabbet_info = InterfaceInfo("PLUGIN_V3QUICK_BUILD", 1, 0)


class IPluginV3QuickAOTBuild(IPluginV3QuickBuild):
    """The part that a build calls for kernels compiled ahead of time. Users also define
    set_tactic(tactic), get_launch_params(inputs, in_out, num_inputs, launch_params,
    extra_args, expr_builder) and get_kernel(in, out)."""

    __slots__ = ()
    _rabbet_info = InterfaceInfo("PLUGIN_V3QUICKAOT_BUILD", 1, 0)


class IPluginV3QuickRuntime(IPluginCapability):
    """The part that runs. Users define set_tactic(tactic), get_fields_to_serialize() and
    enqueue(input_desc, output_desc, inputs, outputs, in_strides, out_strides,
    stream)."""

    __slots__ = ()
    _rabbet_info = InterfaceInfo("PLUGIN_V3QUICK_RUNTIME", 1, 0)


# ---- IPluginV2 ----


_OLDER = "plugins with a batch of their own are none here; derive from IPluginV2DynamicExt"


class IPluginV2(_Native):
    """Base of the older plugins."""

    __slots__ = ()
    num_outputs = Attribute(_to_int, "The number of outputs.")
    plugin_type = Attribute(_to_text, "Its name; its creator's, too.")
    plugin_version = Attribute(_to_text, "Its version; its creator's, too.")
    plugin_namespace = Attribute(_to_text, "Its namespace; its creator's, too.", "")

    @property
    def tensorrt_version(self) -> int:
        """Version of the interface that the plugin is written for."""
        return 4 << 24 | 101600

    @property
    def serialization_size(self) -> int:
        """Size of the result of serialize(), in bytes."""
        data = self.serialize()
        return len(data.encode() if isinstance(data, str) else data)

    @refused(_OLDER)
    def get_output_shape(self, index: int, input_shapes: Any) -> Any:
        """Dimensions of an output."""

    @refused(_OLDER)
    def supports_format(self, dtype: Any, format: Any) -> Any:
        """Whether the type and format are supported."""

    @refused(_OLDER)
    def configure_with_format(
        self,
        input_shapes: Any,
        output_shapes: Any,
        dtype: Any,
        format: Any,
        max_batch_size: int,
    ) -> Any:
        """Receives the chosen type and format."""

    @refused(_OLDER)
    def get_workspace_size(self, max_batch_size: int) -> Any:
        """Bytes of scratch memory."""

    @refused(_OLDER)
    def execute_async(
        self, batch_size: int, inputs: Any, outputs: Any, workspace: int, stream_handle: int
    ) -> Any:
        """Computes."""

    @stub
    def initialize(self) -> Any:
        """Called before runs. Default: nothing."""

    @stub
    def terminate(self) -> None:
        """Called after runs. Default: nothing."""

    @stub
    def serialize(self) -> bytes:
        """Returns the bytes that the creator's deserialize_plugin receives when the
        plan is loaded."""
        _undefined(self, "serialize")

    @stub
    def clone(self) -> IPluginV2:
        """A new object in the same state."""
        _undefined(self, "clone")

    @stub
    def destroy(self) -> None:
        """Called when the engine lets go of the object."""


class IPluginV2DynamicExtBase(IPluginV2):
    """Base of plugins with dynamic shapes."""

    __slots__ = ()


class IPluginV2DynamicExt(IPluginV2DynamicExtBase):
    """A plugin of the older kind, with dynamic shapes: derive from it.

    If a class defines attach_to_context(cudnn, cublas, allocator) and
    detach_from_context(), they are called when an execution context begins and
    ends to use it; cudnn and cublas are 0, allocator is None.
    """

    __slots__ = ()
    FORMAT_COMBINATION_LIMIT: ClassVar[int] = 100

    @stub
    def get_output_datatype(self, index: int, input_types: Any) -> e.DataType:
        """The type of an output."""
        _undefined(self, "get_output_datatype")

    @stub
    def get_output_dimensions(
        self, output_index: int, inputs: Any, expr_builder: Any
    ) -> Any:
        """The dimensions of an output: DimsExprs."""
        _undefined(self, "get_output_dimensions")

    @stub
    def supports_format_combination(
        self, pos: int, in_out: Any, num_inputs: int
    ) -> bool:
        """Whether the type and format of in_out[pos] are supported, given those of the
        positions before."""
        _undefined(self, "supports_format_combination")

    @stub_of("in, out")
    def configure_plugin(self, *in_out: Any, **named: Any) -> None:
        """Receives the chosen types and formats. The dimensions have bounds in a build,
        and are those of the following runs otherwise."""
        _undefined(self, "configure_plugin")

    @stub_of("in, out")
    def get_workspace_size(self, *in_out: Any, **named: Any) -> int:
        """Bytes of scratch memory that enqueue needs. Default: 0."""
        return 0

    @stub
    def get_serialization_size(self) -> int:
        """Size of the result of serialize(), in bytes. Default: its length."""
        return self.serialization_size

    @stub
    def enqueue(
        self,
        input_desc: Any,
        output_desc: Any,
        inputs: Any,
        outputs: Any,
        workspace: int,
        stream: int,
    ) -> Any:
        """Computes; addresses and the stream are ints."""
        _undefined(self, "enqueue")


@refuse_class(_OLDER)
class IPluginV2Ext(IPluginV2):
    """A plugin of the oldest kind; exists for isinstance checks."""

    __slots__ = ()

    @refused(_OLDER)
    def get_output_data_type(self, index: int, input_types: Any) -> Any:
        """Type of an output."""

    @refused(_OLDER)
    def configure_plugin(
        self,
        input_shapes: Any,
        output_shapes: Any,
        input_types: Any,
        output_types: Any,
        input_is_broadcasted: Any,
        output_is_broacasted: Any,
        format: Any,
        max_batch_size: int,
    ) -> Any:
        """Receives the chosen types and formats."""

    @refused(_OLDER)
    def attach_to_context(self, cudnn: Any, cublas: Any, allocator: Any) -> Any:
        """Called when an execution context begins to use the plugin."""

    @refused(_OLDER)
    def detach_from_context(self) -> Any:
        """Called when an execution context ceases to use the plugin."""


# ---- Creators ----


class IPluginCreatorInterface(_Native):
    """Base of creators."""

    __slots__ = ()
    name = Attribute(_to_text, "The name of its plugins.")
    plugin_version = Attribute(_to_text, "The version of its plugins.")
    plugin_namespace = Attribute(_to_text, "The namespace of its plugins.", "")
    field_names = Attribute(
        _to_fields,
        "The fields that its plugins are made of: names and types.",
        PluginFieldCollection,
    )


class IPluginCreator(IPluginCreatorInterface):
    """Makes plugins of the older kind: derive from it."""

    __slots__ = ()
    _rabbet_info = InterfaceInfo("PLUGIN CREATOR_V1", 1, 0)

    @stub
    def create_plugin(self, name: str, field_collection: Any) -> IPluginV2:
        """Makes a plugin from its fields."""
        _undefined(self, "create_plugin")

    @stub
    def deserialize_plugin(self, name: str, serialized_plugin: bytes) -> IPluginV2:
        """Makes a plugin from the bytes of serialize()."""
        _undefined(self, "deserialize_plugin")


class IPluginCreatorV3One(IPluginCreatorInterface):
    """Makes plugins of the kind IPluginV3: derive from it."""

    __slots__ = ()
    _rabbet_info = InterfaceInfo("PLUGIN CREATOR_V3ONE", 1, 0)

    @stub
    def create_plugin(
        self, name: str, field_collection: Any, phase: e.TensorRTPhase
    ) -> IPluginV3:
        """Makes a plugin from its fields; in phase RUNTIME from those of
        get_fields_to_serialize()."""
        _undefined(self, "create_plugin")


class IPluginCreatorV3Quick(IPluginCreatorInterface):
    """Makes quick plugins: derive from it."""

    __slots__ = ()
    _rabbet_info = InterfaceInfo("PLUGIN CREATOR_V3QUICK", 1, 0)

    @stub
    def create_plugin(
        self,
        name: str,
        namespace: str,
        field_collection: Any,
        phase: e.TensorRTPhase,
        quickPluginType: e.QuickPluginCreationRequest,  # noqa: N803
    ) -> IPluginV3:
        """Makes a plugin from its fields."""
        _undefined(self, "create_plugin")


# ---- Resources ----


class IPluginResource(_Native):
    """A resource that plugins share under a key: derive from it."""

    __slots__ = ()
    _rabbet_info = InterfaceInfo("PLUGIN_RESOURCE", 1, 0)

    @stub
    def release(self) -> None:
        """Frees the resource; called on the copy of clone() after the key's last release."""
        _undefined(self, "release")

    @stub
    def clone(self) -> IPluginResource:
        """Returns the object to share; allocates the resource."""
        _undefined(self, "clone")


class IPluginResourceContext:
    """The execution context, as passed to attach_to_context."""

    __slots__ = ("_device", "_error_recorder", "_gpu_allocator")

    def __init__(self, device: str = "") -> None:
        self._device = device
        self._error_recorder: Any = None
        self._gpu_allocator: Any = None

    @property
    def device(self) -> str:
        """The context's device: "cpu", "cuda:0". TensorRT has no such property."""
        return self._device

    @property
    def error_recorder(self) -> Any:
        """None: report errors by exceptions."""
        return self._error_recorder

    @property
    def gpu_allocator(self) -> Any:
        """None: request memory by get_workspace_size."""
        return self._gpu_allocator
