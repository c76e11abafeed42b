"""Operators for chains on a GPU, each y = x + 1 but `noop`, which does nothing."""

import ctypes
import functools

import rabbet.plugin as trtp

from tests.gpu import cuda_driver

THREADS = 256
SOURCE = """
extern "C" __global__ void add_one(const float* x, int count, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) y[i] = x[i] + 1;
}
"""


@functools.cache
def code() -> bytes:
    """The kernel for this GPU."""
    return cuda_driver.compile_code(SOURCE, "CUBIN")


class Launcher:
    """The kernel as ctypes launches it, its parameters' memory made once."""

    def __init__(self) -> None:
        driver = cuda_driver.driver()
        module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        result = driver.cuModuleLoadData(ctypes.byref(module), code())
        cuda_driver.check(result, "cuModuleLoadData")
        result = driver.cuModuleGetFunction(
            ctypes.byref(self.function), module, b"add_one"
        )
        cuda_driver.check(result, "cuModuleGetFunction")
        self.values = ctypes.c_uint64(), ctypes.c_int(THREADS), ctypes.c_uint64()
        addresses = [ctypes.addressof(value) for value in self.values]
        self.parameters = (ctypes.c_void_p * 3)(*addresses)
        # A handle of its own: other users of the library set no types.
        self.launch = driver["cuLaunchKernel"]
        self.launch.argtypes = [ctypes.c_void_p, *[ctypes.c_uint] * 7,
                                *[ctypes.c_void_p] * 3]  # fmt: skip

    def __call__(self, x: int, y: int, stream: int) -> None:
        self.values[0].value, self.values[2].value = x, y
        result = self.launch(
            self.function, 1, 1, 1, THREADS, 1, 1, 0, stream, self.parameters, None
        )
        if result:
            raise RuntimeError(f"cuLaunchKernel: error {result}")


@functools.cache
def launcher() -> Launcher:
    """For the context that is current at the first call."""
    return Launcher()


@trtp.register("bench_gpu::noop")
def noop_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()


@trtp.impl("bench_gpu::noop", device="cuda", capturable=True)
def noop(x, outputs, stream):
    pass


@trtp.register("bench_gpu::launch")
def launch_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()


@trtp.impl("bench_gpu::launch", device="cuda", capturable=True)
def launch(x, outputs, stream):
    launcher()(x.data_ptr, outputs[0].data_ptr, stream)


@trtp.register("bench_gpu::ready")
def ready_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()


@trtp.aot_impl("bench_gpu::ready")
def ready(x, outputs):
    count = x.shape_expr.numel()
    launch = trtp.KernelLaunchParams(grid_x=trtp.cdiv(count, THREADS), block_x=THREADS)
    return trtp.Kernel("add_one", code(), launch, [x, count, outputs[0]])
