"""Split models on real GPUs, one for each rank: results are torch's of the whole model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.python.parallel import test_split_ranks as splits

from .test_collectives import _gpus, pytestmark  # noqa: F401 - GPUs are needed here, too


@pytest.mark.parametrize("ranks", [2, 4])
def test_decoder(tmp_path: Path, ranks: int) -> None:
    """Plans of ranks, prompt and tokens."""
    if _gpus() < ranks:
        pytest.skip(f"needs {ranks} GPUs")
    splits.decoder(tmp_path, ranks, real=True)


@pytest.mark.parametrize("name", ["experts", "gpt2", "encoder", "vision", "t5"])
def test_models_that_ranks_compile(tmp_path: Path, name: str) -> None:
    """Each rank builds its own."""
    if _gpus() < 2:
        pytest.skip("needs 2 GPUs")
    splits.family(tmp_path, name, 2, real=True, compiled=True)
