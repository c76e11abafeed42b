"""Bytes and operations of a plan, counted from what the inspector tells."""

from __future__ import annotations

import pytest
import rabbet as trt

from bench.gpu_bounds import Bounds, bounds, operations, tensor_bytes
from tests.models import make


def of(name: str, **options: object) -> Bounds:
    model = make(name, **options).SerializeToString()
    engine = trt.compile(model, device="cpu", optimization_level=0).engine
    kind = trt.LayerInformationFormat.JSON
    return bounds(engine.create_engine_inspector().get_engine_information(kind))


def test_a_transformer() -> None:
    b, s, h, ffn = 2, 32, 48, 96
    found = of("bert_base", batch=b, sequence=s, layers=1, hidden=h, heads=4, ffn=ffn,
               vocabulary=50)  # fmt: skip
    linear = 2 * b * s * (4 * h * h + 2 * h * ffn) + 2 * b * h * h
    assert found.operations == linear + 4 * b * s * s * h


def test_products_read_their_weights() -> None:
    found = of("mlp", batch=2)
    assert found.operations == 3 * 2 * 2 * 1024 * 1024
    weights, biases, rows = 3 * 4 * 1024 * 1024, 3 * 4 * 1024, 6 * 2 * 4 * 1024
    assert found.bytes >= weights + biases + rows
    assert found.bytes < 1.01 * (weights + biases + rows)


def test_the_largest_bounds() -> None:
    assert Bounds(1, int(4.28e9), 0).verdict("tf32", 2e-3) == "bandwidth 50%"
    assert Bounds(1, 0, int(989e9)).verdict("fp16", 1.25e-3) == "compute 80%"
    assert Bounds(92, 1000, 1000).verdict("fp16", 2e-4) == "launches 50%"
    slow = Bounds(92, 1000, 1000).verdict("fp16", 1e-3)
    assert slow == "latency of 92 kernels (launches 10%)"


def test_convolutions() -> None:
    assert of("resnet50", batch=1).operations == pytest.approx(2 * 4.089e9, rel=0.01)


def layer(*operators: str, inputs: list[list[int]], output: list[int]) -> dict:
    def tensor(shape: list[int]) -> dict:
        return {"Dimensions": shape, "Format/Datatype": "LINEAR FP16"}

    return {
        "Layers": [{"Operator": name} for name in operators],
        "Inputs": [tensor(shape) for shape in inputs],
        "Outputs": [tensor(output)],
    }


def test_fused_groups() -> None:
    heads = [2, 4, 16, 8]
    attention = layer("matrix_multiply", "softmax", "matrix_multiply",
                      inputs=[heads, heads, heads], output=heads)  # fmt: skip
    assert operations(attention) == 2 * 2 * 2 * 4 * 16 * 16 * 8
    # Three products of one matrix, side by side.
    wide = layer("matrix_multiply", "matrix_multiply", "matrix_multiply",
                 inputs=[[1, 16, 8], [1, 8, 4], [1, 8, 4], [1, 8, 4], [1, 1, 4]],
                 output=[1, 16, 12])  # fmt: skip
    assert operations(wide) == 3 * 2 * 16 * 8 * 4
    upwards = layer("deconvolution", inputs=[[1, 8, 5, 5], [8, 4, 2, 2]],
                    output=[1, 4, 10, 10])  # fmt: skip
    assert operations(upwards) == 2 * 8 * 25 * 4 * 4
    assert tensor_bytes(upwards["Inputs"][0]) == 400
