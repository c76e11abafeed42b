"""Inputs that a layer may lack, and inputs of which it may have any number."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional

import numpy as np
import pytest
import rabbet as trt
import rabbet.plugin as trtp
from onnx import TensorProto, helper
from rabbet.plugin import Tensor, TensorDesc

from tests.python.support.plugins import build, call, new_id, one_layer, random

X, SCALE, BIAS = random(2, 3), random(3, seed=1), random(3, seed=2)


def norm(plugin_id: str) -> str:
    """x * scale + bias + eps."""

    @trtp.register(plugin_id)
    def described(
        x: TensorDesc,
        scale: TensorDesc | None,
        bias: Optional[TensorDesc] = None,  # noqa: UP045
        eps: float = 0.0,
    ) -> TensorDesc:
        y = x.like()
        y.shape_expr[0] += 0 if bias is None else bias.shape_expr[0] - 3
        return y

    @trtp.autotune(plugin_id)
    def tune(x: TensorDesc, scale: TensorDesc | None, bias: Any, outputs: Any) -> Any:
        there = [t for t in (x, scale, bias) if t is not None]
        assert all(t.shape.opt in ((2, 3), (3,)) for t in there)
        types = ", ".join(["FP32|FP16"] * (len(there) + 1))
        return [trtp.AutoTuneCombination(types, tactics=[1, 2])]

    @trtp.impl(plugin_id)
    def run(
        x: Tensor, scale: Tensor | None, bias: Any, eps: float, outputs: Any, tactic: int
    ) -> None:
        y = x.numpy() * (1 if scale is None else scale.numpy())
        outputs[0].numpy()[...] = y + (0 if bias is None else bias.numpy()) + eps

    return plugin_id


def expected(scale: Any, bias: Any, eps: float = 0.0) -> Any:
    return X * (1 if scale is None else scale) + (0 if bias is None else bias) + eps


CASES = [(None, None), (SCALE, None), (None, BIAS), (SCALE, BIAS)]


@pytest.mark.parametrize(("scale", "bias"), CASES, ids=["none", "scale", "bias", "both"])
def test_optional_inputs(scale: Any, bias: Any, tmp_path: Path) -> None:
    plugin_id = norm(new_id("inputs"))
    given = [a for a in (scale, bias) if a is not None]

    def make(network: trt.INetworkDefinition) -> Any:
        x = network.add_input("x", trt.float32, (2, 3))
        s = None if scale is None else network.add_input("s", trt.float32, (3,))
        b = None if bias is None else network.add_input("b", trt.float32, (3,))
        return network.add_plugin(call(plugin_id)(x, s, bias=b, eps=0.5)).get_output(0)

    model = build(make, save=tmp_path / "m.plan")
    for each in (model, trt.load(tmp_path / "m.plan", device="cpu")):
        np.testing.assert_allclose(each(X, *given), expected(scale, bias, 0.5), rtol=1e-6)
    ours = trtp.call(plugin_id, X, scale, bias, eps=0.5)
    np.testing.assert_allclose(ours, expected(scale, bias, 0.5), rtol=1e-6)


@pytest.mark.parametrize(("names", "scale", "bias"), [
    (["x"], None, None), (["x", "s"], SCALE, None), (["x", "", "b"], None, BIAS),
    (["x", "s", ""], SCALE, None), (["x", "s", "b"], SCALE, BIAS),
])  # fmt: skip
def test_names_left_empty_in_onnx(names: list[str], scale: Any, bias: Any) -> None:
    plugin_id = norm(new_id("inputs"))
    node = helper.make_node(
        plugin_id.split("::")[1], names, ["y"], plugin_namespace="test", eps=2.0
    )
    shapes = {"x": [2, 3], "s": [3], "b": [3]}
    infos = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, shapes[n]) for n in names if n
    ]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])
    model = trt.compile(
        helper.make_model(helper.make_graph([node], "g", infos, [y])), device="cpu"
    )
    given = [a for a in (scale, bias) if a is not None]
    np.testing.assert_allclose(model(X, *given), expected(scale, bias, 2), rtol=1e-6)


def test_which_is_absent_tells_times_apart(tmp_path: Path) -> None:
    """Layers with the same shapes, one without scale, one without bias."""
    plugin_id = norm(new_id("inputs"))

    def make(network: trt.INetworkDefinition) -> Any:
        x = network.add_input("x", trt.float32, (2, 3))
        v = network.add_input("v", trt.float32, (3,))
        made = call(plugin_id)
        first = network.add_plugin(made(x, v)).get_output(0)
        return first, network.add_plugin(made(x, None, v)).get_output(0)

    for _ in range(2):
        model = build(make, timing_cache=tmp_path / "cache")
        first, second = model(X, SCALE)
        np.testing.assert_allclose(first, X * SCALE, rtol=1e-6)
        np.testing.assert_allclose(second, X + SCALE, rtol=1e-6)


def test_shape_inputs_behind_absent_ones() -> None:
    plugin_id = new_id("inputs")

    @trtp.register(plugin_id)
    def described(
        x: TensorDesc, scale: TensorDesc | None, times: trtp.ShapeInput
    ) -> TensorDesc:
        y = x.like()
        y.shape_expr[0] *= times[0]
        return y

    @trtp.impl(plugin_id)
    def run(x: Any, scale: Any, times: Any, outputs: Any) -> None:
        assert scale is None
        outputs[0].numpy()[...] = np.tile(x.numpy(), (times.numpy()[0], 1))

    y = trtp.call(plugin_id, X, None, np.array([2], np.int64))
    np.testing.assert_array_equal(y, np.tile(X, (2, 1)))


# ---- Any number ----


def starred(plugin_id: str) -> str:
    @trtp.register(plugin_id)
    def described(first: TensorDesc, *rest: TensorDesc, times: int = 1) -> TensorDesc:
        y = first.like()
        for x in rest:
            y.shape_expr[0] += x.shape_expr[0]
        return y

    @trtp.autotune(plugin_id)
    def tune(first: TensorDesc, *rest: TensorDesc, outputs: Any) -> Any:
        combination = trtp.AutoTuneCombination()
        combination.pos(list(range(len(rest) + 2)), "FP32|FP16")
        return [combination]

    @trtp.impl(plugin_id)
    def run(first: Tensor, *rest: Tensor, times: int, outputs: Any) -> None:
        joined = np.concatenate([x.numpy() for x in (first, *rest)])
        outputs[0].numpy()[...] = joined * times

    return plugin_id


def listed(plugin_id: str, keyword: bool) -> str:
    @trtp.register(plugin_id)
    def described(times: int, xs: list[TensorDesc]) -> TensorDesc:
        y = xs[0].like()
        for x in xs[1:]:
            y.shape_expr[0] += x.shape_expr[0]
        return y

    def joined(xs: Any, times: int, outputs: Any) -> None:
        assert isinstance(xs, list)
        outputs[0].numpy()[...] = np.concatenate([x.numpy() for x in xs]) * times

    if keyword:

        @trtp.impl(plugin_id)
        def by_keyword(outputs: Any, *, times: int, xs: list[Tensor]) -> None:
            joined(xs, times, outputs)
    else:

        @trtp.impl(plugin_id)
        def by_position(outputs: Any, xs: list[Tensor], times: int) -> None:
            joined(xs, times, outputs)

    return plugin_id


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("kind", ["star", "list", "keyword"])
def test_any_number_of_inputs(kind: str, count: int, tmp_path: Path) -> None:
    plugin_id = new_id("inputs")
    define = {
        "star": starred,
        "list": lambda name: listed(name, False),
        "keyword": lambda name: listed(name, True),
    }
    define[kind](plugin_id)
    arrays = [random(i + 1, 2, seed=i) for i in range(count)]

    def make(network: trt.INetworkDefinition) -> Any:
        xs = [
            network.add_input(f"x{i}", trt.float32, a.shape) for i, a in enumerate(arrays)
        ]
        made = call(plugin_id)
        layer = made(*xs, times=3) if kind == "star" else made(xs, times=3)
        return network.add_plugin(layer).get_output(0)

    model = build(make, save=tmp_path / "m.plan")
    for each in (model, trt.load(tmp_path / "m.plan", device="cpu")):
        for _ in range(2):
            np.testing.assert_array_equal(each(*arrays), np.concatenate(arrays) * 3)
    expected = np.concatenate(arrays) * 3
    np.testing.assert_array_equal(trtp.call(plugin_id, *arrays, times=3), expected)
    if kind != "star":
        np.testing.assert_array_equal(trtp.call(plugin_id, arrays, times=3), expected)
        np.testing.assert_array_equal(trtp.call(plugin_id, xs=arrays, times=3), expected)


def test_attributes_before_any_number_of_inputs() -> None:
    plugin_id = new_id("inputs")

    @trtp.register(plugin_id)
    def described(
        times: int, x: TensorDesc | None, rows: int, *xs: TensorDesc, shift: int = 1
    ) -> TensorDesc:
        y = xs[0].like()
        y.shape_expr[0] *= rows
        return y

    @trtp.impl(plugin_id)
    def run(
        shift: Any, x: Any, times: Any, rows: Any, *xs: Any, outputs: Any
    ) -> None:
        total = sum(each.numpy() for each in xs) * times + shift
        total = total if x is None else total + x.numpy()
        outputs[0].numpy()[...] = np.tile(total, (rows, 1))

    a, b = random(2, 3), random(2, 3, seed=1)
    found = trtp.call(plugin_id, None, a, b, times=2, rows=3)
    np.testing.assert_allclose(found, np.tile((a + b) * 2 + 1, (3, 1)), rtol=1e-6)
    found = trtp.call(plugin_id, a, b, times=2, rows=1, shift=0)
    np.testing.assert_allclose(found, b * 2 + a, rtol=1e-6)


def test_in_place_of_one_of_many() -> None:
    plugin_id = new_id("inputs")

    @trtp.register(plugin_id)
    def described(*xs: TensorDesc) -> TensorDesc:
        return xs[1].aliased()

    @trtp.impl(plugin_id)
    def run(*xs: Tensor, outputs: Any) -> None:
        outputs[0].numpy()[...] += xs[0].numpy()

    a, b = random(4), random(4, seed=1)
    np.testing.assert_array_equal(one_layer(plugin_id, (4,), (4,))(a, b), a + b)


def test_an_array_of_a_list_that_is_kept() -> None:
    """Is found, as of any other input."""
    kept: list[Any] = []
    plugin_id = new_id("inputs")

    @trtp.register(plugin_id)
    def described(xs: list[TensorDesc]) -> TensorDesc:
        return xs[0].like()

    @trtp.impl(plugin_id)
    def run(xs: list[Tensor], outputs: Any) -> None:
        kept.append(xs)
        outputs[0].numpy()[...] = 0

    with pytest.raises(RuntimeError, match="kept a Tensor"):
        one_layer(plugin_id, (4,), (4,))


# ---- Errors ----


def refused(message: str) -> Any:
    return pytest.raises(trtp.DefinitionError, match=message)


def test_definitions_that_are_refused() -> None:
    plugin_id = new_id("inputs")
    with refused(r"its input 'y' comes behind 'xs', which takes all inputs"):

        @trtp.register(plugin_id)
        def behind(xs: list[TensorDesc], y: TensorDesc) -> TensorDesc:
            return y.like()

    with refused(r"its parameter \*xs is annotated int; annotate it TensorDesc"):

        @trtp.register(plugin_id)
        def numbers(x: TensorDesc, *xs: int) -> TensorDesc:
            return x.like()

    with refused(r"its input 'x' has a default; .*TensorDesc \| None"):

        @trtp.register(plugin_id)
        def default(x: TensorDesc = None) -> TensorDesc:  # type: ignore[assignment]
            return x.like()

    with refused(r"its input 'xs' stands for any number of inputs, also none; annotate"):

        @trtp.register(plugin_id)
        def both(xs: list[TensorDesc | None]) -> TensorDesc:
            raise NotImplementedError

    norm(plugin_id)
    with refused(r"its input 'x' is annotated .*None; impl gets a Tensor$"):

        @trtp.impl(plugin_id)
        def lacks(x: Tensor | None, scale: Any, bias: Any, outputs: Any) -> None: ...

    many = starred(new_id("inputs"))
    with refused(r"its input 'rest' is annotated .*Tensor; impl gets a list\[Tensor\]"):

        @trtp.impl(many)
        def single(first: Any, rest: Tensor, outputs: Any) -> None: ...

    with refused(r"it has the parameter \*others"):

        @trtp.impl(many)
        def others(first: Any, *others: Any, outputs: Any) -> None: ...

    with refused(r"it lacks the input 'rest'; it takes every input \(first, rest\.\.\.\)"):

        @trtp.impl(many)
        def none(first: Any, outputs: Any) -> None: ...


def test_uses_that_are_refused() -> None:
    optional, many = call(norm(new_id("inputs"))), call(starred(new_id("inputs")))
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (2, 3))
    with refused(r"input 'x' is None, expected a tensor"):
        optional(None, x)
    with refused(r"4 tensors given, it takes 3 \(x, scale \(optional\), bias \(optional\)\)"):
        optional(x, x, x, x)
    with refused(r"input 'first' is missing"):
        many()
    with refused(r"input 'rest\[1\]' is None, expected a tensor"):
        many(x, x, None)
    with refused(r"input 'rest' is given twice"):
        many(x, x, rest=[x])


@pytest.mark.parametrize(("names", "message"), [
    (["", "x"], r"input 0 of plugin '.*' is absent, but it is not one of those that may be"),
    (["x", "x", "x", "x"], r"plugin '.*' takes 3 inputs, not 4"),
])  # fmt: skip
def test_nodes_that_are_refused(names: list[str], message: str) -> None:
    plugin_id = norm(new_id("inputs"))
    node = helper.make_node(
        plugin_id.split("::")[1], names, ["y"], plugin_namespace="test"
    )
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in "xy"]
    graph = helper.make_graph([node], "g", [infos[0]], [infos[1]])
    with pytest.raises(trt.InvalidArgumentError, match=message):
        trt.compile(helper.make_model(graph), device="cpu")
