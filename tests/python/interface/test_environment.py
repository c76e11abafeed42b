"""The environment is the program's, and so is its OpenMP runtime."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import rabbet
from onnx import helper as oh

from tests.python.support.command import PROGRAM

LIBRARIES = Path(PROGRAM).parent.parent / "lib"


@pytest.mark.parametrize("text", ["many", "0", "-2", "3x", "nan"])
@pytest.mark.parametrize("name", ["RABBET_TRIAL_HELPERS", "RABBET_TRIAL_SECONDS"])
def test_settings_of_helpers_that_are_no_numbers(
    name: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = []

    class Log(rabbet.ILogger):
        def log(self, severity: object, text: str) -> None:
            if severity == rabbet.ILogger.WARNING:
                messages.append(text)

    monkeypatch.setenv(name, text)
    model = oh.make_graph([oh.make_node("Relu", ["x"], ["y"])], "g",
                          [oh.make_tensor_value_info("x", 1, [2])],
                          [oh.make_tensor_value_info("y", 1, [2])])  # fmt: skip
    data = oh.make_model(model, opset_imports=[oh.make_opsetid("", 17)], ir_version=9)
    rabbet.compile(data.SerializeToString(), device="cpu", optimization_level=0, logger=Log())
    assert [m for m in messages if m.startswith(f"{name} is '{text}'; expected a number")]
    assert len(messages) == 1


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


# ---- OpenMP ----


def libgomp() -> str:
    """The file of oneDNN's runtime, which other libraries of a program use, too."""
    needed = subprocess.run(
        ["ldd", LIBRARIES / "librabbet_cpu.so"], capture_output=True, text=True, check=True
    ).stdout
    found = re.search(r"=> (\S*libgomp\S*)", needed)
    assert found, needed
    return found[1]


def product() -> rabbet.Model:
    network = rabbet.Builder().create_network()
    x = network.add_input("x", rabbet.float32, (256, 256))
    w = network.add_constant((256, 256), np.eye(256, dtype=np.float32)).get_output(0)
    none = rabbet.MatrixOperation.NONE
    network.mark_output(network.add_matrix_multiply(x, none, w, none).get_output(0))
    return rabbet.compile(network, device="cpu", threads=2)


def test_threads_of_the_programs_loops_stay() -> None:
    value = np.arange(256 * 256, dtype=np.float32).reshape(256, 256)
    openmp = ctypes.CDLL(libgomp())
    before = openmp.omp_get_max_threads()
    openmp.omp_set_num_threads(5)
    try:
        model = product()
        assert openmp.omp_get_max_threads() == 5
        for _ in range(3):
            assert np.array_equal(model(value), value)
            assert openmp.omp_get_max_threads() == 5
    finally:
        openmp.omp_set_num_threads(before)


FORK = """
import os, signal, warnings
import numpy as np
from tests.python.interface.test_environment import product

warnings.simplefilter("ignore")
model = product()
value = np.arange(256 * 256, dtype=np.float32).reshape(256, 256)
assert np.array_equal(model(value), value)
child = os.fork()
if child == 0:
    signal.alarm(20)  # a hang ends in SIGALRM
    os._exit(0 if np.array_equal(model(value), value) else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert np.array_equal(model(value), value)
"""


def test_forks_of_programs_with_openmp() -> None:
    """oneDNN then runs on the program's runtime, whose threads a child lacks."""
    preload = f"{os.environ.get('LD_PRELOAD', '')} {libgomp()}".strip()
    done = subprocess.run(
        [sys.executable, "-c", FORK],
        env={**os.environ, "LD_PRELOAD": preload},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
