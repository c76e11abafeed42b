"""Several GPUs, a process (rank) for each: communicators, and models split over ranks.

split = rabbet.parallel.tensor("model.onnx", ranks=2)
print(split)                        # what was split, what was not and why
model = split.compile(rank=0)       # or split.save("model.plan"): a plan for each rank

rabbet.parallel.pipeline makes stages, which follow each other, in the same way.
"""

from ._communicator import Communicator, Place, communicator, place, unique_id
from ._launch import launch
from ._nccl import gpu_count
from ._pipeline import Pipeline, pipeline
from ._tensor import TensorParallel, tensor

__all__ = [
    "Communicator",
    "Pipeline",
    "Place",
    "TensorParallel",
    "communicator",
    "gpu_count",
    "launch",
    "pipeline",
    "place",
    "tensor",
    "unique_id",
]
