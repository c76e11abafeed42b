"""Tests and measures Rabbet on a machine with a GPU that has no network and none of
our build tools: installs the wheel of .gpu/ (or dist/) into a folder of its own, and
other wheels of .gpu/ (onnxruntime, for test_onnxruntime_provider.py), runs what is asked
for, writes a log for each step and a summary.

    tests/gpu/run.sh all --out FOLDER
    tests/gpu/run.sh conformance sanitizer --families slice,shuffle
    tests/gpu/run.sh bench --benches calls,moves,plugin,small,resnet50
    tests/gpu/run.sh bench --benches unet256,bert_base,gpt2_small
    tests/gpu/run.sh bench --bench "--only gpu --models resnet50/fp16/1"
    tests/gpu/run.sh samples --samples FOLDER      (what FOLDER holds: samples.py)
    tests/gpu/run.sh recorded                      (what is to be carried: recorded.py)

The Python that runs this is the one whose packages (torch, Triton, CuPy, NVIDIA's
libraries) the tests use. Exit code 0: nothing that ran has failed.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import re
import shlex
import shutil
import signal
import site
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STEPS = ("conformance", "tests", "recorded", "sanitizer", "samples", "bench")
# Families whose kernels have the most ways to go out of bounds or to race; those in
# which a library's kernels run as well are not searched for races, as racecheck
# takes cuDNN's own attention for one.
SANITIZED = {
    "memcheck": (
        "slice", "slice_circular", "shuffle", "shuffle_matrix", "gather",
        "gather_element", "gather_nd", "concatenation", "convert", "chain", "reduce",
        "softmax", "normalization", "pooling", "pooling_modes", "attention",
        "attention_shared", "attention_staged", "attention_windows", "cumulative",
        "deconvolution", "fill", "grid_sample", "determinant", "resize", "rnn",
        "roi_align", "scatter_elements", "scatter_rows", "thin_products",
        "tiled_products", "topk", "tree_ensemble", "weight_only_product",
    ),
    "racecheck": ("shuffle_matrix", "reduce", "softmax", "normalization",
                  "pooling_modes", "cumulative", "determinant", "scatter_rows", "topk",
                  "tree_ensemble", "weight_only_product"),
}  # fmt: skip
SANITIZED_CASES = "12"


@dataclass(frozen=True)
class Bench:
    """Arguments of bench.run, and the seconds that it may take."""

    arguments: str
    limit: float


MODELS = "--only gpu --quick --jobs 14 --models"
BENCHES = {
    "calls": Bench("--only gpu_calls --rounds 7", 120),
    "moves": Bench("--only gpu_moves --quick", 120),
    "decode": Bench("--only gpu_decode", 300),
    "plugin": Bench("--only gpu_bert_plugin --rounds 7 --seconds 0.1 --jobs 6", 180),
    "small": Bench(f"{MODELS} mlp,elementwise200", 180),
    "resnet50": Bench(f"{MODELS} resnet50", 240),
    "unet256": Bench(f"{MODELS} unet256", 240),
    "bert_base": Bench(f"{MODELS} bert_base", 300),
    "gpt2_small": Bench(f"{MODELS} gpt2_small", 300),
}
"""Subjects of bench/README.md, in parts that fit into a short time. All of them take
a quarter of an hour."""


@dataclass
class Result:
    """The outcome of one command. state: passed, failed, skipped or late."""

    step: str
    name: str
    state: str
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)


@dataclass
class Machine:
    """Where things are, and how much time is left."""

    out: Path
    scratch: Path
    binaries: Path
    deadline: float
    families: tuple[str, ...] | None
    jobs: int
    bench: list[str]
    benches: tuple[str, ...]
    pytest: list[str]
    samples: Path | None = None
    environment: dict[str, str] = field(default_factory=dict)

    def left(self) -> float:
        return self.deadline - time.monotonic()

    def log(self, step: str, name: str) -> Path:
        folder = self.out / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{step}-{name}.log"


# ---- Commands ----


def execute(
    machine: Machine,
    step: str,
    name: str,
    command: Sequence[str],
    notes: Callable[[str], list[str]],
    environment: dict[str, str] | None = None,
    limit: float = float("inf"),
) -> Result:
    """Runs a command with its output in a log; exit code 77 stands for skipped."""
    log = machine.log(step, name)
    begin = time.monotonic()
    limit = min(limit, machine.left())
    if limit < 2:
        return Result(step, name, "late", notes=["not begun: no time was left"])
    with log.open("wb") as file:
        file.write(f"$ {shlex.join(command)}\n".encode())
        file.flush()
        with subprocess.Popen(
            command,
            cwd=ROOT,
            env={**machine.environment, **(environment or {})},
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process:
            try:
                code = process.wait(limit)
                state = {0: "passed", 77: "skipped"}.get(code, "failed")
            except subprocess.TimeoutExpired:
                # Its children, too: they would go on using the GPU.
                os.killpg(process.pid, signal.SIGKILL)
                code, state = -1, "late"
    text = log.read_text(encoding="utf-8", errors="replace")
    found = notes(text)
    if state == "failed" and not found:
        found = [f"exit code {code}", *text.splitlines()[-3:]]
    return Result(step, name, state, time.monotonic() - begin, found)


def side_by_side(tasks: Sequence[Callable[[], Result]], jobs: int) -> list[Result]:
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(lambda task: task(), tasks))


# ---- Setting up ----


def find_wheel() -> Path:
    """The newest wheel of Rabbet that was carried here."""
    found = [
        path for folder in (".gpu", "dist") for path in (ROOT / folder).glob("rabbet-*.whl")
    ]
    if not found:
        raise SystemExit(
            "there is no wheel in .gpu/ or dist/: run tests/gpu/pack.sh where Rabbet "
            "is built, and carry .gpu/ here"
        )
    return max(found, key=lambda path: path.stat().st_mtime)


def other_wheels() -> list[Path]:
    """Those of packages that tests need and this machine may lack."""
    return [p for p in (ROOT / ".gpu").glob("*.whl") if not p.name.startswith("rabbet-")]


def packages() -> list[str]:
    """Folders that may hold the nvidia-* wheels."""
    folders = [sysconfig.get_paths()["purelib"], *site.getsitepackages()]
    return [f for f in dict.fromkeys(folders) if (Path(f) / "nvidia").is_dir()]


def set_up(machine: Machine) -> Result:
    """Installs the wheel and makes the environment of all commands."""
    wheel, target = find_wheel(), machine.scratch / "site"
    library, own = target / "rabbet" / "lib", machine.binaries / "lib"

    def joined(*parts: object, old: str) -> str:
        given = os.environ.get(old)
        return os.pathsep.join([str(p) for p in parts] + ([given] if given else []))

    machine.environment = {
        **os.environ,
        "PYTHONPATH": joined(target, ROOT, old="PYTHONPATH"),
        "LD_LIBRARY_PATH": joined(library, own, old="LD_LIBRARY_PATH"),
        "PATH": joined(target / "rabbet" / "bin", old="PATH"),
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    if not os.environ.get("RABBET_CUDA_PATH"):
        machine.environment["RABBET_CUDA_PATH"] = os.pathsep.join(packages())
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index",
               "--no-deps", "--no-compile", "--disable-pip-version-check",
               "--target", str(target), str(wheel), *map(str, other_wheels())]  # fmt: skip
    result = execute(machine, "setup", "install", command, lambda text: [])
    result.notes.append(wheel.name)
    return result


def describe() -> str:
    """The GPU, its driver and the packages, in a line."""
    gpu = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
        capture_output=True, text=True, check=False,
    ).stdout.strip() if shutil.which("nvidia-smi") else ""  # fmt: skip
    from importlib import metadata

    versions = []
    for package in (
        "torch",
        "triton",
        "cupy-cuda13x",
        "numba-cuda",
        "nvidia-cudnn-cu13",
    ):
        try:
            versions.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            continue
    python = ".".join(map(str, sys.version_info[:3]))
    return "; ".join([gpu or "no nvidia-smi", f"Python {python}", *versions])


# ---- Steps ----


def suite(machine: Machine) -> str | None:
    path = machine.binaries / "conformance"
    return str(path) if os.access(path, os.X_OK) else None


def families(machine: Machine, program: str) -> list[str]:
    listed = subprocess.run(
        [program, "--families"], env=machine.environment, capture_output=True,
        text=True, check=True,
    ).stdout.split()  # fmt: skip
    if machine.families is None:
        return listed
    unknown = set(machine.families) - set(listed)
    if unknown:
        raise SystemExit(f"no family {', '.join(sorted(unknown))}; "
                         f"there are {', '.join(listed)}")  # fmt: skip
    return list(machine.families)


def failures(text: str) -> list[str]:
    """Messages of cmocka, the suite and the sanitizer about failures."""
    marked = re.findall(r"^(?:ERROR: (?!cmocka).*|\s+expected ok, found .*|"
                        r"=========.*(?:Invalid|Race|ERROR SUMMARY: [1-9]).*)$",
                        text, re.MULTILINE)  # fmt: skip
    return [line.strip()[:400] for line in marked[:5]]


def run_conformance(machine: Machine) -> list[Result]:
    program = suite(machine)
    if program is None:
        return [Result("conformance", "all", "skipped",
                       notes=["no .gpu/conformance: run tests/gpu/pack.sh"])]  # fmt: skip

    def task(family: str) -> Callable[[], Result]:
        command = [program, "cuda", family]
        return lambda: execute(machine, "conformance", family, command, failures)

    names = families(machine, program)
    return side_by_side([task(name) for name in names], machine.jobs)


def pytest_notes(text: str) -> list[str]:
    last = re.findall(r"^=*\s*(\d+ (?:passed|failed|skipped|error).*?)\s*=*$",
                      text, re.MULTILINE)  # fmt: skip
    return last[-1:] + re.findall(r"^(?:FAILED|ERROR) .*$", text, re.MULTILINE)[:20]


def run_tests(machine: Machine) -> list[Result]:
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "--tb=short",
               *(machine.pytest or ["tests/gpu"])]  # fmt: skip
    return [execute(machine, "tests", "pytest", command, pytest_notes)]


def recorded_notes(text: str) -> list[str]:
    return re.findall(r"^(?:WRONG .*|\d+ of \d+ runs .*)$", text, re.MULTILINE)[-40:]


def run_recorded(machine: Machine) -> list[Result]:
    """The importer's tests, with optimization (kernels are timed) and without."""
    return [
        execute(machine, "recorded", f"level-{level}",
                [sys.executable, "-m", "tests.gpu.recorded", str(machine.binaries / "recorded"),
                 "--jobs", str(machine.jobs), "--level", str(level),
                 "--seconds", str(machine.left() / share - 15)],
                recorded_notes)
        for level, share in ((0, 2), (3, 1))
    ]  # fmt: skip


def run_sanitizer(machine: Machine) -> list[Result]:
    sanitizer, program = shutil.which("compute-sanitizer"), suite(machine)
    if sanitizer is None or program is None:
        missing = "no .gpu/conformance" if sanitizer else "no compute-sanitizer"
        return [Result("sanitizer", "all", "skipped", notes=[missing])]
    names = families(machine, program)

    def task(tool: str, family: str) -> Callable[[], Result]:
        command = [sanitizer, "--tool", tool, "--error-exitcode", "9", program,
                   "cuda", family]  # fmt: skip
        few = {"RABBET_TEST_CASES": SANITIZED_CASES}
        return lambda: execute(
            machine, "sanitizer", f"{tool}-{family}", command, failures, few
        )

    tasks = [
        task(tool, family)
        for tool, chosen in SANITIZED.items()
        for family in chosen
        if family in names
    ]
    return side_by_side(tasks, max(1, machine.jobs // 2))


def run_samples(machine: Machine) -> list[Result]:
    """TensorRT's public samples, where the user has them."""
    if machine.samples is None:
        return [Result("samples", "all", "skipped",
                       notes=["none were given: --samples FOLDER"])]  # fmt: skip
    command = [sys.executable, "tests/gpu/samples.py", str(machine.samples),
               "--out", str(machine.out / "samples"), "--jobs", str(machine.jobs),
               "--seconds", str(max(1, int(machine.left() - 10)))]  # fmt: skip
    return [execute(machine, "samples", "python", command, sample_notes)]


def sample_notes(text: str) -> list[str]:
    """How many passed, and the table."""
    begin = re.search(r"^\d+ runs: ", text, re.MULTILINE)
    return text[begin.start() :].splitlines() if begin else []


def tables(text: str) -> list[str]:
    """The tables that bench.run printed, or, where it did not come so far, the rows."""
    begin = text.find("\n## ")
    if begin >= 0:
        return text[begin + 1 :].split("\nwritten: ")[0].splitlines()
    return [line.strip() for line in text.splitlines() if line.startswith("  ")][-40:]


def run_bench(machine: Machine) -> Iterator[Result]:
    """Alone on the machine; results come as bench/ writes them, too."""
    results = machine.out / "bench"
    results.mkdir(parents=True, exist_ok=True)
    chosen = {name: BENCHES[name] for name in machine.benches}
    if machine.bench:
        chosen = {"run": Bench(shlex.join(machine.bench), float("inf"))}
    for name, bench in chosen.items():
        command = [sys.executable, "-m", "bench.run", "--out", str(results),
                   "--no-pin", "--name", name, *shlex.split(bench.arguments)]  # fmt: skip
        result = execute(machine, "bench", name, command, tables, limit=bench.limit)
        print(f"bench {name}: {result.state}, {result.seconds:.0f} s", flush=True)
        yield result


RUNNERS = {
    "conformance": run_conformance,
    "tests": run_tests,
    "recorded": run_recorded,
    "sanitizer": run_sanitizer,
    "samples": run_samples,
    "bench": run_bench,
}


# ---- The summary ----


def summary(results: Sequence[Result], machine_text: str) -> str:
    lines = ["# A run on a GPU", "", machine_text, ""]
    for step in ("setup", *STEPS):
        own = [r for r in results if r.step == step]
        if not own:
            continue
        states = [r.state for r in own]
        counts = ", ".join(
            f"{states.count(s)} {s}"
            for s in ("passed", "failed", "late", "skipped")
            if s in states
        )
        seconds = sum(r.seconds for r in own)
        lines.append(f"## {step}: {counts} ({seconds:.0f} s of processes)")
        for result in own:
            if result.state == "passed" and not result.notes:
                continue
            lines.append(f"- {result.name}: {result.state}, {result.seconds:.1f} s")
            if step in ("bench", "samples"):
                lines += [
                    "",
                    *(re.sub("^## ", "### ", note) for note in result.notes),
                    "",
                ]
            else:
                lines += [f"    {note}" for note in result.notes]
        lines.append("")
    return "\n".join(lines)


def report(results: Sequence[Result], machine: Machine, text: str) -> None:
    path = machine.out / "summary.md"
    path.write_text(summary(results, text), encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="tests/gpu/run.sh", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("steps", nargs="+", choices=(*STEPS, "all"))
    parser.add_argument("--out", type=Path,
                        default=Path(os.environ.get("OUT", "build-gpu")),
                        help="folder for logs and summary; default: $OUT")  # fmt: skip
    parser.add_argument("--seconds", type=float, default=560,
                        help="that everything may take together")  # fmt: skip
    parser.add_argument("--jobs", type=int, default=min(14, os.cpu_count() or 1),
                        help="processes of tests at a time")  # fmt: skip
    parser.add_argument("--families", metavar="A,B", help="of the conformance suite")
    parser.add_argument("--samples", type=Path, metavar="FOLDER",
                        help="TensorRT's samples by release, for the step samples")
    parser.add_argument("--pytest", default="", metavar="ARGUMENTS")
    parser.add_argument("--benches", default=",".join(BENCHES), metavar="A,B",
                        help=f"of {', '.join(BENCHES)}; default: all")  # fmt: skip
    parser.add_argument("--bench", default="", metavar="ARGUMENTS",
                        help="for bench.run, in place of those")  # fmt: skip
    given = parser.parse_args(arguments)
    steps = STEPS if "all" in given.steps else tuple(given.steps)
    benches = tuple(name for name in given.benches.split(",") if name)
    unknown = sorted(set(benches) - set(BENCHES))
    if unknown:
        parser.error(f"no bench {', '.join(unknown)}; there are {', '.join(BENCHES)}")
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rabbet-gpu-") as scratch:
        machine = Machine(
            out=given.out.resolve(),
            scratch=Path(scratch),
            binaries=ROOT / ".gpu",
            deadline=time.monotonic() + given.seconds,
            families=tuple(given.families.split(",")) if given.families else None,
            jobs=given.jobs,
            bench=shlex.split(given.bench),
            benches=benches,
            pytest=shlex.split(given.pytest),
            samples=given.samples.resolve() if given.samples else None,
        )
        text = describe()
        results = [set_up(machine)]
        for step in steps:
            if results[0].state != "passed":
                break
            for result in RUNNERS[step](machine):
                results.append(result)
                report(results, machine, text)  # what is there if the next is killed
        report(results, machine, text)
    print((machine.out / "summary.md").read_text(encoding="utf-8"))
    return 1 if any(r.state in ("failed", "late") for r in results) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
