"""The command line: sub-commands, options, shapes, devices, exit codes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.python.support.command import FLOAT, PROGRAM, command, save_model

COMMANDS = (
    "build", "run", "bench", "inspect", "quantize", "ops", "triton", "completion", "version",
)  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """y = softmax(x), x: [batch, size]; size also of z, which is added."""
    return save_model(
        tmp_path_factory.mktemp("line") / "m.onnx",
        [
            helper.make_node("Add", ["x", "z"], ["a"], name="sum"),
            helper.make_node("Softmax", ["a"], ["y"], name="softmax", axis=-1),
        ],
        {"x": (FLOAT, ["batch", "size"]), "z": (FLOAT, ["size"])},
        {"y": (FLOAT, ["batch", "size"])},
    )


@pytest.fixture(scope="module")
def plan(model: Path) -> Path:
    command(
        "build", model, "--quiet", "--device", "cpu", "--shapes", "x:2x8,z:8",
        "--max-shapes", "x:16x32,z:32", "--min-shapes", "x:1x1,z:1",
    )  # fmt: skip
    return model.with_suffix(".plan")


# ---- Sub-commands ----------------------------------------------------------


def test_usage() -> None:
    text = command("--help").stdout
    for name in COMMANDS:
        assert f"  {name} " in text
    assert command("help").stdout == text
    bare = subprocess.run([PROGRAM], capture_output=True, text=True)
    assert bare.returncode == 2
    assert bare.stderr == text
    assert bare.stdout == ""


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help(name: str, flag: str) -> None:
    done = command(name, flag)
    assert done.stdout.startswith(f"usage: rabbet {name}")
    assert done.stderr == ""
    # Help wins over what else is wrong.
    assert command(name, "--no-such-option", flag).stdout == done.stdout


def test_version() -> None:
    import rabbet

    text = command("version").stdout
    assert text.startswith(f"rabbet {rabbet.__version__}\n")
    assert "\ncpu " in text
    assert command("--version").stdout == text


def test_version_in_json() -> None:
    import rabbet

    version = json.loads(command("version", "--json").stdout)
    assert version["version"] == rabbet.__version__
    header = Path(__file__).parents[3] / "include/rabbet/plugin.h"
    assert f"#define RABBET_PLUGIN_ABI {version['plugin_abi']}\n" in header.read_text()
    cpu, cuda = version["devices"]
    assert (cpu["name"], cpu["available"]) == ("cpu", True)
    assert cpu["signature"] in command("version").stdout
    assert cuda["name"] == "cuda"
    assert cuda["signature" if cuda["available"] else "reason"]


def test_ops() -> None:
    listed = [line.split()[0] for line in command("ops").stdout.splitlines()]
    assert {"convolution", "matrix_multiply", "softmax", "plugin"} <= set(listed)
    assert listed == sorted(listed)
    for name in listed:
        assert command("ops", name).stdout.startswith(f"{name}: ")
    assert "did you mean 'softmax'" in command("ops", "softmx", code=2).stderr


def test_an_operator_with_all_that_is_known() -> None:
    told = command("ops", "cumulative").stdout
    for line in (
        "attr    op             int, default SUM: What is running.",
        "SUM           0  Sums.",
        "limits  Input 1, the axis, is a constant.",
        "kernels CPU, CUDA",
        "ONNX    CumSum Multinomial SplitToSequence Unique",
    ):
        assert f"  {line}\n" in told
    found = json.loads(command("ops", "cumulative", "--json").stdout)
    assert found["cpu_formats"] == "LINEAR"
    assert found["onnx"] == "CumSum Multinomial SplitToSequence Unique"
    assert [attr["default"] for attr in found["attributes"]] == [0, 0, False, False]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bild"], "did you mean 'build'"),
        (["run"], "is missing"),
        (["inspect", "a", "b"], "'b' is one operand too many"),
        (["version", "x"], "one operand too many"),
        (["run", "p", "--input", "x"], "did you mean '--inputs'"),
        (["run", "p", "--seed"], "--seed needs a value"),
        (["run", "p", "--quiet=1"], "--quiet takes no value"),
    ],
)
def test_wrong_command_lines(arguments: list[str], message: str) -> None:
    done = command(*arguments, code=2)
    assert message in done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--threads", "0"], "--threads: '0' is not an integer from 1"),
        (["--threads", "many"], "'many'"),
        (["--seed", "-1"], "--seed"),
        (["--profile-index", "7"], "profile 7 does not exist"),
        (["--shapes", "x:17x8,z:8"], "profile 0 allows 1 to 16"),
        (["--shapes", "x:2x8x8,z:8"], "'x'"),
        (["--shapes", "q:2x8"], "no input 'q'"),
        (["--shapes", "x:2y8"], "'2y8' is not a shape"),
        (["--shapes", "x"], "x"),
        (["--shapes", "x:2x8"], "'z' has dynamic dimensions"),
        (["--shapes", "x:2x8,z:9"], ""),
    ],
)
def test_wrong_values(plan: Path, arguments: list[str], message: str) -> None:
    assert message in command("run", plan, *arguments, code=2).stderr


def test_standard_output_that_is_full(plan: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [PROGRAM, "inspect", plan], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 3
    assert "standard output" in done.stderr


# ---- Building --------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "'x' has dynamic dimensions"),
        (["--min-shapes", "x:1x1", "--max-shapes", "x:2x8"], "'z' has dynamic dimensions"),
        (["--shapes", "x:2x8,z:8,w:1"], "shapes are given for 'w'"),
        (["--shapes", "x:8,z:8"], "'x'"),
        (["--shapes", "x=2x8"], "build: shapes: 'x=2x8' has no colon"),
        (["--min-shapes", "x=2x8", "--shapes", "x:2x8,z:8"], "--min-shapes: 'x=2x8'"),
        (["--optimization-level", "6"], "--optimization-level"),
        (["--shapes", "x:2x8,z:8", "--max-shapes", "x:1x8,z:8"], "min <= opt <= max"),
    ],
)
def test_wrong_builds(model: Path, arguments: list[str], message: str) -> None:
    assert message in command("build", model, *arguments, code=2).stderr


@pytest.mark.parametrize("threads", ["many", "-1", "2x", "5000"])
def test_wrong_threads_of_the_environment(
    model: Path, tmp_path: Path, threads: str
) -> None:
    arguments = ("build", model, "--shapes", "x:2x8,z:8", "-o", tmp_path / "p", "--quiet")
    error = command(*arguments, env={"RABBET_THREADS": threads}, code=2).stderr
    assert f"RABBET_THREADS is '{threads}'; expected a number of threads" in error
    command(*arguments, "--threads", 1, env={"RABBET_THREADS": threads})


def test_shapes_of_fixed_sizes(tmp_path: Path) -> None:
    info = (FLOAT, [2, 4])
    node = helper.make_node("Relu", ["x"], ["y"])
    file = save_model(tmp_path / "m.onnx", [node], {"x": info}, {"y": info})
    error = command("build", file, "--shapes", "x:1x4", code=2).stderr
    assert "dimension 0 of input 'x' the range 1 to 1; its shape (2, 4) fixes" in error
    command("build", file, "--shapes", "x:2x4", "--quiet")
    assert "(2, 4)" in command("run", file.with_suffix(".plan")).stdout


def test_a_plan_for_one_size_runs_with_it(model: Path, tmp_path: Path) -> None:
    plan = tmp_path / "p"
    command("build", model, "--shapes", "x:2x8,z:8", "-o", plan, "--quiet")
    assert "(2, 8)" in command("run", plan).stdout
    command("run", plan, "--shapes", "x:3x8", code=2)


def test_reports(model: Path, tmp_path: Path) -> None:
    arguments = ("build", model, "--shapes", "x:2x8,z:8", "-o", tmp_path / "p")
    text = command(*arguments)
    assert "softmax" in text.stdout
    assert "wrote " in text.stderr
    report = json.loads(command(*arguments, "--json").stdout)
    assert report["device"] == "cpu"
    assert {name for step in report["steps"] for name in step["layers"]} >= {
        "sum",
        "softmax",
    }
    quiet = command(*arguments, "--quiet")
    assert quiet.stdout == quiet.stderr == ""
    for flags in (["--fp16"], ["--bf16"], ["--strongly-typed"], ["--threads", "1"]):
        command(*arguments, "--quiet", *flags)


def test_wrong_models(tmp_path: Path) -> None:
    info = (FLOAT, [2, 4])

    def error(node: Any, code: int) -> str:
        file = save_model(tmp_path / "m.onnx", [node], {"x": info}, {"y": info})
        return command("build", file, code=code).stderr

    unknown = helper.make_node("Sofmax", ["x"], ["y"], name="n0")
    text = error(unknown, 4)
    assert "n0" in text
    assert "Sofmax" in text
    shapes = helper.make_node("MatMul", ["x", "x"], ["y"], name="n1")
    assert "n1" in error(shapes, 3)
    missing = helper.make_node("Relu", ["q"], ["y"], name="n2")
    assert "'q'" in error(missing, 3)
    plugin = helper.make_node("Pad3", ["x"], ["y"], name="n3", plugin_namespace="a")
    assert "Pad3" in error(plugin, 4)


# ---- Running ---------------------------------------------------------------


@pytest.mark.parametrize(("rows", "size"), [(1, 1), (2, 8), (16, 32), (3, 17)])
def test_dynamic_shapes(plan: Path, tmp_path: Path, rows: int, size: int) -> None:
    random = np.random.default_rng(rows)
    x = random.normal(size=(rows, size)).astype(np.float32)
    z = random.normal(size=size).astype(np.float32)
    np.savez(tmp_path / "in.npz", x=x, z=z)
    text = command(
        "run", plan, "--inputs", tmp_path / "in.npz", "-o", tmp_path / "y.npz"
    ).stdout
    e = np.exp(x + z - (x + z).max(axis=1, keepdims=True))
    y = np.load(tmp_path / "y.npz")["y"]
    np.testing.assert_allclose(y, e / e.sum(axis=1, keepdims=True), rtol=1e-5)
    assert f"y FLOAT ({rows}, {size})" in text


def test_a_model_in_place_of_a_plan(model: Path) -> None:
    text = command("run", model, "--shapes", "x:2x8,z:8").stdout
    assert "y FLOAT (2, 8)" in text
    assert "mean 0.125" in text


def test_bench(plan: Path) -> None:
    arguments = ("bench", plan, "--shapes", "x:2x8,z:8", "--iterations", "5",
                 "--duration", "0", "--warmup", "0")  # fmt: skip
    times = json.loads(command(*arguments, "--json", "--layers").stdout)
    assert times["runs"] >= 5
    assert 0 < times["min_ms"] <= times["median_ms"] <= times["max_ms"]
    listed = json.loads(command("inspect", plan, "--json").stdout)["Layers"]
    assert [t["name"] for t in times["layers"]] == [t["Name"] for t in listed]
    text = command(*arguments, "--layers").stdout
    assert "median" in text
    assert "softmax" in text
    assert "--duration" in command("bench", plan, "--duration", "x", code=2).stderr


def test_inspect(plan: Path) -> None:
    text = command("inspect", plan).stdout
    assert "input  x: FP32 (-1, -1)" in text
    found = json.loads(command("inspect", plan, "--json").stdout)
    assert found["Device"] == "cpu"
    assert "softmax" in json.dumps(found["Layers"])
    one = json.loads(command("inspect", plan, "--json", "--layer", 0).stdout)
    assert one["Name"] == found["Layers"][0]["Name"]
    assert "99" in command("inspect", plan, "--layer", 99, code=2).stderr


# ---- Devices ---------------------------------------------------------------


def test_devices(model: Path, plan: Path) -> None:
    shapes = ("--shapes", "x:2x8,z:8")
    assert "nosuch" in command("run", plan, *shapes, "--device", "nosuch", code=6).stderr
    error = command("build", model, *shapes, env={"RABBET_DEVICE": "nosuch"}, code=6)
    assert "nosuch" in error.stderr
    command("run", plan, *shapes, "--device", "cpu", env={"RABBET_THREADS": "1"})
    error = command("run", plan, *shapes, env={"RABBET_LIBRARY_PATH": "/nowhere"})
    assert error.stderr == ""


# ---- Triton ----------------------------------------------------------------


def test_triton() -> None:
    folder = Path(command("triton", "--backend-directory").stdout.strip())
    assert (folder / "rabbet" / "libtriton_rabbet.so").is_file()
    libraries = Path(command("triton", "--library-directory").stdout.strip())
    assert folder.is_relative_to(libraries)
    assert list(libraries.glob("librabbet_runtime.so*"))
    assert "expected --backend-directory" in command("triton", code=2).stderr
