"""Decoders on a GPU: two profiles in one plan, caches in place, tokens chosen there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import rabbet as trt

from tests.python.interface import test_profile_kernels as profiles

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)


def test_each_profile_runs_its_kernels(tmp_path: Any) -> None:
    plan = profiles.build([profiles.LONG, profiles.ONE], profiles.ByRows(), device="cuda")
    (tmp_path / "two.plan").write_bytes(plan)
    model = trt.load(tmp_path / "two.plan", device="cuda")
    assert "OtherProfiles" in model.inspect_json()
    for count in (64, 1, 3, 1, 64):
        x = profiles.rows(count)
        np.testing.assert_allclose(model(x), profiles.expected(x), 5e-3, 1e-3)


def test_tokens_are_those_without_a_cache() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    from tests.python.torch_models.decoder_model import check_greedy, check_sampling

    check_greedy("cuda", tf32=False)
    check_sampling("cuda", tf32=False)
