"""Circular padding of the last two axes in Triton."""

import rabbet.plugin as trtp
import torch
import triton
import triton.language as tl

TACTICS = {1: 256, 2: 1024}  # columns of a program


@trtp.register("example::circ_pad_plugin")
def circ_pad_desc(x: trtp.TensorDesc, pad: int) -> trtp.TensorDesc:
    y = x.like()
    y.shape_expr[-2] += 2 * pad
    y.shape_expr[-1] += 2 * pad
    return y


@trtp.autotune("example::circ_pad_plugin")
def circ_pad_autotune(x, outputs) -> list[trtp.AutoTuneCombination]:
    return [trtp.AutoTuneCombination("FP32|FP16, FP32|FP16", tactics=list(TACTICS))]


@triton.jit
def circ_pad(src, height, width, pad, dst, BLOCK: tl.constexpr):
    tall = height + 2 * pad
    wide = width + 2 * pad
    row = tl.program_id(0)
    plane = row // tall
    y = (row % tall - pad + height) % height
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = (at - pad + width) % width
    values = tl.load(src + (plane.to(tl.int64) * height + y) * width + x, at < wide)
    tl.store(dst + row.to(tl.int64) * wide + at, values, at < wide)


@trtp.impl("example::circ_pad_plugin", device="cuda", capturable=True)
def circ_pad_impl(x, pad: int, outputs, stream, tactic):
    src = torch.as_tensor(x, device="cuda")
    dst = torch.as_tensor(outputs[0], device="cuda")
    height, width = src.shape[-2:]
    wide = dst.shape[-1]
    block = TACTICS[tactic]
    # On torch's current stream, which is the engine's.
    grid = (dst.numel() // wide, triton.cdiv(wide, block))
    circ_pad[grid](src, height, width, pad, dst, BLOCK=block)
