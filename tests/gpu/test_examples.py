"""The examples on CUDA: each kernel framework that is installed."""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rabbet as trt

from tests.python.support.c_programs import build_example
from tests.python.support.command import PROGRAM

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)

HERE = Path(__file__).resolve().parent
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PADDING = EXAMPLES / "circular_padding"


def load_run() -> Any:
    """examples/circular_padding/run.py as a module."""
    spec = importlib.util.spec_from_file_location("circ_pad_run", PADDING / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RUN = load_run()
ON_CUDA = [name for name, devices in RUN.OPERATORS.items() if "cuda" in devices]


def classes_by_cupy(name: str) -> bool:
    """Examples that use RawKernel of CuPy and no more: the stand-in has that."""
    return name.endswith(("_v3.py", "_quick.py"))


def needs(*modules: str, name: str = "") -> None:
    """Skips unless all are installed and use a GPU."""
    if cuda_driver.is_stand_in() and modules == ("cupy",) and classes_by_cupy(name):
        return
    for module in modules:
        if not RUN.found(module):
            pytest.skip(f"{module} is not installed")
    if modules and cuda_driver.is_stand_in():
        pytest.skip(f"{', '.join(modules)} cannot use the stand-in for a GPU")
    if "torch" in modules:
        import torch

        if not torch.cuda.is_available():
            pytest.skip("torch sees no GPU")


def output(*command: Any) -> str:
    environment = dict(os.environ)
    if cuda_driver.is_stand_in():
        paths = [str(HERE / "stand_in_packages"), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join([*paths, str(HERE.parents[1])])
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ON_CUDA)
def test_circular_padding(name: str) -> None:
    needs(*RUN.OPERATORS[name]["cuda"], name=name)
    text = output(PADDING / "run.py", PADDING / name, "--device", "cuda")
    workflows = ["network"] + ["onnx"] * RUN.found("onnx")
    for workflow in workflows:
        for dtype in ("float32", "float16"):
            assert f"{name} on cuda: {workflow}, {dtype}, equal to numpy.pad" in text


@pytest.mark.parametrize("name", ["inplace_add", "non_zero"])
def test_operators(name: str) -> None:
    needs("torch")
    script = EXAMPLES / name / f"{name}.py"
    assert f"{name}: " in output(script, "--device", "cuda")


@pytest.mark.parametrize("name", ["inplace_add_v3", "non_zero_v3"])
def test_classes(name: str) -> None:
    needs("cupy", name=f"{name}.py")
    script = EXAMPLES / name.removesuffix("_v3") / f"{name}.py"
    assert f"{name}: " in output(script, "--device", "cuda")


def build_library(kernel: str, out: Path) -> Path:
    """By CMake as its README says; where there is none, as its CMakeLists.txt does."""
    if shutil.which("cmake") is not None:
        options = [] if kernel == "nvcc" else ["-DCIRC_PAD_NVCC="]
        return build_example("plugin_library_cuda", out, *options) / "circ_pad_cuda.so"
    source = PADDING / "circ_pad.cu"
    for item, unroll in itertools.product((2, 4), (2, 4)):
        if kernel == "nvcc":
            ptx = out / f"circ_pad_{item}_{unroll}.ptx"
            defines = f"-DITEM={item}", f"-DUNROLL={unroll}"
            nvcc = ["nvcc", "-ptx", "-arch=compute_80", *defines, "-o", ptx, source]
            subprocess.run(nvcc, check=True)
    define = f"PTX={str(out)!r}" if kernel == "nvcc" else f"SOURCE={str(source)!r}"
    library = out / "circ_pad_cuda.so"
    subprocess.run(
        [
            "c++", "-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden",
            f"-I{EXAMPLES.parent / 'include'}", f"-DCIRC_PAD_{define}".replace("'", '"'),
            EXAMPLES / "plugin_library_cuda" / "circ_pad.cpp", "-ldl", "-o", library,
        ],
        check=True,
    )  # fmt: skip
    return library


@pytest.mark.parametrize("kernel", ["nvcc", "nvrtc"])
def test_plugin_library(kernel: str, tmp_path: Path) -> None:
    """In C++; the kernel compiled with the library, or by NVRTC when it runs."""
    if shutil.which("c++") is None:
        pytest.skip("a C++ compiler is not installed")
    if kernel == "nvcc" and (cuda_driver.is_stand_in() or shutil.which("nvcc") is None):
        pytest.skip("there is no nvcc, or the stand-in, which takes no PTX of it")
    library = build_library(kernel, tmp_path)
    text = output(PADDING / "run.py", library, "--device", "cuda")
    for workflow in ["network"] + ["onnx"] * RUN.found("onnx"):
        for dtype in ("float32", "float16"):
            assert f"circ_pad_cuda.so on cuda: {workflow}, {dtype}, equal to" in text
    # Carried by a plan, and run by one who has never seen it.
    x = np.random.default_rng(1).normal(size=(2, 3, 16, 20)).astype(np.float32)
    output("-c", KEEP, library, tmp_path / "pad.plan", PADDING)
    model = trt.load(tmp_path / "pad.plan", allow_host_code=True)
    expected = np.pad(x, ((0, 0), (0, 0), (3, 3), (3, 3)), mode="wrap")
    for _ in range(4):  # recorded into a graph, and replayed
        np.testing.assert_array_equal(model(x), expected)


KEEP = """
import sys
sys.path.insert(0, sys.argv[3])
import numpy as np
import run
trt = run.trt
trt.load_plugins(sys.argv[1])
network = trt.Builder().create_network()
x = network.add_input("x", trt.float32, (2, 3, 16, 20))
network.mark_output(run.add_padding(network, x).get_output(0))
trt.compile(
    network, device="cuda", save=sys.argv[2], plugins=sys.argv[1], keep_plugins=True
)
"""

BUILD = """
import sys
import numpy as np
import run
run.trt.load_plugins(sys.argv[1])
run.pad_by_network(np.empty((2, 3, 16, 20), np.float32), "cuda").save(sys.argv[2])
"""


@pytest.mark.parametrize("name", [name for name in ON_CUDA if "_aot_" in name])
def test_plans_with_aot_kernels_need_no_python(name: str, tmp_path: Path) -> None:
    """Neither in this process, which has never seen the operator, nor by the command,
    which has no Python to start."""
    needs(*RUN.OPERATORS[name]["cuda"])
    plan = tmp_path / "pad.plan"
    done = subprocess.run(
        [sys.executable, "-c", BUILD, PADDING / name, plan],
        cwd=PADDING,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    x = np.random.default_rng(1).normal(size=(2, 3, 16, 20)).astype(np.float32)
    expected = np.pad(x, ((0, 0), (0, 0), (3, 3), (3, 3)), mode="wrap")
    np.testing.assert_array_equal(trt.load(plan)(x), expected)
    np.savez(tmp_path / "x.npz", x=x)
    kept = {k: v for k, v in os.environ.items() if k.startswith(("RABBET_", "LD_", "CUDA"))}
    done = subprocess.run(
        [PROGRAM, "run", plan, "--inputs", tmp_path / "x.npz", "-o", tmp_path / "y.npz"],
        env={**kept, "PATH": "/nonexistent", "RABBET_PYTHON": "/nonexistent/python"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (y,) = np.load(tmp_path / "y.npz").values()
    np.testing.assert_array_equal(y, expected)
