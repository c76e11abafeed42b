"""Contexts on several streams and threads at once, and memory that the caller gives."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import rabbet as trt
import rabbet.plugin as trtp

from tests.python.support.plugins import call, new_id, random

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)

COLUMNS = 64
CONTEXTS = 4
SOURCE = """
extern "C" __global__ void twice(const float* x, int n, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
"""


def twice() -> str:
    """y = 2 x, launched from Python."""
    plugin_id = new_id("twice")
    kernel = cuda_driver.Function(SOURCE, "twice")

    @trtp.register(plugin_id)
    def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id, device="cuda", capturable=True)
    def run(x, outputs, stream):
        kernel(
            -(-x.numel() // 64), 64, stream, ctypes.c_void_p(x.data_ptr),
            ctypes.c_int(x.numel()), ctypes.c_void_p(outputs[0].data_ptr),
        )  # fmt: skip

    return plugin_id


@pytest.fixture(scope="module")
def model() -> trt.Model:
    """y = softmax(2 x) + the maximum of each row of x; x [-1, 64]."""
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (-1, COLUMNS))
    doubled = network.add_plugin(call(twice())(x)).get_output(0)
    soft = network.add_softmax(doubled)
    soft.axes = 1 << 1
    most = network.add_reduce(x, trt.ReduceOperation.MAX, 1 << 1, True)
    y = network.add_elementwise(
        soft.get_output(0), most.get_output(0), trt.ElementWiseOperation.SUM
    ).get_output(0)
    y.name = "y"
    network.mark_output(y)
    shapes = {"x": ((1, COLUMNS), (32, COLUMNS), (256, COLUMNS))}
    return trt.compile(network, device="cuda", shapes=shapes)


def expected(x: Any) -> Any:
    powers = np.exp(2.0 * x.astype(np.float64))
    return powers / powers.sum(1, keepdims=True) + x.max(1, keepdims=True)


def check(found: Any, x: Any) -> None:
    np.testing.assert_allclose(found, expected(x), rtol=1e-5, atol=1e-6)


@contextlib.contextmanager
def stream() -> Iterator[int]:
    """One that does not wait for the legacy stream."""
    handle = ctypes.c_void_p()
    with cuda_driver.current():
        result = cuda_driver.driver().cuStreamCreate(ctypes.byref(handle), 1)
        cuda_driver.check(result, "cuStreamCreate")
        try:
            yield int(handle.value or 0)
        finally:
            result = cuda_driver.driver().cuStreamDestroy_v2(handle)
            cuda_driver.check(result, "cuStreamDestroy")


def wait(handle: int) -> None:
    result = cuda_driver.driver().cuStreamSynchronize(ctypes.c_void_p(handle))
    cuda_driver.check(result, "cuStreamSynchronize")


class Lane:
    """A context with a stream and memory of its own."""

    def __init__(self, model: trt.Model, rows: int, at: int, handle: int) -> None:
        self.rows, self.stream = rows, handle
        size = 4 * rows * COLUMNS
        self.x, self.y = at, at + size
        self.context = model.create_execution_context()
        self.context.set_input_shape("x", (rows, COLUMNS))
        self.context.set_tensor_address("x", self.x)
        self.context.set_tensor_address("y", self.y)

    @staticmethod
    def nbytes(rows: int) -> int:
        return 2 * 4 * rows * COLUMNS

    def give(self, seed: int) -> None:
        self.value = random(self.rows, COLUMNS, seed=seed)
        cuda_driver.write(self.x, self.value)

    def check(self) -> None:
        wait(self.stream)
        check(cuda_driver.read(self.y, (self.rows, COLUMNS)), self.value)


@contextlib.contextmanager
def lanes(model: trt.Model) -> Iterator[list[Lane]]:
    with contextlib.ExitStack() as stack:
        found = []
        for index in range(CONTEXTS):
            rows = 7 + 40 * index
            at = stack.enter_context(cuda_driver.memory(Lane.nbytes(rows)))
            found.append(Lane(model, rows, at, stack.enter_context(stream())))
        yield found


@pytest.mark.parametrize("graphs", [False, True])
def test_several_streams(model: trt.Model, graphs: bool) -> None:
    """All are enqueued before any is waited for."""
    with lanes(model) as all_:
        for lane in all_:
            lane.context.graphs = graphs
        for round_ in range(5):
            for index, lane in enumerate(all_):
                lane.give(10 * round_ + index)
            for _again in range(3):
                for lane in all_:
                    assert lane.context.execute_async_v3(lane.stream)
            for lane in all_:
                lane.check()
        for lane in all_:
            assert (lane.context.graph_info.replays > 0) is graphs


@pytest.mark.parametrize("graphs", [False, True])
def test_several_threads(model: trt.Model, graphs: bool) -> None:
    failures: list[BaseException] = []

    def work(lane: Lane, number: int) -> None:
        try:
            lane.context.graphs = graphs
            with cuda_driver.current():
                for round_ in range(12):
                    lane.give(100 * number + round_)
                    assert lane.context.execute_async_v3(lane.stream)
                    lane.check()
        except BaseException as error:
            failures.append(error)

    with lanes(model) as all_:
        threads = [
            threading.Thread(target=work, args=(lane, number))
            for number, lane in enumerate(all_)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures


def test_shapes_change_from_run_to_run(model: trt.Model) -> None:
    """Between runs that nobody waits for."""
    sizes = [1, 256, 33, 256, 1, 100]
    with contextlib.ExitStack() as stack:
        handle = stack.enter_context(stream())
        context = model.create_execution_context()
        context.graphs = True
        kept = []
        for seed, rows in enumerate(sizes):
            at = stack.enter_context(cuda_driver.memory(Lane.nbytes(rows)))
            value = random(rows, COLUMNS, seed=seed)
            cuda_driver.write(at, value)
            kept.append((at, value))
        for _again in range(3):
            for at, value in kept:
                context.set_input_shape("x", value.shape)
                context.set_tensor_address("x", at)
                context.set_tensor_address("y", at + value.nbytes)
                assert context.execute_async_v3(handle)
            wait(handle)
            for at, value in kept:
                found = cuda_driver.read(at + value.nbytes, value.shape)
                check(found, value)


@pytest.mark.parametrize("graphs", [False, True])
def test_a_stream_may_go_before_the_context(model: trt.Model, graphs: bool) -> None:
    with contextlib.ExitStack() as stack:
        at = stack.enter_context(cuda_driver.memory(Lane.nbytes(9)))
        lane = Lane(model, 9, at, 0)
        lane.context.graphs = graphs
        for seed in range(4):
            with stream() as lane.stream:
                lane.give(seed)
                for _index in range(3):
                    assert lane.context.execute_async_v3(lane.stream)
                lane.check()
            lane.context.get_max_output_size("y")
        lane.context.set_optimization_profile_async(0)
        del lane


# ---- Output allocators ----


class Pool(trt.IOutputAllocator):
    """Gives memory of the GPU; keeps what it was asked."""

    def __init__(self, stack: contextlib.ExitStack, gives: bool = True) -> None:
        super().__init__()
        self.stack, self.gives = stack, gives
        self.asked: list[tuple[str, int, int]] = []
        self.address, self.size = 0, 0
        self.shape: tuple[str, tuple[int, ...]] | None = None

    def reallocate_output(
        self, tensor_name: str, memory: int, size: int, alignment: int
    ) -> int:
        self.asked.append((tensor_name, size, alignment))
        if not self.gives:
            return 0
        if size > self.size:
            self.address = self.stack.enter_context(cuda_driver.memory(size))
            self.size = size
        assert self.address % alignment == 0
        return self.address

    def notify_shape(self, tensor_name: str, shape: trt.Dims) -> None:
        self.shape = (tensor_name, tuple(shape))


def test_output_allocator(model: trt.Model) -> None:
    with contextlib.ExitStack() as stack:
        x = stack.enter_context(cuda_driver.memory(4 * 256 * COLUMNS))
        pool = Pool(stack)
        context = model.create_execution_context()
        context.set_output_allocator("y", pool)
        context.set_tensor_address("x", x)
        for seed, rows in enumerate((3, 200, 3)):
            value = random(rows, COLUMNS, seed=seed)
            cuda_driver.write(x, value)
            context.set_input_shape("x", value.shape)
            assert context.execute_async_v3(0)
            assert pool.shape == ("y", value.shape)
            assert pool.asked[-1][1] >= value.nbytes
            check(cuda_driver.read(pool.address, value.shape), value)
        assert context.get_tensor_address("y") == pool.address


def test_an_output_allocator_without_memory(model: trt.Model) -> None:
    with contextlib.ExitStack() as stack:
        x = stack.enter_context(cuda_driver.memory(4 * COLUMNS))
        context = model.create_execution_context()
        context.set_input_shape("x", (1, COLUMNS))
        context.set_tensor_address("x", x)
        context.set_output_allocator("y", Pool(stack, gives=False))
        with pytest.raises(trt.Error, match="'y'"):
            context.execute_async_v3(0)
        pool = Pool(stack)
        context.set_output_allocator("y", pool)
        value = random(1, COLUMNS)
        cuda_driver.write(x, value)
        assert context.execute_async_v3(0)
        check(cuda_driver.read(pool.address, (1, COLUMNS)), value)


POSITIVE = """
extern "C" __global__ void positive(const float* x, int n, float* kept, int* count) {
  int found = 0;
  for (int i = 0; i < n; ++i)
    if (x[i] > 0) kept[found++] = x[i];
  *count = found;
}
"""


def positive() -> str:
    """The elements of x[n] above 0, and how many."""
    plugin_id = new_id("positive")
    kernel = cuda_driver.Function(POSITIVE, "positive")

    @trtp.register(plugin_id)
    def describe(x: trtp.TensorDesc) -> tuple[trtp.TensorDesc, trtp.TensorDesc]:
        count = x.shape_expr.numel()
        size = trtp.size_tensor(count // 2, count)
        return trtp.from_shape_expr((size.expr(),), x.dtype), size

    @trtp.impl(plugin_id, device="cuda")
    def run(x, outputs, stream):
        kernel(
            1, 1, stream, ctypes.c_void_p(x.data_ptr), ctypes.c_int(x.numel()),
            *[ctypes.c_void_p(output.data_ptr) for output in outputs],
        )  # fmt: skip

    return plugin_id


def test_sizes_that_only_a_run_tells() -> None:
    """The allocator is asked for the bound and told the shape."""
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (48,))
    kept = network.add_plugin(call(positive())(x)).get_output(0)
    kept = network.add_unary(kept, trt.UnaryOperation.NEG).get_output(0)
    kept.name = "kept"
    network.mark_output(kept)
    model = trt.compile(network, device="cuda")
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(cuda_driver.memory(4 * 48))
        pool = Pool(stack)
        context = model.create_execution_context()
        context.set_output_allocator("kept", pool)
        context.set_tensor_address("x", source)
        for seed in range(4):
            value = random(48, seed=seed) * np.float32(seed != 3)
            cuda_driver.write(source, value)
            assert context.execute_async_v3(0)
            wait(0)
            expected_ = -value[value > 0]
            assert pool.shape == ("kept", expected_.shape)
            if expected_.size:
                found = cuda_driver.read(pool.address, expected_.shape)
                np.testing.assert_array_equal(found, expected_)


# ---- Contexts of CUDA that threads have ----


class Library:
    """Asks once for each thread whether a context is current and then calls the driver
    without asking, as CuPy does after it called the CUDA runtime."""

    def __init__(self) -> None:
        self.thread = threading.local()

    def allocate_and_free(self) -> None:
        driver, memory = cuda_driver.driver(), ctypes.c_uint64()
        if not getattr(self.thread, "has_context", False):
            now = ctypes.c_void_p()
            cuda_driver.check(driver.cuCtxGetCurrent(ctypes.byref(now)), "get")
            if not now.value:  # kept to the end by held_context
                driver.cuDevicePrimaryCtxRetain(ctypes.byref(now), 0)
                cuda_driver.check(driver.cuCtxSetCurrent(now), "set")
                driver.cuDevicePrimaryCtxRelease_v2(0)
            self.thread.has_context = True
        result = driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(64))
        cuda_driver.check(result, "cuMemAlloc")
        cuda_driver.check(driver.cuMemFree_v2(memory), "cuMemFree")


def in_a_thread(body: Callable[[], None]) -> None:
    """With no context current at first."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            body()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


def test_a_library_that_remembers_a_context() -> None:
    """It saw one in an operator, of a build or of an execution, and is called after."""
    kernel = cuda_driver.Function(SOURCE, "twice")
    plugin_id = new_id("remembers")
    libraries = [Library()]

    @trtp.register(plugin_id)
    def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id, device="cuda")
    def run(x, outputs, stream):
        libraries[-1].allocate_and_free()
        kernel(
            1, 64, stream, ctypes.c_void_p(x.data_ptr), ctypes.c_int(x.numel()),
            ctypes.c_void_p(outputs[0].data_ptr),
        )  # fmt: skip

    models: list[trt.Model] = []

    def build() -> None:
        network = trt.Builder().create_network()
        x = network.add_input("x", trt.float32, (48,))
        network.mark_output(network.add_plugin(call(plugin_id)(x)).get_output(0))
        models.append(trt.compile(network, device="cuda"))
        libraries[-1].allocate_and_free()

    def execute() -> None:
        libraries.append(Library())
        x = random(48)
        np.testing.assert_array_equal(models[0](x), 2 * x)
        libraries[-1].allocate_and_free()

    def release() -> None:
        libraries.append(Library())
        models[0](random(48))
        models.clear()
        gc.collect()
        libraries[-1].allocate_and_free()

    for body in (build, execute, release):
        in_a_thread(body)


# ---- Contexts of CUDA that programs make for themselves ----


@contextlib.contextmanager
def own_cuda_context() -> Iterator[None]:
    """One that is not the primary one, current meanwhile."""
    driver = cuda_driver.driver()
    own, before = ctypes.c_void_p(), ctypes.c_void_p()
    cuda_driver.check(driver.cuCtxGetCurrent(ctypes.byref(before)), "cuCtxGetCurrent")
    cuda_driver.check(driver.cuCtxCreate_v2(ctypes.byref(own), 0, 0), "cuCtxCreate")
    try:
        yield
    finally:
        gc.collect()  # what was made in it goes before it
        cuda_driver.check(driver.cuCtxSetCurrent(before), "cuCtxSetCurrent")
        cuda_driver.check(driver.cuCtxDestroy_v2(own), "cuCtxDestroy")


class OfFloats(trt.IPluginV2DynamicExt):
    """From one tensor of FLOAT to another of its shape; classes say what becomes of it."""

    def __init__(self) -> None:
        trt.IPluginV2DynamicExt.__init__(self)
        self.num_outputs = 1
        self.plugin_type, self.plugin_version = type(self).__name__, "1"
        self.plugin_namespace = ""

    def get_output_datatype(self, index: int, input_types: Any) -> Any:
        return input_types[0]

    def get_output_dimensions(self, index: int, inputs: Any, builder: Any) -> Any:
        return trt.DimsExprs(inputs[0])

    def supports_format_combination(self, pos: int, in_out: Any, count: int) -> bool:
        desc = in_out[pos]
        return desc.type == trt.float32 and desc.format == trt.TensorFormat.LINEAR

    def configure_plugin(self, inp: Any, out: Any) -> None:
        self.n = int(np.prod(tuple(inp[0].desc.dims)))

    def serialize(self) -> bytes:
        return b""

    def clone(self) -> Any:
        made = type(self)()
        made.__dict__.update(self.__dict__)
        return made


class Creator(trt.IPluginCreator):
    """Makes plugins of `kind`."""

    def __init__(self, kind: type[OfFloats]) -> None:
        trt.IPluginCreator.__init__(self)
        self.kind = kind
        self.name, self.plugin_version = kind.__name__, "1"
        self.plugin_namespace = ""
        self.field_names = trt.PluginFieldCollection([])

    def create_plugin(self, name: str, fields: Any) -> OfFloats:
        return self.kind()

    def deserialize_plugin(self, name: str, data: bytes) -> OfFloats:
        return self.kind()


OWN = """
extern "C" __global__ void own(const float* x, int n, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + 1;
}
"""


class InTheirContext(OfFloats):
    """x + 1; the kernel is of the context that is current in initialize, as in scripts
    for cuda-python that make their own."""

    kernel: Any = None
    module: Any = None

    def initialize(self) -> None:
        driver = cuda_driver.driver()
        self.module, self.kernel = ctypes.c_void_p(), ctypes.c_void_p()
        code = cuda_driver.compile_code(OWN, "CUBIN")
        result = driver.cuModuleLoadData(ctypes.byref(self.module), code)
        cuda_driver.check(result, "cuModuleLoadData")
        result = driver.cuModuleGetFunction(
            ctypes.byref(self.kernel), self.module, b"own"
        )
        cuda_driver.check(result, "cuModuleGetFunction")

    def terminate(self) -> None:
        result = cuda_driver.driver().cuModuleUnload(self.module)
        cuda_driver.check(result, "cuModuleUnload")

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any,
        workspace: int, stream: int,
    ) -> None:  # fmt: skip
        values = (
            ctypes.c_uint64(inputs[0]), ctypes.c_int(self.n), ctypes.c_uint64(outputs[0]),
        )  # fmt: skip
        pointers = (ctypes.c_void_p * 3)(
            *[ctypes.cast(ctypes.byref(value), ctypes.c_void_p) for value in values]
        )
        result = cuda_driver.driver().cuLaunchKernel(
            self.kernel, -(-self.n // 64), 1, 1, 64, 1, 1, 0, ctypes.c_void_p(stream),
            pointers, None,
        )  # fmt: skip
        cuda_driver.check(result, "cuLaunchKernel")


def test_in_a_context_of_the_programs_own() -> None:
    """Memory, streams and kernels of that context, and nothing of the primary one."""
    trt.get_plugin_registry().register_creator(Creator(InTheirContext), "")
    x = random(4, 16)
    with own_cuda_context():
        network = trt.Builder().create_network()
        tensor = network.add_input("x", trt.float32, (4, 16))
        doubled = network.add_elementwise(
            tensor, tensor, trt.ElementWiseOperation.SUM
        ).get_output(0)
        layer = network.add_plugin_v2([doubled], InTheirContext())
        y = layer.get_output(0)
        y.name = "y"
        network.mark_output(y)
        model = trt.compile(network, device="cuda")
        np.testing.assert_allclose(model(x), 2 * x + 1, rtol=1e-6)
        # A stream of the context would be refused by kernels of another one.
        driver, found = cuda_driver.driver(), np.empty_like(x)
        handle, memory = ctypes.c_void_p(), ctypes.c_uint64()
        cuda_driver.check(driver.cuStreamCreate(ctypes.byref(handle), 1), "stream")
        result = driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(2 * x.nbytes))
        cuda_driver.check(result, "cuMemAlloc")
        cuda_driver.write(memory.value, x)
        context = model.engine.create_execution_context()
        context.set_tensor_address("x", memory.value)
        context.set_tensor_address("y", memory.value + x.nbytes)
        for _ in range(3):
            context.execute_async_v3(handle.value)
        wait(handle.value or 0)
        found = cuda_driver.read(memory.value + x.nbytes, x.shape)
        cuda_driver.check(driver.cuMemFree_v2(memory), "cuMemFree")
        cuda_driver.check(driver.cuStreamDestroy_v2(handle), "cuStreamDestroy")
        np.testing.assert_allclose(found, 2 * x + 1, rtol=1e-6)
        del model, context, network, tensor, doubled, layer, y


class Tenant(OfFloats):
    """x; what its last one does on the way out is destroy the context, as in scripts
    that keep theirs as a resource of the registry."""

    alive = 0
    leave: Any = None

    def initialize(self) -> None:
        Tenant.alive += 1

    def terminate(self) -> None:
        Tenant.alive -= 1
        if Tenant.alive == 0 and Tenant.leave:
            Tenant.leave()

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any,
        workspace: int, stream: int,
    ) -> None:  # fmt: skip
        result = cuda_driver.driver().cuMemcpyDtoDAsync_v2(
            ctypes.c_uint64(outputs[0]), ctypes.c_uint64(inputs[0]),
            ctypes.c_size_t(4 * self.n), ctypes.c_void_p(stream),
        )  # fmt: skip
        cuda_driver.check(result, "cuMemcpyDtoDAsync")


def tenant_model() -> trt.Model:
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (4, 16))
    doubled = network.add_elementwise(x, x, trt.ElementWiseOperation.SUM).get_output(0)
    y = network.add_plugin_v2([doubled], Tenant()).get_output(0)
    y = network.add_unary(y, trt.UnaryOperation.NEG).get_output(0)
    y.name = "y"
    network.mark_output(y)
    return trt.compile(network, device="cuda")


@pytest.mark.parametrize("by_plugin", [False, True])
def test_a_cuda_context_that_goes_first(by_plugin: bool) -> None:
    """Its maker destroys it while models and contexts of execution are in it: those say
    so when they are used, and go in peace."""
    registry = trt.get_plugin_registry()
    creator = Creator(Tenant)
    registry.register_creator(creator, "")
    driver, x = cuda_driver.driver(), random(4, 16)
    own, before = ctypes.c_void_p(), ctypes.c_void_p()
    cuda_driver.check(driver.cuCtxGetCurrent(ctypes.byref(before)), "cuCtxGetCurrent")
    cuda_driver.check(driver.cuCtxCreate_v2(ctypes.byref(own), 0, 0), "cuCtxCreate")

    def leave() -> None:
        cuda_driver.check(driver.cuCtxDestroy_v2(own), "cuCtxDestroy")

    try:
        model = tenant_model()
        context = model.engine.create_execution_context()
        np.testing.assert_allclose(model(x), -2 * x, rtol=1e-6)
        if by_plugin:
            Tenant.leave = leave
        else:
            leave()
            with pytest.raises(trt.Error, match="is destroyed"):
                model(x)
        del model, context
        gc.collect()
        assert Tenant.alive == 0
    finally:
        Tenant.leave = None
        registry.deregister_creator(creator)
        cuda_driver.check(driver.cuCtxSetCurrent(before), "cuCtxSetCurrent")
