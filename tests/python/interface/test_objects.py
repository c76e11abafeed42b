"""The object interface: networks, configurations, engines, contexts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rabbet as trt

from tests.python.support.plugins import build, random
from tests.python.support.timed import fill_cache

# ---- Networks ----


def run_layer(make: Any, *values: Any) -> Any:
    """Output 0 of the layer that `make(network, *tensors)` returns."""

    def network_of(network: trt.INetworkDefinition) -> Any:
        tensors = [
            network.add_input(f"x{i}", trt._arrays.dtype_of(v.dtype), v.shape)
            for i, v in enumerate(values)
        ]
        return make(network, *tensors).get_output(0)

    return build(network_of)(*values)


def test_convolution() -> None:
    x, kernel, bias = random(2, 4, 6, 5), random(6, 2, 3, 3), random(6)

    def make(network: Any, tensor: Any) -> Any:
        layer = network.add_convolution_nd(tensor, 6, (3, 3), kernel, bias)
        layer.num_groups = 2
        layer.stride_nd = (2, 1)
        layer.padding_nd = (1, 1)
        assert layer.type is trt.LayerType.CONVOLUTION
        assert layer.kernel_size_nd == (3, 3)
        assert layer.num_output_maps == 6
        assert layer.dilation_nd == (1, 1)
        assert layer.pre_padding == (1, 1)
        assert np.array_equal(layer.kernel, kernel)
        assert np.array_equal(layer.bias, bias)
        layer.post_padding = (0, 0)
        with pytest.raises(ValueError, match="pre_padding and post_padding"):
            _ = layer.padding_nd
        layer.post_padding = (1, 1)
        return layer

    torch = pytest.importorskip("torch")
    expected = torch.nn.functional.conv2d(
        *(torch.from_numpy(v) for v in (x, kernel, bias)), (2, 1), 1, 1, 2
    )
    np.testing.assert_allclose(
        run_layer(make, x), expected.numpy(), rtol=1e-4, atol=1e-5
    )


def test_topk() -> None:
    x = random(3, 9)

    def make(network: Any, tensor: Any) -> Any:
        layer = network.add_topk(tensor, trt.TopKOperation.MIN, 2, 2)
        assert layer.type is trt.LayerType.TOPK
        assert (layer.op, layer.k, layer.axes) == (trt.TopKOperation.MIN, 2, 2)
        assert layer.indices_type is trt.int32
        assert layer.num_outputs == 2
        assert layer.get_output(1).dtype is trt.int32
        return layer

    np.testing.assert_array_equal(run_layer(make, x), np.sort(x)[:, :2])


def test_scatter_and_cumulative() -> None:
    x, updates = random(3, 4), random(3, 1)
    indices = np.array([[1], [0], [3]], np.int32)

    def make(network: Any, tensor: Any, where: Any, what: Any) -> Any:
        layer = network.add_scatter(tensor, where, what, trt.ScatterMode.ELEMENT)
        assert layer.type is trt.LayerType.SCATTER
        layer.axis = 1
        assert (layer.mode, layer.axis) == (trt.ScatterMode.ELEMENT, 1)
        axis = network.add_constant((), np.array(1, np.int32)).get_output(0)
        last = network.add_cumulative(
            layer.get_output(0), axis, trt.CumulativeOperation.SUM, True, False
        )
        assert last.type is trt.LayerType.CUMULATIVE
        assert (last.exclusive, last.reverse) == (True, False)
        return last

    expected = x.copy()
    np.put_along_axis(expected, indices.astype(np.int64), updates, 1)
    expected = np.cumsum(expected, 1) - expected
    np.testing.assert_allclose(run_layer(make, x, indices, updates), expected, atol=1e-6)


def test_grid_sample() -> None:
    x, grid = random(1, 2, 4, 5), random(1, 3, 3, 2)

    def make(network: Any, tensor: Any, points: Any) -> Any:
        layer = network.add_grid_sample(tensor, points)
        assert layer.type is trt.LayerType.GRID_SAMPLE
        assert layer.interpolation_mode is trt.InterpolationMode.LINEAR
        assert layer.sample_mode is trt.SampleMode.FILL
        layer.sample_mode = trt.SampleMode.CLAMP
        layer.align_corners = True
        return layer

    torch = pytest.importorskip("torch")
    expected = torch.nn.functional.grid_sample(
        *(torch.from_numpy(v) for v in (x, grid)), "bilinear", "border", True
    )
    np.testing.assert_allclose(run_layer(make, x, grid), expected.numpy(), atol=1e-5)


def test_fill() -> None:
    def make(network: Any, tensor: Any) -> Any:
        layer = network.add_fill((4, 5), trt.FillOperation.RANDOM_UNIFORM)
        assert layer.type is trt.LayerType.FILL
        assert (layer.shape, layer.to_type) == ((4, 5), trt.float32)
        assert not layer.is_alpha_beta_int64()
        layer.alpha, layer.beta, layer.seed = 2, 3, 9
        assert (layer.alpha, layer.beta) == (2, 3)
        return network.add_elementwise(
            layer.get_output(0), tensor, trt.ElementWiseOperation.SUM
        )

    found = run_layer(make, np.zeros((4, 5), np.float32))
    assert found.min() >= 2
    assert found.max() < 3
    assert len(np.unique(found)) > 10


def test_resize() -> None:
    x = random(1, 2, 4, 5)

    def make(network: Any, tensor: Any) -> Any:
        layer = network.add_resize(tensor)
        assert layer.type is trt.LayerType.RESIZE
        assert layer.resize_mode is trt.InterpolationMode.NEAREST
        assert (
            layer.coordinate_transformation
            is trt.ResizeCoordinateTransformation.ASYMMETRIC
        )
        layer.scales = (1, 1, 2, 2.5)
        assert layer.scales == [1, 1, 2, 2.5]
        layer.resize_mode = trt.InterpolationMode.LINEAR
        layer.coordinate_transformation = trt.ResizeCoordinateTransformation.HALF_PIXEL
        assert layer.get_output(0).shape == (1, 2, 8, 12)
        return layer

    torch = pytest.importorskip("torch")
    expected = torch.nn.functional.interpolate(
        torch.from_numpy(x), scale_factor=(2, 2.5), mode="bilinear"
    )
    np.testing.assert_allclose(run_layer(make, x), expected.numpy(), atol=1e-6)


def test_deconvolution() -> None:
    x, kernel, bias = random(2, 4, 6, 5), random(4, 3, 3, 2), random(6)

    def make(network: Any, tensor: Any) -> Any:
        layer = network.add_deconvolution_nd(tensor, 6, (3, 2), kernel, bias)
        layer.num_groups = 2
        layer.stride_nd = (2, 1)
        layer.padding_nd = (1, 0)
        layer.output_padding = (1, 0)
        assert layer.type is trt.LayerType.DECONVOLUTION
        assert layer.kernel_size_nd == (3, 2)
        assert layer.num_output_maps == 6
        assert layer.dilation_nd == (1, 1)
        assert np.array_equal(layer.kernel, kernel)
        assert np.array_equal(layer.bias, bias)
        return layer

    torch = pytest.importorskip("torch")
    expected = torch.nn.functional.conv_transpose2d(
        *(torch.from_numpy(v) for v in (x, kernel, bias)), (2, 1), (1, 0), (1, 0), 2
    )
    np.testing.assert_allclose(run_layer(make, x), expected.numpy(), rtol=1e-4, atol=1e-5)


def test_pooling() -> None:
    x = random(1, 2, 4, 6)

    def make(network: Any, tensor: Any) -> Any:
        layer = network.add_pooling_nd(tensor, trt.PoolingType.MAX, (2, 3))
        layer.stride_nd = (2, 3)
        assert layer.type is trt.PoolingType.MAX
        assert layer.window_size_nd == (2, 3)
        return layer

    expected = x.reshape(1, 2, 2, 2, 2, 3).max(axis=(3, 5))
    assert np.array_equal(run_layer(make, x), expected)


def test_slice_wraps() -> None:
    x = random(2, 3)

    def make(network: Any, tensor: Any) -> Any:
        layer = network.add_slice(tensor, (0, -1), (2, 5), (1, 1))
        layer.mode = trt.SampleMode.WRAP
        assert layer.start == (0, -1)
        assert layer.mode is trt.SampleMode.WRAP
        return layer

    assert np.array_equal(run_layer(make, x), np.pad(x, ((0, 0), (1, 1)), mode="wrap"))


def test_shuffle() -> None:
    x = random(2, 3, 4)

    def make(network: Any, tensor: Any) -> Any:
        layer = network.add_shuffle(tensor)
        layer.first_transpose = trt.Permutation([2, 0, 1])
        layer.reshape_dims = (4, -1)
        layer.second_transpose = (1, 0)
        assert list(layer.first_transpose) == [2, 0, 1]
        return layer

    assert np.array_equal(run_layer(make, x), x.transpose(2, 0, 1).reshape(4, -1).T)


def test_shuffle_to_scalar() -> None:
    def make(network: Any, tensor: Any) -> Any:
        layer = network.add_shuffle(tensor)
        layer.reshape_dims = ()
        return layer

    result = run_layer(make, random(1))
    assert result.shape == ()


def test_matrix_multiply_and_softmax() -> None:
    a, b = random(2, 3, 4), random(2, 5, 4)

    def make(network: Any, left: Any, right: Any) -> Any:
        none, transpose = trt.MatrixOperation.NONE, trt.MatrixOperation.TRANSPOSE
        product = network.add_matrix_multiply(left, none, right, transpose)
        assert (product.op0, product.op1) == (none, transpose)
        layer = network.add_softmax(product.get_output(0))
        layer.axes = 1 << 2
        return layer

    logits = a @ b.transpose(0, 2, 1)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    expected = weights / weights.sum(-1, keepdims=True)
    np.testing.assert_allclose(run_layer(make, a, b), expected, rtol=1e-4, atol=1e-6)


def test_reduce_unary_select_cast() -> None:
    x = random(3, 4)

    def make(network: Any, tensor: Any) -> Any:
        mean = network.add_reduce(tensor, trt.ReduceOperation.AVG, 1 << 1, True)
        assert mean.keep_dims is True
        above = network.add_elementwise(
            tensor, mean.get_output(0), trt.ElementWiseOperation.GREATER
        )
        exp = network.add_unary(tensor, trt.UnaryOperation.EXP)
        chosen = network.add_select(above.get_output(0), exp.get_output(0), tensor)
        layer = network.add_cast(chosen.get_output(0), trt.float16)
        assert layer.to_type is trt.float16
        return layer

    expected = np.where(x > x.mean(1, keepdims=True), np.exp(x), x).astype(np.float16)
    np.testing.assert_allclose(run_layer(make, x), expected, rtol=2e-3)


def test_gather_concatenation_constant_shape() -> None:
    x = random(4, 3)

    def make(network: Any, tensor: Any) -> Any:
        index = network.add_constant((2,), np.array([3, 0], np.int32))
        assert index.weights.tolist() == [3, 0]
        assert index.shape == (2,)
        rows = network.add_gather(tensor, index.get_output(0), 0)
        layer = network.add_concatenation([tensor, rows.get_output(0)])
        layer.axis = 0
        return layer

    assert np.array_equal(run_layer(make, x), np.concatenate([x, x[[3, 0]]]))
    shape = run_layer(lambda network, tensor: network.add_shape(tensor), x)
    assert shape.tolist() == [4, 3]
    assert shape.dtype == np.int64


def test_normalization() -> None:
    x, scale, bias = random(2, 6, 5), random(1, 1, 5), random(1, 1, 5)

    def make(network: Any, tensor: Any, s: Any, b: Any) -> Any:
        layer = network.add_normalization(tensor, s, b, 1 << 2)
        layer.epsilon = 1e-3
        assert layer.epsilon == pytest.approx(1e-3)
        return layer

    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    expected = (x - mean) / np.sqrt(variance + 1e-3) * scale + bias
    np.testing.assert_allclose(
        run_layer(make, x, scale, bias), expected, rtol=1e-3, atol=1e-5
    )


def test_identity_of_tensors_and_layers() -> None:
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (2,))
    layer = network.add_identity(x)
    assert layer.get_input(0) == x
    assert {x: 1}[network.get_input(0)] == 1
    assert layer.get_output(0) == network[0].get_output(0)
    assert layer == network.get_layer(-1)
    assert layer.get_output(0) != x
    assert x != 3
    assert layer.get_output(0).producer == layer
    assert x.producer is None
    assert [type(item) for item in network] == [trt.IIdentityLayer]
    assert network.num_layers == len(network) == 1
    assert x.is_network_input
    assert not x.is_network_output
    with pytest.raises(IndexError, match="layer 1: the network has 1"):
        network.get_layer(1)
    assert layer.get_input(5) is None
    layer.__class__ = trt.ILayer


def test_names_and_shapes() -> None:
    network = trt.Builder().create_network()
    network.name = "net"
    assert network.name == "net"
    x = network.add_input("x", trt.float32, (-1, 3))
    x.set_dimension_name(0, "batch")
    assert x.get_dimension_name(0) == "batch"
    assert x.get_dimension_name(1) is None
    x.shape = (-1, 4)
    assert x.shape == (-1, 4)
    x.name = "renamed"
    assert network.get_input(0).name == "renamed"
    with pytest.raises(trt.AlreadyExistsError, match="renamed"):
        network.add_input("renamed", trt.float32, (1,))
    with pytest.raises(TypeError, match="an ITensor"):
        network.mark_output("x")


def test_wrong_networks() -> None:
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (2, 3))
    y = network.add_input("y", trt.float32, (4, 3))
    bad = network.add_elementwise(x, y, trt.ElementWiseOperation.SUM)
    bad.name = "the sum"
    with pytest.raises(trt.Error, match="the sum"):
        _ = bad.get_output(0).shape
    with pytest.raises(ValueError, match="not a multiple"):
        network.add_convolution_nd(x, 4, (3, 3), np.zeros(10, np.float32))
    with pytest.raises(ValueError, match="do not fill"):
        network.add_constant((3,), np.zeros(2, np.float32))
    with pytest.raises(ValueError, match=r"type: expected one of ActivationType .*, got 99"):
        network.add_activation(x, 99)
    with pytest.raises(ValueError, match="at least one"):
        network.add_concatenation([])


# ---- Building ----


class Recorder(trt.ILogger):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[trt.Severity, str]] = []

    def log(self, severity: trt.Severity, msg: str) -> None:
        self.lines.append((severity, msg))


def small_network(builder: trt.Builder) -> trt.INetworkDefinition:
    network = builder.create_network()
    x = network.add_input("x", trt.float32, (-1, 8))
    y = network.add_activation(x, trt.ActivationType.TANH).get_output(0)
    y.name = "y"
    network.mark_output(y)
    return network


def small_config(builder: trt.Builder) -> trt.IBuilderConfig:
    config = builder.create_builder_config()
    config.device = "cpu"
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (1, 8), (4, 8), (16, 8))
    assert profile.get_shape("x") == [(1, 8), (4, 8), (16, 8)]
    assert config.add_optimization_profile(profile) == 0
    return config


def test_configuration() -> None:
    config = trt.Builder().create_builder_config()
    config.set_flag(trt.BuilderFlag.FP16)
    assert config.get_flag(trt.BuilderFlag.FP16)
    config.clear_flag(trt.BuilderFlag.FP16)
    assert not config.get_flag(trt.BuilderFlag.FP16)
    assert config.get_flag(trt.BuilderFlag.TF32)
    config.builder_optimization_level = 1
    assert config.builder_optimization_level == 1
    with pytest.raises(ValueError, match="9"):
        config.builder_optimization_level = 9
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 1 << 20)
    assert config.get_memory_pool_limit(trt.MemoryPoolType.WORKSPACE) == 1 << 20
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    assert config.profiling_verbosity is trt.ProfilingVerbosity.DETAILED
    config.set_preview_feature(trt.PreviewFeature.ALIASED_PLUGIN_IO_10_03, True)
    assert config.get_preview_feature(trt.PreviewFeature.ALIASED_PLUGIN_IO_10_03)
    config.threads = 1
    assert config.threads == 1
    builder = trt.Builder()
    config = small_config(builder)
    config.device = "gpu"
    with pytest.raises(trt.Error, match="gpu"):
        builder.build_serialized_network(small_network(builder), config)


def test_a_logger_of_ones_own() -> None:
    recorder = Recorder()
    builder = trt.Builder(recorder)
    builder.build_serialized_network(small_network(builder), small_config(builder))
    assert all(isinstance(s, trt.Severity) for s, _ in recorder.lines)
    quiet = trt.Logger(trt.Logger.ERROR)
    quiet.log(trt.Logger.WARNING, "not shown")


def test_host_memory_is_a_buffer(tmp_path: Path) -> None:
    builder = trt.Builder()
    memory = builder.build_serialized_network(
        small_network(builder), small_config(builder)
    )
    data = bytes(memory)
    assert memory.nbytes == len(memory) == len(data)
    assert memory.dtype is trt.int8
    (tmp_path / "plan").write_bytes(memory)
    view = memoryview(memory)
    assert view.readonly
    del memory
    assert bytes(view) == data
    assert builder.report
    assert json.loads(builder.report_json)


def test_streams() -> None:
    builder = trt.Builder()

    class Writer(trt.IStreamWriter):
        data = b""

        def write(self, data: bytes) -> int:
            self.data += data
            return len(data)

    class Reader(trt.IStreamReader):
        def __init__(self, data: bytes) -> None:
            super().__init__()
            self.data = data

        def read(self, size: int) -> bytes:
            part, self.data = self.data[:100], self.data[100:]
            return part

    writer = Writer()
    builder.build_serialized_network_to_stream(
        small_network(builder), small_config(builder), writer
    )
    engine = trt.Runtime().deserialize_cuda_engine(Reader(writer.data))
    assert bytes(engine.serialize()) == writer.data


class Monitor(trt.IProgressMonitor):
    def __init__(self, stop: bool = False) -> None:
        super().__init__()
        self.open: list[str] = []
        self.phases: list[str] = []
        self.stop = stop

    def phase_start(
        self, phase_name: str, parent_phase: str | None, num_steps: int
    ) -> None:
        assert parent_phase is None or parent_phase in self.open
        self.open.append(phase_name)
        self.phases.append(phase_name)

    def step_complete(self, phase_name: str, step: int) -> bool:
        assert phase_name in self.open
        return not self.stop

    def phase_finish(self, phase_name: str) -> None:
        self.open.remove(phase_name)


def test_progress_monitor() -> None:
    builder = trt.Builder()
    config = small_config(builder)
    config.progress_monitor = monitor = Monitor()
    builder.build_serialized_network(small_network(builder), config)
    assert monitor.phases
    assert not monitor.open
    config.progress_monitor = Monitor(stop=True)
    with pytest.raises(trt.CancelledError):
        builder.build_serialized_network(small_network(builder), config)


def test_interrupting_a_build() -> None:
    builder = trt.Builder()
    config = small_config(builder)

    class Interrupting(Monitor):
        def step_complete(self, phase_name: str, step: int) -> bool:
            os.kill(os.getpid(), signal.SIGINT)
            return True

    config.progress_monitor = Interrupting()
    # A shell's background jobs are started with the signal ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            builder.build_serialized_network(small_network(builder), config)
    finally:
        signal.signal(signal.SIGINT, before)
    config.progress_monitor = None
    assert builder.build_serialized_network(small_network(builder), config).nbytes


def test_timing_cache() -> None:
    builder = trt.Builder()
    config = small_config(builder)
    cache = config.create_timing_cache()
    assert len(cache) == 0
    config.set_timing_cache(cache)
    assert config.get_timing_cache() is cache
    builder.build_serialized_network(small_network(builder), config)
    with cache.serialize() as data:
        assert isinstance(data, trt.IHostMemory)
        assert len(bytes(data)) == data.nbytes > 0
    other = config.create_timing_cache(data)
    assert len(other) == len(cache)
    empty = config.create_timing_cache()
    assert empty.combine(other)
    assert len(empty) == len(cache)
    with pytest.raises(trt.Error):
        config.create_timing_cache(b"no timing cache")


# ---- Engines and contexts ----


@pytest.fixture(scope="module")
def engine() -> trt.ICudaEngine:
    builder = trt.Builder()
    plan = builder.build_serialized_network(
        small_network(builder), small_config(builder)
    )
    return trt.Runtime().deserialize_cuda_engine(plan)


def test_what_an_engine_tells(engine: trt.ICudaEngine) -> None:
    assert engine.num_io_tensors == 2
    assert [engine.get_tensor_name(i) for i in range(2)] == ["x", "y"]
    assert engine.get_tensor_mode("x") is trt.TensorIOMode.INPUT
    assert engine.get_tensor_mode("y") is trt.TensorIOMode.OUTPUT
    assert engine.get_tensor_mode("z") is trt.TensorIOMode.NONE
    assert engine.get_tensor_shape("x") == (-1, 8)
    assert engine.get_tensor_dtype("y") is trt.float32
    assert engine.get_tensor_format("x") is trt.TensorFormat.LINEAR
    assert engine.get_tensor_location("x") is trt.TensorLocation.DEVICE
    assert engine.get_tensor_profile_shape("x", 0) == [(1, 8), (4, 8), (16, 8)]
    assert engine.get_tensor_bytes_per_component("x") == 4
    assert engine.num_optimization_profiles == 1
    assert engine.num_layers >= 1
    assert engine.device.startswith("cpu")
    assert engine.device_memory_size >= 0
    assert not engine.is_shape_inference_io("x")
    with pytest.raises(LookupError, match="'z'; it has 'x', 'y'"):
        engine.get_tensor_shape("z")
    with pytest.raises(IndexError):
        engine.get_tensor_name(2)


def test_host_memory(engine: trt.ICudaEngine) -> None:
    """A plan is the engine's own memory, which it keeps alive."""
    builder = trt.Builder()
    config = small_config(builder)
    with builder.build_serialized_network(small_network(builder), config) as memory:
        plan = bytes(memory)
    assert memory.nbytes == len(memory) == len(plan)
    with trt.Runtime().deserialize_cuda_engine(memory) as own:
        again = own.serialize()
    del own, memory
    assert isinstance(again, trt.IHostMemory)
    assert memoryview(again).readonly
    assert bytes(again) == plan
    with pytest.raises(TypeError, match="IHostMemory"):
        trt.IHostMemory()


def test_every_missing_input_is_named() -> None:
    builder = trt.Builder()
    network = builder.create_network()
    tensors = [network.add_input(n, trt.float32, (-1, 2)) for n in ("a", "b", "c")]
    both = network.add_elementwise(tensors[0], tensors[1], trt.ElementWiseOperation.SUM)
    last = network.add_elementwise(
        both.get_output(0), tensors[2], trt.ElementWiseOperation.SUM
    )
    network.mark_output(last.get_output(0))
    config = builder.create_builder_config()
    profile = builder.create_optimization_profile()
    for name in ("a", "b", "c"):
        profile.set_shape(name, (1, 2), (2, 2), (4, 2))
    config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)
    context = trt.Runtime().deserialize_cuda_engine(plan).create_execution_context()
    assert context.infer_shapes() == ["a", "b", "c"]
    assert not context.all_binding_shapes_specified
    assert context.set_input_shape("b", (3, 2))
    assert context.infer_shapes() == ["a", "c"]
    assert context.set_input_shape("a", (3, 2))
    assert context.set_input_shape("c", (3, 2))
    assert context.infer_shapes() == []
    assert context.all_binding_shapes_specified


def test_contexts(engine: trt.ICudaEngine) -> None:
    context = engine.create_execution_context()
    assert context.engine is engine
    assert context.infer_shapes() == ["x"]
    x, y = random(5, 8), np.zeros((5, 8), np.float32)
    assert context.set_input_shape("x", x.shape)
    assert context.get_tensor_shape("y") == (5, 8)
    assert context.get_tensor_strides("y") == (8, 1)
    assert context.get_max_output_size("y") == 160
    assert context.get_tensor_address("x") == 0
    context.set_tensor_address("x", x.ctypes.data)
    context.set_tensor_address("y", y.ctypes.data)
    assert context.get_tensor_address("x") == x.ctypes.data
    assert context.execute_async_v3(0)
    np.testing.assert_allclose(y, np.tanh(x), rtol=1e-4, atol=1e-6)
    y[:] = 0
    assert context.execute_v2([x.ctypes.data, y.ctypes.data])
    np.testing.assert_allclose(y, np.tanh(x), rtol=1e-4, atol=1e-6)
    context.threads = 1
    assert context.threads == 1
    assert context.active_optimization_profile == 0
    assert context.set_optimization_profile_async(0, 0)
    with pytest.raises(trt.OutOfRangeError, match="17"):
        context.set_input_shape("x", (17, 8))
    with pytest.raises(LookupError, match="'q'"):
        context.set_input_shape("q", (1,))
    with pytest.raises(ValueError, match="takes 2 addresses"):
        context.execute_v2([0])


def test_running_without_addresses(engine: trt.ICudaEngine) -> None:
    context = engine.create_execution_context()
    with pytest.raises(trt.Error, match="x"):
        context.execute_async_v3(0)


class OneBuffer(trt.IOutputAllocator):
    def __init__(self) -> None:
        super().__init__()
        self.buffer = np.empty(0, np.uint8)
        self.shape: Any = None

    def reallocate_output(
        self, tensor_name: str, memory: int, size: int, alignment: int
    ) -> int:
        self.buffer = np.zeros(size + alignment, np.uint8)
        address = self.buffer.ctypes.data
        return address + -address % alignment

    def notify_shape(self, tensor_name: str, shape: trt.Dims) -> None:
        self.shape = (tensor_name, shape)


def test_output_allocator(engine: trt.ICudaEngine) -> None:
    context = engine.create_execution_context()
    allocator = OneBuffer()
    assert context.set_output_allocator("y", allocator)
    assert context.get_output_allocator("y") is allocator
    x = random(3, 8)
    context.set_input_shape("x", x.shape)
    context.set_tensor_address("x", x.ctypes.data)
    context.execute_async_v3(0)
    assert allocator.shape == ("y", [3, 8])
    with pytest.raises(TypeError, match="IOutputAllocator"):
        context.set_output_allocator("y", object())

    class Nothing(trt.IOutputAllocator):
        pass

    context.set_output_allocator("y", Nothing())
    with pytest.raises(NotImplementedError, match="Nothing must define"):
        context.execute_async_v3(0)
    context.set_output_allocator("y", allocator)
    assert context.execute_async_v3(0)


class Times(trt.IProfiler):
    def __init__(self) -> None:
        super().__init__()
        self.times: list[tuple[str, float]] = []

    def report_layer_time(self, layer_name: str, ms: float) -> None:
        self.times.append((layer_name, ms))


def test_profiler_and_inspector(engine: trt.ICudaEngine) -> None:
    context = engine.create_execution_context()
    context.profiler = times = Times()
    assert context.profiler is times
    x, y = random(2, 8), np.empty((2, 8), np.float32)
    context.set_input_shape("x", x.shape)
    context.execute_v2([x.ctypes.data, y.ctypes.data])
    assert len(times.times) >= 1

    class Failing(trt.IProfiler):
        def report_layer_time(self, layer_name: str, ms: float) -> None:
            raise ZeroDivisionError(layer_name)

    context.profiler = Failing()
    with pytest.raises(ZeroDivisionError):
        context.execute_v2([x.ctypes.data, y.ctypes.data])
    context.profiler = None
    assert context.execute_v2([x.ctypes.data, y.ctypes.data])
    inspector = engine.create_engine_inspector()
    whole = inspector.get_engine_information(trt.LayerInformationFormat.JSON)
    assert isinstance(json.loads(whole), (dict, list))
    inspector.execution_context = context
    layer = json.loads(
        inspector.get_layer_information(0, trt.LayerInformationFormat.JSON)
    )
    assert isinstance(layer, dict)
    with pytest.raises(IndexError):
        inspector.get_layer_information(99)
    line = inspector.get_layer_information(0)
    assert line.count("\n") == 1
    assert line.endswith(": FP32 (2, 8) LINEAR -> FP32 (2, 8) LINEAR\n")
    assert "us" in line or "not timed" in line
    assert line.split(":")[0] == layer["Name"]


def test_an_engine_shared_by_threads(engine: trt.ICudaEngine) -> None:
    failures: list[int] = []

    def work(seed: int) -> None:
        context = engine.create_execution_context()
        x = random(4, 8, seed=seed)
        y = np.empty((4, 8), np.float32)
        context.set_input_shape("x", x.shape)
        for _ in range(50):
            y[:] = 0
            context.execute_v2([x.ctypes.data, y.ctypes.data])
            if not np.allclose(y, np.tanh(x), rtol=1e-4, atol=1e-6):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_exit_with_everything_alive() -> None:
    code = (
        "import numpy as np, rabbet\n"
        "from tests.python.support.plugins import one_layer, new_id\n"
        "import rabbet.plugin as trtp\n"
        "i = new_id()\n"
        "@trtp.register(i)\n"
        "def f(x: trtp.TensorDesc) -> trtp.TensorDesc: return x.like()\n"
        "@trtp.impl(i)\n"
        "def g(x: trtp.Tensor, outputs: tuple[trtp.Tensor]) -> None:\n"
        "    np.asarray(outputs[0])[...] = np.asarray(x)\n"
        "model = one_layer(i, (2,)); context = model.create_execution_context()\n"
        "print(model(np.ones(2, np.float32)))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "[1. 1.]"
    assert result.stderr == ""


@pytest.mark.parametrize("fp16", [False, True])
def test_types_of_inputs_and_outputs_of_a_weakly_typed_network(fp16: bool) -> None:
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (2, 3))
    weights = np.arange(12, dtype=np.float32).reshape(3, 4) / 8
    w = network.add_constant((3, 4), weights).get_output(0)
    none = trt.MatrixOperation.NONE
    y = network.add_matrix_multiply(x, none, w, none).get_output(0)
    network.mark_output(y)
    x.dtype = y.dtype = trt.float16
    model = trt.compile(network, device="cpu", fp16=fp16)
    result = model(np.ones((2, 3), np.float16))
    assert result.dtype == np.float16
    np.testing.assert_array_equal(result, np.ones((2, 3)) @ weights)


# ---- Layers ----


def test_layers_by_keyword_and_class() -> None:
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (1, 4, 8, 8))
    layer = network.add_convolution_nd(x, 2, (3, 3), random(2, 4, 3, 3))
    assert layer.get_input(index=0) == x
    assert layer.get_input(5) is None
    layer.set_input(index=0, tensor=x)
    layer.__class__ = trt.ILayer
    assert type(layer) is trt.ILayer


def test_new_weights() -> None:
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (1, 4, 8, 8))
    layer = network.add_convolution_nd(x, 2, (3, 3), random(2, 4, 3, 3))
    new = random(2, 4, 3, 3, seed=1)
    layer.kernel = new
    assert np.array_equal(layer.kernel, new)
    assert layer.bias is None
    layer.bias = random(2)
    assert np.array_equal(layer.bias, random(2))
    layer.bias = trt.Weights()
    assert layer.bias is None
    layer.num_output_maps = 2
    layer.kernel_size_nd = (3, 3)
    with pytest.raises(ValueError, match=r"num_output_maps of layer .* is 2"):
        layer.num_output_maps = 3
    with pytest.raises(ValueError, match="do not fill shape"):
        layer.kernel = random(2, 4)
    constant = network.add_constant((2, 3), random(2, 3))
    constant.weights = random(2, 3, seed=2)
    assert np.array_equal(constant.weights, random(2, 3, seed=2))
    constant.shape = (6,)
    assert constant.shape == (6,)
    with pytest.raises(ValueError, match="do not fill shape"):
        constant.shape = (5,)


def test_output_types() -> None:
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (4,))
    layer = network.add_identity(x)
    assert not layer.output_type_is_set(0)
    layer.set_output_type(0, trt.float16)
    assert layer.output_type_is_set(0)
    layer.reset_output_type(0)
    assert not layer.output_type_is_set(0)


# ---- Timing caches ----


def test_timing_cache_entries() -> None:
    builder = trt.Builder()
    network = builder.create_network()
    config = builder.create_builder_config()
    config.device = "cpu"
    cache = config.create_timing_cache(b"")
    config.set_timing_cache(cache)
    x = network.add_input("x", trt.float32, (1, 8, 16, 16))
    layer = network.add_convolution_nd(x, 8, (3, 3), random(8, 8, 3, 3))
    network.mark_output(layer.get_output(0))
    fill_cache(builder, network, config)
    keys = cache.queryKeys()
    assert len(keys) == len(cache) > 0
    assert len(set(keys)) == len(keys)
    key = keys[0]
    assert trt.TimingCacheKey.parse(str(key)) == key
    value = cache.query(key)
    assert value.timingMSec != 0
    assert value.tacticHash == int(str(key), 16) & 0xFFFF_FFFF_FFFF_FFFF
    cache.update(key, trt.TimingCacheValue(0, 123.5))
    assert cache.query(key).timingMSec == pytest.approx(123.5)
    copy = config.create_timing_cache(cache.serialize())
    assert copy.query(key).timingMSec == pytest.approx(123.5)
    assert cache.reset()
    assert len(cache) == 0
    with pytest.raises(LookupError, match=f"no entry {key}"):
        cache.query(key)
    cache.update(key, trt.TimingCacheValue(value.tacticHash, 0.5))
    assert cache.queryKeys() == [key]
    with pytest.raises(ValueError, match="stands for tactic"):
        cache.update(key, trt.TimingCacheValue(1, 0.5))
    with pytest.raises(ValueError, match="expected a number"):
        cache.update(key, trt.TimingCacheValue(0, float("nan")))
    with pytest.raises(ValueError, match="32 hexadecimal digits"):
        trt.TimingCacheKey.parse("0x12")
    with pytest.raises(TypeError, match="queryKeys"):
        trt.TimingCacheKey()


def test_a_timing_cache_steers_the_build() -> None:
    """A tactic whose time was made tiny is chosen."""
    builder = trt.Builder()
    network = builder.create_network()
    config = builder.create_builder_config()
    config.device = "cpu"
    config.threads = 1
    config.builder_optimization_level = 2  # believes the times; 3 takes more
    cache = config.create_timing_cache(b"")
    config.set_timing_cache(cache)
    x = network.add_input("x", trt.float32, (1, 8, 16, 16))
    layer = network.add_convolution_nd(x, 8, (3, 3), random(8, 8, 3, 3))
    network.mark_output(layer.get_output(0))

    def tactic() -> Any:
        engine = builder.build_engine_with_config(network, config)
        step = engine.create_engine_inspector().as_dict()["Layers"][0]
        return step["Kernel"], step["TacticName"]

    fill_cache(builder, network, config)
    first = tactic()
    times = {key: cache.query(key).timingMSec for key in cache.queryKeys()}
    chosen = set()
    for favourite in times:
        for key, time in times.items():
            new = time / 1e3 if key == favourite else time * 1e3
            cache.update(key, trt.TimingCacheValue(0, new))
        chosen.add(tactic())
    assert first in chosen
    assert len(chosen) > 1


# ---- Names of users ----


# Names that classes here might use for themselves, and that derived classes might, too.
TAKEN = (
    "_log _reallocate _address _notify _read _process _allocate _deallocate _undefined "
    "_info _native _name _data _buffer _memory _stream _size _shape _logger"
).split()


def users(base: type) -> type:
    """A class with attributes and methods of such names."""
    return type("Own", (base,), dict.fromkeys(TAKEN, "the user's"))


def test_names_of_users_stay_theirs() -> None:
    lines: list[str] = []
    memory: dict[str, Any] = {}

    class Log(users(trt.ILogger)):  # type: ignore[misc]
        def log(self, severity: trt.Severity, msg: str) -> None:
            lines.append(msg)

    class Allocator(users(trt.IOutputAllocator)):  # type: ignore[misc]
        def reallocate_output(
            self, name: str, given: int, size: int, alignment: int
        ) -> int:
            memory["y"] = np.empty(size + 64, np.uint8)
            return int(memory["y"].ctypes.data + 63) // 64 * 64

        def notify_shape(self, name: str, shape: trt.Dims) -> None:
            memory["shape"] = tuple(shape)

    class Reader(users(trt.IStreamReader)):  # type: ignore[misc]
        def __init__(self, data: bytes) -> None:
            super().__init__()
            self.left = data

        def read(self, size: int) -> bytes:
            found, self.left = self.left[:size], self.left[size:]
            return found

    class Listener(users(trt.IDebugListener)):  # type: ignore[misc]
        def process_debug_tensor(self, *arguments: Any) -> bool:
            memory["debug"] = arguments[4]
            return True

    builder = trt.Builder(Log())
    network = builder.create_network()
    x = network.add_input("x", trt.float32, (3,))
    y = network.add_activation(x, trt.ActivationType.RELU).get_output(0)
    y.name = "y"
    network.mark_debug(y)
    network.mark_output(y)
    config = builder.create_builder_config()
    config.device = "cpu"
    plan = bytes(builder.build_serialized_network(network, config))
    log = Log()
    engine = trt.Runtime(log).deserialize_cuda_engine(Reader(plan))
    context = engine.create_execution_context()
    listener = Listener()
    context.set_debug_listener(listener)
    context.set_all_tensors_debug_state(True)
    a = np.array([-1, 0, 2], np.float32)
    context.set_tensor_address("x", a.ctypes.data)
    allocator = Allocator()
    context.set_output_allocator("y", allocator)
    context.execute_async_v3(0)
    assert memory["shape"] == (3,)
    assert memory["debug"] == "y"
    with pytest.raises(trt.Error):
        trt.Runtime(log).deserialize_cuda_engine(b"no plan")
    for thing in (log, allocator, listener):
        assert {getattr(thing, name) for name in TAKEN} == {"the user's"}
