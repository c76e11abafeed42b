"""Products with weights of 4 and 8 bits: they stay packed in plan and memory."""

import json

import numpy as np
import onnx
import onnx.helper as oh
import onnx.numpy_helper as onh
import onnxruntime as ort
import pytest
import rabbet

FLOAT = onnx.TensorProto.FLOAT


def model_of(nodes: list, inits: dict, rows: list, k: int, n: int) -> onnx.ModelProto:
    graph = oh.make_graph(
        nodes, "g", [oh.make_tensor_value_info("x", FLOAT, [*rows, k])],
        [oh.make_tensor_value_info("y", FLOAT, [*rows, n])],
        [v if isinstance(v, onnx.TensorProto) else onh.from_array(v, name)
         for name, v in inits.items()])  # fmt: skip
    imports = [oh.make_opsetid("", 21), oh.make_opsetid("com.microsoft", 1)]
    return oh.make_model(graph, opset_imports=imports, ir_version=10)


def bits_model(
    rows: list, k: int, n: int, bits: int, block: int, zeros: bool, level: int = 0
) -> onnx.ModelProto:
    random = np.random.default_rng(k + n)
    blocks = -(-k // block)
    inits = {
        "w": random.integers(0, 256, (n, blocks, block * bits // 8), dtype=np.uint8),
        "s": random.uniform(0.01, 0.03, (n, blocks)).astype(np.float32),
    }
    if zeros:
        inits["z"] = random.integers(0, 256, (n, (blocks * bits + 7) // 8), dtype=np.uint8)
    node = oh.make_node("MatMulNBits", ["x", *inits], ["y"], domain="com.microsoft", K=k, N=n,
                        bits=bits, block_size=block, accuracy_level=level)  # fmt: skip
    return model_of([node], inits, rows, k, n)


def by_onnxruntime(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    # It would replace DequantizeLinear and MatMul by a product that rounds x to 8 bits.
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options,
                                   providers=["CPUExecutionProvider"])  # fmt: skip
    return session.run(None, {"x": x})[0]


def check_close(found: np.ndarray, wanted: np.ndarray) -> None:
    assert np.abs(found - wanted).max() <= 1e-5 * max(np.abs(wanted).max(), 1e-3)


def steps_of(model: object) -> list[dict]:
    inspector = model.engine.create_engine_inspector()
    text = inspector.get_engine_information(rabbet.LayerInformationFormat.JSON)
    return json.loads(text)["Layers"]


def packed_step(model: object) -> dict:
    found = [s for s in steps_of(model) if s.get("Kernel") == "cpu.weight_only"]
    assert len(found) == 1, steps_of(model)
    return found[0]


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("block", [16, 32, 64, 128])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("rows", [[1], [7], [2, 3]])
def test_against_onnxruntime(rows: list, bits: int, block: int, zeros: bool) -> None:
    model = bits_model(rows, 333, 70, bits, block, zeros)
    x = np.random.default_rng(1).standard_normal((*rows, 333), np.float32)
    found = rabbet.compile(model.SerializeToString(), device="cpu")(x)
    check_close(np.asarray(found), by_onnxruntime(model, x))


def bits_weights(model: onnx.ModelProto, k: int, block: int) -> np.ndarray:
    """Weights of 4 bits, dequantized."""
    values = {v.name: onh.to_array(v) for v in model.graph.initializer}
    codes = np.stack([values["w"] & 15, values["w"] >> 4], -1)
    codes = codes.reshape(*codes.shape[:2], block).astype(np.float64)
    n, blocks = values["s"].shape
    zeros = np.full((n, blocks), 8.0)
    if "z" in values:
        pairs = np.stack([values["z"] & 15, values["z"] >> 4], -1)
        zeros = pairs.reshape(n, -1)[:, :blocks].astype(np.float64)
    numbers = (codes - zeros[..., None]) * values["s"][..., None]
    return numbers.reshape(n, -1)[:, :k]


@pytest.mark.parametrize("seed", range(30))
def test_rows_that_may_be_rounded(seed: int) -> None:
    """Accuracy level 4: x may be rounded to INT8, of which the largest of a block, or of
    128 elements of a longer one, is 127. ONNX Runtime does so for each block."""
    random = np.random.default_rng(seed)
    k, n = int(random.integers(1, 700)), int(random.integers(1, 80))
    block, zeros = int(random.choice([16, 32, 64, 128, 256])), bool(random.integers(2))
    rows = [int(random.choice([1, 1, 2, 3, 7, 12, 13]))]
    data = bits_model(rows, k, n, 4, block, zeros, level=4)
    x = random.standard_normal((*rows, k), np.float32) * random.choice([1e-3, 1, 50], k)
    x = x.astype(np.float32)
    weights = bits_weights(data, k, block)
    part = min(block, 128)
    padded = np.pad(np.abs(x), ((0, 0), (0, -k % part)))
    largest = padded.reshape(rows[0], -1, part).max(-1).repeat(part, -1)[:, :k]
    bound = (largest / 127 * 0.501) @ np.abs(weights).T + 1e-5 * np.abs(x) @ np.abs(weights).T
    wanted = x.astype(np.float64) @ weights.T
    # Without a level the product is not rounded.
    for level in (4, 0):
        attrs = {a.name: a for a in data.graph.node[0].attribute}
        attrs["accuracy_level"].i = level
        model = rabbet.compile(data.SerializeToString(), device="cpu", optimization_level=0)
        found = np.asarray(model(x))
        if level == 0:
            bound = 1e-5 * np.abs(x) @ np.abs(weights).T + 2e-7 * bound
        assert (np.abs(found - wanted) <= bound).all(), level


@pytest.mark.parametrize("level", [0, 4])
def test_a_row_that_is_not_finite_changes_no_other(level: int) -> None:
    data = bits_model([5], 333, 70, 4, 32, zeros=True, level=level)
    x = np.random.default_rng(1).standard_normal((5, 333), np.float32)
    model = rabbet.compile(data.SerializeToString(), device="cpu", optimization_level=0)
    wanted = np.array(model(x))
    x[1, 7], x[3, 300] = np.nan, np.inf
    found = np.asarray(model(x))
    assert np.isnan(found[1]).all()
    assert not np.isfinite(found[3]).any()
    assert (found[[0, 2, 4]] == wanted[[0, 2, 4]]).all()


def test_large_weights_stay_packed() -> None:
    k, n = 2048, 1024
    data = bits_model([1], k, n, 4, 32, zeros=False)
    model = rabbet.compile(data.SerializeToString(), device="cpu")
    x = np.random.default_rng(1).standard_normal((1, k), np.float32)
    check_close(np.asarray(model(x)), by_onnxruntime(data, x))
    assert "INT4" in json.dumps(packed_step(model)).upper()
    packed = k * n // 2 + k // 32 * n * 4
    plan = model.engine.serialize()
    assert packed <= len(memoryview(plan)) <= packed + 16384


def test_rows_that_a_run_tells() -> None:
    data = bits_model(["b", "s"], 256, 96, 4, 64, zeros=True)
    model = rabbet.compile(data.SerializeToString(), device="cpu",
                           shapes={"x": ((1, 1, 256), (1, 1, 256), (2, 40, 256))})  # fmt: skip
    for shape in [(1, 1), (2, 1), (1, 5), (2, 12), (2, 40)]:
        x = np.random.default_rng(1).standard_normal((*shape, 256), np.float32)
        check_close(np.asarray(model(x)), by_onnxruntime(data, x))


def dequantized(block: int, axis: int, kind: str) -> tuple[list, dict, int, int]:
    """DequantizeLinear of opset 21 and the product behind it."""
    random = np.random.default_rng(3)
    k, n = 1024, 1056
    shape = (k, n) if axis == 0 else (n, k)
    low, high = {"INT4": (-8, 8), "UINT4": (0, 16), "INT8": (-128, 128)}[kind]
    numbers = random.integers(low, high, shape).astype(np.int8 if low else np.uint8)
    scales = (k // block, n) if axis == 0 else (n, k // block)
    to = getattr(onnx.TensorProto, kind)
    inits = {
        "w": oh.make_tensor("w", to, shape, numbers.flatten().tolist()),
        "s": random.uniform(0.01, 0.03, scales).astype(np.float32),
    }
    inputs = ["w", "s"]
    if kind == "UINT4":
        zeros = random.integers(4, 12, scales)
        inits["z"] = oh.make_tensor("z", to, scales, zeros.flatten().tolist())
        inputs.append("z")
    nodes = [oh.make_node("DequantizeLinear", inputs, ["d"], axis=axis, block_size=block)]
    if axis == 1:
        nodes.append(oh.make_node("Transpose", ["d"], ["t"], perm=[1, 0]))
    nodes.append(oh.make_node("MatMul", ["x", "d" if axis == 0 else "t"], ["y"]))
    return nodes, inits, k, n


@pytest.mark.parametrize("kind", ["INT4", "UINT4", "INT8"])
@pytest.mark.parametrize(("block", "axis"), [(32, 0), (128, 1)])
def test_dequantized_blocks(block: int, axis: int, kind: str) -> None:
    nodes, inits, k, n = dequantized(block, axis, kind)
    data = model_of(nodes, inits, [1], k, n)
    model = rabbet.compile(data.SerializeToString(), device="cpu")
    x = np.random.default_rng(1).standard_normal((1, k), np.float32)
    check_close(np.asarray(model(x)), by_onnxruntime(data, x))
    step = json.dumps(packed_step(model)).upper()
    assert ("INT8" if kind == "INT8" else "INT4") in step


# ---- Products of one tensor


def fp8_numbers() -> np.ndarray:
    """Those of E4M3's codes."""
    codes = np.arange(256)
    exponents, mantissas = codes >> 3 & 15, codes & 7
    sizes = np.where(exponents > 0, (8 + mantissas) * 2.0**exponents, mantissas * 2.0) / 2**10
    sizes[codes & 127 == 127] = np.nan
    return np.where(codes > 127, -sizes, sizes)


@pytest.mark.parametrize("size", [1, 1e-20, 1e-31, 1e36])
@pytest.mark.parametrize("block", [16, 32, 64, 128, 333])
def test_fp8_of_all_codes(block: int, size: float) -> None:
    k, n, column = 333, 67, 66
    random = np.random.default_rng(block)
    codes = random.integers(0, 256, (n, k), np.uint8)
    codes[codes & 127 == 127] = 0
    codes[:9] &= 0x87  # the least numbers
    scales = random.uniform(1e-3, 3e-3, (n, -(-k // block))).astype(np.float32)
    x = (random.standard_normal((1, k)) * size).astype(np.float32)
    numbers = fp8_numbers()
    for has_nan in (False, True):
        if has_nan:
            codes[column, -1] = 0xFF
        w = oh.make_tensor("w", onnx.TensorProto.FLOAT8E4M3FN, [n, k], codes.tobytes(), raw=True)
        nodes = [
            oh.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=1, block_size=block),
            oh.make_node("Transpose", ["d"], ["t"], perm=[1, 0]),
            oh.make_node("MatMul", ["x", "t"], ["y"]),
        ]
        data = model_of(nodes, {"w": w, "s": scales}, [1], k, n)
        model = rabbet.compile(data.SerializeToString(), device="cpu", optimization_level=0)
        weights = numbers[codes] * scales.repeat(block, 1)[:, :k]
        found = np.asarray(model(x))[0]
        assert np.isnan(found[column]) == has_nan
        wanted = weights.astype(np.float64) @ x[0].astype(np.float64)
        bound = 1e-6 * np.abs(weights) @ np.abs(x[0].astype(np.float64)) + 1e-44
        assert (np.abs(found - wanted) <= bound)[: column if has_nan else n].all()


def siblings(
    rows: int, bits: int, zeros: bool, blocks: tuple, levels: tuple = (0, 0, 0)
) -> onnx.ModelProto:
    """Three products of x, each followed by a step that is never fused."""
    random, k = np.random.default_rng(bits), 256
    nodes, inits = [], {"three": np.array([3], np.int64)}
    for name, n, block, level in zip("abc", (128, 64, 192), blocks, levels, strict=True):
        count = k // block
        own = {
            f"{name}w": random.integers(0, 256, (n, count, block * bits // 8), dtype=np.uint8),
            f"{name}s": random.uniform(0.01, 0.03, (n, count)).astype(np.float32),
        }
        if zeros:
            shape = (n, (count * bits + 7) // 8)
            own[f"{name}z"] = random.integers(0, 256, shape, dtype=np.uint8)
        inits |= own
        nodes += [
            oh.make_node("MatMulNBits", ["x", *own], [f"{name}p"], domain="com.microsoft",
                         K=k, N=n, bits=bits, block_size=block, accuracy_level=level),
            oh.make_node("TopK", [f"{name}p", "three"], [f"{name}t", f"{name}i"]),
        ]  # fmt: skip
    nodes.append(oh.make_node("Concat", ["at", "bt", "ct"], ["y"], axis=1))
    return model_of(nodes, inits, [rows], k, 9)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(
    ("rows", "blocks", "products"),
    [(1, (32, 32, 32), 1), (1, (32, 64, 32), 2), (2, (32, 32, 32), 3)],
)
def test_products_of_a_row(
    rows: int, blocks: tuple, products: int, bits: int, zeros: bool
) -> None:
    """Those with equal blocks are one, if there is one row."""
    data = siblings(rows, bits, zeros, blocks)
    model = rabbet.compile(data.SerializeToString(), device="cpu")
    x = np.random.default_rng(1).standard_normal((rows, 256), np.float32)
    check_close(np.asarray(model(x)), by_onnxruntime(data, x))
    found = [part["Operator"] for step in steps_of(model) for part in step["Layers"]]
    assert found.count("matrix_multiply") == products, found


def test_products_that_are_rounded_stay_apart() -> None:
    """A product that may be rounded to INT8 does not take exact ones with it."""
    data = siblings(1, 4, False, (32, 32, 32), levels=(4, 0, 0))
    model = rabbet.compile(data.SerializeToString(), device="cpu")
    x = np.random.default_rng(1).standard_normal((1, 256), np.float32)
    found, wanted = np.asarray(model(x)), by_onnxruntime(data, x)
    check_close(found[:, 3:], wanted[:, 3:])


# ---- Tables: NF4, and FP4 of bitsandbytes

NF4, FP4 = 1, 0


def table_model(rows: list, k: int, n: int, block: int, kind: int) -> onnx.ModelProto:
    random = np.random.default_rng(k + n)
    inits = {
        "w": random.integers(0, 256, (k * n + 1) // 2, dtype=np.uint8),
        "s": random.uniform(0.1, 0.3, -(-k * n // block)).astype(np.float32),
    }
    node = oh.make_node("MatMulBnb4", ["x", *inits], ["y"], domain="com.microsoft", K=k, N=n,
                        block_size=block, quant_type=kind)  # fmt: skip
    return model_of([node], inits, rows, k, n)


@pytest.mark.parametrize("kind", [NF4, FP4])
@pytest.mark.parametrize(("k", "block"), [(64, 16), (320, 64), (512, 128), (96, 64), (33, 16)])
@pytest.mark.parametrize("rows", [[1], [7], [2, 13]])
def test_tables_against_onnxruntime(rows: list, k: int, block: int, kind: int) -> None:
    model = table_model(rows, k, 70, block, kind)
    x = np.random.default_rng(1).standard_normal((*rows, k), np.float32)
    found = rabbet.compile(model.SerializeToString(), device="cpu", optimization_level=0)(x)
    check_close(np.asarray(found), by_onnxruntime(model, x))


@pytest.mark.parametrize(("kind", "name", "bits"), [(NF4, "NF4", 4), (FP4, "FP8", 8)])
def test_large_tables_stay_packed(kind: int, name: str, bits: int) -> None:
    k, n = 2048, 1024
    data = table_model([1], k, n, 64, kind)
    model = rabbet.compile(data.SerializeToString(), device="cpu")
    x = np.random.default_rng(1).standard_normal((1, k), np.float32)
    check_close(np.asarray(model(x)), by_onnxruntime(data, x))
    assert name in json.dumps(packed_step(model))
    packed = k * n * bits // 8 + k // 64 * n * 4
    plan = model.engine.serialize()
    assert packed <= len(memoryview(plan)) <= packed + 16384


def test_a_table_that_is_none_is_refused() -> None:
    model = table_model([1], 64, 70, 16, 2)
    with pytest.raises(rabbet.Error, match=r"'quant_type' is 2; expected 0 \(FP4\) or 1"):
        rabbet.compile(model.SerializeToString(), device="cpu")
    model = table_model([1], 64, 71, 16, NF4)
    del model.graph.node[0].attribute[:]
    with pytest.raises(rabbet.Error, match="attribute 'N' is 0"):
        rabbet.compile(model.SerializeToString(), device="cpu")
    model = table_model([1], 64, 70, 24, NF4)
    scales = np.ones(70 * 3, np.float32)  # blocks that begin anew in each row
    model.graph.initializer[1].CopyFrom(onnx.numpy_helper.from_array(scales, "s"))
    wanted = "'s'.* has 210 elements; attribute 'block_size' is 24, .* 70 x 64 .* 187 blocks"
    with pytest.raises(rabbet.Error, match=wanted):
        rabbet.compile(model.SerializeToString(), device="cpu")
