"""One function for each mistake in a class that docs/class_plugins.md tells of; each raises,
and `expected` is what the error says of class, method and layer, and of the cause."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import rabbet as trt

from tests.python.support.class_plugins import (
    BUILD,
    PadV2,
    PadV2Creator,
    PadV3,
    PadV3Creator,
    derived,
    one_layer,
    pads_field,
    register,
)

SHAPE = (2, 3, 4, 5)
X = np.ones(SHAPE, np.float32)
MISTAKES: list[tuple[Callable[[], Any], str]] = []
V3 = "Mistaken"
# Where an error arises: as a layer is added there is no name of it yet.
IN_LAYER = " of layer 'plugin_0'"


def mistake(expected: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    def decorate(function: Callable[[], Any]) -> Callable[[], Any]:
        MISTAKES.append((function, expected))
        return function

    return decorate


def v3(creator: Any = PadV3Creator, **members: Any) -> Any:
    """Builds, loads and runs a plugin of a class with other members."""
    kind = derived(type("Mistaken", (PadV3,), {}), **members)
    made = register(kind, creator)
    return one_layer(made.create_plugin("p", [pads_field(1, 1, 1, 1)], BUILD), SHAPE)(X)


def v2(creator: Any = PadV2Creator, **members: Any) -> Any:
    """The same for the older kind."""
    kind = derived(type("Mistaken", (PadV2,), {}), **members)
    made = register(kind, creator)
    return one_layer(made.create_plugin("p", [pads_field(1, 1, 1, 1)]), SHAPE)(X)


def without(*names: str) -> dict[str, Any]:
    """Members that take the methods of a class away again."""
    found = {}
    for name in names:
        for base in (trt.IPluginV3OneBuildV2, trt.IPluginV3OneRuntime, trt.IPluginV3):
            if hasattr(base, name):
                found[name] = getattr(base, name)
    return found


def without2(name: str) -> dict[str, Any]:
    return {name: getattr(trt.IPluginV2DynamicExt, name)}


def fails(self: Any, *args: Any) -> Any:
    raise KeyError("of the user")


def returns(value: Any) -> Callable[..., Any]:
    return lambda self, *args: value


# ---- Attributes ----


@mistake(r"Mistaken\d+\.num_outputs was never set; set it to an int in __init__")
def no_num_outputs() -> None:
    class Bare(PadV3):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            native = self._rabbet_native
            self._rabbet_native = {k: v for k, v in native.items() if k != "num_outputs"}

    kind = type("Mistaken0", (Bare,), {})
    one_layer(kind([]), SHAPE)


@mistake(r"Mistaken\d+\.plugin_name was never set")
def no_plugin_name() -> None:
    class Mistaken0(PadV3):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self._rabbet_native = {"num_outputs": 1}

    one_layer(Mistaken0([]), SHAPE)


@mistake(r"Mistaken0\.plugin_version: expected a str, got 1")
def version_as_number() -> None:
    class Mistaken0(PadV3):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.plugin_version = 1

    Mistaken0([])


@mistake(r"num_outputs is 0; a plugin has at least one output")
def no_outputs() -> None:
    class Mistaken0(PadV3):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.num_outputs = 0

    one_layer(Mistaken0([]), SHAPE)


@mistake(r"capturable is 'yes'; it is True, False, or left out")
def capturable_text() -> None:
    v3(capturable="yes")


# ---- Methods that are missing ----


def _missing() -> None:
    names = {
        "get_output_data_types": "input_types",
        "get_output_shapes": "inputs, shape_inputs, expr_builder",
        "supports_format_combination": "pos, in_out, num_inputs",
        "configure_plugin": "in, out",
        "on_shape_change": "in, out",
        "set_tactic": "tactic",
        "get_fields_to_serialize": "",
        "attach_to_context": "resource_context",
        "enqueue": "input_desc, output_desc, inputs, outputs, workspace, stream",
    }
    for name, arguments in names.items():
        signature = f"self, {arguments}" if arguments else "self"
        MISTAKES.append(
            (
                lambda name=name: v3(**without(name)),  # type: ignore[misc]
                rf"Mistaken\d+\.{name}\(\){IN_LAYER}: the class does not define it: "
                rf"def {name}\({signature}\)",
            )
        )
    for name in ("get_capability_interface", "clone"):
        MISTAKES.append(
            (
                lambda name=name: v3(**without(name)),  # type: ignore[misc]
                rf"Mistaken\d+\.{name}\(\): the class does not define it: def {name}",
            )
        )
    for name in (
        "get_output_datatype",
        "get_output_dimensions",
        "supports_format_combination",
        "configure_plugin",
        "enqueue",
        "serialize",
    ):
        MISTAKES.append(
            (
                lambda name=name: v2(**without2(name)),  # type: ignore[misc]
                rf"Mistaken\d+\.{name}\(\){IN_LAYER}: the class does not define it",
            )
        )


_missing()


@mistake(r"does not define it: def enqueue\(.*\); did you mean enqueues\(\) to be it\?")
def misspelt() -> None:
    v3(**without("enqueue"), enqueues=fails)


# ---- Exceptions ----


def _raising() -> None:
    for name in (
        "get_output_data_types",
        "get_output_shapes",
        "supports_format_combination",
        "configure_plugin",
        "get_workspace_size",
        "get_valid_tactics",
        "on_shape_change",
        "set_tactic",
        "get_fields_to_serialize",
        "attach_to_context",
        "enqueue",
    ):
        MISTAKES.append(
            (
                lambda name=name: v3(**{name: fails}),  # type: ignore[misc]
                rf"of the user(.|\n)*in Mistaken\d+\.{name}\(\){IN_LAYER}",
            )
        )
    for name in (
        "get_output_datatype",
        "get_output_dimensions",
        "supports_format_combination",
        "configure_plugin",
        "get_workspace_size",
        "initialize",
        "serialize",
        "enqueue",
    ):
        MISTAKES.append(
            (
                lambda name=name: v2(**{name: fails}),  # type: ignore[misc]
                rf"of the user(.|\n)*in Mistaken\d+\.{name}\(\){IN_LAYER}",
            )
        )


_raising()


@mistake(r"takes 2 positional arguments but 4 were given(.|\n)*in Mistaken\d+\.get_output_shapes")
def wrong_signature() -> None:
    v3(get_output_shapes=lambda self, inputs: [inputs[0]])


# ---- What is returned ----


@mistake(
    rf"get_output_data_types\(\){IN_LAYER}: it returned <DataType.FLOAT: 0>; expected a list"
)
def one_type() -> None:
    v3(get_output_data_types=returns(trt.float32))


@mistake(r"get_output_data_types\(\).*item 0 of the list that it returned is 'FP32'")
def type_as_text() -> None:
    v3(get_output_data_types=returns(["FP32"]))


@mistake(r"get_output_data_types\(\).*it returned 2 items, but num_outputs is 1")
def two_types() -> None:
    v3(get_output_data_types=returns([trt.float32, trt.float32]))


@mistake(r"get_output_shapes\(\).*it returned .*; expected a list of DimsExprs")
def one_shape() -> None:
    v3(get_output_shapes=lambda self, inputs, shapes, builder: inputs[0])


@mistake(r"get_output_shapes\(\).*item 0 of the list that it returned is \(2, 3\)")
def numbers_as_shape() -> None:
    v3(get_output_shapes=returns([(2, 3)]))


@mistake(r"get_output_shapes\(\).*dimension 1 of output 0 was never set")
def unset_dimension() -> None:
    def shapes(self: Any, inputs: Any, shape_inputs: Any, builder: Any) -> Any:
        dims = trt.DimsExprs(2)
        dims[0] = builder.constant(1)
        return [dims]

    v3(get_output_shapes=shapes)


@mistake(r"4 is not an IDimensionExpr; numbers are expr_builder.constant")
def number_as_dimension() -> None:
    def shapes(self: Any, inputs: Any, shape_inputs: Any, builder: Any) -> Any:
        dims = trt.DimsExprs(inputs[0])
        dims[0] = 4  # type: ignore[call-overload]
        return [dims]

    v3(get_output_shapes=shapes)


@mistake(r"an expression of an earlier call was kept(.|\n)*in Mistaken\d+\.get_output_shapes")
def expression_of_an_earlier_call() -> None:
    kept: list[Any] = []

    def shapes(self: Any, inputs: Any, shape_inputs: Any, builder: Any) -> Any:
        kept.append(inputs[0][0])
        total = trt.DimensionOperation.SUM
        builder.operation(total, kept[0], builder.constant(1))
        return [inputs[0]]

    for _ in range(2):
        v3(get_output_shapes=shapes, enqueue=returns(None))


@mistake(r"dimension 0 of output 0 is an expression of an earlier call")
def dimension_of_an_earlier_call() -> None:
    kept: list[Any] = []

    def shapes(self: Any, inputs: Any, shape_inputs: Any, builder: Any) -> Any:
        kept.append(inputs[0])
        return [kept[0]]

    for _ in range(2):
        v3(get_output_shapes=shapes, enqueue=returns(None))


@mistake(r"supports_format_combination\(\).*it returned None for pos 0; expected True or False")
def forgotten_return() -> None:
    v3(supports_format_combination=returns(None))


@mistake(
    r"supports_format_combination\(\).*it accepts no combination: for pos 1 it returned "
    r"False for every type and format .*the network's types are FLOAT, FLOAT"
)
def nothing_supported() -> None:
    v3(supports_format_combination=lambda self, pos, in_out, n: pos == 0)


@mistake(r"offers \d+ combinations? of types and formats, and none fits")
def other_types() -> None:
    v3(
        supports_format_combination=lambda self, pos, in_out, n: (
            in_out[pos].desc.type == trt.float16
        )
    )


@mistake(r"get_valid_tactics\(\).*it returned 0; expected 1 or more")
def tactic_zero() -> None:
    v3(get_valid_tactics=returns([0]))


@mistake(r"get_valid_tactics\(\).*it returned \[1, 1\]; tactics must be different")
def tactic_twice() -> None:
    v3(get_valid_tactics=returns([1, 1]))


@mistake(r"get_valid_tactics\(\).*it returned 3; expected a list of ints")
def tactic_number() -> None:
    v3(get_valid_tactics=returns(3))


@mistake(r"get_workspace_size\(\).*it returned 1.5; expected an int")
def workspace_float() -> None:
    v3(get_workspace_size=returns(1.5))


@mistake(r"get_workspace_size\(\).*it returned -4; expected 0 or more")
def workspace_negative() -> None:
    v2(get_workspace_size=returns(-4))


@mistake(r"get_capability_interface\(\): for CORE it returned None; expected .* IPluginV3OneCore")
def no_capability() -> None:
    v3(get_capability_interface=returns(None))


@mistake(r"get_capability_interface\(\).*: for BUILD it returned 3")
def wrong_capability() -> None:
    kinds = trt.PluginCapabilityType
    v3(get_capability_interface=lambda self, kind: 3 if kind == kinds.BUILD else self)


@mistake(r"get_fields_to_serialize\(\).*item 0 of the list that it returned is 'pads'")
def names_as_fields() -> None:
    v3(get_fields_to_serialize=returns(["pads"]))


@mistake(r"get_fields_to_serialize\(\).*it returned None; expected a list of PluginField")
def no_fields() -> None:
    v3(get_fields_to_serialize=returns(None))


@mistake(r"get_fields_to_serialize\(\).*the field name 'pads' comes twice")
def field_twice() -> None:
    v3(get_fields_to_serialize=lambda self: [pads_field(1), pads_field(2)])


@mistake(r"get_output_datatype\(\).*for output 0 it returned 1; expected a DataType")
def v2_type() -> None:
    v2(get_output_datatype=returns(1))


@mistake(r"get_output_dimensions\(\).*for output 0 it returned \(1, 2\); expected DimsExprs")
def v2_dims() -> None:
    v2(get_output_dimensions=returns((1, 2)))


@mistake(r"serialize\(\).*it returned \{\}; expected bytes")
def v2_dict() -> None:
    v2(serialize=returns({}))


@mistake(r"get_serialization_size\(\).*it returned 100, but serialize\(\) gave 4 bytes")
def v2_size() -> None:
    v2(get_serialization_size=returns(100))


# ---- Copies ----


@mistake(r"Mistaken\d+\.clone\(\): it returned the object itself")
def clone_is_self() -> None:
    v3(clone=lambda self: self)


@mistake(r"Mistaken\d+\.clone\(\): it returned None; expected an IPluginV3")
def clone_is_none() -> None:
    v3(clone=returns(None))


@mistake(r"Mistaken\d+\.clone\(\): the copy has the same __dict__ object")
def clone_shares_dict() -> None:
    def clone(self: Any) -> Any:
        made = type(self)()
        made.__dict__ = self.__dict__
        return made

    v3(clone=clone)


@mistake(r"Mistaken\d+\.clone\(\): the copy has no num_outputs, which is 1 here")
def clone_without_init() -> None:
    def clone(self: Any) -> Any:
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    v3(clone=clone)


@mistake(r"Mistaken\d+\.clone\(\): plugin_name of the copy is 'Other', not 'Mistaken\d+'")
def clone_of_other_name() -> None:
    def clone(self: Any) -> Any:
        made = type(self)()
        made.plugin_name = "Other"
        return made

    v3(clone=clone)


@mistake(rf"Mistaken\d+\.attach_to_context\(\){IN_LAYER}: it returned the object itself")
def attach_is_self() -> None:
    v3(attach_to_context=lambda self, context: self)


@mistake(rf"Mistaken\d+\.attach_to_context\(\){IN_LAYER}: it returned None")
def attach_is_none() -> None:
    v3(attach_to_context=returns(None))


@mistake(r"Mistaken\d+\.clone\(\): it returned the object itself")
def v2_clone_is_self() -> None:
    v2(clone=lambda self: self)


@mistake(r"Mistaken\d+\.clone\(\): the copy has no num_outputs")
def v2_clone_without_init() -> None:
    def clone(self: Any) -> Any:
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    v2(clone=clone)


# ---- Serialization ----


class Lossy3(PadV3Creator):
    """Forgets the fields at load."""

    def create_plugin(self, name: str, fc: Any, phase: Any) -> Any:
        return super().create_plugin(name, fc if phase == BUILD else [], phase)


@mistake(
    rf"get_fields_to_serialize\(\){IN_LAYER}: the fields do not round-trip: 'pads' was "
    r"INT32 \[1, 1, 1, 1\] and is INT32 \[0, 0, 0, 0\] in the plugin that "
    r"Lossy3.create_plugin\(\) made"
)
def v3_lossy() -> None:
    v3(Lossy3)


class Refusing3(PadV3Creator):
    """Cannot make plugins at load."""

    def create_plugin(self, name: str, fc: Any, phase: Any) -> Any:
        if phase != BUILD:
            raise ValueError("fields are missing")
        return super().create_plugin(name, fc, phase)


@mistake(
    r"fields are missing(.|\n)*in Refusing3\.create_plugin\(\) of layer 'plugin_0'(.|\n)*"
    r"restored from the fields of Mistaken\d+\.get_fields_to_serialize"
)
def v3_refusing() -> None:
    v3(Refusing3)


class Lossy2(PadV2Creator):
    """Forgets the bytes at load."""

    def deserialize_plugin(self, name: str, data: bytes) -> Any:
        return self.kind(None, self.log)


@mistake(
    rf"Mistaken\d+\.serialize\(\){IN_LAYER}: the bytes do not round-trip: attribute 'pads' "
    r"was \[1, 1, 1, 1\] and is \[0, 0, 0, 0\] in the plugin that Lossy2"
)
def v2_lossy() -> None:
    v2(Lossy2)


@mistake(r"serialize\(\).*it returned other bytes when it was called again")
def v2_changing() -> None:
    v2(serialize=lambda self: str(time.perf_counter_ns()))


class Idle2(PadV2Creator):
    """Returns nothing at load."""

    def deserialize_plugin(self, name: str, data: bytes) -> Any:
        return None


@mistake(r"Idle2\.deserialize_plugin\(\) of layer 'plugin_0': it returned None; expected")
def v2_idle() -> None:
    v2(Idle2)


# ---- Networks ----


@mistake(r"add_plugin_v3: expected a plugin of a class that derives from IPluginV3, got <.*PadV2")
def wrong_method() -> None:
    network = trt.Builder().create_network()
    network.add_plugin_v3([network.add_input("x", trt.float32, SHAPE)], [], PadV2())


@mistake(r"add_plugin_v2: inputs is a list of ITensors")
def one_tensor() -> None:
    network = trt.Builder().create_network()
    network.add_plugin_v2(network.add_input("x", trt.float32, SHAPE), PadV2())  # type: ignore[arg-type]


@mistake(r"input 1 \('s'\) of the plugin is a shape input; it must be INT32 or INT64, not FLOAT")
def shape_input_of_floats() -> None:
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, SHAPE)
    s = network.add_input("s", trt.float32, (2,))
    layer = network.add_plugin_v3([x], [s], PadV3())
    _ = layer.get_output(0).shape
