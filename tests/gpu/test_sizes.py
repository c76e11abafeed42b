"""Layers that find out by themselves how much they make, on a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rabbet as trt

from tests.python.support.plugins import random
from tests.python.support.sizes import (
    check,
    check_detector,
    check_three_only,
    chosen,
    chosen_by_numpy,
    some_boxes,
    suppressed,
    three_only,
)

from . import cuda_driver
from .test_contexts import stream, wait
from .test_memory import Plain

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)
SHAPES = {"x": ((1, 5, 4), (4, 5, 4), (4000, 5, 4))}


def compiled(make: Any, **options: Any) -> trt.Model:
    network = trt.Builder().create_network()
    outputs = make(network)
    for i, tensor in enumerate(outputs):
        tensor.name = f"y{i}"
        network.mark_output(tensor)
    return trt.compile(network, device="cuda", **options)


def some_zeros(rows: int) -> Any:
    return np.random.default_rng(rows).integers(-1, 2, (rows, 5, 4)).astype(np.float32)


def test_what_is_found_is_used() -> None:
    model = compiled(chosen, shapes=SHAPES)
    # Again and again, so that what is recorded is replayed.
    for rows in (3, 3, 3, 1, 4000, 3):
        x = some_zeros(rows)
        check(model(x), chosen_by_numpy(x))
    nothing = np.zeros((2, 5, 4), np.float32)
    check(model(nothing), chosen_by_numpy(nothing))


def test_what_one_size_alone_fits() -> None:
    check_three_only(compiled(three_only))


class Output(trt.IOutputAllocator):
    """Memory of the device, which grows."""

    def __init__(self, memory: Plain) -> None:
        super().__init__()
        self.memory, self.address, self.size = memory, 0, 0
        self.shape: Any = None

    def reallocate_output(
        self, tensor_name: str, memory: int, size: int, alignment: int
    ) -> int:
        if size > self.size:
            self.release()
            self.address, self.size = self.memory.allocate(size, alignment, 0), size
        return self.address

    def notify_shape(self, tensor_name: str, shape: trt.Dims) -> None:
        self.shape = tuple(shape)

    def release(self) -> None:
        if self.address:
            self.memory.deallocate(self.address)
        self.address = 0


def test_output_allocators() -> None:
    model = compiled(chosen, shapes=SHAPES)
    context = model.engine.create_execution_context()
    memory = Plain()
    outputs = [Output(memory) for _ in range(3)]
    for i, output in enumerate(outputs):
        context.set_output_allocator(f"y{i}", output)
    with stream() as order:
        for rows in (2, 600, 2):
            x = some_zeros(rows)
            expected = chosen_by_numpy(x)
            with cuda_driver.memory(x.nbytes) as address:
                cuda_driver.write(address, x)
                context.set_input_shape("x", x.shape)
                context.set_tensor_address("x", address)
                assert context.execute_async_v3(order)
                wait(order)
            for output, one in zip(outputs, expected, strict=True):
                assert output.shape == one.shape
                found = cuda_driver.read(output.address, one.shape, one.dtype)
                assert np.array_equal(found, one)
    for output in outputs:
        output.release()
    assert not memory.owned


def test_a_detector(tmp_path: Path) -> None:
    check_detector(tmp_path, "cuda", 500)


@pytest.mark.parametrize("limit", [0, 40])
def test_boxes(limit: int) -> None:
    boxes, scores = some_boxes(2, 60), random(2, 60, 4)

    def make(network: trt.INetworkDefinition) -> Any:
        layer = network.add_nms(
            network.add_input("boxes", trt.float32, boxes.shape),
            network.add_input("scores", trt.float32, scores.shape),
            network.add_input("most", trt.int32, ()),
        )
        layer.topk_box_limit = limit
        return layer.get_output(0), layer.get_output(1)

    model = compiled(make)
    for most in (3, 60, 0):
        rows, count = model(boxes, scores, np.array(most, np.int32))
        expected = suppressed(boxes, scores, most, limit=limit)
        check([rows], [expected])
        assert int(np.asarray(count)) == len(expected)
