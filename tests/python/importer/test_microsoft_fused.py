"""Operators of com.microsoft that are several of ONNX's in one, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
import rabbet

from tests.python.support import onnx_text
from tests.python.support.onnx_runtime_nodes import Case, check, feeds_of, model_of

SIZES = [{"b": 2, "s": 5}, {"b": 1, "s": 1}, {"b": 3, "s": 7}, {"b": 0, "s": 4}]
VECTORS = "float[8] scale, float[8] shift, float[8] bias"

CASES = {
    "Gelu": Case("float[b,s,8] x", "float[b,s,8] y", "y = com.microsoft.Gelu(x)"),
    "BiasGelu": Case(
        "float[b,s,8] x, float[8] c", "float[b,s,8] y", "y = com.microsoft.BiasGelu(x, c)"),
    "FastGelu": Case("float[b,s,8] x", "float[b,s,8] y", "y = com.microsoft.FastGelu(x)"),
    "FastGelu with a bias": Case(
        "float[b,s,8] x, float[8] c", "float[b,s,8] y", "y = com.microsoft.FastGelu(x, c)"),
    "QuickGelu": Case("float[b,s,8] x", "float[b,s,8] y", "y = com.microsoft.QuickGelu(x)"),
    "QuickGelu with alpha": Case(
        "float[b,s,8] x", "float[b,s,8] y", "y = com.microsoft.QuickGelu<alpha = 1.0>(x)"),
    "FusedMatMul": Case(
        "float[b,s,8] x, float[8,3] w", "float[b,s,3] y",
        "y = com.microsoft.FusedMatMul<alpha = 0.25>(x, w)", "w"),
    "FusedMatMul transposed": Case(
        "float[b,s,8] x, float[b,s,6] w", "float[b,8,6] y",
        "y = com.microsoft.FusedMatMul<transA = 1>(x, w)"),
    "FusedMatMul transposed twice": Case(
        "float[b,s,8] x, float[6,s] w", "float[b,8,6] y",
        "y = com.microsoft.FusedMatMul<transA = 1, transB = 1, alpha = 2.0>(x, w)"),
    "FusedMatMul of batches behind": Case(
        "float[s,b,2,8] x, float[8,b,2,3] w", "float[b,2,s,3] y",
        "y = com.microsoft.FusedMatMul<transBatchA = 1, transBatchB = 1>(x, w)"),
    "FusedMatMul of batches behind, transposed": Case(
        "float[8,b,2,s] x, float[3,b,2,8] w", "float[b,2,s,3] y",
        "y = com.microsoft.FusedMatMul<transBatchA = 1, transBatchB = 1, transA = 1, "
        "transB = 1>(x, w)"),
    "FusedMatMul of a vector": Case(
        "float[8] x, float[b,8,6] w", "float[b,6] y",
        "y = com.microsoft.FusedMatMul<transA = 1>(x, w)"),
    "FusedGemm": Case(
        "float[b,8] x, float[6,8] w, float[6] c", "float[b,6] y",
        'y = com.microsoft.FusedGemm<activation = "LeakyRelu", activation_alpha = 0.3, '
        "transB = 1, beta = 0.5>(x, w, c)", "w c"),
    "SkipLayerNormalization": Case(
        f"float[b,s,8] x, float[b,s,8] skip, {VECTORS}",
        "float[b,s,8] y, float[b,s,8] sum",
        "y, , , sum = com.microsoft.SkipLayerNormalization<epsilon = 1e-5>"
        "(x, skip, scale, shift, bias)"),
    "SkipLayerNormalization of one skip for all": Case(
        "float[b,s,8] x, float[s,8] skip, float[8] scale", "float[b,s,8] y",
        "y = com.microsoft.SkipLayerNormalization(x, skip, scale)"),
    "SkipSimplifiedLayerNormalization": Case(
        "float[b,s,8] x, float[b,s,8] skip, float[8] scale, float[8] bias",
        "float[b,s,8] y, float[b,s,8] sum",
        "y, , , sum = com.microsoft.SkipSimplifiedLayerNormalization<epsilon = 1e-5>"
        "(x, skip, scale, bias)"),
    "SimplifiedLayerNormalization": Case(
        "float[b,s,8] x, float[8] scale", "float[b,s,8] y",
        "y = SimplifiedLayerNormalization<axis = -1, epsilon = 1e-5>(x, scale)"),
    "EmbedLayerNormalization": Case(
        "int32[b,s] ids, int32[b,s] kinds, float[9,8] words, float[7,8] places, "
        "float[4,8] parts, float[8] scale, float[8] shift, int32[b,s] mask",
        "float[b,s,8] y, int32[b] index, float[b,s,8] sum",
        "y, index, sum = com.microsoft.EmbedLayerNormalization<epsilon = 1e-5>"
        "(ids, kinds, words, places, parts, scale, shift, mask)",
        values={"mask": lambda n: np.arange(n["s"]) < np.arange(n["b"])[:, None] + 1}),
    "EmbedLayerNormalization without segments": Case(
        "int32[b,s] ids, float[9,8] words, float[7,8] places, "
        "float[8] scale, float[8] shift, int32[b,s] at",
        "float[b,s,8] y, int32[b] index",
        "y, index = com.microsoft.EmbedLayerNormalization"
        "(ids, , words, places, , scale, shift, , at)"),
    "FusedConv": Case(
        "float[b,4,s,8] x, float[6,2,3,3] w, float[6] c, float[b,6,s,4] z", "float[b,6,s,4] y",
        'y = com.microsoft.FusedConv<activation = "Relu", pads = [1, 1, 1, 1], '
        "strides = [1, 2], group = 2>(x, w, c, z)", "w c"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_as_onnx_runtime(name: str) -> None:
    sizes = SIZES
    if CASES[name].node.count("FusedConv"):
        sizes = SIZES[:3]  # ONNX Runtime divides by the batch
    check(CASES[name], sizes)


@pytest.mark.parametrize(
    ("function", "params"),
    [("Relu", ""), ("Sigmoid", ""), ("Tanh", ""), ("LeakyRelu", "0.3"),
     ("Clip", "-0.5, 0.75"), ("HardSigmoid", "0.3, 0.4")],
)  # fmt: skip
def test_activations_of_convolutions(function: str, params: str) -> None:
    given = f", activation_params = [{params}]" if params else ""
    check(
        Case("float[1,4,6,8] x, float[6,4,3,3] w, float[6] c", "float[1,6,4,6] y",
             f'y = com.microsoft.FusedConv<activation = "{function}"{given}>(x, w, c)', "w c"),
    )  # fmt: skip


# Operators that ONNX Runtime has on GPUs only: the node, and what it stands for.
PLAIN = {
    "BiasSplitGelu": (
        "float[b,s,8] x, float[8] c", "float[b,s,4] y",
        "y = com.microsoft.BiasSplitGelu(x, c)",
        "t = Add(x, c) l, r = Split<axis = -1, num_outputs = 2>(t) g = Gelu(r) y = Mul(l, g)"),
    "GroupNorm": (
        "float[b,s,3,8] x, float[8] scale, float[8] shift", "float[b,s,3,8] y",
        "y = com.microsoft.GroupNorm<groups = 4, activation = 0>(x, scale, shift)",
        "t = Transpose<perm = [0, 3, 1, 2]>(x) "
        "n = GroupNormalization<num_groups = 4>(t, scale, shift) "
        "y = Transpose<perm = [0, 2, 3, 1]>(n)"),
    "GroupNorm with SiLU": (
        "float[b,8,s,3] x, float[8] scale, float[8] shift", "float[b,8,s,3] y",
        "y = com.microsoft.GroupNorm<groups = 2, activation = 1, channels_last = 0, "
        "epsilon = 0.001>(x, scale, shift)",
        "n = GroupNormalization<num_groups = 2, epsilon = 0.001>(x, scale, shift) "
        "g = Sigmoid(n) y = Mul(n, g)"),
    "NhwcConv": (
        "float[b,s,7,4] x, float[6,3,3,2] w, float[6] c", "float[b,s,4,6] y",
        "y = com.microsoft.NhwcConv<pads = [1, 1, 1, 1], strides = [1, 2], group = 2>(x, w, c)",
        "t = Transpose<perm = [0, 3, 1, 2]>(x) v = Transpose<perm = [0, 3, 1, 2]>(w) "
        "n = Conv<pads = [1, 1, 1, 1], strides = [1, 2], group = 2>(t, v, c) "
        "y = Transpose<perm = [0, 2, 3, 1]>(n)"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLAIN)
def test_as_the_plain_form(name: str) -> None:
    inputs, outputs, node, plain = PLAIN[name]
    model = onnx_text.model_of(inputs, outputs, plain, 21, 10)
    case = Case(inputs, outputs, node)
    runs = [feeds_of(case, model, sizes, i) for i, sizes in enumerate(SIZES[:3])]
    made = onnx_text.compiled(model_of(case), runs)
    for run in runs:
        found = made.run(run)["y"]
        np.testing.assert_allclose(found, onnx_text.expected(model, run)[0], 1e-4, 1e-5)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (
            Case("float[1,4,6,8] x, float[6,4,3,3] w", "float[1,6,4,6] y",
                 'y = com.microsoft.FusedConv<activation = "Softsign">(x, w)'),
            "node 0 .*FusedConv, domain 'com.microsoft'.* attribute 'activation' is "
            "'Softsign'; expected Relu, ",
        ),
        (
            Case("float[1,4,4,8] x, float[8] c", "float[1,4,4,8] y",
                 "y = com.microsoft.GroupNorm<groups = 4, activation = 2>(x, c, c)"),
            "attribute 'activation' is 2; expected 0",
        ),
        (
            Case("float[1,4,4,8] x, float[8] c", "float[1,4,4,8] y",
                 "y = com.microsoft.GroupNorm<groups = 3, activation = 0>(x, c, c)"),
            "a multiple of groups, 3",
        ),
        (
            Case("float[1,4,8] x, float[8] c", "float[1,4,8] y, float[1,4,1] mean",
                 "y, mean = com.microsoft.SkipLayerNormalization(x, x, c)"),
            r"outputs 1 and 2 \(mean, inv_std_var\)",
        ),
        (
            Case("float[4,8] x", "float[4,8] y", "y = com.microsoft.FastGello(x)"),
            r"did you mean 'FastGelu'\?",
        ),
    ],
)  # fmt: skip
def test_mistakes_are_named(case: Case, message: str) -> None:
    with pytest.raises(rabbet.Error, match=message):
        rabbet.compile(model_of(case).SerializeToString())


def test_the_operator_set_must_be_imported() -> None:
    model = model_of(CASES["Gelu"])
    del model.opset_import[1]
    with pytest.raises(rabbet.Error, match=r"no version of the operator set 'com\.microsoft'"):
        rabbet.compile(model.SerializeToString())


def test_layer_normalization_in_a_model_older_than_the_operator() -> None:
    """ONNX Runtime's optimizer leaves a model in its operator set."""
    case = Case(
        "float[b,s,8] x, float[8] scale, float[8] shift", "float[b,s,8] y",
        "y = LayerNormalization<axis = -1, epsilon = 1e-4>(x, scale, shift)",
    )  # fmt: skip
    model = onnx_text.model_of(case.inputs, case.outputs, case.node, 12, 10)
    runs = [feeds_of(case, model, sizes, i) for i, sizes in enumerate(SIZES[:3])]
    made = onnx_text.compiled(model, runs)
    for run in runs:
        found = made.run(run)["y"]
        np.testing.assert_allclose(found, onnx_text.expected(model, run)[0], 1e-4, 1e-5)


@pytest.mark.parametrize("kind", ["uint8", "int8", "uint16", "int16"])
@pytest.mark.parametrize("rows", [1, 3])
def test_quantized_and_back(kind: str, rows: int) -> None:
    """As ONNX Runtime's quantizer writes types that ONNX's own operators had later."""
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    rng = np.random.default_rng(rows)
    steps = rng.uniform(0.5, 2, rows).astype(np.float32) * 8 / (high - low)
    zeros = rng.integers(low // 2, high // 2, rows).astype(kind)
    x = (rng.standard_normal((4, rows, 5)) * 3).astype(np.float32)
    shape = "" if rows == 1 else f"[{rows}]"
    listed = [f"{{{', '.join(map(str, values.tolist()))}}}" for values in (steps, zeros)]
    text = f"""<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        g (float[b, {rows}, 5] x) => (float[b, {rows}, 5] y, {kind}[b, {rows}, 5] q)
        <float{shape} step = {listed[0]}, {kind}{shape} zero = {listed[1]}> {{
        q = com.microsoft.QuantizeLinear<axis = 1>(x, step, zero)
        p = Identity(q)
        y = com.microsoft.DequantizeLinear<axis = 1>(p, step, zero)
        }}"""
    data = onnx.parser.parse_model(text).SerializeToString()
    wanted = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(
        None, {"x": x}
    )
    shapes = {"x": ((1, rows, 5), (4, rows, 5), (6, rows, 5))}
    y, q = rabbet.compile(data, device="cpu", threads=1, shapes=shapes)(x)
    np.testing.assert_array_equal(q, wanted[1].astype(q.dtype))
    np.testing.assert_allclose(y, wanted[0], rtol=1e-6)
