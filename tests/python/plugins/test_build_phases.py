"""Where a build's report says that its seconds went."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import rabbet as trt
import rabbet.plugin as trtp

from tests.python.support.plugins import new_id, one_layer, random

SECONDS = 0.05
ROUNDING = 0.0006  # of a number in the report


def report(tactics: list[int]) -> dict[str, Any]:
    plugin_id = new_id("sleeps")

    @trtp.register(plugin_id)
    def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def run(x: trtp.Tensor, outputs: tuple[trtp.Tensor], tactic: int) -> None:
        time.sleep(SECONDS)
        np.copyto(outputs[0].numpy(), x.numpy())

    @trtp.autotune(plugin_id)
    def choose(
        x: trtp.TensorDesc, outputs: tuple[trtp.TensorDesc]
    ) -> list[trtp.AutoTuneCombination]:
        return [trtp.AutoTuneCombination("FP32, FP32", "LINEAR", tactics)]

    model: trt.Model = one_layer(plugin_id, (2, 3), try_plugins=False)
    x = random(2, 3)
    np.testing.assert_array_equal(model(x), x)
    assert model.report_json is not None
    result: dict[str, Any] = json.loads(model.report_json)
    return result


def test_each_moment_counts_once() -> None:
    found = report([1, 2])
    phases = found["phases"]
    assert phases["timing"] > 2 * SECONDS
    assert min(phases.values()) >= 0
    rounding = (len(phases) + 1) * ROUNDING
    assert 2 * SECONDS < sum(phases.values()) <= found["seconds"] + rounding


def test_nothing_to_choose_takes_no_time_for_timing() -> None:
    assert report([1])["phases"]["timing"] == 0
