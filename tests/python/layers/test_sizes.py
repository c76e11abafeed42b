"""Layers that find out by themselves how much they make; sequences in reverse order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import rabbet as trt
from onnx import helper

from tests.python.interface.test_objects import OneBuffer
from tests.python.support.plugins import build, random
from tests.python.support.reference_ops import OpError, evaluate_all
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

# ---- Elements that are not zero ----


def test_reference() -> None:
    random_numbers = np.random.default_rng(1)
    for shape in [(), (7,), (3, 4), (2, 0, 3), (2, 3, 1, 5)]:
        for dtype in (np.float32, np.float16, np.int8, np.int64, np.bool_):
            x = random_numbers.integers(0, 2, shape).astype(dtype)
            found, count = evaluate_all("non_zero", 2, x)
            where = np.nonzero(np.atleast_1d(x))
            assert count == len(where[0])
            assert found.dtype == np.int32
            assert found.shape == (len(shape), count)
            if shape:
                assert np.array_equal(found, where)
    x = np.array([0.0, -0.0, np.nan, -1.0], np.float32)
    found, _ = evaluate_all("non_zero", 2, x, indices_type=8)
    assert found.dtype == np.int64
    assert found.tolist() == [[2, 3]]


def test_what_is_found_is_used() -> None:
    model = build(chosen, shapes={"x": ((1, 5, 4), (4, 5, 4), (300, 5, 4))})
    for rows in (3, 1, 300, 3):
        x = np.random.default_rng(rows).integers(-1, 2, (rows, 5, 4)).astype(np.float32)
        check(model(x), chosen_by_numpy(x))
    nothing = np.zeros((2, 5, 4), np.float32)
    check(model(nothing), chosen_by_numpy(nothing))
    check(model(nothing + 1), chosen_by_numpy(nothing + 1))


def test_what_one_size_alone_fits() -> None:
    check_three_only(build(three_only))


def test_the_layer() -> None:
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.bool, (3, -1))
    layer = network.add_non_zero(x, trt.int64)
    assert layer.type is trt.LayerType.NON_ZERO
    assert layer.num_outputs == 1  # the number is the engine's own
    assert layer.get_output(1) is None
    assert layer.get_output(0).shape == (2, -1)
    assert layer.get_output(0).dtype is trt.int64
    layer.indices_type = trt.int32
    assert layer.indices_type is trt.int32
    assert layer.get_output(0).dtype is trt.int32
    with pytest.raises(ValueError, match=r"INT32.*INT64|'indices_type'"):
        layer.indices_type = trt.float32
    network.remove_tensor(layer.get_output(0))
    assert network.num_layers == 0


def test_views_of_what_a_run_tells() -> None:
    """In the caller's memory, which is as large as the output: what is found may be
    more. An input may be seen in a shape that a run tells."""

    def pairs(network: trt.INetworkDefinition) -> Any:
        x = network.add_input("x", trt.float32, (5,))
        layer = network.add_shuffle(network.add_non_zero(x).get_output(0))
        layer.reshape_dims = (-1, 2)
        return layer.get_output(0)

    def rows(network: trt.INetworkDefinition) -> Any:
        x = network.add_input("x", trt.float32, (2, 2))
        found = network.add_non_zero(x).get_output(0)
        layer = network.add_shuffle(x)
        layer.set_input(1, network.add_shape(found).get_output(0))
        return layer.get_output(0)

    model = build(pairs)
    assert model(np.array([0, 1, 1, 1, 1], np.float32)).tolist() == [[1, 2], [3, 4]]
    with pytest.raises(trt.OutOfRangeError, match=r"\(1, 5\).* of elements differ"):
        model(np.ones(5, np.float32))
    model = build(rows)
    x = np.array([[0, 3], [4, 0]], np.float32)
    assert np.array_equal(model(x), x)
    with pytest.raises(trt.OutOfRangeError, match=r"\(2, 3\).* of elements differ"):
        model(np.array([[2, 3], [4, 0]], np.float32))


def test_constants_are_folded() -> None:
    mask = np.array([[1, 0, 2], [0, 0, 3]], np.int32)

    def make(network: trt.INetworkDefinition) -> Any:
        x = network.add_input("x", trt.float32, (6,))
        data = network.add_constant(mask.shape, mask).get_output(0)
        found = network.add_non_zero(data).get_output(0)
        first = network.add_reduce(found, trt.ReduceOperation.MAX, 1, False)
        return network.add_gather_v2(
            x, first.get_output(0), trt.GatherMode.DEFAULT
        ).get_output(0)

    x = random(6)
    model = build(make)
    assert np.array_equal(model(x), x[np.max(np.nonzero(mask), 0)])
    inspector = model.engine.create_engine_inspector()
    text = inspector.get_engine_information(trt.LayerInformationFormat.JSON)
    assert "non_zero" not in text
    assert model.engine.get_tensor_shape("y0") == (3,)


def test_output_allocators() -> None:
    model = build(chosen, shapes={"x": ((1, 5, 4), (4, 5, 4), (8, 5, 4))})
    context = model.engine.create_execution_context()
    x = np.random.default_rng(5).integers(0, 2, (6, 5, 4)).astype(np.float32)
    expected = chosen_by_numpy(x)
    allocators = [OneBuffer() for _ in expected]
    context.set_input_shape("x", x.shape)
    context.set_tensor_address("x", x.ctypes.data)
    for i, allocator in enumerate(allocators):
        context.set_output_allocator(f"y{i}", allocator)
    assert context.get_tensor_shape("y0") == (3, -1)
    assert context.execute_async_v3(0)
    for i, (allocator, one) in enumerate(zip(allocators, expected, strict=True)):
        assert allocator.shape == (f"y{i}", list(one.shape))
        at = -allocator.buffer.ctypes.data % 256
        bytes_of = allocator.buffer[at : at + one.nbytes]
        assert np.array_equal(bytes_of.view(one.dtype).reshape(one.shape), one)


# ---- Non-maximum suppression ----


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("limit", [0, 9])
@pytest.mark.parametrize("each", [0, 1, 3])
def test_boxes(center: bool, limit: int, each: int) -> None:
    boxes = some_boxes(2, 20, *([each] if each else []))
    scores = np.random.default_rng(3).uniform(-1, 1, (2, 20, 3)).astype(np.float32)
    scores[:, 5:9] = scores[:, :1]  # of equal scores the first comes first

    def make(network: trt.INetworkDefinition) -> Any:
        inputs = [
            network.add_input("boxes", trt.float32, (-1, 20, *boxes.shape[2:])),
            network.add_input("scores", trt.float32, (-1, 20, 3)),
        ]
        most = network.add_constant((), np.array(4, np.int32)).get_output(0)
        layer = network.add_nms(*inputs, most)
        assert layer.type is trt.LayerType.NMS
        assert layer.num_outputs == 2
        assert layer.topk_box_limit == 5000
        assert layer.bounding_box_format is trt.BoundingBoxFormat.CORNER_PAIRS
        layer.bounding_box_format = trt.BoundingBoxFormat(int(center))
        layer.topk_box_limit = limit
        for i, threshold in ((3, 0.3), (4, -0.5)):
            number = np.array(threshold, np.float32)
            layer.set_input(i, network.add_constant((), number).get_output(0))
        assert layer.get_output(0).shape == (-1, 3)
        assert layer.get_output(1).shape == ()
        return layer.get_output(0), layer.get_output(1)

    shapes = {
        "boxes": tuple((b, *boxes.shape[1:]) for b in (1, 2, 2)),
        "scores": tuple((b, 20, 3) for b in (1, 2, 2)),
    }
    model = build(make, shapes=shapes)
    for count in (2, 1):
        rows, number = model(boxes[:count], scores[:count])
        expected = suppressed(
            boxes[:count], scores[:count], 4, 0.3, -0.5, center, limit
        )
        assert len(expected) > 3
        check([rows], [expected])
        assert number.dtype == np.int32
        assert int(number) == len(expected)


def test_boxes_without_thresholds_and_a_number_of_the_run() -> None:
    boxes, scores = some_boxes(1, 12), random(1, 12, 2)

    def make(network: trt.INetworkDefinition) -> Any:
        layer = network.add_nms(
            network.add_input("boxes", trt.float32, boxes.shape),
            network.add_input("scores", trt.float32, scores.shape),
            network.add_input("most", trt.int32, (1,)),
            trt.int64,
        )
        assert layer.indices_type is trt.int64
        return layer.get_output(0)

    model = build(make)
    for most in (3, 1, 0, -2, 100):
        rows = model(boxes, scores, np.array([most], np.int32))
        check([rows], [suppressed(boxes, scores, max(most, 0)).astype(np.int64)])


@pytest.mark.parametrize("opset", [10, 11, 17])
@pytest.mark.parametrize("given", [2, 3, 4, 5])
def test_boxes_as_onnx_runtime_finds_them(opset: int, given: int) -> None:
    boxes, scores = some_boxes(2, 30), random(2, 4, 30)
    numbers = [
        np.array([6], np.int64),
        np.array([0.25], np.float32),
        np.array([0.1], np.float32),
    ]
    names = ["boxes", "scores", "most", "iou", "least"][:given]
    inputs = [
        helper.make_tensor_value_info(name, kind, shape)
        for name, kind, shape in (("boxes", 1, [2, 30, 4]), ("scores", 1, [2, 4, 30]))
    ]
    graph = helper.make_graph(
        [helper.make_node("NonMaxSuppression", names, ["y"])],
        "boxes",
        inputs,
        [helper.make_tensor_value_info("y", 7, ["n", 3])],
        [
            onnx.numpy_helper.from_array(array, name)
            for name, array in zip(names[2:], numbers, strict=False)
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 8
    session = onnxruntime.InferenceSession(model.SerializeToString())
    expected = session.run(None, {"boxes": boxes, "scores": scores})[0]
    found = trt.compile(model.SerializeToString(), device="cpu")(boxes, scores)
    check([found], [expected.reshape(-1, 3)])


def test_a_detector(tmp_path: Path) -> None:
    check_detector(tmp_path, "cpu", 200)


# ---- Sequences ----


@pytest.mark.parametrize("axes", [(1, 0), (0, 1), (0, -1), (2, 1)])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_])
def test_reverse_sequence(axes: tuple[int, int], dtype: Any) -> None:
    x = np.random.default_rng(2).integers(0, 2, (3, 5, 4)).astype(dtype)
    batch, sequence = axes
    extent = x.shape[sequence]
    lengths = (np.arange(x.shape[batch]) * 2 % (extent + 1)).astype(np.int32)

    def make(network: trt.INetworkDefinition) -> Any:
        tensor = network.add_input("x", trt._arrays.dtype_of(x.dtype), (-1, 5, 4))
        sizes = network.add_input("lengths", trt.int32, (-1,))
        layer = network.add_reverse_sequence(tensor, sizes)
        assert layer.type is trt.LayerType.REVERSE_SEQUENCE
        assert (layer.batch_axis, layer.sequence_axis) == (1, 0)
        layer.batch_axis, layer.sequence_axis = axes
        assert (layer.batch_axis, layer.sequence_axis) == axes
        assert layer.get_input(1) == sizes
        return layer.get_output(0)

    expected = x.copy()
    rows, found = np.moveaxis(x, axes, (0, 1)), np.moveaxis(expected, axes, (0, 1))
    for i, n in enumerate(lengths):
        found[i, :n] = rows[i, :n][::-1]
    shapes = {
        "x": ((1, 5, 4), (3, 5, 4), (6, 5, 4)),
        "lengths": ((1,), (len(lengths),), (6,)),
    }
    check([build(make, shapes=shapes)(x, lengths)], [expected])
    short = np.full_like(lengths, -1)
    check([build(make, shapes=shapes)(x, short)], [x])


# ---- Compress, Unique ----


def onnx_model(op: str, outputs: int, *arrays: Any, **attributes: Any) -> Any:
    """One node whose inputs have dimensions that only a run tells."""
    names = [f"x{i}" for i in range(len(arrays))]
    results = [f"y{i}" for i in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(op, names, results, **attributes)],
        "node",
        [
            helper.make_tensor_value_info(
                name,
                helper.np_dtype_to_tensor_dtype(a.dtype),
                [f"{name}_0", *a.shape[1:]],
            )
            for name, a in zip(names, arrays, strict=True)
        ],
        [onnx.ValueInfoProto(name=name) for name in results],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model


def check_onnx(op: str, outputs: int, *arrays: Any, **attributes: Any) -> None:
    model = onnx_model(op, outputs, *arrays, **attributes).SerializeToString()
    session = onnxruntime.InferenceSession(model)
    expected = session.run(None, {f"x{i}": a for i, a in enumerate(arrays)})
    shapes = {
        f"x{i}": ((1, *a.shape[1:]), a.shape, (2 * len(a), *a.shape[1:]))
        for i, a in enumerate(arrays)
    }
    found = trt.compile(model, device="cpu", shapes=shapes, optimization_level=0)(*arrays)
    check(found if outputs > 1 else [found], expected)


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("length", [2, 3])
def test_compress(axis: int | None, length: int) -> None:
    x = random(3, 4, 3)
    condition = np.array([False, True, True][:length])
    attributes = {} if axis is None else {"axis": axis}
    check_onnx("Compress", 1, x, condition, **attributes)


@pytest.mark.parametrize("axis", [None, 0, 1, -2])
@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.int8])
def test_unique(axis: int | None, order: int, dtype: Any) -> None:
    x = np.random.default_rng(4).integers(0, 2, (5, 3)).astype(dtype)
    x[3] = x[1]
    attributes = {"sorted": order} | ({} if axis is None else {"axis": axis})
    if axis == 1:  # rows whose length is not known cannot be compared
        with pytest.raises(trt.Error, match=r"slices along axis 1 have -1 elements"):
            check_onnx("Unique", 4, x, **attributes)
        x = x[:, :, None].swapaxes(0, 1)
        attributes["axis"] = 0
    check_onnx("Unique", 4, x, **attributes)


# ---- Mistakes ----


def test_mistakes() -> None:
    boxes, scores = some_boxes(1, 4), random(1, 4, 2)
    most = np.array(2, np.int32)
    for wrong, message in (
        ((boxes[..., :3], scores, most), r"boxes'\) has shape \(1, 4, 3\)"),
        ((boxes[0], scores, most), r"boxes'\) has shape \(4, 4\)"),
        ((boxes, scores[:, :3], most), r"scores'\) has shape \(1, 3, 2\)"),
        ((boxes, scores, np.array([1, 2], np.int32)), "expected one number"),
        ((boxes, scores, most, scores[0]), r"iou_threshold'\) has shape \(4, 2\)"),
    ):
        with pytest.raises(OpError, match=message):
            evaluate_all("nms", 2, *wrong)
    with pytest.raises(OpError, match="topk_box_limit' is -1; expected 0"):
        evaluate_all("nms", 2, boxes, scores, most, topk_box_limit=-1)
    x, lengths = random(2, 3), np.array([1, 2], np.int32)
    for attributes, message in (
        ({"batch_axis": 0, "sequence_axis": 0}, "both axis 0"),
        ({"batch_axis": 0, "sequence_axis": 2}, "'sequence_axis' is 2"),
        ({"batch_axis": 1, "sequence_axis": 0}, r"has shape \(2,\); expected one length"),
    ):
        with pytest.raises(OpError, match=message):
            evaluate_all("reverse_sequence", 1, x, lengths, **attributes)


def test_lengths_that_do_not_fit_a_run() -> None:
    def make(network: trt.INetworkDefinition) -> Any:
        x = network.add_input("x", trt.float32, (4, -1))
        lengths = network.add_input("lengths", trt.int32, (-1,))
        return network.add_reverse_sequence(x, lengths).get_output(0)

    shapes = {"x": ((4, 1), (4, 3), (4, 9)), "lengths": ((1,), (3,), (9,))}
    model = build(make, shapes=shapes)
    with pytest.raises(trt.Error, match=r"'sequence_lens'\) has shape \(2,\); expected one length"):
        model(random(4, 3), np.array([1, 2], np.int32))


@pytest.mark.parametrize(
    ("op", "arrays", "attributes", "message"),
    [
        ("Compress", [random(3, 2), np.ones((2, 2), bool)], {}, "has rank 2; expected 1"),
        (
            "Compress",
            [random(3, 2), np.ones(4, bool)],
            {"axis": 1},
            "has 4 elements; there are 2",
        ),
        (
            "NonMaxSuppression",
            [random(1, 2, 4), random(1, 1, 2)],
            {"center_point_box": 2},
            "center_point_box is 2; expected 0 or 1",
        ),
        ("Unique", [random(2, 300)], {"axis": 0}, "have 300 elements"),
    ],
)
def test_mistakes_in_models(
    op: str, arrays: Any, attributes: Any, message: str
) -> None:
    model = onnx_model(op, 1, *arrays, **attributes)
    for value, array in zip(model.graph.input, arrays, strict=True):
        value.type.tensor_type.shape.dim[0].dim_value = array.shape[0]
    with pytest.raises(trt.Error, match=message):
        trt.compile(model.SerializeToString(), device="cpu")


def test_in_a_loop() -> None:
    def make(network: trt.INetworkDefinition) -> Any:
        x = network.add_input("x", trt.float32, (3, 6))
        loop = network.add_loop()
        trips = network.add_constant((), np.array(3, np.int32)).get_output(0)
        loop.add_trip_limit(trips, trt.TripLimit.COUNT)
        row = loop.add_iterator(x, 0).get_output(0)
        found = network.add_non_zero(row).get_output(0)
        count = network.add_slice(
            network.add_shape(found).get_output(0), (1,), (1,), (1,)
        )
        out = loop.add_loop_output(
            count.get_output(0), trt.LoopOutput.CONCATENATE, 0
        )
        out.set_input(1, trips)
        return out.get_output(0)

    x = np.random.default_rng(1).integers(0, 2, (3, 6)).astype(np.float32)
    found = build(make)(x)
    assert found.reshape(-1).tolist() == (x != 0).sum(1).tolist()
