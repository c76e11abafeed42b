"""A library that generates code for long at its first call is left out of a plan that is as
fast without it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import rabbet
import rabbet as trt

from tests.models.graph import Graph

SLOW_TO_START = ("gemm:jit", "x64:gemm:jit")


def is_slow(choice: dict[str, Any]) -> bool:
    return str(choice["tactic_name"]).split("/")[-1] in SLOW_TO_START


@pytest.fixture
def product(tmp_path: Path) -> tuple[Path, np.ndarray]:
    """A product with weights, for which oneDNN has its SGEMM, which starts slowly, and others."""
    weights = np.random.default_rng(3).standard_normal((48, 40)).astype(np.float32)
    graph = Graph("product")
    x = graph.input("x", (24, 48))
    graph.output(graph.node("MatMul", [x, graph.constant("m", weights)], "y"), (24, 40))
    path = tmp_path / "model.onnx"
    onnx.save_model(graph.model(), path)
    return path, weights


def choices(report: dict[str, Any]) -> list[dict[str, Any]]:
    step = next(step for step in report["steps"] if step["alternatives"])
    return [step, *step["alternatives"]]


@pytest.mark.parametrize(("others", "is_left_out"), [(1.005, True), (1.2, False)])
def test_times_decide(
    product: tuple[Path, np.ndarray], tmp_path: Path, others: float, is_left_out: bool
) -> None:
    path, weights = product
    cache_path = tmp_path / "times"

    def build(times: dict[Any, float] | None) -> tuple[Any, dict[str, Any]]:
        if times is not None:
            cache = trt.ITimingCache(cache_path.read_bytes())
            for key, us in times.items():
                cache.update(key, trt.TimingCacheValue(0, us / 1000))
            cache_path.write_bytes(cache.serialize())
        options: dict[str, Any] = {"device": "cpu", "threads": 1, "optimization_level": 2}
        model = rabbet.compile(path, timing_cache=cache_path, **options)
        return model, json.loads(model.report_json)

    build(None)
    keys = trt.ITimingCache(cache_path.read_bytes()).queryKeys()
    # Each entry gets a time of its own, by which the report tells whose it is.
    _, report = build({key: 1000.0 + i for i, key in enumerate(keys)})
    slow = {round(one["time_us"]) - 1000 for one in choices(report) if is_slow(one)}
    if not slow or len(choices(report)) == len(slow):
        pytest.skip("oneDNN has nothing to choose from on this processor")
    times = {key: 100.0 if i in slow else 100 * others for i, key in enumerate(keys)}
    model, report = build(times)
    assert report["timings"] == 0
    assert is_slow(choices(report)[0]) != is_left_out
    x = np.random.default_rng(5).standard_normal((24, 48)).astype(np.float32)
    np.testing.assert_allclose(model(x), x @ weights, rtol=1e-4, atol=1e-4)
