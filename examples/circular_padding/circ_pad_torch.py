"""Circular padding of the last two axes by torch."""

import rabbet.plugin as trtp
import torch
import torch.nn.functional as F


@trtp.register("example::circ_pad_plugin")
def circ_pad_desc(x: trtp.TensorDesc, pad: int) -> trtp.TensorDesc:
    y = x.like()
    y.shape_expr[-2] += 2 * pad
    y.shape_expr[-1] += 2 * pad
    return y


@trtp.autotune("example::circ_pad_plugin")
def circ_pad_autotune(x, outputs) -> list[trtp.AutoTuneCombination]:
    return [trtp.AutoTuneCombination("FP32|FP16, FP32|FP16")]


@trtp.impl("example::circ_pad_plugin")
def circ_pad_impl(x, pad: int, outputs, stream):
    padded = F.pad(torch.from_dlpack(x), (pad, pad, pad, pad), mode="circular")
    torch.from_dlpack(outputs[0]).copy_(padded)
