"""Rolls and circular padding, as exporters write them, drawn at random: slices of a
tensor that are concatenated around its end, along one axis or several."""

from __future__ import annotations

import random

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.python.support import onnx_text


def wrapped(seed: int) -> tuple[onnx.ModelProto, list[dict[str, np.ndarray]]]:
    """Some axes of a tensor, each rolled, padded or cut, and its inputs."""
    draw = random.Random(seed)
    numbers = np.random.default_rng(seed)
    rank = draw.randint(2, 5)
    extents = [draw.randint(2, 9) for _ in range(rank)]
    given: list[onnx.TensorProto] = []
    nodes: list[onnx.NodeProto] = []

    def vector(number: int) -> str:
        given.append(numpy_helper.from_array(np.array([number]), f"c{len(given)}"))
        return given[-1].name

    def part(x: str, axis: int, start: int, end: int) -> str:
        nodes.append(
            helper.make_node(
                "Slice", [x, vector(start), vector(end), vector(axis)], [f"s{len(nodes)}"],
            )
        )  # fmt: skip
        return str(nodes[-1].output[0])

    x, sizes = "x", list(extents)
    for _ in range(draw.randint(1, 4)):
        axis = draw.randrange(1, rank)
        n = sizes[axis]
        shift = draw.randint(1, n - 1) if n > 1 else 0
        kind = draw.choice(("roll", "roll", "pad", "whole", "swapped", "gap"))
        if n < 2 or shift == 0:
            continue
        if kind == "roll":
            parts = [part(x, axis, shift, n), part(x, axis, 0, shift)]
        elif kind == "pad":
            parts = [part(x, axis, n - shift, n), x, part(x, axis, 0, shift)]
        elif kind == "whole":
            parts = [part(x, axis, n - shift, n), x]
        elif kind == "swapped":
            parts = [part(x, axis, 0, shift), part(x, axis, shift, n), x]
        else:
            parts = [part(x, axis, shift, n), part(x, axis, 0, max(shift - 1, 1))]
        sizes[axis] = {
            "roll": n,
            "pad": n + 2 * shift,
            "whole": n + shift,
            "swapped": 2 * n,
        }.get(kind, n - shift + max(shift - 1, 1))
        along = axis if draw.random() < 0.7 else axis - rank
        name = f"j{len(nodes)}"
        nodes.append(helper.make_node("Concat", parts, [name], axis=along))
        x = nodes[-1].output[0]
    nodes.append(helper.make_node("Neg", [x], ["y"]))
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [value("x", onnx.TensorProto.FLOAT, ["n", *extents[1:]])],
        [value("y", onnx.TensorProto.FLOAT, None)], given,
    )  # fmt: skip
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8
    )
    shapes = [(n, *extents[1:]) for n in (3, 1, 7)]
    return model, [{"x": numbers.standard_normal(s).astype(np.float32)} for s in shapes]


@pytest.mark.parametrize("seed", range(60))
def test_wrapped(seed: int) -> None:
    onnx_text.check(*wrapped(seed))


def test_two_axes_are_one_move() -> None:
    body = """
        zero = Constant<value_ints = [0]>() three = Constant<value_ints = [3]>()
        end = Constant<value_ints = [99]>() one = Constant<value_ints = [1]>()
        two = Constant<value_ints = [2]>()
        a = Slice(x, three, end, one) b = Slice(x, zero, three, one)
        r = Concat<axis = 1>(a, b)
        c = Slice(r, three, end, two) d = Slice(r, zero, three, two)
        y = Concat<axis = 2>(c, d)
    """
    model = onnx_text.model_of("float[n, 7, 8, 2] x", "float[n, 7, 8, 2] y", body)
    x = np.arange(2 * 7 * 8 * 2, dtype=np.float32).reshape(2, 7, 8, 2)
    made = onnx_text.check(model, [{"x": x}])
    assert made.engine.num_layers == 1
    np.testing.assert_array_equal(made.run({"x": x})["y"], np.roll(x, (-3, -3), (1, 2)))
