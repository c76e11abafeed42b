"""Where a free-threaded interpreter is, for tests that need one."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import rabbet as trt

from tests.python.support.c_programs import ROOT

PACKAGE = Path(trt.__file__).parent
NAMES = ("python3.15t", "python3.14t", "python3.13t")
ASK = """
import sysconfig, importlib.util as u
print(bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
      sysconfig.get_config_var("EXT_SUFFIX"), u.find_spec("numpy") is not None)
"""


def _candidates() -> list[str]:
    given = os.environ.get("RABBET_FREE_THREADED_PYTHON")
    own = ROOT / ".venv-free-threaded" / "bin" / "python"
    if given:
        return [given]
    found = [str(own)] if own.is_file() else []
    return found + [path for name in NAMES if (path := shutil.which(name))]


def find_free_threaded() -> tuple[str, str]:
    """A free-threaded interpreter that has NumPy, for which the package is built;
    or why there is none."""
    why = (
        f"no free-threaded interpreter is found ({', '.join(NAMES)} on the PATH, or "
        "RABBET_FREE_THREADED_PYTHON)"
    )
    for python in _candidates():
        asked = subprocess.run([python, "-c", ASK], capture_output=True, text=True)
        free, suffix, has_numpy = (asked.stdout.split() or ["", "", ""])[:3]
        if free != "True":
            why = f"{python} is not free-threaded{asked.stderr}"
        elif not (PACKAGE / f"_rabbet{suffix}").is_file():
            why = (
                f"the package is not built for {python}: the build was not told of it by "
                "-DRABBET_FREE_THREADED_PYTHON"
            )
        elif has_numpy != "True":
            why = f"{python} has no NumPy"
        else:
            return python, ""
    return "", why
