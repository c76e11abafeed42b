"""Networks that are looked at and changed while they are made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import rabbet as trt
import rabbet.plugin as trtp

from tests.python.support.plugins import call, new_id

RELU = trt.ActivationType.RELU
STRONG = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)


class Log(trt.ILogger):
    """Keeps warnings and errors."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def log(self, severity: Any, msg: str) -> None:
        if severity <= trt.ILogger.WARNING:
            self.lines.append(msg)


def network_of(flags: int = 0) -> tuple[trt.INetworkDefinition, trt.ITensor, Log]:
    log = Log()
    network = trt.Builder(log).create_network(flags)
    return network, network.add_input("x", trt.float32, (2, 3)), log


def run(network: trt.INetworkDefinition, x: Any) -> Any:
    return trt.compile(network, device="cpu")(x)


# ---- Layers that are not complete yet


def test_an_incomplete_layer_hides_no_other() -> None:
    network, x, _ = network_of()
    before = network.add_activation(x, RELU).get_output(0)
    part = network.add_slice(x, [], [], [1, 1])
    part.name = "part"
    after = network.add_activation(part.get_output(0), RELU).get_output(0)
    aside = network.add_unary(x, trt.UnaryOperation.NEG).get_output(0)
    for tensor in (before, aside):
        assert tensor.shape == (2, 3)
        assert tensor.dtype is trt.float32
        assert not tensor.is_shape_tensor
    for tensor in (part.get_output(0), after):
        assert not tensor.is_shape_tensor
        for property_ in ("shape", "dtype"):
            with pytest.raises(trt.InvalidArgumentError, match="layer 'part'"):
                getattr(tensor, property_)
    network.mark_output(aside)
    # A build needs all of it, also what no output depends on.
    with pytest.raises(trt.InvalidArgumentError, match=r"layer 'part'.*'start'"):
        trt.compile(network, device="cpu")
    part.start, part.shape = (0, 1), (2, 2)
    assert after.shape == (2, 2)
    network.mark_output(after)
    value = np.array([[-1, 2, -3], [4, -5, 6]], np.float32)
    negative, found = run(network, value)
    np.testing.assert_array_equal(found, np.maximum(value[:, 1:], 0))
    np.testing.assert_array_equal(negative, -value)


def test_inputs_that_come_later() -> None:
    """A fill whose shape and bounds are tensors; values are followed through it."""
    network, x, _ = network_of()
    fill = network.add_fill((), trt.FillOperation.LINSPACE)
    fill.name = "fill"
    assert network.add_identity(x).get_output(0).shape == (2, 3)
    shape = network.add_shape(x).get_output(0)
    fill.set_input(0, shape)
    start = network.add_constant((), np.float32([1.0])).get_output(0)
    with pytest.raises(trt.Error, match="layer 'fill'"):
        _ = fill.get_output(0).shape
    assert start.shape == ()
    fill.set_input(1, start)
    fill.set_input(2, network.add_constant((2,), np.float32([10, 1])).get_output(0))
    total = network.add_elementwise(
        fill.get_output(0), x, trt.ElementWiseOperation.SUM
    ).get_output(0)
    assert total.shape == (2, 3)
    assert shape.is_shape_tensor
    network.mark_output(total)
    ramp = 1 + np.float32([[0, 1, 2], [10, 11, 12]])
    np.testing.assert_array_equal(run(network, np.ones((2, 3), np.float32)), ramp + 1)


def test_errors_of_plugins_stay_theirs() -> None:
    plugin_id, answers = new_id("moody"), []

    @trtp.register(plugin_id)
    def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:
        if not answers:
            raise KeyError("no answer")
        return x.like()

    network, x, _ = network_of()
    network.mark_output(network.add_identity(x).get_output(0))
    mine = network.add_plugin(call(plugin_id)(x)).get_output(0)
    other = network.add_activation(x, RELU).get_output(0)
    assert other.shape == (2, 3)
    with pytest.raises(KeyError, match="no answer"):
        _ = mine.shape
    with pytest.raises(KeyError, match="no answer"):
        network.validate()
    answers.append(1)
    with pytest.raises(trt.FailedPreconditionError, match="same answer each time"):
        _ = mine.shape
    assert mine.shape == (2, 3)
    network.validate()


# ---- Types of strongly typed networks, and names


def test_types_follow_in_strongly_typed_networks() -> None:
    network, x, log = network_of(STRONG)
    layer = network.add_activation(x, RELU)
    tensor = layer.get_output(0)
    layer.set_output_type(0, trt.float32)
    tensor.dtype = trt.float32
    assert log.lines == []  # it has that type
    layer.precision = trt.float16
    layer.set_output_type(0, trt.float16)
    tensor.dtype = trt.float16
    assert len(log.lines) == 3
    assert all("strongly typed" in line for line in log.lines)
    assert not layer.precision_is_set
    assert not layer.output_type_is_set(0)
    assert tensor.dtype is trt.float32
    x.dtype = trt.float16  # inputs say what they are
    assert tensor.dtype is trt.float16
    with pytest.raises(TypeError):
        tensor.dtype = "no type"


def test_a_layer_name_that_is_taken() -> None:
    network, x, log = network_of()
    names = []
    for _ in range(3):
        layer = network.add_activation(x, RELU)
        layer.name = "same"
        names.append(layer.name)
    assert names == ["same", "same_1", "same_2"]
    assert len(log.lines) == 2
    assert "'same_1'" in log.lines[0]
    layer.name = "same_2"  # its own
    assert layer.name == "same_2"
    assert len(log.lines) == 2
    network.mark_output(layer.get_output(0))
    assert run(network, np.ones((2, 3), np.float32)).sum() == 6


def test_many_layers_of_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = 0
    take = trt.ILayer._take_name

    def counted(layer: trt.ILayer, name: str) -> bool:
        nonlocal attempts
        attempts += 1
        return take(layer, name)

    monkeypatch.setattr(trt.ILayer, "_take_name", counted)
    network = trt.Builder(trt.Logger(trt.Logger.ERROR)).create_network()
    x = network.add_input("x", trt.float32, (2,))
    for _ in range(500):
        network.add_identity(x).name = "same"
    names = [network.get_layer(i).name for i in range(500)]
    assert names == ["same", *(f"same_{i}" for i in range(1, 500))]
    assert attempts < 500 * 20


# ---- Parameters of functions


@pytest.mark.parametrize(
    ("kind", "reference"),
    [
        ("SOFTPLUS", lambda x: np.log1p(np.exp(x))),
        ("ELU", lambda x: np.where(x > 0, x, np.expm1(x))),
        ("HARD_SIGMOID", lambda x: np.clip(0.2 * x + 0.5, 0, 1)),
        ("SCALED_TANH", np.tanh),
        (
            "SELU",
            lambda x: (
                1.0507009873554805
                * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x))
            ),
        ),
    ],
)
def test_functions_without_parameters(kind: str, reference: Any) -> None:
    network, x, _ = network_of()
    layer = network.add_activation(x, getattr(trt.ActivationType, kind))
    network.mark_output(layer.get_output(0))
    value = np.linspace(-4, 4, 6, dtype=np.float32).reshape(2, 3)
    found = run(network, value)
    np.testing.assert_allclose(found, reference(value), rtol=1e-5, atol=1e-6)
