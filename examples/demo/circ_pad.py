"""Circular padding, an operator that no engine knows, with two tactics."""

import numpy as np
import rabbet.plugin as trtp


@trtp.register("example::CircularPad")
def describe(x: trtp.TensorDesc, pads: list[int]) -> trtp.TensorDesc:
    y = x.like()
    for axis in range(x.ndim):
        y.shape_expr[axis] += pads[axis] + pads[x.ndim + axis]
    return y


@trtp.autotune("example::CircularPad")
def tune(x, pads, outputs) -> list[trtp.AutoTuneCombination]:
    return [trtp.AutoTuneCombination("FP32|FP16, FP32|FP16", "LINEAR", tactics=[1, 2])]


@trtp.impl("example::CircularPad")
def run(x, pads, outputs, stream, tactic):
    src, dst = np.from_dlpack(x), np.from_dlpack(outputs[0])
    before = pads[: src.ndim]
    if tactic == 1:  # one gather for each axis
        for axis, size in enumerate(src.shape):
            index = np.arange(dst.shape[axis]) - before[axis]
            src = src.take(index % size, axis=axis)
        dst[...] = src
    else:
        dst[...] = np.pad(src, list(zip(before, pads[src.ndim :])), mode="wrap")
