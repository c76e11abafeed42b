"""MaxPool with its second output, and MaxUnpool behind it, against ONNX Runtime."""

import numpy as np
import onnx
import onnxruntime
import pytest
import rabbet
from onnx import helper


def random_case(rng):
    """Attributes of a pool and an input that has equal elements."""
    spatial = int(rng.integers(1, 4))
    kernel = rng.integers(1, 4, spatial)
    dilations = rng.integers(1, 3, spatial) if rng.random() < 0.4 else np.ones(spatial, int)
    pads = [int(rng.integers(0, k)) for k in (*kernel, *kernel)]
    attributes = {
        "kernel_shape": kernel.tolist(), "strides": rng.integers(1, 4, spatial).tolist(),
        "dilations": dilations.tolist(), "pads": pads, "ceil_mode": int(rng.integers(2)),
        "storage_order": int(rng.integers(2)),
    }  # fmt: skip
    extents = rng.integers(5, 11, spatial)
    x = rng.integers(-4, 5, (2, 3, *extents))
    return attributes, x.astype(rng.choice(["float32", "int8"]))


def model_of(nodes, x, outputs):
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", kind, [None] * x.ndim)],
        [helper.make_tensor_value_info(name, onnx.TensorProto.INT64 if name == "at" else kind,
                                       None) for name in outputs])
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8).SerializeToString()


def both(model, x):
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    run = rabbet.compile(model, device="cpu", threads=1, optimization_level=0,
                         shapes={"x": (x.shape, x.shape, (4, *x.shape[1:]))})
    found = run(x)
    return found if isinstance(found, tuple) else [found], session.run(None, {"x": x})


@pytest.mark.parametrize("seed", range(30))
def test_positions_of_maxima(seed):
    attributes, x = random_case(np.random.default_rng(seed))
    node = helper.make_node("MaxPool", ["x"], ["y", "at"], **attributes)
    found, expected = both(model_of([node], x, ["y", "at"]), x)
    for one, correct in zip(found, expected, strict=True):
        assert one.dtype == correct.dtype
        np.testing.assert_array_equal(one, correct)


def test_a_pool_is_undone():
    x = np.random.default_rng(1).standard_normal((2, 3, 8, 6), np.float32)
    shape = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [helper.make_node("MaxPool", ["x"], ["y", "at"], **shape),
             helper.make_node("MaxUnpool", ["y", "at"], ["z"], **shape)]
    found, expected = both(model_of(nodes, x, ["z"]), x)
    np.testing.assert_array_equal(found[0], expected[0])


@pytest.mark.parametrize("operator", ["AveragePool", "LpPool"])
@pytest.mark.parametrize("seed", range(12))
def test_means_and_norms_at_borders(seed, operator):
    """Without dilations, which ONNX Runtime counts differently where padding is excluded."""
    rng = np.random.default_rng(seed)
    attributes, x = random_case(rng)
    for name in ("storage_order", "dilations"):
        del attributes[name]
    attributes["p" if operator == "LpPool" else "count_include_pad"] = int(rng.integers(2)) + (
        operator == "LpPool")
    node = helper.make_node(operator, ["x"], ["y"], **attributes)
    x = x.astype(np.float32)
    found, expected = both(model_of([node], x, ["y"]), x)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5, atol=1e-5)
