"""The command's files: arrays in and out, plans, timing caches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.python.support.command import FLOAT, command, save_model
from tests.python.support.timed import build_until_sure

WEIGHTS = np.arange(12, dtype=np.float32).reshape(4, 3) / 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("command")


@pytest.fixture(scope="module")
def plan(folder: Path) -> Path:
    """y = relu(x w), x: [1..8, 4]."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="product"),
        helper.make_node("Relu", ["a"], ["y"], name="relu"),
    ]
    model = save_model(
        folder / "m.onnx",
        nodes,
        {"x": (FLOAT, ["rows", 4])},
        {"y": (FLOAT, ["rows", 3])},
        {"w": WEIGHTS},
    )
    command(
        "build", model, "--quiet", "--device", "cpu", "--min-shapes", "x:1x4",
        "--opt-shapes", "x:4x4", "--max-shapes", "x:8x4",
    )  # fmt: skip
    return folder / "m.plan"


@pytest.fixture(scope="module")
def pair(folder: Path) -> Path:
    """A plan of two inputs: y = a - b."""
    shape = (FLOAT, [2, 3])
    model = save_model(
        folder / "pair.onnx",
        [helper.make_node("Sub", ["a", "b"], ["y"])],
        {"a": shape, "b": shape},
        {"y": shape},
    )
    command("build", model, "--quiet", "--device", "cpu", "--optimization-level", 0)
    return folder / "pair.plan"


def array(rows: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(rows).normal(size=(rows, 4)).astype(np.float32)


def run(plan: Path, *arguments: Any, output: str = "out.npz") -> dict[str, Any]:
    path = plan.parent / output
    command("run", plan, "-o", path, *arguments)
    with np.load(path) as file:
        return dict(file)


# ---- Arrays ----------------------------------------------------------------


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("rows", [1, 3, 8])
def test_archives(plan: Path, save: Any, rows: int) -> None:
    x = array(rows)
    save(plan.parent / "in.npz", x=x)
    found = run(plan, "--inputs", plan.parent / "in.npz")
    assert list(found) == ["y"]
    assert found["y"].dtype == np.float32
    np.testing.assert_allclose(found["y"], np.maximum(x @ WEIGHTS, 0), rtol=1e-5)


def test_single_arrays(plan: Path, pair: Path) -> None:
    x = array(2)
    file = plan.parent / "x.npy"
    np.save(file, x)
    expected = np.maximum(x @ WEIGHTS, 0)
    for text in (file, f"x={file}"):
        np.testing.assert_allclose(run(plan, "--inputs", text)["y"], expected, rtol=1e-5)
    a, b = np.full((2, 3), 5, np.float32), np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(plan.parent / "a.npy", a)
    np.save(plan.parent / "b.npy", b)
    given = [f"--inputs={name}={plan.parent / name}.npy" for name in "ab"]
    assert np.array_equal(run(pair, *given)["y"], a - b)
    error = command("run", pair, "--inputs", plan.parent / "a.npy", code=2).stderr
    assert "several inputs" in error
    assert "a=" in error


TYPES = [
    (TensorProto.FLOAT, np.float32),
    (TensorProto.FLOAT16, np.float16),
    (TensorProto.INT32, np.int32),
    (TensorProto.INT64, np.int64),
    (TensorProto.UINT8, np.uint8),
    (TensorProto.BOOL, np.bool_),
]


@pytest.mark.parametrize(("onnx_type", "dtype"), TYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3), (1, 1, 2, 1, 5)])
def test_types_and_shapes(
    tmp_path: Path, onnx_type: int, dtype: Any, shape: tuple[int, ...]
) -> None:
    """A copy keeps bits, type and shape."""
    info = (onnx_type, list(shape))
    model = save_model(
        tmp_path / "m.onnx",
        [helper.make_node("Identity", ["x"], ["/a/b:0"])],
        {"x": info},
        {"/a/b:0": info},
    )
    x = np.random.default_rng(1).integers(0, 2, shape).astype(dtype)
    np.savez(tmp_path / "in.npz", x=x)
    found = run(model, "--inputs", tmp_path / "in.npz", "--device", "cpu",
                "--optimization-level", 0)["/a/b:0"]  # fmt: skip
    assert found.dtype == dtype
    assert found.shape == shape
    assert np.array_equal(found, x)


def test_random_inputs_repeat(plan: Path) -> None:
    first = run(plan, "--shapes", "x:5x4", "--seed", 3)["y"]
    assert first.shape == (5, 3)
    assert first.max() > 0
    assert np.array_equal(first, run(plan, "--shapes", "x:5x4", "--seed", 3)["y"])
    assert not np.array_equal(first, run(plan, "--shapes", "x:5x4", "--seed", 4)["y"])


def test_output_is_reproducible(plan: Path) -> None:
    run(plan, "--shapes", "x:2x4", output="a.npz")
    run(plan, "--shapes", "x:2x4", output="b.npz")
    assert (plan.parent / "a.npz").read_bytes() == (plan.parent / "b.npz").read_bytes()


@pytest.mark.parametrize(
    ("arrays", "code", "message"),
    [
        ({"x": array(2).astype(np.uint32)}, 3, "elements of type '<u4'; expected f4"),
        ({"x": array(2).astype(np.float64)}, 2, "is FLOAT, but the array given for it"),
        ({"x": array(2).astype(np.int32)}, 2, "is FLOAT, but the array given for it"),
        ({"x": np.asfortranarray(array(2))}, 3, "ascontiguousarray"),
        ({"x": array(2).astype(">f4")}, 3, "big-endian"),
        ({"x": array(9)}, 2, "profile 0 allows 1 to 8"),
        ({"x": array(2)[0]}, 2, "'x'"),
        ({"z": array(2)}, 2, "no input 'z'"),
        ({"x": np.array([None])}, 3, "'|O'"),
    ],
)
def test_wrong_arrays(
    plan: Path, arrays: dict[str, Any], code: int, message: str
) -> None:
    np.savez(plan.parent / "wrong.npz", **arrays)
    error = command("run", plan, "--inputs", plan.parent / "wrong.npz", code=code)
    assert message in error.stderr


def test_wrong_array_files(plan: Path) -> None:
    file = plan.parent / "cut.npz"
    np.savez(file, x=array(2))
    whole = file.read_bytes()
    for size in (0, 3, 40, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:size])
        assert "cut.npz" in command("run", plan, "--inputs", file, code=3).stderr
    error = command("run", plan, "--inputs", plan.parent / "none.npz", code=3).stderr
    assert "none.npz" in error
    np.savez(file, x=array(2), y=array(2))
    assert "2" in command("run", plan, "--inputs", f"x={file}", code=2).stderr


# ---- Plans -----------------------------------------------------------------


def test_damaged_plans(plan: Path, tmp_path: Path) -> None:
    """Cut anywhere, or with any byte changed, a plan is refused."""
    whole = plan.read_bytes()
    damaged = tmp_path / "damaged.plan"
    random = np.random.default_rng(5)
    for size in random.integers(0, len(whole), 12):
        damaged.write_bytes(whole[:size])
        assert "damaged.plan" in command("inspect", damaged, code=3).stderr
    for at in random.integers(0, len(whole), 24):
        changed = bytearray(whole)
        changed[at] ^= 1 << int(random.integers(8))
        damaged.write_bytes(changed)
        assert "damaged.plan" in command("run", damaged, code=3).stderr


def test_files_of_other_kinds(plan: Path, tmp_path: Path) -> None:
    model = plan.with_suffix(".onnx")
    assert "ONNX" in command("inspect", model, code=3).stderr
    assert "m.plan" in command("build", plan, code=3).stderr
    for name, content in {"empty": b"", "text": b"hello\n" * 99}.items():
        file = tmp_path / f"{name}.plan"
        file.write_bytes(content)
        assert f"{name}.plan" in command("run", file, code=3).stderr
    assert "gone.plan" in command("run", tmp_path / "gone.plan", code=3).stderr
    assert "gone.onnx" in command("build", tmp_path / "gone.onnx", code=3).stderr


def test_unwritable_outputs(plan: Path) -> None:
    model = plan.with_suffix(".onnx")
    error = command(
        "build", model, "--shapes", "x:1x4", "-o", "/no/such/folder/p", code=3
    ).stderr
    assert "/no/such/folder/p" in error
    error = command("run", plan, "--shapes", "x:1x4", "-o", "/no/such/y.npz", code=3)
    assert "/no/such/y.npz" in error.stderr


# ---- Timing caches ---------------------------------------------------------


def build_with_cache(model: Path, cache: Path, *more: Any) -> tuple[bytes, Any]:
    plan = cache.with_suffix(".plan")
    report = command(
        "build", model, "--shapes", "x:4x4", "--device", "cpu", "--json",
        "--timing-cache", cache, "-o", plan, *more,
    ).stdout  # fmt: skip
    return plan.read_bytes(), json.loads(report)


def fill_cache(model: Path, cache: Path) -> Any:
    """The report of the first build."""
    first, _ = build_until_sure(
        lambda: build_with_cache(model, cache)[1], lambda report: report["doubtful"]
    )
    return first


def test_timing_cache(plan: Path, tmp_path: Path) -> None:
    model, cache = plan.with_suffix(".onnx"), tmp_path / "times.bin"
    assert fill_cache(model, cache)["timings"] > 0
    first, report = build_with_cache(model, cache)
    assert report["timings"] == 0
    kept = cache.read_bytes()
    second, report = build_with_cache(model, cache)
    assert report["timings"] == 0
    assert first == second
    assert cache.read_bytes() == kept
    _, report = build_with_cache(model, cache, "--retime")
    assert report["timings"] > 0


def test_damaged_timing_cache(plan: Path, tmp_path: Path) -> None:
    model, cache = plan.with_suffix(".onnx"), tmp_path / "times.bin"
    build_with_cache(model, cache)
    whole = cache.read_bytes()
    changed = bytearray(whole)
    changed[-1] ^= 1
    for content in (b"rubbish", whole[:-1], bytes(changed)):
        cache.write_bytes(content)
        error = command(
            "build", model, "--shapes", "x:4x4", "--timing-cache", cache, "-o",
            tmp_path / "p", code=3,
        ).stderr  # fmt: skip
        assert "times.bin" in error


def test_a_plan_is_kept_if_its_times_cannot_be(plan: Path, tmp_path: Path) -> None:
    model, made = plan.with_suffix(".onnx"), tmp_path / "made.plan"
    build = ("build", model, "--shapes", "x:4x4", "-o")
    done = command(*build, made, "--timing-cache", "/dev/full")
    assert "saving timing cache '/dev/full': cannot write" in done.stderr
    command("inspect", made)


@pytest.mark.parametrize("option", ["--output", "--timing-cache"])
def test_missing_folders_are_found_before_tuning(
    plan: Path, tmp_path: Path, option: str
) -> None:
    model, made = plan.with_suffix(".onnx"), tmp_path / "made.plan"
    given = {"--output": made, "--timing-cache": tmp_path / "times", option: tmp_path / "no/file"}
    options = [word for pair in given.items() for word in pair]
    error = command("build", model, "--shapes", "x:4x4", *options, code=3).stderr
    assert f"'{tmp_path}/no/file': there is no folder '{tmp_path}/no/'" in error
    assert not made.exists()
