"""A limit for the memory that timings of a build hold."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
import rabbet as trt
import rabbet.plugin as trtp

from tests.python.support.plugins import build, call, new_id

ROWS, DEPTH = 64, 512  # an input of 128 KiB, weights of 1 MiB
CHANNELS = 128  # weights of 576 KiB


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
    (text,) = warnings
    assert re.fullmatch(
        "memory for timings did not suffice: [1-9][0-9]* kernels not timed; "
        "[1-9][0-9]* groups? without a timed kernel, which get the first one "
        rf"\(first for 'product': .* are more than the limit of {limit} for memory of "
        r"tactics\)",
        text,
    )


def filters(limit: int | None) -> dict[str, Any]:
    """The report of a convolution whose Winograd kernels keep four times its weights."""
    rng = np.random.default_rng(5)
    weights = rng.random((CHANNELS, CHANNELS, 3, 3), np.float32)

    def make(network: trt.INetworkDefinition) -> Any:
        x = network.add_input("x", trt.float32, (1, CHANNELS, 24, 24))
        layer = network.add_convolution_nd(x, CHANNELS, (3, 3), weights)
        layer.padding_nd = (1, 1)
        return layer.get_output(0)

    model = build(make, tactic_memory=limit, logger=Warnings())
    assert model.report_json is not None
    result: dict[str, Any] = json.loads(model.report_json)
    return result


def test_packed_weights_count() -> None:
    weights = CHANNELS * CHANNELS * 9 * 4
    assert filters(None)["tactic_memory"] > 2 * weights
    limit = 2 * weights
    report = filters(limit)
    assert report["tactic_memory"] <= limit
    assert report["steps"][0]["time_us"] > 0


def test_a_plugin_that_is_not_run_once() -> None:
    """It has one way to run, which is not timed; its trial run needs memory, too."""
    plugin_id = new_id("one_way")

    @trtp.register(plugin_id)
    def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def double(x: trtp.Tensor, outputs: Any, stream: int) -> None:
        np.asarray(outputs[0])[...] = 2 * np.asarray(x)

    log = Warnings()

    def make(network: trt.INetworkDefinition) -> Any:
        x = network.add_input("x", trt.float32, (4,))
        return network.add_plugin(call(plugin_id)(x)).get_output(0)

    model = build(make, tactic_memory=1, logger=log)
    (text,) = log.texts
    assert "did not suffice: 1 plugin not run once before" in text
    np.testing.assert_array_equal(model(np.ones(4, np.float32)), 2 * np.ones(4))


def test_a_limit_below_zero() -> None:
    with pytest.raises((ValueError, trt.Error), match="-1"):
        trt.compile(trt.Builder().create_network(), tactic_memory=-1)
