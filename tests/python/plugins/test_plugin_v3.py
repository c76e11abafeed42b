"""Plugins of class IPluginV3: the whole life of one, in builds, plans and runs."""

from __future__ import annotations

import gc
import json
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rabbet as trt
from onnx import TensorProto, helper

from tests.python.support.class_plugins import (
    BUILD,
    RUNTIME,
    PadV3,
    PadV3Creator,
    array,
    derived,
    one_layer,
    pad,
    pads_field,
    register,
)
from tests.python.support.plugins import build, random
from tests.python.support.timed import build_until_sure, doubtful

REGISTRY = trt.get_plugin_registry()
PADS = (1, 2, 3, 0)
SHAPE = (2, 3, 4, 5)


def kinds(log: list[Any]) -> list[str]:
    """The methods that were called, without repetitions."""
    found: list[str] = []
    for entry in log:
        if not found or found[-1] != entry[0]:
            found.append(entry[0])
    return found


def made(creator: Any, *pads: int) -> Any:
    """A plugin for a build."""
    return creator.create_plugin("pad", [pads_field(*(pads or PADS))], BUILD)


# ---- Life cycle ----


def test_build_load_run(tmp_path: Path) -> None:
    creator = register(derived())
    model = one_layer(made(creator), SHAPE)
    x = random(*SHAPE)
    np.testing.assert_array_equal(model(x), pad(x, PADS))
    model.save(tmp_path / "m.plan")
    gc.collect()  # else copies of the build's are destroyed at any time
    creator.log.clear()
    creator.made.clear()
    again = trt.load(tmp_path / "m.plan", device="cpu")
    assert creator.made == [("plugin_0", {"pads": list(PADS)}, RUNTIME)]
    assert creator.log == []
    np.testing.assert_array_equal(again(x), pad(x, PADS))
    assert kinds(creator.log) == ["attach", "tactic", "shape", "run"]
    assert creator.log[2] == ("shape", SHAPE, (2, 3, 7, 8))
    creator.log.clear()
    again(x)
    assert kinds(creator.log) == ["run"]
    del model
    gc.collect()  # what the build made is gone before
    creator.log.clear()
    del again
    gc.collect()
    assert creator.log == [("destroy",), ("destroy",)]  # the copy, the plugin


def test_order_of_a_build() -> None:
    creator = register(derived())
    plugin = made(creator)
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, SHAPE)
    layer = network.add_plugin_v3([x], [], plugin)
    assert isinstance(layer, trt.IPluginV3Layer)
    assert layer.type == trt.LayerType.PLUGIN_V3
    assert type(layer.plugin) is type(plugin)
    assert layer.plugin is not plugin  # the network's own copy
    assert network.get_layer(0).plugin is layer.plugin
    assert tuple(layer.get_output(0).shape) == (2, 3, 7, 8)
    assert creator.log == []
    network.mark_output(layer.get_output(0))
    trt.compile(network, device="cpu")
    assert kinds(creator.log)[:5] == ["configure", "attach", "tactic", "shape", "run"]
    assert "fields" in kinds(creator.log)
    configured = [entry for entry in creator.log if entry[0] == "configure"]
    assert configured == [("configure", SHAPE, SHAPE)]
    assert {entry[1] for entry in creator.log if entry[0] == "run"} == {1, 2}


def test_dynamic_shapes() -> None:
    creator = register(derived())
    profile = {"x0": ((1, 3, 4, 5), (2, 3, 4, 5), (8, 3, 9, 5))}
    model = one_layer(made(creator), (-1, 3, -1, 5), shapes=profile)
    assert ("configure", (-1, 3, -1, 5), (8, 3, 9, 5)) in creator.log
    timed = [entry for entry in creator.log if entry[0] == "shape"]
    assert {entry[1] for entry in timed} == {(2, 3, 4, 5)}
    for shape in [(1, 3, 4, 5), (8, 3, 9, 5), (2, 3, 7, 5), (1, 3, 4, 5)]:
        x = random(*shape)
        np.testing.assert_array_equal(model(x), pad(x, PADS))


def test_types() -> None:
    creator = register(derived())
    model = one_layer(made(creator), SHAPE, dtype=trt.float16)
    x = random(*SHAPE).astype(np.float16)
    np.testing.assert_array_equal(model(x), pad(x, PADS))


def test_a_plan_is_held_to_the_types_that_a_class_accepts(tmp_path: Path) -> None:
    """A file may say anything: the class is asked again where it is loaded."""
    accepted = [trt.DataType.FLOAT]

    def supports(self: Any, pos: int, in_out: Any, num_inputs: int) -> bool:
        desc = in_out[pos].desc
        return desc.type in accepted and desc.format == trt.TensorFormat.LINEAR

    creator = register(derived(supports_format_combination=supports))
    path = tmp_path / "pad.plan"
    one_layer(made(creator), SHAPE).save(path)
    x = np.ones(SHAPE, np.float32)
    np.testing.assert_array_equal(trt.load(path)(x), pad(x, PADS))
    accepted[:] = [trt.DataType.HALF]
    with pytest.raises(trt.Error, match=r"FLOAT LINEAR.* not among those that the plugin"):
        trt.load(path)


def test_contexts_have_copies_of_their_own() -> None:
    creator = register(derived())
    profile = {"x0": ((1, 3, 4, 5), (2, 3, 4, 5), (8, 3, 4, 5))}
    model = one_layer(made(creator), (-1, 3, 4, 5), shapes=profile)
    failures: list[Any] = []

    def work(batch: int) -> None:
        context = model.engine.create_execution_context()
        x = np.ascontiguousarray(random(batch, 3, 4, 5, seed=batch))
        y = np.empty((batch, 3, 7, 8), np.float32)
        context.set_input_shape("x0", x.shape)
        context.set_tensor_address("x0", x.ctypes.data)
        context.set_tensor_address("y0", y.ctypes.data)
        for _ in range(50):
            y[...] = 0
            context.execute_async_v3(0)
            if not np.array_equal(y, pad(x, PADS)):
                failures.append(batch)

    threads = [threading.Thread(target=work, args=(batch,)) for batch in (1, 3, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


# ---- Tactics and timing ----


def test_the_quicker_tactic_is_chosen_and_kept(tmp_path: Path) -> None:
    class Slow(PadV3):
        name = "SlowByTactic"

        def enqueue(self, *args: Any) -> None:
            if self.tactic == 1:
                time.sleep(0.005)
            super().enqueue(*args)

    creator = register(Slow)
    model = one_layer(made(creator), SHAPE)
    model.save(tmp_path / "m.plan")
    creator.log.clear()
    again = trt.load(tmp_path / "m.plan", device="cpu")
    x = random(*SHAPE)
    np.testing.assert_array_equal(again(x), pad(x, PADS))
    assert ("tactic", 2) in creator.log
    assert ("run", 2) in creator.log
    assert ("run", 1) not in creator.log


def test_tactics_by_format() -> None:
    class ByFormat(PadV3):
        name = "TacticsByFormat"
        half = False

        def configure_plugin(self, inp: Any, out: Any) -> None:
            self.half = inp[0].desc.type == trt.float16

        def get_valid_tactics(self) -> Any:
            return [7] if self.half else [5, 6]

        def enqueue(self, input_desc: Any, *rest: Any) -> None:
            half = input_desc[0].type == trt.float16
            assert self.tactic in ((7,) if half else (5, 6))
            super().enqueue(input_desc, *rest)

    creator = register(ByFormat)
    model = one_layer(made(creator), SHAPE, fp16=True)
    x = random(*SHAPE)
    np.testing.assert_allclose(model(x), pad(x, PADS), atol=2e-3)
    runs = {entry[1] for entry in creator.log if entry[0] == "run"}
    assert runs == {5, 6, 7}


def test_without_tactics() -> None:
    kind = derived(get_valid_tactics=lambda self: [])
    creator = register(kind)
    model = one_layer(made(creator), SHAPE)
    x = random(*SHAPE)
    np.testing.assert_array_equal(model(x), pad(x, PADS))
    assert {e for e in creator.log if e[0] in ("run", "tactic")} == {("run", 0), ("tactic", 0)}


def timed(plugin: Any, cache: Path, copies: int = 1) -> list[Any]:
    """The notes of a plugin in a build. Afterwards the cache knows all times."""
    network = trt.Builder().create_network()
    tensor = network.add_input("x", trt.float32, SHAPE)
    for _ in range(copies):
        layer = network.add_plugin_v3([tensor], [], plugin)
        network.mark_output(layer.get_output(0))

    def build() -> tuple[trt.Model, list[Any]]:
        plugin.log.clear()
        model = trt.compile(
            network, device="cpu", timing_cache=cache, try_plugins=False
        )
        return model, list(plugin.log)

    first, _ = build_until_sure(build, lambda built: doubtful(built[0].report_json))
    return first[1]


def test_timing_cache(tmp_path: Path) -> None:
    class Cached(PadV3):
        name = "Cached"
        identity: str | None = ""

        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.timing_cache_id = type(self).identity

    def runs(log: list[Any]) -> int:
        return sum(entry[0] == "run" for entry in log)

    plugin = made(register(Cached))
    cache = tmp_path / "cache"
    assert runs(timed(plugin, cache)) > 1
    assert runs(timed(plugin, cache)) == 0
    assert runs(timed(plugin, cache, copies=2)) == 0  # equal layers have one time
    Cached.identity = "other"
    assert runs(timed(made(register(derived(Cached))), cache)) > 1
    plugin = made(register(derived(Cached, identity=None)))
    assert runs(timed(plugin, cache)) > 1
    assert runs(timed(plugin, cache)) > 1


# ---- Workspace ----


def test_workspace(tmp_path: Path) -> None:
    class Scratch(PadV3):
        name = "Scratch"

        def get_workspace_size(self, inp: Any, out: Any) -> int:
            self.log.append(("workspace", tuple(inp[0].max)))
            return int(np.prod(inp[0].max)) * 4

        def enqueue(
            self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any,
            workspace: int, stream: int,
        ) -> None:  # fmt: skip
            assert workspace % 256 == 0
            shape = tuple(input_desc[0].dims)
            scratch = array(workspace, shape)
            scratch[...] = array(inputs[0], shape)
            super().enqueue(
                input_desc, output_desc, [scratch.ctypes.data], outputs, 0, stream
            )

    creator = register(Scratch)
    profile = {"x0": ((1, 3, 4, 5), (2, 3, 4, 5), (8, 3, 4, 5))}
    model = one_layer(made(creator), (-1, 3, 4, 5), shapes=profile)
    assert ("workspace", (8, 3, 4, 5)) in creator.log
    model.save(tmp_path / "m.plan")
    again = trt.load(tmp_path / "m.plan", device="cpu")
    for batch in (1, 8):
        x = random(batch, 3, 4, 5)
        np.testing.assert_array_equal(again(x), pad(x, PADS))


def test_no_workspace_is_address_0_or_usable() -> None:
    class Seen(PadV3):
        name = "SeenWorkspace"

        def enqueue(self, *args: Any) -> None:
            assert isinstance(args[4], int)
            assert args[5] == 0
            super().enqueue(*args)

    model = one_layer(made(register(Seen)), SHAPE)
    x = random(*SHAPE)
    np.testing.assert_array_equal(model(x), pad(x, PADS))


# ---- Outputs ----


class Tile(PadV3):
    """Repeats x along each axis as a shape input says."""

    name = "TileByShape"

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, expr_builder: Any) -> Any:
        assert (len(inputs), len(shape_inputs)) == (1, 1)
        dims = trt.DimsExprs(len(inputs[0]))
        for axis, extent in enumerate(inputs[0]):
            dims[axis] = expr_builder.operation(
                trt.DimensionOperation.PROD, extent, shape_inputs[0][axis]
            )
        return [dims]

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any,
        workspace: int, stream: int,
    ) -> None:  # fmt: skip
        assert len(inputs) == len(input_desc) == 1
        x = array(inputs[0], input_desc[0].dims)
        y = array(outputs[0], output_desc[0].dims)
        y[...] = np.tile(x, [b // a for a, b in zip(x.shape, y.shape, strict=True)])


def test_shape_inputs(tmp_path: Path) -> None:
    plugin = made(register(Tile))

    def make(network: trt.INetworkDefinition) -> Any:
        x = network.add_input("x", trt.float32, (2, 3))
        like = network.add_input("like", trt.float32, (-1, -1))
        times = network.add_shape(like).get_output(0)
        layer = network.add_plugin_v3([x], [times], plugin)
        assert layer.num_inputs == 2
        return layer.get_output(0)

    model = build(make, shapes={"like": ((1, 1), (2, 2), (4, 4))})
    model.save(tmp_path / "m.plan")
    x = random(2, 3)
    for each in (model, trt.load(tmp_path / "m.plan", device="cpu")):
        for times in ([1, 1], [2, 3], [4, 1]):
            y = each(x, np.ones(times, np.float32))
            np.testing.assert_array_equal(y, np.tile(x, times))


class NonZero(PadV3):
    """Positions of what is not zero, and their number."""

    name = "NonZeroOfClass"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.num_outputs = 2

    def get_output_data_types(self, input_types: Any) -> Any:
        return [trt.int32, trt.int64]

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, expr_builder: Any) -> Any:
        product = trt.DimensionOperation.PROD
        upper = expr_builder.operation(product, inputs[0][0], inputs[0][1])
        opt = expr_builder.operation(
            trt.DimensionOperation.FLOOR_DIV, upper, expr_builder.constant(2)
        )
        count = expr_builder.declare_size_tensor(1, opt, upper)
        assert count.is_size_tensor()
        assert not count.is_constant()
        return [trt.DimsExprs([count, expr_builder.constant(2)]), trt.DimsExprs(0)]

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        types = (trt.float32, trt.int32, trt.int64)
        desc = in_out[pos].desc
        return desc.type == types[pos] and desc.format == trt.TensorFormat.LINEAR

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any,
        workspace: int, stream: int,
    ) -> None:  # fmt: skip
        assert tuple(output_desc[0].dims) == (-1, 2)
        found = np.argwhere(array(inputs[0], input_desc[0].dims))
        array(outputs[0], found.shape, np.int32)[...] = found
        array(outputs[1], (), np.int64)[...] = len(found)


def test_size_tensors() -> None:
    plugin = made(register(NonZero))

    def make(network: trt.INetworkDefinition) -> Any:
        x = network.add_input("x", trt.float32, (4, 5))
        return network.add_plugin_v3([x], [], plugin).get_output(0)

    model = build(make)
    for seed in range(4):
        x = np.where(random(4, 5, seed=seed) > seed / 2, 1, 0).astype(np.float32)
        np.testing.assert_array_equal(model(x), np.argwhere(x))
    assert model(np.zeros((4, 5), np.float32)).shape == (0, 2)


class AddInPlace(
    trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuildV2, trt.IPluginV3OneRuntime
):
    """y = x + 1 in x's place."""

    name = "AddInPlaceOfClass"
    namespace = "test"
    get_capability_interface = PadV3.get_capability_interface
    clone = PadV3.clone
    attach_to_context = PadV3.attach_to_context
    get_output_data_types = PadV3.get_output_data_types

    def __init__(self, fields: Any = None, phase: Any = None, log: Any = None) -> None:
        super().__init__()
        self.num_outputs = 1
        self.plugin_name, self.plugin_version = self.name, "1"
        self.plugin_namespace = self.namespace
        self.log = [] if log is None else log

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, expr_builder: Any) -> Any:
        return [inputs[0]]

    def get_aliased_input(self, output_index: int) -> int:
        return 0

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        desc = in_out[pos].desc
        return desc.type == trt.float32 and desc.format == trt.TensorFormat.LINEAR

    def configure_plugin(self, inp: Any, out: Any) -> None:
        pass

    def on_shape_change(self, inp: Any, out: Any) -> None:
        pass

    def set_tactic(self, tactic: int) -> None:
        pass

    def get_fields_to_serialize(self) -> Any:
        return trt.PluginFieldCollection()

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any,
        workspace: int, stream: int,
    ) -> None:  # fmt: skip
        assert inputs[0] == outputs[0]
        array(inputs[0], input_desc[0].dims)[...] += 1


def test_in_place() -> None:
    plugin = AddInPlace()
    register(AddInPlace)

    def make(network: trt.INetworkDefinition) -> Any:
        x = network.add_input("x", trt.float32, (3,))
        y = network.add_plugin_v3([x], [], plugin).get_output(0)
        z = network.add_plugin_v3([y], [], plugin).get_output(0)
        product = trt.ElementWiseOperation.PROD
        return network.add_elementwise(x, z, product).get_output(0)

    x = np.array([1, 2, 3], np.float32)
    assert build(make)(x).tolist() == [3, 8, 15]
    assert x.tolist() == [1, 2, 3]


def test_capabilities_may_be_objects_of_their_own() -> None:
    class Core(trt.IPluginV3OneCore):
        def __init__(self) -> None:
            super().__init__()
            self.plugin_name, self.plugin_version = "InParts", "1"
            self.plugin_namespace = "test"

    class Build(PadV3, trt.IPluginV3OneBuild):
        name = "InPartsBuild"

    class Whole(trt.IPluginV3):
        name, namespace = "InParts", "test"

        def __init__(self, fields: Any = None, phase: Any = None, log: Any = None) -> None:
            super().__init__()
            self.core, self.part = Core(), Build(fields)

        def get_capability_interface(self, type: Any) -> Any:
            return self.core if type == trt.PluginCapabilityType.CORE else self.part

        def clone(self) -> Any:
            made = Whole()
            made.part = self.part.clone()
            made.part.attach_to_context = made.attach
            return made

        def attach(self, context: Any) -> Any:
            return self.clone()

    register(Whole)
    plugin = Whole([pads_field(*PADS)])
    plugin.part.attach_to_context = plugin.attach  # type: ignore[method-assign]
    creator = REGISTRY.get_creator("InParts", "1", "test")
    x = random(*SHAPE)

    def create(name: str, fields: Any, phase: Any) -> Any:
        found = Whole(fields)
        found.part.attach_to_context = found.attach  # type: ignore[method-assign]
        return found

    creator.create_plugin = create
    np.testing.assert_array_equal(one_layer(plugin, SHAPE)(x), pad(x, PADS))


# ---- What enqueue gets ----


def test_what_is_kept_or_changed_is_made_anew() -> None:
    class Keeper(PadV3):
        name = "Keeper"

        def enqueue(self, *args: Any) -> None:
            lists = args[:4]
            assert [len(each) for each in lists] == [1, 1, 1, 1]
            assert lists[2][0] % 4 == 0
            super().enqueue(*args)
            self.log.append(("kept", args))
            for each in lists:
                each.append(None)
            lists[2][0] = 0

    creator = register(Keeper)
    model = one_layer(made(creator), SHAPE)
    for seed in range(3):
        x = random(*SHAPE, seed=seed)
        np.testing.assert_array_equal(model(x), pad(x, PADS))
    kept = [entry[1] for entry in creator.log if entry[0] == "kept"]
    assert len({id(args[2]) for args in kept}) == len(kept)


def test_lists_that_are_kept_stay_as_they_are() -> None:
    """While addresses stay, and when they are others."""

    class Keeper(PadV3):
        name = "Saver"

        def enqueue(self, *args: Any) -> None:
            super().enqueue(*args)
            self.log.append(("kept", args[2:4], [tuple(each) for each in args[2:4]]))

    creator = register(Keeper)
    model = one_layer(made(creator), SHAPE)
    creator.log.clear()
    arrays = [random(*SHAPE, seed=seed) for seed in range(3)]
    outputs = []
    for x in (arrays[0], *arrays):
        outputs.append(model(x))
        np.testing.assert_array_equal(outputs[-1], pad(x, PADS))
    kept = [entry[1:] for entry in creator.log if entry[0] == "kept"]
    assert len({values[0] for _lists, values in kept}) == len(arrays)
    for lists, values in kept:
        assert [tuple(each) for each in lists] == values


def test_descriptors_are_told_not_asked() -> None:
    class Changer(PadV3):
        name = "Changer"

        def enqueue(self, input_desc: Any, *rest: Any) -> None:
            dims = input_desc[0].dims
            dims[0] = 99  # a copy
            with pytest.raises(AttributeError, match="setting dims would have no effect"):
                input_desc[0].dims = dims
            with pytest.raises(AttributeError, match="setting type would"):
                input_desc[0].type = trt.int8
            assert input_desc[0].scale == -1
            super().enqueue(input_desc, *rest)

    model = one_layer(made(register(Changer)), SHAPE)
    x = random(*SHAPE)
    for _ in range(2):
        np.testing.assert_array_equal(model(x), pad(x, PADS))


def test_results_of_enqueue_are_passed_over() -> None:
    class Talker(PadV3):
        name = "Talker"

        def enqueue(self, *args: Any) -> Any:
            super().enqueue(*args)
            return 0

    model = one_layer(made(register(Talker)), SHAPE)
    x = random(*SHAPE)
    np.testing.assert_array_equal(model(x), pad(x, PADS))


def test_expressions() -> None:
    seen: list[Any] = []

    class Looker(PadV3):
        name = "Looker"

        def get_output_shapes(self, inputs: Any, shape_inputs: Any, expr_builder: Any) -> Any:
            two, three = expr_builder.constant(2), expr_builder.constant(3)
            operation = trt.DimensionOperation
            for op in operation:
                value = expr_builder.operation(op, three, two)
                assert value.is_constant()
                seen.append(value.get_constant_value())
            batch = inputs[0][0]
            assert not batch.is_constant()
            assert not batch.isConstant()
            with pytest.raises(ValueError, match="known only at run time"):
                batch.get_constant_value()
            dims = trt.DimsExprs(2)
            with pytest.raises(TypeError, match="4 is not an IDimensionExpr"):
                dims[0] = 4
            with pytest.raises(IndexError, match="index 2 of 2"):
                dims[2] = two
            dims[-1] = two
            assert len(dims) == 2
            with pytest.raises(ValueError, match="at most 8"):
                trt.DimsExprs(9)
            with pytest.raises(TypeError, match="expected an IDimensionExpr, got 1"):
                expr_builder.operation(operation.SUM, two, 1)
            with pytest.raises(TypeError, match="expected a DimensionOperation"):
                expr_builder.operation("SUM", two, two)
            with pytest.raises((ValueError, ArithmeticError), match="divided by 0"):
                expr_builder.operation(
                    operation.FLOOR_DIV, two, expr_builder.constant(0)
                )
            seen.append(two)
            return super().get_output_shapes(inputs, shape_inputs, expr_builder)

    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (-1, 3, 4, 5))
    layer = network.add_plugin_v3([x], [], made(register(Looker)))
    assert tuple(layer.get_output(0).shape) == (-1, 3, 7, 8)
    assert seen[:9] == [5, 6, 3, 2, 1, 0, 0, 1, 2]
    with pytest.raises(RuntimeError, match="valid only during the call"):
        seen[9].is_constant()
    with pytest.raises(RuntimeError, match="was not given to a plugin"):
        trt.IExprBuilder().constant(1)
    with pytest.raises(TypeError, match="are made by an IExprBuilder"):
        trt.IDimensionExpr()


def test_descriptors() -> None:
    desc = trt.PluginTensorDesc()
    desc.dims = (1, 2)  # type: ignore[assignment]
    desc.type = trt.float16
    assert desc.dims == (1, 2)
    assert np.prod(desc.dims) == 2
    dynamic = trt.DynamicPluginTensorDesc()
    dynamic.desc = desc
    dynamic.min, dynamic.opt, dynamic.max = (1, 1), (1, 2), (4, 4)  # type: ignore[assignment]
    assert dynamic.max == (4, 4)
    assert "(1, 2)" in repr(dynamic)


# ---- ONNX ----


def onnx_model(op: str, shape: Any = SHAPE, **attrs: Any) -> Any:
    """A model of one node of a plugin."""
    node = helper.make_node(op, ["x"], ["y"], name="the_node", **attrs)
    shapes = (("x", shape), ("y", None))
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes]
    graph = helper.make_graph([node], "g", [info[0]], [info[1]])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def test_onnx(tmp_path: Path) -> None:
    creator = register(derived())
    name = creator.name
    model = trt.compile(
        onnx_model(name, plugin_namespace="test", pads=PADS), device="cpu"
    )
    assert creator.made[0] == ("the_node", {"pads": list(PADS)}, BUILD)
    x = random(*SHAPE)
    np.testing.assert_array_equal(model(x), pad(x, PADS))
    model.save(tmp_path / "m.plan")
    again = trt.load(tmp_path / "m.plan", device="cpu")
    np.testing.assert_array_equal(again(x), pad(x, PADS))
    assert creator.made[-1] == ("the_node", {"pads": list(PADS)}, RUNTIME)


def test_onnx_attributes() -> None:
    kind = derived()
    creator = register(kind)
    REGISTRY.deregister_creator(creator)
    creator.field_names = trt.PluginFieldCollection(
        [trt.PluginField(n) for n in ("pads", "i", "f", "fs", "s", "ss", "t", "gone")]
    )
    REGISTRY.register_creator(creator)
    seen: dict[str, Any] = {}
    original = creator.create_plugin

    def create(name: str, fields: Any, phase: Any) -> Any:
        if phase == BUILD:
            seen.update({f.name: (f.type, f.data.tolist()) for f in fields})
        return original(name, fields, phase)

    creator.create_plugin = create
    tensor = helper.make_tensor("t", TensorProto.FLOAT, [2], [1.5, 2.5])
    node = onnx_model(
        creator.name, plugin_namespace="test", pads=PADS, i=3, f=0.5, fs=[1.0, 2.0],
        s="ab", ss=["a", "b"], t=tensor,
    )  # fmt: skip
    trt.compile(node, device="cpu")
    kind_of = trt.PluginFieldType
    assert seen == {
        "pads": (kind_of.INT32, list(PADS)),
        "i": (kind_of.INT32, [3]),
        "f": (kind_of.FLOAT32, [0.5]),
        "fs": (kind_of.FLOAT32, [1, 2]),
        "s": (kind_of.CHAR, list(b"ab\0")),
        "ss": (kind_of.CHAR, list(b"a\0b\0")),
        "t": (kind_of.FLOAT32, [1.5, 2.5]),
    }


def test_onnx_shape_inputs() -> None:
    creator = register(type("TileOnnx", (Tile,), {"name": "TileOnnx"}))

    def model(indices: Any) -> Any:
        node = helper.make_node(
            "TileOnnx", ["x", "t"], ["y"], plugin_namespace="test",
            tensorrt_plugin_shape_input_indices=indices,
        )  # fmt: skip
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        times = helper.make_tensor("t", TensorProto.INT64, [2], [2, 1])
        graph = helper.make_graph([node], "g", [x], [y], [times])
        opset = [helper.make_opsetid("", 19)]
        return helper.make_model(graph, opset_imports=opset, ir_version=9)

    x = random(2, 3)
    for index in (1, -1):
        y = trt.compile(model([index]), device="cpu")(x)
        np.testing.assert_array_equal(y, np.tile(x, (2, 1)))
    with pytest.raises(trt.Error, match="names input 2; the node has 2"):
        trt.compile(model([2]), device="cpu")
    assert creator.made


# ---- Plans ----


def test_a_missing_creator(tmp_path: Path) -> None:
    creator = register(derived())
    one_layer(made(creator), SHAPE).save(tmp_path / "m.plan")
    REGISTRY.deregister_creator(creator)
    with pytest.raises(trt.NotFoundError) as caught:
        trt.load(tmp_path / "m.plan", device="cpu")
    text = str(caught.value)
    assert f"needs the plugin 'test::{creator.name}', version '1'" in text
    assert "class_plugins.py" in text


def test_a_missing_creator_among_several(tmp_path: Path) -> None:
    """The error tells all files that the plan was built with."""

    class Here(PadV3Creator):
        """Its file is this one."""

    creator = register(derived())
    other = register(derived(), Here)

    def make(network: trt.INetworkDefinition) -> Any:
        x = network.add_input("x", trt.float32, SHAPE)
        for each in (creator, creator, other):
            x = network.add_plugin_v3([x], [], made(each)).get_output(0)
        return x

    build(make).save(tmp_path / "m.plan")
    REGISTRY.deregister_creator(creator)
    with pytest.raises(trt.NotFoundError) as caught:
        trt.load(tmp_path / "m.plan", device="cpu")
    text = str(caught.value)
    assert f"needs the plugin 'test::{creator.name}'" in text
    listed = text.split("; all that it was built with: ")[1].split(": ")[0]
    names = [Path(item.strip("'")).name for item in listed.split(", ")]
    assert names == ["class_plugins.py", "test_plugin_v3.py"]


def test_a_creator_under_another_namespace(tmp_path: Path) -> None:
    creator = register(derived())
    REGISTRY.deregister_creator(creator)
    REGISTRY.register_creator(creator, "elsewhere")
    one_layer(made(creator), SHAPE).save(tmp_path / "m.plan")
    x = random(*SHAPE)
    again = trt.load(tmp_path / "m.plan", device="cpu")
    np.testing.assert_array_equal(again(x), pad(x, PADS))


def test_text_for_the_inspector(tmp_path: Path) -> None:
    class Described(PadV3):
        name = "Described"

        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.metadata_string = 'padded "by" hand'

    plugin = made(register(Described))
    one_layer(plugin, SHAPE).save(tmp_path / "m.plan")
    engine = trt.load(tmp_path / "m.plan", device="cpu").engine
    text = engine.create_engine_inspector().get_engine_information(
        trt.LayerInformationFormat.JSON
    )
    (layer,) = json.loads(text)["Layers"]
    assert layer["Metadata"] == "padded \"by\" hand"


def test_a_plugin_after_another_layer_and_before() -> None:
    plugin = made(register(derived()))

    def make(network: trt.INetworkDefinition) -> Any:
        x = network.add_input("x", trt.float32, (-1, 3, 4, 5))
        relu = trt.ActivationType.RELU
        x = network.add_activation(x, relu).get_output(0)
        y = network.add_plugin(([x], [], plugin)).get_output(0)
        return network.add_activation(y, relu).get_output(0)

    profile = {"x": ((1, 3, 4, 5), (2, 3, 4, 5), (4, 3, 4, 5))}
    model = build(make, shapes=profile)
    x = random(3, 3, 4, 5)
    np.testing.assert_array_equal(model(x), pad(np.maximum(x, 0), PADS))


def test_errors_tell_the_layer_by_its_name() -> None:
    plugin = made(register(derived(get_valid_tactics=lambda self: [0])))
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, SHAPE)
    layer = network.add_plugin_v3([x], [], plugin)
    layer.name = "padding"
    assert layer.name == network.get_layer(0).name == "padding"
    network.mark_output(layer.get_output(0))
    with pytest.raises(trt.PluginError, match=r"get_valid_tactics\(\) of layer 'padding'"):
        trt.compile(network, device="cpu")
    with pytest.raises(TypeError, match=r"IPluginV3Layer\.name: expected a str"):
        layer.name = 3


def test_a_plugin_that_is_changed_between_builds() -> None:
    plugin = made(register(derived()))
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, SHAPE)
    layer = network.add_plugin_v3([x], [], plugin)
    network.mark_output(layer.get_output(0))
    value = random(*SHAPE)
    first = trt.compile(network, device="cpu")
    np.testing.assert_array_equal(first(value), pad(value, PADS))
    layer.plugin.pads = np.array([2, 1, 0, 3], np.int32)  # of the same shape
    second = trt.compile(network, device="cpu")
    np.testing.assert_array_equal(second(value), pad(value, (2, 1, 0, 3)))
    np.testing.assert_array_equal(first(value), pad(value, PADS))


# ---- Formats ----


@pytest.mark.parametrize(
    ("format_", "order"),
    [
        (trt.TensorFormat.HWC, (0, 2, 3, 1)),
        (trt.TensorFormat.CHW32, None),
        (trt.TensorFormat.CHW4, None),
    ],
)
def test_formats(format_: trt.TensorFormat, order: Any) -> None:
    """A plugin that takes one format alone sees memory in it."""
    asked: list[Any] = []

    class Doubler(PadV3):
        name = f"Doubler{format_.name}"

        def get_output_shapes(self, inputs: Any, shape_inputs: Any, expr_builder: Any) -> Any:
            return [inputs[0]]

        def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
            asked.append((pos, in_out[pos].desc.format, tuple(in_out[pos].desc.dims)))
            desc = in_out[pos].desc
            return desc.format == format_ and desc.type == trt.float32

        def enqueue(
            self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any,
            workspace: int, stream: int,
        ) -> None:  # fmt: skip
            assert input_desc[0].format == output_desc[0].format == format_
            n, c, h, w = input_desc[0].dims  # the logical shape
            if order is not None:
                shape: Any = (n, h, w, c)
            else:
                block = int(format_.name.removeprefix("CHW"))
                shape = (n, -(-c // block), h, w, block)
            x, y = array(inputs[0], shape), array(outputs[0], shape)
            y[...] = x * 2
            if order is not None:  # channels are last: scale the first one once more
                y[..., 0] *= 2
            else:
                y[:, 0, :, :, 0] *= 2

    creator = register(Doubler)
    model = one_layer(made(creator), SHAPE)
    x = random(*SHAPE)
    expected = x * 2
    expected[:, 0] *= 2
    np.testing.assert_array_equal(model(x), expected)
    assert (0, trt.TensorFormat.LINEAR, SHAPE) in asked
    assert not any(name.name.startswith(("DHWC", "DLA")) for _, name, _ in asked)


def test_everything_is_accepted_within_the_limit() -> None:
    """As plugins that always return True."""

    class Anything(PadV3):
        name = "Anything"

        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.format_combination_limit = 7

        def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
            return True

        def enqueue(self, input_desc: Any, *rest: Any) -> None:
            self.log.append(("combination", input_desc[0].type, input_desc[0].format))
            if input_desc[0].format == rest[0][0].format == trt.TensorFormat.LINEAR:
                super().enqueue(input_desc, *rest)

        def get_valid_tactics(self) -> Any:
            return []

    creator = register(Anything)
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, SHAPE)
    x.allowed_formats = 1 << int(trt.TensorFormat.LINEAR)
    layer = network.add_plugin_v3([x], [], made(creator))
    network.mark_output(layer.get_output(0))
    trt.compile(network, device="cpu")
    configured = [entry for entry in creator.log if entry[0] == "configure"]
    assert 1 <= len(configured) <= 7
