"""Plugins of classes that the tests share: circular padding, as V3 and as V2."""

from __future__ import annotations

import ctypes
import itertools
from typing import Any

import numpy as np
import rabbet as trt

from tests.python.support.plugins import build

_serial = itertools.count()
BUILD, RUNTIME = trt.TensorRTPhase.BUILD, trt.TensorRTPhase.RUNTIME


def new_name(name: str = "Op") -> str:
    """A plugin name that no other test uses."""
    return f"{name}{next(_serial)}"


def array(address: int, shape: Any, dtype: Any = np.float32) -> Any:
    """Memory at an address."""
    shape = tuple(shape)
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if size == 0:
        return np.empty(shape, dtype)
    buffer = (ctypes.c_char * size).from_address(address)
    return np.frombuffer(buffer, dtype).reshape(shape)


def pad(x: Any, pads: Any) -> Any:
    """The reference."""
    top, bottom, left, right = pads
    return np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), mode="wrap")


class PadV3(
    trt.IPluginV3,
    trt.IPluginV3OneCore,
    trt.IPluginV3OneBuild,
    trt.IPluginV3OneRuntime,
):
    """Circular padding of the last two axes; `log` tells what was called."""

    name = "PadV3"
    namespace = "test"

    def __init__(self, fields: Any = None, phase: Any = None, log: Any = None) -> None:
        trt.IPluginV3.__init__(self)
        trt.IPluginV3OneCore.__init__(self)
        trt.IPluginV3OneBuild.__init__(self)
        trt.IPluginV3OneRuntime.__init__(self)
        self.num_outputs = 1
        self.plugin_name = type(self).name
        self.plugin_version = "1"
        self.plugin_namespace = type(self).namespace
        self.log = [] if log is None else log
        self.pads = np.zeros(4, np.int32)
        for field in fields or ():
            if field.name == "pads":
                self.pads = field.data
        self.tactic: int | None = None
        self.shape: Any = None

    def get_capability_interface(self, type: Any) -> Any:
        return self

    def get_output_data_types(self, input_types: Any) -> Any:
        return [input_types[0]]

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, expr_builder: Any) -> Any:
        dims = trt.DimsExprs(inputs[0])
        for axis in (2, 3):
            total = int(self.pads[2 * axis - 4] + self.pads[2 * axis - 3])
            dims[axis] = expr_builder.operation(
                trt.DimensionOperation.SUM,
                inputs[0][axis],
                expr_builder.constant(total),
            )
        return [dims]

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        assert num_inputs == 1
        desc = in_out[pos].desc
        return (
            desc.format == trt.TensorFormat.LINEAR
            and desc.type in (trt.float32, trt.float16)
            and desc.type == in_out[0].desc.type
        )

    def configure_plugin(self, inp: Any, out: Any) -> None:
        self.log.append(("configure", tuple(inp[0].desc.dims), tuple(inp[0].max)))

    def get_valid_tactics(self) -> Any:
        return [1, 2]

    def set_tactic(self, tactic: int) -> None:
        self.log.append(("tactic", tactic))
        self.tactic = tactic

    def on_shape_change(self, inp: Any, out: Any) -> None:
        self.shape = tuple(inp[0].dims)
        self.log.append(("shape", self.shape, tuple(out[0].dims)))

    def get_fields_to_serialize(self) -> Any:
        self.log.append(("fields",))
        return trt.PluginFieldCollection(
            [trt.PluginField("pads", self.pads, trt.PluginFieldType.INT32)]
        )

    def attach_to_context(self, resource_context: Any) -> Any:
        assert isinstance(resource_context, trt.IPluginResourceContext)
        self.log.append(("attach",))
        return self.clone()

    def clone(self) -> Any:
        made = type(self)()
        made.__dict__.update(self.__dict__)
        return made

    def destroy(self) -> None:
        self.log.append(("destroy",))

    def enqueue(
        self,
        input_desc: Any,
        output_desc: Any,
        inputs: Any,
        outputs: Any,
        workspace: int,
        stream: int,
    ) -> None:
        assert tuple(input_desc[0].dims) == self.shape
        dtype = trt.nptype(input_desc[0].type)
        x = array(inputs[0], input_desc[0].dims, dtype)
        array(outputs[0], output_desc[0].dims, dtype)[...] = pad(x, self.pads)
        self.log.append(("run", self.tactic))


class PadV3Creator(trt.IPluginCreatorV3One):
    """Makes plugins of `kind`."""

    def __init__(self, kind: Any = PadV3) -> None:
        trt.IPluginCreatorV3One.__init__(self)
        self.kind = kind
        self.name = kind.name
        self.plugin_version = "1"
        self.plugin_namespace = kind.namespace
        self.field_names = trt.PluginFieldCollection(
            [trt.PluginField("pads", np.array([]), trt.PluginFieldType.INT32)]
        )
        self.made: list[Any] = []
        self.log: list[Any] = []

    def create_plugin(self, name: str, fc: Any, phase: Any) -> Any:
        self.made.append((name, {f.name: f.data.tolist() for f in fc}, phase))
        return self.kind(fc, phase, self.log)


class PadV2(trt.IPluginV2DynamicExt):
    """Circular padding of the last two axes, the older way."""

    name = "PadV2"
    namespace = ""

    def __init__(self, fields: Any = None, log: Any = None) -> None:
        trt.IPluginV2DynamicExt.__init__(self)
        self.num_outputs = 1
        self.plugin_namespace = type(self).namespace
        self.plugin_type = type(self).name
        self.plugin_version = "1"
        self.pads = [0, 0, 0, 0]
        self.shape: Any = None
        self.log = [] if log is None else log
        for field in fields or ():
            if field.name == "pads":
                self.pads = field.data.tolist()

    def get_output_datatype(self, index: int, input_types: Any) -> Any:
        assert index == 0
        return input_types[0]

    def get_output_dimensions(self, output_index: int, inputs: Any, expr_builder: Any) -> Any:
        dims = trt.DimsExprs(inputs[0])
        for axis in (2, 3):
            total = sum(self.pads[2 * axis - 4 : 2 * axis - 2])
            dims[axis] = expr_builder.operation(
                trt.DimensionOperation.SUM,
                inputs[0][axis],
                expr_builder.constant(total),
            )
        return dims

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        desc = in_out[pos]
        return (
            desc.format == trt.TensorFormat.LINEAR
            and desc.type in (trt.float32, trt.float16)
            and desc.type == in_out[0].type
        )

    def configure_plugin(self, inp: Any, out: Any) -> None:
        self.shape = tuple(inp[0].desc.dims)
        self.log.append(("configure", self.shape, tuple(inp[0].max)))

    def serialize(self) -> bytes:
        return bytes(self.pads)

    def clone(self) -> Any:
        made = type(self)()
        made.__dict__.update(self.__dict__)
        return made

    def enqueue(
        self,
        input_desc: Any,
        output_desc: Any,
        inputs: Any,
        outputs: Any,
        workspace: int,
        stream: int,
    ) -> Any:
        assert tuple(input_desc[0].dims) == self.shape
        dtype = trt.nptype(input_desc[0].type)
        x = array(inputs[0], input_desc[0].dims, dtype)
        array(outputs[0], output_desc[0].dims, dtype)[...] = pad(x, self.pads)
        return 0


class PadV2Creator(trt.IPluginCreator):
    """Makes plugins of `kind`."""

    def __init__(self, kind: Any = PadV2) -> None:
        trt.IPluginCreator.__init__(self)
        self.kind = kind
        self.name = kind.name
        self.plugin_version = "1"
        self.plugin_namespace = kind.namespace
        self.field_names = trt.PluginFieldCollection(
            [trt.PluginField("pads", np.array([]), trt.PluginFieldType.INT32)]
        )
        self.log: list[Any] = []
        self.made: list[Any] = []

    def create_plugin(self, name: str, fc: Any) -> Any:
        self.made.append((name, {f.name: f.data.tolist() for f in fc}))
        return self.kind(fc, self.log)

    def deserialize_plugin(self, name: str, data: bytes) -> Any:
        self.made.append((name, bytes(data)))
        plugin = self.kind(None, self.log)
        plugin.pads = list(data)
        return plugin


def register(kind: Any, creator: Any = PadV3Creator) -> Any:
    """A creator of a class, registered under a name of its own."""
    made = creator(kind)
    assert trt.get_plugin_registry().register_creator(made, made.plugin_namespace)
    return made


def derived(kind: Any = PadV3, **members: Any) -> Any:
    """A class of a name of its own, with other members."""
    name = new_name(kind.__name__)
    return type(name, (kind,), {"name": name, **members})


def pads_field(*pads: int) -> trt.PluginField:
    """The field that the plugins take."""
    return trt.PluginField("pads", np.array(pads, np.int32), trt.PluginFieldType.INT32)


def one_layer(
    plugin: Any, *shapes: Any, dtype: Any = trt.float32, **options: Any
) -> trt.Model:
    """A model of one layer of a plugin."""

    def make(network: trt.INetworkDefinition) -> Any:
        inputs = [network.add_input(f"x{i}", dtype, s) for i, s in enumerate(shapes)]
        if isinstance(plugin, trt.IPluginV2DynamicExt):
            layer = network.add_plugin_v2(inputs, plugin)
        else:
            layer = network.add_plugin_v3(inputs, [], plugin)
        return tuple(layer.get_output(i) for i in range(layer.num_outputs))

    return build(make, **options)
