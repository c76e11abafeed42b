"""Loops whose number of iterations only a run knows, against NumPy."""

from __future__ import annotations

from typing import Any

import pytest

from tests.python.support.run_loops import CHECKS


@pytest.mark.parametrize("check", CHECKS)
def test_numpy_agrees(check: Any) -> None:
    check("cpu")
