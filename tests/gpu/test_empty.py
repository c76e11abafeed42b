"""Tensors without elements, which libraries refuse, on a GPU."""

from __future__ import annotations

import pytest

from tests.python.support.empty import check_axes, check_batches, check_products

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)


def test_products() -> None:
    check_products("cuda")


def test_batches() -> None:
    check_batches("cuda")


def test_axes() -> None:
    check_axes("cuda")
