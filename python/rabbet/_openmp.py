"""How long OpenMP's threads spin before they sleep.

libgomp's threads wait for each other by spinning, by default for milliseconds. Where
other programs want the processors, that keeps the very thread that is waited for from
running. libgomp reads the variable once, when the CPU device is loaded, so it is set
when the package is imported. The user's setting wins.
"""

from __future__ import annotations

import os
import sys

_SPINS = "1000"  # some 40 microseconds: they bridge the gaps between kernels


def limit_spinning() -> None:
    """Sets GOMP_SPINCOUNT for this process and its children.

    Not in a program that embeds Python (it has no command line of Python's): there,
    the environment is the program's.
    """
    if sys.orig_argv and "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)
