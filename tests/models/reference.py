"""Inputs for a model, and its results by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

from .graph import PLUGIN_OP, RANGE_KEY, rng_for
from .plugins import known_operators

Array = NDArray[np.generic]
Model = onnx.ModelProto | Path | str


def load(model: Model) -> onnx.ModelProto:
    """A model from a file, with its external data, or the model itself."""
    return model if isinstance(model, onnx.ModelProto) else onnx.load(model)


def input_infos(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """The inputs that a caller must give (old files list weights as well)."""
    held = {tensor.name for tensor in model.graph.initializer}
    return [info for info in model.graph.input if info.name not in held]


def _shape(info: onnx.ValueInfoProto, dims: Mapping[str, int]) -> tuple[int, ...]:
    shape = []
    for dim in info.type.tensor_type.shape.dim:
        if dim.HasField("dim_value"):
            shape.append(dim.dim_value)
        elif dim.dim_param in dims:
            shape.append(dims[dim.dim_param])
        else:
            raise ValueError(
                f"input '{info.name}' has the symbolic dimension '{dim.dim_param}': "
                "give its length in dims"
            )
    return tuple(shape)


def sample_inputs(
    model: Model, *, seed: int = 0, dims: Mapping[str, int] | None = None
) -> dict[str, Array]:
    """Seeded inputs: normal floats; integers from the range that the model's
    metadata give. dims: lengths of the symbolic dimensions."""
    loaded = model if isinstance(model, onnx.ModelProto) else _without_data(model)
    ranges = {p.key: p.value for p in loaded.metadata_props}
    inputs: dict[str, Array] = {}
    for info in input_infos(loaded):
        shape = _shape(info, dims or {})
        rng = rng_for(seed, info.name)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
        if np.issubdtype(dtype, np.floating):
            inputs[info.name] = rng.standard_normal(shape, np.float32).astype(dtype)
            continue
        key = RANGE_KEY + info.name
        if key not in ranges:
            raise ValueError(
                f"input '{info.name}' is of {dtype} and the model's metadata have "
                f"no '{key}': give the input yourself"
            )
        low, high = (int(value) for value in ranges[key].split(","))
        inputs[info.name] = rng.integers(low, high, shape, dtype)
    return inputs


def _without_data(path: Path | str) -> onnx.ModelProto:
    return onnx.load(path, load_external_data=False)


def with_intermediates(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of `model` whose every tensor is an output, save the masks of
    Dropout, which mean nothing in inference."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    have = {info.name for info in result.graph.output}
    for node in result.graph.node:
        names = node.output[:1] if node.op_type == "Dropout" else node.output
        for name in names:
            if name and name not in have:
                result.graph.output.append(onnx.ValueInfoProto(name=name))
                have.add(name)
    return result


def reference(
    model: Model,
    inputs: Mapping[str, Array],
    *,
    intermediates: bool = False,
    threads: int = 0,
) -> dict[str, Array]:
    """The outputs by ONNX Runtime, its graph optimisations off.

    Padding plugins are computed as Slice and Concat. intermediates: every
    tensor that a node gives, not the outputs alone. threads: 0 means all.
    """
    import onnxruntime

    loaded = load(model)
    if any(node.op_type == PLUGIN_OP for node in loaded.graph.node):
        loaded = known_operators(loaded)
    if intermediates:
        loaded = with_intermediates(loaded)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.graph_optimization_level = level
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        loaded.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def relative_error(actual: Array, expected: Array) -> float:
    """The largest difference over the largest magnitude expected."""
    if actual.shape != expected.shape:
        raise AssertionError(f"shape {actual.shape}, expected {expected.shape}")
    difference = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
    if difference.size == 0:
        return 0.0
    scale = float(np.abs(expected.astype(np.float64)).max())
    worst = float(difference.max())
    return worst / scale if scale else worst
