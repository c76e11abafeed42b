"""Verdicts: the outcome for a file, in a word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FAILURES = {
    "export": "no export",
    "reference": "no ORT",
    "import": "NO IMPORT",
    "build": "NO BUILD",
    "run": "NO RUN",
}
"""Verdicts of errors in each stage of a check; later stages are only timing."""
UNCOUNTED = ("no export", "no ORT")
"""Verdicts on files that were not written, or that ONNX Runtime does not run."""


def verdict(result: Mapping[str, Any]) -> str:
    """One word for a result."""
    stage = result["stage"]
    if "crash" in result and stage not in ("export", "reference"):
        return "LIMIT" if result["crash"].startswith("took") else "CRASH"
    if "error" in result and stage in _FAILURES:
        return _FAILURES[stage]
    return "right" if result.get("right") else "WRONG"


def brief(result: Mapping[str, Any]) -> str:
    """Details beside the verdict."""
    if "error" in result and "worst" not in result:
        return " ".join(result["error"].split())[:300]
    text = f"{result['worst']:.1e}"
    if "seconds" in result:
        text += f" {result['seconds'] / result['ort_seconds']:.2f} of ORT's time"
    return text
