"""Rotations of queries and keys of a token or a prompt and updates of their caches are one
kernel, where they read parts of one tensor; networks that only look like that keep theirs.
NumPy computes what is expected."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import rabbet as trt

from . import cuda_driver
from .test_transformers import kernels

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)
KERNEL = "cuda.cached_rotation"
CIRCULAR = 64  # ONNX has it, TensorRT's enumeration has not
REPLACED = ("cuda.rotation", "cuda.kv_cache", "cuda.shuffle", "cuda.slice")


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
    apart: bool = False  # reshapes and transposes are layers of their own
    interleaved: bool = False
    circular: bool = False
    tables: tuple[int, int] = (0, 0)  # which tables rotate queries and keys
    shared: tuple[bool, bool] = (False, False)  # one for the batch; for all tokens
    indices: tuple[int, int] = (0, 0)  # which indices place keys and values
    dynamic: tuple[str, ...] = ()  # extents that a run tells: "batch", "tokens"
    split: str = "heads"  # how values become heads (SPLITS)
    layers: int = 1  # of x, -x, ..., with the same weights and tables
    read: str = ""  # of q, k, v: also read otherwise, before the last transpose
    kind: Any = np.float16


# Of values [batch, tokens, columns]: a transpose, axes of a reshape ("b", "t", "h", "w"),
# and a transpose, which lead to tensors of one shape if batch = tokens = heads = width.
SPLITS = {
    "heads": ((), "bthw", (0, 2, 1, 3)),
    "no transpose": ((), "bhtw", ()),
    "width first": ((), "btwh", (0, 3, 1, 2)),
    "tokens first": ((1, 0, 2), "bthw", (0, 2, 1, 3)),
    "batch last": ((), "bthw", (1, 2, 0, 3)),
}


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
        self.weights = {n: self.drawn(self.k, size) for n, size in self.columns.items()}
        self.biases = {n: self.drawn(1, 1, size) for n, size in self.columns.items()}
        self.begin(c.batch, c.tokens)

    def begin(self, batch: int, tokens: int) -> None:
        """Other inputs, of these extents."""
        c, keys = self.case, self.case.heads[1]
        self.batch, self.tokens = batch, tokens
        self.x = self.drawn(batch, tokens, self.k)
        rows, steps = (
            1 if one else n for one, n in zip(c.shared, (batch, tokens), strict=True)
        )
        angles = self.random.uniform(0, 6, (2, rows, 1, steps, c.width))
        self.cos, self.sin = (
            np.cos(angles).astype(c.kind),
            np.sin(angles).astype(c.kind),
        )
        self.caches = [self.drawn(batch, keys, c.room, c.width) for _ in range(2)]
        self.start = self.random.integers(0, c.room, (2, batch))

    def drawn(self, *shape: int) -> np.ndarray:
        return self.random.uniform(-1, 1, shape).astype(self.case.kind)

    # ---- The network

    def input(self, name: str, dtype: Any, shape: Any, axes: str = "") -> Any:
        """axes: "b" and "t" where the batch and the tokens are."""
        names = {"b": "batch", "t": "tokens"}
        varying = {
            i: names[axis]
            for i, axis in enumerate(axes)
            if names.get(axis) in self.case.dynamic and shape[i] != 1
        }
        dims = [-1 if i in varying else n for i, n in enumerate(shape)]
        x = self.net.add_input(name, dtype, dims)
        for i, axis in varying.items():
            x.set_dimension_name(i, axis)
        if varying:
            self.varying[name] = (shape, varying)
        return x

    def profile(self) -> dict[str, Any]:
        """Smallest, usual and largest shapes of inputs."""
        c = self.case
        extents = {"batch": (1, c.batch, 16), "tokens": (1, c.tokens, c.room)}
        return {
            name: tuple(
                tuple(
                    extents[axes[k]][i] if k in axes else n for k, n in enumerate(shape)
                )
                for i in range(3)
            )
            for name, (shape, axes) in self.varying.items()
        }

    def compile(self) -> Any:
        flag = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
        self.net = trt.Builder(trt.Logger(trt.Logger.ERROR)).create_network(flag)
        self.tables: dict[int, list[Any]] = {}
        self.varying: dict[str, Any] = {}
        c = self.case
        self.dtype = trt.float16 if c.kind == np.float16 else trt.float32
        self.starts = {
            i: self.input(f"start{i}", trt.int64, (c.batch,), "b")
            for i in sorted(set(c.indices))
        }
        self.lead = self.input("x", self.dtype, self.x.shape, "bt.")
        for layer in range(c.layers):
            x, op = self.lead, trt.UnaryOperation.NEG
            if layer > 0:
                self.lead = self.net.add_unary(x, op).get_output(0)
            self.add_layer(f".{layer}")
        profile = self.profile() or None
        return trt.compile(
            self.net, device="cuda", optimization_level=1, shapes=profile
        )

    def add_layer(self, tail: str) -> None:
        c, parts = self.case, self.parts(self.lead)
        queries = self.turned("q", parts["q"], c.heads[0], c.tables[0])
        keys = self.turned("k", parts["k"], c.heads[1], c.tables[1])
        values = self.split_values(parts["v"])
        self.output(queries, f"queries{tail}")
        attrs = {"cache_mode": CIRCULAR if c.circular else 0}
        for i, new in enumerate((keys, values)):
            shape = self.caches[i].shape
            cache = self.input(f"cache{i}{tail}", self.dtype, shape, "b...")
            inputs = [cache, new, self.starts[c.indices[i]]]
            layer = self.net._add_layer("kv_cache_update", None, inputs, attrs)
            self.output(layer.get_output(0), f"whole{i}{tail}")

    def output(self, x: Any, name: str) -> None:
        x.name = name
        self.net.mark_output(x)

    def negated(self, x: Any) -> None:
        """One more reader."""
        y = self.net.add_unary(x, trt.UnaryOperation.NEG).get_output(0)
        self.output(y, "other")

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
            found[n] = self.part(whole, start, self.columns[n])
            start += self.columns[n]
        return found

    def part(self, x: Any, start: int, size: int, stride: int = 1) -> Any:
        """Elements of the last axis."""
        rank, dims = len(x.shape), [*tuple(x.shape)[:-1], size]
        known = [max(extent, 0) for extent in dims]
        layer = self.net.add_slice(
            x, [0] * (rank - 1) + [start], known, [1] * (rank - 1) + [stride]
        )
        if min(dims) < 0:
            op, given = trt.ElementWiseOperation, self.net.add_shape(x).get_output(0)
            kept = self.constant(np.array([1] * (rank - 1) + [0], np.int64))
            last = self.constant(np.array([0] * (rank - 1) + [size], np.int64))
            given = self.net.add_elementwise(given, kept, op.PROD).get_output(0)
            given = self.net.add_elementwise(given, last, op.SUM).get_output(0)
            layer.set_input(2, given)
        return layer.get_output(0)

    def moved(
        self,
        x: Any,
        first: Any = (),
        dims: Any = (),
        second: Any = (),
        apart: bool = False,
    ) -> Any:
        if apart:
            x = self.moved(x, first) if first else x
            x = self.moved(x, (), dims) if dims else x
            return self.moved(x, second) if second else x
        layer = self.net.add_shuffle(x)
        if first:
            layer.first_transpose = first
        if dims:
            layer.reshape_dims = tuple(0 if extent < 0 else extent for extent in dims)
        if second:
            layer.second_transpose = second
        return layer.get_output(0)

    def split(self, x: Any, heads: int, transposed: bool) -> Any:
        c = self.case
        dims = (*tuple(self.lead.shape)[:2], heads, c.width)
        return self.moved(x, (), dims, (0, 2, 1, 3) if transposed else (), c.apart)

    def split_values(self, x: Any) -> Any:
        c = self.case
        if c.split == "heads" and c.read != "v":
            return self.split(x, c.heads[1], True)
        first, axes, second = SPLITS[c.split]
        extents = {"b": c.batch, "t": c.tokens, "h": c.heads[1], "w": c.width}
        y = self.moved(x, first, [extents[axis] for axis in axes], (), c.apart)
        if c.read == "v":
            self.negated(y)
        return self.moved(y, second) if second else y

    def turned(self, name: str, x: Any, heads: int, table: int) -> Any:
        c = self.case
        x = self.split(x, heads, not c.turned)
        if table not in self.tables:
            self.tables[table] = [
                self.table(f"{kind}{table}", array[table])
                for kind, array in (("cos", self.cos), ("sin", self.sin))
            ]
        y = self.rotation(x, *self.tables[table])
        if c.read == name:
            self.negated(y)
        return self.moved(y, (0, 2, 1, 3)) if c.turned else y

    def table(self, name: str, array: np.ndarray) -> Any:
        turned = self.case.turned
        if self.case.dynamic:
            x = self.input(name, self.dtype, array.shape, "b.t.")
            return self.moved(x, (0, 2, 1, 3)) if turned else x
        return self.constant(array.transpose((0, 2, 1, 3)) if turned else array)

    def rotation(self, x: Any, cos: Any, sin: Any) -> Any:
        """Written out, as exporters do."""
        op, dims = trt.ElementWiseOperation, tuple(x.shape)
        half, stride = self.case.width // 2, 2 if self.case.interleaved else 1
        a, b = (
            self.part(x, i * (1 if self.case.interleaved else half), half, stride)
            for i in range(2)
        )
        negative = self.net.add_unary(b, trt.UnaryOperation.NEG).get_output(0)
        ends = [negative, a]
        if self.case.interleaved:
            ends = [self.moved(end, (), (*dims[:3], half, 1)) for end in ends]
        joined = self.net.add_concatenation(ends)
        joined.axis = 4 if self.case.interleaved else 3
        other = self.moved(joined.get_output(0), (), dims)
        first = self.net.add_elementwise(x, cos, op.PROD).get_output(0)
        second = self.net.add_elementwise(other, sin, op.PROD).get_output(0)
        return self.net.add_elementwise(first, second, op.SUM).get_output(0)

    # ---- NumPy

    def heads_of(self, n: str, x: np.ndarray) -> np.ndarray:
        """[batch, heads, tokens, width]"""
        c = self.case
        y = x.astype(float) @ self.weights[n].astype(float)
        y = y + self.biases[n] if c.biased else y
        first, axes, second = SPLITS[c.split if n == "v" else "heads"]
        extents = {
            "b": self.batch,
            "t": self.tokens,
            "h": self.columns[n] // c.width,
            "w": c.width,
        }
        y = y.transpose(first) if first else y
        y = y.reshape([extents[axis] for axis in axes])
        return y.transpose(second) if second else y

    def expected(self, layer: int) -> dict[str, np.ndarray]:
        c, x = self.case, self.x * (-1) ** layer
        parts = {n: self.heads_of(n, x) for n in "qkv"}
        for n, table in zip("qk", c.tables, strict=True):
            cos, sin = self.cos[table].astype(float), self.sin[table].astype(float)
            parts[n] = rotated(parts[n], cos, sin, c.interleaved)
        found = {f"queries.{layer}": parts["q"]}
        if c.read:
            inner = c.turned or c.read == "v"
            found["other"] = -parts[c.read].transpose(
                (0, 2, 1, 3) if inner else (0, 1, 2, 3)
            )
        for i, n in enumerate("kv"):
            whole = self.caches[i].astype(float).copy()
            for row in range(self.batch):
                for step in range(self.tokens):
                    at = self.start[c.indices[i], row] + step
                    at = at % c.room if c.circular else at
                    if at < c.room:
                        whole[row, :, at] = parts[n][row, :, step]
            found[f"whole{i}.{layer}"] = whole
        return found

    def check(self, fused: bool) -> None:
        model = self.compile()
        names = kernels(model)
        assert names.count(KERNEL) == fused * self.case.layers, (self.case, names)
        if fused:
            products = [name for name in names if name.startswith("cuda.matmul")]
            assert len(products) <= self.case.layers, names
            assert not set(REPLACED) & set(names), names
        self.check_run(model)
        for batch, tokens in ((1, 1), (5, self.case.room), (3, 2)):
            if self.case.dynamic:
                self.begin(
                    batch if "batch" in self.case.dynamic else self.case.batch,
                    tokens if "tokens" in self.case.dynamic else self.case.tokens,
                )
                self.check_run(model)

    def check_run(self, model: Any) -> None:
        c = self.case
        given: dict[str, Any] = {"x": self.x}
        for layer in range(c.layers):
            for i, cache in enumerate(self.caches):
                given[f"cache{i}.{layer}"] = cache.copy()
        given |= {f"start{i}": self.start[i] for i in set(c.indices)}
        if c.dynamic:
            for i in set(c.tables):
                given |= {f"cos{i}": self.cos[i], f"sin{i}": self.sin[i]}
        found = model.run(given)
        for layer in range(c.layers):
            for name, value in self.expected(layer).items():
                np.testing.assert_allclose(found[name], value, 0, 2e-2, err_msg=f"{c}")


def case_at_random(random: np.random.Generator) -> Case:
    def chance() -> bool:
        return bool(random.integers(2))

    keys = int(random.integers(1, 4))
    return Case(
        batch=int(random.integers(1, 17)), heads=(keys * int(random.integers(1, 4)), keys),
        width=2 * int(random.integers(1, 20)), joint=chance(), biased=chance(),
        turned=chance(), apart=chance(), interleaved=chance(), circular=chance(),
        shared=(chance(), False), kind=np.float16 if chance() else np.float32,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_parts_of_one_tensor(seed: int) -> None:
    Step(case_at_random(np.random.default_rng(seed)), seed).check(fused=True)


@pytest.mark.parametrize("seed", range(8))
def test_prompts(seed: int) -> None:
    random = np.random.default_rng(100 + seed)
    case = case_at_random(random)
    tokens = int(random.integers(2, case.room + 1))
    Step(replace(case, tokens=tokens), seed).check(fused=True)


# Each way to write it, with as many tokens as heads, so that shapes tell nothing.
WAYS: dict[str, dict[str, Any]] = {
    "transposed before": {},
    "transposed behind": {"turned": True},
    "two layers": {"apart": True},
    "two layers, transposed behind": {"apart": True, "turned": True},
    "three products": {"joint": False},
    "three products, transposed behind": {"joint": False, "turned": True},
    "one table for all tokens": {"shared": (False, True)},
    "one table for the batch, transposed behind": {
        "shared": (True, False),
        "turned": True,
    },
    "circular": {"circular": True},
    "several layers": {"layers": 3},
    "several layers, transposed behind": {"layers": 3, "turned": True},
    "one head of keys": {"heads": (4, 1)},
    "one head of keys, transposed behind": {"heads": (4, 1), "turned": True},
    "one head": {"heads": (1, 1), "turned": True},
}


@pytest.mark.parametrize("name", WAYS)
def test_ways_to_write_prompts(name: str) -> None:
    Step(replace(Case(tokens=4, heads=(4, 4)), **WAYS[name]), 3).check(fused=True)


@pytest.mark.parametrize("dynamic", [("tokens",), ("batch",), ("batch", "tokens")])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("joint", [False, True])
def test_prompts_of_any_length(
    dynamic: tuple[str, ...], turned: bool, joint: bool
) -> None:
    case = Case(tokens=4, heads=(4, 4), dynamic=dynamic, turned=turned, joint=joint)
    Step(replace(case, apart=joint), 4).check(fused=True)


OTHERS: dict[str, dict[str, Any]] = {
    "keys first": {"order": "kqv"},
    "tables of their own": {"tables": (0, 1)},
    "indices of their own": {"indices": (0, 1)},
    "keys that others read": {"read": "k"},
    "values that others read": {"read": "v"},
}
# A transpose that is a view for one token moves elements of a prompt.
PROMPTS: dict[str, dict[str, Any]] = {
    name: {"split": name} for name in SPLITS if name != "heads"
} | {
    "keys behind a transpose that others read": {"read": "k", "turned": True},
    "queries before a transpose that others read": {"read": "q", "turned": True},
}  # fmt: skip


@pytest.mark.parametrize("tokens", [1, 4])
@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("joint", [False, True])
def test_others_stay_apart(name: str, joint: bool, tokens: int) -> None:
    if name == "keys first" and not joint:
        pytest.skip("products can be joined in any order")
    case = replace(Case(tokens=tokens, joint=joint), **OTHERS[name])
    Step(case, 1).check(fused=False)


@pytest.mark.parametrize("name", PROMPTS)
def test_prompts_that_stay_apart(name: str) -> None:
    case = Case(batch=4, tokens=4, heads=(4, 4), width=4, joint=False)
    Step(replace(case, **PROMPTS[name]), 1).check(fused=False)


def test_products_in_another_order() -> None:
    for tokens in (1, 3):
        case = Case(joint=False, order="vkq", tokens=tokens)
        Step(case, 2).check(fused=True)
