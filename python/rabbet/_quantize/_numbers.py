"""Numbers of few bits: weights by channel and by block, and the scales of activations."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ._tensor import BFLOAT16, FLOAT, FLOAT16, stored, widened

# The largest number of each type; FP8 is E4M3.
LIMITS = {"int8": 127.0, "fp8": 448.0, "int4": 7.0}
_LEAST_HALF = 2.0**-14
# Elements at a time, so that what is computed with them stays in the cache.
_CHUNK = 1 << 17
# Ranges that are tried for a block, as shares of its largest number.
_SHARES = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7)
# Sums of products with more terms than this make matrices that are too large to invert.
LARGEST_HESSIAN = 8192


class Quantized(NamedTuple):
    """Weights of few bits, in the shape of the weights; scales have as many axes as the
    weights where there are blocks, else one."""

    numbers: Any  # int8, or the bits of FP8
    scales: Any  # float32
    scale_type: int
    error: float  # of the weights, relative


def ratio(lost: float, whole: float) -> float:
    """A relative error from sums of squares: of the differences, and of the numbers."""
    if lost == 0:
        return 0.0
    return math.sqrt(lost / whole) if whole > 0 else math.inf


def relative_error(found: Any, wanted: Any) -> float:
    """The root of the mean square of differences, relative to that of the numbers."""
    import numpy as np

    return ratio(float(np.square(found - wanted).sum()), float(np.square(wanted).sum()))


# ---- FP8


def _fp8_values() -> Any:
    """The finite numbers of E4M3 that are not negative, in order."""
    import numpy as np

    codes = np.arange(127)
    exponent, mantissa = codes >> 3, codes & 7
    normal = (1 + mantissa / 8) * 2.0 ** (exponent - 7.0)
    return np.where(exponent == 0, mantissa * 2.0**-9, normal)


def to_fp8(values: Any) -> Any:
    """The bits of the nearest numbers, ties to even, beyond the largest that one."""
    import numpy as np

    known = _fp8_values()
    middles = (known[1:] + known[:-1]) / 2
    size = np.minimum(np.abs(values), known[-1])
    code = np.searchsorted(middles, size)
    tie = (code < middles.size) & (middles[np.minimum(code, 125)] == size) & (code & 1 == 1)
    code = code + tie
    return (code | np.where(np.signbit(values), 128, 0)).astype(np.uint8)


def from_fp8(bits: Any) -> Any:
    """The numbers of these bits."""
    import numpy as np

    size = _fp8_values()[bits & 127].astype(np.float32)
    return np.where(bits & 128, -size, size)


# ---- By channel


def scale_type(dtype: int, least: float) -> int:
    """The type of scales for tensors of a floating type. By a scale that is no normal
    number of FLOAT16 numbers of 8 bits would lose some."""
    return FLOAT if dtype == FLOAT16 and least < _LEAST_HALF else dtype


def rounded_scales(scales: Any, dtype: int) -> Any:
    """Scales as a floating type has them, as float32."""
    kept = stored(scales, dtype)
    return widened(kept) if dtype == BFLOAT16 else kept.astype("f4")


def by_channel(weights: Any, axis: int, to: str, dtype: int) -> Quantized:
    """Each output channel with a scale of its own, from its largest number."""
    import numpy as np

    others = tuple(i for i in range(weights.ndim) if i != axis)
    size = np.abs(weights).max(axis=others, initial=0)
    if to == "fp8" and size.max(initial=0) > 0:
        # Floats lose nothing by a common scale, unless channels differ by far; and
        # products by cuBLASLt take no others.
        least = size[size > 0].min()
        if size.max() / least < 64:
            size = size.max(keepdims=True)
    scales = np.where(size > 0, size / LIMITS[to], 1).astype(np.float32)
    kept = scale_type(dtype, float(scales.min(initial=1)))
    scales = rounded_scales(scales, kept)
    wide = scales.reshape([-1 if i == axis else 1 for i in range(weights.ndim)])
    if to == "fp8":
        numbers = to_fp8(weights / wide)
        real = from_fp8(numbers) * wide
    else:
        numbers = np.clip(np.rint(weights / wide), -127, 127).astype(np.int8)
        real = numbers * wide
    return Quantized(numbers, scales, kept, relative_error(real, weights))


# ---- By block


def _block_scales(blocks: Any, importance: Any, dtype: int) -> Any:
    """The scale of each row of `blocks` that loses least, by the weight of each
    element."""
    import numpy as np

    size = np.abs(blocks).max(axis=1)
    best = np.ones(len(blocks), np.float32)
    least = np.full(len(blocks), np.inf)
    for share in _SHARES:
        scale = np.where(size > 0, size * (share / LIMITS["int4"]), 1)
        scale = rounded_scales(scale.astype(np.float32), dtype)
        numbers = np.clip(np.rint(blocks / scale[:, None]), -8, 7)
        loss = (np.square(numbers * scale[:, None] - blocks) * importance).sum(1)
        better = loss < least
        best[better], least[better] = scale[better], loss[better]
    return best


def _padded(values: Any, block: int) -> Any:
    import numpy as np

    return np.pad(values, ((0, 0), (0, -values.shape[1] % block)))


def _nearest(rows: Any, block: int, importance: Any, dtype: int) -> tuple[Any, Any]:
    """Numbers and scales of rows, to nearest."""
    import numpy as np

    numbers = np.empty(rows.shape, np.int8)
    count = -(-rows.shape[1] // block)
    scales = np.empty((rows.shape[0], count), np.float32)
    weight = 1.0 if importance is None else _padded(importance[None], block)
    step = max(1, _CHUNK // max(rows.shape[1], 1))
    for start in range(0, len(rows), step):
        part = _padded(rows[start : start + step], block)
        blocks = part.reshape(-1, block)
        each = np.broadcast_to(weight, part.shape).reshape(-1, block)
        scale = _block_scales(blocks, each, dtype)
        found = np.clip(np.rint(blocks / scale[:, None]), -8, 7)
        found = found.reshape(part.shape)[:, : rows.shape[1]]
        numbers[start : start + step] = found
        scales[start : start + step] = scale.reshape(-1, count)
    return numbers, scales


def _inverse_of_upper(matrix: Any) -> Any:
    """The inverse of an upper triangular matrix, by products of its parts."""
    import numpy as np

    size = len(matrix)
    if size <= 64:
        return np.linalg.inv(matrix)
    half = size // 2
    made = np.zeros_like(matrix)
    made[:half, :half] = _inverse_of_upper(matrix[:half, :half])
    made[half:, half:] = _inverse_of_upper(matrix[half:, half:])
    made[:half, half:] = -(made[:half, :half] @ matrix[:half, half:]) @ made[half:, half:]
    return made


def _inverse_factor(hessian: Any) -> Any:
    """The upper triangular U with U^T U = the inverse, or None if there is none. From
    H = R R^T, with R upper triangular, follows U = R^-1."""
    import numpy as np

    matrix = np.array(hessian, np.float64)
    diagonal = np.einsum("ii->i", matrix)
    diagonal[diagonal == 0] = 1
    diagonal += 0.01 * diagonal.mean()
    try:
        reversed_factor = np.linalg.cholesky(matrix[::-1, ::-1])
    except np.linalg.LinAlgError:
        return None
    upper = np.ascontiguousarray(reversed_factor[::-1, ::-1])
    return _inverse_of_upper(upper).astype(np.float32)


def _compensated(rows: Any, block: int, hessian: Any, dtype: int) -> Any:
    """As _nearest, where what rounding an element changes in the layer's output is made up
    for by the elements behind it (E. Frantar et al., "GPTQ", 2022)."""
    import numpy as np

    factor = _inverse_factor(hessian)
    if factor is None:
        return None
    left = np.array(rows.T, np.float32, order="C")  # an element of all rows together
    numbers = np.empty(left.shape, np.int8)
    scales = []
    for start in range(0, len(left), block):
        here = left[start : start + block]
        own = factor[start : start + len(here)]
        importance = 1 / np.square(np.diag(own, start))
        scale = _block_scales(here.T, importance[None], dtype)
        scales.append(scale)
        errors = np.empty_like(here)
        for i, row in enumerate(own[:, start:]):
            found = np.clip(np.rint(here[i] / scale), -8, 7)
            numbers[start + i] = found
            errors[i] = (here[i] - found * scale) / row[i]
            here[i + 1 :] -= row[i + 1 : len(here), None] * errors[i]
        left[start + block :] -= own[:, start + block :].T @ errors
    return numbers.T, np.stack(scales, 1)


def by_block(
    weights: Any, axis: int, block: int, hessian: Any, dtype: int
) -> Quantized:
    """INT4 of a matrix, with a scale for each block of elements that are summed; `axis`
    is the other one. hessian: sums of the products of each two inputs, or of each one's
    square; None: all inputs count alike."""
    import numpy as np

    rows = weights if axis == 0 else weights.T
    # Most blocks have larger extremes than the mean.
    least = float(np.abs(weights).mean()) / LIMITS["int4"] if weights.size else 1.0
    kept = scale_type(dtype, least / 2)
    found = None
    if hessian is not None and hessian.ndim == 2:
        found = _compensated(rows, block, hessian, kept)
        hessian = np.diag(hessian)
    if found is None:
        found = _nearest(rows, block, hessian, kept)
    numbers, scales = found
    error = _error_of_blocks(rows, numbers, scales, block)
    if axis == 1:
        numbers, scales = numbers.T, scales.T
    return Quantized(numbers, scales, kept, error)


def _error_of_blocks(rows: Any, numbers: Any, scales: Any, block: int) -> float:
    import numpy as np

    lost = whole = 0.0
    step = max(1, _CHUNK // max(rows.shape[1], 1))
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        wide = np.repeat(scales[start : start + step], block, axis=1)
        real = numbers[start : start + step] * wide[:, : rows.shape[1]]
        lost += float(np.square(real - part).sum())
        whole += float(np.square(part).sum())
    return ratio(lost, whole)


def packed(numbers: Any) -> Any:
    """INT4 in bytes, the first element in the lower bits."""
    import numpy as np

    flat = numbers.reshape(-1).view(np.uint8) & 15
    if flat.size % 2:
        flat = np.append(flat, np.uint8(0))
    return flat[::2] | flat[1::2] << 4
