"""Sizes on disk: the runtime library stripped, and packages' native code."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

from .options import ROOT, Options, installed
from .report import Section

LIBRARY = "librabbet_runtime.so*"
PACKAGES = ("rabbet", "onnxruntime", "openvino", "torch")
MIB = 1 << 20


def _folder(package: str) -> Path | None:
    """Where a package's files are."""
    spec = importlib.util.find_spec(package)
    return Path(spec.origin).parent if spec and spec.origin else None


def _libraries(folder: Path) -> list[Path]:
    """Shared libraries below a folder, links left out."""
    found = (path for path in folder.rglob("*.so*") if path.is_file())
    return sorted(path for path in found if not path.is_symlink())


def _runtime() -> Path | None:
    """librabbet_runtime of the installed package, or of the build folder."""
    places = [_folder("rabbet"), ROOT / "build"]
    for place in places:
        if place is not None and place.is_dir():
            for path in sorted(place.rglob(LIBRARY)):
                if path.is_file() and not path.is_symlink():
                    return path
    return None


def stripped_size(path: Path, scratch: Path) -> int:
    """Bytes of a library without its symbols."""
    copy = scratch / path.name
    shutil.copyfile(path, copy)
    subprocess.run(["strip", "--strip-unneeded", str(copy)], check=True)
    return copy.stat().st_size


def run(options: Options) -> Section:
    """KiB and MiB on disk."""
    section = Section("Size on disk", ["what", "size"])
    runtime = _runtime()
    if runtime is None:
        section.note("librabbet_runtime is not built")
    else:
        size = stripped_size(runtime, options.scratch)
        section.rows.append(["librabbet_runtime, stripped", f"{size / 1024:.0f} KiB"])
        section.data.append({"name": "librabbet_runtime", "bytes": size})
    for package in PACKAGES:
        folder = _folder(package) if installed(package) else None
        if folder is None:
            section.note(f"{package} is not installed")
            continue
        size = sum(path.stat().st_size for path in _libraries(folder))
        section.rows.append([f"{package}: native libraries", f"{size / MIB:.1f} MiB"])
        section.data.append({"name": package, "bytes": size})
    return section
