"""BERT with an operator after each layer: its forms agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import rabbet as trt
import rabbet.plugin as trtp

from bench.bert_gate import NAMESPACE, gains, with_gates
from tests.models import make, reference, sample_inputs

SMALL = {"batch": 1, "sequence": 8, "layers": 3, "hidden": 48, "heads": 12, "ffn": 96,
         "vocabulary": 50, "positions": 16}  # fmt: skip


def gated(x: Any, g: Any) -> Any:
    return x / (1 + np.exp(-1.702 * x)) * g


@trtp.register(f"{NAMESPACE}::on_cpu")
def gate_desc(x: trtp.TensorDesc, g: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()


@trtp.impl(f"{NAMESPACE}::on_cpu", device="cpu")
def gate(x, g, outputs):
    np.asarray(outputs[0])[...] = gated(np.asarray(x), np.asarray(g))


def test_plain_operators_and_plugin_agree() -> None:
    model = make("bert_base", **SMALL)
    inputs = sample_inputs(model)
    plain = with_gates(model, None)
    onnx.checker.check_model(plain)
    expected = reference(plain, inputs)
    without = reference(model, inputs)
    assert not np.allclose(
        expected["pooler_output"], without["pooler_output"], atol=0.1
    )
    own = with_gates(model, "on_cpu")
    assert [n.op_type for n in own.graph.node].count("on_cpu") == 3
    found = trt.compile(own.SerializeToString(), device="cpu")(**inputs)
    for name, value in zip(expected, found, strict=True):
        np.testing.assert_allclose(value, expected[name], atol=1e-4)


def test_torch_agrees(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from bench.peers.torch_transformers import native

    model = make("bert_base", **SMALL)
    onnx.save(model, tmp_path / "bert.onnx")
    inputs = sample_inputs(model)
    factor = torch.from_numpy(gains(48))
    module, names, outputs = native(
        str(tmp_path / "bert.onnx"),
        after=lambda x: x * torch.sigmoid(1.702 * x) * factor,
    )
    with torch.inference_mode():
        results = module(*[torch.from_numpy(inputs[n]) for n in names])
    expected = reference(with_gates(model, None), inputs)
    for name, result in zip(outputs, results, strict=True):
        np.testing.assert_allclose(result.numpy(), expected[name], atol=1e-4)
