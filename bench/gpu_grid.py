"""Classes of layers over a grid of shapes on a GPU, in FP16: each beside the larger of
bandwidth and compute limit, and beside the best of torch."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .gpu_bounds import BANDWIDTH, PEAK
from .options import Options, installed
from .peers import RABBET
from .report import Section
from .rounds import Rounds, Spread, best, ratios

if TYPE_CHECKING:
    from .grid_rows import Row

SPREAD = 160 << 20
"""Bytes of tensors that calls take in turns, so that no call finds its own in the L2 cache."""
SETS = 16
DOUBTFUL = (0.97, 0.6)
"""The ratio to torch above which, and the share of the limit below which, a row is built
again while nothing else has the GPU."""
BEGIN, READY = 0.55, 0.72
"""Shares of the limit after which no row is begun, and until which those begun must be ready."""
LAST_SECONDS = 6.0
"""Before the limit, in which no row is built again."""


@dataclass
class Told:
    """What a process found out of a row. times: microseconds of a call in each round."""

    limit_us: float = 0.0
    megabytes: float = 0.0
    gflop: float = 0.0
    error: float = float("nan")
    kernels: str = ""
    build_s: float = 0.0
    rounds: Rounds = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)

    def rival(self) -> str | None:
        return best(self.rounds, [name for name in self.rounds if name != RABBET])

    def ratio(self) -> Spread | None:
        rival = self.rival()
        if rival is None or not self.rounds.get(RABBET):
            return None
        return Spread.of(ratios(self.rounds, RABBET, rival))

    def us(self, name: str | None) -> float | None:
        own = self.rounds.get(name or "")
        return statistics.median(own) if own else None

    def share(self) -> float | None:
        own = self.us(RABBET)
        return self.limit_us / own if own else None

    def is_doubtful(self) -> bool:
        ratio, share = self.ratio(), self.share()
        too_slow = ratio is not None and ratio.median > DOUBTFUL[0]
        return too_slow or (share is not None and share < DOUBTFUL[1])


# ---- In a process of its own ----

_known: dict[int, _Layer] = {}


class _Layer:
    """A row with its tensors, torch's ways and Rabbet's plan, all ready to be timed."""

    def __init__(self, index: int, device: str) -> None:
        import torch

        from .grid_rows import rows

        self.torch, self.row, self.told = torch, rows()[index], Told()
        self.device, self.names = device, [f"x{i}" for i in range(len(self.row.shapes))]
        torch.backends.cudnn.benchmark = True
        generator = torch.Generator(device).manual_seed(index + 1)
        torch.manual_seed(0)
        with torch.device(device):
            self.module = self.row.make().half().eval().requires_grad_(False)
        first = self._drawn(generator)
        self.expected = self._reference(first)
        own = sum(t.numel() for t in [*first, *self.expected]) * 2
        weights = sum(p.numel() for p in self.module.parameters()) * 2
        self.told.megabytes = (own + weights) / 1e6
        at_compute = self.told.gflop * 1e9 / PEAK["fp16"]
        self.told.limit_us = max((own + weights) / BANDWIDTH, at_compute) * 1e6
        most = SETS if device != "cpu" else 1
        sets = max(1, min(most, -(-SPREAD // own)))
        self.inputs = [first, *(self._drawn(generator) for _ in range(sets - 1))]
        self.calls = max(1, min(most, int(3000 / self.told.limit_us)))
        self.replays: dict[str, Callable[[], None]] = {}

    def _drawn(self, generator: Any) -> list[Any]:
        return [
            self.torch.randn(shape, generator=generator, device=self.device).half()
            for shape in self.row.shapes
        ]

    def _reference(self, inputs: list[Any]) -> list[Any]:
        """The results in FP32; counts the operations."""
        import copy

        from torch.utils.flop_counter import FlopCounterMode

        torch = self.torch
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        with FlopCounterMode(display=False) as counted:
            found = copy.deepcopy(self.module).float()(*(x.float() for x in inputs))
        self.told.gflop = counted.get_total_flops() * self.row.part / 1e9
        if self.device != "cpu":
            torch.cuda.empty_cache()
        return self._flat(found)

    @staticmethod
    def _flat(found: Any) -> list[Any]:
        return list(found) if isinstance(found, tuple) else [found]

    def _error(self, found: list[Any]) -> float:
        """The largest difference over the largest value, of the first set of tensors."""
        each = [
            float((own.float() - e).abs().max() / e.abs().max())
            for own, e in zip(found, self.expected, strict=True)
        ]
        return max(each)

    # ---- torch ----

    def prepare_torch(self) -> None:
        for way in self.row.ways:
            try:
                with self._way(way) as call:
                    self._capture(way, call)
            except Exception as error:
                self.told.absent[way] = f"{way}: {type(error).__name__}: {str(error)[:120]}"

    @contextlib.contextmanager
    def _way(self, name: str) -> Iterator[Callable[..., Any]]:
        from torch._inductor import config
        from torch.nn.attention import SDPBackend, sdpa_kernel

        backends = {
            "flash": SDPBackend.FLASH_ATTENTION,
            "cudnn": SDPBackend.CUDNN_ATTENTION,
            "efficient": SDPBackend.EFFICIENT_ATTENTION,
        }
        if name in backends:
            with sdpa_kernel(backends[name]):
                yield self.module
        elif name == "compiled":
            self.torch._dynamo.reset()
            with config.patch(freezing=True):
                yield self.torch.compile(self.module, dynamic=False)
        else:
            yield self.module

    def _capture(self, name: str, call: Callable[..., Any]) -> None:
        """Calls of all sets in one graph; each set keeps results of its own."""
        found = self._flat(call(*self.inputs[0]))
        error = self._error(found)
        if not error <= max(self.row.bound, 1e-2):
            raise RuntimeError(f"it is off FP32 by {error:.2g}")
        kept: list[Any] = [None] * len(self.inputs)

        def body() -> None:
            for i in range(self.calls):
                place = i % len(self.inputs)
                kept[place] = call(*self.inputs[place])

        self.replays[name] = self._recorded(body)

    def _recorded(self, body: Callable[[], None]) -> Callable[[], None]:
        if self.device == "cpu":
            return body
        from .peers.torch_cuda import captured

        graph, _ = captured(body)
        return graph.replay  # type: ignore[no-any-return]

    # ---- Rabbet ----

    def prepare_rabbet(self) -> None:
        """Builds, binds each set, and checks the first one's results."""
        import rabbet as trt

        self.replays.pop(RABBET, None)
        begin = time.monotonic()
        program = self.torch.export.export(self.module, tuple(self.inputs[0]), strict=False)
        names = program.graph_signature.user_inputs
        self.compiled = trt.compile(program, device=self.device)
        self.told.build_s = time.monotonic() - begin
        engine = self.compiled.model.engine
        self.context = engine.create_execution_context()
        outputs = [
            name
            for name in map(engine.get_tensor_name, range(engine.num_io_tensors))
            if name not in names
        ]
        self.bound = [
            dict(zip([*names, *outputs], [*given, *self._empty(outputs)], strict=True))
            for given in self.inputs
        ]
        for i in range(len(self.bound)):
            self._execute(i)
        self._wait()
        self.told.error = self._error([self.bound[0][name] for name in outputs])
        text = engine.create_engine_inspector().get_engine_information(
            trt.LayerInformationFormat.JSON
        )
        self.told.kernels = _kernels(json.loads(text)["Layers"])
        if not self.told.error <= self.row.bound:
            self.told.absent[RABBET] = (
                f"rabbet is wrong: {self.told.error:.2g} off FP32, {self.row.bound:g} is allowed"
            )
            return

        def body() -> None:
            for i in range(self.calls):
                self._execute(i % len(self.bound))

        self.replays[RABBET] = self._recorded(body)

    def _empty(self, outputs: list[str]) -> list[Any]:
        torch = self.torch
        shapes = [tuple(self.context.get_tensor_shape(name)) for name in outputs]
        return [torch.empty(s, dtype=torch.float16, device=self.device) for s in shapes]

    def _execute(self, place: int) -> None:
        for name, tensor in self.bound[place].items():
            self.context.set_tensor_address(name, tensor.data_ptr())
        cuda = self.device != "cpu"
        stream = self.torch.cuda.current_stream().cuda_stream if cuda else 0
        if not self.context.execute_async_v3(stream):
            raise RuntimeError("the plan did not run")

    def _wait(self) -> None:
        if self.device != "cpu":
            self.torch.cuda.synchronize()

    # ---- Both ----

    def time(self, rounds: int, seconds: float) -> None:
        """All in turns, each first in turn; one round more is run before."""
        names = sorted(self.replays)
        counts = {name: self._count(self.replays[name], seconds) for name in names}
        found: Rounds = {name: [] for name in names}
        for number in range(rounds + 1):
            first = number % len(names) if names else 0
            for name in names[first:] + names[:first]:
                us = self._microseconds(self.replays[name], counts[name])
                if number:
                    found[name].append(us)
        self.told.rounds = found

    def _count(self, replay: Callable[[], None], seconds: float) -> int:
        once = self._microseconds(replay, 1) * self.calls / 1e6
        return max(1, min(50, int(seconds / once)))

    def _microseconds(self, replay: Callable[[], None], count: int) -> float:
        torch = self.torch
        if self.device == "cpu":
            begin = time.perf_counter()
            for _ in range(count):
                replay()
            return (time.perf_counter() - begin) * 1e6 / count / self.calls
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        events[0].record()
        for _ in range(count):
            replay()
        events[1].record()
        events[1].synchronize()
        return float(events[0].elapsed_time(events[1])) * 1e3 / count / self.calls


def _kernels(layers: Sequence[dict[str, Any]]) -> str:
    """The steps of a plan, alike ones counted."""
    each = [f"{one['Kernel']} {one.get('TacticName') or ''}".strip() for one in layers]
    return " + ".join(
        f"{name} {each.count(name)}x" if each.count(name) > 1 else name
        for name in dict.fromkeys(each)
    )


def _prepare(index: int, device: str) -> None:
    import torch

    with torch.no_grad():
        layer = _Layer(index, device)
        layer.prepare_torch()
        try:
            layer.prepare_rabbet()
        except Exception as error:
            layer.told.absent[RABBET] = f"rabbet: {type(error).__name__}: {str(error)[:200]}"
    _known[index] = layer


def _measure(index: int, rounds: int, seconds: float, again: bool) -> Told:
    import torch

    layer = _known[index]
    with torch.no_grad():
        if again:
            layer.prepare_rabbet()
        layer.time(rounds, seconds)
    return layer.told


# ---- In the parent ----


class Processes:
    """Processes of which each keeps the rows that it has prepared."""

    def __init__(self, count: int, device: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.device = device
        self.pools = [ProcessPoolExecutor(1, mp_context=context) for _ in range(count)]
        self.of: dict[int, ProcessPoolExecutor] = {}
        self.absent: dict[int, str] = {}

    def prepare(self, names: Mapping[int, str], begin_until: float, until: float) -> None:
        """Each process takes the next row while there is time to begin one."""
        left = deque(names)

        def fill(pool: ProcessPoolExecutor) -> None:
            while left and time.monotonic() < begin_until:
                index = left.popleft()
                begin = time.monotonic()
                try:
                    future = pool.submit(_prepare, index, self.device)
                    future.result(max(0.0, until - time.monotonic()))
                    self.of[index] = pool
                except TimeoutError:
                    self.absent[index] = "it was not ready in time"
                    self._end(pool)
                    return
                except Exception as error:
                    self.absent[index] = f"{type(error).__name__}: {str(error)[:200]}"
                spent = time.monotonic() - begin
                print(f"  ready in {spent:.1f} s: {names[index]}", flush=True)

        with ThreadPoolExecutor(len(self.pools)) as threads:
            wait([threads.submit(fill, pool) for pool in self.pools])
        for index in left:
            self.absent[index] = "no time was left"

    def measure(self, index: int, options: Options, again: bool, until: float) -> Told | str:
        """A row's figures, or why there are none."""
        if index in self.absent:
            return self.absent[index]
        arguments = (index, options.rounds, options.seconds, again)
        try:
            future: Future[Told] = self.of[index].submit(_measure, *arguments)
            return future.result(max(0.0, until - time.monotonic()))
        except TimeoutError:
            self._end(self.of[index])
            return "no time was left"
        except Exception as error:
            return f"{type(error).__name__}: {str(error)[:200]}"

    def _end(self, pool: ProcessPoolExecutor) -> None:
        for process in list((pool._processes or {}).values()):
            process.kill()
        pool.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        for pool in self.pools:
            self._end(pool)


COLUMNS = ["class", "shape", "MB", "GFLOP", "us at the limit", "rabbet, us", "share",
           "torch's best, us", "ratio", "error", "build, s", "kernels"]  # fmt: skip


def _cells(row: Row, told: Told | str) -> list[str]:
    if isinstance(told, str):
        return [row.kind, row.text, *["-"] * (len(COLUMNS) - 3), told]
    ratio, share, own = told.ratio(), told.share(), told.us(RABBET)
    rival = told.rival()
    return [
        row.kind, row.text, f"{told.megabytes:.1f}", f"{told.gflop:.1f}", f"{told.limit_us:.1f}",
        f"{own:.1f}" if own else "-",
        f"{share:.0%}" if share else "-",
        f"{told.us(rival):.1f} {rival}" if rival else "-",
        f"{ratio.median:.2f}" if ratio else "-",
        f"{told.error:.1g}", f"{told.build_s:.1f}",
        told.absent.get(RABBET, told.kernels),
    ]  # fmt: skip


def run(options: Options) -> list[Section]:
    """The table. Rows are prepared side by side, `jobs` at a time, then timed one by one;
    those that look slow are built again alone while time is left."""
    section = Section("GPU: classes of layers over a grid of shapes, FP16", COLUMNS)
    if not installed("torch"):
        section.note("there is no torch")
        return [section]
    import torch

    from .grid_rows import rows

    if not torch.cuda.is_available() and os.environ.get("RABBET_DEVICE") != "cpu":
        section.note("torch sees no GPU; RABBET_DEVICE=cpu rehearses the rows without one")
        return [section]
    device = os.environ.get("RABBET_DEVICE", "cuda")
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    wanted = {
        i: row for i, row in enumerate(rows())
        if options.models is None or any(m in row.name for m in options.models)
    }  # fmt: skip
    processes = Processes(options.jobs, device)
    try:
        told = _all(processes, wanted, options)
    finally:
        processes.close()
    for index in sorted(told, key=lambda i: wanted[i].kind):
        _note(section, wanted[index], told[index])
    section.note(
        f"a call's time in a graph of {SETS} calls at most, which take turns in up to "
        f"{SPREAD >> 20} MiB of tensors; the limit: the larger of tensors and weights once at "
        f"{BANDWIDTH / 1e12:.2f} TB/s and operations at {PEAK['fp16'] / 1e12:.0f} TFLOP/s; "
        "error: from FP32, over the largest value; ratios above 1: torch is quicker. torch: its "
        "attention by each backend, all else eager and compiled with frozen weights"
    )
    section.note(
        f"plans were built {options.jobs} at a time; those slower than {DOUBTFUL[0]} of torch's "
        f"time or below {DOUBTFUL[1]:.0%} of the limit again alone, as far as time went ('again')"
    )
    return [section, _by_class({wanted[i]: found for i, found in told.items()})]


def _by_class(told: Mapping[Row, Told | str]) -> Section:
    """Each class in a row, then all."""
    section = Section(
        "GPU: the classes of the grid",
        ["class", "rows", "at most 1.00", "geometric mean", "largest", "share of the limit"],
    )
    kinds: dict[str, list[tuple[float, float]]] = {}
    for row, found in told.items():
        if isinstance(found, str):
            continue
        ratio, share = found.ratio(), found.share()
        if ratio is not None and share is not None:
            for kind in (row.kind, "all"):
                kinds.setdefault(kind, []).append((ratio.median, share))
    for kind in sorted(kinds, key=lambda name: (name == "all", name)):
        ratios_, shares = zip(*kinds[kind], strict=True)
        section.rows.append(
            [kind, str(len(ratios_)), str(sum(r <= 1.005 for r in ratios_)),
             f"{statistics.geometric_mean(ratios_):.2f}", f"{max(ratios_):.2f}",
             f"{min(shares):.0%} to {max(shares):.0%}"]
        )  # fmt: skip
    return section


def _note(section: Section, row: Row, told: Told | str) -> None:
    section.rows.append(_cells(row, told))
    known = {"absent": told} if isinstance(told, str) else vars(told)
    section.data.append({"class": row.kind, "shape": row.text, **known})
    wrong = None if isinstance(told, str) else told.absent.get(RABBET)
    if wrong:
        section.note(f"{row.name}: {wrong}")


def _all(
    processes: Processes, wanted: Mapping[int, Row], options: Options
) -> dict[int, Told | str]:
    """Figures of all rows, printed as they come."""
    begin = time.monotonic()
    end = begin + options.limit
    names = {i: row.name for i, row in wanted.items()}
    processes.prepare(names, begin + options.limit * BEGIN, begin + options.limit * READY)
    print(f"  prepared: {time.monotonic() - begin:.0f} s", flush=True)
    told: dict[int, Told | str] = {}
    for i, row in wanted.items():
        told[i] = processes.measure(i, options, False, end)
        print("  " + " | ".join(_cells(row, told[i])), flush=True)
    doubtful = {
        i: found.ratio() for i, found in told.items()
        if isinstance(found, Told) and RABBET in found.rounds and found.is_doubtful()
    }  # fmt: skip
    for i in sorted(doubtful, key=lambda i: -(r.median if (r := doubtful[i]) else 0.0)):
        if time.monotonic() > end - LAST_SECONDS:
            break
        found = processes.measure(i, options, True, end)
        if isinstance(found, Told):
            found.kernels = f"{found.kernels} (again)"
            told[i] = found
        print("  again: " + " | ".join(_cells(wanted[i], found)), flush=True)
    return told
