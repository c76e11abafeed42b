"""Kernels made ahead of time that ask for more than a grid: clusters, all blocks at
once, tensor maps, much shared memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
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
hardware = pytest.mark.skipif(
    cuda_driver.is_stand_in(), reason="the stand-in runs blocks one after the other"
)

RANGE = {"x": ((1, 8), (4, 8), (300, 8))}


def capability() -> int:
    return int(cuda_driver.architecture().removeprefix("sm_"))


def hopper() -> None:
    """Skips on GPUs that know neither clusters nor tensor maps."""
    if capability() < 90:
        pytest.skip(f"{cuda_driver.architecture()} has no clusters and tensor maps")


def one_kernel(make: Any, name: str) -> str:
    """An operator whose output is like its input; make(x, y) gives its kernels."""
    plugin_id = new_id(name)

    @trtp.register(plugin_id)
    def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.aot_impl(plugin_id)
    def kernels(x, outputs):
        return make(x, outputs[0])

    return plugin_id


def compiled(plugin_id: str, **options: Any) -> trt.Model:
    """A model of one such layer, x [-1, 8]."""
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (-1, 8))
    y = network.add_plugin(call(plugin_id)(x)).get_output(0)
    y.name = "y"
    network.mark_output(y)
    return trt.compile(network, device="cuda", shapes=RANGE, **options)


def check(model: trt.Model, expected: Any, rows: tuple[int, ...] = (1, 7, 300)) -> None:
    """Twice each, with the same arrays: the second run is from a graph."""
    for count in rows:
        x, y = np.empty((count, 8), np.float32), np.empty((count, 8), np.float32)
        for seed in range(3):
            x[...] = random(count, 8, seed=seed)
            y.fill(np.nan)
            model(x, out=y)
            np.testing.assert_allclose(y, expected(x), rtol=1e-5, atol=1e-6)
    assert model.graph_info.replays > 0
    assert model.graph_info.other_steps == 0


# ---- Clusters ----

NEIGHBOUR = """
// Each block of a pair writes what the other has read: y[b] = x[b ^ 1].
extern "C" __global__ void neighbour(const float* x, int count, float* y) {
  __shared__ float mine[32];
  unsigned rank, size, theirs, address;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  int i = blockIdx.x * 32 + threadIdx.x;
  mine[threadIdx.x] = i < count ? x[i] : -1.0f;
  asm volatile("barrier.cluster.arrive.aligned;\\nbarrier.cluster.wait.aligned;"
               ::: "memory");
  address = (unsigned)__cvta_generic_to_shared(&mine[threadIdx.x]);
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(theirs) : "r"(address), "r"(rank ^ 1));
  float value;
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(theirs)
               : "memory");
  if (i < count) y[i] = size == 2 ? value : -2.0f;
  asm volatile("barrier.cluster.arrive.aligned;\\nbarrier.cluster.wait.aligned;"
               ::: "memory");
}
"""


@hardware
@pytest.mark.parametrize("kind", ["PTX", "CUBIN"])
def test_clusters(kind: str, tmp_path: Path) -> None:
    hopper()
    code = cuda_driver.compile_code(NEIGHBOUR, kind)

    def make(x: Any, y: Any) -> Any:
        count = x.shape_expr.numel()
        launch = trtp.KernelLaunchParams(grid_x=2 * trtp.cdiv(count, 64), block_x=32)
        return trtp.Kernel("neighbour", code, launch, [x, count, y], cluster=(2, 1, 1))

    def expected(x: Any) -> Any:
        padded = np.full(-(-x.size // 64) * 64, -1, np.float32)
        padded[: x.size] = x.ravel()
        swapped = padded.reshape(-1, 2, 32)[:, ::-1].ravel()
        return swapped[: x.size].reshape(x.shape)

    model = compiled(one_kernel(make, "neighbour"), save=tmp_path / "cluster.plan")
    check(model, expected)
    check(trt.load(tmp_path / "cluster.plan"), expected)


# ---- All blocks at once ----

SHARE = """
extern "C" __global__ void clear(float* sum, unsigned* arrived) {
  *sum = 0;
  *arrived = 0;
}
// y = x / sum(x^2): no block can go on before all have added, so that all must run.
extern "C" __global__ void share(const float* x, int count, float* sum,
                                 unsigned* arrived, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float value = i < count ? x[i] : 0;
  atomicAdd(sum, value * value);
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    atomicAdd(arrived, 1u);
    while (atomicAdd(arrived, 0u) < gridDim.x) { }
  }
  __syncthreads();
  __threadfence();
  if (i < count) y[i] = value / atomicAdd(sum, 0.0f);
}
"""


@hardware
def test_all_blocks_at_once() -> None:
    code = cuda_driver.compile_code(SHARE)

    def make(x: Any, y: Any) -> Any:
        count = x.shape_expr.numel()
        total, arrived = trtp.Workspace(0), trtp.Workspace(256)
        one = trtp.KernelLaunchParams(grid_x=1, block_x=1)
        wide = trtp.KernelLaunchParams(grid_x=trtp.cdiv(count, 32), block_x=32)
        share = trtp.Kernel(
            "share", code, wide, [x, count, total, arrived, y], cooperative=True
        )
        clear = trtp.Kernel("clear", code, one, [total, arrived])
        return trtp.Kernels([clear, share], workspace=512)

    def expected(x: Any) -> Any:
        return x / (x.astype(np.float64) ** 2).sum()

    check(compiled(one_kernel(make, "share")), expected)


def test_more_blocks_than_run_at_once() -> None:
    """The driver refuses; the error names the layer's kernel."""
    code = cuda_driver.compile_code(SHARE)

    def make(x: Any, y: Any) -> Any:
        launch = trtp.KernelLaunchParams(grid_x=1 << 20, block_x=1024)
        args = [x, 8, trtp.Workspace(0), trtp.Workspace(256), y]
        kernel = trtp.Kernel("share", code, launch, args, cooperative=True)
        return trtp.Kernels([kernel], workspace=512)

    with pytest.raises(trt.Error, match="kernel 'share', grid 1048576 x 1 x 1, block"):
        compiled(one_kernel(make, "flood"))(random(1, 8))


# ---- Tensor maps ----

TILES = """
struct __align__(64) Map { unsigned long long words[16]; };

__device__ unsigned shared(const void* p) {
  return (unsigned)__cvta_generic_to_shared(p);
}

// Tiles of 16 rows and 8 columns: loaded by the map of x, doubled, stored by y's.
// Elements past the last row are zeros at the load and dropped at the store.
extern "C" __global__ void tiles(const __grid_constant__ Map from,
                                 const __grid_constant__ Map to) {
  __shared__ alignas(128) float tile[16 * 8];
  __shared__ alignas(8) unsigned long long barrier;
  int row = blockIdx.x * 16, column = 0;
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(shared(&barrier)));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :: "r"(shared(&barrier)), "r"(16 * 8 * 4) : "memory");
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3}], [%4];"
        :: "r"(shared(tile)), "l"(&from), "r"(column), "r"(row),
           "r"(shared(&barrier)) : "memory");
  }
  __syncthreads();
  unsigned done = 0;
  while (!done)
    asm volatile("{ .reg .pred p;\\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\\n"
                 "selp.u32 %0, 1, 0, p; }"
                 : "=r"(done) : "r"(shared(&barrier)) : "memory");
  tile[threadIdx.x] *= 2;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
        :: "l"(&to), "r"(column), "r"(row), "r"(shared(tile)) : "memory");
    asm volatile("cp.async.bulk.commit_group;\\ncp.async.bulk.wait_group 0;"
                 ::: "memory");
  }
}
"""


def tiles_kernel(kind: str = "PTX") -> Any:
    code = cuda_driver.compile_code(TILES, kind)

    def make(x: Any, y: Any) -> Any:
        rows = x.shape_expr[0]
        launch = trtp.KernelLaunchParams(grid_x=trtp.cdiv(rows, 16), block_x=128)
        maps = [trtp.TensorMap(tensor, (8, 16)) for tensor in (x, y)]
        return trtp.Kernel("tiles", code, launch, maps)

    return make


@hardware
@pytest.mark.parametrize("kind", ["PTX", "CUBIN"])
def test_tensor_maps(kind: str, tmp_path: Path) -> None:
    hopper()
    path = tmp_path / "tiles.plan"
    check(compiled(one_kernel(tiles_kernel(kind), "tiles"), save=path), lambda x: 2 * x)
    check(trt.load(path), lambda x: 2 * x)


@hardware
def test_tensor_maps_follow_addresses() -> None:
    hopper()
    model = compiled(one_kernel(tiles_kernel(), "tiles"))
    with cuda_driver.memory(4 * 4 * 8 * 20) as base:
        context = model.create_execution_context()
        context.set_input_shape("x", (20, 8))
        for graphs in (False, True):
            context.graphs = graphs
            for round_ in range(6):
                x = base + 640 * (round_ % 2)
                y = base + 640 * (2 + (round_ // 2) % 2)
                value = random(20, 8, seed=round_)
                cuda_driver.write(x, value)
                context.set_tensor_address("x", x)
                context.set_tensor_address("y", y)
                assert context.execute_async_v3(0)
                np.testing.assert_array_equal(cuda_driver.read(y, (20, 8)), 2 * value)


@hardware
def test_a_view_of_a_tensor() -> None:
    """Every second row of x, by the strides of the map."""
    hopper()
    plugin_id = new_id("rows")
    code = cuda_driver.compile_code(TILES)

    @trtp.register(plugin_id)
    def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return trtp.from_shape_expr((x.shape_expr[0] // 2, x.shape_expr[1]), x.dtype)

    @trtp.aot_impl(plugin_id)
    def kernels(x, outputs):
        rows = x.shape_expr[0] // 2
        launch = trtp.KernelLaunchParams(grid_x=trtp.cdiv(rows, 16), block_x=128)
        view = trtp.TensorMap(x, (8, 16), dims=(8, rows), strides=(2 * 8 * 4,))
        maps = [view, trtp.TensorMap(outputs[0], (8, 16))]
        return trtp.Kernel("tiles", code, launch, maps)

    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (70, 8))
    network.mark_output(network.add_plugin(call(plugin_id)(x)).get_output(0))
    model = trt.compile(network, device="cuda")
    value = random(70, 8)
    np.testing.assert_array_equal(model(value), 2 * value[::2])


@hardware
def test_a_map_that_the_driver_refuses() -> None:
    """A row of 7 floats is no multiple of 16 bytes."""
    hopper()
    plugin_id = one_kernel(tiles_kernel(), "odd")
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (4, 7))
    network.mark_output(network.add_plugin(call(plugin_id)(x)).get_output(0))
    with pytest.raises(trt.Error, match=r"cuTensorMapEncodeTiled|tensor map"):
        trt.compile(network, device="cuda")(random(4, 7))


# ---- What the driver is told, on the stand-in ----

stand_in = pytest.mark.skipif(
    not cuda_driver.is_stand_in(), reason="what a driver keeps cannot be read"
)

WORDS = """
struct Map { unsigned long long words[16]; };
extern "C" __global__ void words(Map map, long long* y) {
  if (threadIdx.x < 16) y[threadIdx.x] = map.words[threadIdx.x];
}
"""


@stand_in
def test_what_a_tensor_map_is_made_of() -> None:
    """The stand-in's maps are the numbers that they are made from."""
    plugin_id = new_id("words")
    code = cuda_driver.compile_code(WORDS)

    @trtp.register(plugin_id)
    def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return trtp.from_shape_expr((16,), trt.int64)

    @trtp.aot_impl(plugin_id)
    def kernels(x, outputs):
        launch = trtp.KernelLaunchParams(grid_x=1, block_x=32)
        return trtp.Kernel(
            "words", code, launch, [trtp.TensorMap(x, (4, 2, 1)), outputs[0]]
        )

    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float16, (-1, 6, 8))
    network.mark_output(network.add_plugin(call(plugin_id)(x)).get_output(0))
    shapes = {"x": ((1, 6, 8), (3, 6, 8), (9, 6, 8))}
    model = trt.compile(network, device="cuda", shapes=shapes)
    for rows in (2, 5):
        found = model(np.zeros((rows, 6, 8), np.float16))
        address, kind, *numbers = found.tolist()
        assert address % 16 == 0
        assert kind == 6 << 32 | 3  # FP16, of three dimensions
        assert numbers[:5] == [8, 6, rows, 0, 0]
        assert numbers[5:10] == [16, 96, 0, 0, 0]
        assert numbers[10:12] == [2 << 32 | 4, 1]


LAUNCH = """
from tests.gpu import cuda_driver
from tests.gpu.test_aot_kernels import compiled, one_kernel
import numpy as np
import rabbet.plugin as trtp

code = cuda_driver.compile_code(
    'extern "C" __global__ void twice(const float* x, int n, float* y) {'
    "  int i = blockIdx.x * blockDim.x + threadIdx.x;"
    "  if (i < n) y[i] = 2 * x[i]; }"
)

def make(x, y):
    count = x.shape_expr.numel()
    launch = trtp.KernelLaunchParams(grid_x=2 * trtp.cdiv(count, 64), block_x=32)
    return trtp.Kernel("twice", code, launch, [x, count, y], cluster=(2, 1, 1),
                       cooperative=True)

with cuda_driver.session():
    model = compiled(one_kernel(make, "twice"))
    x = np.ones((5, 8), np.float32)
    assert (model(x) == 2).all()
    del model
"""


@stand_in
def test_attributes_of_a_launch(tmp_path: Path) -> None:
    log = tmp_path / "calls.log"
    subprocess.run(
        [sys.executable, "-c", LAUNCH],
        check=True,
        env={**os.environ, "RABBET_STAND_IN_LOG": os.fspath(log)},
    )
    launches = [x for x in log.read_text().splitlines() if "cuLaunchKernelEx" in x]
    assert launches
    for line in launches:
        assert "twice" in line
        assert "cooperative 1, cluster 2 1 1" in line


# ---- Arguments that machine code does not take ----


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ("const float* x, int n, float* y, int m", "takes more than the 3 arguments"),
        ("const float* x, Wide n, float* y", "argument 1 has 8 bytes; the code takes 24"),
    ],
)
def test_machine_code_with_other_parameters(parameters: str, message: str) -> None:
    """Of PTX the package reads them; the driver would read what is not there."""
    code = cuda_driver.compile_code(
        "struct Wide { long long words[3]; };"
        f'extern "C" __global__ void unfit({parameters}) {{ }}',
        "CUBIN",
    )

    def make(x: Any, y: Any) -> Any:
        launch = trtp.KernelLaunchParams(grid_x=1, block_x=32)
        return trtp.Kernel("unfit", code, launch, [x, x.shape_expr.numel(), y])

    with pytest.raises(trt.Error, match=message):
        compiled(one_kernel(make, "unfit"))


# ---- Much shared memory ----

REVERSED = """
extern "C" __global__ void reversed(const float* x, int count, float* y) {
  extern __shared__ float room[];
  for (int i = threadIdx.x; i < count; i += blockDim.x) room[i + 20000] = x[i];
  __syncthreads();
  for (int i = threadIdx.x; i < count; i += blockDim.x)
    y[i] = room[20000 + count - 1 - i];
}
"""


@hardware
def test_much_shared_memory() -> None:
    code = cuda_driver.compile_code(REVERSED)

    def make(x: Any, y: Any) -> Any:
        count = x.shape_expr.numel()
        launch = trtp.KernelLaunchParams(
            grid_x=1, block_x=64, shared_mem=4 * (20000 + count)
        )
        return trtp.Kernel("reversed", code, launch, [x, count, y])

    check(compiled(one_kernel(make, "reversed")), lambda x: x[::-1, ::-1])
