"""What was split over ranks, what was not and why; for people and programs."""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import _rabbet
from ._axes import Atom, has
from ._choose import Choice, constant_bytes
from ._graph import Graph, Op, Tensor
from ._plan import Collective, Plan

# Constants with less than this share of all are not listed one by one.
_LEAST_SHARE = 0.002
_LONGEST_NAME = 40


class Split(NamedTuple):
    """Weights that are split together.

    ranges: how many indices are dealt out. weights: (layer, shape, "columns" or "rows"
    of a product, else "parts"). bytes: of all of them. collectives: (kind, tensor) that
    they need.
    """

    ranges: int
    weights: tuple[tuple[str, tuple[int, ...], str], ...]
    bytes: int
    collectives: tuple[tuple[str, str], ...]


class Whole(NamedTuple):
    """Weights that each rank has: the layer that reads them, their shape, and why."""

    layer: str
    shape: tuple[int, ...]
    bytes: int
    reason: str


class Exchange(NamedTuple):
    """Collectives of one kind in a run: their number, and bytes of their tensors for a run of
    one row."""

    kind: str
    number: int
    bytes: int


class BaseReport:
    """What reports have in common."""

    def as_dict(self) -> dict[str, Any]:
        """The report, as JSON has it."""
        raise NotImplementedError

    def json(self) -> str:
        """The report as JSON."""
        import json

        return json.dumps(self.as_dict(), indent=2)


class Report(BaseReport):
    """splits: what is split. whole: weights that stay on each rank. exchanges: what ranks
    send. weights, rank_weights: bytes of the model's constants, and of those that a rank
    has. str() is a table."""

    def __init__(self, graph: Graph, plan: Plan, choice: Choice, ranks: int) -> None:
        self.ranks = ranks
        constants = [t for t in graph.tensors if t.is_constant]
        self.weights = sum(t.bytes(1) for t in constants)
        self.rank_weights = int(sum(constant_bytes(plan, t, ranks) for t in constants))
        collectives = plan.collectives()
        self.splits = [_split(plan, atom, collectives) for atom in plan.chosen]
        self.whole = [
            _whole(tensor, choice)
            for tensor in constants
            if not any(isinstance(f, Atom) for f in plan.wanted.get(tensor.index, ()))
            and tensor.bytes(1) >= max(_LEAST_SHARE * self.weights, 64)
            and len([extent for extent in tensor.extents if extent[0] > 1]) > 1
        ]
        self.exchanges = []
        for kind in ("all_reduce", "all_gather"):
            found = [each.tensor.bytes(1) for each in collectives if each.kind == kind]
            if found:
                self.exchanges.append(Exchange(kind, len(found), sum(found)))

    def as_dict(self) -> dict[str, Any]:
        """The report, as JSON has it."""
        return {
            "ranks": self.ranks,
            "weights": self.weights,
            "rank_weights": self.rank_weights,
            "splits": [each._asdict() for each in self.splits],
            "whole": [each._asdict() for each in self.whole],
            "exchanges": [each._asdict() for each in self.exchanges],
        }

    def __str__(self) -> str:
        share = 100 * self.rank_weights / max(self.weights, 1)
        lines = [
            f"{self.ranks} ranks; weights of {size_text(self.weights)}, of which each has "
            f"{size_text(self.rank_weights)} ({share:.0f} %)"
        ]
        for each in self.exchanges:
            lines.append(
                f"{each.number} {each.kind} in a run, of {size_text(each.bytes)} in all for "
                "one row"
            )
        if not self.splits:
            lines.append("nothing is split")
        for alike in _alike(self.splits):
            lines += _shown(alike)
        if self.whole:
            lines.append("whole on each rank:")
        for layers in _same_reason(self.whole):
            first = layers[0]
            more = f" and {len(layers) - 1} more" if len(layers) > 1 else ""
            total = size_text(sum(each.bytes for each in layers))
            shape = "x".join(map(str, first.shape))
            lines.append(
                f"  {shown_name(first.layer)} {shape}{more}, {total}: {first.reason}"
            )
        return "\n".join(lines)


# ---- Rows ----


def _reader(tensor: Tensor) -> Op | None:
    """The first layer behind a constant that is no conversion of it."""
    op = tensor.readers[0] if tensor.readers else None
    while op is not None and op.outputs and op.outputs[0].is_fixed:
        readers = op.outputs[0].readers
        if not readers:
            break
        op = readers[0]
    return op


def _shape(tensor: Tensor) -> tuple[int, ...]:
    return tuple(factor for factor, _ in tensor.extents)


def _split(plan: Plan, atom: Atom, collectives: list[Collective]) -> Split:
    weights, total = [], 0
    for tensor in sorted(plan.constants.values(), key=lambda t: t.index):
        if not any(form is atom for form in plan.wanted[tensor.index]):
            continue
        total += tensor.bytes(1)
        op = _reader(tensor)
        product = op is not None and op.name in ("matrix_multiply", "gather", "moe")
        how = "parts"
        if product:
            assert op is not None
            is_summed = any(has(axis, atom) for axis in op.summed)
            how = "rows" if is_summed else "columns"
        weights.append((op.layer.name if op else tensor.name, _shape(tensor), how))
    needed = tuple(
        (each.kind, each.tensor.name)
        for each in collectives
        if each.tensor.producer is not None and _follows(plan, each, atom)
    )
    return Split(atom.size[0], tuple(weights), total, needed)


def _follows(plan: Plan, each: Collective, atom: Atom) -> bool:
    """Whether the collective is for what the atom's products made."""
    op = each.tensor.producer
    while op is not None:
        step = plan.steps.get(op.index)
        if step is None:
            return False
        if step.atom is not None:
            return step.atom is atom
        op = next(
            (t.producer for t, want in zip(op.inputs, step.wants, strict=True)
             if t is not None and want == "sums" and t.producer is not None), None
        )  # fmt: skip
    return False


def _whole(tensor: Tensor, choice: Choice) -> Whole:
    reasons = [
        f"{each.atom.size[0]} ranges: {each.reason}"
        for each in choice.candidates
        if each.reason and any(tensor is weight for weight in each.weights)
    ]
    op = _reader(tensor)
    reason = "; ".join(dict.fromkeys(reasons[:2])) or "nothing computes a part of it"
    name = op.layer.name if op is not None else tensor.name
    return Whole(name, _shape(tensor), tensor.bytes(1), reason)


# ---- Text ----


def size_text(count: float) -> str:
    """Bytes, for people."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError


def shown_name(name: str) -> str:
    """A name as a terminal can show it, in a line."""
    text = _rabbet.shown(name)
    return text if len(text) <= _LONGEST_NAME else "..." + text[3 - _LONGEST_NAME :]


def _alike(splits: list[Split]) -> list[list[Split]]:
    """Splits of the same shapes together: those of a model's layers."""
    found: dict[Any, list[Split]] = {}
    for each in splits:
        key = (
            each.ranges,
            tuple((shape, how) for _, shape, how in each.weights),
            tuple(kind for kind, _ in each.collectives),
        )
        found.setdefault(key, []).append(each)
    return sorted(found.values(), key=lambda alike: -sum(s.bytes for s in alike))


def _shown(alike: list[Split]) -> list[str]:
    first = alike[0]
    times = f", {len(alike)} times" if len(alike) > 1 else ""
    total = size_text(sum(each.bytes for each in alike))
    kinds = [kind for kind, _ in first.collectives]
    needed = (
        ", ".join(f"{kinds.count(k)} {k}" for k in dict.fromkeys(kinds)) or "nothing"
    )
    lines = [f"{first.ranges} ranges{times}: {total}, exchanged: {needed}"]
    shown = [
        entry for entry in first.weights if len([n for n in entry[1] if n > 1]) > 1
    ]
    for layer, shape, how in (shown or list(first.weights))[:12]:
        lines.append(f"  {shown_name(layer)} {'x'.join(map(str, shape))} {how}")
    if len(shown) > 12:
        lines.append(f"  and {len(shown) - 12} more")
    return lines


def _same_reason(whole: list[Whole]) -> list[list[Whole]]:
    found: dict[Any, list[Whole]] = {}
    for each in whole:
        found.setdefault((each.shape, each.reason), []).append(each)
    return sorted(found.values(), key=lambda alike: -sum(w.bytes for w in alike))
