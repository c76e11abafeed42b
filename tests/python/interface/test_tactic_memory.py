"""A limit for the memory that timings of a build hold."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import rabbet as trt

ROWS, DEPTH = 64, 512  # an input of 128 KiB, weights of 1 MiB


class Warnings(trt.ILogger):
    def __init__(self) -> None:
        trt.ILogger.__init__(self)
        self.texts: list[str] = []

    def log(self, severity: trt.ILogger.Severity, msg: str) -> None:
        if severity is trt.ILogger.Severity.WARNING:
            self.texts.append(msg)


def built(limit: int | None) -> tuple[dict[str, Any], list[str], bool]:
    """The report, the warnings, and whether the engine's product is right."""
    weights = np.random.default_rng(3).random((DEPTH, DEPTH), np.float32)
    log = Warnings()
    builder = trt.Builder(log)
    network = builder.create_network()
    x = network.add_input("x", trt.float32, (ROWS, DEPTH))
    w = network.add_constant(weights.shape, weights).get_output(0)
    none = trt.MatrixOperation.NONE
    product = network.add_matrix_multiply(x, none, w, none)
    product.name = "product"
    network.mark_output(product.get_output(0))
    config = builder.create_builder_config()
    config.device = "cpu"
    if limit is not None:
        config.set_memory_pool_limit(trt.MemoryPoolType.TACTIC_DRAM, limit)
        assert config.get_memory_pool_limit(trt.MemoryPoolType.TACTIC_DRAM) == limit
    plan = builder.build_serialized_network(network, config)
    model = trt.Model(trt.Runtime(log).deserialize_cuda_engine(plan))
    value = np.random.default_rng(4).random((ROWS, DEPTH), np.float32)
    right = np.allclose(model(value), value @ weights, rtol=1e-4)
    return json.loads(builder.report_json), log.texts, right


def test_measurements_stay_within_the_limit() -> None:
    free, warnings, right = built(None)
    assert right
    assert not warnings
    assert free["tactic_memory"] >= 2 * ROWS * DEPTH * 4
    assert free["peak_resident"] > free["tactic_memory"]
    report, warnings, right = built(free["tactic_memory"])
    assert right
    assert not warnings
    assert 0 < report["tactic_memory"] <= free["tactic_memory"]
    assert report["steps"][0]["time_us"] > 0


def test_what_needs_more_is_not_timed() -> None:
    limit = ROWS * DEPTH * 4  # the input alone
    report, warnings, right = built(limit)
    assert right
    assert report["tactic_memory"] <= limit
    assert report["steps"][0]["time_us"] is None
    text = "\n".join(warnings)
    assert "not timed: product: " in text
    assert f"are more than the limit of {limit} for memory of tactics" in text
    assert "no kernel of 'product' is timed" in text


def test_a_limit_below_zero() -> None:
    with pytest.raises((ValueError, trt.Error), match="-1"):
        trt.compile(trt.Builder().create_network(), tactic_memory=-1)
