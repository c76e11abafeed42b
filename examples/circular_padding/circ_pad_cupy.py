"""Circular padding of the last two axes by a CUDA C++ kernel that CuPy compiles."""

import functools
from pathlib import Path

import cupy
import numpy as np
import rabbet.plugin as trtp

SOURCE = Path(__file__).with_name("circ_pad.cu").read_text()
THREADS = 256  # of a block
TACTICS = {1: 4, 2: 2}  # pieces of 16 bytes in flight in each thread


@trtp.register("example::circ_pad_plugin")
def circ_pad_desc(x: trtp.TensorDesc, pad: int) -> trtp.TensorDesc:
    y = x.like()
    y.shape_expr[-2] += 2 * pad
    y.shape_expr[-1] += 2 * pad
    return y


@trtp.autotune("example::circ_pad_plugin")
def circ_pad_autotune(x, outputs) -> list[trtp.AutoTuneCombination]:
    return [trtp.AutoTuneCombination("FP32|FP16, FP32|FP16", tactics=list(TACTICS))]


@functools.cache
def kernel(item: int, unroll: int) -> cupy.RawKernel:
    return cupy.RawKernel(SOURCE, "circ_pad", (f"-DITEM={item}", f"-DUNROLL={unroll}"))


@trtp.impl("example::circ_pad_plugin", device="cuda", capturable=True)
def circ_pad_impl(x, pad: int, outputs, stream, tactic):
    src, dst = cupy.asarray(x), cupy.asarray(outputs[0])
    (height, width), (tall, wide) = src.shape[-2:], dst.shape[-2:]
    piece = 16 // src.itemsize
    # (The first piece begins before a plane that is not aligned.)
    blocks = -(-(tall * wide + piece) // (piece * THREADS * TACTICS[tactic]))
    # On CuPy's current stream, which is the engine's.
    kernel(src.itemsize, TACTICS[tactic])(
        (dst.size // (tall * wide) * blocks,),
        (THREADS,),
        (src, np.int32(height), np.int32(width), np.int32(pad), np.int32(blocks), dst),
    )
