"""The choice of atoms to split: those that save more bytes of weights than they move."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

from .._enums import DataType
from ._axes import Atom, has, local_size
from ._graph import Graph, Tensor
from ._plan import WHOLE, Plan
from ._weights import part_problem

# Ways to move a tensor from an input to an output that keep it a state of the caller.
_MOVES = {
    "bit_cast", "cast", "concatenation", "gather", "identity", "kv_cache_update",
    "scatter", "select", "shuffle", "slice",
}  # fmt: skip


# Constants that are no weights.
_NUMBERS = (DataType.INT64, DataType.INT32, DataType.BOOL)
# A collective takes as long as reading many weights: it must save this share of all.
_LEAST_SHARE = 1 / 2000


@dataclasses.dataclass(eq=False, slots=True)
class Candidate:
    """An atom, and what splitting it alone would do."""

    atom: Atom
    weights: list[Tensor]
    saved: float = 0.0  # bytes of a rank
    moved: float = 0.0  # bytes of a run of ROWS rows
    reason: str | None = None  # why it is not split


@dataclasses.dataclass(eq=False, slots=True)
class Choice:
    """Atoms to split, and all that were thought of."""

    atoms: list[Atom]
    candidates: list[Candidate]


def part_bytes(tensor: Tensor, atom: Atom, ranks: int) -> float:
    """Bytes of a rank's part of a constant."""
    count = 1
    for axis in tensor.axes:
        count *= local_size(axis, atom, ranks)[0]
    return count * float(tensor.dtype.itemsize)


def constant_bytes(plan: Plan, tensor: Tensor, ranks: int) -> float:
    """Bytes that a rank holds of a constant."""
    total = 0.0
    for form in plan.wanted.get(tensor.index, {WHOLE}):
        if isinstance(form, Atom):
            total += part_bytes(tensor, form, ranks)
        else:
            total += tensor.bytes(1)
    return total


def _candidates(graph: Graph, largest: int) -> list[Candidate]:
    found: dict[Atom, Candidate] = {}
    for tensor in graph.tensors:
        wide = sum(factor > 1 for factor, _ in tensor.extents) > 1
        if not (tensor.is_constant and wide and tensor.bytes(1) >= largest / 4096):
            continue
        if tensor.dtype in _NUMBERS:
            continue
        for atom in sorted(tensor.atoms, key=lambda atom: atom.size):
            if not atom.size[1] and atom.size[0] > 1:
                found.setdefault(atom, Candidate(atom, [])).weights.append(tensor)
    return list(found.values())


def _measure(
    graph: Graph, each: Candidate, ranks: int, least: float, weights: int
) -> None:
    atom = each.atom
    if atom.pinned:
        each.reason = atom.pinned
    elif atom.size[0] % ranks:
        each.reason = f"{atom.size[0]} ranges do not divide by {ranks} ranks"
    if each.reason:
        return
    plan = kept_plan(graph, [atom])
    for tensor in plan.constants.values():
        if atom in plan.wanted.get(tensor.index, ()) and (
            problem := part_problem(tensor, atom, ranks)
        ):
            each.reason = problem
            return
        each.saved += tensor.bytes(1) - constant_bytes(plan, tensor, ranks)
    each.moved = plan.moved(ranks)
    if each.saved <= 0:
        each.reason = "no product computes a part along it"
    elif each.saved < least * each.moved:
        each.reason = (
            f"it would save {each.saved:.3g} bytes of weights and move "
            f"{each.moved:.3g} bytes"
        )
    elif least and each.saved < _LEAST_SHARE * weights * len(plan.collectives()):
        each.reason = (
            f"it would save {each.saved:.3g} bytes of weights with "
            f"{len(plan.collectives())} collectives"
        )


def choose(graph: Graph, ranks: int, least: float) -> Choice:
    """Splits what saves at least `least` bytes of weights for each byte moved."""
    sizes = [tensor.bytes(1) for tensor in graph.tensors if tensor.is_constant]
    candidates = _candidates(graph, max(sizes, default=0))
    for each in candidates:
        _measure(graph, each, ranks, least, sum(sizes))
    possible = [each for each in candidates if each.reason is None]
    orders: tuple[Callable[[Candidate], float], ...] = (
        lambda each: least * each.moved - each.saved,
        lambda each: each.moved / each.saved,
    )
    net = []
    for order in orders:
        rank = {id(c): (order(c), _is_expert(graph, c)) for c in possible}
        net.append(_take(graph, sorted(possible, key=lambda each: rank[id(each)])))
    taken, reasons = max(
        net, key=lambda found: sum(each.saved - least * each.moved for each in found[0])
    )
    for each in possible:
        each.reason = reasons.get(each.atom)
    return Choice([each.atom for each in taken], candidates)


def _take(
    graph: Graph, order: list[Candidate]
) -> tuple[list[Candidate], dict[Atom, str]]:
    """Candidates in their order, but those whose tensors are split already."""
    taken: list[Candidate] = []
    reasons: dict[Atom, str] = {}
    used: dict[int, Atom] = {}  # tensors that are split
    for each in order:
        plan = Plan(graph, [each.atom])
        split = {i for i, form in plan.forms.items() if form is each.atom}
        split |= {i for i, forms in plan.wanted.items() if each.atom in forms}
        other = next((used[i] for i in split if i in used), None)
        if other is not None:
            reasons[each.atom] = (
                f"its weights are split in {other.size[0]} ranges, which saves more"
            )
            continue
        taken.append(each)
        used.update(dict.fromkeys(split, each.atom))
    return taken, reasons


def _is_expert(graph: Graph, each: Candidate) -> bool:
    """Of equals, parts of each expert balance better than whole experts."""
    return any(
        op.name == "moe" and has(op.notes["indices"][1], each.atom)
        for tensor in each.weights
        for op in tensor.readers
    )


def states(graph: Graph, plan: Plan) -> list[Tensor]:
    """Inputs that ranks have parts of, and the outputs that are their next values: what
    a caller hands from one run to the next (caches)."""
    found: list[Tensor] = []
    for tensor in graph.inputs:
        own = [atom for atom in plan.chosen if atom in tensor.atoms]
        if not own:
            continue
        outputs = [
            output
            for output in _reached(tensor)
            if plan.forms.get(output.index) is own[0]
            and len(output.extents) == len(tensor.extents)
            and output.dtype == tensor.dtype
        ]
        if outputs:
            found += [tensor, *outputs]
    return list({id(tensor): tensor for tensor in found}.values())


def kept_plan(graph: Graph, atoms: list[Atom], whole: Iterable[str] = ()) -> Plan:
    """The plan in which states stay with their ranks, but those named."""
    kept = states(graph, Plan(graph, atoms))
    return Plan(graph, atoms, [t for t in kept if t.name not in whole])


def _reached(start: Tensor) -> list[Tensor]:
    found, seen, stack = [], {start.index}, [start]
    while stack:
        tensor = stack.pop()
        if tensor.is_output:
            found.append(tensor)
        for op in tensor.readers:
            if op.name not in _MOVES or not op.outputs:
                continue
            if op.name in ("gather", "slice", "shuffle") and op.inputs[0] is not tensor:
                continue
            for output in op.outputs:
                if output.index not in seen:
                    seen.add(output.index)
                    stack.append(output)
    return found


def local_shape(tensor: Tensor, atom: Atom, ranks: int) -> list[int]:
    """Extents of a rank's part, -1 where they are open."""
    sizes = [local_size(axis, atom, ranks) for axis in tensor.axes]
    return [-1 if symbols else factor for factor, symbols in sizes]
