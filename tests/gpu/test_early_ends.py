"""Runs that end early on a GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.python.support.early_ends import (
    Repeated,
    check_cancel,
    check_limit,
    engine_of,
)

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)


@pytest.fixture(scope="module")
def run() -> Iterator[Any]:
    with contextlib.ExitStack() as stack:
        names = ("x", "count", "y")
        places = {name: stack.enter_context(cuda_driver.memory(16)) for name in names}

        def place(name: str, array: Any) -> int:
            cuda_driver.write(places[name], np.atleast_1d(array))
            return places[name]

        context = engine_of("cuda").create_execution_context()
        yield Repeated(context, place, lambda name: cuda_driver.read(places[name], (4,)))
        del context


@pytest.mark.parametrize("check", [check_limit, check_cancel])
def test_numpy_agrees(run: Any, check: Any) -> None:
    check(run)
