"""Operators on images and grids at random shapes, known and not, compared with the
reference of the onnx package."""

import functools

import numpy as np
import pytest
import rabbet
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

SEEDS = range(12)


def ints(rng, low, high, count):
    return [int(n) for n in rng.integers(low, high, count)]


def floats(rng, *shape):
    return rng.standard_normal(shape, np.float32)


def center_crop_pad(rng):
    rank = int(rng.integers(1, 5))
    shape = ints(rng, 1, 8, rank)
    axes = [int(a) for a in rng.permutation(rank)[:rng.integers(1, rank + 1)]]
    size = np.array(ints(rng, 0, 9, len(axes)))
    return "CenterCropPad", {"axes": axes}, [floats(rng, *shape), size], 1


def affine_grid(rng):
    axes = int(rng.integers(2, 4))
    size = np.array([*ints(rng, 1, 3, 2), *ints(rng, 2, 6, axes)])
    theta = floats(rng, size[0], axes, axes + 1)
    return "AffineGrid", {"align_corners": int(rng.integers(2))}, [theta, size], 1


def blocks(rng, axes):
    return {"strides": ints(rng, 1, 4, axes), "dilations": ints(rng, 1, 3, axes),
            "pads": ints(rng, 0, 2, 2 * axes)}


def col2im(rng):
    axes = int(rng.integers(1, 4))
    block, image = ints(rng, 1, 4, axes), ints(rng, 7, 10, axes)
    attrs = blocks(rng, axes)
    count = 1
    for i in range(axes):
        span = attrs["dilations"][i] * (block[i] - 1) + 1
        padded = image[i] + attrs["pads"][i] + attrs["pads"][i + axes]
        count *= (padded - span) // attrs["strides"][i] + 1
    x = floats(rng, *ints(rng, 1, 3, 1), 2 * int(np.prod(block)), count)
    return "Col2Im", attrs, [x, np.array(image), np.array(block)], 1


def max_unpool(rng):
    axes = int(rng.integers(1, 4))
    shape, kernel = ints(rng, 1, 4, axes + 2), ints(rng, 2, 4, axes)
    attrs = {"kernel_shape": kernel, "strides": kernel}
    whole = shape[:2] + [n * k for n, k in zip(shape[2:], kernel, strict=True)]
    x = floats(rng, *shape)
    at = rng.permutation(int(np.prod(whole)))[:x.size].reshape(shape)
    inputs = [x, at]
    if rng.integers(2):
        inputs.append(np.add(whole, [0, 0, *ints(rng, 0, 3, axes)]))
    return "MaxUnpool", attrs, inputs, 2


def deform_conv(rng):
    groups, offsets = ints(rng, 1, 3, 2)
    kernel, attrs = ints(rng, 1, 4, 2), blocks(rng, 2)
    size, batch = ints(rng, 6, 8, 2), int(rng.integers(1, 3))
    channels, filters = 2 * groups * offsets, 3 * groups
    out = [(size[i] + attrs["pads"][i] + attrs["pads"][i + 2]
            - attrs["dilations"][i] * (kernel[i] - 1) - 1) // attrs["strides"][i] + 1
           for i in range(2)]
    points = offsets * kernel[0] * kernel[1]
    inputs = [floats(rng, batch, channels, *size),
              floats(rng, filters, channels // groups, *kernel),
              floats(rng, batch, 2 * points, *out)]
    if rng.integers(2):
        inputs.append(floats(rng, filters))
    if len(inputs) == 4 and rng.integers(2):
        inputs.append(floats(rng, batch, points, *out))
    return "DeformConv", {**attrs, "group": groups, "offset_group": offsets}, inputs, 5


MAKERS = [center_crop_pad, affine_grid, col2im, max_unpool, deform_conv]
FREE = {"Col2Im": {0: {0}}, "DeformConv": {0: {0, 2, 3}, 2: {0, 2, 3}, 4: {0, 2, 3}}}


def dims_of(op, index, array, dynamic):
    """Symbols for the extents that need not be known."""
    free = FREE.get(op, {index: set(range(array.ndim))}).get(index, set())
    if op == "AffineGrid":
        free = {0}
    return [None if dynamic and i in free else n for i, n in enumerate(array.shape)]


def model_of(op, attrs, inputs, first_constant, dynamic=False):
    """The inputs from `first_constant` on are initializers."""
    names = [f"i{k}" for k in range(len(inputs))]
    given = [
        helper.make_tensor_value_info(
            n, helper.np_dtype_to_tensor_dtype(a.dtype), dims_of(op, k, a, dynamic))
        for k, (n, a) in enumerate(zip(names, inputs, strict=True)) if k < first_constant]
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], **attrs)], "g", given,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(a, n)
         for k, (n, a) in enumerate(zip(names, inputs, strict=True)) if k >= first_constant])
    return helper.make_model(graph, ir_version=10,
                             opset_imports=[helper.make_opsetid("", 22)])


@functools.cache
def case_of(maker, seed):
    """Operator, attributes, inputs, the first constant one, and the result: for the reference
    extents are known, whether they are in the model or not."""
    op, attrs, inputs, constant = maker(np.random.default_rng(seed))
    given = {f"i{k}": a for k, a in enumerate(inputs[:constant])}
    model = model_of(op, attrs, inputs, constant)
    return op, attrs, inputs, constant, ReferenceEvaluator(model).run(None, given)[0]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("maker", MAKERS)
def test_like_the_reference(maker, seed, dynamic):
    op, attrs, inputs, constant, expected = case_of(maker, seed)
    model = model_of(op, attrs, inputs, constant, dynamic)
    given = {f"i{k}": a for k, a in enumerate(inputs[:constant])}
    shapes = {}
    for k, (name, a) in enumerate(given.items()):
        free = dims_of(op, k, a, dynamic)
        bounds = [(n if f is not None else low, n, n if f is not None else n + 3)
                  for f, n, low in zip(free, a.shape, (1,) * a.ndim, strict=True)]
        if None in free:
            shapes[name] = tuple(tuple(b[i] for b in bounds) for i in range(3))
    run = rabbet.compile(model.SerializeToString(), device="cpu",
                         optimization_level=0, shapes=shapes or None)
    found = run(*given.values())
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4)


def test_sizes_that_a_run_tells():
    x = np.arange(30, dtype=np.float32).reshape(5, 6)
    model = model_of("CenterCropPad", {}, [x, np.array([3, 3])], 2)
    run = rabbet.compile(model.SerializeToString(), device="cpu", optimization_level=0,
                         values={"i1": ((0, 0), (4, 4), (9, 9))})
    for size in ([3, 8], [5, 6], [8, 1], [0, 4]):
        expected = ReferenceEvaluator(model).run(None, {"i0": x, "i1": np.array(size)})[0]
        np.testing.assert_array_equal(run(x, np.array(size)), expected)


ZEROS = np.zeros((1, 4, 4, 4), np.float32)
WRONG = [
    ("CenterCropPad", {"axes": [0, 1]}, [ZEROS, np.array([3])], 1,
     "has 1 elements; expected 2"),
    ("AffineGrid", {}, [ZEROS[0, :1, :2, :3], np.array([1, 1, 4, 4, 4])], 1,
     "theta has 2 x 3 numbers"),
    ("Col2Im", {"strides": [1]}, [ZEROS[0], np.array([4, 4]), np.array([2, 2])], 1,
     "'strides' has 1 numbers; expected 2"),
    ("Col2Im", {}, [ZEROS[0], np.array([4]), np.array([2, 2])], 1, "differ in length"),
    ("MaxUnpool", {"kernel_shape": [2]}, [ZEROS, np.zeros((1, 4, 4, 4), np.int64)], 2,
     "kernel_shape has 1 numbers; expected 2"),
    ("DeformConv", {"group": 3}, [ZEROS, ZEROS, ZEROS], 3,
     "do not go with group 3 and offset_group 1"),
]


@pytest.mark.parametrize(("op", "attrs", "inputs", "constant", "message"), WRONG)
def test_what_is_wrong(op, attrs, inputs, constant, message):
    model = model_of(op, attrs, inputs, constant)
    with pytest.raises(rabbet.Error, match=message):
        rabbet.compile(model.SerializeToString(), device="cpu")
