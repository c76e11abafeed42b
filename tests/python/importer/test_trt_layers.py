"""Plugins of TensorRT's library that files name: boxes by class, regions, deformed
kernels, BERT. Against NumPy and the reference of the onnx package."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import rabbet
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

RESULTS = ["num_detections", "nmsed_boxes", "nmsed_scores", "nmsed_classes"]


def model_of(node: Any, inputs: dict[str, Any], outputs: list[str]) -> onnx.ModelProto:
    graph = helper.make_graph(
        [node], "g",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
         for n, x in inputs.items()],
        [onnx.ValueInfoProto(name=n) for n in outputs])  # fmt: skip
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(node.domain or "x", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def run(node: Any, inputs: dict[str, Any], device: str = "cpu") -> list[Any]:
    model = model_of(node, inputs, list(node.output))
    compiled = rabbet.compile(model.SerializeToString(), device=device, optimization_level=0)
    found = compiled(*inputs.values())
    return [np.asarray(x) for x in (found if isinstance(found, tuple) else (found,))]


# ---- BatchedNMS --------------------------------------------------------------


def overlap(a: Any, b: Any, more: int) -> float:
    sides = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]) + more
    both = sides.clip(0).prod()
    areas = [(c[2:] - c[:2] + more).prod() for c in (a, b)]
    return float(both / (sum(areas) - both))


def batched(
    boxes: Any, scores: Any, top: int, keep: int, bound: float, limit: float, more: int,
    background: int,
) -> list[tuple[float, int, int]]:  # fmt: skip
    """(score, class, box) of one image, the best first; boxes [boxes, 1 or classes, 4]."""
    found: list[tuple[float, int, int]] = []
    for label in range(scores.shape[1]):
        if label == background:
            continue
        own = boxes[:, label % boxes.shape[1]]
        kept: list[int] = []
        for box in np.argsort(-scores[:, label], kind="stable")[:top]:
            if scores[box, label] > bound and all(
                overlap(own[box], own[other], more) <= limit for other in kept
            ):
                kept.append(int(box))
        found += [(float(scores[box, label]), label, box) for box in kept]
    return sorted(found, reverse=True)[:keep]


@pytest.mark.parametrize(("name", "domain"), [
    ("BatchedNMS_TRT", ""), ("BatchedNMSDynamic_TRT", "TRT"),
])  # fmt: skip
@pytest.mark.parametrize("shared", [0, 1])
@pytest.mark.parametrize(("top", "keep", "background"), [(12, 5, -1), (4, 60, 1)])
@pytest.mark.parametrize("normalized", [0, 1])
def test_batched_nms(
    normalized: int, top: int, keep: int, background: int, shared: int, name: str, domain: str
) -> None:
    rng = np.random.default_rng(top)
    corner = rng.uniform(0, 10, (2, 12, 1 if shared else 3, 2))
    boxes = np.concatenate([corner, corner + rng.uniform(1, 6, corner.shape)], -1).astype("f4")
    if normalized:
        boxes /= 12
    scores = rng.random((2, 12, 3)).astype(np.float32)
    node = helper.make_node(
        name, ["boxes", "scores"], RESULTS, domain=domain, shareLocation=shared, topK=top,
        keepTopK=keep, numClasses=3, backgroundLabelId=background, scoreThreshold=0.3,
        iouThreshold=0.25, isNormalized=normalized)
    number, at, score, label = run(node, {"boxes": boxes, "scores": scores})
    assert number.dtype == np.int32
    assert (number.shape, at.shape, label.shape) == ((2, 1), (2, keep, 4), (2, keep))
    for i in range(2):
        wanted = batched(boxes[i], scores[i], top, keep, 0.3, 0.25, 1 - normalized, background)
        count = len(wanted)
        assert count > 0
        assert number[i, 0] == count
        np.testing.assert_allclose(score[i, :count], [s for s, _, _ in wanted], rtol=1e-5)
        assert label[i, :count].tolist() == [of for _, of, _ in wanted]
        expected = [boxes[i, box, of % boxes.shape[2]] for _, of, box in wanted]
        if normalized:
            expected = np.clip(expected, 0, 1)
        np.testing.assert_allclose(at[i, :count], expected, rtol=1e-5)
        assert not score[i, count:].any()
        assert (label[i, count:] == -1).all()


# ---- Operators of ONNX in another dress ----------------------------------------


def reference(kind: str, inputs: dict[str, Any], opset: int, **attributes: Any) -> Any:
    node = helper.make_node(kind, list(inputs), ["y"], **attributes)
    model = model_of(node, {n: x for n, x in inputs.items() if n}, ["y"])
    model.graph.output[0].type.tensor_type.elem_type = 1
    model.opset_import[0].version = opset
    return ReferenceEvaluator(model).run(None, {n: x for n, x in inputs.items() if n})[0]


@pytest.mark.parametrize(("mode", "word"), [(1, "avg"), (0, "max")])
@pytest.mark.parametrize(("place", "name"), [(1, "half_pixel"), (0, "output_half_pixel")])
def test_roi_align(mode: int, word: str, place: int, name: str) -> None:
    rng = np.random.default_rng(0)
    corner = rng.uniform(0, 8, (5, 2))
    inputs = {
        "x": rng.standard_normal((2, 3, 10, 12)).astype(np.float32),
        "rois": np.concatenate([corner, corner + rng.uniform(1, 9, (5, 2))], 1).astype("f4"),
        "at": np.array([0, 1, 1, 0, 1]),
    }
    common = {"output_height": 3, "output_width": 4, "sampling_ratio": 2, "spatial_scale": 0.5}
    expected = reference("RoiAlign", inputs, 16, mode=word,
                         coordinate_transformation_mode=name, **common)
    inputs["at"] = inputs["at"].astype(np.int32)
    node = helper.make_node("ROIAlign_TRT", list(inputs), ["y"], mode=mode, domain="TRT",
                            coordinate_transformation_mode=place, **common)
    np.testing.assert_allclose(run(node, inputs)[0], expected, rtol=1e-4, atol=1e-5)



def pyramid(
    rois: Any, maps: list[Any], pooled: int, image: tuple[int, int], scale: float, ratio: int,
    absolute: bool, swap: bool, plus_one: bool, transform: int,
) -> Any:  # fmt: skip
    """Sample by sample, as TensorRT's documentation of the plugin describes it."""
    shape = np.array(image, float)
    y = np.zeros((*rois.shape[:2], maps[0].shape[1], pooled, pooled))
    for n, r in np.ndindex(*rois.shape[:2]):
        corners = rois[n, r].astype(float).reshape(2, 2)[:, :: 1 if swap else -1]
        low, high = (
            (end / shape if absolute else end).clip(0, 1)
            for end in (corners.min(0), corners.max(0))
        )
        root = np.sqrt(np.prod(high - low + plus_one / shape) * shape.prod())
        level = sum(root > scale * factor for factor in (0.5, 1, 2))
        x = maps[level][n]
        most = np.array(x.shape[1:]) - 1.0
        start, end = (
            part * most if transform < 0 else part * (most + 1) - 0.5 * (transform == 2)
            for part in (low, high)
        )
        step = (end - start) / (pooled - 1 if transform < 0 else pooled)
        counts = [ratio] * 2
        if ratio == 0:
            counts = [max(1, int(np.ceil(size / pooled))) for size in end - start]
        for bins in np.ndindex(pooled, pooled):
            for part in np.ndindex(*counts):
                inside = (np.array(part) + 0.5 * (transform > 0)) / counts
                at = np.clip(start + step * (bins + inside), 0, most)
                first = np.floor(at).astype(int)
                last = np.minimum(first + 1, most).astype(int)
                for corner in np.ndindex(2, 2):
                    place = np.where(corner, last, first)
                    weight = np.where(corner, at - first, 1 - (at - first)).prod()
                    y[n, r, :, *bins] += weight * x[:, *place] / np.prod(counts)
    return y


PYRAMIDS: list[dict[str, int]] = [
    {},
    {"roi_coords_transform": 1, "roi_coords_plusone": 1, "sampling_ratio": 2},
    {"roi_coords_transform": 0, "roi_coords_absolute": 0, "roi_coords_swap": 1},
    {"legacy": 1},
]


def pyramid_case(seed: int, attributes: dict[str, int]) -> tuple[Any, dict[str, Any]]:
    """A node and its inputs: regions of all levels, one empty, one with corners in the other
    order, one beyond the image."""
    rng = np.random.default_rng(seed)
    maps = [rng.standard_normal((2, 2, 24 >> i, 32 >> i)).astype("f4") for i in range(4)]
    image = np.array([96, 128])
    size = np.geomspace(0.05, 0.9, 7)[None, :, None] * np.ones((2, 1, 2))
    low = rng.uniform(0, 1 - size)
    rois = np.concatenate([low, low + size], -1)
    rois[:, 5] = 0
    rois[:, 6] = rois[:, 6][:, [2, 3, 0, 1]] + 0.15
    if not attributes.get("legacy") and attributes.get("roi_coords_absolute", 1):
        rois *= np.tile(image, 2)
    if not attributes.get("legacy") and not attributes.get("roi_coords_swap"):
        rois = rois[..., [1, 0, 3, 2]]
    names = ["rois", "p2", "p3", "p4", "p5"]
    node = helper.make_node("PyramidROIAlign_TRT", names, ["y"], pooled_size=3, fpn_scale=40,
                            image_size=image.tolist(), domain="TRT", **attributes)
    return node, dict(zip(names, [rois.astype("f4"), *maps], strict=True))


@pytest.mark.parametrize("attributes", PYRAMIDS)
def test_pyramid_roi_align(attributes: dict[str, int]) -> None:
    node, inputs = pyramid_case(0, attributes)
    image, scale = (96, 128), 40.0
    given = {"absolute": 1, "swap": 0, "plusone": 0, "transform": 2}
    given |= {name[11:]: value for name, value in attributes.items() if "coords" in name}
    ratio = attributes.get("sampling_ratio", 0)
    if attributes.get("legacy"):
        given = {"absolute": 0, "swap": 1, "plusone": 0, "transform": -1}
        image, scale, ratio = (1024, 1024), 224 / np.sqrt(2), 1
    expected = pyramid(
        inputs["rois"], list(inputs.values())[1:], 3, image, scale, ratio,
        bool(given["absolute"]), bool(given["swap"]), bool(given["plusone"]),
        given["transform"])  # fmt: skip
    found = run(node, inputs)[0]
    assert found.shape == (2, 7, 2, 3, 3)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=2e-4)


def test_pyramid_roi_align_is_refused() -> None:
    node, inputs = pyramid_case(0, {"roi_coords_transform": -1})
    with pytest.raises(rabbet.Error, match=r"PyramidROIAlign_TRT.*'sampling_ratio' must be 1"):
        run(node, inputs)


def indices_of(boxes: Any, scores: Any, most: int, bound: float, limit: float) -> Any:
    """Rows of image, class and box: the best of each image, then the last one again."""
    rows: list[tuple[int, int, int]] = []
    for image, of in enumerate(scores):
        kept: list[tuple[int, int]] = []
        for at in np.argsort(-of, axis=None, kind="stable"):
            box, label = divmod(int(at), of.shape[1])
            rivals = [other for c, other in kept if c == label]
            if of[box, label] >= bound and len(kept) < most and all(
                overlap(boxes[image, box], boxes[image, other], 0) <= limit for other in rivals
            ):
                kept.append((label, box))
        rows += [(image, *pair) for pair in kept]
    rows += [rows[-1] if rows else (-1, -1, -1)] * (len(boxes) * most - len(rows))
    return np.array(rows, np.int32)


def onnx_nms_case(most: int, bound: float, center: int) -> tuple[Any, dict[str, Any], Any]:
    """A node, its inputs and the result."""
    rng = np.random.default_rng(most)
    corner = rng.uniform(0, 10, (2, 9, 2))
    size = rng.uniform(1, 6, corner.shape)
    boxes = np.concatenate([corner, corner + size], -1).astype("f4")
    scores = rng.random((2, 9, 3)).astype("f4")
    given = np.concatenate([corner + size / 2, size], -1).astype("f4") if center else boxes
    node = helper.make_node("EfficientNMS_ONNX_TRT", ["boxes", "scores"], ["rows"], domain="TRT",
                            max_output_boxes_per_class=most, score_threshold=bound,
                            iou_threshold=0.3, center_point_box=center)
    return node, {"boxes": given, "scores": scores}, indices_of(boxes, scores, most, bound, 0.3)


@pytest.mark.parametrize(("most", "bound", "center"), [
    (4, 0.3, 0), (12, 0.8, 1), (40, 0.5, 0), (5, 1.5, 0),
])  # fmt: skip
def test_efficient_nms_onnx(most: int, bound: float, center: int) -> None:
    node, inputs, expected = onnx_nms_case(most, bound, center)
    found = run(node, inputs)[0]
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("name", "domain", "words"), [
    ("ModulatedDeformConv2d", "", ("group", "deformable_group")),
    ("MMCVModulatedDeformConv2d", "mmcv", ("groups", "deform_groups")),
])  # fmt: skip
@pytest.mark.parametrize("with_bias", [False, True])
def test_modulated_deformable_convolution(
    name: str, domain: str, words: tuple[str, str], with_bias: bool
) -> None:
    rng = np.random.default_rng(1)
    given = {
        "x": rng.standard_normal((2, 4, 7, 8)), "w": rng.standard_normal((6, 2, 3, 3)),
        "offset": rng.standard_normal((2, 2 * 2 * 9, 4, 4)), "b": rng.standard_normal(6),
        "mask": rng.random((2, 2 * 9, 4, 4)),
    }  # fmt: skip
    given = {key: x.astype(np.float32) for key, x in given.items()}
    names = ["x", "w", "offset", "b", "mask"] if with_bias else ["x", "w", "offset", "", "mask"]
    expected = reference(
        "DeformConv", {key: given.get(key) for key in names}, 19, strides=[2, 2],
        pads=[1, 1, 1, 1], dilations=[1, 1], group=2, offset_group=2)
    order = ["x", "offset", "mask", "w"] + ["b"] * with_bias
    node = helper.make_node(name, order, ["y"], domain=domain, stride=[2, 2], padding=[1, 1],
                            dilation=[1, 1], **dict.fromkeys(words, 2))
    found = run(node, {key: given[key] for key in order})[0]
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("word", ["eps", "epsilon"])
def test_group_normalization(word: str) -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((2, 6, 3, 5)).astype(np.float32)
    scale, bias = rng.standard_normal((2, 6)).astype(np.float32)
    node = helper.make_node("GroupNormalizationPlugin", ["x", "s", "b"], ["y"], num_groups=3,
                            **{word: 1e-3})
    parts = x.reshape(2, 3, 2, 3, 5)
    mean, variance = (f(parts, (2, 3, 4), keepdims=True) for f in (np.mean, np.var))
    y = ((parts - mean) / np.sqrt(variance + 1e-3)).reshape(x.shape)
    y = y * scale[:, None, None] + bias[:, None, None]
    np.testing.assert_allclose(run(node, {"x": x, "s": scale, "b": bias})[0], y, rtol=1e-4,
                               atol=1e-5)


@pytest.mark.parametrize("reduction", ["add", "max"])
def test_scatter_elements(reduction: str) -> None:
    rng = np.random.default_rng(3)
    x, updates = (rng.standard_normal((3, 5)).astype(np.float32) for _ in range(2))
    at = rng.integers(0, 3, (3, 5))
    node = helper.make_node("ScatterElements", ["x", "i", "u"], ["y"], domain="TRT", axis=0,
                            reduction=reduction)
    expected = x.copy()
    columns = np.broadcast_to(np.arange(5), at.shape)
    (np.add if reduction == "add" else np.maximum).at(expected, (at, columns), updates)
    np.testing.assert_allclose(run(node, {"x": x, "i": at, "u": updates})[0], expected, rtol=1e-6)
    del node.attribute[:]
    node.attribute.append(helper.make_attribute("reduction", "mean"))
    with pytest.raises(rabbet.Error, match="reduction is 'mean'"):
        run(node, {"x": x, "i": at, "u": updates})


# ---- BERT --------------------------------------------------------------------


def tensor(x: Any) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(x, np.float32), "w")


def normalized(x: Any, gamma: Any, beta: Any) -> Any:
    mean, variance = x.mean(2, keepdims=True), x.var(2, keepdims=True)
    shape = (1, 1, -1, *([1] * (x.ndim - 3)))
    y = (x - mean) / np.sqrt(variance + np.finfo(np.float32).eps)
    return y * gamma.reshape(shape) + beta.reshape(shape)


def test_gelu_with_a_bias() -> None:
    rng = np.random.default_rng(4)
    x, bias = rng.standard_normal((5, 2, 8, 1, 1)).astype("f4"), rng.standard_normal(8)
    node = helper.make_node("CustomGeluPluginDynamic", ["x"], ["y"], type_id=0,
                            bias=tensor(bias.reshape(1, 1, 8)))
    z = x + bias.reshape(1, 1, 8, 1, 1)
    expected = z / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3)))
    np.testing.assert_allclose(run(node, {"x": x})[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("with_bias", [False, True])
def test_skip_layer_norm(with_bias: bool) -> None:
    rng = np.random.default_rng(5)
    x, skip = rng.standard_normal((2, 5, 2, 8, 1, 1)).astype("f4")
    gamma, beta, bias = rng.standard_normal((3, 8)).astype("f4")
    more = {"bias": tensor(bias)} if with_bias else {}
    node = helper.make_node(
        "CustomSkipLayerNormPluginDynamic", ["x", "s"], ["y"], domain="TRT", type_id=0, ld=8,
        gamma=tensor(gamma), beta=tensor(beta), **more)
    both = x + skip + (bias.reshape(1, 1, 8, 1, 1) if with_bias else 0)
    np.testing.assert_allclose(run(node, {"x": x, "s": skip})[0], normalized(both, gamma, beta),
                               rtol=1e-3, atol=1e-4)


def test_fully_connected() -> None:
    rng = np.random.default_rng(6)
    x, w = rng.standard_normal((5, 2, 8, 1, 1)).astype("f4"), rng.standard_normal((6, 8))
    node = helper.make_node("CustomFCPluginDynamic", ["x"], ["y"], out_dims=6, type_id=0,
                            W=tensor(w.ravel()))
    expected = (x[..., 0, 0] @ w.T)[..., None, None]
    np.testing.assert_allclose(run(node, {"x": x})[0], expected, rtol=1e-4, atol=1e-5)


def test_embeddings() -> None:
    rng = np.random.default_rng(7)
    tables = {"word": 11, "token_type": 2, "position": 9}
    made = {name: rng.standard_normal((rows, 8)).astype("f4") for name, rows in tables.items()}
    gamma, beta = rng.standard_normal((2, 8)).astype("f4")
    node = helper.make_node(
        "CustomEmbLayerNormPluginDynamic", ["words", "types", "mask"], ["y", "lengths"],
        output_fp16=0, full_mask=0, mha_type_id=0, bert_embeddings_layernorm_gamma=tensor(gamma),
        bert_embeddings_layernorm_beta=tensor(beta),
        **{f"bert_embeddings_{name}_embeddings": tensor(x) for name, x in made.items()})
    words = rng.integers(0, 11, (5, 3)).astype(np.int32)
    types = rng.integers(0, 2, (5, 3)).astype(np.int32)
    mask = (np.arange(5)[:, None] < [5, 2, 4]).astype(np.int32)
    y, lengths = run(node, {"words": words, "types": types, "mask": mask})
    total = made["word"][words] + made["token_type"][types] + made["position"][:5, None]
    np.testing.assert_allclose(y[..., 0, 0], normalized(total, gamma, beta), rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(lengths, [5, 2, 4])


@pytest.mark.parametrize("masked", [False, True])
def test_attention_of_joined_heads(masked: bool) -> None:
    rng = np.random.default_rng(8)
    length, batch, heads, size = 5, 3, 2, 4
    x = rng.standard_normal((length, batch, 3 * heads * size, 1, 1)).astype("f4")
    lengths = np.array([5, 2, 4], np.int32)
    names = ["x", "lengths"] if masked else ["x"]
    node = helper.make_node(
        "CustomQKVToContextPluginDynamic", names, ["y"], domain="TRT", type_id=0,
        hidden_size=heads * size, num_heads=heads, has_mask=int(masked))
    q, k, v = np.moveaxis(x.reshape(length, batch, heads, 3, size), 3, 0)
    scores = np.einsum("ibhd,jbhd->bhij", q, k) / np.sqrt(size)
    if masked:
        behind = np.arange(length) >= lengths[:, None]
        scores = np.where(behind[:, None, None], -np.inf, scores)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    expected = np.einsum("bhij,jbhd->ibhd", weights, v).reshape(length, batch, -1, 1, 1)
    inputs = {"x": x, "lengths": lengths}
    np.testing.assert_allclose(run(node, {n: inputs[n] for n in names})[0], expected, rtol=1e-4,
                               atol=1e-5)


@pytest.mark.parametrize(("node", "message"), [
    (helper.make_node("CustomSkipLayerNormPluginDynamic", ["x", "x"], ["y"], type_id=2),
     "attribute 'type_id' is 2; expected 0"),
    (helper.make_node("CustomSkipLayerNormPluginDynamic", ["x", "x"], ["y"]),
     "attribute 'gamma', a tensor, is missing"),
    (helper.make_node("CustomQKVToContextPluginDynamic", ["x"], ["y"], hidden_size=7,
                      num_heads=2), "hidden_size is 7 and num_heads 2"),
    (helper.make_node("ROIAlign_TRT", ["x", "x", "x"], ["y"], mode=3), "'mode' is 3; expected 0"),
])  # fmt: skip
def test_mistakes_are_named(node: Any, message: str) -> None:
    with pytest.raises(rabbet.Error, match=message):
        run(node, {"x": np.zeros((2, 2, 6, 1, 1), np.float32)})
