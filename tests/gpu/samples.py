"""Runs the public samples for Python plugins of TensorRT, unmodified, on Rabbet
(`python -m rabbet.compat`), and says which of them pass.

    python tests/gpu/samples.py FOLDER [--out FOLDER] [--jobs N] [--only TEXT]

FOLDER holds checkouts of github.com/NVIDIA/TensorRT (their samples/python is enough),
one for each release, in folders named after the release: FOLDER/v10.16/samples/python/...
FOLDER/packages, if it is there, is put on the path of modules: what the samples import
and the machine lacks (polygraphy, onnx-graphsurgeon, colored). A script that several
releases have in the same words is run once. Exit code 0: nothing failed but what is not
Rabbet's fault.
"""

from __future__ import annotations

import argparse
import ast
import concurrent.futures
import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

# The samples print "Inference result A correct!" and the like.
GOOD = re.compile(r"\bcorrect!|successful!")
BAD = re.compile(r"incorrect|failed!")
PRECISIONS = ("--precision fp32", "--precision fp16")
SAMPLES: dict[str, Sequence[str]] = {
    "python_plugin/circ_pad_plugin_cupy.py": PRECISIONS,
    "python_plugin/circ_pad_plugin_torch.py": PRECISIONS,
    "python_plugin/circ_pad_plugin_triton.py": PRECISIONS,
    "python_plugin/circ_pad_plugin_numba.py": PRECISIONS,
    "python_plugin/circ_pad_plugin_cuda_python.py": PRECISIONS,
    "python_plugin/circ_pad_plugin_inetdef_cuda_python.py": PRECISIONS,
    "python_plugin/circ_pad_plugin_multi_tactic.py": (
        *PRECISIONS,
        "--precision fp16 --per-format-tactics",
    ),
    "aliased_io_plugin/aliased_io_plugin.py": (
        "--validate",
        "--validate --precision fp16",
    ),
    "non_zero_plugin/non_zero_plugin.py": (
        "--backend torch --net_type onnx",
        "--backend torch --net_type inetdef --precision fp16",
        "--backend cuda_python --net_type inetdef",
        "--backend cuda_python --net_type onnx --precision fp16",
    ),
    "quickly_deployable_plugins/qdp_runner.py": (
        "add",
        "add --autotune",
        "inplace_add",
        "non_zero",
        "circ_pad --mode inetdef",
        "circ_pad --mode inetdef --multi_tactic",
        "circ_pad --mode inetdef --aot",
        "circ_pad --mode inetdef --multi_tactic --aot",
        "circ_pad --mode onnx --artifacts_dir . --save_engine",
        "circ_pad --load_engine --artifacts_dir .",
        "circ_pad --mode onnx --artifacts_dir . --aot --save_engine",
    ),
}
"""Scripts below samples/python, and the arguments of each run."""

# Failures that are not Rabbet's: a pattern of the output, and what it means. They fail
# in the same way on TensorRT.
OWN_FAULTS = (
    (r"unexpected keyword argument 'constants'",
     "the sample asks for Triton 3.2 (ASTSource(constants=...))"),
    (r"identifier \"half\" is undefined",
     "the sample's own fault: its FP16 kernel does not include cuda_fp16.h"),
    (r"'--aot' is not supported when '--multi_tactic'",
     "this release has no such run"),
)  # fmt: skip

REMARKS = (
    (r"cannot import name 'circ_pad' from 'oait_kernels'",
     "one tactic: the other is left out, as the sample's oait_kernels.py lacks its kernel"),
)  # fmt: skip

# Replacements for other versions of packages than the samples were written for.
ENVIRONMENT = '''
"""Parts of older NumPy and cuda-python that the samples use."""
import functools
import importlib.util
import os
import sys

import numpy

# numba-cuda asks for it, and NumPy 2.5 has it no more.
if not hasattr(numpy, "row_stack"):
    numpy.row_stack = numpy.vstack


def array_is_no_number():
    try:
        return not int(numpy.zeros(1, numpy.int64)) == 0
    except TypeError:  # from NumPy 2.4 on
        return True


def with_array_as_stream(launch):
    @functools.wraps(launch)
    def call(*arguments):
        return launch(*[
            int(a[0]) if i == 8 and isinstance(a, numpy.ndarray) and a.ndim else a
            for i, a in enumerate(arguments)
        ])

    return call


def with_two_arguments(create):
    @functools.wraps(create)
    def call(*arguments):
        return create(None, *arguments) if len(arguments) == 2 else create(*arguments)

    return call


def cuda_python():
    from cuda.bindings import driver, nvrtc, runtime

    if array_is_no_number():
        driver.cuLaunchKernel = with_array_as_stream(driver.cuLaunchKernel)
    if os.environ.get("SAMPLE_NEEDS_12") and not importlib.util.find_spec("cuda.cuda"):
        import cuda

        driver.cuCtxCreate = with_two_arguments(driver.cuCtxCreate)
        for name, module in (("cuda", driver), ("cudart", runtime), ("nvrtc", nvrtc)):
            setattr(cuda, name, module)
            sys.modules["cuda." + name] = module


try:
    found = importlib.util.find_spec("cuda.bindings")
except ImportError:
    found = None
if found is not None:
    cuda_python()
'''


@dataclass
class Run:
    """One call of one script."""

    script: str
    arguments: str
    state: str  # passed, failed, not Rabbet's, late
    reason: str = ""
    seconds: float = 0.0
    log: str = ""


@dataclass
class Script:
    """A script in the words of one or more releases."""

    path: Path
    name: str
    releases: list[str]
    runs: list[Run] = field(default_factory=list)


def release_key(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", release))


def near(script: Path) -> list[Path]:
    """Modules beside and above a script that it imports."""
    places = (script.parent / "utils.py", script.parents[1] / "plugin_utils.py")
    own = [script.parent / f"{name}.py" for name in ("qdp_defs", "oait_kernels")]
    return [path for path in (*places, *own) if path.exists()]


def words(script: Path) -> str:
    """A hash of what a script and its helpers do; comments and layout do not count."""
    found = hashlib.sha256()
    for path in (script, *near(script)):
        found.update(ast.dump(ast.parse(path.read_text(encoding="utf-8"))).encode())
    return found.hexdigest()


def find(folder: Path, only: str, chosen: Sequence[str] = ()) -> list[Script]:
    """The scripts, each in all its different words."""
    known: dict[tuple[str, str], Script] = {}
    releases = [p for p in folder.iterdir() if (p / "samples" / "python").is_dir()]
    releases.sort(key=lambda path: release_key(path.name))
    if chosen:
        releases = [path for name in chosen for path in releases if path.name == name]
    for release in releases:
        for name in SAMPLES:
            path = release / "samples" / "python" / name
            if not path.exists() or only not in name:
                continue
            key = (name, words(path))
            if key in known:
                known[key].releases.append(release.name)
            else:
                known[key] = Script(path, name, [release.name])
    return list(known.values())


def accepts(script: Path, arguments: str) -> bool:
    """Whether a script has the options: releases differ in them."""
    text = "".join(p.read_text(encoding="utf-8") for p in (script, *near(script)))
    return all(f'"{w}"' in text or f"'{w}'" in text
               for w in arguments.split() if w.startswith("--"))  # fmt: skip


def headers() -> Path | None:
    """A folder whose include/ has the headers of CUDA."""
    given = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    wheels = []
    spec = importlib.util.find_spec("nvidia")
    for place in spec.submodule_search_locations or () if spec else ():
        wheels += [*Path(place).glob("cu1*"), Path(place) / "cuda_runtime"]
    for folder in [*(Path(g) for g in given if g), Path("/usr/local/cuda"), *wheels]:
        if (folder / "include" / "cuda_fp16.h").exists():
            return folder
    return None


def environment(folder: Path, scratch: Path) -> dict[str, str]:
    hooks = scratch / "hooks"
    hooks.mkdir(parents=True, exist_ok=True)
    (hooks / "sitecustomize.py").write_text(ENVIRONMENT, encoding="utf-8")
    paths = [str(hooks), str(folder.resolve() / "packages")]
    kept = os.environ.get("PYTHONPATH")
    made = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths + ([kept] if kept else [])),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    cuda = headers()
    if cuda is not None:
        made.setdefault("CUDA_HOME", str(cuda))
    return made


def remark_of(text: str) -> str:
    """A remark on a run that passed: a tactic that was left out."""
    for pattern, meaning in REMARKS:
        if re.search(pattern, text):
            return meaning
    return ""


def reason_of(text: str) -> tuple[str, str]:
    """(state, reason) of a run that did not pass."""
    for pattern, meaning in OWN_FAULTS:
        if re.search(pattern, text):
            return "not Rabbet's", meaning
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if re.search(r"\[E\]|incorrect|failed!", line)]
    raised = [line for line in lines if re.match(r"\w+(\.\w+)*(Error|Exception)\b", line)]
    chosen = (told or raised or lines or ["no output"])[: 1 if told else None]
    return "failed", chosen[-1][:300]


def run(script: Script, arguments: str, cwd: Path, env: dict[str, str],
        deadline: float) -> Run:  # fmt: skip
    made = Run(script.name, arguments, "late", "no time was left")
    left = deadline - time.monotonic()
    if left < 3:
        return made
    texts = [p.read_text(encoding="utf-8") for p in (script.path, *near(script.path))]
    old = not any("create_cuda_context" in text for text in texts)
    begin = time.monotonic()
    command = [sys.executable, "-m", "rabbet.compat", str(script.path)]
    command += arguments.split()
    try:
        done = subprocess.run(
            command, cwd=cwd, env={**env, "SAMPLE_NEEDS_12": "1" if old else ""},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=left, check=False,
        )  # fmt: skip
        text = done.stdout.decode(errors="replace")
        good = done.returncode == 0 and GOOD.search(text) and not BAD.search(text)
        made.state, made.reason = ("passed", "") if good else reason_of(text)
        if made.state == "failed" and done.returncode != 0:
            made.reason = f"exit code {done.returncode}: {made.reason}"
        made.log = text
        if made.state == "passed":
            made.reason = remark_of(text)
    except subprocess.TimeoutExpired as error:
        made.log = (error.stdout or b"").decode(errors="replace")
        made.reason = f"not done after {left:.0f} s"
    made.seconds = time.monotonic() - begin
    return made


def groups(script: Script) -> list[list[str]]:
    """Arguments of runs that follow one another in one folder: what loads an engine
    comes after what saved it."""
    found: list[list[str]] = []
    for arguments in SAMPLES[script.name]:
        if not accepts(script.path, arguments):
            continue
        if "--load_engine" in arguments and found:
            found[-1].append(arguments)
        else:
            found.append([arguments])
    return found


def run_group(script: Script, group: Sequence[str], scratch: Path,
              env: dict[str, str], deadline: float) -> list[Run]:  # fmt: skip
    cwd = Path(tempfile.mkdtemp(dir=scratch))
    return [run(script, arguments, cwd, env, deadline) for arguments in group]


def releases_text(releases: Sequence[str]) -> str:
    ordered = sorted(releases, key=release_key)
    return ordered[0] if len(ordered) == 1 else ", ".join(ordered)


def table(scripts: Sequence[Script]) -> Iterator[str]:
    """One line for each run of each script."""
    yield "| sample | arguments | releases | result | s | why |"
    yield "|---|---|---|---|---|---|"
    for script in scripts:
        for item in script.runs:
            reason = item.reason.replace("|", "/")
            releases = releases_text(script.releases)
            cells = (script.name, f"`{item.arguments}`", releases, item.state,
                     f"{item.seconds:.0f}", reason)  # fmt: skip
            yield f"| {' | '.join(cells)} |"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=textwrap.dedent(__doc__ or ""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, help="folder for the runs' logs")
    parser.add_argument("--jobs", type=int, default=min(8, os.cpu_count() or 1))
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--releases", default="", metavar="A,B",
                        help="in this order; default: all, the oldest first")
    parser.add_argument("--only", default="", help="scripts whose path has this in it")
    given = parser.parse_args(arguments)
    chosen = [name for name in given.releases.split(",") if name]
    scripts = find(given.folder.resolve(), given.only, chosen)
    if not scripts:
        parser.error(f"no samples are in {given.folder}/RELEASE/samples/python")
    deadline = time.monotonic() + given.seconds
    with tempfile.TemporaryDirectory(prefix="rabbet-samples-") as name:
        scratch = Path(name)
        env = environment(given.folder, scratch)
        with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
            begun = [
                (script, pool.submit(run_group, script, group, scratch, env, deadline))
                for script in scripts
                for group in groups(script)
            ]
            for script, done in begun:
                script.runs += done.result()
    states = [item.state for script in scripts for item in script.runs]
    counts = [f"{states.count(s)} {s}" for s in dict.fromkeys(states)]
    print(f"{len(states)} runs: {', '.join(counts)}\n")
    print("\n".join(table(sorted(scripts, key=lambda script: script.name))))
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        for number, item in enumerate(r for s in scripts for r in s.runs):
            path = given.out / f"sample-{number:03d}-{Path(item.script).stem}.log"
            path.write_text(f"{item.arguments}\n{item.log}", encoding="utf-8")
    return 1 if {"failed", "late"} & set(states) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
