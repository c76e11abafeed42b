"""Random numbers, which torch draws before each run: they are inputs of the plan.

So a model gives other numbers in each call, those of torch's own generator, and the same as
the module after torch.manual_seed where torch draws what the module draws.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ._checks import computed
from ._graph import Graph, Value
from ._reductions import demand
from ._table import TABLE, aten, refuse

# Samplers by distribution: functions of a shape and the distribution's parameters.
_KINDS: dict[str, Any] = {
    "normal": lambda shape, **given: torch.randn(shape, **given),
    "uniform": lambda shape, **given: torch.rand(shape, **given),
    "exponential": lambda shape, **given: torch.empty(shape, **given).exponential_(),
    "integers": lambda shape, low, high, **given: torch.randint(low, high, shape, **given),
    "permutation": lambda shape, **given: torch.randperm(shape[0], **given),
}


def draw(wanted: Mapping[str, Any], sizes: Mapping[str, int], device: Any) -> torch.Tensor:
    """The numbers of a run. wanted: kind, shape (expressions as lists), parameters, dtype."""
    shape = [computed(tree, sizes) for tree in wanted["shape"]]
    dtype = getattr(torch, wanted["dtype"])
    found: torch.Tensor = _KINDS[wanted["kind"]](
        shape, *wanted["parameters"], dtype=dtype, device=device
    )
    return found


def _drawn(g: Graph, kind: str, out: Any, parameters: Sequence[Any] = (), **given: Any) -> str:
    if given.get("generator") is not None:
        refuse("random numbers of a generator that is given")
    return g.draw(kind, out.dtype, out.shape, parameters)


def _of(kind: str) -> Any:
    return lambda g, out, *args, **kwargs: _drawn(g, kind, out, **kwargs)


for _variant in ("default", "generator", "names", "generator_with_names"):
    TABLE[f"aten.rand.{_variant}"] = _of("uniform")
    TABLE[f"aten.randn.{_variant}"] = _of("normal")
for _variant in ("default", "generator"):
    TABLE[f"aten.rand_like.{_variant}"] = _of("uniform")
    TABLE[f"aten.randn_like.{_variant}"] = _of("normal")
    TABLE[f"aten.randperm.{_variant}"] = _of("permutation")


def _integers(g: Graph, out: Any, low: Any, high: Any, **kwargs: Any) -> str:
    if not (isinstance(low, int) and isinstance(high, int)):
        refuse("random integers between sizes that vary")
    return _drawn(g, "integers", out, (low, high), **kwargs)


@aten("randint.default", "randint.generator")
def _randint(g: Graph, out: Any, high: Any, size: Any, **kwargs: Any) -> str:
    return _integers(g, out, 0, high, **kwargs)


@aten("randint.low", "randint.low_generator")
def _randint_from(g: Graph, out: Any, low: Any, high: Any, size: Any, **kw: Any) -> str:
    return _integers(g, out, low, high, **kw)


@aten("randint_like.default")
def _randint_like(g: Graph, out: Any, x: Any, high: Any, **kwargs: Any) -> str:
    return _integers(g, out, 0, high, **kwargs)


@aten("randint_like.low_dtype")
def _randint_like_from(g: Graph, out: Any, x: Any, low: Any, high: Any, **kw: Any) -> str:
    return _integers(g, out, low, high, **kw)


# ---- Distributions that are made of these ----


@aten("uniform.default")
def _uniform(
    g: Graph, out: Any, x: Any, low: float = 0.0, high: float = 1.0, **kwargs: Any
) -> str:
    made = _drawn(g, "uniform", out, **kwargs)
    made = g.op("Mul", made, g.scalar(high - low, out.dtype))
    return g.op("Add", made, g.scalar(low, out.dtype))


def _normal(g: Graph, out: Any, mean: Any, spread: Any, **kwargs: Any) -> str:
    if isinstance(spread, Value):
        holds = g.op("GreaterOrEqual", spread, g.scalar(0.0, spread.dtype))
        demand(g, holds, spread, "a deviation is below 0")
    made = g.op("Mul", _drawn(g, "normal", out, **kwargs), g.to(spread, out.dtype))
    return g.op("Add", made, g.to(mean, out.dtype))


@aten("normal_functional.default")
def _normal_functional(
    g: Graph, out: Any, x: Any, mean: float = 0.0, std: float = 1.0, **kwargs: Any
) -> str:
    return _normal(g, out, mean, std, **kwargs)


@aten("normal.Tensor_Tensor", "normal.Tensor_float", "normal.float_Tensor")
def _normal_of(g: Graph, out: Any, mean: Any, std: Any = 1.0, **kwargs: Any) -> str:
    return _normal(g, out, mean, std, **kwargs)


@aten("normal.float_float")
def _normal_of_size(
    g: Graph, out: Any, mean: float, std: float, size: Any, **kwargs: Any
) -> str:
    return _normal(g, out, mean, std, **kwargs)


@aten("log_normal.default")
def _log_normal(
    g: Graph, out: Any, x: Any, mean: float = 1.0, std: float = 2.0, **kwargs: Any
) -> str:
    return g.op("Exp", _normal(g, out, mean, std, **kwargs))


@aten("exponential.default")
def _exponential(g: Graph, out: Any, x: Any, rate: float = 1.0, **kwargs: Any) -> str:
    made = _drawn(g, "exponential", out, **kwargs)
    return made if rate == 1 else g.op("Div", made, g.scalar(rate, out.dtype))


@aten("cauchy.default")
def _cauchy(
    g: Graph, out: Any, x: Any, median: float = 0.0, sigma: float = 1.0, **kwargs: Any
) -> str:
    centred = g.op("Sub", _drawn(g, "uniform", out, **kwargs), g.scalar(0.5, out.dtype))
    made = g.op("Tan", g.op("Mul", centred, g.scalar(math.pi, out.dtype)))
    scaled = g.op("Mul", made, g.scalar(sigma, out.dtype))
    return g.op("Add", scaled, g.scalar(median, out.dtype))


@aten("geometric.default")
def _geometric(g: Graph, out: Any, x: Any, p: float, **kwargs: Any) -> str:
    """An exponential number, rounded up: of trials that fail with 1 - p."""
    like = out if out.dtype.is_floating_point else Value.make("", torch.float32, out.shape)
    rate = g.scalar(-1 / math.log1p(-p) if p < 1 else 0.0, like.dtype)
    trials = g.op("Ceil", g.op("Mul", _drawn(g, "exponential", like, **kwargs), rate))
    made = g.op("Max", trials, g.scalar(1.0, like.dtype))
    return g.to(Value.of(made, like), out.dtype)


def _chance(g: Graph, out: Any, p: Any, **kwargs: Any) -> str:
    like = Value.make("", torch.float32, out.shape)
    chance = g.to(p, torch.float32)
    if isinstance(p, Value):
        ends = g.scalar(0.0, torch.float32), g.scalar(1.0, torch.float32)
        above = g.op("GreaterOrEqual", chance, ends[0])
        holds = g.op("And", above, g.op("LessOrEqual", chance, ends[1]))
        demand(g, holds, p, "a probability is not between 0 and 1")
    below = g.op("Less", _drawn(g, "uniform", like, **kwargs), chance)
    return g.cast(below, out.dtype)


@aten("bernoulli.default")
def _bernoulli(g: Graph, out: Any, x: Value, **kwargs: Any) -> str:
    return _chance(g, out, x, **kwargs)


@aten("bernoulli.p", "bernoulli.Tensor")
def _bernoulli_of(g: Graph, out: Any, x: Value, p: Any = 0.5, **kwargs: Any) -> str:
    return _chance(g, out, p, **kwargs)


@aten("multinomial.default")
def _multinomial(
    g: Graph, out: Any, weights: Value, count: Any, replacement: bool = False, **kwargs: Any
) -> str:
    """The places of the greatest quotients of weights by exponential numbers; with
    replacement, each draw has numbers of its own."""
    rows = g.to(weights, torch.float32)
    zero, most = (g.scalar(n, torch.float32) for n in (0.0, math.inf))
    inside = g.op("And", g.op("GreaterOrEqual", rows, zero), g.op("Less", rows, most))
    demand(g, inside, weights, "a weight is negative, infinite or NaN")
    total = Value.make(g.op("ReduceSum", rows, g.ints([-1]), keepdims=1), torch.float32,
                       [*weights.shape[:-1], 1])  # fmt: skip
    demand(g, g.op("Greater", total, zero), total, "the weights of a row add up to 0")
    if not replacement or (isinstance(count, int) and count == 1):
        like = Value.make("", torch.float32, weights.shape)
        noise = _drawn(g, "exponential", like, **kwargs)
        quotients = g.op("Div", rows, noise)
        return g.ops("TopK", quotients, g.ints([count]), count=2, axis=-1, largest=1)[1]
    shape = [*weights.shape[:-1], count, weights.shape[-1]]
    noise = _drawn(g, "exponential", Value.make("", torch.float32, shape), **kwargs)
    quotients = g.op("Div", g.op("Unsqueeze", rows, g.ints([-2])), noise)
    return g.op("ArgMax", quotients, axis=-1, keepdims=0)


DRAWS = frozenset(name for name, write in TABLE.items() if write.__module__ == __name__)
"""The operators that draw; in the graphs of torch.compile they are torch's."""


@aten("poisson.default", "binomial.default")
def _rejected(*args: Any, **kwargs: Any) -> Any:
    return refuse("random numbers whose drawing is a loop of tries")


@aten("rrelu_with_noise_functional.default")
def _rrelu(
    g: Graph, out: Any, x: Value, noise: Value, low: float = 1 / 8, high: float = 1 / 3,
    training: bool = False, **kwargs: Any,
) -> list[str]:  # fmt: skip
    if training:
        refuse("random slopes in training; call eval()")
    return [g.op("LeakyRelu", x, alpha=(float(low) + float(high)) / 2), noise]
