"""Kernels in Triton: importing this needs Triton."""

import triton
import triton.language as tl


@triton.jit
def add_one(x, count, y, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, at < count) + 1, at < count)


@triton.jit
def gate(x, g, y, count, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """y = x sigmoid(1.702 x) g, g of WIDTH elements for each row."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, at < count).to(tl.float32)
    factor = tl.load(g + at % WIDTH, at < count).to(tl.float32)
    result = value * tl.sigmoid(1.702 * value) * factor
    tl.store(y + at, result.to(y.dtype.element_ty), at < count)


@triton.jit
def pad_circular(x, height, width, pad, y, count, BLOCK: tl.constexpr):
    """The last two axes of x, contiguous: each element is asked where it comes from."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tall, wide = height + 2 * pad, width + 2 * pad
    row, column = at // wide, (at % wide - pad + width) % width
    plane, line = row // tall, (row % tall - pad + height) % height
    value = tl.load(x + (plane * height + line) * width + column, at < count)
    tl.store(y + at, value, at < count)
