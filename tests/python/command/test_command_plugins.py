"""The command with operators in C libraries and Python files; and without Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.python.support.command import FLOAT, PROGRAM, command, save_model

ROOT = Path(__file__).resolve().parents[3]
INFO = (FLOAT, [2, 3])

PYTHON_SOURCE = """
import numpy as np
import rabbet.plugin as trtp

@trtp.register("command::Triple")
def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()

@trtp.impl("command::Triple")
def run(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
    {body}
"""
GOOD = "np.asarray(outputs[0])[...] = np.asarray(x) * 3"

C_SOURCE = """
#include <string.h>
#include <rabbet/plugin.h>

static int instance;
static void destroy(void* self) { (void)self; }
static int32_t output_count(void* self) { (void)self; return 1; }
static rabbet_status_t describe(void* self, rabbet_dim_builder_t* builder,
                                const rabbet_plugin_input_t* inputs,
                                size_t input_count,
                                rabbet_plugin_output_t* outputs) {
  (void)self, (void)builder, (void)input_count;
  outputs[0].dtype = inputs[0].dtype;
  outputs[0].rank = inputs[0].rank;
  memcpy(outputs[0].dims, inputs[0].dims, sizeof(inputs[0].dims));
  return rabbet_ok();
}
static rabbet_status_t enqueue(void* self, const rabbet_plugin_call_t* call) {
  (void)self;
  const float* x = call->inputs[0].data;
  float* y = call->outputs[0].data;
  for (int i = 0; i < 6; ++i) y[i] = 3 * x[i];
  return rabbet_ok();
}
static const rabbet_plugin_vtable_t vtable = {
    .struct_size = sizeof(vtable), .destroy = destroy,
    .output_count = output_count, .describe = describe, .enqueue = enqueue};
static rabbet_status_t create(void* user_data,
                              const rabbet_plugin_create_t* args,
                              rabbet_plugin_instance_t* out) {
  (void)user_data, (void)args;
  *out = (rabbet_plugin_instance_t){&vtable, &instance};
  return rabbet_ok();
}
static rabbet_status_t register_all(void) {
  rabbet_plugin_creator_t creator = {
      .struct_size = sizeof(creator), .name = "Triple",
      .plugin_namespace = "command", .origin = "triple.so",
      .create = create, .input_count = 1};
  return rabbet_plugin_register(&creator);
}
RABBET_PLUGIN_LIBRARY(register_all)
"""

# Ends a process that starts another program.
GUARD = """
long write(int file, const void* text, unsigned long size);
void _exit(int code);
#define GUARD(name) \\
  int name() { write(2, "guard: " #name "\\n", sizeof("guard: " #name)); _exit(99); }
GUARD(execv) GUARD(execve) GUARD(execvp) GUARD(execvpe) GUARD(execl)
GUARD(execlp) GUARD(execle) GUARD(fexecve) GUARD(posix_spawn)
GUARD(posix_spawnp) GUARD(fork) GUARD(vfork) GUARD(system) GUARD(popen)
"""


def compile_library(source: str, path: Path, *flags: str) -> Path:
    file = path.with_suffix(".c")
    file.write_text(source)
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-O1", *flags, "-o", path, file], check=True
    )
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plugins")
    node = helper.make_node("Triple", ["x"], ["y"], plugin_namespace="command")
    save_model(folder / "m.onnx", [node], {"x": INFO}, {"y": INFO})
    relu = helper.make_node("Relu", ["x"], ["y"])
    save_model(folder / "relu.onnx", [relu], {"x": INFO}, {"y": INFO})
    (folder / "ops.py").write_text(PYTHON_SOURCE.format(body=GOOD))
    np.savez(folder / "in.npz", x=np.arange(6, dtype=np.float32).reshape(2, 3))
    return folder


@pytest.fixture(scope="module")
def plan(folder: Path) -> Path:
    command(
        "build", folder / "m.onnx", "--quiet", "--device", "cpu", "--plugins",
        folder / "ops.py",
    )  # fmt: skip
    return folder / "m.plan"


def run(folder: Path, plan: Path, *arguments: Any, **options: Any) -> Any:
    output = folder / "out.npz"
    command(
        "run", plan, "--inputs", folder / "in.npz", "-o", output, *arguments, **options
    )
    return np.load(output)["y"]


EXPECTED = 3 * np.arange(6, dtype=np.float32).reshape(2, 3)

# ---- Python files ----------------------------------------------------------


def test_python_file(folder: Path, plan: Path) -> None:
    assert np.array_equal(run(folder, plan, "--plugins", folder / "ops.py"), EXPECTED)
    found = run(folder, plan, "--plugins=ops.py", cwd=folder)
    assert np.array_equal(found, EXPECTED)
    times = command("bench", plan, "--plugins", folder / "ops.py", "--duration", 0)
    assert "median" in times.stdout


def test_missing_operator(folder: Path, plan: Path) -> None:
    error = command("run", plan, code=5).stderr
    assert "command::Triple" in error
    assert "ops.py" in error
    # To look at a plan, nothing of it is needed.
    assert "plugin" in command("inspect", plan).stdout


def test_exceptions_arrive(folder: Path, plan: Path) -> None:
    source = PYTHON_SOURCE.format(body="raise ZeroDivisionError('on purpose')")
    (folder / "bad.py").write_text(source)
    error = command("run", plan, "--plugins", folder / "bad.py", code=5).stderr
    assert "ZeroDivisionError: on purpose" in error
    assert "Traceback" in error
    assert "bad.py" in error
    assert "command::Triple" in error


def test_an_operator_that_ends_the_program(folder: Path, plan: Path) -> None:
    """Not in silence, nor as if all were well."""
    source = PYTHON_SOURCE.format(body="raise SystemExit")
    (folder / "exits.py").write_text(source)
    error = command("run", plan, "--plugins", folder / "exits.py", code=5).stderr
    assert "SystemExit" in error
    assert "exits.py" in error
    assert "command::Triple" in error


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import no_such_module", "No module named"),
        ("def f(:", "SyntaxError"),
        ("raise SystemExit", r"broken.py' ends the program when it is loaded"),
        ("import sys; sys.exit(0)", "SystemExit, code 0"),
    ],
)
def test_files_that_do_not_import(
    folder: Path, plan: Path, source: str, message: str
) -> None:
    (folder / "broken.py").write_text(source)
    error = command("run", plan, "--plugins", folder / "broken.py", code=5).stderr
    assert message in error
    assert "broken.py" in error


def test_absent_files_and_interpreters(folder: Path, plan: Path) -> None:
    error = command("run", plan, "--plugins", folder / "gone.py", code=3).stderr
    assert "gone.py" in error
    error = command(
        "run", plan, "--plugins", folder / "ops.py",
        env={"RABBET_PYTHON": "/no/python"}, code=6,
    ).stderr  # fmt: skip
    assert "/no/python" in error
    assert "RABBET_PYTHON" in error
    bare = folder / "bare_python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    error = command(
        "run", plan, "--plugins", folder / "ops.py",
        env={"RABBET_PYTHON": str(bare)}, code=6,
    ).stderr  # fmt: skip
    assert error.startswith("rabbet run: plugins written in Python need an interpreter")
    assert "has none; set RABBET_PYTHON" in error


def test_exec_says_things_once(folder: Path) -> None:
    """It is two processes, one after the other."""
    done = command(
        "exec", f"--onnx={folder / 'm.onnx'}", f"--plugins={folder / 'ops.py'}", "--fp8",
        "--skipInference", env={"RABBET_DEVICE": "cpu"},
    )  # fmt: skip
    assert done.stdout.count("&&&& RUNNING") == done.stdout.count("&&&& PASSED") == 1
    assert (done.stdout + done.stderr).count("--fp8 has no effect") == 1


CLASS_SOURCE = """
import ctypes
import numpy as np
import rabbet as trt

def array(address, desc):
    count = int(np.prod(desc.dims))
    return np.frombuffer((ctypes.c_float * count).from_address(address), np.float32)

class Triple(trt.IPluginV2DynamicExt):
    def __init__(self):
        super().__init__()
        self.plugin_type, self.plugin_version = "Triple", "1"
        self.plugin_namespace, self.num_outputs = "command", 1
    def clone(self):
        return Triple()
    def get_output_datatype(self, index, input_types):
        return input_types[0]
    def get_output_dimensions(self, index, inputs, builder):
        return inputs[0]
    def supports_format_combination(self, pos, in_out, count):
        return in_out[pos].type == trt.float32 and in_out[pos].format == trt.TensorFormat.LINEAR
    def configure_plugin(self, inp, out):
        pass
    def serialize(self):
        return b""
    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        array(outputs[0], output_desc[0])[:] = array(inputs[0], input_desc[0]) * 3

class Creator(trt.IPluginCreator):
    def __init__(self):
        super().__init__()
        self.name, self.plugin_version, self.plugin_namespace = "Triple", "1", "command"
    def create_plugin(self, name, fields):
        return Triple()
    def deserialize_plugin(self, name, data):
        return Triple()

trt.get_plugin_registry().register_creator(Creator(), "")
"""


def test_classes(folder: Path) -> None:
    file = folder / "classes.py"
    file.write_text(CLASS_SOURCE)
    built = folder / "classes.plan"
    command("build", folder / "m.onnx", "-o", built, "--plugins", file, "--quiet")
    assert np.array_equal(run(folder, built, "--plugins", file), EXPECTED)
    error = command("run", built, "--inputs", folder / "in.npz", code=5).stderr
    assert "needs the plugin 'command::Triple'" in error
    assert "classes.py" in error


# ---- Libraries -------------------------------------------------------------


@pytest.fixture(scope="module")
def library(folder: Path) -> Path:
    return compile_library(
        C_SOURCE, folder / "triple.so", f"-I{ROOT / 'include'}", "-std=c11"
    )


def test_library(folder: Path, library: Path) -> None:
    built = folder / "c.plan"
    command("build", folder / "m.onnx", "-o", built, "--plugins", library, "--quiet")
    assert np.array_equal(run(folder, built, "--plugins", library), EXPECTED)
    # A name without a folder is a file here, not one of the system's.
    found = run(folder, built, "--plugins", library.name, cwd=folder)
    assert np.array_equal(found, EXPECTED)


def test_wrong_libraries(folder: Path, plan: Path) -> None:
    error = command("run", plan, "--plugins", folder / "gone.so", code=6).stderr
    assert "gone.so" in error
    other = compile_library("int x;", folder / "other.so")
    error = command("run", plan, "--plugins", other, code=2).stderr
    assert "rabbet_plugin_library_register" in error


@pytest.mark.parametrize(
    ("name", "symbol"),
    [
        ("plugins", "rabbet_plugin_library_register"),
        ("librabbet_data", "rabbet_device_open"),
        ("driver", "cuInit"),
    ],
)
def test_data_is_not_called(
    folder: Path, tmp_path: Path, name: str, symbol: str
) -> None:
    """A shared object whose symbol is no function, wherever one is opened."""
    library = compile_library(f"int {symbol}[4] = {{1}};", tmp_path / f"{name}.so")
    options, env = {
        "plugins": (["--plugins", library], {}),
        "librabbet_data": (["--device=data"], {"RABBET_LIBRARY_PATH": str(tmp_path)}),
        "driver": (["--device=cuda"], {"RABBET_CUDA_DRIVER": str(library)}),
    }[name]
    build = ["build", folder / "relu.onnx", "-o", tmp_path / "plan", *options]
    error = command(*build, env=env, code=3).stderr
    assert f"its symbol {symbol} is data; expected a function" in error


# ---- Without Python --------------------------------------------------------


def alone(folder: Path, *arguments: Any) -> subprocess.CompletedProcess[str]:
    """Runs the command in an empty environment where no program can be started.

    The loader lists every library that is opened on standard error.
    """
    guard = compile_library(GUARD, folder / "guard.so", "-fno-builtin", "-w")
    environment = {"LD_PRELOAD": str(guard), "LD_DEBUG": "files"}
    return subprocess.run(
        [PROGRAM, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        cwd=folder,
    )


def test_no_python_is_needed(folder: Path) -> None:
    """Without operators in Python a plan is built, run, timed and inspected alone."""
    for arguments in (
        ("build", "relu.onnx", "-o", "relu.plan"),
        ("run", "relu.plan", "--inputs", "in.npz", "-o", "relu.npz"),
        ("bench", "relu.plan", "--duration", "0"),
        ("inspect", "relu.plan", "--json"),
        ("ops", "softmax"),
        ("version",),
    ):
        done = alone(folder, *arguments)
        assert done.returncode == 0, done.stderr
        assert "librabbet_runtime.so" in done.stderr  # the list is there
        assert "python" not in done.stderr.lower().replace(str(folder).lower(), "")
    expected = np.load(folder / "in.npz")["x"]
    assert np.array_equal(np.load(folder / "relu.npz")["y"], expected)


def test_the_guard_holds(folder: Path, plan: Path) -> None:
    """With an operator in Python the same way ends at the start of Python."""
    done = alone(folder, "run", plan, "--plugins", folder / "ops.py")
    assert done.returncode == 99
    assert "guard: execvp" in done.stderr


def test_program_beside_its_interpreter(folder: Path, plan: Path) -> None:
    """python3 in the program's own folder goes before the one on PATH."""
    bin_folder = folder / "environment" / "bin"
    bin_folder.mkdir(parents=True)
    python = bin_folder / "python3"
    python.write_text(f'#!/bin/sh\necho beside >&2\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    # The program finds its libraries from its own folder: a copy needs a path.
    copy = bin_folder / "rabbet"
    copy.write_bytes(Path(PROGRAM).read_bytes())
    copy.chmod(0o755)
    libraries = [Path(PROGRAM).parent.parent / "lib"]
    environment = {
        name: value for name, value in os.environ.items() if name != "RABBET_PYTHON"
    }
    environment["LD_LIBRARY_PATH"] = ":".join(map(str, libraries))
    done = subprocess.run(
        [copy, "run", plan, "--plugins", folder / "ops.py"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("beside\n")
