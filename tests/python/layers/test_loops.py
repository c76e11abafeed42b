"""Loops of networks, against NumPy and torch."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import rabbet as trt
import rabbet.plugin as trtp

from tests.python.support.plugins import build, random
from tests.python.support.run_loops import (
    COUNT,
    LAST,
    LESS,
    OP,
    PROD,
    REVERSE,
    STACK,
    WHILE,
    calculate,
    constant,
    out,
    runner,
)


def counted(network: Any, trips: int, dtype: Any = np.int32) -> trt.ILoop:
    loop = network.add_loop()
    loop.add_trip_limit(constant(network, trips, dtype), COUNT)
    return loop  # type: ignore[no-any-return]


def outputs_of(make: Any, *values: Any, **options: Any) -> list[Any]:
    """All outputs of a network that `make(network, *tensors)` makes."""
    return runner("cpu", make, *values, **options)(*values)  # type: ignore[no-any-return]


# ---- What loops compute


@pytest.mark.parametrize("trips", [-1, 0, 1, 2, 5])
def test_last_value_of_a_counted_loop(trips: int) -> None:
    x = random(3, 4)

    def make(network: Any, tensor: Any) -> Any:
        loop = counted(network, trips)
        state = loop.add_recurrence(tensor)
        half = constant(network, [[0.5]])
        state.set_input(
            1, calculate(network, calculate(network, out(state), half, PROD), tensor)
        )
        states = loop.add_loop_output(out(state), STACK)
        return out(loop.add_loop_output(out(state), LAST)), out(states)

    wanted = [x]
    for _ in range(trips):
        wanted.append(wanted[-1] * np.float32(0.5) + x)
    last, states = outputs_of(make, x)
    np.testing.assert_allclose(last, wanted[-1], rtol=1e-6)
    np.testing.assert_allclose(
        states, np.reshape(wanted[:-1], (-1, *x.shape)), rtol=1e-6
    )


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", [STACK, REVERSE])
def test_iterators_and_stacks(axis: int, reverse: bool, kind: Any) -> None:
    x = random(3, 4)

    def make(network: Any, tensor: Any) -> Any:
        steps = x.shape[axis]
        loop = counted(network, steps, np.int64)
        each = loop.add_iterator(tensor, axis % 2, reverse)
        total = loop.add_recurrence(constant(network, np.zeros(7 - steps)))
        total.set_input(1, calculate(network, out(total), out(each)))
        sums = loop.add_loop_output(total.get_input(1), kind, axis)
        return out(sums), out(loop.add_loop_output(out(total), LAST))

    slices = [np.take(x, i, axis) for i in range(x.shape[axis])]
    sums = np.cumsum(slices[::-1] if reverse else slices, 0)
    stacked, last = outputs_of(make, x)
    np.testing.assert_allclose(last, sums[-1], rtol=1e-5)
    wanted = np.stack(sums[::-1] if kind is REVERSE else sums, axis)
    np.testing.assert_allclose(stacked, wanted, rtol=1e-5)


def test_while_of_what_constants_give() -> None:
    """Collatz: as many steps as the numbers take, and what comes behind is 0."""
    steps = [6, 3, 10, 5, 16, 8, 4, 2]
    x = random(2)

    def make(network: Any, tensor: Any) -> Any:
        loop = network.add_loop()
        number = loop.add_recurrence(constant(network, 6, np.int32))
        value = loop.add_recurrence(tensor)
        one, two, three = (constant(network, i, np.int32) for i in (1, 2, 3))
        n = out(number)
        half = calculate(network, n, two, OP.DIV)
        odd = calculate(network, n, calculate(network, half, two, PROD), OP.SUB)
        more = calculate(network, calculate(network, n, three, PROD), one)
        is_odd = calculate(network, odd, one, OP.EQUAL)
        number.set_input(1, out(network.add_select(is_odd, more, half)))
        limit = loop.add_trip_limit(calculate(network, n, one, OP.GREATER), WHILE)
        assert limit.kind is WHILE
        assert limit.loop == loop
        value.set_input(1, calculate(network, out(value), constant(network, [2]), PROD))
        numbers = loop.add_loop_output(n, STACK)
        assert numbers.num_inputs == 1
        numbers.set_input(1, constant(network, 10, np.int32))
        assert numbers.num_inputs == 2
        return out(numbers), out(loop.add_loop_output(out(value), LAST))

    numbers, value = outputs_of(make, x)
    assert numbers.tolist() == [*steps, 0, 0]
    np.testing.assert_allclose(value, x * 2 ** len(steps))


def test_loops_end_at_whichever_limit_comes_first() -> None:
    def make(network: Any, tensor: Any) -> Any:
        results = []
        for count, below in ((3, 100), (9, 2)):
            loop = counted(network, count)
            at = loop.add_recurrence(constant(network, 0, np.int64))
            at.set_input(1, calculate(network, out(at), constant(network, 1, np.int64)))
            goes_on = calculate(
                network, out(at), constant(network, below, np.int64), LESS
            )
            loop.add_trip_limit(goes_on, WHILE)
            value = loop.add_recurrence(tensor)
            value.set_input(1, calculate(network, out(value), tensor))
            results.append(out(loop.add_loop_output(out(value), LAST)))
            results.append(out(loop.add_loop_output(out(at), STACK)))
        return tuple(results)

    x = random(2)
    first, firsts, second, seconds = outputs_of(make, x)
    np.testing.assert_allclose(first, 4 * x, rtol=1e-6)
    np.testing.assert_allclose(second, 3 * x, rtol=1e-6)
    assert firsts.tolist() == [0, 1, 2]
    # Its length is the count: the rest did not run.
    assert seconds.tolist() == [0, 1] + [0] * 7


def test_nested_loops_whose_inner_count_is_the_outer_state() -> None:
    """Sum of i * x for i below 4, each product by additions."""
    x = random(2, 3)

    def make(network: Any, tensor: Any) -> Any:
        outer = counted(network, 4)
        outer.name = "outer"
        i = outer.add_recurrence(constant(network, 0, np.int32))
        total = outer.add_recurrence(constant(network, np.zeros((2, 3))))
        inner = network.add_loop()
        inner.name = "inner"
        inner.add_trip_limit(out(i), COUNT)
        part = inner.add_recurrence(constant(network, np.zeros((2, 3))))
        part.set_input(1, calculate(network, out(part), tensor))
        product = out(inner.add_loop_output(out(part), LAST))
        total.set_input(1, calculate(network, out(total), product))
        i.set_input(1, calculate(network, out(i), constant(network, 1, np.int32)))
        products = outer.add_loop_output(product, STACK, 1)
        return out(outer.add_loop_output(out(total), LAST)), out(products)

    total, products = outputs_of(make, x)
    np.testing.assert_allclose(total, 6 * x, rtol=1e-5)
    wanted = np.stack([i * x for i in range(4)], 1)
    np.testing.assert_allclose(products, wanted, rtol=1e-5)


def test_inner_loops_over_slices_of_outer_ones() -> None:
    """A prefix sum of a matrix: rows, then each row's elements."""
    x = random(3, 4)

    def make(network: Any, tensor: Any) -> Any:
        outer = counted(network, 3)
        row = outer.add_iterator(tensor)
        above = outer.add_recurrence(constant(network, np.zeros(4)))
        summed = calculate(network, out(above), out(row))
        above.set_input(1, summed)
        inner = counted(network, 4)
        cell = inner.add_iterator(summed)
        left = inner.add_recurrence(constant(network, 0))
        left.set_input(1, calculate(network, out(left), out(cell)))
        sums = inner.add_loop_output(left.get_input(1), STACK)
        return out(outer.add_loop_output(out(sums), STACK))

    found = outputs_of(make, x)[0]
    np.testing.assert_allclose(found, x.cumsum(0).cumsum(1), rtol=1e-5, atol=1e-6)


def test_a_recurrent_network() -> None:
    torch = pytest.importorskip("torch")
    steps, batch, size = 5, 2, 6
    cell = torch.nn.LSTM(size, size)
    x = random(steps, batch, size)
    weights = {name: p.detach().numpy() for name, p in cell.named_parameters()}

    def make(network: Any, tensor: Any) -> Any:
        none, turned = trt.MatrixOperation.NONE, trt.MatrixOperation.TRANSPOSE
        loop = counted(network, steps)
        loop.name = "lstm"
        each = out(loop.add_iterator(tensor))
        hidden, state = (
            loop.add_recurrence(constant(network, np.zeros((batch, size))))
            for _ in range(2)
        )
        terms = [
            out(
                network.add_matrix_multiply(
                    a, none, constant(network, weights[w]), turned
                )
            )
            for a, w in ((each, "weight_ih_l0"), (out(hidden), "weight_hh_l0"))
        ]
        bias = weights["bias_ih_l0"] + weights["bias_hh_l0"]
        gates = calculate(
            network, calculate(network, *terms), constant(network, bias[None])
        )
        parts = [
            out(network.add_slice(gates, (0, i * size), (batch, size), (1, 1)))
            for i in range(4)
        ]
        kinds = [trt.ActivationType.SIGMOID, trt.ActivationType.TANH]
        i, f, g, o = (
            out(network.add_activation(part, kinds[at == 2]))
            for at, part in enumerate(parts)
        )
        new = calculate(
            network,
            calculate(network, f, out(state), PROD),
            calculate(network, i, g, PROD),
        )
        shown = calculate(network, o, out(network.add_activation(new, kinds[1])), PROD)
        state.set_input(1, new)
        hidden.set_input(1, shown)
        return (
            out(loop.add_loop_output(shown, STACK)),
            out(loop.add_loop_output(out(hidden), LAST)),
            out(loop.add_loop_output(out(state), LAST)),
        )

    with torch.no_grad():
        every, (h, c) = cell(torch.from_numpy(x))
    for found, wanted in zip(outputs_of(make, x), (every, h[0], c[0]), strict=True):
        np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-4, atol=1e-5)


def test_outputs_may_be_added_before_the_body() -> None:
    def make(network: Any, tensor: Any) -> Any:
        loop = network.add_loop()
        state = loop.add_recurrence(tensor)
        every = loop.add_loop_output(out(state), STACK)
        last = loop.add_loop_output(out(state), LAST)
        doubled = calculate(network, out(last), out(last))
        step = out(network.add_unary(tensor, trt.UnaryOperation.NEG))
        state.set_input(1, calculate(network, out(state), step))
        loop.add_trip_limit(constant(network, 3, np.int32), COUNT)
        assert tuple(out(every).shape) == (3, 2)
        return out(every), doubled

    x = random(2)
    every, doubled = outputs_of(make, x)
    np.testing.assert_allclose(every, np.stack([x, 0 * x, -x]), atol=1e-6)
    np.testing.assert_allclose(doubled, -4 * x, rtol=1e-5)


def test_shapes_may_be_dynamic_where_counts_are_not() -> None:
    def network_of(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (-1, 3, -1))
        loop = counted(network, 3)
        each = loop.add_iterator(x, 1, True)
        state = loop.add_recurrence(
            out(network.add_reduce(x, trt.ReduceOperation.SUM, 2, False))
        )
        state.set_input(1, calculate(network, out(state), out(each), PROD))
        return (
            out(loop.add_loop_output(state.get_input(1), STACK, 1)),
            out(loop.add_loop_output(out(state), LAST)),
        )

    model = build(network_of, shapes={"x": [(1, 3, 1), (2, 3, 4), (4, 3, 8)]})
    for shape in ((2, 3, 4), (4, 3, 1)):
        x = random(*shape)
        state, states = x.sum(1), []
        for i in (2, 1, 0):
            state = state * x[:, i]
            states.append(state)
        every, last = model(x)
        np.testing.assert_allclose(every, np.stack(states, 1), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(last, state, rtol=1e-5, atol=1e-6)


def test_counts_that_follow_from_fixed_shapes() -> None:
    def make(network: Any, tensor: Any) -> Any:
        at = constant(network, 1, np.int32)
        count = out(network.add_gather(out(network.add_shape(tensor)), at, 0))
        loop = network.add_loop()
        loop.add_trip_limit(count, COUNT)
        each = loop.add_iterator(tensor, 1)
        return out(loop.add_loop_output(out(each), REVERSE, 1))

    x = random(2, 5)
    assert np.array_equal(outputs_of(make, x)[0], x[:, ::-1])


def test_loops_that_do_not_run_make_empty_stacks() -> None:
    def make(network: Any, tensor: Any) -> Any:
        loop = counted(network, 0)
        state = loop.add_recurrence(tensor)
        state.set_input(1, calculate(network, out(state), tensor))
        return out(loop.add_loop_output(out(state), STACK, 1)), out(
            loop.add_loop_output(out(state), LAST)
        )

    x = random(2, 3)
    stack, last = outputs_of(make, x)
    assert stack.shape == (2, 0, 3)
    assert np.array_equal(last, x)


@trtp.register("loops::doubled")
def doubled(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()


@trtp.impl("loops::doubled")
def doubled_impl(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
    np.asarray(outputs[0])[...] = 2 * np.asarray(x)


def test_plugins_within_loops_run_in_each_iteration() -> None:
    def make(network: Any, tensor: Any) -> Any:
        loop = counted(network, 3)
        state = loop.add_recurrence(tensor)
        state.set_input(1, out(network.add_plugin(trtp.op.loops.doubled(out(state)))))
        return out(loop.add_loop_output(out(state), LAST))

    x = random(2)
    np.testing.assert_allclose(outputs_of(make, x)[0], x * 8, rtol=1e-6)


def test_conditions_of_inner_loops_and_slices() -> None:
    """An inner loop counts what the outer one has; the table ends after it."""

    def make(network: Any, tensor: Any) -> Any:
        outer = network.add_loop()
        one = constant(network, 1, np.int32)
        at = outer.add_recurrence(constant(network, 0, np.int32))
        step = outer.add_iterator(constant(network, [1, 1, 1, 1], np.int32))
        inner = network.add_loop()
        inner.add_trip_limit(out(at), COUNT)
        count = inner.add_recurrence(constant(network, 0, np.int32))
        count.set_input(1, calculate(network, out(count), one))
        counted_up = out(inner.add_loop_output(out(count), LAST))
        total = calculate(network, counted_up, out(step))
        limit = constant(network, 4, np.int32)
        outer.add_trip_limit(calculate(network, total, limit, LESS), WHILE)
        value = outer.add_recurrence(tensor)
        value.set_input(1, calculate(network, out(value), tensor))
        at.set_input(1, calculate(network, out(at), one))
        return out(outer.add_loop_output(out(value), LAST))

    x = random(3)
    np.testing.assert_allclose(outputs_of(make, x)[0], 4 * x, rtol=1e-6)


def test_weights_within_loops_are_refitted_once() -> None:
    builder = trt.Builder(trt.Logger())
    network = builder.create_network()
    x = network.add_input("x", trt.float32, (2, 3))
    loop = counted(network, 3)
    state = loop.add_recurrence(x)
    weights = network.add_constant((3, 3), 2 * np.eye(3, dtype=np.float32))
    weights.get_output(0).name = "W"
    none = trt.MatrixOperation.NONE
    product = network.add_matrix_multiply(out(state), none, out(weights), none)
    state.set_input(1, out(product))
    network.mark_output(out(loop.add_loop_output(out(state), LAST)))
    config = builder.create_builder_config()
    config.device = "cpu"
    config.set_flag(trt.BuilderFlag.REFIT)
    engine = builder.build_engine_with_config(network, config)
    value = np.ones((2, 3), np.float32)
    np.testing.assert_allclose(trt.Model(engine)(value), 8 * value)
    refitter = trt.Refitter(engine, trt.Logger())
    assert refitter.get_all_weights() == ["W"]
    refitter.set_named_weights("W", trt.Weights(3 * np.eye(3, dtype=np.float32)))
    assert refitter.refit_cuda_engine()
    np.testing.assert_allclose(trt.Model(engine)(value), 27 * value)


# ---- As objects


def test_the_layers_of_a_loop() -> None:
    network = trt.Builder(trt.Logger()).create_network()
    x = network.add_input("x", trt.float32, (2, 3))
    loop = network.add_loop()
    assert loop.name == "loop_0"
    assert network.add_loop().name == "loop_1"
    with pytest.raises(trt.Error, match="there is a loop named 'loop_1' already"):
        loop.name = "loop_1"
    loop.name = "rows"
    limit = loop.add_trip_limit(constant(network, 2, np.int32), COUNT)
    state = loop.add_recurrence(x)
    each = loop.add_iterator(x, axis=1, reverse=True)
    last = loop.add_loop_output(out(state), LAST)
    every = loop.add_loop_output(out(each), STACK, axis=1)
    for layer, kind, type_ in (
        (limit, trt.ITripLimitLayer, trt.LayerType.TRIP_LIMIT),
        (state, trt.IRecurrenceLayer, trt.LayerType.RECURRENCE),
        (each, trt.IIteratorLayer, trt.LayerType.ITERATOR),
        (last, trt.ILoopOutputLayer, trt.LayerType.LOOP_OUTPUT),
    ):
        assert type(layer) is kind
        assert isinstance(layer, trt.ILoopBoundaryLayer)
        assert layer.type is type_
        assert layer.loop == loop
        assert layer.loop.name == "rows"
    assert hash(limit.loop) == hash(loop)
    assert limit.num_outputs == 0
    assert (each.axis, each.reverse) == (1, True)
    assert tuple(out(each).shape) == (2,)
    each.axis, each.reverse = 0, False
    assert (each.axis, each.reverse, tuple(out(each).shape)) == (0, False, (3,))
    assert (last.kind, every.kind, every.axis) == (LAST, STACK, 1)
    assert tuple(out(every).shape) == (3, 2)
    every.axis = 0
    assert tuple(out(every).shape) == (2, 3)
    assert (state.num_inputs, state.get_input(1)) == (1, None)
    state.set_input(1, out(network.add_identity(out(state))))
    assert state.num_inputs == 2
    assert state.get_input(1).producer.name == "identity_6"
    assert [type(layer) for layer in network][2] is trt.IRecurrenceLayer


def test_layers_are_named_by_loop_and_iteration() -> None:
    network = trt.Builder(trt.Logger()).create_network()
    x = network.add_input("x", trt.float32, (64, 64))
    loop = counted(network, 2)
    loop.name = "steps"
    state = loop.add_recurrence(x)
    none = trt.MatrixOperation.NONE
    product = network.add_matrix_multiply(out(state), none, x, none)
    product.name = "product"
    state.set_input(1, out(product))
    last = loop.add_loop_output(out(state), LAST)
    out(last).name = "y"
    network.mark_output(out(last))
    model = trt.compile(network, device="cpu")
    text = model.engine.create_engine_inspector().get_engine_information(
        trt.LayerInformationFormat.JSON
    )
    names = json.dumps(json.loads(text)["Layers"])
    assert "steps[0]/product" in names
    assert "steps[1]/product" in names
    assert "steps[2]" not in names


# ---- Mistakes


def body(network: Any, loop: Any, x: Any) -> Any:
    state = loop.add_recurrence(x)
    state.set_input(1, calculate(network, out(state), x))
    return state


def no_limit(network: Any, x: Any) -> Any:
    loop = network.add_loop()
    return out(loop.add_loop_output(out(body(network, loop, x)), LAST))


def no_next(network: Any, x: Any) -> Any:
    loop = counted(network, 2)
    return out(loop.add_loop_output(out(loop.add_recurrence(x)), LAST))


def other_shape(network: Any, x: Any) -> Any:
    loop = counted(network, 2)
    state = loop.add_recurrence(x)
    joined = network.add_concatenation([out(state), x])
    joined.axis = 0
    state.set_input(1, out(joined))
    return out(loop.add_loop_output(out(state), LAST))


def other_type(network: Any, x: Any) -> Any:
    loop = counted(network, 2)
    state = loop.add_recurrence(x)
    state.set_input(1, out(network.add_cast(out(state), trt.int32)))
    return out(loop.add_loop_output(out(state), LAST))


def last_of_no_recurrence(network: Any, x: Any) -> Any:
    loop = counted(network, 2)
    state = body(network, loop, x)
    return out(loop.add_loop_output(state.get_input(1), LAST))


def leaves_by_itself(network: Any, x: Any) -> Any:
    loop = counted(network, 2)
    return body(network, loop, x).get_input(1)


def initial_from_inside(network: Any, x: Any) -> Any:
    loop = counted(network, 2)
    state = body(network, loop, x)
    other = loop.add_recurrence(state.get_input(1))
    other.set_input(1, out(other))
    return out(loop.add_loop_output(out(other), LAST))


def too_many_slices(network: Any, x: Any) -> Any:
    loop = counted(network, 5)
    loop.name = "rows"
    return out(loop.add_loop_output(out(loop.add_iterator(x)), STACK))


def too_short(network: Any, x: Any) -> Any:
    loop = counted(network, 3)
    every = loop.add_loop_output(out(body(network, loop, x)), STACK)
    every.set_input(1, constant(network, 2, np.int32))
    return out(every)


def no_length(network: Any, x: Any) -> Any:
    loop = network.add_loop()
    flag = loop.add_recurrence(constant(network, True, np.bool_))
    flag.set_input(1, out(network.add_unary(out(flag), trt.UnaryOperation.NOT)))
    loop.add_trip_limit(out(flag), WHILE)
    return out(loop.add_loop_output(out(body(network, loop, x)), STACK))


def endless(network: Any, x: Any) -> Any:
    loop = network.add_loop()
    loop.add_trip_limit(constant(network, True, np.bool_), WHILE)
    return out(loop.add_loop_output(out(body(network, loop, x)), LAST))


def limit_of_wrong_type(network: Any, x: Any) -> Any:
    loop = network.add_loop()
    loop.add_trip_limit(constant(network, [3], np.int32), COUNT)
    return out(loop.add_loop_output(out(body(network, loop, x)), LAST))


def crossed(network: Any, x: Any) -> Any:
    a, b = counted(network, 2), counted(network, 2)
    first, second = a.add_recurrence(x), b.add_recurrence(x)
    both = calculate(network, out(first), out(second))
    first.set_input(1, both)
    second.set_input(1, both)
    return out(a.add_loop_output(out(first), LAST))


def cycle(network: Any, x: Any) -> Any:
    a, b = counted(network, 2), counted(network, 2)
    first, second = a.add_recurrence(x), b.add_recurrence(x)
    second.set_input(
        1, calculate(network, out(second), out(a.add_loop_output(out(first), LAST)))
    )
    result = out(b.add_loop_output(out(second), LAST))
    first.set_input(1, calculate(network, out(first), result))
    return result


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (no_limit, "loop 'loop_0': it has no trip limit and would never end"),
        (
            no_next,
            r"loop 'loop_0': layer 'recurrence_\d' .* has no next value; .*set_input",
        ),
        (other_shape, r"loop_0'.*recurrence.* FLOAT \(2, 3\), and .* FLOAT \(4, 3\)"),
        (
            other_type,
            r"iteration 0: .* is FLOAT \(2, 3\), and its next value is INT32 \(2, 3\)",
        ),
        (last_of_no_recurrence, "loop_0'.*is not a recurrence of the loop"),
        (leaves_by_itself, "network output '.*' is made inside of loop 'loop_0'"),
        (
            initial_from_inside,
            "its initial value, tensor '.*', is made inside of the loop",
        ),
        (
            too_many_slices,
            r"loop 'rows': iteration 2: layer 'rows\[2\]/iterator_\d'.*tensor 'x'",
        ),
        (too_short, "its length, tensor '.*', is 2, but the loop runs 3 times"),
        (no_length, r"the output needs a length: give it with set_input\(1, tensor\)"),
        (endless, "loop 'loop_0': layer .* is always true, .* would never end"),
        (
            limit_of_wrong_type,
            r"INT32 \(1,\); a limit of kind COUNT is an INT32 or INT64 without",
        ),
        (
            crossed,
            "uses values of loop '.*' and of loop '.*', neither of which is inside",
        ),
        (cycle, "that would be a cycle"),
    ],
)
def test_mistakes(make: Any, says: str) -> None:
    network = trt.Builder(trt.Logger()).create_network()
    x = network.add_input("x", trt.float32, (2, 3))
    result = make(network, x)
    network.mark_output(result)
    with pytest.raises(trt.Error, match=says):
        trt.compile(network, device="cpu", optimization_level=0)


def test_inputs_of_a_recurrence() -> None:
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (2, 3))
    state = network.add_loop().add_recurrence(x)
    for index, tensor, says in [
        (2, x, "no input 2; it has 1 input and can have 2: 0, the first value, and 1,"),
        (1, None, "'recurrence_0'.*input 1, the next value, cannot be omitted"),
        (0, None, r"input 0 \('initial_value'\) cannot be omitted"),
    ]:
        with pytest.raises(trt.Error, match=says):
            state.set_input(index, tensor)


def test_one_limit_of_each_kind() -> None:
    network = trt.Builder(trt.Logger()).create_network()
    loop = counted(network, 2)
    with pytest.raises(
        trt.Error, match="has a trip limit of that kind, layer 'trip_limit_1'"
    ):
        loop.add_trip_limit(constant(network, 3, np.int32), COUNT)
    with pytest.raises(TypeError, match="expected an ITensor"):
        loop.add_recurrence(3)  # type: ignore[arg-type]
