"""Plugins running in plans: attributes, outputs, in place, sizes, errors."""

from __future__ import annotations

import gc
import sys
import threading
import traceback
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import rabbet as trt
import rabbet.plugin as trtp
from rabbet.plugin import Tensor, TensorDesc

from tests.python.randomized.random_plugins import work
from tests.python.support.plugins import build, call, new_id, one_layer, random

# ---- Attributes ----

SEEN: dict[str, Any] = {}
EVERY = new_id("every_attribute")


@trtp.register(EVERY)
def every(
    x: TensorDesc,
    i: int,
    f: float,
    b: bool,
    s: str,
    raw: bytes,
    ints: list[int],
    floats: tuple[float, float],
    bools: list[bool],
    texts: list[str],
    i8: npt.NDArray[np.int8],
    i64: npt.NDArray[np.int64],
    f16: npt.NDArray[np.float16],
    f64: npt.NDArray[np.float64],
    mask: npt.NDArray[np.bool_],
    unused: int = 5,
    default: str = "déjà",
) -> TensorDesc:
    SEEN["unused at build"] = unused
    return x.like()


@trtp.impl(EVERY)
def every_impl(
    x: Tensor,
    i: int,
    f: float,
    b: bool,
    s: str,
    raw: bytes,
    ints: list[int],
    floats: tuple[float, float],
    bools: list[bool],
    texts: list[str],
    i8: npt.NDArray[np.int8],
    i64: npt.NDArray[np.int64],
    f16: npt.NDArray[np.float16],
    f64: npt.NDArray[np.float64],
    mask: npt.NDArray[np.bool_],
    default: str,
    outputs: tuple[Tensor],
    stream: int,
) -> None:
    SEEN.update({k: v for k, v in locals().items() if k not in ("x", "outputs")})
    np.asarray(outputs[0])[...] = np.asarray(x)


VALUES = {
    "i": -(2**40),
    "f": 0.1,
    "b": True,
    "s": "naïve ✓",
    "raw": b"\0\xff\0",
    "ints": [1, -2],
    "floats": (0.5, 1e300),
    "bools": [True, False],
    "texts": ["a", "", "ß"],
    "i8": np.array([-128, 127], np.int8),
    "i64": np.array([2**62], np.int64),
    "f16": np.array([0.1, 65504], np.float16),
    "f64": np.array([0.1, -1e300], np.float64),
    "mask": np.array([True, False]),
}


def test_attributes_of_every_type_survive_a_plan(tmp_path: Path) -> None:
    model = one_layer(EVERY, (2,), **VALUES)
    assert SEEN["unused at build"] == 5
    model.save(tmp_path / "every.plan")
    SEEN.clear()
    trt.load(tmp_path / "every.plan")(random(2))
    for name, value in {**VALUES, "default": "déjà"}.items():
        seen = SEEN[name]
        assert type(seen) is type(value), name
        if isinstance(value, np.ndarray):
            assert seen.dtype == value.dtype
            assert np.array_equal(seen, value)
        else:
            assert seen == value
    assert SEEN["stream"] == 0
    assert "unused" not in SEEN


def test_other_forms_of_attributes() -> None:
    forms = {
        **VALUES,
        "i": np.int64(3),
        "f": 2,
        "b": np.bool_(False),
        "ints": (4, 5),
        "floats": [1, 2],
        "i8": [1, 2],
        "f16": np.array([1.5], np.float32),
        "mask": [1, 0],
    }
    one_layer(EVERY, (2,), **forms)(random(2))
    assert SEEN["ints"] == [4, 5]
    assert SEEN["floats"] == (1.0, 2.0)
    assert SEEN["i8"].tolist() == [1, 2]
    assert SEEN["mask"].dtype == bool


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("i8", [300]),
        ("ints", "12"),
        ("floats", (1.0,)),
        ("i64", [1.5]),
        ("b", 3),
        ("s", b"x"),
        ("raw", "x"),
        ("texts", [1]),
    ],
)
def test_wrong_values_are_refused(name: str, value: Any) -> None:
    with pytest.raises(trtp.DefinitionError, match=f"'{name}' is"):
        one_layer(EVERY, (2,), **{**VALUES, name: value})


# ---- Outputs ----


def test_several_outputs_and_types() -> None:
    plugin_id = new_id("split")

    @trtp.register(plugin_id)
    def split(x: TensorDesc) -> tuple[TensorDesc, TensorDesc]:
        signs = x.like()
        signs.dtype = trt.int32
        return x.like(), signs

    @trtp.impl(plugin_id)
    def split_impl(x: Tensor, outputs: tuple[Tensor, Tensor], stream: int) -> None:
        value = np.asarray(x)
        np.asarray(outputs[0])[...] = np.abs(value)
        np.asarray(outputs[1])[...] = np.sign(value)

    x = random(3, 4)
    magnitude, sign = one_layer(plugin_id, (3, 4))(x)
    assert np.array_equal(magnitude, np.abs(x))
    assert sign.dtype == np.int32
    assert np.array_equal(sign, np.sign(x))


ADD = new_id("add_in_place")


@trtp.register(ADD)
def add(x: TensorDesc, delta: float) -> TensorDesc:
    return x.aliased()


@trtp.impl(ADD)
def add_impl(x: Tensor, delta: float, outputs: tuple[Tensor], stream: int) -> None:
    assert outputs[0].data_ptr == x.data_ptr
    assert outputs[0].is_aliased
    assert outputs[0].get_aliased() is x
    assert not x.is_aliased
    np.asarray(x)[...] += delta


def test_in_place_chain_with_other_readers() -> None:
    def make(network: trt.INetworkDefinition) -> Any:
        x = network.add_input("x", trt.float32, (4,))
        y = network.add_plugin(call(ADD)(x, delta=1.0)).get_output(0)
        z = network.add_plugin(call(ADD)(y, delta=10.0)).get_output(0)
        total = network.add_elementwise(x, y, trt.ElementWiseOperation.SUM).get_output(
            0
        )
        return y, z, total

    x = random(4)
    before = x.copy()
    y, z, total = build(make)(x)
    assert np.array_equal(x, before)
    np.testing.assert_allclose(y, before + 1, rtol=1e-6)
    np.testing.assert_allclose(z, before + 11, rtol=1e-6)
    np.testing.assert_allclose(total, 2 * before + 1, rtol=1e-6)


def test_in_place_of_a_constant() -> None:
    def make(network: trt.INetworkDefinition) -> Any:
        constant = network.add_constant((2,), np.array([1, 2], np.float32)).get_output(
            0
        )
        x = network.add_input("x", trt.float32, (2,))
        y = network.add_plugin(call(ADD)(constant, delta=1.0)).get_output(0)
        return network.add_elementwise(x, y, trt.ElementWiseOperation.PROD).get_output(
            0
        )

    model = build(make)
    for _ in range(3):
        assert model(np.array([1, 10], np.float32)).tolist() == [2, 30]


def test_in_place_formats() -> None:
    """Combinations that give the output another format than the input are left out."""
    plugin_id = new_id("in_place_formats")

    @trtp.register(plugin_id)
    def describe(x: TensorDesc) -> TensorDesc:
        return x.aliased()

    @trtp.impl(plugin_id)
    def run(x: Tensor, outputs: tuple[Tensor], stream: int) -> None:
        assert outputs[0].format is x.format
        np.from_dlpack(outputs[0])[...] += 1

    offered = ["FP32, FP32", "LINEAR*HWC"]

    @trtp.autotune(plugin_id)
    def autotune(
        x: TensorDesc, outputs: tuple[TensorDesc]
    ) -> list[trtp.AutoTuneCombination]:
        return [trtp.AutoTuneCombination(*offered)]

    x = random(2, 3, 4, 5)
    np.testing.assert_array_equal(one_layer(plugin_id, x.shape)(x), x + 1)
    apart = trtp.AutoTuneCombination()
    apart.pos(0, "FP32", "LINEAR")
    apart.pos(1, "FP32", "HWC")

    @trtp.autotune(plugin_id)
    def autotune_apart(
        x: TensorDesc, outputs: tuple[TensorDesc]
    ) -> list[trtp.AutoTuneCombination]:
        return [apart]

    with pytest.raises(trt.Error, match="none gives an output that works in place"):
        one_layer(plugin_id, x.shape)


NONZERO = new_id("nonzero")


@trtp.register(NONZERO)
def nonzero(x: TensorDesc) -> tuple[TensorDesc, TensorDesc]:
    upper = x.shape_expr.numel()
    count = trtp.size_tensor(upper // 2, upper)
    count.dtype = trt.int64
    return trtp.from_shape_expr((count.expr(), x.ndim), trt.int32), count


@trtp.impl(NONZERO)
def nonzero_impl(x: Tensor, outputs: tuple[Tensor, Tensor], stream: int) -> None:
    found = np.argwhere(np.asarray(x))
    assert outputs[0].is_data_dependent
    with pytest.raises(ValueError, match="aliased"):
        outputs[0].numel()
    with pytest.raises(BufferError, match="aliased"):
        memoryview(outputs[0])
    np.asarray(outputs[0].aliased(found.shape))[...] = found
    np.asarray(outputs[1])[...] = len(found)


def test_size_tensor() -> None:
    model = one_layer(NONZERO, (3, 5))
    for seed in range(4):
        x = np.maximum(random(3, 5, seed=seed), 0)
        indices, count = model(x)
        assert np.array_equal(indices, np.argwhere(x))
        assert count == len(indices)
    indices, count = model(np.zeros((3, 5), np.float32))
    assert indices.shape == (0, 2)
    assert count == 0


def test_a_size_tensor_begins_at_zero() -> None:
    """So that kernels may count in it; in every run."""
    plugin_id = new_id("counted")

    @trtp.register(plugin_id)
    def describe(x: TensorDesc) -> tuple[TensorDesc, TensorDesc]:
        upper = x.shape_expr.numel()
        count = trtp.size_tensor(upper // 2, upper)
        count.dtype = trt.int64
        return trtp.from_shape_expr((count.expr(),), trt.int32), count

    @trtp.impl(plugin_id)
    def run(x: Tensor, outputs: tuple[Tensor, Tensor], stream: int) -> None:
        count = np.asarray(outputs[1])
        count += np.count_nonzero(np.asarray(x))
        np.asarray(outputs[0].aliased((int(count),)))[...] = 5

    model = one_layer(plugin_id, (3, 5))
    for seed in range(4):
        x = np.maximum(random(3, 5, seed=seed), 0)
        found, count = model(x)
        assert int(count) == np.count_nonzero(x)
        assert found.tolist() == [5] * int(count)


def test_size_tensor_before_other_layers() -> None:
    def make(network: trt.INetworkDefinition) -> Any:
        x = network.add_input("x", trt.float32, (6,))
        indices = network.add_plugin(call(NONZERO)(x)).get_output(0)
        doubled = network.add_elementwise(
            indices, indices, trt.ElementWiseOperation.SUM
        ).get_output(0)
        return doubled

    model = build(make)
    for seed in range(3):
        x = np.maximum(random(6, seed=seed), 0)
        assert np.array_equal(model(x), 2 * np.argwhere(x))


TILE = new_id("tile")


@trtp.register(TILE)
def tile(x: TensorDesc, times: trtp.ShapeInput) -> TensorDesc:
    assert len(times) == 2
    dims = [d * t for d, t in zip(x.shape_expr, times, strict=True)]
    return trtp.from_shape_expr(dims, x.dtype)


@trtp.impl(TILE)
def tile_impl(x: Tensor, times: Tensor, outputs: tuple[Tensor], stream: int) -> None:
    np.asarray(outputs[0])[...] = np.tile(np.asarray(x), np.asarray(times))


def test_shape_input_of_the_network() -> None:
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (2, 3))
    times = network.add_input("times", trt.int64, (2,))
    layer = network.add_plugin(call(TILE)(x, times))
    network.mark_output(layer.get_output(0))
    builder = trt.Builder()
    config = builder.create_builder_config()
    config.device = "cpu"
    profile = builder.create_optimization_profile()
    profile.set_shape_input("times", [1, 1], [2, 2], [4, 4])
    config.add_optimization_profile(profile)
    model = trt.Model(builder.build_engine_with_config(network, config))
    value = random(2, 3)
    for reps in ([1, 1], [2, 3], [4, 1]):
        times_value = np.array(reps, np.int64)
        assert np.array_equal(model(value, times_value), np.tile(value, reps))


def test_shape_input_from_a_shape() -> None:
    def make(network: trt.INetworkDefinition) -> Any:
        x = network.add_input("x", trt.float32, (-1, 3))
        times = network.add_shape(x).get_output(0)
        return network.add_plugin(call(TILE)(x, times)).get_output(0)

    model = build(make, shapes={"x": ((1, 3), (2, 3), (4, 3))})
    for rows in (1, 2, 4):
        x = random(rows, 3)
        assert np.array_equal(model(x), np.tile(x, (rows, 3)))


def test_shape_input_from_data() -> None:
    def make(network: trt.INetworkDefinition) -> Any:
        x = network.add_input("x", trt.float32, (2, 3))
        indices = network.add_plugin(call(NONZERO)(x)).get_output(0)
        row = network.add_reduce(indices, trt.ReduceOperation.MAX, 1, False)
        return network.add_plugin(call(TILE)(x, row.get_output(0))).get_output(0)

    model = build(make)
    for last in ((1, 2), (1, 1)):
        x = np.zeros((2, 3), np.float32)
        x[last] = 7
        assert np.array_equal(model(x), np.tile(x, last))


# ---- Tactics and devices ----


def test_tactics_and_devices() -> None:
    plugin_id = new_id("tactics")
    seen: set[int] = set()

    @trtp.register(plugin_id)
    def tactics(x: TensorDesc) -> TensorDesc:
        return x.like()

    @trtp.autotune(plugin_id)
    def tune(
        x: TensorDesc, outputs: tuple[TensorDesc]
    ) -> list[trtp.AutoTuneCombination]:
        assert x.has_shape
        assert x.shape.opt == (2, 3)
        assert x.format is trt.TensorFormat.LINEAR
        return [trtp.AutoTuneCombination("FP32, FP32", "LINEAR", [3, 5])]

    @trtp.impl(plugin_id, device="cuda")
    def on_cuda(x: Tensor, outputs: tuple[Tensor], stream: int) -> None:
        raise AssertionError("the plan runs on the CPU")

    @trtp.impl(plugin_id, device="cpu")
    def on_cpu(
        x: Tensor, outputs: tuple[Tensor], tactic: int, threads: int, stream: int
    ) -> None:
        seen.add(tactic)
        assert threads >= 1
        np.asarray(outputs[0])[...] = np.asarray(x) * tactic

    x = random(2, 3)
    model = one_layer(plugin_id, (2, 3))
    assert seen == {3, 5}  # both were timed
    seen.clear()
    result = model(x)
    (chosen,) = seen
    assert np.array_equal(result, x * chosen)


def test_a_tactic_that_raises_is_left_out() -> None:
    """With a warning, while another works; if none does, what they raised is raised."""
    plugin_id = new_id("failing_tactic")
    lines: list[str] = []
    works: set[int] = {5}

    class Log(trt.ILogger):
        def log(self, severity: trt.Severity, msg: str) -> None:
            if severity == trt.Severity.WARNING:
                lines.append(msg)

    @trtp.register(plugin_id)
    def failing(x: TensorDesc) -> TensorDesc:
        return x.like()

    @trtp.autotune(plugin_id)
    def tune(
        x: TensorDesc, outputs: tuple[TensorDesc]
    ) -> list[trtp.AutoTuneCombination]:
        return [trtp.AutoTuneCombination("FP32, FP32", "LINEAR", [3, 5])]

    @trtp.impl(plugin_id)
    def run(x: Tensor, outputs: tuple[Tensor], tactic: int, stream: int) -> None:
        if tactic not in works:
            raise ZeroDivisionError(f"tactic {tactic} is broken")
        np.asarray(outputs[0])[...] = np.asarray(x) * tactic

    def compiled() -> trt.Model:
        network = trt.Builder(Log()).create_network()
        x = network.add_input("x", trt.float32, (2, 3))
        layer = network.add_plugin(call(plugin_id)(x))
        network.mark_output(layer.get_output(0))
        return trt.compile(network, device="cpu", logger=Log())

    x = random(2, 3)
    np.testing.assert_array_equal(compiled()(x), x * 5)
    (line,) = [line for line in lines if "left out" in line]
    assert "tactic 3 is broken" in line
    assert plugin_id in line
    works.clear()
    with pytest.raises(ZeroDivisionError, match="tactic 3 is broken"):
        compiled()


def test_types_and_formats() -> None:
    plugin_id = new_id("formats")
    seen: set[tuple[Any, ...]] = set()

    @trtp.register(plugin_id)
    def formats(x: TensorDesc) -> TensorDesc:
        return x.like()

    @trtp.autotune(plugin_id)
    def tune(x: TensorDesc, outputs: tuple[TensorDesc]) -> trtp.AutoTuneCombination:
        return trtp.AutoTuneCombination("FP32, FP32", "HWC")

    @trtp.impl(plugin_id)
    def run(x: Tensor, outputs: tuple[Tensor], stream: int) -> None:
        seen.add((x.format, tuple(x.shape), x.strides))
        np.asarray(outputs[0])[...] = np.asarray(x) + 1

    x = random(1, 3, 4, 5)
    assert np.array_equal(one_layer(plugin_id, x.shape)(x), x + 1)
    assert seen == {(trt.TensorFormat.HWC, x.shape, (60, 1, 15, 3))}


@pytest.mark.parametrize(
    "layouts",
    ["CHW2, CHW2", "CHW32, HWC8", "HWC16, CHW4", "HWC8, LINEAR", "CHW4, CHW2"],
)
def test_layouts_on_the_cpu(layouts: str) -> None:
    """Each that a plugin may name, from and to each other."""
    plugin_id = new_id("layouts")

    @trtp.register(plugin_id)
    def copy(x: TensorDesc) -> TensorDesc:
        return x.like()

    @trtp.autotune(plugin_id)
    def tune(x: TensorDesc, outputs: tuple[TensorDesc]) -> list[trtp.AutoTuneCombination]:
        return [trtp.AutoTuneCombination("FP32, FP32", layouts)]

    @trtp.impl(plugin_id)
    def run(x: Tensor, outputs: tuple[Tensor], stream: int) -> None:
        work(lambda value: (value + 1,), (x,), outputs, stream)

    def make(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (2, -1, 3, 5))
        for _ in range(2):
            x = network.add_plugin(call(plugin_id)(x)).get_output(0)
        return x

    ranges = {"x": ((2, 1, 3, 5), (2, 32, 3, 5), (2, 40, 3, 5))}
    model = build(make, shapes=ranges)
    for channels in (32, 1, 17, 40):
        x = random(2, channels, 3, 5).round(1)
        np.testing.assert_allclose(model(x), x + 2, rtol=1e-6)


class One(trt.IAlgorithmSelector):
    """Takes one way to compute each layer; `most`: how many there were."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number, self.most = number, 0

    def select_algorithms(self, context: Any, choices: Any) -> list[int]:
        self.most = max(self.most, len(choices))
        return [min(self.number, len(choices) - 1)]


def test_padding_that_nobody_wrote() -> None:
    """A convolution does not read the padding behind a plugin's channels."""
    plugin_id = new_id("padding")

    @trtp.register(plugin_id)
    def blocks(x: TensorDesc) -> TensorDesc:
        return x.like()

    @trtp.autotune(plugin_id)
    def tune(x: TensorDesc, outputs: tuple[TensorDesc]) -> list[trtp.AutoTuneCombination]:
        return [trtp.AutoTuneCombination("FP32, FP32", "LINEAR, CHW16")]

    @trtp.impl(plugin_id)
    def run(x: Tensor, outputs: tuple[Tensor], stream: int) -> None:
        work(lambda value: (value + 1,), (x,), outputs, stream)  # and NaN in padding

    value, weights = random(2, 17, 5, 6), random(4, 17, 1, 1, seed=1)
    wanted = np.einsum("mc,nchw->nmhw", weights[:, :, 0, 0], value + 1)
    number, most = 0, 1
    while number < most:
        builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
        network = builder.create_network()
        x = network.add_input("x", trt.float32, value.shape)
        x = network.add_plugin(call(plugin_id)(x)).get_output(0)
        layer = network.add_convolution_nd(x, 4, (1, 1), weights)
        network.mark_output(layer.get_output(0))
        config = builder.create_builder_config()
        config.device, config.algorithm_selector = "cpu", One(number)
        model = trt.Model(builder.build_engine_with_config(network, config))
        np.testing.assert_allclose(model(value), wanted, rtol=1e-4, atol=1e-4)
        number, most = number + 1, config.algorithm_selector.most


@pytest.mark.parametrize("layouts", ["LINEAR", "CHW4", "CHW4, HWC, LINEAR"])
def test_one_tensor_twice(layouts: str) -> None:
    """Each input has a format of its own."""
    plugin_id = new_id("twice")
    seen = set()

    @trtp.register(plugin_id)
    def weighted(x: TensorDesc, y: TensorDesc) -> TensorDesc:
        return x.like()

    @trtp.autotune(plugin_id)
    def tune(
        x: TensorDesc, y: TensorDesc, outputs: tuple[TensorDesc]
    ) -> list[trtp.AutoTuneCombination]:
        return [trtp.AutoTuneCombination("FP32, FP32, FP32", layouts)]

    @trtp.impl(plugin_id)
    def run(x: Tensor, y: Tensor, outputs: tuple[Tensor], stream: int) -> None:
        seen.add(x.data_ptr == y.data_ptr)
        work(lambda x, y: (x + 2 * y,), (x, y), outputs, stream)

    def make(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (2, 6, 3, 5))
        x = network.add_identity(network.add_unary(x, trt.UnaryOperation.NEG).get_output(0))
        return network.add_plugin(
            call(plugin_id)(x.get_output(0), x.get_output(0))
        ).get_output(0)

    x = random(2, 6, 3, 5)
    model = build(make)
    seen.clear()
    np.testing.assert_allclose(model(x), -3 * x, rtol=1e-6)
    if layouts == "LINEAR":
        assert seen == {True}  # nothing is copied needlessly


def test_in_place_on_a_shape_input() -> None:
    """Tensors that tell shapes are copied: no output may have their address."""
    plugin_id = new_id("on_a_shape")

    @trtp.register(plugin_id)
    def more(x: TensorDesc) -> TensorDesc:
        return x.aliased()

    @trtp.impl(plugin_id)
    def run(x: Tensor, outputs: tuple[Tensor], stream: int) -> None:
        np.asarray(outputs[0])[...] += 1

    builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
    network = builder.create_network()
    sizes = network.add_input("sizes", trt.int32, (2,))
    x = network.add_input("x", trt.float32, (6,))
    reshaped = network.add_shuffle(x)
    reshaped.set_input(1, sizes)
    outputs = reshaped.get_output(0), network.add_plugin(call(plugin_id)(sizes)).get_output(0)
    for name, tensor in zip("yz", outputs, strict=True):
        tensor.name = name
        network.mark_output(tensor)
    config = builder.create_builder_config()
    config.device = "cpu"
    profile = builder.create_optimization_profile()
    profile.set_shape_input("sizes", (1, 1), (2, 3), (6, 6))
    config.add_optimization_profile(profile)
    engine = builder.build_engine_with_config(network, config)
    assert engine.get_aliased_input_tensor("z") is None
    value = random(6)
    y, z = trt.Model(engine)(sizes=np.int32([3, 2]), x=value)
    np.testing.assert_array_equal(y, value.reshape(3, 2))
    assert z.tolist() == [4, 3]


@pytest.mark.parametrize("source", ["constant", "shape"])
def test_layouts_of_what_the_host_knows(source: str) -> None:
    """Few integers, which need no kernel elsewhere."""
    plugin_id = new_id("known")

    @trtp.register(plugin_id)
    def more(x: TensorDesc) -> TensorDesc:
        return x.like()

    @trtp.autotune(plugin_id)
    def tune(x: TensorDesc, outputs: tuple[TensorDesc]) -> list[trtp.AutoTuneCombination]:
        kind = "INT32" if source == "constant" else "INT64"
        return [trtp.AutoTuneCombination(f"{kind}, {kind}", "CHW4, HWC8")]

    @trtp.impl(plugin_id)
    def run(x: Tensor, outputs: tuple[Tensor], stream: int) -> None:
        work(lambda value: (value + 1,), (x,), outputs, stream)

    def make(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (-1, -1, -1))
        if source == "constant":
            x = network.add_constant((1, 3, 1), np.int32([2, 4, 6])).get_output(0)
        else:
            layer = network.add_shuffle(network.add_shape(x).get_output(0))
            layer.reshape_dims = (1, 3, 1)
            x = layer.get_output(0)
        return network.add_plugin(call(plugin_id)(x)).get_output(0)

    model = build(make, shapes={"x": ((1, 1, 1), (2, 4, 6), (3, 5, 7))})
    assert model(random(2, 4, 6)).ravel().tolist() == [3, 5, 7]
    if source == "shape":
        assert model(random(3, 1, 7)).ravel().tolist() == [4, 2, 8]


@pytest.mark.parametrize("source", ["input", "layer", "constant"])
def test_one_tensor_worked_on_twice(source: str) -> None:
    """Two outputs in the places of two inputs that are one tensor."""
    plugin_id = new_id("both_in_place")

    @trtp.register(plugin_id)
    def both(x: TensorDesc, y: TensorDesc) -> tuple[TensorDesc, TensorDesc]:
        return x.aliased(), y.aliased()

    @trtp.impl(plugin_id)
    def run(x: Tensor, y: Tensor, outputs: tuple[Tensor, Tensor], stream: int) -> None:
        np.asarray(outputs[0])[...] += 1
        np.asarray(outputs[1])[...] *= 2

    def make(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (2, 3))
        if source == "layer":
            x = network.add_unary(x, trt.UnaryOperation.NEG).get_output(0)
        if source == "constant":
            x = network.add_constant((2, 3), -random(2, 3)).get_output(0)
        layer = network.add_plugin(call(plugin_id)(x, x))
        return layer.get_output(0), layer.get_output(1), network.add_identity(x).get_output(0)

    x = random(2, 3)
    value = x if source == "input" else -x
    for _ in range(2):
        first, second, same = build(make)(x)
        np.testing.assert_array_equal(first, value + 1)
        np.testing.assert_array_equal(second, value * 2)
        np.testing.assert_array_equal(same, value)


def test_no_impl_for_the_device() -> None:
    plugin_id = new_id("gpu_only")

    @trtp.register(plugin_id)
    def gpu_only(x: TensorDesc) -> TensorDesc:
        return x.like()

    @trtp.impl(plugin_id, device="cuda")
    def on_cuda(x: Tensor, outputs: tuple[Tensor], stream: int) -> None: ...

    with pytest.raises(
        trtp.DefinitionError, match=r"no impl for device 'cpu'.*for cuda"
    ):
        one_layer(plugin_id, (2,))


def test_wrong_autotune_results() -> None:
    plugin_id = new_id("tuned")

    @trtp.register(plugin_id)
    def tuned(x: TensorDesc) -> TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def run(x: Tensor, outputs: tuple[Tensor], stream: int) -> None: ...

    for answer, message in [
        (["FP32"], "instead of a list of AutoTuneCombination"),
        ([trtp.AutoTuneCombination("FP32")], "1 positions, but the plugin has 2"),
    ]:

        @trtp.autotune(plugin_id)
        def tune(x: TensorDesc, outputs: tuple[TensorDesc]) -> Any:
            return answer  # noqa: B023

        with pytest.raises(trtp.DefinitionError, match=message):
            one_layer(plugin_id, (2,))


# ---- Errors and what is kept ----


class OwnError(Exception):
    """Raised by a plugin."""


def test_an_exception_arrives_as_itself() -> None:
    plugin_id = new_id("raises")
    raised: list[Exception] = []

    @trtp.register(plugin_id)
    def raises(x: TensorDesc) -> TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def run(x: Tensor, outputs: tuple[Tensor], stream: int) -> None:
        value = np.asarray(x)
        if value[0] > 0:
            raised.append(OwnError("too large"))
            raise raised[-1]
        np.asarray(outputs[0])[...] = value

    model = one_layer(plugin_id, (2,))
    for _ in range(3):
        with pytest.raises(OwnError, match="too large") as caught:
            model(np.ones(2, np.float32))
        assert caught.value is raised[-1]
        names = [
            frame.name for frame in traceback.extract_tb(caught.value.__traceback__)
        ]
        assert names[-1] == "run"
        notes = "\n".join(caught.value.__notes__)
        assert notes.count("plugin_0") == 1
        assert notes.count(plugin_id) == 1
        assert model(np.zeros(2, np.float32)).tolist() == [0, 0]
    raised.clear()


@pytest.mark.parametrize("where", ["register", "autotune", "types", "impl", "none"])
def test_an_error_names_the_layer_once(where: str) -> None:
    plugin_id = new_id("once")

    def fail(what: str) -> None:
        if what == where:
            raise OwnError

    @trtp.register(plugin_id)
    def once(x: TensorDesc) -> TensorDesc:
        fail("register")
        return x.like()

    @trtp.autotune(plugin_id)
    def tune(
        x: TensorDesc, outputs: tuple[TensorDesc]
    ) -> list[trtp.AutoTuneCombination]:
        fail("autotune")
        types = "FP16, FP16" if where == "types" else "FP32, FP32"
        return [trtp.AutoTuneCombination(types, "LINEAR")]

    if where != "none":

        @trtp.impl(plugin_id)
        def run(x: Tensor, outputs: tuple[Tensor], stream: int) -> None:
            fail("impl")

    with pytest.raises((OwnError, trt.Error)) as caught:
        one_layer(plugin_id, (2,))(random(2))
    notes = getattr(caught.value, "__notes__", [])
    text = "\n".join([str(caught.value), *notes])
    assert text.count("'plugin_0'") == 1


def test_nothing_leaks_after_exceptions() -> None:
    plugin_id = new_id("leaks")

    @trtp.register(plugin_id)
    def leaks(x: TensorDesc) -> TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def run(x: Tensor, outputs: tuple[Tensor], stream: int) -> None:
        raise OwnError

    model = one_layer(plugin_id, (2,), try_plugins=False)
    refs = []
    for _ in range(3):
        try:
            model(np.ones(2, np.float32))
        except OwnError as error:
            refs.append(weakref.ref(error))
    gc.collect()
    assert [ref() for ref in refs] == [None] * 3


def test_a_result_is_refused() -> None:
    plugin_id = new_id("returns")

    @trtp.register(plugin_id)
    def returns(x: TensorDesc) -> TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def run(x, outputs, stream):  # type: ignore[no-untyped-def]
        return 7

    with pytest.raises(TypeError, match="returned 7; it must write its results"):
        one_layer(plugin_id, (2,))(random(2))


def test_arguments_are_reused_and_renewed_when_kept() -> None:
    plugin_id = new_id("keeps")
    kept: list[Any] = []
    identities: list[tuple[int, ...]] = []
    keep = False

    @trtp.register(plugin_id)
    def keeps(x: TensorDesc) -> TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def run(x: Tensor, outputs: tuple[Tensor], stream: int) -> None:
        identities.append((id(x), id(outputs), id(outputs[0])))
        np.asarray(outputs[0])[...] = np.asarray(x)
        if keep:
            kept.append((x, np.asarray(x), np.from_dlpack(x), outputs))

    model = one_layer(plugin_id, (2,))
    for _ in range(3):
        model(random(2))
    assert len(set(identities[-3:])) == 1
    keep = True
    for seed in range(3):
        model(random(2, seed=seed))
    assert len({i[0] for i in identities[-2:]}) == 2
    del model
    gc.collect()
    for seed, (x, array, imported, outputs) in enumerate(kept):
        expected = random(2, seed=seed)
        assert np.array_equal(array, expected)
        assert np.array_equal(imported, expected)
        assert np.array_equal(np.asarray(outputs[0]), expected)
        assert x.shape == (2,)


def test_keeping_tensors_of_a_timing_run_is_an_error() -> None:
    plugin_id = new_id("keeps_at_build")
    kept: list[Any] = []

    @trtp.register(plugin_id)
    def keeps(x: TensorDesc) -> TensorDesc:
        return x.like()

    @trtp.autotune(plugin_id)
    def tune(x: TensorDesc, outputs: tuple[TensorDesc]) -> Any:
        return [trtp.AutoTuneCombination("FP32, FP32", "LINEAR", [1, 2])]

    @trtp.impl(plugin_id)
    def run(x: Tensor, outputs: tuple[Tensor], tactic: int) -> None:
        kept.append(x)

    with pytest.raises(RuntimeError, match="copy what is to be kept"):
        one_layer(plugin_id, (2,))
    with pytest.raises(RuntimeError, match="its memory is gone"):
        np.asarray(kept[0])


def test_a_changed_output_list_does_no_harm() -> None:
    plugin_id = new_id("pops")

    @trtp.register(plugin_id)
    def pops(x: TensorDesc) -> TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def run(x: Tensor, outputs: list[Tensor], stream: int) -> None:
        np.asarray(outputs.pop())[...] = np.asarray(x)

    model = one_layer(plugin_id, (2,))
    for seed in range(3):
        x = random(2, seed=seed)
        assert np.array_equal(model(x), x)


def test_interrupt_in_a_plugin() -> None:
    plugin_id = new_id("interrupted")

    @trtp.register(plugin_id)
    def interrupted(x: TensorDesc) -> TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def run(x: Tensor, outputs: tuple[Tensor], stream: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        one_layer(plugin_id, (2,))(random(2))


def test_threads_share_a_model() -> None:
    plugin_id = new_id("shared")

    @trtp.register(plugin_id)
    def shared(x: TensorDesc) -> TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def run(x: Tensor, outputs: tuple[Tensor], stream: int) -> None:
        np.multiply(np.asarray(x), 2, out=np.asarray(outputs[0]))

    model = one_layer(plugin_id, (64,))
    failures: list[Any] = []

    def work(seed: int) -> None:
        x = random(64, seed=seed)
        for _ in range(200):
            if not np.array_equal(model(x), 2 * x):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_model_inside_a_plugin() -> None:
    plugin_id = new_id("outer")
    inner_id = new_id("inner")

    @trtp.register(inner_id)
    def inner(x: TensorDesc) -> TensorDesc:
        return x.like()

    @trtp.impl(inner_id)
    def inner_run(x: Tensor, outputs: tuple[Tensor], stream: int) -> None:
        np.asarray(outputs[0])[...] = np.asarray(x) + 1

    nested = one_layer(inner_id, (2,))

    @trtp.register(plugin_id)
    def outer(x: TensorDesc) -> TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def outer_run(x: Tensor, outputs: tuple[Tensor], stream: int) -> None:
        np.asarray(outputs[0])[...] = nested(np.asarray(x)) * 2

    x = random(2)
    assert np.array_equal(one_layer(plugin_id, (2,))(x), (x + 1) * 2)


# ---- Plans without their plugin ----


def test_a_plan_names_the_module_of_a_missing_plugin(tmp_path: Path) -> None:
    source = tmp_path / "my_ops.py"
    source.write_text(
        "import numpy as np\n"
        "import rabbet.plugin as trtp\n"
        '@trtp.register("elsewhere::twice")\n'
        "def twice(x: trtp.TensorDesc) -> trtp.TensorDesc:\n"
        "    return x.like()\n"
        '@trtp.impl("elsewhere::twice")\n'
        "def run(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:\n"
        "    np.asarray(outputs[0])[...] = np.asarray(x) * 2\n"
    )
    from rabbet._plugins import load_file

    load_file(source)
    plan = tmp_path / "twice.plan"
    one_layer("elsewhere::twice", (2,)).save(plan)
    trtp._plugin.QDP_REGISTRY["elsewhere::twice"].deregister()
    with pytest.raises(trt.Error) as caught:
        trt.load(plan)
    for part in ("twice", "elsewhere", "my_ops.py"):
        assert part in str(caught.value)
    assert str(caught.value).count("plugin_0") == 1
    del sys.modules["rabbet_plugins.my_ops"]
    source.write_text(source.read_text() + "# changed\n")
    x = random(2)
    assert np.array_equal(trt.load(plan, plugins=source)(x), 2 * x)


def test_a_view_larger_than_the_memory_is_refused() -> None:
    plugin_id = new_id("overrun")
    wanted = 0

    @trtp.register(plugin_id)
    def overrun(x: TensorDesc) -> tuple[TensorDesc, TensorDesc]:
        count = trtp.size_tensor(1, 2 * x.shape_expr[0])
        return trtp.from_shape_expr((count.expr(), 3), trt.float32), count

    @trtp.impl(plugin_id)
    def run(x: Tensor, outputs: list[Tensor]) -> None:
        np.asarray(outputs[0].aliased((wanted, 3)))[...] = 1
        np.asarray(outputs[1])[...] = wanted

    model = one_layer(plugin_id, (4,))
    for wanted in (0, 8):
        assert np.array_equal(model(random(4))[0], np.ones((wanted, 3), np.float32))
    for wanted in (9, 10**6):  # noqa: B007
        with pytest.raises(ValueError, match="do not fit in the 96 of the output"):
            model(random(4))
