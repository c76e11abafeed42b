"""Architectures drawn from the zoo, in near-real sizes, FP32 and batch 1: one call of each,
Rabbet beside ONNX Runtime and OpenVINO."""

from __future__ import annotations

import json
import math
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zoo import near_real

from . import peers
from .layer_classes import COLUMNS, Group, groups, ordered
from .models import compared, milliseconds, record
from .options import ROOT, Options, installed
from .peers import Peer
from .report import Section
from .rounds import take_turns
from .sessions import Sessions
from .worker import Spec, drop_wrong, started

PEERS = (
    Peer(peers.RABBET, "rabbet", "bench.peers.rabbet_engine:Profiled"),
    *(peer for peer in peers.MODELS if peer.name in ("onnxruntime", "openvino")),
)
BOUND = 2e-2
"""Largest difference from the module's own result, over its largest value. The networks
are deep and their weights random: they enlarge what rounding does."""
EXPORT_SECONDS = 600


def summary(ratios: Sequence[float]) -> Iterator[str]:
    """What the rows say together."""
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        within = sum(ratio <= 1.0 for ratio in ratios) / len(ratios)
        yield (
            f"{len(ratios)} rows: geometric mean {mean:.2f}, at most 1.0 in "
            f"{within:.0%}, the worst {max(ratios):.2f}"
        )


# ---- Models ----


def zoo_python() -> Path:
    """The Python that has the zoo's libraries."""
    given = os.environ.get("RABBET_ZOO_PYTHON")
    return Path(given) if given else ROOT / ".venv-zoo" / "bin" / "python"


def cache() -> Path:
    return Path(os.environ.get("RABBET_ZOO_CACHE", ROOT / ".cache" / "zoo")) / "near_real"


def exported(key: str) -> tuple[Path, str]:
    """The architecture's folder with its file, inputs and results, made if it is not
    there, or why there is none."""
    folder = cache() / key.replace("/", ".")
    told = folder / "facts.json"
    if not told.exists():
        python = zoo_python()
        if not python.exists():
            return folder, f"there is no {python}: run tools/zoo_setup.sh"
        folder.mkdir(parents=True, exist_ok=True)
        command = [str(python), "-m", "zoo.near_export", key, str(folder)]
        with (folder / "log").open("wb") as log:
            try:
                subprocess.run(command, cwd=ROOT, stdout=log, stderr=log, check=False,
                               timeout=EXPORT_SECONDS)  # fmt: skip
            except subprocess.TimeoutExpired:
                return folder, f"its export took longer than {EXPORT_SECONDS} s"
    if not told.exists():
        return folder, f"its export died, see {folder / 'log'}"
    return folder, json.loads(told.read_text()).get("error", "")


def drawn(options: Options) -> list[str]:
    """Those named, or the first of the draw."""
    if options.models is None:
        return near_real.draw(options.zoo, options.seed)
    for name in options.models:
        if name not in near_real.architectures():
            raise ValueError(f"no model {name}; python -m zoo --list names them")
    return list(options.models)


# ---- Measuring ----


def _specs(key: str, folder: Path, options: Options, threads: int) -> list[Spec]:
    found = []
    for peer in PEERS:
        if not options.wanted(peer.name) or not installed(peer.package):
            continue
        given: dict[str, Any] = {
            "path": str(folder / "model.onnx"),
            "inputs": str(folder / "inputs.npz"),
            "threads": threads,
        }
        if peer.name == peers.RABBET:
            with np.load(folder / "results.npz") as results:
                names = list(results)
            stem = key.replace("/", ".")
            given |= {
                "plugins": [],
                "plan": str(options.scratch / f"{stem}-{threads}.plan"),
                "dims": {},
                "names": names,
                "timing_cache": str(options.scratch / f"{threads}.timing"),
            }
        found.append(options.spec(peer.name, peer.factory, threads, given))
    return found


class Report:
    """The subject's tables."""

    def __init__(self, options: Options) -> None:
        names = [peer.name for peer in PEERS]
        self.section = Section(
            "Models of the zoo: milliseconds of a call",
            ["model", "threads", *names, "ratio", "build, s", "MiB"],
        )
        self.section.note(f"the draw's seed: {options.seed}")
        self.section.note(
            "build, s: from the file to the first result; MiB: the most memory until "
            "then; both of each in the table's order"
        )
        for peer in PEERS:
            if not installed(peer.package):
                self.section.note(f"{peer.name} is not installed")
        self.ratios: dict[int, list[float]] = {n: [] for n in options.threads}
        self.classes = Section(
            "Models of the zoo: classes of layers of all models and their limits",
            ["threads", *COLUMNS],
        )
        self.classes.note(
            "us: of each step in its place in a run; the limit: the larger of the "
            "bandwidth of a copy of 64 MiB and NumPy's product of 1024 rows and columns, "
            "layer by layer: steps whose tensors lie in a cache may be below it"
        )
        self.found: dict[int, dict[str, Group]] = {n: {} for n in options.threads}
        self.sessions = Sessions([name for name in names if name != peers.RABBET])

    def absent(self, key: str, reason: str) -> None:
        self.section.rows.append([key, *["-"] * (len(self.section.columns) - 1)])
        self.section.note(f"{key}: {reason}")
        print(f"  {key}: {reason}", flush=True)

    def measure(
        self, key: str, folder: Path, options: Options, threads: int
    ) -> None:
        with np.load(folder / "results.npz") as results:
            expected = dict(results.items())
        specs = _specs(key, folder, options, threads)
        with started(specs, options.scratch) as field_:
            drop_wrong(field_, expected, BOUND)
            medians = take_turns(
                field_.workers,
                rounds=options.rounds,
                seconds=options.seconds,
                least=1,
                of_turn=options.of_turn,
            )
            starts = {name: worker.start for name, worker in field_.workers.items()}
            if peers.RABBET in field_.workers:
                self.classify(field_.workers[peers.RABBET].facts(), threads)
        for reason in field_.absent.values():
            self.section.note(f"{key}, {threads} threads: {reason}")
        rival, ratio = compared(medians)
        if ratio is not None:
            self.ratios[threads].append(ratio.median)
        builds, sizes = [], []
        for peer in PEERS:
            start = starts.get(peer.name)
            builds.append(f"{start.load_s + start.first_call_s:.2f}" if start else "-")
            sizes.append(f"{start.peak_bytes / 2**20:.0f}" if start else "-")
        self.section.rows.append(
            [key, str(threads), *(milliseconds(medians, peer.name) for peer in PEERS),
             f"{ratio.text()} of {rival}" if ratio else "-",
             " / ".join(builds), " / ".join(sizes)]
        )  # fmt: skip
        print("  " + " | ".join(self.section.rows[-1]), flush=True)
        labels = {"model": key, "threads": threads, "absent": field_.absent}
        self.section.data.append(record(medians, starts, **labels))
        ready = [spec for spec in specs if spec.name in starts]
        self.sessions.measure(key, threads, ready, options.scratch)

    def classify(self, facts: Mapping[str, Any], threads: int) -> None:
        """Adds the steps of a plan to the classes."""
        limits = facts["bandwidth"], facts["peak"]
        if not self.found[threads]:
            told = f"{limits[0] / 1e9:.0f} GB/s, {limits[1] / 1e9:.0f} GFLOP/s"
            self.classes.note(f"{threads} threads: {told} where the first model ran")
        for one in groups(facts["layers"], *limits, facts["seconds"]):
            self.found[threads].setdefault(one.name, Group(one.name)).add(one)

    def close(self) -> list[Section]:
        for threads, ratios in self.ratios.items():
            for line in summary(ratios):
                self.section.note(f"{threads} threads, {line}")
        for threads, found in self.found.items():
            total = sum(one.seconds for one in found.values())
            rows = [[str(threads), *one.cells(total)] for one in ordered(found)]
            self.classes.rows += rows
        return [self.section, self.sessions.close(), self.classes]


def run(options: Options) -> list[Section]:
    """Milliseconds of one call of each architecture on each number of threads."""
    report, keys, begin = Report(options), drawn(options), time.monotonic()
    files = {key: exported(key) for key in keys}
    for key, (folder, error) in files.items():
        if error:
            report.absent(key, error)
        elif time.monotonic() - begin > options.limit:
            report.absent(key, "no time was left")
        else:
            for threads in options.threads:
                report.measure(key, folder, options, threads)
    return report.close()
