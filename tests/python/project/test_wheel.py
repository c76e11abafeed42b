"""The wheel: complete, small, and at home in an empty environment."""

from __future__ import annotations

import email
import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from stat import S_ISLNK
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.python.support.c_programs import EXAMPLES, ROOT, needed, output
from tests.python.support.command import FLOAT, save_model
from tests.python.support.free_threaded import find_free_threaded

pytestmark = pytest.mark.full

LIMIT = 40e6
RUNTIME_LIMIT = 600 << 10
# Libraries that every Linux of the manylinux kind has.
BASE = re.compile(
    r"(ld-linux-x86-64|lib(c|m|mvec|pthread|dl|rt|stdc\+\+|gcc_s))\.so\.\d+$"
)
# Settings that a user's shell would have, and nothing of ours.
SCRUBBED = {"PATH": "/usr/bin:/bin", "HOME": "/dev/null"}  # where nothing can be made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make wheel` builds it from the checkout, whose .venv must be complete."""
    folder = tmp_path_factory.mktemp("wheel")
    output(ROOT / "tools" / "wheel.sh", folder)
    (file,) = folder.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """A virtual environment that holds the wheel and NumPy, and nothing else."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python3"
    # -I: pip would take the package of a build tree on PYTHONPATH for the installed one.
    output(python, "-I", "-m", "pip", "install", "--quiet", "--no-deps", "--no-index",
           "--disable-pip-version-check", wheel)  # fmt: skip
    # From here, so that the test needs no network.
    installed = Path(np.__file__).parents[1]
    for part in installed.glob("numpy*"):
        shutil.copytree(part, packages(folder) / part.name)
    return folder


def packages(environment: Path) -> Path:
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return environment / "lib" / name / "site-packages"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A convolution (oneDNN) and an operator in Python."""
    folder = tmp_path_factory.mktemp("model")
    weights = np.random.default_rng(0).normal(size=(8, 3, 3, 3)).astype(np.float32)
    return save_model(
        folder / "m.onnx",
        [
            helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
            helper.make_node("Twice", ["c"], ["y"], plugin_namespace="wheel"),
        ],
        {"x": (FLOAT, [1, 3, 10, 10])},
        {"y": (FLOAT, [1, 8, 8, 8])},
        {"w": weights},
    )


OPERATOR = '''
import numpy as np
import rabbet.plugin as trtp

@trtp.register("wheel::Twice")
def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()

@trtp.impl("wheel::Twice")
def run(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
    np.multiply(np.asarray(x), 2, out=np.asarray(outputs[0]))
'''


@pytest.fixture(scope="module")
def operator(model: Path) -> Path:
    file = model.with_name("twice.py")
    file.write_text(OPERATOR)
    return file


@pytest.fixture(scope="module")
def free_threaded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The wheel for a free-threaded interpreter, and that interpreter."""
    python, why = find_free_threaded()
    if not python:
        pytest.skip(why)
    probe = "import scikit_build_core"
    if subprocess.run([python, "-c", probe], capture_output=True).returncode:
        pytest.skip(f"{python} has no scikit-build-core")
    folder = tmp_path_factory.mktemp("free_threaded")
    output(
        python, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps",
        "--disable-pip-version-check", "--wheel-dir", folder,
        f"-Ccmake.define.RABBET_ONNX_PROTO={Path(onnx.__file__).parent / 'onnx-ml.proto'}",
        ROOT,
    )  # fmt: skip
    (file,) = folder.glob("*.whl")
    return file, python


def elf_files(folder: Path) -> list[Path]:
    """Programs and libraries below a folder."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    return [file for file in files if file.open("rb").read(4) == b"\x7fELF"]


# ---- The file --------------------------------------------------------------


def test_file(wheel: Path) -> None:
    assert "-cp311-abi3-" in wheel.name
    assert wheel.stat().st_size < LIMIT
    archive = zipfile.ZipFile(wheel)
    names = [name for name in archive.namelist() if not name.endswith("/")]
    assert len(names) == len(set(names))
    links = [file.filename for file in archive.infolist() if S_ISLNK(file.external_attr >> 16)]
    assert not links
    for name in (
        "rabbet/_rabbet.abi3.so",
        "rabbet/_rabbet.pyi",
        "rabbet/py.typed",
        "rabbet/plugin/__init__.py",
        "rabbet/include/rabbet/engine.h",
        "rabbet/lib/cmake/rabbet/rabbet-config.cmake",
        "rabbet/lib/librabbet_cpu.so",
        "rabbet/lib/librabbet.so.0",
        "rabbet/lib/librabbet_runtime.so.0",
        "rabbet/lib/rabbet/triton/rabbet/libtriton_rabbet.so",
        "rabbet/lib/libonnxruntime_ep_rabbet.so",
    ):
        assert name in names
    # Each library lies there once, by the name that programs ask for.
    assert not {"rabbet/lib/librabbet.so", "rabbet/lib/librabbet_runtime.so"} & set(names)
    python = {str(p.relative_to(ROOT / "python")) for p in (ROOT / "python").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == python
    headers = {f"rabbet/include/rabbet/{p.name}" for p in ROOT.glob("include/rabbet/*")}
    assert headers <= set(names)


def test_tag(wheel: Path, environment: Path) -> None:
    """manylinux, of a glibc that has all that is inside; Debian 12's is the newest."""
    found = re.search(r"-manylinux_2_(\d+)_x86_64\.whl$", wheel.name)
    assert found, wheel.name
    assert 28 <= int(found[1]) <= 36
    needed_versions = set()
    for file in [*elf_files(packages(environment) / "rabbet"), environment / "bin" / "rabbet"]:
        versions = re.findall(r"Name: GLIBC_2\.(\d+)", output("readelf", "-V", file))
        needed_versions |= set(map(int, versions))
    assert max(needed_versions) <= int(found[1])


def test_no_path_of_the_build(environment: Path) -> None:
    """Programs and libraries of Rabbet's name no folder of the machine that made them."""
    folder = packages(environment) / "rabbet"
    ours = [file for file in elf_files(folder) if "rabbet" in file.name]
    assert len(ours) > 6
    for file in [*ours, environment / "bin" / "rabbet"]:
        data = file.read_bytes()
        for path in (ROOT, Path.home(), "/tmp/tmp", sys.prefix):
            assert f"{path}/".encode() not in data, f"{file.name} names {path}"


def test_metadata(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (folder,) = {name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name}
    text = email.message_from_bytes(archive.read(f"{folder}/METADATA"))
    assert text["License-Expression"] == "Apache-2.0"
    assert text["Author"] == "The Rabbet developers"
    assert set(text.get_all("Provides-Extra")) == {"cuda12", "cuda13", "progress", "torch"}
    for name in ("LICENSE", "THIRD_PARTY_NOTICES.md"):
        assert archive.read(f"{folder}/licenses/{name}") == (ROOT / name).read_bytes()


def test_shells_find_completions(environment: Path) -> None:
    for shell, path in (
        ("bash", "bash-completion/completions/rabbet"),
        ("zsh", "zsh/site-functions/_rabbet"),
        ("fish", "fish/vendor_completions.d/rabbet.fish"),
    ):
        script = (environment / "share" / path).read_text()
        assert script == output(environment / "bin" / "rabbet", "completion", shell)


def test_free_threaded_file(free_threaded: tuple[Path, str], tmp_path: Path) -> None:
    """Its extension alone is of another kind; in an environment of its own the
    command runs and an import leaves the GIL off."""
    wheel, python = free_threaded
    assert re.search(r"-cp3\d+-cp3\d+t-", wheel.name), wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    (extension,) = [name for name in names if name.startswith("rabbet/_rabbet.c")]
    assert re.search(r"cpython-3\d+t-", extension), extension
    assert "rabbet/_rabbet.abi3.so" not in names
    python_files = {str(p.relative_to(ROOT / "python")) for p in (ROOT / "python").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == python_files
    subprocess.run([python, "-m", "venv", "--system-site-packages", tmp_path], check=True)
    inside = tmp_path / "bin" / "python"
    output(inside, "-I", "-m", "pip", "install", "--quiet", "--no-deps", "--no-index",
           "--disable-pip-version-check", wheel)  # fmt: skip
    code = "import sys, rabbet; print(rabbet.__file__, sys._is_gil_enabled())"
    found = subprocess.run(
        [inside, "-c", code], env=SCRUBBED, capture_output=True, text=True, cwd=tmp_path
    )
    assert found.stdout.startswith(str(tmp_path)), found.stderr
    assert found.stdout.endswith("False\n"), found.stderr
    version = subprocess.run(
        [tmp_path / "bin" / "rabbet", "version"], env=SCRUBBED, capture_output=True, text=True
    )
    assert version.returncode == 0, version.stderr
    assert "rabbet" in version.stdout, version.stderr


def test_triton_backend(environment: Path) -> None:
    program = environment / "bin" / "rabbet"
    folder = Path(output(program, "triton", "--backend-directory", env=SCRUBBED).strip())
    assert folder.is_relative_to(environment)
    assert "not found" not in output("ldd", folder / "rabbet" / "libtriton_rabbet.so", env=SCRUBBED)


def test_small_runtime(environment: Path) -> None:
    """What C programs need, stripped as installed."""
    (file,) = (packages(environment) / "rabbet" / "lib").glob("librabbet_runtime.so.*")
    assert ".symtab" not in output("readelf", "-S", file)
    assert file.stat().st_size <= RUNTIME_LIMIT


def test_every_library_is_inside(environment: Path) -> None:
    """Libraries that a file needs are beside it or of the base system; no path leads out."""
    folder = packages(environment) / "rabbet"
    inside = {file.name for file in (folder / "lib").iterdir()}
    files = [*elf_files(folder), environment / "bin" / "rabbet"]
    assert len(files) > 6
    for file in files:
        for name in needed(file):
            assert name in inside or BASE.match(name), f"{file.name} needs {name}"
        paths = re.findall(r"R(?:UN)?PATH.*\[(.*)\]", output("readelf", "-d", file))
        for path in ":".join(paths).split(":"):
            assert path == "" or path.startswith("$ORIGIN"), f"{file.name}: {path}"


def test_bundled_libraries_carry_their_terms(environment: Path) -> None:
    lib = packages(environment) / "rabbet" / "lib"
    # Our libraries and the helper program rabbet-trial lie there as well.
    ours = r"(lib(triton_|onnxruntime_ep_)?)?rabbet"
    foreign = [file for file in elf_files(lib) if not re.match(ours, file.name)]
    assert {"libdnnl.so.2", "libprotobuf-c.so.1"} <= {file.name for file in foreign}
    if not shutil.which("dpkg-query"):
        pytest.skip("only Debian's packages say whose a library is")
    notices = (ROOT / "THIRD_PARTY_NOTICES.md").read_text()
    for file in foreign:
        assert f"| `{file.name}` |" in notices
        terms = file.with_name(f"{file.name}.copyright").read_text()
        assert "icense" in terms
    assert "GNU GENERAL PUBLIC LICENSE" in (lib / "GPL-3").read_text()


# ---- Python ----------------------------------------------------------------

PROGRAM = """
import sys, ctypes, json, zlib
import numpy as np

def libraries():
    lines = open("/proc/self/maps").read().splitlines()
    return {line.split()[-1] for line in lines if ".so" in line}

before = libraries()
import rabbet
model = rabbet.compile(sys.argv[1], plugins=[sys.argv[2]], device="cpu")
x = np.random.default_rng(1).normal(size=(1, 3, 10, 10)).astype(np.float32)
np.savez(sys.argv[3], x=x, y=model(x))
print(json.dumps([rabbet.__file__, sorted(libraries() - before)]))
"""


def expected(x: Any, model: Path) -> Any:
    """The model in NumPy."""
    (weights,) = onnx.load(model).graph.initializer
    windows = np.lib.stride_tricks.sliding_window_view(x[0], (3, 3), axis=(1, 2))
    w = numpy_helper.to_array(weights)
    return 2 * np.einsum("chwij,ocij->ohw", windows, w)[None]


def test_python(environment: Path, model: Path, operator: Path, tmp_path: Path) -> None:
    """Every library that building and running opens is inside the wheel."""
    result = tmp_path / "result.npz"
    text = output(
        environment / "bin" / "python3", "-I", "-c", PROGRAM, model, operator, result,
        env=SCRUBBED, cwd=tmp_path,
    )  # fmt: skip
    file, opened = json.loads(text.splitlines()[-1])
    folder = packages(environment) / "rabbet"
    assert Path(file) == folder / "__init__.py"
    stdlib = Path(os.__file__).resolve().parent
    names = {Path(path).name for path in opened}
    assert {"librabbet_cpu.so", "libdnnl.so.2", "_rabbet.abi3.so"} <= names
    paths = list(map(Path, opened))
    # Python's own modules, and what these need.
    modules = [path for path in paths if path.is_relative_to(stdlib)]
    of_python = tuple(name for module in modules for name in needed(module))
    for path in paths:
        if path in modules or path.name.startswith(of_python):
            continue
        inside = path.is_relative_to(environment.resolve())
        assert inside or BASE.match(path.name), f"{path} is opened from outside"
    found = np.load(result)
    np.testing.assert_allclose(found["y"], expected(found["x"], model), rtol=1e-4, atol=1e-5)


MODULES = """
import json, pkgutil
import rabbet

missing = {}
for module in pkgutil.walk_packages(rabbet.__path__, "rabbet.", onerror=lambda name: None):
    if any(part.startswith("_") for part in module.name.split(".")):
        continue
    try:
        __import__(module.name)
        missing[module.name] = None
    except ImportError as error:
        missing[module.name] = str(error)
print(json.dumps(missing))
"""


def test_modules(environment: Path, tmp_path: Path) -> None:
    """With NumPy alone: what is made for another package names it, the rest is there."""
    text = output(
        environment / "bin" / "python3", "-I", "-c", MODULES, env=SCRUBBED, cwd=tmp_path
    )
    found = json.loads(text.splitlines()[-1])
    others = {
        "rabbet.compat.polygraphy": "polygraphy",
        "rabbet.serving.kserve": "kserve",
        "rabbet.serving.ray": "ray",
        "rabbet.torch": "torch",
    }
    for name, message in found.items():
        if name in others:
            assert message
            assert others[name] in message, f"{name}: {message}"
        else:
            assert message is None, f"{name}: {message}"
    assert {"rabbet.onnxruntime", "rabbet.parallel", "rabbet.serving", *others} <= set(found)


PROVIDER = """
import ctypes
import rabbet, rabbet.onnxruntime as provider

path = provider.get_library_path()
library = ctypes.CDLL(path)
library.CreateEpFactories, library.ReleaseEpFactory, library.RegisterCustomOps
try:
    provider.register()
except rabbet.UnavailableError as error:
    print(path, error, sep="\\n")
"""


def test_provider(environment: Path, tmp_path: Path) -> None:
    """The provider's library opens by itself; what is missing is ONNX Runtime."""
    python = environment / "bin" / "python3"
    path, error = output(python, "-I", "-c", PROVIDER, env=SCRUBBED, cwd=tmp_path).splitlines()
    assert Path(path).is_relative_to(environment)
    assert "onnxruntime is not installed" in error


SPLIT = """
import sys
import rabbet.parallel

split = rabbet.parallel.tensor(sys.argv[1], ranks=2)
print(split)
"""


def test_split(environment: Path, tmp_path: Path) -> None:
    """A model is split over ranks without a GPU and without the package onnx."""
    rng = np.random.default_rng(3)
    model = save_model(
        tmp_path / "m.onnx",
        [
            helper.make_node("MatMul", ["x", "a"], ["h"], name="up"),
            helper.make_node("Relu", ["h"], ["r"], name="relu"),
            helper.make_node("MatMul", ["r", "b"], ["y"], name="down"),
        ],
        {"x": (FLOAT, [4, 64])},
        {"y": (FLOAT, [4, 64])},
        {
            "a": rng.normal(size=(64, 256)).astype(np.float32),
            "b": rng.normal(size=(256, 64)).astype(np.float32),
        },
    )
    python = environment / "bin" / "python3"
    text = output(python, "-I", "-c", SPLIT, model, env=SCRUBBED, cwd=tmp_path)
    assert "up" in text
    assert "down" in text


# ---- The command -----------------------------------------------------------


def test_command(environment: Path, model: Path, operator: Path, tmp_path: Path) -> None:
    program = environment / "bin" / "rabbet"
    assert "\ncpu " in output(program, "version", env=SCRUBBED)
    plan, result = tmp_path / "m.plan", tmp_path / "y.npz"
    x = np.random.default_rng(2).normal(size=(1, 3, 10, 10)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    # The environment's own interpreter imports the operator.
    output(program, "build", model, "--plugins", operator, "-o", plan, "--quiet",
           env=SCRUBBED)  # fmt: skip
    output(program, "run", plan, "--plugins", operator, "--inputs", tmp_path / "x.npz",
           "-o", result, env=SCRUBBED)  # fmt: skip
    found = np.load(result)["y"]
    np.testing.assert_allclose(found, expected(x, model), rtol=1e-4, atol=1e-5)


def test_libraries_of_the_command(environment: Path, tmp_path: Path) -> None:
    relu = save_model(
        tmp_path / "relu.onnx",
        [helper.make_node("Relu", ["x"], ["y"])],
        {"x": (FLOAT, [2])},
        {"y": (FLOAT, [2])},
    )
    done = subprocess.run(
        [environment / "bin" / "rabbet", "run", relu, "--quiet"],
        env={**SCRUBBED, "LD_DEBUG": "files"},
        capture_output=True,
        text=True,
        check=True,
    )
    folder = (packages(environment) / "rabbet").resolve()
    opened = {Path(p) for p in re.findall(r"calling init: (\S+)", done.stderr)}
    assert "librabbet_cpu.so" in {path.name for path in opened}
    for path in opened:
        inside = path.resolve().is_relative_to(folder)
        assert inside or BASE.match(path.name), f"{path} is opened from outside"


# ---- C ---------------------------------------------------------------------


@pytest.mark.parametrize("example", ["c_run_plan", "c_network"])
def test_cmake_package(example: str, environment: Path, tmp_path: Path) -> None:
    prefix = packages(environment) / "rabbet"
    path = f"{Path(shutil.which('cmake') or '').parent}:/usr/bin:/bin"
    output("cmake", "-S", EXAMPLES / example, "-B", tmp_path, f"-Drabbet_ROOT={prefix}",
           env={**SCRUBBED, "PATH": path})  # fmt: skip
    output("cmake", "--build", tmp_path)
    if example == "c_network":
        text = output(tmp_path / "swish_network", env=SCRUBBED)
        assert "32 values, all as expected" in text
        return
    model = save_model(
        tmp_path / "m.onnx",
        [helper.make_node("Add", ["x", "x"], ["y"])],
        {"x": (FLOAT, [3])},
        {"y": (FLOAT, [3])},
    )
    output(environment / "bin" / "rabbet", "build", model, "--quiet", env=SCRUBBED)
    text = output(tmp_path / "run_plan", tmp_path / "m.plan", env=SCRUBBED)
    assert text == "y[0] = 2\n"
