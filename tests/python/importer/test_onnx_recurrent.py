"""ONNX RNN, GRU and LSTM against ONNX Runtime and torch."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import rabbet
from onnx import helper, numpy_helper

from tests.python.support.plugins import random

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
FUNCTIONS = {"RNN": 1, "GRU": 2, "LSTM": 3}
PARAMETERS = {  # alpha and beta, those that a function has
    "Sigmoid": 0, "Tanh": 0, "Relu": 0, "Affine": 2, "LeakyRelu": 1, "ThresholdedRelu": 1,
    "ScaledTanh": 2, "HardSigmoid": 2, "Elu": 1, "Softsign": 0, "Softplus": 0,
}  # fmt: skip
STEPS, BATCH, INPUT, HIDDEN = 5, 3, 4, 6
Sizes = tuple[int, int, int, int]


def info(name: str, shape: Any = None, kind: int = 1) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def model_of(
    kind: str,
    *,
    sizes: Sizes = (STEPS, BATCH, INPUT, HIDDEN),
    dims: tuple[Any, Any] | None = None,
    given: tuple[str, ...] = ("B", "h", "c", "P"),
    lengths: str = "",
    weights_are_inputs: bool = False,
    **attrs: Any,
) -> tuple[Any, dict[str, np.ndarray]]:
    """A model of one node, and its inputs. dims: those of steps and batch in the model;
    lengths: "constant", "input" or "" for none."""
    steps, batch, width, hidden = sizes
    ways = 2 if attrs.get("direction") == "bidirectional" else 1
    rows, by_batch = GATES[kind] * hidden, attrs.get("layout", 0) == 1
    state = (batch, ways, hidden) if by_batch else (ways, batch, hidden)
    shapes = {
        "W": (ways, rows, width),
        "R": (ways, rows, hidden),
        "B": (ways, 2 * rows),
        "h": state,
        "c": state,
        "P": (ways, 3 * hidden),
    }
    order = [
        "x",
        "W",
        "R",
        "B",
        "lengths",
        "h",
        *(["c", "P"] if kind == "LSTM" else []),
    ]
    named = {"x", "W", "R", *given} | ({"lengths"} if lengths else set())
    names = [name if name in named else "" for name in order]
    feeds = {
        "x": random(*((batch, steps) if by_batch else (steps, batch)), width, seed=9)
    }
    constants = {}
    for i, name in enumerate(names):
        if name in shapes:
            scale = min(0.5, 1 / np.sqrt(hidden)) if name in "WRBP" else 1
            array = random(*shapes[name], seed=i) * np.float32(scale)
            if name in "hc" or weights_are_inputs:
                feeds[name] = array
            else:
                constants[name] = array
    if lengths:
        drawn = np.random.default_rng(steps).integers(0, steps + 1, batch, np.int32)
        (feeds if lengths == "input" else constants)["lengths"] = drawn
    outputs = ["y", "yh", "yc"][: 3 if kind == "LSTM" else 2]
    node = helper.make_node(
        kind, names, outputs, hidden_size=hidden, name="net", **attrs
    )
    shape_of = {name: list(array.shape) for name, array in feeds.items()}
    if dims:
        shape_of["x"] = [*(dims[::-1] if by_batch else dims), width]
        for name in {"h", "c"} & set(shape_of):
            shape_of[name][0 if by_batch else 1] = dims[1]
        if "lengths" in shape_of:
            shape_of["lengths"] = [dims[1]]
    graph = helper.make_graph(
        [node],
        "g",
        [info(n, s, 6 if n == "lengths" else 1) for n, s in shape_of.items()],
        [info(o) for o in outputs],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 14)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8), feeds


def expected(model: Any, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """ONNX Runtime's results; it has no layout but 0."""
    node = model.graph.node[0]
    by_batch = any(a.name == "layout" and a.i for a in node.attribute)
    if not by_batch:
        return onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    other = onnx.ModelProto.FromString(model.SerializeToString())
    kept = [a for a in other.graph.node[0].attribute if a.name != "layout"]
    del other.graph.node[0].attribute[:]
    other.graph.node[0].attribute.extend(kept)
    for value in other.graph.input:
        if value.name in "xhc":
            dims = value.type.tensor_type.shape.dim
            first = onnx.TensorShapeProto.Dimension.FromString(
                dims[0].SerializeToString()
            )
            dims[0].CopyFrom(dims[1])
            dims[1].CopyFrom(first)
    turned = {n: a.swapaxes(0, 1) if n in "xhc" else a for n, a in feeds.items()}
    y, *states = expected(other, turned)
    return [y.transpose(2, 0, 1, 3), *(s.swapaxes(0, 1) for s in states)]


def check(model: Any, feeds: dict[str, np.ndarray], **options: Any) -> Any:
    wanted = expected(model, feeds)
    made = rabbet.compile(
        model, device="cpu", threads=1, optimization_level=1, **options
    )
    for ours, theirs in zip(made(**feeds), wanted, strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=2e-5)
    return made


def compare(kind: str, **options: Any) -> None:
    check(*model_of(kind, **options))


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", GATES)
def test_directions(kind: str, direction: str) -> None:
    compare(kind, direction=direction)


@pytest.mark.parametrize("kind", GATES)
def test_operands_that_are_left_out(kind: str) -> None:
    compare(kind, given=())


@pytest.mark.parametrize("kind", GATES)
def test_weights_that_are_inputs(kind: str) -> None:
    compare(kind, weights_are_inputs=True, direction="bidirectional")


@pytest.mark.parametrize("kind", GATES)
def test_one_plan_for_all_lengths_and_batches(kind: str) -> None:
    """Of any number of steps and sequences, none among them."""
    parts = {"given": ("B", "h", "c"), "lengths": "input", "direction": "bidirectional"}
    made = None
    for steps, batch in [(7, 4), (0, 2), (1, 1), (31, 9), (5, 0)]:
        sizes = (steps, batch, INPUT, HIDDEN)
        model, feeds = model_of(kind, sizes=sizes, dims=("t", "n"), **parts)
        if made is None:
            low, high = ([t, n] for t, n in ((0, 0), (31, 9)))
            shapes = {
                name: [
                    tuple(
                        {"t": t, "n": n}.get(d.dim_param, d.dim_value)
                        for d in value.type.tensor_type.shape.dim
                    )
                    for t, n in (low, (7, 4), high)
                ]
                for value in model.graph.input
                for name in [value.name]
            }
            made = rabbet.compile(
                model, device="cpu", threads=1, optimization_level=1, shapes=shapes
            )
        found = made(**feeds)
        # ONNX Runtime needs a sequence.
        wanted = expected(model, feeds) if batch else [np.zeros_like(f) for f in found]
        for ours, theirs in zip(found, wanted, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=2e-5)


def test_the_plan_does_not_grow_with_the_steps() -> None:
    sizes = []
    for steps in (2, 2000):
        model, _ = model_of("LSTM", sizes=(steps, 1, INPUT, HIDDEN))
        made = rabbet.compile(model, device="cpu", optimization_level=0)
        sizes.append(len(made.engine.serialize()))
    assert abs(sizes[1] - sizes[0]) < 64


def random_functions(rng: np.random.Generator, kind: str, ways: int) -> dict[str, Any]:
    """Bounded ones of gates, else states run away. A ThresholdedRelu without a jump, at
    which results of almost equal sums differ. ONNX Runtime knows no defaults of some."""
    gates = [
        "Sigmoid",
        "HardSigmoid",
        *(["Tanh", "Softsign"] if kind == "LSTM" else []),
    ]
    names = [
        str(rng.choice(gates if i == 0 and kind != "RNN" else list(PARAMETERS)))
        for _ in range(ways)
        for i in range(FUNCTIONS[kind])
    ]
    numbers: list[list[float]] = [[], []]
    for name in names:
        for i in range(PARAMETERS[name]):
            jumps = name == "ThresholdedRelu"
            numbers[i].append(
                0.0 if jumps else float(np.float32(rng.uniform(0.1, 0.6)))
            )
    lists = dict(zip(("activation_alpha", "activation_beta"), numbers, strict=True))
    if (
        not {"Affine", "ScaledTanh", "ThresholdedRelu"} & set(names)
        and rng.random() < 0.3
    ):
        lists = {}
    return {
        "activations": names,
        **{name: list_ for name, list_ in lists.items() if list_},
    }


@pytest.mark.parametrize("seed", range(60))
def test_random_attributes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kind = list(GATES)[seed % 3]
    direction = str(rng.choice(["forward", "reverse", "bidirectional"]))
    attrs: dict[str, Any] = {"direction": direction}
    if rng.random() < 0.6:
        attrs |= random_functions(rng, kind, 2 if direction == "bidirectional" else 1)
    if rng.random() < 0.3:
        attrs["clip"] = float(rng.uniform(0.3, 1))
    if kind == "GRU":
        attrs["linear_before_reset"] = int(rng.integers(2))
    if kind == "LSTM":
        attrs["input_forget"] = int(rng.integers(2))
    if rng.random() < 0.3:
        attrs["layout"] = 1
    # States must not run away where functions have no bounds.
    free = {"Relu", "Affine", "LeakyRelu", "ThresholdedRelu", "Elu", "Softplus"}
    longest = 12 if free & set(attrs.get("activations", ())) else 100
    sizes = tuple(int(rng.integers(1, most + 1)) for most in (longest, 33, 20, 70))
    given = tuple(name for name in "BhcP" if rng.random() < 0.6)
    lengths = str(rng.choice(["", "input", "constant"]))
    compare(kind, sizes=sizes, given=given, lengths=lengths, **attrs)


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize(
    ("kind", "batch", "hidden"), [("LSTM", 9, 20), ("GRU", 1, 600)]
)
def test_threads(kind: str, batch: int, hidden: int, threads: int) -> None:
    """Threads share sequences, or the columns of products."""
    model, feeds = model_of(
        kind, sizes=(6, batch, INPUT, hidden), direction="bidirectional"
    )
    made = rabbet.compile(model, device="cpu", threads=threads, optimization_level=0)
    for ours, theirs in zip(made(**feeds), expected(model, feeds), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("packed", [False, True])
def test_modules_of_torch(kind: str, packed: bool) -> None:
    """Stacked, bidirectional, with packed sequences of different lengths."""
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = getattr(torch.nn, kind)(
                INPUT, HIDDEN, 2, bidirectional=True, batch_first=True
            )

        def forward(self, x: Any, lengths: Any) -> Any:
            if not packed:
                y, state = self.net(x)
            else:
                rnn = torch.nn.utils.rnn
                ragged = rnn.pack_padded_sequence(x, lengths, batch_first=True)
                y, state = self.net(ragged)
                y, _ = rnn.pad_packed_sequence(y, batch_first=True)
            return (y, *(state if isinstance(state, tuple) else (state,)))

    torch.manual_seed(0)
    net, file = Net().eval(), io.BytesIO()
    x, lengths = torch.randn(3, 7, INPUT), torch.tensor([7, 4, 2])
    names = ["x", "lengths"] if packed else ["x"]
    torch.onnx.export(
        net, (x, lengths), file, dynamo=False, opset_version=17, input_names=names,
        dynamic_axes={"x": {0: "n", 1: "t"}, **({"lengths": {0: "n"}} if packed else {})},
    )  # fmt: skip
    shapes: Any = {"x": [(1, 1, INPUT), (3, 7, INPUT), (4, 50, INPUT)]}
    if packed:
        shapes["lengths"] = [(1,), (3,), (4,)]
    made = rabbet.compile(
        onnx.load_from_string(file.getvalue()),
        device="cpu",
        shapes=shapes,
        optimization_level=1,
    )
    for steps, given in [(7, [7, 4, 2]), (30, [30, 11, 11, 1])]:
        x, lengths = torch.randn(len(given), steps, INPUT), torch.tensor(given)
        with torch.no_grad():
            wanted = net(x, lengths)
        feeds = {"x": x.numpy(), "lengths": lengths.numpy()}
        found = made(**{name: feeds[name] for name in names})
        for ours, theirs in zip(found, wanted, strict=True):
            np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"activations": ["Sin"]}, "activation 'Sin' is not known; expected Sigmoid"),
        (
            {"direction": "sideways"},
            "'direction' is 'sideways'; expected forward, reverse or",
        ),
        ({"wrong": "bidirectional"}, r"R has shape \(1, 6, 6\); expected \(2"),
        ({"clip": -1.0}, "'clip' is -1; expected a bound, or 0"),
        (
            {"state": 4},
            r"input 3 \('hidden'\) has shape \(1, 4, 6\); expected \(directions, ",
        ),
    ],
)
def test_mistakes(options: dict[str, Any], says: str) -> None:
    wrong, state = options.pop("wrong", None), options.pop("state", None)
    model, _ = model_of("RNN", **options)
    if wrong:
        model.graph.node[0].attribute.append(helper.make_attribute("direction", wrong))
    if state:
        model.graph.input[1].type.tensor_type.shape.dim[1].dim_value = state
    with pytest.raises(rabbet.Error, match=says) as caught:
        rabbet.compile(model, device="cpu", optimization_level=0)
    assert "'net' (RNN" in str(caught.value)


@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_quantized_weights(direction: str, by_column: bool) -> None:
    """DynamicQuantizeLSTM, as quantize_dynamic writes it. ONNX Runtime quantizes inputs and
    hidden states, too: steps of 1/255 of their ranges are what the results may differ by.
    Weights have 7 bits: without VNNI its sums of two products saturate."""
    plain, feeds = model_of("LSTM", lengths="input", direction=direction)
    node = plain.graph.node[0]
    node.op_type, node.domain = "DynamicQuantizeLSTM", "com.microsoft"
    kept = [t for t in plain.graph.initializer if t.name not in "WR"]
    made = {t.name: numpy_helper.to_array(t) for t in plain.graph.initializer}
    for name in "WR":
        weights = made[name].swapaxes(1, 2)
        scale = np.abs(weights).max(axis=1 if by_column else (1, 2)) / np.float32(60)
        wide = scale[:, None, :] if by_column else scale[:, None, None]
        zero = np.full(scale.shape, 0 if by_column else 3, np.int8)
        added = {name: np.rint(weights / wide).astype(np.int8), f"{name}s": scale, f"{name}z": zero}
        kept += [numpy_helper.from_array(array, key) for key, array in added.items()]
        node.input.extend([f"{name}s", f"{name}z"])
    del plain.graph.initializer[:]
    plain.graph.initializer.extend(kept)
    plain.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    found = rabbet.compile(plain, device="cpu", threads=1, optimization_level=1)(**feeds)
    for ours, theirs in zip(found, expected(plain, feeds), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=0.03)
