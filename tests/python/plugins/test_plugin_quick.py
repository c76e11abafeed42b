"""Quick plugins as classes: IPluginV3Quick..., IPluginCreatorV3Quick."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rabbet as trt
from onnx import TensorProto, helper

from tests.python.support.class_plugins import (
    BUILD,
    RUNTIME,
    derived,
    one_layer,
    register,
)
from tests.python.support.plugins import random
from tests.python.support.quick_plugins import QuickCreator, QuickScale

UNKNOWN = trt.QuickPluginCreationRequest.UNKNOWN


def new(**members: Any) -> Any:
    """A registered creator of a class of its own."""
    return register(derived(QuickScale, **members), QuickCreator)


def test_build_load_run(tmp_path: Path) -> None:
    creator = new()
    model = one_layer(creator.new(2.5), (4, 3))
    x = random(4, 3)
    np.testing.assert_array_equal(model(x), x * np.float32(2.5))
    model.save(tmp_path / "m.plan")
    creator.made.clear()
    again = trt.load(tmp_path / "m.plan", device="cpu")
    assert creator.made == [(creator.name, "test", RUNTIME, UNKNOWN)]
    np.testing.assert_array_equal(again(x), x * np.float32(2.5))
    information = again.engine.create_engine_inspector().get_engine_information(
        trt.LayerInformationFormat.JSON
    )
    assert json.loads(information)["Layers"][0]["Metadata"] == "quick"


def test_half() -> None:
    creator = new()
    model = one_layer(creator.new(2), (-1, 3), dtype=trt.float16,
                      shapes={"x0": ((1, 3), (2, 3), (5, 3))})  # fmt: skip
    for rows in (1, 5):
        x = random(rows, 3).astype(np.float16)
        np.testing.assert_array_equal(model(x), x * 2)
    assert ("configure", trt.float16) in creator.log


def test_onnx() -> None:
    creator = new()
    node = helper.make_node(
        creator.name, ["x"], ["y"], name="n", plugin_namespace="test", factor=0.5
    )
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", [x], [y])
    opset = [helper.make_opsetid("", 19)]
    model = trt.compile(
        helper.make_model(graph, opset_imports=opset, ir_version=9), device="cpu"
    )
    assert creator.made[0] == (creator.name, "test", BUILD, UNKNOWN)
    value = random(2, 3)
    np.testing.assert_array_equal(model(value), value * np.float32(0.5))


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"get_num_outputs": lambda self: 0}, "get_num_outputs.*returned 0; expected 1 or more"),
        (
            {"get_supported_format_combinations": lambda self, in_out, n: [in_out[0].desc]},
            r"get_supported_format_combinations\(\) of layer 'plugin_0': it returned 1 "
            "descriptors; expected a multiple of 2",
        ),
        (
            {"get_supported_format_combinations": lambda self, in_out, n: 3},
            "it returned 3; expected a list of PluginTensorDesc",
        ),
        ({"get_valid_tactics": lambda self: [0]}, "it returned 0; expected 1 or more"),
        ({"enqueue": None}, r"enqueue\(\) of layer 'plugin_0': the class does not define it"),
        (
            {"get_capability_interface": lambda self, kind: self if kind != kind.RUNTIME else None},
            "for RUNTIME it returned None; expected .* IPluginV3QuickRuntime",
        ),
    ],
)
def test_mistakes(members: dict[str, Any], expected: str) -> None:
    with pytest.raises(trt.PluginError, match=expected):
        one_layer(new(**members).new(2), (4, 3))(random(4, 3))


def test_without_anything_optional() -> None:
    class Plain(QuickScale):
        def set_tactic(self, tactic: int) -> None:
            self.tactic = 3 if tactic == 0 else -1

    for name in ("get_valid_tactics", "get_timing_cache_id", "get_metadata_string"):
        setattr(Plain, name, None)
    model = one_layer(register(derived(Plain), QuickCreator).new(3), (2, 2))
    x = random(2, 2)
    np.testing.assert_array_equal(model(x), x * 3)


def test_integers_of_launches() -> None:
    launch, extra = trt.KernelLaunchParams(), trt.ISymExprs()
    assert launch.grid_x is None
    extra.nbSymExprs = 2
    assert len(extra) == 2
    extra[0] = trt.ISymExpr()
    assert isinstance(extra[0], trt.ISymExpr)
    with pytest.raises(TypeError, match="expected an IDimensionExpr, got 4"):
        extra[0].expr = 4
    with pytest.raises(TypeError, match=r"KernelLaunchParams.grid_x: expected an ISymExpr"):
        launch.grid_x = 4
    with pytest.raises(TypeError, match="ISymExprs: expected an ISymExpr, got 1"):
        extra[1] = 1  # type: ignore[assignment]
