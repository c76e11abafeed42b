"""Shuffles that are views from one format to another: which they are, and that results are
right where they are chosen, against NumPy."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import rabbet as trt

LINEAR, HWC = trt.TensorFormat.LINEAR, trt.TensorFormat.HWC


def drawn(random: np.random.Generator) -> tuple[Any, ...]:
    """Shape, first transpose, reshape and second transpose of a shuffle of images."""
    rank = int(random.integers(3, 6))
    shape = random.choice([1, 2, 3, 4, 6], rank).tolist()
    last = [0, *range(2, rank), 1]
    orders = [list(range(rank)), last, random.permutation(rank).tolist()]
    first = orders[random.integers(3)]
    turned = [shape[axis] for axis in first]
    if random.random() < 0.5:
        made = turned
    else:  # axes are joined, or divided
        made = []
        for extent in turned:
            if made and random.random() < 0.4:
                made[-1] *= extent
            elif extent % 2 == 0 and random.random() < 0.5 and len(turned) < 5:
                made += [extent // 2, 2]
            else:
                made.append(extent)
    made = made if 3 <= len(made) <= 6 else turned
    orders = [list(range(len(made))), [0, len(made) - 1, *range(1, len(made) - 1)],
              random.permutation(len(made)).tolist()]  # fmt: skip
    return shape, first, made, orders[random.integers(3)]


def shuffled(x: Any, first: Any, made: Any, second: Any) -> Any:
    return x.transpose(first).reshape(made).transpose(second)


def is_view(kinds: tuple[Any, Any], shape: Any, *how: Any) -> bool:
    """Whether numbered elements of memory keep their order."""
    ids = np.arange(math.prod(shape))
    if kinds[0] == HWC:
        x = np.moveaxis(ids.reshape([shape[0], *shape[2:], shape[1]]), -1, 1)
    else:
        x = ids.reshape(shape)
    y = shuffled(x, *how)
    y = np.moveaxis(y, 1, -1) if kinds[1] == HWC else y
    return bool((y.ravel() == ids).all())


class Views(trt.IAlgorithmSelector):
    """Keeps the formats of views; takes one of `wanted`, if there is one."""

    def __init__(self, wanted: Any) -> None:
        super().__init__()
        self.wanted = wanted
        self.found: set[tuple[Any, Any]] | None = None  # no shuffle is left

    def select_algorithms(self, context: Any, choices: Any) -> Any:
        if "shuffle" not in context.name:
            return list(range(len(choices)))
        if "+" in context.name:
            return []
        kinds = [tuple(c.get_algorithm_io_info(i).tensor_format for i in (0, 1))
                 for c in choices]  # fmt: skip
        views = [i for i, c in enumerate(choices) if c.algorithm_variant.name == "view"]
        self.found = {kinds[i] for i in views}
        taken = [i for i in views if kinds[i] == self.wanted]
        return taken or list(range(len(choices)))


def build(shape: Any, how: Any, selector: Any, batch: bool) -> Any:
    first, made, second = how
    builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
    network = builder.create_network()
    x = network.add_input("x", trt.float32, [-1 if batch else shape[0], *shape[1:]])
    before = network.add_activation(x, trt.ActivationType.RELU)
    shuffle = network.add_shuffle(before.get_output(0))
    shuffle.name = "shuffle"
    shuffle.first_transpose = trt.Permutation(first)
    shuffle.reshape_dims = [0 if batch else made[0], *made[1:]]
    shuffle.second_transpose = trt.Permutation(second)
    after = network.add_activation(shuffle.get_output(0), trt.ActivationType.TANH)
    after.get_output(0).name = "y"
    network.mark_output(after.get_output(0))
    config = builder.create_builder_config()
    config.device, config.threads = "cpu", 1
    config.builder_optimization_level = 1
    config.algorithm_selector = selector
    if batch:
        profile = builder.create_optimization_profile()
        profile.set_shape("x", *([n, *shape[1:]] for n in (1, shape[0], 7)))
        config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)
    return trt.Runtime(trt.Logger(trt.Logger.ERROR)).deserialize_cuda_engine(plan)


def run(engine: Any, x: Any, shape: Any) -> Any:
    y = np.empty(shape, np.float32)
    context = engine.create_execution_context()
    context.set_input_shape("x", x.shape)
    context.set_tensor_address("x", x.ctypes.data)
    context.set_tensor_address("y", y.ctypes.data)
    assert context.execute_async_v3(0)
    return y


@pytest.mark.parametrize("seed", range(40))
def test_views_between_formats(seed: int) -> None:
    random = np.random.default_rng(seed)
    shape, *how = drawn(random)
    first, made, second = how
    batch = bool(first[0] == 0 and second[0] == 0 and made[0] == shape[0]
                 and shape[0] > 1 and random.random() < 0.5)  # fmt: skip
    pairs = [p for p in itertools.product((LINEAR, HWC), repeat=2) if HWC in p]
    truth = {p for p in pairs if is_view(p, shape, *how)}
    views = Views(next(iter(sorted(truth, key=str)), None))
    engine = build(shape, how, views, batch)
    x = random.standard_normal(shape).astype(np.float32)
    expected = np.tanh(shuffled(np.maximum(x, 0), *how))
    np.testing.assert_allclose(run(engine, x, expected.shape), expected, atol=1e-6)
    if views.found is not None:
        assert {p for p in views.found if HWC in p} == truth
    if batch:
        more = random.standard_normal([5, *shape[1:]]).astype(np.float32)
        own = np.maximum(more, 0).transpose(first).reshape([5, *made[1:]])
        expected = np.tanh(own.transpose(second))
        np.testing.assert_allclose(
            run(engine, more, expected.shape), expected, atol=1e-6
        )


def test_a_permutation_to_channels_last_is_free() -> None:
    views = Views((HWC, LINEAR))
    build([2, 8, 5, 7], ([0, 2, 3, 1], [2, 5, 7, 8], [0, 1, 2, 3]), views, True)
    assert views.found == {(HWC, LINEAR)}
