"""The light models of the onnx package's backend tests, refilled.

As shipped, their weights are one number repeated (ConstantOfShape), so every
output is equal and a wrong engine can pass. Refilled, they have weights drawn
from a seeded generator and scaled by layer, so that values stay in range and
differ.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from .graph import rng_for

Roles = dict[str, tuple[str, int]]
"""Tensor -> the operator that uses it as a parameter, and at which input."""

_LEAST_IR = 4  # the first in which an initializer need not be a graph input


def shipped(name: str) -> Path:
    """The file of a light model, say "light_resnet50", as shipped."""
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    path = folder / f"{name}.onnx"
    if not path.is_file():
        known = ", ".join(names()) or "none at all"
        raise FileNotFoundError(f"the onnx package has no '{name}'; it has {known}")
    return path


def names() -> list[str]:
    """The light models that the installed onnx package ships."""
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    return sorted(path.stem for path in folder.glob("light_*.onnx"))


def _parameter_shapes(graph: onnx.GraphProto) -> dict[str, tuple[int, ...]]:
    """Shapes of all float tensors known before the model runs."""
    held = {tensor.name: tensor for tensor in graph.initializer}
    shapes = {
        name: tuple(tensor.dims)
        for name, tensor in held.items()
        if tensor.data_type == onnx.TensorProto.FLOAT
    }
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in held:
            shape = numpy_helper.to_array(held[node.input[0]])
            shapes[node.output[0]] = tuple(int(length) for length in shape)
    return shapes


def _roles(graph: onnx.GraphProto, known: dict[str, tuple[int, ...]]) -> Roles:
    """How each known tensor is used, seen through Unsqueeze and Reshape."""
    origin = {name: name for name in known}
    roles: Roles = {}
    for node in graph.node:
        if node.op_type in ("Unsqueeze", "Reshape") and node.input[0] in origin:
            origin[node.output[0]] = origin[node.input[0]]
            continue
        for index, name in enumerate(node.input):
            if name in origin:
                roles[origin[name]] = (node.op_type, index)
    return roles


def _last_of_branch(graph: onnx.GraphProto) -> set[str]:
    """Scales of batch normalisations whose results are only summed: kept
    small, so that a chain of residual blocks does not grow."""
    users: dict[str, set[str]] = {}
    for node in graph.node:
        for name in node.input:
            users.setdefault(name, set()).add(node.op_type)
    return {
        node.input[1]
        for node in graph.node
        if node.op_type == "BatchNormalization" and users[node.output[0]] == {"Sum"}
    }


def _values(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    role: tuple[str, int],
    small: bool,
) -> NDArray[np.float32]:
    """Values fit for a parameter: He's rule for weights, gentle statistics."""

    def normal(std: float) -> NDArray[np.float32]:
        return rng.standard_normal(shape, np.float32) * np.float32(std)

    match role:
        case ("Conv", 1):
            return normal((2 / np.prod(shape[1:])) ** 0.5)
        case ("Gemm", 1):  # all of the light models have transB = 1
            return normal((2 / shape[-1]) ** 0.5)
        case ("BatchNormalization", 1) | ("Mul", _):
            middle = 0.5 if small else 1.0
            return rng.uniform(0.7 * middle, 1.3 * middle, shape).astype(np.float32)
        case ("BatchNormalization", 4):
            return rng.uniform(0.6, 1.6, shape).astype(np.float32)
        case ("Conv" | "Gemm", 2) | ("BatchNormalization", 2 | 3) | ("Add", _):
            return normal(0.1)
    raise ValueError(f"no rule for a float parameter at input {role[1]} of {role[0]}")


def refill(model: onnx.ModelProto, *, seed: int = 0) -> onnx.ModelProto:
    """A copy of a light model with all of its weights drawn anew."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    shapes = _parameter_shapes(graph)
    roles = _roles(graph, shapes)
    small = _last_of_branch(graph)
    filled = [
        numpy_helper.from_array(
            _values(rng_for(seed, name), shapes[name], role, name in small), name
        )
        for name, role in sorted(roles.items())
    ]
    kept_nodes = [n for n in graph.node if n.output[0] not in roles]
    used = {name for node in kept_nodes for name in node.input}
    kept = [t for t in graph.initializer if t.name in used and t.name not in roles]
    constants = set(shapes) | {tensor.name for tensor in graph.initializer}
    inputs = [i for i in graph.input if i.name not in constants]
    for field, values in (
        (graph.node, kept_nodes),
        (graph.initializer, filled + kept),
        (graph.input, inputs),
    ):
        del field[:]
        field.extend(values)
    result.ir_version = max(result.ir_version, _LEAST_IR)
    onnx.checker.check_model(result)
    return result


def light(
    *, model: str = "light_squeezenet", filled: bool = True, seed: int = 0
) -> onnx.ModelProto:
    """A light model, refilled or as shipped."""
    shipped_model = onnx.load(shipped(model))
    return refill(shipped_model, seed=seed) if filled else shipped_model
