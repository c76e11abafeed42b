"""Operators of torchvision, and functions of it in a form that torch.export takes."""

from __future__ import annotations

import contextlib
import math
import sys
import threading
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import torch

from ._graph import Graph, Value
from ._table import aten, fixed, refuse

_INT64 = torch.int64

# ---- Operators ----


@aten(others=("torchvision.nms.default",))
def _nms(g: Graph, out: Any, boxes: Value, scores: Value, threshold: float) -> str:
    """The numbers of the boxes that stay, best first."""
    if threshold < 0:
        refuse(f"an overlap of more than {threshold}, which boxes that lie apart have")
    count = g.ints([boxes.shape[0]])
    # ONNX's operator orders the corners of a box; to torchvision, one with its corners
    # exchanged is empty. And it drops the least scores and NaN, which torch sorts first.
    first, last = (g.op("Slice", g.to(boxes, torch.float32), g.ints([i]), g.ints([i + 2]),
                        g.ints([1])) for i in (0, 2))  # fmt: skip
    corners = g.op("Concat", first, g.op("Max", first, last), axis=1)
    value = g.to(scores, torch.float32)
    least, most = (g.scalar(n, torch.float32) for n in (-3.4e38, math.inf))
    value = g.op("Where", g.op("IsNaN", value), most, g.op("Max", value, least))
    chosen = g.op(
        "NonMaxSuppression",
        g.op("Unsqueeze", corners, g.ints([0])),
        g.op("Unsqueeze", value, g.ints([0, 1])),
        count,
        g.constant([fixed(threshold)], torch.float32),
    )
    return g.op("Gather", chosen, g.scalar(2, _INT64), axis=1)


def _regions(g: Graph, rois: Value) -> tuple[str, str]:
    """The boxes of rows [image, x1, y1, x2, y2], and the images."""
    boxes = g.op("Slice", rois, g.ints([1]), g.ints([5]), g.ints([1]))
    images = g.op("Gather", rois, g.scalar(0, _INT64), axis=1)
    return boxes, g.cast(images, _INT64)


@aten(others=("torchvision.roi_align.default",))
def _roi_align(
    g: Graph, out: Any, x: Value, rois: Value, scale: float, height: Any, width: Any,
    samples: int, aligned: bool,
) -> str:  # fmt: skip
    boxes, images = _regions(g, rois)
    return g.op(
        "RoiAlign", x, boxes, images, output_height=int(height), output_width=int(width),
        spatial_scale=fixed(scale), sampling_ratio=max(0, samples),
        coordinate_transformation_mode="half_pixel" if aligned else "output_half_pixel",
    )  # fmt: skip


@aten(others=("torchvision.roi_pool.default",))
def _roi_pool(
    g: Graph, out: Any, x: Value, rois: Value, scale: float, height: Any, width: Any
) -> list[str | None]:
    """Its second result, the places of the maxima, serves training."""
    return [
        g.op(
            "MaxRoiPool", x, rois, pooled_shape=[int(height), int(width)],
            spatial_scale=fixed(scale),
        ),
        None,
    ]  # fmt: skip


@aten(others=("torchvision.deform_conv2d.default",))
def _deform_conv2d(
    g: Graph, out: Any, x: Value, weight: Value, offset: Value, mask: Value, bias: Value,
    stride_h: Any, stride_w: Any, pad_h: Any, pad_w: Any, dilation_h: Any, dilation_w: Any,
    groups: Any, offset_groups: Any, use_mask: bool,
) -> str:  # fmt: skip
    return g.op(
        "DeformConv", x, weight, offset, bias, mask if use_mask else None,
        strides=[stride_h, stride_w], pads=[pad_h, pad_w] * 2,
        dilations=[dilation_h, dilation_w], group=groups, offset_group=offset_groups,
    )  # fmt: skip


# ---- Functions that branch on how many boxes there are ----

# Their code replaces that of torchvision's functions, as models import these by name. It reads
# the globals of torchvision's modules.


def _batched_nms(boxes: Any, scores: Any, idxs: Any, iou_threshold: Any) -> Any:
    """Boxes of different classes lie apart; without boxes the maximum is 0."""
    from torchvision.ops import nms

    most = torch.cat([boxes.flatten(), boxes.new_zeros(1)]).max()
    apart = idxs.to(boxes) * (most + 1)
    return nms(boxes + apart[:, None], scores, iou_threshold)


def _multiscale_roi_align(
    x_filtered: Any, boxes: Any, output_size: Any, sampling_ratio: Any, scales: Any, mapper: Any
) -> Any:  # fmt: skip
    """Each region from the map of its level. torchvision asks for len(rois), an integer."""
    from torchvision.ops import roi_align
    from torchvision.ops.poolers import _convert_to_roi_format

    rois = _convert_to_roi_format(boxes)
    levels = mapper(boxes) if len(x_filtered) > 1 else None
    result = None
    for level, (features, scale) in enumerate(zip(x_filtered, scales)):  # noqa: B905
        rows = None if levels is None else torch.where(levels == level)[0]
        found = roi_align(
            features, rois if rows is None else rois[rows], output_size=output_size,
            spatial_scale=scale, sampling_ratio=sampling_ratio,
        )  # fmt: skip
        if rows is None:
            return found
        if result is None:
            result = found.new_zeros(rois.shape[0], *found.shape[1:])
        result = result.index_put((rows,), found.to(result.dtype))
    return result


def _paste_masks_in_image(
    masks: Any, boxes: Any, img_shape: Any, padding: Any = 1
) -> Any:
    """Each mask, resized to its box, in an empty image. Rows and columns are sums of those of
    the mask, with the weights of a bilinear resize."""
    from torchvision.models.detection.roi_heads import expand_boxes, expand_masks

    masks, scale = expand_masks(masks, padding=padding)
    boxes = expand_boxes(boxes, scale).to(dtype=torch.int64)
    sums = []
    for axis, extent in enumerate(img_shape):  # of rows, of columns
        first, last = boxes[:, 1 - axis, None], boxes[:, 3 - axis, None]
        place = torch.arange(extent, device=boxes.device)[None]
        count = masks.shape[2 + axis]
        length = (last - first + 1).clamp(min=1)
        source = (place - first + 0.5).to(masks.dtype) * (count / length) - 0.5
        apart = source.clamp(0, count - 1)[:, :, None] - torch.arange(
            count, device=boxes.device
        )
        inside = ((first <= place) & (place <= last))[:, :, None]
        sums.append((1 - apart.abs()).clamp(min=0) * inside)
    return sums[0][:, None] @ masks @ sums[1][:, None].transpose(2, 3)


_REPLACED: dict[str, dict[str, Any]] = {
    "torchvision.ops.boxes": {"batched_nms": _batched_nms},
    "torchvision.ops.poolers": {"_multiscale_roi_align": _multiscale_roi_align},
    "torchvision.models.detection.roi_heads": {
        "paste_masks_in_image": _paste_masks_in_image
    },
}


_LOCK = threading.RLock()  # of the exchanged code; a second export would keep it as torchvision's


@contextlib.contextmanager
def exportable() -> Iterator[None]:
    """While it is active, functions of torchvision compute the same without a branch that
    the number of boxes decides, if torchvision is imported."""
    with _LOCK, contextlib.ExitStack() as undone:
        for name, functions in _REPLACED.items():
            for each, ours in functions.items():
                theirs = getattr(sys.modules.get(name), each, None)
                if isinstance(theirs, FunctionType):
                    undone.callback(setattr, theirs, "__code__", theirs.__code__)
                    theirs.__code__ = ours.__code__
        yield
