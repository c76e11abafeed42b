"""y = x sigmoid(1.702 x) g by a Triton kernel: launched from Python, and made ahead of
time. g has an element for each of x's columns."""

import rabbet as trt
import rabbet.plugin as trtp
import torch
import triton

from .triton_kernels import gate as kernel

BLOCK = 1024
POINTERS = {trt.float32: "*fp32", trt.float16: "*fp16"}
TYPES = "FP32|FP16, FP32|FP16, FP32|FP16"


@trtp.register("bench_gate::gate")
def gate_desc(x: trtp.TensorDesc, g: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()


@trtp.autotune("bench_gate::gate")
def gate_tune(x, g, outputs) -> list[trtp.AutoTuneCombination]:
    return [trtp.AutoTuneCombination(TYPES)]


@trtp.impl("bench_gate::gate", device="cuda", capturable=True)
def gate(x, g, outputs):
    count, width = x.numel(), x.shape[-1]
    kernel[(triton.cdiv(count, BLOCK),)](
        torch.as_tensor(x, device="cuda"), torch.as_tensor(g, device="cuda"),
        torch.as_tensor(outputs[0], device="cuda"), count, WIDTH=width, BLOCK=BLOCK,
    )  # fmt: skip


@trtp.register("bench_gate::ready")
def ready_desc(x: trtp.TensorDesc, g: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()


@trtp.autotune("bench_gate::ready")
def ready_tune(x, g, outputs) -> list[trtp.AutoTuneCombination]:
    return [trtp.AutoTuneCombination(TYPES)]


@trtp.aot_impl("bench_gate::ready")
def ready(x, g, outputs):
    pointer = POINTERS[x.dtype]
    source = triton.compiler.ASTSource(
        fn=kernel,
        signature={
            "x": pointer, "g": pointer, "y": pointer, "count": "i32",
            "WIDTH": "constexpr", "BLOCK": "constexpr",
        },
        constexprs={"WIDTH": x.shape[-1], "BLOCK": BLOCK},
    )  # fmt: skip
    compiled = triton.compile(source)
    count = x.shape_expr.numel()
    launch = trtp.KernelLaunchParams(
        grid_x=trtp.cdiv(count, BLOCK),
        block_x=compiled.metadata.num_warps * 32,
        shared_mem=compiled.metadata.shared,
    )
    name, code = compiled.metadata.name, compiled.asm["ptx"]
    return trtp.Kernel(name, code, launch, [x, g, outputs[0], count])
