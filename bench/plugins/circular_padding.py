"""Circular padding by the Numba kernel that bench also times alone.

It works in any layout that keeps the rows of an image together, so that the
convolutions around it need no conversions.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import rabbet as trt
import rabbet.plugin as trtp

from bench.plugins.pad_kernel import pad_circular


@trtp.register("example::circ_pad_plugin")
def circ_pad_desc(x: trtp.TensorDesc, pads: npt.NDArray[np.int32]) -> trtp.TensorDesc:
    y = x.like()
    for axis, (before, after) in enumerate(pads.reshape(-1, 2)):
        y.shape_expr[axis] += int(before + after)
    return y


@trtp.autotune("example::circ_pad_plugin")
def circ_pad_tune(
    x: trtp.TensorDesc, outputs: tuple[trtp.TensorDesc]
) -> list[trtp.AutoTuneCombination]:
    whole_blocks = x.ndim == 4 and x.shape.opt[1] % 16 == 0
    layouts = "LINEAR|HWC|CHW8|CHW16" if whole_blocks else "LINEAR|HWC"
    return [trtp.AutoTuneCombination("FP32, FP32", layouts)]


LINEAR = trt.TensorFormat.LINEAR


def rows(tensor: trtp.Tensor) -> tuple[Any, int]:
    """A tensor whose channels lie innermost, with a row's values in its last axis, and
    how many of them lie at one place."""
    array = tensor.numpy()
    if array.ndim == 4:  # channels last, or all in one block
        array = array.transpose(0, 2, 3, 1)[:, np.newaxis]
    *outer, width, unit = array.shape
    return array.reshape(*outer, width * unit), unit


@trtp.impl("example::circ_pad_plugin")
def circ_pad(
    x: trtp.Tensor,
    pads: npt.NDArray[np.int32],
    outputs: tuple[trtp.Tensor],
    stream: int,
) -> None:
    pad = pads.item(-1)
    if x.format is LINEAR:
        pad_circular(x.numpy(), outputs[0].numpy(), pad, 1)
    else:
        source, unit = rows(x)
        pad_circular(source, rows(outputs[0])[0], pad, unit)
