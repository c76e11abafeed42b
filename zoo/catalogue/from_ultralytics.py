"""Detectors of ultralytics, in their smallest scale, with the heads as their own export
leaves them."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..entries import Entry, image, image_dims

SIZE = 64


def _make(configuration: str) -> Any:
    from ultralytics import RTDETR, YOLO

    maker = RTDETR if "rtdetr" in configuration else YOLO
    model = maker(configuration, verbose=False).model.eval().float()
    for module in model.modules():
        if hasattr(module, "export"):
            module.export, module.format, module.dynamic = True, "onnx", True
    return model


# Configurations (the scale is in the name, where there are several), and whether they
# take images of any height and width.
_LINES = [
    ("yolov3-tiny.yaml yolov5n.yaml yolov6n.yaml yolov8n.yaml yolov9t.yaml", True),
    ("yolov10n.yaml yolo11n.yaml yolo12n.yaml yolo26n.yaml", True),
    ("yolov8n-seg.yaml yolo11n-seg.yaml yolo26n-seg.yaml", True),
    ("yolov8n-pose.yaml yolo11n-pose.yaml yolo11n-obb.yaml yolo26n-obb.yaml", True),
    ("yolov8n-cls.yaml yolo11n-cls.yaml", True),
    ("yolov8n-ghost.yaml yolov8n-p2.yaml", True),
]


def _entry(configuration: str, varying: bool) -> Entry:
    inputs = [image(SIZE, varying=varying)]
    name = configuration.removesuffix(".yaml")
    make = partial(_make, configuration)
    return Entry("ultralytics", name, make, inputs, image_dims(SIZE))


ENTRIES = [
    _entry(configuration, varying)
    for line, varying in _LINES
    for configuration in line.split()
]
