"""Loops on a GPU: the host reads counts and conditions, bodies are recorded."""

from __future__ import annotations

from typing import Any

import pytest

from tests.python.support.run_loops import CHECKS

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)


@pytest.mark.parametrize("check", CHECKS)
def test_numpy_agrees(check: Any) -> None:
    check("cuda")
