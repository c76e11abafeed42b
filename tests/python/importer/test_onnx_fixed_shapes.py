"""Inputs whose extents only the caller fixes: ranks and branches follow from them."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import rabbet

from tests.python.support.command import command


def model_of(body: str, inputs: str = "float[N, M, 4] x") -> bytes:
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g ({inputs}) => (float y) {{ {body} }}'
    )
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model.SerializeToString()


SQUEEZED = model_of("z = Squeeze(x) y = Neg(z)")
# What torch's exporter writes of `x.squeeze(0)` of an extent that varies.
CHOSEN = model_of("""
    s = Shape(x)
    zero = Constant<value = int64[1] {0}>()
    one = Constant<value = int64[1] {1}>()
    n = Gather(s, zero)
    single = Equal(n, one)
    z = If(single) <
        then_branch = a () => (float[A, B] p) { p = Squeeze(x, zero) },
        else_branch = b () => (float[C, D, E] q) { q = Identity(x) }>
    y = Neg(z)
""")


def expected(model: bytes, x: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


@pytest.mark.parametrize("model", [SQUEEZED, CHOSEN])
@pytest.mark.parametrize("first", [1, 2])
def test_a_rank_follows_from_the_shapes_of_compile(model: bytes, first: int) -> None:
    compiled = rabbet.compile(
        model, device="cpu", optimization_level=0,
        shapes={"x": ((first, 2, 4), (first, 3, 4), (first, 5, 4))},
    )
    for size in (2, 5):
        x = np.random.default_rng(size).standard_normal((first, size, 4), np.float32)
        np.testing.assert_array_equal(compiled(x), expected(model, x))


@pytest.mark.parametrize("shape", [
    (np.int64(1), np.int64(3), 4), np.array([1, 3, 4]), (np.array([1, 3, 4]),) * 3,
    np.array([[1, 3, 4]] * 3), [[1, 3, 4]] * 3, rabbet.Dims((1, 3, 4)),
])  # fmt: skip
def test_shapes_may_be_arrays(shape: object) -> None:
    compiled = rabbet.compile(
        SQUEEZED, device="cpu", optimization_level=0, shapes={"x": shape}
    )
    assert tuple(compiled.outputs[0].shape) == (3, 4)


@pytest.mark.parametrize("shape", [
    ([[1], 3, 4],) * 3, ([1, 3, "4"],) * 3, (1.0, 3, 4), (None, 3, 4), 5, "134", np.ones((1, 3)),
])  # fmt: skip
def test_shapes_that_are_none_are_named(shape: object) -> None:
    with pytest.raises(rabbet.InvalidArgumentError, match="'x'"):
        rabbet.compile(
            SQUEEZED, device="cpu", optimization_level=0, shapes={"x": shape}
        )


def test_extents_that_differ_between_profiles_stay_open() -> None:
    compiled = rabbet.compile(
        model_of("y = Neg(x)"), device="cpu", optimization_level=0,
        profiles=[{"x": (1, 3, 4)}, {"x": (2, 3, 4)}],
    )
    assert tuple(compiled.inputs[0].shape) == (-1, 3, 4)
    for first in (1, 2):
        x = np.ones((first, 3, 4), np.float32)
        np.testing.assert_array_equal(compiled(x), -x)


def test_shapes_that_contradict_the_model_are_named() -> None:
    for shape in ((1, 3, 5), (1, 3), (1, 3, 4, 1)):
        with pytest.raises(rabbet.Error, match="'x'"):
            rabbet.compile(SQUEEZED, device="cpu", optimization_level=0, shapes={"x": shape})
    with pytest.raises(rabbet.Error, match="no input 'z'"):
        rabbet.compile(SQUEEZED, device="cpu", optimization_level=0, shapes={"z": (1,)})


@pytest.mark.parametrize("w", [(1, 4), ((1, 4), (2, 4), (3, 4))])
def test_extents_of_one_name_are_one(w: tuple) -> None:
    model = model_of("y = Add(x, w)", "float[N, 4] x, float[N, 4] w")
    with pytest.raises(rabbet.Error, match="share the name 'N'"):
        rabbet.compile(
            model, device="cpu", optimization_level=0, shapes={"x": (2, 4), "w": w}
        )


def test_an_extent_is_known_by_its_name() -> None:
    """Of inputs without shapes, too."""
    model = model_of("s = Squeeze(w) y = Add(x, s)", "float[N, M] x, float[N, 4] w")
    compiled = rabbet.compile(
        model, device="cpu", optimization_level=0, shapes={"x": ((1, 4), (1, 4), (1, 4))}
    )
    assert tuple(compiled.inputs[1].shape) == (1, 4)
    x, w = np.ones((1, 4), np.float32), np.full((1, 4), 2, np.float32)
    np.testing.assert_array_equal(compiled(x, w), x + 2)


def test_extents_in_a_shell(tmp_path: Path) -> None:
    """As `compile` has them; what is given on the command line is no fault of the model."""
    (tmp_path / "model.onnx").write_bytes(SQUEEZED)
    for shapes, extents in [
        (["--shapes", "x:1x3x4"], (3, 4)),
        (["--min-shapes", "x:1x1x4", "--max-shapes", "x:1x9x4"], (-1, 4)),
        (["--shapes", "*:2x3x4"], (2, 3, 4)),
    ]:
        plan = tmp_path / "plan"
        command("build", tmp_path / "model.onnx", "-o", plan, "--device", "cpu", "--quiet", *shapes)
        assert tuple(rabbet.load(plan).outputs[0].shape) == extents
    (tmp_path / "two.onnx").write_bytes(
        model_of("y = Add(x, w)", "float[N, 4] x, float[N, 4] w")
    )
    for shapes in ("x:2x4,w:1x4", "x:2x4,w:2x5"):
        command("build", tmp_path / "two.onnx", "--device", "cpu", "--shapes", shapes, code=2)
