"""Rotations of a token's queries and keys and updates of their caches are one kernel, where
they read parts of one tensor; networks that only look like that keep theirs. NumPy computes
what is expected."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import rabbet as trt

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)
KERNEL = "cuda.cached_rotation"


@dataclass(frozen=True)
class Case:
    """heads: of queries and of keys. order: of the parts in the tensor."""

    batch: int = 2
    tokens: int = 1
    heads: tuple[int, int] = (4, 2)
    width: int = 16
    room: int = 12
    order: str = "qkv"
    joint: bool = True  # slices of one product's result, else three products
    biased: bool = False
    turned: bool = False  # heads are transposed behind the rotation, else before
    interleaved: bool = False
    tables: tuple[int, int] = (0, 0)  # which tables rotate queries and keys
    indices: tuple[int, int] = (0, 0)  # which indices place keys and values
    kind: Any = np.float16


def rotated(
    x: np.ndarray, cos: np.ndarray, sin: np.ndarray, interleaved: bool
) -> np.ndarray:
    y = np.empty_like(x)
    half = x.shape[-1] // 2
    a, b = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (
        slice(0, half), slice(half, None)
    )  # fmt: skip
    y[..., a] = x[..., a] * cos[..., a] - x[..., b] * sin[..., a]
    y[..., b] = x[..., b] * cos[..., b] + x[..., a] * sin[..., b]
    return y


class Step:
    def __init__(self, case: Case, seed: int) -> None:
        self.case, self.random = case, np.random.default_rng(seed)
        c = case
        queries, keys = c.heads
        self.k = 24
        self.columns = {
            "q": queries * c.width,
            "k": keys * c.width,
            "v": keys * c.width,
        }
        self.x = self.drawn(c.batch, c.tokens, self.k)
        self.weights = {n: self.drawn(self.k, size) for n, size in self.columns.items()}
        self.biases = {n: self.drawn(1, 1, size) for n, size in self.columns.items()}
        angles = self.random.uniform(0, 6, (2, c.batch, 1, c.tokens, c.width))
        self.cos, self.sin = (
            np.cos(angles).astype(c.kind),
            np.sin(angles).astype(c.kind),
        )
        self.caches = [self.drawn(c.batch, keys, c.room, c.width) for _ in range(2)]
        self.start = self.random.integers(0, c.room, (2, c.batch))

    def drawn(self, *shape: int) -> np.ndarray:
        return self.random.uniform(-1, 1, shape).astype(self.case.kind)

    # ---- The network

    def compile(self) -> Any:
        flag = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
        self.net = trt.Builder(trt.Logger(trt.Logger.ERROR)).create_network(flag)
        self.tables: dict[int, list[Any]] = {}
        c = self.case
        dtype = trt.float16 if c.kind == np.float16 else trt.float32
        x = self.net.add_input("x", dtype, self.x.shape)
        parts = self.parts(x)
        queries = self.turned(parts["q"], c.heads[0], c.tables[0])
        keys = self.turned(parts["k"], c.heads[1], c.tables[1])
        values = self.split(parts["v"], c.heads[1], True)
        queries.name = "queries"
        self.net.mark_output(queries)
        starts = [
            self.net.add_input(f"start{i}", trt.int64, (c.batch,))
            for i in sorted(set(c.indices))
        ]
        for i, new in enumerate((keys, values)):
            cache = self.net.add_input(f"cache{i}", dtype, self.caches[i].shape)
            at = starts[c.indices[i]]
            whole = self.net.add_kv_cache_update(
                cache, new, at, trt.KVCacheMode.LINEAR
            ).get_output(0)
            whole.name = f"whole{i}"
            self.net.mark_output(whole)
        return trt.compile(self.net, device="cuda", optimization_level=1)

    def constant(self, array: np.ndarray) -> Any:
        return self.net.add_constant(
            array.shape, np.ascontiguousarray(array)
        ).get_output(0)

    def product(self, x: Any, weights: np.ndarray, bias: np.ndarray) -> Any:
        none = trt.MatrixOperation.NONE
        factor = self.constant(weights[None])
        y = self.net.add_matrix_multiply(x, none, factor, none).get_output(0)
        if not self.case.biased:
            return y
        total = trt.ElementWiseOperation.SUM
        return self.net.add_elementwise(y, self.constant(bias), total).get_output(0)

    def parts(self, x: Any) -> dict[str, Any]:
        c = self.case
        if not c.joint:
            return {
                n: self.product(x, self.weights[n], self.biases[n]) for n in c.order
            }
        weights = np.concatenate([self.weights[n] for n in c.order], 1)
        bias = np.concatenate([self.biases[n] for n in c.order], 2)
        whole, start, found = self.product(x, weights, bias), 0, {}
        for n in c.order:
            dims = (c.batch, c.tokens, self.columns[n])
            layer = self.net.add_slice(whole, (0, 0, start), dims, (1, 1, 1))
            found[n] = layer.get_output(0)
            start += self.columns[n]
        return found

    def split(self, x: Any, heads: int, transposed: bool) -> Any:
        layer = self.net.add_shuffle(x)
        layer.reshape_dims = (self.case.batch, self.case.tokens, heads, self.case.width)
        if transposed:
            layer.second_transpose = (0, 2, 1, 3)
        return layer.get_output(0)

    def turned(self, x: Any, heads: int, table: int) -> Any:
        c = self.case
        x = self.split(x, heads, not c.turned)
        if table not in self.tables:
            dims = (0, 2, 1, 3) if c.turned else (0, 1, 2, 3)
            both = (self.cos[table].transpose(dims), self.sin[table].transpose(dims))
            self.tables[table] = [self.constant(array) for array in both]
        y = self.rotation(x, *self.tables[table])
        if c.turned:
            layer = self.net.add_shuffle(y)
            layer.first_transpose = (0, 2, 1, 3)
            y = layer.get_output(0)
        return y

    def rotation(self, x: Any, cos: Any, sin: Any) -> Any:
        """Written out, as exporters do."""
        op, dims = trt.ElementWiseOperation, list(x.shape)
        half, stride = self.case.width // 2, 2 if self.case.interleaved else 1
        begin = [
            (0, 0, 0, i * (1 if self.case.interleaved else half)) for i in range(2)
        ]
        a, b = (
            self.net.add_slice(x, at, (*dims[:3], half), (1, 1, 1, stride)).get_output(
                0
            )
            for at in begin
        )
        negative = self.net.add_unary(b, trt.UnaryOperation.NEG).get_output(0)
        ends = [negative, a]
        if self.case.interleaved:
            ends = [self.shaped(end, (*dims[:3], half, 1)) for end in ends]
        joined = self.net.add_concatenation(ends)
        joined.axis = 4 if self.case.interleaved else 3
        other = self.shaped(joined.get_output(0), dims)
        first = self.net.add_elementwise(x, cos, op.PROD).get_output(0)
        second = self.net.add_elementwise(other, sin, op.PROD).get_output(0)
        return self.net.add_elementwise(first, second, op.SUM).get_output(0)

    def shaped(self, x: Any, dims: Any) -> Any:
        layer = self.net.add_shuffle(x)
        layer.reshape_dims = tuple(dims)
        return layer.get_output(0)

    # ---- NumPy

    def expected(self) -> dict[str, np.ndarray]:
        c, parts = self.case, {}
        for n, size in self.columns.items():
            y = self.x.astype(float) @ self.weights[n].astype(float)
            y = y + self.biases[n] if c.biased else y
            y = y.reshape(c.batch, c.tokens, size // c.width, c.width)
            parts[n] = y.transpose(0, 2, 1, 3)
        for n, table in zip("qk", c.tables, strict=True):
            cos, sin = self.cos[table].astype(float), self.sin[table].astype(float)
            parts[n] = rotated(parts[n], cos, sin, c.interleaved)
        found = {"queries": parts["q"]}
        for i, n in enumerate("kv"):
            whole = self.caches[i].astype(float).copy()
            for row in range(c.batch):
                for step in range(c.tokens):
                    at = self.start[c.indices[i], row] + step
                    if at < c.room:
                        whole[row, :, at] = parts[n][row, :, step]
            found[f"whole{i}"] = whole
        return found

    def check(self, fused: bool) -> None:
        model = self.compile()
        assert (KERNEL in str(model.inspect_json())) == fused, self.case
        given: dict[str, Any] = {"x": self.x}
        given |= {f"cache{i}": cache.copy() for i, cache in enumerate(self.caches)}
        given |= {f"start{i}": self.start[i] for i in set(self.case.indices)}
        found = model.run(given)
        for name, value in self.expected().items():
            np.testing.assert_allclose(
                found[name], value, 0, 2e-2, err_msg=f"{self.case}"
            )


@pytest.mark.parametrize("seed", range(6))
def test_parts_of_one_tensor(seed: int) -> None:
    random = np.random.default_rng(seed)

    def chance() -> bool:
        return bool(random.integers(2))

    keys = int(random.integers(1, 4))
    case = Case(
        batch=int(random.integers(1, 17)), heads=(keys * int(random.integers(1, 4)), keys),
        width=2 * int(random.integers(1, 20)), joint=chance(), biased=chance(),
        turned=chance(), interleaved=chance(), kind=np.float16 if chance() else np.float32,
    )  # fmt: skip
    Step(case, seed).check(fused=True)


OTHERS = {
    "keys first": {"order": "kqv"},
    "two tokens": {"tokens": 2},
    "tables of their own": {"tables": (0, 1)},
    "indices of their own": {"indices": (0, 1)},
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay_apart(name: str) -> None:
    Step(replace(Case(), **OTHERS[name]), 1).check(fused=False)


def test_products_in_another_order() -> None:
    Step(replace(Case(), joint=False, order="vkq"), 2).check(fused=True)
