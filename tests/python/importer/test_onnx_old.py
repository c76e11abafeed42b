"""Operator sets before 7: attributes that are inputs today, operands that broadcast along
an axis that an attribute names.

The onnx package keeps models that torch wrote at opset 6, with the numbers that torch
got; the rest is compared with NumPy.
"""

import pathlib

import numpy as np
import onnx
import pytest
import rabbet
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test import data

from tests.python.support import onnx_cases
from tests.python.support import onnx_evaluate as reference

FOLDERS = ("pytorch-converted", "pytorch-operator")
KNOWN = reference.operators()


def models_of_torch():
    """But for those of DOUBLE, whose numbers are what memory held."""
    for folder in FOLDERS:
        for path in pathlib.Path(data.__path__[0], folder).glob("*/model.onnx"):
            if "DOUBLE" not in reference.element_types(onnx.load(path)):
                yield path.parent.name, path


KEPT = dict(models_of_torch())


def read(path):
    tensor = onnx.TensorProto()
    tensor.ParseFromString(path.read_bytes())
    return numpy_helper.to_array(tensor)


@pytest.mark.parametrize("name", sorted(KEPT))
def test_models_of_torch(name):
    model = onnx.load(KEPT[name])
    unknown = {node.op_type for node in model.graph.node} - set(KNOWN)
    assert not unknown
    folder = KEPT[name].parent / "test_data_set_0"
    inputs = [read(path) for path in sorted(folder.glob("input_*.pb"))]
    expected = [read(path) for path in sorted(folder.glob("output_*.pb"))]
    found = onnx_cases.compiled(model, inputs)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def rng():
    return np.random.default_rng(5)


X = rng().normal(size=(2, 3, 4, 5)).astype(np.float32)
C = rng().uniform(0.5, 2, 3).astype(np.float32)
CH = rng().uniform(0.5, 2, (3, 4)).astype(np.float32)
W = rng().uniform(0.5, 2, 5).astype(np.float32)
TRUE = X > 0


def run_node(opset, op, inputs, constants=(), dtype=TensorProto.FLOAT, **attrs):
    """One node; `constants` are initializers behind the inputs."""
    names = [f"x{i}" for i in range(len(inputs) + len(constants))]
    node = helper.make_node(op, names, ["y"], **attrs)
    values = [helper.make_tensor_value_info(
        n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in zip(names, [*inputs, *constants], strict=True)]
    stored = [numpy_helper.from_array(a, n)
              for n, a in zip(names[len(inputs):], constants, strict=True)]
    graph = helper.make_graph([node], "old", values, [
        helper.make_tensor_value_info("y", dtype, None)], stored)
    # Before version 4 of the format initializers are inputs, too.
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)],
                              ir_version=3)
    return onnx_cases.compiled(model, inputs)[0]


def close(found, expected):
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


ALONG = {
    "channels": (C, {"broadcast": 1, "axis": 1}, (1, 3, 1, 1)),
    "inner": (CH, {"broadcast": 1, "axis": 1}, (1, 3, 4, 1)),
    "counted from the end": (CH, {"broadcast": 1, "axis": -3}, (1, 3, 4, 1)),
    "last": (W, {"broadcast": 1}, (1, 1, 1, 5)),
    "last, named": (W, {"broadcast": 1, "axis": 3}, (1, 1, 1, 5)),
    "one": (C[:1].reshape(()), {"broadcast": 1}, ()),
    "all": (X, {}, X.shape),
}


@pytest.mark.parametrize("opset", [1, 6])
@pytest.mark.parametrize("where", ALONG)
def test_second_operand_begins_at_an_axis(where, opset):
    b, attrs, shape = ALONG[where]
    close(run_node(opset, "Add", [X, b], **attrs), X + b.reshape(shape))
    close(run_node(opset, "Mul", [X], [b], **attrs), X * b.reshape(shape))
    close(run_node(opset, "Sub", [X, b], **attrs), X - b.reshape(shape))


@pytest.mark.parametrize(("op", "function", "a"), [
    ("Div", np.divide, X), ("Pow", np.power, np.abs(X)), ("Less", np.less, X),
    ("Greater", np.greater, X)])
def test_each_kind_of_binary_operator(op, function, a):
    dtype = TensorProto.BOOL if op in ("Less", "Greater") else TensorProto.FLOAT
    found = run_node(6, op, [a, C], dtype=dtype, broadcast=1, axis=1)
    close(found, function(a, C.reshape(3, 1, 1)))


@pytest.mark.parametrize(("op", "function"), [
    ("And", np.logical_and), ("Or", np.logical_or), ("Xor", np.logical_xor),
    ("Equal", np.equal)])
def test_truth_along_an_axis(op, function):
    b = np.array([True, False, True])
    found = run_node(6, op, [TRUE, b], dtype=TensorProto.BOOL, broadcast=1, axis=1)
    np.testing.assert_array_equal(found, function(TRUE, b.reshape(3, 1, 1)))


def test_operand_that_does_not_fit_says_so():
    with pytest.raises(rabbet.Error, match=r"rank 2; from axis 3 .* there are 1 axes"):
        run_node(6, "Add", [X, CH], broadcast=1, axis=3)


OLD = {
    "prelu": lambda: (run_node(6, "PRelu", [X], [C]),
                      np.where(X > 0, X, X * C.reshape(3, 1, 1))),
    "prelu of a row": lambda: (run_node(1, "PRelu", [X[:, :, 0, 0]], [C]),
                               np.where(X[:, :, 0, 0] > 0, 1, C) * X[:, :, 0, 0]),
    "prelu with one": lambda: (run_node(6, "PRelu", [X], [C[:1]]),
                               np.where(X > 0, X, X * C[0])),
    "reshape": lambda: (run_node(1, "Reshape", [X], shape=[0, -1, 5]),
                        X.reshape(2, 12, 5)),
    "concat": lambda: (run_node(1, "Concat", [X, X]), np.concatenate([X, X], 1)),
    "cast": lambda: (run_node(1, "Cast", [X], dtype=TensorProto.INT32, to="INT32"),
                     X.astype(np.int32)),
    "pad": lambda: (run_node(1, "Pad", [X], paddings=[0, 0, 1, 2, 0, 0, 3, 0], value=2.0),
                    np.pad(X, ((0, 0), (0, 0), (1, 3), (2, 0)), constant_values=2)),
    "split": lambda: (run_node(1, "Split", [X[:, :1]], [np.array([1], np.int64)], axis=1),
                      X[:, :1]),
    "tile": lambda: (run_node(1, "Tile", [X], [np.float32(3).reshape(1),
                                               np.float32(2).reshape(1)]),
                     np.tile(X, (1, 1, 3, 1))),
    "lp pool": lambda: (run_node(1, "GlobalLpPool", [X], p=1.5),
                        (np.abs(X) ** 1.5).sum((2, 3), keepdims=True) ** (1 / 1.5)),
    "selu": lambda: (run_node(1, "Selu", [X]),
                     1.0507 * np.where(X > 0, X, 1.6732 * (np.exp(X) - 1))),
    "upsample": lambda: (run_node(1, "Upsample", [X], height_scale=2.0, width_scale=3.0),
                         X.repeat(2, 2).repeat(3, 3)),
    "batch": lambda: (
        run_node(1, "BatchNormalization", [X], [C, C + 1, C - 1, C], is_test=1,
                 consumed_inputs=[0, 0, 0, 1, 1]),
        (X - (C - 1).reshape(3, 1, 1)) / np.sqrt(C + 1e-5).reshape(3, 1, 1)
        * C.reshape(3, 1, 1) + (C + 1).reshape(3, 1, 1)),
    "dropout": lambda: (run_node(6, "Dropout", [X], is_test=1), X),
    "gemm": lambda: (run_node(6, "Gemm", [CH], [CH, W[:3]], transB=1, broadcast=1),
                     CH @ CH.T + W[:3]),
    "consumed": lambda: (run_node(1, "Relu", [X], consumed_inputs=[0]), np.maximum(X, 0)),
}  # fmt: skip


@pytest.mark.parametrize("name", OLD)
def test_attributes_of_old(name):
    found, expected = OLD[name]()
    close(found, expected.astype(found.dtype))


@pytest.mark.parametrize("opset", [0, -1])
def test_operator_sets_begin_at_1(opset):
    with pytest.raises(rabbet.Error, match=rf"opset {opset}; the oldest is 1"):
        run_node(opset, "Relu", [X])


@pytest.mark.parametrize("outputs", [["y"], ["y", "saved_mean", "saved_var"]])
def test_statistics_of_the_batch_before_opset_14(outputs):
    """torch's exporter standardizes weights by a node with all five outputs."""
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)]
    stored = [numpy_helper.from_array(a, n) for n, a in
              zip(["scale", "bias", "mean", "var"], [C, C + 1, C - 1, C], strict=True)]
    names = ["y", "mean", "var", "saved_mean", "saved_var"]
    graph = helper.make_graph(
        [helper.make_node("BatchNormalization", ["x", "scale", "bias", "mean", "var"],
                          [n if n in outputs else f"_{n}" for n in names])],
        "training", values,
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs], stored)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=8)
    found = onnx_cases.compiled(model, [X])
    by_channel = (0, *range(2, X.ndim))
    mean, variance = X.mean(by_channel), X.var(by_channel)
    column = (3, *[1] * (X.ndim - 2))
    y = (X - mean.reshape(column)) / np.sqrt(variance + 1e-5).reshape(column)
    expected = [y * C.reshape(column) + (C + 1).reshape(column), mean, variance]
    for one, other in zip(found, expected, strict=False):
        close(one, other.astype(np.float32))
