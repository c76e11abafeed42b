"""Runs the tests for GPUs on the stand-in for one (tests/cuda_stand_in)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import rabbet

ROOT = Path(__file__).resolve().parents[3]


def stand_in() -> Path:
    """The script of the build tree that the package is imported from."""
    package = Path(rabbet.__file__).parent
    return package.parents[1] / "tests" / "cuda_stand_in" / "with_stand_in"


@pytest.mark.skipif(not stand_in().exists(), reason="not a build tree with C tests")
def test_gpu_tests_on_the_stand_in() -> None:
    command = [str(stand_in()), sys.executable, "-m", "pytest", "-q", "tests/gpu"]
    result = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        # A GPU takes more seeds: here each network compiles kernels of its own.
        env={"RABBET_TEST_SEEDS": "0:6", **os.environ},
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "passed" in result.stdout
