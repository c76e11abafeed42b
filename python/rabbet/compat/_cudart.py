"""The CUDA runtime library for Polygraphy, which brings none and looks for it only
where a toolkit puts it: NVIDIA's wheels have it elsewhere."""

from __future__ import annotations

import glob
import importlib.util
import os
import sys
from collections.abc import Iterable

_VARIABLE = "LD_LIBRARY_PATH"
# Where Polygraphy looks beside the folders of the variable.
_TOOLKITS = ("/usr/local/cuda/lib64", "/usr/lib", "/lib")


def _holders(folders: Iterable[str]) -> list[str]:
    return [f for f in folders if f and glob.glob(os.path.join(f, "libcudart.so*"))]


def _wheels() -> list[str]:
    """Folders of libraries, as Rabbet finds them: those of RABBET_CUDA_PATH, and of the
    wheels in it and on the path of modules."""
    asked = os.environ.get("RABBET_CUDA_PATH", "").split(os.pathsep)
    found = [folder for folder in asked if folder]
    for base in [*found, *filter(None, sys.path)]:
        found += sorted(glob.glob(os.path.join(base, "nvidia", "*", "lib")), reverse=True)
    return list(dict.fromkeys(found))


def offer_runtime_library() -> None:
    """Adds the folder of NVIDIA's wheels to LD_LIBRARY_PATH of this process, if
    Polygraphy is installed and would find the library nowhere else."""
    if importlib.util.find_spec("polygraphy") is None:
        return
    before = os.environ.get(_VARIABLE, "")
    if _holders([*before.split(os.pathsep), *_TOOLKITS]):
        return
    found = _holders(_wheels())
    if found:
        os.environ[_VARIABLE] = os.pathsep.join([p for p in (before, found[0]) if p])
