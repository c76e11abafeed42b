#!/usr/bin/env python3
"""Where several GPUs pay: a table of estimated times for tensor, pipeline and data
parallelism, from sizes and rates. docs/scale.md explains it.

python tools/scale.py --weights 16 --layers 32 --hidden 4096 --ranks 1,2,4,8
python tools/scale.py --weights 141 --active 26 --layers 56 --hidden 6144 --rows 64
"""

from __future__ import annotations

import argparse
import dataclasses
import math

GB = 1e9
# Of the latency of two; measured between two and four GPUs: 0.4 (0.3 of NCCL's).
FURTHER = 0.4


@dataclasses.dataclass(frozen=True)
class Model:
    """weights: GB read in a step; all_weights: GB that must fit; element: bytes of an
    activation. cache: GB of keys and values that one row reads in a step. other:
    milliseconds of a step's kernels that read no weights (attention, normalizations,
    launches), which no split shortens much."""

    weights: float
    all_weights: float
    layers: int
    hidden: int
    element: int = 2
    cache: float = 0.0
    other: float = 0.0


@dataclasses.dataclass(frozen=True)
class Machine:
    """memory: GB/s of a GPU's memory; arithmetic: TFLOP/s; size: GB; link: GB/s of a GPU
    to the others in one direction; latency: microseconds of a collective among two, to
    which each further doubling of ranks adds the share FURTHER."""

    memory: float
    arithmetic: float
    size: float
    link: float
    latency: float


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A way to use ranks. Times in milliseconds; bytes of weights on a rank in GB; rate:
    rows (tokens) a second of all ranks."""

    way: str
    ranks: int
    time: float
    exchanged: float
    weights: float
    rate: float
    fits: bool


def pass_time(model: Model, machine: Machine, rows: int, share: float) -> float:
    """Milliseconds in which a GPU computes `share` of the model for `rows` rows: the
    larger of reading weights and caches, and of two operations for each weight."""
    read = (model.weights + rows * model.cache) * share / machine.memory * 1e3
    weights = model.weights * GB / model.element
    computed = 2 * weights * share * rows / (machine.arithmetic * 1e12) * 1e3
    return max(read, computed) + model.other


def latency(machine: Machine, ranks: int) -> float:
    """Milliseconds of a collective that moves next to nothing."""
    doublings = (ranks - 1).bit_length()
    return machine.latency * (1 + FURTHER * (doublings - 1)) * 1e-3


def all_reduce(machine: Machine, size: float, ranks: int) -> float:
    """Milliseconds of an all-reduce of `size` bytes."""
    if ranks == 1:
        return 0.0
    moved = 2 * (ranks - 1) / ranks * size
    return latency(machine, ranks) + moved / (machine.link * GB) * 1e3


def tensor(model: Model, machine: Machine, rows: int, ranks: int) -> Estimate:
    """Products, heads and caches split; two all-reduces in each layer."""
    size = rows * model.hidden * model.element
    exchanged = 2 * model.layers * all_reduce(machine, size, ranks)
    time = pass_time(model, machine, rows, 1 / ranks) + exchanged
    return _estimate(
        "tensor", model, machine, rows, ranks, time, exchanged, 1 / ranks, 1
    )


def pipeline(model: Model, machine: Machine, rows: int, ranks: int) -> Estimate:
    """Layers one after the other on the ranks; as many batches of `rows` rows are under
    way as there are ranks."""
    size = rows * model.hidden * model.element
    hop = (
        machine.latency * 1e-3 + size / (machine.link * GB) * 1e3 if ranks > 1 else 0.0
    )
    exchanged = (ranks - 1) * hop
    time = pass_time(model, machine, rows, 1) + exchanged
    return _estimate(
        "pipeline", model, machine, rows, ranks, time, exchanged, 1 / ranks, ranks
    )


def data(model: Model, machine: Machine, rows: int, ranks: int) -> Estimate:
    """The whole model on each rank, with rows of its own."""
    time = pass_time(model, machine, rows, 1)
    return _estimate("data", model, machine, rows, ranks, time, 0.0, 1, ranks)


def _estimate(
    way: str,
    model: Model,
    machine: Machine,
    rows: int,
    ranks: int,
    time: float,
    exchanged: float,
    share: float,
    batches: int,
) -> Estimate:
    weights = model.all_weights * share
    # Caches: split over ranks by heads or layers; a pipeline holds more batches.
    held = weights + rows * model.cache * share * (batches if way == "pipeline" else 1)
    rate = batches * rows / time * 1e3
    return Estimate(way, ranks, time, exchanged, weights, rate, held <= machine.size)


WAYS = (tensor, pipeline, data)


def table(model: Model, machine: Machine, rows: int, ranks: list[int]) -> str:
    """A row for each way and number of ranks, in Markdown."""
    one = tensor(model, machine, rows, 1)
    lines = [
        "| way | ranks | weights of a rank, GB | step, ms | of that exchange | / one GPU | "
        "rows/s | fits |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for count in ranks:
        for way in WAYS if count > 1 else WAYS[:1]:
            each = way(model, machine, rows, count)
            name = each.way if count > 1 else "one GPU"
            lines.append(
                f"| {name} | {count} | {each.weights:.1f} | {each.time:.3g} | "
                f"{each.exchanged:.3g} | {each.time / one.time:.2f} | {each.rate:.4g} | "
                f"{'yes' if each.fits else 'no'} |"
            )
    return "\n".join(lines)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "scale",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--weights", type=float, required=True, help="GB of all weights")
    add(
        "--active",
        type=float,
        help="GB of those read in a step (experts); default: all",
    )
    add("--layers", type=int, required=True)
    add("--hidden", type=int, required=True)
    add("--cache", type=float, default=0.0, help="GB of keys and values of a row")
    add("--other", type=float, default=0.0, help="ms of a step beside its weights")
    add("--element", type=int, default=2, help="bytes of an activation")
    add("--rows", type=int, default=1, help="rows (tokens) of a step")
    add("--ranks", default="1,2,4,8")
    add("--memory", type=float, default=4280, help="GB/s of a GPU's memory")
    add("--arithmetic", type=float, default=600, help="TFLOP/s that products reach")
    add("--size", type=float, default=139 * 1.073741824, help="GB of a GPU's memory")
    add("--link", type=float, default=360, help="GB/s of a GPU to others")
    add("--latency", type=float, default=7, help="us of a collective of two GPUs")
    options = parser.parse_args(arguments)
    try:
        options.ranks = [int(count) for count in options.ranks.split(",")]
    except ValueError:
        parser.error(f"--ranks is '{options.ranks}'; expected numbers such as 1,2,4")
    checked = ("weights", "layers", "hidden", "element", "rows", "memory", "arithmetic",
               "size", "link")  # fmt: skip
    for name in checked:
        if not 0 < getattr(options, name) < math.inf:
            parser.error(f"--{name} is {getattr(options, name)}; expected a number above 0")
    for name in ("cache", "latency", "other"):
        if not 0 <= getattr(options, name) < math.inf:
            parser.error(f"--{name} is {getattr(options, name)}; expected a number, 0 or more")
    if min(options.ranks) < 1:
        parser.error(f"--ranks has {min(options.ranks)}; expected numbers of 1 or more")
    if options.active is not None and not 0 < options.active <= options.weights:
        parser.error(
            f"--active is {options.active}; expected a number above 0, at most --weights"
            f" ({options.weights})"
        )
    return options


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    o = _options(arguments)
    active = o.weights if o.active is None else o.active
    model = Model(active, o.weights, o.layers, o.hidden, o.element, o.cache, o.other)
    machine = Machine(o.memory, o.arithmetic, o.size, o.link, o.latency)
    print(table(model, machine, o.rows, o.ranks))


if __name__ == "__main__":
    main()
