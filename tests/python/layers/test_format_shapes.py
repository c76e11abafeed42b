"""Layers in formats of blocked channels that are full at a profile's optimum and not
at other shapes, and operands of one shape there that are broadcast elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
import rabbet as trt

LAYERS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "reshape": (
        lambda net, x: shuffle(net, x, shape=(0, 0, -1)),
        lambda x: x.reshape(*x.shape[:2], -1),
    ),
    "transpose": (
        lambda net, x: shuffle(net, x, order=(0, 2, 3, 1)),
        lambda x: x.transpose(0, 2, 3, 1),
    ),
    "slice": (
        lambda net, x: stepped(net, x),
        lambda x: x[:, :, 1::2],
    ),
    "softmax": (
        lambda net, x: softmax(net, x, 1 << 3),
        lambda x: np.exp(x) / np.exp(x).sum(3, keepdims=True),
    ),
    "softmax of channels": (
        lambda net, x: softmax(net, x, 1 << 1),
        lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True),
    ),
    "reduce": (
        lambda net, x: net.add_reduce(x, trt.ReduceOperation.SUM, 0b1100, True),
        lambda x: x.sum((2, 3), keepdims=True),
    ),
    "element-wise": (
        lambda net, x: net.add_elementwise(x, x, trt.ElementWiseOperation.PROD),
        lambda x: x * x,
    ),
    "concatenation": (
        lambda net, x: net.add_concatenation([x, x]),
        lambda x: np.concatenate((x, x), 1),
    ),
    "pooling": (
        lambda net, x: net.add_pooling_nd(x, trt.PoolingType.MAX, (4, 6)),
        lambda x: x.max((2, 3), keepdims=True),
    ),
}


def shuffle(net: Any, x: Any, shape: Any = None, order: Any = None) -> Any:
    layer = net.add_shuffle(x)
    if shape:
        layer.reshape_dims = shape
    if order:
        layer.first_transpose = order
    return layer


def stepped(net: Any, x: Any) -> Any:
    layer = net.add_slice(x, (0, 0, 1, 0), (0, 0, 0, 0), (1, 1, 2, 1))
    shape = net.add_shape(x).get_output(0)
    less = net.add_constant((4,), np.int64([0, 0, 2, 0])).get_output(0)
    layer.set_input(
        2, net.add_elementwise(shape, less, trt.ElementWiseOperation.SUB).get_output(0)
    )
    return layer


def softmax(net: Any, x: Any, axes: int) -> Any:
    layer = net.add_softmax(x)
    layer.axes = axes
    return layer


class Blocked(trt.IAlgorithmSelector):
    """Takes what has the most tensors in blocks of channels, or in HWC."""

    def __init__(self, hwc: bool) -> None:
        super().__init__()
        self.hwc, self.most = hwc, 0

    def select_algorithms(self, context: Any, choices: Any) -> Any:
        count = context.num_inputs + context.num_outputs

        def is_meant(info: Any) -> bool:
            last = len(info.strides) > 2 and info.strides[1] == 1
            return last if self.hwc else info.components_per_element > 1

        counts = [
            sum(is_meant(choice.get_algorithm_io_info(k)) for k in range(count))
            for choice in choices
        ]
        best = max(counts)
        self.most = max(self.most, best)
        return [i for i, found in enumerate(counts) if found == best]


def build(
    define: Any, profile: dict[str, Any], selector: Any, device: str = "cpu"
) -> Any:
    builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
    network = builder.create_network()
    for tensor in define(network):
        network.mark_output(tensor)
    config = builder.create_builder_config()
    config.device, config.threads = device, 1
    config.algorithm_selector = selector
    shapes = builder.create_optimization_profile()
    for name, (low, usual, high) in profile.items():
        shapes.set_shape(name, low, usual, high)
    config.add_optimization_profile(shapes)
    plan = builder.build_serialized_network(network, config)
    runtime = trt.Runtime(trt.Logger(trt.Logger.ERROR))
    return runtime.deserialize_cuda_engine(plan).create_execution_context()


def run(context: Any, arrays: dict[str, Any]) -> Any:
    for name, array in arrays.items():
        context.set_input_shape(name, array.shape)
        context.set_tensor_address(name, array.ctypes.data)
    y = np.empty(tuple(context.get_tensor_shape("y")), np.float32)
    context.set_tensor_address("y", y.ctypes.data)
    context.execute_async_v3(0)
    return y


def relu(network: Any, x: Any) -> Any:
    return network.add_activation(x, trt.ActivationType.RELU).get_output(0)


@pytest.mark.parametrize("hwc", [False, True], ids=["blocks", "hwc"])
@pytest.mark.parametrize("name", LAYERS)
def test_channels_that_vary(name: str, hwc: bool) -> None:
    add, numpy = LAYERS[name]

    def define(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (-1, -1, 4, 6))
        y = relu(network, add(network, relu(network, x)).get_output(0))
        y.name = "y"
        return [y]

    profile = {"x": ((1, 1, 4, 6), (2, 32, 4, 6), (4, 64, 4, 6))}
    context = build(define, profile, Blocked(hwc))
    for shape in [(2, 32, 4, 6), (1, 5, 4, 6), (3, 17, 4, 6), (4, 64, 4, 6)]:
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        expected = numpy(np.maximum(x, 0))
        np.testing.assert_allclose(
            run(context, {"x": x}), np.maximum(expected, 0), rtol=1e-5
        )


@pytest.mark.parametrize("hwc", [False, True], ids=["blocks", "hwc"])
def test_broadcast_in_a_run_alone(hwc: bool) -> None:
    """a and b have one shape at the optimum; b has 1 of some axes elsewhere, or a."""
    selector = Blocked(hwc)

    def define(network: Any) -> Any:
        a = network.add_input("a", trt.float32, (-1, 32, -1, 6))
        b = network.add_input("b", trt.float32, (-1, 32, -1, 6))
        both = network.add_elementwise(
            relu(network, a), relu(network, b), trt.ElementWiseOperation.SUB
        ).get_output(0)
        both.name = "y"
        return [both]

    sizes = ((1, 32, 1, 6), (4, 32, 5, 6), (4, 32, 8, 6))
    context = build(define, {"a": sizes, "b": sizes}, selector)
    assert selector.most > 1
    random = np.random.default_rng(0)
    for left, right in [((4, 5), (4, 5)), ((4, 5), (1, 5)), ((1, 5), (4, 5)),
                        ((3, 1), (3, 7)), ((1, 8), (4, 1)), ((1, 1), (1, 1))]:  # fmt: skip
        a, b = (
            random.standard_normal((n, 32, h, 6)).astype(np.float32)
            for n, h in (left, right)
        )
        found = run(context, {"a": a, "b": b})
        np.testing.assert_array_equal(found, np.maximum(a, 0) - np.maximum(b, 0))


class One(trt.IAlgorithmSelector):
    """Takes the algorithm of this place, of those that compute layers together; None:
    counts those and leaves the choice to the builder."""

    def __init__(self, place: int | None) -> None:
        super().__init__()
        self.place, self.count = place, 0

    def select_algorithms(self, context: Any, choices: Any) -> Any:
        together = "+" in context.name
        if together:
            self.count = max(self.count, len(choices))
        if self.place is None:
            return list(range(len(choices)))
        return [min(self.place, len(choices) - 1)] if together else []


def check_full_in_a_run_alone(device: str, transposed: bool) -> None:
    """b has the shape of the product where that has a batch of one. A device may have
    nothing that computes both layers together: then they are right one by one."""
    random = np.random.default_rng(0)
    kernel = random.standard_normal((16, 16, 1, 1)).astype(np.float32)

    def define(network: Any) -> Any:
        a = network.add_input("a", trt.float32, (-1, 16, 3, 3))
        b = network.add_input("b", trt.float32, (1, 16, 3, 3))
        add = network.add_deconvolution_nd if transposed else network.add_convolution_nd
        product = add(a, 16, (1, 1), kernel).get_output(0)
        both = network.add_elementwise(product, b, trt.ElementWiseOperation.SUM)
        both.get_output(0).name = "y"
        return [both.get_output(0)]

    profile = {"a": [(n, 16, 3, 3) for n in (1, 3, 3)], "b": [(1, 16, 3, 3)] * 3}
    counting = One(None)
    build(define, profile, counting, device)
    for place in range(counting.count) if counting.count else [None]:
        model = trt.Model(build(define, profile, One(place), device).engine)
        for batch in (3, 1, 2):
            a, b = (
                random.standard_normal((n, 16, 3, 3)).astype(np.float32)
                for n in (batch, 1)
            )
            axes = "nchw,co->nohw" if transposed else "nchw,oc->nohw"
            expected = np.einsum(axes, a, kernel[:, :, 0, 0]) + b
            np.testing.assert_allclose(model(a, b), expected, rtol=1e-2, atol=1e-2)


def test_sum_after_a_product_that_is_full_in_a_run_alone() -> None:
    check_full_in_a_run_alone("cpu", True)


def check_one_row_at_the_optimum_alone(device: str) -> None:
    """c looks like a number at the optimum; elsewhere it is spread over a batch."""
    shapes = {"a": [5, "s", 6], "b": [5, 6, "s"], "c": [1, "s", "s"]}
    kind = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("MatMul", ["a", "b"], ["p"]),
            onnx.helper.make_node("Add", ["p", "c"], ["y"]),
        ],
        "one row",
        [onnx.helper.make_tensor_value_info(k, kind, v) for k, v in shapes.items()],
        [onnx.helper.make_tensor_value_info("y", kind, [5, "s", "s"])],
    )
    opset = [onnx.helper.make_opsetid("", 17)]
    proto = onnx.helper.make_model(graph, opset_imports=opset, ir_version=9)

    def define(network: Any) -> Any:
        parser = trt.OnnxParser(network, trt.Logger(trt.Logger.ERROR))
        assert parser.parse(proto.SerializeToString())
        return []

    def at(size: int) -> dict[str, tuple[int, ...]]:
        return {k: tuple(size if d == "s" else d for d in v) for k, v in shapes.items()}

    profile = {k: (at(1)[k], at(1)[k], at(4)[k]) for k in shapes}
    random = np.random.default_rng(0)
    place, count = 0, 1
    while place < count:
        selector = One(place)
        try:
            context = build(define, profile, selector, device)
        except trt.FailedPreconditionError:  # no kernel computes both at once
            context = build(define, profile, None, device)
        model = trt.Model(context.engine)
        for size in (1, 3, 4, 1):
            a, b, c = (
                random.standard_normal(shape).astype(np.float32)
                for shape in at(size).values()
            )
            np.testing.assert_allclose(model(a, b, c), a @ b + c, rtol=1e-2, atol=1e-2)
        place, count = place + 1, max(count, selector.count)


def test_one_row_at_the_optimum_alone() -> None:
    check_one_row_at_the_optimum_alone("cpu")
