"""RNN, GRU and LSTM on a GPU against ONNX Runtime (with TF32): runs that are launched, and
such that are replayed."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import rabbet

from tests.python.importer.test_onnx_recurrent import model_of

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)


@pytest.mark.parametrize(
    ("kind", "attrs"),
    [("RNN", {}), ("GRU", {}), ("GRU", {"linear_before_reset": 1}), ("LSTM", {"clip": 0.5})],
)
def test_any_length(kind: str, attrs: dict[str, Any]) -> None:
    options = {"lengths": "input", "direction": "bidirectional", **attrs}
    low, opt, high = (
        model_of(kind, sizes=(t, b, 4, 37), **options)[1]
        for t, b in [(0, 1), (5, 3), (9, 10)]
    )
    shapes = {name: [f[name].shape for f in (low, opt, high)] for name in opt}
    model, _ = model_of(kind, sizes=(5, 3, 4, 37), dims=("t", "n"), **options)
    made = rabbet.compile(model, device="cuda", shapes=shapes, optimization_level=1)
    session = ort.InferenceSession(model.SerializeToString())
    for steps, batch in [(5, 3), (1, 1), (9, 10), (0, 2)]:
        _, feeds = model_of(kind, sizes=(steps, batch, 4, 37), **options)
        wanted = session.run(None, feeds)
        for _ in range(3):
            for ours, theirs in zip(made(**feeds), wanted, strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=5e-3, atol=5e-3)
