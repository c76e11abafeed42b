"""The operators of chain.py as classes of both kinds."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import rabbet as trt

NAMESPACE = "bench"


def array(address: int, desc: Any) -> Any:
    """FP32 memory on the CPU."""
    count = int(np.prod(desc.dims))
    return np.frombuffer((ctypes.c_float * count).from_address(address), np.float32)


class NoOpV3(
    trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime
):
    """Does nothing."""

    name = "noop"

    def __init__(self) -> None:
        super().__init__()
        self.plugin_name, self.plugin_version = self.name, "1"
        self.plugin_namespace, self.num_outputs = NAMESPACE, 1

    def get_capability_interface(self, type: Any) -> Any:
        return self

    def clone(self) -> Any:
        return type(self)()

    def get_output_data_types(self, input_types: Any) -> Any:
        return input_types

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, builder: Any) -> Any:
        return inputs

    def supports_format_combination(self, pos: int, in_out: Any, count: int) -> bool:
        desc = in_out[pos].desc
        return desc.type == trt.float32 and desc.format == trt.TensorFormat.LINEAR

    def configure_plugin(self, inp: Any, out: Any) -> None:
        pass

    def attach_to_context(self, context: Any) -> Any:
        return self.clone()

    def set_tactic(self, tactic: int) -> None:
        pass

    def on_shape_change(self, inp: Any, out: Any) -> None:
        pass

    def get_fields_to_serialize(self) -> Any:
        return trt.PluginFieldCollection()

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):  # type: ignore[no-untyped-def]
        pass


class AddOneV3(NoOpV3):
    """Adds 1."""

    name = "add_one"

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):  # type: ignore[no-untyped-def]
        x, y = array(inputs[0], input_desc[0]), array(outputs[0], output_desc[0])
        np.add(x, 1, out=y)


class NoOpV2(trt.IPluginV2DynamicExt):
    """Does nothing."""

    name = "noop"

    def __init__(self) -> None:
        super().__init__()
        self.plugin_type, self.plugin_version = self.name, "1"
        self.plugin_namespace, self.num_outputs = NAMESPACE, 1

    def clone(self) -> Any:
        return type(self)()

    def get_output_datatype(self, index: int, input_types: Any) -> Any:
        return input_types[0]

    def get_output_dimensions(self, index: int, inputs: Any, builder: Any) -> Any:
        return inputs[0]

    def supports_format_combination(self, pos: int, in_out: Any, count: int) -> bool:
        desc = in_out[pos]
        return desc.type == trt.float32 and desc.format == trt.TensorFormat.LINEAR

    def configure_plugin(self, inp: Any, out: Any) -> None:
        pass

    def serialize(self) -> bytes:
        return b""

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):  # type: ignore[no-untyped-def]
        pass


class AddOneV2(NoOpV2):
    """Adds 1."""

    name = "add_one"
    enqueue = AddOneV3.enqueue


class CreatorV3(trt.IPluginCreatorV3One):
    """Makes plugins of a class."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.kind, self.name, self.plugin_version = kind, kind.name, "1"
        self.plugin_namespace = NAMESPACE

    def create_plugin(self, name: str, fields: Any, phase: Any) -> Any:
        return self.kind()


class CreatorV2(trt.IPluginCreator):
    """Makes plugins of a class."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.kind, self.name, self.plugin_version = kind, kind.name, "1"
        self.plugin_namespace = NAMESPACE

    def create_plugin(self, name: str, fields: Any) -> Any:
        return self.kind()

    def deserialize_plugin(self, name: str, data: bytes) -> Any:
        return self.kind()


def register(kind: str) -> None:
    """The operators of one kind, "v3" or "v2"."""
    creators = (
        (CreatorV3(NoOpV3), CreatorV3(AddOneV3))
        if kind == "v3"
        else (CreatorV2(NoOpV2), CreatorV2(AddOneV2))
    )
    for creator in creators:
        trt.get_plugin_registry().register_creator(creator)
