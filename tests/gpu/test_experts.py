"""Mixtures of experts by gathered matrices on a GPU, for few tokens and many."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.python.torch_models.test_experts import FORMS, check

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)


@pytest.mark.parametrize("form", FORMS)
def test_experts(form: str) -> None:
    check("cuda", form, torch.float32, 1e-5, tf32=False)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_narrow_types(dtype: Any) -> None:
    check("cuda", "biased", dtype, 1e-2 if dtype is torch.float16 else 6e-2)
