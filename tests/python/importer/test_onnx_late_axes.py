"""Axes that are inputs of a model: only their number is known at import. Against ONNX
Runtime, each model once for all axes."""

import numpy as np
import onnxruntime
import pytest
import rabbet
from onnx import parser

RNG = np.random.default_rng(9)
X = RNG.uniform(0.5, 2, (2, 3, 4, 5)).astype(np.float32)
ONES = RNG.normal(size=(2, 1, 3, 1)).astype(np.float32)
PAIRS = [(0, 1), (3, 1), (-1, -4), (2, -3)]
SINGLE = [(0,), (2,), (-1,)]
REDUCTIONS = ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1",
              "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"]
FIXED = "float[2,3,4,5] x"
FREE = "float[a,b,c,d] x"


def parse(text):
    return parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> {text}')


def compiled(text):
    free = {"x": [(1, 1, 1, 1), X.shape, (9, 9, 9, 9)]} if FREE in text else None
    return rabbet.compile(parse(text).SerializeToString(), shapes=free, device="cpu",
                          threads=1, optimization_level=0)


def both(text, *inputs):
    """Yields of one model, for each set of inputs, what it gives and what it should."""
    model = parse(text).SerializeToString()
    run = compiled(text)
    reference = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    names = [i.name for i in reference.get_inputs()]
    for arrays in inputs:
        arrays = [np.asarray(a) for a in arrays]
        expected = reference.run(None, dict(zip(names, arrays, strict=True)))[0]
        found = run(*arrays)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("x", [FIXED, FREE])
@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("op", REDUCTIONS)
def test_reductions(op, keep, x):
    rank = 4 if keep else 2
    y = ",".join("pqrs"[:rank])
    both(f"agraph ({x}, int64[2] axes) => (float[{y}] y) {{"
         f" y = {op}<keepdims={keep}>(x, axes) }}", *[(X, axes) for axes in PAIRS])


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMax"])
def test_one_axis_and_no_axes(op):
    both(f"agraph ({FREE}, int64[1] axes) => (float[p,q,r] y) {{"
         f" y = {op}<keepdims=0>(x, axes) }}", *[(X, axes) for axes in SINGLE])
    both(f"agraph ({FREE}, int64[0] axes) => (float y) {{ y = {op}<keepdims=0>(x, axes) }}",
         (X, np.zeros(0, np.int64)))


def test_reduction_of_integers():
    whole = RNG.integers(-9, 9, (2, 3, 4))
    both("agraph (int64[2,3,4] x, int64[1] axes) => (int64[p,q] y) {"
         " y = ReduceSum<keepdims=0>(x, axes) }", *[(whole, a) for a in SINGLE])


@pytest.mark.parametrize("x", ["float[2,1,3,1] x", FREE])
def test_squeeze(x):
    both(f"agraph ({x}, int64[1] axes) => (float[p,q,r] y) {{ y = Squeeze(x, axes) }}",
         (ONES, [1]), (ONES, [3]), (ONES, [-3]))
    both(f"agraph ({x}, int64[2] axes) => (float[p,q] y) {{ y = Squeeze(x, axes) }}",
         (ONES, [1, 3]), (ONES, [-1, 1]))


@pytest.mark.parametrize("x", ["float[2,1,3,1] x", FREE])
def test_unsqueeze(x):
    both(f"agraph ({x}, int64[2] axes) => (float[p,q,r,s,t,u] y) {{ y = Unsqueeze(x, axes) }}",
         *[(ONES, axes) for axes in [(0, 1), (5, 2), (-1, -2), (3, -6)]])
    both(f"agraph ({x}, int64[3] axes) => (float[p,q,r,s,t,u,v] y) {{ y = Unsqueeze(x, axes) }}",
         *[(ONES, axes) for axes in [(0, 1, 2), (5, 2, -1)]])
    both(f"agraph ({x}, int64[1] axes) => (float[p,q,r,s,t] y) {{ y = Unsqueeze(x, axes) }}",
         *[(ONES, axes) for axes in SINGLE])


@pytest.mark.parametrize("x", [FIXED, FREE])
def test_slice(x):
    far = np.iinfo(np.int64).max
    both(f"agraph ({x}, int64[2] s, int64[2] e, int64[2] axes, int64[2] t) =>"
         " (float[p,q,r,s_] y) { y = Slice(x, s, e, axes, t) }",
         (X, [0, 1], [1, 3], [0, 2], [1, 1]), (X, [-1, 0], [-9, far], [3, 1], [-1, 2]),
         (X, [1, 2], [far, 2], [-2, 0], [1, 1]))
    both(f"agraph ({x}, int64[1] s, int64[1] e, int64[1] axes) => (float[p,q,r,s_] y) {{"
         " y = Slice(x, s, e, axes) }", (X, [1], [3], [1]), (X, [-2], [far], [-1]))


@pytest.mark.parametrize("x", [FIXED, FREE])
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
def test_pad(x, mode):
    value = np.float32(0)
    both(f"agraph ({x}, int64[4] pads, float v, int64[2] axes) => (float[p,q,r,s] y) {{"
         f' y = Pad<mode="{mode}">(x, pads, v, axes) }}',
         (X, [0, 1, 1, 0], value, [0, 2]), (X, [1, 2, 0, 1], value, [-1, 1]))


@pytest.mark.parametrize("x", [FIXED, FREE])
def test_cumulative_sum(x):
    both(f"agraph ({x}, int64 axis) => (float[p,q,r,s] y) {{"
         " y = CumSum<reverse=1, exclusive=1>(x, axis) }",
         *[(X, np.int64(axis)) for axis in (0, 2, -1)])


def test_axes_that_follow_from_data():
    both(f"agraph ({FREE}, float[1] f) => (float[p,q,r] y) {{"
         " axes = Cast<to=7>(f)  y = ReduceSum<keepdims=0>(x, axes) }",
         (X, np.float32([1])), (X, np.float32([-2])))


@pytest.mark.parametrize("axis", [4, -5, 7])
@pytest.mark.parametrize(("node", "y"), [
    ("ReduceSum(x, axes)", "p,q,r,s"), ("Squeeze(x, axes)", "p,q,r"),
    ("ReduceMax<keepdims=0>(x, axes)", "p,q,r")])
def test_axis_out_of_range_fails_in_the_run(node, y, axis):
    run = compiled(f"agraph ({FREE}, int64[1] axes) => (float[{y}] y) {{ y = {node} }}")
    with pytest.raises(rabbet.Error, match="elements"):
        run(X, np.array([axis]))


def test_more_axes_than_there_are():
    with pytest.raises(rabbet.Error, match=r"3 axes \('axes'\) of a tensor of rank 2"):
        compiled("agraph (float[2,3] x, int64[3] axes) => (float[p,q] y) {"
                   " y = ReduceSum(x, axes) }")


def test_number_of_axes_that_is_not_known():
    with pytest.raises(rabbet.Error, match="a vector of a known length"):
        compiled("agraph (float[2,3] x, int64[n] axes) => (float[p,q] y) {"
                   " y = ReduceSum(x, axes) }")
