"""Device libraries of other versions: none is run, and none is passed over in silence."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import rabbet
from onnx import helper

from tests.python.command.test_command_plugins import compile_library
from tests.python.support.c_programs import ROOT
from tests.python.support.command import FLOAT, command, save_model


def build(folder: Path, env: dict[str, str], *options: str) -> str:
    """The output of the command, which refuses to build."""
    info = {"x": (FLOAT, [2])}, {"y": (FLOAT, [2])}
    save_model(folder / "m.onnx", [helper.make_node("Relu", ["x"], ["y"])], *info)
    build = ["build", folder / "m.onnx", "-o", folder / "plan", *options]
    return command(*build, env=env, code=3).stderr


# ---- Libraries that the loader opens


STALE_DEVICE = """
#include "device/device.h"
static void destroy(rabbet_device_t* device) { (void)device; }
static const rabbet_kernel_class_t* const* classes(rabbet_device_t* device,
                                                   size_t* out_count) {
  static const rabbet_kernel_class_t kernel = {.struct_size = CLASS_SIZE};
  static const rabbet_kernel_class_t* const list[] = {&kernel};
  (void)device;
  *out_count = 1;
  return list;
}
__attribute__((visibility("default"))) rabbet_status_t rabbet_device_open(
    int ordinal, rabbet_allocator_t allocator, rabbet_device_t** out_device) {
  static const rabbet_device_vtable_t vtable = {
      .struct_size = TABLE_SIZE, .destroy = destroy, .kernel_classes = classes};
  static rabbet_device_t device = {.vtable = &vtable, .name = "old", .kind = "old"};
  (void)ordinal, (void)allocator;
  rabbet_refcount_initialize(&device.references);
  if (ABI != RABBET_DEVICE_ABI) __builtin_trap();
  *out_device = &device;
  return NULL;
}
#if ABI > 0
__attribute__((visibility("default"))) uint32_t rabbet_device_abi(void) { return ABI; }
#endif
"""


@pytest.mark.parametrize(
    ("abi", "table", "kernel", "error"),
    [
        ("0", "8", "8", r"made for version 0 of the interface .* has version \d+:"),
        ("99", "8", "8", r"made for version 99 of the interface .* has version \d+:"),
        ("RABBET_DEVICE_ABI", "8", "8", r"table of functions has 8 bytes, .* \d+"),
        (
            "RABBET_DEVICE_ABI",
            "sizeof(rabbet_device_vtable_t)",
            "8",
            r"kernel class 0 has 8 bytes, .* have \d+",
        ),
    ],
)
def test_stale_device_libraries_are_refused(
    tmp_path: Path, abi: str, table: str, kernel: str, error: str
) -> None:
    """Those of another number are not run, and nothing of other tables is called."""
    compile_library(
        STALE_DEVICE,
        tmp_path / "librabbet_old.so",
        *(f"-I{ROOT / part}" for part in ("include", "src")),
        f"-DTABLE_SIZE={table}",
        f"-DCLASS_SIZE={kernel}",
        # The preprocessor knows RABBET_DEVICE_ABI once the header is read.
        f"-DABI={abi}",
    )
    env = {"RABBET_LIBRARY_PATH": str(tmp_path)}
    assert re.search(error, build(tmp_path, env, "--device=old"))


# ---- Libraries that the loader refuses


RELEASE = "0.0.9"


def of_another_release(folder: Path, kind: str) -> Path:
    """A library linked to the runtime of an older release, which is gone since."""
    runtime = folder / "librabbet_runtime.so.0"
    node = folder / "runtime.map"
    node.write_text(f"RABBET_PRIVATE_{RELEASE} {{ global: rabbet_old; }};")
    compile_library(
        "int rabbet_old(void) { return 1; }",
        runtime,
        f"-Wl,-soname,{runtime.name},--version-script={node}",
    )
    source = "int rabbet_old(void); int rabbet_device_abi(void) { return rabbet_old(); }"
    path = folder / f"librabbet_{kind}.so"
    compile_library(source + "int rabbet_device_open;", path, "-Wl,--no-as-needed", str(runtime))
    runtime.unlink()
    return path


def with_unknown_function(folder: Path, kind: str) -> Path:
    """A library of this release whose sources need a function that is not there."""
    node = folder / "device.map"
    node.write_text(f"RABBET_PRIVATE_{rabbet.__version__} {{ global: rabbet_device_abi; }};")
    source = "int rabbet_gone(void); int rabbet_device_abi(void) { return rabbet_gone(); }"
    flags = ("-Wl,-z,now", f"-Wl,--version-script={node}")
    return compile_library(source, folder / f"librabbet_{kind}.so", *flags)


def not_a_library(folder: Path, kind: str) -> Path:
    path = folder / f"librabbet_{kind}.so"
    path.write_bytes(b"none")
    return path


BROKEN = {
    of_another_release: (f"RABBET_PRIVATE_{RELEASE}.* not found", f"rabbet {RELEASE}"),
    with_unknown_function: ("undefined symbol: rabbet_gone", f"rabbet {rabbet.__version__}"),
    not_a_library: ("file too short|invalid ELF header", "an unknown release"),
}


@pytest.mark.parametrize("make", BROKEN)
@pytest.mark.parametrize("chosen", [True, False])
def test_libraries_that_cannot_be_loaded(
    tmp_path: Path, make: Callable[[Path, str], Path], chosen: bool
) -> None:
    """By default, too, where a device that is absent makes place for the CPU."""
    path = make(tmp_path, "cuda")
    env = {"RABBET_LIBRARY_PATH": str(tmp_path), "RABBET_DEVICE": ""}
    reason, release = BROKEN[make]
    error = (
        rf"device library '{re.escape(str(path))}' cannot be loaded: .*({reason}).*made "
        rf"for {release}, and this is rabbet {rabbet.__version__}: take the one that"
    )
    found = build(tmp_path, env, *["--device=cuda"] * chosen)
    assert re.search(error, found)
    assert ("the default device (" in found) is not chosen
    assert not (tmp_path / "plan").exists()
    script = """
import rabbet
network = rabbet.Builder().create_network()
x = network.add_input("x", rabbet.float32, (2,))
network.mark_output(network.add_softmax(x).get_output(0))
try:
    rabbet.compile(network, device=DEVICE)
except rabbet.IncompatibleError as error:
    print(error)
""".replace("DEVICE", repr("cuda" if chosen else None))
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.search(error, done.stdout), done.stdout


def test_the_cpu_needs_no_library_of_a_gpu(tmp_path: Path) -> None:
    of_another_release(tmp_path, "cuda")
    env = {"RABBET_LIBRARY_PATH": str(tmp_path)}
    info = {"x": (FLOAT, [2])}, {"y": (FLOAT, [2])}
    save_model(tmp_path / "m.onnx", [helper.make_node("Relu", ["x"], ["y"])], *info)
    command("build", tmp_path / "m.onnx", "--device=cpu", env=env)
    listed = command("version", env=env).stdout
    assert re.search(rf"cuda .*cannot be loaded.*made for rabbet {RELEASE}", listed)
