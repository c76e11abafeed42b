"""Threads and Python plugins, in this interpreter and in a free-threaded one."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.python.interface.thread_stress import SCENARIOS
from tests.python.support.c_programs import ROOT
from tests.python.support.free_threaded import PACKAGE, find_free_threaded


@pytest.fixture(scope="module")
def free_threaded() -> str:
    python, why = find_free_threaded()
    if not python:
        pytest.skip(why)
    return python


def run(python: str, *arguments: str) -> str:
    """The output of a program of the free-threaded interpreter."""
    path = os.pathsep.join([str(PACKAGE.parent), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path}
    environment.pop("PYTHON_GIL", None)
    done = subprocess.run(
        [python, "-W", "error", *arguments],
        env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stderr[-4000:]}"
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("name", SCENARIOS)
def test_threads(name: str) -> None:
    SCENARIOS[name]()


@pytest.mark.parametrize("name", SCENARIOS)
def test_free_threaded(free_threaded: str, name: str) -> None:
    assert run(free_threaded, "-m", "tests.python.interface.thread_stress", name) == f"ok {name}\n"


def test_import_leaves_the_gil_off(free_threaded: str) -> None:
    code = "import sys, rabbet, rabbet.plugin, rabbet.compat; print(sys._is_gil_enabled())"
    assert run(free_threaded, "-c", code) == "False\n"


def test_stress_refuses_an_interpreter_with_a_gil() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.python.interface.thread_stress", "exceptions"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(PACKAGE.parent), str(ROOT)])},
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "the GIL is on\n"


def test_one_interpreter_alone() -> None:
    """The types and the registry are the process': another interpreter is told."""
    interpreters = pytest.importorskip("_xxsubinterpreters")
    code = (
        "import rabbet, _xxsubinterpreters as i\n"
        "made = i.create()\n"
        "i.run_string(made, '''\n"
        "try:\n"
        "    import rabbet._rabbet\n"
        "except ImportError as error:\n"
        "    print(error)\n"
        "''')\n"
    )
    assert interpreters is not None
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert "another interpreter" in done.stdout, done.stderr
