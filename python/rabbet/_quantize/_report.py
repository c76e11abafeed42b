"""What a quantization made: the model, and a table of its layers."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .. import _rabbet
from ._layers import Layer
from ._model import Model

_LONGEST_NAME = 48


class QuantizedLayer(NamedTuple):
    """A layer of a quantized model.

    name, operator: of its node. error: relative, of the layer's own output for the
    inputs that it has in floating point (without calibration data: of the weights);
    None: not measured. alone: of the model's outputs where this layer alone is quantized,
    if that was measured. quantized: whether it is; reason: why it is not.
    """

    name: str
    operator: str
    weights: tuple[int, ...]
    error: float | None
    alone: float | None
    quantized: bool
    reason: str


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.2f} %"


def _finite(value: float | None) -> float | None:
    """JSON has no NaN, and no infinity."""
    return value if value is not None and math.isfinite(value) else None


def _shortened(name: str) -> str:
    text = _rabbet.shown(name)
    return text if len(text) <= _LONGEST_NAME else "..." + text[3 - _LONGEST_NAME :]


class Quantization:
    """The result of rabbet.quantize(): a model, and a report of its layers.

    layers: in the order of their errors, the largest first. error: relative, of the
    model's outputs on samples of the calibration data; None: not measured. to: "int8",
    "fp8" or "int4". str() is a table.
    """

    def __init__(
        self,
        model: Model,
        to: str,
        layers: Sequence[Layer],
        error: float | None,
        what: str,
        warnings: Sequence[str],
    ) -> None:
        rows = [
            QuantizedLayer(
                each.name, each.op, tuple(each.shape), each.error, each.alone,
                not each.reason, each.reason,
            )
            for each in layers
        ]  # fmt: skip
        self._model = model
        self._measured = what
        self.to, self.error = to, error
        self.warnings = tuple(warnings)
        self.layers: tuple[QuantizedLayer, ...] = tuple(
            sorted(rows, key=lambda row: (-(row.alone or 0), -(row.error or 0)))
        )

    @property
    def left(self) -> tuple[QuantizedLayer, ...]:
        """The layers that are in floating point."""
        return tuple(layer for layer in self.layers if not layer.quantized)

    # ---- The model

    def to_bytes(self) -> bytes:
        """The ONNX model; InvalidArgumentError if it is too large for one message."""
        return self._model.to_bytes()

    def save(self, path: str | os.PathLike[str], external_data: bool = False) -> None:
        """Writes the ONNX model; weights go to PATH.data where `external_data` says so,
        or where the model is larger than 2 GiB."""
        self._model.save(Path(path), external_data)

    # ---- The report

    def as_dict(self) -> dict[str, Any]:
        """The report, as JSON has it."""
        return {
            "to": self.to,
            "error": _finite(self.error),
            "error_of_layers": self._measured,
            "warnings": list(self.warnings),
            "layers": [
                {
                    **layer._asdict(),
                    "weights": list(layer.weights),
                    "error": _finite(layer.error),
                    "alone": _finite(layer.alone),
                }
                for layer in self.layers
            ],
        }

    def json(self) -> str:
        """The report as JSON."""
        import json

        return json.dumps(self.as_dict())

    def __str__(self) -> str:
        shown = [layer for layer in self.layers if layer.quantized or layer.error]
        rows = [("layer", "operator", "weights", "error", "alone", "")]
        for each in shown:
            weights = "x".join(map(str, each.weights))
            kept = "" if each.quantized else f"left: {each.reason}"
            rows.append((
                _shortened(each.name), each.operator, weights, _percent(each.error),
                _percent(each.alone), kept,
            ))  # fmt: skip
        if all(not row[4] for row in rows[1:]):
            rows = [(*row[:4], "", row[5]) for row in rows]
        widths = [max(len(row[i]) for row in rows) for i in range(6)]
        lines = []
        for row in rows:
            cells = [
                cell.rjust(width) if i in (3, 4) else cell.ljust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
                if width
            ]
            lines.append("  ".join(cells).rstrip())
        return "\n".join([*lines, *self._summary()])

    def _summary(self) -> list[str]:
        done = sum(layer.quantized for layer in self.layers)
        lines = ["", f"{done} of {len(self.layers)} layers are {self.to.upper()}"]
        if self.error is not None:
            lines[-1] += f"; the outputs' error is {_percent(self.error)}"
        lines.append(f"error: {self._measured}")
        reasons: dict[str, list[str]] = {}
        for layer in self.left:
            reasons.setdefault(layer.reason, []).append(_shortened(layer.name))
        for reason, names in reasons.items():
            more = f" and {len(names) - 4} more" if len(names) > 4 else ""
            lines.append(f"left ({reason}): {', '.join(names[:4])}{more}")
        return lines + [f"warning: {text}" for text in self.warnings]

    def __repr__(self) -> str:
        done = sum(layer.quantized for layer in self.layers)
        return f"<Quantization to {self.to}: {done} of {len(self.layers)} layers>"
