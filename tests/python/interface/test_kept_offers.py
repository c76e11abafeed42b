"""Builds with a timing cache take offers from it: the same as those that a device makes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import rabbet

from tests.models.graph import Graph


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A convolution with an epilogue, a product, and scalars that kernels take in."""
    rng = np.random.default_rng(3)
    graph = Graph("offers")

    def constant(name: str, *shape: int) -> str:
        return graph.constant(name, rng.standard_normal(shape).astype(np.float32))

    x = graph.input("x", (1, 16, 8, 8))
    y = graph.node("Conv", [x, constant("w", 16, 16, 3, 3)], "y", pads=[1, 1, 1, 1])
    y = graph.node("Add", [y, x], "sum")
    y = graph.node("Relu", [y], "relu")
    y = graph.node("Mul", [y, constant("factor")], "scaled")
    y = graph.node("Flatten", [y], "flat")
    y = graph.node("MatMul", [y, constant("m", 1024, 8)], "product")
    graph.output(y, (1, 8))
    path = tmp_path / "model.onnx"
    onnx.save_model(graph.model(), path)
    return path


def offers(model: Any) -> list[Any]:
    """Of each step, whatever was chosen."""

    def those(step: dict[str, Any]) -> list[Any]:
        some = (step, *step["alternatives"])
        return sorted((one["kernel"], one["tactic"], one["types"]) for one in some)

    report = json.loads(model.report_json)
    return [(step["name"], those(step)) for step in report["steps"]]


@pytest.mark.parametrize("level", [0, 3])
def test_offers_are_the_same(model: Path, tmp_path: Path, level: int) -> None:
    options: dict[str, Any] = {"device": "cpu", "threads": 1, "optimization_level": level}
    cache = tmp_path / "times"
    x = np.random.default_rng(5).standard_normal((1, 16, 8, 8)).astype(np.float32)
    cold = rabbet.compile(model, timing_cache=cache, **options)
    size = cache.stat().st_size
    warm = rabbet.compile(model, timing_cache=cache, **options)
    assert any(some for _, some in offers(cold))
    assert size > 200
    if level == 0:
        assert cache.stat().st_size == size  # nothing new was asked
        assert offers(warm) == offers(cold)
    else:  # the choice of steps may differ by times that another program disturbed
        shared = dict(offers(cold))
        for name, some in offers(warm):
            assert some == shared.get(name, some)
    np.testing.assert_allclose(warm(x), cold(x), rtol=1e-4, atol=1e-4)
