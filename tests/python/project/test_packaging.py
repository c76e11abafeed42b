"""Programs outside of the tree find Rabbet; its version is said once; a build says what it
lacks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import rabbet

from tests.python.support.c_programs import ROOT, installation, output
from tests.python.support.command import command

CONSUMER = ROOT / "tests" / "packaging"


def check_consumer(program: Path, version: str) -> None:
    """It runs, and what it was compiled with is the library that it opened."""
    text = output(program, cwd=program.parent)
    assert text.startswith(f"{version} {version}: "), text
    assert "none.plan" in text


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An installation of the build under test."""
    build = installation()
    if not (build / "CMakeCache.txt").is_file():
        return build
    folder = tmp_path_factory.mktemp("prefix")
    output("cmake", "--install", build, "--prefix", folder)
    return folder


def test_module_is_the_command() -> None:
    module = output(sys.executable, "-m", "rabbet", "version")
    assert module == command("version").stdout
    done = subprocess.run([sys.executable, "-m", "rabbet", "nonsense"], capture_output=True)
    assert done.returncode == 2


def test_an_import_brings_no_more_than_it_needs() -> None:
    """Modules for errors, digests of sources and arrays come when they are used."""
    late = {"hashlib", "difflib", "json", "numpy", "importlib.metadata", "subprocess"}
    program = "import sys, rabbet.plugin; print(*sys.modules)"
    assert not late & set(output(sys.executable, "-c", program).split())


def test_version_is_said_once() -> None:
    """The header's is that of the library, the package and its metadata."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    settings = project["tool"]["scikit-build"]["metadata"]["version"]
    found = re.search(settings["regex"], (ROOT / settings["input"]).read_text())
    assert found
    assert settings["result"].format(**found.groupdict()) == rabbet.__version__


def test_addresses_are_of_one_project() -> None:
    """pyproject.toml has them, and other files refer to each other by paths."""
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    home = urls["Homepage"]
    assert all(url == home or url.startswith(f"{home}/") for url in urls.values())
    texts = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob(".github/**/*.yml")]
    assert len(texts) > 20
    named = [p.name for p in texts if re.search(r"https?://\S*\brabbet\b", p.read_text())]
    assert not named


def test_find_package(prefix: Path, tmp_path: Path) -> None:
    output("cmake", "-S", CONSUMER, "-B", tmp_path, f"-Drabbet_ROOT={prefix}")
    output("cmake", "--build", tmp_path)
    check_consumer(tmp_path / "consumer", rabbet.__version__)


def test_find_package_refuses_another_version(prefix: Path, tmp_path: Path) -> None:
    lists = (CONSUMER / "CMakeLists.txt").read_text()
    (tmp_path / "CMakeLists.txt").write_text(lists.replace("rabbet 0.1", "rabbet 0.99"))
    text = output(
        "cmake", "-S", tmp_path, "-B", tmp_path / "b", f"-Drabbet_ROOT={prefix}", code=1
    )
    assert f"version: {rabbet.__version__}" in text


def test_pkg_config(prefix: Path, tmp_path: Path) -> None:
    (folder,) = prefix.glob("lib*/**/pkgconfig")
    env = {**os.environ, "PKG_CONFIG_PATH": str(folder)}
    flags = output("pkg-config", "--cflags", "--libs", "rabbet_runtime", env=env).split()
    version = output("pkg-config", "--modversion", "rabbet_runtime", env=env).strip()
    assert version == rabbet.__version__
    program = tmp_path / "consumer"
    path = f"-Wl,-rpath,{folder.parent}"
    output("cc", CONSUMER / "consumer.c", *flags, path, "-o", program)
    check_consumer(program, version)


def test_libraries_that_other_programs_open(prefix: Path) -> None:
    """The command of an installation tells where they lie, and they find Rabbet's."""
    told = output(prefix / "bin" / "rabbet", "triton", "--backend-directory").strip()
    assert Path(told).resolve().is_relative_to(prefix.resolve())
    (provider,) = prefix.glob("lib*/**/libonnxruntime_ep_rabbet.so")
    for file in (Path(told) / "rabbet" / "libtriton_rabbet.so", provider):
        lines = output("ldd", file).splitlines()
        ours = [line.split("=>")[1].strip() for line in lines if "librabbet" in line]
        assert ours
        assert all(Path(path.split()[0]).resolve().is_relative_to(prefix.resolve())
                   for path in ours), ours  # fmt: skip
        assert not [line for line in lines if "not found" in line]


@pytest.fixture
def subproject(tmp_path: Path) -> Path:
    """The build folder of a project that adds Rabbet's, without optimization, to be quick."""
    output(
        "cmake", "-S", CONSUMER, "-B", tmp_path, "-G", "Ninja", f"-DRABBET_SOURCE={ROOT}",
        "-DRABBET_CUDA=OFF", "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS_DEBUG=",
        f"-DPython3_EXECUTABLE={sys.executable}",
    )  # fmt: skip
    return tmp_path


def test_add_subdirectory(subproject: Path) -> None:
    # No tests, no Python extension and no installation of a part.
    assert not (subproject / "rabbet/tests").exists()
    assert not (subproject / "rabbet/python").exists()
    installed = (subproject / "rabbet/cmake_install.cmake").read_text()
    assert "rabbet" not in installed.split("subdir")[0]
    # The program takes the runtime alone, and only that is compiled for it.
    commands = output("ninja", "-C", subproject, "-t", "commands", "consumer")
    assert "librabbet_runtime.so" in commands
    assert "src/builder/" not in commands


@pytest.mark.full
def test_a_subproject_is_built(subproject: Path) -> None:
    output("cmake", "--build", subproject, "--target", "consumer")
    check_consumer(subproject / "consumer", rabbet.__version__)


def test_the_build_lists_what_is_missing(tmp_path: Path) -> None:
    text = output(
        "cmake", "-S", ROOT, "-B", tmp_path, "-DCMAKE_DISABLE_FIND_PACKAGE_OneDNN=ON",
        code=1,
    )  # fmt: skip
    assert "oneDNN 2, from 2.6 on: dnnl.h and libdnnl (Debian: libdnnl-dev)" in text
    assert "CMAKE_PREFIX_PATH" in text
