"""The onnx package's node tests in ONNX Runtime's sessions: with Rabbet as the provider
they give what its CPU provider gives."""

from __future__ import annotations

import os
import random
from typing import Any

import numpy as np
import pytest

from tests.python.support import onnx_cases, provider

# Where ONNX Runtime's results are not those that ONNX defines.
_ITS_OWN = {
    "test_maxunpool_export_with_output_shape": "the output's strides",
    "test_attention_4d_with_past_and_present_qk_matmul_bias_3d_mask_causal": "-inf is finite",
    "test_attention_4d_with_past_and_present_qk_matmul_bias_4d_mask_causal": "-inf is finite",
}
# Cases of each seed; the whole takes half a minute.
_CASES = 60


def _reference(case: Any) -> tuple[dict[str, Any], Any] | None:
    """Inputs, and outputs of the CPU's provider; None if it cannot run the model."""
    try:
        session = provider.reference(case.model.SerializeToString())
        names = [x.name for x in session.get_inputs()]
        feeds = dict(zip(names, case.data_sets[0][0], strict=False))
        return feeds, session.run(None, feeds)
    except Exception:
        return None


def _check(case: Any) -> str:
    """Who ran it: "rabbet", "both", "other", or "none" if nobody can."""
    found = _reference(case)
    if found is None:
        return "none"
    feeds, want = found
    session = provider.session(case.model.SerializeToString())
    # A discrete Fourier transform in floats is exact to some 1e-3.
    atol = 1e-3 if "_dft" in case.name else 1e-4
    provider.same(session.run(None, feeds), want, atol=atol)
    if not provider.others(session):
        return "rabbet"
    return "both" if provider.parts(session) else "other"


def _names() -> list[str]:
    given = os.environ.get("RABBET_TEST_SEEDS", "1:2").split(":")
    known = sorted(set(onnx_cases.load_all()) - set(_ITS_OWN))
    chosen: set[str] = set()
    for seed in range(int(given[0]), int(given[1])):
        chosen.update(random.Random(seed).sample(known, _CASES))
    return sorted(chosen)


def test_nodes_at_random() -> None:
    cases = onnx_cases.load_all()
    who = {name: _check(cases[name]) for name in _names()}
    run = [name for name, one in who.items() if one != "none"]
    taken = [name for name in run if who[name] == "rabbet"]
    print({name: one for name, one in who.items() if one != "rabbet"})
    assert len(taken) >= 0.75 * len(run)


@pytest.mark.full
def test_all_nodes() -> None:
    cases = onnx_cases.load_all()
    names = sorted(set(cases) - set(_ITS_OWN))
    who = [_check(cases[name]) for name in names]
    assert who.count("rabbet") >= 1350
    assert who.count("none") < 400


# What importers of sequences, loops and functions take apart.
@pytest.mark.parametrize("name", [
    "test_sequence_map_add_2_sequences", "test_sequence_map_identity_1_sequence",
    "test_loop11", "test_loop13_seq", "test_if", "test_scan9_sum", "test_nonzero_example",
    "test_greater_equal_uint16_expanded", "test_affine_grid_3d_expanded",
])  # fmt: skip
def test_control_flow_and_functions(name: str) -> None:
    assert _check(onnx_cases.load_all()[name]) in ("rabbet", "both")


def test_operators_of_others_stay_theirs() -> None:
    case = onnx_cases.load_all()["test_string_concat"]
    assert _check(case) == "other"
    assert np.asarray(case.data_sets[0][1][0]).dtype.kind in "OUT"
