"""Rotary embeddings as models of torch write them, on a GPU."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tests.python.torch_models.test_rotations import FORMS, check  # noqa: E402

from . import cuda_driver  # noqa: E402

pytestmark = [
    pytest.mark.skipif(
        not cuda_driver.available(), reason="no GPU and no stand-in for one"
    ),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.mark.parametrize("name", FORMS)
def test_rotation(name: str) -> None:
    check(name, torch.float16, "cuda")
