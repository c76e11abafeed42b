"""Plugins of TensorRT's library that files name, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import rabbet
import rabbet.plugin as trtp
from onnx import helper, numpy_helper

RESULTS = ["num_detections", "detection_boxes", "detection_scores", "detection_classes"]


def model_of(
    node: Any, inputs: dict[str, Any], outputs: list[str], constants: dict[str, Any] | None = None
) -> bytes:
    kinds = {"num_detections": 6, "detection_classes": 6}
    graph = helper.make_graph(
        [node], "g",
        [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, x.shape)
         for n, x in inputs.items()],
        [helper.make_tensor_value_info(n, kinds.get(n, 1), None) for n in outputs],
        [numpy_helper.from_array(x, n) for n, x in (constants or {}).items()])  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("TRT", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def overlap(a: Any, b: Any) -> float:
    sides = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
    both = sides.clip(0).prod()
    return float(both / ((a[2:] - a[:2]).prod() + (b[2:] - b[:2]).prod() - both))


def detections(
    boxes: Any, scores: Any, most: int, bound: float, limit: float, agnostic: bool, background: int
) -> list[tuple[float, int, int]]:
    """(score, class, box) of one image, the best first."""
    found: list[tuple[float, int, int]] = []
    for at in np.argsort(-scores.ravel(), kind="stable"):
        box, label = divmod(int(at), scores.shape[1])
        if scores[box, label] < bound or label == background:
            continue
        rivals = [other for _, of, other in found if agnostic or of == label]
        if all(overlap(boxes[box], boxes[other]) <= limit for other in rivals):
            found.append((float(scores[box, label]), label, box))
    return found[:most]


def random_boxes(rng: Any, batch: int, count: int) -> Any:
    corner = rng.uniform(0, 10, (batch, count, 2))
    return np.concatenate([corner, corner + rng.uniform(1, 6, corner.shape)], -1).astype("f4")


@pytest.mark.parametrize("domain", ["", "TRT"])
@pytest.mark.parametrize("agnostic", [0, 1])
@pytest.mark.parametrize("coding", [0, 1])
@pytest.mark.parametrize("activation", [0, 1])
@pytest.mark.parametrize(("most", "background"), [(5, -1), (100, 1)])
def test_efficient_nms(
    most: int, background: int, activation: int, coding: int, agnostic: int, domain: str
) -> None:
    rng = np.random.default_rng(most)
    boxes = random_boxes(rng, 2, 12)
    raw = rng.standard_normal((2, 12, 3)).astype(np.float32)
    scores = 1 / (1 + np.exp(-raw))
    given = boxes
    if coding:
        given = np.concatenate(
            [(boxes[..., :2] + boxes[..., 2:]) / 2, boxes[..., 2:] - boxes[..., :2]], -1)
    node = helper.make_node(
        "EfficientNMS_TRT", ["boxes", "scores"], RESULTS, domain=domain, plugin_version="1",
        max_output_boxes=most, score_threshold=0.4, iou_threshold=0.3, box_coding=coding,
        score_activation=activation, class_agnostic=agnostic, background_class=background)
    inputs = {"boxes": given, "scores": raw if activation else scores}
    run = rabbet.compile(model_of(node, inputs, RESULTS), device="cpu", optimization_level=0)
    number, at, score, label = (np.asarray(x) for x in run(*inputs.values()))
    assert (number.dtype, label.dtype) == (np.int32, np.int32)
    assert (number.shape, at.shape, label.shape) == ((2, 1), (2, most, 4), (2, most))
    for i in range(2):
        wanted = detections(boxes[i], scores[i], most, 0.4, 0.3, bool(agnostic), background)
        count = len(wanted)
        assert count > 0
        assert number[i, 0] == count
        np.testing.assert_allclose(score[i, :count], [s for s, _, _ in wanted], rtol=1e-5)
        assert label[i, :count].tolist() == [of for _, of, _ in wanted]
        np.testing.assert_allclose(
            at[i, :count], boxes[i][[box for _, _, box in wanted]], rtol=1e-4, atol=1e-4)
        assert not score[i, count:].any()
        assert not at[i, count:].any()


def test_efficient_nms_with_anchors_is_refused() -> None:
    rng = np.random.default_rng(0)
    inputs = {"b": random_boxes(rng, 1, 4), "s": rng.random((1, 4, 2), "f4"),
              "a": random_boxes(rng, 1, 4)}  # fmt: skip
    node = helper.make_node("EfficientNMS_TRT", list(inputs), RESULTS, domain="TRT")
    with pytest.raises(rabbet.Error, match=r"EfficientNMS_TRT.*input 2 \('anchors'\) is given"):
        rabbet.compile(model_of(node, inputs, RESULTS), device="cpu")


@pytest.mark.parametrize(("relu", "alpha"), [(0, 0.0), (1, 0.0), (1, 0.2)])
def test_instance_normalization(relu: int, alpha: float) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, 3, 5, 4)).astype(np.float32)
    scale, shift = rng.standard_normal((2, 3)).astype(np.float32)
    node = helper.make_node(
        "InstanceNormalization_TRT", ["x", "s", "b"], ["y"], epsilon=1e-4, relu=relu, alpha=alpha)
    run = rabbet.compile(
        model_of(node, {"x": x}, ["y"], {"s": scale, "b": shift}), device="cpu",
        optimization_level=0)
    mean, variance = x.mean((2, 3), keepdims=True), x.var((2, 3), keepdims=True)
    y = (x - mean) / np.sqrt(variance + 1e-4) * scale[:, None, None] + shift[:, None, None]
    y = np.where(y < 0, y * alpha, y) if relu else y
    np.testing.assert_allclose(np.asarray(run(x)), y, rtol=1e-4, atol=1e-5)


def test_a_registered_plugin_comes_first() -> None:
    name = "TRT::InstanceNormalization_TRT"

    def describe(
        x: trtp.TensorDesc, s: trtp.TensorDesc, b: trtp.TensorDesc, epsilon: float
    ) -> tuple[trtp.TensorDesc]:
        return x.like()

    def sevens(
        x: trtp.Tensor, s: trtp.Tensor, b: trtp.Tensor, epsilon: float,
        outputs: tuple[trtp.Tensor], stream: int
    ) -> None:  # fmt: skip
        np.asarray(outputs[0])[...] = 7

    trtp.register(name)(describe)
    trtp.impl(name)(sevens)
    try:
        x, one = np.zeros((1, 2, 3, 3), np.float32), np.ones(2, np.float32)
        node = helper.make_node(
            "InstanceNormalization_TRT", ["x", "s", "b"], ["y"], domain="TRT", epsilon=1e-5)
        inputs = {"x": x, "s": one, "b": one}
        run = rabbet.compile(model_of(node, inputs, ["y"]), device="cpu")
        assert (np.asarray(run(*inputs.values())) == 7).all()
    finally:
        trtp._plugin.QDP_REGISTRY[name].deregister()
