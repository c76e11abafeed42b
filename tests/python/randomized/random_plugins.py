"""Plugins of random networks: each computes with NumPy on memory as it lies, on the CPU
and on a GPU, by layouts that are written down here again."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import rabbet as trt
import rabbet.plugin as trtp

SPACE = "random_network"

# Format: channels of a block, whether they come last, the least rank.
FORMATS = {
    "LINEAR": (1, False, 0), "CHW2": (2, False, 3), "CHW4": (4, False, 3),
    "CHW16": (16, False, 3), "CHW32": (32, False, 3), "HWC": (1, True, 3),
    "HWC8": (8, True, 3), "HWC16": (16, True, 3), "DHWC": (1, True, 5),
    "DHWC8": (8, True, 5), "CDHW32": (32, False, 5),
}  # fmt: skip
NAMES = {"FP32": trt.float32, "FP16": trt.float16, "BF16": trt.bfloat16,
         "INT32": trt.int32, "INT64": trt.int64, "INT8": trt.int8}  # fmt: skip
STORED = {
    trt.float32: np.float32, trt.float16: np.float16, trt.bfloat16: np.uint16,
    trt.int32: np.int32, trt.int64: np.int64, trt.int8: np.int8, trt.bool: np.bool_,
}  # fmt: skip


# ---- Memory as it lies


def padded(shape: Sequence[int], layout: str) -> tuple[int, ...]:
    """The shape with whole blocks of channels."""
    block = FORMATS[layout][0]
    if block == 1:
        return tuple(shape)
    return (shape[0], -(-shape[1] // block) * block, *shape[2:])


def lay(value: Any, layout: str, padding: Any = 0) -> Any:
    """The elements of an array in the order in which a format has them."""
    block, last, _ = FORMATS[layout]
    shape = padded(value.shape, layout)
    if shape != value.shape:
        wide = np.full(shape, padding, value.dtype)
        wide[:, : value.shape[1]] = value
        value = wide
    if last:
        value = np.moveaxis(value, 1, -1)
    elif block > 1:
        blocks = value.reshape(shape[0], shape[1] // block, block, *shape[2:])
        value = np.moveaxis(blocks, 2, -1)
    return np.ascontiguousarray(value).ravel()


def take(flat: Any, shape: Sequence[int], layout: str) -> Any:
    """The array whose elements lie in that order."""
    block, last, _ = FORMATS[layout]
    if layout == "LINEAR":
        return flat.reshape(shape)
    n, c, *rest = padded(shape, layout)
    if last:
        value = np.moveaxis(flat.reshape(n, *rest, c), -1, 1)
    else:
        value = np.moveaxis(flat.reshape(n, c // block, *rest, block), -1, 2)
        value = value.reshape(n, c, *rest)
    return value[:, : shape[1]]


def from_stored(value: Any, dtype: Any) -> Any:
    """Numbers of a type as float64, int64 or bool."""
    if dtype is trt.bfloat16:
        value = (value.astype(np.uint32) << 16).view(np.float32)
    kind = np.asarray(value).dtype.kind
    return value.astype({"f": np.float64, "i": np.int64, "b": np.bool_}[kind])


def to_stored(value: Any, dtype: Any) -> Any:
    """The same numbers in a type, ties to even."""
    if dtype is not trt.bfloat16:
        return np.asarray(value).astype(STORED[dtype])
    bits = np.asarray(value).astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def padding(dtype: Any) -> Any:
    """A value that nobody may read: NaN, or a large number."""
    if dtype in (trt.float32, trt.float16):
        return np.nan
    return 0x7FC0 if dtype is trt.bfloat16 else 113


class Memory:
    """Memory of a device, in the order of a stream."""

    def __init__(self, device: str, stream: int) -> None:
        self.on_gpu, self.stream = device.startswith("cuda"), stream

    def _copy(self, name: str, *args: Any) -> None:
        from tests.gpu import cuda_driver

        driver = cuda_driver.driver()
        stream = ctypes.c_void_p(self.stream)
        cuda_driver.check(getattr(driver, name)(*args, stream), name)
        cuda_driver.check(driver.cuStreamSynchronize(stream), "cuStreamSynchronize")

    def read(self, address: int, count: int, dtype: Any) -> Any:
        """Elements at an address."""
        made = np.empty(count, dtype)
        if count == 0:
            return made
        if self.on_gpu:
            target, size = ctypes.c_void_p(made.ctypes.data), ctypes.c_size_t(made.nbytes)
            self._copy("cuMemcpyDtoHAsync_v2", target, ctypes.c_uint64(address), size)
        else:
            ctypes.memmove(made.ctypes.data, address, made.nbytes)
        return made

    def write(self, address: int, array: Any) -> None:
        """Puts elements at an address."""
        if array.size == 0:
            return
        if self.on_gpu:
            size = ctypes.c_size_t(array.nbytes)
            source = ctypes.c_void_p(array.ctypes.data)
            self._copy("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(address), source, size)
        else:
            ctypes.memmove(address, array.ctypes.data, array.nbytes)

    def get(self, address: int, shape: Any, dtype: Any, layout: str) -> Any:
        """A tensor's numbers."""
        shape = tuple(shape)
        count = int(np.prod(padded(shape, layout)))
        flat = self.read(address, count, STORED[dtype])
        return from_stored(take(flat, shape, layout), dtype)

    def put(self, address: int, value: Any, dtype: Any, layout: str) -> None:
        """Writes a tensor; what lies in padding is nobody's business."""
        self.write(address, lay(to_stored(value, dtype), layout, padding(dtype)))


# ---- What plugins compute. Also the reference: NumPy, and nothing of Rabbet.


def channel_factor(x: Any) -> Any:
    """1, 2, 3, 1, 2, 3 ... along axis 1."""
    return (np.arange(x.shape[1]) % 3 + 1).reshape(-1, *[1] * (x.ndim - 2))


def affine(x: Any, a: float, b: float) -> Any:
    return (x * a + b,)


def by_channel(x: Any, b: float) -> Any:
    return (x * channel_factor(x) + b,)


def pair(x: Any, b: float) -> Any:
    return x + b, -x


def mix(x: Any, y: Any) -> Any:
    return (x - 2 * y,)


def swap(x: Any, y: Any) -> Any:
    return x - y, x + y


def accumulate(x: Any, y: Any) -> Any:
    return (x + y,)


def widen(x: Any, more: int) -> Any:
    """More channels, which repeat the first one."""
    return (np.concatenate([x] + [x[:, :1]] * more, axis=1),)


def fold(x: Any) -> Any:
    """Half as many channels, rounded up: largest of two neighbours."""
    odd, even = x[:, 1::2], x[:, ::2].copy()
    even[:, : odd.shape[1]] = np.maximum(even[:, : odd.shape[1]], odd)
    return (even,)


def keep(x: Any) -> Any:
    """Slices of axis 0 whose first element is positive, and how many."""
    first = x.reshape(x.shape[0], -1)[:, 0] if x.size else np.zeros(x.shape[0])
    found = x[first > 0]
    return found, np.array(len(found), np.int64)


def spread(x: Any, times: Any) -> Any:
    return (np.tile(x, tuple(int(t) for t in times)),)


def work(
    function: Callable[..., Any], inputs: Any, outputs: Any, stream: int, *attrs: Any
) -> None:
    """A function on a call's tensors."""
    memory = Memory(outputs[0].device, stream)
    values = [
        memory.get(t.data_ptr, t.shape, t.dtype, t.format.name)
        if t.device == outputs[0].device
        else np.array(t.numpy())
        for t in inputs
    ]
    results = function(*values, *attrs)
    for t, result in zip(outputs, results, strict=True):
        if not t.is_data_dependent:
            assert tuple(t.shape) == result.shape, (t.shape, result.shape)
        memory.put(t.data_ptr, result, t.dtype, t.format.name)


def combinations(types: str, formats: str, tactics: Any) -> Any:
    return [trtp.AutoTuneCombination(types, formats, list(tactics))]


def check_tactic(tactic: int, tactics: Any) -> None:
    assert tactic in tactics, f"tactic {tactic} was not offered: {tactics}"


# ---- Decorated


@trtp.register(f"{SPACE}::affine")
def affine_desc(
    x: trtp.TensorDesc, a: float, b: float, types: str, formats: str, tactics: list[int]
) -> trtp.TensorDesc:
    return x.like()


@trtp.autotune(f"{SPACE}::affine")
def affine_tune(x, types, formats, tactics, outputs) -> list[trtp.AutoTuneCombination]:
    return combinations(types, formats, tactics)


@trtp.impl(f"{SPACE}::affine", capturable=False)
def affine_impl(x, a, b, tactics, outputs, tactic, stream):
    check_tactic(tactic, tactics)
    work(affine, (x,), outputs, stream, a, b)


@trtp.register(f"{SPACE}::affine_in_place")
def affine_in_place_desc(
    x: trtp.TensorDesc, a: float, b: float, types: str, formats: str, tactics: list[int]
) -> trtp.TensorDesc:
    return x.aliased()


@trtp.autotune(f"{SPACE}::affine_in_place")
def affine_in_place_tune(
    x, types, formats, tactics, outputs
) -> list[trtp.AutoTuneCombination]:
    return combinations(types, formats, tactics)


@trtp.impl(f"{SPACE}::affine_in_place", capturable=False)
def affine_in_place_impl(x, a, b, tactics, outputs, tactic, stream):
    check_tactic(tactic, tactics)
    assert x.data_ptr == outputs[0].data_ptr
    work(affine, (x,), outputs, stream, a, b)


@trtp.register(f"{SPACE}::by_channel")
def by_channel_desc(
    x: trtp.TensorDesc, b: float, types: str, formats: str, tactics: list[int]
) -> trtp.TensorDesc:
    return x.like()


@trtp.autotune(f"{SPACE}::by_channel")
def by_channel_tune(
    x, types, formats, tactics, outputs
) -> list[trtp.AutoTuneCombination]:
    return combinations(types, formats, tactics)


@trtp.impl(f"{SPACE}::by_channel", capturable=False)
def by_channel_impl(x, b, tactics, outputs, tactic, stream):
    check_tactic(tactic, tactics)
    work(by_channel, (x,), outputs, stream, b)


@trtp.register(f"{SPACE}::pair")
def pair_desc(
    x: trtp.TensorDesc, b: float, types: str, formats: str, tactics: list[int]
) -> tuple[trtp.TensorDesc, trtp.TensorDesc]:
    second = x.like()
    second.dtype = trt.int32
    return x.like(), second


@trtp.autotune(f"{SPACE}::pair")
def pair_tune(x, types, formats, tactics, outputs) -> list[trtp.AutoTuneCombination]:
    return combinations(types, formats, tactics)


@trtp.impl(f"{SPACE}::pair", capturable=False)
def pair_impl(x, b, tactics, outputs, tactic, stream):
    check_tactic(tactic, tactics)
    work(pair, (x,), outputs, stream, b)


@trtp.register(f"{SPACE}::mix")
def mix_desc(
    x: trtp.TensorDesc, y: trtp.TensorDesc, types: str, formats: str, tactics: list[int]
) -> trtp.TensorDesc:
    return y.like()


@trtp.autotune(f"{SPACE}::mix")
def mix_tune(x, y, types, formats, tactics, outputs) -> list[trtp.AutoTuneCombination]:
    return combinations(types, formats, tactics)


@trtp.impl(f"{SPACE}::mix", capturable=False)
def mix_impl(x, y, tactics, outputs, tactic, stream):
    check_tactic(tactic, tactics)
    work(mix, (x, y), outputs, stream)


@trtp.register(f"{SPACE}::accumulate")
def accumulate_desc(
    x: trtp.TensorDesc, y: trtp.TensorDesc, types: str, formats: str, tactics: list[int]
) -> trtp.TensorDesc:
    return x.aliased()


@trtp.autotune(f"{SPACE}::accumulate")
def accumulate_tune(
    x, y, types, formats, tactics, outputs
) -> list[trtp.AutoTuneCombination]:
    return combinations(types, formats, tactics)


@trtp.impl(f"{SPACE}::accumulate", capturable=False)
def accumulate_impl(x, y, tactics, outputs, tactic, stream):
    check_tactic(tactic, tactics)
    assert x.data_ptr == outputs[0].data_ptr
    work(accumulate, (x, y), outputs, stream)


@trtp.register(f"{SPACE}::swap")
def swap_desc(
    x: trtp.TensorDesc, y: trtp.TensorDesc, types: str, formats: str, tactics: list[int]
) -> tuple[trtp.TensorDesc, trtp.TensorDesc]:
    return y.aliased(), x.aliased()


@trtp.autotune(f"{SPACE}::swap")
def swap_tune(x, y, types, formats, tactics, outputs) -> list[trtp.AutoTuneCombination]:
    return combinations(types, formats, tactics)


@trtp.impl(f"{SPACE}::swap", capturable=False)
def swap_impl(x, y, tactics, outputs, tactic, stream):
    check_tactic(tactic, tactics)
    assert x.data_ptr == outputs[1].data_ptr
    assert y.data_ptr == outputs[0].data_ptr
    assert x.data_ptr != y.data_ptr or x.numel() == 0
    work(swap, (x, y), outputs, stream)


@trtp.register(f"{SPACE}::widen")
def widen_desc(
    x: trtp.TensorDesc, more: int, types: str, formats: str, tactics: list[int]
) -> trtp.TensorDesc:
    y = x.like()
    y.shape_expr[1] = x.shape_expr[1] + more
    return y


@trtp.autotune(f"{SPACE}::widen")
def widen_tune(x, types, formats, tactics, outputs) -> list[trtp.AutoTuneCombination]:
    return combinations(types, formats, tactics)


@trtp.impl(f"{SPACE}::widen", capturable=False)
def widen_impl(x, more, tactics, outputs, tactic, stream):
    check_tactic(tactic, tactics)
    work(widen, (x,), outputs, stream, more)


@trtp.register(f"{SPACE}::fold")
def fold_desc(
    x: trtp.TensorDesc, types: str, formats: str, tactics: list[int]
) -> trtp.TensorDesc:
    y = x.like()
    y.shape_expr[1] = trtp.cdiv(x.shape_expr[1], 2)
    return y


@trtp.autotune(f"{SPACE}::fold")
def fold_tune(x, types, formats, tactics, outputs) -> list[trtp.AutoTuneCombination]:
    return combinations(types, formats, tactics)


@trtp.impl(f"{SPACE}::fold", capturable=False)
def fold_impl(x, tactics, outputs, tactic, stream):
    check_tactic(tactic, tactics)
    work(fold, (x,), outputs, stream)


@trtp.register(f"{SPACE}::keep")
def keep_desc(x: trtp.TensorDesc) -> tuple[trtp.TensorDesc, trtp.TensorDesc]:
    rows = x.shape_expr[0]
    count = trtp.size_tensor(opt=trtp.cdiv(rows, 2), upper_bound=rows)
    y = x.like()
    y.shape_expr[0] = count.expr()
    return y, count


@trtp.impl(f"{SPACE}::keep", capturable=False)
def keep_impl(x, outputs, stream):
    work(keep, (x,), outputs, stream)


@trtp.register(f"{SPACE}::spread")
def spread_desc(x: trtp.TensorDesc, times: trtp.ShapeInput) -> trtp.TensorDesc:
    y = x.like()
    for axis in range(x.ndim):
        y.shape_expr[axis] *= times[axis]
    return y


@trtp.impl(f"{SPACE}::spread", capturable=False)
def spread_impl(x, times, outputs, stream):
    work(spread, (x, times), outputs, stream)


# A kernel that is launched from Python and recorded into graphs; any format will do.

KERNEL = """
extern "C" __global__ void affine(const float* x, int n, float a, float b, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + b;
}
"""


@functools.cache
def kernel() -> Any:
    from tests.gpu import cuda_driver

    return cuda_driver.Function(KERNEL, "affine")


@trtp.register(f"{SPACE}::recorded")
def recorded_desc(x: trtp.TensorDesc, a: float, b: float, formats: str) -> trtp.TensorDesc:
    return x.like()


@trtp.autotune(f"{SPACE}::recorded")
def recorded_tune(x, formats, outputs) -> list[trtp.AutoTuneCombination]:
    return combinations("FP32, FP32", formats, [])


@trtp.impl(f"{SPACE}::recorded", device="cpu")
def recorded_impl(x, a, b, outputs, stream):
    work(affine, (x,), outputs, stream, a, b)


@trtp.impl(f"{SPACE}::recorded", device="cuda", capturable=True)
def recorded_impl_cuda(x, a, b, outputs, stream):
    count = int(np.prod(padded(tuple(x.shape), x.format.name)))
    if count > 0:
        kernel()(
            -(-count // 64), 64, stream, ctypes.c_void_p(x.data_ptr), ctypes.c_int(count),
            ctypes.c_float(a), ctypes.c_float(b), ctypes.c_void_p(outputs[0].data_ptr),
        )  # fmt: skip


# The same kernel, made ahead of time.


@trtp.register(f"{SPACE}::ahead")
def ahead_desc(x: trtp.TensorDesc, a: float, b: float, formats: str) -> trtp.TensorDesc:
    return x.like()


@trtp.autotune(f"{SPACE}::ahead")
def ahead_tune(x, formats, outputs) -> list[trtp.AutoTuneCombination]:
    return combinations("FP32, FP32", formats, [])


@trtp.impl(f"{SPACE}::ahead", device="cpu")
def ahead_impl(x, a, b, outputs, stream):
    work(affine, (x,), outputs, stream, a, b)


@trtp.aot_impl(f"{SPACE}::ahead")
def ahead_kernel(x, a, b, outputs):
    from tests.gpu import cuda_driver

    source = f"""
extern "C" __global__ void ahead(const float* x, int n, float* y) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = {float(a)}f * x[i] + {float(b)}f;
}}
"""
    n, *rest = [x.shape_expr[i] for i in range(x.ndim)]
    block = FORMATS[x.format.name][0]
    if block > 1:
        rest[0] = trtp.cdiv(rest[0], block) * block
    for extent in rest:
        n = n * extent
    launch = trtp.KernelLaunchParams(grid_x=trtp.cdiv(n, 64), block_x=64)
    code = cuda_driver.compile_code(source)
    return trtp.Kernel("ahead", code, launch, [x, n, outputs[0]])
