"""Products of quantized tensors, and quantized operators of com.microsoft, against ONNX
Runtime."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
import rabbet

from tests.python.support.onnx_runtime_nodes import (
    CPU,
    Case,
    check,
    feeds_of,
    hold,
    model_of,
)

SIZES = [{"b": 2, "s": 5}, {"b": 1, "s": 1}, {"b": 3, "s": 7}]
STEP = 1.001
"""A number halfway between two of 8 bits may be rounded to either."""
SCALES = {"xs": 0.02, "ws": 0.03, "ys": 0.4, "as": 0.02, "bs": 0.05}


def column(count: int, least: float = 0.01) -> list[float]:
    return [least * (i + 1) for i in range(count)]


EXACT = {
    "MatMulInteger": Case(
        "uint8[b,s,16] x, int8[16,6] w", "int32[b,s,6] y", "y = MatMulInteger(x, w)", "w"),
    "MatMulInteger with zero points": Case(
        "uint8[b,s,16] x, uint8[16,6] w, uint8 xz, uint8[6] wz", "int32[b,s,6] y",
        "y = MatMulInteger(x, w, xz, wz)", "w xz wz"),
    "MatMulInteger with a computed zero point": Case(
        "uint8[b,s,16] x, int8[16,6] w, uint8 xz, int8 wz", "int32[b,s,6] y",
        "y = MatMulInteger(x, w, xz, wz)", "w wz"),
    "MatMulInteger with a computed zero point of one element": Case(
        "int8[b,16] x, int8[16,6] w, int8[1] xz", "int32[b,6] y",
        "y = MatMulInteger(x, w, xz)", "w"),
    "MatMulInteger of computed factors": Case(
        "uint8[b,s,16] x, uint8[b,16,6] w, uint8 xz, uint8 wz", "int32[b,s,6] y",
        "y = MatMulInteger(x, w, xz, wz)"),
    "MatMulInteger of a vector": Case(
        "uint8[16] x, int8[16,6] w, uint8 xz", "int32[6] y", "y = MatMulInteger(x, w, xz)", "w"),
    "ConvInteger": Case(
        "uint8[b,4,s,8] x, uint8[6,2,3,3] w", "int32[b,6,s,4] y",
        "y = ConvInteger<pads = [1, 1, 1, 1], strides = [1, 2], group = 2>(x, w)", "w"),
    "ConvInteger with zero points": Case(
        "uint8[b,4,s,8] x, uint8[6,4,3,3] w, uint8 xz, uint8 wz", "int32[b,6,s,8] y",
        "y = ConvInteger<pads = [1, 1, 1, 1]>(x, w, xz, wz)", "w wz"),
}  # fmt: skip
QLINEAR = "uint8[b,s,16] x, float xs, uint8 xz, int8[16,6] w, float{0} ws, int8{0} wz"
PAIR = "uint8[b,s,16] x, float xs, uint8 xz, uint8[b,s,16] w, float ws, uint8 wz"
END = "float ys, uint8 yz"
ONE = "uint8[b,8,s,6] x, float xs, uint8 xz"

NEAR = {
    "QLinearMatMul": Case(
        f"{QLINEAR.format('')}, {END}", "uint8[b,s,6] y",
        "y = QLinearMatMul(x, xs, xz, w, ws, wz, ys, yz)", "xs xz w ws wz ys yz"),
    "QLinearMatMul by column": Case(
        f"{QLINEAR.format('[6]')}, {END}", "uint8[b,s,6] y",
        "y = QLinearMatMul(x, xs, xz, w, ws, wz, ys, yz)", "xs xz w ws wz ys yz",
        {"ws": column(6)}),
    "QLinearMatMul of computed scales": Case(
        f"{QLINEAR.format('')}, {END}", "uint8[b,s,6] y",
        "y = QLinearMatMul(x, xs, xz, w, ws, wz, ys, yz)", "w ws wz"),
    "QLinearConv": Case(
        "uint8[b,4,s,8] x, float xs, uint8 xz, int8[6,4,3,3] w, float[6] ws, int8[6] wz, "
        "float ys, uint8 yz, int32[6] c", "uint8[b,6,s,8] y",
        "y = QLinearConv<pads = [1, 1, 1, 1]>(x, xs, xz, w, ws, wz, ys, yz, c)",
        "xs xz w ws wz ys yz c", {"ws": column(6), "wz": [0] * 6, "c": range(0, 1200, 200)}),
    "QLinearConv of UINT8 kernels": Case(
        "uint8[b,4,s,8] x, float[1] xs, uint8[1] xz, uint8[6,2,3,3] w, float ws, uint8 wz, "
        "float ys, uint8 yz", "uint8[b,6,s,8] y",
        "y = QLinearConv<pads = [1, 1, 1, 1], group = 2>(x, xs, xz, w, ws, wz, ys, yz)",
        "xs xz w ws wz ys yz"),
    "QLinearAdd": Case(
        f"{PAIR}, {END}", "uint8[b,s,16] y",
        "y = com.microsoft.QLinearAdd(x, xs, xz, w, ws, wz, ys, yz)", "xs xz ws wz ys yz",
        {"ys": 0.05}),
    "QLinearMul": Case(
        f"{PAIR.replace('[b,s,16] w', '[16] w')}, {END}", "uint8[b,s,16] y",
        "y = com.microsoft.QLinearMul(x, xs, xz, w, ws, wz, ys, yz)",
        "xs xz w ws wz ys yz"),
    "QLinearSigmoid": Case(
        f"{ONE}, {END}", "uint8[b,8,s,6] y",
        "y = com.microsoft.QLinearSigmoid(x, xs, xz, ys, yz)", "xs xz ys yz",
        {"ys": 1 / 256, "yz": 0}),
    "QLinearLeakyRelu": Case(
        f"{ONE}, {END}", "uint8[b,8,s,6] y",
        "y = com.microsoft.QLinearLeakyRelu<alpha = 0.2>(x, xs, xz, ys, yz)", "xs xz ys yz",
        {"ys": 0.02}),
    "QLinearGlobalAveragePool": Case(
        f"{ONE}, {END}", "uint8[b,8,1,1] y",
        "y = com.microsoft.QLinearGlobalAveragePool(x, xs, xz, ys, yz)", "xs xz ys yz",
        {"ys": 0.02}),
    "QLinearGlobalAveragePool with channels last": Case(
        f"{ONE}, {END}", "uint8[b,1,1,6] y",
        "y = com.microsoft.QLinearGlobalAveragePool<channels_last = 1>(x, xs, xz, ys, yz)",
        "xs xz ys yz", {"ys": 0.02}),
    "QLinearAveragePool": Case(
        f"{ONE}, {END}", "uint8[b,8,s,3] y",
        "y = com.microsoft.QLinearAveragePool<kernel_shape = [3, 2], strides = [1, 2], "
        "pads = [1, 0, 1, 0]>(x, xs, xz, ys, yz)", "xs xz ys yz", {"ys": 0.02}),
    "QLinearSoftmax": Case(
        f"{ONE}, {END}", "uint8[b,8,s,6] y",
        "y = com.microsoft.QLinearSoftmax<opset = 13, axis = -1>(x, xs, xz, ys, yz)",
        "xs xz ys yz", {"ys": 1 / 256, "yz": 0}),
    "QLinearConcat": Case(
        f"{PAIR}, {END}", "uint8[b,t,16] y",
        "y = com.microsoft.QLinearConcat<axis = 1>(ys, yz, x, xs, xz, w, ws, wz)",
        "xs xz ws wz ys yz", {"ys": 0.04}),
    "QLinearWhere": Case(
        f"bool[b,s,1] c, {PAIR}, {END}", "uint8[b,s,16] y",
        "y = com.microsoft.QLinearWhere(c, x, xs, xz, w, ws, wz, ys, yz)",
        "xs xz ws wz ys yz", {"ys": 0.04}),
    "QGemm": Case(
        "uint8[b,16] x, float xs, uint8 xz, int8[6,16] w, float[6] ws, int8[6] wz, int32[6] c, "
        "float ys, uint8 yz", "uint8[b,6] y",
        "y = com.microsoft.QGemm<transB = 1, alpha = 0.5>(x, xs, xz, w, ws, wz, c, ys, yz)",
        "xs xz w ws wz c ys yz", {"ws": column(6), "c": range(0, 600, 100)}),
}  # fmt: skip
REAL = {
    "QGemm in FLOAT": Case(
        "uint8[b,16] x, float xs, uint8 xz, int8[16,6] w, float ws, int8 wz", "float[b,6] y",
        "y = com.microsoft.QGemm(x, xs, xz, w, ws, wz)", "xs xz w ws wz"),
    "MatMulIntegerToFloat": Case(
        "uint8[b,s,16] x, int8[16,6] w, float xs, float[6] ws, uint8 xz, int8[6] wz, float[6] c",
        "float[b,s,6] y", "y = com.microsoft.MatMulIntegerToFloat(x, w, xs, ws, xz, wz, c)",
        "w ws wz c", {"ws": column(6)}),
    "MatMulIntegerToFloat of constants": Case(
        "uint8[b,s,16] x, uint8[16,6] w, float xs, float ws, uint8 xz, uint8 wz",
        "float[b,s,6] y", "y = com.microsoft.MatMulIntegerToFloat(x, w, xs, ws, xz, wz)",
        "w xs ws xz wz"),
    "DynamicQuantizeMatMul": Case(
        "float[b,s,16] x, int8[16,6] w, float[6] ws, float[6] c", "float[b,s,6] y",
        "y = com.microsoft.DynamicQuantizeMatMul(x, w, ws, , c)", "w ws c", {"ws": column(6)}),
    "DynamicQuantizeMatMul with a zero point": Case(
        "float[b,s,16] x, uint8[16,6] w, float ws, uint8 wz", "float[b,s,6] y",
        "y = com.microsoft.DynamicQuantizeMatMul(x, w, ws, wz)", "w ws wz"),
}  # fmt: skip


def with_scales(case: Case) -> Case:
    """Scalars that the case leaves open."""
    open_ones = {
        name: value for name, value in SCALES.items()
        if f" {name}," in f"{case.inputs}," and name not in case.values
    }  # fmt: skip
    return case._replace(values={**open_ones, **case.values})


@pytest.mark.parametrize("name", EXACT)
def test_integers_are_exact(name: str) -> None:
    sizes = [*SIZES, {"b": 0, "s": 4}] if name.startswith("MatMul") else SIZES
    check(EXACT[name], sizes)


@pytest.mark.parametrize("name", NEAR)
def test_quantized_results(name: str) -> None:
    check(with_scales(NEAR[name]), [s | {"t": 2 * s["s"]} for s in SIZES], most=STEP)


@pytest.mark.parametrize("name", REAL)
def test_floating_results(name: str) -> None:
    check(with_scales(REAL[name]), SIZES, most=1e-4)


@pytest.mark.parametrize("zeros", ["none", "packed", "real"])
@pytest.mark.parametrize(
    ("bits", "block", "columns"), [(4, 32, 64), (4, 16, 40), (8, 32, 96), (2, 16, 64)])  # fmt: skip
def test_matmul_of_packed_weights(bits: int, block: int, columns: int, zeros: str) -> None:
    if bits == 8 and zeros == "real":
        pytest.skip("ONNX Runtime has no kernel for it")
    rows, blocks = 6, -(-columns // block)
    packed = -(-blocks * bits // 8)
    kind = {"none": "", "packed": f", uint8[{rows},{packed}] z",
            "real": f", float[{rows},{blocks}] z"}[zeros]  # fmt: skip
    case = Case(
        f"float[b,s,{columns}] x, uint8[{rows},{blocks},{block * bits // 8}] w, "
        f"float[{rows},{blocks}] ws{kind}",
        f"float[b,s,{rows}] y",
        f"y = com.microsoft.MatMulNBits<K = {columns}, N = {rows}, bits = {bits}, "
        f"block_size = {block}>(x, w, ws{', z' if kind else ''})",
        "w ws z" if kind else "w ws",
    )
    check(case, SIZES, most=1e-4)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ("bits = 3", "attribute 'bits' is 3; expected 2, 4 or 8"),
        ("bits = 9", "attribute 'bits' is 9; expected 2 to 8"),
        ("block_size = 24", "attribute 'block_size' is 24; expected a power of two"),
        ("weight_prepacked = 1", "attribute 'weight_prepacked' is 1"),
        ("K = 64", r"B \('w'\) has 96 elements of UINT8; expected 192 of UINT8, 32 for each of 6"),
    ],
)
def test_mistakes_are_named(attributes: str, message: str) -> None:
    usual = {"K": 32, "N": 6, "block_size": 32}
    given = ", ".join(
        [attributes, *(f"{k} = {v}" for k, v in usual.items() if k not in attributes)])  # fmt: skip
    case = Case("float[2,32] x, uint8[6,1,16] w, float[6,1] ws", "float[2,6] y",
                f"y = com.microsoft.MatMulNBits<{given}>(x, w, ws)")  # fmt: skip
    model = model_of(case)
    model.graph.initializer.append(
        onnx.numpy_helper.from_array(np.zeros((6, 1, 16), np.uint8), "w"))  # fmt: skip
    with pytest.raises(rabbet.Error, match=message):
        rabbet.compile(model.SerializeToString())


def test_packed_weights_must_be_constant() -> None:
    case = Case(
        "float[2,32] x, uint8[6,1,16] w, float[6,1] ws", "float[2,6] y",
        "y = com.microsoft.MatMulNBits<K = 32, N = 6, block_size = 32>(x, w, ws)")  # fmt: skip
    with pytest.raises(rabbet.Error, match=r"B \('w'\) must be a constant"):
        rabbet.compile(model_of(case).SerializeToString())


def product_inputs(case: Case) -> list[str]:
    """The types of the tensors that the step with the product reads."""
    model = model_of(case)
    hold(case, model, feeds_of(case, model, {}))
    plan = rabbet.compile(model.SerializeToString(), device="cpu", threads=1,
                          optimization_level=0)  # fmt: skip
    layers = plan.inspect_json()["Layers"]
    return [
        given["Format/Datatype"]
        for layer in layers
        if "MATRIX_MULTIPLY" in layer["LayerType"] or "CONVOLUTION" in layer["LayerType"]
        for given in layer["Inputs"]
    ]


BYTES = {
    "QLinearMatMul": NEAR["QLinearMatMul"],
    "QLinearMatMul of centred UINT8 weights": Case(
        "uint8[4,16] x, float xs, uint8 xz, uint8[16,6] w, float ws, uint8 wz, float ys, uint8 yz",
        "uint8[4,6] y", "y = QLinearMatMul(x, xs, xz, w, ws, wz, ys, yz)",
        "xs xz w ws wz ys yz", {"wz": 128}),
    "QLinearConv": NEAR["QLinearConv"],
    "MatMulInteger with a computed zero point": EXACT["MatMulInteger with a computed zero point"],
    "DynamicQuantizeMatMul": REAL["DynamicQuantizeMatMul"],
    "MatMulIntegerToFloat": REAL["MatMulIntegerToFloat"]._replace(
        values={"ws": column(6), "wz": [0] * 6}),
}  # fmt: skip


@pytest.mark.skipif("vnni" not in CPU, reason="the processor has no products of 8 bits")
@pytest.mark.parametrize("name", BYTES)
def test_products_are_of_8_bits(name: str) -> None:
    case = with_scales(BYTES[name])
    if "wz" not in case.values and " wz" in case.inputs:
        case = case._replace(values={**case.values, "wz": 0})
    for size, extent in (("b", "2"), ("s", "5")):
        case = case._replace(
            inputs=re.sub(rf"\b{size}\b(?=[,\]])", extent, case.inputs),
            outputs=re.sub(rf"\b{size}\b(?=[,\]])", extent, case.outputs))  # fmt: skip
    found = product_inputs(case)
    assert any(one.endswith("UINT8") for one in found), found


def test_nan_is_quantized_before_what_follows():
    """0 / 0 in a normalization: in ONNX Runtime, too, a byte of 0 and not a NaN goes on."""
    scale, zero = np.float32(0.03), np.uint8(128)
    nodes = [
        onnx.helper.make_node("Div", ["x", "y"], ["ratio"]),
        onnx.helper.make_node("QuantizeLinear", ["ratio", "s", "z"], ["q"]),
        onnx.helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        onnx.helper.make_node("Mul", ["d", "w"], ["weighted"]),
        onnx.helper.make_node("QuantizeLinear", ["weighted", "s2", "z"], ["out"]),
    ]
    constants = {"s": scale, "z": zero, "s2": np.float32(0.05), "w": np.float32(0.9)}
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes,
        "nan",
        [value(n, onnx.TensorProto.FLOAT, [2, 19]) for n in "xy"],
        [value("out", onnx.TensorProto.UINT8, [2, 19])],
        [onnx.numpy_helper.from_array(np.asarray(c), n) for n, c in constants.items()],
    )
    opsets = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    x = np.random.default_rng(4).standard_normal((2, 19)).astype(np.float32)
    y = np.ones_like(x)
    x[0, ::3] = y[0, ::3] = 0
    data = model.SerializeToString()
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(data, providers=["CPUExecutionProvider"])
    expected = session.run(None, {"x": x, "y": y})[0]
    found = rabbet.compile(model, device="cpu")(x, y)
    np.testing.assert_array_equal(np.asarray(found), expected)


@pytest.mark.parametrize("zero", [None, 7])
def test_sums_of_a_convolution_are_whole(zero: int | None) -> None:
    """Winograd's algorithm, which images and filters of these sizes may have in FLOAT, leaves
    sums a little beside whole numbers, so that no kernel of it is offered."""
    rng = np.random.default_rng(5)
    case = Case(
        "uint8[2,32,16,16] x, int8[32,32,3,3] w" + (", uint8 xz" if zero else ""),
        "int32[2,32,16,16] y",
        f"y = ConvInteger<pads = [1, 1, 1, 1]>(x, w{', xz' if zero else ''})",
        "w xz" if zero else "w",
        {"w": rng.integers(-128, 128, (32, 32, 3, 3)), **({"xz": zero} if zero else {})},
    )  # fmt: skip
    model = model_of(case)
    feeds = feeds_of(case, model, {})
    wide = np.pad(feeds["x"].astype(np.int64) - (zero or 0), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (2, 3))
    expected = np.einsum("bcijkl,mckl->bmij", windows, feeds["w"].astype(np.int64))
    hold(case, model, feeds)
    found = rabbet.compile(model, device="cpu", optimization_level=3)
    assert "wino" not in str(found.report_json)
    np.testing.assert_array_equal(found.run({"x": feeds["x"]})["y"], expected)


def test_filters_that_are_not_whole_may_be_transformed() -> None:
    """The other side of the test before: these sizes do have Winograd's algorithm."""
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 17]>
        g (float[2,32,16,16] x) => (float[2,32,16,16] y) { y = Conv<pads = [1, 1, 1, 1]>(x, w) }
    """)
    weights = np.random.default_rng(6).standard_normal((32, 32, 3, 3)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    report = str(rabbet.compile(model, device="cpu", optimization_level=3).report_json)
    assert "wino" in report  # ours or oneDNN's, chosen or not
