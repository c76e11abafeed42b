"""Python in C programs: librabbet_pyhost and the example that uses it."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest
import rabbet as trt
from onnx import helper

from tests.python.command.test_command_plugins import compile_library
from tests.python.support.c_programs import (
    ROOT,
    build_example,
    compile_program,
    needed,
    output,
)
from tests.python.support.command import FLOAT, PROGRAM, command, save_model

LIBRARIES = Path(PROGRAM).parent.parent / "lib"
SHARED = bool(sysconfig.get_config_var("Py_ENABLE_SHARED"))
pytestmark = pytest.mark.skipif(
    not SHARED, reason="this Python was built without a shared library"
)

OPERATOR = """
import ctypes
import rabbet.plugin as trtp

@trtp.register("embed::Triple")
def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()

@trtp.impl("embed::Triple")
def run(x, outputs):
    count = x.numel()
    source = (ctypes.c_float * count).from_address(x.data_ptr)
    target = (ctypes.c_float * count).from_address(outputs[0].data_ptr)
    for i in range(count):
        target[i] = 3 * source[i]
    if source[0] == -1000:
        raise ArithmeticError("a negative number came in")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ops.py, and m.plan, which carries it."""
    folder = tmp_path_factory.mktemp("embed")
    (folder / "ops.py").write_text(OPERATOR)
    node = helper.make_node("Triple", ["x"], ["y"], plugin_namespace="embed")
    info = (FLOAT, [2, 3])
    model = save_model(folder / "m.onnx", [node], {"x": info}, {"y": info})
    command(
        "build", model, "--device", "cpu", "--plugins", folder / "ops.py",
        "--keep-plugins", "--quiet",
    )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, as its README builds it."""
    out = tmp_path_factory.mktemp("example")
    flags = "-DCMAKE_C_FLAGS=-std=c11 -Wall -Wextra -Werror"
    return build_example("c_embed_python", out, flags) / "embed_python"


def environment(python: str = sys.executable, **more: str) -> dict[str, str]:
    return {**os.environ, "RABBET_PYTHON": python, **more}


def run_source(text: str, folder: Path, *arguments: object) -> str:
    """The output of a C program that is compiled in `folder`."""
    source = folder / "program.c"
    source.write_text(text)
    program = compile_program(
        source, folder / "program", include=ROOT / "include", libraries=LIBRARIES,
        names=("rabbet_pyhost", "rabbet_runtime", "pthread"),
    )  # fmt: skip
    return output(program, *arguments, env=environment())


# ---- The example -----------------------------------------------------------


def test_example(program: Path, folder: Path) -> None:
    plan = folder / "m.plan"
    for arguments in ((plan, folder / "ops.py"), ("--carried", plan)):
        assert output(program, *arguments, env=environment()) == "y[0] = 3\n"
    refused = output(program, plan, env=environment(), code=1)
    assert "host_code_allowed (C)" in refused
    assert "embed::Triple" in refused
    assert "ops.py" in refused


def test_nothing_of_python_is_linked(program: Path) -> None:
    for file in (program, LIBRARIES / "librabbet_pyhost.so"):
        assert not [name for name in needed(file) if "python" in name]


def test_python_on_path(program: Path, folder: Path, tmp_path: Path) -> None:
    """Where RABBET_PYTHON names none."""
    link = tmp_path / "python3"
    link.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    link.chmod(0o755)
    env = {k: v for k, v in os.environ.items() if k != "RABBET_PYTHON"}
    env["PATH"] = f"{tmp_path}:{env['PATH']}"
    assert output(program, "--carried", folder / "m.plan", env=env) == "y[0] = 3\n"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (None, r"there is no Python: '\S*/python' cannot be run \(No such file"),
        ("exit 3", "is not a Python that works"),
        ("echo nonsense", "is not a Python: it says 'nonsense'"),
        ("echo 3.10; echo /x; echo", r"is Python 3\.10; expected 3\.11 or newer"),
        ("echo 2.7; echo /x; echo", r"is Python 2\.7; expected 3\.11 or newer"),
        ("echo 3.99; echo /x; echo", r"shared library of Python 3\.99 \('/x'\) cannot be "
         r"opened: libpython3\.99\.so\.1\.0: .* Install it \(Debian: libpython3\.99"),
        ("echo 3.99; echo /x; echo {libpython}",
         r"is of Python 3\.\d+, and '/x' is Python 3\.99; they must be of one version"),
        ("echo 3.11; echo /x; echo {runtime}", "is not a libpython of version 3.11 or newer"),
        ("echo 3.11; echo /x; echo {data}", "symbol Py_GetVersion is data; expected a"),
    ],
)  # fmt: skip
def test_wrong_interpreters(
    program: Path, folder: Path, tmp_path: Path, script: str | None, message: str
) -> None:
    fake = tmp_path / "python"
    folders = [sysconfig.get_config_var("LIBDIR"), f"{sys.base_prefix}/lib"]
    name = sysconfig.get_config_var("INSTSONAME")
    found = [Path(f) / name for f in folders if (Path(f) / name).is_file()]
    if script is not None:
        libraries = {
            "libpython": found[0] if found else name,
            "runtime": LIBRARIES / "librabbet_runtime.so",
            "data": compile_library("int Py_GetVersion[4] = {1};", tmp_path / "data.so"),
        }
        fake.write_text("#!/bin/sh\n" + script.format(**libraries) + "\n")
        fake.chmod(0o755)
    text = output(program, folder / "m.plan", env=environment(str(fake)), code=1)
    assert text.startswith("embed_python: starting Python: ")
    assert re.search(message, text), text


def test_without_the_package(program: Path, folder: Path) -> None:
    """An interpreter that has none, as its user site and PYTHONPATH are empty."""
    base = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info[1]}"
    if not base.is_file():
        pytest.skip("there is no interpreter without packages")
    env = environment(str(base), PYTHONPATH="", PYTHONNOUSERSITE="1")
    try:
        output(base, "-c", "import rabbet", env=env, code=1)
    except AssertionError:
        pytest.skip("the interpreter without an environment has the package")
    text = output(program, folder / "m.plan", env=env, code=1)
    assert f"the package rabbet cannot be imported in '{base}" in text
    assert "No module named 'rabbet'" in text


def test_plugins_that_do_not_load(program: Path, folder: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("import no_such_module_here\n")
    plan = folder / "m.plan"
    text = output(program, plan, broken, env=environment(), code=1)
    assert "loading plugins: ModuleNotFoundError: No module named 'no_such" in text
    text = output(program, plan, tmp_path / "gone.py", env=environment(), code=1)
    assert "gone.py' does not exist" in text


# ---- Threads, and the order of things --------------------------------------

SOURCE = """
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <rabbet/engine.h>
#include <rabbet/plugin.h>
#include <rabbet/pyhost.h>

static int expect(rabbet_status_t status, const char* part) {
  int good = part ? strstr(rabbet_status_message(status), part) != NULL
                  : rabbet_is_ok(status);
  if (!good)
    printf("expected '%s', found '%s'\\n", part ? part : "ok",
           rabbet_is_ok(status) ? "ok" : rabbet_status_message(status));
  rabbet_status_free(status);
  return !good;
}

typedef struct work_t { rabbet_engine_t* engine; int wrong; } work_t;

static void* work(void* argument) {
  work_t* w = argument;
  rabbet_context_t* context = NULL;
  float x[6], y[6];
  w->wrong += expect(
      rabbet_context_create(w->engine, rabbet_allocator_system(), &context), NULL);
  w->wrong += expect(rabbet_context_set_address(context, 0, x), NULL);
  w->wrong += expect(rabbet_context_set_address(context, 1, y), NULL);
  for (int i = 0; i < 300 && !w->wrong; ++i) {
    for (int k = 0; k < 6; ++k) x[k] = (float)(i + k);
    w->wrong += expect(rabbet_context_execute(context, NULL), NULL);
    for (int k = 0; k < 6; ++k) w->wrong += y[k] != 3 * x[k];
  }
  x[0] = -1000;  // an exception is a status, and the context goes on
  w->wrong += expect(rabbet_context_execute(context, NULL),
                     "ArithmeticError: a negative number came in");
  x[0] = 1;
  w->wrong += expect(rabbet_context_execute(context, NULL), NULL);
  rabbet_context_destroy(context);
  return NULL;
}

int main(int argc, char** argv) {
  enum { THREADS = 4 };
  pthread_t threads[THREADS];
  work_t works[THREADS] = {{0}};
  rabbet_engine_t* engine = NULL;
  const rabbet_plugin_creator_t* creator = NULL;
  const char* const files[] = {argv[argc - 1]};
  int wrong = 0;
  wrong += expect(rabbet_pyhost_load_plugins(files, 1), "no Python in this process");
  wrong += expect(rabbet_pyhost_stop(), NULL);  // nothing to stop
  wrong += expect(rabbet_pyhost_start(NULL), NULL);
  wrong += expect(rabbet_pyhost_start(NULL), NULL);  // it runs
  wrong += expect(rabbet_pyhost_load_plugins(files, 1), NULL);
  wrong += expect(rabbet_pyhost_load_plugins(files, 1), NULL);
  wrong += expect(rabbet_engine_load(argv[1], NULL, rabbet_allocator_system(), &engine), NULL);
  for (int i = 0; i < THREADS && !wrong; ++i) {
    works[i].engine = engine;
    pthread_create(&threads[i], NULL, work, &works[i]);
  }
  for (int i = 0; i < THREADS && !wrong; ++i) pthread_join(threads[i], NULL);
  for (int i = 0; i < THREADS; ++i) wrong += works[i].wrong;
  rabbet_engine_release(engine);
  wrong += expect(rabbet_plugin_find("Triple", "1", "embed", &creator), NULL);
  rabbet_plugin_creator_release(creator);
  wrong += expect(rabbet_pyhost_stop(), NULL);
  wrong += expect(rabbet_plugin_find("Triple", "1", "embed", &creator), "no plugin 'Triple'");
  wrong += expect(rabbet_engine_load(argv[1], NULL, rabbet_allocator_system(), &engine),
                  "which is not registered here");
  wrong += expect(rabbet_pyhost_start(NULL), "cannot be started again");
  wrong += expect(rabbet_pyhost_load_plugins(files, 1), "no Python in this process");
  printf("%d wrong\\n", wrong);
  return wrong != 0;
}
"""


def test_threads_and_order(folder: Path, tmp_path: Path) -> None:
    text = run_source(SOURCE, tmp_path, folder / "m.plan", folder / "ops.py")
    assert text == "0 wrong\n"


WRONG = r"""
#include <pthread.h>
#include <stdio.h>
#include "rabbet/pyhost.h"

static void show(rabbet_status_t status) {
  if (rabbet_is_ok(status)) {
    puts("ok");
    return;
  }
  puts(rabbet_status_message(status));
  rabbet_status_free(status);
}
static void* stop(void* unused) {
  show(rabbet_pyhost_stop());
  return unused;
}
int main(void) {
  const char* names[] = {"ctypes", NULL};
  pthread_t thread;
  show(rabbet_pyhost_start(NULL));
  show(rabbet_pyhost_load_plugins(names, 2));
  show(rabbet_pyhost_load_plugins(NULL, 1));
  pthread_create(&thread, NULL, stop, NULL);
  pthread_join(thread, NULL);
  show(rabbet_pyhost_stop());
  return 0;
}
"""


def test_wrong_use(tmp_path: Path) -> None:
    """Python itself would wait forever on a thread that is not its own."""
    assert run_source(WRONG, tmp_path).splitlines() == [
        "ok",
        "loading plugins: name 1 of 2 is NULL",
        "loading plugins: name 0 of 1 is NULL",
        "stopping Python: call rabbet_pyhost_stop on the thread that called "
        "rabbet_pyhost_start",
        "ok",
    ]


def test_in_a_process_of_python(folder: Path) -> None:
    """It joins the interpreter that is there, and does not end it."""
    code = (
        "import ctypes, sys, rabbet\n"
        f"host = ctypes.CDLL({str(LIBRARIES / 'librabbet_pyhost.so')!r})\n"
        "host.rabbet_pyhost_start.restype = ctypes.c_void_p\n"
        "host.rabbet_pyhost_load_plugins.restype = ctypes.c_void_p\n"
        "host.rabbet_pyhost_stop.restype = ctypes.c_void_p\n"
        "names = (ctypes.c_char_p * 1)(sys.argv[1].encode())\n"
        "assert host.rabbet_pyhost_start(None) is None\n"
        "assert host.rabbet_pyhost_load_plugins(names, 1) is None\n"
        "assert host.rabbet_pyhost_stop() is None\n"
        "print(rabbet.plugin.op.embed.Triple)\n"
    )
    text = output(sys.executable, "-c", code, folder / "ops.py")
    assert "embed::Triple" in text


def test_the_plan_is_right(folder: Path) -> None:
    """The tests above rely on it."""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    model = trt.load(folder / "m.plan", plugins=folder / "ops.py")
    assert np.array_equal(model(x), 3 * x)
