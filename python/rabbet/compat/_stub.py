"""A stub: a small distribution `tensorrt` for an environment without TensorRT, with which
all processes of the environment (workers, shells) import the alias."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import sysconfig
import tempfile
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path

from rabbet import FailedPreconditionError

from ._release import METADATA, NAME, VERSION

_INSTALLER = "rabbet"
_MARK = '"""Rabbet under the name tensorrt'
_MODULE = f'''{_MARK}; made by python -m rabbet.compat --install."""

__rabbet_stub__ = True

try:
    import rabbet.compat
except ImportError as error:
    raise ImportError(
        "the package tensorrt of this environment stands for rabbet, which cannot be "
        f"imported ({{error}}): install rabbet here, or run pip uninstall tensorrt"
    ) from error

rabbet.compat.install()  # puts the alias in the place of this module
'''
_WHEEL = """Wheel-Version: 1.0
Generator: rabbet
Root-Is-Purelib: true
Tag: py3-none-any
"""
_INFO = f"{NAME}-{VERSION}.dist-info"
_FILES = {
    f"{NAME}/__init__.py": _MODULE,
    f"{_INFO}/INSTALLER": _INSTALLER + "\n",
    f"{_INFO}/METADATA": METADATA,
    f"{_INFO}/WHEEL": _WHEEL,
    f"{_INFO}/top_level.txt": NAME + "\n",
}


def _folder() -> Path:
    return Path(sysconfig.get_path("purelib"))


def _record() -> str:
    lines = []
    for name, text in _FILES.items():
        digest = hashlib.sha256(text.encode()).digest()
        code = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        lines.append(f"{name},sha256={code},{len(text.encode())}\n")
    return "".join([*lines, f"{_INFO}/RECORD,,\n"])


def _is_stub(module: Path) -> bool:
    return module.read_text(encoding="utf-8", errors="replace").startswith(_MARK)


def _is_ours(found: metadata.Distribution) -> bool:
    return (found.read_text("INSTALLER") or "").strip() == _INSTALLER


def _check_free() -> None:
    """Raises if another package or distribution has the name."""
    spec = PathFinder.find_spec(NAME)
    if spec is not None and spec.origin and not _is_stub(Path(spec.origin)):
        raise FailedPreconditionError(
            f"this environment has a package {NAME} ({spec.origin}): a stub would hide "
            "it. Run single programs with python -m rabbet.compat PROGRAM, or remove "
            "that package"
        )
    for found in metadata.MetadataPathFinder.find_distributions(
        metadata.DistributionFinder.Context(name=NAME)
    ):
        if not _is_ours(found):
            # A broken uninstallation may leave a folder without metadata.
            version = found.version if found.read_text("METADATA") else "without METADATA"
            raise FailedPreconditionError(
                f"this environment has a distribution {NAME} {version}: remove "
                f"it first (pip uninstall {NAME})"
            )


def _installed(folder: Path) -> list[Path]:
    """Folders of installed stubs, of this release or another."""
    infos = [
        info
        for info in folder.glob(f"{NAME}-*.dist-info")
        if _is_ours(metadata.PathDistribution(info))
    ]
    module = folder / NAME / "__init__.py"
    return infos + ([module.parent] if module.is_file() and _is_stub(module) else [])


def _check_paths(folder: Path) -> None:
    """Raises if other files or folders have the names that the stub needs."""
    ours = _installed(folder)
    for name in (NAME, _INFO):
        path = folder / name
        if os.path.lexists(path) and path not in ours:
            raise FailedPreconditionError(
                f"{path} is in the way, and is not a stub of Rabbet: remove or rename it"
            )


def install_stub() -> str:
    """Installs the stub, replacing an older one; returns a sentence for the user."""
    _check_free()
    folder = _folder()
    if not folder.is_dir():
        raise FailedPreconditionError(
            f"the folder of this environment's packages, {folder}, does not exist"
        )
    _check_paths(folder)
    with tempfile.TemporaryDirectory(prefix=".rabbet-", dir=folder) as made:
        for name, text in {**_FILES, f"{_INFO}/RECORD": _record()}.items():
            file = Path(made, name)
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
        for old in _installed(folder):
            shutil.rmtree(old)
        for name in (NAME, _INFO):
            os.rename(Path(made, name), folder / name)
    return f"installed {NAME} {VERSION} in {folder}"


def uninstall_stub() -> str:
    """Removes the stub; returns a sentence for the user."""
    folder = _folder()
    found = _installed(folder)
    if not found:
        raise FailedPreconditionError(
            f"no stub of Rabbet for {NAME} is installed in {folder}"
        )
    for old in found:
        shutil.rmtree(old)
    return f"removed {NAME} from {folder}"
