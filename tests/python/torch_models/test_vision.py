"""Operators of torchvision in modules, beside references in NumPy. Where torchvision is not
installed, its operators are defined here, with their sizes alone."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import types
from typing import Any

import numpy as np
import pytest
import rabbet

torch = pytest.importorskip("torch")

from rabbet.torch import _vision  # noqa: E402
from torch import nn  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

AUTO = torch.export.Dim.AUTO
SCHEMAS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align": "(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, "
    "SymInt pooled_width, int sampling_ratio, bool aligned) -> Tensor",
    "roi_pool": "(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, "
    "SymInt pooled_width) -> (Tensor, Tensor)",
    "deform_conv2d": "(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, "
    "SymInt stride_h, SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, "
    "SymInt dilation_w, SymInt groups, SymInt offset_groups, bool use_mask) -> Tensor",
}
SIZES = {
    "nms": lambda dets, *_: dets.new_empty(
        torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64
    ),
    "roi_align": lambda x, rois, _, h, w, *more: x.new_empty(
        len_of(rois), x.shape[1], h, w
    ),
    "roi_pool": lambda x, rois, _, h, w: (
        x.new_empty(len_of(rois), x.shape[1], h, w),
        x.new_empty(len_of(rois), x.shape[1], h, w, dtype=torch.int32),
    ),
    "deform_conv2d": lambda x, weight, offset, *_: x.new_empty(
        x.shape[0], weight.shape[0], *offset.shape[-2:]
    ),
}
LIBRARY = torch.library.Library("torchvision", "FRAGMENT")


def len_of(rois: Any) -> Any:
    """Number of regions, which may be a symbol."""
    return rois.shape[0]


try:
    import torchvision  # noqa: F401
except (ImportError, RuntimeError):  # absent, or made for another torch
    for name, schema in SCHEMAS.items():
        with contextlib.suppress(RuntimeError):
            LIBRARY.define(name + schema)
            torch.library.register_fake(
                f"torchvision::{name}", SIZES[name], lib=LIBRARY
            )


class Module(nn.Module):
    """A module of a function."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        """Its result."""
        return self.function(*args)


def compiled(function: Any, *args: Any, axes: Any) -> Any:
    """The function with sizes that vary along these axes of each argument."""
    shapes = (tuple(dict.fromkeys(each, AUTO) for each in axes),)
    return rabbet.compile(
        Module(function),
        args,
        dynamic_shapes=shapes,
        device="cpu",
        optimization_level=0,
    )


def boxes_of(count: int, seed: int, size: float = 12) -> Any:
    """Boxes in an image, which overlap."""
    rng = np.random.default_rng(seed)
    corners = np.sort(rng.uniform(0, size, (count, 2, 2)), axis=1)
    return corners.reshape(count, 4).astype(np.float32)


def overlap(a: Any, b: Any) -> float:
    """Intersection over union."""
    sides = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
    inner = np.prod(np.maximum(sides, 0))
    return float(inner / (np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - inner))


def kept_of(boxes: Any, scores: Any, threshold: float) -> list[int]:
    """Non-maximum suppression, greedily."""
    kept: list[int] = []
    for i in np.argsort(-scores, kind="stable"):
        if not any(overlap(boxes[i], boxes[j]) > threshold for j in kept):
            kept.append(int(i))
    return kept


def sampled(plane: Any, y: float, x: float) -> float:
    """A value between four pixels."""
    (height, width), total = plane.shape, 0.0
    if not (-1 <= y <= height and -1 <= x <= width):
        return 0.0
    y, x = max(y, 0.0), max(x, 0.0)
    for row, column in ((0, 0), (0, 1), (1, 0), (1, 1)):
        i, j = int(y) + row, int(x) + column
        share = max(0.0, 1 - abs(y - i)) * max(0.0, 1 - abs(x - j))
        total += share * plane[min(i, height - 1), min(j, width - 1)]
    return total


def aligned_regions(
    x: Any, rois: Any, scale: float, samples: int, aligned: bool
) -> Any:
    """RoiAlign of 2 x 3 bins."""
    out = np.zeros((len(rois), x.shape[1], 2, 3), np.float32)
    for n, channel, i, j in np.ndindex(*out.shape):
        left, top, right, bottom = rois[n, 1:] * scale - (0.5 if aligned else 0)
        height, width = bottom - top, right - left
        if not aligned:
            height, width = max(height, 1), max(width, 1)
        found = [
            sampled(
                x[int(rois[n, 0]), channel],
                top + height / 2 * (i + (a + 0.5) / samples),
                left + width / 3 * (j + (b + 0.5) / samples),
            )
            for a in range(samples)
            for b in range(samples)
        ]
        out[n, channel, i, j] = np.mean(found)
    return out


def pooled_regions(x: Any, rois: Any, scale: float) -> Any:
    """RoiPool of 2 x 3 bins."""
    out = np.zeros((len(rois), x.shape[1], 2, 3), np.float32)
    for n, channel, i, j in np.ndindex(*out.shape):
        left, top, right, bottom = np.floor(rois[n, 1:] * scale + 0.5).astype(int)
        height, width = max(bottom - top + 1, 1), max(right - left + 1, 1)
        rows = (int(i * height // 2) + top, -int(-(i + 1) * height // 2) + top)
        columns = (int(j * width // 3) + left, -int(-(j + 1) * width // 3) + left)
        plane = x[int(rois[n, 0]), channel]
        bin_ = plane[max(rows[0], 0) : rows[1], max(columns[0], 0) : columns[1]]
        out[n, channel, i, j] = bin_.max() if bin_.size else 0
    return out


def deformed(x: Any, weight: Any, bias: Any, mask: Any) -> Any:
    """A convolution that reads a row below and two columns before, and weighs what it reads."""
    moved = nn.functional.pad(x, (3, -1, 0, 2))
    plain = nn.functional.conv2d(moved, weight)
    return plain * mask + bias[:, None, None]


def test_operators() -> None:
    """In one module, as torch takes seconds to export each."""
    ops = torch.ops.torchvision
    torch.manual_seed(0)
    weight, bias = torch.randn(3, 2, 3, 3), torch.randn(3)

    def function(
        boxes: Any, scores: Any, x: Any, rois: Any, offset: Any, mask: Any
    ) -> Any:
        kept = ops.nms(boxes, scores, 0.3)
        return (
            kept, boxes[kept] * 2,
            ops.roi_align(x, rois, 0.5, 2, 3, 2, False),
            ops.roi_align(x, rois, 0.5, 2, 3, 2, True),
            ops.roi_pool(x, rois, 0.5, 2, 3)[0],
            ops.deform_conv2d(
                x, weight, offset, mask, bias, 1, 1, 1, 1, 1, 1, 1, 1, True),
            ops.deform_conv2d(
                x, weight, offset, mask, bias, 1, 1, 1, 1, 1, 1, 1, 1, False),
        )  # fmt: skip

    model = None
    for count, regions, batch, side in ((20, 4, 2, 7), (7, 2, 3, 8), (1, 1, 2, 7)):
        boxes, rng = boxes_of(count, count), np.random.default_rng(count)
        scores = rng.random(count, np.float32)
        x = rng.standard_normal((batch, 2, side, side), np.float32)
        images = np.arange(regions, dtype=np.float32)[:, None] % batch
        rois = np.concatenate([images, boxes_of(regions, regions)], 1)
        offset = np.array([1, -2] * 9, np.float32)[:, None, None]
        offset = np.tile(offset, (batch, 1, side, side))
        mask = np.tile(rng.random((batch, 1, side, side), np.float32), (1, 9, 1, 1))
        args = tuple(map(torch.from_numpy, (boxes, scores, x, rois, offset, mask)))
        axes = [[0], [0], [0, 2, 3], [0], [0, 2, 3], [0, 2, 3]]
        model = model or compiled(function, *args, axes=axes)
        kept, doubled, *rest = (each.numpy() for each in model(*args))
        best = kept_of(boxes, scores, 0.3)
        assert kept.tolist() == best
        np.testing.assert_array_equal(doubled, boxes[best] * 2)
        expected = [
            aligned_regions(x, rois, 0.5, 2, False),
            aligned_regions(x, rois, 0.5, 2, True),
            pooled_regions(x, rois, 0.5),
            deformed(args[2], weight, bias, args[5][:, :1]).numpy(),
            deformed(args[2], weight, bias, 1).numpy(),
        ]
        for found, correct in zip(rest, expected, strict=True):
            np.testing.assert_allclose(found, correct, atol=1e-4)


def test_suppression_at_edges() -> None:
    """Boxes that are masked by their scores stay; a box with exchanged corners is empty."""
    boxes, scores = boxes_of(9, 11), np.random.default_rng(3).random(9, np.float32)
    boxes[4], boxes[5] = boxes[0][[2, 3, 0, 1]], boxes[1][[0, 3, 2, 1]]
    scores[[2, 7]], scores[1] = -np.inf, np.nan
    args = torch.from_numpy(boxes.copy()), torch.from_numpy(scores)
    nms = torch.ops.torchvision.nms
    model = compiled(lambda *args: nms(*args, 0.3), *args, axes=[[0], [0]])
    boxes[:, 2:] = np.maximum(boxes[:, :2], boxes[:, 2:])
    expected = kept_of(boxes, np.nan_to_num(scores, nan=np.inf), 0.3)
    assert {1, 2, 4, 5, 7} <= set(expected)
    assert model(*args).tolist() == expected
    none = model(args[0][:0], args[1][:0])
    assert none.shape == (0,)
    with pytest.raises(rabbet.UnsupportedError, match=r"more than -0\.5"):
        compiled(lambda *args: nms(*args, -0.5), *args, axes=[[], []])


def test_suppression_by_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchvision's own function asks whether there are boxes, which an export cannot."""

    def batched_nms(boxes: Any, scores: Any, idxs: Any, iou_threshold: float) -> Any:
        raise AssertionError("called while a module is exported")

    ops = types.ModuleType("torchvision.ops")
    ops.nms = torch.ops.torchvision.nms  # type: ignore[attr-defined]
    inner = types.ModuleType("torchvision.ops.boxes")
    inner.__dict__.update(batched_nms=batched_nms)
    batched_nms = types.FunctionType(
        batched_nms.__code__, {"torch": torch, "__builtins__": __builtins__}
    )
    inner.batched_nms = batched_nms  # type: ignore[attr-defined]
    for module in (types.ModuleType("torchvision"), ops, inner):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    code = batched_nms.__code__

    def function(boxes: Any, scores: Any, classes: Any) -> Any:
        found = torch.nonzero(scores > 0.5)[:, 0]
        return batched_nms(boxes[found], scores[found], classes[found], 0.3)

    model = None
    for count in (30, 9):
        rng = np.random.default_rng(count)
        boxes, scores = boxes_of(count, count), rng.random(count, np.float32)
        classes = rng.integers(0, 3, count)
        for shown in (scores, scores * 0):  # of none stays none
            args = tuple(map(torch.from_numpy, (boxes, shown, classes)))
            model = model or compiled(function, *args, axes=[[0], [0], [0]])
            found = np.flatnonzero(shown > 0.5)
            apart = boxes[found] + classes[found, None] * 100
            assert model(*args).tolist() == kept_of(apart, shown[found], 0.3)
    assert batched_nms.__code__ is code
    # Exports of several threads: none takes the exchanged code for torchvision's.
    entered, leave = threading.Event(), threading.Event()

    def export() -> None:
        with _vision.exportable():
            entered.set()
            leave.wait(10)

    first, second = (threading.Thread(target=export) for _ in range(2))
    first.start()
    entered.wait(10)
    assert batched_nms.__code__ is not code
    second.start()
    time.sleep(0.01)
    leave.set()
    first.join()
    second.join()
    assert batched_nms.__code__ is code


def pasted(masks: Any, boxes: Any, height: int, width: int) -> Any:
    """Each mask, padded by a pixel, resized to its box; one by one."""
    out = torch.zeros(len(masks), 1, height, width)
    for mask, (left, top, right, bottom), plane in zip(
        masks, boxes, out[:, 0], strict=True
    ):
        size = (max(bottom - top + 1, 1), max(right - left + 1, 1))
        image = nn.functional.interpolate(mask[None], size=size, mode="bilinear")[0, 0]
        rows, columns = slice(max(top, 0), bottom + 1), slice(max(left, 0), right + 1)
        part = plane[rows, columns]
        part += image[max(-top, 0) :, max(-left, 0) :][: part.shape[0], : part.shape[1]]
    return out


def test_masks_in_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchvision pastes masks one by one, which an export of any number of them cannot."""
    heads = types.ModuleType("torchvision.models.detection.roi_heads")
    heads.__dict__.update(
        expand_masks=lambda masks, padding: (
            nn.functional.pad(masks, (padding,) * 4),
            1.5,
        ),
        expand_boxes=lambda boxes, scale: boxes * scale,
    )
    parts = heads.__name__.split(".")
    for end in range(1, len(parts)):
        name = ".".join(parts[:end])
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, heads.__name__, heads)
    boxes = torch.tensor([[1.0, 2, 7, 5], [-3, -2, 4, 30], [3, 3, 3, 3], [0, 8, 30, 9]])
    torch.manual_seed(0)
    masks = torch.rand(4, 1, 6, 6)
    model = compiled(
        lambda masks, boxes: _vision._paste_masks_in_image(masks, boxes, (14, 17)),
        masks, boxes, axes=[[0], [0]],
    )  # fmt: skip
    for count in (4, 1):
        padded = nn.functional.pad(masks[:count], (1,) * 4)
        expected = pasted(padded, (boxes * 1.5).long().tolist()[:count], 14, 17)
        torch.testing.assert_close(
            model(masks[:count], boxes[:count]), expected, atol=1e-5, rtol=1e-5
        )
