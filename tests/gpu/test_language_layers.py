"""Layers of language models on a GPU: caches, scales that are found, experts."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
import rabbet as trt

from tests.python.layers import test_dynamic_quantization as quantization
from tests.python.layers import test_kv_cache as caches
from tests.python.layers import test_moe as experts
from tests.python.support.plugins import random

from . import cuda_driver
from .test_contexts import stream, wait

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)


def build(make: Any) -> trt.Model:
    """A model of a strongly typed network whose outputs `make` returns."""
    strong = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    network = trt.Builder().create_network(strong)
    network.mark_output(make(network))
    return trt.compile(network, device="cuda")


def add_inputs(network: Any, arrays: list[Any]) -> list[Any]:
    return [
        network.add_input(f"x{i}", trt._arrays.dtype_of(a.dtype), a.shape)
        for i, a in enumerate(arrays)
    ]


@pytest.mark.parametrize("graphs", [False, True])
def test_a_cache_grows_in_its_own_memory(graphs: bool) -> None:
    network = trt.Builder().create_network()
    layer = caches.make_cache(network, 1)[3]
    layer.get_output(0).name = "grown"
    network.mark_output(layer.get_output(0))
    engine = trt.compile(network, device="cuda").engine
    assert engine.get_aliased_input_tensor("grown") == "cache"
    context = engine.create_execution_context()
    context.graphs = graphs
    wanted = random(*caches.SHAPE)
    with ExitStack() as stack:
        handle = stack.enter_context(stream())
        sizes = {"cache": wanted.nbytes, "update": 4 * 2 * 3 * 4, "indices": 8}
        places = {
            name: stack.enter_context(cuda_driver.memory(size))
            for name, size in sizes.items()
        }
        cuda_driver.write(places["cache"], wanted)
        for name in (*places, "grown"):
            context.set_tensor_address(name, places.get(name, places["cache"]))
        for step in range(4):
            update = random(2, 3, 1, 4, seed=step)
            indices = np.array([step, step + 3], np.int32)
            cuda_driver.write(places["update"], update)
            cuda_driver.write(places["indices"], indices)
            assert context.execute_async_v3(handle)
            wait(handle)
            wanted = caches.expected(wanted, update, indices)
            found = cuda_driver.read(places["cache"], caches.SHAPE)
            np.testing.assert_array_equal(found, wanted)
        del context


@pytest.mark.parametrize("kept", ["FLOAT", "HALF", "E8M0"])
@pytest.mark.parametrize("blocks", [(1, 32), (16, 16), (-1, 1)], ids=str)
def test_there_and_back(blocks: Any, kept: str) -> None:
    x = random(32, 64).astype(np.float16)

    def make(network: Any) -> Any:
        layer = network.add_dynamic_quantize_v2(
            *add_inputs(network, [x]), blocks, trt.fp8, getattr(trt.DataType, kept)
        )
        back = network.add_dequantize(
            layer.get_output(0), layer.get_output(1), trt.float32
        )
        back.block_shape = blocks
        return back.get_output(0)

    y, scales = quantization.expected(x, blocks, "FP8", kept)
    wide = quantization.spread(scales.astype(np.float32), blocks, x.shape)
    found = np.asarray(build(make)(x))
    np.testing.assert_array_equal(found, y.astype(np.float32) * wide)


@pytest.mark.parametrize("count", [1, 70])
@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=str)
def test_experts(dtype: Any, count: int) -> None:
    x, chosen, scores = experts.tokens(1, count)
    given = [x.astype(dtype), chosen, scores.astype(dtype)]
    parameters = experts.weights(biased=True)
    model = build(lambda n: experts.add(n, given, parameters).get_output(0))
    found = np.asarray(model(*given)).astype(np.float64)
    tolerance = 1e-5 if dtype == np.float32 else 5e-3
    np.testing.assert_allclose(
        found, experts.expected(*given, *parameters), rtol=tolerance, atol=tolerance
    )
