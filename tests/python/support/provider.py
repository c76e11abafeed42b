"""Sessions of ONNX Runtime with Rabbet as a provider."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnxruntime as ort
import rabbet.onnxruntime

NAME = "RabbetExecutionProvider"
_RECORD = "session.record_ep_graph_assignment_info"


def options_of(entries: dict[str, str] | None = None) -> Any:
    """Session options; errors alone are logged."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    for key, value in {_RECORD: "1", **(entries or {})}.items():
        options.add_session_config_entry(key, value)
    return options


def session(model: Any, entries: dict[str, str] | None = None, **options: Any) -> Any:
    """A session by provider name. Timing alternatives is not what is tested."""
    rabbet.onnxruntime.register()
    texts = {"optimization_level": "0", "threads": "1"}
    texts |= {name: str(value) for name, value in options.items()}
    return ort.InferenceSession(model, options_of(entries), providers=[(NAME, texts)])


def reference(model: Any) -> Any:
    """A session of the CPU's provider."""
    return ort.InferenceSession(model, options_of(), providers=["CPUExecutionProvider"])


def parts(found: Any) -> list[list[str]]:
    """The operators of each part that Rabbet took."""
    taken = found.get_provider_graph_assignment_info()
    return [[node.op_type for node in part.get_nodes()] for part in taken if part.ep_name == NAME]


def others(found: Any) -> Counter[str]:
    """The operators that were left to others."""
    taken = found.get_provider_graph_assignment_info()
    return Counter(
        node.op_type for part in taken if part.ep_name != NAME for node in part.get_nodes())


def same(got: Any, want: Any, rtol: float = 2e-3, atol: float = 1e-4) -> None:
    """Equal types, shapes and, nearly, values; in lists, too."""
    if isinstance(want, list):
        assert len(got) == len(want)
        for one, other in zip(got, want, strict=True):
            same(one, other, rtol, atol)
    elif not isinstance(want, np.ndarray) or want.dtype == object:
        assert np.all(got == want)
    else:
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        exact = want.dtype.kind not in "fc" and want.dtype.itemsize > 2
        np.testing.assert_allclose(
            got if want.dtype == bool else got.astype(np.float64),
            want if want.dtype == bool else want.astype(np.float64),
            rtol=0 if exact else rtol, atol=0 if exact else atol)
