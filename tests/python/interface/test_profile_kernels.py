"""Each profile runs kernels of its own; weights are stored once."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import rabbet as trt

LOGGER = trt.Logger(trt.Logger.ERROR)
WIDE = 64
LONG, ONE = (1, 48, 64), (1, 1, 1)  # minimum, optimum, maximum of rows
WEIGHTS = {
    name: np.random.default_rng(i).standard_normal((WIDE, WIDE)).astype(np.float32) / 8
    for i, name in enumerate("uv")
}


class ByRows(trt.IAlgorithmSelector):
    """Takes the first tactic for one row, the last one for more."""

    def select_algorithms(self, context: Any, choices: Any) -> Any:
        rows = context.get_shape(0)[1][0]
        order = sorted(range(len(choices)), key=lambda i: (
            str(choices[i].algorithm_variant.name), choices[i].algorithm_variant.tactic,
            str(choices[i].get_algorithm_io_info(0).tensor_format)))  # fmt: skip
        return [order[0 if rows == 1 else -1]]

    def report_algorithms(self, contexts: Any, choices: Any) -> None:
        pass


def build(
    profiles: Any,
    selector: Any = None,
    flags: tuple[Any, ...] = (),
    debug: bool = False,
    level: int = 3,
    device: str = "cpu",
) -> Any:
    """The plan of y = softmax(relu(x u) v). At level 0 nothing is timed."""
    builder = trt.Builder(LOGGER)
    network = builder.create_network()
    x = network.add_input("x", trt.float32, (-1, WIDE))
    for name, weights in WEIGHTS.items():
        constant = network.add_constant((WIDE, WIDE), weights)
        constant.name = name
        none = trt.MatrixOperation.NONE
        product = network.add_matrix_multiply(x, none, constant.get_output(0), none)
        product.name = "x" + name
        x = product.get_output(0)
        if name == "u":
            x = network.add_activation(x, trt.ActivationType.RELU).get_output(0)
            x.name = "middle"
            if debug:
                network.mark_debug(x)
    soft = network.add_softmax(x)
    soft.axes = 2
    soft.get_output(0).name = "y"
    network.mark_output(soft.get_output(0))
    config = builder.create_builder_config()
    config.device, config.threads = device, 1
    config.builder_optimization_level = level
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    for flag in flags:
        config.set_flag(flag)
    for low, usual, high in profiles:
        profile = builder.create_optimization_profile()
        profile.set_shape("x", (low, WIDE), (usual, WIDE), (high, WIDE))
        config.add_optimization_profile(profile)
    config.algorithm_selector = selector
    return builder.build_serialized_network(network, config)


def load(plan: Any) -> Any:
    return trt.Runtime(LOGGER).deserialize_cuda_engine(plan)


def expected(x: Any, weights: Any = WEIGHTS) -> Any:
    y = np.maximum(x @ weights["u"], 0) @ weights["v"]
    y = np.exp(y - y.max(1, keepdims=True))
    return y / y.sum(1, keepdims=True)


def rows(count: int) -> Any:
    random = np.random.default_rng(count)
    return random.standard_normal((count, WIDE)).astype(np.float32)


def run(context: Any, x: Any) -> Any:
    y = np.full_like(x, np.nan)
    assert context.set_input_shape("x", x.shape)
    context.set_tensor_address("x", x.ctypes.data)
    context.set_tensor_address("y", y.ctypes.data)
    assert context.execute_async_v3(0)
    return y


def check(context: Any, profile: int, counts: Any, weights: Any = WEIGHTS) -> None:
    context.set_optimization_profile_async(profile, 0)
    for count in counts:
        np.testing.assert_allclose(
            run(context, rows(count)), expected(rows(count), weights), 1e-4, 1e-6
        )


def information(engine: Any, context: Any = None) -> Any:
    inspector = engine.create_engine_inspector()
    inspector.execution_context = context
    text = inspector.get_engine_information(trt.LayerInformationFormat.JSON)
    return json.loads(text)


def kernels(layers: Any) -> list[tuple[str, str, str]]:
    return [(x["Name"], x["Kernel"], x["TacticName"]) for x in layers]


@pytest.fixture(scope="module")
def both() -> Any:
    return load(build([LONG, ONE], ByRows()))


def test_each_profile_runs_its_kernels(both: Any) -> None:
    context = both.create_execution_context()
    for profile, counts in [(0, (1, 7, 64)), (1, (1,)), (0, (3, 48)), (1, (1,))]:
        check(context, profile, counts)
    found = []
    for profile in range(2):
        context.set_optimization_profile_async(profile, 0)
        found.append(kernels(information(both, context)["Layers"]))
    assert found[0] != found[1]
    # Without a context the first profile comes first, the other one behind.
    whole = information(both)
    assert kernels(whole["Layers"]) == found[0]
    (other,) = whole["OtherProfiles"]
    assert other["Profiles"] == [1]
    assert kernels(other["Layers"]) == found[1]


def test_text_names_the_profile(both: Any) -> None:
    inspector = both.create_engine_inspector()
    text = inspector.get_engine_information(trt.LayerInformationFormat.ONELINE)
    assert "profile 1: xu" in text


def test_weights_are_stored_once(both: Any) -> None:
    weights = sum(array.nbytes for array in WEIGHTS.values())
    assert weights < both.serialize().nbytes < 1.5 * weights


def test_shapes_are_those_of_all_profiles(both: Any) -> None:
    assert tuple(both.get_tensor_shape("x")) == (-1, WIDE)
    assert tuple(both.get_tensor_profile_shape("x", 1)[2]) == (1, WIDE)
    context = both.create_execution_context()
    context.set_optimization_profile_async(1, 0)
    assert tuple(context.get_tensor_shape("y")) == (-1, WIDE)
    with pytest.raises(Exception, match="profile 1 allows 1 to 1"):
        context.set_input_shape("x", (2, WIDE))


def test_memory_is_that_of_the_profile(both: Any) -> None:
    sizes = [both.get_device_memory_size_for_profile_v2(i) for i in range(2)]
    assert sizes[0] > sizes[1]
    assert both.device_memory_size_v2 == max(sizes)


def test_equal_choices_share_a_sequence() -> None:
    profiles = [LONG, ONE, (2, 32, 40), (1, 48, 50)]
    plan = build(profiles, level=0)
    one = build([LONG], level=0)
    engine = load(plan)
    assert "OtherProfiles" not in information(engine)
    assert plan.nbytes < one.nbytes + 500
    context = engine.create_execution_context()
    for profile, (low, usual, high) in enumerate(profiles):
        ranges = engine.get_tensor_profile_shape("x", profile)
        assert [x[0] for x in ranges] == [low, usual, high]
        check(context, profile, {low, usual, high})


def test_profiles_of_one_sequence_need_not_be_neighbours() -> None:
    profiles = [LONG, ONE, (2, 32, 40)]
    engine = load(build(profiles, ByRows(), level=0))
    (other,) = information(engine)["OtherProfiles"]
    assert other["Profiles"] == [1]
    context = engine.create_execution_context()
    for profile in (2, 1, 0, 2):
        low, usual, high = profiles[profile]
        ranges = engine.get_tensor_profile_shape("x", profile)
        assert [x[0] for x in ranges] == [low, usual, high]
        check(context, profile, {low, usual, high})
        with pytest.raises(Exception, match=f"profile {profile} allows {low} to {high}"):
            context.set_input_shape("x", (65, WIDE))


def test_addresses_and_allocators_stay(both: Any) -> None:
    class Allocator(trt.IOutputAllocator):
        def __init__(self) -> None:
            super().__init__()
            self.shapes: list[Any] = []

        def reallocate_output_async(
            self, name: str, memory: int, size: int, alignment: int, stream: int
        ) -> int:
            self.array = np.full(size // 4, np.nan, np.float32)
            return self.array.ctypes.data

        def notify_shape(self, name: str, shape: Any) -> None:
            self.shapes.append(tuple(shape))

    context = both.create_execution_context()
    allocator = Allocator()
    x = rows(1)
    context.set_input_shape("x", x.shape)
    context.set_tensor_address("x", x.ctypes.data)
    context.set_output_allocator("y", allocator)
    assert context.execute_async_v3(0)
    context.set_optimization_profile_async(1, 0)
    context.set_input_shape("x", x.shape)
    assert context.get_tensor_address("x") == x.ctypes.data
    assert context.execute_async_v3(0)
    assert allocator.shapes == [(1, WIDE)] * 2
    np.testing.assert_allclose(allocator.array[:WIDE], expected(x)[0], 1e-4, 1e-6)


def test_a_profiler_hears_of_the_profile_that_ran(both: Any) -> None:
    class Profiler(trt.IProfiler):
        def __init__(self) -> None:
            super().__init__()
            self.names: list[str] = []

        def report_layer_time(self, name: str, ms: float) -> None:
            self.names.append(name)

    context = both.create_execution_context()
    for profile in (1, 0):
        context.profiler = profiler = Profiler()
        check(context, profile, (1,))
        layers = information(both, context)["Layers"]
        assert profiler.names == [layer["Name"] for layer in layers]


def test_debug_tensors_in_each_profile() -> None:
    class Listener(trt.IDebugListener):
        def __init__(self) -> None:
            super().__init__()
            self.shapes: list[Any] = []

        def process_debug_tensor(
            self, address: int, where: Any, dtype: Any, shape: Any, name: str, stream: int
        ) -> bool:
            assert name == "middle"
            self.shapes.append(tuple(shape))
            return True

    engine = load(build([LONG, ONE], ByRows(), debug=True))
    context = engine.create_execution_context()
    listener = Listener()
    context.set_debug_listener(listener)
    context.set_tensor_debug_state("middle", True)
    check(context, 0, (5,))
    check(context, 1, (1,))
    assert context.get_debug_state("middle")
    assert listener.shapes == [(5, WIDE), (1, WIDE)]


@pytest.mark.parametrize("flags", [
    (trt.BuilderFlag.REFIT,),
    (trt.BuilderFlag.REFIT, trt.BuilderFlag.STRIP_PLAN),
])  # fmt: skip
def test_a_refit_reaches_all_profiles(flags: Any) -> None:
    plan = build([LONG, ONE], ByRows(), flags)
    weights = {name: -2 * array[:, ::-1].copy() for name, array in WEIGHTS.items()}
    engine = load(plan)
    if trt.BuilderFlag.STRIP_PLAN not in flags:
        size = sum(array.nbytes for array in WEIGHTS.values())
        assert size < plan.nbytes < 1.5 * size
        check(engine.create_execution_context(), 1, (1,))
    refitter = trt.Refitter(engine, LOGGER)
    assert sorted(refitter.get_all()[0]) == ["u", "v"]
    for name, array in weights.items():
        assert refitter.set_weights(name, trt.WeightsRole.CONSTANT, array)
    assert refitter.refit_cuda_engine()
    context = engine.create_execution_context()
    check(context, 0, (1, 20), weights)
    check(context, 1, (1,), weights)


def test_mistakes_in_any_profile_are_found_first() -> None:
    class Never(ByRows):
        def select_algorithms(self, context: Any, choices: Any) -> Any:
            raise AssertionError("a kernel was timed")

    with pytest.raises(Exception, match="profile 1 gives dimension 1 of input 'x'"):
        builder = trt.Builder(LOGGER)
        network = builder.create_network()
        x = network.add_input("x", trt.float32, (-1, WIDE))
        soft = network.add_softmax(x)
        network.mark_output(soft.get_output(0))
        config = builder.create_builder_config()
        config.algorithm_selector = Never()
        for wide in (WIDE, WIDE + 1):
            profile = builder.create_optimization_profile()
            profile.set_shape("x", (1, wide), (2, wide), (3, wide))
            config.add_optimization_profile(profile)
        builder.build_serialized_network(network, config)


def test_branches_and_loops_have_each_profile() -> None:
    """y = x + 1 if flag else x - 1, and z = x multiplied by 2 in a loop of n."""
    builder = trt.Builder(LOGGER)
    network = builder.create_network()
    x = network.add_input("x", trt.float32, (-1, 3))
    flag = network.add_input("flag", trt.bool, ())
    one = network.add_constant((1, 1), np.ones((1, 1), np.float32)).get_output(0)
    branch = network.add_if_conditional()
    branch.set_condition(flag)
    inside = branch.add_input(x).get_output(0)
    more = network.add_elementwise(inside, one, trt.ElementWiseOperation.SUM)
    less = network.add_elementwise(inside, one, trt.ElementWiseOperation.SUB)
    y = branch.add_output(more.get_output(0), less.get_output(0)).get_output(0)
    count = network.add_input("n", trt.int32, ())
    loop = network.add_loop()
    loop.add_trip_limit(count, trt.TripLimit.COUNT)
    state = loop.add_recurrence(x)
    twice = network.add_elementwise(
        state.get_output(0), state.get_output(0), trt.ElementWiseOperation.SUM
    )
    state.set_input(1, twice.get_output(0))
    z = loop.add_loop_output(state.get_output(0), trt.LoopOutput.LAST_VALUE).get_output(0)
    y.name, z.name = "y", "z"
    network.mark_output(y)
    network.mark_output(z)
    config = builder.create_builder_config()
    config.device = "cpu"
    for low, usual, high in [(1, 40, 50), (1, 1, 1)]:
        profile = builder.create_optimization_profile()
        profile.set_shape("x", (low, 3), (usual, 3), (high, 3))
        config.add_optimization_profile(profile)
    engine = load(builder.build_serialized_network(network, config))
    context = engine.create_execution_context()
    for profile, size, yes, times in [(0, 50, 1, 3), (1, 1, 0, 70), (0, 2, 0, 0), (1, 1, 1, 5)]:
        context.set_optimization_profile_async(profile, 0)
        given = np.full((size, 3), 1.5, np.float32)
        arrays = {
            "x": given, "flag": np.array(yes, bool), "n": np.array(times, np.int32),
            "y": np.empty_like(given), "z": np.empty_like(given),
        }  # fmt: skip
        context.set_input_shape("x", given.shape)
        for name, array in arrays.items():
            context.set_tensor_address(name, array.ctypes.data)
        assert context.execute_async_v3(0)
        np.testing.assert_array_equal(arrays["y"], given + (1 if yes else -1))
        np.testing.assert_array_equal(arrays["z"], given * np.float32(2.0**times))
    assert engine.get_device_memory_size_for_profile_v2(0) > 0


def test_a_call_uses_the_narrowest_profile(tmp_path: Any) -> None:
    profiles = [LONG, ONE, (1, 8, 10)]
    (tmp_path / "three.plan").write_bytes(build(profiles, ByRows()))
    model = trt.load(tmp_path / "three.plan")
    context = model.engine.create_execution_context()
    for count, profile in [(64, 0), (1, 1), (5, 2), (1, 1), (64, 0), (10, 2), (11, 0)]:
        np.testing.assert_allclose(model(rows(count)), expected(rows(count)), 1e-4, 1e-6)
        context.set_optimization_profile_async(profile, 0)
        layers = information(model.engine, context)["Layers"]
        ran = [name for name, _ in model.profile(rows(count))]
        assert ran == [layer["Name"] for layer in layers]
