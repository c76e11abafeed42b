"""rabbet.parallel.tensor."""

from __future__ import annotations

import operator
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .._build import _network_of, build_model
from .._builder import Builder
from .._callbacks import ILogger, Logger
from .._enums import Severity
from .._errors import InvalidArgumentError, NotFoundError
from .._profiles import matches, range_of
from ._axes import Atom, has
from ._choose import Choice, choose, kept_plan, local_shape
from ._emit import Collectives, Emitter, Emulated
from ._graph import Graph
from ._plan import Plan
from ._report import Report
from ._rules import analyse


class TensorParallel:
    """A model split over ranks: a network for each, and what was decided."""

    def __init__(
        self, graph: Graph, ranks: int, choice: Choice, plan: Plan, builder: Any
    ) -> None:
        self._graph, self._choice, self._plan = graph, choice, plan
        self._builder = builder
        self.ranks = ranks
        self.report = Report(graph, plan, choice, ranks)

    def __str__(self) -> str:
        return str(self.report)

    def network(self, rank: int) -> Any:
        """The network of a rank, for rabbet.compile or a Builder."""
        if not 0 <= operator.index(rank) < self.ranks:
            raise InvalidArgumentError(
                f"rank is {rank}; expected 0 to {self.ranks - 1}"
            )
        return self._emit([rank], Collectives(self.ranks))

    def compile(self, rank: int, **options: Any) -> Any:
        """The model of a rank, as rabbet.compile makes it. `shapes` and `profiles` are
        those of the whole model. On a GPU; it runs once it has a communicator."""
        return build_model(self.network(rank), **self._local(options))

    def save(self, path: Any, **options: Any) -> list[Path]:
        """Writes a plan for each rank, PATH.0 to PATH.(ranks - 1), one after the other.
        Takes the options of rabbet.compile. Times are measured once: the ranks' layers
        are alike."""
        if "save" in options:
            raise TypeError(
                "save: the plans are written to PATH.0, ...; save= is not taken"
            )
        made = [Path(f"{os.fspath(path)}.{rank}") for rank in range(self.ranks)]
        with tempfile.TemporaryDirectory() as folder:
            options.setdefault("timing_cache", Path(folder) / "times")
            for rank, file in enumerate(made):
                self.compile(rank, save=file, **options)
        return made

    def _local(self, options: dict[str, Any]) -> dict[str, Any]:
        """Options with shapes of a rank's parts."""
        made = dict(options)
        if made.get("shapes"):
            made["shapes"] = self._local_shapes(made["shapes"])
        if made.get("profiles"):
            made["profiles"] = [self._local_shapes(each) for each in made["profiles"]]
        return made

    def _local_shapes(self, shapes: Any) -> Any:
        if not isinstance(shapes, Mapping):
            return shapes  # compile names the fault
        parts = self.parts()
        return {
            name: tuple(
                self._local_shape(name, *parts[name], s) for s in range_of(given, name)
            )
            if name in parts
            else given
            for name, given in shapes.items()
        }

    def _local_shape(
        self, name: str, axis: int, part: list[int], shape: Any
    ) -> tuple[int, ...]:
        """A rank's part of a shape of the whole input."""
        own = [extent * self.ranks if i == axis and extent >= 0 else extent
               for i, extent in enumerate(part)]  # fmt: skip
        dims = matches(shape, tuple(own), name)
        if own[axis] >= 0 and dims[axis] != own[axis]:
            raise InvalidArgumentError(
                f"shapes: input '{name}' has {own[axis]} along axis {axis}, got {dims}: "
                "shapes are those of the whole model"
            )
        if dims[axis] % self.ranks:
            raise InvalidArgumentError(
                f"shapes: input '{name}' is split along axis {axis}; {self.ranks} ranks "
                f"do not divide its {dims[axis]} of {dims}"
            )
        return (*dims[:axis], dims[axis] // self.ranks, *dims[axis + 1 :])

    def emulation(self) -> Any:
        """One network with all ranks' arithmetic, for one device: its inputs and outputs
        are the model's. For checks of results without several GPUs."""
        return self._emit(list(range(self.ranks)), Emulated())

    def _emit(self, made: list[int], exchange: Any) -> Any:
        return Emitter(self._graph, self._plan, self.ranks, made, exchange).emit()

    def parts(self) -> dict[str, tuple[int, list[int]]]:
        """Inputs and outputs of which each rank has a part: (axis that is split, shape
        of a rank's part, -1 where it is open)."""
        found = {}
        for tensor in self._plan.graph.tensors:
            form = self._plan.forms.get(tensor.index)
            if id(tensor) in self._plan.kept and isinstance(form, Atom):
                shape = local_shape(tensor, form, self.ranks)
                axis = next(i for i, a in enumerate(tensor.axes) if has(a, form))
                found[tensor.name] = (axis, shape)
        return found


def tensor(
    model: Any,
    ranks: int,
    *,
    least_saving: float = 1.0,
    whole: Sequence[str] = (),
    logger: ILogger | None = None,
) -> TensorParallel:
    """Splits a model's products, attention heads and experts over ranks.

    What hangs together is found in the network itself: columns of one product are the
    rows of a later one, whose partial sums one all-reduce adds. All else is computed by
    each rank.

    model: path of an ONNX file, its bytes, an onnx.ModelProto or a network.
    ranks: how many GPUs, 2 or more.
    least_saving: bytes of weights that a split must save a rank for each byte that it
        moves in a run of 16 rows.
    whole: inputs and outputs that each rank has whole. Others that are a state of the
        caller (caches, which a run changes and gives back) are split with the heads.
    """
    ranks = operator.index(ranks)
    if isinstance(whole, str):
        raise TypeError(f"whole: expected a list of names, got {whole!r}")
    if ranks < 2:
        raise InvalidArgumentError(f"ranks is {ranks}; expected 2 or more")
    if not least_saving >= 0:
        raise InvalidArgumentError(
            f"least_saving is {least_saving}; expected 0 or more"
        )
    builder = Builder(logger or Logger(Severity.WARNING))
    network = _network_of(builder, model, builder._logger, False, [])
    graph = analyse(network)
    names = {t.name for t in graph.tensors if t.is_input or t.is_output}
    for name in whole:
        if name not in names:
            raise NotFoundError(f"whole: there is no input or output '{name}'")
    choice = choose(graph, ranks, least_saving)
    plan = kept_plan(graph, choice.atoms, whole)
    return TensorParallel(graph, ranks, choice, plan, builder)
