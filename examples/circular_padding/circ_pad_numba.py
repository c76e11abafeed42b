"""Circular padding of the last two axes in Numba: one compiled loop."""

import numba
import numpy as np
import rabbet.plugin as trtp


@trtp.register("example::circ_pad_plugin")
def circ_pad_desc(x: trtp.TensorDesc, pad: int) -> trtp.TensorDesc:
    y = x.like()
    y.shape_expr[-2] += 2 * pad
    y.shape_expr[-1] += 2 * pad
    return y


@numba.njit(cache=True)
def circ_pad(src, dst, pad):
    n, c, h, w = src.shape
    for i in range(n):
        for j in range(c):
            for y in range(h + 2 * pad):
                row = src[i, j, (y - pad) % h]
                out = dst[i, j, y]
                for x in range(pad):
                    out[x] = row[w - pad + x]
                    out[pad + w + x] = row[x]
                for x in range(w):
                    out[pad + x] = row[x]


@trtp.impl("example::circ_pad_plugin", device="cpu")
def circ_pad_impl(x, pad: int, outputs, stream):
    circ_pad(np.asarray(x), np.asarray(outputs[0]), pad)
