"""rabbet build --ranks: plans of a split model, for each GPU one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rabbet
from onnx import TensorProto, helper
from rabbet._build_command import run
from rabbet._errors import STATUS_ERRORS
from rabbet._split_command import _cuts

from tests.python.parallel.ranks import WITH
from tests.python.support.command import FLOAT, PROGRAM, command, save_model

SHAPES = ("--shapes", "x0:2x64", "--optimization-level", "0")
LAYERS = 4


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """x + down(relu(up(x))) four times, under a mask of rows."""
    random = np.random.default_rng(1)
    nodes = [helper.make_node("Cast", ["seen"], ["mask"], to=FLOAT)]
    weights: dict[str, Any] = {}
    for i in range(LAYERS):
        for name, shape in ((f"up{i}", (64, 256)), (f"down{i}", (256, 64))):
            weights[name] = random.standard_normal(shape).astype(np.float32) / 16
        nodes += [
            helper.make_node("MatMul", [f"x{i}", f"up{i}"], [f"wide{i}"]),
            helper.make_node("Relu", [f"wide{i}"], [f"relu{i}"]),
            helper.make_node("MatMul", [f"relu{i}", f"down{i}"], [f"made{i}"]),
            helper.make_node("Mul", [f"made{i}", "mask"], [f"kept{i}"]),
            helper.make_node("Add", [f"x{i}", f"kept{i}"], [f"x{i + 1}"]),
        ]
    return save_model(
        tmp_path_factory.mktemp("ranks") / "m.onnx",
        nodes,
        {"x0": (FLOAT, ["n", 64]), "seen": (TensorProto.INT64, [1, 64])},
        {f"x{LAYERS}": (FLOAT, ["n", 64])},
        weights,
    )


def on_gpus(*arguments: Any, code: int = 0) -> subprocess.CompletedProcess[str]:
    """The command on the stand-in GPU."""
    done = subprocess.run(
        [WITH, PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=100,
        check=False, env={**os.environ, "RABBET_PYTHON": sys.executable, "RABBET_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return done


_needed = pytest.mark.skipif(not WITH.exists(), reason="no stand-in GPU was built")


@_needed
def test_parts_of_layers(model: Path, tmp_path: Path) -> None:
    done = on_gpus("build", model, "--ranks", 2, *SHAPES, "-o", tmp_path / "p", "--device", "cuda")
    assert done.stdout.startswith("2 ranks; weights of ")
    for rank in range(2):
        file = tmp_path / f"p.{rank}"
        assert f"wrote {file}, " in done.stdout
        facts = json.loads(command("inspect", file, "--json").stdout)
        assert "dist_collective" in json.dumps(facts)
    assert not (tmp_path / "p").exists()


@_needed
def test_stages(model: Path, tmp_path: Path) -> None:
    cuts = ("--pipeline", "--cuts", "x1,relu1+x1")
    cache = tmp_path / "times"
    done = on_gpus(
        "build", model, "--ranks", 3, *cuts, "-o", tmp_path / "p", "--json", "--device", "cuda",
        "--min-shapes", "x*:1x64", "--opt-shapes", "x0:2x64", "--max-shapes", "x0:9x64",
        "--optimization-level", 0, "--timing-cache", cache,
    )  # fmt: skip
    report = json.loads(done.stdout)
    assert report["cuts"] == [["x1"], ["x1", "relu1"]]
    assert [each["inputs"] for each in report["stages"]] == [["x0", "seen"], ["x0"], ["x0", "seen"]]
    assert cache.exists()
    for rank, stage in enumerate(report["stages"]):
        facts = json.loads(command("inspect", tmp_path / f"p.{rank}", "--json").stdout)
        named = json.dumps(facts)
        assert all(f'"{name}"' in named for name in (*stage["inputs"], *stage["outputs"]))


@_needed
def test_default_name(model: Path) -> None:
    done = on_gpus("build", model, "--ranks", 2, "--pipeline", *SHAPES, "--quiet",
                   "--device", "cuda")  # fmt: skip
    assert done.stdout == ""
    assert sorted(p.name for p in model.parent.glob("m.plan*")) == ["m.plan.0", "m.plan.1"]


def failure(model: Path, *words: str) -> tuple[type[rabbet.Error], str]:
    """The error of the command's Python part, as the C program has it."""
    options: dict[str, list[str]] = {}
    for word in words:
        if word.startswith("--"):
            options[word] = []
            name = word
        else:
            options[name].append(word)
    failed = run(str(model), {name: values or [""] for name, values in options.items()})
    assert failed is not None
    return STATUS_ERRORS[failed[0]], failed[1]


_USAGE, _UNSUPPORTED = rabbet.InvalidArgumentError, rabbet.UnsupportedError


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ("--ranks 1", _USAGE, "--ranks is 1; expected 2 or more"),
        ("--ranks two", _USAGE, "--ranks is 'two'; expected an integer"),
        ("--pipeline", _USAGE, "--pipeline needs --ranks"),
        ("--cuts x1", _USAGE, "--cuts are of --pipeline"),
        ("--ranks 2 --cuts x1", _USAGE, "--cuts are of --pipeline"),
        ("--ranks 2 --for cpu", _USAGE, "--for and --ranks exclude each other"),
        ("--ranks 2 --retime", _USAGE, "--retime and --ranks exclude each other"),
        ("--ranks 3 --pipeline --cuts x1", _USAGE, "which make 2 stages; ranks is 3"),
        ("--ranks 2 --pipeline --cuts y1", _USAGE, "the network has no tensor 'y1'"),
        ("--ranks 2 --pipeline --cuts x1,", _USAGE, "--cuts is 'x1,'; expected names"),
        ("--ranks 2 --pipeline --cuts 'x1", _USAGE, "a quote is not closed"),
        ("--ranks 2 --pipeline --cuts relu1", _USAGE, "'relu1' does not separate the model: 'x1'"),
        ("--ranks 77 --pipeline", _UNSUPPORTED, "cannot be cut into 77 stages: it has 19 places"),
        ("--ranks 7", _UNSUPPORTED, "can be split over 7 ranks with a gain"),
        ("--ranks 2 --threads many", _USAGE, "--threads is 'many'; expected an integer"),
    ],
)  # fmt: skip
def test_mistakes(
    model: Path, tmp_path: Path, options: str, error: type[rabbet.Error], message: str
) -> None:
    found = failure(model, *options.split(), *SHAPES, "--output", str(tmp_path / "p"))
    assert found[0] is error
    assert message in found[1]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ((), "input 'x0' has dynamic dimensions (-1, 64): say its sizes"),
        (("--max-shapes", "z:2x64"), "shapes are given for 'z', but the model has no such input"),
        (("--shapes", "x0:2x6y"), "'2x6y' is not a shape"),
        (("--shapes", "x0:2"), "input 'x0' has 2 dimensions (-1, 64), got (2,)"),
    ],
)  # fmt: skip
def test_mistakes_in_shapes(model: Path, shapes: tuple[str, ...], message: str) -> None:
    for more in (("--pipeline",), ()):
        found = failure(model, "--ranks", "2", *more, *shapes)
        assert found[0] is _USAGE
        assert message in found[1]


def test_exit_codes(model: Path) -> None:
    """Of the program, in which each option alone leads to Python."""
    for option in (("--ranks", "1"), ("--pipeline",), ("--cuts", "x1")):
        command("build", model, *option, *SHAPES, code=2)
    command("build", model, "--ranks", 77, "--pipeline", *SHAPES, code=4)


def test_files(model: Path, tmp_path: Path) -> None:
    gone = command("build", tmp_path / "gone.onnx", "--ranks", 2, code=3)
    assert "gone.onnx" in gone.stderr
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    command("build", tmp_path / "bad.onnx", "--ranks", 2, code=3)
    nowhere = command("build", model, "--ranks", 2, *SHAPES, "-o", "/no/such/folder/p", code=3)
    assert "/no/such/folder" in nowhere.stderr


def test_cpus_exchange_nothing(model: Path, tmp_path: Path) -> None:
    words = ("build", model, "--ranks", 2, *SHAPES, "--device", "cpu", "-o", tmp_path / "p")
    assert "it exchanges nothing with other ranks; build for 'cuda'" in (
        command(*words, code=4).stderr
    )


def test_names_with_marks() -> None:
    """Names with commas and pluses stand in quotes."""
    assert _cuts({"--cuts": ["'a,b'+c,d", "'it''s'"]}) == [("a,b", "c"), ("d",), ("it's",)]
    assert _cuts({}) is None
    with pytest.raises(rabbet.InvalidArgumentError, match="expected names"):
        _cuts({"--cuts": ["a,+b"]})
