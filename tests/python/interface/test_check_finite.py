"""The step that makes the first infinity or NaN of a run is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rabbet as trt
import rabbet.plugin as trtp
from onnx import helper

from tests.python.support.command import FLOAT, command, save_model
from tests.python.support.plugins import build, call, new_id, random

DIV, PROD = trt.ElementWiseOperation.DIV, trt.ElementWiseOperation.PROD
SUB = trt.ElementWiseOperation.SUB


def half_model(save: Path | None = None, device: str = "cpu") -> trt.Model:
    """Two products in FP16; the second overflows for inputs of 1."""
    network = trt.Builder().create_network()
    tensor = network.add_input("x", trt.float32, (2, 64))
    for name, size in (("first", 30.0), ("second", 40.0)):
        weights = network.add_constant((64, 64), np.full((64, 64), size, np.float32))
        layer = network.add_matrix_multiply(
            tensor, trt.MatrixOperation.NONE, weights.get_output(0), trt.MatrixOperation.NONE
        )
        layer.name, layer.precision = name, trt.float16
        layer.set_output_type(0, trt.float16)
        tensor = layer.get_output(0)
    network.mark_output(tensor)
    return trt.compile(network, device=device, fp16=True, save=save)


def check_half(model: Any) -> None:
    """The model names its second product."""
    x = np.ones((2, 64), np.float32)
    assert np.isinf(model(x)).all()  # 64 * 30 * 64 * 40
    with pytest.raises(trt.FailedPreconditionError) as raised:
        model.check_finite(x)
    message = str(raised.value)
    assert message.startswith("layer 'second")
    assert "made the first infinity of the run" in message
    assert "holds 128 infinities among 128 elements, the first at [0, 0]" in message
    assert "(HALF (2, 64)) from 1920 to 1920" in message
    assert "FP16 holds no number beyond 65504: keep the layer in FP32" in message
    small = np.full((2, 64), 1e-3, np.float32)
    np.testing.assert_array_equal(model.check_finite(small), model(small))


def test_overflow_of_fp16(tmp_path: Path) -> None:
    check_half(half_model(tmp_path / "m.plan"))
    check_half(trt.load(tmp_path / "m.plan", device="cpu"))


def pair(operation: Any, constant: Any = None) -> trt.Model:
    def make(network: trt.INetworkDefinition) -> Any:
        a = network.add_input("a", trt.float32, (2, 3))
        if constant is None:
            b = network.add_input("b", trt.float32, (2, 3))
        else:
            b = network.add_constant((2, 3), constant).get_output(0)
        layer = network.add_elementwise(a, b, operation)
        layer.name = "both"
        return layer.get_output(0)

    return build(make)


INF = np.float32(np.inf)
A = np.array([[1, 2, 3], [4, 0, 6]], np.float32)


@pytest.mark.parametrize(("operation", "b", "message"), [
    (DIV, A, r"layer 'both'.* made the first NaN.*holds 1 NaN among 6 elements, the first at "
             r"\[1, 1\].*A NaN comes of 0 / 0"),
    (DIV, A * [[1, 1, 1], [1, 1, 0]], r"1 NaN and 1 infinity among.*A NaN comes of"),
    (DIV, [[1, 1, 0], [1, 1, 1]], r"made the first infinity.*1 infinity among 6 elements, the "
                                  r"first at \[0, 2\].*An infinity comes of a division by 0"),
    (PROD, np.full((2, 3), 2e38), r"made the first infinity.*'b' \(FLOAT \(2, 3\)\) from 2e\+38"),
    (PROD, np.full((2, 3), INF), r"made the first NaN.*with infinities"),
    (PROD, [[1, 1, 1], [1, 1, INF]], r"output '.*no layer made them of finite numbers\. The "
                                     r"input 'b' .*holds 1 infinity among 6"),
    (SUB, [[1, 1, 1], [1, 1, np.nan]], r"The input 'b' .*holds 1 NaN among 6 elements, the first "
                                       r"at \[1, 2\]"),
])  # fmt: skip
def test_causes(operation: Any, b: Any, message: str) -> None:
    with pytest.raises(trt.FailedPreconditionError, match=message):
        pair(operation).check_finite(A, np.asarray(b, np.float32))


def test_constants() -> None:
    constant = np.ones((2, 3), np.float32)
    constant[1, 2] = INF
    with pytest.raises(trt.FailedPreconditionError, match=r"The constant '.*holds 1 infinity"):
        pair(PROD, constant).check_finite(A)


def test_masks_hold_infinities() -> None:
    def make(network: trt.INetworkDefinition) -> Any:
        x = network.add_input("x", trt.float32, (2, 4))
        mask = network.add_input("mask", trt.float32, (2, 4))
        total = network.add_elementwise(x, mask, trt.ElementWiseOperation.SUM)
        layer = network.add_softmax(total.get_output(0))
        layer.axes, layer.name = 2, "softmax"
        return layer.get_output(0)

    model = build(make)
    x, mask = random(2, 4), np.zeros((2, 4), np.float32)
    mask[:, 2:] = -INF
    y = model.check_finite(x, mask)
    assert np.isfinite(y).all()
    mask[1] = -INF  # nothing is left of this row
    with pytest.raises(trt.FailedPreconditionError, match=r"layer '.*softmax.*first NaN"):
        model.check_finite(x, mask)


def test_padding_is_not_looked_at() -> None:
    """Blocks of channels that are not full: a plugin may leave anything there."""
    plugin_id = new_id("padded")

    @trtp.register(plugin_id)
    def described(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.autotune(plugin_id)
    def tune(x: Any, outputs: Any) -> Any:
        return [trtp.AutoTuneCombination("FP32, FP32", "LINEAR, CHW16")]

    wrong: list[tuple[int, ...]] = []

    @trtp.impl(plugin_id)
    def run(x: Any, outputs: Any) -> None:
        # [1, 2, 3, 3, 16]: blocks of 16 of 20 channels, the last four of them full
        y = np.ctypeslib.as_array(
            (np.ctypeslib.ctypes.c_float * (2 * 9 * 16)).from_address(outputs[0].data_ptr)
        ).reshape(2, 9, 16)
        y[...] = 1
        y[1, :, 4:] = np.nan
        for index in wrong:
            y[index] = np.nan

    def make(network: trt.INetworkDefinition) -> Any:
        x = network.add_input("x", trt.float32, (1, 20, 3, 3))
        return network.add_plugin(call(plugin_id)(x)).get_output(0)

    model = build(make)
    x = random(1, 20, 3, 3)
    assert (model.check_finite(x) == 1).all()
    wrong.append((1, 8, 3))
    with pytest.raises(trt.FailedPreconditionError, match="holds 1 NaN among 180 elements"):
        model.check_finite(x)


def test_sizes_that_runs_tell() -> None:
    def make(network: trt.INetworkDefinition) -> Any:
        x = network.add_input("x", trt.float32, (6,))
        found = network.add_non_zero(x)
        chosen = network.add_gather(x, found.get_output(0), 0)
        half = network.add_elementwise(
            chosen.get_output(0),
            network.add_constant((1, 1), np.array([[0]], np.float32)).get_output(0),
            DIV,
        )
        half.name = "by_nothing"
        return half.get_output(0)

    model = build(make)
    with pytest.raises(trt.FailedPreconditionError, match=r"by_nothing.*2 infinities among 2"):
        model.check_finite(np.array([0, 0, 3, 0, -1, 0], np.float32))


def test_contexts() -> None:
    context = half_model().create_execution_context()
    assert context.check_finite is False
    x, y = np.ones((2, 64), np.float32), np.empty((2, 64), np.float16)
    y = y if context.engine.get_tensor_dtype(
        context.engine.get_tensor_name(1)) is trt.float16 else y.astype(np.float32)
    addresses = [x.ctypes.data, y.ctypes.data]
    assert context.execute_v2(addresses)
    context.check_finite = True
    with pytest.raises(trt.FailedPreconditionError, match="layer 'second"):
        context.execute_v2(addresses)
    context.check_finite = False
    assert context.execute_v2(addresses)


def test_the_command(tmp_path: Path) -> None:
    model = save_model(
        tmp_path / "m.onnx",
        [helper.make_node("Log", ["x"], ["l"], name="log_of_x"),
         helper.make_node("Softmax", ["l"], ["y"], name="soft")],
        {"x": (FLOAT, [2, 3])}, {"y": (FLOAT, [2, 3])},
    )  # fmt: skip
    command("build", model, "--device", "cpu", "--quiet")
    plan = tmp_path / "m.plan"
    np.savez(tmp_path / "x.npz", x=-A)
    np.savez(tmp_path / "good.npz", x=A + 1)
    command("run", plan, "--inputs", tmp_path / "x.npz", "--quiet")
    failed = command(
        "run", plan, "--inputs", tmp_path / "x.npz", "--check-finite", "--quiet", code=1
    )
    assert failed.stderr.startswith("rabbet run: layer 'log_of_x")
    assert "5 NaN" in failed.stderr
    done = command("run", plan, "--inputs", tmp_path / "good.npz", "--check-finite")
    assert done.stdout == command("run", plan, "--inputs", tmp_path / "good.npz").stdout
