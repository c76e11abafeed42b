"""The short way: compile, load, and calling a model with every kind of array."""

from __future__ import annotations

import array
import gc
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rabbet as trt
import rabbet.plugin as trtp
from onnx import TensorProto, helper, numpy_helper

from tests.python.support.plugins import build, call, new_id, random
from tests.python.support.timed import build_until_sure, doubtful

SUM = trt.ElementWiseOperation.SUM


def relu_model(dtype: trt.DataType = trt.float32, rows: int = -1) -> trt.Model:
    def make(network: trt.INetworkDefinition) -> Any:
        x = network.add_input("x", dtype, (rows, 3))
        return network.add_activation(x, trt.ActivationType.RELU).get_output(0)

    shapes = {"x": ((1, 3), (4, 3), (64, 3))} if rows < 0 else None
    return build(make, shapes=shapes)


def two_by_two() -> trt.Model:
    def make(network: trt.INetworkDefinition) -> Any:
        a = network.add_input("a", trt.float32, (2, 3))
        b = network.add_input("b", trt.float32, (2, 3))
        total = network.add_elementwise(a, b, SUM).get_output(0)
        product = network.add_elementwise(a, b, trt.ElementWiseOperation.PROD)
        return total, product.get_output(0)

    return build(make)


@pytest.fixture(scope="module")
def relu() -> trt.Model:
    return relu_model()


@pytest.fixture(scope="module")
def pair() -> trt.Model:
    return two_by_two()


def onnx_model() -> Any:
    weights = numpy_helper.from_array(random(3, 4), "w")
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph(
        [node],
        "matmul",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 4])],
        [weights],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


# ---- Compiling ----


def test_every_form_of_a_model(tmp_path: Path) -> None:
    proto = onnx_model()
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    x = random(5, 3)
    expected = x @ random(3, 4)
    for form in (proto, proto.SerializeToString(), path, str(path)):
        model = trt.compile(form, device="cpu", shapes={"x": ((1, 3), (5, 3), (9, 3))})
        np.testing.assert_allclose(model(x), expected, rtol=1e-5)
    with pytest.raises(TypeError, match="compile takes the path"):
        trt.compile(3)
    with pytest.raises(FileNotFoundError, match="absent"):
        trt.compile(tmp_path / "absent.onnx")
    with pytest.raises(FileNotFoundError, match="absent"):
        trt.load(tmp_path / "absent.plan")


def test_save_load_and_timing_cache(tmp_path: Path) -> None:
    plan, cache = tmp_path / "m.plan", tmp_path / "m.timing"
    shapes = {"x": (5, 3)}
    options: Any = {"device": "cpu", "shapes": shapes, "timing_cache": cache}
    _, first = build_until_sure(
        lambda: trt.compile(onnx_model(), save=plan, **options),
        lambda model: doubtful(model.report_json),
    )
    again = tmp_path / "again.plan"
    trt.compile(onnx_model(), save=again, **options)
    assert plan.read_bytes() == again.read_bytes()
    x = random(5, 3)
    loaded = trt.load(plan, threads=1)
    assert np.array_equal(loaded(x), first(x))
    assert "y" in loaded.inspect()
    assert first.report
    with pytest.raises(NotImplementedError, match="inspect"):
        _ = loaded.report
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "again.plan",
        "m.plan",
        "m.timing",
    ]


def test_damaged_plan(tmp_path: Path) -> None:
    path = tmp_path / "bad.plan"
    path.write_bytes(b"not a plan")
    with pytest.raises(trt.Error, match=r"bad\.plan"):
        trt.load(path)


def test_a_report_of_what_had_no_choice() -> None:
    plugin_id = new_id("alone")

    @trtp.register(plugin_id)
    def alone(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def alone_impl(x, outputs):
        outputs[0].numpy()[...] = x.numpy()

    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (2, 3))
    network.mark_output(network.add_plugin(call(plugin_id)(x)).get_output(0))
    report = str(trt.compile(network, device="cpu").report)
    assert "there was nothing to choose, nothing was timed" in report


def test_wrong_shapes_of_a_profile() -> None:
    with pytest.raises(ValueError, match=r"\(-1, 3\).*rabbet\.compile: shapes="):
        trt.compile(onnx_model(), device="cpu")
    with pytest.raises(ValueError, match="no input 'z'; it has x"):
        trt.compile(onnx_model(), device="cpu", shapes={"z": (1, 3)})
    with pytest.raises(ValueError, match="has 2 dimensions"):
        trt.compile(onnx_model(), device="cpu", shapes={"x": (1, 3, 3)})
    with pytest.raises(trt.Error):
        trt.compile(onnx_model(), device="cpu", shapes={"x": ((4, 3), (2, 3), (9, 3))})


def test_progress_function_and_cancelling() -> None:
    steps: list[tuple[str, int, int]] = []
    trt.compile(
        onnx_model(),
        device="cpu",
        shapes={"x": (5, 3)},
        progress=lambda *a: steps.append(a),
    )
    assert steps
    with pytest.raises(trt.CancelledError):
        trt.compile(
            onnx_model(), device="cpu", shapes={"x": (5, 3)}, progress=lambda *a: False
        )

    def fails(*args: Any) -> None:
        raise ZeroDivisionError("in the callback")

    with pytest.raises(ZeroDivisionError, match="in the callback"):
        trt.compile(onnx_model(), device="cpu", shapes={"x": (5, 3)}, progress=fails)
    with pytest.raises(TypeError, match="progress"):
        trt.compile(onnx_model(), device="cpu", shapes={"x": (5, 3)}, progress=3)


def test_progress_bar(capsys: pytest.CaptureFixture[str]) -> None:
    trt.compile(onnx_model(), device="cpu", shapes={"x": (5, 3)}, progress=True)
    assert capsys.readouterr().err


# ---- Calling ----


def test_ways_to_pass_inputs(pair: trt.Model) -> None:
    a, b = random(2, 3), random(2, 3, seed=1)
    for result in (pair(a, b), pair(a, b=b), pair(b=b, a=a)):
        total, product = result
        assert np.array_equal(total, a + b)
        assert np.array_equal(product, a * b)
        assert np.array_equal(result.y1, product)
    named = pair.run({"a": a, "b": b})
    assert list(named) == ["y0", "y1"]
    assert np.array_equal(named["y0"], a + b)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "input a, b is missing"),
        ((1, 2, 3), {}, "3 inputs given, the model takes 2: a, b"),
        ((1,), {"a": 1, "b": 2}, "'a' is given twice"),
        ((1, 2), {"c": 1}, "no input 'c'; it takes a, b"),
        ((1,), {}, "input b is missing"),
    ],
)
def test_wrong_arguments(
    pair: trt.Model, args: Any, kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        pair(*args, **kwargs)


def test_results_are_the_callers(relu: trt.Model) -> None:
    x = random(4, 3)
    first = relu(x)
    copy = first.copy()
    second = relu(-x)
    assert np.array_equal(first, copy)
    assert not np.shares_memory(first, second)
    assert first.flags.owndata
    del second
    gc.collect()
    assert np.array_equal(first, np.maximum(x, 0))


def test_shapes_change(relu: trt.Model) -> None:
    for rows in (1, 7, 1, 64, 7):
        x = random(rows, 3, seed=rows)
        assert np.array_equal(relu(x), np.maximum(x, 0))
    with pytest.raises(trt.OutOfRangeError, match=r"65.*\b64\b"):
        relu(random(65, 3))
    with pytest.raises(trt.OutOfRangeError, match="must be 3"):
        relu(random(4, 4))
    with pytest.raises(ValueError, match="x"):
        relu(random(4))
    assert relu(random(2, 3)).shape == (2, 3)


def test_profiles() -> None:
    """Each call takes a profile that allows its inputs."""
    model = trt.compile(
        onnx_model(), device="cpu",
        profiles=[{"x": ((1, 3), (2, 3), (4, 3))}, {"x": ((4, 3), (7, 3), (9, 3))}],
    )  # fmt: skip
    weights = random(3, 4)
    for rows in (1, 7, 4, 9, 2, 9, 3):
        x = random(rows, 3, seed=rows)
        np.testing.assert_allclose(model(x), x @ weights, rtol=1e-5, atol=1e-6)
    for rows in (0, 10):
        with pytest.raises(trt.OutOfRangeError, match=f"none of 2 profiles .* is {rows}"):
            model(random(rows, 3))
    assert model(random(8, 3)).shape == (8, 4)


def test_layouts_are_copied_types_are_not(relu: trt.Model) -> None:
    x = random(8, 6)
    for view in (x[:, ::2], x[:, 3:], np.asfortranarray(x[:, :3]), x[::-1, :3]):
        assert np.array_equal(relu(view), np.maximum(view, 0))
    unaligned = np.frombuffer(b"\0" + x[:, :3].tobytes(), np.uint8)[1:]
    unaligned = unaligned.view(np.float32).reshape(8, 3)
    assert np.array_equal(relu(unaligned), np.maximum(x[:, :3], 0))
    for wrong in (x[:, :3].astype(np.float64), np.zeros((1, 3), np.int32)):
        with pytest.raises(TypeError, match=r"input 'x' is .*the model takes float32"):
            relu(wrong)
    assert np.array_equal(relu(x[:, :3].astype(">f4")), np.maximum(x[:, :3], 0))


def test_plain_python_values(relu: trt.Model) -> None:
    assert relu([[1, -2, 3.5]]).tolist() == [[1, 0, 3.5]]
    assert relu(((1, -2, 3),)).tolist() == [[1, 0, 3]]
    for wrong in ("x", None, {"x": 1}, [["a"]], object()):
        with pytest.raises(TypeError, match="input 'x'"):
            relu(wrong)


def test_buffers(relu: trt.Model) -> None:
    x = random(2, 3)
    assert np.array_equal(relu(memoryview(x)), np.maximum(x, 0))
    flat = array.array("f", [1, -1, 2])
    view = memoryview(flat).cast("B").cast("f", (1, 3))
    assert relu(view).tolist() == [[1, 0, 2]]


def test_out(relu: trt.Model, pair: trt.Model) -> None:
    x = random(4, 3)
    out = np.empty((4, 3), np.float32)
    assert relu(x, out=out) is out
    assert np.array_equal(out, np.maximum(x, 0))
    a, b = random(2, 3), random(2, 3, seed=1)
    outs = (np.empty((2, 3), np.float32), np.empty((2, 3), np.float32))
    assert pair(a, b, out=outs) is outs
    assert np.array_equal(outs[1], a * b)
    by_name = {"y1": outs[0], "y0": outs[1]}
    pair(a, b, out=by_name)
    assert np.array_equal(outs[0], a * b)
    read_only = np.empty((4, 3), np.float32)
    read_only.flags.writeable = False
    for wrong, message in [
        (np.empty((4, 2), np.float32), r"\(4, 3\), got float32 \(4, 2\)"),
        (np.empty((4, 3)), "got float64"),
        (np.empty((4, 3), ">f4"), "got >f4"),
        (read_only, "writable"),
        (np.empty((3, 4), np.float32).T, "row-major"),
    ]:
        with pytest.raises(ValueError, match=message):
            relu(x, out=wrong)
    with pytest.raises(ValueError, match="tuple or dict of 2"):
        pair(a, b, out=out)
    with pytest.raises(ValueError, match="1 arrays for 2 outputs"):
        pair(a, b, out=(out,))
    with pytest.raises(ValueError, match="y0, y1; got y0"):
        pair(a, b, out={"y0": out})


@pytest.mark.parametrize(
    ("dtype", "numpy_dtype"),
    [(trt.float32, np.float32), (trt.float16, np.float16), (trt.int32, np.int32)],
)
def test_types(dtype: trt.DataType, numpy_dtype: Any) -> None:
    x = (random(4, 3) * 5).astype(numpy_dtype)
    result = relu_model(dtype)(x)
    assert result.dtype == numpy_dtype
    assert np.array_equal(result, np.maximum(x, 0))


def test_bfloat16() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = random(4, 3).astype(ml_dtypes.bfloat16)
    result = relu_model(trt.bfloat16)(x)
    assert result.dtype == ml_dtypes.bfloat16
    assert np.array_equal(result, np.maximum(x, 0))


def test_torch(relu: trt.Model, pair: trt.Model) -> None:
    torch = pytest.importorskip("torch")
    x = torch.randn(4, 3)
    for value in (x, x.requires_grad_(), torch.randn(3, 4).T, torch.randn(8, 3)[::2]):
        result = relu(value)
        assert isinstance(result, torch.Tensor)
        assert torch.equal(result, torch.relu(value.detach()))
    out = torch.empty(4, 3)
    assert relu(x.detach(), out=out) is out
    assert torch.equal(out, torch.relu(x.detach()))
    a, b = torch.randn(2, 3), torch.randn(2, 3)
    assert torch.equal(pair(a, b).y1, a * b)
    with pytest.raises(TypeError, match=r"x\.to\(torch\.float32\)"):
        relu(torch.zeros(1, 3, dtype=torch.float64))
    half = relu_model(trt.bfloat16)
    y = torch.randn(4, 3, dtype=torch.bfloat16)
    assert torch.equal(half(y), torch.relu(y))
    with pytest.raises(TypeError, match="cpu"):
        relu(torch.zeros(1, 3, device="meta"))


class Foreign:
    """An array of a library that only speaks DLPack."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self.value.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> Any:
        return self.value.__dlpack_device__()

    def __array_namespace__(self) -> Any:
        class Namespace:
            @staticmethod
            def from_dlpack(array: Any) -> Foreign:
                return Foreign(np.from_dlpack(array))

        return Namespace


def test_other_libraries(relu: trt.Model) -> None:
    x = random(4, 3)
    result = relu(Foreign(x))
    assert isinstance(result, Foreign)
    assert np.array_equal(result.value, np.maximum(x, 0))


def test_zero_size() -> None:
    def make(network: trt.INetworkDefinition) -> Any:
        x = network.add_input("x", trt.float32, (-1, 3))
        return network.add_activation(x, trt.ActivationType.RELU).get_output(0)

    model = build(make, shapes={"x": ((0, 3), (2, 3), (4, 3))})
    assert model(np.zeros((0, 3), np.float32)).shape == (0, 3)
    assert model(random(2, 3)).shape == (2, 3)


def test_what_a_model_tells(pair: trt.Model) -> None:
    assert [i.name for i in pair.inputs] == ["a", "b"]
    assert pair.inputs[0].dtype is trt.float32
    assert pair.outputs[1].shape == (2, 3)
    assert "a: FLOAT (2, 3)" in repr(pair)
    assert pair.inspect_json()
    times = pair.profile(random(2, 3), random(2, 3))
    assert times
    assert all(isinstance(name, str) and ms >= 0 for name, ms in times)


def test_many_threads(relu: trt.Model) -> None:
    failures: list[int] = []

    def work(seed: int) -> None:
        for i in range(100):
            x = random(1 + (seed + i) % 20, 3, seed=seed)
            if not np.array_equal(relu(x), np.maximum(x, 0)):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_nothing_is_left_behind() -> None:
    import resource

    def once() -> None:
        model = relu_model(rows=4)
        model(random(4, 3))

    for _ in range(3):
        once()
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(30):
        once()
    gc.collect()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 20_000, f"{grown} KiB more after 30 models"


# ---- Arrays of other libraries ---------------------------------------------


class Own(array.array):  # type: ignore[type-arg]
    """An array with a buffer, as JAX's have, of a library that speaks DLPack."""

    def _numpy(self) -> Any:
        return np.frombuffer(memoryview(self), np.float32).reshape(2, 3)

    def __dlpack__(self, **options: Any) -> Any:
        return self._numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __array_namespace__(self) -> Any:
        return OwnLibrary


class OwnLibrary:
    """The module of it."""

    @staticmethod
    def from_dlpack(value: Any) -> Own:
        return Own("f", np.from_dlpack(value).ravel())


def test_arrays_with_a_buffer_come_back_as_their_own_kind() -> None:
    model = relu_model(rows=2)
    y = model(Own("f", [1, -2, 3, -4, 5, -6]))
    assert isinstance(y, Own)
    assert y.tolist() == [1, 0, 3, 0, 5, 0]
    plain = array.array("f", [0] * 6)
    assert isinstance(model(memoryview(plain).cast("B").cast("f", (2, 3))), np.ndarray)


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "int32"])
def test_jax(name: str) -> None:
    jax = pytest.importorskip("jax")
    x = jax.numpy.arange(6).reshape(2, 3).astype(name) - 2
    if x.devices().pop().platform != "cpu":
        pytest.skip("JAX's arrays are on a GPU")
    strong = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    network = trt.Builder().create_network(strong)
    tensor = network.add_input("x", getattr(trt, name), (2, 3))
    network.mark_output(network.add_elementwise(tensor, tensor, SUM).get_output(0))
    y = trt.compile(network, device="cpu")(x)
    assert isinstance(y, jax.Array)
    assert y.dtype == x.dtype
    assert (y == x + x).all()
    with pytest.raises(TypeError, match="arrays of JAX cannot be written"):
        trt.compile(network, device="cpu")(x, out=y)


def test_jax_arrays_that_cannot_be_read(relu: trt.Model) -> None:
    jax = pytest.importorskip("jax")
    x = jax.numpy.ones((4, 3))
    with pytest.raises(TypeError, match=r"input 'x' is not an array .* DynamicJaxprTracer"):
        jax.jit(lambda value: relu(value))(x)
    x.delete()
    with pytest.raises(TypeError, match=r"input 'x' is not an array that can be read"):
        relu(x)
    network = trt.Builder().create_network()
    indices = network.add_input("i", trt.int64, (2,))
    network.mark_output(network.add_elementwise(indices, indices, SUM).get_output(0))
    model = trt.compile(network, device="cpu")
    with pytest.raises(TypeError, match=r"is int32, .* numpy\.asarray\(x, 'int64'\)"):
        model(jax.numpy.arange(2))
    assert model(np.asarray(jax.numpy.arange(2), "int64")).tolist() == [0, 2]


def test_a_dict_in_the_place_of_an_array(relu: trt.Model) -> None:
    x = random(4, 3)
    with pytest.raises(TypeError, match=r"is a dict.*model\.run\(inputs\), or model\(\*\*"):
        relu({"x": x})
    np.testing.assert_array_equal(relu.run({"x": x})["y0"], relu(**{"x": x}))
    with pytest.raises(TypeError, match=r"run: expected {name: array}, got None"):
        relu.run(None)  # type: ignore[arg-type]


def test_models_of_a_wrong_type(relu: trt.Model) -> None:
    onnx = pytest.importorskip("onnx")
    graph = onnx.helper.make_graph([], "g", [], [])
    with pytest.raises(TypeError, match=r"compile takes the path of .*, got .*GraphProto"):
        trt.compile(graph, device="cpu")
    with pytest.raises(ValueError, match=r"path: expected a path, got b'plan.*which has a NUL"):
        trt.load(b"plan\0\1")
    with pytest.raises(TypeError, match="path: expected a path, got None"):
        trt.load(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="path: expected a path, got None"):
        relu.save(None)  # type: ignore[arg-type]
