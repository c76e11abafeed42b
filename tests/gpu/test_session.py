"""OrtValue and IOBinding with values on the GPU."""

from __future__ import annotations

import numpy as np
import pytest
import rabbet as trt
import rabbet.onnxruntime as ort
from onnx import parser

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)

MODEL = """
    <ir_version: 8, opset_import: ["": 17]>
    model (float[n, 3] x, float[3] b) => (float[n, 3] sum, float[n, 3] product) {
        sum = Add(x, b)
        product = Mul(x, b)
    }"""


@pytest.fixture(scope="module")
def session() -> ort.InferenceSession:
    providers = [("CUDAExecutionProvider", {"device_id": "0"}), "CPUExecutionProvider"]
    data = parser.parse_model(MODEL).SerializeToString()
    return ort.InferenceSession(data, providers=providers)


def test_the_device_is_chosen_by_providers(session: ort.InferenceSession) -> None:
    assert session.get_providers() == ["CUDAExecutionProvider"]
    assert session.get_provider_options() == {"CUDAExecutionProvider": {"device_id": "0"}}
    assert ort.get_available_providers()[0] == "CUDAExecutionProvider"
    assert ort.get_device() == "GPU"
    with pytest.raises(trt.UnsupportedError, match="runs on cuda:0"):
        session.set_providers(["CPUExecutionProvider"])


def test_values_on_the_gpu(session: ort.InferenceSession) -> None:
    x, b = np.ones((2, 3), np.float32), np.arange(3, dtype=np.float32)
    value = ort.OrtValue.ortvalue_from_numpy(x, "cuda", 0)
    assert (value.device_name(), value.shape(), value.data_type()) == (
        "cuda", [2, 3], "tensor(float)",
    )  # fmt: skip
    assert np.array_equal(value.numpy(), x)
    value.update_inplace(2 * x)
    assert np.array_equal(session.run(["sum"], {"x": 2 * x, "b": b})[0], 2 * x + b)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_cpu_input("b", b)
    binding.bind_output("sum", "cuda", 0)
    binding.bind_output("product")
    for _ in range(3):
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        kept, product = binding.get_outputs()
        assert (kept.device_name(), product.device_name()) == ("cuda", "cpu")
        assert np.array_equal(kept.numpy(), 2 * x + b)
        assert np.array_equal(product.numpy(), 2 * x * b)


def test_outputs_in_memory_of_the_caller(session: ort.InferenceSession) -> None:
    x, b = np.ones((2, 3), np.float32), np.arange(3, dtype=np.float32)
    values = [ort.OrtValue.ortvalue_from_numpy(array, "cuda", 0) for array in (x, b)]
    made = ort.OrtValue.ortvalue_from_shape_and_type
    targets = [made((2, 3), np.float32, "cuda", 0) for _ in range(2)]
    binding = session.io_binding()
    for name, value in zip(("x", "b"), values, strict=True):
        binding.bind_input(name, "cuda", 0, np.float32, value.shape(), value.data_ptr())
    binding.bind_ortvalue_output("sum", targets[0])
    binding.bind_output("product", "cuda", 0, np.float32, (2, 3), targets[1].data_ptr())
    session.run_with_iobinding(binding)
    binding.synchronize_outputs()
    assert np.array_equal(targets[0].numpy(), x + b)
    assert np.array_equal(targets[1].numpy(), x * b)
    assert np.array_equal(binding.copy_outputs_to_cpu()[1], x * b)
