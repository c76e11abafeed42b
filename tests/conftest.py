"""The order of the files: those that take longest begin first, so that pytest's
processes, each of which runs whole files, end together."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Each of the processes has a core. Kernels in several threads are run by conformance, by
# random networks, and by tests that ask for threads.
os.environ.setdefault("RABBET_THREADS", "1")
os.environ.setdefault("RABBET_PROGRAM_CACHE", "none")

ROOT = Path(__file__).resolve().parents[1]
LONG = [
    "tests/python/project/test_cuda_stand_in.py",
    "tests/python/project/test_examples.py",
    "tests/python/torch_models/test_compile.py",
    "tests/python/parallel/test_collectives.py",
    "tests/python/torch_models/test_control_flow.py",
    "tests/python/torch_models/test_lent_weights.py",
    "tests/models/test_rabbet.py",
    "tests/python/project/test_docs.py",
    "tests/python/torch_models/test_backend.py",
    "tests/python/importer/test_onnx_nodes.py",
    "tests/models/test_torch_export.py",
    "tests/python/importer/test_exported_attention.py",
    "tests/python/compat/test_compat.py",
    "tests/python/torch_models/test_decoder.py",
    "tests/python/interface/test_calibration.py",
    "tests/python/importer/test_hostile_onnx.py",
    "tests/python/plugins/test_carried_source.py",
    "tests/python/plugins/test_plugin_loading.py",
    "tests/bench/test_harness.py",
    "tests/models/test_models.py",
    "tests/python/randomized/test_random_networks.py",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {ROOT / name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: rank.get(item.path, len(LONG)))
