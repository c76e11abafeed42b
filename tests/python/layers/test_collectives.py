"""Collective layers of networks: shapes, arguments that are refused, ONNX, one rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import rabbet as trt
from onnx import helper

_OPS = trt.CollectiveOperation
_REDUCING = (_OPS.ALL_REDUCE, _OPS.REDUCE, _OPS.REDUCE_SCATTER)
LOG = trt.Logger(trt.Logger.ERROR)


def _network(shape: tuple[int, ...], dtype: trt.DataType = trt.float32) -> Any:
    network = trt.Builder(LOG).create_network(0)
    return network, network.add_input("x", dtype, shape)


def _add(network: Any, x: Any, op: _OPS, ranks: int = 1, root: int = 0, groups: Any = None) -> Any:
    reduce = trt.ReduceOperation.SUM if op in _REDUCING else trt.ReduceOperation.NONE
    layer = network.add_dist_collective(x, op, reduce, root, groups)
    if ranks > 1:
        layer.num_ranks = ranks
    return layer


@pytest.mark.parametrize("op", list(_OPS))
@pytest.mark.parametrize("shape", [(8, 3), (-1, 3)])
@pytest.mark.parametrize("groups", [None, [3, 0, 2, 1]])
def test_shapes(op: _OPS, shape: tuple[int, ...], groups: list[int] | None) -> None:
    """Gathers multiply dimension 0 by the ranks, scatters divide it."""
    network, x = _network(shape)
    layer = _add(network, x, op, 1 if groups else 4, groups=groups)
    first = 8
    if op in (_OPS.ALL_GATHER, _OPS.GATHER):
        first = 32
    elif op in (_OPS.REDUCE_SCATTER, _OPS.SCATTER):
        first = 2
    assert tuple(layer.get_output(0).shape) == (shape[0] if shape[0] < 0 else first, 3)
    assert layer.type is trt.LayerType.DIST_COLLECTIVE
    assert int(layer.type) == 56


@pytest.mark.parametrize(
    ("op", "reduce", "root", "groups", "ranks", "shape", "says"),
    [
        ("ALL_REDUCE", "NONE", -1, None, 2, (4,), "ALL_REDUCE needs SUM, PROD, MAX"),
        ("ALL_GATHER", "SUM", -1, None, 2, (4,), "it must be NONE"),
        ("BROADCAST", "NONE", -1, None, 2, (4,), "root is -1"),
        ("SCATTER", "NONE", 2, None, 2, (4,), "root is 2"),
        ("GATHER", "NONE", 1, [0, 2], 1, (4,), "not one of the 2 ranks"),
        ("ALL_TO_ALL", "NONE", -1, None, 3, (4,), "number of ranks, 3, divides"),
        ("REDUCE_SCATTER", "SUM", -1, None, 4, (6,), "number of ranks, 4, divides"),
        ("ALL_GATHER", "NONE", -1, None, 2, (), "is a scalar"),
        ("ALL_REDUCE", "SUM", -1, [0, 0], 1, (4,), "rank 0 twice"),
        ("ALL_REDUCE", "SUM", -1, [0, -1], 1, (4,), "rank -1"),
        ("ALL_REDUCE", "SUM", -1, [0, 1, 2], 2, (4,), "num_ranks is 2"),
        ("ALL_REDUCE", "SUM", -1, None, 0, (4,), "num_ranks is 0"),
    ],
)
def test_arguments(
    op: str, reduce: str, root: int, groups: Any, ranks: int, shape: Any, says: str
) -> None:
    """What does not fit is refused, with a reason."""
    network, x = _network(shape)
    with pytest.raises(trt.InvalidArgumentError, match=says):
        layer = network.add_dist_collective(
            x, _OPS[op], trt.ReduceOperation[reduce], root, groups
        )
        layer.num_ranks = ranks
        assert layer.get_output(0).shape is not None


def test_bool_is_not_reduced() -> None:
    """It says to cast."""
    network, x = _network((4,), trt.bool)
    with pytest.raises(trt.InvalidArgumentError, match="insert a cast"):
        _add(network, x, _OPS.ALL_REDUCE).get_output(0).shape  # noqa: B018


def test_cpu_refuses_ranks_and_copies_one() -> None:
    """One rank is the identity; more name the layer and the device."""
    for ranks in (1, 2):
        network, x = _network((4, 2))
        layer = _add(network, x, _OPS.ALL_REDUCE, ranks)
        network.mark_output(layer.get_output(0))
        builder = trt.Builder(LOG)
        config = builder.create_builder_config()
        config.device = "cpu"
        if ranks == 2:
            with pytest.raises(trt.UnsupportedError, match="build for 'cuda'"):
                builder.build_serialized_network(network, config)
            continue
        plan = builder.build_serialized_network(network, config)
        model = trt.Model(trt.Runtime(LOG).deserialize_cuda_engine(plan))
        value = np.arange(8, dtype=np.float32).reshape(4, 2)
        np.testing.assert_array_equal(model(value), value)


def _parsed(**attributes: Any) -> Any:
    node = helper.make_node("DistCollective", ["x"], ["y"], **attributes)
    kinds = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [4, 2]) for n in "x"]
    made = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", kinds, [made])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    network = trt.Builder(LOG).create_network(0)
    parser = trt.OnnxParser(network, LOG)
    assert parser.parse(model.SerializeToString())
    return network


def test_onnx() -> None:
    """Attributes as TensorRT's tools write them."""
    network = _parsed(
        collective_operation="all_gather", reduce_op="sum", root=0, group_size=3
    )
    assert tuple(network.get_output(0).shape) == (12, 2)
    network = _parsed(collective_operation="reduce_scatter", reduce_op="max", groups=[1, 0])
    assert tuple(network.get_output(0).shape) == (2, 2)


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        ({"collective_operation": "all_gather", "group_size": 0}, "means all ranks"),
        ({"collective_operation": "gossip", "group_size": 2}, "expected one of all_reduce"),
        ({"group_size": 2}, "'collective_operation' is missing"),
        (
            {"collective_operation": "all_gather", "group_size": 3, "groups": [0, 1]},
            "'groups' has 2",
        ),
        ({"collective_operation": "all_reduce", "group_size": 2}, "needs SUM"),
    ],
)
def test_onnx_refusals(attributes: dict[str, Any], says: str) -> None:
    """Each says what it expects."""
    with pytest.raises(trt.Error, match=says):
        _parsed(**attributes)
