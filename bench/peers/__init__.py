"""The contestants, a file for each package.

A class loads in its constructor, runs once in `call()`, and gives its results
in `outputs()`; see bench.worker.Contestant. The tables here say which package a
contestant needs and which class stands for it in which subject.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Peer:
    """A contestant: the package that it needs and the class to load."""

    name: str
    package: str
    factory: str
    quick: bool = True
    """Whether it takes part in a quick run."""


RABBET = "rabbet"

MODELS = (
    Peer(RABBET, "rabbet", "bench.peers.rabbet_engine:Model"),
    Peer("onnxruntime", "onnxruntime", "bench.peers.ort:Model"),
    Peer("openvino", "openvino", "bench.peers.ov:Model"),
    Peer("torch", "torch", "bench.peers.torch_cpu:Eager"),
    Peer("torch freeze", "torch", "bench.peers.torch_cpu:Frozen", quick=False),
)

# Of one plan: by itself, in a session of ONNX Runtime's, and that session without it.
IN_SESSION = (
    Peer(RABBET, "rabbet", "bench.peers.rabbet_engine:Model"),
    Peer("rabbet in onnxruntime", "onnxruntime", "bench.peers.ort:OnRabbet"),
    Peer("onnxruntime", "onnxruntime", "bench.peers.ort:Model"),
)

GPU_MODELS = (
    Peer(RABBET, "torch", "bench.peers.rabbet_cuda:Model"),
    Peer("rabbet, launches", "torch", "bench.peers.rabbet_cuda:Launches"),
    Peer("torch", "torch", "bench.peers.torch_cuda:Eager"),
    Peer("reduce-overhead", "torch", "bench.peers.torch_cuda:ReduceOverhead"),
    Peer("own graph", "torch", "bench.peers.torch_cuda:OwnGraph"),
)

GPU_ZOO = (
    Peer(RABBET, "torch", "bench.peers.zoo_rabbet:Compiled"),
    Peer("torch.compile", "torch", "bench.peers.zoo_torch:OwnGraph"),
)

GPU_CALLS = (
    Peer("bare launch", "numpy", "bench.peers.gpu_chains:Bare"),
    Peer("ready-made kernel", "rabbet", "bench.peers.gpu_chains:Chain"),
    Peer("C plugin", "rabbet", "bench.peers.gpu_chains:Chain"),
    Peer("Python plugin, no body", "rabbet", "bench.peers.gpu_chains:NoBody"),
    Peer("Python plugin, no body, torch", "torch", "bench.peers.gpu_chains:NoBody"),
    Peer("Python plugin, ctypes", "rabbet", "bench.peers.gpu_chains:Chain"),
    Peer("Python plugin, Triton", "triton", "bench.peers.gpu_chains:Chain"),
    Peer("Python plugin, Triton, DLPack", "triton", "bench.peers.gpu_chains:Chain"),
    Peer("Python plugin, Triton, .torch()", "triton", "bench.peers.gpu_chains:Chain"),
    Peer("ctypes", "numpy", "bench.peers.gpu_chains:Ctypes"),
    Peer("cuda-python", "cuda", "bench.peers.gpu_chains:CudaPython"),
    Peer("Triton", "triton", "bench.peers.gpu_chains:Triton"),
    Peer("CuPy RawKernel", "cupy", "bench.peers.gpu_chains:Cupy"),
    Peer("torch custom_op, no body", "torch", "bench.peers.gpu_chains:CustomOp"),
)

GPU_REPLAYS = (
    Peer("ready-made kernel", "rabbet", "bench.peers.gpu_chains:Replayed"),
    Peer("C plugin", "rabbet", "bench.peers.gpu_chains:Replayed"),
    Peer("Python plugin, ctypes", "rabbet", "bench.peers.gpu_chains:Replayed"),
    Peer("Python plugin, Triton", "triton", "bench.peers.gpu_chains:Replayed"),
)

CHAINS = (
    Peer(RABBET, "rabbet", "bench.peers.rabbet_engine:Chain"),
    Peer("rabbet IPluginV3", "rabbet", "bench.peers.rabbet_engine:ClassChain"),
    Peer("rabbet IPluginV2", "rabbet", "bench.peers.rabbet_engine:OlderClassChain"),
    Peer("direct", "numpy", "bench.peers.plain:Chain"),
    Peer("openvino", "openvino", "bench.peers.ov:Chain"),
    Peer("onnxruntime PyOp", "onnxruntime_extensions", "bench.peers.ort:Chain"),
    Peer("torch custom_op", "torch", "bench.peers.torch_cpu:Chain"),
)

PADDINGS = (
    Peer(RABBET, "rabbet", "bench.peers.rabbet_engine:Padding"),
    Peer("rabbet, C library", "rabbet", "bench.peers.rabbet_engine:LibraryPadding"),
    Peer("numba", "numba", "bench.peers.plain:NumbaPadding"),
    Peer("numpy slices", "numpy", "bench.peers.plain:SlicesPadding"),
    Peer("numpy.pad", "numpy", "bench.peers.plain:NumpyPadding"),
    Peer("torch", "torch", "bench.peers.torch_cpu:Padding"),
)
