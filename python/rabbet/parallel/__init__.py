"""Several GPUs, a process (rank) for each: communicators, and how to start ranks."""

from ._communicator import Communicator, Place, communicator, place, unique_id
from ._launch import launch
from ._nccl import gpu_count

__all__ = ["Communicator", "Place", "communicator", "gpu_count", "launch", "place", "unique_id"]
