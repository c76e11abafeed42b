"""The models are valid, run in ONNX Runtime, and have values that prove something."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.models import (
    known_operators,
    make,
    model_path,
    reference,
    relative_error,
    sample_inputs,
    save,
)
from tests.models.__main__ import main
from tests.models.graph import PLUGIN_OP
from tests.models.light import names, shipped

TINY_RESNET = {"size": 64, "width": 8, "blocks": (1, 2, 1, 1), "classes": 10}
TINY_BERT = {
    "layers": 2,
    "hidden": 32,
    "heads": 4,
    "ffn": 64,
    "vocabulary": 100,
    "positions": 64,
}
TINY_UNET = {"size": 32, "width": 4, "levels": 3}
DIMS = {"batch": 2, "sequence": 7}

CASES: list[tuple[str, dict[str, Any]]] = [
    ("resnet50", TINY_RESNET),
    ("resnet50", {**TINY_RESNET, "batch": "batch", "batch_norm": False}),
    ("resnet50_circular", TINY_RESNET),
    ("resnet50_circular", {**TINY_RESNET, "batch": "batch"}),
    ("bert_base", TINY_BERT),
    ("bert_base", {**TINY_BERT, "batch": 2, "sequence": 5, "mask": False}),
    ("bert_base", {**TINY_BERT, "gelu": "tanh", "layer_norm": "parts"}),
    ("bert_base", {**TINY_BERT, "gelu": "op", "opset": 20, "layer_norm": "parts"}),
    ("gpt2_small", TINY_BERT),
    ("gpt2_small", {**TINY_BERT, "head": "last", "sequence": 6}),
    ("gpt2_small", {**TINY_BERT, "head": "all", "gelu": "erf"}),
    ("unet256", TINY_UNET),
    ("unet256", {**TINY_UNET, "upsample": "nearest"}),
    ("unet256", {**TINY_UNET, "upsample": "shuffle", "batch": "batch"}),
    ("mlp", {"features": 64}),
    ("lstm", {"steps": 6, "features": 12, "hidden": 20}),
    ("elementwise200", {"channels": 4, "size": 8}),
    ("demo", {}),
    ("resnet50_int8", {**TINY_RESNET, "form": "operators"}),
    ("decoder_int4", {**TINY_BERT, "batch": 1, "sequence": 1}),
    ("light_squeezenet", {}),
]


def _sane(name: str, values: np.ndarray[Any, Any]) -> None:
    """Finite, within float16's range, and neither constant nor vanishing."""
    assert np.isfinite(values).all(), f"{name} is not finite"
    assert np.abs(values).max() < 3e4, f"{name} reaches {np.abs(values).max()}"
    if values.size > 16:
        spread = values.std() / np.abs(values).max()
        assert spread > 1e-3, f"{name} hardly varies: {spread}"


@pytest.mark.parametrize(("name", "options"), CASES)
def test_values_are_sane(name: str, options: dict[str, Any]) -> None:
    if name == "decoder_int4":
        pytest.importorskip("onnx_ir")  # ONNX Runtime's quantizer needs it
    model = make(name, **options)
    inputs = sample_inputs(model, dims=DIMS)
    tensors = reference(model, inputs, intermediates=True)
    masks = ("mask", "masked", "causal", "lowest")
    for tensor, values in tensors.items():
        masked = any(part in tensor for part in masks)
        if values.dtype == np.float32 and not masked:
            _sane(tensor, values)
    outputs = [info.name for info in model.graph.output]
    other = reference(model, sample_inputs(model, dims=DIMS, seed=1))
    for output in outputs:
        assert relative_error(other[output], tensors[output]) > 1e-2, output


# Their weights are 240 to 570 MB; bench/ compares them between engines.
LARGE = {"light_bvlc_alexnet", "light_vgg19", "light_zfnet512"}


@pytest.mark.parametrize("name", sorted(set(names()) - LARGE))
def test_refilled_models_are_sane(name: str) -> None:
    model = make(name)
    inputs = sample_inputs(model)
    outputs = reference(model, inputs)
    other = reference(model, sample_inputs(model, seed=1))
    for output, values in outputs.items():
        _sane(output, values)
        assert relative_error(other[output], values) > 1e-3
    constant = [n.name for n in model.graph.node if n.op_type == "ConstantOfShape"]
    assert not constant


@pytest.mark.parametrize("name", ["light_squeezenet", "light_resnet50"])
def test_shipped_models_are_untouched(name: str) -> None:
    assert make(name, filled=False) == onnx.load(shipped(name))


def test_same_seed_same_bytes_other_seed_other_weights() -> None:
    first, again, other = (
        make("mlp", features=16, seed=seed).SerializeToString(deterministic=True)
        for seed in (3, 3, 4)
    )
    assert first == again
    assert first != other


def test_circular_forms_agree_with_numpy_padding() -> None:
    plugin = make("resnet50_circular", **TINY_RESNET)
    inputs = sample_inputs(plugin)
    tensors = reference(plugin, inputs, intermediates=True)
    padding = [n for n in plugin.graph.node if n.op_type == PLUGIN_OP]
    assert len(padding) == 1 + sum(TINY_RESNET["blocks"])
    for node in padding:
        source = {**inputs, **tensors}[node.input[0]]
        pad = 3 if node.name == "conv1.pad" else 1
        width = ((0, 0), (0, 0), (pad, pad), (pad, pad))
        expected = np.pad(source, width, mode="wrap")
        np.testing.assert_array_equal(tensors[node.output[0]], expected)
    for form in ("slices", "wrap"):
        written = make("resnet50_circular", **TINY_RESNET, padding=form)
        assert PLUGIN_OP not in {n.op_type for n in written.graph.node}
        result = reference(written, inputs)["logits"]
        assert relative_error(result, tensors["logits"]) < 1e-6


def test_circular_and_zero_padding_share_weights_and_differ() -> None:
    zero = make("resnet50", **TINY_RESNET)
    circular = make("resnet50_circular", **TINY_RESNET)
    weights = [
        {t.name: t.raw_data for t in model.graph.initializer}
        for model in (zero, circular)
    ]
    assert weights[0] == weights[1]
    inputs = sample_inputs(zero)
    logits = [reference(model, inputs)["logits"] for model in (zero, circular)]
    assert relative_error(logits[1], logits[0]) > 1e-2


def test_static_and_dynamic_forms_agree() -> None:
    dynamic = make("bert_base", **TINY_BERT)
    static = make("bert_base", **TINY_BERT, **DIMS)
    operators = [{n.op_type for n in m.graph.node} for m in (dynamic, static)]
    assert "Shape" in operators[0]
    assert "Shape" not in operators[1]
    inputs = sample_inputs(dynamic, dims=DIMS)
    for name, values in reference(dynamic, inputs).items():
        assert relative_error(reference(static, inputs)[name], values) < 1e-6


def test_bert_equals_its_definition_in_numpy() -> None:
    """One layer of the encoder, written again with NumPy alone."""
    model = make("bert_base", **{**TINY_BERT, "layers": 1})
    inputs = sample_inputs(model, dims=DIMS)
    w = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    w = {name: value.astype(np.float64) for name, value in w.items()}

    def norm(x: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)
        return x * w[f"{name}.weight"] + w[f"{name}.bias"]

    def linear(x: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

    def heads(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return x.reshape(2, 7, 4, 8).transpose(0, 2, 1, 3)

    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    x = w["embeddings.word.weight"][ids] + w["embeddings.token_type"]
    x = norm(x + w["embeddings.position.weight"][:7], "embeddings.norm")
    name = "encoder.0.attention"
    q, k, v = (heads(linear(x, f"{name}.{part}")) for part in ("query", "key", "value"))
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(8)
    scores = np.where(mask[:, None, None, :] == 1, scores, -np.inf)
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    scores /= scores.sum(-1, keepdims=True)
    y = (scores @ v).transpose(0, 2, 1, 3).reshape(2, 7, 32)
    x = norm(x + linear(y, f"{name}.output"), f"{name}.norm")
    y = linear(x, "encoder.0.intermediate")
    erf = np.vectorize(math.erf)
    y = linear(y * (1 + erf(y / np.sqrt(2))) / 2, "encoder.0.output")
    expected = norm(x + y, "encoder.0.norm")
    actual = reference(model, inputs)["last_hidden_state"]
    assert relative_error(actual, expected) < 1e-5


def test_gpt2_looks_only_back() -> None:
    model = make("gpt2_small", **TINY_BERT)
    inputs = sample_inputs(model, dims=DIMS)
    before = reference(model, inputs)["hidden_states"]
    inputs["input_ids"][:, 4] += 1
    after = reference(model, inputs)["hidden_states"]
    np.testing.assert_array_equal(before[:, :4], after[:, :4])
    assert (np.abs(before[:, 4:] - after[:, 4:]).max(axis=(0, 2)) > 1e-4).all()


def test_elementwise_has_only_elementwise_operators() -> None:
    model = make("elementwise200")
    assert len(model.graph.node) == 200
    operators = {n.op_type for n in model.graph.node}
    assert operators <= {"Mul", "Add", "Relu", "Sub", "Abs", "Max", "Neg", "Min"}


def test_external_data_gives_the_same_results(tmp_path: Path) -> None:
    inside = make("mlp", features=64)
    path = tmp_path / "mlp.onnx"
    save(inside, path, external=True)
    assert (tmp_path / "mlp.onnx.data").stat().st_size >= 3 * 64 * 64 * 4
    assert path.stat().st_size < 8192
    inputs = sample_inputs(path)
    expected = reference(inside, inputs)["y"]
    np.testing.assert_array_equal(reference(path, inputs)["y"], expected)


def test_cache_makes_a_model_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RABBET_MODEL_CACHE", str(tmp_path))
    first = model_path("mlp", features=16)
    stamp = first.stat().st_mtime_ns
    assert model_path("mlp", features=16) == first
    assert first.stat().st_mtime_ns == stamp
    assert model_path("mlp", features=32) != first
    stale = first.with_name(first.name.rsplit("-", 1)[0] + "-0123456789.onnx")
    first.rename(stale)
    assert model_path("mlp", features=16) == first
    assert not stale.exists()


def test_command_writes_a_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "net.onnx"
    options = "--batch N --size 32 --width 4 --blocks 1,1,1,1 --no-batch-norm"
    assert main(["resnet50", "--out", str(out), *options.split()]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    model = onnx.load(out)
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"
    assert "BatchNormalization" not in {n.op_type for n in model.graph.node}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("resnet51", {}, "no model 'resnet51'"),
        ("mlp", {"width": 3}, "no option 'width'"),
        ("resnet50", {"padding": "mirror"}, "not 'mirror'"),
        ("bert_base", {"hidden": 30, "heads": 4}, "no multiple"),
        ("bert_base", {"gelu": "op"}, "needs opset 20"),
        ("unet256", {"size": 36}, "can't be halved"),
    ],
)
def test_wrong_options_are_named(
    name: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make(name, **options)


def test_wrap_needs_a_new_opset() -> None:
    with pytest.raises(ValueError, match="needs opset 19"):
        known_operators(make("demo"), "wrap")


def test_symbolic_dimension_must_be_given() -> None:
    with pytest.raises(ValueError, match="symbolic dimension 'batch'"):
        sample_inputs(make("mlp", features=4, batch="batch"))
