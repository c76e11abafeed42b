"""Models of one node that ONNX Runtime defines, at random, compared with it."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.python.support import onnx_text

CPU = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""


@functools.cache
def sums_saturate() -> bool:
    """Whether ONNX Runtime adds pairs of UINT8 * INT8 in 16 bits, which saturate, as it does
    on processors without VNNI. Its session option against that fails where products share
    weights."""
    inputs, outputs = "uint8[1,64] x, int8[64,64] w", "int32[1,64] y"
    model = onnx_text.model_of(inputs, outputs, "y = MatMulInteger(x, w)")
    feeds = {"x": np.full((1, 64), 255, np.uint8), "w": np.full((64, 64), 127, np.int8)}
    return onnx_text.expected(model, feeds)[0][0, 0] != 64 * 255 * 127


_INTEGERS = {
    onnx.TensorProto.INT8: (-64, 64) if sums_saturate() else (-128, 128),
    onnx.TensorProto.UINT8: (0, 256),
    onnx.TensorProto.INT32: (0, 4),
    onnx.TensorProto.INT64: (0, 4),
}


class Case(NamedTuple):
    """A node in ONNX's text format. `constants` are inputs that become initializers."""

    inputs: str
    outputs: str
    node: str
    constants: str = ""
    values: Mapping[str, Any] = MappingProxyType({})
    """Of inputs; a function gets the sizes by name."""


def _array(rng: np.random.Generator, value: Any, sizes: dict[str, int]) -> Any:
    kind = value.type.tensor_type.elem_type
    shape = [
        sizes[d.dim_param] if d.dim_param else d.dim_value
        for d in value.type.tensor_type.shape.dim
    ]
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    if kind in _INTEGERS:
        return rng.integers(*_INTEGERS[kind], shape).astype(dtype)
    if kind == onnx.TensorProto.BOOL:
        return rng.random(shape) > 0.4
    return rng.standard_normal(shape).astype(dtype)


def feeds_of(
    case: Case, model: onnx.ModelProto, sizes: dict[str, int], seed: int = 0
) -> dict[str, Any]:
    """Arrays for all inputs."""
    rng = np.random.default_rng(seed)
    found = {v.name: _array(rng, v, sizes) for v in model.graph.input}
    for name, value in case.values.items():
        given = value(sizes) if callable(value) else value
        found[name] = np.asarray(given, found[name].dtype)
    return found


def model_of(case: Case, opset: int = 21) -> onnx.ModelProto:
    """Its model, all of whose operands are inputs."""
    return onnx_text.model_of(case.inputs, case.outputs, case.node, opset, 10)


def hold(case: Case, model: onnx.ModelProto, feeds: dict[str, Any]) -> None:
    """Makes the case's constants initializers of the model."""
    constants = case.constants.split()
    model.graph.initializer.extend(
        numpy_helper.from_array(feeds[name], name) for name in constants)  # fmt: skip
    left = [v for v in model.graph.input if v.name not in constants]
    del model.graph.input[:]
    model.graph.input.extend(left)


def check(
    case: Case, sizes: Iterable[dict[str, int]] = ({},), opset: int = 21, **limits: Any
) -> Any:
    """Compares all outputs at all sizes, of which the first are the usual ones."""
    model = model_of(case, opset)
    runs = [feeds_of(case, model, one, i) for i, one in enumerate(sizes)]
    hold(case, model, runs[0])
    constants = case.constants.split()
    runs = [{k: v for k, v in run.items() if k not in constants} for run in runs]
    return onnx_text.check(model, runs, **limits)
