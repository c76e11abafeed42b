"""Algorithm selectors: a choice that is made is the one in the engine."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import rabbet as trt


class Keeps(trt.IAlgorithmSelector):
    """Keeps what it sees; `choose(context, choices)` chooses."""

    def __init__(self, choose: Any = None) -> None:
        super().__init__()
        self.choose = choose
        self.asked: dict[str, list[trt.IAlgorithm]] = {}
        self.contexts: dict[str, trt.IAlgorithmContext] = {}
        self.taken: dict[str, trt.IAlgorithm] = {}

    def select_algorithms(self, context: Any, choices: Any) -> Any:
        assert context.name not in self.asked
        self.asked[context.name] = choices
        self.contexts[context.name] = context
        if self.choose is None:
            return super().select_algorithms(context, choices)
        return self.choose(context, choices)

    def report_algorithms(self, contexts: Any, choices: Any) -> None:
        assert len(contexts) == len(choices)
        for context, choice in zip(contexts, choices, strict=True):
            self.taken[context.name] = choice


def build(selector: Any, level: int = 3, flags: int = 0, batch: bool = False) -> Any:
    """(engine, report) of y = relu(conv(x) * 0.5), softmax of it beside."""
    random = np.random.default_rng(0)
    builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
    network = builder.create_network()
    x = network.add_input("x", trt.float32, (-1 if batch else 2, 16, 12, 12))
    weights = random.standard_normal((16, 16, 3, 3)).astype(np.float32)
    conv = network.add_convolution_nd(x, 16, (3, 3), weights / 12)
    conv.name, conv.padding_nd = "conv", (1, 1)
    relu = network.add_activation(conv.get_output(0), trt.ActivationType.RELU)
    relu.name = "relu"
    soft = network.add_softmax(relu.get_output(0))
    soft.name = "soft"
    soft.get_output(0).name = "y"
    network.mark_output(soft.get_output(0))
    config = builder.create_builder_config()
    config.device, config.threads = "cpu", 1
    config.builder_optimization_level = level
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    config.flags |= flags
    if batch:
        profile = builder.create_optimization_profile()
        profile.set_shape("x", *((n, 16, 12, 12) for n in (1, 2, 4)))
        config.add_optimization_profile(profile)
    config.algorithm_selector = selector
    assert config.algorithm_selector is selector
    plan = builder.build_serialized_network(network, config)
    runtime = trt.Runtime(trt.Logger(trt.Logger.ERROR))
    return runtime.deserialize_cuda_engine(plan), json.loads(builder.report_json)


def run(engine: Any) -> Any:
    x = np.random.default_rng(1).standard_normal((2, 16, 12, 12)).astype(np.float32)
    y = np.empty_like(x)
    context = engine.create_execution_context()
    context.set_input_shape("x", x.shape)
    context.set_tensor_address("x", x.ctypes.data)
    context.set_tensor_address("y", y.ctypes.data)
    context.execute_async_v3(0)
    return y


def steps(report: Any) -> dict[str, Any]:
    return {step["name"]: step for step in report["steps"]}


def inspected(engine: Any) -> str:
    inspector = engine.create_engine_inspector()
    return inspector.get_engine_information(  # type: ignore[no-any-return]
        trt.LayerInformationFormat.JSON
    )


EXPECTED = run(build(None)[0])


def test_what_it_sees() -> None:
    selector = Keeps()
    engine, report = build(selector, batch=True)
    np.testing.assert_allclose(run(engine), EXPECTED, rtol=1e-4)
    # Groups of layers and layers alone are asked about, each once.
    assert {"conv", "relu", "conv + relu", "soft"} <= selector.asked.keys()
    context = selector.contexts["conv + relu"]
    assert (context.num_inputs, context.num_outputs) == (1, 1)
    shapes = [(n, 16, 12, 12) for n in (1, 2, 4)]
    assert [tuple(dims) for dims in context.get_shape(0)] == shapes
    assert [tuple(dims) for dims in context.get_shape(1)] == shapes
    with pytest.raises(IndexError, match=r"'conv \+ relu': tensor 2, there are 2"):
        context.get_shape(2)
    choices = selector.asked["conv + relu"]
    assert len(choices) > 1
    for choice in choices:
        assert choice.timing_msec > 0
        assert choice.algorithm_variant.implementation > 0
        kernel = choice.algorithm_variant.name.split()[0]
        assert kernel in ("dnnl.convolution", "cpu.convolution.winograd")
        assert str(choice.algorithm_variant.name) in repr(choice)
        info = choice.get_algorithm_io_info(0)
        assert info.dtype is trt.float32
        c, h, w = 16, 12, 12
        strides, axis, together = {
            trt.TensorFormat.LINEAR: ((c * h * w, h * w, w, 1), -1, 1),
            trt.TensorFormat.HWC: ((c * h * w, 1, w * c, c), -1, 1),
            trt.TensorFormat.CHW8: ((c // 8 * h * w, h * w, w, 1), 1, 8),
            trt.TensorFormat.CHW16: ((c // 16 * h * w, h * w, w, 1), 1, 16),
        }[info.tensor_format]
        assert tuple(info.strides) == strides
        assert info.vectorized_dim == axis
        assert info.components_per_element == together
        with pytest.raises(IndexError, match="tensor 2, there are 2"):
            choice.get_algorithm_io_info(2)
    # The report names the same tactics, for all but conversions.
    table = {
        name: step for name, step in steps(report).items() if "convert" not in name
    }
    assert selector.taken.keys() == table.keys()
    for name, choice in selector.taken.items():
        step = table[name]
        assert choice.algorithm_variant.name == f"{step['kernel']} {step['tactic_name']}"
        assert choice.algorithm_variant.tactic == step["tactic"]
        assert choice.timing_msec == pytest.approx(step["time_us"] / 1000, rel=0.01)
        assert choice.workspace_size == step["workspace"]


def test_numbers_are_the_same_in_all_builds() -> None:
    def numbers(selector: Any) -> Any:
        return {
            (name, v.implementation, v.tactic, v.name)
            for name, choices in selector.asked.items()
            for v in (choice.algorithm_variant for choice in choices)
        }

    first, second = Keeps(), Keeps()
    build(first)
    build(second)
    assert numbers(first) == numbers(second)


@pytest.mark.parametrize("level", [0, 1, 3, 5])
def test_each_choice_is_taken(level: int) -> None:
    """Every way to compute the convolution, chosen in turn, is the one in the engine."""
    # At small levels smaller groups are not looked at where a large one works.
    name = "conv + relu"
    seen = Keeps()
    build(seen, level)
    count = len(seen.asked[name])
    assert count > 1
    for wanted in {0, count // 2, count - 1}:
        selector = Keeps(
            lambda context, choices, wanted=wanted: [wanted]
            if context.name == name
            else list(range(len(choices)))
            if "conv" not in context.name
            else []
        )
        engine, report = build(selector, level)
        variant = selector.asked[name][wanted].algorithm_variant
        assert selector.taken[name].algorithm_variant.tactic == variant.tactic
        assert steps(report)[name]["tactic"] == variant.tactic
        _, _, tactic = variant.name.partition(" ")
        assert tactic in inspected(engine)
        np.testing.assert_allclose(run(engine), EXPECTED, rtol=1e-3, atol=1e-6)


def test_refused_groups_are_divided() -> None:
    """An empty choice for fused layers leaves them to run one by one."""
    selector = Keeps(
        lambda context, choices: [] if "+" in context.name else range(len(choices))
    )
    engine, report = build(selector)
    assert {"conv", "relu"} <= steps(report).keys()
    assert {"conv", "relu", "soft"} <= selector.taken.keys()
    np.testing.assert_allclose(run(engine), EXPECTED, rtol=1e-4)


def test_replaying() -> None:
    """A build takes the tactics that another reported: a tactic replayer."""
    recorder = Keeps(lambda context, choices: [len(choices) - 1])
    build(recorder)

    def variant(choice: Any) -> Any:
        v = choice.algorithm_variant
        infos = [choice.get_algorithm_io_info(i) for i in range(2)]
        return v.implementation, v.tactic, [(i.dtype, i.tensor_format) for i in infos]

    def replay(context: Any, choices: Any) -> Any:
        taken = recorder.taken.get(context.name)
        return [
            i for i, choice in enumerate(choices)
            if taken is not None and variant(choice) == variant(taken)
        ]  # fmt: skip

    player = Keeps(replay)
    build(player)
    assert {k: variant(c) for k, c in player.taken.items()} == {
        k: variant(c) for k, c in recorder.taken.items()
    }


def test_each_choice_is_right_in_all_shapes() -> None:
    """At the usual shape a row of one channel and one column lies as any format has it."""

    def made(selector: Any) -> trt.ICudaEngine:
        builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
        network = builder.create_network()
        x = network.add_input("x", trt.float32, (4, -1, 5, -1))
        row = network.add_input("row", trt.float32, (1, -1, 5, -1))
        for tensor in (x, row):
            tensor.allowed_formats = 1 << int(trt.TensorFormat.LINEAR)
        layer = network.add_elementwise(x, row, trt.ElementWiseOperation.SUM)
        layer.name, layer.get_output(0).name = "sum", "y"
        network.mark_output(layer.get_output(0))
        config = builder.create_builder_config()
        config.device, config.algorithm_selector = "cpu", selector
        profile = builder.create_optimization_profile()
        for name, n in (("x", 4), ("row", 1)):
            profile.set_shape(name, (n, 1, 5, 1), (n, 1, 5, 1), (n, 6, 5, 3))
        config.add_optimization_profile(profile)
        return builder.build_engine_with_config(network, config)

    seen = Keeps()
    made(seen)
    random = np.random.default_rng(0)
    for wanted in range(len(seen.asked["sum"])):
        model = trt.Model(made(Keeps(lambda context, choices, wanted=wanted: [wanted])))
        for c, w in ((1, 1), (6, 3), (1, 2), (4, 1)):
            x, row = (random.standard_normal((n, c, 5, w)).astype(np.float32) for n in (4, 1))
            np.testing.assert_array_equal(model(x, row), x + row)


# ---- Mistakes


def test_no_way_left() -> None:
    with pytest.raises(
        trt.FailedPreconditionError,
        match=r"selector chose none of \d+ algorithms for 'soft', and left no other way",
    ):
        build(Keeps(lambda context, choices: [] if context.name == "soft" else [0]))


def test_the_flag_for_empty_choices() -> None:
    flag = 1 << int(trt.BuilderFlag.REJECT_EMPTY_ALGORITHMS)
    build(Keeps(), flags=flag)
    with pytest.raises(
        trt.FailedPreconditionError,
        match=r"choosing algorithms for 'conv \+ relu'.*|REJECT_EMPTY_ALGORITHMS",
    ):
        build(
            Keeps(lambda c, choices: [] if "+" in c.name else range(len(choices))),
            flags=flag,
        )


@pytest.mark.parametrize(("answer", "error", "message"), [
    (None, TypeError, r"Keeps.select_algorithms, for <'.*'>: expected a list of indices"),
    (["a"], TypeError, r"expected a list of indices, got \['a'\]"),
    ([1.5], TypeError, r"got \[1.5\]"),
    (7, TypeError, "expected a list of indices, got 7"),
    ([9999], IndexError, "there is no algorithm 9999 among"),
    ([-1], IndexError, "there is no algorithm -1 among"),
])  # fmt: skip
def test_wrong_answers(answer: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        build(Keeps(lambda context, choices: answer))


def test_answers_of_all_kinds() -> None:
    for answer in ((0,), np.array([0]), {0}, [0, 0], range(1)):
        selector = Keeps(lambda context, choices, answer=answer: answer)
        build(selector)
        assert selector.taken


def test_what_a_selector_raises() -> None:
    def fail(context: Any, choices: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        build(Keeps(fail))

    class Reports(trt.IAlgorithmSelector):
        def report_algorithms(self, contexts: Any, choices: Any) -> None:
            raise ZeroDivisionError("late")

    with pytest.raises(ZeroDivisionError, match="late"):
        build(Reports())


def test_the_property() -> None:
    config = trt.Builder().create_builder_config()
    assert config.algorithm_selector is None
    with pytest.raises(TypeError, match="expected an IAlgorithmSelector, got 1"):
        config.algorithm_selector = 1
    config.algorithm_selector = trt.IAlgorithmSelector()
    config.reset()
    assert config.algorithm_selector is None
