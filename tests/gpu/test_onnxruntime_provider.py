"""Rabbet as a provider in ONNX Runtime's sessions on a GPU: tensors in its memory, bound
inputs and outputs, streams, any sizes, operators in Python. The reference is ONNX Runtime's
provider for the CPU."""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
import rabbet.onnxruntime
import rabbet.plugin as trtp
from onnx import TensorProto, numpy_helper, parser

from . import cuda_driver

ort = pytest.importorskip("onnxruntime")
if not hasattr(ort, "register_execution_provider_library"):
    pytest.skip("onnxruntime has no providers in libraries", allow_module_level=True)

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)
NAME = "RabbetExecutionProvider"
# By this name Rabbet lists the driver's GPUs where ONNX Runtime finds none (containers).
LIBRARY = "rabbet_gpu_tests.virtual"


@pytest.fixture(scope="module")
def device() -> Iterator[Any]:
    """The first GPU, as an OrtEpDevice."""
    ort.register_execution_provider_library(LIBRARY, rabbet.onnxruntime.get_library_path())
    yield listed("cuda:0")
    gc.collect()
    ort.unregister_execution_provider_library(LIBRARY)


def listed(name: str) -> Any:
    """The OrtEpDevice of one of Rabbet's devices."""
    found = {d.ep_metadata["rabbet_device"]: d for d in ort.get_ep_devices() if d.ep_name == NAME}
    assert name in found, sorted(found)
    return found[name]


def model_of(
    inputs: str, outputs: str, body: str, weights: dict[str, Any] | None = None
) -> bytes:
    """A model in ONNX's text format, with initializers."""
    model = parser.parse_model(
        f'<ir_version: 9, opset_import: ["": 17, "ai.onnx.ml": 3, "gpu_tests": 1]>'
        f"g ({inputs}) => ({outputs}) {{ {body} }}"
    )
    for name, value in (weights or {}).items():
        model.graph.initializer.append(numpy_helper.from_array(value, name))
    return bytes(model.SerializeToString())


def options_of() -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    return options


def session_on(where: Any, model: bytes, **entries: str) -> Any:
    """Products are FP32's, so that results are the CPU's up to rounding."""
    options = options_of()
    chosen = {"optimization_level": "0", "tf32": "0", **entries}
    options.add_provider_for_devices([where], chosen)
    return ort.InferenceSession(model, options)


def reference(model: bytes) -> Any:
    return ort.InferenceSession(model, options_of(), providers=["CPUExecutionProvider"])


def others(session: Any) -> list[str]:
    """The operators that are left to ONNX Runtime."""
    parts = session.get_provider_graph_assignment_info()
    return sorted(n.op_type for p in parts if p.ep_name != NAME for n in p.get_nodes())


def same(got: Any, want: Any) -> None:
    assert len(got) == len(want)
    for one, other in zip(got, want, strict=True):
        found = np.asarray(one)
        assert (found.dtype, found.shape) == (other.dtype, other.shape)
        np.testing.assert_allclose(found, other, rtol=1e-4, atol=1e-4)


def on_gpu(array: Any) -> Any:
    return ort.OrtValue.ortvalue_from_numpy(array, "cuda", 0)


def empty_on_gpu(shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
    return ort.OrtValue.ortvalue_from_shape_and_type(shape, dtype, "cuda", 0)


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# ---- Models


def perceptron(width: int = 64) -> bytes:
    """Of any batch."""
    return model_of(
        f"float[batch, {width}] x", f"float[batch, {width}] y",
        "a = Gemm(x, w0, b0) b = Relu(a) y = Gemm(b, w1, b1)",
        {"w0": random(width, 128) / 8, "b0": random(128, seed=1),
         "w1": random(128, width, seed=2) / 11, "b1": random(width, seed=3)},
    )  # fmt: skip


def pictures() -> bytes:
    """Of any batch, height and width."""
    return model_of(
        "float[batch, 3, height, width] x", "float[batch, 5] y",
        """a = Conv<pads = [1, 1, 1, 1]>(x, w0, b0) b = Relu(a)
           c = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(b)
           d = Conv<strides = [2, 2]>(c, w1) e = Sigmoid(d) f = Mul(d, e)
           g = GlobalAveragePool(f) h = Flatten(g) i = MatMul(h, w2) y = Softmax<axis = 1>(i)""",
        {"w0": random(8, 3, 3, 3) / 5, "b0": random(8, seed=1),
         "w1": random(16, 8, 3, 3, seed=2) / 8, "w2": random(16, 5, seed=3)},
    )  # fmt: skip


LEFT = """t = TfIdfVectorizer<max_gram_length = 1, max_skip_count = 0, min_gram_length = 1,
    mode = "TF", ngram_counts = [0], ngram_indexes = [0, 1, 2], pool_int64s = [0, 1, 2]>(q)"""


def split() -> bytes:
    """A part for the GPU, an operator that is left to ONNX Runtime's CPU, and another part,
    of which sizes are an input's values or what a run finds."""
    return model_of(
        "float[batch, 64] x, int64[2] sizes",
        "float[batch, 3] y, int64[2, places] p, float[rows, columns] e",
        f"""a = MatMul(x, w) b = Relu(a) q = Cast<to = 7>(b) {LEFT}
            y = Softmax<axis = 1>(t) p = NonZero(b) s = ReduceMax<keepdims = 0>(b)
            e = Expand(s, sizes)""",
        {"w": random(64, 3)},
    )


# ---- Runs with arrays of the host


@pytest.mark.parametrize("make", [perceptron, pictures])
def test_any_sizes(device: Any, make: Any) -> None:
    model = make()
    session, expected = session_on(device, model), reference(model)
    assert others(session) == []
    shapes = {perceptron: [(3, 64), (1, 64), (17, 64), (3, 64)],
              pictures: [(2, 3, 32, 32), (1, 3, 17, 40), (3, 3, 9, 8), (2, 3, 32, 32)]}  # fmt: skip
    for seed, shape in enumerate(shapes[make]):
        feed = {"x": random(*shape, seed=seed)}
        same(session.run(None, feed), expected.run(None, feed))
    assert [info.name for info in session.get_input_memory_infos()] == ["Rabbet"]


def test_a_part_on_the_cpu(device: Any) -> None:
    model = split()
    session, expected = session_on(device, model), reference(model)
    assert "TfIdfVectorizer" in others(session)
    for rows in (3, 5, 1, 3):
        feed = {"x": random(rows, 64, seed=rows), "sizes": np.array([rows, 2])}
        same(session.run(None, feed), expected.run(None, feed))


CODES = """codes = ai.onnx.ml.LabelEncoder<keys_strings = ["a", "b", "c"],
    values_int64s = [1, 3, 4]>(words)"""


def test_values_of_the_cpu(device: Any) -> None:
    """ONNX Runtime leaves in the host's memory what its CPU computes for a part."""
    model = model_of(
        "string[count] words", "float[count] y, int64[count] codes",
        f"{CODES} a = Cast<to = 1>(codes) y = Mul(a, a)",
    )  # fmt: skip
    session, expected = session_on(device, model), reference(model)
    assert others(session) == ["LabelEncoder"]
    for words in (["b", "c"], ["a"], [], ["b", "a", "c"]):
        feed = {"words": np.array(words, dtype=object)}
        same(session.run(None, feed), expected.run(None, feed))


def test_sizes_of_the_cpu(device: Any) -> None:
    model = model_of(
        "string[2] words, float[3, 1] x", "float[rows, columns] e, float[rows, columns] f",
        f"{CODES} e = Expand(x, codes) f = Exp(e)",
    )  # fmt: skip
    session, expected = session_on(device, model), reference(model)
    assert others(session) == ["LabelEncoder"]
    for words in (["b", "c"], ["a", "b"], ["b", "a"]):
        feed = {"words": np.array(words, dtype=object), "x": random(3, 1)}
        same(session.run(None, feed), expected.run(None, feed))


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.INT32])
def test_types_within_the_session(device: Any, kind: int) -> None:
    model = model_of(
        "float[rows, 6] x", "float[6, rows] y",
        f"a = Cast<to = {kind}>(x) b = Transpose(a) c = Add(b, b) y = Cast<to = 1>(c)",
    )  # fmt: skip
    session = session_on(device, model)
    x = np.round(random(5, 6) * 8)  # whole numbers are exact in all of them
    (y,) = session.run(None, {"x": x})
    assert np.array_equal(y, 2 * x.T)


# ---- Tensors of the GPU


def test_values_on_the_gpu(device: Any) -> None:
    x = random(7, 5)
    value = on_gpu(x)
    assert value.device_name().lower() in ("cuda", "gpu")
    assert np.array_equal(value.numpy(), x)
    value.update_inplace(2 * x)
    assert np.array_equal(value.numpy(), 2 * x)
    target = empty_on_gpu((7, 5))
    target.update_inplace(value)
    assert np.array_equal(target.numpy(), 2 * x)
    assert empty_on_gpu((0, 5)).shape() == [0, 5]


def test_runs_with_values_of_the_gpu(device: Any) -> None:
    model = perceptron()
    session, expected = session_on(device, model), reference(model)
    for rows in (4, 9, 4):
        x = random(rows, 64, seed=rows)
        (y,) = session.run_with_ort_values(["y"], {"x": on_gpu(x)})
        same([y.numpy()], expected.run(None, {"x": x}))


def test_bound_inputs_and_outputs(device: Any) -> None:
    """Outputs stay on the GPU, and are the next run's inputs."""
    model = perceptron()
    session, expected = session_on(device, model), reference(model)
    x = random(6, 64)
    value, want = on_gpu(x), x
    for _ in range(4):
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", value)
        binding.bind_output("y", "cuda", 0)
        session.run_with_iobinding(binding)
        (value,) = binding.get_outputs()
        assert value.device_name().lower() in ("cuda", "gpu")
        (want,) = expected.run(None, {"x": want})
        same([value.numpy()], [want])


def test_outputs_in_memory_of_the_caller(device: Any) -> None:
    model = perceptron()
    session, expected = session_on(device, model), reference(model)
    value, target = on_gpu(random(6, 64)), empty_on_gpu((6, 64))
    binding = session.io_binding()
    binding.bind_input("x", "cuda", 0, np.float32, value.shape(), value.data_ptr())
    binding.bind_ortvalue_output("y", target)
    for seed in range(3):
        x = random(6, 64, seed=seed)
        value.update_inplace(x)
        session.run_with_iobinding(binding)
        same([target.numpy()], expected.run(None, {"x": x}))
        assert binding.get_outputs()[0].data_ptr() == target.data_ptr()


def test_bound_outputs_whose_sizes_a_run_tells(device: Any) -> None:
    model = split()
    session, expected = session_on(device, model), reference(model)
    for rows in (3, 8):
        feed = {"x": random(rows, 64, seed=rows), "sizes": np.array([2, rows])}
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", on_gpu(feed["x"]))
        binding.bind_cpu_input("sizes", feed["sizes"])
        for name in ("y", "p", "e"):
            binding.bind_output(name, "cuda" if name != "y" else "cpu", 0)
        session.run_with_iobinding(binding)
        same(binding.copy_outputs_to_cpu(), expected.run(None, feed))


# ---- Streams


def test_copies_on_a_stream(device: Any) -> None:
    stream = device.create_sync_stream()
    assert stream.get_handle()
    arrays = [random(1000, 17, seed=seed) for seed in range(3)]
    sources = [ort.OrtValue.ortvalue_from_numpy(array) for array in arrays]
    there = [empty_on_gpu(array.shape) for array in arrays]
    again = [empty_on_gpu(array.shape) for array in arrays]
    back = [ort.OrtValue.ortvalue_from_shape_and_type(a.shape, np.float32) for a in arrays]
    for given in (stream, None):
        for value in back:
            value.update_inplace(np.zeros_like(arrays[0]))
        ort.copy_tensors(sources, there, given)
        ort.copy_tensors(there, again, given)
        ort.copy_tensors(again, back, given)
        for value, array in zip(back, arrays, strict=True):
            assert np.array_equal(value.numpy(), array)


def test_threads_have_streams_of_their_own(device: Any) -> None:
    """Runs that overlap on the GPU share no memory of intermediate results."""
    width, count, rounds = 64, 4, 25
    model = perceptron(width)
    session, expected = session_on(device, model), reference(model)
    inputs = [random(300 + 7 * i, width, seed=i) for i in range(count)]
    wants = [expected.run(None, {"x": x})[0] for x in inputs]
    session.run(None, {"x": inputs[0]})  # builds
    found: list[Any] = [None] * count

    def work(which: int) -> None:
        value, worst = on_gpu(inputs[which]), 0.0
        for _ in range(rounds):
            (y,) = session.run_with_ort_values(["y"], {"x": value})
            worst = max(worst, float(np.abs(y.numpy() - wants[which]).max()))
        found[which] = worst

    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(found) < 1e-3, found


# ---- Operators in Python


def test_an_operator_in_python(device: Any) -> None:
    """It launches a kernel on the run's stream, in the midst of a session."""
    kernel = cuda_driver.Function(
        'extern "C" __global__ void twice(const float* x, int n, float* y) {'
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;"
        "  if (i < n) y[i] = 2 * x[i]; }",
        "twice",
    )
    streams = set()

    @trtp.register("gpu_tests::OrtTwice")
    def twice(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl("gpu_tests::OrtTwice", device="cuda")
    def run(x, outputs, stream):
        streams.add(stream)
        kernel(
            -(-x.numel() // 64), 64, stream,
            ctypes.c_void_p(x.data_ptr), ctypes.c_int(x.numel()),
            ctypes.c_void_p(outputs[0].data_ptr),
        )  # fmt: skip

    def made(double: str) -> bytes:
        body = f"a = MatMul(x, w) b = {double} y = Tanh(b)"
        return model_of("float[n, 8] x", "float[n, 8] y", body, {"w": random(8, 8)})

    session = session_on(device, made("gpu_tests.OrtTwice(a)"))
    expected = reference(made("Add(a, a)"))
    assert others(session) == []
    for rows in (5, 31, 5):
        x = random(rows, 8, seed=rows)
        want = expected.run(None, {"x": x})
        same(session.run(None, {"x": x}), want)
        (y,) = session.run_with_ort_values(["y"], {"x": on_gpu(x)})
        same([y.numpy()], want)
    assert streams


# ---- Plans in models


def test_a_plan_in_a_model(device: Any, tmp_path: Any) -> None:
    model = perceptron()
    path = tmp_path / "compiled.onnx"
    options = options_of()
    options.add_provider_for_devices([device], {"optimization_level": "0", "tf32": "0"})
    compiler = ort.ModelCompiler(options, model, embed_compiled_data_into_model=True)
    compiler.compile_to_file(str(path))
    made = onnx.load(path)
    assert [node.op_type for node in made.graph.node] == ["EPContext"]
    session = session_on(device, path.read_bytes())
    feed = {"x": random(5, 64)}
    same(session.run(None, feed), reference(model).run(None, feed))


def test_without_devices_of_onnx_runtime(device: Any) -> None:
    """device=cuda with tensors in the host's memory, which each run copies."""
    model = pictures()
    session = session_on(listed("cpu"), model, device="cuda")
    feed = {"x": random(2, 3, 32, 32)}
    same(session.run(None, feed), reference(model).run(None, feed))
    with pytest.raises(Exception, match="option device=cpu"):
        session_on(device, model, device="cpu")
