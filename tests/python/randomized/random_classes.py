"""Plugins of random networks that are classes; see random_plugins.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import rabbet as trt

from tests.python.randomized import random_plugins as p

Row = Sequence[tuple[Any, str]]  # type and format of each input and output


def to_text(rows: Sequence[Row]) -> str:
    """Combinations as a field."""
    return ";".join(",".join(f"{t.name}:{layout}" for t, layout in row) for row in rows)


def from_text(text: str) -> list[list[tuple[Any, str]]]:
    """Reads the text of to_text."""
    rows = [[item.split(":") for item in row.split(",")] for row in text.split(";")]
    return [[(getattr(trt.DataType, t), f) for t, f in row] for row in rows]


def fits(rows: Sequence[Row], found: Sequence[Any]) -> bool:
    """Whether a combination begins with what was found."""
    pairs = [(desc.type, desc.format.name) for desc in found]
    return any(list(row[: len(pairs)]) == pairs for row in rows)


class Body:
    """The work of both kinds of class. kind "sum": y = x0 + x1 + delta; "channel":
    y = x factor(channel) + delta, and -x as INT32."""

    kind: str
    delta: float
    rows: Any

    def _compute(self, memory: Any, descs: Any, inputs: Any, outputs: Any, at: int) -> None:
        count = len(inputs)
        assert fits(self.rows, descs), [(d.type, d.format) for d in descs]
        values = [
            memory.get(a, d.dims, d.type, d.format.name)
            for a, d in zip(inputs, descs[:count], strict=True)
        ]
        # Through the workspace and back, so that it must be there.
        first = np.ascontiguousarray(values[0], np.float64)
        memory.write(at, first)
        values[0] = memory.read(at, first.size, np.float64).reshape(values[0].shape)
        results = compute(self.kind, self.delta, *values)
        for address, desc, result in zip(outputs, descs[count:], results, strict=True):
            assert tuple(desc.dims) == result.shape
            memory.put(address, result, desc.type, desc.format.name)


def compute(kind: str, delta: float, *values: Any) -> Any:
    """The reference, too."""
    if kind == "sum":
        return (values[0] + values[1] + delta,)
    if kind == "in_place":
        return (values[0] - values[1] + delta,)
    return values[0] * p.channel_factor(values[0]) + delta, -values[0]


def num_outputs(kind: str) -> int:
    return 2 if kind == "channel" else 1


class RandomV3(
    trt.IPluginV3,
    trt.IPluginV3OneCore,
    trt.IPluginV3OneBuildV2,
    trt.IPluginV3OneRuntime,
    Body,
):
    """A plugin of any kind."""

    def __init__(self, kind: str, delta: float, rows: Any, tactics: Any) -> None:
        trt.IPluginV3.__init__(self)
        trt.IPluginV3OneCore.__init__(self)
        trt.IPluginV3OneBuildV2.__init__(self)
        trt.IPluginV3OneRuntime.__init__(self)
        self.plugin_name, self.plugin_version = "RandomV3", "1"
        self.plugin_namespace = p.SPACE
        self.num_outputs = num_outputs(kind)
        self.kind, self.delta, self.rows = kind, delta, rows
        self.tactics, self.tactic = list(tactics), 0
        self.shapes: Any = None
        self.device_name = "cpu"

    def get_capability_interface(self, type: Any) -> Any:
        return self

    def clone(self) -> Any:
        made = RandomV3(self.kind, self.delta, self.rows, self.tactics)
        made.__dict__.update(self.__dict__)
        return made

    def get_aliased_input(self, output_index: int) -> int:
        return 0 if self.kind == "in_place" else -1

    def get_output_data_types(self, input_types: Any) -> Any:
        return [input_types[0], trt.int32][: self.num_outputs]

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, expr_builder: Any) -> Any:
        return [trt.DimsExprs(inputs[0]) for _ in range(self.num_outputs)]

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        return fits(self.rows, [in_out[i].desc for i in range(pos + 1)])

    def configure_plugin(self, inp: Any, out: Any) -> None:
        assert fits(self.rows, [d.desc for d in (*inp, *out)])

    def get_workspace_size(self, inp: Any, out: Any) -> int:
        return 8 * int(np.prod(inp[0].max))

    def get_valid_tactics(self) -> Any:
        return self.tactics

    def attach_to_context(self, resource_context: Any) -> Any:
        made = self.clone()
        made.device_name = resource_context.device
        return made

    def set_tactic(self, tactic: int) -> None:
        self.tactic = tactic

    def on_shape_change(self, inp: Any, out: Any) -> None:
        self.shapes = [tuple(d.dims) for d in (*inp, *out)]

    def get_fields_to_serialize(self) -> Any:
        kind = trt.PluginFieldType
        text = np.frombuffer(to_text(self.rows).encode(), np.int8)
        return trt.PluginFieldCollection(
            [
                trt.PluginField("kind", np.frombuffer(self.kind.encode(), np.int8), kind.CHAR),
                trt.PluginField("delta", np.array([self.delta]), kind.FLOAT64),
                trt.PluginField("rows", text, kind.CHAR),
                trt.PluginField("tactics", np.array(self.tactics, np.int32), kind.INT32),
            ]
        )

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any,
        workspace: int, stream: int,
    ) -> None:  # fmt: skip
        descs = [*input_desc, *output_desc]
        assert self.shapes == [tuple(d.dims) for d in descs]
        assert self.tactic in (self.tactics or [0])
        if self.kind == "in_place":
            assert inputs[0] == outputs[0]
        memory = p.Memory(self.device_name, stream)
        self._compute(memory, descs, inputs, outputs, workspace)


def sizes(x: Any, times: Any) -> Any:
    """SizesV3 in NumPy: rows that begin with a positive number, tiled along axis 1;
    and how many."""
    rows = x[x[:, 0] > 0] if x.size else x[:0]
    return np.tile(rows, (1, int(times[0]))), np.array(len(rows), np.int64)


class SizesV3(
    trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime
):
    """A size tensor and a shape input."""

    def __init__(self, tactics: Any) -> None:
        trt.IPluginV3.__init__(self)
        trt.IPluginV3OneCore.__init__(self)
        trt.IPluginV3OneBuild.__init__(self)
        trt.IPluginV3OneRuntime.__init__(self)
        self.plugin_name, self.plugin_version = "SizesV3", "1"
        self.plugin_namespace = p.SPACE
        self.num_outputs = 2
        self.tactics = tactics
        self.device_name = "cpu"

    def get_capability_interface(self, type: Any) -> Any:
        return self

    def clone(self) -> Any:
        made = SizesV3(self.tactics)
        made.__dict__.update(self.__dict__)
        return made

    def get_output_data_types(self, input_types: Any) -> Any:
        return [input_types[0], trt.int32]

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, expr_builder: Any) -> Any:
        rows, columns = inputs[0]
        kind = trt.DimensionOperation
        half = expr_builder.operation(kind.CEIL_DIV, rows, expr_builder.constant(2))
        count = expr_builder.declare_size_tensor(1, half, rows)
        wide = expr_builder.operation(kind.PROD, columns, shape_inputs[0][0])
        return [trt.DimsExprs([count, wide]), trt.DimsExprs(0)]

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        desc = in_out[pos].desc
        wanted = trt.int32 if pos == 2 else trt.float32
        return desc.type == wanted and desc.format == trt.TensorFormat.LINEAR

    def configure_plugin(self, inp: Any, out: Any) -> None:
        pass

    def get_valid_tactics(self) -> Any:
        return self.tactics

    def attach_to_context(self, resource_context: Any) -> Any:
        made = self.clone()
        made.device_name = resource_context.device
        return made

    def set_tactic(self, tactic: int) -> None:
        assert tactic in (self.tactics or [0])

    def on_shape_change(self, inp: Any, out: Any) -> None:
        pass

    def get_fields_to_serialize(self) -> Any:
        array = np.array(self.tactics, np.int32)
        field = trt.PluginField("tactics", array, trt.PluginFieldType.INT32)
        return trt.PluginFieldCollection([field])

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any,
        workspace: int, stream: int,
    ) -> None:  # fmt: skip
        memory = p.Memory(self.device_name, stream)
        shape = tuple(input_desc[0].dims)
        x = memory.get(inputs[0], shape, trt.float32, "LINEAR")
        wide = output_desc[0].dims[1]
        times = wide // shape[1] if shape[1] else 1
        rows, count = sizes(x, [times])
        assert rows.shape[1] == wide
        memory.put(outputs[0], rows, trt.float32, "LINEAR")
        memory.put(outputs[1], count, trt.int32, "LINEAR")


class SizesCreator(trt.IPluginCreatorV3One):
    """Makes SizesV3."""

    def __init__(self) -> None:
        trt.IPluginCreatorV3One.__init__(self)
        self.name, self.plugin_version, self.plugin_namespace = "SizesV3", "1", p.SPACE
        self.field_names = trt.PluginFieldCollection(
            [trt.PluginField("tactics", None, trt.PluginFieldType.INT32)]
        )

    def create_plugin(self, name: str, fc: Any, phase: Any) -> Any:
        return SizesV3([int(t) for t in fc[0].data])


def text_of(field: Any) -> str:
    return bytes(np.asarray(field.data, np.int8)).decode()


class V3Creator(trt.IPluginCreatorV3One):
    """Makes RandomV3."""

    def __init__(self) -> None:
        trt.IPluginCreatorV3One.__init__(self)
        self.name, self.plugin_version, self.plugin_namespace = "RandomV3", "1", p.SPACE
        kind = trt.PluginFieldType
        self.field_names = trt.PluginFieldCollection(
            [
                trt.PluginField("kind", None, kind.CHAR),
                trt.PluginField("delta", None, kind.FLOAT64),
                trt.PluginField("rows", None, kind.CHAR),
                trt.PluginField("tactics", None, kind.INT32),
            ]
        )

    def create_plugin(self, name: str, fc: Any, phase: Any) -> Any:
        fields = {field.name: field for field in fc}
        tactics = [int(t) for t in fields["tactics"].data]
        rows = from_text(text_of(fields["rows"]))
        return RandomV3(
            text_of(fields["kind"]), float(fields["delta"].data[0]), rows, tactics
        )


class RandomV2(trt.IPluginV2DynamicExt, Body):
    """The older way."""

    def __init__(self, kind: str, delta: float, rows: Any) -> None:
        trt.IPluginV2DynamicExt.__init__(self)
        self.plugin_type, self.plugin_version = "RandomV2", "1"
        self.plugin_namespace = p.SPACE
        self.num_outputs = num_outputs(kind)
        self.kind, self.delta, self.rows = kind, delta, rows
        self.count = 0

    def clone(self) -> Any:
        made = RandomV2(self.kind, self.delta, self.rows)
        made.__dict__.update(self.__dict__)
        return made

    def get_output_datatype(self, index: int, input_types: Any) -> Any:
        return [input_types[0], trt.int32][index]

    def get_output_dimensions(self, output_index: int, inputs: Any, expr_builder: Any) -> Any:
        return trt.DimsExprs(inputs[0])

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        return fits(self.rows, [in_out[i] for i in range(pos + 1)])

    def configure_plugin(self, inp: Any, out: Any) -> None:
        self.count = int(np.prod([max(d, 0) for d in inp[0].max]))

    def get_workspace_size(self, inp: Any, out: Any) -> int:
        return 8 * int(np.prod(inp[0].dims))

    def serialize(self) -> bytes:
        return f"{self.kind}/{self.delta}/{to_text(self.rows)}".encode()

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any,
        workspace: int, stream: int,
    ) -> int:  # fmt: skip
        assert self.count >= np.prod(input_desc[0].dims)
        device = getattr(input_desc[0], "device", "cpu")
        memory = p.Memory(device, stream)
        self._compute(memory, [*input_desc, *output_desc], inputs, outputs, workspace)
        return 0


class V2Creator(trt.IPluginCreator):
    """Makes RandomV2."""

    def __init__(self) -> None:
        trt.IPluginCreator.__init__(self)
        self.name, self.plugin_version, self.plugin_namespace = "RandomV2", "1", p.SPACE
        self.field_names = trt.PluginFieldCollection([])

    def create_plugin(self, name: str, fc: Any) -> Any:
        raise NotImplementedError

    def deserialize_plugin(self, name: str, data: bytes) -> Any:
        kind, delta, rows = bytes(data).decode().split("/")
        return RandomV2(kind, float(delta), from_text(rows))


CREATORS = (V3Creator(), V2Creator(), SizesCreator())
for creator in CREATORS:
    trt.get_plugin_registry().register_creator(creator, p.SPACE)
