"""Plugin libraries that plans carry: Python, and the command."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rabbet as trt
from onnx import helper

from tests.python.command.test_command_plugins import C_SOURCE, compile_library
from tests.python.support.command import FLOAT, command, save_model

INCLUDE = Path(__file__).resolve().parents[3] / "include"
X = np.arange(6, dtype=np.float32).reshape(2, 3)
INFO = (FLOAT, [2, 3])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """m.onnx with an operator that only triple.so has, and the file of an input."""
    folder = tmp_path_factory.mktemp("carried")
    # It does not say where it comes from: from its file, then.
    source = C_SOURCE.replace('"command", .origin = "triple.so"', '"carried_py"')
    compile_library(source, folder / "triple.so", f"-I{INCLUDE}")
    node = helper.make_node("Triple", ["x"], ["y"], plugin_namespace="carried_py")
    save_model(folder / "m.onnx", [node], {"x": INFO}, {"y": INFO})
    np.savez(folder / "in.npz", x=X)
    return folder


@pytest.fixture(scope="module")
def plan(folder: Path) -> Path:
    command(
        "build", folder / "m.onnx", "--quiet", "--device", "cpu",
        "--plugins", folder / "triple.so", "--keep-plugins",
    )  # fmt: skip
    return folder / "m.plan"


def runtime(**options: Any) -> trt.Runtime:
    made = trt.Runtime(trt.Logger(trt.Logger.ERROR))
    for name, value in options.items():
        setattr(made, name, value)
    return made


# ---- The command -----------------------------------------------------------


def test_command(folder: Path, plan: Path) -> None:
    output = folder / "out.npz"
    arguments = ("run", plan, "--inputs", folder / "in.npz", "-o", output)
    command(*arguments, "--allow-host-code")
    assert np.array_equal(np.load(output)["y"], 3 * X)
    error = command(*arguments, code=5).stderr
    assert "carries the plugin library 'triple.so'" in error
    assert "--allow-host-code" in error
    assert "median" in command("bench", plan, "--duration", 0, "--allow-host-code").stdout
    shown = command("inspect", plan).stdout
    size = (folder / "triple.so").stat().st_size
    assert f"carries library triple.so: {size} bytes" in shown


def test_a_model_that_is_built_on_the_spot(folder: Path) -> None:
    output = folder / "spot.npz"
    command(
        "run", folder / "m.onnx", "--inputs", folder / "in.npz", "-o", output, "--device",
        "cpu", "--plugins", folder / "triple.so", "--keep-plugins",
    )  # fmt: skip
    assert np.array_equal(np.load(output)["y"], 3 * X)


def test_exec(folder: Path) -> None:
    cpu = {"RABBET_DEVICE": "cpu"}
    built = folder / "exec.plan"
    library = folder / "triple.so"
    quick = ("--duration=0", "--warmUp=0", "--iterations=1")
    text = command(
        "exec", f"--onnx={folder / 'm.onnx'}", f"--saveEngine={built}", *quick,
        f"--setPluginsToSerialize={library}", env=cpu,
    ).stdout  # fmt: skip
    assert "&&&& PASSED" in text
    load = ("exec", f"--loadEngine={built}", *quick)
    assert "--allow-host-code" in command(*load, code=5, env=cpu).stdout
    assert "&&&& PASSED" in command(*load, "--allowHostCode", env=cpu).stdout
    files = f"--tempdir={folder}", "--tempfileControls=in_memory:deny,temporary:allow"
    assert "&&&& PASSED" in command(*load, "--allowHostCode", *files, env=cpu).stdout
    denied = "--tempfileControls=in_memory:deny,temporary:deny"
    text = command(*load, "--allowHostCode", denied, code=5, env=cpu).stdout
    assert "neither files in memory nor temporary files" in text
    wrong = command(*load, "--tempfileControls=memory:no", code=2, env=cpu).stdout
    assert "expected in_memory or temporary" in wrong


@pytest.mark.parametrize("flag", ["plugins", "staticPlugins", "dynamicPlugins"])
def test_exec_loads_libraries(folder: Path, flag: str) -> None:
    """They are not carried: a loaded plan needs them again."""
    cpu = {"RABBET_DEVICE": "cpu"}
    library = f"--{flag}={folder / 'triple.so'}"
    built = folder / f"{flag}.plan"
    quick = ("--duration=0", "--warmUp=0", "--iterations=1")
    command(
        "exec", f"--onnx={folder / 'm.onnx'}", f"--saveEngine={built}", *quick, library,
        env=cpu,
    )  # fmt: skip
    text = command("exec", f"--loadEngine={built}", *quick, library, env=cpu).stdout
    assert "&&&& PASSED" in text
    text = command("exec", f"--loadEngine={built}", *quick, env=cpu, code=5).stdout
    assert "needs the plugin 'carried_py::Triple', version '1', which was defined in " in text
    assert f"'{folder / 'triple.so'}' when the plan was built" in text


# ---- Python ----------------------------------------------------------------


def test_python(plan: Path) -> None:
    with pytest.raises(trt.FailedPreconditionError, match="engine_host_code_allowed"):
        runtime().deserialize_cuda_engine(plan.read_bytes())
    allowed = runtime(engine_host_code_allowed=True)
    # Several engines, each with a library of its own, and none in the registry.
    models = [
        trt.Model(allowed.deserialize_cuda_engine(plan.read_bytes())),
        trt.Model(allowed.load_cuda_engine(str(plan))),
        trt.load(plan, allow_host_code=True),
    ]
    for _ in range(3):
        for model in models:
            assert np.array_equal(model(X), 3 * X)
        models.pop()
    registry = trt.get_plugin_registry()
    assert registry.get_creator("Triple", "1", "carried_py") is None
    with pytest.raises(trt.FailedPreconditionError, match=r"triple\.so"):
        trt.load(plan)


def test_refitted_and_serialized_plans_carry_them_on(plan: Path) -> None:
    allowed = runtime(engine_host_code_allowed=True)
    again = bytes(allowed.load_cuda_engine(str(plan)).serialize())
    assert np.array_equal(trt.Model(allowed.deserialize_cuda_engine(again))(X), 3 * X)


def test_files(plan: Path, tmp_path: Path) -> None:
    flag = trt.TempfileControlFlag
    allowed = runtime(engine_host_code_allowed=True)
    assert allowed.tempfile_control_flags == (
        1 << int(flag.ALLOW_IN_MEMORY_FILES) | 1 << int(flag.ALLOW_TEMPORARY_FILES)
    )
    assert allowed.temporary_directory == ""
    allowed.tempfile_control_flags = 1 << int(flag.ALLOW_TEMPORARY_FILES)
    allowed.temporary_directory = str(tmp_path)
    engine = allowed.load_cuda_engine(str(plan))
    assert list(tmp_path.iterdir()) == []  # it is there while the library is opened
    assert np.array_equal(trt.Model(engine)(X), 3 * X)
    allowed.tempfile_control_flags = 0
    with pytest.raises(trt.FailedPreconditionError, match="nor temporary files"):
        allowed.load_cuda_engine(str(plan))
    with pytest.raises(TypeError, match="temporary_directory: expected a path, got 3"):
        allowed.temporary_directory = 3
    for wrong in (-1, 4):
        with pytest.raises(ValueError, match="TempfileControlFlag"):
            allowed.tempfile_control_flags = wrong


BUILD = """
import sys, rabbet as trt
trt.load_plugins(sys.argv[2])
builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
network = builder.create_network()
trt.OnnxParser(network, trt.Logger()).parse_from_file(sys.argv[1])
config = builder.create_builder_config()
config.device = "cpu"
assert config.plugins_to_serialize == []
config.plugins_to_serialize = [sys.argv[2]]
assert config.plugins_to_serialize == [sys.argv[2]]
open(sys.argv[3], "wb").write(builder.build_serialized_network(network, config))
config.reset()
assert config.plugins_to_serialize == []
model = trt.compile(
    sys.argv[1], device="cpu", plugins=sys.argv[2], keep_plugins=True, save=sys.argv[4]
)
"""


def test_building(folder: Path, tmp_path: Path) -> None:
    files = [folder / "m.onnx", folder / "triple.so", tmp_path / "a", tmp_path / "b"]
    subprocess.run([sys.executable, "-c", BUILD, *files], check=True)
    for file in files[2:]:
        assert np.array_equal(trt.load(file, allow_host_code=True)(X), 3 * X)


def check_not_carried(libraries: Any, error: type[Exception], message: str) -> None:
    """A build that is to carry them fails when it begins."""
    builder = trt.Builder()
    network = builder.create_network()
    x = network.add_input("x", trt.float32, (2, 3))
    network.mark_output(network.add_identity(x).get_output(0))
    config = builder.create_builder_config()
    config.device = "cpu"
    config.plugins_to_serialize = libraries
    with pytest.raises(error, match=message):
        builder.build_serialized_network(network, config)


@pytest.mark.parametrize(
    ("name", "contents", "message"),
    [
        ("gone.so", None, "gone.so"),
        ("text.so", b"no library", "it is not a shared library"),
        ("cut.so", 5000, "truncated or damaged"),
        ("other.so", "int x;", "does not export rabbet_plugin_library_register"),
    ],
)
def test_what_cannot_be_carried(
    folder: Path, tmp_path: Path, name: str, contents: Any, message: str
) -> None:
    path = tmp_path / name
    if isinstance(contents, bytes):
        path.write_bytes(contents)
    elif isinstance(contents, int):
        path.write_bytes((folder / "triple.so").read_bytes()[:contents])
    elif contents:
        compile_library(contents, path)
    check_not_carried([path], trt.Error, message)


def test_lists() -> None:
    config = trt.Builder().create_builder_config()
    for wrong in ("one.so", 3):
        with pytest.raises(TypeError, match="expected a list of names"):
            config.plugins_to_serialize = wrong
    with pytest.raises(trt.InvalidArgumentError, match="number 0 is empty"):
        config.plugins_to_serialize = [""]


def test_two_of_one_name(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "triple.so"
    copy.write_bytes((folder / "triple.so").read_bytes())
    check_not_carried(
        [copy, folder / "triple.so"],
        trt.InvalidArgumentError,
        r"two that are called 'triple.so'",
    )


def test_the_environment_has_the_last_word_on_folders(plan: Path, tmp_path: Path) -> None:
    """$TMPDIR, where no folder is named."""
    code = (
        "import sys, rabbet as trt\n"
        "r = trt.Runtime()\n"
        "r.engine_host_code_allowed = True\n"
        "r.tempfile_control_flags = 2\n"
        "r.load_cuda_engine(sys.argv[1])\n"
    )
    gone = tmp_path / "gone"
    done = subprocess.run(
        [sys.executable, "-c", code, plan],
        env={**os.environ, "TMPDIR": str(gone)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert f"in folder '{gone}'" in done.stderr


# ---- Damaged libraries ----


def dynamic_entries(data: bytes) -> dict[int, int]:
    """Where the values of a library's dynamic table lie, by tag."""
    (table,), (count,) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<H", data, 56)
    segments = [struct.unpack_from("<IIQQQQQQ", data, table + 56 * i) for i in range(count)]
    (begin, size) = next((s[2], s[5]) for s in segments if s[0] == 2)
    entries = range(begin, begin + size, 16)
    return {struct.unpack_from("<q", data, at)[0]: at + 8 for at in entries}


# Numbers of elf.h, and what is said.
TABLES = {
    "STRTAB": (5, "strings"),
    "STRSZ": (10, "strings"),
    "SYMTAB": (6, "symbols"),
    "GNU_HASH": (0x6FFFFEF5, "table of names"),
    "RELA": (7, "relocations"),
    "RELASZ": (8, "relocations"),
    "RELAENT": (9, "lacks a part"),
    "JMPREL": (23, "relocations"),
    "PLTRELSZ": (2, "relocations"),
    "INIT": (12, "function to call"),
    "INIT_ARRAY": (25, "functions to call"),
    "NEEDED": (1, "name"),
    "VERNEED": (0x6FFFFFFE, "versions"),
    "VERSYM": (0x6FFFFFF0, "versions"),
}


@pytest.mark.parametrize("table", TABLES)
def test_tables_that_are_not_there(folder: Path, tmp_path: Path, table: str) -> None:
    """The dynamic loader would end the process."""
    tag, message = TABLES[table]
    data = bytearray((folder / "triple.so").read_bytes())
    at = dynamic_entries(bytes(data)).get(tag)
    if at is None:
        pytest.skip(f"this linker makes no {table}")
    struct.pack_into("<Q", data, at, 0x7FFF00000008)
    path = tmp_path / "damaged.so"
    path.write_bytes(data)
    with pytest.raises(trt.DataLossError, match=f"'{path}'.*damaged: .*{message}"):
        trt.get_plugin_registry().load_library(str(path))
    check_not_carried([path], trt.DataLossError, message)


def test_libraries_that_are_cut_off(folder: Path, tmp_path: Path) -> None:
    data = (folder / "triple.so").read_bytes()
    path = tmp_path / "cut.so"
    for size in [0, 3, 63, 64, 500, *range(1000, len(data) // 2, 1000)]:
        path.write_bytes(data[:size])
        with pytest.raises(trt.Error, match=r"cut.so'.*(not a shared library|truncated)"):
            trt.get_plugin_registry().load_library(str(path))


def test_damage_on_the_way(plan: Path, tmp_path: Path) -> None:
    """No byte of a library is opened that is not as it was when the plan was made."""
    data = plan.read_bytes()
    begin = data.index(b"\x7fELF")
    damaged = tmp_path / "damaged.plan"
    for at in range(begin, len(data), (len(data) - begin) // 40):
        damaged.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        with pytest.raises(trt.DataLossError, match=r"damaged.plan.*PLUGINS.* is damaged"):
            trt.load(damaged, allow_host_code=True)
