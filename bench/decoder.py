"""A decoder like Llama for one step: caches that are updated in place, tokens of each row
in (one, or a prompt's), the last one's logits out; as a network, and as torch computes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import rabbet as trt

EPSILON = 1e-5
SMALL = 0.02  # standard deviation of the weights
BLOCK = 32  # weights of INT4 that share a scale


@dataclass(frozen=True)
class Shape:
    """Extents of a decoder. weights: "fp16", "fp8" or "int4"."""

    layers: int = 16
    hidden: int = 2048
    heads: int = 32
    key_heads: int = 8
    ffn: int = 8192
    vocabulary: int = 128256
    batch: int = 1
    room: int = 1024
    weights: str = "fp16"
    tokens: int = 1

    @property
    def head(self) -> int:
        return self.hidden // self.heads

    @property
    def keys(self) -> int:
        """Columns of keys, and of values."""
        return self.key_heads * self.head

    def products(self) -> dict[str, tuple[int, int]]:
        """(columns, k) of each product of a layer."""
        wide, hidden = self.ffn, self.hidden
        return {
            "q": (hidden, hidden), "k": (self.keys, hidden), "v": (self.keys, hidden),
            "o": (hidden, hidden), "gate": (wide, hidden), "up": (wide, hidden),
            "down": (hidden, wide),
        }  # fmt: skip

    def weight_bytes(self) -> int:
        """Bytes of weights that a step reads."""
        bits = {"fp16": 16, "fp8": 8, "int4": 4 + 16 / BLOCK}[self.weights]
        count = self.layers * sum(n * k for n, k in self.products().values())
        return int((count + self.vocabulary * self.hidden) * bits / 8)

    def cache_bytes(self) -> int:
        """Bytes of keys and values that a step reads."""
        return 2 * 2 * self.layers * self.batch * self.keys * self.room

    def cache_shape(self) -> tuple[int, int, int, int]:
        return (self.batch, self.key_heads, self.room, self.head)


class Weights:
    """Numbers at random. All come from one block, each from another place in it."""

    def __init__(self, shape: Shape, torch: Any, seed: int = 1) -> None:
        self.shape, self.torch, self.used = shape, torch, 0
        generator = torch.Generator().manual_seed(seed)
        block = torch.randn(1 << 24, generator=generator)
        self.half = (block * SMALL).half().numpy()
        if shape.weights == "fp8":
            self.codes = block.to(torch.float8_e4m3fn).view(torch.uint8).numpy()
        elif shape.weights == "int4":
            self.codes = block.mul(1e6).int().bitwise_and(255).to(torch.uint8).numpy()

    def _drawn(self, block: Any, count: int) -> Any:
        self.used += 1
        at = 7919 * 16 * self.used % (len(block) // 2)
        whole = np.empty(count, block.dtype)
        for begin in range(0, count, len(block) - at):
            part = block[at : at + count - begin]
            whole[begin : begin + len(part)] = part
        return whole

    def matrix(self, columns: int, k: int) -> tuple[Any, Any]:
        """[columns, k] in FP16 and None; or codes and their scales."""
        kind = self.shape.weights
        if kind == "fp16":
            return self._drawn(self.half, columns * k).reshape(columns, k), None
        codes = self._drawn(self.codes, columns * k // (2 if kind == "int4" else 1))
        blocks = 1 if kind == "fp8" else k // BLOCK
        scales = np.full(
            (columns, blocks), SMALL / (1 if kind == "fp8" else 4.6), np.float16
        )
        return codes, scales

    def embedding(self) -> Any:
        count = self.shape.vocabulary * self.shape.hidden
        return self._drawn(self.half, count).reshape(-1, self.shape.hidden)

    def dense(self, columns: int, k: int, given: tuple[Any, Any], device: str) -> Any:
        """The matrix in FP16 on the device."""
        codes, scales = given
        torch, kind = self.torch, self.shape.weights
        numbers = torch.from_numpy(codes).to(device)
        if kind == "fp16":
            return numbers
        if kind == "fp8":
            numbers = numbers.view(torch.float8_e4m3fn).half()
        else:
            numbers = torch.stack([numbers & 15, numbers >> 4], -1).to(torch.int8)
            numbers = torch.where(numbers > 7, numbers - 16, numbers).half()
        scales = torch.from_numpy(scales).to(device)
        blocks = numbers.view(columns, scales.shape[1], -1)
        return (blocks * scales[:, :, None]).view(columns, k)


def angles(shape: Shape) -> tuple[Any, Any]:
    """Cosines and sines [room, head / 2]."""
    half = shape.head // 2
    rates = 500000.0 ** (-np.arange(half) / half)
    found = np.arange(shape.room)[:, None] * rates
    return np.cos(found).astype(np.float16), np.sin(found).astype(np.float16)


@dataclass
class Drawn:
    """All numbers of a decoder."""

    shape: Shape
    embedding: Any
    layers: list[dict[str, tuple[Any, Any]]]
    head: tuple[Any, Any]

    @classmethod
    def of(cls, shape: Shape, source: Weights) -> Drawn:
        made = source.matrix
        layers = [
            {name: made(*extents) for name, extents in shape.products().items()}
            for _ in range(shape.layers)
        ]
        return cls(
            shape, source.embedding(), layers, made(shape.vocabulary, shape.hidden)
        )


# ---- The network ----


class Network:
    """The decoder's layers, as exporters write them. `network`: strongly typed."""

    def __init__(self, network: Any, drawn: Drawn) -> None:
        self.network, self.drawn, self.shape = network, drawn, drawn.shape
        self.op, self.matrix = trt.ElementWiseOperation, trt.MatrixOperation

    def constant(self, array: Any) -> Any:
        return self.network.add_constant(array.shape, array).get_output(0)

    def both(self, a: Any, b: Any, op: Any) -> Any:
        return self.network.add_elementwise(a, b, op).get_output(0)

    def number(self, value: float, kind: Any = np.float32, rank: int = 3) -> Any:
        return self.constant(np.full((1,) * rank, value, kind))

    def reshaped(self, x: Any, dims: Any, order: Any = None) -> Any:
        layer = self.network.add_shuffle(x)
        layer.reshape_dims = dims
        if order:
            layer.second_transpose = order
        return layer.get_output(0)

    def norm(self, x: Any) -> Any:
        """RMS normalization, in FLOAT as transformers does it."""
        wide = self.network.add_cast(x, trt.float32).get_output(0)
        square = self.both(wide, wide, self.op.PROD)
        mean = self.network.add_reduce(square, trt.ReduceOperation.AVG, 4, True)
        shifted = self.both(mean.get_output(0), self.number(EPSILON), self.op.SUM)
        root = self.network.add_unary(shifted, trt.UnaryOperation.SQRT).get_output(0)
        narrow = self.network.add_cast(self.both(wide, root, self.op.DIV), trt.float16)
        ones = self.constant(np.ones((1, 1, self.shape.hidden), np.float16))
        return self.both(narrow.get_output(0), ones, self.op.PROD)

    def product(self, x: Any, given: tuple[Any, Any], columns: int, k: int) -> Any:
        numbers, scales = given
        if scales is None:
            weights = self.constant(numbers[None])
        else:
            dtype = trt.fp8 if self.shape.weights == "fp8" else trt.int4
            held = trt.Weights(dtype, numbers.ctypes.data, columns * k)
            codes = self.network.add_constant((1, columns, k), held).get_output(0)
            made = self.network.add_dequantize(
                codes, self.constant(scales[None]), trt.float16
            )
            weights = made.get_output(0)
        none, turned = self.matrix.NONE, self.matrix.TRANSPOSE
        return self.network.add_matrix_multiply(x, none, weights, turned).get_output(0)

    def heads(self, x: Any, count: int) -> Any:
        """[batch, count, tokens, head]"""
        s = self.shape
        return self.reshaped(x, (s.batch, s.tokens, count, s.head), (0, 2, 1, 3))

    def part(self, x: Any, first: int, size: int) -> Any:
        dims = [*x.shape[:3], size]
        return self.network.add_slice(x, (0, 0, 0, first), dims, (1,) * 4).get_output(0)

    def rotated(self, x: Any) -> Any:
        """x cos + turned(x) sin, as transformers writes it."""
        half = self.shape.head // 2
        a, b = self.part(x, 0, half), self.part(x, half, half)
        negative = self.network.add_unary(b, trt.UnaryOperation.NEG).get_output(0)
        joined = self.network.add_concatenation([negative, a])
        joined.axis = 3
        return self.both(
            self.both(x, self.cos, self.op.PROD),
            self.both(joined.get_output(0), self.sin, self.op.PROD),
            self.op.SUM,
        )

    def angle(self, table: Any) -> Any:
        """[batch, 1, tokens, head] of the tokens' positions."""
        s = self.shape
        whole = self.constant(np.concatenate([table, table], 1))
        found = self.network.add_gather(whole, self.places, 0).get_output(0)
        return self.reshaped(found, (s.batch, 1, s.tokens, s.head))

    def cached(self, name: str, new: Any) -> Any:
        """The cache with the new rows, for each head of queries."""
        s = self.shape
        cache = self.network.add_input(name, trt.float16, s.cache_shape())
        layer = self.network.add_kv_cache_update(
            cache, new, self.start, trt.KVCacheMode.LINEAR
        )
        whole = layer.get_output(0)
        whole.name = f"{name}.out"
        self.network.mark_output(whole)
        apart = self.reshaped(whole, (s.batch, s.key_heads, 1, s.room, s.head))
        dims = (s.batch, s.key_heads, s.heads // s.key_heads, s.room, s.head)
        spread = self.network.add_slice(apart, (0,) * 5, dims, (1, 1, 0, 1, 1))
        return self.reshaped(spread.get_output(0), (s.batch, s.heads, s.room, s.head))

    def attention(self, i: int, x: Any) -> Any:
        s, given = self.shape, self.drawn.layers[i]
        sizes = s.products()
        q, k, v = (self.product(x, given[name], *sizes[name]) for name in "qkv")
        q = self.rotated(self.heads(q, s.heads))
        keys = self.cached(f"key{i}", self.rotated(self.heads(k, s.key_heads)))
        values = self.cached(f"value{i}", self.heads(v, s.key_heads))
        scale = self.number(s.head**-0.5, np.float16, 4)
        none, turned = self.matrix.NONE, self.matrix.TRANSPOSE
        scores = self.network.add_matrix_multiply(q, none, keys, turned).get_output(0)
        scores = self.both(scores, scale, self.op.PROD)
        low = self.number(-60000.0, np.float16, 4)
        scores = self.network.add_select(self.kept, scores, low).get_output(0)
        softmax = self.network.add_softmax(scores)
        softmax.axes = 8
        mixed = self.network.add_matrix_multiply(
            softmax.get_output(0), none, values, none
        )
        layer = self.network.add_shuffle(mixed.get_output(0))
        layer.first_transpose = (0, 2, 1, 3)
        layer.reshape_dims = (s.batch, s.tokens, s.hidden)
        return self.product(layer.get_output(0), given["o"], *sizes["o"])

    def perceptron(self, i: int, x: Any) -> Any:
        given, sizes = self.drawn.layers[i], self.shape.products()
        gate = self.product(x, given["gate"], *sizes["gate"])
        up = self.product(x, given["up"], *sizes["up"])
        sigmoid = self.network.add_activation(gate, trt.ActivationType.SIGMOID)
        gate = self.both(gate, sigmoid.get_output(0), self.op.PROD)
        return self.product(
            self.both(gate, up, self.op.PROD), given["down"], *sizes["down"]
        )

    def make(self) -> None:
        """Adds everything. Inputs: token [batch, tokens], start [batch], the caches."""
        s = self.shape
        token = self.network.add_input("token", trt.int64, (s.batch, s.tokens))
        self.start = self.network.add_input("start", trt.int64, (s.batch,))
        self.places = self.start
        if s.tokens > 1:
            steps = self.constant(np.arange(s.tokens)[None])
            first = self.reshaped(self.start, (s.batch, 1))
            self.places = self.both(first, steps, self.op.SUM)
        self.cos, self.sin = (self.angle(table) for table in angles(s))
        room = self.constant(np.arange(s.room)[None, None, None])
        places = self.reshaped(self.places, (s.batch, 1, s.tokens, 1))
        beyond = self.both(room, places, self.op.GREATER)
        self.kept = self.network.add_unary(beyond, trt.UnaryOperation.NOT).get_output(0)
        x = self.network.add_gather(
            self.constant(self.drawn.embedding), token, 0
        ).get_output(0)
        for i in range(s.layers):
            x = self.both(x, self.attention(i, self.norm(x)), self.op.SUM)
            x = self.both(x, self.perceptron(i, self.norm(x)), self.op.SUM)
        if s.tokens > 1:
            dims, last = (s.batch, 1, s.hidden), (0, s.tokens - 1, 0)
            x = self.network.add_slice(x, last, dims, (1, 1, 1)).get_output(0)
        logits = self.product(self.norm(x), self.drawn.head, s.vocabulary, s.hidden)
        logits.name = "logits"
        self.network.mark_output(logits)


# ---- torch ----

ROWS = ("o", "down")
"""Products that ranks split along k, whose partial sums they add; others' columns."""


@dataclass(frozen=True)
class Part:
    """A rank's share of the decoder, and how ranks exchange tensors of torch."""

    rank: int = 0
    ranks: int = 1
    added: Callable[[Any], Any] = lambda x: x
    joined: Callable[[Any], Any] = lambda x: x


WHOLE = Part()


class Torch:
    """The same step in torch; `block` may be replaced by a compiled one."""

    def __init__(
        self, source: Weights, drawn: Drawn, device: str = "cuda", part: Part = WHOLE
    ) -> None:
        self.torch, self.shape, self.device = source.torch, drawn.shape, device
        self.part, s, sizes = part, drawn.shape, drawn.shape.products()

        def dense(name: str, given: tuple[Any, Any], columns: int, k: int) -> Any:
            if part.ranks == 1:
                return source.dense(columns, k, given, device)
            whole = source.dense(columns, k, given, "cpu")
            own = whole.chunk(part.ranks, int(name in ROWS))[part.rank]
            return own.contiguous().to(device)

        self.embedding = self.torch.from_numpy(drawn.embedding).to(device)
        self.layers = [
            {name: dense(name, given, *sizes[name]) for name, given in layer.items()}
            for layer in drawn.layers
        ]
        self.head = dense("head", drawn.head, s.vocabulary, s.hidden)
        tables = [self.torch.from_numpy(table).to(device) for table in angles(s)]
        self.tables = [self.torch.cat([table, table], 1) for table in tables]

    def rotated(self, x: Any, cos: Any, sin: Any) -> Any:
        half = self.shape.head // 2
        turned = self.torch.cat([-x[..., half:], x[..., :half]], -1)
        return x * cos + turned * sin

    def norm(self, x: Any) -> Any:
        wide = x.float()
        return (wide * self.torch.rsqrt(wide.square().mean(-1, True) + EPSILON)).half()

    def heads(self, x: Any) -> Any:
        s = self.shape
        return x.view(s.batch, s.tokens, -1, s.head).transpose(1, 2)

    def attention(self, q: Any, keys: Any, values: Any, places: Any) -> Any:
        """Of a token over the cache; a prompt, which begins it, over itself."""
        attend = self.torch.nn.functional.scaled_dot_product_attention
        if self.shape.tokens > 1:
            return attend(q, keys, values, is_causal=True, enable_gqa=True)
        room = self.torch.arange(self.shape.room, device=self.device)
        kept = (room <= places)[:, None, None]
        return attend(q, keys, values, attn_mask=kept, enable_gqa=True)

    def block(self, w: dict[str, Any], cache: Any, x: Any, more: Any, at: Any) -> Any:
        """A layer of x + more: x, and what is to be added to it."""
        cos, sin, places = at
        keys, values = cache
        rows = self.torch.arange(self.shape.batch, device=self.device)[:, None]
        x = x + more
        y = self.norm(x)
        q = self.rotated(self.heads(y @ w["q"].T), cos, sin)
        k = self.rotated(self.heads(y @ w["k"].T), cos, sin)
        v = self.heads(y @ w["v"].T)
        keys[rows, :, places] = k.transpose(1, 2)
        values[rows, :, places] = v.transpose(1, 2)
        seen = (k, v) if self.shape.tokens > 1 else (keys, values)
        y = self.attention(q, *seen, places).transpose(1, 2).flatten(2)
        x = x + self.part.added(y @ w["o"].T)
        y = self.norm(x)
        y = self.torch.nn.functional.silu(y @ w["gate"].T) * (y @ w["up"].T)
        return x, self.part.added(y @ w["down"].T)

    def step(self, token: Any, start: Any, caches: list[Any]) -> Any:
        """Logits of the last token; the caches are updated."""
        tokens = self.torch.arange(self.shape.tokens, device=self.device)
        places = start[:, None] + tokens
        at = (*(table[places][:, None] for table in self.tables), places)
        x = self.embedding[token]
        more = self.torch.zeros_like(x)
        pairs = zip(caches[::2], caches[1::2], strict=True)
        for w, cache in zip(self.layers, pairs, strict=True):
            x, more = self.block(w, cache, x, more, at)
        x = (x + more)[:, -1:]
        return self.part.joined(self.norm(x) @ self.head.T)


def names(shape: Shape) -> Iterator[str]:
    """Those of the caches."""
    for i in range(shape.layers):
        yield from (f"key{i}", f"value{i}")
