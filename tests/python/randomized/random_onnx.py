"""Random networks, with kernels chosen at random: built, run, compared, reduced.

A seed says everything: the network, its ranges of shapes, which kernels, types and
options the build has, what is run. test_random_onnx.py and tests/gpu/test_random_onnx.py
take a few seeds, or those of RABBET_TEST_SEEDS=FIRST:END;

    python -m tests.python.randomized.random_onnx FIRST:END [cpu|cuda]

takes as many as one likes, in a process that is begun again after the seed where it
crashed, and prints what failed: the network without what it fails without, and its
kernels.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import rabbet as trt

from tests.python.randomized import random_onnx_sizes  # noqa: F401 (more kinds of nodes
from tests.python.randomized.random_onnx_graphs import RUNS, Network, cut, spread
from tests.python.randomized.random_onnx_nodes import JUMPS, random_network

NOISE = {"FP32": 1e-5, "TF32": 1e-3, "FP16": 1e-3, "BF16": 8e-3}


class Choose(trt.IAlgorithmSelector):
    """Takes kernels by chance. What it takes for layers depends on nothing but their
    names and the seed, so that a smaller network has the same ones."""

    def __init__(self, seed: int, group: float, subset: float) -> None:
        super().__init__()
        self.seed, self.group, self.subset = seed, group, subset
        self.taken: list[str] = []

    def select_algorithms(self, context: Any, choices: Any) -> Any:
        rng = np.random.default_rng([self.seed, zlib.crc32(context.name.encode())])
        count = context.num_inputs + context.num_outputs
        if "+" in context.name and rng.random() < self.group:
            return []
        if self.subset > 1:
            return list(range(len(choices)))
        order = sorted(range(len(choices)), key=lambda i: described(choices[i], count))
        if rng.random() < self.subset:
            return [i for i in order if rng.random() < 0.3] or order[:1]
        return [order[int(rng.integers(len(order)))]]

    def report_algorithms(self, contexts: Any, choices: Any) -> None:
        self.taken = [
            f"  {c.name}: {described(a, c.num_inputs + c.num_outputs)}"
            for c, a in zip(contexts, choices, strict=True)
        ]


def described(choice: Any, count: int) -> str:
    infos = [choice.get_algorithm_io_info(i) for i in range(count)]
    types = ", ".join(f"{i.dtype.name} {i.tensor_format.name}" for i in infos)
    return f"{choice.algorithm_variant.name} ({types})"


@dataclass
class Options:
    """Options of a build besides its network."""

    seed: int
    device: str
    level: int
    types: str
    profiles: int
    threads: int
    group: float
    subset: float
    file: bool
    strict: bool  # types are the network's
    refit: bool
    run_threads: int  # 0: those of the build
    order: list[int] = field(default_factory=list)  # runs

    @classmethod
    def by_chance(cls, rng: np.random.Generator, seed: int, device: str) -> Options:
        types = rng.choice(["FP32"] * 5 + ["FP16", "BF16"] + ["TF32"] * (device == "cuda"))
        return cls(
            seed, device, int(rng.integers(0, 6)), str(types), 1 + int(rng.random() < 0.2),
            1 + int(rng.random() < 0.3), float(rng.choice([0.1, 0.5, 0.9])),
            float(rng.choice([0.1, 0.5])), bool(rng.random() < 0.2),
            bool(types == "FP32" and rng.random() < 0.2), bool(rng.random() < 0.1),
            int(rng.choice([0, 0, 0, 1, 2, 3])),
            [int(i) for i in rng.permutation([*range(RUNS), *rng.integers(0, RUNS, 3)])],
        )  # fmt: skip


class Failure(Exception):
    """kind: what is compared by the reducer."""

    def __init__(self, kind: str, error: str, more: str = "") -> None:
        super().__init__(f"{kind}: {error}{more}")
        self.kind = kind if kind == "wrong" else re.sub(r"\W|\d|'.*?'", "", error)[:60]


def make(seed: int, device: str) -> tuple[Network, Options]:
    rng = np.random.default_rng([seed, 7])
    options = Options.by_chance(rng, seed, device)
    few_digits = options.types != "FP32"
    return random_network(
        np.random.default_rng(seed), NOISE[options.types], options.profiles,
        JUMPS if few_digits else set(), 0.15 if device == "cpu" else 0,
    ), options  # fmt: skip


def compiled(network: Network, options: Options) -> tuple[trt.Model, Choose]:
    log = trt.Logger(trt.Logger.INTERNAL_ERROR)
    builder = trt.Builder(log)
    definition = builder.create_network(int(options.strict))
    trt.OnnxParser(definition, log).parse(network.model().SerializeToString())
    config = builder.create_builder_config()
    config.device, config.threads = options.device, options.threads
    config.builder_optimization_level = options.level
    config.clear_flag(trt.BuilderFlag.TF32)
    if options.types != "FP32":
        config.set_flag(getattr(trt.BuilderFlag, options.types))
    if options.refit:
        config.set_flag(trt.BuilderFlag.REFIT)
    for i in range(options.profiles):
        profile = builder.create_optimization_profile()
        for name, three in network.shapes(i).items():
            profile.set_shape(name, *three)
        for name, three in network.values(i).items():
            profile.set_shape_input(name, *three)
        config.add_optimization_profile(profile)
    plan, chooser = chosen(builder, definition, config, options)
    if options.file:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "random.plan"
            path.write_bytes(plan)
            return trt.load(path, threads=options.run_threads), chooser
    engine = trt.Runtime(log).deserialize_cuda_engine(plan)
    return trt.Model(engine, threads=options.run_threads), chooser


def chosen(builder: Any, definition: Any, config: Any, options: Options) -> Any:
    """The plan, and who chose. A choice may leave layers that only a larger group
    computes, or formats that nothing converts: then more of it is left to the builder."""
    for group, subset in ((options.group, options.subset), (0, options.subset), (0, 1)):
        chooser = Choose(options.seed, group, subset)
        config.algorithm_selector = chooser
        try:
            return builder.build_serialized_network(definition, config), chooser
        except trt.FailedPreconditionError as error:
            if "left no other way" not in str(error):
                raise
        except trt.UnsupportedError as error:
            if "cannot convert between the types and formats" not in str(error):
                raise
    config.algorithm_selector = chooser = Choose(options.seed, 0, 2)
    return builder.build_serialized_network(definition, config), chooser


def check(network: Network, options: Options) -> None:
    """Builds and runs it, or says what is wrong."""
    try:
        model, chooser = compiled(network, options)
    except Exception as error:
        # Some sizes must be known when a model is imported (docs/onnx.md).
        if re.search("must be known|is not known; recurrent", str(error)):
            return
        raise Failure("not built", f"{type(error).__name__}: {error}") from error
    for run in options.order:
        feeds = {n: network.tensors[n].runs[run][0] for n in network.inputs}
        where = f"run {run}, {({n: a.shape for n, a in feeds.items()})}"
        try:
            found = model.run(feeds)
        except Exception as error:
            raise Failure("not run", f"{error}", f" {where}\n{kernels(chooser)}") from error
        for name in network.outputs:
            wrong = difference(found[name], network.tensors[name].runs[run], network.noise)
            if wrong:
                raise Failure("wrong", f"{name}: {wrong} {where}\n{kernels(chooser)}")


def kernels(chooser: Choose) -> str:
    return "\n".join(chooser.taken)


def difference(found: Any, expected: list[np.ndarray], noise: float) -> str | None:
    """expected: the value, and its copies with noise."""
    value = expected[0]
    if found.shape != value.shape or found.dtype != value.dtype:
        return f"{found.dtype}{found.shape}, expected {value.dtype}{value.shape}"
    far = np.abs(found.astype(np.float64) - value.astype(np.float64))
    allowed = 0.0
    if value.dtype == np.int8:  # rounded
        allowed = 1 if noise < 1e-4 else 8
    if value.dtype == np.float32:
        allowed = 4 * spread(expected) + 2 * noise * float(np.abs(value).max(initial=0)) + noise
    if not (far <= allowed).all():
        bad = ~(far <= allowed)
        at = tuple(int(i[0]) for i in np.nonzero(bad))
        return (f"{bad.sum()} of {bad.size} elements; at {at} {found[at]}, expected "
                f"{value[at]} +- {allowed:.2g}")  # fmt: skip
    return None


def failure(network: Network, options: Options) -> Failure | None:
    try:
        check(network, options)
    except Failure as found:
        return found
    return None


def reduced(network: Network, options: Options, found: Failure) -> tuple[Network, Failure]:
    """The network without what it fails without."""
    def still(other: Network) -> bool:
        nonlocal network, found
        if not other.outputs or not other.nodes:
            return False
        again = failure(other, options)
        if again is None or again.kind != found.kind:
            return False
        network, found = other, again
        return True

    size = -1
    while size != len(network.nodes):
        size = len(network.nodes)
        for name in list(network.outputs):
            other = cut(network, None)
            other.outputs = [n for n in other.outputs if n != name]
            other.prune()
            still(other)
        for node in list(network.nodes):
            if node in network.nodes:
                try:
                    still(cut(network, node))
                except Exception:  # sizes that no symbol has
                    continue
    return network, found


def report(seed: int, device: str) -> str | None:
    """The failure of a seed, reduced; None if there is none."""
    network, options = make(seed, device)
    found = failure(network, options)
    if found is None:
        return None
    network, found = reduced(network, options, found)
    return f"seed {seed}, {options}\n{network.describe()}\n{found}"


def seeds(text: str) -> range:
    """Of FIRST:END, or one."""
    first, _, end = text.partition(":")
    return range(int(first), int(end or int(first) + 1))


def main(texts: list[str]) -> int:
    """All seeds of a range, in a process that is begun again where it crashes."""
    todo, device, count = seeds(texts[0]), texts[1] if len(texts) > 1 else "cpu", 0
    if os.environ.get("RABBET_RANDOM_ONNX_CHILD"):
        for seed in todo:
            print(json.dumps({"at": seed}), flush=True)
            wrong = report(seed, device)
            if wrong:
                print(json.dumps({"wrong": wrong}), flush=True)
        return 0
    at, env = todo.start, {**os.environ, "RABBET_RANDOM_ONNX_CHILD": "1"}
    while at < todo.stop:
        command = [sys.executable, "-m", "tests.python.randomized.random_onnx"]
        child = subprocess.Popen([*command, f"{at}:{todo.stop}", device],
                                 env=env, stdout=subprocess.PIPE, text=True)  # fmt: skip
        for line in child.stdout or []:
            said = json.loads(line)
            at = said.get("at", at)
            if at % 50 == 0 and "wrong" not in said:
                print(f"seed {at}", file=sys.stderr, flush=True)
            if "wrong" in said:
                count += 1
                print(said["wrong"], "\n", flush=True)
        if child.wait() != 0:
            count += 1
            print(f"seed {at}: the process ends with {child.returncode}\n", flush=True)
        at += 1
    print(f"{count} of {len(todo)} seeds failed", flush=True)
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
