"""Circular padding in Numba."""

from __future__ import annotations

from typing import Any

import numba


@numba.njit(nogil=True)
def pad_circular(x: Any, y: Any, pad: int) -> None:
    """x [N, C, H, W] -> y [N, C, H + 2 pad, W + 2 pad], row by row."""
    height, width = x.shape[2], x.shape[3]
    for n in range(x.shape[0]):
        for c in range(x.shape[1]):
            for row in range(y.shape[2]):
                source = (row - pad) % height
                for i in range(width):
                    y[n, c, row, pad + i] = x[n, c, source, i]
                for i in range(pad):
                    y[n, c, row, i] = x[n, c, source, width - pad + i]
                    y[n, c, row, pad + width + i] = x[n, c, source, i]
