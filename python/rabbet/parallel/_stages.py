"""Stages of a pipeline: which rank computes which operator, and what crosses borders.

Operators are of three kinds. Heavy ones are computed by one rank. Cheap ones depend on
inputs and small constants alone (masks, tables of positions): each rank that reads their
results computes them, which is quicker than to receive them. Derived ones make shape tensors
whose elements follow from extents of inputs: a rank that has not what they read computes
the elements (see _derived.py). Loops and conditionals are heavy, and stay in one piece.
"""

from __future__ import annotations

import bisect
import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .._errors import InvalidArgumentError, NotFoundError, UnsupportedError
from ._derived import Derivation
from ._graph import Graph, Op, Tensor
from ._plan import ROWS

# How long a run takes, in bytes that memory moves meanwhile: tools/scale.py and
# docs/scale.md have these figures of an H200.
_OPERATIONS = 140.0  # in the time of one byte
_LINK = 12.0  # bytes for one that goes to another GPU
_LATENCY = 34e6  # bytes for one exchange
# The longest stage may take so much longer than it has to, if less crosses borders.
_SLACK = 1.15
# Cheap is what is computed before an exchange would end, all that it depends on included,
# in this share of a run at most, from constants of this share of all.
_CHEAP_RUN, _CHEAP_CONSTANT = 1 / 10, 1 / 256
# Operators that are computed once, whatever they cost: their results differ from run to
# run or in place, or are another program's.
_ONCE = {"condition", "dist_collective", "kv_cache_update", "loop", "plugin"}

Cuts = Sequence[Sequence[str]]  # names of tensors, for each border


@dataclasses.dataclass(eq=False, slots=True)
class Stage:
    """What a rank does."""

    ops: list[Op] = dataclasses.field(default_factory=list)  # in the network's order
    inputs: list[Tensor] = dataclasses.field(default_factory=list)
    outputs: list[Tensor] = dataclasses.field(default_factory=list)
    constants: list[Tensor] = dataclasses.field(default_factory=list)
    derived: list[Tensor] = dataclasses.field(default_factory=list)
    receives: list[Tensor] = dataclasses.field(default_factory=list)
    sends: list[Tensor] = dataclasses.field(default_factory=list)


# ---- Loops and conditionals ----


def _region_ends(graph: Graph) -> dict[Any, list[Op]]:
    """Layers at the boundary of each loop and conditional."""
    found: dict[Any, list[Op]] = {}
    for op in graph.ops:
        for kind, number in (("loop", op.layer._loop()),
                             ("conditional", op.layer._conditional())):  # fmt: skip
            if number is not None:
                found.setdefault((kind, number), []).append(op)
    return found


def _following(graph: Graph) -> dict[int, Op]:
    """Recurrences, by the operator that makes their next value."""
    found = {}
    for op in graph.ops:
        following = op.layer._next()
        producer = following and graph._by_object[following].producer
        if producer is not None:
            found[producer.index] = op
    return found


def _between(graph: Graph, ends: list[Op], next_of: dict[int, Op]) -> set[int]:
    """Operators behind one of the ends and before another, and the ends."""
    after = {op.index for op in ends}
    for op in graph.ops:
        if any(t is not None and t.producer is not None and t.producer.index in after
               for t in op.inputs):  # fmt: skip
            after.add(op.index)
    makers: dict[int, list[int]] = {}
    for maker, op in next_of.items():
        makers.setdefault(op.index, []).append(maker)
    before, stack = set(), [op.index for op in ends]
    while stack:
        index = stack.pop()
        if index in before:
            continue
        before.add(index)
        op = graph.ops[index]
        stack += [t.producer.index for t in op.inputs if t is not None and t.producer]
        stack += makers.get(index, ())
    return after & before


def _units(graph: Graph) -> dict[int, int]:
    """The first operator of the loop or conditional that each belongs to."""
    unit: dict[int, int] = {}
    next_of = _following(graph)
    for ends in _region_ends(graph).values():
        members = _between(graph, ends, next_of)
        merged = {unit[i] for i in members if i in unit}
        members |= {i for i, first in unit.items() if first in merged}
        unit |= dict.fromkeys(members, min(members))
    return unit


# ---- What operators are ----


class Parts:
    """The operators of a network by kind, and how long they take."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.derivation = graph, Derivation(graph)
        self.units = _units(graph)
        self.kinds: dict[int, str] = {}  # of operators: as above, "constant" or "fixed"
        self.heavy: list[Op] = []
        constants = [t for t in graph.tensors if t.is_constant]
        self.weights = sum(t.bytes(1) for t in constants)
        self.fixed = {t.index for t in constants}  # constants alone determine them
        self._sources: dict[int, list[Tensor]] = {}
        self.loads = {op.index: self._load(op) for op in graph.ops}
        total = sum(self.loads.values())
        # Of cheap ones, with all they depend on: loads, and bytes of constants.
        behind: dict[int, tuple[float, float]] = {}
        for op in graph.ops:
            kind = self.kinds[op.index] = self._kind(op, total, behind)
            if kind == "heavy":
                self.heavy.append(op)
            elif kind in ("constant", "fixed"):
                self.fixed.update(t.index for t in op.outputs)

    def unit(self, op: Op) -> int:
        """The operator that stands for the one and those that must stay with it."""
        return self.units.get(op.index, op.index)

    def is_heavy(self, tensor: Tensor | None) -> bool:
        """Whether one rank computes it, and sends it to others that read it."""
        producer = tensor and tensor.producer
        return producer is not None and self.kinds[producer.index] == "heavy"

    def readers(self, tensor: Tensor) -> Iterable[Op]:
        """Heavy operators that read it."""
        return (op for op in tensor.readers if self.kinds[op.index] == "heavy")

    def load(self, op: Op) -> float:
        """How long a heavy operator takes, in bytes, conversions of constants included."""
        own = {t.index for t in op.inputs if t is not None}
        return self.loads[op.index] + sum(
            t.bytes(1) for t in self.sources(op) if t.index not in own
        )

    def _kind(
        self, op: Op, total: float, behind: dict[int, tuple[float, float]]
    ) -> str:
        if op.name == "constant":
            return "constant"
        inputs = [t for t in op.inputs if t is not None]
        is_random = op.name == "fill" and op.layer._attr("operation")
        if op.index in self.units or op.name in _ONCE or is_random:
            return "heavy"
        if op.outputs and inputs and all(t.index in self.fixed for t in inputs):
            return "fixed"
        if op.outputs and all(self.is_derived(t) for t in op.outputs):
            return "derived"
        run = self.loads[op.index]
        constants = float(sum(t.bytes(1) for t in self.sources(op)))
        for tensor in inputs:
            if tensor.producer is not None and tensor.producer.index in behind:
                before = behind[tensor.producer.index]
                run, constants = run + before[0], constants + before[1]
        if (
            any(self.is_heavy(t) for t in inputs)
            or run > min(_LATENCY, _CHEAP_RUN * total)
            or constants > _CHEAP_CONSTANT * self.weights
        ):
            return "heavy"
        behind[op.index] = run, constants
        return "cheap"

    def is_derived(self, tensor: Tensor) -> bool:
        """Whether its elements follow from extents of inputs."""
        return tensor.values is not None and self.derivation.covers(tensor.values)

    def can_cross(self, tensor: Tensor) -> bool:
        """Whether another rank knows its extents without it."""
        return self.derivation.covers(tensor.extents)

    def sources(self, op: Op) -> list[Tensor]:
        """Constants that it reads, converted or not."""
        found = self._sources.get(op.index)
        if found is None:
            found, stack, seen = [], [t for t in op.inputs if t is not None], set()
            while stack:
                tensor = stack.pop()
                if tensor.index in seen or tensor.index not in self.fixed:
                    continue
                seen.add(tensor.index)
                if tensor.is_constant:
                    found.append(tensor)
                elif tensor.producer is not None:
                    stack += [t for t in tensor.producer.inputs if t is not None]
            self._sources[op.index] = found
        return found

    def _load(self, op: Op) -> float:
        """How long it takes, in bytes."""
        if op.name == "constant":
            return 0.0
        if op.outputs and all(self.is_derived(t) for t in op.outputs):
            return 0.0
        tensors = [t for t in (*op.inputs, *op.outputs) if t is not None]
        moved = sum(t.bytes(ROWS) for t in tensors)
        return moved + _operations(op) / _OPERATIONS


def _count(tensor: Tensor) -> float:
    return tensor.bytes(ROWS) / float(tensor.dtype.itemsize)


def _operations(op: Op) -> float:
    """Of products and convolutions; the others are bound by memory."""
    if op.name == "matrix_multiply":
        left = op.inputs[0]
        assert left is not None
        transposed = op.layer._attr("op0") == 1 and len(left.extents) > 1
        factor, symbols = left.extents[-2 if transposed else -1]
        return 2 * _count(op.outputs[0]) * factor * (ROWS if symbols else 1)
    if op.name in ("convolution", "deconvolution") and op.inputs[1] is not None:
        kernel = op.inputs[1]
        whole = op.outputs[0] if op.name == "convolution" else op.inputs[0]
        assert whole is not None
        return 2 * _count(whole) * _count(kernel) / max(kernel.extents[0][0], 1)
    return 0.0


# ---- Cuts that are chosen ----


def _crossings(parts: Parts, place: dict[int, int], count: int) -> np.ndarray:
    """What it costs to cut before each heavy operator; infinite where it cannot be."""
    change = np.zeros((count + 1, 2))
    for op in parts.heavy:
        for tensor in op.outputs:
            last = max((place[op.index] for op in parts.readers(tensor)), default=-1)
            first = place[op.index] + 1
            if last >= first:
                can = parts.can_cross(tensor)
                own = _LATENCY + _LINK * tensor.bytes(ROWS)
                change[first] += (own, not can)
                change[last + 1] -= (own, not can)
    spans: dict[int, list[int]] = {}
    for op in parts.heavy:
        if op.index in parts.units:
            spans.setdefault(parts.unit(op), []).append(place[op.index])
    for places in spans.values():
        change[min(places) + 1, 1] += 1
        change[max(places) + 1, 1] -= 1
    cost = np.cumsum(change, axis=0)[:count]
    made = np.where(cost[:, 1] > 0.5, np.inf, cost[:, 0])
    made[0] = np.inf
    return made


def chosen(parts: Parts, ranks: int) -> dict[int, int]:
    """The stage of each heavy operator: the longest is nearly as short as can be, and
    little crosses the borders."""
    count = len(parts.heavy)
    place = {op.index: i for i, op in enumerate(parts.heavy)}
    cost = _crossings(parts, place, count) if count else np.zeros(0)
    places = [i for i in range(count) if math.isfinite(cost[i])]
    if len(places) < ranks - 1:
        raise UnsupportedError(
            f"the model cannot be cut into {ranks} stages: it has "
            f"{len(places)} places for cuts. Within loops, conditionals and where sizes "
            "depend on data there are none"
        )
    ends = np.cumsum([parts.load(op) for op in parts.heavy])
    before = np.array([0.0, *(ends[i - 1] for i in places), ends[-1]])
    costs = np.array([0.0, *(cost[i] for i in places), 0.0])
    limit = _SLACK * _least(before, ranks)
    cuts = [places[i - 1] for i in _cheapest(before, costs, ranks, limit)]
    return {op.index: bisect.bisect_right(cuts, i) for i, op in enumerate(parts.heavy)}


def _least(before: np.ndarray, ranks: int) -> float:
    """The longest stage of the best balance."""
    low, high = 0.0, float(before[-1])
    for _ in range(50):
        middle, at, needed = (low + high) / 2, 0, 0
        while at < len(before) - 1 and needed <= ranks:
            until = float(before[at]) + middle
            there = int(np.searchsorted(before, until, "right")) - 1
            needed = needed + 1 if there > at else ranks + 1
            at = there
        if needed <= ranks:
            high = middle
        else:
            low = middle
    return high


def _cheapest(
    before: np.ndarray, costs: np.ndarray, ranks: int, limit: float
) -> list[int]:
    """Places of the cuts with the least cost; of equals those with equal stages."""
    last, total = len(before) - 1, max(float(before[-1]), 1e-300)
    best = np.full(last + 1, np.inf)
    best[0] = 0.0
    came = []
    for _ in range(ranks):
        following = np.full(last + 1, np.inf)
        source = np.zeros(last + 1, np.int64)
        for place in range(1, last + 1):
            first = int(np.searchsorted(before, before[place] - limit * (1 + 1e-9)))
            if first >= place:
                continue
            lengths = (before[place] - before[first:place]) / total
            made = best[first:place] + 0.5 * _LATENCY * lengths**2
            at = int(np.argmin(made))
            following[place], source[place] = made[at] + costs[place], first + at
        best = following
        came.append(source)
    made = []
    place = last
    for source in reversed(came):
        place = int(source[place])
        made.append(place)
    return made[-2::-1]


# ---- Cuts that are named ----


@dataclasses.dataclass(eq=False, slots=True)
class _Unit:
    """A heavy operator, or those of a loop or conditional."""

    reads: list[Tensor] = dataclasses.field(default_factory=list)  # heavy, of others
    before: list[_Unit] = dataclasses.field(default_factory=list)
    behind: list[_Unit] = dataclasses.field(default_factory=list)
    stage: int = -1  # not known yet


def _unit_graph(parts: Parts) -> tuple[dict[int, _Unit], list[_Unit]]:
    """(units by operator, units in an order of execution)"""
    units = {parts.unit(op): _Unit() for op in parts.heavy}
    of = {op.index: units[parts.unit(op)] for op in parts.heavy}
    for op in parts.heavy:
        unit = of[op.index]
        for tensor in op.inputs:
            if tensor is None or tensor.producer is None or not parts.is_heavy(tensor):
                continue
            maker = of[tensor.producer.index]
            if maker is not unit:
                unit.reads.append(tensor)
                unit.before.append(maker)
                maker.behind.append(unit)
    order = []
    left = {id(unit): len(unit.before) for unit in units.values()}
    ready = [unit for unit in reversed(units.values()) if not unit.before]
    while ready:
        order.append(unit := ready.pop())
        for each in unit.behind:
            left[id(each)] -= 1
            if left[id(each)] == 0:
                ready.append(each)
    assert len(order) == len(units), "units do not depend on each other in a circle"
    return of, order


def named(parts: Parts, cuts: Cuts) -> dict[int, int]:
    """The stage of each heavy operator, if stages end at these tensors.

    What a cut depends on is before the first such cut. Of the rest, what depends on
    something before a cut is where its inputs are, or behind the cuts that it reads; and
    what does not, where it is read."""
    found = [[_cut(parts, name) for name in names] for names in cuts]
    of, order = _unit_graph(parts)
    for border, tensors in enumerate(found):
        makers = [of[t.producer.index] for t in tensors if t.producer is not None]
        if border and all(0 <= unit.stage < border for unit in makers):
            raise InvalidArgumentError(
                f"cuts: {_list(cuts[border])} is computed before {_list(cuts[border - 1])}"
                ", or is the same: name cuts in the order of execution"
            )
        while makers:
            unit = makers.pop()
            if unit.stage < 0:
                unit.stage = border
                makers += unit.before
    least = {
        t.index: border + 1 for border, tensors in enumerate(found) for t in tensors
    }
    for unit in order:
        if unit.stage < 0:
            least_own = [each.stage for each in unit.before]
            least_own += [least.get(t.index, -1) for t in unit.reads]
            unit.stage = max(least_own, default=-1)
    for unit in reversed(order):
        if unit.stage < 0:
            unit.stage = min((each.stage for each in unit.behind), default=len(cuts))
    made = {op.index: of[op.index].stage for op in parts.heavy}
    for number in range(len(cuts) + 1):
        if number not in made.values():
            raise InvalidArgumentError(
                f"cuts: stage {number} would compute nothing: nothing is between "
                f"{_list(cuts[number - 1]) if number else 'the inputs'} and "
                f"{_list(cuts[number]) if number < len(cuts) else 'the outputs'}"
            )
    return made


def _list(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _cut(parts: Parts, name: str) -> Tensor:
    tensors = {t.name: t for t in parts.graph.tensors}
    tensor = tensors.get(name)
    if tensor is None:
        import difflib

        near = difflib.get_close_matches(name, tensors, 3)
        hint = f"; there is {_list(near)}" if near else ""
        raise NotFoundError(f"cuts: the network has no tensor '{name}'{hint}")
    if tensor.is_input:
        raise InvalidArgumentError(f"cuts: '{name}' is an input: nothing is before it")
    if tensor.producer is None or not parts.is_heavy(tensor):
        raise InvalidArgumentError(
            f"cuts: '{name}' is computed from inputs' extents, from constants or by a few "
            "operators from inputs, which each rank does by itself"
        )
    unit = parts.unit(tensor.producer)
    if any(op.index in parts.units and parts.unit(op) == unit for op in tensor.readers):
        raise InvalidArgumentError(
            f"cuts: '{name}' is within a loop or conditional, which one rank computes"
        )
    if not any(True for _ in parts.readers(tensor)):
        raise InvalidArgumentError(f"cuts: nothing reads '{name}', so it ends no stage")
    return tensor


# ---- Stages ----


class _Filling:
    """Finds what a rank needs for the operators of its stage."""

    def __init__(self, parts: Parts, stage_of: dict[int, int], number: int) -> None:
        self.parts, self.stage_of, self.number = parts, stage_of, number
        self.ops: dict[int, Op] = {}
        self.derived: dict[int, Tensor] = {}
        self.inputs: dict[int, Tensor] = {}
        self.constants: dict[int, Tensor] = {}
        self.received: dict[int, Tensor] = {}  # from ranks before

    def take(self, op: Op) -> None:
        """An operator that the rank computes, and all that it reads."""
        stack = [op]
        while stack:
            op = stack.pop()
            if op.index in self.ops:
                continue
            self.ops[op.index] = op
            makers = [self._read(tensor) for tensor in op.inputs if tensor is not None]
            stack += [maker for maker in reversed(makers) if maker is not None]

    def need(self, tensor: Tensor) -> None:
        """A tensor that the rank reads."""
        maker = self._read(tensor)
        if maker is not None:
            self.take(maker)

    def _read(self, tensor: Tensor) -> Op | None:
        """The operator by which the rank makes a tensor; None: it has it otherwise."""
        op = tensor.producer
        if tensor.is_input:
            self.inputs[tensor.index] = tensor
        elif op is None or tensor.is_constant:
            self.constants[tensor.index] = tensor
        elif self.parts.kinds[op.index] == "heavy":
            if self.stage_of[op.index] != self.number:
                self.received[tensor.index] = tensor
        elif self.parts.kinds[op.index] != "derived" or self._is_here(op):
            return op
        else:
            self.derived[tensor.index] = tensor
        return None

    def _is_here(self, op: Op) -> bool:
        """Whether the rank has what a derived operator reads."""
        stack, seen = [op], {op.index}
        while stack:
            for tensor in stack.pop().inputs:
                maker = None if tensor is None else tensor.producer
                kind = "none" if maker is None else self.parts.kinds[maker.index]
                if maker is None or kind in ("constant", "fixed", "cheap"):
                    continue
                if kind == "derived":
                    if maker.index not in seen:
                        seen.add(maker.index)
                        stack.append(maker)
                elif self.stage_of[maker.index] != self.number:
                    return False
        return True


def _home(parts: Parts, stage_of: dict[int, int], tensor: Tensor) -> int:
    """The rank that has an output."""
    op = tensor.producer
    return stage_of[op.index] if op is not None and op.index in stage_of else 0


def stages(
    parts: Parts, stage_of: dict[int, int], ranks: int, cuts: Cuts | None
) -> list[Stage]:
    """What each rank does; cuts are those that are named, if any."""
    graph = parts.graph
    filled = [_Filling(parts, stage_of, number) for number in range(ranks)]
    outputs = [[t for t in graph.outputs if _home(parts, stage_of, t) == number]
               for number in range(ranks)]  # fmt: skip
    for number, each in enumerate(filled):
        for op in parts.heavy:
            if stage_of[op.index] == number:
                each.take(op)
        for tensor in outputs[number]:
            each.need(tensor)
    for op in graph.ops:  # assertions on inputs alone
        if not op.outputs and op.index not in stage_of:
            filled[0].take(op)
    # Tensors pass rank by rank: a rank never waits for more than its neighbours.
    borders: list[dict[int, Tensor]] = [{} for _ in range(ranks + 1)]
    for number, each in enumerate(filled):
        for tensor in each.received.values():
            assert tensor.producer is not None
            for border in range(stage_of[tensor.producer.index] + 1, number + 1):
                borders[border][tensor.index] = tensor
    _check(parts, borders[1:-1], cuts)
    made = []
    for number, each in enumerate(filled):
        receives, sends = (
            [tensor for _, tensor in sorted(borders[border].items())]
            for border in (number, number + 1)
        )
        numbers = [size for t in receives for size in t.extents]
        numbers += [size for t in each.derived.values() for size in t.values or ()]
        inputs = parts.derivation.needed(numbers, list(each.inputs.values()))
        made.append(Stage(
            [op for _, op in sorted(each.ops.items())],
            [t for t in graph.inputs if any(t is found for found in inputs)],
            outputs[number], list(each.constants.values()), list(each.derived.values()),
            receives, sends,
        ))  # fmt: skip
    return made


def _check(parts: Parts, borders: list[dict[int, Tensor]], cuts: Cuts | None) -> None:
    """That what crosses borders can, and is what named cuts say."""
    for border, tensors in enumerate(borders):
        names = cuts[border] if cuts else ()
        others = [t.name for t in tensors.values() if t.name not in names]
        if others and cuts:
            raise InvalidArgumentError(
                f"cuts: {_list(names)} does not separate the model: "
                f"{_list(others[:8])}{' and more' if len(others) > 8 else ''} "
                f"{'is' if len(others) == 1 else 'are'} read behind it, too. Name what "
                f"else crosses ('{'+'.join((*names, *others))}'), or cut elsewhere"
            )
        for tensor in tensors.values():
            if not parts.can_cross(tensor):
                raise UnsupportedError(
                    f"cuts: '{tensor.name}' cannot be sent: its extents depend on data, and "
                    "a rank that receives it must know them; cut elsewhere"
                )
