"""Split models and pipelines on real GPUs, one for each rank: results are torch's of the whole
model."""

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


@pytest.mark.parametrize("ranks", [2, 4])
def test_decoder_in_stages(tmp_path: Path, ranks: int) -> None:
    """Caches stay with their layers."""
    if _gpus() < ranks:
        pytest.skip(f"needs {ranks} GPUs")
    splits.decoder(tmp_path, ranks, real=True, how="pipeline")


@pytest.mark.parametrize("name", ["experts", "gpt2", "encoder", "vision", "t5"])
def test_stages_that_ranks_compile(tmp_path: Path, name: str) -> None:
    """Each rank builds its own."""
    if _gpus() < 2:
        pytest.skip("needs 2 GPUs")
    splits.family(tmp_path, name, 2, real=True, compiled=True, how="pipeline")


def test_stages_overlap(tmp_path: Path) -> None:
    """A rank goes on to its next run while the next rank is in this one."""
    if _gpus() < 2:
        pytest.skip("needs 2 GPUs")
    splits.overlap(tmp_path, real=True)
