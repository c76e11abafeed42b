"""Tensors without elements."""

from __future__ import annotations

from .empty import check_axes, check_batches, check_products


def test_products() -> None:
    check_products("cpu")


def test_batches() -> None:
    check_batches("cpu")


def test_axes() -> None:
    check_axes("cpu")
