"""Wrong use of the package: each has an error that names the thing, and nothing
crashes, hangs or gives a wrong result."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rabbet as trt

from tests.python.support.plugins import build


def relu(*shape: int) -> tuple[trt.INetworkDefinition, trt.ITensor, Any]:
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, shape)
    layer = network.add_activation(x, trt.ActivationType.RELU)
    layer.get_output(0).name = "y"
    network.mark_output(layer.get_output(0))
    return network, x, layer


@pytest.fixture(scope="module")
def model() -> trt.Model:
    return trt.compile(relu(2, 4)[0], device="cpu")


X = np.linspace(-3, 4, 8, dtype=np.float32).reshape(2, 4)


# ---- Networks ----

WRONG_CALLS: list[tuple[Any, type[Exception], str]] = [
    (lambda n, x: n.add_input(None, trt.float32, (1,)), TypeError, "name: expected a str"),
    (lambda n, x: n.add_input("a\0b", trt.float32, (1,)), ValueError, "null character"),
    (lambda n, x: n.add_input("a", trt.float32, None), TypeError, "shape: .*got None"),
    (lambda n, x: n.add_input("a", trt.float32, (1.5,)), TypeError, "shape: .*1.5"),
    (lambda n, x: n.add_input("a", trt.float32, (1,) * 9), ValueError, "shape: .*8 dim"),
    (lambda n, x: n.add_input("a", trt.float32, (-2,)), ValueError, "'a' is -2"),
    (lambda n, x: n.add_input("a", None, (1,)), TypeError, "no DataType for None"),
    (lambda n, x: n.add_softmax(5), TypeError, "add_softmax: input: expected an ITensor, got 5"),
    (lambda n, x: n.mark_output(None), TypeError, "expected an ITensor, got None"),
    (lambda n, x: n.add_concatenation([x, None]), TypeError, "inputs: expected a list of ITensors"),
    (lambda n, x: n.add_concatenation(x), TypeError, "a list of ITensors"),
    (lambda n, x: n.add_einsum(x, "ab->a"), TypeError, "add_einsum: inputs: expected a list of"),
    (lambda n, x: n.add_einsum([], "->"), ValueError, "inputs: expected at least one tensor"),
    (lambda n, x: n.add_lrn(None, 3, 1, 1, 1), TypeError, "input: expected an ITensor, got None"),
    (lambda n, x: n.add_scale(5, trt.ScaleMode.UNIFORM), TypeError, "add_scale: input: expected"),
    (lambda n, x: n.add_padding_nd(None, (1, 1), (1, 1)), TypeError, "add_padding_nd: input"),
    (lambda n, x: n.add_unsqueeze(x, [0]), TypeError, r"axes: expected an ITensor, got \[0\]"),
    (lambda n, x: n.add_one_hot(x, x, None, 0), TypeError, "add_one_hot: depth: expected"),
    (lambda n, x: n.add_rotary_embedding(x, x, None, True, 0), TypeError, "sin_cache: expected"),
    (
        lambda n, x: n.add_ragged_softmax(n.add_input("s", trt.float32, ()), x),
        ValueError,
        r"shape is \[\]; expected one axis or more",
    ),
    (
        lambda n, x: n.add_slice(x, None, (1, 1), (1, 1)),
        TypeError,
        "start: dimensions must be integers, got None",
    ),
    (
        lambda n, x: n.add_reduce(x, trt.ReduceOperation.SUM, "1", True),
        TypeError,
        "axes: expected an integer, got '1'",
    ),
    (
        lambda n, x: n.add_gather(x, x, None),
        TypeError,
        "axis: expected an integer, got None",
    ),
    (
        lambda n, x: n.add_convolution_nd(x, None, (3, 3), X),
        TypeError,
        "num_output_maps: expected an integer, got None",
    ),
    (
        lambda n, x: n.add_constant((3,), trt.Weights(trt.float32, 0, 3)),
        ValueError,
        "3 elements at address 0",
    ),
    (lambda n, x: trt.Weights(trt.float32, 64, -3), ValueError, "-3 elements"),
    (lambda n, x: n.get_layer(3), IndexError, "layer 3: the network has 1"),
    (lambda n, x: n.get_layer(0).get_input(-1), IndexError, "input -1 is negative"),
    (lambda n, x: n.get_layer(0).set_input(-1, x), IndexError, "input -1 is negative"),
    (lambda n, x: n.get_layer(0).set_input(0, 7), TypeError, "an ITensor, got 7"),
]


@pytest.mark.parametrize(("call", "error", "message"), WRONG_CALLS)
def test_wrong_calls(call: Any, error: type[Exception], message: str) -> None:
    network, x, _ = relu(2, 4)
    with pytest.raises(error, match=message):
        call(network, x)
    network.validate()  # a refused call leaves it as it was


def test_attributes_cannot_be_deleted_or_misspelt() -> None:
    network, x, layer = relu(2, 4)
    for owner, name in [(x, "name"), (x, "dtype"), (x, "shape"), (layer, "name"),
                        (layer, "metadata"), (network, "name")]:
        with pytest.raises(AttributeError):
            delattr(owner, name)
    for owner in (x, layer):
        with pytest.raises(AttributeError, match="no attribute 'allowed_format'"):
            owner.allowed_format = 1


def test_weights_of_another_byte_order() -> None:
    network = trt.Builder().create_network()
    values = np.array([1, 2, 3], ">f4")
    constant = network.add_constant((3,), values).get_output(0)
    network.mark_output(network.add_unary(constant, trt.UnaryOperation.NEG).get_output(0))
    assert trt.compile(network, device="cpu")().tolist() == [-1, -2, -3]


# ---- compile, load ----


def test_wrong_options(tmp_path: Path) -> None:
    network = relu(-1, 4)[0]
    shape = {"x": (2, 4)}
    for options, error, message in [
        ({"shapes": 5}, TypeError, "shapes: expected .*got 5"),
        ({"shapes": {"x": None}}, ValueError, "'x' has None"),
        ({"shapes": {"x": ((1, 4), (2, 4))}}, ValueError, "expected a shape, or three"),
        ({"shapes": {"x": (2.5, 4)}}, ValueError, "integers, got"),
        ({"shapes": {"q": (1,)}}, ValueError, "no input 'q'; it has x"),
        ({"shapes": shape, "profiles": [shape]}, ValueError, "not both"),
        ({"plugins": 5}, TypeError, "plugins: .*got 5"),
        ({"plugins": __file__ + "c/"}, trt.Error, "does not exist"),
        ({"plugins": "/etc/passwd"}, ValueError, r"Python file \(.py\) or a library"),
        ({"plugins": ""}, ValueError, "neither a file nor a module"),
        ({"logger": 5}, TypeError, "logger: expected an ILogger, got 5"),
        ({"save": tmp_path}, IsADirectoryError, "save: .*is a folder"),
        ({"save": tmp_path / "a" / "b"}, FileNotFoundError, "save: there is no folder"),
        ({"timing_cache": tmp_path}, IsADirectoryError, "timing_cache"),
        ({"save": 3}, TypeError, "save: expected a path, got 3"),
        ({"timing_cache": 5}, TypeError, "timing_cache: expected a path"),
        ({"threads": -1}, ValueError, "threads.*-1"),
        ({"threads": "a"}, TypeError, "threads: expected an integer, got 'a'"),
        ({"threads": 1.5}, TypeError, r"threads: expected an integer, got 1\.5"),
        ({"optimization_level": "a"}, TypeError, "optimization_level: expected an int"),
        ({"contexts": 0}, ValueError, "contexts is 0; expected 1 to"),
        ({"contexts": 2**70}, ValueError, "contexts: expected an integer of 64 bits"),
        ({"shapes": None, "profiles": 3}, TypeError, "profiles: expected a list of {inp"),
        ({"shapes": None, "profiles": shape}, TypeError, "profiles: expected a list of {"),
        ({"device": "gpu"}, trt.Error, "device 'gpu'"),
    ]:
        options = {"device": "cpu", "shapes": shape, **options}  # type: ignore[dict-item]
        with pytest.raises(error, match=message):
            trt.compile(network, **options)  # type: ignore[arg-type]


def test_interrupts_of_a_logger_are_not_lost() -> None:
    class Interrupted(trt.ILogger):
        def log(self, severity: trt.ILogger.Severity, msg: str) -> None:
            raise KeyboardInterrupt

    # Where a shell starts a process in the background the signal is ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            trt.compile(relu(2, 4)[0], device="cpu", logger=Interrupted())
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("name", [
    "threads", "builder_optimization_level", "avg_timing_iterations", "max_num_tactics",
])  # fmt: skip
def test_numbers_of_a_configuration(name: str) -> None:
    config = trt.Builder().create_builder_config()
    for value in (None, "3", 1.5, b"x", []):
        with pytest.raises(TypeError, match=rf"{name}: expected an integer, got "):
            setattr(config, name, value)
    with pytest.raises(trt.OutOfRangeError, match=f"{name}: expected .* 64 bits, got 1180"):
        setattr(config, name, 2**70)
    setattr(config, name, np.int64(1))
    assert getattr(config, name) == 1


def test_limits_of_memory_pools() -> None:
    config = trt.Builder().create_builder_config()
    pools = trt.MemoryPoolType
    for pool in (pools.WORKSPACE, pools.TACTIC_DRAM):
        with pytest.raises(TypeError, match="pool_size: expected an integer"):
            config.set_memory_pool_limit(pool, 1.5)  # type: ignore[arg-type]
        with pytest.raises((ValueError, trt.Error), match="-1"):
            config.set_memory_pool_limit(pool, -1)


def test_wrong_objects(model: trt.Model) -> None:
    config = trt.Builder().create_builder_config()
    network = relu(2, 4)[0]
    for call, message in [
        (lambda: trt.Builder(5), "logger: expected an ILogger"),
        (lambda: trt.Runtime("a"), "logger: expected an ILogger"),
        (lambda: trt.OnnxParser(None), "expected an INetworkDefinition, got None"),
        (lambda: trt.OnnxParser(network).parse(None), "takes a model's bytes, got None"),
        (lambda: trt.OnnxParser(network).parse("a.onnx"), "parse_from_file takes a path"),
        (lambda: trt.Builder().build_serialized_network(None, config), "INetworkDef"),
        (lambda: trt.Builder().build_serialized_network(network, None), "IBuilderCon"),
        (lambda: trt.Model(None), "expected an ICudaEngine, got None"),
        (lambda: setattr(config, "progress_monitor", 5), "expected an IProgressMonitor, got 5"),
        (lambda: config.add_optimization_profile(None), "IOptimizationProfile, got None"),
        (lambda: config.set_timing_cache(5), "expected an ITimingCache, got 5"),
        (lambda: setattr(context, "profiler", 5), "expected an IProfiler, got 5"),
        (lambda: context.set_output_allocator("y", 5), "expected an IOutputAllocator"),
        (lambda: context.set_tensor_address("x", X), "memory: expected an integer"),
        (lambda: context.set_input_shape("x", None), "must be integers, got None"),
        (lambda: context.execute_async_v3(None), "stream_handle: .*got None"),
        (lambda: setattr(context, "threads", "2"), "threads: .*got '2'"),
    ]:
        context = model.create_execution_context()
        with pytest.raises(TypeError, match=message):
            call()  # type: ignore[no-untyped-call]
    for threads in (-1, 10**9, 2**40):
        with pytest.raises(ValueError, match="expected 1 to 4096"):
            context.threads = threads
        with pytest.raises(ValueError, match="expected 1 to 4096"):
            trt.Model(model.engine, threads)


# ---- Arrays ----


def test_arrays_of_any_layout(model: trt.Model) -> None:
    frozen = X.copy()
    frozen.flags.writeable = False
    unaligned = np.frombuffer(b"\0" + X.tobytes(), np.uint8)[1:].view(np.float32)
    for value in [X[::-1, ::-1], np.asfortranarray(X), np.repeat(X, 2, 1)[:, ::2], frozen,
                  X.astype(">f4"), unaligned.reshape(2, 4), X.tolist(), memoryview(X),
                  np.broadcast_to(np.float32(2), (2, 4))]:
        expected = np.maximum(np.asarray(value, np.float32), 0)
        assert np.array_equal(model(value), expected)


def test_wrong_arrays(model: trt.Model) -> None:
    for value, error, message in [
        (None, TypeError, "input 'x' is None"),
        ("abc", TypeError, "input 'x' is 'abc'"),
        (X.astype(np.float64), TypeError, "input 'x' is float64.*takes float32"),
        (X[:1], IndexError, "'x' is 1; it must be 2"),
        (X[None], ValueError, "rank 2; it cannot be"),
        (np.float32(1), ValueError, "rank 2; it cannot be"),
        ([[1, 2], [3]], ValueError, "input 'x': "),
        (object(), TypeError, "input 'x' is object"),
    ]:
        with pytest.raises((error, trt.Error), match=message):
            model(value)
    y = np.zeros((2, 4), np.float32)
    for out, message in [
        ("a", "for output 'y', got 'a'"),
        (bytearray(32), "for output 'y', got bytearray"),
        (y[:, :3], r"float32 \(2, 4\), got float32 \(2, 3\)"),
        (y.astype(np.float64), "got float64"),
        (y.astype(">f4"), "got >f4"),
        (np.asfortranarray(y), "row-major and writable"),
        ((y, y), "2 arrays for 1 outputs"),
        ({"z": y}, "the outputs are y; got z"),
    ]:
        with pytest.raises((TypeError, ValueError), match=message):
            model(X, out=out)


def test_out_may_overlap_the_input(model: trt.Model) -> None:
    for shift in (0, 3, 4):
        buffer = np.arange(16, dtype=np.float32) - 5
        x, out = buffer[:8].reshape(2, 4), buffer[shift : shift + 8].reshape(2, 4)
        expected = np.maximum(x, 0)
        model(x, out=out)
        assert np.array_equal(out, expected)


def test_out_may_overlap_an_input_that_is_read_again() -> None:
    """Two outputs that take each other's inputs: any order would spoil one."""

    def twist(network: trt.INetworkDefinition) -> Any:
        a, b = (network.add_input(name, trt.float32, (4, 4)) for name in "ab")
        outputs = []
        for tensor in (b, a):
            layer = network.add_shuffle(tensor)
            layer.first_transpose = (1, 0)
            outputs.append(layer.get_output(0))
        return tuple(outputs)

    twisted = build(twist)
    for shift in range(0, 17, 4):
        memory = np.arange(48, dtype=np.float32)
        a, b = memory[:16].reshape(4, 4), memory[16:32].reshape(4, 4)
        out = [memory[i : i + 16].reshape(4, 4) for i in (shift, shift + 16)]
        expected = [b.T.copy(), a.T.copy()]
        twisted(a, b, out=out)
        for array, value in zip(out, expected, strict=True):
            assert np.array_equal(array, value)


@pytest.mark.parametrize("shift", range(0, 33, 4))
def test_a_context_reads_what_the_output_overlaps_from_a_copy(
    model: trt.Model, shift: int
) -> None:
    context = model.engine.create_execution_context()
    for first in (-5, -3):
        memory = np.arange(first, first + 16, dtype=np.float32)
        context.set_tensor_address("x", memory.ctypes.data)
        context.set_tensor_address("y", memory.ctypes.data + shift)
        expected = np.maximum(memory[:8], 0)
        assert context.prepare()
        context.execute_async_v3(0)
        assert np.array_equal(memory[shift // 4 :][:8], expected)


def test_outputs_lie_apart() -> None:
    def both(network: trt.INetworkDefinition) -> Any:
        x = network.add_input("x", trt.float32, (4,))
        kinds = trt.ActivationType.RELU, trt.ActivationType.TANH
        return tuple(network.add_activation(x, kind).get_output(0) for kind in kinds)

    model = build(both)
    x, memory = np.ones(4, np.float32), np.zeros(8, np.float32)
    for out in [(memory[:4], memory[:4]), (memory[:4], memory[3:7])]:
        with pytest.raises(trt.Error, match="output 'y0' overlaps that of output 'y1'"):
            model(x, out=out)
    assert not memory.any()
    model(x, out=(memory[:4], memory[4:]))
    assert np.array_equal(memory, [1] * 4 + [np.tanh(np.float32(1))] * 4)


def test_numbers_are_not_guessed() -> None:
    network, _, relu_layer = relu(2, 4)
    softmax = network.add_softmax(relu_layer.get_output(0))
    for layer, name, wrong in [
        (relu_layer, "alpha", "1.5"),
        (relu_layer, "alpha", None),
        (softmax, "axes", "1"),
        (softmax, "axes", 1.7),
    ]:
        with pytest.raises(TypeError, match=f"{name} of layer .*: expected .*got "):
            setattr(layer, name, wrong)
    with pytest.raises(ValueError, match="too large"):
        relu_layer.alpha = 10**400
    relu_layer.alpha, softmax.axes = np.float64(0.5), np.int64(2)
    assert (relu_layer.alpha, softmax.axes) == (0.5, 2)


# ---- Callbacks, threads, processes ----


class Spoiler(trt.IOutputAllocator):
    """Does to its context what it must not."""

    def __init__(self, action: Any) -> None:
        super().__init__()
        self.action, self.memory = action, np.empty(64, np.uint8)
        self.failure: Any = None

    def reallocate_output(self, name: str, memory: int, size: int, alignment: int) -> int:
        try:
            self.action()
        except trt.FailedPreconditionError as error:
            self.failure = error
        return self.memory.ctypes.data

    def notify_shape(self, name: str, shape: Any) -> None: ...


def test_a_running_context_is_left_alone(model: trt.Model) -> None:
    context = model.create_execution_context()
    context.set_tensor_address("x", X.ctypes.data)
    for action in [
        lambda: context.execute_async_v3(0),
        lambda: context.set_output_allocator("y", None),
        lambda: context.set_tensor_address("x", 0),
        lambda: context.set_input_shape("x", (2, 4)),
        lambda: setattr(context, "threads", 2),
        lambda: setattr(context, "profiler", None),
        lambda: context.infer_shapes(),
    ]:
        allocator = Spoiler(action)
        context.set_output_allocator("y", allocator)
        assert context.execute_async_v3(0)
        assert "this context is running" in str(allocator.failure)
        assert np.array_equal(
            allocator.memory[:32].view(np.float32).reshape(2, 4), np.maximum(X, 0)
        )


def test_an_allocator_that_gives_no_address(model: trt.Model) -> None:
    for answer, error in [("a", TypeError), (1.5, TypeError), (-1, TypeError),
                          (2**70, TypeError), (0, trt.Error), (None, trt.Error)]:
        context = model.create_execution_context()
        context.set_tensor_address("x", X.ctypes.data)
        allocator = Spoiler(lambda: None)
        allocator.reallocate_output = lambda *a: answer  # type: ignore[method-assign]
        context.set_output_allocator("y", allocator)
        with pytest.raises(error, match="'y'"):
            context.execute_async_v3(0)


def test_callbacks_that_raise() -> None:
    class Loud(trt.IProgressMonitor):
        def step_complete(self, phase_name: str, step: int) -> bool:
            raise KeyError(phase_name)

    builder = trt.Builder()
    config = builder.create_builder_config()
    config.device = "cpu"
    config.progress_monitor = Loud()
    with pytest.raises(KeyError):
        builder.build_serialized_network(relu(2, 4)[0], config)


def _in_child(call: Any) -> int:
    """Exit code of a forked process; 99 for an exception."""
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # a hang ends in SIGALRM
        code = 99
        try:
            code = call()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_forks() -> None:
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (256, 256))
    w = network.add_constant((256, 256), np.eye(256, dtype=np.float32)).get_output(0)
    none = trt.MatrixOperation.NONE
    network.mark_output(network.add_matrix_multiply(x, none, w, none).get_output(0))
    model = trt.compile(network, device="cpu", threads=2)
    value = np.arange(256 * 256, dtype=np.float32).reshape(256, 256)
    assert np.array_equal(model(value), value)

    def works() -> int:
        return 0 if np.array_equal(model(value), value) else 1

    for _ in range(3):
        assert _in_child(works) == 0
        assert np.array_equal(model(value), value)

    def single() -> int:
        one = trt.Model(model.engine, 1)
        return 0 if np.array_equal(one(value), value) else 1

    def new_thread() -> int:
        right: list[bool] = []

        def work() -> None:
            right.append(np.array_equal(model(value), value))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return 0 if right == [True] else 1

    assert _in_child(single) == 0
    assert _in_child(new_thread) == 0
    assert np.array_equal(model(value), value)


# ---- Shapes that a run does not fit ----


def reshaped(before: bool, after: bool, *shape: int) -> trt.Model:
    """x, a vector of 1 to 9 numbers, in another shape; computed before or after that."""
    total = trt.ElementWiseOperation.SUM

    def make(network: trt.INetworkDefinition) -> Any:
        x = network.add_input("x", trt.float32, (-1,))
        if before:
            x = network.add_elementwise(x, x, total).get_output(0)
        layer = network.add_shuffle(x)
        layer.reshape_dims = shape
        y = layer.get_output(0)
        return network.add_elementwise(y, y, total).get_output(0) if after else y

    return build(make, shapes={"x": ((1,), (8,), (9,))})


@pytest.mark.parametrize("shape", [(2, 4), (-1, 4)], ids=str)
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("before", [False, True])
def test_reshaping_what_does_not_fit(before: bool, after: bool, shape: Any) -> None:
    """Not even where nothing moves."""
    model = reshaped(before, after, *shape)
    for count in (8, 9, 3, 8):
        x = np.arange(count, dtype=np.float32)
        if count == 8:
            assert np.array_equal(model(x), x.reshape(shape) * 2 ** (before + after))
            continue
        message = rf"of shape \({count},\).* reshaped, but the numbers of elements differ"
        with pytest.raises(trt.OutOfRangeError, match=message):
            model(x)


@pytest.mark.parametrize("kind", ["convolution", "pooling"])
def test_windows_of_nothing_but_padding(kind: str) -> None:
    """Right, or said: which depends on the format that a build chose."""

    def make(network: trt.INetworkDefinition) -> Any:
        x = network.add_input("x", trt.float32, (1, 2, -1, 4))
        if kind == "pooling":
            layer = network.add_pooling_nd(x, trt.PoolingType.AVERAGE, (2, 2))
            layer.average_count_excludes_padding = False
        else:
            w = np.ones((3, 2, 1, 1), np.float32)
            layer = network.add_convolution_nd(x, 3, (1, 1), w)
        layer.padding_nd = (1, 1)
        return layer.get_output(0)

    model = build(make, shapes={"x": ((1, 2, 0, 4), (1, 2, 4, 4), (1, 2, 9, 4))})
    for _ in range(2):
        assert model(np.ones((1, 2, 4, 4), np.float32)).any()
        try:
            assert not model(np.ones((1, 2, 0, 4), np.float32)).any()
        except trt.UnsupportedError as error:
            assert "an input has no elements" in str(error)
