"""Mixtures of experts by gathered matrices on a GPU, for few tokens and many."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.python.torch_models.test_experts import NARROW, TOLERANCES, WIDE, check

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)


@pytest.mark.parametrize("form", WIDE)
def test_experts(form: str) -> None:
    check("cuda", form, torch.float32, 1e-5, tf32=False)


@pytest.mark.parametrize(("form", "dtype"), NARROW, ids=str)
def test_narrow_types(form: str, dtype: Any) -> None:
    check("cuda", form, dtype, TOLERANCES[dtype])
