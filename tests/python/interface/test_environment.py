"""The environment is the program's: what the package and the command set, and nobody else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.python.support.command import PROGRAM

LIBRARIES = Path(PROGRAM).parent.parent / "lib"
SHOW = "import os, rabbet; print(os.environ.get('GOMP_SPINCOUNT'))"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "1000"),
        ({"GOMP_SPINCOUNT": "7"}, "7"),
        ({"OMP_WAIT_POLICY": "active"}, "None"),
    ],
)
def test_package_limits_spinning(given: dict[str, str], expected: str) -> None:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    }
    done = subprocess.run(
        [sys.executable, "-c", SHOW],
        env={**environment, **given},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == expected


def test_libraries_leave_the_environment_alone() -> None:
    libraries = sorted(LIBRARIES.glob("librabbet*.so*"))
    assert libraries
    for library in libraries:
        undefined = subprocess.run(
            ["nm", "--dynamic", "--undefined-only", library],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        names = {line.split()[-1].split("@")[0] for line in undefined.splitlines()}
        assert not names & {"setenv", "unsetenv", "putenv", "clearenv"}, library
