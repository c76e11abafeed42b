"""Layers that are several here, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import rabbet as trt

from tests.python.support.plugins import build, constant, random


def run(make: Any, *values: Any, **options: Any) -> Any:
    """Output 0 of the layer that `make(network, *tensors)` returns."""

    def network_of(network: trt.INetworkDefinition) -> Any:
        tensors = [
            network.add_input(f"x{i}", trt._arrays.dtype_of(v.dtype), v.shape)
            for i, v in enumerate(values)
        ]
        layer = make(network, *tensors)
        assert layer.num_outputs == 1
        assert layer.get_input(0).name == "x0"
        assert layer.get_input(9) is None
        layer.set_input(0, layer.get_input(0))
        with pytest.raises(IndexError, match="is no input 9"):
            layer.set_input(9, layer.get_input(0))
        return layer.get_output(0)

    return build(network_of, **options)(*values)


@pytest.mark.parametrize("mode", list(trt.ScaleMode))
def test_scale(mode: trt.ScaleMode) -> None:
    x = np.abs(random(2, 3, 4)) + 0.1
    shape = {"UNIFORM": (1, 1, 1), "CHANNEL": (1, 3, 1), "ELEMENTWISE": (1, 3, 4)}[
        mode.name
    ]
    scale, shift, power = (np.abs(random(*shape, seed=i)) + 0.1 for i in (1, 2, 3))

    def make(network: Any, tensor: Any) -> Any:
        layer = network.add_scale(tensor, mode, shift, scale, None)
        assert layer.type is trt.LayerType.SCALE
        assert layer.mode is mode
        assert layer.channel_axis == 1
        assert np.array_equal(layer.scale, scale.reshape(-1))
        assert np.array_equal(layer.power, np.ones(scale.size, np.float32))
        layer.power = power
        layer.shift = 2 * shift
        layer.mode = mode
        with pytest.raises(trt.UnsupportedError, match=r"channel_axis of layer .* is 1"):
            layer.channel_axis = 2
        return layer

    want = (x * scale + 2 * shift) ** power
    np.testing.assert_allclose(run(make, x), want, rtol=1e-4, atol=1e-5)
    network = trt.Builder().create_network()
    tensor = network.add_input("x", trt.float32, (2, 3, 4))
    with pytest.raises(ValueError, match="5 weights for scale"):
        network.add_scale(tensor, mode, scale=random(5))
    with pytest.raises(ValueError, match="channel_axis 3"):
        network.add_scale_nd(tensor, mode, channel_axis=3)


def test_scale_in_half_precision() -> None:
    x = np.abs(random(2, 3, 4)).astype(np.float16)

    def make(network: Any, tensor: Any) -> Any:
        return network.add_scale_nd(
            tensor, trt.ScaleMode.CHANNEL, scale=np.float32([1, 2, 3]), channel_axis=1
        )

    got = run(make, x)
    assert got.dtype == np.float16
    np.testing.assert_allclose(got, x * np.float16([[1], [2], [3]]), rtol=1e-2)


def test_padding() -> None:
    x = random(2, 3, 4, 5)

    def make(network: Any, tensor: Any) -> Any:
        layer = network.add_padding_nd(tensor, (1, 0), (0, 2))
        assert layer.type is trt.LayerType.PADDING
        assert layer.pre_padding_nd == (1, 0)
        layer.pre_padding_nd = (1, -2)
        layer.post_padding_nd = (3, 2)
        assert layer.post_padding_nd == (3, 2)
        assert layer.get_output(0).shape == (2, 3, 8, 5)
        with pytest.raises(ValueError, match="for a tensor of 4 dimensions"):
            layer.post_padding_nd = (1, 2, 3)
        return layer

    want = np.pad(x[..., 2:], ((0, 0), (0, 0), (1, 3), (0, 2)))
    assert np.array_equal(run(make, x), want)


def test_squeeze_and_unsqueeze() -> None:
    x = random(2, 1, 3, 1)

    def squeeze(network: Any, tensor: Any) -> Any:
        layer = network.add_squeeze(tensor, constant(network, [1, -1]))
        assert layer.type is trt.LayerType.SQUEEZE
        assert layer.get_output(0).shape == (2, 3)
        axes = constant(network, [3])
        layer.set_input(1, axes)
        assert layer.get_input(1) == axes
        assert layer.get_output(0).shape == (2, 1, 3)
        return layer

    assert np.array_equal(run(squeeze, x), x[..., 0])

    def unsqueeze(network: Any, tensor: Any) -> Any:
        layer = network.add_unsqueeze(tensor, constant(network, [0, -1]))
        assert layer.type is trt.LayerType.UNSQUEEZE
        return layer

    assert np.array_equal(run(unsqueeze, x), x[None, ..., None])
    network = trt.Builder().create_network()
    tensor = network.add_input("x", trt.float32, (2, 1))
    with pytest.raises(ValueError, match=r"axes \[2\] of 2 dimensions"):
        network.add_squeeze(tensor, constant(network, [2]))
    with pytest.raises(trt.UnsupportedError, match="axes must be a constant"):
        network.add_squeeze(tensor, tensor)


def test_dynamic_shapes() -> None:
    """Padding and squeezing where dimensions are not known yet."""
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (-1, 1, -1, 4))
    y = network.add_squeeze(x, constant(network, [1])).get_output(0)
    assert y.shape == (-1, -1, 4)
    y = network.add_padding_nd(y, (1, 1), (0, 0)).get_output(0)
    y.name = "y"
    network.mark_output(y)
    shapes = {"x": [(1, 1, 1, 4), (2, 1, 3, 4), (4, 1, 6, 4)]}
    model = trt.compile(network, device="cpu", shapes=shapes)
    for rows in (1, 5):
        value = random(2, 1, rows, 4)
        want = np.pad(value[:, 0], ((0, 0), (1, 0), (1, 0)))
        assert np.array_equal(model(value), want)


def test_parametric_relu() -> None:
    x, slopes = random(2, 3, 4), random(1, 3, 1, seed=1)

    def make(network: Any, tensor: Any) -> Any:
        layer = network.add_parametric_relu(tensor, constant(network, slopes))
        assert layer.type is trt.LayerType.PARAMETRIC_RELU
        assert layer.num_inputs == 2
        return layer

    np.testing.assert_allclose(run(make, x), np.where(x < 0, x * slopes, x), rtol=1e-6)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_one_hot(axis: int) -> None:
    indices = np.array([[0, 2, 4], [3, 1, 9]], np.int32)

    def make(network: Any, tensor: Any) -> Any:
        values = constant(network, np.float32([-1, 5]))
        depth = constant(network, np.array(5, np.int32))
        layer = network.add_one_hot(tensor, values, depth, axis)
        assert layer.type is trt.LayerType.ONE_HOT
        assert layer.axis == axis
        return layer

    hot = np.where(indices[..., None] == np.arange(5), np.float32(5), np.float32(-1))
    assert np.array_equal(run(make, indices), np.moveaxis(hot, -1, axis))


def test_lrn() -> None:
    x = random(2, 7, 3, 4)

    def make(network: Any, tensor: Any) -> Any:
        layer = network.add_lrn(tensor, 5, 0.1, 0.75, 1.0)
        assert layer.type is trt.LayerType.LRN
        assert layer.window_size == 5
        assert (layer.alpha, layer.beta, layer.k) == pytest.approx((0.1, 0.75, 1.0))
        layer.alpha, layer.beta, layer.k = 0.5, 0.5, 2.0
        return layer

    torch = pytest.importorskip("torch")
    want = torch.nn.functional.local_response_norm(
        torch.from_numpy(x), 5, 0.5, 0.5, 2.0
    )
    np.testing.assert_allclose(run(make, x), want.numpy(), rtol=1e-4, atol=1e-5)
    network = trt.Builder().create_network()
    tensor = network.add_input("x", trt.float32, (2, 3, 4, 5))
    with pytest.raises(ValueError, match="expected an odd window"):
        network.add_lrn(tensor, 4, 0.1, 0.75, 1.0)


def test_ragged_softmax() -> None:
    x = random(3, 6)
    bounds = np.array([[2], [6], [1]], np.int32)

    def make(network: Any, tensor: Any, limits: Any) -> Any:
        layer = network.add_ragged_softmax(tensor, limits)
        assert layer.type is trt.LayerType.RAGGED_SOFTMAX
        assert layer.get_input(1).name == "x1"
        return layer

    inside = np.arange(6) < bounds
    powers = np.exp(x) * inside
    want = powers / powers.sum(-1, keepdims=True)
    np.testing.assert_allclose(run(make, x, bounds), want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)]),
        ("ij,jk", [(2, 3), (3, 4)]),
        ("bij,bkj->bik", [(2, 3, 4), (2, 5, 4)]),
        ("i,j->ij", [(3,), (4,)]),
        ("ij,j->j", [(3, 4), (4,)]),
        ("ijk->kji", [(2, 3, 4)]),
        ("ijk->j", [(2, 3, 4)]),
        ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
        ("ij,jk,kl->li", [(2, 3), (3, 4), (4, 5)]),
        ("ij,ij->", [(2, 3), (2, 3)]),
    ],
)
def test_einsum(equation: str, shapes: list[tuple[int, ...]]) -> None:
    values = [random(*shape, seed=i) for i, shape in enumerate(shapes)]

    def make(network: Any, *tensors: Any) -> Any:
        layer = network.add_einsum(tensors, equation)
        assert layer.type is trt.LayerType.EINSUM
        assert layer.equation == equation
        return layer

    want = np.einsum(equation, *(v.astype(np.float64) for v in values))
    np.testing.assert_allclose(run(make, *values), want, rtol=1e-4, atol=1e-5)


def test_einsum_mistakes() -> None:
    network = trt.Builder().create_network()
    a = network.add_input("a", trt.float32, (2, 3))
    for equation in ("ij,jk->ik", "ii->i", "ij->k", "i1->i", "ij->ii"):
        with pytest.raises(ValueError, match="equation"):
            network.add_einsum([a], equation)
    with pytest.raises(ValueError, match="a letter for each axis"):
        network.add_einsum([a], "ijk->i")
    with pytest.raises(ValueError, match=r"'j' is of \[2, 3\]"):
        network.add_einsum([a, a], "ij,jk->ik")


def rotated(
    x: np.ndarray, cos: np.ndarray, sin: np.ndarray, interleaved: bool, turned: int
) -> np.ndarray:
    """`cos` and `sin` are [batch, sequence, turned / 2]."""
    half = turned // 2
    pairs = [slice(0, turned, 2), slice(1, turned, 2)]
    first, second = pairs if interleaved else [slice(half), slice(half, turned)]
    out, (c, s) = x.copy(), (cos[:, None], sin[:, None])
    out[..., first] = x[..., first] * c - x[..., second] * s
    out[..., second] = x[..., first] * s + x[..., second] * c
    return out


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dim", [0, 4])
def test_rotary_embedding(interleaved: bool, dim: int) -> None:
    x, turned = random(2, 3, 5, 8), dim or 8
    cos, sin = random(2, 5, turned // 2, seed=1), random(2, 5, turned // 2, seed=2)

    def make(network: Any, *tensors: Any) -> Any:
        layer = network.add_rotary_embedding(*tensors, not interleaved, dim)
        layer.interleaved = interleaved
        assert layer.interleaved is interleaved
        assert layer.rotary_embedding_dim == dim
        assert layer.type is trt.LayerType.ROTARY_EMBEDDING
        assert [layer.get_input(i).name for i in range(layer.num_inputs)] == [
            "x0",
            "x1",
            "x2",
        ]
        with pytest.raises(trt.UnsupportedError, match="rotary_embedding_dim"):
            layer.rotary_embedding_dim = 2
        return layer

    wanted = rotated(x, cos, sin, interleaved, turned)
    np.testing.assert_allclose(run(make, x, cos, sin), wanted, rtol=1e-5, atol=1e-6)


def test_rotary_embedding_of_positions() -> None:
    x, cos, sin = random(2, 3, 5, 8), random(9, 4, seed=1), random(9, 4, seed=2)
    at = np.array([[0, 1, 2, 3, 4], [8, 7, 3, 3, 0]], np.int64)

    def make(network: Any, x: Any, cos: Any, sin: Any, at: Any) -> Any:
        layer = network.add_rotary_embedding(x, cos, sin, False, 0)
        assert layer.num_inputs == 4
        assert layer.get_input(3) is None
        layer.set_input(3, at)
        assert layer.get_input(3).name == "x3"
        return layer

    wanted = rotated(x, cos[at], sin[at], False, 8)
    np.testing.assert_allclose(run(make, x, cos, sin, at), wanted, rtol=1e-5, atol=1e-6)

    def without(network: Any, x: Any, cos: Any, sin: Any) -> Any:
        return network.add_rotary_embedding(x, cos, sin, False, 0)

    with pytest.raises(trt.Error, match=r"input 3 of a rotary embedding.*has type FLOAT"):
        run(without, x, cos, sin)


def test_rotary_embedding_refuses() -> None:
    network = trt.INetworkDefinition()
    x = network.add_input("x", trt.float32, (2, 3, 5, 8))
    cache = network.add_input("c", trt.float32, (2, 5, 4))
    for dim in (3, 10):
        with pytest.raises(ValueError, match="an even part"):
            network.add_rotary_embedding(x, cache, cache, False, dim)
    with pytest.raises(ValueError, match="4 dimensions"):
        network.add_rotary_embedding(cache, cache, cache, False, 0)
    with pytest.raises(ValueError, match="caches are"):
        network.add_rotary_embedding(x, x, x, False, 0)


@pytest.mark.parametrize("condition", [False, True])
def test_conditional(condition: bool) -> None:
    x, limit = random(2, 3), np.float32(-100 if condition else 100)

    def network_of(network: Any) -> Any:
        a = network.add_input("a", trt.float32, (-1, 3))
        total = network.add_reduce(a, trt.ReduceOperation.SUM, 3, False).get_output(0)
        level = network.add_input("b", trt.float32, ())
        more = network.add_elementwise(total, level, trt.ElementWiseOperation.GREATER)
        choice = network.add_if_conditional()
        assert choice.name == "(Unnamed Conditional* 0)"
        choice.name = "sign"
        with pytest.raises(ValueError, match="no condition"):
            choice.add_output(a, a)
        with pytest.raises(ValueError, match="BOOL without dimensions"):
            choice.set_condition(a)
        first = choice.set_condition(more.get_output(0))
        assert first.type is trt.LayerType.CONDITION
        with pytest.raises(ValueError, match="already"):
            choice.set_condition(more.get_output(0))
        inner = choice.add_input(a)
        assert inner.type is trt.LayerType.CONDITIONAL_INPUT
        assert inner.get_input(0).name == "a"
        yes = network.add_unary(inner.get_output(0), trt.UnaryOperation.EXP)
        no = network.add_unary(inner.get_output(0), trt.UnaryOperation.NEG)
        last = choice.add_output(yes.get_output(0), no.get_output(0))
        assert last.type is trt.LayerType.CONDITIONAL_OUTPUT
        assert last.conditional == choice
        assert last.num_inputs == 2
        assert last.get_input(0).name == yes.get_output(0).name
        assert last.get_input(1).name == no.get_output(0).name
        return last.get_output(0)

    wanted = np.exp(x) if condition else -x
    result = build(network_of, shapes={"a": [(1, 3), (2, 3), (4, 3)]})(x, limit)
    np.testing.assert_allclose(result, wanted, rtol=1e-5)
