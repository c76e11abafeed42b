"""InferenceSession answers as ONNX Runtime's does."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import rabbet as trt
import rabbet.onnxruntime as ours
from onnx import numpy_helper, parser

theirs = pytest.importorskip("onnxruntime")
torch = pytest.importorskip("torch")

CPU = ["CPUExecutionProvider"]

DYNAMIC = """
    <ir_version: 8, opset_import: ["": 17]>
    dynamic (float[batch, 3, height, 8] x, int64[batch] k, bool[1] on)
        => (float[batch, 4, h, w] y, int64[batch] twice, float scalar) {
        c = Conv<kernel_shape = [3, 3], strides = [2, 1]>(x, kernel)
        y = Where(on, c, zero)
        twice = Add(k, k)
        scalar = ReduceSum<keepdims = 0>(c)
    }"""
FIXED = """
    <ir_version: 8, opset_import: ["": 17]>
    fixed (float[2, 3] x, float[3] b) => (float[2, 3] sum, float[2, 3] product) {
        sum = Add(x, b)
        product = Mul(x, b)
    }"""


def model_bytes(text: str) -> bytes:
    model = parser.parse_model(text)
    random = np.random.default_rng(0)
    if "kernel" in text:
        kernel = random.normal(size=(4, 3, 3, 3)).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(kernel, "kernel"))
        zero = np.zeros(1, np.float32)
        model.graph.initializer.append(numpy_helper.from_array(zero, "zero"))
    onnx.checker.check_model(model)
    return model.SerializeToString()


def feed(batch: int, height: int, seed: int = 0) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    return {
        "x": random.normal(size=(batch, 3, height, 8)).astype(np.float32),
        "k": random.integers(-5, 5, batch),
        "on": np.array([batch % 2 == 0]),
    }


def described(session: Any) -> list[Any]:
    return [
        [(arg.name, arg.type, arg.shape) for arg in args]
        for args in (session.get_inputs(), session.get_outputs())
    ]


@pytest.fixture(scope="module")
def pair() -> tuple[Any, Any]:
    data = model_bytes(DYNAMIC)
    return trt.InferenceSession(data, providers=CPU), theirs.InferenceSession(
        data, providers=CPU
    )


def test_it_describes_the_model(pair: tuple[Any, Any]) -> None:
    session, reference = pair
    (inputs, outputs), (their_inputs, their_outputs) = map(described, pair)
    assert inputs == their_inputs
    assert [o[:2] for o in outputs] == [o[:2] for o in their_outputs]
    assert session.get_providers() == reference.get_providers()
    assert session.get_overridable_initializers() == []
    fixed = model_bytes(FIXED)
    assert described(trt.InferenceSession(fixed, device="cpu")) == described(
        theirs.InferenceSession(fixed, providers=CPU)
    )


def test_runs_of_any_shape_need_one_build(
    pair: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    session, reference = pair
    session.run(None, feed(2, 9))
    built = session.model
    for seed, (batch, height) in enumerate([(2, 9), (5, 3), (1, 40), (3, 17)]):
        inputs = feed(batch, height, seed)
        for names in (None, [], ["twice", "y"], ["scalar"]):
            found = session.run(names, inputs)
            expected = reference.run(names, inputs)
            assert len(found) == len(expected)
            for ours_, theirs_ in zip(found, expected, strict=True):
                assert ours_.dtype == theirs_.dtype
                np.testing.assert_allclose(ours_, theirs_, rtol=1e-4, atol=1e-4)
    assert session.model is built


def test_ort_values_and_bindings(pair: tuple[Any, Any]) -> None:
    inputs = feed(3, 9)
    results = []
    for library, session in zip((ours, theirs), pair, strict=True):
        values = {n: library.OrtValue.ortvalue_from_numpy(v) for n, v in inputs.items()}
        found = session.run_with_ort_values(["y"], values)[0]
        value = values["x"]
        facts = [
            value.shape(), value.data_type(), value.device_name(), value.has_value(),
            value.is_tensor(), value.element_type(), found.shape(), found.data_type(),
            value.tensor_size_in_bytes(),
        ]  # fmt: skip
        binding = session.io_binding()
        binding.bind_cpu_input("x", inputs["x"])
        k = inputs["k"]
        binding.bind_input("k", "cpu", 0, np.int64, k.shape, k.ctypes.data)
        binding.bind_ortvalue_input("on", values["on"])
        binding.bind_output("y")
        twice = np.zeros(3, np.int64)
        binding.bind_output("twice", "cpu", 0, np.int64, twice.shape, twice.ctypes.data)
        scalar = library.OrtValue.ortvalue_from_shape_and_type([], np.float32)
        binding.bind_ortvalue_output("scalar", scalar)
        binding.synchronize_inputs()
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        copies = binding.copy_outputs_to_cpu()
        assert np.array_equal(twice, 2 * k)
        assert np.array_equal(copies[0], found.numpy())
        assert np.array_equal(scalar.numpy(), copies[2])
        value.update_inplace(inputs["x"] + 1)
        session.run_with_iobinding(binding)
        results.append([facts, [c.shape for c in copies], copies])
    assert results[0][:2] == results[1][:2]
    for found, expected in zip(results[0][2], results[1][2], strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_outputs_bound_to_memory_of_the_caller() -> None:
    session = trt.InferenceSession(model_bytes(FIXED), providers=CPU)
    x, b = np.ones((2, 3), np.float32), np.arange(3, dtype=np.float32)
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_cpu_input("b", b)
    targets = [ours.OrtValue.ortvalue_from_shape_and_type((2, 3), 1) for _ in range(2)]
    for name, target in zip(("product", "sum"), targets, strict=True):
        binding.bind_ortvalue_output(name, target)
    session.run_with_iobinding(binding)
    assert np.array_equal(targets[0].numpy(), x * b)
    assert np.array_equal(targets[1].numpy(), x + b)
    assert binding.get_outputs()[1].data_ptr() == targets[1].data_ptr()
    assert torch.equal(torch.from_dlpack(targets[0]), torch.from_numpy(x * b))
    binding.clear_binding_outputs()
    with pytest.raises(trt.InvalidArgumentError, match="no output is bound"):
        session.run_with_iobinding(binding)


def test_async_runs() -> None:
    session = trt.InferenceSession(model_bytes(FIXED), providers=CPU)
    done = threading.Event()
    answers: list[Any] = []

    def callback(results: list[Any], data: Any, error: str) -> None:
        answers.append((results, data, error))
        done.set()

    x, b = np.ones((2, 3), np.float32), np.ones(3, np.float32)
    session.run_async(["sum"], {"x": x, "b": b}, callback, "mine")
    assert done.wait(60)
    assert answers[0][1:] == ("mine", "")
    assert np.array_equal(answers[0][0][0], x + b)
    done.clear()
    session.run_async(["sum"], {"x": x}, callback, None)
    assert done.wait(60)
    assert "input b is missing" in answers[1][2]


def test_options(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model_bytes(DYNAMIC))
    options = ours.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ours.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_free_dimension_override_by_name("batch", 2)
    session = ours.InferenceSession(str(path), options, providers=CPU)
    with pytest.raises(trt.InvalidArgumentError, match="built by the first run"):
        _ = session.model
    session.run(None, feed(2, 9))
    with pytest.raises(trt.OutOfRangeError, match="dimension 0 of input 'x' is 3"):
        session.run(None, feed(3, 9))
    with pytest.raises(trt.UnsupportedError, match=r"session\.model\.profile"):
        options.enable_profiling = True
    # Options of ONNX Runtime's own class serve as well.
    own = theirs.SessionOptions()
    own.intra_op_num_threads = 1
    shapes = {"x": ((1, 3, 3, 8), (2, 3, 9, 8), (4, 3, 20, 8)), "k": ((1,), (2,), (4,))}
    session = ours.InferenceSession(path, own, CPU, shapes=shapes)
    session.model.save(tmp_path / "model.plan")
    loaded = ours.InferenceSession(tmp_path / "model.plan", providers=CPU)
    for found, expected in zip(
        loaded.run(None, feed(2, 9)), session.run(None, feed(2, 9)), strict=True
    ):
        assert np.array_equal(found, expected)
    assert described(loaded)[0] == described(session)[0]


COUNTED = """
    <ir_version: 8, opset_import: ["": 17]>
    counted (float[2] x, int64 count) => (float[2] y) {
        yes = Constant<value = bool {1}>()
        y = Loop(count, yes, x) <body = b (int64 i, bool on, float[2] before)
            => (bool go, float[2] after) {
            go = Identity(on)
            after = Tanh(before)
        }>
    }"""


@pytest.mark.parametrize("how", ["run", "run_with_iobinding"])
def test_terminate_ends_the_runs_of_its_options(how: str) -> None:
    """Those alone: another run of the session, with other options, goes on."""
    data = model_bytes(COUNTED)
    session = ours.InferenceSession(data, providers=CPU, iteration_limit=100_000_000)
    options = ours.RunOptions()
    x = np.ones(2, np.float32)

    def run(count: int, options: Any) -> Any:
        given = {"x": x, "count": np.array(count)}
        if how == "run":
            return session.run(None, given, options)[0]
        binding = session.io_binding()
        for name, value in given.items():
            binding.bind_cpu_input(name, value)
        binding.bind_output("y")
        session.run_with_iobinding(binding, options)
        return binding.copy_outputs_to_cpu()[0]

    others: list[Any] = []
    other = threading.Thread(
        target=lambda: others.append(run(100_000, ours.RunOptions()))
    )
    other.start()
    ender = threading.Timer(0.05, lambda: setattr(options, "terminate", True))
    ender.start()
    for _ in range(2):  # the second finds it set
        with pytest.raises(trt.CancelledError, match="the run was cancelled"):
            run(2**31, options)
    ender.join()
    other.join()
    options.terminate = False
    reference = theirs.InferenceSession(data, providers=CPU)
    wanted = reference.run(None, {"x": x, "count": np.array(5)})[0]
    np.testing.assert_allclose(run(5, options), wanted, rtol=1e-6)
    assert len(others) == 1


def test_terminate_of_options_of_onnx_runtime() -> None:
    session = ours.InferenceSession(model_bytes(FIXED), providers=CPU)
    options = theirs.RunOptions()
    values = {"x": np.ones((2, 3), np.float32), "b": np.ones(3, np.float32)}
    session.run(None, values, options)
    options.terminate = True
    with pytest.raises(trt.CancelledError, match="terminate is True"):
        session.run(None, values, options)


def test_providers(capfd: pytest.CaptureFixture[str]) -> None:
    data = model_bytes(FIXED)
    session = ours.InferenceSession(
        data, providers=["NoSuchExecutionProvider", ("CPUExecutionProvider", {})]
    )
    assert session.get_providers() == CPU
    assert "'NoSuchExecutionProvider' is not known" in capfd.readouterr().err
    assert CPU[0] in ours.get_available_providers()
    with pytest.raises(trt.UnavailableError, match="none of the providers"):
        ours.InferenceSession(data, providers=["NoSuchExecutionProvider"])
    with pytest.raises(TypeError, match="expected a list"):
        ours.InferenceSession(data, providers="CPUExecutionProvider")
    session.set_providers(CPU)


def test_errors_name_what_is_wrong(pair: tuple[Any, Any]) -> None:
    session = pair[0]
    good = feed(2, 9)
    for change, message in (
        ({"z": good["x"]}, "the model has no input 'z'; it has x, k, on"),
        ({"x": good["x"].astype(np.float64)}, "input 'x' is float64, the model takes"),
        ({"x": good["x"][:, :2]}, "'x'"),
        ({"k": good["k"][:, None]}, "'k'"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            session.run(None, {**good, **change})
    with pytest.raises((TypeError, ValueError), match="input on is missing"):
        session.run(None, {n: v for n, v in good.items() if n != "on"})
    with pytest.raises(trt.InvalidArgumentError, match="no output 'q'; it has y, twice"):
        session.run(["q"], good)
    with pytest.raises(TypeError, match="no DataType"):
        ours.OrtValue.ortvalue_from_shape_and_type((1,), 8)
    fresh = trt.InferenceSession(model_bytes(DYNAMIC), providers=CPU)
    with pytest.raises(trt.InvalidArgumentError, match="input 'k' has 1 dimensions"):
        fresh.run(None, {**good, "k": good["k"][:, None]})
