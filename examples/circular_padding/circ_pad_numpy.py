"""Circular padding of the last two axes in NumPy: nine block copies."""

import numpy as np
import rabbet.plugin as trtp


@trtp.register("example::circ_pad_plugin")
def circ_pad_desc(x: trtp.TensorDesc, pad: int) -> trtp.TensorDesc:
    y = x.like()
    y.shape_expr[-2] += 2 * pad
    y.shape_expr[-1] += 2 * pad
    return y


@trtp.autotune("example::circ_pad_plugin")
def circ_pad_autotune(x, outputs) -> list[trtp.AutoTuneCombination]:
    return [trtp.AutoTuneCombination("FP32|FP16, FP32|FP16")]


@trtp.impl("example::circ_pad_plugin", device="cpu")
def circ_pad_impl(x, pad: int, outputs, stream):
    src, dst = np.from_dlpack(x), np.from_dlpack(outputs[0])
    dst[..., pad:-pad, pad:-pad] = src
    dst[..., :pad, pad:-pad] = src[..., -pad:, :]
    dst[..., -pad:, pad:-pad] = src[..., :pad, :]
    dst[..., :pad] = dst[..., -2 * pad : -pad]
    dst[..., -pad:] = dst[..., pad : 2 * pad]
