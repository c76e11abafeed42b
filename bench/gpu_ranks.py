"""A decoder of 8B parameters split over GPUs by rabbet.parallel.tensor: a token's step and a
prompt on 1, 2 and 4 GPUs, beside the same split in torch, compiled and in a CUDA graph."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .decoder import Drawn, Part, Shape, Torch, Weights
from .gpu_decode import BOUND, SIZES, Step
from .options import Options
from .report import Section

CASES = {"token": (32, 1, 1024), "prompt": (8, 2048, 2048)}
"""Layers, tokens of a call, positions of the cache."""
VARIANTS = {"by NCCL": "RABBET_CUDA_DIRECT"}
"""Ways to do without a part of ours, and the variables that say so."""
CALLS = 10
SECONDS = 400.0
"""That the ranks of one number may take."""


@dataclass(frozen=True)
class Job:
    """Ranks that run together, on GPUs from `first` on."""

    ranks: int
    first: int
    folder: Path
    shape: Shape
    rounds: int
    cases: dict[str, tuple[int, int, int]]

    def result(self, rank: int) -> Path:
        return self.folder / f"{self.ranks}-{rank}"


def gpus() -> int:
    """Of this machine. Asked in another process: ranks are forked from this one, which
    CUDA does not survive."""
    code = "import torch; print(torch.cuda.device_count())"
    return int(subprocess.check_output([sys.executable, "-c", code], text=True))


def waves(count: int, job: Job) -> list[list[Job]]:
    """Jobs, those of one wave at the same time on GPUs of their own."""
    four = [[replace(job, ranks=4, first=0)]] if count >= 4 else []
    two = [replace(job, ranks=2, first=0)] if count >= 2 else []
    one = replace(job, ranks=1, first=2 if count >= 4 else 0)
    return [*four, [*two, one]] if count >= 4 else [[j] for j in (*two, one)]


# ---- A rank ----


def in_turns(
    torch: Any, bodies: dict[str, tuple[Any, Callable[[], None]]], rounds: int
) -> Any:
    """Microseconds of a call of each, (stream, body), a median of rounds. All ranks make
    equally many calls."""
    times: dict[str, list[float]] = {name: [] for name in bodies}
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for turn in range(rounds + 1):
        for name, (stream, body) in bodies.items():
            begin.record(stream)
            for _ in range(CALLS):
                body()
            end.record(stream)
            end.synchronize()
            if turn:
                times[name].append(begin.elapsed_time(end) * 1e3 / CALLS)
    return {name: sorted(found)[rounds // 2] for name, found in times.items()}


def exchanges(torch: Any, rank: int, ranks: int) -> Part:
    """How torch's ranks add and join tensors."""
    if ranks == 1:
        return Part()
    from torch.distributed import _functional_collectives as functional

    world = torch.distributed.group.WORLD
    return Part(
        rank, ranks,
        added=lambda x: functional.all_reduce(x, "sum", world),
        joined=lambda x: functional.all_gather_tensor(x[None].contiguous(), 0, world)
        .movedim(0, -2)
        .flatten(-2),
    )  # fmt: skip


def peer(torch: Any, source: Weights, drawn: Drawn, part: Part, step: Step) -> Any:
    """(logits, stream, replay) of torch: a layer is compiled once, all are in one graph."""
    model = Torch(source, drawn, "cuda", part)
    model.block = torch.compile(model.block)  # type: ignore[method-assign]
    given = step.tensors
    caches = [
        given[name].clone()
        for i in range(step.shape.layers)
        for name in (f"key{i}", f"value{i}")
    ]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.no_grad(), torch.cuda.stream(stream):
        for _ in range(3):
            logits = model.step(given["token"], given["start"], caches).float()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            model.step(given["token"], given["start"], caches)

    def replay() -> None:
        with torch.cuda.stream(stream):
            graph.replay()

    return logits, stream, replay


def varied(step: Step, variable: str) -> Step:
    """The same plan, loaded and joined with an environment variable set to 0."""
    other = Step.__new__(Step)
    other.__dict__.update(step.__dict__)
    os.environ[variable] = "0"
    other.load(step.plan)
    other.logits()
    del os.environ[variable]
    return other


def measure(
    job: Job, source: Weights, drawn: Drawn, rank: int, communicator: Any
) -> Any:
    """A row for each case."""
    import torch

    rows = {}
    for case, (layers, tokens, room) in job.cases.items():
        layers = min(layers, job.shape.layers)
        shape = replace(job.shape, layers=layers, tokens=tokens, room=room)
        if job.shape.hidden < 1024:
            shape = replace(shape, tokens=min(tokens, 64), room=64)
        own = replace(drawn, shape=shape, layers=drawn.layers[:layers])
        times = job.folder / f"{case}-{job.ranks}-{rank}.timing"
        begin = time.monotonic()
        step = Step(shape, own, torch, times, 3, rank, communicator)
        bodies = {"rabbet": (step.stream, step.run)}
        found = step.logits()
        if communicator is not None and tokens == 1:
            for name, variable in VARIANTS.items():
                other = varied(step, variable)
                bodies[name] = (other.stream, other.run)
        del step.plan
        built = time.monotonic() - begin
        print(
            f"  {job.ranks} ranks, {rank}, {case}: built in {built:.0f} s", flush=True
        )
        row = {"ranks": job.ranks, "case": case, "build_s": built, "report": step.report,
               "layers": step.layers, "off": None}  # fmt: skip
        try:
            part = exchanges(torch, rank, job.ranks)
            expected, stream, replay = peer(torch, source, own, part, step)
            row["off"] = float((found - expected).abs().max() / expected.abs().max())
            bodies["torch"] = (stream, replay)
        except Exception:
            row["peer_failed"] = traceback.format_exc()
            print(row["peer_failed"], flush=True)
        row["us"] = in_turns(torch, bodies, job.rounds)
        row["logits"] = found.cpu().numpy()
        rows[case] = row
        print(
            f"  {job.ranks} ranks, {rank}, {case}: {row['us']} off {row['off']}",
            flush=True,
        )
        del step, bodies
        torch.cuda.empty_cache()
    return rows


def rank_main(job: Job, source: Weights, drawn: Drawn, rank: int) -> None:
    """The process of a rank."""
    import torch
    from rabbet import parallel

    torch.cuda.set_device(job.first + rank)
    torch._dynamo.config.cache_size_limit = 64
    communicator = None
    if job.ranks > 1:
        method = f"file://{job.folder}/meeting-{job.ranks}"
        torch.distributed.init_process_group(
            "nccl", init_method=method, rank=rank, world_size=job.ranks,
            device_id=torch.device("cuda", job.first + rank),
        )  # fmt: skip
        communicator = parallel.communicator(rank, job.ranks, gpu=job.first + rank)
    rows = measure(job, source, drawn, rank, communicator)
    job.result(rank).write_bytes(pickle.dumps(rows))
    os._exit(0)  # ends without waiting for other ranks


# ---- The subject ----


def run_ranks(
    target: Callable[..., None], arguments: list[tuple[Any, ...]], seconds: float
) -> None:
    """Forks a process for each of the arguments; those that take longer are killed."""
    fork = multiprocessing.get_context("fork")
    started = [fork.Process(target=target, args=each) for each in arguments]
    for process in started:
        process.start()
    until = time.monotonic() + seconds
    for process in started:
        process.join(max(until - time.monotonic(), 0))
    for process in started:
        process.kill()


def table(rows: dict[str, dict[int, Any]]) -> Section:
    columns = ["call", "GPUs", "us", "of one GPU", *VARIANTS, "torch, us",
               "of one GPU", "rabbet / torch", "off torch's", "build, s"]  # fmt: skip
    section = Section("GPU: a decoder split over ranks", columns)
    section.note(
        "layers of 4096, 8 of 32 heads for keys, FP16; token: 32 layers, batch 1, 1024 "
        "positions in the cache; prompt: 8 layers, 2048 tokens. Median of rounds in turns on "
        "rank 0. by NCCL: all exchanges are. torch: the same split by functional all-reduces, "
        "each layer compiled, all in one CUDA graph"
    )
    for case, found in rows.items():
        single = found.get(1)
        for ranks, row in sorted(found.items()):
            us, torch_us = row["us"]["rabbet"], row["us"].get("torch")
            base = single["us"] if single else {}

            def share(
                name: str, us: float | None, base: dict[str, float] = base
            ) -> str:
                return f"{us / base[name]:.2f}" if us and name in base else "-"

            others = [
                f"{row['us'][n]:.0f}" if n in row["us"] else "-" for n in VARIANTS
            ]
            section.rows.append([
                case, str(ranks), f"{us:.0f}", share("rabbet", us),
                *others,
                f"{torch_us:.0f}" if torch_us else "-", share("torch", torch_us),
                f"{us / torch_us:.2f}" if torch_us else "-",
                "-" if row["off"] is None else f"{row['off']:.4f}", f"{row['build_s']:.0f}",
            ])  # fmt: skip
            section.data.append({k: v for k, v in row.items() if k != "logits"})
    return section


def run(options: Options) -> list[Section]:
    """Tables of times and of what differs from one GPU's logits."""
    import torch

    torch.set_num_threads(1)  # threads do not survive a fork
    shape = SIZES["tiny"] if options.quick else replace(SIZES["8b"], layers=32)
    begin = time.monotonic()
    source = Weights(shape, torch)
    drawn = Drawn.of(shape, source)
    print(f"  weights drawn in {time.monotonic() - begin:.0f} s", flush=True)
    cases = {case: CASES[case] for case in options.models or CASES}
    job = Job(1, 0, options.scratch, shape, 3 if options.quick else 7, cases)
    rows: dict[str, dict[int, Any]] = {case: {} for case in cases}
    logits: dict[str, dict[int, Any]] = {case: {} for case in cases}
    for number, wave in enumerate(waves(gpus(), job), 1):
        print(f"  wave {number}", flush=True)
        ranks = [(j, source, drawn, rank) for j in wave for rank in range(j.ranks)]
        run_ranks(rank_main, ranks, SECONDS)
        for each in wave:
            if not all(each.result(rank).exists() for rank in range(each.ranks)):
                print(f"  {each.ranks} ranks: no results", flush=True)
                continue
            for case, row in pickle.loads(each.result(0).read_bytes()).items():
                rows[case][each.ranks] = row
                logits[case][each.ranks] = row["logits"]
    section = table(rows)
    for case, found in logits.items():
        for ranks in sorted(found.keys() - {1}):
            if 1 not in found:
                continue
            whole = found[1]
            off = float(abs(found[ranks] - whole).max() / abs(whole).max())
            section.note(
                f"{case}: logits of {ranks} GPUs are off one GPU's by {off:.2g}"
            )
            if not off <= BOUND:
                raise RuntimeError(f"{case}, {ranks} ranks: off one GPU's by {off:.2g}")
    return [section]
