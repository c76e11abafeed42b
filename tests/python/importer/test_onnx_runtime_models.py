"""Models that ONNX Runtime's optimizer and quantizer make of exported ones, against ONNX
Runtime."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import rabbet
from onnxruntime import quantization

torch = pytest.importorskip("torch")

HEADS, WIDTH, LENGTH = 4, 32, 6


class Block(torch.nn.Module):
    """A layer of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(WIDTH) for _ in range(2))
        self.up, self.down = torch.nn.Linear(WIDTH, 64), torch.nn.Linear(64, WIDTH)

    def forward(self, x: Any) -> Any:
        q, k, v = (
            one(x).view(-1, LENGTH, HEADS, WIDTH // HEADS).transpose(1, 2) for one in self.qkv[:3]
        )
        scores = q @ k.transpose(2, 3) / (WIDTH // HEADS) ** 0.5
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, LENGTH, WIDTH)
        x = self.norms[0](x + self.qkv[3](y))
        return self.norms[1](x + self.down(torch.nn.functional.gelu(self.up(x))))


class Pictures(torch.nn.Module):
    """Convolutions with a branch and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.b = torch.nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.c = torch.nn.Linear(16, 10)

    def forward(self, x: Any) -> Any:
        x = torch.nn.functional.leaky_relu(self.a(x), 0.1)
        y = x + torch.relu(self.b(x))
        y = torch.cat([y, torch.sigmoid(x) * x], 1)
        return self.c(y.mean((2, 3)))


SHAPES = {Block: (2, LENGTH, WIDTH), Pictures: (2, 3, 16, 16)}


def given(kind: Any, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(SHAPES[kind]).astype(np.float32)


def exported(kind: Any, path: Path) -> Path:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            kind().eval(), (torch.from_numpy(given(kind)),), path, dynamo=False,
            input_names=["x"], opset_version=17, dynamic_axes={"x": {0: "batch"}})  # fmt: skip
    return path


class Samples(quantization.CalibrationDataReader):
    def __init__(self, kind: Any) -> None:
        self.left = [{"x": given(kind, seed)} for seed in range(4)]

    def get_next(self) -> Any:
        return self.left.pop() if self.left else None


def optimized(source: Path, target: Path, kind: Any) -> None:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(target)
    onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def transformed(source: Path, target: Path, kind: Any) -> None:
    from onnxruntime.transformers import optimizer

    made = optimizer.optimize_model(
        str(source), "bert", num_heads=HEADS, hidden_size=WIDTH, opt_level=0)  # fmt: skip
    made.save_model_to_file(str(target))


def dynamic(source: Path, target: Path, kind: Any, weights: Any = None) -> None:
    weights = weights or quantization.QuantType.QInt8
    # 7 bits: without VNNI ONNX Runtime's sums of two products of 8 bits saturate.
    reduced = weights is quantization.QuantType.QInt8
    quantization.quantize_dynamic(source, target, weight_type=weights, reduce_range=reduced)


def dynamic_unsigned(source: Path, target: Path, kind: Any) -> None:
    dynamic(source, target, kind, quantization.QuantType.QUInt8)


def static(source: Path, target: Path, kind: Any, form: Any = None, **options: Any) -> None:
    form = form or quantization.QuantFormat.QDQ
    quantization.quantize_static(source, target, Samples(kind), quant_format=form, **options)


def static_channels(source: Path, target: Path, kind: Any) -> None:
    static(source, target, kind, per_channel=True, reduce_range=True,
           activation_type=quantization.QuantType.QUInt8)  # fmt: skip


def operators(source: Path, target: Path, kind: Any) -> None:
    static(source, target, kind, quantization.QuantFormat.QOperator)


def operators_unsigned(source: Path, target: Path, kind: Any) -> None:
    static(source, target, kind, quantization.QuantFormat.QOperator,
           activation_type=quantization.QuantType.QUInt8,
           weight_type=quantization.QuantType.QUInt8)  # fmt: skip


def static_optimized(source: Path, target: Path, kind: Any) -> None:
    static_channels(source, target.with_suffix(".first"), kind)
    optimized(target.with_suffix(".first"), target, kind)


def dynamic_optimized(source: Path, target: Path, kind: Any) -> None:
    dynamic(source, target.with_suffix(".first"), kind)
    optimized(target.with_suffix(".first"), target, kind)


MAKERS = [
    optimized, transformed, dynamic, dynamic_unsigned, static, static_channels, operators,
    operators_unsigned, static_optimized, dynamic_optimized,
]  # fmt: skip


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("kind", [Block, Pictures])
def test_as_onnx_runtime(kind: Any, make: Any, tmp_path: Path) -> None:
    if make is transformed and kind is Pictures:
        pytest.skip("for transformers")
    source, target = exported(kind, tmp_path / "source.onnx"), tmp_path / "target.onnx"
    make(source, target, kind)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    theirs = onnxruntime.InferenceSession(target, options, providers=["CPUExecutionProvider"])
    shape = SHAPES[kind]
    ours = rabbet.compile(
        target, device="cpu", optimization_level=0,
        shapes={"x": (shape, shape, (3, *shape[1:]))})  # fmt: skip
    x = given(kind, 9)
    for batch in (x, np.concatenate([x, x])[:3]):
        want = theirs.run(None, {"x": batch})[0]
        # A number halfway between two of 8 bits may be rounded to either.
        bound = 1e-4 if make in (optimized, transformed) else 0.03
        assert np.abs(np.asarray(ours(batch)) - want).max() <= bound * np.abs(want).max()


def test_files_in_the_layout_of_a_processor_are_refused() -> None:
    """ONNX Runtime saves them at its highest level, which is its default."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [
        helper.make_node("ReorderInput", ["x"], ["a"], domain="com.microsoft.nchwc"),
        helper.make_node(
            "MaxPool", ["a"], ["b"], domain="com.microsoft.nchwc", kernel_shape=[2, 2]
        ),
    ]
    sides = [[helper.make_tensor_value_info(n, kind, (1, 16, 8, 8))] for n in "xb"]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft.nchwc", 1)]
    model = helper.make_model(helper.make_graph(nodes, "g", *sides), opset_imports=opsets)
    with pytest.raises(rabbet.Error, match=r"ReorderInput.*save it at ORT_ENABLE_EXTENDED"):
        rabbet.compile(model.SerializeToString(), device="cpu")
