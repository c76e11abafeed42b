"""Weights that change in an engine on a GPU, and tensors that a listener sees."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
import rabbet as trt

from tests.python.support.plugins import random

from . import cuda_driver
from .test_contexts import stream, wait

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)

ROWS, DEPTH, COLUMNS = 5, 32, 24


def weights(seed: int) -> dict[str, Any]:
    """A product's matrix and what is added."""
    return {
        "matrix": random(DEPTH, COLUMNS, seed=seed),
        "bias": random(1, COLUMNS, seed=seed + 100),
    }


def expected(x: Any, seed: int) -> tuple[Any, Any]:
    """The product, and the result."""
    w = weights(seed)
    product = x.astype(np.float64) @ w["matrix"]
    return product, np.maximum(product + w["bias"], 0)


def build(*flags: trt.BuilderFlag, debug: bool = False) -> Any:
    """relu(x matrix + bias) with weights of seed 0."""
    builder = trt.Builder()
    network = builder.create_network()
    x = network.add_input("x", trt.float32, (-1, DEPTH))
    given = {}
    for name, values in weights(0).items():
        layer = network.add_constant(values.shape, values)
        layer.name = name
        given[name] = layer.get_output(0)
    none = trt.MatrixOperation.NONE
    product = network.add_matrix_multiply(x, none, given["matrix"], none)
    product.get_output(0).name = "product"
    total = network.add_elementwise(
        product.get_output(0), given["bias"], trt.ElementWiseOperation.SUM
    )
    last = network.add_activation(total.get_output(0), trt.ActivationType.RELU)
    last.get_output(0).name = "y"
    network.mark_output(last.get_output(0))
    if debug:
        assert network.mark_debug(product.get_output(0))
    config = builder.create_builder_config()
    config.device = "cuda"
    config.clear_flag(trt.BuilderFlag.TF32)
    for flag in flags:
        config.set_flag(flag)
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (1, DEPTH), (8, DEPTH), (64, DEPTH))
    config.add_optimization_profile(profile)
    return builder.build_serialized_network(network, config)


def run(context: Any, x: Any, handle: int, times: int = 1) -> Any:
    with (
        cuda_driver.memory(x.nbytes) as source,
        cuda_driver.memory(4 * len(x) * COLUMNS) as target,
    ):
        cuda_driver.write(source, x)
        context.set_input_shape("x", x.shape)
        context.set_tensor_address("x", source)
        context.set_tensor_address("y", target)
        for _index in range(times):
            assert context.execute_async_v3(handle)
        wait(handle)
        return cuda_driver.read(target, (len(x), COLUMNS))


def check(found: Any, wanted: Any, tolerance: float = 1e-4) -> None:
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


def refit(engine: Any, seed: int) -> None:
    refitter = trt.Refitter(engine, trt.Logger())
    for name, values in weights(seed).items():
        assert refitter.set_weights(name, trt.WeightsRole.CONSTANT, values)
    assert refitter.refit_cuda_engine()


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("half", [False, True])
def test_refit(half: bool, graphs: bool) -> None:
    """Contexts from before run with the new weights, in graphs too."""
    flags = [trt.BuilderFlag.REFIT] + [trt.BuilderFlag.FP16] * half
    engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(build(*flags))
    context = engine.create_execution_context()
    context.graphs = graphs
    x = random(ROWS, DEPTH, seed=7)
    tolerance = 5e-2 if half else 1e-4
    with stream() as handle:
        for seed in (0, 1, 2):
            if seed:
                refit(engine, seed)
            wanted = expected(x, seed)[1]
            check(run(context, x, handle, 3), wanted, tolerance)
            other = engine.create_execution_context()
            check(run(other, x, handle), wanted, tolerance)
            del other
        del context


def test_weights_on_the_device() -> None:
    engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(
        build(trt.BuilderFlag.REFIT)
    )
    refitter = trt.Refitter(engine, trt.Logger())
    device = trt.TensorLocation.DEVICE
    for name in refitter.get_all_weights():
        values = weights(4)[name.split()[0]]
        with cuda_driver.memory(values.nbytes) as address:
            cuda_driver.write(address, values)
            new = trt.Weights(trt.float32, address, values.size)
            assert refitter.set_named_weights(name, new, device)
    assert refitter.refit_cuda_engine()
    x = random(ROWS, DEPTH, seed=8)
    context = engine.create_execution_context()
    with stream() as handle:
        check(run(context, x, handle), expected(x, 4)[1])
        del context


def test_stripped_plan() -> None:
    plan = build(trt.BuilderFlag.STRIP_PLAN)
    engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(plan)
    refit(engine, 3)
    context = engine.create_execution_context()
    x = random(ROWS, DEPTH, seed=8)
    with stream() as handle:
        check(run(context, x, handle), expected(x, 3)[1])
        del context


def test_debug_tensors() -> None:
    """The listener sees a tensor between layers, on the stream that it is given."""
    engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(build(debug=True))
    context = engine.create_execution_context()
    seen: list[tuple[str, Any]] = []

    class Listener(trt.IDebugListener):
        def process_debug_tensor(
            self,
            addr: int,
            location: Any,
            type: Any,
            shape: Any,
            name: str,
            stream: int,
        ) -> bool:
            assert location is trt.TensorLocation.DEVICE
            assert type is trt.float32
            wait(stream)
            seen.append((name, cuda_driver.read(addr, tuple(shape))))
            return True

    x = random(ROWS, DEPTH, seed=9)
    product, y = expected(x, 0)
    with contextlib.ExitStack() as stack:
        handle = stack.enter_context(stream())
        assert context.set_debug_listener(Listener())
        check(run(context, x, handle), y)
        assert not seen
        assert context.set_all_tensors_debug_state(True)
        check(run(context, x, handle, 2), y)
        assert [name for name, _values in seen] == ["product"] * 2
        check(seen[1][1], product)
        del context
