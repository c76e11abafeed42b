"""Time from the start of a process to its first result, and its memory."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from . import peers
from .models import CASES, Prepared, named, prepare, specs
from .options import Options, installed
from .report import Section
from .worker import ContestantError, Spec, Start, Worker

MODELS = ("mlp", "resnet50", "bert_base")
LOADED = "bench.peers.rabbet_engine:Loaded"
MIB = 1 << 20


def _run_once(spec: Spec, options: Options) -> Start:
    """One start in a process of its own."""
    worker = Worker(spec, options.scratch)
    worker.stop()
    return worker.start


def _loading(wanted: list[Spec], options: Options) -> list[Spec]:
    """The same contestants, Rabbet's with a plan made beforehand."""
    loading = []
    for spec in wanted:
        if spec.name == peers.RABBET:
            _run_once(spec, options)
            spec = replace(spec, factory=LOADED)
        loading.append(spec)
    return loading


def _entry(name: str, model: str, starts: list[Start]) -> dict[str, Any]:
    def median(values: list[float]) -> float:
        return statistics.median(values)

    return {
        "model": model,
        "name": name,
        "import_s": median([s.import_s for s in starts]),
        "first_result_s": median([s.load_s + s.first_call_s for s in starts]),
        "import_bytes": median([s.import_bytes - s.bare_bytes for s in starts]),
        "peak_bytes": median([s.peak_bytes for s in starts]),
    }


def _one(section: Section, prepared: Prepared, options: Options) -> None:
    threads = max(options.threads)
    wanted, absent = specs(prepared, options, threads)
    for name in absent:
        section.note(f"{name} is not installed")
    repeats = 1 if options.quick else 3
    try:
        loading = _loading(wanted, options)
    except ContestantError as error:
        section.note(f"{prepared.name}: {error}")
        loading = [spec for spec in wanted if spec.name != peers.RABBET]
    for spec in loading:
        try:
            starts = [_run_once(spec, options) for _ in range(repeats)]
        except ContestantError as error:
            section.note(f"{prepared.name}: {error}")
            continue
        entry = _entry(spec.name, prepared.name, starts)
        section.data.append(entry)
        section.rows.append(
            [
                prepared.name,
                spec.name,
                f"{entry['import_s']:.2f}",
                f"{entry['first_result_s']:.3f}",
                f"{entry['import_bytes'] / MIB:.0f}",
                f"{entry['peak_bytes'] / MIB:.0f}",
            ]
        )


def command() -> str | None:
    """The program `rabbet`: on PATH, or installed beside this Python."""
    beside = Path(sys.executable).with_name("rabbet")
    return shutil.which("rabbet") or (str(beside) if beside.exists() else None)


def _shell(section: Section, options: Options) -> None:
    """Wall time of the program on a small plan, with no Python in it."""
    program = command()
    if program is None or not installed(peers.RABBET):
        section.note("the program `rabbet` is not installed")
        return
    prepared = prepare("mlp", CASES["mlp"], options)
    small, _absent = specs(prepared, options, 1)
    try:
        own = next(spec for spec in small if spec.name == peers.RABBET)
        _run_once(own, options)
    except ContestantError as error:
        section.note(f"exec to first result: {error}")
        return
    plan = str(own.arguments["plan"])
    times = []
    for _index in range(5 if options.quick else 21):
        begin = time.perf_counter()
        done = subprocess.run(
            [program, "run", plan],
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": "", "HOME": os.environ.get("HOME", "/")},
        )
        times.append(time.perf_counter() - begin)
        if done.returncode:
            section.note(f"`rabbet run` failed: {done.stderr.strip()[-300:]}")
            return
    entry = {"name": "rabbet run", "model": "mlp", "seconds": statistics.median(times)}
    section.data.append(entry)
    section.note(
        f"`rabbet run` of the mlp's plan (12 MiB), from exec to its end: median "
        f"{1e3 * entry['seconds']:.1f} ms"
    )


def run(options: Options) -> Section:
    """Seconds from load to first result, and peak resident memory in MiB."""
    section = Section(
        "Start: seconds from load to first result, peak memory in MiB",
        ["model", "contestant", "import", "first result", "import MiB", "peak MiB"],
    )
    section.note(
        f"{max(options.threads)} threads; Rabbet loads a plan, the others an ONNX "
        "file; peak memory is of the whole process, import MiB what the import adds"
    )
    names = options.models or (("mlp",) if options.quick else MODELS)
    for name, case in named(names).items():
        _one(section, prepare(name, case, options), options)
    _shell(section, options)
    return section
