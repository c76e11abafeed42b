"""A quick plugin as a class: what rabbet.plugin's decorators stand for."""

from __future__ import annotations

from typing import Any

import numpy as np
import rabbet as trt

from tests.python.support.class_plugins import BUILD, array


class QuickScale(
    trt.IPluginV3,
    trt.IPluginV3QuickCore,
    trt.IPluginV3QuickBuild,
    trt.IPluginV3QuickRuntime,
):
    """y = factor x, of a matrix."""

    name, namespace = "QuickScale", "test"

    def __init__(self, fields: Any = None, log: Any = None) -> None:
        super().__init__()
        self.plugin_name, self.plugin_version = type(self).name, "1"
        self.plugin_namespace = type(self).namespace
        self.log = [] if log is None else log
        self.factor = 1.0
        for field in fields or ():
            self.factor = float(field.data[0])

    def get_capability_interface(self, type: Any) -> Any:
        return self

    def clone(self) -> Any:
        made = type(self)()
        made.__dict__.update(self.__dict__)
        return made

    def get_num_outputs(self) -> int:
        return 1

    def get_output_data_types(self, input_types: Any, ranks: Any) -> Any:
        assert ranks == [2]
        return [input_types[0]]

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, builder: Any) -> Any:
        return [inputs[0]]

    def get_supported_format_combinations(self, in_out: Any, num_inputs: int) -> Any:
        assert num_inputs == 1
        assert isinstance(in_out[0], trt.DynamicPluginTensorDesc)
        found = []
        for dtype in (trt.float32, trt.float16):
            for _ in in_out:
                desc = trt.PluginTensorDesc()
                desc.type, desc.format = dtype, trt.TensorFormat.LINEAR
                found.append(desc)
        return found

    def configure_plugin(self, inputs: Any, outputs: Any) -> None:
        self.log.append(("configure", inputs[0].desc.type))

    def get_valid_tactics(self) -> Any:
        return [3]

    def get_timing_cache_id(self) -> str:
        return ""

    def get_metadata_string(self) -> str:
        return "quick"

    def set_tactic(self, tactic: int) -> None:
        self.tactic = tactic

    def get_fields_to_serialize(self) -> Any:
        factor = np.array([self.factor])
        return trt.PluginFieldCollection(
            [trt.PluginField("factor", factor, trt.PluginFieldType.FLOAT64)]
        )

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any,
        in_strides: Any, out_strides: Any, stream: int,
    ) -> None:  # fmt: skip
        assert self.tactic == 3
        assert tuple(in_strides[0]) == (input_desc[0].dims[1], 1)
        assert tuple(out_strides[0]) == tuple(in_strides[0])
        self.log.append(("run", stream))
        dtype = trt.nptype(input_desc[0].type)
        x = array(inputs[0], input_desc[0].dims, dtype)
        array(outputs[0], output_desc[0].dims, dtype)[...] = x * dtype(self.factor)


class QuickCreator(trt.IPluginCreatorV3Quick):
    """Makes plugins of `kind`."""

    def __init__(self, kind: Any = QuickScale) -> None:
        super().__init__()
        self.kind = kind
        self.name, self.plugin_version = kind.name, "1"
        self.plugin_namespace = kind.namespace
        self.field_names = trt.PluginFieldCollection(
            [trt.PluginField("factor", None, trt.PluginFieldType.FLOAT64)]
        )
        self.log: list[Any] = []
        self.made: list[Any] = []

    def create_plugin(
        self, name: str, namespace: str, fc: Any, phase: Any, request: Any
    ) -> Any:
        self.made.append((name, namespace, phase, request))
        return self.kind(fc, self.log)

    def new(self, factor: float) -> Any:
        """A plugin for a build."""
        field = trt.PluginField("factor", np.array([factor]), trt.PluginFieldType.FLOAT64)
        unknown = trt.QuickPluginCreationRequest.UNKNOWN
        return self.create_plugin(self.name, self.namespace, [field], BUILD, unknown)

    @property
    def namespace(self) -> str:
        """Of the plugins."""
        space: str = self.plugin_namespace
        return space
