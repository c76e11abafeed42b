"""A build runs each operator once, so that what is wrong with it shows there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rabbet as trt
import rabbet.plugin as trtp
from onnx import helper

from tests.python.support.command import FLOAT, command, save_model
from tests.python.support.plugins import call, new_id


def network_of(body: Any) -> trt.INetworkDefinition:
    """y = plugin(x) of an operator with one way to run, which no build times."""
    plugin_id = new_id("trial")

    @trtp.register(plugin_id)
    def described(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def run(x: trtp.Tensor, outputs: Any) -> None:
        body(np.from_dlpack(x), np.from_dlpack(outputs[0]))

    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (2, 3))
    network.mark_output(network.add_plugin(call(plugin_id)(x)).get_output(0))
    return network


def wrong(x: Any, y: Any) -> None:
    y[...] = x.reshape(7)


@pytest.mark.parametrize("level", [0, 3])
def test_a_wrong_body_fails_the_build(level: int) -> None:
    network = network_of(wrong)
    with pytest.raises(ValueError, match="cannot reshape") as raised:
        trt.compile(network, device="cpu", optimization_level=level)
    (note,) = raised.value.__notes__
    assert "running 'plugin_0' once before the plan is written: plugin 'test::trial" in note
    assert __file__ in note


def test_it_is_run_once_also_with_known_times(tmp_path: Path) -> None:
    runs = []

    def body(x: Any, y: Any) -> None:
        runs.append(x.shape)
        y[...] = x + 1

    network = network_of(body)
    for _ in range(2):
        trt.compile(network, device="cpu", timing_cache=tmp_path / "cache")
        assert runs == [(2, 3)]
        runs.clear()


def test_it_can_be_left_out() -> None:
    model = trt.compile(network_of(wrong), device="cpu", try_plugins=False)
    with pytest.raises(ValueError, match="cannot reshape"):
        model(np.zeros((2, 3), np.float32))


def test_the_object_interface_asks_for_it() -> None:
    network, config = network_of(wrong), trt.Builder().create_builder_config()
    config.device = "cpu"
    assert config.try_plugins is False
    assert trt.Builder().build_serialized_network(network, config) is not None
    config.try_plugins = True
    with pytest.raises(ValueError, match="cannot reshape"):
        trt.Builder().build_serialized_network(network, config)


def test_numba_compiles_in_the_build() -> None:
    numba = pytest.importorskip("numba")

    @numba.njit
    def kernel(x: Any, y: Any) -> None:
        for i in range(x.size):
            y.flat[i] = x.flat[i] + undefined_name  # noqa: F821

    with pytest.raises(numba.core.errors.TypingError, match="undefined_name"):
        trt.compile(network_of(kernel), device="cpu")

    @numba.njit
    def right(x: Any, y: Any) -> None:
        for i in range(x.size):
            y.flat[i] = x.flat[i] + 1

    model = trt.compile(network_of(right), device="cpu")
    assert len(right.signatures) == 1
    assert (model(np.ones((2, 3), np.float32)) == 2).all()
    assert len(right.signatures) == 1


def test_the_command(tmp_path: Path) -> None:
    operator = tmp_path / "wrong.py"
    operator.write_text(
        "import rabbet.plugin as trtp\n"
        "@trtp.register('trial::Wrong')\n"
        "def wrong(x: trtp.TensorDesc) -> trtp.TensorDesc:\n"
        "    return x.like()\n"
        "@trtp.impl('trial::Wrong')\n"
        "def run(x, outputs):\n"
        "    raise KeyError('of the operator')\n"
    )
    node = helper.make_node("Wrong", ["x"], ["y"], plugin_namespace="trial")
    model = save_model(
        tmp_path / "m.onnx", [node], {"x": (FLOAT, [2])}, {"y": (FLOAT, [2])}
    )
    given = ("build", model, "--plugins", operator, "--device", "cpu", "--quiet")
    failed = command(*given, code=5)
    assert "KeyError: 'of the operator'" in failed.stderr
    assert "plugin 'trial::Wrong'" in failed.stderr
    command(*given, "--no-plugin-trial", "--optimization-level", 0)
