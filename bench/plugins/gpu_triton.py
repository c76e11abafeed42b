"""Operators for chains on a GPU: y = x + 1 by a Triton kernel, on torch's tensors made
in three ways."""

import rabbet.plugin as trtp
import torch

from .triton_kernels import add_one

THREADS = 256


@trtp.register("bench_triton::launch")
def launch_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()


@trtp.impl("bench_triton::launch", device="cuda", capturable=True)
def launch(x, outputs):
    y = torch.as_tensor(outputs[0], device="cuda")
    add_one[(1,)](torch.as_tensor(x, device="cuda"), THREADS, y, BLOCK=THREADS)


@trtp.register("bench_triton::dlpack")
def dlpack_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()


@trtp.impl("bench_triton::dlpack", device="cuda", capturable=True)
def dlpack(x, outputs):
    y = torch.from_dlpack(outputs[0])
    add_one[(1,)](torch.from_dlpack(x), THREADS, y, BLOCK=THREADS)


@trtp.register("bench_triton::torch")
def own_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()


@trtp.impl("bench_triton::torch", device="cuda", capturable=True)
def own(x, outputs):
    add_one[(1,)](x.torch(), THREADS, outputs[0].torch(), BLOCK=THREADS)
