"""Holds the GPU's primary context while its tests run."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from . import cuda_driver


@pytest.fixture(scope="session", autouse=True)
def held_context() -> Iterator[None]:
    if not cuda_driver.available():
        yield
        return
    with cuda_driver.session():
        yield
        gc.collect()
