"""Operands that follow from shapes or from data, on a GPU."""

from __future__ import annotations

import pytest

from tests.python.importer import test_onnx_lengths as lengths
from tests.python.support import onnx_text

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)


@pytest.mark.parametrize("name", [
    "range_between", "range_step_back", "length_by_round", "trilu_k", "eye_like_k", "one_hot",
    "slice_step_either", "split", "resize_by_uneven_scales", "resize_by_policy",
])  # fmt: skip
def test_operands_from_shapes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_text, "DEVICE", "cuda")
    lengths.test_operands_from_shapes(name)


@pytest.mark.parametrize("name", [
    "range_of_floats", "mask_of_lengths", "reshape_by_values_that_copy", "slice_by_values",
    "resize_by_values",
])  # fmt: skip
def test_operands_from_data(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_text, "DEVICE", "cuda")
    lengths.test_operands_from_data(name)


@pytest.mark.parametrize("name", ["range_through_float", "reshape_to_input"])
def test_inputs_that_are_sizes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_text, "DEVICE", "cuda")
    lengths.test_inputs_that_are_sizes(name, False)
