"""Plugins of class IPluginV2DynamicExt: the whole life of one."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rabbet as trt

from tests.python.plugins.test_plugin_v3 import onnx_model
from tests.python.support.class_plugins import (
    PadV2,
    PadV2Creator,
    array,
    derived,
    one_layer,
    pad,
    pads_field,
    register,
)
from tests.python.support.plugins import build, random

REGISTRY = trt.get_plugin_registry()
PADS = (1, 2, 3, 0)
SHAPE = (2, 3, 4, 5)


def new(kind: Any = None, **members: Any) -> Any:
    """A plugin for a build, and its creator."""
    creator = register(derived(kind or PadV2, **members), PadV2Creator)
    return creator.create_plugin("pad", [pads_field(*PADS)]), creator


def test_build_load_run(tmp_path: Path) -> None:
    plugin, creator = new()
    model = one_layer(plugin, SHAPE)
    x = random(*SHAPE)
    np.testing.assert_array_equal(model(x), pad(x, PADS))
    model.save(tmp_path / "m.plan")
    creator.made.clear()
    creator.log.clear()
    again = trt.load(tmp_path / "m.plan", device="cpu")
    assert creator.made == [("plugin_0", bytes(PADS))]
    np.testing.assert_array_equal(again(x), pad(x, PADS))
    assert creator.log == [("configure", SHAPE, SHAPE)]


def test_layer() -> None:
    plugin, _ = new()
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, SHAPE)
    layer = network.add_plugin_v2([x], plugin)
    assert isinstance(layer, trt.IPluginV2Layer)
    assert layer.type == trt.LayerType.PLUGIN_V2
    assert layer.plugin is not plugin
    assert layer.plugin.pads == plugin.pads
    assert isinstance(network.get_layer(0), trt.IPluginV2Layer)
    assert tuple(layer.get_output(0).shape) == (2, 3, 7, 8)
    assert layer.get_output(0).dtype == trt.float32


def test_dynamic_shapes() -> None:
    plugin, creator = new()
    profile = {"x0": ((1, 3, 4, 5), (2, 3, 4, 5), (8, 3, 9, 5))}
    model = one_layer(plugin, (-1, 3, -1, 5), shapes=profile)
    assert ("configure", (-1, 3, -1, 5), (8, 3, 9, 5)) in creator.log
    for shape in [(1, 3, 4, 5), (8, 3, 9, 5), (2, 3, 7, 5), (1, 3, 4, 5)]:
        x = random(*shape)
        np.testing.assert_array_equal(model(x), pad(x, PADS))
        assert ("configure", shape, shape) in creator.log


def test_half() -> None:
    plugin, _ = new()
    x = random(*SHAPE).astype(np.float16)
    model = one_layer(plugin, SHAPE, dtype=trt.float16)
    np.testing.assert_array_equal(model(x), pad(x, PADS))


def test_serialized_as_text(tmp_path: Path) -> None:
    class Text(PadV2):
        def serialize(self) -> Any:
            return ",".join(map(str, self.pads))

    class TextCreator(PadV2Creator):
        def deserialize_plugin(self, name: str, data: bytes) -> Any:
            assert isinstance(data, bytes)
            plugin = self.kind()
            plugin.pads = [int(item) for item in data.decode().split(",")]
            return plugin

    creator = register(derived(Text), TextCreator)
    model = one_layer(creator.create_plugin("p", [pads_field(*PADS)]), SHAPE)
    model.save(tmp_path / "m.plan")
    x = random(*SHAPE)
    again = trt.load(tmp_path / "m.plan", device="cpu")
    np.testing.assert_array_equal(again(x), pad(x, PADS))


def test_bytes_that_differ_but_mean_the_same(tmp_path: Path) -> None:
    class Shuffled(PadV2):
        fresh = True

        def serialize(self) -> bytes:
            # As pickle may write equal contents in several ways.
            return bytes(self.pads) + (b"new" if self.fresh else b"restored")

        def clone(self) -> Any:
            made = super().clone()
            made.fresh = self.fresh
            return made

    class ShuffledCreator(PadV2Creator):
        def deserialize_plugin(self, name: str, data: bytes) -> Any:
            plugin = self.kind()
            plugin.pads = list(data[:4])
            plugin.__class__ = type("Restored", (self.kind,), {"fresh": False})
            return plugin

    creator = register(derived(Shuffled), ShuffledCreator)
    plugin = creator.create_plugin("p", [pads_field(*PADS)])
    x = random(*SHAPE)
    model = one_layer(plugin, SHAPE, try_plugins=False)
    np.testing.assert_array_equal(model(x), pad(x, PADS))


def test_around_the_life_in_a_context() -> None:
    log: list[str] = []

    class Full(PadV2):
        def attach_to_context(self, cudnn: int, cublas: int, allocator: Any) -> None:
            assert (cudnn, cublas, allocator) == (0, 0, None)
            log.append("attach")

        def detach_from_context(self) -> None:
            log.append("detach")

        def initialize(self) -> int:
            log.append("initialize")
            return 0

        def terminate(self) -> None:
            log.append("terminate")

        def destroy(self) -> None:
            log.append("destroy")

        def configure_plugin(self, inp: Any, out: Any) -> None:
            log.append("configure")
            super().configure_plugin(inp, out)

        def get_workspace_size(self, inp: Any, out: Any) -> int:
            assert isinstance(inp[0], trt.PluginTensorDesc)
            log.append("workspace")
            return 1000

        def enqueue(self, *args: Any) -> Any:
            assert args[4] != 0
            array(args[4], (1000,), np.uint8)[...] = 255
            log.append("enqueue")
            return super().enqueue(*args)

        def get_serialization_size(self) -> int:
            return 4

    plugin, _ = new(Full)
    model = one_layer(plugin, SHAPE)
    del plugin
    gc.collect()  # what the build made is gone before
    log.clear()
    x = random(*SHAPE)
    np.testing.assert_array_equal(model(x), pad(x, PADS))
    del model
    gc.collect()
    assert log == [
        "attach", "configure", "workspace", "initialize", "configure", "enqueue", "terminate",
        "detach", "destroy", "destroy",
    ]  # fmt: skip


def test_several_inputs_and_outputs() -> None:
    class Sums(PadV2):
        name = "SumsV2"

        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.num_outputs = 2

        def get_output_datatype(self, index: int, input_types: Any) -> Any:
            assert len(input_types) == 2
            return [trt.float32, trt.int32][index]

        def get_output_dimensions(self, index: int, inputs: Any, builder: Any) -> Any:
            return trt.DimsExprs([inputs[0][0]]) if index else inputs[1]

        def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
            assert (num_inputs, len(in_out)) == (2, 4)
            wanted = trt.int32 if pos == 3 else trt.float32
            desc = in_out[pos]
            return desc.type == wanted and desc.format == trt.TensorFormat.LINEAR

        def configure_plugin(self, inp: Any, out: Any) -> None:
            assert (len(inp), len(out)) == (2, 2)

        def enqueue(
            self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any,
            workspace: int, stream: int,
        ) -> None:  # fmt: skip
            a, b = (array(p, d.dims) for p, d in zip(inputs, input_desc, strict=True))
            array(outputs[0], output_desc[0].dims)[...] = a + b
            array(outputs[1], output_desc[1].dims, np.int32)[...] = np.arange(len(a))

    plugin = register(Sums, PadV2Creator).create_plugin("s", [])
    model = one_layer(plugin, (3, 2), (3, 2))
    a, b = random(3, 2), random(3, 2, seed=1)
    total, numbers = model(a, b)
    np.testing.assert_array_equal(total, a + b)
    assert numbers.tolist() == [0, 1, 2]


def test_onnx(tmp_path: Path) -> None:
    _, creator = new()
    creator.made.clear()
    model = trt.compile(onnx_model(creator.name, pads=PADS), device="cpu")
    assert creator.made[0] == ("the_node", {"pads": list(PADS)})
    x = random(*SHAPE)
    np.testing.assert_array_equal(model(x), pad(x, PADS))
    model.save(tmp_path / "m.plan")
    again = trt.load(tmp_path / "m.plan", device="cpu")
    np.testing.assert_array_equal(again(x), pad(x, PADS))


def test_a_namespace_of_the_registry(tmp_path: Path) -> None:
    _, creator = new()
    REGISTRY.deregister_creator(creator)
    REGISTRY.register_creator(creator, "corner")
    node = onnx_model(creator.name, plugin_namespace="corner", pads=PADS)
    model = trt.compile(node, device="cpu")
    model.save(tmp_path / "m.plan")
    x = random(*SHAPE)
    again = trt.load(tmp_path / "m.plan", device="cpu")
    np.testing.assert_array_equal(again(x), pad(x, PADS))


def test_shape_inputs_are_inputs() -> None:
    _, creator = new()
    node = onnx_model(creator.name, pads=PADS, tensorrt_plugin_shape_input_indices=[0])
    with pytest.warns(UserWarning, match="IPluginV2DynamicExt have no shape inputs"):
        model = trt.compile(node, device="cpu")
    x = random(*SHAPE)
    np.testing.assert_array_equal(model(x), pad(x, PADS))


def test_both_kinds_in_one_network() -> None:
    from tests.python.support.class_plugins import BUILD, PadV3

    older, _ = new()
    newer = register(derived(PadV3)).create_plugin("p", [pads_field(*PADS)], BUILD)

    def make(network: trt.INetworkDefinition) -> Any:
        x = network.add_input("x", trt.float32, SHAPE)
        y = network.add_plugin_v2([x], older).get_output(0)
        return network.add_plugin_v3([y], [], newer).get_output(0)

    x = random(*SHAPE)
    np.testing.assert_array_equal(build(make)(x), pad(pad(x, PADS), PADS))


def test_the_older_interface() -> None:
    plugin, _ = new()
    assert plugin.FORMAT_COMBINATION_LIMIT == 100
    assert plugin.serialization_size == 4
    assert plugin.tensorrt_version >> 24 == 4
    assert plugin.plugin_namespace == ""
    assert isinstance(plugin, trt.IPluginV2)
