"""Circular padding of the last two axes by a kernel written in Python, for Numba."""

import numpy as np
import rabbet.plugin as trtp

if not hasattr(np, "row_stack"):
    np.row_stack = np.vstack  # numba-cuda 0.30 asks for it, NumPy 2.5 has it no more

from numba import cuda

TACTICS = {1: 128, 2: 256}  # threads of a block


@trtp.register("example::circ_pad_plugin")
def circ_pad_desc(x: trtp.TensorDesc, pad: int) -> trtp.TensorDesc:
    y = x.like()
    y.shape_expr[-2] += 2 * pad
    y.shape_expr[-1] += 2 * pad
    return y


@trtp.autotune("example::circ_pad_plugin")
def circ_pad_autotune(x, outputs) -> list[trtp.AutoTuneCombination]:
    return [trtp.AutoTuneCombination("FP32|FP16, FP32|FP16", tactics=list(TACTICS))]


@cuda.jit
def circ_pad(src, dst, pad):
    """A block makes a row."""
    height, width = src.shape[1], src.shape[2]
    row = cuda.blockIdx.x
    plane, y = row // dst.shape[1], row % dst.shape[1]
    from_y = (y - pad) % height
    for x in range(cuda.threadIdx.x, dst.shape[2], cuda.blockDim.x):
        dst[plane, y, x] = src[plane, from_y, (x - pad) % width]


def planes(tensor):
    """[n, c, h, w] as [n * c, h, w], without a copy."""
    array = cuda.as_cuda_array(tensor)
    return array.reshape(-1, *array.shape[-2:])


@trtp.impl("example::circ_pad_plugin", device="cuda", capturable=True)
def circ_pad_impl(x, pad: int, outputs, stream, tactic):
    src, dst = planes(x), planes(outputs[0])
    grid = dst.shape[0] * dst.shape[1]
    # Numba's own default is the legacy stream, which graphs cannot record.
    circ_pad[grid, TACTICS[tactic], cuda.external_stream(stream)](src, dst, pad)
