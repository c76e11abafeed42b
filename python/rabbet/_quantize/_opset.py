"""Raises the version of ONNX's operators, as QuantizeLinear needs.

A rule rewrites the nodes of one operator for the version in which its meaning, or the
place of an argument, changed. Versions that only added types or optional arguments need
no rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .._errors import UnsupportedError
from ._model import Graph, Model, Node
from ._tensor import Tensor

# The oldest versions whose changes the rules know.
OLDEST = 7
# The versions with 8 bits by channel, with scales of other floating types, and with blocks
# of INT4 and an attribute for the type of what is quantized.
PER_CHANNEL, NARROW_FLOATS, BLOCKS = 13, 19, 21
# The versions of the file format that have these operators and types.
_IR_VERSIONS = ((PER_CHANNEL, 7), (NARROW_FLOATS, 9), (BLOCKS, 10))


class _Pass:
    """Rewriting of the nodes of a graph or function."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.before: list[Node] = []  # nodes to insert before the present one
        self.after: list[Node] = []

    def constant(self, node: Node, what: str, values: Any, kind: str) -> str:
        """The name of a constant that a new node makes."""
        import numpy as np

        name = self.model.name(f"{node.outputs[0] or node.name}_{what}")
        tensor = Tensor.of("", np.array(values, kind))
        self.before.append(Node("Constant", [], [name], value=tensor))
        return name

    def argument(self, node: Node, name: str, at: int, kind: str = "<i8") -> None:
        """An attribute becomes an input."""
        value = node.get(name)
        node.attributes.pop(name, None)
        if value is None:
            return
        node.inputs += [""] * (at + 1 - len(node.inputs))
        node.inputs[at] = self.constant(node, name, value, kind)


Rule = Callable[[_Pass, Node], None]


def _arguments(*names: str, kind: str = "<i8") -> Rule:
    """Attributes that become the inputs behind the first."""

    def rule(work: _Pass, node: Node) -> None:
        for at, name in enumerate(names, 1):
            work.argument(node, name, at, kind)

    return rule


def _typed(*names: str) -> Rule:
    """As above, for numbers that have the type of the first input."""

    def rule(work: _Pass, node: Node) -> None:
        for at, name in enumerate(names, 1):
            value = node.get(name)
            node.attributes.pop(name, None)
            if value is None:
                continue
            plain = work.constant(node, name, value, "<f4")
            cast = work.model.name(f"{plain}_like")
            work.before.append(Node("CastLike", [plain, node.inputs[0]], [cast]))
            node.inputs += [""] * (at + 1 - len(node.inputs))
            node.inputs[at] = cast

    return rule


def _pad(work: _Pass, node: Node) -> None:
    work.argument(node, "pads", 1)
    if node.get("mode", "constant") == "constant" and node.get("value"):
        _typed("", "value")(work, node)
    node.attributes.pop("value", None)


def _slice(work: _Pass, node: Node) -> None:
    _arguments("starts", "ends", "axes")(work, node)


def _top_k(work: _Pass, node: Node) -> None:
    node.set("k", [node.get("k")])
    work.argument(node, "k", 1)


def _dropout(work: _Pass, node: Node) -> None:
    node.attributes.pop("ratio", None)


def _softmax(work: _Pass, node: Node) -> None:
    """Over all axes from one on, until version 13; over that axis alone since."""
    axis = node.get("axis", 1)
    if axis == -1:
        node.set("axis", -1)
        return
    x, y = node.inputs[0], node.outputs[0]
    names = [work.model.name(f"{y}_{what}") for what in ("flat", "made", "shape")]
    flat, made, shape = names
    work.before += [
        Node("Shape", [x], [shape]),
        Node("Flatten", [x], [flat], axis=axis),
    ]
    node.inputs[0], node.outputs[0] = flat, made
    node.set("axis", -1)
    work.after.append(Node("Reshape", [made, shape], [y]))


def _split(work: _Pass, node: Node) -> None:
    if len(node.inputs) < 2 or not node.inputs[1]:
        node.set("num_outputs", len(node.outputs))


def _upsample(work: _Pass, node: Node) -> None:
    """Upsample and the first Resize: by scales, of corners, down to whole places."""
    if len(node.inputs) > 2:  # of this form already
        return
    if node.get("scales") is not None:
        work.argument(node, "scales", 1, "<f4")
    node.op = "Resize"
    node.inputs = [node.inputs[0], "", node.inputs[1]]
    node.set("coordinate_transformation_mode", "asymmetric")
    if node.get("mode", "nearest") == "nearest":
        node.set("nearest_mode", "floor")


def _scatter(work: _Pass, node: Node) -> None:
    node.op = "ScatterElements"


def _roi_align(work: _Pass, node: Node) -> None:
    if "coordinate_transformation_mode" not in node.attributes:
        node.set("coordinate_transformation_mode", "output_half_pixel")


def _grid_sample(work: _Pass, node: Node) -> None:
    names = {"bilinear": "linear", "bicubic": "cubic"}
    mode = node.get("mode", "bilinear")
    node.set("mode", names.get(mode, mode))


def _dft(work: _Pass, node: Node) -> None:
    node.inputs += [""] * (3 - len(node.inputs))
    axis = node.get("axis", 1)
    node.attributes.pop("axis", None)
    node.inputs[2] = work.constant(node, "axis", axis, "<i8")


def _batch_norm(work: _Pass, node: Node) -> None:
    node.attributes.pop("spatial", None)
    del node.outputs[1:]


def _group_norm(work: _Pass, node: Node) -> None:
    """Scale and bias are of groups before version 21, and of channels since."""
    x, name = node.inputs[0], node.outputs[0]
    channels, each, one = (
        work.model.name(f"{name}_{what}") for what in ("channels", "each", "shape")
    )
    groups = work.constant(node, "groups", [node.get("num_groups")], "<i8")
    axis = work.constant(node, "axis", [1], "<i8")
    all_of = work.constant(node, "all", [-1], "<i8")
    work.before += [
        Node("Shape", [x], [channels], start=1, end=2),
        Node("Div", [channels, groups], [each]),
        Node("Concat", [groups, each], [one], axis=0),
    ]
    for at in (1, 2):
        wide, spread, flat = (
            work.model.name(f"{node.inputs[at]}_{what}")
            for what in ("wide", "spread", "channels")
        )
        work.before += [
            Node("Unsqueeze", [node.inputs[at], axis], [wide]),
            Node("Expand", [wide, one], [spread]),
            Node("Reshape", [spread, all_of], [flat]),
        ]
        node.inputs[at] = flat


def _refused(work: _Pass, node: Node) -> None:
    raise UnsupportedError(
        f"node '{node.name or node.outputs[0]}' ({node.op}) is of version "
        f"{work.model.opset} of ONNX's operators and has another meaning in those that "
        "quantization needs: export the model with a newer opset"
    )


_REDUCES = [
    f"Reduce{kind}"
    for kind in ("Max", "Min", "Mean", "Prod", "L1", "L2", "LogSum", "LogSumExp")
] + ["ReduceSumSquare"]
# (operator, version that changed it, rule), in the order of versions.
RULES: list[tuple[str, int, Rule]] = [
    ("Scan", 9, _refused),
    ("BatchNormalization", 9, _batch_norm),
    ("Upsample", 10, _upsample),
    ("Slice", 10, _slice),
    ("TopK", 10, _top_k),
    ("Resize", 11, _upsample),
    ("Clip", 11, _typed("min", "max")),
    ("Pad", 11, _pad),
    ("Scatter", 11, _scatter),
    ("Dropout", 12, _dropout),
    *((op, 13, _arguments("axes")) for op in ("Squeeze", "Unsqueeze", "ReduceSum")),
    ("Split", 13, _arguments("split")),
    *((op, 13, _softmax) for op in ("Softmax", "LogSoftmax", "Hardmax")),
    ("BatchNormalization", 14, _batch_norm),
    ("RoiAlign", 16, _roi_align),
    *((op, 18, _arguments("axes")) for op in _REDUCES),
    ("Split", 18, _split),
    ("GridSample", 20, _grid_sample),
    ("DFT", 20, _dft),
    ("GroupNormalization", 21, _group_norm),
]


def needed(to: str, dtypes: set[int]) -> int:
    """The version that a kind of quantization needs for tensors of these types."""
    if to != "int8":
        return BLOCKS
    return NARROW_FLOATS if dtypes - {1} else PER_CHANNEL


def raise_opset(model: Model, version: int) -> None:
    """Rewrites the model for this version, if its own is lower."""
    for least, ir_version in _IR_VERSIONS:
        if max(version, model.opset) >= least:
            model.ir_version = max(model.ir_version, ir_version)
    lists = [*_lists(model.graph)]
    olds = [(nodes, model.opset) for nodes in lists]
    olds += [(f.nodes, f.opsets.get("", version)) for f in model.functions]
    # Clip and Pad of old get numbers of their input's type by CastLike.
    if any(old < PER_CHANNEL for _, old in olds):
        version = max(version, 15)
    for nodes, old in olds:
        if old < OLDEST:
            raise UnsupportedError(
                f"the model is of version {old} of ONNX's operators; quantization takes "
                f"models from version {OLDEST} on"
            )
        _convert(model, nodes, old, version)
    model.opsets[""] = max(model.opset, version)
    for function in model.functions:
        if "" in function.opsets:
            function.opsets[""] = max(function.opsets[""], version)


def _lists(graph: Graph) -> Iterator[list[Node]]:
    for each in graph.all():
        yield each.nodes


def _convert(model: Model, nodes: list[Node], old: int, new: int) -> None:
    steps: dict[str, list[tuple[int, Rule]]] = {}
    for op, since, rule in RULES:
        if old < since <= new:
            steps.setdefault(op, []).append((since, rule))
    made: list[Node] = []
    for node in nodes:
        work = _Pass(model)
        since = old
        # A rule may make another operator of the node, which has rules of its own.
        while node.is_onnx(*steps):
            later = [step for step in steps[node.op] if step[0] > since]
            if not later:
                break
            since, rule = later[0]
            rule(work, node)
        made += [*work.before, node, *work.after]
    nodes[:] = made
