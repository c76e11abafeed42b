"""How the axes of each operator hang together: a rule for each, in one table.

A rule gives the axes of outputs from those of inputs. Axes that an operator walks
together are joined; those that it needs as a whole, and those that it sums over, are
noted. An operator without a rule needs all axes as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

from .._enums import (
    ElementWiseOperation,
    GatherMode,
    MatrixOperation,
    ReduceOperation,
    SampleMode,
    ScatterMode,
)
from ._axes import ONE, Atom, Axis, axis_of, cut, join, match, size_of
from ._graph import Graph, Op, Tensor

Axes = list[Axis]


class Rule:
    """An operator while its rule is applied."""

    def __init__(self, op: Op) -> None:
        self.op, self.layer = op, op.layer

    def attr(self, name: str) -> Any:
        """An attribute of the layer."""
        return self.layer._attr(name)

    def tensor(self, index: int) -> Tensor | None:
        """An input, or None."""
        return self.op.inputs[index] if index < len(self.op.inputs) else None

    def axes(self, index: int = 0) -> Axes:
        """The axes of an input that is there."""
        tensor = self.op.inputs[index]
        assert tensor is not None
        return tensor.axes

    def rank(self, index: int = 0) -> int:
        """The number of its axes."""
        return len(self.axes(index))

    def whole(self, index: int, axis: Axis) -> Axis:
        """The operator needs this axis of an input as a whole."""
        if axis:
            self.op.whole.append((index, axis))
        return axis

    def all_whole(self, first: int = 0) -> None:
        """The operator needs all inputs from `first` on as a whole."""
        for i, tensor in enumerate(self.op.inputs):
            for axis in tensor.axes if tensor is not None and i >= first else ():
                self.whole(i, axis)

    def give(self, axes: Axes, output: int = 0) -> None:
        """The axes of an output; extents that differ become axes of their own."""
        tensor = self.op.outputs[output]
        assert len(axes) == len(tensor.extents), self.op.name
        for i, axis in enumerate(axes):
            if size_of(axis) == tensor.extents[i]:
                tensor.axes[i] = axis

    def join(self, a: Axis, b: Axis) -> Axis:
        """Joins axes that the operator walks together, unless one has extent 1."""
        if a and b and a is not b:
            join(a, b, f"layer '{self.layer.name}'")
        return a or b

    def broadcast(self, indices: list[int]) -> Axes:
        """The axes of inputs that broadcast, aligned from the last."""
        found: Axes = []
        for index in indices:
            axes = self.axes(index)
            while len(found) < len(axes):
                found.insert(0, [])
            shift = len(found) - len(axes)
            for i, axis in enumerate(axes):
                found[shift + i] = self.join(found[shift + i], axis)
        return found


def _present(rule: Rule) -> list[int]:
    return [i for i, tensor in enumerate(rule.op.inputs) if tensor is not None]


# ---- Element by element ----


def _elementwise(rule: Rule) -> None:
    rule.give(rule.broadcast(_present(rule)))
    kind = ElementWiseOperation(rule.attr("op"))
    if kind is ElementWiseOperation.SUM:
        rule.op.linear = "all"
    elif kind is ElementWiseOperation.SUB:
        rule.op.linear = "difference"
    elif kind is ElementWiseOperation.PROD:
        rule.op.linear = "one"
    elif kind is ElementWiseOperation.DIV:
        rule.op.linear = "first"


def _pointwise(rule: Rule) -> None:
    rule.give(rule.broadcast(_present(rule)))


def _passing(rule: Rule) -> None:
    rule.give(rule.axes())
    rule.op.linear = "first"


def _unary(rule: Rule) -> None:
    rule.give(rule.axes())


def _quantization(rule: Rule) -> None:
    """Scales for each index of an axis, or for blocks of an axis."""
    axes, tensor = rule.axes(), rule.op.inputs[0]
    assert tensor is not None
    rule.give(axes)
    for index in (1, 2):
        scale = rule.tensor(index)
        if scale is None or not any(scale.axes):
            continue
        if len(scale.axes) == 1 and len(axes) != 1:
            at = rule.attr("axis") % len(axes)
            rule.join(scale.axes[0], axes[at])
            continue
        if len(scale.axes) != len(axes):
            for axis in axes:
                rule.whole(0, axis)
            for axis in scale.axes:
                rule.whole(index, axis)
            continue
        for mine, other in zip(axes, scale.axes, strict=True):
            _join_blocks(rule, index, mine, other)


def _join_blocks(rule: Rule, index: int, axis: Axis, blocks: Axis) -> None:
    size, count = size_of(axis), size_of(blocks)
    if count == ONE:
        return  # one scale for the axis
    if size == count:
        rule.join(axis, blocks)
    elif not size[1] and not count[1] and size[0] % count[0] == 0:
        left, right = match(axis, [*blocks, Atom((size[0] // count[0], ()))])
        rule.whole(0, left)
        rule.whole(index, [atom for atom in right if atom in blocks])
    else:
        rule.whole(0, axis)
        rule.whole(index, blocks)


# ---- Products and sums ----


def _matrix_multiply(rule: Rule) -> None:
    names = [MatrixOperation(rule.attr(f"op{i}")) for i in (0, 1)]
    batches: list[Axes] = []
    rows: list[Axis | None] = []
    sums: Axes = []
    for i, how in enumerate(names):
        axes = list(rule.axes(i))
        if how is MatrixOperation.TRANSPOSE:
            axes[-2:] = axes[:-3:-1]
        if how is MatrixOperation.VECTOR:
            batches.append(axes[:-1])
            rows.append(None)
            sums.append(axes[-1])
        else:
            batches.append(axes[:-2])
            rows.append(axes[-2] if i == 0 else axes[-1])
            sums.append(axes[-1] if i == 0 else axes[-2])
    out: Axes = [[] for _ in range(max(map(len, batches)))]
    for batch in batches:
        shift = len(out) - len(batch)
        for i, axis in enumerate(batch):
            out[shift + i] = rule.join(out[shift + i], axis)
    rule.op.summed.append(rule.join(*sums))
    rule.give(out + [axis for axis in rows if axis is not None])


def _convolution(rule: Rule) -> None:
    axes, kernel = rule.axes(0), rule.axes(1)
    if rule.attr("num_groups") != 1:
        for axis in axes[1:]:
            rule.whole(0, axis)
        for axis in kernel:
            rule.whole(1, axis)
        rule.give([axes[0], *(axis_of(e) for e in rule.op.outputs[0].extents[1:])])
        return
    rule.op.summed.append(rule.join(axes[1], kernel[1]))
    for axis in axes[2:]:
        rule.whole(0, axis)
    for axis in kernel[2:]:
        rule.whole(1, axis)
    if rule.tensor(2) is not None:
        rule.join(kernel[0], rule.axes(2)[-1])
        rule.op.notes["once"] = [2]
    rest = [axis_of(e) for e in rule.op.outputs[0].extents[2:]]
    rule.give([axes[0], kernel[0], *rest])


def _reduce(rule: Rule) -> None:
    mask, keep = rule.attr("axes"), rule.attr("keep_dims")
    kind = ReduceOperation(rule.attr("op"))
    out: Axes = []
    for i, axis in enumerate(rule.axes()):
        if not mask >> i & 1:
            out.append(axis)
            continue
        if keep:
            out.append([])
        if kind is ReduceOperation.SUM:
            rule.op.summed.append(axis)
        else:
            rule.whole(0, axis)
    rule.give(out)
    if kind in (ReduceOperation.SUM, ReduceOperation.AVG):
        rule.op.linear = "first"


def _moe(rule: Rule) -> None:
    """As inputs are lettered in src/ops/products/moe.c."""
    letters: dict[str, Axis] = {}
    row = "i" if rule.tensor(3) is None else "h"  # without gate and up
    shapes = [row, "k", "k", "ehi", "ehi", "eih", "ei", "ei", "eh"]
    for i, text in enumerate(shapes):
        tensor = rule.tensor(i)
        if tensor is None:
            continue
        tail = tensor.axes[len(tensor.axes) - len(text) :]
        for letter, axis in zip(text, tail, strict=True):
            letters[letter] = rule.join(letters.get(letter, []), axis)
            if letter in "hk":
                rule.whole(i, axis)
    for i, tensor in enumerate(rule.op.inputs[9:], 9):
        for axis in tensor.axes if tensor is not None else ():
            rule.whole(i, axis)
    leading = rule.axes(0)[:-1]
    for i in (1, 2):
        if rule.tensor(i) is not None:  # there may be no scores
            for axis, other in zip(leading, rule.axes(i)[:-1], strict=True):
                rule.join(axis, other)
    quantizes = bool(rule.attr("quantization_block_shape"))
    if quantizes:
        for i in (3, 4, 5):
            rule.whole(i, letters["i"])
    else:
        rule.op.summed.append(letters["i"])
    rule.op.summed.append(letters["e"])
    rule.op.notes["indices"] = (1, letters["e"])
    if rule.tensor(8) is not None:
        rule.op.notes["once"] = [8]
    hidden = axis_of(rule.op.outputs[0].extents[-1])
    rule.give([*leading, hidden])


# ---- Over one axis ----


def _normalization(rule: Rule) -> None:
    axes, mask = rule.axes(), rule.attr("axes")
    grouped = rule.attr("num_groups") != 1
    out: Axes = []
    for i, axis in enumerate(axes):
        if mask >> i & 1 or (grouped and i == 1):
            rule.whole(0, axis)
            out.append(axis_of(rule.op.outputs[0].extents[i]))
        else:
            out.append(axis)
    for index in (1, 2):
        scale = rule.tensor(index)
        if scale is None:
            continue
        shift = len(axes) - len(scale.axes)
        for i, axis in enumerate(scale.axes):
            if mask >> (shift + i) & 1 or grouped or shift < 0:
                rule.whole(index, axis)
            else:
                rule.join(axes[shift + i], axis)
    rule.give(out)


def _along(rule: Rule, at: int, outputs: int = 1) -> None:
    """Axis `at` is needed as a whole; all others pass."""
    axes = list(rule.axes())
    rule.whole(0, axes[at])
    for output in range(outputs):
        tensor = rule.op.outputs[output]
        rule.give([*axes[:at], axis_of(tensor.extents[at]), *axes[at + 1 :]], output)


def _softmax(rule: Rule) -> None:
    mask, rank = rule.attr("axes"), rule.rank()
    _along(rule, mask.bit_length() - 1 if mask else max(rank - 3, 0))


def _topk(rule: Rule) -> None:
    rule.all_whole(1)
    _along(rule, rule.attr("axes").bit_length() - 1, 2)


def _cumulative(rule: Rule) -> None:
    axis = rule.tensor(1)
    if axis is not None and (axis.values is None or axis.values[0][1]):
        rule.all_whole()
        return
    at = rule.attr("axis") if axis is None or axis.values is None else axis.values[0][0]
    rule.all_whole(1)
    _along(rule, at % rule.rank())


# ---- Moves ----


def _shuffle(rule: Rule) -> None:
    rule.all_whole(1)
    axes = rule.axes()
    first, second = rule.attr("first_transpose"), rule.attr("second_transpose")
    if first:
        axes = [axes[i] for i in first[: len(axes)]]
    extents = list(rule.op.outputs[0].extents)
    rank = len(extents)
    reshapes = rule.tensor(1) is not None or rule.attr("reshape_dims")
    if reshapes or rule.attr("reshape_to_scalar"):
        if second:
            for i, size in enumerate(rule.op.outputs[0].extents):
                extents[second[i]] = size
        made = [axis_of(size) for size in extents]
        left, _ = match(list(chain(*axes)), list(chain(*made)))
        rule.whole(0, left)
        axes = made
    rule.op.notes["reshaped"] = axes
    if second:
        axes = [axes[i] for i in second[:rank]]
    rule.give(axes)
    rule.op.linear = "first"


def _constants(tensor: Tensor | None, given: list[int]) -> list[int | None] | None:
    """Numbers of an operand or attribute, None for those that a run tells."""
    if tensor is None:
        return list(given) or None
    if tensor.values is None:
        return [None] * tensor.extents[0][0] if tensor.extents else None
    return [None if symbols else factor for factor, symbols in tensor.values]


def _slice(rule: Rule) -> None:
    rule.all_whole(1)
    axes, output = rule.axes(), rule.op.outputs[0]
    rank = len(axes)
    start = _constants(rule.tensor(1), rule.attr("start"))
    stride = _constants(rule.tensor(3), rule.attr("stride"))
    places = _constants(rule.tensor(5), rule.attr("axes")) or list(range(rank))
    strict = SampleMode(rule.attr("mode")) is SampleMode.STRICT_BOUNDS
    out: Axes = []
    cuts: dict[int, tuple[Axis, int]] = {}
    if start is None and rule.tensor(1) is None:
        start = [0] * len(places)
    whole = None in places or start is None
    for i, (axis, size) in enumerate(zip(axes, output.extents, strict=True)):
        at = None if whole else next(
            (k for k, place in enumerate(places) if place is not None and place % rank == i), -1
        )  # fmt: skip
        begin = 0 if at == -1 else None if at is None else start[at]  # type: ignore[index]
        step = 1 if stride is None or at == -1 else None if at is None else stride[at]
        out.append(_sliced(rule, axis, size, begin, step, strict, cuts, i))
    rule.op.notes["cuts"], rule.op.notes["places"] = cuts, places
    rule.give(out)
    if strict:
        rule.op.linear = "first"


def _sliced(
    rule: Rule,
    axis: Axis,
    size: Any,
    begin: int | None,
    step: int | None,
    strict: bool,
    cuts: dict[int, tuple[Axis, int]],
    at: int,
) -> Axis:
    if not axis:
        return axis_of(size)  # broadcast, or padded
    if begin == 0 and step == 1 and size == size_of(axis):
        cuts[at] = (axis, 0)
        return axis
    extent = size_of(axis)
    if strict and step == 1 and begin is not None and not extent[1] and not size[1]:
        found = cut(axis, begin, size[0])
        if found is not None:
            cuts[at] = (axis, begin)
            return found
    rule.whole(0, axis)
    return axis_of(size)


def _concatenation(rule: Rule) -> None:
    at = rule.attr("axis") % rule.rank()
    out = list(rule.axes())
    for index in range(1, len(rule.op.inputs)):
        for i, axis in enumerate(rule.axes(index)):
            if i != at:
                out[i] = rule.join(out[i], axis)
    parts = [rule.axes(i)[at] for i in range(len(rule.op.inputs))]
    extent = rule.op.outputs[0].extents[at]
    sizes = [size_of(part) for part in parts]
    if len(parts) == 1:
        out[at] = parts[0]
    elif extent[1] or any(symbols or not n for n, symbols in sizes):
        for i, part in enumerate(parts):
            rule.whole(i, part)
        out[at] = axis_of(extent)
    else:
        out[at] = [Atom(extent, None, parts)]
    rule.give(out)


def _gather(rule: Rule) -> None:
    data, indices = rule.axes(0), rule.axes(1)
    mode, batch = GatherMode(rule.attr("mode")), rule.attr("num_elementwise_dims")
    if mode is GatherMode.ELEMENT:
        at = rule.attr("axis") % len(data)
        out = []
        for i, (axis, other) in enumerate(zip(data, indices, strict=True)):
            if i != at and size_of(axis) == size_of(other):
                out.append(rule.join(axis, other))
                continue
            rule.whole(0, axis)
            if i == at:
                out.append(other)
            else:
                out.append(axis_of(size_of(rule.whole(1, other))))
        rule.give(out)
        return
    shared = [
        rule.join(a, b) for a, b in zip(data[:batch], indices[:batch], strict=True)
    ]
    if mode is GatherMode.ND:
        count = size_of(indices[-1])
        rule.whole(1, indices[-1])
        taken = len(data) - batch if count[1] else count[0]
        for axis in data[batch : batch + taken]:
            rule.whole(0, axis)
        rule.give(shared + indices[batch:-1] + data[batch + taken :])
        return
    at = rule.attr("axis") % len(data)
    rule.op.summed.append(data[at])
    rule.op.notes["indices"] = (1, data[at])
    rule.op.linear = "first"
    rule.give(shared + data[batch:at] + indices[batch:] + data[at + 1 :])


def _scatter(rule: Rule) -> None:
    data, indices, updates = rule.axes(0), rule.axes(1), rule.axes(2)
    if ScatterMode(rule.attr("mode")) is ScatterMode.ELEMENT:
        at = rule.attr("axis") % len(data)
        out = []
        for i, axis in enumerate(data):
            others = (indices[i], updates[i])
            if i != at and all(size_of(other) == size_of(axis) for other in others):
                out.append(rule.join(rule.join(axis, others[0]), others[1]))
                continue
            for index, tensor in enumerate((axis, *others)):
                rule.whole(index, tensor)
            out.append(axis_of(size_of(axis)))
        rule.give(out)
        return
    count = size_of(indices[-1])
    if count[1]:
        rule.all_whole()
        return
    rule.whole(1, indices[-1])
    out = []
    for i, axis in enumerate(data):
        if i < count[0]:
            rule.whole(0, axis)
            out.append(axis_of(size_of(axis)))
        else:
            out.append(rule.join(axis, updates[len(indices) - 1 + i - count[0]]))
    for axis, other in zip(indices[:-1], updates, strict=False):
        rule.whole(1, axis)
        rule.whole(2, other)
    rule.give(out)


def _kv_cache_update(rule: Rule) -> None:
    cache, update = rule.axes(0), rule.axes(1)
    at = rule.attr("axis") % len(cache)
    out = []
    for i, (axis, other) in enumerate(zip(cache, update, strict=True)):
        if i == at:
            rule.whole(0, axis)
            rule.whole(1, other)
            out.append(axis)
        else:
            out.append(rule.join(axis, other))
    if rule.tensor(2) is not None:
        for axis in rule.axes(2):
            rule.whole(2, axis)
        if any(rule.axes(2)):
            rule.whole(0, cache[0])
            rule.whole(1, update[0])
    rule.give(out)


def _rotation(rule: Rule) -> None:
    axes = rule.axes()
    for index in (1, 2):
        table = rule.axes(index)
        rule.whole(index, table[-1])
        shift = len(axes) - len(table)
        for i, axis in enumerate(table[:-1]):
            rule.join(axes[shift + i], axis)
    rule.whole(0, axes[-1])
    rule.give([*axes[:-1], axis_of(size_of(axes[-1]))])


def _pooling(rule: Rule) -> None:
    axes = rule.axes()
    for axis in axes[2:]:
        rule.whole(0, axis)
    rest = [axis_of(e) for e in rule.op.outputs[0].extents[2:]]
    rule.give([*axes[:2], *rest])


def _nothing(rule: Rule) -> None:
    """Constants; shapes, whose values are of the whole tensor."""


RULES: dict[str, Callable[[Rule], None]] = {
    "activation": _unary,
    "bit_cast": _unary,
    "cast": _passing,
    "concatenation": _concatenation,
    "constant": _nothing,
    "convolution": _convolution,
    "cumulative": _cumulative,
    "dequantize": _quantization,
    "elementwise": _elementwise,
    "gather": _gather,
    "identity": _passing,
    "kv_cache_update": _kv_cache_update,
    "matrix_multiply": _matrix_multiply,
    "moe": _moe,
    "normalization": _normalization,
    "pooling": _pooling,
    "quantize": _quantization,
    "reduce": _reduce,
    "rotation": _rotation,
    "scatter": _scatter,
    "select": _pointwise,
    "shape": _nothing,
    "shuffle": _shuffle,
    "slice": _slice,
    "softmax": _softmax,
    "topk": _topk,
    "unary": _unary,
}


def analyse(network: Any) -> Graph:
    """The network's graph, with axes that hang together joined."""
    graph = Graph(network)
    for op in graph.ops:
        rule = Rule(op)
        apply = RULES.get(op.name)
        # A loop's or conditional's boundary: values are other tensors inside.
        at_boundary = (
            op.layer._loop() is not None or op.layer._conditional() is not None
        )
        if apply is None or at_boundary:
            rule.all_whole()
        else:
            apply(rule)
    graph.finish()
    return graph
