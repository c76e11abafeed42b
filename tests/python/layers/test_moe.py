"""Mixtures of experts, against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import rabbet as trt

from tests.python.support.plugins import build, random
from tests.python.support.reference_ops import OpError, evaluate

FP8 = ml_dtypes.float8_e4m3fn
HIDDEN, INNER, EXPERTS, CHOSEN = 24, 40, 5, 2


def weights(seed: int = 0, biased: bool = False) -> list[Any]:
    shapes = [(EXPERTS, HIDDEN, INNER)] * 2 + [(EXPERTS, INNER, HIDDEN)]
    if biased:
        shapes += [(EXPERTS, INNER)] * 2 + [(EXPERTS, HIDDEN)]
    return [random(*s, seed=seed + i) / 4 for i, s in enumerate(shapes)]


def tokens(*shape: int, seed: int = 50) -> list[Any]:
    """Hidden states, chosen experts, scores."""
    rng = np.random.default_rng(seed)
    order = rng.random((*shape, EXPERTS)).argsort(-1)[..., :CHOSEN]
    scores = rng.random((*shape, CHOSEN)).astype(np.float32)
    return [random(*shape, HIDDEN, seed=seed), order.astype(np.int32), scores]


def expected(
    x: Any, chosen: Any, scores: Any, gate: Any, up: Any, down: Any, *biases: Any,
    silu: bool = True, limit: float = np.inf, alpha: float = 1, beta: float = 0,
    rounded: Any = lambda row: row,
) -> Any:
    result = np.zeros(x.shape)
    for at in np.ndindex(*chosen.shape):
        e = chosen[at]
        if not 0 <= e < EXPERTS:
            continue
        row = x[at[:-1]].astype(np.float64)
        g, u = row @ gate[e], row @ up[e]
        if biases:
            g, u = g + biases[0][e], u + biases[1][e]
        g, u = np.minimum(g, limit), np.clip(u, -limit, limit)
        if silu:
            g = g / (1 + np.exp(-alpha * g))
        y = rounded(g * (u + beta)) @ down[e]
        result[at[:-1]] += scores[at] * (y + (biases[2][e] if biases else 0))
    return result


# ---- The operator


def check(inputs: list[Any], wanted: Any, **attrs: Any) -> None:
    found = evaluate("moe", *inputs, **attrs)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("shape", [(7,), (2, 3)], ids=str)
def test_reference(shape: Any, biased: bool) -> None:
    given = [*tokens(*shape), *weights(biased=biased)]
    check(given, expected(*given))


@pytest.mark.parametrize("biased", [False, True])
def test_experts_of_one_product(biased: bool) -> None:
    """Without gate and up, rows of `inner` elements."""
    _, chosen, scores = tokens(7)
    x, down = random(7, INNER), random(EXPERTS, INNER, HIDDEN, seed=3)
    bias = [random(EXPERTS, HIDDEN, seed=4)] if biased else []
    chosen[2, 0] = EXPERTS  # which does not exist
    products = np.einsum("ti,eih->teh", x, down) + (bias[0] if biased else 0)
    wanted = np.zeros((7, HIDDEN))
    for token, place in np.ndindex(*chosen.shape):
        if chosen[token, place] < EXPERTS:
            wanted[token] += scores[token, place] * products[token, chosen[token, place]]
    check([x, chosen, scores, None, None, down, *([None, None] if bias else []), *bias], wanted)


def test_without_scores_each_expert_counts_once() -> None:
    given = [*tokens(6), *weights(biased=True)]
    ones = np.ones_like(given[2])
    check([*given[:2], None, *given[3:]], expected(*given[:2], ones, *given[3:]))


def test_experts_of_one_product_have_no_other_parts() -> None:
    _, chosen, scores = tokens(7)
    x, down = random(7, INNER), random(EXPERTS, INNER, HIDDEN, seed=3)
    given = [x, chosen, scores, None, None, down]
    gate = random(EXPERTS, HIDDEN, INNER)
    for wrong, message in [
        ([random(7, HIDDEN), *given[1:]], r"'fc_down_weights'\).*\[experts, inner"),
        ([*given, random(EXPERTS, INNER)], "without the weights of gate and up"),
        ([*given[:3], gate, None, down], r"'fc_up_weights'\) is missing"),
        ([*given[:5], None], r"'fc_gate_weights'\) is missing"),
    ]:
        with pytest.raises(OpError, match=message):
            evaluate("moe", *wrong)
    with pytest.raises(OpError, match="whose product would be quantized"):
        evaluate("moe", *given, None, None, None, np.ones((), np.float32),
                 quantization_to_type="INT8")


def test_reference_parameters() -> None:
    given = [*tokens(2, 3), *weights(biased=True)]
    params = {"limit": 0.5, "alpha": 1.702, "beta": 1.0}
    attrs = {f"swiglu_param_{k}": v for k, v in params.items()}
    check(given, expected(*given, **params), **attrs)
    check(given, expected(*given, silu=False), activation_type="NONE")


def test_reference_leaves_out_experts_that_do_not_exist() -> None:
    given = [*tokens(6), *weights(biased=True)]
    given[1][2:4] = [[-1, 0], [EXPERTS, -7]]
    wanted = expected(*given)
    assert not wanted[3].any()
    check(given, wanted)


def block_rounding(to: str, block: int) -> Any:
    """Of rows, with scales of FLOAT."""
    limit = 127 if to == "INT8" else 448

    def rounded(row: Any) -> Any:
        result = np.empty_like(row)
        for first in range(0, row.size, block):
            part = row[first : first + block]
            scale = np.abs(part).max() / limit
            q = part / scale
            q = np.rint(q) if to == "INT8" else q.astype(np.float32).astype(FP8)
            result[first : first + block] = q.astype(np.float64) * scale
        return result

    return rounded


def static_rounding(to: str, scale: float) -> Any:
    def rounded(row: Any) -> Any:
        if to == "INT8":
            return np.clip(np.rint(row / scale), -128, 127) * scale
        return (row / scale).astype(np.float32).astype(FP8).astype(np.float64) * scale

    return rounded


@pytest.mark.parametrize("to", ["INT8", "FP8"])
def test_reference_rounding(to: str) -> None:
    given = [*tokens(9), *weights(biased=True)]
    scale = np.array(1 / 64, np.float32)
    found = evaluate("moe", *given, scale, quantization_to_type=to)
    wanted = expected(*given, rounded=static_rounding(to, 1 / 64))
    # Numbers between two of 8 bits go either way.
    assert np.abs(found - wanted).mean() < 1e-4
    assert np.abs(wanted - expected(*given)).mean() > 2e-3
    found = evaluate("moe", *given, np.array(0.25, np.float32), quantization_to_type=to,
                     quantization_block_shape=[1, 16])
    wanted = expected(*given, rounded=block_rounding(to, 16))
    assert np.abs(found - wanted).mean() < 1e-4


def test_reference_errors() -> None:
    given = [*tokens(3), *weights(biased=True)]
    changes = [
        (4, None, r"input 4 \('fc_up_weights'\) is missing.*set_gated_weights"),
        (7, None, "2 of 3 biases are given"),
        (0, given[0][:2], r"'selected_experts_for_tokens'\) has shape \(3, 2\)"),
        (0, given[0][0], r"'hidden_states'\) has shape \(24,\).*expected \[tokens"),
        (2, given[2][:, :1], r"'scores_for_selected_experts'\).*a score for each"),
        (4, given[4][:, :3], r"'fc_up_weights'\).*\[experts, hidden, inner\]"),
        (5, given[4], r"'fc_down_weights'\).*\[experts, inner, hidden\]"),
        (8, given[7], r"'fc_down_biases'\).*\[experts, hidden\]"),
        (3, given[3].astype(np.float16), "'fc_gate_weights'.*has type HALF.*cast"),
        (1, given[2], "'selected_experts_for_tokens'.*FLOAT"),
    ]
    for index, value, message in changes:
        wrong = [*given]
        wrong[index] = value
        with pytest.raises(OpError, match=message):
            evaluate("moe", *wrong)
    with pytest.raises(OpError, match=r"INT8 and input 9 .* is missing"):
        evaluate("moe", *given, quantization_to_type="INT8")
    scale = np.ones(2, np.float32)
    with pytest.raises(OpError, match="expected one number"):
        evaluate("moe", *given, scale, quantization_to_type="INT8")
    with pytest.raises(OpError, match="'quantization_block_shape' must be 1 but for"):
        evaluate("moe", *given, scale[:1], quantization_to_type="INT8",
                 quantization_block_shape=[2, 16])
    for name, number, expected in [
        ("limit", np.nan, "0 or more"),
        ("limit", -1.0, "0 or more"),
        ("alpha", np.inf, "a finite number"),
        ("beta", np.nan, "a finite number"),
    ]:
        with pytest.raises(OpError, match=f"'swiglu_param_{name}' is .*{expected}"):
            evaluate("moe", *given, **{f"swiglu_param_{name}": number})


def test_a_wrong_limit_is_told_by_the_build() -> None:
    network = trt.Builder().create_network()
    layer = add(network, tokens(1, 4), weights())
    layer.name = "experts"
    layer.set_swiglu_params(float("nan"), 1, 0)
    network.mark_output(layer.get_output(0))
    with pytest.raises(trt.Error, match=r"'experts'.*'swiglu_param_limit' is nan; expected"):
        trt.compile(network, device="cpu")


# ---- Networks


def add(network: Any, given: list[Any], parameters: list[Any]) -> Any:
    """A layer of inputs and constants."""
    inputs = [
        network.add_input(f"x{i}", trt._arrays.dtype_of(v.dtype), v.shape)
        for i, v in enumerate(given)
    ]
    layer = network.add_moe(*inputs)
    constants = [network.add_constant(w.shape, w).get_output(0) for w in parameters]
    if given[0].dtype != np.float32:
        kind = inputs[0].dtype
        constants = [network.add_cast(c, kind).get_output(0) for c in constants]
    layer.set_gated_weights(*constants[:3], trt.MoEActType.SILU)
    if len(constants) > 3:
        layer.set_gated_biases(*constants[3:])
    return layer


def test_layer() -> None:
    given, parameters = tokens(1, 4), weights()

    def make(network: Any) -> Any:
        layer = add(network, given, parameters)
        assert isinstance(layer, trt.IMoELayer)
        assert layer.type is trt.LayerType.MOE
        assert layer.activation_type is trt.MoEActType.SILU
        found = (
            layer.swiglu_param_limit, layer.swiglu_param_alpha, layer.swiglu_param_beta
        )
        assert found == (np.inf, 1.0, 0.0)
        layer.set_swiglu_params(7.0, 1.5, 1.0)
        found = (
            layer.swiglu_param_limit, layer.swiglu_param_alpha, layer.swiglu_param_beta
        )
        assert found == (7.0, 1.5, 1.0)
        layer.swiglu_param_limit = np.inf
        layer.swiglu_param_alpha = 1.0
        layer.swiglu_param_beta = 0.0
        layer.activation_type = trt.MoEActType.NONE
        assert layer.quantization_to_type is trt.float32
        assert tuple(layer.quantization_block_shape) == ()
        assert layer.dyn_q_output_scale_type is trt.float32
        layer.set_input(0, layer.get_input(0))
        assert tuple(layer.get_output(0).shape) == given[0].shape
        return layer.get_output(0)

    found = build(make)(*given)
    wanted = expected(*given, *parameters, silu=False)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("index", [np.int32, np.int64], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=str)
@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (1, 70)], ids=str)
def test_run(shape: Any, dtype: Any, index: Any) -> None:
    x, chosen, scores = tokens(*shape)
    given = [x.astype(dtype), chosen.astype(index), scores.astype(dtype)]
    parameters = weights(biased=True)
    strong = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    model = build(lambda n: add(n, given, parameters).get_output(0), flags=strong)
    found = model(*given)
    assert found.dtype == dtype
    tolerance = 1e-5 if dtype == np.float32 else 5e-3
    np.testing.assert_allclose(
        found.astype(np.float64), expected(*given, *parameters), rtol=tolerance,
        atol=tolerance,
    )


def test_any_number_of_tokens() -> None:
    """More than are computed at once, too."""
    parameters = weights(biased=True)

    def make(network: Any) -> Any:
        given = [
            network.add_input("x", trt.float32, (-1, HIDDEN)),
            network.add_input("experts", trt.int32, (-1, CHOSEN)),
            network.add_input("scores", trt.float32, (-1, CHOSEN)),
        ]
        layer = network.add_moe(*given)
        constants = [network.add_constant(w.shape, w).get_output(0) for w in parameters]
        layer.set_gated_weights(*constants[:3], trt.MoEActType.SILU)
        layer.set_gated_biases(*constants[3:])
        return layer.get_output(0)

    names = {"x": HIDDEN, "experts": CHOSEN, "scores": CHOSEN}
    shapes = {n: ((0, w), (8, w), (4000, w)) for n, w in names.items()}
    model = build(make, shapes=shapes)
    for count in (0, 1, 33, 3000):
        given = tokens(count)
        if count:
            given[1][0] = [EXPERTS, -1]
        np.testing.assert_allclose(
            model(*given), expected(*given, *parameters), rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("to", ["INT8", "FP8"])
def test_rounding(to: str) -> None:
    given, parameters = tokens(1, 20), weights(biased=True)
    kind = getattr(trt.DataType, to)

    def static(network: Any) -> Any:
        layer = add(network, given, parameters)
        scale = network.add_constant((), np.array(1 / 64, np.float32)).get_output(0)
        layer.set_quantization_static(scale, kind)
        assert layer.quantization_to_type is kind
        return layer.get_output(0)

    def dynamic(network: Any) -> Any:
        layer = add(network, given, parameters)
        scale = network.add_constant((), np.array(0.5, np.float32)).get_output(0)
        layer.set_quantization_dynamic_dbl_q(scale, kind, (1, 8), trt.float32)
        assert tuple(layer.quantization_block_shape) == (1, 8)
        assert layer.dyn_q_output_scale_type is trt.float32
        return layer.get_output(0)

    plain = expected(*given, *parameters)
    for make, rounding in (
        (static, static_rounding(to, 1 / 64)),
        (dynamic, block_rounding(to, 8)),
    ):
        wanted = expected(*given, *parameters, rounded=rounding)
        assert np.abs(build(make)(*given) - wanted).mean() < 2e-4
        assert np.abs(plain - wanted).mean() > 1e-3


def test_errors() -> None:
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (1, 4, HIDDEN))
    chosen = network.add_input("experts", trt.int32, (1, 4, CHOSEN))
    scores = network.add_input("scores", trt.float32, (1, 4, CHOSEN))
    layer = network.add_moe(x, chosen, scores)
    layer.name = "experts of layer 7"
    with pytest.raises(trt.Error, match=r"experts of layer 7.*'fc_gate_weights'.*missing"):
        network.validate()
    with pytest.raises(TypeError):
        network.add_moe(x, chosen)
    with pytest.raises(ValueError, match="activation_type"):
        layer.activation_type = 7
    scale = network.add_constant((), np.array(0.5, np.float32)).get_output(0)
    with pytest.raises(trt.Error, match=r"quantization_to_type.*INT8.*FP8"):
        layer.set_quantization_static(scale, trt.fp4)
