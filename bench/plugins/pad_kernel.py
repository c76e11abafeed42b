"""Circular padding in Numba."""

from __future__ import annotations

from typing import Any

import numba


@numba.njit(nogil=True)
def pad_circular(x: Any, y: Any, pad: int, unit: int) -> None:
    """x [N, C, H, W unit] -> y [N, C, H + 2 pad, (W + 2 pad) unit], row by row.

    unit: values that lie together at each place of an image.
    """
    height, width = x.shape[2], x.shape[3]
    edge = pad * unit
    for n in range(x.shape[0]):
        for c in range(x.shape[1]):
            for row in range(y.shape[2]):
                source, target = x[n, c, (row - pad) % height], y[n, c, row]
                for i in range(width):
                    target[edge + i] = source[i]
                for i in range(edge):
                    target[i] = source[width - edge + i]
                    target[edge + width + i] = source[i]
