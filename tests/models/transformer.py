"""A BERT-like encoder and a GPT-2-like decoder, as exporters write them.

Shapes below: B batch, S sequence, H hidden, N heads, D = H / N. Where B or S is
symbolic, the reshapes take their lengths from Shape, Gather and Concat nodes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from .graph import Dim, Graph

INT64 = onnx.TensorProto.INT64
LOWEST = float(np.finfo(np.float32).min)
_MAX = int(np.iinfo(np.int64).max)


@dataclass
class _Writer:
    """Writes the parts that both transformers have into a graph."""

    graph: Graph
    batch: Dim
    sequence: Dim
    hidden: int
    heads: int
    gelu: str
    layer_norm: str

    def node(self, op: str, inputs: list[str], name: str, **attributes: object) -> str:
        return self.graph.node(op, inputs, name, **attributes)

    def length(self, x: str, axis: int, name: str) -> str:
        """The length of an axis as a 1-D int64 tensor, exporters' way."""
        shape = self.node("Shape", [x], f"{name}.shape")
        index = self.graph.constant(f"index_{axis}", np.array(axis, np.int64))
        dim = self.node("Gather", [shape, index], f"{name}.gather", axis=0)
        return self.node("Unsqueeze", [dim, self.graph.ints(0)], f"{name}.unsqueeze")

    def reshape(self, x: str, name: str, tail: list[int]) -> str:
        """x to [B, S, *tail]."""
        if isinstance(self.batch, int) and isinstance(self.sequence, int):
            shape = self.graph.ints(self.batch, self.sequence, *tail)
        else:
            lengths = [self.length(x, axis, f"{name}.{axis}") for axis in (0, 1)]
            parts = lengths + [self.graph.ints(value) for value in tail]
            shape = self.node("Concat", parts, f"{name}.concat", axis=0)
        return self.node("Reshape", [x, shape], name)

    def linear(
        self, x: str, name: str, size: tuple[int, int], *, gain: float = 1.0
    ) -> str:
        """x @ [in, out] + [out], with weights of variance gain^2 / in."""
        std = gain * size[0] ** -0.5
        weight = self.graph.weight(f"{name}.weight", size, std)
        bias = self.graph.weight(f"{name}.bias", size[1:], 0.05)
        product = self.node("MatMul", [x, weight], f"{name}.matmul")
        return self.node("Add", [product, bias], name)

    def norm(self, x: str, name: str) -> str:
        """LayerNormalization over H, as one node or decomposed."""
        graph = self.graph
        scale = graph.weight(f"{name}.weight", (self.hidden,), 0.1, 1.0)
        bias = graph.weight(f"{name}.bias", (self.hidden,), 0.1)
        if self.layer_norm == "op":
            return self.node(
                "LayerNormalization", [x, scale, bias], name, axis=-1, epsilon=1e-5
            )
        mean = self.mean(x, f"{name}.mean")
        centred = self.node("Sub", [x, mean], f"{name}.sub")
        square = self.node("Pow", [centred, graph.scalar(2.0)], f"{name}.pow")
        variance = self.mean(square, f"{name}.variance")
        shifted = self.node("Add", [variance, graph.scalar(1e-5)], f"{name}.shift")
        std = self.node("Sqrt", [shifted], f"{name}.sqrt")
        unit = self.node("Div", [centred, std], f"{name}.div")
        scaled = self.node("Mul", [unit, scale], f"{name}.mul")
        return self.node("Add", [scaled, bias], name)

    def mean(self, x: str, name: str) -> str:
        """The mean over the last axis, kept; axes moved to an input at 18."""
        if self.graph.opset >= 18:
            return self.node("ReduceMean", [x, self.graph.ints(-1)], name, keepdims=1)
        return self.node("ReduceMean", [x], name, axes=[-1], keepdims=1)

    def activation(self, x: str, name: str) -> str:
        """Gelu: the operator (opset 20), by Erf, or by Tanh."""
        graph, node = self.graph, self.node
        if self.gelu == "op":
            return node("Gelu", [x], name)
        if self.gelu == "erf":
            y = node("Div", [x, graph.scalar(2**0.5)], f"{name}.div")
            y = node("Erf", [y], f"{name}.erf")
            y = node("Add", [y, graph.scalar(1.0)], f"{name}.add")
            y = node("Mul", [x, y], f"{name}.mul")
            return node("Mul", [y, graph.scalar(0.5)], name)
        cube = node("Pow", [x, graph.scalar(3.0)], f"{name}.pow")
        cube = node("Mul", [cube, graph.scalar(0.044715)], f"{name}.cube")
        y = node("Add", [x, cube], f"{name}.inner")
        y = node("Mul", [y, graph.scalar((2 / np.pi) ** 0.5)], f"{name}.scaled")
        y = node("Tanh", [y], f"{name}.tanh")
        y = node("Add", [y, graph.scalar(1.0)], f"{name}.add")
        half = node("Mul", [x, graph.scalar(0.5)], f"{name}.half")
        return node("Mul", [half, y], name)

    def split_heads(self, x: str, name: str, order: list[int]) -> str:
        """[B, S, H] -> [B, N, S, D], or [B, N, D, S] for keys."""
        width = self.hidden // self.heads
        x = self.reshape(x, f"{name}.heads", [self.heads, width])
        return self.node("Transpose", [x], f"{name}.transpose", perm=order)

    def attend(self, query: str, key: str, value: str, name: str) -> tuple[str, str]:
        """Scaled scores [B, N, S, S] of split queries and keys, and values."""
        q = self.split_heads(query, f"{name}.q", [0, 2, 1, 3])
        k = self.split_heads(key, f"{name}.k", [0, 2, 3, 1])
        v = self.split_heads(value, f"{name}.v", [0, 2, 1, 3])
        scores = self.node("MatMul", [q, k], f"{name}.scores")
        root = self.graph.scalar((self.hidden // self.heads) ** 0.5)
        return self.node("Div", [scores, root], f"{name}.scaled"), v

    def merge(self, scores: str, value: str, name: str) -> str:
        """softmax(scores) @ values, heads joined: [B, S, H]."""
        weights = self.node("Softmax", [scores], f"{name}.softmax", axis=-1)
        y = self.node("MatMul", [weights, value], f"{name}.context")
        y = self.node("Transpose", [y], f"{name}.merge", perm=[0, 2, 1, 3])
        return self.reshape(y, f"{name}.merged", [self.hidden])

    def positions(self, ids: str, limit: int) -> str:
        """Position embeddings [1, S, H], cut from the table by ids' length."""
        graph = self.graph
        table = graph.weight("embeddings.position.weight", (limit, self.hidden), 0.5)
        buffer = graph.constant(
            "embeddings.position_ids", np.arange(limit, dtype=np.int64)[None]
        )
        if isinstance(self.sequence, int):
            end = graph.ints(self.sequence)
        else:
            end = self.length(ids, 1, "embeddings.position.end")
        cut = [buffer, graph.ints(0), end, graph.ints(1), graph.ints(1)]
        index = self.node("Slice", cut, "embeddings.position.slice")
        return self.node("Gather", [table, index], "embeddings.position", axis=0)


def _writer(
    graph: Graph, gelu: str, layer_norm: str, dims: tuple[Dim, Dim, int, int]
) -> _Writer:
    if gelu not in ("op", "erf", "tanh"):
        raise ValueError(f"gelu is one of op, erf, tanh, not '{gelu}'")
    if layer_norm not in ("op", "parts"):
        raise ValueError(f"layer_norm is one of op, parts, not '{layer_norm}'")
    if gelu == "op" and graph.opset < 20:
        raise ValueError(f"gelu 'op' needs opset 20; it is {graph.opset}")
    batch, sequence, hidden, heads = dims
    if hidden % heads:
        raise ValueError(f"hidden {hidden} is no multiple of heads {heads}")
    return _Writer(graph, batch, sequence, hidden, heads, gelu, layer_norm)


def _bert_layer(writer: _Writer, x: str, name: str, mask: str | None, ffn: int) -> str:
    """Post-norm layer: attention and two linear maps, each with a residual."""
    hidden, attention = writer.hidden, f"{name}.attention"
    # Scores of standard deviation about 2, so that attention is not uniform.
    query = writer.linear(x, f"{attention}.query", (hidden, hidden), gain=1.5)
    key = writer.linear(x, f"{attention}.key", (hidden, hidden), gain=1.5)
    value = writer.linear(x, f"{attention}.value", (hidden, hidden))
    scores, value = writer.attend(query, key, value, attention)
    if mask is not None:
        scores = writer.node("Add", [scores, mask], f"{attention}.masked")
    y = writer.merge(scores, value, attention)
    y = writer.linear(y, f"{attention}.output", (hidden, hidden))
    y = writer.node("Add", [y, x], f"{attention}.residual")
    x = writer.norm(y, f"{attention}.norm")
    y = writer.linear(x, f"{name}.intermediate", (hidden, ffn))
    y = writer.activation(y, f"{name}.gelu")
    y = writer.linear(y, f"{name}.output", (ffn, hidden), gain=1.5)
    y = writer.node("Add", [y, x], f"{name}.residual")
    return writer.norm(y, f"{name}.norm")


def _bert_mask(writer: _Writer) -> str:
    """int64 [B, S] of ones and zeros -> what is added to the scores,
    [B, 1, 1, S]: 0 or the lowest float."""
    graph, node = writer.graph, writer.node
    mask = graph.input(
        "attention_mask",
        (writer.batch, writer.sequence),
        dtype=INT64,
        value_range=(0, 2),
    )
    x = node("Unsqueeze", [mask, graph.ints(1)], "mask.unsqueeze_1")
    x = node("Unsqueeze", [x, graph.ints(2)], "mask.unsqueeze_2")
    x = node("Cast", [x], "mask.cast", to=onnx.TensorProto.FLOAT)
    x = node("Sub", [graph.scalar(1.0), x], "mask.inverse")
    lowest = graph.constant("lowest", np.array(LOWEST, np.float32))
    return node("Mul", [x, lowest], "mask")


def bert_base(
    *,
    batch: Dim = "batch",
    sequence: Dim = "sequence",
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    ffn: int = 3072,
    vocabulary: int = 30522,
    positions: int = 512,
    mask: bool = True,
    gelu: str = "erf",
    layer_norm: str = "op",
    opset: int = 17,
    seed: int = 0,
) -> onnx.ModelProto:
    """input_ids (and attention_mask) int64 [B, S] -> last_hidden_state
    [B, S, H] and pooler_output [B, H].

    gelu: "erf" (decomposed, as exporters give), "tanh", or "op" (opset 20).
    layer_norm: "op", or "parts" (ReduceMean, Sub, Pow ... as before opset 17).
    """
    graph = Graph("bert", opset=opset, seed=seed)
    writer = _writer(graph, gelu, layer_norm, (batch, sequence, hidden, heads))
    ids = graph.input(
        "input_ids", (batch, sequence), dtype=INT64, value_range=(0, vocabulary)
    )
    added = _bert_mask(writer) if mask else None
    table = graph.weight("embeddings.word.weight", (vocabulary, hidden), 1.0)
    words = graph.node("Gather", [table, ids], "embeddings.word", axis=0)
    kind = graph.weight("embeddings.token_type", (hidden,), 0.3)
    x = graph.node("Add", [words, kind], "embeddings.typed")
    x = graph.node("Add", [x, writer.positions(ids, positions)], "embeddings.sum")
    x = writer.norm(x, "embeddings.norm")
    for index in range(layers):
        x = _bert_layer(writer, x, f"encoder.{index}", added, ffn)
    x = graph.node("Identity", [x], "last_hidden_state")
    graph.output(x, (batch, sequence, hidden))
    first = graph.constant("index_0", np.array(0, np.int64))
    token = graph.node("Gather", [x, first], "pooler.first", axis=1)
    weight = graph.weight("pooler.weight", (hidden, hidden), hidden**-0.5)
    bias = graph.weight("pooler.bias", (hidden,), 0.05)
    y = graph.node("Gemm", [token, weight, bias], "pooler.dense", transB=1)
    graph.output(graph.node("Tanh", [y], "pooler_output"), (batch, hidden))
    return graph.model()


def _causal(writer: _Writer, scores: str, name: str, limit: int) -> str:
    """Scores of later positions replaced by the lowest float, by a table of
    bools cut to [1, 1, S, S]."""
    graph, node = writer.graph, writer.node
    table = np.tril(np.ones((limit, limit), np.bool_))[None, None]
    cut = graph.constant("causal", table)
    if isinstance(writer.sequence, int):
        end = graph.ints(writer.sequence)
    else:
        end = writer.length(scores, 2, f"{name}.causal.end")
    for axis in (2, 3):
        inputs = [cut, graph.ints(0), end, graph.ints(axis), graph.ints(1)]
        cut = node("Slice", inputs, f"{name}.causal.slice_{axis}")
    lowest = graph.constant("lowest", np.array(LOWEST, np.float32))
    return node("Where", [cut, scores, lowest], f"{name}.causal")


def _gpt2_layer(writer: _Writer, x: str, name: str, limit: int, ffn: int) -> str:
    """Pre-norm layer with one product for queries, keys and values."""
    hidden = writer.hidden
    y = writer.norm(x, f"{name}.ln_1")
    y = writer.linear(y, f"{name}.attn.c_attn", (hidden, 3 * hidden), gain=1.3)
    sizes = writer.graph.ints(hidden, hidden, hidden)
    query, key, value = writer.graph.node(
        "Split", [y, sizes], f"{name}.attn.split", outputs=3, axis=2
    )
    scores, value = writer.attend(query, key, value, f"{name}.attn")
    scores = _causal(writer, scores, f"{name}.attn", limit)
    y = writer.merge(scores, value, f"{name}.attn")
    y = writer.linear(y, f"{name}.attn.c_proj", (hidden, hidden), gain=0.5)
    x = writer.node("Add", [y, x], f"{name}.attn.residual")
    y = writer.norm(x, f"{name}.ln_2")
    y = writer.linear(y, f"{name}.mlp.c_fc", (hidden, ffn))
    y = writer.activation(y, f"{name}.mlp.gelu")
    y = writer.linear(y, f"{name}.mlp.c_proj", (ffn, hidden), gain=0.7)
    return writer.node("Add", [x, y], f"{name}.mlp.residual")


def gpt2_small(
    *,
    batch: Dim = "batch",
    sequence: Dim = "sequence",
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    ffn: int = 3072,
    vocabulary: int = 50257,
    positions: int = 1024,
    head: str = "none",
    gelu: str = "tanh",
    layer_norm: str = "op",
    opset: int = 17,
    seed: int = 0,
) -> onnx.ModelProto:
    """input_ids int64 [B, S] -> hidden_states [B, S, H], or logits.

    head: "none", "last" (logits [B, V] of the last position) or "all"
    ([B, S, V]), with the embedding table's transpose as weights.
    """
    if head not in ("none", "last", "all"):
        raise ValueError(f"head is one of none, last, all, not '{head}'")
    graph = Graph("gpt2", opset=opset, seed=seed)
    writer = _writer(graph, gelu, layer_norm, (batch, sequence, hidden, heads))
    ids = graph.input(
        "input_ids", (batch, sequence), dtype=INT64, value_range=(0, vocabulary)
    )
    table = graph.weight("embeddings.word.weight", (vocabulary, hidden), 1.0)
    x = graph.node("Gather", [table, ids], "embeddings.word", axis=0)
    x = graph.node("Add", [x, writer.positions(ids, positions)], "embeddings.sum")
    for index in range(layers):
        x = _gpt2_layer(writer, x, f"h.{index}", positions, ffn)
    x = writer.norm(x, "ln_f")
    if head == "none":
        x = graph.node("Identity", [x], "hidden_states")
        graph.output(x, (batch, sequence, hidden))
        return graph.model()
    shape: tuple[Dim, ...] = (batch, sequence, vocabulary)
    if head == "last":
        last = graph.constant("index_last", np.array(-1, np.int64))
        x = graph.node("Gather", [x, last], "last", axis=1)
        shape = (batch, vocabulary)
    turned = graph.node("Transpose", [table], "lm_head.weight", perm=[1, 0])
    graph.output(graph.node("MatMul", [x, turned], "logits"), shape)
    return graph.model()
