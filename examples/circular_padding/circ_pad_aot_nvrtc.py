"""Circular padding of the last two axes by a CUDA C++ kernel that is compiled when the
model is: the plan keeps it, and needs no Python to run. NVRTC is called through ctypes;
any other way to PTX or a cubin does as well (nvcc, cuda-python, a file)."""

import ctypes
import os
from pathlib import Path

import rabbet.plugin as trtp

SOURCE = Path(__file__).with_name("circ_pad.cu").read_bytes()
THREADS = 256  # of a block
TACTICS = {1: 4, 2: 2}  # pieces of 16 bytes in flight in each thread


def nvrtc() -> ctypes.CDLL:
    names = [os.environ.get("RABBET_NVRTC"), "libnvrtc.so.13", "libnvrtc.so.12"]
    for name in filter(None, names):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise ImportError("NVRTC is not on the loader's path; name its file in RABBET_NVRTC")


library = nvrtc()


def call(name: str, *args) -> None:
    status = getattr(library, name)(*args)
    if status != 0:
        raise RuntimeError(f"{name}: status {status}")


def compile_source(*options: bytes) -> bytes:
    """PTX, from which the driver makes code for the GPU at hand."""
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    call("nvrtcCreateProgram", ctypes.byref(program), SOURCE, b"circ_pad.cu", 0, None, None)
    array = (ctypes.c_char_p * len(options))(*options)
    call("nvrtcCompileProgram", program, len(options), array)
    call("nvrtcGetPTXSize", program, ctypes.byref(size))
    code = ctypes.create_string_buffer(size.value)
    call("nvrtcGetPTX", program, code)
    call("nvrtcDestroyProgram", ctypes.byref(program))
    return code.raw


@trtp.register("example::circ_pad_plugin")
def circ_pad_desc(x: trtp.TensorDesc, pad: int) -> trtp.TensorDesc:
    y = x.like()
    y.shape_expr[-2] += 2 * pad
    y.shape_expr[-1] += 2 * pad
    return y


@trtp.autotune("example::circ_pad_plugin")
def circ_pad_autotune(x, outputs) -> list[trtp.AutoTuneCombination]:
    return [trtp.AutoTuneCombination("FP32|FP16, FP32|FP16", tactics=list(TACTICS))]


@trtp.aot_impl("example::circ_pad_plugin")
def circ_pad_aot(
    x: trtp.TensorDesc, pad: int, outputs: tuple[trtp.TensorDesc], tactic: int
) -> tuple[str, bytes, trtp.KernelLaunchParams, trtp.SymExprs]:
    code = compile_source(
        b"--gpu-architecture=compute_80",
        f"-DITEM={x.dtype.itemsize}".encode(),
        f"-DUNROLL={TACTICS[tactic]}".encode(),
    )
    wide, tall = outputs[0].shape_expr[-1], outputs[0].shape_expr[-2]
    planes = outputs[0].shape_expr.numel() // (tall * wide)
    piece = 16 // x.dtype.itemsize
    # (The first piece begins before a plane that is not aligned.)
    blocks = trtp.cdiv(tall * wide + piece, piece * THREADS * TACTICS[tactic])
    launch = trtp.KernelLaunchParams(grid_x=planes * blocks, block_x=THREADS)
    height, width = x.shape_expr[-2], x.shape_expr[-1]
    integers = [trtp.SymInt32(number) for number in (height, width, pad, blocks)]
    return "circ_pad", code, launch, trtp.SymIntExprs.from_tuple(integers)
