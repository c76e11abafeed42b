"""In which form each operator of a rank reads and makes tensors, for chosen atoms.

A tensor is whole on each rank (WHOLE), a part of it is (the atom along which it is
split), or each rank has partial sums of it (SUMS). An operator that has a chosen atom on
its axes computes a rank's part; the forms of its inputs follow. Where another form is
wanted than the one that was made, a collective or a slice makes it.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Iterable
from typing import Final

from .._enums import DataType
from ._axes import Atom, atoms_in, has, is_pure, leaves
from ._graph import Graph, Op, Tensor

WHOLE: Final = "whole"
SUMS: Final = "sums"
# Of an operand that is added to partial sums: rank 0 has it whole, others nothing.
ONCE: Final = "once"
Form = Atom | str

# Rows that an open extent stands for when bytes are compared.
ROWS = 16
# Above so many rows arithmetic bounds products, which a split saves as well: bytes
# moved count as those of so many.
MOST_ROWS = 128
# A product of two activations grows with the context, in rows.
CONTEXT = 1024
_REALS = (DataType.FLOAT, DataType.HALF, DataType.BF16)


@dataclasses.dataclass(eq=False, slots=True)
class Step:
    """How the ranks compute an operator."""

    atom: Atom | None  # whose part each computes
    wants: list[Form | None]
    makes: list[Form]


@dataclasses.dataclass(eq=False, slots=True)
class Collective:
    """A tensor that ranks make whole together."""

    tensor: Tensor
    kind: str  # "all_reduce" or "all_gather"

    def moved(self, ranks: int, rows: int) -> float:
        """Bytes that a rank sends."""
        share = (ranks - 1) / ranks * self.tensor.bytes(rows)
        return 2 * share if self.kind == "all_reduce" else share


class Plan:
    """The forms of all tensors; operators without a step compute everything."""

    def __init__(
        self, graph: Graph, chosen: Iterable[Atom], kept: Iterable[Tensor] = ()
    ) -> None:
        self.graph = graph
        self.chosen = list(chosen)
        self.kept = {id(tensor) for tensor in kept}
        self.steps: dict[int, Step] = {}
        self.forms: dict[int, Form] = {}  # by tensor; else WHOLE
        self.wanted: dict[int, set[Form]] = {}
        self.constants: dict[int, Tensor] = {}  # that steps read
        self.growing: set[int] = set()  # sums of products of two activations
        self.rows: dict[int, int] = {}  # of the products that made sums
        self._follow()

    # ---- Following tensors ----

    def _follow(self) -> None:
        atoms = set(self.chosen)
        open_ops = [op.index for op in self._ops_with(atoms)]
        heapq.heapify(open_ops)
        done: set[int] = set()
        for tensor in self.graph.inputs:
            if id(tensor) in self.kept:
                own = [atom for atom in self.chosen if atom in tensor.atoms]
                if own:
                    self.forms[tensor.index] = own[0]
        while open_ops:
            index = heapq.heappop(open_ops)
            if index in done:
                continue
            done.add(index)
            op = self.graph.ops[index]
            step = self.steps[index] = self._step(op, atoms)
            if SUMS in step.makes:
                self._note_sums(op, step)
            for tensor, form in zip(op.outputs, step.makes, strict=True):
                self.forms[tensor.index] = form
                for reader in tensor.readers if form != WHOLE else ():
                    heapq.heappush(open_ops, reader.index)
            for source, want in zip(op.inputs, step.wants, strict=True):
                if source is None:
                    continue
                self.wanted.setdefault(source.index, set()).add(want or WHOLE)
                if source.is_constant:
                    self.constants[source.index] = source
        for tensor in self.graph.outputs:
            form = self.forms.get(tensor.index, WHOLE)
            if form != WHOLE and not (id(tensor) in self.kept and form != SUMS):
                self.wanted.setdefault(tensor.index, set()).add(WHOLE)

    def _note_sums(self, op: Op, step: Step) -> None:
        output = op.outputs[0]
        known = [self.rows[t.index] for t in op.inputs if t and t.index in self.rows]
        own = output.rows(ROWS)
        self.rows[output.index] = own if step.atom is not None else min(known)
        if self._grows(op, step):
            self.growing.add(output.index)

    def _grows(self, op: Op, step: Step) -> bool:
        if step.atom is None:
            return any(t is not None and t.index in self.growing for t in op.inputs)
        fixed = any(t is not None and t.is_fixed for t in op.inputs)
        return op.name == "matrix_multiply" and not fixed

    def _ops_with(self, atoms: set[Atom]) -> Iterable[Op]:
        return (op for op in self.graph.ops if not atoms.isdisjoint(op.atoms))

    def _step(self, op: Op, atoms: set[Atom]) -> Step:
        present = atoms & op.atoms
        for atom in self.chosen if present else ():
            if atom in present and (step := split_step(op, atom)):
                return step
        return self._linear(op) or Step(
            None, [WHOLE] * len(op.inputs), [WHOLE] * len(op.outputs)
        )

    def _linear(self, op: Op) -> Step | None:
        """Partial sums that pass: the sum is taken behind the operator."""
        if op.linear is None:
            return None
        wants: list[Form | None] = []
        sums = 0
        for tensor in op.inputs:
            is_sum = tensor is not None and self._passes(tensor)
            wants.append(SUMS if is_sum else WHOLE)
            sums += is_sum
        if sums == 0:
            return None
        if op.linear == "first" and not (sums == 1 and wants[0] == SUMS):
            return None
        if op.linear == "one" and sums != 1:
            return None
        if op.linear in ("all", "difference"):  # rank 0 alone adds what is no sum
            for i, tensor in enumerate(op.inputs):
                if wants[i] != SUMS and tensor is not None:
                    wants[i] = SUMS if tensor.is_constant else ONCE
            if op.linear == "difference" and wants[0] == ONCE:
                return None
        output = op.outputs[0]
        largest = max(t.bytes(ROWS) for t, w in zip(op.inputs, wants, strict=True)
                      if t is not None and w == SUMS)  # fmt: skip
        if output.dtype not in _REALS or output.bytes(ROWS) > largest:
            return None
        return Step(None, wants, [SUMS])

    def _passes(self, tensor: Tensor) -> bool:
        if self.forms.get(tensor.index) != SUMS or tensor.is_output:
            return False
        return sum(t is tensor for op in tensor.readers for t in op.inputs) == 1

    # ---- What it costs ----

    def collectives(self) -> list[Collective]:
        """What ranks exchange in a run, in the order of tensors."""
        found = []
        for index, wanted in sorted(self.wanted.items()):
            form = self.forms.get(index, WHOLE)
            others = wanted - {form}
            if form == WHOLE or not others:
                continue
            kind = "all_reduce" if form == SUMS else "all_gather"
            found.append(Collective(self.graph.tensors[index], kind))
        return found

    def moved(self, ranks: int) -> float:
        """Bytes that a rank sends in a run of ROWS rows."""
        total = 0.0
        for each in self.collectives():
            rows = self.rows.get(each.tensor.index, each.tensor.rows(ROWS))
            share = min(1, MOST_ROWS / max(rows, 1))
            if each.tensor.index in self.growing:
                share = CONTEXT
            total += each.moved(ranks, ROWS) * share
        return total


def split_step(op: Op, atom: Atom) -> Step | None:
    """The operator's part along the atom; None if it has none."""
    wants: list[Form | None] = []
    for i, tensor in enumerate(op.inputs):
        is_split = tensor is not None and atom in tensor.atoms
        wants.append(atom if is_split and not op.is_whole(i, atom) else WHOLE)
    is_summed = [any(each is atom for each in atoms_in(a)) for a in op.summed]
    makes: list[Form] = [atom if atom in t.atoms else WHOLE for t in op.outputs]
    if op.name == "shape":
        if wants[0] == WHOLE:
            return None
        return Step(atom, wants, [WHOLE])
    if all(want == WHOLE for want in wants):
        return None
    if any(is_summed):
        axes = [axis for axis, found in zip(op.summed, is_summed, strict=True) if found]
        whole = any(make is atom for make in makes)
        if whole or not all(is_pure(axis, atom) for axis in axes):
            return None
        if "indices" in op.notes and not _ranges(op, atom):
            return None
        return Step(atom, wants, [SUMS] * len(makes))
    if any(make == WHOLE for make in makes):
        return None
    return Step(atom, wants, makes)


def _ranges(op: Op, atom: Atom) -> bool:
    """Whether each rank has one range of what indices choose, or all of it."""
    _, axis = op.notes["indices"]
    return not has(axis, atom) or leaves(axis)[0] is atom
