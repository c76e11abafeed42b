"""Quantized exports (quantized_decomposed) and modules with fake quantization."""

from __future__ import annotations

from typing import Any

import pytest
import rabbet as trt

torch = pytest.importorskip("torch")

from torch.ao.quantization.fx import _decomposed  # noqa: E402, F401

pytestmark = pytest.mark.filterwarnings("ignore")

Q = torch.ops.quantized_decomposed
OPTIONS: dict[str, Any] = {"device": "cpu", "optimization_level": 0}
INT8 = (-128, 127, torch.int8)
NARROW = (-127, 127, torch.int8)
HALF = (0, 127, torch.uint8)


class Layers(torch.nn.Module):
    """A convolution and a product as quantized exports write them."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.randint(-127, 128, (8, 4, 3, 3), dtype=torch.int8)
        self.scales, self.zeros = torch.rand(8) * 0.01 + 0.01, torch.zeros(8, dtype=torch.int64)
        self.matrix = torch.randint(-127, 128, (6, 8), dtype=torch.int8)

    def forward(self, x: Any) -> Any:
        """Integers on the way, of which one kind has a zero point and fewer values."""
        x = Q.dequantize_per_tensor(Q.quantize_per_tensor(x, 0.03, 5, *INT8), 0.03, 5, *INT8)
        weight = Q.dequantize_per_channel(self.weight, self.scales, self.zeros, 0, *NARROW)
        x = torch.relu(torch.conv2d(x, weight)).mean((2, 3))
        x = Q.dequantize_per_tensor(Q.quantize_per_tensor(x, 0.02, 3, *HALF), 0.02, 3, *HALF)
        return x @ Q.dequantize_per_tensor(self.matrix, 0.01, 0, *NARROW).t()


def _dynamic(x: Any) -> Any:
    """Scales of the data: of a tensor and of rows."""
    found = []
    for choose, low in ((Q.choose_qparams.tensor, 0), (Q.choose_qparams_symmetric.tensor, -128)):
        kind = (low, low + 255, torch.uint8 if low == 0 else torch.int8)
        scale, zero = choose(x, low, low + 255, 1e-8, kind[2])
        whole = Q.quantize_per_tensor.tensor(x, scale, zero, *kind)
        found += [scale, zero, Q.dequantize_per_tensor.tensor(whole, scale, zero, *kind)]
    scale, zero = Q._choose_qparams_per_token_asymmetric_impl(x, torch.int8)
    whole = Q.quantize_per_token(x, scale, zero, *INT8)
    return [*found, scale, Q.dequantize_per_token(whole, scale, zero, *INT8, torch.float32)]


def _groups(x: Any) -> Any:
    scale, zero = torch.full((5, 2), 0.1), torch.ones(5, 2, dtype=torch.int32)
    given = (-8, 7, torch.int8, 4)
    whole = Q.quantize_per_channel_group(x, scale, zero, *given)
    wide = Q.quantize_per_tensor(x, 0.001, 0, -32768, 32767, torch.int16)
    channels = Q.quantize_per_channel(x, scale[:, 0], zero[:, 0], 0, *INT8)
    return (
        whole, Q.dequantize_per_channel_group(whole, scale, zero, *given, torch.float32),
        Q.dequantize_per_tensor(wide, 0.001, 0, -32768, 32767, torch.int16), channels,
    )  # fmt: skip


def _fake(x: Any) -> Any:
    scale, zero = torch.linspace(0.05, 0.15, 5), torch.zeros(5, dtype=torch.int32)
    return [
        torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 255),
        torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -127, 127),
        torch.fake_quantize_per_tensor_affine(x, 0.001, 7, 0, 1023),
        torch.fake_quantize_per_channel_affine(x, scale, zero, 0, -8, 7),
        torch.fake_quantize_per_tensor_affine(
            x, torch.tensor(0.1), torch.tensor(2, dtype=torch.int32), 0, 255
        ),
    ]


def _beyond(x: Any) -> Any:
    """Zero points that the integers' type does not hold, or that are no integers."""
    bytes_ = Q.quantize_per_tensor(x, 0.1, -5, 0, 255, torch.uint8)
    signed = Q.quantize_per_tensor(x, 0.05, 0, *INT8)
    scale = torch.linspace(0.05, 0.15, 5)
    return (
        bytes_, Q.dequantize_per_tensor(bytes_, 0.1, 300, 0, 255, torch.uint8),
        Q.dequantize_per_channel(signed, scale, torch.arange(126, 131), 0, *INT8),
        Q.quantize_per_channel(x, scale, torch.arange(-3, 2), 0, 0, 255, torch.uint8),
        Q.dequantize_per_channel(signed, scale, torch.arange(5) / 4, 0, *INT8),
    )  # fmt: skip


class Function(torch.nn.Module):
    """A module of a function."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        """Its result."""
        return self.function(x)


def _assert_close(found: Any, expected: Any, scale: float = 0.0) -> None:
    """torch multiplies by the inverse of a scale and ONNX divides: a number between two
    integers may be rounded to either."""
    if isinstance(expected, torch.Tensor):
        found, expected = [found], [expected]
    for a, b in zip(found, expected, strict=True):
        assert a.dtype is b.dtype
        torch.testing.assert_close(a.float(), b.float(), rtol=1e-4, atol=max(scale, 1e-5))


def test_layers_of_an_export() -> None:
    torch.manual_seed(1)
    module, x = Layers().eval(), torch.randn(2, 4, 8, 8)
    _assert_close(trt.compile(module, (x,), **OPTIONS)(x), module(x), 2e-3)


@pytest.mark.parametrize("function", [_dynamic, _groups, _fake, _beyond])
def test_integers(function: Any) -> None:
    torch.manual_seed(1)
    module = Function(function)
    x = torch.randn(5, 8)
    _assert_close(trt.compile(module, (x,), **OPTIONS)(x), module(x))


def test_ranges_that_are_refused() -> None:
    """Most of them torch finds in each call alone."""
    fake, scale = torch.fake_quantize_per_channel_affine, torch.full((5,), 0.1)
    zero = torch.full((5,), 300, dtype=torch.int32)
    refused = {
        "outside of the range -128 to 127": lambda x: fake(x, scale, zero, 0, -128, 127),
        "that are no integers": lambda x: fake(x, scale, zero / 7, 0, -128, 127),
        "torch.int8 of the range -200 to 127": lambda x: Q.quantize_per_tensor(
            x, 0.1, 0, -200, 127, torch.int8
        ),
        "quantization to torch.float8_e4m3fn": lambda x: Q.quantize_per_tensor(
            x, 0.1, 0, -448, 448, torch.float8_e4m3fn
        ),
    }
    for message, function in refused.items():
        with pytest.raises(trt.UnsupportedError, match=message):
            trt.compile(Function(function), (torch.randn(5, 8),), **OPTIONS)
