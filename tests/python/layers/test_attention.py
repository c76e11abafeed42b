"""add_attention, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import rabbet as trt

from tests.python.support.plugins import build, random

SHAPES = [(2, 3, 4, 8), (2, 3, 5, 8), (2, 3, 5, 6)]
VALUES = [random(*shape, seed=i) for i, shape in enumerate(SHAPES)]


def expected(mask: Any = None, causal: bool = False, softmax: bool = True) -> Any:
    q, k, v = (x.astype(np.float64) for x in VALUES)
    scores = q @ k.swapaxes(-1, -2)
    if mask is not None:
        scores = np.where(mask, scores, -1e9) if mask.dtype == bool else scores + mask
    if causal:
        scores = np.where(np.tri(4, 5, dtype=bool), scores, -1e9)
    if softmax:
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
    return scores @ v


def run(
    change: Any, *more: Any, norm: Any = trt.AttentionNormalizationOp.SOFTMAX
) -> Any:
    def make(network: trt.INetworkDefinition) -> Any:
        values = [*VALUES, *more]
        inputs = [
            network.add_input(f"x{i}", trt._arrays.dtype_of(v.dtype), v.shape)
            for i, v in enumerate(values)
        ]
        attention = network.add_attention(*inputs[:3], norm, False)
        change(attention, *inputs[3:])
        return attention.get_output(0)

    return build(make)(*VALUES, *more)


def test_plain() -> None:
    def change(attention: Any) -> None:
        attention.name = "attention"
        attention.metadata = "about it"
        assert (attention.name, attention.metadata) == ("attention", "about it")
        assert attention.norm_op is trt.AttentionNormalizationOp.SOFTMAX
        assert (attention.num_inputs, attention.num_outputs) == (3, 1)
        assert [attention.get_input(i).name for i in range(3)] == ["x0", "x1", "x2"]
        assert attention.get_input(3) is None
        assert attention.get_output(1) is None
        assert attention.mask is None
        assert attention.decomposable is True
        assert attention.set_input(2, attention.get_input(2))
        with pytest.raises(IndexError, match="not 5"):
            attention.set_input(5, attention.get_input(0))
        with pytest.raises(trt.UnsupportedError, match="give another to add_attention"):
            attention.norm_op = trt.AttentionNormalizationOp.NONE

    np.testing.assert_allclose(run(change), expected(), rtol=1e-4, atol=1e-5)


def test_without_normalization() -> None:
    got = run(lambda attention: None, norm=trt.AttentionNormalizationOp.NONE)
    np.testing.assert_allclose(got, expected(softmax=False), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_masks(kind: str) -> None:
    mask = random(1, 1, 4, 5, seed=7)
    mask = mask > -0.5 if kind == "bool" else mask

    def change(attention: Any, tensor: Any) -> None:
        attention.set_input(3, tensor)
        assert attention.mask == tensor
        assert attention.num_inputs == 4

    np.testing.assert_allclose(run(change, mask), expected(mask), rtol=1e-4, atol=1e-5)


def test_causal() -> None:
    def change(attention: Any) -> None:
        attention.causal = True
        assert attention.causal

    np.testing.assert_allclose(run(change), expected(causal=True), rtol=1e-4, atol=1e-5)


def causal_attention(q: Any, k: Any, v: Any, offset: int) -> Any:
    scores = q.astype(np.float64) @ k.astype(np.float64).swapaxes(-1, -2)
    seen = np.tri(*scores.shape[-2:], offset, dtype=bool)
    powers = np.where(seen, np.exp(scores - scores.max(-1, keepdims=True)), 0)
    return powers / powers.sum(-1, keepdims=True) @ v


# Lengths that a run tells, and lengths that are known.
@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("kind", ["UPPER_LEFT", "LOWER_RIGHT"])
def test_causal_kinds(kind: str, dynamic: bool) -> None:
    """LOWER_RIGHT is how a few new queries look back at all keys so far."""
    dims = [(2, 3, -1, 8)] * 3 if dynamic else SHAPES

    def make(network: trt.INetworkDefinition) -> Any:
        inputs = [
            network.add_input(f"x{i}", trt.float32, shape)
            for i, shape in enumerate(dims)
        ]
        attention = network.add_attention_v2(
            *inputs, trt.AttentionNormalizationOp.SOFTMAX, trt.CausalMaskKind[kind]
        )
        assert attention.causal
        assert attention.causal_kind is trt.CausalMaskKind[kind]
        return attention.get_output(0)

    shapes = {
        f"x{i}": ((2, 3, 1, 8), (2, 3, 4, 8), (2, 3, 9, 8)) for i in range(3 * dynamic)
    }
    model = build(make, shapes=shapes) if dynamic else build(make)
    for rows, columns in [(4, 5), (1, 9), (3, 3)] if dynamic else [(4, 5)]:
        q, k = random(2, 3, rows, 8, seed=1), random(2, 3, columns, 8, seed=2)
        v = random(2, 3, columns, 8 if dynamic else 6, seed=3)
        offset = columns - rows if kind == "LOWER_RIGHT" else 0
        wanted = causal_attention(q, k, v, offset)
        np.testing.assert_allclose(model(q, k, v), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["INT8", "FP8"])
def test_quantized_normalization(kind: str) -> None:
    torch = pytest.importorskip("torch")
    scale = np.float32(1 / 100)
    q, k, v = (torch.from_numpy(x) for x in VALUES)
    weights = (q @ k.mT).softmax(-1) / scale
    weights = (
        weights.round().clamp(-128, 127)
        if kind == "INT8"
        else weights.to(torch.float8_e4m3fn).float()
    )

    def change(attention: Any) -> None:
        assert attention.normalization_quantize_scale is None
        assert attention.normalization_quantize_to_type is trt.DataType.FP8
        network = attention.get_output(0).producer._network()
        tensor = network.add_constant((), np.array(scale)).get_output(0)
        attention.normalization_quantize_to_type = trt.DataType.FP8
        attention.set_input(4, tensor)
        attention.normalization_quantize_to_type = trt.DataType[kind]
        assert attention.normalization_quantize_to_type is trt.DataType[kind]
        assert attention.normalization_quantize_scale == tensor
        assert attention.get_input(4) == tensor
        assert (attention.num_inputs, attention.get_input(3)) == (5, None)
        with pytest.raises(ValueError, match=r"to FP8 or INT8, not .*HALF"):
            attention.normalization_quantize_to_type = trt.DataType.HALF

    wanted = (weights * scale @ v).numpy()
    # A weight that lies between two numbers may go to either.
    step = scale * (0.5 if kind == "INT8" else 4)
    np.testing.assert_allclose(run(change), wanted, atol=2.0 * step)
    exact = np.abs(run(change) - wanted) < 1e-4
    assert exact.mean() > 0.9

    def undo(attention: Any) -> None:
        change(attention)
        attention.normalization_quantize_scale = None
        assert attention.num_inputs == 3

    np.testing.assert_allclose(run(undo), expected(), rtol=1e-4, atol=1e-5)


def test_layers_at_the_boundary() -> None:
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (1, 2, 3, 4))
    softmax = trt.AttentionNormalizationOp.SOFTMAX
    attention = network.add_attention(x, x, x, softmax, False)
    last = attention.get_output(0).producer
    assert type(last) is trt.IAttentionOutputLayer
    assert last.type is trt.LayerType.ATTENTION_OUTPUT
    assert last.attention is attention
    first = [i for i in network if isinstance(i, trt.IAttentionInputLayer)]
    assert len(first) == 3
    assert {i.type for i in first} == {trt.LayerType.ATTENTION_INPUT}
    assert all(i.attention is attention and i.get_input(0) == x for i in first)
    assert isinstance(first[0], trt.IAttentionBoundaryLayer)
    y = network.add_input("y", trt.float32, (1, 2, 3, 4))
    attention.set_input(1, y)
    assert [i.get_input(0).name for i in first] == ["x", "y", "x"]
