"""The onnx package's node tests in ONNX Runtime's sessions: with Rabbet as the provider
they give what its CPU provider gives."""

from __future__ import annotations

import copy
import os
import random
from typing import Any

import numpy as np
import onnx
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


def _opened(model: Any) -> Any:
    """The model without the extents of its inputs and outputs."""
    made = copy.deepcopy(model)
    del made.graph.value_info[:]
    for i, value in enumerate([*made.graph.input, *made.graph.output]):
        if not value.type.HasField("tensor_type"):
            continue
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            dim.dim_param = f"d{i}_{axis}"
        if i >= len(made.graph.input):
            value.type.tensor_type.ClearField("shape")
    return made


def _reference(case: Any, model: Any) -> tuple[dict[str, Any], Any] | None:
    """Inputs, and outputs of the CPU's provider; None if it cannot run the model."""
    try:
        session = provider.reference(model.SerializeToString())
        names = [x.name for x in session.get_inputs()]
        feeds = dict(zip(names, case.data_sets[0][0], strict=False))
        return feeds, session.run(None, feeds)
    except Exception:
        return None


def _check(case: Any, is_open: bool = False) -> str:
    """Who ran it: "rabbet", "both", "other", or "none" if nobody can."""
    model = _opened(case.model) if is_open else case.model
    found = _reference(case, model)
    if found is None:
        return "none"
    feeds, want = found
    session = provider.session(model.SerializeToString())
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


def test_nodes_of_open_extents_at_random() -> None:
    """What is taken when extents are open runs, whatever they are in a run."""
    cases = onnx_cases.load_all()
    who = [_check(cases[name], is_open=True) for name in _names()]
    assert who.count("rabbet") >= 0.5 * (len(who) - who.count("none"))


def _sessions_agree(text: str, feeds: list[dict[str, Any]]) -> Any:
    """The parts that Rabbet took; all runs give what ONNX Runtime's own provider gives."""
    head = '<ir_version: 8, opset_import: ["" : 17]> '
    data = onnx.parser.parse_model(head + text).SerializeToString()
    session, reference = provider.session(data), provider.reference(data)
    for feed in feeds:
        provider.same(session.run(None, feed), reference.run(None, feed))
    return provider.parts(session)


def _x(*shape: int) -> dict[str, Any]:
    return {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}


def test_results_whose_rank_only_a_run_tells_are_left_to_others() -> None:
    """Squeeze without axes, and an If of two ranks, as torch exports x.squeeze(1)."""
    squeeze = "g (float[N, 1, M] x) => (float[] y) { n = Neg(x) s = Squeeze(n) y = Exp(s) }"
    shapes = [(2, 1, 3), (1, 1, 3), (2, 1, 1), (3, 1, 5)]
    assert _sessions_agree(squeeze, [_x(*s) for s in shapes]) == [["Neg"]]
    choice = """g (float[N, M] x) => (float[] y) <int64[1] axis = {1}, int64 one = {1}> {
        n = Neg(x) s = Shape(n) m = Gather(s, one) is_one = Equal(m, one)
        c = If(is_one) <then_branch = a () => (float[] p) { p = Squeeze(n, axis) },
                        else_branch = b () => (float[] q) { q = Identity(n) }>
        y = Exp(c)
    }"""
    taken = _sessions_agree(choice, [_x(*s) for s in [(2, 3), (2, 1), (1, 1), (4, 2)]])
    assert all("If" not in part for part in taken)
    flags = """g (float[N] x) => (bool[] y) <float zero = {0}, int64[1] axis = {0}> {
        s = ReduceSum<keepdims = 0>(x) c = Greater(s, zero) v = Unsqueeze(c, axis)
        y = If(c) <then_branch = a () => (bool[] p) { p = Not(c) },
                   else_branch = b () => (bool[] q) { q = Not(v) }>
    }"""
    _sessions_agree(flags, [{"x": np.float32([v, v])} for v in (1, -1)])


def test_squeeze_of_extents_that_are_known_is_taken() -> None:
    text = "g (float[2, 1, 3] x) => (float[2, 3] y) { n = Neg(x) s = Squeeze(n) y = Exp(s) }"
    assert _sessions_agree(text, [_x(2, 1, 3)]) == [["Neg", "Squeeze", "Exp"]]
    axes = """g (float[N, 1, M] x) => (float[N, M] y) <int64[1] axis = {1}> {
        n = Neg(x) s = Squeeze(n, axis) y = Exp(s)
    }"""
    shapes = [(2, 1, 3), (1, 1, 1)]
    assert _sessions_agree(axes, [_x(*s) for s in shapes]) == [["Neg", "Squeeze", "Exp"]]


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
