"""Models in ONNX Runtime's sessions: whole ones, and those of which a part is left to its
CPU provider."""

from __future__ import annotations

import io
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnxruntime import datasets

from tests.python.support import onnx_text, provider

torch = pytest.importorskip("torch")


def _check(model: onnx.ModelProto | bytes | str, feeds: list[dict[str, Any]]) -> Any:
    """Equal outputs for all feeds, of one session."""
    source = model.SerializeToString() if isinstance(model, onnx.ModelProto) else model
    session, reference = provider.session(source), provider.reference(source)
    for feed in feeds:
        provider.same(session.run(None, feed), reference.run(None, feed))
    return session


# ---- ONNX Runtime's own


@pytest.mark.parametrize("name", ["logreg_iris.onnx", "mul_1.onnx", "sigmoid.onnx"])
def test_models_of_the_package(name: str) -> None:
    path = datasets.get_example(name)
    x = provider.reference(path).get_inputs()[0]
    rng = np.random.default_rng(0)
    session = _check(path, [{x.name: rng.random(x.shape).astype(np.float32)}])
    assert provider.parts(session)


# ---- Exported ones


class Pictures(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.b = torch.nn.BatchNorm2d(8)
        self.c = torch.nn.Linear(8, 10)

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.b(self.a(x)))
        y = torch.nn.functional.max_pool2d(y, 2) + torch.nn.functional.avg_pool2d(y, 2)
        return self.c(y.mean((2, 3))).softmax(-1)


class Sentences(torch.nn.Module):
    """A layer of a transformer, of any batch and length."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(50, 32)
        self.qkv, self.out = torch.nn.Linear(32, 96), torch.nn.Linear(32, 32)
        self.norm = torch.nn.LayerNorm(32)

    def forward(self, ids: Any) -> Any:
        x = self.words(ids)
        batch, length = ids.shape
        q, k, v = self.qkv(x).view(batch, length, 3, 4, 8).permute(2, 0, 3, 1, 4)
        y = (q @ k.transpose(2, 3) / 8**0.5).softmax(-1) @ v
        y = y.transpose(1, 2).reshape(batch, length, 32)
        return self.norm(x + torch.nn.functional.gelu(self.out(y)))


class Recurrent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(16, 12, batch_first=True, bidirectional=True)

    def forward(self, x: Any) -> Any:
        return self.lstm(x)[0]


def _exported(module: Any, x: Any, axes: dict[int, str]) -> bytes:
    torch.manual_seed(0)
    file = io.BytesIO()
    with torch.no_grad():
        torch.onnx.export(
            module().eval(), (x,), file, dynamo=False, input_names=["x"], output_names=["y"],
            dynamic_axes={"x": axes, "y": axes} if axes else None, opset_version=17)
    return file.getvalue()


@pytest.mark.filterwarnings("ignore")
def test_exported_pictures() -> None:
    source = _exported(Pictures, torch.zeros(2, 3, 16, 16), {0: "batch", 2: "height", 3: "width"})
    rng = np.random.default_rng(1)
    shapes = [(2, 3, 16, 16), (1, 3, 20, 12), (7, 3, 9, 33)]
    feeds = [{"x": rng.standard_normal(shape).astype(np.float32)} for shape in shapes]
    assert not provider.others(_check(source, feeds))


@pytest.mark.filterwarnings("ignore")
def test_exported_sentences() -> None:
    source = _exported(Sentences, torch.zeros(2, 6, dtype=torch.int64), {0: "batch", 1: "length"})
    rng = np.random.default_rng(2)
    feeds = [{"x": rng.integers(0, 50, shape)} for shape in [(2, 6), (1, 1), (3, 19), (2, 6)]]
    assert not provider.others(_check(source, feeds))


@pytest.mark.filterwarnings("ignore")
def test_exported_recurrent() -> None:
    source = _exported(Recurrent, torch.zeros(2, 5, 16), {0: "batch", 1: "length"})
    rng = np.random.default_rng(3)
    shapes = [(2, 5, 16), (4, 1, 16), (1, 11, 16)]
    feeds = [{"x": rng.standard_normal(shape).astype(np.float32)} for shape in shapes]
    assert provider.parts(_check(source, feeds))


# ---- Parts


_COUNTS = {"max_gram_length": 1, "max_skip_count": 0, "min_gram_length": 1, "mode": "TF",
           "ngram_counts": [0], "ngram_indexes": [0, 1, 2], "pool_int64s": [0, 1, 2]}


def _island(x: str, y: str) -> list[Any]:
    """Nodes of which the importer refuses the last; y has 3 columns. Results of Tanh and
    such that are 1, or nearly, are no whole numbers here."""
    return [
        helper.make_node("Mul", [x, "scale"], [f"{y}_s"]),
        helper.make_node("Abs", [f"{y}_s"], [f"{y}_a"]),
        helper.make_node("Cast", [f"{y}_a"], [f"{y}_b"], to=TensorProto.INT64),
        helper.make_node("TfIdfVectorizer", [f"{y}_b"], [y], **_COUNTS),
    ]


def _random_model(rng: random.Random) -> onnx.ModelProto:
    """A graph without cycles, with islands at random places."""
    values, nodes = ["x0", "x1"], []
    for i in range(rng.randint(4, 24)):
        name = f"v{i}"
        kind = rng.choice(["Tanh", "Add", "Mul", "Sub", "Sigmoid", "Max", "island"])
        if kind == "island":
            nodes += _island(rng.choice(values), name)
        else:
            count = 1 if kind in ("Tanh", "Sigmoid") else 2
            nodes.append(helper.make_node(kind, [rng.choice(values) for _ in range(count)], [name]))
        values.append(name)
    outputs = sorted({values[-1], *rng.sample(values[2:], 2)})
    shape = ["rows", 3] if rng.random() < 0.5 else [5, 3]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, shape) for i in range(2)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [helper.make_tensor("scale", TensorProto.FLOAT, [], [1.37])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_random_graphs_in_parts() -> None:
    first, last = map(int, os.environ.get("RABBET_TEST_SEEDS", "0:30").split(":"))
    split = 0
    for seed in range(first, last):
        rng = random.Random(seed)
        model = _random_model(rng)
        data = np.random.default_rng(seed)
        feed = {f"x{i}": data.standard_normal((5, 3)).astype(np.float32) for i in range(2)}
        try:
            session = _check(model, [feed])
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
        split += len(provider.parts(session)) > 1
    assert last - first < 30 or split > 5


def test_parts_are_as_large_as_they_can_be() -> None:
    """A part before, one beside and one behind the nodes that are left."""
    nodes = [
        helper.make_node("Tanh", ["x"], ["a"]),
        helper.make_node("Sigmoid", ["a"], ["b"]),
        *_island("b", "c"),
        helper.make_node("Exp", ["b"], ["d"]),
        helper.make_node("Add", ["c", "d"], ["e"]),
        helper.make_node("Tanh", ["e"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 3])],
        [helper.make_tensor("scale", TensorProto.FLOAT, [], [1.37])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    session = _check(model, [{"x": np.linspace(-4, 4, 12, dtype=np.float32).reshape(4, 3)}])
    assert sorted(map(sorted, provider.parts(session))) == [
        ["Abs", "Cast", "Exp", "Mul", "Sigmoid", "Tanh"], ["Add", "Tanh"]]
    assert provider.others(session) == {"TfIdfVectorizer": 1}
    whole = provider.session(model.SerializeToString(), min_nodes=4)
    assert sorted(map(len, provider.parts(whole))) == [6]


def test_nodes_of_constants_are_with_their_readers() -> None:
    """Weights that are dequantized behind a node that is left: by themselves they would be
    a part whose result is computed in each run, and no constant to the product."""
    rng = np.random.default_rng(6)
    model = onnx_text.model_of("float[n,16] x", "float[n,16] y, float[16] s", """
        w0 = DequantizeLinear(q0, scale, zero) a = MatMul(x, w0) t = Cast<to = 8>(a)
        b = Cast<to = 1>(t) c = Relu(b) w1 = DequantizeLinear(q1, scale, zero)
        v1 = Transpose<perm = [1, 0]>(w1) d = MatMul(c, v1) u = Cast<to = 8>(d)
        e = Cast<to = 1>(u) both = Add(w0, v1) f = MatMul(e, both) y = Tanh(f)
        s = ReduceMean<axes = [0], keepdims = 0>(w1)""", 17, 9)  # fmt: skip
    weights = {name: rng.integers(-127, 128, (16, 16)).astype(np.int8) for name in ("q0", "q1")}
    weights |= {"scale": np.float32(0.02), "zero": np.int8(0)}
    for name, value in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
    session = provider.session(model.SerializeToString())
    x = rng.standard_normal((3, 16)).astype(np.float32)
    provider.same(session.run(None, {"x": x}),
                  provider.reference(model.SerializeToString()).run(None, {"x": x}))
    assert provider.others(session) == {"Cast": 4}
    # ONNX Runtime gives each reader a DequantizeLinear of its own.
    assert sorted(map(sorted, provider.parts(session))) == [
        ["Add", "DequantizeLinear", "MatMul", "Tanh"], ["DequantizeLinear", "MatMul"],
        ["DequantizeLinear", "MatMul", "Relu", "Transpose"],
        ["DequantizeLinear", "ReduceMean"]]  # fmt: skip


# ---- Graphs in nodes

_STAYS = """o = Mul(p, scale) q = Abs(o) r = Cast<to=7>(q)
    u = TfIdfVectorizer<max_gram_length = 1, max_skip_count = 0, min_gram_length = 1, mode = "TF",
        ngram_counts = [0], ngram_indexes = [0, 1, 2], pool_int64s = [0, 1, 2]>(r)"""

_CONTROL_FLOW = {
    "taken whole": """
        flag = Greater(total, zero)
        y = If (flag) <then_branch = a () => (float[N,3] y1) { m = Tanh(x) y1 = Mul(m, total) },
                       else_branch = b () => (float[N,3] y2) { y2 = Exp(x) }>
    """,
    "a branch is left": f"""
        flag = Greater(total, zero)
        y = If (flag) <then_branch = a () => (float[N,3] y1) {{
                           p = Tanh(x) {_STAYS} v = Sigmoid(u) y1 = Mul(v, total) }},
                       else_branch = b () => (float[N,3] y2) {{ k = Exp(x) y2 = Tanh(k) }}>
    """,
    "a loop's body is left": f"""
        y = Loop (three, yes, x) <body = b (int64 i, bool c, float[N,3] h) =>
                                          (bool d, float[N,3] n) {{
                           d = Identity(c) p = Tanh(h) {_STAYS} w = Mul(u, total)
                           n = Add(w, h) }}>
    """,
    "a branch in a loop": f"""
        y = Loop (three, yes, x) <body = b (int64 i, bool c, float[N,3] h) =>
                                          (bool d, float[N,3] n) {{
                           d = Identity(c)
                           k = Cast<to=1>(i)
                           g = Greater(k, zero)
                           n = If (g) <then_branch = a () => (float[N,3] n1) {{
                                           p = Tanh(h) {_STAYS} n1 = Add(u, total) }},
                                       else_branch = e () => (float[N,3] n2) {{
                                           f = Sigmoid(h) n2 = Mul(f, total) }}> }}>
    """,
}


@pytest.mark.parametrize("name", list(_CONTROL_FLOW))
def test_control_flow(name: str) -> None:
    body = f"""
        zero = Constant<value = float {{0}}>()
        scale = Constant<value = float {{1.37}}>()
        three = Constant<value = int64 {{3}}>()
        yes = Constant<value = bool {{1}}>()
        total = ReduceSum<keepdims = 0>(x)
        {_CONTROL_FLOW[name]}
    """
    model = onnx_text.model_of("float[N,3] x", "float[N,3] y", body, 18, 9)
    rng = np.random.default_rng(4)
    feeds = [{"x": sign * rng.random((rows, 3)).astype(np.float32)}
             for rows, sign in [(2, 1), (2, -1), (5, 1)]]  # fmt: skip
    session = _check(model, feeds)
    assert provider.parts(session)
    assert bool(provider.others(session)) == (name != "taken whole")


# ---- Values at the border


def test_external_weights(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    model = onnx_text.model_of(
        "float[N,64] x, float[64,300] w", "float[N,300] y", "y = MatMul(x, w)")
    del model.graph.input[1]
    w = rng.standard_normal((64, 300)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    _check(str(path), [{"x": rng.standard_normal((3, 64)).astype(np.float32)}])


def test_sizes_that_a_run_tells() -> None:
    model = onnx_text.model_of(
        "float[N] x, int64[2] sizes", "int64[1,K] places, float[A,B] filled",
        "places = NonZero(x)\nr = ReduceSum<keepdims = 0>(x)\nfilled = Expand(r, sizes)")
    feeds = [{"x": np.array(x, np.float32), "sizes": np.array(sizes)}
             for x, sizes in [([0, 1, 2], [2, 3]), ([0, 0], [1, 1]), ([1] * 9, [4, 0]),
                              ([0, 1, 2], [5, 2])]]  # fmt: skip
    assert not provider.others(_check(model, feeds))


@pytest.mark.parametrize("kind", [1, 10, 16, 11, 3, 2, 6, 7, 9])
def test_types(kind: int) -> None:
    """All that plans have at their borders; BFLOAT16 by way of a cast around it."""
    if kind == TensorProto.BFLOAT16:
        body, outer = f"a = Cast<to={kind}>(x) b = Transpose(a) y = Cast<to=1>(b)", 1
    else:
        body, outer = "a = Transpose(x) y = Identity(a)", kind
    name = TensorProto.DataType.Name(outer).lower()
    model = onnx_text.model_of(f"{name}[3,N] x", f"{name}[N,3] y", body)
    x = np.arange(12).reshape(3, 4).astype(helper.tensor_dtype_to_np_dtype(outer))
    assert not provider.others(_check(model, [{"x": x}]))


def test_names_of_dimensions_that_contradict() -> None:
    """ONNX Runtime takes them for comments."""
    model = onnx_text.model_of(
        "float[N,2] x, float[N,2] z", "float[M,2] y", "y = Concat<axis=0>(x, z)")
    x, z = np.ones((3, 2), np.float32), np.zeros((5, 2), np.float32)
    _check(model, [{"x": x, "z": z}])
