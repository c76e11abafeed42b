"""Resize with `antialias` where extents vary, against ONNX Runtime. With fixed sizes it
is in test_onnx_nodes.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
import rabbet

from tests.python.support import onnx_text

SHAPES = [(1, 2, 11, 9), (2, 2, 5, 4), (1, 2, 17, 30)]
TORCH = "exclude_outside = 1, cubic_coeff_a = -0.5"
SCALES = "scales = Constant<value_floats = [1.0, 1.0, 0.4, 1.5]>()"
SIZES = "head = Shape<end = 2>(x) sizes = Concat<axis = 0>(head, tail)"
TAIL = "tail = Constant<value_ints = [7, 5]>()"
HALF = """
    all = Shape<start = 2>(x) two = Constant<value_int = 2>() tail = Div(all, two)
"""
# name: attributes, what leads to the operands, and whether these are scales
CASES = {
    "torch linear": (f'mode = "linear", {TORCH}', TAIL + SIZES, False),
    "torch cubic": (f'mode = "cubic", {TORCH}', TAIL + SIZES, False),
    "half cubic": (f'mode = "cubic", {TORCH}', HALF + SIZES, False),
    "half linear": ('mode = "linear"', HALF + SIZES, False),
    "cubic with edges": ('mode = "cubic"', TAIL + SIZES, False),
    "scales": ('mode = "linear"', SCALES, True),
    "scales, cubic": (f'mode = "cubic", {TORCH}', SCALES, True),
    "corners": (
        f'mode = "linear", coordinate_transformation_mode = "align_corners", {TORCH}',
        TAIL + SIZES,
        False,
    ),
}


def model_of(name: str, kind: str = "float") -> bytes:
    attributes, nodes, scaled = CASES[name]
    operands = "x, , scales" if scaled else "x, , , sizes"
    return onnx_text.model_of(
        f"{kind}[b,2,h,w] x",
        f"{kind}[b,2,i,j] y",
        f"{nodes} y = Resize<antialias = 1, {attributes}>({operands})",
        opset=20,
        ir=10,
    ).SerializeToString()


def session(data: bytes) -> Any:
    return onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("name", CASES)
def test_sizes_that_vary(name: str) -> None:
    data = model_of(name)
    least, most = tuple(map(min, *SHAPES)), tuple(map(max, *SHAPES))
    ours = rabbet.compile(data, shapes={"x": (least, SHAPES[0], most)})
    rng = np.random.default_rng(0)
    for shape in SHAPES:
        x = rng.standard_normal(shape, np.float32)
        (expected,) = session(data).run(None, {"x": x})
        np.testing.assert_allclose(ours(x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["torch cubic", "half linear"])
def test_bytes_are_rounded_and_kept_in_range(name: str) -> None:
    x = np.random.default_rng(0).integers(0, 2, SHAPES[0], np.uint8) * np.uint8(255)
    (exact,) = session(model_of(name)).run(None, {"x": x.astype(np.float32)})
    ours = rabbet.compile(model_of(name, "uint8"), shapes={"x": (x.shape,) * 3})
    found = np.asarray(ours(x)).astype(np.int64)
    assert np.abs(found - np.clip(exact, 0, 255)).max() <= 0.51


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ('mode = "nearest"', "antialias with mode 'nearest'; expected linear or cubic"),
        (
            'mode = "linear", coordinate_transformation_mode = "tf_crop_and_resize"',
            "antialias with coordinate_transformation_mode 'tf_crop_and_resize'",
        ),
    ],
)
def test_mistakes_are_named(
    attributes: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CASES, "mistake", (attributes, TAIL + SIZES, False))
    with pytest.raises(rabbet.Error, match=message):
        rabbet.compile(model_of("mistake"))
