"""Plugins of TensorRT's library by the registry and the network interface."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rabbet as trt
from rabbet._classes._compositions import COMPOSITIONS

from tests.python.importer.test_trt_plugins import detections, random_boxes
from tests.python.support.plugins import build, random

REGISTRY = trt.get_plugin_registry()
KIND = trt.PluginFieldType
RESULTS = ["num", "boxes", "scores", "classes"]


@pytest.fixture(autouse=True)
def registered() -> None:
    trt.init_libnvinfer_plugins(None, "")


def plugin(name: str, fields: dict[str, Any], version: str = "1") -> Any:
    """Of its creator, as scripts for TensorRT make it."""
    kinds = {"f": KIND.FLOAT32, "i": KIND.INT32}
    listed = [
        trt.PluginField(field, value, kinds[value.dtype.kind])
        for field, value in ((name, np.atleast_1d(x)) for name, x in fields.items())
    ]
    creator = REGISTRY.get_creator(name, version, "")
    return creator.create_plugin(name, trt.PluginFieldCollection(listed))


def test_creators_are_those_of_the_importer() -> None:
    folder = Path(__file__).parents[3] / "src" / "onnx"
    text = "".join(path.read_text() for path in folder.rglob("ops_*.c"))
    names = set(re.findall(r'RABBET_ONNX_PLUGIN_OP\("TRT",\s*(\w+),', text))
    assert names == set(COMPOSITIONS)
    listed = {(one.name, one.plugin_version) for one in REGISTRY.plugin_creator_list}
    assert listed >= {(name, v) for name, kind in COMPOSITIONS.items() for v in kind.versions}


def test_registry() -> None:
    creator = REGISTRY.get_plugin_creator("EfficientNMS_TRT", "1", "")
    assert creator is REGISTRY.get_creator("EfficientNMS_TRT", "1", "")
    assert "iou_threshold" in [field.name for field in creator.field_names]
    assert REGISTRY.get_creator("EfficientNMS_TRT", "9", "") is None
    assert REGISTRY.get_creator("EfficientNMS_TRT", "1", "of_a_test") is None
    trt.init_libnvinfer_plugins(None, "of_a_test")
    other = REGISTRY.get_creator("EfficientNMS_TRT", "1", "of_a_test")
    assert other.plugin_namespace == "of_a_test"
    assert REGISTRY.deregister_creator(other)
    assert REGISTRY.get_creator("EfficientNMS_TRT", "1", "of_a_test") is None
    made = plugin("EfficientNMS_TRT", {})
    assert (made.plugin_type, made.plugin_version, made.num_outputs) == (
        "EfficientNMS_TRT", "1", 4)  # fmt: skip


@pytest.mark.parametrize("method", ["add_plugin_v2", "add_plugin_v3"])
def test_efficient_nms(method: str) -> None:
    rng = np.random.default_rng(0)
    boxes = random_boxes(rng, 2, 12)
    scores = rng.random((2, 12, 3)).astype(np.float32)
    fields = {
        "score_threshold": np.float32(0.4), "iou_threshold": np.float32(0.3),
        "max_output_boxes": np.int32(5), "background_class": np.int32(-1),
        "score_activation": np.int32(0), "box_coding": np.int32(0),
    }  # fmt: skip
    logger = trt.Logger()
    network = trt.Builder(logger).create_network()
    x, y = (network.add_input(n, trt.float32, a.shape) for n, a in
            (("x", boxes), ("y", scores)))  # fmt: skip
    # It reads a layer's tensor, as it does behind a detector.
    near = network.add_identity(x).get_output(0)
    shapes = [[]] if method == "add_plugin_v3" else []
    layer = getattr(network, method)([near, y], *shapes, plugin("EfficientNMS_TRT", fields))
    assert layer.type is trt.LayerType.PLUGIN_V2
    assert (layer.num_inputs, layer.num_outputs) == (2, 4)
    assert layer.get_output(4) is None
    assert layer.get_input(1) == y
    layer.set_input(0, x)
    assert layer.get_input(0) == x
    layer.name = "nms"
    for i, name in enumerate(RESULTS):
        layer.get_output(i).name = name
        network.mark_output(layer.get_output(i))
    model = trt.compile(network, device="cpu", optimization_level=0)
    number, at, score, label = (model.run({"x": boxes, "y": scores})[name] for name in RESULTS)
    for i in range(2):
        wanted = detections(boxes[i], scores[i], 5, 0.4, 0.3, False, -1)
        count = len(wanted)
        assert number[i, 0] == count > 0
        np.testing.assert_allclose(score[i, :count], [s for s, _, _ in wanted], rtol=1e-5)
        assert label[i, :count].tolist() == [of for _, of, _ in wanted]
        np.testing.assert_array_equal(at[i, :count], boxes[i][[box for *_, box in wanted]])


def test_weights_in_fields() -> None:
    """Those of a normalization are inputs of ONNX's operator, and attributes of BERT's."""
    x, scale, bias = random(2, 3, 5, 4), random(3, seed=1), random(3, seed=2)
    norm = {"epsilon": np.float32(1e-4), "scales": scale, "bias": bias, "relu": np.int32(1)}
    hidden, gamma, beta = random(5, 2, 8, 1, 1), random(8, seed=3), random(8, seed=4)
    skip = {"ld": np.int32(8), "type_id": np.int32(0), "gamma": gamma, "beta": beta}

    def make(network: Any) -> Any:
        a = network.add_input("a", trt.float32, x.shape)
        b = network.add_input("b", trt.float32, hidden.shape)
        first = network.add_plugin_v2([a], plugin("InstanceNormalization_TRT", norm, "2"))
        second = network.add_plugin_v2([b, b], plugin("CustomSkipLayerNormPluginDynamic", skip))
        return first.get_output(0), second.get_output(0)

    found = build(make, optimization_level=0)(x, hidden)
    mean, variance = x.mean((2, 3), keepdims=True), x.var((2, 3), keepdims=True)
    y = (x - mean) / np.sqrt(variance + 1e-4) * scale[:, None, None] + bias[:, None, None]
    np.testing.assert_allclose(found[0], np.maximum(y, 0), rtol=1e-4, atol=1e-5)
    z = (2 * hidden)[..., 0, 0]
    z = (z - z.mean(2, keepdims=True)) / z.std(2, keepdims=True) * gamma + beta
    np.testing.assert_allclose(found[1][..., 0, 0], z, rtol=1e-3, atol=1e-4)


def test_texts() -> None:
    x, updates = random(4, 3), random(2, 3, seed=1)
    at = np.array([[1, 0, 2], [1, 3, 2]], np.int32)
    fields = trt.PluginFieldCollection([
        trt.PluginField("axis", np.int32([0]), KIND.INT32),
        trt.PluginField("reduction", b"add", KIND.CHAR),
    ])  # fmt: skip

    def make(network: Any) -> Any:
        tensors = [
            network.add_input(f"x{i}", trt._arrays.dtype_of(v.dtype), v.shape)
            for i, v in enumerate((x, at, updates))
        ]
        made = REGISTRY.get_creator("ScatterElements", "1", "").create_plugin("", fields)
        return network.add_plugin_v2(tensors, made).get_output(0)

    wanted = x.copy()
    np.add.at(wanted, (at, np.arange(3)[None]), updates)
    found = build(make, optimization_level=0)(x, at, updates)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_wrong_fields() -> None:
    with pytest.raises(ValueError, match="'max_output_boxes' of 'EfficientNMS_TRT' holds 2"):
        plugin("EfficientNMS_TRT", {"max_output_boxes": np.int32([1, 2])})
    for number in (0.5, np.nan, np.inf):
        with pytest.raises(ValueError, match=f"{number}; expected an integer"):
            plugin("EfficientNMS_TRT", {"max_output_boxes": np.float32(number)})
    field = trt.PluginField("reduction", b"\xff", KIND.CHAR)
    with pytest.raises(ValueError, match="holds bytes that are no text in UTF-8"):
        creator = REGISTRY.get_creator("ScatterElements", "1", "")
        creator.create_plugin("", trt.PluginFieldCollection([field]))

    network = trt.Builder(trt.Logger()).create_network()
    ids = [network.add_input(name, trt.int32, (4, 1)) for name in "abc"]
    names = ("layernorm_beta", "layernorm_gamma", "word_embeddings")
    weights = {f"bert_embeddings_{name}": np.ones(3, np.float32) for name in names}
    weights["bert_embeddings_word_embeddings"] = np.ones(7, np.float32)
    made = plugin("CustomEmbLayerNormPluginDynamic", weights)
    with pytest.raises(ValueError, match="holds 7 values; expected rows of 3"):
        network.add_plugin_v2(ids, made)

    class Logger(trt.ILogger):
        def __init__(self) -> None:
            super().__init__()
            self.messages: list[str] = []

        def log(self, severity: Any, msg: str) -> None:
            self.messages.append(msg)

    logger = Logger()
    network = trt.Builder(logger).create_network()
    x, y = (network.add_input(n, trt.float32, s) for n, s in
            (("x", (1, 4, 4)), ("y", (1, 4, 2))))  # fmt: skip
    network.add_plugin_v2([x, y], plugin("EfficientNMS_TRT", {"mode": np.int32(1)}))
    wanted = "plugin 'EfficientNMS_TRT' has no field 'mode', which is ignored"
    assert wanted in logger.messages
    bad = plugin("EfficientNMS_TRT", {"max_output_boxes": np.int32(0)})
    with pytest.raises(trt.Error, match=r"EfficientNMS_TRT.*'max_output_boxes' is 0"):
        network.add_plugin_v2([x, y], bad)
