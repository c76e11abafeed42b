"""Ranges of the values of shape inputs: compile(values=), the command, exec."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import rabbet as trt

from tests.python.support.command import command
from tests.python.support.onnx_text import model_of


def expand() -> Any:
    """Expands x to sizes that are an input."""
    return model_of("float[1, 3] x, int64[2] sizes", "float[a, b] y", "y = Expand(x, sizes)")


def compiled(**options: Any) -> trt.Model:
    return trt.compile(
        expand().SerializeToString(), device="cpu", optimization_level=0, **options
    )


X = np.arange(3, dtype=np.float32)[None]


def run(model: trt.Model, *sizes: int) -> tuple[int, ...]:
    found = np.asarray(model(X, np.array(sizes, np.int64)))
    assert np.array_equal(found, np.broadcast_to(X, (sizes[0], 3)))
    return found.shape


def test_ranges() -> None:
    model = compiled(values={"sizes": ((1, 3), (4, 3), (9, 3))})
    assert run(model, 9, 3) == (9, 3)
    assert run(model, 1, 3) == (1, 3)
    with pytest.raises(trt.OutOfRangeError, match="element 0 of shape input 'sizes' is 10"):
        run(model, 10, 3)
    assert model.engine.get_tensor_profile_values("sizes", 0) == [[1, 3], [4, 3], [9, 3]]


def test_one_value_for_all_and_arrays() -> None:
    model = compiled(values={"sizes": np.array([5, 3])})
    assert run(model, 5, 3) == (5, 3)
    with pytest.raises(trt.OutOfRangeError, match="allows 5 to 5"):
        run(model, 4, 3)
    scalar = model_of("int64 l", "int64[k] y",
                      "z = Constant<value_int = 0>() o = Constant<value_int = 1>()"
                      " y = Range(z, l, o)").SerializeToString()  # fmt: skip
    counting = trt.compile(scalar, device="cpu", values={"l": (1, 4, 9)})
    assert np.asarray(counting(np.array(7))).tolist() == list(range(7))
    with pytest.raises(trt.OutOfRangeError, match="allows 1 to 9"):
        counting(np.array(11))
    fixed = trt.compile(scalar, device="cpu", values={"l": 4})
    assert np.asarray(fixed(np.array(4))).tolist() == [0, 1, 2, 3]


def test_profiles() -> None:
    model = compiled(
        profiles=[{}, {}],
        values=[{"sizes": ((1, 3), (2, 3), (4, 3))}, {"sizes": ((5, 3), (6, 3), (7, 3))}],
    )
    assert [run(model, n, 3)[0] for n in (2, 6, 4)] == [2, 6, 4]


@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        ({"x": 3}, trt.InvalidArgumentError, "no shape input 'x'.*it has sizes"),
        ({"sizes": [1]}, trt.InvalidArgumentError, "of 2 values, for which"),
        ({"sizes": [1.5, 2]}, trt.InvalidArgumentError, "which are integers"),
        ({"sizes": "2x3"}, trt.InvalidArgumentError, "which are integers"),
        ({"sizes": ((4, 3), (2, 3), (9, 3))}, trt.Error, "value 0 must have"),
        ([{}, {}], trt.InvalidArgumentError, "a list of 2 for 1 profile"),
        (3, TypeError, "values: expected"),
        ([3], TypeError, "values: expected"),
    ],
)
def test_mistakes(values: Any, kind: Any, message: str) -> None:
    with pytest.raises(kind, match=message):
        compiled(values=values)


def test_command(tmp_path: Path) -> None:
    model, plan, out = tmp_path / "m.onnx", tmp_path / "m.plan", tmp_path / "y.npz"
    onnx.save(expand(), model)
    ranges = ["--min-shapes=sizes:1x3", "--opt-shapes=sizes:4x3", "--max-shapes=sizes:9x3"]
    command("build", model, "-o", plan, "--device", "cpu", *ranges)
    for more, rows in ([], 4), (["--shapes=sizes:7x3"], 7):
        command("run", plan, "--output", out, *more)
        assert np.load(out)["y"].shape == (rows, 3)
    wrong = command("run", plan, "--output", out, "--shapes=sizes:10x3", code=2)
    assert "element 0 of shape input 'sizes' is 10" in wrong.stderr
    wrong = command("build", model, "-o", plan, "--device", "cpu", "--shapes=sizes:1x2x3",
                    code=2)  # fmt: skip
    assert "'sizes' is a shape input of 2 values, for which 3 are given" in wrong.stderr


def test_exec(tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    onnx.save(expand(), model)
    flags = ["--minShapes=sizes:1x3", "--optShapes=sizes:4x3", "--maxShapes=sizes:9x3"]
    for ranges, more, rows in ((flags, [], 4), (flags, ["--shapes=sizes:7x3"], 7),
                               ([], ["--shapes=sizes:5x3"], 5)):  # fmt: skip
        done = command("exec", f"--onnx={model}", "--duration=0", "--iterations=1",
                       "--warmUp=0", f"--exportOutput={tmp_path / 'y.npz'}", *ranges,
                       *more, env={"RABBET_DEVICE": "cpu"})  # fmt: skip
        assert "PASSED" in done.stdout
        assert np.load(tmp_path / "y.npz")["y"].shape == (rows, 3)
