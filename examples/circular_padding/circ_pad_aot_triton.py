"""Circular padding of the last two axes by a Triton kernel that is compiled when the
model is: the plan keeps it, and needs neither Python nor Triton to run."""

import rabbet as trt
import rabbet.plugin as trtp
import triton
import triton.language as tl

TACTICS = {1: 256, 2: 1024}  # columns of a program
POINTERS = {trt.float32: "*fp32", trt.float16: "*fp16"}


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


@trtp.aot_impl("example::circ_pad_plugin")
def circ_pad_aot(
    x: trtp.TensorDesc, pad: int, outputs: tuple[trtp.TensorDesc], tactic: int
) -> tuple[str, str, trtp.KernelLaunchParams, trtp.SymExprs]:
    block, pointer = TACTICS[tactic], POINTERS[x.dtype]
    source = triton.compiler.ASTSource(
        fn=circ_pad,
        signature={
            "src": pointer, "height": "i32", "width": "i32", "pad": "i32",
            "dst": pointer, "BLOCK": "constexpr",
        },
        constexprs={"BLOCK": block},
    )  # fmt: skip
    compiled = triton.compile(source)
    wide = outputs[0].shape_expr[-1]
    launch = trtp.KernelLaunchParams(
        grid_x=outputs[0].shape_expr.numel() // wide,
        grid_y=trtp.cdiv(wide, block),
        block_x=compiled.metadata.num_warps * 32,
        shared_mem=compiled.metadata.shared,
    )
    height, width = x.shape_expr[-2], x.shape_expr[-1]
    integers = trtp.SymIntExprs.from_tuple(
        [trtp.SymInt32(height), trtp.SymInt32(width), trtp.SymInt32(pad)]
    )
    return compiled.metadata.name, compiled.asm["ptx"], launch, integers
