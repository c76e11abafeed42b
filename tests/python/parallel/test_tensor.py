"""rabbet.parallel.tensor: ranks' results against torch and ONNX Runtime, by emulation.

All ranks are computed in one network, where collectives are sums and concatenations, so
each rank's arithmetic and weights are those that a GPU of several would have.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
import onnxruntime
import pytest
import rabbet
from onnx import numpy_helper
from rabbet import parallel

torch = pytest.importorskip("torch")

from . import families  # noqa: E402

ROWS = {0: "b", 1: "n"}
IDS = {"x0": ROWS}


def ids(rows: int = 2, length: int = 7, count: int = 60) -> Any:
    return torch.randint(0, count, (rows, length))


def past(rows: int, length: int, keys: int = 4) -> list[Any]:
    return [torch.randn(rows, keys, length, 8) for _ in range(4)]


CACHES = {f"x{i}": {0: "b", 2: "p"} for i in range(1, 5)}
# A module, its inputs, and which of their extents are open.
FAMILIES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "llama": (families.Llama, lambda: (ids(), *past(2, 3)), IDS | CACHES),
    "gpt2": (families.GPT2, lambda: (ids(),), IDS),
    "encoder": (families.Encoder, lambda: (ids(),), IDS),
    "vision": (families.Vision, lambda: (torch.randn(2, 3, 32, 32),), {"x0": {0: "b"}}),
    "t5": (families.T5, lambda: (ids(),), IDS),
    "experts": (families.Experts, lambda: (torch.randn(5, 32),), {"x0": {0: "b"}}),
    "parallel": (families.Parallel, lambda: (torch.randn(2, 5, 64),), {"x0": ROWS}),
    "whisper": (families.Whisper, lambda: (torch.randn(1, 20, 24),), {"x0": {0: "b"}}),
}


@functools.cache
def made(family: str) -> tuple[bytes, Any, tuple[Any, ...]]:
    """(ONNX file, module, inputs), exported once: that takes longer than a split."""
    torch.manual_seed(1)
    make, args, dynamic = FAMILIES[family]
    module, given = make().eval(), args()
    return families.export(module, given, dynamic), module, given


def results(network: Any, feeds: dict[str, Any]) -> dict[str, Any]:
    shapes = {name: value.shape for name, value in feeds.items()}
    model = rabbet.compile(
        network, device="cpu", shapes=shapes, optimization_level=0, threads=1
    )
    return model.run(feeds)


def check(split: parallel.TensorParallel, module: Any, given: tuple[Any, ...]) -> None:
    feeds = {f"x{i}": value.numpy() for i, value in enumerate(given)}
    with torch.no_grad():
        wanted = module(*given)
    found = results(split.emulation(), feeds)
    for i, want in enumerate(wanted if isinstance(wanted, tuple) else (wanted,)):
        np.testing.assert_allclose(found[f"y{i}"], want.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("family", FAMILIES)
def test_families(family: str, ranks: int) -> None:
    file, module, given = made(family)
    split = parallel.tensor(file, ranks)
    check(split, module, given)
    # Nearly all weights are split: norms, tables and routers are whole.
    assert split.report.rank_weights < split.report.weights * (1 / ranks + 0.25)


def kinds(split: parallel.TensorParallel) -> dict[str, int]:
    return {each.kind: each.number for each in split.report.exchanges}


def test_one_sum_behind_columns_and_rows() -> None:
    split = parallel.tensor(made("llama")[0], 2)
    # For each layer attention and perceptron; the embedding's rows; logits.
    assert kinds(split) == {"all_reduce": 5, "all_gather": 1}
    hows = [[how for _, _, how in each.weights] for each in split.report.splits]
    assert ["columns", "columns", "rows"] in hows
    assert ["columns", "columns", "columns", "rows"] in hows


def test_sums_that_meet_are_one() -> None:
    assert kinds(parallel.tensor(made("parallel")[0], 2)) == {"all_reduce": 1}


class Residual(torch.nn.Module):
    """x joined with partial sums from each side, in the order of a subtraction."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.up, self.down = torch.nn.Linear(64, 256), torch.nn.Linear(256, 64)

    def forward(self, x: Any) -> Any:
        y = self.down(torch.relu(self.up(x)))
        return {"x + y": x + y, "y + x": y + x, "y - x": y - x, "x - y": x - y}[self.kind]


@pytest.mark.parametrize("kind", ["x + y", "y + x", "y - x", "x - y"])
def test_rank_0_alone_adds_a_residual(kind: str) -> None:
    """But where others would have to turn the sign, it is added behind the exchange."""
    torch.manual_seed(1)
    module, x = Residual(kind).eval(), torch.randn(3, 64)
    file = families.export(module, (x,), {"x0": {0: "n"}})
    split = parallel.tensor(file, 2)
    check(split, module, (x,))
    orders = []
    for rank in range(2):
        ops = [layer._op for layer in split.network(rank)]
        at = ops.index("dist_collective")
        orders.append((ops[:at].count("elementwise"), ops[at:].count("elementwise")))
    if kind == "x - y":
        assert orders[0] == orders[1]
        assert orders[0][1] == 1
    else:  # biases are added by all, the second one as zeros
        assert orders[0] == (orders[1][0] + 1, 0)


def test_prefill_and_decode() -> None:
    file, module, _ = made("llama")
    split = parallel.tensor(file, 4)
    for length, before in ((6, 0), (1, 6)):
        check(split, module, (ids(3, length), *past(3, before)))


def test_caches_are_split_with_their_heads() -> None:
    split = parallel.tensor(made("llama")[0], 2)
    assert split.parts() == {
        **{f"x{i}": (1, [-1, 2, -1, 8]) for i in range(1, 5)},
        **{f"y{i}": (1, [-1, 2, -1, 8]) for i in range(1, 5)},
    }
    whole = parallel.tensor(made("llama")[0], 2, whole=["x1", "y1"])
    assert "x1" not in whole.parts()
    assert "x2" in whole.parts()


def test_networks_of_ranks() -> None:
    """Each rank's network has the collectives in one order, and its own weights."""
    split = parallel.tensor(made("llama")[0], 2)
    orders = []
    for rank in range(2):
        network = split.network(rank)
        network.validate()
        layers = [layer for layer in network if layer._op == "dist_collective"]
        assert [layer.num_ranks for layer in layers] == [2] * 6
        orders.append([layer.name for layer in layers])
        inputs = {t.name: tuple(t.shape) for t in map(network.get_input, range(5))}
        assert inputs["x1"] == (-1, 2, -1, 8)
        assert network.get_output(0).name == "y0"
        assert tuple(network.get_output(0).shape)[2] == 96
        if rank == 0:
            first = network._find_tensor("embed.weight")._weights()[1]
        else:
            assert network._find_tensor("embed.weight")._weights()[1] != first
    assert orders[0] == orders[1]


def test_shapes_of_ranks() -> None:
    """Shapes of a build are those of the model; ranks' are of their parts."""
    split = parallel.tensor(made("llama")[0], 2)
    shapes = {"x0": (2, 7), "x1": ((1, 4, 0, 8), (2, 4, 3, 8), (2, 4, 9, 8))}
    made_of = split._local({"shapes": shapes, "threads": 1})
    assert made_of["shapes"]["x0"] == (2, 7)
    assert made_of["shapes"]["x1"] == ((1, 2, 0, 8), (2, 2, 3, 8), (2, 2, 9, 8))
    one = np.array([2, 4, 3, 8])
    profiles = split._local({"profiles": [{"x1": one}]})["profiles"]
    assert profiles == [{"x1": ((2, 2, 3, 8),) * 3}]


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 3, 3, 8), "'x1' has 4 along axis 1, got .*of the whole model"),
        ((2, 2, 3, 8), "'x1' has 4 along axis 1"),  # a rank's
        ((4, 3, 8), "'x1' has 4 dimensions"),
        ("abcd", "'x1' has 'abcd'; expected a shape"),
        ((2, 4, 3.5, 8), "dimensions are integers"),
    ],
)
def test_wrong_shapes(shape: Any, message: str) -> None:
    split = parallel.tensor(made("llama")[0], 2)
    for options in ({"shapes": {"x1": shape}}, {"profiles": [{"x1": shape}]}):
        with pytest.raises(rabbet.InvalidArgumentError, match=message):
            split.compile(0, device="cpu", **options)


def test_heads_that_do_not_divide_stay() -> None:
    torch.manual_seed(1)
    module = families.Llama(48, 6, 3).eval()
    args = (ids(), *past(2, 3, 3))
    file = families.export(module, args, IDS | CACHES)
    split = parallel.tensor(file, 4)
    check(split, module, args)
    assert any(
        "3 ranges do not divide by 4 ranks" in w.reason for w in split.report.whole
    )
    assert "do not divide" in str(split)


def test_heads_that_share_one_key() -> None:
    torch.manual_seed(1)
    module = families.Llama(64, 8, 1).eval()
    args = (ids(), *past(2, 3, 1))
    split = parallel.tensor(families.export(module, args, IDS | CACHES), 4)
    check(split, module, args)
    assert split.parts() == {}  # each rank has the one head's cache
    shapes = [shape for each in split.report.splits for _, shape, _ in each.weights]
    assert shapes.count((1, 64, 64)) == 4  # queries and outputs of both layers


# ---- Weights of four bits, experts ----


def packed_model(k: int, inner: int, block: int) -> tuple[bytes, dict[str, Any]]:
    """A gated perceptron of MatMulNBits."""
    random = np.random.default_rng(0)
    nodes, constants = [], []

    def product(x: str, y: str, k: int, n: int) -> None:
        packed = random.integers(0, 256, (n, k // block, block // 2), np.uint8)
        scales = (random.random(n * (k // block)) / 40).astype(np.float32)
        constants.extend(
            numpy_helper.from_array(a, f"{y}.{i}")
            for i, a in enumerate((packed, scales))
        )
        nodes.append(oh.make_node(
            "MatMulNBits", [x, f"{y}.0", f"{y}.1"], [y], domain="com.microsoft", K=k, N=n,
            bits=4, block_size=block))  # fmt: skip

    product("x", "gate", k, inner)
    product("x", "up", k, inner)
    nodes.append(oh.make_node("Sigmoid", ["gate"], ["s"]))
    nodes.append(oh.make_node("Mul", ["gate", "s"], ["silu"]))
    nodes.append(oh.make_node("Mul", ["silu", "up"], ["both"]))
    product("both", "down", inner, k)
    nodes.append(oh.make_node("Add", ["down", "x"], ["y"]))
    graph = oh.make_graph(
        nodes, "g", [oh.make_tensor_value_info("x", 1, ["b", k])],
        [oh.make_tensor_value_info("y", 1, ["b", k])], constants)  # fmt: skip
    model = oh.make_model(
        graph, ir_version=9,
        opset_imports=[oh.make_opsetid("", 17), oh.make_opsetid("com.microsoft", 1)],
    )  # fmt: skip
    return model.SerializeToString(), {"x": random.random((3, k), np.float32)}


def test_weights_of_four_bits() -> None:
    file, feeds = packed_model(64, 256, 32)
    split = parallel.tensor(file, 4)
    assert kinds(split) == {"all_reduce": 1}
    assert split.report.rank_weights <= split.report.weights / 4 + 16
    want = onnxruntime.InferenceSession(file).run(None, feeds)[0]
    np.testing.assert_allclose(
        results(split.emulation(), feeds)["y"], want, rtol=1e-4, atol=1e-4
    )


def test_blocks_that_do_not_divide_stay() -> None:
    file, feeds = packed_model(64, 96, 32)  # three blocks
    split = parallel.tensor(file, 2, least_saving=0)
    want = onnxruntime.InferenceSession(file).run(None, feeds)[0]
    np.testing.assert_allclose(
        results(split.emulation(), feeds)["y"], want, rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize(("inner", "how"), [(24, "inner"), (27, "experts")])
def test_experts_of_one_layer(inner: int, how: str) -> None:
    """Ranks have parts of each expert or, if these do not divide, some experts whole."""
    random = np.random.default_rng(3)
    builder = rabbet.Builder(rabbet.Logger())
    network = builder.create_network()
    x = network.add_input("x", rabbet.float32, (-1, 16))
    chosen = network.add_input("chosen", rabbet.int32, (-1, 2))
    scores = network.add_input("scores", rabbet.float32, (-1, 2))
    weights = [random.standard_normal(s).astype(np.float32) / 4
               for s in ((4, 16, inner), (4, 16, inner), (4, inner, 16))]  # fmt: skip
    tensors = [
        network.add_constant(w.shape, rabbet.Weights(w)).get_output(0) for w in weights
    ]
    layer = network.add_moe(x, chosen, scores)
    layer.set_gated_weights(*tensors, rabbet.MoEActType.SILU)
    layer.get_output(0).name = "y"
    network.mark_output(layer.get_output(0))
    split = parallel.tensor(network, 2)
    assert [each.ranges for each in split.report.splits] == [
        24 if how == "inner" else 4
    ]
    feeds = {
        "x": random.standard_normal((5, 16)).astype(np.float32),
        "chosen": random.integers(0, 4, (5, 2), np.int32),
        "scores": random.random((5, 2), np.float32),
    }
    want = np.zeros((5, 16), np.float32)
    for t in range(5):
        for slot in range(2):
            gate, up, down = (w[feeds["chosen"][t, slot]] for w in weights)
            a = feeds["x"][t] @ gate
            want[t] += feeds["scores"][t, slot] * (
                (a / (1 + np.exp(-a)) * (feeds["x"][t] @ up)) @ down
            )
    found = results(split.emulation(), feeds)["y"]
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)


def test_cache_in_place() -> None:
    """Ranks' caches are inputs of their own, and outputs in the same memory."""
    random = np.random.default_rng(5)
    weights = [
        random.standard_normal((32, 32)).astype(np.float32) / 6 for _ in range(4)
    ]
    builder = rabbet.Builder(rabbet.Logger())
    network = builder.create_network()
    x = network.add_input("x", rabbet.float32, (-1, 1, 32))
    caches = [network.add_input(n, rabbet.float32, (-1, 4, 6, 8)) for n in ("k", "v")]
    at = network.add_input("at", rabbet.int32, (-1,))

    def product(a: Any, w: Any) -> Any:
        none = rabbet.MatrixOperation.NONE
        b = network.add_constant((1, 32, 32), rabbet.Weights(w[None])).get_output(0)
        return network.add_matrix_multiply(a, none, b, none).get_output(0)

    def shuffled(a: Any, dims: Any, order: Any, first: bool) -> Any:
        layer = network.add_shuffle(a)
        if first:
            layer.first_transpose, layer.reshape_dims = order, dims
        else:
            layer.reshape_dims, layer.second_transpose = dims, order
        return layer.get_output(0)

    q, k, v = (
        shuffled(product(x, w), (0, 0, 4, 8), (0, 2, 1, 3), False) for w in weights[:3]
    )
    news = []
    for name, cache, update in zip(("k2", "v2"), caches, (k, v), strict=True):
        mode = rabbet.KVCacheMode.LINEAR
        new = network.add_kv_cache_update(cache, update, at, mode).get_output(0)
        new.name = name
        network.mark_output(new)
        news.append(new)
    none, turned = rabbet.MatrixOperation.NONE, rabbet.MatrixOperation.TRANSPOSE
    scores = network.add_matrix_multiply(q, none, news[0], turned).get_output(0)
    softmax = network.add_softmax(scores)
    softmax.axes = 1 << 3
    y = network.add_matrix_multiply(
        softmax.get_output(0), none, news[1], none
    ).get_output(0)
    y = product(shuffled(y, (0, 0, 32), (0, 2, 1, 3), True), weights[3])
    y.name = "y"
    network.mark_output(y)

    split = parallel.tensor(network, 2)
    assert split.parts()["k"] == (1, [-1, 2, 6, 8])
    assert set(split.parts()) == {"k", "v", "k2", "v2"}
    feeds = {
        "x": random.standard_normal((2, 1, 32)).astype(np.float32),
        "k": random.standard_normal((2, 4, 6, 8)).astype(np.float32),
        "v": random.standard_normal((2, 4, 6, 8)).astype(np.float32),
        "at": np.array([2, 4], np.int32),
    }
    heads = [(feeds["x"] @ w).reshape(2, 4, 8) for w in weights[:3]]
    for name, new in zip("kv", heads[1:], strict=True):
        for row, place in enumerate(feeds["at"]):
            feeds_of = feeds.setdefault(f"{name}_new", feeds[name].copy())
            feeds_of[row, :, place] = new[row]
    keys, values = feeds.pop("k_new"), feeds.pop("v_new")
    weight = np.exp(np.einsum("bhd,bhsd->bhs", heads[0], keys))
    weight /= weight.sum(-1, keepdims=True)
    want = np.einsum("bhs,bhsd->bhd", weight, values).reshape(2, 1, 32) @ weights[3]
    found = results(split.emulation(), feeds)
    np.testing.assert_allclose(found["y"], want, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found["k2"], keys, rtol=1e-5, atol=1e-5)


# ---- Control flow, operators without a rule, mistakes ----


def test_loops_and_unknown_operators_stay() -> None:
    """A loop reads what products split, so that it is made whole."""
    random = np.random.default_rng(7)
    a = numpy_helper.from_array(
        random.standard_normal((16, 64)).astype(np.float32), "a"
    )
    b = numpy_helper.from_array(
        random.standard_normal((64, 16)).astype(np.float32), "b"
    )
    body = oh.make_graph(
        [oh.make_node("Tanh", ["s"], ["t"]), oh.make_node("Identity", ["c"], ["d"])], "body",
        [oh.make_tensor_value_info("i", 7, []), oh.make_tensor_value_info("c", 9, []),
         oh.make_tensor_value_info("s", 1, None)],
        [oh.make_tensor_value_info("d", 9, []), oh.make_tensor_value_info("t", 1, None)],
    )  # fmt: skip
    nodes = [
        oh.make_node("MatMul", ["x", "a"], ["h"]),
        oh.make_node("Loop", ["trips", "", "h"], ["looped"], body=body),
        oh.make_node("MatMul", ["looped", "b"], ["m"]),
        oh.make_node("CumSum", ["m", "one"], ["y"]),
    ]
    graph = oh.make_graph(
        nodes, "g",
        [oh.make_tensor_value_info("x", 1, ["n", 16]), oh.make_tensor_value_info("trips", 7, [])],
        [oh.make_tensor_value_info("y", 1, ["n", 16])],
        [a, b, numpy_helper.from_array(np.array(1, np.int64), "one")])  # fmt: skip
    file = oh.make_model(
        graph, ir_version=9, opset_imports=[oh.make_opsetid("", 17)]
    ).SerializeToString()
    feeds = {"x": random.standard_normal((5, 16)).astype(np.float32),
             "trips": np.array(3, np.int64)}  # fmt: skip
    split = parallel.tensor(file, 2, least_saving=0)
    want = onnxruntime.InferenceSession(file).run(None, feeds)[0]
    model = rabbet.compile(
        split.emulation(), device="cpu", shapes={"x": (5, 16)}, optimization_level=0
    )
    np.testing.assert_allclose(model.run(feeds)["y"], want, rtol=1e-4, atol=1e-4)


def test_mistakes() -> None:
    file = made("parallel")[0]
    with pytest.raises(
        rabbet.InvalidArgumentError, match="ranks is 1; expected 2 or more"
    ):
        parallel.tensor(file, 1)
    with pytest.raises(rabbet.InvalidArgumentError, match="least_saving is -1"):
        parallel.tensor(file, 2, least_saving=-1)
    with pytest.raises(rabbet.NotFoundError, match="no input or output 'z'"):
        parallel.tensor(file, 2, whole=["z"])
    with pytest.raises(rabbet.InvalidArgumentError, match="rank is 2; expected 0 to 1"):
        parallel.tensor(file, 2).network(2)
    with pytest.raises(TypeError, match="path of an ONNX file"):
        parallel.tensor(3, 2)
    with pytest.raises(TypeError, match="expected a list of names, got 'x1'"):
        parallel.tensor(file, 2, whole="x1")
    for ranks in (2.0, "2"):
        with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
            parallel.tensor(file, ranks)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="save= is not taken"):
        parallel.tensor(file, 2).save("plan", save="other")


def test_report() -> None:
    split = parallel.tensor(made("gpt2")[0], 2)
    report = split.report.as_dict()
    assert report["ranks"] == 2
    assert report["rank_weights"] < 0.6 * report["weights"]
    assert sum(each["bytes"] for each in report["splits"]) < report["weights"]
    assert split.report.json().startswith("{")
    text = str(split)
    assert text.startswith("2 ranks; weights of ")
    assert "4 ranges: " in text  # heads of the fused weight
    assert onnx.load_from_string(made("gpt2")[0]) is not None
