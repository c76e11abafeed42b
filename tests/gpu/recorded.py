"""Runs on a GPU what the tests of the importer run on the CPU.

Those tests have references that a machine with a GPU may lack (ONNX Runtime). So
their runs are recorded where Rabbet is built: model, options, inputs, and the
outputs, which the tests compare with their references.

    RABBET_RECORD=.gpu/recorded python -m pytest -p tests.gpu.recorded \\
        tests/python/importer/test_onnx_*.py tests/python/importer/test_microsoft_*.py
    tests/gpu/run.sh recorded                       (on the machine with the GPU)
    python -m tests.gpu.recorded FOLDER [--level 3]

Exit code of the last: 0 if all outputs agree, 77 if nothing was recorded.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import hashlib
import multiprocessing
import os
import pickle
import sys
import time
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import rabbet

LARGEST = 1 << 20
"""Bytes of a run that is kept: what is recorded has to travel."""

LIMITS = {
    "float32": 1e-2,
    "float16": 2e-2,
    "bfloat16": 6e-2,
    "int8": 1 / 127,
    "uint8": 1 / 255,
}
"""Differences, relative to the largest number of the output. GPUs sum in another order
and multiply in TF32, as the default is; a quantized number may be the next one."""

KEPT = ("shapes", "values", "profiles", "fp16", "bf16")
"""Options of rabbet.compile that a GPU's build takes as well."""


# ---- Recording: a plugin of pytest ----


def source_of(model: Any) -> bytes | None:
    """The bytes of an ONNX model; None for networks and files (their data may lie
    beside them)."""
    if isinstance(model, (bytes, bytearray)):
        return bytes(model)
    return model.SerializeToString() if hasattr(model, "SerializeToString") else None


class Recorder:
    """Appends each run of a compiled model to a file of this process."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{os.getpid()}.pickle"
        self.seen: set[bytes] = set()
        self.test = ""

    def add(self, source: bytes, options: dict[str, Any],
            arguments: tuple[Any, ...], named: dict[str, Any], found: Any) -> None:  # fmt: skip
        outputs = [
            np.array(o) for o in (found if isinstance(found, tuple) else (found,))
        ]
        made = pickle.dumps((self.test, source, options, arguments, named, outputs))
        mark = hashlib.sha256(made).digest()
        if len(made) <= LARGEST and mark not in self.seen:
            self.seen.add(mark)
            with self.path.open("ab") as file:
                file.write(made)

    def install(self) -> None:
        """Puts itself between the tests and rabbet.compile."""
        compile_model, call = rabbet.compile, rabbet.Model.__call__
        sources: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

        def compiled(model: Any, **options: Any) -> Any:
            made = compile_model(model, **options)
            source = source_of(model)
            if source and options.get("device") == "cpu" and not options.get("plugins"):
                kept = {name: options[name] for name in KEPT if name in options}
                sources[made] = (source, kept)
            return made

        def called(model: Any, *arguments: Any, **named: Any) -> Any:
            found = call(model, *arguments, **named)
            if model in sources and "out" not in named:
                self.add(*sources[model], arguments, named, found)
            return found

        rabbet.compile = compiled
        rabbet.Model.__call__ = called  # type: ignore[method-assign]


RECORDER = (
    Recorder(Path(os.environ["RABBET_RECORD"]))
    if os.environ.get("RABBET_RECORD")
    else None
)


def pytest_configure() -> None:
    if RECORDER:
        RECORDER.install()


def pytest_runtest_setup(item: Any) -> None:
    if RECORDER:
        RECORDER.test = item.nodeid


# ---- Running on a GPU ----


def runs(folder: Path) -> Iterator[tuple[Any, ...]]:
    """(test, model, options, arguments, named arguments, outputs) of each run."""
    for path in sorted(folder.glob("*.pickle")):
        with path.open("rb") as file:
            while file.peek(1):
                yield pickle.load(file)


def difference(found: Any, expected: Any) -> str:
    """How an output differs; empty if it does not."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return (f"expected {expected.dtype} {expected.shape}, "
                f"found {found.dtype} {found.shape}")  # fmt: skip
    limit = LIMITS.get(expected.dtype.name, 0.0)
    a, b = found.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return "infinities or NaN in other places"
    scale = max(1.0, float(np.abs(b[finite]).max(initial=0.0)))
    apart = float(np.abs(a[finite] - b[finite]).max(initial=0.0)) / scale
    return f"difference {apart:.2g}, limit {limit:g}" if not apart <= limit else ""


def check(run: tuple[Any, ...], device: str, level: int, deadline: float) -> str | None:
    """The fault of a run: empty if it has none, None if there was no time for it."""
    if time.monotonic() > deadline:
        return None
    test, source, options, arguments, named, outputs = run
    log = rabbet.Logger(rabbet.Logger.ERROR)
    try:
        model = rabbet.compile(source, device=device, logger=log,
                               **{**options, "optimization_level": level})  # fmt: skip
        found = model(*arguments, **named)
    except Exception as error:  # All faults are reported, whatever they are.
        return f"{test}: {type(error).__name__}: {error}"
    found = found if isinstance(found, tuple) else (found,)
    faults = [f"{info.name}: {text}" for info, a, b in
              zip(model.outputs, found, outputs, strict=True)
              if (text := difference(np.asarray(a), b))]  # fmt: skip
    return f"{test}: {'; '.join(faults)}" if faults else ""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--jobs", type=int, default=min(14, os.cpu_count() or 1))
    parser.add_argument("--level", type=int, default=0, help="of optimization")
    parser.add_argument("--seconds", type=float, default=float("inf"),
                        help="after which no run begins")  # fmt: skip
    parser.add_argument("--seed", type=int, default=0,
                        help="of the order: limited time leaves out its end")  # fmt: skip
    given = parser.parse_args(arguments)
    found = list(runs(given.folder))
    if not found:
        print(f"no runs were recorded in {given.folder}")
        return 77
    np.random.default_rng(given.seed).shuffle(found)
    deadline = time.monotonic() + given.seconds
    right = wrong = 0
    with concurrent.futures.ProcessPoolExecutor(
        given.jobs, multiprocessing.get_context("spawn")
    ) as pool:
        begun = [pool.submit(check, run, given.device, given.level, deadline)
                 for run in found]  # fmt: skip
        for done in concurrent.futures.as_completed(begun):
            state = done.result()
            if state:
                wrong += 1
                print(f"WRONG {state}", flush=True)
            right += state == ""
    late = len(found) - right - wrong
    print(
        f"{right} of {right + wrong} runs agree with the CPU's"
        + f", {late} were not begun" * bool(late)
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
