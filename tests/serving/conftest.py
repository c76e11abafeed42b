"""Models that the tests of serving systems share. Each file skips where its package is
missing; `make test-serving` runs them where all are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import rabbet
from onnx import helper

from tests.python.support.command import FLOAT, save_model

# Ray reads both where it is imported: its node has the loopback address, and reports nothing.
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

ROOT = Path(__file__).resolve().parents[2]
OPERATOR = ROOT / "examples/demo/circ_pad.py"
WEIGHTS = np.linspace(-2, 3, 24, dtype=np.float32).reshape(6, 4)


@pytest.fixture(scope="session", autouse=True)
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Plans that arrive by content are kept in a folder of the tests' own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def product(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder of plans: y = x WEIGHTS, of 1 to 16 rows."""
    folder = tmp_path_factory.mktemp("product")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    x, y = {"x": (FLOAT, ["n", 6])}, {"y": (FLOAT, ["n", 4])}
    save_model(folder / "m.onnx", nodes, x, y, {"w": WEIGHTS})
    shapes = {"x": ((1, 6), (4, 6), (16, 6))}
    rabbet.build_plans(
        folder / "m.onnx", folder / "plans", shapes=shapes, optimization_level=0, threads=1
    )
    return str(folder / "plans")


@pytest.fixture(scope="session")
def padded(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A plan with the demo's operator in Python: one pixel more on each side."""
    folder = tmp_path_factory.mktemp("padded")
    node = helper.make_node(
        "CircularPad", ["x"], ["y"], plugin_namespace="example", pads=[0, 1, 1, 0, 1, 1]
    )
    shape = {"x": (FLOAT, ["n", 3, 4])}
    save_model(folder / "m.onnx", [node], shape, {"y": (FLOAT, None)})
    rabbet.compile(
        folder / "m.onnx", plugins=[OPERATOR], device="cpu", save=folder / "m.plan",
        optimization_level=0, threads=1, shapes={"x": ((1, 3, 4), (2, 3, 4), (16, 3, 4))},
    )  # fmt: skip
    return str(folder / "m.plan")


def rows(count: int) -> np.ndarray:
    return np.random.default_rng(count).standard_normal((count, 6)).astype(np.float32)


def images(count: int) -> np.ndarray:
    return np.arange(count * 12, dtype=np.float32).reshape(count, 3, 4)


def wrapped(x: np.ndarray) -> np.ndarray:
    return np.pad(x, ((0, 0), (1, 1), (1, 1)), mode="wrap")
