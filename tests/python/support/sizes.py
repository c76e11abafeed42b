"""Shared by tests of layers with data-dependent output sizes: networks,
and NumPy's results for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import rabbet as trt
from onnx import TensorProto, helper

from tests.python.support.plugins import random


def check(found: Any, expected: Any) -> None:
    """The same arrays, of the same types."""
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        assert np.array_equal(np.asarray(one), other)


def chosen(network: trt.INetworkDefinition) -> tuple[Any, ...]:
    """Elements of x that are not zero: where they are, their number, themselves."""
    x = network.add_input("x", trt.float32, (-1, 5, 4))
    found = network.add_non_zero(x).get_output(0)
    shape = network.add_shape(found).get_output(0)
    turned = network.add_shuffle(found)
    turned.first_transpose = (1, 0)
    values = network.add_gather_v2(x, turned.get_output(0), trt.GatherMode.ND)
    twice = network.add_elementwise(
        values.get_output(0), values.get_output(0), trt.ElementWiseOperation.SUM
    )
    return found, shape, twice.get_output(0)


def chosen_by_numpy(x: Any) -> tuple[Any, ...]:
    """The same."""
    found = np.array(np.nonzero(x), np.int32)
    return found, np.array(found.shape, np.int64), 2 * x[x != 0]


def three_only(network: trt.INetworkDefinition) -> tuple[Any, ...]:
    """A network that needs exactly 3 non-zero elements of x, a vector of 5."""
    x = network.add_input("x", trt.float32, (5,))
    three = np.arange(1, 4, dtype=np.float32)
    constant = network.add_constant((3,), three).get_output(0)
    table = network.add_constant((3, 2), np.stack([three, -three], 1)).get_output(0)
    found = network.add_non_zero(x).get_output(0)
    numbers = network.add_cast(found, trt.float32).get_output(0)
    results = []
    for shape in [(3,), (1, 3), (3, 1), (-1, 3)]:
        layer = network.add_shuffle(found)
        layer.reshape_dims = shape
        results.append(layer.get_output(0))
    layer = network.add_shuffle(constant)
    layer.set_input(1, network.add_shape(found).get_output(0))
    results.append(layer.get_output(0))
    none = trt.MatrixOperation.NONE
    layer = network.add_matrix_multiply(numbers, none, table, none)
    return (*results, layer.get_output(0))


def three_by_numpy(x: Any) -> tuple[Any, ...]:
    """The same."""
    (found,) = np.nonzero(x)
    found = found.astype(np.int32)
    three = np.arange(1, 4, dtype=np.float32)
    product = found[None].astype(np.float32) @ np.stack([three, -three], 1)
    shapes = [(3,), (1, 3), (3, 1), (-1, 3)]
    return (*(found.reshape(s) for s in shapes), three[None], product)


def check_three_only(model: trt.Model) -> None:
    """The build finds that size, and other sizes are refused by name, run by run."""
    for places in ((0, 2, 3), (0, 1), (1, 2, 4), (0, 1, 2, 3, 4), (), (2, 3, 4)):
        x = np.zeros(5, np.float32)
        x[list(places)] = 1
        if len(places) == 3:
            check(model(x), three_by_numpy(x))
            continue
        message = rf"shape \(1, {len(places)}\).*(differ|cannot be multiplied)"
        with pytest.raises(trt.OutOfRangeError, match=message):
            model(x)


def _corners(box: Any, center: bool) -> Any:
    box = np.asarray(box, np.float32)
    if center:
        half = box[2:] / np.float32(2)
        return np.stack([box[:2] - half, box[:2] + half])
    return np.stack([np.minimum(box[:2], box[2:]), np.maximum(box[:2], box[2:])])


def _overlap(a: Any, b: Any) -> Any:
    """Intersection over union, in float32."""
    sides = np.minimum(a[1], b[1]) - np.maximum(a[0], b[0])
    if (sides <= 0).any():
        return np.float32(0)
    shared = sides[0] * sides[1]
    both = np.prod(a[1] - a[0]) + np.prod(b[1] - b[0]) - shared
    return shared / both if both > 0 else np.float32(0)


def suppressed(
    boxes: Any,
    scores: Any,
    most: int,
    iou: float = 0,
    least: float = 0,
    center: bool = False,
    limit: int = 0,
) -> Any:
    """Rows (batch, class, box) of scores (batch, boxes, classes), best first."""
    rows = []
    for b in range(scores.shape[0]):
        places = [(n, c) for c in range(scores.shape[2]) for n in range(scores.shape[1])]
        places = [(n, c) for n, c in places if scores[b, n, c] > np.float32(least)]
        places.sort(key=lambda at: -scores[b][at])  # stable: by class, then by box
        taken: dict[int, list[Any]] = {}
        for n, c in places[: limit or None]:
            box = boxes[b, n] if boxes.ndim == 3 else boxes[b, n, c % boxes.shape[2]]
            own, others = _corners(box, center), taken.setdefault(c, [])
            if len(others) < most and all(
                not _overlap(own, other) > np.float32(iou) for other in others
            ):
                others.append(own)
                rows.append((b, c, n))
    return np.array(rows, np.int32).reshape(-1, 3)


def some_boxes(*shape: int, seed: int = 0) -> Any:
    """Boxes many of which overlap, as two corners."""
    random = np.random.default_rng(seed)
    low = random.uniform(0, 8, (*shape, 2))
    return np.concatenate([low, low + random.uniform(1, 4, (*shape, 2))], -1).astype(
        np.float32
    )


def detector(path: Any) -> None:
    """Boxes and scores -> those that are left, their scores and places: a model."""
    node = helper.make_node
    text = (TensorProto.FLOAT, TensorProto.INT64)
    graph = helper.make_graph(
        [
            node("Constant", [], ["most"], value_ints=[5]),
            node("Constant", [], ["iou"], value_floats=[0.4]),
            node("Constant", [], ["least"], value_floats=[0.3]),
            node("NonMaxSuppression", ["boxes", "scores", "most", "iou", "least"], ["rows"]),
            node("GatherND", ["scores", "rows"], ["kept"]),
            node("Constant", [], ["places"], value_ints=[0, 2]),
            node("Gather", ["rows", "places"], ["where"], axis=1),
            node("GatherND", ["boxes", "where"], ["left"]),
        ],
        "detector",
        [
            helper.make_tensor_value_info("boxes", text[0], ["batch", "boxes", 4]),
            helper.make_tensor_value_info("scores", text[0], ["batch", 3, "boxes"]),
        ],
        [
            helper.make_tensor_value_info("rows", text[1], ["count", 3]),
            helper.make_tensor_value_info("kept", text[0], ["count"]),
            helper.make_tensor_value_info("left", text[0], ["count", 4]),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, path)


def check_detector(folder: Path, device: str, most: int) -> None:
    """Built and loaded, with up to `most` boxes, it finds what ONNX Runtime finds."""
    path, plan = folder / "detector.onnx", folder / "d.plan"
    detector(path)
    shapes = {
        "boxes": ((1, 1, 4), (2, 40, 4), (4, most, 4)),
        "scores": ((1, 3, 1), (2, 3, 40), (4, 3, most)),
    }
    model = trt.compile(path, device=device, shapes=shapes, save=plan)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for again in (model, trt.load(plan)):
        for batch, count in ((1, 17), (4, most), (2, 1), (4, most)):
            boxes = some_boxes(batch, count, seed=count)
            scores = random(batch, 3, count, seed=count)
            feeds = {"boxes": boxes, "scores": scores}
            check(again(boxes, scores), session.run(None, feeds))
