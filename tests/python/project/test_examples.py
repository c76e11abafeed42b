"""Every example runs, and does what it says."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest
import rabbet
from onnx import helper

from tests.python.support.c_programs import (
    EXAMPLES,
    ROOT,
    WARNINGS,
    build_example,
    compile_program,
    needed,
    output,
)
from tests.python.support.command import FLOAT, PROGRAM, command, save_model

LIBRARIES = Path(PROGRAM).parent.parent / "lib"
INCLUDE = ROOT / "include"
HEADERS = sorted((INCLUDE / "rabbet").glob("*.h"))

# ---- C ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def run_plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(
        EXAMPLES / "c_run_plan" / "run_plan.c",
        tmp_path_factory.mktemp("c") / "run_plan",
        include=INCLUDE,
        libraries=LIBRARIES,
        names=("rabbet_runtime",),
    )


def test_run_plan(run_plan: Path, tmp_path: Path) -> None:
    weights = np.arange(8, dtype=np.float32).reshape(4, 2) + 1
    model = save_model(
        tmp_path / "m.onnx",
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        {"x": (FLOAT, [1, 4])},
        {"y": (FLOAT, [1, 2])},
        {"w": weights},
    )
    command("build", model, "--device", "cpu", "--quiet")
    # The program's inputs are ones.
    assert output(run_plan, tmp_path / "m.plan") == f"y[0] = {weights[:, 0].sum():g}\n"
    assert "gone.plan" in output(run_plan, tmp_path / "gone.plan", code=1)


def test_run_plan_needs_the_runtime_alone(run_plan: Path) -> None:
    ours = [name for name in needed(run_plan) if name.startswith("librabbet")]
    assert ours == ["librabbet_runtime.so.0"]
    runtime = needed(LIBRARIES / "librabbet_runtime.so")
    assert not [name for name in runtime if "stdc++" in name or "python" in name]


def test_network(tmp_path: Path) -> None:
    program = compile_program(
        EXAMPLES / "c_network" / "swish_network.c",
        tmp_path / "swish",
        include=INCLUDE,
        libraries=LIBRARIES,
        names=("rabbet", "rabbet_runtime", "m"),
    )
    text = output(program, env={**os.environ, "RABBET_DEVICE": "cpu"})
    assert "32 values, all as expected" in text
    assert "swish" in text


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header.name)
def test_headers_stand_alone(header: Path) -> None:
    """Each compiles by itself, as C and as C++."""
    source = f"#include <rabbet/{header.name}>\nint main(void) {{ return 0; }}\n"
    compilers = [["cc", *WARNINGS, "-x", "c"]]
    if shutil.which("c++"):
        compilers.append(["c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-xc++"])
    for compiler in compilers:
        subprocess.run(
            [*compiler, "-fsyntax-only", f"-I{INCLUDE}", "-"],
            input=source,
            text=True,
            check=True,
        )


# ---- Plugin libraries ------------------------------------------------------

WARN = "-Wall -Wextra -Werror"


def pad_model(folder: Path) -> tuple[Path, np.ndarray, np.ndarray]:
    """A model with a node that pads by 2, its input and its output; x.npz, too."""
    node = helper.make_node(
        "circ_pad_plugin", ["x"], ["y"], plugin_namespace="example", pad=2
    )
    x = np.random.default_rng(3).standard_normal((2, 3, 5, 7), np.float32)
    y = np.pad(x, ((0, 0), (0, 0), (2, 2), (2, 2)), mode="wrap")
    shapes = {"x": (FLOAT, x.shape)}, {"y": (FLOAT, y.shape)}
    np.savez(folder / "x.npz", x=x)
    return save_model(folder / "pad.onnx", [node], *shapes), x, y


@pytest.fixture(scope="module")
def c_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("library") / "build"
    return build_example("plugin_library_c", out, f"-DCMAKE_C_FLAGS={WARN}") / "circ_pad.so"


def test_plugin_library_in_c(c_library: Path, tmp_path: Path) -> None:
    """Built as its README says; in Python by run.py, and by the command."""
    run = EXAMPLES / "circular_padding" / "run.py"
    text = output(sys.executable, run, c_library, "--device", "cpu", cwd=tmp_path)
    for workflow in ("network", "onnx"):
        for dtype in ("float32", "float16"):
            assert f"circ_pad.so on cpu: {workflow}, {dtype}, equal to numpy.pad" in text
    assert not [name for name in needed(c_library) if "rabbet" in name]
    model, _, y = pad_model(tmp_path)
    ways = ((), ("--plugins", c_library)), (("--keep-plugins",), ("--allow-host-code",))
    for keep, allow in ways:
        command("build", model, "--plugins", c_library, "--device", "cpu", "--quiet", *keep)
        arguments = ("--inputs", tmp_path / "x.npz", "-o", tmp_path / "y.npz")
        command("run", tmp_path / "pad.plan", *arguments, *allow)
        assert np.array_equal(np.load(tmp_path / "y.npz")["y"], y)


def test_what_the_plugin_library_refuses(c_library: Path, tmp_path: Path) -> None:
    _model, _x, _ = pad_model(tmp_path)
    code = (
        "import sys, numpy as np, rabbet as trt\n"
        "trt.load_plugins(sys.argv[1])\n"
        "import rabbet.plugin as trtp\n"
        "registry = trt.get_plugin_registry()\n"
        "creator = registry.get_creator('circ_pad_plugin', '1', 'example')\n"
        "def add(pad, shape):\n"
        "    network = trt.Builder().create_network()\n"
        "    x = network.add_input('x', trt.float32, shape)\n"
        "    field = trt.PluginField('pad', np.array([pad], np.int64), trt.PluginFieldType.INT64)\n"
        "    fields = trt.PluginFieldCollection([field])\n"
        "    plugin = creator.create_plugin('p', fields, trt.TensorRTPhase.BUILD)\n"
        "    network.mark_output(network.add_plugin_v3([x], [], plugin).get_output(0))\n"
        "    trt.compile(network, device='cpu')(np.zeros(shape, np.float32))\n"
        "for case in ((-1, (3, 3)), (1, (3,)), (4, (3, 9))):\n"
        "    try:\n"
        "        add(*case)\n"
        "        print('ran', case)\n"
        "    except trt.Error as error:\n"
        "        print(error)\n"
    )
    text = output(sys.executable, "-c", code, c_library)
    assert "'pad' must be an integer, 0 or more" in text
    assert "the input has rank 1; expected 2 or more" in text
    assert "pad is 4, but a plane has 3 x 9 elements" in text
    assert "ran (" not in text


def test_plugin_library_in_cpp_builds_with_nvcc(tmp_path: Path) -> None:
    """The GPU's part is for tests/gpu."""
    if shutil.which("nvcc") is None or shutil.which("c++") is None:
        pytest.skip("nvcc or a C++ compiler is not installed")
    out = build_example("plugin_library_cuda", tmp_path, f"-DCMAKE_CXX_FLAGS={WARN}")
    code = (out / "circ_pad_cuda.so").read_bytes()
    assert code.count(b".visible .entry circ_pad(") == 4
    assert not [n for n in needed(out / "circ_pad_cuda.so") if "cuda" in n or "nvrtc" in n]


# ---- Python ----------------------------------------------------------------


@pytest.mark.parametrize("kind", ["numpy", "numba", "ctypes", "torch", "v2", "v3", "quick"])
def test_circular_padding(kind: str, tmp_path: Path) -> None:
    if kind in ("numba", "torch") and importlib.util.find_spec(kind) is None:
        pytest.skip(f"{kind} is not installed")
    folder = EXAMPLES / "circular_padding"
    name = f"circ_pad_{kind}.py"
    text = output(
        sys.executable, folder / "run.py", folder / name, "--device", "cpu", cwd=tmp_path
    )
    types = ["float32"] if kind in ("numba", "ctypes", "v2") else ["float32", "float16"]
    for workflow in ("network", "onnx"):
        for dtype in types:
            assert f"{name} on cpu: {workflow}, {dtype}, equal to numpy.pad" in text


def test_the_table_of_circular_paddings_is_complete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = EXAMPLES / "circular_padding"
    monkeypatch.syspath_prepend(folder)
    run = importlib.import_module("run")
    assert set(run.OPERATORS) == {path.name for path in folder.glob("circ_pad_*.py")}


@pytest.mark.parametrize(
    "name", ["inplace_add", "inplace_add_v3", "non_zero", "non_zero_v3"]
)
def test_operators(name: str, tmp_path: Path) -> None:
    script = EXAMPLES / name.removesuffix("_v3") / f"{name}.py"
    assert f"{name}: " in output(sys.executable, script, cwd=tmp_path)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder that looks like a checkout after `make demo`, and what that printed."""
    folder = tmp_path_factory.mktemp("checkout")
    (folder / "build" / "demo").mkdir(parents=True)
    (folder / "build" / "bin").symlink_to(Path(PROGRAM).parent)
    (folder / "build" / "python").symlink_to(Path(rabbet.__file__).parents[1])
    (folder / "build" / "lib").symlink_to(LIBRARIES)
    (folder / "include").symlink_to(INCLUDE)
    (folder / "examples").symlink_to(EXAMPLES)
    (folder / ".venv").symlink_to(sys.prefix)
    text = output(sys.executable, EXAMPLES / "demo" / "demo.py", cwd=folder)
    return folder, text


def test_demo(checkout: tuple[Path, str]) -> None:
    """The main job, in two processes, against ONNX Runtime."""
    folder, text = checkout
    assert text.count("  ok\n") == 2
    assert "WRONG" not in text
    assert (folder / "build/demo/model.plan").stat().st_size > 1000
    assert (folder / "build/demo/padded.png").read_bytes().startswith(b"\x89PNG")


def test_serving(tmp_path: Path) -> None:
    """Processes and coroutines have NumPy's results."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / "serving/serve.py", tmp_path],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("6 batches ok") == 2


def test_triton(tmp_path: Path) -> None:
    """The demo's model on a real server, where one can be had."""
    command = [sys.executable, EXAMPLES / "triton" / "serve.py", "--folder", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if "there is no server here" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    for protocol in ("HTTP", "gRPC"):
        assert f"{protocol}: relu2 (1, 8, 282, 346) as from rabbet.load" in done.stdout


def test_onnxruntime(tmp_path: Path) -> None:
    """The demo's model in ONNX Runtime's session, against its CPU provider."""
    text = output(
        sys.executable, EXAMPLES / "onnxruntime" / "provider.py", "--folder", tmp_path)
    assert text.count(" ok\n") == 4
    assert text.count("RabbetExecutionProvider") == 2


# Runs blocks in one session of Python, as the README says; prints what each printed.
SESSION = """
import contextlib, io, json, subprocess, sys
session, printed = {}, []
for kind, text in json.load(open(sys.argv[1])):
    if kind == "python":
        with contextlib.redirect_stdout(io.StringIO()) as stream:
            exec(compile(text, "README.md", "exec"), session)
        printed.append(stream.getvalue())
    else:
        done = subprocess.run(["bash", "-e"], input=text, capture_output=True, text=True)
        assert done.returncode == 0, text + done.stdout + done.stderr
        printed.append(done.stdout)
json.dump(printed, sys.stdout)
"""


def _same_but_for_digits(found: str, shown: str) -> bool:
    """Equal, but for the fourth digit and those after it of numbers with a fraction."""
    rounded = [
        re.sub(r"\d+\.\d+", lambda m: f"{float(m[0]):.3f}", text) for text in (found, shown)
    ]
    return rounded[0] == rounded[1]


def test_the_readme_can_be_pasted(checkout: tuple[Path, str]) -> None:
    """Every block under "Use it", in order; output that is shown is what is printed."""
    folder, _ = checkout
    used = (ROOT / "README.md").read_text().split("## Use it")[1].split("\n## ")[0]
    used = used.replace("rabbet bench ", "rabbet bench --duration 0 ")
    # The demo's build is tuned: these three need not be.
    used = used.replace('device="cpu", save', 'device="cpu", optimization_level=0, save')
    assert used.count("optimization_level=0") == 2
    used = used.replace("--timing-cache", "--optimization-level 1 --timing-cache")
    assert used.count("--optimization-level 1") == 1
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", used, re.M | re.S)
    kinds = [kind for kind, _ in blocks]
    (operator,) = [text for _, text in blocks if "@trtp.register" in text]
    assert (EXAMPLES / "demo" / "circ_pad.py").read_text().endswith(operator)
    (core,) = [text for kind, text in blocks if kind == "c"]
    assert core in (EXAMPLES / "c_run_plan" / "run_plan.c").read_text()
    pasted = [b for b in blocks[1:] if b[0] in ("sh", "python") and b[1] != operator]
    for word in ("build", "run", "bench", "inspect"):
        assert f"rabbet {word} " in "".join(text for _, text in pasted)
    (folder / "session.py").write_text(SESSION)
    (folder / "blocks.json").write_text(json.dumps(pasted))
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "RABBET"))}
    # Leaves out the folder of the command under test.
    environment["PATH"] = "/usr/local/bin:/usr/bin:/bin"
    done = subprocess.run(
        ["bash", "-e"],
        input=blocks[0][1] + "$RABBET_PYTHON ../../session.py ../../blocks.json\n",
        capture_output=True, text=True, cwd=folder, env=environment, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    printed = dict(zip([text for _, text in pasted], json.loads(done.stdout), strict=True))
    assert kinds.count("text") == 3
    for (_, block), (kind, shown) in itertools.pairwise(blocks):
        assert kind != "text" or _same_but_for_digits(printed[block], shown)
    ours = np.load(folder / "build/demo/y.npz")
    before = np.load(folder / "build/demo/result.npz")
    for name, same in (("padded", "padded"), ("relu2", "features")):
        np.testing.assert_allclose(ours[name], before[same], rtol=1e-4, atol=1e-5)


def test_installation(tmp_path: Path) -> None:
    """`cmake --install` gives a prefix that programs find and that can be moved."""
    build = Path(PROGRAM).parent.parent
    if not (build / "CMakeCache.txt").is_file():
        pytest.skip("the package under test lies in no build tree")
    output("cmake", "--install", build, "--prefix", tmp_path / "first")
    assert not (tmp_path / "first" / "rabbet").exists()
    output(
        "cmake", "--install", build, "--prefix", tmp_path / "first", "--component", "python"
    )
    prefix = (tmp_path / "first").rename(tmp_path / "second")
    assert "\ncpu " in output(prefix / "bin" / "rabbet", "version", env={})
    backends = Path(output(prefix / "bin" / "rabbet", "triton", "--backend-directory").strip())
    assert backends.is_relative_to(prefix)
    backend = backends / "rabbet" / "libtriton_rabbet.so"
    assert "not found" not in output("ldd", backend, env={})
    assert not [name for name in needed(backend) if "tritonserver" in name]
    completion = prefix / "share/bash-completion/completions/rabbet"
    assert "complete -F _rabbet rabbet" in completion.read_text()
    work = tmp_path / "work"
    output("cmake", "-S", EXAMPLES / "c_network", "-B", work, f"-Drabbet_ROOT={prefix}")
    output("cmake", "--build", work)
    text = output(work / "swish_network", env={"RABBET_DEVICE": "cpu"})
    assert "32 values, all as expected" in text
    # The package lies in the prefix, and a C program with Python in it finds that.
    env = {**os.environ, "PYTHONPATH": str(prefix), "RABBET_PYTHON": sys.executable}
    found = output(sys.executable, "-c", "import rabbet; print(rabbet.__path__)", env=env)
    assert str(prefix) in found
    if sysconfig.get_config_var("Py_ENABLE_SHARED"):
        embed = tmp_path / "embed"
        source = EXAMPLES / "c_embed_python"
        output("cmake", "-S", source, "-B", embed, f"-Drabbet_ROOT={prefix}")
        output("cmake", "--build", embed)
        gone = output(embed / "embed_python", tmp_path / "gone.plan", env=env, code=1)
        assert "gone.plan" in gone
        assert "Python" not in gone
    # A plugin library, by pkg-config.
    (pkgconfig,) = prefix.glob("lib*/**/pkgconfig")
    for name in ("rabbet", "rabbet_runtime"):
        found = subprocess.run(
            ["pkg-config", "--cflags", "--libs", name],
            env={**os.environ, "PKG_CONFIG_PATH": str(pkgconfig)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert f"-l{name}" in found.stdout
    library = tmp_path / "circ_pad.so"
    flags = found.stdout.split()[:1]
    source = EXAMPLES / "plugin_library_c" / "circ_pad.c"
    output("cc", "-shared", "-fPIC", *flags, source, "-o", library)
    model, _, y = pad_model(tmp_path)
    rabbet = prefix / "bin" / "rabbet"
    cpu = {"RABBET_DEVICE": "cpu"}
    plan = tmp_path / "pad.plan"
    output(rabbet, "build", model, "--plugins", library, "--keep-plugins", env=cpu)
    arguments = ("--inputs", tmp_path / "x.npz", "-o", tmp_path / "y.npz")
    output(rabbet, "run", plan, "--allow-host-code", *arguments, env=cpu)
    assert np.array_equal(np.load(tmp_path / "y.npz")["y"], y)
