"""Where NCCL is looked for: docs/cuda.md has the order; src/device/cuda/driver/library_test.c
tests the same for the C code."""

from __future__ import annotations

import ctypes.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import rabbet
from rabbet.parallel import _nccl

from .ranks import BUILD, ROOT

STAND_IN = BUILD / "tests" / "cuda_stand_in" / "libcuda_stand_in_nccl.so"
VARIABLES = ("RABBET_NCCL", "RABBET_CUDA_PATH", "CUDA_HOME", "CUDA_PATH")


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def put(folder: Path, name: str = "libnccl.so.2") -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).symlink_to(STAND_IN)
    return str(folder / name)


def test_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site, own = tmp_path / "site", tmp_path / "own"
    wanted = [
        put(tmp_path / "libraries"), put(tmp_path / "libraries", "libnccl.so"),
        put(site / "nvidia/cu13/lib"), put(site / "nvidia/nccl/lib"),
        put(own / "nvidia/nccl/lib"),
        "libnccl.so.2", "libnccl.so",
        put(tmp_path / "home/lib64"), put(tmp_path / "home/targets/x86_64-linux/lib"),
        put(tmp_path / "path/lib64"),
    ]  # fmt: skip
    # "nvidia/*/lib" has the folder of "nvidia/cu[0-9]*/lib", too.
    wanted.insert(3, wanted[2])
    folders = f":{tmp_path / 'libraries'}::{site}"
    monkeypatch.setenv("RABBET_CUDA_PATH", folders)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CUDA_PATH", str(tmp_path / "path"))
    monkeypatch.setattr(
        _nccl._rabbet, "__file__", str(own / "rabbet" / "_rabbet.abi3.so")
    )
    loaded, found = [], []
    for name, flags in _nccl._candidates():
        (loaded if flags == os.RTLD_NOLOAD else found).append(name)
    assert loaded == ["libnccl.so.2", "libnccl.so"]
    assert [name for name in found if not name.startswith("/usr/local/cuda")] == wanted


def test_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that is asked for by name is not replaced by another."""
    monkeypatch.setenv("RABBET_NCCL", "/nowhere/libnccl.so")
    assert list(_nccl._candidates()) == [("/nowhere/libnccl.so", 0)]
    _nccl.library.cache_clear()
    with pytest.raises(rabbet.UnavailableError, match=r"/nowhere/libnccl\.so"):
        _nccl.library()


@pytest.mark.skipif(not STAND_IN.exists(), reason="no stand-in for NCCL was built")
@pytest.mark.parametrize(
    ("variable", "folder"),
    [("CUDA_HOME", "lib64"), ("RABBET_CUDA_PATH", "nvidia/nccl/lib")],
)
def test_found(tmp_path: Path, variable: str, folder: str) -> None:
    if variable == "CUDA_HOME" and ctypes.util.find_library("nccl"):
        pytest.skip("the loader's path, which comes first, has NCCL")
    file = put(tmp_path / folder)
    code = "from rabbet.parallel import _nccl; print(_nccl.library()._name)"
    environment = {k: v for k, v in os.environ.items() if k not in VARIABLES}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={**environment, variable: str(tmp_path)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == file
