"""BatchNormalization behind a layer becomes part of its weights: 8 bits of these must be
those that the layer multiplies with."""

from __future__ import annotations

from typing import Any

from ._layers import CHANNELS, Scope, constant
from ._model import Model, Node
from ._tensor import BFLOAT16, FLOATS, Tensor, stored, widened


def _floats(scope: Scope, name: str) -> Any:
    """A constant as float32; None: it is none."""
    found = constant(scope, name) if name else None
    if found is None or found[1] not in FLOATS:
        return None
    values, dtype = found
    return widened(values) if dtype == BFLOAT16 else values.astype("f4")


def _normalized(scope: Scope, norm: Node) -> tuple[Any, Any] | None:
    """(factor, offset) of each channel."""
    import numpy as np

    parts = [_floats(scope, name) for name in norm.inputs[1:5]]
    if any(part is None for part in parts) or norm.get("training_mode", 0):
        return None
    scale, bias, mean, variance = (part.astype(np.float64) for part in parts)
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + norm.get("epsilon", 1e-5))
        offset = bias - mean * factor
    return (factor, offset) if np.isfinite(factor + offset).all() else None


def _scaled(node: Node, weights: Any, factor: Any) -> Any:
    """The weights with each output channel scaled; None: their shape does not allow it."""
    axis = 0 if node.op == "Gemm" and node.get("transB", 0) else CHANNELS[node.op]
    if node.op == "ConvTranspose" and node.get("group", 1) != 1:
        return None
    if weights.ndim <= axis or weights.shape[axis] != factor.size:
        return None
    shape = [-1 if i == axis else 1 for i in range(weights.ndim)]
    return weights * factor.reshape(shape)


def _fold(model: Model, scope: Scope, node: Node, norm: Node) -> bool:
    import numpy as np

    weights = _floats(scope, node.inputs[1])
    bias = _floats(scope, node.input(2)) if node.input(2) else 0.0
    found = _normalized(scope, norm)
    # With alpha and beta, or a bias that spreads, the offset is not the bias alone.
    plain = node.op != "Gemm" or (node.get("alpha", 1), node.get("beta", 1)) == (1, 1)
    if weights is None or bias is None or found is None or not plain:
        return False
    if node.op == "Gemm" and np.ndim(bias) > 1:
        return False
    factor, offset = found
    scaled = _scaled(node, weights, factor)
    if scaled is None:
        return False
    dtype = constant(scope, node.inputs[1])[1]  # type: ignore[index]
    made = (("weights", scaled), ("bias", bias * factor + offset))
    for at, (what, values) in enumerate(made, 1):
        values = stored(values.astype(np.float32), dtype)
        tensor = Tensor.of(model.name(f"{norm.outputs[0]}_{what}"), values)
        tensor.dtype = dtype
        scope.graph.initializers[tensor.name] = tensor
        node.inputs[at : at + 1] = [tensor.name]
    return True


def fold_normalizations(model: Model) -> int:
    """Folds what can be folded; returns how many were."""
    count = 0
    for scope in list(Scope.walk(model.graph)):
        gone: list[Node] = []
        for norm in scope.graph.nodes:
            if not norm.is_onnx("BatchNormalization") or any(norm.outputs[1:]):
                continue
            node = scope.makers.get(norm.inputs[0])
            if (
                node is None
                or not node.is_onnx("Conv", "ConvTranspose", "Gemm")
                or not scope.is_read_once(norm.inputs[0])
                or not _fold(model, scope, node, norm)
            ):
                continue
            node.outputs[0] = norm.outputs[0]
            gone.append(norm)
        for norm in gone:
            scope.graph.nodes.remove(norm)
        count += len(gone)
    return count
