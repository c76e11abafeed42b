"""Circular padding of the last two axes by a CUDA C++ kernel that CuPy compiles."""

import functools
from pathlib import Path

import cupy
import numpy as np
import rabbet.plugin as trtp

SOURCE = Path(__file__).with_name("circ_pad.cu").read_text()
ROWS = 8  # of a block
TACTICS = {1: 4, 2: 8}  # words in flight in each lane


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
    height, width = src.shape[-2:]
    rows = dst.size // dst.shape[-1]
    # On CuPy's current stream, which is the engine's.
    kernel(src.itemsize, TACTICS[tactic])(
        (-(-rows // ROWS),),
        (32 * ROWS,),
        (src, np.int32(height), np.int32(width), np.int32(pad), np.int32(rows), dst),
    )
