"""All-reduces between GPUs alone, with a small kernel between two of them as in a decoder:
in memory that all ranks map, by NCCL, and by torch's symmetric memory."""

from __future__ import annotations

import os
import pickle
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import rabbet as trt

from .gpu_ranks import VARIANTS, gpus, in_turns, run_ranks
from .options import Options
from .report import Section

SIZES = tuple(1 << k for k in range(10, 21))
"""Bytes that a rank gives."""
CHAIN = 40
"""Exchanges of a call."""
SECONDS = 150.0
"""That the ranks of one number may take."""
Contestant = tuple[Any, Callable[[], None]]
"""A stream and what is enqueued there."""


def build(ranks: int, device: str) -> Any:
    """A plan of CHAIN times a sum over all ranks, made a mean by a kernel of its own."""
    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)
    network = builder.create_network(
        1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    )
    config = builder.create_builder_config()
    config.device = device
    y = network.add_input("x", trt.DataType.HALF, (-1,))
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (SIZES[0] // 2,), (4096,), (SIZES[-1] // 2,))
    config.add_optimization_profile(profile)
    share = network.add_constant((1,), np.array([1 / ranks], np.float16)).get_output(0)
    for _ in range(CHAIN):
        layer = network.add_dist_collective(
            y, trt.CollectiveOperation.ALL_REDUCE, trt.ReduceOperation.SUM, -1
        )
        layer.num_ranks = ranks
        product = trt.ElementWiseOperation.PROD
        y = network.add_elementwise(layer.get_output(0), share, product).get_output(0)
    y.name = "y"
    network.mark_output(y)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise RuntimeError("the exchanges were not built")
    return plan


class Chain:
    """The plan in a context of its own, its tensors on the device."""

    def __init__(self, plan: Any, device: str, communicator: Any, torch: Any) -> None:
        runtime = trt.Runtime(trt.Logger(trt.Logger.ERROR))
        runtime.device = device
        self.engine = runtime.deserialize_cuda_engine(plan)
        self.context = self.engine.create_execution_context()
        self.context.graphs = True
        self.context.set_communicator(communicator.capsule)
        self.stream = torch.cuda.Stream()
        # Ranks join now, while variables may forbid direct exchanges.
        self.take(torch.zeros(SIZES[0] // 2, device="cuda").half())
        torch.cuda.synchronize()
        self.run()
        self.stream.synchronize()

    def take(self, x: Any) -> Any:
        """Makes `x`, whose writes the caller awaits, the input; the output."""
        self.tensors = {"x": x, "y": x.clone()}
        self.context.set_input_shape("x", tuple(x.shape))
        for name, tensor in self.tensors.items():
            self.context.set_tensor_address(name, tensor.data_ptr())
        return self.tensors["y"]

    def run(self) -> None:
        if not self.context.execute_async_v3(self.stream.cuda_stream):
            raise RuntimeError("the exchanges failed")


# ---- torch ----


def by_nccl(torch: Any, x: Any) -> Callable[[], Any]:
    y = x.clone()

    def step() -> Any:
        torch.distributed.all_reduce(y)
        return y.mul_(1 / torch.distributed.get_world_size())

    return step


def symmetric(torch: Any, x: Any) -> Any:
    """A copy in memory that all ranks map."""
    from torch.distributed import _symmetric_memory as memory

    y = memory.empty(x.shape, dtype=x.dtype, device=x.device)
    memory.rendezvous(y, torch.distributed.group.WORLD)
    return y.copy_(x)


def by_one_shot(torch: Any, x: Any) -> Callable[[], Any]:
    y, group = symmetric(torch, x), torch.distributed.group.WORLD.group_name
    share = 1 / torch.distributed.get_world_size()

    def step() -> Any:
        total = torch.ops.symm_mem.one_shot_all_reduce(y, "sum", group)
        return torch.mul(total, share, out=y)

    return step


def by_two_shot(torch: Any, x: Any) -> Callable[[], Any]:
    y, group = symmetric(torch, x), torch.distributed.group.WORLD.group_name
    share = 1 / torch.distributed.get_world_size()

    def step() -> Any:
        torch.ops.symm_mem.two_shot_all_reduce_(y, "sum", group)
        return y.mul_(share)

    return step


def alone(torch: Any, x: Any) -> Callable[[], Any]:
    """The kernel between two exchanges."""
    y = x.clone()
    return lambda: y.mul_(1.0)


PEERS = {
    "torch, NCCL": by_nccl,
    "torch, one shot": by_one_shot,
    "torch, two shots": by_two_shot,
    "torch, no exchange": alone,
}


def captured(torch: Any, step: Callable[[], Any]) -> Contestant:
    """CHAIN steps in a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            for _ in range(CHAIN):
                step()

    def replay() -> None:
        with torch.cuda.stream(stream):
            graph.replay()

    return stream, replay


# ---- A rank ----


@dataclass(frozen=True)
class Job:
    ranks: int
    folder: Path
    sizes: tuple[int, ...]
    rounds: int

    def result(self, rank: int) -> Path:
        return self.folder / f"exchange-{self.ranks}-{rank}"


def contestants(
    torch: Any, chains: dict[str, Chain], x: Any, failed: set[str]
) -> dict[str, Contestant]:
    """Ready to be timed. Each rank has the same: what fails does in all."""
    bodies: dict[str, Contestant] = {}
    expected = x.float()
    torch.distributed.all_reduce(expected)
    expected /= torch.distributed.get_world_size()
    for name, chain in chains.items():
        y = chain.take(x)
        torch.cuda.synchronize()
        for _ in range(4):  # a graph is made on the way
            chain.run()
        chain.stream.synchronize()
        off = float((y.float() - expected).abs().max())
        if not off < 1e-2:
            raise RuntimeError(f"{name}, {x.numel() * 2} bytes: off by {off}")
        bodies[name] = (chain.stream, chain.run)
    for name, peer in PEERS.items():
        if name in failed:
            continue
        try:
            bodies[name] = captured(torch, peer(torch, x))
        except Exception:
            print(f"  {name}:\n{traceback.format_exc()}", flush=True)
            failed.add(name)
    return bodies


def measure(job: Job, rank: int, communicator: Any, torch: Any) -> Any:
    """Microseconds of an exchange and the kernel behind it, for each size."""
    device = f"cuda:{rank}"
    plan = build(job.ranks, device)
    chains = {"rabbet": Chain(plan, device, communicator, torch)}
    generator = torch.Generator("cuda").manual_seed(rank)
    failed: set[str] = set()
    rows = {}
    for name, variable in VARIANTS.items():
        os.environ[variable] = "0"
        chains[name] = Chain(plan, device, communicator, torch)
        del os.environ[variable]
    for size in job.sizes:
        x = torch.randn(size // 2, generator=generator, device="cuda").half()
        bodies = contestants(torch, chains, x, failed)
        times = in_turns(torch, bodies, job.rounds)
        rows[size] = {name: us / CHAIN for name, us in times.items()}
        if rank == 0:
            print(f"  {job.ranks} ranks, {size} bytes: {rows[size]}", flush=True)
    return rows


def rank_main(job: Job, rank: int) -> None:
    """The process of a rank."""
    import torch
    from rabbet import parallel

    torch.cuda.set_device(rank)
    torch.distributed.init_process_group(
        "nccl", init_method=f"file://{job.folder}/exchange-meeting-{job.ranks}",
        rank=rank, world_size=job.ranks, device_id=torch.device("cuda", rank),
    )  # fmt: skip
    communicator = parallel.communicator(rank, job.ranks, gpu=rank)
    rows = measure(job, rank, communicator, torch)
    job.result(rank).write_bytes(pickle.dumps(rows))
    os._exit(0)  # ends without waiting for other ranks


# ---- The subject ----


def run_job(job: Job) -> Any:
    """The rows of rank 0; none if it failed."""
    run_ranks(rank_main, [(job, rank) for rank in range(job.ranks)], SECONDS)
    done = job.result(0)
    return pickle.loads(done.read_bytes()) if done.exists() else {}


def run(options: Options) -> list[Section]:
    """A table of all sizes for each number of ranks."""
    names = ("rabbet", *VARIANTS, *PEERS)
    section = Section("GPU: all-reduces", ["GPUs", "bytes", *names])
    section.note(
        f"FP16; microseconds of an exchange and a kernel behind it, of {CHAIN} in a CUDA "
        "graph. Median of rounds in turns on rank 0. one shot, two shots: of symmetric "
        "memory. no exchange: the kernel behind it alone"
    )
    count = gpus()
    sizes = SIZES[::3] if options.quick else SIZES
    for ranks in (n for n in (2, 4, 8) if n <= count):
        rows = run_job(Job(ranks, options.scratch, sizes, options.rounds))
        if not rows:
            print(f"  {ranks} ranks: no results", flush=True)
        for size, row in rows.items():
            times = [f"{row[n]:.2f}" if n in row else "-" for n in names]
            section.rows.append([str(ranks), str(size), *times])
            section.data.append({"ranks": ranks, "bytes": size, "us": row})
    return [section]
