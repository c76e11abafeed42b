"""Circular padding of the last two axes by a CUDA C++ kernel, with NVIDIA's own Python
bindings (cuda-python): NVRTC compiles it, the driver launches it."""

import ctypes
import functools
from pathlib import Path

import rabbet.plugin as trtp
from cuda.bindings import driver, nvrtc

SOURCE = Path(__file__).with_name("circ_pad.cu").read_bytes()
THREADS = 256  # of a block
TACTICS = {1: 4, 2: 2}  # pieces of 16 bytes in flight in each thread
TYPES = (ctypes.c_void_p, *[ctypes.c_int] * 4, ctypes.c_void_p)


def check(answer):
    """What a function gave besides its status."""
    error, *values = answer
    if int(error) != 0:
        raise RuntimeError(str(error))
    return values[0] if len(values) == 1 else values


def compile_source(options: list[bytes]) -> bytes:
    """A cubin for the current GPU."""
    device = check(driver.cuCtxGetDevice())
    attribute = driver.CUdevice_attribute
    major, minor = (
        check(driver.cuDeviceGetAttribute(kind, device))
        for kind in (
            attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        )
    )
    options = [f"--gpu-architecture=sm_{major}{minor}".encode(), *options]
    program = check(nvrtc.nvrtcCreateProgram(SOURCE, b"circ_pad.cu", 0, None, None))
    (error,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if int(error) != 0:
        log = b" " * check(nvrtc.nvrtcGetProgramLogSize(program))
        check(nvrtc.nvrtcGetProgramLog(program, log))
        raise RuntimeError(log.decode())
    code = b" " * check(nvrtc.nvrtcGetCUBINSize(program))
    check(nvrtc.nvrtcGetCUBIN(program, code))
    check(nvrtc.nvrtcDestroyProgram(program))
    return code


@functools.cache
def kernel(item: int, unroll: int):
    """The module stays loaded. Rabbet's context is current while impl runs."""
    code = compile_source([f"-DITEM={item}".encode(), f"-DUNROLL={unroll}".encode()])
    module = check(driver.cuModuleLoadData(code))
    return check(driver.cuModuleGetFunction(module, b"circ_pad"))


@trtp.register("example::circ_pad_plugin")
def circ_pad_desc(x: trtp.TensorDesc, pad: int) -> trtp.TensorDesc:
    y = x.like()
    y.shape_expr[-2] += 2 * pad
    y.shape_expr[-1] += 2 * pad
    return y


@trtp.autotune("example::circ_pad_plugin")
def circ_pad_autotune(x, outputs) -> list[trtp.AutoTuneCombination]:
    return [trtp.AutoTuneCombination("FP32|FP16, FP32|FP16", tactics=list(TACTICS))]


@trtp.impl("example::circ_pad_plugin", device="cuda", capturable=True)
def circ_pad_impl(x, pad: int, outputs, stream, tactic):
    y = outputs[0]
    (height, width), (tall, wide) = x.shape[-2:], y.shape[-2:]
    piece = 16 // x.dtype.itemsize
    # (The first piece begins before a plane that is not aligned.)
    blocks = -(-(tall * wide + piece) // (piece * THREADS * TACTICS[tactic]))
    grid = y.numel() // (tall * wide) * blocks
    values = (x.data_ptr, height, width, pad, blocks, y.data_ptr)
    function = kernel(x.dtype.itemsize, TACTICS[tactic])
    check(
        driver.cuLaunchKernel(
            function, grid, 1, 1, THREADS, 1, 1, 0, stream, (values, TYPES), 0
        )
    )
