"""A decoder's step on a GPU: how near it comes to the time of reading its weights and its
cache once, and where the rest goes."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import rabbet as trt
from rabbet import parallel

from .decoder import Drawn, Network, Shape, Torch, Weights, names
from .gpu_bounds import BANDWIDTH
from .options import Options
from .report import Section

SIZES = {
    "1b": Shape(),
    "8b": Shape(layers=8, hidden=4096, ffn=14336),
    "tiny": Shape(layers=2, hidden=256, heads=8, key_heads=2, ffn=512, vocabulary=1000),
}
CASES = (
    "1b/fp16/1/1024", "1b/int4/1/1024", "1b/fp8/1/1024", "1b/fp16/1/8192", "8b/fp16/1/1024",
    "1b/fp16/8/1024", "1b/int4/8/1024", "1b/fp16/8/8192",
)  # fmt: skip
BOUND = 3e-2
"""Largest difference of the logits from torch's, over their largest value."""


def shape_of(text: str) -> Shape:
    """Of "SIZE/WEIGHTS/BATCH/POSITIONS"."""
    size, weights, batch, room = text.split("/")
    return replace(SIZES[size], weights=weights, batch=int(batch), room=int(room))


class Step:
    """A plan of a decoder's step, or of a rank's part of it (`rank`, `communicator`), its
    tensors on the device."""

    def __init__(
        self, shape: Shape, drawn: Drawn, torch: Any, cache: Path, level: int,
        rank: int = 0, communicator: Any = None,
    ) -> None:  # fmt: skip
        self.shape, self.torch, self.communicator = shape, torch, communicator
        self.logger = logger = trt.Logger(trt.Logger.ERROR)
        builder = trt.Builder(logger)
        flag = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
        network = builder.create_network(flag)
        Network(network, drawn).make()
        self.report = ""
        if communicator is not None:
            split = parallel.tensor(network, communicator.ranks)
            network, self.report = split.network(rank), str(split)
        config = builder.create_builder_config()
        self.device = f"cuda:{torch.cuda.current_device()}"
        config.device = self.device
        config.builder_optimization_level = level
        config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
        known = cache.read_bytes() if cache.exists() else b""
        timings = config.create_timing_cache(known)
        config.set_timing_cache(timings, False)
        begin = time.monotonic()
        plan = builder.build_serialized_network(network, config)
        if plan is None:
            raise RuntimeError("the decoder was not built")
        self.seconds = time.monotonic() - begin
        cache.write_bytes(timings.serialize())
        self.load(plan)
        self.plan = plan
        inspector = self.engine.create_engine_inspector()
        text = inspector.get_engine_information(trt.LayerInformationFormat.JSON)
        self.layers = json.loads(text)["Layers"]

    def load(self, plan: Any) -> None:
        runtime = trt.Runtime(self.logger)
        runtime.device = self.device
        self.engine = runtime.deserialize_cuda_engine(plan)
        self._bind()

    def _caches(self) -> dict[str, Any]:
        """The same numbers whatever part a rank has of them."""
        torch, s = self.torch, self.shape
        generator = torch.Generator("cuda").manual_seed(2)
        found = {}
        for name in names(s):
            whole = torch.randn(
                s.cache_shape(), generator=generator, device="cuda"
            ).half()
            own = self.engine.get_tensor_shape(name)[1]
            rank = self.communicator.rank if self.communicator else 0
            first = rank * own if own < s.key_heads else 0
            found[name] = whole[:, first : first + own].contiguous()
        return found

    def _bind(self) -> None:
        torch, s = self.torch, self.shape
        self.context = self.engine.create_execution_context()
        self.context.graphs = True
        if self.communicator is not None:
            self.context.set_communicator(self.communicator.capsule)
        self.tensors = self._caches()
        start = torch.full((s.batch,), s.room - s.tokens, device="cuda")
        if s.batch > 1 and s.tokens == 1:
            start[1::2] -= 3
        token = torch.arange(s.batch * s.tokens, device="cuda").view(s.batch, s.tokens)
        token %= s.vocabulary
        logits = torch.empty(
            s.batch, 1, s.vocabulary, device="cuda", dtype=torch.float16
        )
        self.tensors |= {"token": token, "start": start, "logits": logits}
        for name, tensor in self.tensors.items():
            self.context.set_tensor_address(name, tensor.data_ptr())
            if name not in ("token", "start", "logits"):
                self.context.set_tensor_address(f"{name}.out", tensor.data_ptr())
        self.stream = torch.cuda.Stream()
        self.stream.wait_stream(torch.cuda.current_stream())

    def run(self) -> None:
        if not self.context.execute_async_v3(self.stream.cuda_stream):
            raise RuntimeError("the decoder's step failed")

    def logits(self) -> Any:
        """Of one run, with all caches as they were before it."""
        self.run()
        self.stream.synchronize()
        return self.tensors["logits"].float()


def microseconds(
    torch: Any, stream: Any, body: Callable[[], None], seconds: float
) -> float:
    """Of one call, the median of rounds of 10."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    for _ in range(5):
        body()
    stream.synchronize()
    found, end = [], time.monotonic() + seconds
    while len(found) < 3 or time.monotonic() < end:
        events[0].record(stream)
        for _ in range(10):
            body()
        events[1].record(stream)
        events[1].synchronize()
        found.append(events[0].elapsed_time(events[1]) * 100)
    return sorted(found)[len(found) // 2]


# ---- Where the time goes ----


def kernels(torch: Any, step: Step, count: int = 5) -> list[tuple[str, float, float]]:
    """(name, start, end) in us of each kernel of a replay, medians of some replays."""
    profiler = torch.profiler
    with profiler.profile(activities=[profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(count):
            step.run()
        step.stream.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "trace.json")
        profile.export_chrome_trace(str(file))
        events = json.loads(file.read_text())["traceEvents"]
    wanted = ("kernel", "gpu_memcpy", "gpu_memset")
    found = sorted(
        (e["ts"], e["dur"], e["name"]) for e in events if e.get("cat") in wanted
    )
    each = len(found) // count
    if each == 0 or len(found) % count:
        return []
    result = []
    for i in range(each):
        own = [found[k * each + i] for k in range(1, count)]
        begin = [found[k * each][0] for k in range(1, count)]
        starts = sorted(a[0] - b for a, b in zip(own, begin, strict=True))
        ends = sorted(a[0] + a[1] - b for a, b in zip(own, begin, strict=True))
        middle = len(own) // 2
        result.append((own[0][2].split("(")[0], starts[middle], ends[middle]))
    return result


def shares(
    found: list[tuple[str, float, float]],
) -> dict[str, tuple[int, float, float]]:
    """Of each kernel: launches, us by which it moves the end on, us it runs. Kernels
    that overlap move the end on less than they run."""
    last, result = 0.0, {}
    for name, start, end in sorted(found, key=lambda k: k[2]):
        count, moved, spent = result.get(name, (0, 0.0, 0.0))
        result[name] = (count + 1, moved + max(end - last, 0), spent + end - start)
        last = max(last, end)
    return result


def told(layer: dict[str, Any]) -> str:
    """A step of a plan in few words."""
    shapes = [t["Dimensions"] for t in layer["Inputs"]] + [
        layer["Outputs"][0]["Dimensions"]
    ]
    parts = [part["Operator"] for part in layer["Layers"]]
    text = " ".join("x".join(map(str, dims)) for dims in shapes)
    tactic = layer.get("Tactic") or layer.get("TacticName") or ""
    return f"{layer['Kernel']} [{tactic}] {layer.get('TimeUs')} us: {'+'.join(parts)}: {text}"


# ---- The subject ----


def torch_step(
    torch: Any, source: Weights, drawn: Drawn, step: Step
) -> tuple[Any, Any, Any]:
    """(logits, graph, stream) of torch's eager kernels."""
    model = Torch(source, drawn)
    given = step.tensors
    # Copies: the graph updates them.
    caches = [given[name].clone() for name in names(step.shape)]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.no_grad(), torch.cuda.stream(stream):
        for _ in range(2):
            logits = model.step(given["token"], given["start"], caches).float()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            model.step(given["token"], given["start"], caches)
    stream.synchronize()
    return logits, graph, stream


def measure(
    text: str, options: Options, cache: Path, level: int = 3, peers: bool = True
) -> Any:
    """A row of the table, and what a person may want to see of the plan."""
    import torch

    shape = shape_of(text)
    source = Weights(shape, torch)
    drawn = Drawn.of(shape, source)
    step = Step(shape, drawn, torch, cache, level)
    del step.plan
    found = step.logits()
    off, rival = None, None
    if peers:
        expected, graph, stream = torch_step(torch, source, drawn, step)
        off = float((found - expected).abs().max() / expected.abs().max())
        with torch.cuda.stream(stream):
            rival = microseconds(torch, stream, graph.replay, options.seconds)
        del graph
    us = microseconds(torch, step.stream, step.run, options.seconds)
    least = (shape.weight_bytes() + shape.cache_bytes()) / BANDWIDTH * 1e6
    return {
        "case": text, "us": us, "limit_us": least, "share": least / us, "torch_us": rival,
        "off": off, "build_s": step.seconds, "weights": shape.weight_bytes(),
        "cache": shape.cache_bytes(), "layers": step.layers, "kernels": kernels(torch, step),
    }  # fmt: skip


def run(options: Options) -> list[Section]:
    """The step by weights, batch and positions; then the kernels of each."""
    columns = ["model", "weights", "batch", "positions", "MB of weights", "of the cache",
               "us", "us at bandwidth", "share", "torch in a graph, us", "launches",
               "build, s"]  # fmt: skip
    steps = Section("GPU: a decoder's step", columns)
    steps.note(
        "share: reading weights and cache once at 4.28 TB/s, over the time of a step whose "
        "graph is replayed; 1b: 16 layers of 2048, 8b: 8 layers of 4096; torch computes in "
        "FP16 whatever the weights are"
    )
    where = Section(
        "GPU: kernels of a decoder's step",
        [
            "case",
            "kernel",
            "launches",
            "us by which they move the end on",
            "us that they run",
        ],
    )
    wanted = options.models or (("tiny/fp16/1/64",) if options.quick else CASES)
    cache = options.scratch / "decoder.timing"
    for text in wanted:
        row = measure(text, options, cache)
        if row["off"] is not None and not row["off"] <= BOUND:
            raise RuntimeError(f"{text}: logits are off torch's by {row['off']:.2g}")
        number = "-" if row["torch_us"] is None else f"{row['torch_us']:.0f}"
        steps.rows.append(
            [*text.split("/"), f"{row['weights'] / 1e6:.0f}", f"{row['cache'] / 1e6:.0f}",
             f"{row['us']:.0f}", f"{row['limit_us']:.0f}", f"{row['share']:.0%}", number,
             str(len(row["kernels"])), f"{row['build_s']:.1f}"]
        )  # fmt: skip
        steps.data.append(row)
        print("  " + " | ".join(steps.rows[-1]), flush=True)
        totals = shares(row["kernels"])
        for name, (count, moved, spent) in sorted(
            totals.items(), key=lambda i: -i[1][1]
        ):
            where.rows.append([text, name, str(count), f"{moved:.0f}", f"{spent:.0f}"])
    return [steps, where]
