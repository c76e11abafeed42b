"""Layers that move elements on a GPU, and pooling: how near they come to a copy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import rabbet as trt
import rabbet.plugin as trtp

from .options import Options, installed
from .report import Section

TYPES = {"fp32": trt.float32, "fp16": trt.float16}
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """A layer. indices: of the second input, below the number; or None. last: the
    channels of all tensors come last in memory."""

    name: str
    shapes: tuple[Shape, ...]
    add: Callable[[Any, list[Any]], Any]  # network, tensors -> layer
    expected: Callable[..., Any]  # torch tensors -> result
    indices: tuple[Shape, int] | None = None
    last: bool = False


def _pad(count: int, mode: str) -> Callable[[Any, list[Any]], Any]:
    def add(network: Any, tensors: list[Any]) -> Any:
        n, c, h, w = tensors[0].shape
        size = (n, c, h + 2 * count, w + 2 * count)
        layer = network.add_slice(tensors[0], (0, 0, -count, -count), size, (1, 1, 1, 1))
        layer.mode = getattr(trt.SampleMode, mode)
        return layer

    return add


@cache
def _load_ready_made() -> None:
    examples = Path(__file__).resolve().parents[1] / "examples"
    trt.load_plugins(examples / "circular_padding" / "circ_pad_aot_nvrtc.py")


def _ready_made(network: Any, tensors: list[Any]) -> Any:
    """The example's kernel, which the plan keeps."""
    _load_ready_made()
    operator = trtp.op.example.circ_pad_plugin(tensors[0], pad=3)
    return network.add_plugin(operator, aot=True)


def _transpose(*axes: int) -> Callable[[Any, list[Any]], Any]:
    def add(network: Any, tensors: list[Any]) -> Any:
        layer = network.add_shuffle(tensors[0])
        layer.first_transpose = axes
        return layer

    return add


def _concatenate(axis: int) -> Callable[[Any, list[Any]], Any]:
    def add(network: Any, tensors: list[Any]) -> Any:
        layer = network.add_concatenation(tensors)
        layer.axis = axis
        return layer

    return add


def _pool(kind: str, size: int, stride: int, pad: int) -> Callable[..., Any]:
    def add(network: Any, tensors: list[Any]) -> Any:
        pooling = getattr(trt.PoolingType, kind)
        layer = network.add_pooling_nd(tensors[0], pooling, (size, size))
        layer.stride_nd, layer.padding_nd = (stride, stride), (pad, pad)
        return layer

    return add


def _slice(start: Shape, size: Shape, stride: Shape) -> Callable[..., Any]:
    return lambda network, tensors: network.add_slice(tensors[0], start, size, stride)


def cases(batch: int = 32) -> list[Case]:
    """With a batch of 32, all of some hundred megabytes: caches do not help."""
    from torch.nn import functional as F

    n = batch

    def padded(mode: str) -> Callable[..., Any]:
        return lambda x: F.pad(x, (3, 3, 3, 3), mode=mode)

    image, rows = (n, 64, 512, 512), (n * 256, 8192)
    return [
        Case("pad 3, circular, kernel made ahead of time", (image,), _ready_made,
             padded("circular")),
        Case("pad 3, circular", (image,), _pad(3, "WRAP"), padded("circular")),
        Case("pad 3, zeros", (image,), _pad(3, "FILL"), padded("constant")),
        Case("pad 3, reflect", (image,), _pad(3, "REFLECT"), padded("reflect")),
        Case("every second column", (rows,), _slice((0, 0), (n * 256, 4096), (1, 2)),
             lambda x: x[:, ::2].contiguous()),
        Case("transpose a matrix", (rows,), _transpose(1, 0),
             lambda x: x.t().contiguous()),
        Case("NCHW to NHWC", ((n, 64, 256, 256),), _transpose(0, 2, 3, 1),
             lambda x: x.permute(0, 2, 3, 1).contiguous()),
        Case("NHWC to NCHW, 3 channels", ((n * 8, 256, 256, 3),), _transpose(0, 3, 1, 2),
             lambda x: x.permute(0, 3, 1, 2).contiguous()),
        Case("heads of attention", ((n * 4, 1024, 16, 64),), _transpose(0, 2, 1, 3),
             lambda x: x.transpose(1, 2).contiguous()),
        Case("concatenate channels", ((n, 48, 128, 128), (n, 80, 128, 128)),
             _concatenate(1), lambda x, y: _torch().cat([x, y], 1)),
        Case("concatenate odd rows", ((n * 1024, 1001), (n * 1024, 77)),
             _concatenate(1), lambda x, y: _torch().cat([x, y], 1)),
        Case("gather rows of 768", ((50000, 768),),
             lambda network, t: network.add_gather(t[0], t[1], 0),
             lambda x, i: x[i.long()], ((n * 4096,), 50000)),
        Case("max pooling 3, stride 2", ((n, 64, 224, 224),), _pool("MAX", 3, 2, 1),
             lambda x: F.max_pool2d(x, 3, 2, 1)),
        Case("average pooling 2", ((n, 64, 224, 224),), _pool("AVERAGE", 2, 2, 0),
             lambda x: F.avg_pool2d(x, 2)),
        Case("max pooling 3, stride 2, HWC", ((n, 64, 224, 224),),
             _pool("MAX", 3, 2, 1), lambda x: F.max_pool2d(x, 3, 2, 1), last=True),
        Case("average pooling 2, HWC", ((n, 64, 224, 224),),
             _pool("AVERAGE", 2, 2, 0), lambda x: F.avg_pool2d(x, 2), last=True),
    ]  # fmt: skip


def _torch() -> Any:
    import torch

    return torch


class Runner:
    """A case as a plan of one layer, with tensors bound."""

    def __init__(self, case: Case, precision: str, device: str = "cuda") -> None:
        torch = _torch()
        self.case = case
        dtype = torch.float16 if precision == "fp16" else torch.float32
        generator = torch.Generator(device).manual_seed(1)
        self.inputs = [
            torch.randn(shape, generator=generator, device=device).to(dtype)
            for shape in case.shapes
        ]
        order = torch.channels_last if case.last else torch.contiguous_format
        self.inputs = [x.contiguous(memory_format=order) for x in self.inputs]
        builder = trt.Builder()
        network = builder.create_network()
        tensors = [
            network.add_input(f"x{i}", TYPES[precision], shape)
            for i, shape in enumerate(case.shapes)
        ]
        if case.indices:
            shape, below = case.indices
            self.inputs.append(
                torch.randint(0, below, shape, generator=generator, device=device,
                              dtype=torch.int32)
            )  # fmt: skip
            tensors.append(network.add_input("indices", trt.int32, shape))
        output = case.add(network, tensors).get_output(0)
        output.name = "y"
        network.mark_output(output)
        if case.last:
            for tensor in (*tensors, output):
                tensor.allowed_formats = 1 << int(trt.TensorFormat.HWC)
        config = builder.create_builder_config()
        config.device = device
        plan = builder.build_serialized_network(network, config)
        self.engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(plan)
        self.context = self.engine.create_execution_context()
        shape = tuple(self.context.get_tensor_shape("y"))
        self.output = torch.empty(shape, dtype=dtype, device=device, memory_format=order)
        names = [*(t.name for t in tensors), "y"]
        for name, tensor in zip(names, [*self.inputs, self.output], strict=True):
            self.context.set_tensor_address(name, tensor.data_ptr())

    def enqueue(self, stream: int = 0) -> None:
        self.context.execute_async_v3(stream)

    def agrees(self) -> bool:
        """Whether the output equals torch's. The run must have ended."""
        expected = self.case.expected(*self.inputs)
        bound = 1e-2 if "average" in self.case.name else 0.0
        return bool(_torch().allclose(self.output, expected, rtol=bound, atol=bound))

    def bytes(self) -> int:
        """Bytes that must be read and written, in whole sectors, the unit of memory
        accesses: for every second column these are all bytes."""
        size = self.output.element_size()
        read = sum(t.numel() * t.element_size() for t in self.inputs)
        if self.case.indices:
            read = self.output.numel() * size
        return read + self.output.numel() * size


class TritonRunner(Runner):
    """A circular padding by 3, written in the manner of Triton's tutorials."""

    def __init__(self, case: Case, precision: str, device: str = "cuda") -> None:
        torch = _torch()
        self.case = case
        dtype = torch.float16 if precision == "fp16" else torch.float32
        self.inputs = [torch.randn(case.shapes[0], device=device).to(dtype)]
        n, c, h, w = case.shapes[0]
        self.output = torch.empty((n, c, h + 6, w + 6), dtype=dtype, device=device)

    def enqueue(self, stream: int = 0) -> None:
        from .plugins.triton_kernels import pad_circular

        torch = _torch()
        (x,), y, block = self.inputs, self.output, 1024
        with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
            pad_circular[(-(-y.numel() // block),)](
                x, x.shape[2], x.shape[3], 3, y, y.numel(), BLOCK=block
            )


def _seconds(enqueue: Callable[[int], None], options: Options) -> float:
    """Seconds of one call, measured by events: the median of the rounds."""
    torch = _torch()
    stream, times = torch.cuda.Stream(), []
    for _index in range(options.rounds + 1):
        begin, end = (torch.cuda.Event(enable_timing=True) for _side in range(2))
        begin.record(stream)
        for _call in range(10):
            enqueue(stream.cuda_stream)
        end.record(stream)
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e4)
    return float(sorted(times[1:])[options.rounds // 2])


def _copy_bandwidth(options: Options) -> float:
    """Bytes read and written in a second by a copy of a gigabyte."""
    torch = _torch()
    x = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    y = torch.empty_like(x)

    def copy(stream: int) -> None:
        with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
            y.copy_(x)

    return 2 * x.numel() / _seconds(copy, options)


def run(options: Options) -> Section:
    """Bandwidth of each case, and its share of a copy's."""
    section = Section(
        "GPU: layers that move elements",
        ["case", "type", "microseconds", "TB/s", "of a copy", "torch, microseconds"],
    )
    if not installed("torch") or not _torch().cuda.is_available():
        section.note("torch sees no GPU")
        return section
    copy = _copy_bandwidth(options)
    section.note(f"a copy of a gigabyte: {copy / 1e12:.2f} TB/s read and written")
    for case in cases():
        for precision in TYPES:
            _one(section, case, Runner(case, precision), precision, copy, options)
    if installed("triton"):
        case = Case("pad 3, circular, plain Triton", *_circular())
        for precision in TYPES:
            runner = TritonRunner(case, precision)
            _one(section, case, runner, precision, copy, options)
    return section


def _circular() -> tuple[Any, ...]:
    """Shapes, layer and result of the padding that others are compared with."""
    case = next(case for case in cases() if case.name == "pad 3, circular")
    return case.shapes, case.add, case.expected


def _one(
    section: Section,
    case: Case,
    runner: Runner,
    precision: str,
    copy: float,
    options: Options,
) -> None:
    runner.enqueue()
    _torch().cuda.synchronize()
    if not runner.agrees():
        section.note(f"{case.name}, {precision}: the result is wrong")
        return
    seconds = _seconds(runner.enqueue, options)
    peer = _seconds(lambda stream: _run_torch(runner, stream), options)
    share = runner.bytes() / seconds / copy
    section.rows.append(
        [case.name, precision, f"{seconds * 1e6:.1f}",
         f"{runner.bytes() / seconds / 1e12:.2f}", f"{share:.2f}",
         f"{peer * 1e6:.1f}"]
    )  # fmt: skip
    section.data.append(
        {"case": case.name, "type": precision, "seconds": seconds,
         "bytes": runner.bytes(), "copy_bandwidth": copy,
         "torch_seconds": peer}
    )  # fmt: skip
    print("  " + " | ".join(section.rows[-1]), flush=True)


def _run_torch(runner: Runner, stream: int) -> None:
    torch = _torch()
    with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
        runner.case.expected(*runner.inputs)
