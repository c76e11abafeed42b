"""rabbet.parallel.pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .._callbacks import ILogger
from .._errors import InvalidArgumentError
from ._graph import Graph, Tensor
from ._report import BaseReport, Exchange, shown_name, size_text
from ._split import Split, network_of, ranks_of
from ._stage_emit import StageEmitter
from ._stages import Parts, Stage, chosen, named, stages

_MOST_NAMES = 8


class StageReport(NamedTuple):
    """Of a rank: its inputs and outputs; tensors that it receives from the rank before and
    sends to the next; number of layers; bytes of its constants; share of the model's time
    that it is estimated to take."""

    rank: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    receives: tuple[str, ...]
    sends: tuple[str, ...]
    layers: int
    weights: int
    share: float


class PipelineReport(BaseReport):
    """stages: what each rank has. cuts: names of the tensors that cross each border.
    exchanges: what is sent in a run. weights, rank_weights: bytes of the model's constants,
    and the most that a rank has. str() is a table."""

    def __init__(self, parts: Parts, made: Sequence[Stage]) -> None:
        self.ranks = len(made)
        self.weights = parts.weights
        loads = [
            sum(parts.load(op) for op in stage.ops if parts.kinds[op.index] == "heavy")
            for stage in made
        ]
        total = max(sum(loads), 1e-300)
        self.stages = [
            StageReport(
                rank,
                _names(stage.inputs),
                _names(stage.outputs),
                _names(stage.receives),
                _names(stage.sends),
                len(stage.ops),
                sum(t.bytes(1) for t in stage.constants),
                load / total,
            )
            for rank, (stage, load) in enumerate(zip(made, loads, strict=True))
        ]
        self.cuts = [each.sends for each in self.stages[:-1]]
        self.rank_weights = max(each.weights for each in self.stages)
        sent = [tensor.bytes(1) for stage in made for tensor in stage.sends]
        self.exchanges = [Exchange("broadcast", len(sent), sum(sent))] if sent else []

    def as_dict(self) -> dict[str, Any]:
        return {
            "ranks": self.ranks,
            "weights": self.weights,
            "rank_weights": self.rank_weights,
            "cuts": self.cuts,
            "stages": [each._asdict() for each in self.stages],
            "exchanges": [each._asdict() for each in self.exchanges],
        }

    def __str__(self) -> str:
        share = 100 * self.rank_weights / max(self.weights, 1)
        lines = [
            f"{self.ranks} stages; weights of {size_text(self.weights)}, of which a rank "
            f"has at most {size_text(self.rank_weights)} ({share:.0f} %)"
        ]
        for each in self.exchanges:
            lines.append(
                f"{each.number} {each.kind} of two ranks in a run, of "
                f"{size_text(each.bytes)} in all for one row"
            )
        for stage in self.stages:
            lines.append(
                f"rank {stage.rank}: {stage.layers} layers, {size_text(stage.weights)}, "
                f"{100 * stage.share:.0f} % of the time"
            )
            for what in ("inputs", "receives", "sends", "outputs"):
                if names := getattr(stage, what):
                    lines.append(f"  {what}: {_shown(names)}")
        return "\n".join(lines)


def _names(tensors: Sequence[Tensor]) -> tuple[str, ...]:
    return tuple(tensor.name for tensor in tensors)


def _shown(names: Sequence[str]) -> str:
    shown = ", ".join(shown_name(name) for name in names[:_MOST_NAMES])
    more = len(names) - _MOST_NAMES
    return f"{shown} and {more} more" if more > 0 else shown


class Pipeline(Split):
    """A model of which each rank computes a stage."""

    def __init__(self, parts: Parts, made: Sequence[Stage], builder: Any) -> None:
        super().__init__(len(made), builder)
        self._parts, self._stages = parts, made
        self.report = PipelineReport(parts, made)

    def emulation(self) -> Any:
        return self._emitter().emulate()

    def parts(self) -> dict[str, tuple[int, list[int]]]:
        """Nothing: a rank has its inputs and outputs whole. The report says which
        (`report.stages`)."""
        return {}

    def _network(self, rank: int) -> Any:
        return self._emitter().emit(rank)

    def _emitter(self) -> StageEmitter:
        return StageEmitter(self._parts.graph, self._parts.derivation, self._stages)

    def _local_inputs(self, given: Any, rank: int, are_shapes: bool) -> Any:
        if not isinstance(given, Mapping):
            return given  # compile names the fault
        own = self.report.stages[rank].inputs
        others = {t.name for t in self._parts.graph.inputs} - set(own)
        return {name: each for name, each in given.items() if name not in others}


def _named_cuts(cuts: Any) -> list[tuple[str, ...]]:
    if isinstance(cuts, str) or not isinstance(cuts, Sequence):
        raise TypeError(f"cuts: expected a list of names of tensors, got {cuts!r}")
    made = []
    for cut in cuts:
        names = (cut,) if isinstance(cut, str) else cut
        if not isinstance(names, Sequence) or not names or (
            not all(isinstance(name, str) for name in names)
        ):  # fmt: skip
            raise TypeError(
                "cuts: expected the name of a tensor, or a tuple of names where several "
                f"cross a border, got {cut!r}"
            )
        made.append(tuple(names))
    return made


def _ranks_of(ranks: int | None, cuts: list[tuple[str, ...]] | None) -> int:
    if ranks is None and cuts is None:
        raise TypeError("pipeline: give ranks or cuts")
    if cuts is not None and not cuts:
        raise InvalidArgumentError("cuts is empty; expected a name for each border")
    if ranks is None:
        assert cuts is not None
        return len(cuts) + 1
    ranks = ranks_of(ranks)
    if cuts is not None and ranks != len(cuts) + 1:
        raise InvalidArgumentError(
            f"cuts has {len(cuts)} border{'s' * (len(cuts) != 1)}, which make "
            f"{len(cuts) + 1} stages; ranks is {ranks}"
        )
    return ranks


def pipeline(
    model: Any,
    ranks: int | None = None,
    cuts: Sequence[str | Sequence[str]] | None = None,
    *,
    logger: ILogger | None = None,
) -> Pipeline:
    """Cuts a model into stages, one for each rank, which follow each other.

    A rank takes those inputs of the model that its stage reads, and gives the outputs that
    it computes; the report says which. What later ranks need of earlier ones is sent from
    rank to rank. Caches stay where they are read.

    model: path of an ONNX file, its bytes, an onnx.ModelProto or a network.
    ranks: how many GPUs, 2 or more; default: as many as cuts need.
    cuts: for each border the name of the tensor at which the stage before it ends, in the
        order of execution; a tuple of names where several cross it. None: cuts that make
        stages as long as each other, where little crosses.
    """
    borders = None if cuts is None else _named_cuts(cuts)
    count = _ranks_of(ranks, borders)
    network, builder = network_of(model, logger)
    graph = Graph(network)
    parts = Parts(graph)
    stage_of = chosen(parts, count) if borders is None else named(parts, borders)
    return Pipeline(parts, stages(parts, stage_of, count, borders), builder)
