"""Networks some of whose tensors have no elements, and NumPy's word for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import rabbet as trt

NONE = trt.MatrixOperation.NONE
BIAS = np.arange(1, 4, dtype=np.float32)


def _model(device: str, make: Any, *ranges: Any) -> trt.Model:
    """Of inputs with these shapes, or (min, opt, max) of shapes."""
    network = trt.Builder().create_network()
    inputs, shapes = [], {}
    for i, given in enumerate(ranges):
        shape = given
        if isinstance(given[0], tuple):
            shapes[f"x{i}"] = given
            shape = [low if low == high else -1 for low, _, high in zip(*given, strict=True)]
        inputs.append(network.add_input(f"x{i}", trt.float32, shape))
    network.mark_output(make(network, *inputs))
    return trt.compile(network, device=device, shapes=shapes)


def _product(network: trt.INetworkDefinition, a: Any, b: Any) -> Any:
    """relu(a b + BIAS)"""
    bias = network.add_constant((1, 3), BIAS).get_output(0)
    product = network.add_matrix_multiply(a, NONE, b, NONE).get_output(0)
    total = trt.ElementWiseOperation.SUM
    layer = network.add_elementwise(product, bias, total)
    return network.add_activation(layer.get_output(0), trt.ActivationType.RELU).get_output(0)


def _convolution(network: trt.INetworkDefinition, x: Any) -> Any:
    weights = np.ones((3, 2, 3, 3), np.float32)
    return network.add_convolution_nd(x, 3, (3, 3), weights, BIAS).get_output(0)


def _pixels(network: trt.INetworkDefinition, x: Any) -> Any:
    weights = np.ones((3, 2, 1, 1), np.float32)
    return network.add_convolution_nd(x, 3, (1, 1), weights, BIAS).get_output(0)


def _deconvolution(network: trt.INetworkDefinition, x: Any) -> Any:
    weights = np.ones((2, 3, 3, 3), np.float32)
    return network.add_deconvolution_nd(x, 3, (3, 3), weights, BIAS).get_output(0)


def _pooling(network: trt.INetworkDefinition, x: Any) -> Any:
    return network.add_pooling_nd(x, trt.PoolingType.MAX, (2, 2)).get_output(0)


def check_products(device: str) -> None:
    """With one extent of 0: always, at the optimum, or in some runs alone."""
    for m, k, n in [(2, 0, 3), (0, 2, 3), (64, 0, 3), (0, 0, 3)]:
        model = _model(device, _product, (m, k), (k, n))
        found = model(np.ones((m, k), np.float32), np.ones((k, n), np.float32))
        assert np.array_equal(found, np.tile(BIAS, (m, 1)))
    for rows in (2, 64):
        for usual in (0, 8):
            ranges = ((rows, 0), (rows, usual), (rows, 8)), ((0, 3), (usual, 3), (8, 3))
            model = _model(device, _product, *ranges)
            for k in (0, 5, 0):
                found = model(np.ones((rows, k), np.float32), np.ones((k, 3), np.float32))
                assert np.array_equal(found, np.tile(k + BIAS, (rows, 1)))
    model = _model(device, lambda n, a, b: n.add_einsum([a, b], "ij,jk->ik").get_output(0),
                   (2, 0), (0, 3))  # fmt: skip
    found = model(np.ones((2, 0), np.float32), np.ones((0, 3), np.float32))
    assert np.array_equal(found, np.zeros((2, 3), np.float32))


def check_axes(device: str) -> None:
    """An extent of 0 is one, where axes are put in and taken away."""

    def more(network: trt.INetworkDefinition, x: Any) -> Any:
        axes = network.add_constant((1,), np.ones(1, np.int32)).get_output(0)
        return network.add_unsqueeze(x, axes).get_output(0)

    def fewer(network: trt.INetworkDefinition, x: Any) -> Any:
        axes = network.add_constant((1,), np.zeros(1, np.int32)).get_output(0)
        return network.add_squeeze(x, axes).get_output(0)

    model = _model(device, more, ((1, 0, 2), (3, 0, 2), (4, 0, 2)))
    assert model(np.ones((3, 0, 2), np.float32)).shape == (3, 1, 0, 2)
    model = _model(device, fewer, ((1, 1, 0), (1, 3, 0), (1, 4, 0)))
    assert model(np.ones((1, 3, 0), np.float32)).shape == (3, 0)


def check_batches(device: str) -> None:
    """Layers that libraries compute, of a batch of none."""
    for make, shape in [
        (_convolution, (3, 6, 6)),
        (_pixels, (3, 8, 8)),
        (_deconvolution, (3, 10, 10)),
        (_pooling, (2, 7, 7)),
    ]:
        model = _model(device, make, (0, 2, 8, 8))
        assert model(np.ones((0, 2, 8, 8), np.float32)).shape == (0, *shape)
        one = np.asarray(_model(device, make, (1, 2, 8, 8))(np.ones((1, 2, 8, 8), np.float32)))
        for usual in (0, 2):
            model = _model(device, make, ((0, 2, 8, 8), (usual, 2, 8, 8), (2, 2, 8, 8)))
            for batch in (0, 2, 0):
                found = model(np.ones((batch, 2, 8, 8), np.float32))
                assert np.array_equal(found, np.tile(one, (batch, 1, 1, 1)))
    # None in any run, whatever the batch.
    model = _model(device, _pooling, ((0, 0, 8, 8), (2, 0, 8, 8), (2, 0, 8, 8)))
    assert model(np.ones((1, 0, 8, 8), np.float32)).shape == (1, 0, 7, 7)


class _One(trt.IAlgorithmSelector):
    """Takes the algorithm of this place in the list, or the last one."""

    def __init__(self, place: int) -> None:
        super().__init__()
        self.place, self.count = place, 0

    def select_algorithms(self, context: Any, choices: Any) -> Any:
        self.count = max(self.count, len(choices))
        return [min(self.place, len(choices) - 1)]

    def report_algorithms(self, contexts: Any, choices: Any) -> None:
        pass


def check_padding_alone(device: str) -> None:
    """Windows of nothing but padding, in every way there is to compute them."""
    weights = np.ones((16, 16, 3, 3), np.float32)
    bias = np.arange(16, dtype=np.float32)
    place, count = 0, 1
    while place < count:
        builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
        network = builder.create_network()
        x = network.add_input("x", trt.float32, (1, 16, -1, 6))
        layer = network.add_convolution_nd(x, 16, (3, 3), weights, bias)
        layer.padding_nd = (2, 1)
        network.mark_output(layer.get_output(0))
        config = builder.create_builder_config()
        config.device, config.builder_optimization_level = device, 5
        profile = builder.create_optimization_profile()
        profile.set_shape("x", *((1, 16, h, 6) for h in (0, 4, 8)))
        config.add_optimization_profile(profile)
        selector = config.algorithm_selector = _One(place)
        plan = builder.build_serialized_network(network, config)
        runtime = trt.Runtime(trt.Logger(trt.Logger.ERROR))
        model = trt.Model(runtime.deserialize_cuda_engine(plan))
        for h in (0, 4, 0, 8):
            found = model(np.ones((1, 16, h, 6), np.float32))
            assert found.shape == (1, 16, h + 2, 6)
            assert (found[:, :, 0] >= bias[:, None]).all()
            if h == 0:
                assert (found == bias[:, None, None]).all()
        place, count = place + 1, selector.count
    assert place == count
