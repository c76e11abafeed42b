"""Several GPUs, a process (rank) for each: communicators, and how to start ranks."""

from ._communicator import Communicator, Place, communicator, place, unique_id

__all__ = ["Communicator", "Place", "communicator", "place", "unique_id"]
