"""Caches of keys and values, against NumPy."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import onnx
import pytest
import rabbet as trt
from onnx import helper, numpy_helper

from tests.python.support.plugins import build, random
from tests.python.support.reference_ops import OpError, evaluate

SHAPE = (2, 3, 8, 4)  # batch, heads, length, size


def expected(cache: Any, update: Any, indices: Any, circular: bool = False) -> Any:
    """The cache along axis 2."""
    result = cache.copy()
    for batch, first in enumerate(indices):
        for i in range(update.shape[2]):
            at = (first + i) % cache.shape[2] if circular else first + i
            if 0 <= at < cache.shape[2]:
                result[batch, :, at] = update[batch, :, i]
    return result


def add(network: Any, *tensors: Any) -> Any:
    return network.add_kv_cache_update(*tensors, trt.KVCacheMode.LINEAR)


def make_cache(network: Any, count: int, index: Any = trt.int32) -> Any:
    """Inputs cache, update and indices, and the layer."""
    tensors = (
        network.add_input("cache", trt.float32, SHAPE),
        network.add_input("update", trt.float32, (2, 3, count, 4)),
        network.add_input("indices", index, (2,)),
    )
    return (*tensors, add(network, *tensors))


# ---- The operator


@pytest.mark.parametrize("mode", ["LINEAR", "CIRCULAR"])
@pytest.mark.parametrize("dtype", [np.float16, np.int8, np.int64], ids=str)
@pytest.mark.parametrize("indices", [[0, 5], [7, 3], [-2, 40]], ids=str)
def test_reference(indices: Any, dtype: Any, mode: str) -> None:
    cache = (random(*SHAPE) * 50).astype(dtype)
    update = (random(2, 3, 3, 4, seed=1) * 50).astype(dtype)
    found = evaluate(
        "kv_cache_update", cache, update, np.array(indices), cache_mode=mode
    )
    np.testing.assert_array_equal(
        found, expected(cache, update, indices, mode == "CIRCULAR")
    )


def test_reference_without_indices_along_another_axis() -> None:
    cache, update = random(2, 9), random(2, 4, seed=1)
    found = evaluate("kv_cache_update", cache, update, axis=1)
    np.testing.assert_array_equal(found, np.concatenate([update, cache[:, 4:]], 1))


def test_reference_errors() -> None:
    cache, one = random(*SHAPE), np.zeros(2, np.int32)
    with pytest.raises(OpError, match=r"'update' \(2, 3, 9, 4\).*be shorter along that axis"):
        evaluate("kv_cache_update", cache, random(2, 3, 9, 4), one)
    with pytest.raises(OpError, match=r"'write_indices' \(3\)|'write_indices' \(3,\)"):
        evaluate("kv_cache_update", cache, random(2, 3, 1, 4), np.zeros(3, np.int32))
    with pytest.raises(OpError, match="axis 0 must not be 0"):
        evaluate("kv_cache_update", cache, random(1, 3, 8, 4), axis=0)
    with pytest.raises(OpError, match="attribute 'axis' is 4"):
        evaluate("kv_cache_update", cache, cache, axis=4)
    with pytest.raises(OpError, match=r"'update'\) has type INT32.*insert a cast"):
        evaluate("kv_cache_update", cache, cache.astype(np.int32))


# ---- Networks


def test_layer() -> None:
    network = trt.Builder().create_network()
    cache, update, indices, layer = make_cache(network, 2)
    assert isinstance(layer, trt.IKVCacheUpdateLayer)
    assert layer.type is trt.LayerType.KV_CACHE_UPDATE
    assert layer.cache_mode is trt.KVCacheMode.LINEAR
    layer.cache_mode = trt.KVCacheMode.LINEAR
    assert [layer.get_input(i) for i in range(3)] == [cache, update, indices]
    assert tuple(layer.get_output(0).shape) == SHAPE
    other = network.add_input("other", trt.int64, (2,))
    layer.set_input(2, other)
    assert layer.get_input(2) == other
    with pytest.raises(TypeError, match=r"\(LINEAR\), got 'CIRCULAR'"):
        layer.cache_mode = "CIRCULAR"
    with pytest.raises(trt.Error, match=r"'write_indices'.*FLOAT"):
        layer.set_input(2, update)
        network.validate()


@pytest.mark.parametrize("index", [np.int32, np.int64], ids=str)
def test_arrays_of_the_caller_are_left_alone(index: Any) -> None:
    kind = trt._arrays.dtype_of(np.dtype(index))
    model = build(lambda n: make_cache(n, 2, kind)[3].get_output(0))
    cache, update = random(*SHAPE), random(2, 3, 2, 4, seed=1)
    before = cache.copy()
    for indices in ([0, 0], [6, 3], [7, 20]):
        found = model(cache, update, np.array(indices, index))
        np.testing.assert_array_equal(found, expected(before, update, indices))
        np.testing.assert_array_equal(cache, before)


def engine_of(network: Any) -> Any:
    builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
    config = builder.create_builder_config()
    config.device = "cpu"
    return builder.build_engine_with_config(network, config)


def run(engine: Any, **arrays: Any) -> None:
    context = engine.create_execution_context()
    for name, array in arrays.items():
        assert context.set_tensor_address(name, array.ctypes.data)
    assert context.execute_async_v3(0)


def test_one_address() -> None:
    """A generation: the cache grows by a token in each run, in its own memory."""
    network = trt.Builder().create_network()
    layer = make_cache(network, 1)[3]
    layer.get_output(0).name = "grown"
    network.mark_output(layer.get_output(0))
    engine = engine_of(network)
    assert engine.get_aliased_input_tensor("grown") == "cache"
    cache, context = np.zeros(SHAPE, np.float32), engine.create_execution_context()
    wanted = cache.copy()
    for step in range(5):
        update = random(2, 3, 1, 4, seed=step)
        indices = np.array([step, step + 3], np.int32)
        for name, array in {"cache": cache, "grown": cache, "update": update,
                            "indices": indices}.items():
            assert context.set_tensor_address(name, array.ctypes.data)
        assert context.execute_async_v3(0)
        wanted = expected(wanted, update, indices)
        np.testing.assert_array_equal(cache, wanted)
    other = np.zeros_like(cache)
    run(engine, cache=cache, grown=other, update=update, indices=indices)
    np.testing.assert_array_equal(cache, wanted)
    np.testing.assert_array_equal(other, wanted)


COPIES = """
import ctypes, json, mmap
import numpy as np
import rabbet as trt

def engine_of(level):
    builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
    network = builder.create_network()
    tensors = (
        network.add_input("cache", trt.float32, (1, 1, 4096, 16)),
        network.add_input("update", trt.float32, (1, 1, 1, 16)),
        network.add_input("indices", trt.int32, (1,)),
    )
    layer = network.add_kv_cache_update(*tensors, trt.KVCacheMode.LINEAR)
    layer.get_output(0).name = "grown"
    network.mark_output(layer.get_output(0))
    config = builder.create_builder_config()
    config.device, config.builder_optimization_level = "cpu", level
    plan = builder.build_serialized_network(network, config)
    steps = [step["name"] for step in json.loads(builder.report_json)["steps"]]
    assert "convert cache" in steps, steps
    return trt.Runtime(trt.Logger(trt.Logger.ERROR)).deserialize_cuda_engine(plan)

memory = mmap.mmap(-1, 4096 * 64)
cache = np.frombuffer(memory, np.float32)
libc = ctypes.CDLL(None, use_errno=True)
first = mmap.PAGESIZE
assert libc.mprotect(ctypes.c_void_p(cache.ctypes.data + first),
                     ctypes.c_size_t(4096 * 64 - first), mmap.PROT_READ) == 0
for level in range(6):
    engine = engine_of(level)
    context = engine.create_execution_context()
    update = np.full(16, level + 1, np.float32)
    indices = np.zeros(1, np.int32)
    print("level", level, flush=True)
    for name, array in {"cache": cache, "grown": cache, "update": update,
                        "indices": indices}.items():
        assert context.set_tensor_address(name, array.ctypes.data)
    assert context.execute_async_v3(0)
    assert (cache[:16] == level + 1).all() and not cache[16:].any()
"""


def test_one_address_is_not_copied_onto_itself() -> None:
    """All but the new row lies in pages that nobody may write to. In a process of
    its own, which a write would end."""
    done = subprocess.run(
        [sys.executable, "-c", COPIES], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_attention_over_a_cache() -> None:
    """Readers of the output see the update; readers of the cache do not."""

    network = trt.Builder().create_network()
    cache, _, _, layer = make_cache(network, 1)
    query = network.add_input("query", trt.float32, (2, 3, 1, 4))
    grown = layer.get_output(0)
    attention = network.add_attention(
        query, grown, grown, trt.AttentionNormalizationOp.SOFTMAX, False
    )
    old = network.add_reduce(cache, trt.ReduceOperation.SUM, 4, False)
    outputs = {"grown": grown, "y": attention.get_output(0), "old": old.get_output(0)}
    for name, tensor in outputs.items():
        tensor.name = name
        network.mark_output(tensor)
    kept, update = random(*SHAPE), random(2, 3, 1, 4, seed=1)
    q, indices = random(2, 3, 1, 4, seed=2), np.array([3, 7], np.int32)
    wanted = expected(kept, update, indices)
    scores = np.exp(q @ wanted.swapaxes(-1, -2))
    y = scores / scores.sum(-1, keepdims=True) @ wanted
    engine = engine_of(network)
    for same in (True, False):
        memory = kept.copy()
        found = {"y": np.empty_like(y), "old": np.empty((2, 3, 4), np.float32)}
        found["grown"] = memory if same else np.empty_like(memory)
        run(engine, cache=memory, update=update, query=q, indices=indices, **found)
        np.testing.assert_array_equal(found["grown"], wanted)
        np.testing.assert_allclose(found["y"], y, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found["old"], kept.sum(2), rtol=1e-5, atol=1e-5)


def test_errors() -> None:
    network = trt.Builder().create_network()
    cache = network.add_input("cache", trt.float32, SHAPE)
    indices = network.add_input("indices", trt.int32, (2,))
    layer = add(network, cache, network.add_input("u", trt.float32, (2, 1, 1, 4)), indices)
    with pytest.raises(trt.Error, match=rf"{layer.name}.*'update' \(2, 1, 1, 4\)"):
        layer.get_output(0).shape  # noqa: B018
        network.validate()
    with pytest.raises(TypeError):
        network.add_kv_cache_update(cache, cache, indices, "LINEAR", 3)


def test_lengths_that_only_a_run_tells() -> None:
    network = trt.Builder().create_network()
    tensors = (
        network.add_input("cache", trt.float32, (-1, 3, 8, 4)),
        network.add_input("update", trt.float32, (-1, 3, -1, 4)),
        network.add_input("indices", trt.int32, (-1,)),
    )
    network.mark_output(add(network, *tensors).get_output(0))
    shapes = {
        "cache": ((1, 3, 8, 4), (2, 3, 8, 4), (4, 3, 8, 4)),
        "update": ((1, 3, 1, 4), (2, 3, 2, 4), (4, 3, 20, 4)),
        "indices": ((1,), (2,), (4,)),
    }
    model = trt.compile(network, device="cpu", shapes=shapes)
    cache = random(3, 3, 8, 4)
    for count in (1, 5, 8):
        update, indices = random(3, 3, count, 4, seed=count), np.array([0, 2, 7], np.int32)
        np.testing.assert_array_equal(
            model(cache, update, indices), expected(cache, update, indices)
        )
    with pytest.raises(trt.Error, match=r"'update' \(3, 3, 9, 4\)"):
        model(cache, random(3, 3, 9, 4), indices)


# ---- ONNX


def test_onnx_mode() -> None:
    node = helper.make_node("TensorScatter", ["c", "u", "i"], ["y"], mode="around")
    values = {"c": random(*SHAPE), "u": random(2, 3, 1, 4), "i": np.zeros(2, np.int64)}
    graph = helper.make_graph(
        [node], "g",
        [helper.make_tensor_value_info("c", 1, SHAPE)],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(values[n], n) for n in "ui"],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10
    )
    assert isinstance(model, onnx.ModelProto)
    with pytest.raises(trt.Error, match="'around'; linear and circular exist"):
        trt.compile(model.SerializeToString(), device="cpu")
