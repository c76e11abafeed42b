"""The same calls of ONNX Runtime's sessions and of ours, with usual and unusual arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import rabbet
import rabbet.onnxruntime as ours
from onnx import parser

theirs = pytest.importorskip("onnxruntime")

CPU = ["CPUExecutionProvider"]
HEAD = '<ir_version: 8, opset_import: ["": 17]>'
SEVERAL = """several (float[n, 3] x, int64[2] k)
    => (float[n, 3] y, int64[2] twice, bool[n, 3] less) {
    y = Relu(x)
    twice = Add(k, k)
    less = Less(x, y)
}"""
SCALAR = "scalar (float x) => (float y) { y = Neg(x) }"
TYPES = {
    "int8": "int8", "uint8": "uint8", "int16": "int16", "uint16": "uint16", "int32": "int32",
    "uint32": "uint32", "int64": "int64", "uint64": "uint64", "float16": "float16",
    "float": "float32", "double": "float64", "bool": "bool",
}  # fmt: skip

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
K = np.array([3, 4])
FEED = {"x": X, "k": K}


def sessions(text: str) -> list[Any]:
    model = parser.parse_model(HEAD + text).SerializeToString()
    return [module.InferenceSession(model, providers=CPU) for module in (ours, theirs)]


def check(found: Any, expected: Any) -> None:
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        a, b = (each.numpy() if hasattr(each, "numpy") else each for each in (a, b))
        assert np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_array_equal(a, b, strict=True)


@pytest.mark.parametrize(
    "names", [None, [], ["twice"], ["less", "y"], ["y", "y"], ("y",)], ids=str
)
def test_names_of_outputs(names: Any) -> None:
    own, other = sessions(SEVERAL)
    check(own.run(names, FEED), other.run(names, FEED))


@pytest.mark.parametrize(
    "feed",
    [
        {"x": X[:0]},
        {"x": np.asfortranarray(X)},
        {"x": np.repeat(X, 2, 1)[:, ::2], "k": K[::-1]},
        {"x": X.tolist()},
        {"k": [3, 4]},
        {"x": np.broadcast_to(X[:1], (4, 3))},
    ],
    ids=["no rows", "Fortran", "strides", "list", "integers", "broadcast"],
)
def test_arrays(feed: dict[str, Any]) -> None:
    own, other = sessions(SEVERAL)
    check(own.run(None, {**FEED, **feed}), other.run(None, {**FEED, **feed}))


def test_a_scalar() -> None:
    own, other = sessions(SCALAR)
    feed = {"x": np.array(3, np.float32)}
    check(own.run(None, feed), other.run(None, feed))
    assert own.get_outputs()[0].shape == other.get_outputs()[0].shape == []


@pytest.mark.parametrize("kind", TYPES)
def test_types(kind: str) -> None:
    """Also those that plans hold in others."""
    text = f"held ({kind}[n, m] x) => ({kind}[n, m] y) {{ y = Identity(x) }}"
    own, other = sessions(text)
    described = [
        [(a.name, a.type, a.shape) for a in (*each.get_inputs(), *each.get_outputs())]
        for each in (own, other)
    ]
    assert described[0] == described[1]
    x = np.array([[0, 1, 2], [3, 100, 1]], TYPES[kind])
    check(own.run(None, {"x": x}), other.run(None, {"x": x}))
    for session in (own, other):
        with pytest.raises(
            (TypeError, theirs.capi.onnxruntime_pybind11_state.InvalidArgument)
        ):
            session.run(
                None, {"x": x.astype(np.float32 if kind != "float" else np.int8)}
            )


def test_bindings_of_held_types() -> None:
    own, _ = sessions("held (double[2] x) => (double[2] y) { y = Neg(x) }")
    binding = own.io_binding()
    binding.bind_cpu_input("x", np.ones(2))
    binding.bind_output("y")
    with pytest.raises(
        rabbet.UnsupportedError, match="'x' is float64, which the plan holds"
    ):
        own.run_with_iobinding(binding)


def test_shapes_of_outputs_and_overrides() -> None:
    found = []
    for module in (ours, theirs):
        options = module.SessionOptions()
        options.add_free_dimension_override_by_name("n", 2)
        model = parser.parse_model(HEAD + SEVERAL).SerializeToString()
        session = module.InferenceSession(model, options, providers=CPU)
        args = (*session.get_inputs(), *session.get_outputs())
        found.append([(arg.name, arg.type, arg.shape) for arg in args])
        check(session.run(["y"], FEED), [np.maximum(X, 0)])
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (
            lambda s: s.run(["q"], FEED),
            ValueError,
            "no output 'q'; it has y, twice, less",
        ),
        (lambda s: s.run("y", FEED), TypeError, "list of output names, got 'y'"),
        (lambda s: s.run(None, {"x": X}), ValueError, "input k is missing"),
        (
            lambda s: s.run(None, {**FEED, "q": X}),
            ValueError,
            "no input 'q'; it has x, k",
        ),
        (lambda s: s.run(None, [X, K]), TypeError, "expected {name: array}"),
        (lambda s: s.run(None, {**FEED, "x": X > 0}), TypeError, "'x' is bool"),
        (
            lambda s: s.run(None, {**FEED, "x": X[0]}),
            ValueError,
            "'x' has 2 dimensions",
        ),
        (lambda s: s.run(None, {**FEED, "x": X[:, :2]}), IndexError, "must be 3"),
    ],
)
def test_errors(call: Callable[[Any], Any], kind: Any, message: str) -> None:
    """Where ONNX Runtime has one, too."""
    own, other = sessions(SEVERAL)
    with pytest.raises(kind, match=message):
        call(own)
    with pytest.raises(Exception):  # noqa: B017, PT011 its classes have no common one
        call(other)
