"""Attention whose scores change their shape on the way: windows with masks, einsum, and
temperatures of heads. Each is one kernel, and equals ONNX Runtime."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
import pytest
import rabbet
from onnx import TensorProto

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)
WINDOWS, HEADS, ROWS, WIDTH = 4, 2, 16, 8
ALL = HEADS * WIDTH
Nodes = list[onnx.NodeProto]


class Graph:
    """x [n, windows, rows, channels] to attention's result of that shape."""

    def __init__(self) -> None:
        self.nodes: Nodes = []
        self.inits: dict[str, Any] = {}
        self.random = np.random.default_rng(3)
        self.weight("packed", ALL, 3 * ALL)
        self.add("MatMul", ["x", "packed"], "qkv")

    def weight(self, name: str, *shape: int) -> str:
        self.inits[name] = self.random.standard_normal(shape, np.float32) / 3
        return name

    def ints(self, name: str, *numbers: int) -> str:
        self.inits[name] = np.array(numbers, np.int64)
        return name

    def add(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(oh.make_node(kind, inputs, [output], **attributes))
        return output

    def reshape(self, x: str, output: str, *shape: int) -> str:
        return self.add("Reshape", [x, self.ints(f"{output}.shape", *shape)], output)

    def factors(self, *shape: int, order: list[int]) -> list[str]:
        """Queries, keys and values as parts of one product, with these axes."""
        self.add("Split", ["qkv"], "parts", axis=-1, num_outputs=3)
        self.nodes[-1].output[:] = [f"part{i}" for i in range(3)]
        return [
            self.add("Transpose", [self.reshape(f"part{i}", f"wide{i}", *shape)], f"f{i}",
                     perm=order)
            for i in range(3)
        ]  # fmt: skip

    def model(self) -> onnx.ModelProto:
        shape = ["n", WINDOWS, ROWS, ALL]
        graph = oh.make_graph(
            self.nodes, "windows",
            [oh.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [oh.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [onnx.numpy_helper.from_array(v, k) for k, v in self.inits.items()],
        )  # fmt: skip
        return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 18)], ir_version=9)


def masked_windows(cosine: bool = False) -> onnx.ModelProto:
    """As Swin: windows are a batch, and scores are reshaped for the mask of shifted windows.
    `cosine`: as its second version, whose scores have a temperature for each head."""
    g = Graph()
    q, k, v = g.factors(-1, ROWS, HEADS, WIDTH, order=[0, 2, 1, 3])
    if cosine:
        for name in (q, k):
            g.add("LpNormalization", [name], f"{name}.unit", axis=-1, p=2)
        q, k = f"{q}.unit", f"{k}.unit"
        g.inits["temperature"] = np.float32([10, 20]).reshape(1, HEADS, 1, 1)
    else:
        g.inits["scale"] = np.float32(WIDTH**-0.5)
        q = g.add("Mul", [q, "scale"], "scaled")
    scores = g.add("MatMul", [q, g.add("Transpose", [k], "kt", perm=[0, 1, 3, 2])], "scores")
    if cosine:
        scores = g.add("Mul", [scores, "temperature"], "warm")
    scores = g.add("Add", [scores, g.weight("bias", 1, HEADS, ROWS, ROWS)], "biased")
    mask = np.where(g.random.random((1, WINDOWS, 1, ROWS, ROWS)) < 0.3, -100, 0)
    g.inits["mask"] = mask.astype(np.float32)
    g.reshape(scores, "by window", -1, WINDOWS, HEADS, ROWS, ROWS)
    g.add("Add", ["by window", "mask"], "masked")
    g.reshape("masked", "flat", -1, HEADS, ROWS, ROWS)
    g.add("Softmax", ["flat"], "weights", axis=-1)
    g.add("MatMul", ["weights", v], "mixed")
    g.add("Transpose", ["mixed"], "together", perm=[0, 2, 1, 3])
    g.reshape("together", "y", -1, WINDOWS, ROWS, ALL)
    return g.model()


def einsum_windows(hidden: bool = False) -> onnx.ModelProto:
    """As MaxViT: products of rank 3, as einsum is exported, and a bias of rank 5; zeros in
    place of NaN, as torch writes. `hidden`: for one query there is no key."""
    g = Graph()
    q, k, v = g.factors(-1, WINDOWS, ROWS, HEADS, WIDTH, order=[0, 1, 3, 2, 4])
    g.inits["scale"] = np.float32(WIDTH**-0.5)
    k = g.add("Mul", [k, "scale"], "scaled")
    q = g.reshape(q, "q3", -1, ROWS, WIDTH)
    k = g.add("Transpose", [g.reshape(k, "k3", -1, ROWS, WIDTH)], "kt", perm=[0, 2, 1])
    g.add("MatMul", [q, k], "scores3")
    scores = g.reshape("scores3", "scores", -1, WINDOWS, HEADS, ROWS, ROWS)
    g.add("Add", [scores, g.weight("bias", 1, 1, HEADS, ROWS, ROWS)], "biased")
    if hidden:
        g.inits["bias"][0, 0, 0, 3] = -np.inf
    g.inits["zero"] = np.float32(0)
    g.add("Softmax", ["biased"], "guarded", axis=-1)
    g.add("Where", [g.add("IsNaN", ["guarded"], "nan"), "zero", "guarded"], "weights")
    g.reshape("weights", "weights3", -1, ROWS, ROWS)
    g.add("MatMul", ["weights3", g.reshape(v, "v3", -1, ROWS, WIDTH)], "mixed3")
    g.reshape("mixed3", "mixed", -1, WINDOWS, HEADS, ROWS, WIDTH)
    g.add("Transpose", ["mixed"], "together", perm=[0, 1, 3, 2, 4])
    g.reshape("together", "y", -1, WINDOWS, ROWS, ALL)
    return g.model()


def places() -> onnx.ModelProto:
    """As SAM: what depends on a key's row and on its column is added to scores that have
    both as axes."""
    g = Graph()
    side = int(ROWS**0.5)
    q, k, v = g.factors(-1, ROWS, HEADS, WIDTH, order=[0, 2, 1, 3])
    g.inits["scale"] = np.float32(WIDTH**-0.5)
    g.add("Mul", [q, "scale"], "scaled")
    g.add("MatMul", ["scaled", g.add("Transpose", [k], "kt", perm=[0, 1, 3, 2])], "scores")
    g.reshape("scores", "by place", -1, HEADS, ROWS, side, side)
    value = "by place"
    for i, axis in enumerate((4, 3)):
        g.add("MatMul", [q, g.weight(f"table{i}", WIDTH, side)], f"term{i}")
        g.ints(f"axis{i}", axis)
        g.add("Unsqueeze", [f"term{i}", f"axis{i}"], f"wide term{i}")
        value = g.add("Add", [value, f"wide term{i}"], f"sum{i}")
    g.reshape(value, "flat", -1, HEADS, ROWS, ROWS)
    g.add("Softmax", ["flat"], "weights", axis=-1)
    g.add("MatMul", ["weights", v], "mixed")
    g.add("Transpose", ["mixed"], "together", perm=[0, 2, 1, 3])
    g.reshape("together", "y", -1, WINDOWS, ROWS, ALL)
    return g.model()


def pixels(swapped: bool) -> onnx.ModelProto:
    """As YOLO, CoAtNet (`swapped`: values times weights) and BoTNet: pixels of an image
    attend to each other, and factors are its channels."""
    g = Graph()
    pixels_ = WINDOWS * ROWS
    g.nodes.clear()
    g.add("Transpose", ["x"], "turned", perm=[0, 3, 1, 2])
    g.add("Conv", ["turned", g.weight("kernel", 3 * ALL, ALL, 1, 1)], "qkv")
    shape = (-1, HEADS, 3 * WIDTH, pixels_) if swapped else (-1, 3, ALL, pixels_)
    g.reshape("qkv", "heads", *shape)
    g.add("Split", ["heads"], "parts", axis=2 if swapped else 1, num_outputs=3)
    g.nodes[-1].output[:] = q, k, v = "q0", "k0", "v0"
    if not swapped:
        q, k, v = (
            g.reshape(x, f"{x}.heads", -1, HEADS, WIDTH, pixels_) for x in (q, k, v)
        )
    q = g.add("Transpose", [q], "qt", perm=[0, 1, 3, 2])
    g.inits["scale"] = np.float32(WIDTH**-0.5)
    scores = g.add("Mul", [g.add("MatMul", [q, k], "scores"), "scale"], "scaled")
    g.add("Softmax", [scores], "weights", axis=-1)
    if swapped:
        g.add("MatMul", [v, g.add("Transpose", ["weights"], "wt", perm=[0, 1, 3, 2])], "mixed")
    else:
        v = g.add("Transpose", [v], "vt", perm=[0, 1, 3, 2])
        g.add("MatMul", ["weights", v], "mixed2")
        g.add("Transpose", ["mixed2"], "mixed", perm=[0, 1, 3, 2])
    g.reshape("mixed", "image", -1, ALL, WINDOWS, ROWS)
    g.add("Conv", ["image", g.weight("out", ALL, ALL, 1, 1)], "convolved")
    g.add("Transpose", ["convolved"], "y", perm=[0, 2, 3, 1])
    return g.model()


def areas() -> onnx.ModelProto:
    """As YOLO12: pixels attend to those of their area, strips of the image."""
    g = Graph()
    g.nodes.clear()
    strip = WINDOWS * ROWS // 2
    g.add("Transpose", ["x"], "turned", perm=[0, 3, 1, 2])
    g.add("Conv", ["turned", g.weight("kernel", 3 * ALL, ALL, 1, 1)], "qkv")
    g.reshape("qkv", "flat", -1, 3 * ALL, WINDOWS * ROWS)
    rows = g.add("Transpose", ["flat"], "rows", perm=[0, 2, 1])
    heads = g.reshape(rows, "heads", -1, strip, HEADS, 3 * WIDTH)
    heads = g.add("Transpose", [heads], "by head", perm=[0, 2, 3, 1])
    g.add("Split", [heads], "parts", axis=2, num_outputs=3)
    g.nodes[-1].output[:] = "q", "k", "v"
    q = g.add("Transpose", ["q"], "qt", perm=[0, 1, 3, 2])
    g.inits["scale"] = np.float32(WIDTH**-0.5)
    scores = g.add("MatMul", [g.add("Mul", [q, "scale"], "scaled"), "k"], "scores")
    g.add("Softmax", [scores], "weights", axis=-1)
    g.add("MatMul", ["v", g.add("Transpose", ["weights"], "wt", perm=[0, 1, 3, 2])], "mixed")
    g.add("Transpose", ["mixed"], "together", perm=[0, 3, 1, 2])
    g.reshape("together", "y", -1, WINDOWS, ROWS, ALL)
    return g.model()


def grouped_queries() -> onnx.ModelProto:
    """One packed product for groups of heads that share keys: its parts are divided behind
    the slices."""
    g = Graph()
    g.reshape("qkv", "groups", -1, WINDOWS * ROWS, HEADS, 3 * WIDTH)
    g.add("Transpose", ["groups"], "by group", perm=[0, 2, 1, 3])
    g.add("Split", ["by group"], "parts", axis=-1, num_outputs=3)
    g.nodes[-1].output[:] = "q", "k", "v"
    half = WIDTH // 2
    q = g.reshape("q", "q5", -1, HEADS, WINDOWS * ROWS, 2, half)
    q = g.add("Transpose", [q], "q4", perm=[0, 1, 3, 2, 4])
    k = g.reshape("k", "k5", -1, HEADS, WINDOWS * ROWS, 2, half)
    k = g.add("Transpose", [k], "kt", perm=[0, 1, 3, 4, 2])
    g.add("Softmax", [g.add("MatMul", [q, k], "scores")], "weights", axis=-1)
    v = g.reshape("v", "v5", -1, HEADS, WINDOWS * ROWS, 2, half)
    v = g.add("Transpose", [v], "v4", perm=[0, 1, 3, 2, 4])
    g.add("MatMul", ["weights", v], "mixed")
    g.add("Transpose", ["mixed"], "together", perm=[0, 3, 1, 2, 4])
    g.reshape("together", "y", -1, WINDOWS, ROWS, ALL)
    return g.model()


MODELS = {
    "masked": masked_windows(),
    "cosine": masked_windows(cosine=True),
    "einsum": einsum_windows(),
    "places": places(),
    "pixels": pixels(swapped=False),
    "swapped pixels": pixels(swapped=True),
    "areas": areas(),
}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_weights_of_columns(device: str) -> None:
    """What keeps a number in each row may hide a column, along which this softmax goes."""
    import onnxruntime

    g = Graph()
    q, k, v = g.factors(-1, WINDOWS * ROWS, HEADS, WIDTH, order=[0, 2, 1, 3])
    g.add("MatMul", [q, g.add("Transpose", [k], "kt", perm=[0, 1, 3, 2])], "scores")
    mask = np.zeros((1, 1, WINDOWS * ROWS, WINDOWS * ROWS), np.float32)
    mask[..., 3] = -np.inf
    g.inits |= {"mask": mask, "zero": np.float32(0)}
    g.add("Softmax", [g.add("Add", ["scores", "mask"], "masked")], "p", axis=2)
    g.add("Where", [g.add("IsNaN", ["p"], "nan"), "zero", "p"], "weights")
    g.add("MatMul", ["weights", v], "mixed")
    g.add("Transpose", ["mixed"], "together", perm=[0, 2, 1, 3])
    g.reshape("together", "y", -1, WINDOWS, ROWS, ALL)
    model = g.model().SerializeToString()
    built = rabbet.compile(model, device=device, tf32=False, optimization_level=0,
                           shapes={"x": (2, WINDOWS, ROWS, ALL)})  # fmt: skip
    x = np.random.default_rng(1).standard_normal((2, WINDOWS, ROWS, ALL), np.float32)
    expected = np.asarray(onnxruntime.InferenceSession(model).run(["y"], {"x": x})[0])
    np.testing.assert_allclose(np.asarray(built(x)), expected, atol=1e-4)


def test_parts_that_are_divided_further() -> None:
    import onnxruntime

    model = grouped_queries().SerializeToString()
    built = rabbet.compile(model, device="cuda", fp16=True, optimization_level=0,
                           shapes={"x": (2, WINDOWS, ROWS, ALL)})  # fmt: skip
    x = np.random.default_rng(1).standard_normal((2, WINDOWS, ROWS, ALL), np.float32)
    expected = np.asarray(onnxruntime.InferenceSession(model).run(["y"], {"x": x})[0])
    np.testing.assert_allclose(np.asarray(built(x)), expected, atol=2e-2)


def test_a_query_without_keys() -> None:
    """Zeros, not NaN, whatever kernels there are."""
    import onnxruntime

    model = einsum_windows(hidden=True).SerializeToString()
    built = rabbet.compile(model, device="cuda", fp16=True, optimization_level=0,
                           shapes={"x": (2, WINDOWS, ROWS, ALL)})  # fmt: skip
    x = np.random.default_rng(1).standard_normal((2, WINDOWS, ROWS, ALL), np.float32)
    expected = np.asarray(onnxruntime.InferenceSession(model).run(["y"], {"x": x})[0])
    assert np.all(expected[:, :, 3, :WIDTH] == 0)
    np.testing.assert_allclose(np.asarray(built(x)), expected, atol=2e-2)


@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize("kind", list(MODELS))
def test_against_onnxruntime(kind: str, fixed: bool) -> None:
    import onnxruntime

    model = MODELS[kind].SerializeToString()
    least, most = (2, 2) if fixed else (1, 3)
    shapes = {"x": tuple((n, WINDOWS, ROWS, ALL) for n in (least, 2, most))}
    built = rabbet.compile(
        model, device="cuda", fp16=True, optimization_level=0, shapes=shapes
    )
    kernels = [step["kernel"] for step in json.loads(built.report_json)["steps"]]
    assert "cuda.attention.tiles" in kernels
    assert "cuda.softmax" not in kernels
    session = onnxruntime.InferenceSession(model)
    random = np.random.default_rng(1)
    for n in {least, 2, most}:
        x = random.standard_normal((n, WINDOWS, ROWS, ALL), np.float32)
        expected = np.asarray(session.run(["y"], {"x": x})[0])
        np.testing.assert_allclose(np.asarray(built(x)), expected, atol=2e-2)
