"""Time that OpenMP's threads spin before they sleep.

libgomp's threads spin while they wait for each other, by default for milliseconds. On
busy processors, spinning threads keep the awaited thread from running. libgomp reads
the variable once, when the CPU device is loaded; so the import of the package sets it,
unless the user has.
"""

from __future__ import annotations

import os
import sys

_SPINS = "1000"  # some 40 microseconds: they bridge the gaps between kernels


def limit_spinning() -> None:
    """Sets GOMP_SPINCOUNT for this process and its children.

    Does nothing in a program that embeds Python (recognized by the missing command
    line): its environment is not ours to change.
    """
    if sys.orig_argv and "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)
