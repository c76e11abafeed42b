"""rabbet.parallel.tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .._callbacks import ILogger
from .._errors import InvalidArgumentError, NotFoundError
from .._profiles import matches, range_of
from ._axes import Atom, has
from ._choose import Choice, choose, kept_plan, local_shape
from ._emit import Collectives, Emitter, Emulated
from ._graph import Graph
from ._plan import Plan
from ._report import Report
from ._rules import analyse
from ._split import Split, network_of, ranks_of


class TensorParallel(Split):
    """A model whose layers are split over ranks."""

    def __init__(
        self, graph: Graph, ranks: int, choice: Choice, plan: Plan, builder: Any
    ) -> None:
        super().__init__(ranks, builder)
        self._graph, self._choice, self._plan = graph, choice, plan
        self.report = Report(graph, plan, choice, ranks)

    def emulation(self) -> Any:
        return self._emit(list(range(self.ranks)), Emulated())

    def parts(self) -> dict[str, tuple[int, list[int]]]:
        found = {}
        for tensor in self._plan.graph.tensors:
            form = self._plan.forms.get(tensor.index)
            if id(tensor) in self._plan.kept and isinstance(form, Atom):
                shape = local_shape(tensor, form, self.ranks)
                axis = next(i for i, a in enumerate(tensor.axes) if has(a, form))
                found[tensor.name] = (axis, shape)
        return found

    def _network(self, rank: int) -> Any:
        return self._emit([rank], Collectives(self.ranks))

    def _emit(self, made: list[int], exchange: Any) -> Any:
        return Emitter(self._graph, self._plan, self.ranks, made, exchange).emit()

    def _local_inputs(self, given: Any, rank: int, are_shapes: bool) -> Any:
        if not are_shapes or not isinstance(given, Mapping):
            return given  # compile names the fault
        parts = self.parts()
        return {
            name: tuple(
                self._local_shape(name, *parts[name], s) for s in range_of(shape, name)
            )
            if name in parts
            else shape
            for name, shape in given.items()
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
    ranks = ranks_of(ranks)
    if isinstance(whole, str):
        raise TypeError(f"whole: expected a list of names, got {whole!r}")
    if not least_saving >= 0:
        raise InvalidArgumentError(
            f"least_saving is {least_saving}; expected 0 or more"
        )
    network, builder = network_of(model, logger)
    graph = analyse(network)
    names = {t.name for t in graph.tensors if t.is_input or t.is_output}
    for name in whole:
        if name not in names:
            raise NotFoundError(f"whole: there is no input or output '{name}'")
    choice = choose(graph, ranks, least_saving)
    plan = kept_plan(graph, choice.atoms, whole)
    return TensorParallel(graph, ranks, choice, plan, builder)
