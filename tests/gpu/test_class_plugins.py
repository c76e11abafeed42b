"""Plugins of classes on CUDA: addresses and streams as int, the context, graphs."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rabbet as trt

from tests.python.support.class_plugins import (
    BUILD,
    PadV2Creator,
    PadV3Creator,
    new_name,
)
from tests.python.support.plugins import random

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)

RANGE = {"x": ((1, 8), (4, 8), (40, 8))}
# Through the workspace, so that it is seen to be memory of the device.
SCALE = """
extern "C" __global__ void first(const float* x, int n, float* w) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) w[i] = 2 * x[i];
}
"""
COUNT = """
extern "C" __global__ void count(const float* x, int n, float* y, long long* many) {
  if (blockIdx.x || threadIdx.x) return;
  long long found = 0;
  for (int i = 0; i < n; ++i) if (x[i] > 0) y[found++] = x[i];
  *many = found;
}
"""


def context_is_current() -> bool:
    context = ctypes.c_void_p()
    result = cuda_driver.driver().cuCtxGetCurrent(ctypes.byref(context))
    cuda_driver.check(result, "cuCtxGetCurrent")
    return context.value is not None


def launch(kernel: Any, stream: int, n: int, *values: Any) -> None:
    kernel(-(-n // 64), 64, stream, *values)


class ScaleV3(
    trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime
):
    """y = 4 x, in two launches."""

    name, namespace = "ScaleV3", "gpu"
    capturable: bool | None = None
    kernel = None

    def __init__(self, fields: Any = None, phase: Any = None, log: Any = None) -> None:
        super().__init__()
        self.num_outputs = 1
        self.plugin_name, self.plugin_version = type(self).name, "1"
        self.plugin_namespace = type(self).namespace
        self.log = [] if log is None else log

    def get_capability_interface(self, type: Any) -> Any:
        return self

    def clone(self) -> Any:
        made = type(self)()
        made.__dict__.update(self.__dict__)
        return made

    def get_output_data_types(self, input_types: Any) -> Any:
        return [input_types[0]]

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, builder: Any) -> Any:
        return [inputs[0]]

    def supports_format_combination(self, pos: int, in_out: Any, num: int) -> bool:
        desc = in_out[pos].desc
        return desc.type == trt.float32 and desc.format == trt.TensorFormat.LINEAR

    def configure_plugin(self, inp: Any, out: Any) -> None:
        pass

    def get_workspace_size(self, inp: Any, out: Any) -> int:
        return 4 * int(np.prod(inp[0].max))

    def attach_to_context(self, resource_context: Any) -> Any:
        assert resource_context.device == "cuda:0"
        self.log.append(("attach", context_is_current()))
        return self.clone()

    def set_tactic(self, tactic: int) -> None:
        pass

    def on_shape_change(self, inp: Any, out: Any) -> None:
        self.log.append(("shape", context_is_current()))
        self.n = int(np.prod(inp[0].dims))

    def get_fields_to_serialize(self) -> Any:
        return trt.PluginFieldCollection()

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any,
        workspace: int, stream: int,
    ) -> None:  # fmt: skip
        assert isinstance(stream, int)
        assert input_desc[0].device == output_desc[0].device == "cuda:0"
        assert workspace != 0
        kernel = self.function()
        n, middle = ctypes.c_int(self.n), ctypes.c_void_p(workspace)
        launch(kernel, stream, self.n, ctypes.c_void_p(inputs[0]), n, middle)
        launch(kernel, stream, self.n, middle, n, ctypes.c_void_p(outputs[0]))
        self.log.append(("run", context_is_current()))

    @classmethod
    def function(cls) -> Any:
        if ScaleV3.kernel is None:
            ScaleV3.kernel = cuda_driver.Function(SCALE, "first")
        return ScaleV3.kernel

    def destroy(self) -> None:
        self.log.append(("destroy", True))


def registered(kind: Any, creator: Any = PadV3Creator, **members: Any) -> Any:
    """A creator of a class under a name of its own."""
    kind = type(kind.__name__, (kind,), {"name": new_name(kind.__name__), **members})
    made = creator(kind)
    trt.get_plugin_registry().register_creator(made)
    return made


def compiled(plugin: Any, **options: Any) -> trt.Model:
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (-1, 8))
    relu = trt.ActivationType.RELU
    x = network.add_activation(x, relu).get_output(0)
    if isinstance(plugin, trt.IPluginV2DynamicExt):
        layer = network.add_plugin_v2([x], plugin)
    else:
        layer = network.add_plugin_v3([x], [], plugin)
    y = network.add_activation(layer.get_output(0), relu).get_output(0)
    y.name = "y"
    network.mark_output(y)
    return trt.compile(network, device="cuda", shapes=RANGE, **options)


def reference(x: Any) -> Any:
    return 4 * np.maximum(x, 0)


def test_v3(tmp_path: Path) -> None:
    creator = registered(ScaleV3)
    compiled(creator.create_plugin("s", [], BUILD)).save(tmp_path / "m.plan")
    creator.log.clear()
    model = trt.load(tmp_path / "m.plan", device="cuda")
    for rows in (1, 40, 3, 1):
        x = random(rows, 8)
        np.testing.assert_array_equal(model(x), reference(x))
    assert {entry[0] for entry in creator.log} >= {"attach", "shape", "run"}
    assert all(current for _, current in creator.log)
    del model
    gc.collect()
    assert ("destroy", True) in creator.log


def test_graphs() -> None:
    creator = registered(ScaleV3, capturable=True)
    model = compiled(creator.create_plugin("s", [], BUILD))
    x = random(4, 8)
    y = np.empty((4, 8), np.float32)
    for _ in range(6):
        model(x, out=y)
        np.testing.assert_array_equal(y, reference(x))
    creator.log.clear()
    for seed in range(5):
        x[...] = random(4, 8, seed=seed)
        model(x, out=y)
        np.testing.assert_array_equal(y, reference(x))
    assert [entry for entry in creator.log if entry[0] == "run"] == []


def test_never_recorded() -> None:
    creator = registered(ScaleV3, capturable=False)
    model = compiled(creator.create_plugin("s", [], BUILD))
    x = random(4, 8)
    creator.log.clear()
    for _ in range(8):
        np.testing.assert_array_equal(model(x), reference(x))
    assert len([entry for entry in creator.log if entry[0] == "run"]) == 8


class ScaleV2(trt.IPluginV2DynamicExt):
    """The same the older way."""

    name, namespace = "ScaleV2", "gpu"

    def __init__(self, fields: Any = None, log: Any = None) -> None:
        super().__init__()
        self.num_outputs = 1
        self.plugin_type, self.plugin_version = type(self).name, "1"
        self.plugin_namespace = type(self).namespace
        self.log = [] if log is None else log

    clone = ScaleV3.clone

    def get_output_datatype(self, index: int, input_types: Any) -> Any:
        return input_types[0]

    def get_output_dimensions(self, index: int, inputs: Any, builder: Any) -> Any:
        return inputs[0]

    def supports_format_combination(self, pos: int, in_out: Any, num: int) -> bool:
        desc = in_out[pos]
        return desc.type == trt.float32 and desc.format == trt.TensorFormat.LINEAR

    def configure_plugin(self, inp: Any, out: Any) -> None:
        pass

    def get_workspace_size(self, inp: Any, out: Any) -> int:
        return 4 * int(np.prod(inp[0].dims))

    def initialize(self) -> None:
        self.log.append(("initialize", context_is_current()))

    def terminate(self) -> None:
        self.log.append(("terminate", context_is_current()))

    def serialize(self) -> bytes:
        return b""

    def enqueue(self, input_desc: Any, *rest: Any) -> int:
        worker = ScaleV3()
        worker.n = int(np.prod(input_desc[0].dims))
        worker.enqueue(input_desc, *rest)
        return 0


def test_v2(tmp_path: Path) -> None:
    creator = registered(ScaleV2, PadV2Creator)
    compiled(creator.create_plugin("s", [])).save(tmp_path / "m.plan")
    creator.log.clear()
    model = trt.load(tmp_path / "m.plan", device="cuda")
    for rows in (1, 40, 3, 1):
        x = random(rows, 8)
        np.testing.assert_array_equal(model(x), reference(x))
    del model
    gc.collect()
    assert set(creator.log) == {("initialize", True), ("terminate", True)}


class Positive(ScaleV3):
    """The numbers above 0, and their number."""

    name = "PositiveV3"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.num_outputs = 2

    def get_output_data_types(self, input_types: Any) -> Any:
        return [trt.float32, trt.int64]

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, builder: Any) -> Any:
        product = trt.DimensionOperation.PROD
        upper = builder.operation(product, inputs[0][0], inputs[0][1])
        count = builder.declare_size_tensor(1, upper, upper)
        return [trt.DimsExprs([count]), trt.DimsExprs(0)]

    def supports_format_combination(self, pos: int, in_out: Any, num: int) -> bool:
        wanted = (trt.float32, trt.float32, trt.int64)[pos]
        desc = in_out[pos].desc
        return desc.type == wanted and desc.format == trt.TensorFormat.LINEAR

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any,
        workspace: int, stream: int,
    ) -> None:  # fmt: skip
        assert tuple(output_desc[0].dims) == (-1,)
        launch(
            KERNELS.setdefault("count", cuda_driver.Function(COUNT, "count")),
            stream, 1, ctypes.c_void_p(inputs[0]), ctypes.c_int(self.n),
            ctypes.c_void_p(outputs[0]), ctypes.c_void_p(outputs[1]),
        )  # fmt: skip


KERNELS: dict[str, Any] = {}


def test_size_tensors() -> None:
    creator = registered(Positive)
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (4, 8))
    plugin = creator.create_plugin("p", [], BUILD)
    network.mark_output(network.add_plugin_v3([x], [], plugin).get_output(0))
    model = trt.compile(network, device="cuda")
    for seed in range(4):
        value = random(4, 8, seed=seed)
        np.testing.assert_array_equal(model(value), value[value > 0])
    assert model(-np.ones((4, 8), np.float32)).shape == (0,)


TILE = """
extern "C" __global__ void tile(const float* x, int n, int total, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < total) y[i] = x[i % n];
}
"""


class TileRows(ScaleV3):
    """The rows several times, as a shape input says; its values are the host's."""

    name = "TileRows"

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, builder: Any) -> Any:
        assert (len(inputs), len(shape_inputs)) == (1, 1)
        dims = trt.DimsExprs(inputs[0])
        product = trt.DimensionOperation.PROD
        dims[0] = builder.operation(product, dims[0], shape_inputs[0][0])
        return [dims]

    def on_shape_change(self, inp: Any, out: Any) -> None:
        assert len(inp) == 1
        self.n = int(np.prod(inp[0].dims))
        self.total = int(np.prod(out[0].dims))

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any,
        workspace: int, stream: int,
    ) -> None:  # fmt: skip
        assert len(inputs) == 1
        launch(
            KERNELS.setdefault("tile", cuda_driver.Function(TILE, "tile")),
            stream, self.total, ctypes.c_void_p(inputs[0]), ctypes.c_int(self.n),
            ctypes.c_int(self.total), ctypes.c_void_p(outputs[0]),
        )  # fmt: skip


def test_shape_inputs() -> None:
    plugin = registered(TileRows).create_plugin("t", [], BUILD)
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (3, 8))
    like = network.add_input("like", trt.float32, (-1,))
    times = network.add_shape(like).get_output(0)
    y = network.add_plugin_v3([x], [times], plugin).get_output(0)
    network.mark_output(y)
    shapes = {"like": ((1,), (2,), (5,))}
    model = trt.compile(network, device="cuda", shapes=shapes)
    value = random(3, 8)
    for count in (1, 5, 2):
        result = model(value, np.ones(count, np.float32))
        np.testing.assert_array_equal(result, np.tile(value, (count, 1)))


class AddInPlace(ScaleV3, trt.IPluginV3OneBuildV2):
    """x + x in x's place."""

    name = "AddInPlace"

    def get_aliased_input(self, output_index: int) -> int:
        return 0

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any,
        workspace: int, stream: int,
    ) -> None:  # fmt: skip
        assert inputs[0] == outputs[0]
        x, n = ctypes.c_void_p(inputs[0]), ctypes.c_int(self.n)
        launch(self.function(), stream, self.n, x, n, x)


def test_in_place() -> None:
    plugin = registered(AddInPlace).create_plugin("a", [], BUILD)
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (3, 8))
    y = network.add_plugin_v3([x], [], plugin).get_output(0)
    y = network.add_plugin_v3([y], [], plugin).get_output(0)
    total = trt.ElementWiseOperation.SUM
    network.mark_output(network.add_elementwise(x, y, total).get_output(0))
    model = trt.compile(network, device="cuda")
    value = random(3, 8)
    for _ in range(4):
        np.testing.assert_allclose(model(value), 5 * value, rtol=1e-6)


def test_a_class_for_the_cpu_alone() -> None:
    creator = registered(ScaleV3, device="cpu")
    with pytest.raises(trt.PluginError, match=r"run on 'cpu' .*, and this is 'cuda'"):
        compiled(creator.create_plugin("s", [], BUILD))


def test_errors() -> None:
    def fails(self: Any, *args: Any) -> None:
        raise KeyError("of the user")

    creator = registered(ScaleV3, on_shape_change=fails)
    model = compiled(creator.create_plugin("s", [], BUILD), try_plugins=False)
    with pytest.raises(KeyError, match="of the user") as caught:
        model(random(4, 8))
    assert "in ScaleV3.on_shape_change() of layer 'plugin_1'" in caught.value.__notes__


# ---- Kernels made ahead of time ----

ADD = """
extern "C" __global__ void add(const float* x, int count, short delta, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) y[i] = x[i] + delta;
}
"""


class QuickAdd(trt.IPluginV3, trt.IPluginV3QuickCore, trt.IPluginV3QuickAOTBuild):
    """y = x + 5 by a kernel that the plan keeps."""

    name, namespace = "QuickAdd", "gpu"

    def __init__(self, fields: Any = None, log: Any = None) -> None:
        super().__init__()
        self.plugin_name, self.plugin_version = type(self).name, "1"
        self.plugin_namespace = type(self).namespace
        self.log = [] if log is None else log

    clone = ScaleV3.clone

    def get_capability_interface(self, type: Any) -> Any:
        return None if type == trt.PluginCapabilityType.RUNTIME else self

    def get_num_outputs(self) -> int:
        return 1

    def get_output_data_types(self, input_types: Any, ranks: Any) -> Any:
        return input_types

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, builder: Any) -> Any:
        return [inputs[0]]

    def get_supported_format_combinations(self, in_out: Any, num_inputs: int) -> Any:
        found = []
        for _ in in_out:
            desc = trt.PluginTensorDesc()
            desc.type, desc.format = trt.float32, trt.TensorFormat.LINEAR
            found.append(desc)
        return found

    def configure_plugin(self, inputs: Any, outputs: Any) -> None:
        pass

    def get_valid_tactics(self) -> Any:
        return [2]

    def set_tactic(self, tactic: int) -> None:
        self.tactic = tactic

    def get_launch_params(
        self, inputs: Any, in_out: Any, num_inputs: int, launch: Any, extra: Any, builder: Any
    ) -> None:
        assert self.tactic == 2
        operation = trt.DimensionOperation
        rows, columns = inputs[0]
        count = builder.operation(operation.PROD, rows, columns)
        block = builder.constant(64)
        launch.grid_x = builder.operation(operation.CEIL_DIV, count, block)
        launch.block_x = block
        extra.nbSymExprs = 2
        for i, (value, dtype) in enumerate(
            [
                (count, trt.PluginArgDataType.INT32),
                (builder.constant(5), trt.PluginArgDataType.INT16),
            ]
        ):
            extra[i] = trt.ISymExpr()
            extra[i].type, extra[i].dtype = trt.PluginArgType.INT, dtype
            extra[i].expr = value

    def get_kernel(self, inp: Any, out: Any) -> Any:
        assert inp[0].type == trt.float32
        return "add", cuda_driver.compile_code(ADD)


def test_kernels_made_ahead_of_time(tmp_path: Path) -> None:
    from tests.python.support.quick_plugins import QuickCreator

    creator = registered(QuickAdd, QuickCreator)
    compiled(creator.new(0)).save(tmp_path / "m.plan")
    trt.get_plugin_registry().deregister_creator(creator)
    model = trt.load(tmp_path / "m.plan", device="cuda")  # without the plugin
    for rows in (1, 40, 3):
        x = random(rows, 8)
        expected = np.maximum(np.maximum(x, 0) + 5, 0)
        np.testing.assert_array_equal(model(x), expected)


def test_kernels_on_the_cpu_are_none() -> None:
    from tests.python.support.quick_plugins import QuickCreator

    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (4, 8))
    plugin = registered(QuickAdd, QuickCreator).new(0)
    network.mark_output(network.add_plugin_v3([x], [], plugin).get_output(0))
    with pytest.raises(trt.UnsupportedError, match="cannot run on device 'cpu'"):
        trt.compile(network, device="cpu")
