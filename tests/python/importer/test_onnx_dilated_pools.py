"""Pools with dilations, which the importer composes of slices: against torch and ONNX
Runtime."""

import itertools

import numpy as np
import onnxruntime
import pytest
import rabbet
from onnx import parser

torch = pytest.importorskip("torch")

X = np.random.default_rng(4).normal(size=(2, 3, 17, 14)).astype(np.float32)
PADDINGS = ["pads=[0,0,0,0]", "pads=[1,1,2,0]", "pads=[2,1,2,1], ceil_mode=1",
            'auto_pad="VALID"']
SIZES = ["float[2,3,17,14]", "float[n,3,h,w]"]
SHAPES = {"x": [(1, 3, 9, 9), X.shape, (4, 3, 40, 40)]}


def model_of(node, size):
    return parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 19]> '
        f"agraph ({size} x) => ({size.partition('[')[0]}[a,b,c,d] y) {{ y = {node}(x) }}"
    ).SerializeToString()


def check(node, size, x, same=None):
    """Of ONNX Runtime, which may be given another node; returns what is found."""
    run = rabbet.compile(model_of(node, size), shapes=SHAPES if "[n" in size else None,
                         device="cpu", threads=1, optimization_level=0)
    session = onnxruntime.InferenceSession(
        model_of(same or node, size), providers=["CPUExecutionProvider"])
    found, expected = run(x), session.run(None, {"x": x})[0]
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    return found


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("padding", PADDINGS)
def test_most(padding, size):
    for steps, gaps in itertools.product(["1,1", "2,3"], ["2,2", "1,3"]):
        check(f"MaxPool<kernel_shape=[3,2], strides=[{steps}], dilations=[{gaps}], "
              f"{padding}>", size, X)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("padding", PADDINGS[:2] + PADDINGS[3:])
@pytest.mark.parametrize("counts", [0, 1])
def test_mean(counts, padding, size):
    check(f"AveragePool<kernel_shape=[3,2], strides=[2,1], dilations=[2,3], {padding}, "
          f"count_include_pad={counts}>", size, X)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
def test_same(mode, op, size):
    """As many outputs as fit, ceil(extent / step). ONNX Runtime has fewer of them where
    there are dilations, so that it is given the padding in numbers."""
    steps, gaps = (2, 1), (2, 2)
    before, after = [], []
    for extent, step, gap in zip(X.shape[2:], steps, gaps, strict=True):
        total = max(0, (-(-extent // step) - 1) * step + 2 * gap + 1 - extent)
        low, high = total // 2, total - total // 2
        before.append(low if mode == "SAME_UPPER" else high)
        after.append(high if mode == "SAME_UPPER" else low)
    window = f"{op}<kernel_shape=[3,3], strides=[2,1], dilations=[2,2]"
    check(f'{window}, auto_pad="{mode}">', size, X, f"{window}, pads={before + after}>")


@pytest.mark.parametrize("p", [1, 2])
def test_norm(p):
    x = torch.from_numpy(X)
    found = check(f"LpPool<kernel_shape=[2,2], dilations=[3,2], p={p}>", SIZES[0], X)
    parts = [x[:, :, 3 * i:14 + 3 * i, 2 * j:12 + 2 * j] for i in (0, 1) for j in (0, 1)]
    expected = torch.stack(parts).norm(p=p, dim=0)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5)


def test_whole_numbers():
    x = (40 * X).astype(np.int8)
    check("MaxPool<kernel_shape=[3,3], dilations=[2,2], pads=[1,1,1,1]>",
          "int8[2,3,17,14]", x)


def test_half_precision_does_not_overflow():
    x = torch.full((1, 1, 9, 9), 3e4, dtype=torch.float16)
    text = ('<ir_version: 9, opset_import: ["" : 19]> agraph (float16[1,1,9,9] x) => '
            "(float16[a,b,c,d] y) { y = AveragePool<kernel_shape=[3,1], dilations=[2,1]>(x) }")
    run = rabbet.compile(parser.parse_model(text).SerializeToString(), device="cpu",
                         threads=1, optimization_level=0)
    np.testing.assert_allclose(run(x.numpy()), 3e4, rtol=1e-3)
