"""Tensors without elements."""

from __future__ import annotations

from tests.python.support.empty import (
    check_axes,
    check_batches,
    check_padding_alone,
    check_products,
)


def test_products() -> None:
    check_products("cpu")


def test_batches() -> None:
    check_batches("cpu")


def test_axes() -> None:
    check_axes("cpu")


def test_padding_alone() -> None:
    check_padding_alone("cpu")
