"""Operators with tensors in each format: the kernel sees the memory as it lies."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import rabbet as trt
import rabbet.plugin as trtp

from tests.python.layers.test_format_shapes import (
    check_full_in_a_run_alone,
    check_one_row_at_the_optimum_alone,
)
from tests.python.support.plugins import call, new_id, random

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)

# Format: channels of a block, and whether they come last.
FORMATS = {
    "LINEAR": (1, False), "CHW2": (2, False), "CHW4": (4, False), "CHW16": (16, False),
    "CHW32": (32, False), "HWC": (1, True), "HWC8": (8, True), "HWC16": (16, True),
}  # fmt: skip

# y = x (channel + 1): what it takes for the channel depends on the format.
SOURCE = """
extern "C" __global__ void by_channel(const TYPE* x, int channels, int size, int block,
                                      int last, int count, TYPE* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  int padded = (channels + block - 1) / block * block;
  int channel = last ? i % padded
                     : i / (size * block) % (padded / block) * block + i % block;
  y[i] = (TYPE)(x[i] * (TYPE)(channel + 1));
}
"""
TYPES = {
    "FP32": ("float", trt.float32, np.float32),
    "INT32": ("int", trt.int32, np.int32),
    "INT8": ("signed char", trt.int8, np.int8),
}


def by_channel(layout: str, kind: str, given: str) -> str:
    """The operator in one format. given: "impl" or "aot"."""
    plugin_id = new_id("by_channel")
    block, last = FORMATS[layout]
    source = SOURCE.replace("TYPE", TYPES[kind][0])

    @trtp.register(plugin_id)
    def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.autotune(plugin_id)
    def tune(x, outputs) -> list[trtp.AutoTuneCombination]:
        return [trtp.AutoTuneCombination(f"{kind}, {kind}", layout)]

    if given == "aot":
        code = cuda_driver.compile_code(source)

        @trtp.aot_impl(plugin_id)
        def kernels(x, outputs):
            assert x.format is outputs[0].format is getattr(trt.TensorFormat, layout)
            n, c, h, w = x.shape_expr
            count = n * trtp.cdiv(c, block) * block * h * w
            launch = trtp.KernelLaunchParams(grid_x=trtp.cdiv(count, 64), block_x=64)
            args = [x, c, h * w, block, int(last), count, outputs[0]]
            return trtp.Kernel("by_channel", code, launch, args)

        return plugin_id

    function = cuda_driver.Function(source, "by_channel")

    @trtp.impl(plugin_id, device="cuda", capturable=True)
    def run(x, outputs, stream):
        assert x.format is getattr(trt.TensorFormat, layout)
        n, c, h, w = tuple(x.shape)
        count = n * -(-c // block) * block * h * w
        numbers = [ctypes.c_int(v) for v in (c, h * w, block, int(last), count)]
        function(
            -(-count // 64), 64, stream, ctypes.c_void_p(x.data_ptr), *numbers,
            ctypes.c_void_p(outputs[0].data_ptr),
        )  # fmt: skip

    return plugin_id


@pytest.mark.parametrize("given", ["impl", "aot"])
@pytest.mark.parametrize("layout", FORMATS)
@pytest.mark.parametrize("channels", [3, 32])
def test_format(layout: str, channels: int, given: str) -> None:
    """Between two layers of row-major tensors."""
    plugin_id = by_channel(layout, "FP32", given)
    shape = (2, channels, 5, 6)
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, shape)
    x = network.add_activation(x, trt.ActivationType.RELU).get_output(0)
    y = network.add_plugin(call(plugin_id)(x)).get_output(0)
    y = network.add_unary(y, trt.UnaryOperation.NEG).get_output(0)
    y.name = "y"
    network.mark_output(y)
    model = trt.compile(network, device="cuda")
    factor = np.arange(1, channels + 1, dtype=np.float32)[:, None, None]
    out = np.empty(shape, np.float32)
    value = np.empty(shape, np.float32)
    for seed in range(4):
        value[...] = random(*shape, seed=seed)
        out.fill(np.nan)
        model(value, out=out)
        np.testing.assert_array_equal(out, -(np.maximum(value, 0) * factor))
    assert model.graph_info.replays > 0


@pytest.mark.parametrize("layout", ["LINEAR", "CHW4", "CHW32"])
@pytest.mark.parametrize("kind", ["INT32", "INT8"])
def test_types(layout: str, kind: str) -> None:
    plugin_id = by_channel(layout, kind, "aot")
    _, dtype, numpy_type = TYPES[kind]
    network = trt.Builder().create_network()
    x = network.add_input("x", dtype, (1, 5, 4, 4))
    network.mark_output(network.add_plugin(call(plugin_id)(x)).get_output(0))
    model = trt.compile(network, device="cuda")
    value = np.arange(80, dtype=numpy_type).reshape(1, 5, 4, 4) % 20
    factor = np.arange(1, 6, dtype=numpy_type)[:, None, None]
    np.testing.assert_array_equal(model(value), value * factor)


@pytest.mark.parametrize("layout", ["CHW4", "HWC"])
def test_input_and_output_of_the_network_in_a_format(layout: str) -> None:
    """Asked for by allowed_formats: the caller's memory lies like that."""
    plugin_id = by_channel(layout, "FP32", "aot")
    n, c, h, w = shape = (2, 4, 3, 5)
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, shape)
    y = network.add_plugin(call(plugin_id)(x)).get_output(0)
    y.name = "y"
    network.mark_output(y)
    for tensor in (x, y):
        tensor.allowed_formats = 1 << int(getattr(trt.TensorFormat, layout))
    config = trt.Builder().create_builder_config()
    config.device = "cuda"
    plan = trt.Builder().build_serialized_network(network, config)
    engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(plan)
    context = engine.create_execution_context()
    value = random(*shape)
    lying = np.ascontiguousarray(value.transpose(0, 2, 3, 1))  # of 4 channels: both
    size = value.nbytes
    with cuda_driver.memory(size) as source, cuda_driver.memory(size) as target:
        cuda_driver.write(source, lying)
        context.set_tensor_address("x", source)
        context.set_tensor_address("y", target)
        assert context.execute_async_v3(0)
        found = cuda_driver.read(target, (n, h, w, c))
    np.testing.assert_array_equal(found, lying * np.arange(1, c + 1, dtype=np.float32))


@pytest.mark.parametrize("layout", FORMATS)
@pytest.mark.parametrize("channels", [16, 20])
def test_between_a_convolution_and_a_sum(layout: str, channels: int) -> None:
    """Blocks that are full, and others."""
    plugin_id = by_channel(layout, "FP32", "aot")
    weights = eighths(channels, 3, 3, 3, seed=5)
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (2, 3, 6, 7))
    y = network.add_convolution_nd(x, channels, (3, 3), weights).get_output(0)
    z = network.add_plugin(call(plugin_id)(y)).get_output(0)
    z = network.add_elementwise(z, y, trt.ElementWiseOperation.SUM).get_output(0)
    z.name = "z"
    network.mark_output(z)
    model = trt.compile(network, device="cuda")
    value = eighths(2, 3, 6, 7)
    found = convolved(value, weights)
    factor = np.arange(1, channels + 1, dtype=np.float32)[:, None, None]
    np.testing.assert_allclose(model(value), found * (factor + 1), rtol=1e-5)


def eighths(*shape: int, seed: int = 0) -> np.ndarray:
    """Numbers that TF32 has, too."""
    return np.round(random(*shape, seed=seed) * 8) / 8


def convolved(value: np.ndarray, weights: np.ndarray) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(value, (3, 3), (2, 3))
    return np.einsum("nchwij,kcij->nkhw", windows, weights)


@pytest.mark.parametrize("layout", ["HWC", "HWC8", "HWC16"])
def test_channels_last_of_full_blocks_are_one_format(layout: str) -> None:
    """A convolution works in HWC: what is full of channels lies like that."""
    plugin_id = by_channel(layout, "FP32", "aot")
    shape = (2, 16, 6, 6)
    weights = eighths(16, 16, 3, 3, seed=5)
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, shape)
    layer = network.add_convolution_nd(x, 16, (3, 3), weights)
    y = network.add_plugin(call(plugin_id)(layer.get_output(0))).get_output(0)
    y = network.add_activation(y, trt.ActivationType.RELU).get_output(0)
    y.name = "y"
    network.mark_output(y)
    for tensor in (x, y):
        tensor.allowed_formats = 1 << int(getattr(trt.TensorFormat, layout))
    config = trt.Builder().create_builder_config()
    config.device = "cuda"
    config.builder_optimization_level = 0
    plan = trt.Builder().build_serialized_network(network, config)
    engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(plan)
    steps = engine.create_engine_inspector().as_dict()["Layers"]
    assert "cuda.convert" not in [step["Kernel"] for step in steps]
    value = eighths(*shape)
    found = convolved(value, weights)
    factor = np.arange(1, 17, dtype=np.float32)[:, None, None]
    expected = lying(np.maximum(found * factor, 0), layout)
    context = engine.create_execution_context()
    with (
        cuda_driver.memory(value.nbytes) as source,
        cuda_driver.memory(expected.nbytes) as target,
    ):
        cuda_driver.write(source, lying(value, layout))
        context.set_tensor_address("x", source)
        context.set_tensor_address("y", target)
        assert context.execute_async_v3(0)
        out = cuda_driver.read(target, expected.shape)
    np.testing.assert_allclose(out, expected, rtol=1e-5)


def lying(array: np.ndarray, layout: str) -> np.ndarray:
    """As it lies in memory; the channels fill blocks."""
    n, c, h, w = array.shape
    block, last = FORMATS[layout]
    if last:
        return np.ascontiguousarray(array.transpose(0, 2, 3, 1))
    blocks = array.reshape(n, c // block, block, h, w)
    return np.ascontiguousarray(blocks.transpose(0, 1, 3, 4, 2))


@pytest.mark.parametrize("layout", ["CHW2", "CHW4", "CHW16", "CHW32", "HWC", "HWC8", "HWC16"])
def test_a_chain_stays_in_the_format_that_an_operator_asks_for(layout: str) -> None:
    """The network's input and output are in it, too: nothing is converted."""
    plugin_id = by_channel(layout, "FP32", "aot")
    n, c, h, w = shape = (2, 32, 8, 8)
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, shape)
    y = network.add_unary(x, trt.UnaryOperation.ABS).get_output(0)
    y = network.add_plugin(call(plugin_id)(y)).get_output(0)
    y = network.add_activation(y, trt.ActivationType.SIGMOID).get_output(0)
    layer = network.add_pooling_nd(y, trt.PoolingType.MAX, (2, 2))
    layer.stride_nd = (2, 2)
    y = layer.get_output(0)
    layer = network.add_slice(y, (0, 0, -1, -1), (n, c, h + 1, w + 1), (1, 1, 1, 1))
    layer.mode = trt.SampleMode.WRAP
    y = network.add_concatenation([layer.get_output(0)] * 2).get_output(0)
    y = network.add_reduce(y, trt.ReduceOperation.MAX, 4, True).get_output(0)
    y.name = "y"
    network.mark_output(y)
    for tensor in (x, y):
        tensor.allowed_formats = 1 << int(getattr(trt.TensorFormat, layout))
    config = trt.Builder().create_builder_config()
    config.device = "cuda"
    config.builder_optimization_level = 0  # conversions count, not times
    plan = trt.Builder().build_serialized_network(network, config)
    engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(plan)
    steps = engine.create_engine_inspector().as_dict()["Layers"]
    assert "cuda.convert" not in [step["Kernel"] for step in steps]
    tensors = [tensor for step in steps for tensor in step["Inputs"] + step["Outputs"]]
    found = {tensor["Format/Datatype"].removesuffix(" FP32") for tensor in tensors}
    # (Of full blocks all with channels last are one.)
    assert found == {layout} or found <= {"HWC", "HWC8", "HWC16"}
    value = random(*shape)
    factor = np.arange(1, c + 1, dtype=np.float32)[:, None, None]
    found = 1 / (1 + np.exp(-np.abs(value) * factor))
    found = found.reshape(n, c, h // 2, 2, w // 2, 2).max((3, 5))
    found = np.pad(found, ((0, 0), (0, 0), (1, 4), (1, 4)), mode="wrap")
    found = np.concatenate([found] * 2, 1).max(2, keepdims=True)
    context = engine.create_execution_context()
    source_bytes, target_bytes = lying(value, layout), lying(found, layout)
    with (
        cuda_driver.memory(source_bytes.nbytes) as source,
        cuda_driver.memory(target_bytes.nbytes) as target,
    ):
        cuda_driver.write(source, source_bytes)
        context.set_tensor_address("x", source)
        context.set_tensor_address("y", target)
        assert context.execute_async_v3(0)
        out = cuda_driver.read(target, target_bytes.shape)
    np.testing.assert_allclose(out, target_bytes, rtol=1e-5)


def test_sum_after_a_product_that_is_full_in_a_run_alone() -> None:
    check_full_in_a_run_alone("cuda", False)


def test_one_row_at_the_optimum_alone() -> None:
    check_one_row_at_the_optimum_alone("cuda")
