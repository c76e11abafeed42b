"""Networks of a pipeline's stages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._enums import CollectiveOperation, DataType
from ._derived import Derivation, Numbers
from ._graph import Graph, Tensor
from ._make import Maker
from ._stages import Stage


class StageEmitter(Maker):
    """Makes the network of one rank, whose exchanges are layers, or one network of all
    ranks, in which a tensor that crosses a border is the one before it."""

    def __init__(self, graph: Graph, derivation: Derivation, stages: Sequence[Stage]) -> None:
        super().__init__(graph.network)
        self.graph, self.derivation, self.stages = graph, derivation, stages
        self.inputs: dict[int, Any] = {}
        self.constants: dict[int, Any] = {}
        self.copies: dict[int, Any] = {}  # layers, by operator

    def emit(self, rank: int) -> Any:
        """The network of a rank."""
        stage = self.stages[rank]
        self._add_inputs({tensor.index for tensor in stage.inputs})
        numbers = Numbers(self, self.derivation, self.inputs)
        for border in range(rank - 1):
            self._stay_out(border)
        found = {}
        for tensor in stage.receives:
            made = self._exchange(tensor, numbers.zeros(tensor), rank - 1)
            made.name = tensor.name
            found[tensor.index] = made
        self._compute(stage, numbers, found, "")
        for tensor in stage.sends:
            made = self._exchange(tensor, found[tensor.index], rank)
            made.name = f"{tensor.name}/sent"
        for border in range(rank + 1, len(self.stages) - 1):
            self._stay_out(border)
        for tensor in stage.outputs:
            self.mark_output(tensor, found[tensor.index])
        return self.network

    def emulate(self) -> Any:
        """The network of all ranks."""
        self._add_inputs({tensor.index for tensor in self.graph.inputs})
        made: dict[int, Any] = {}  # outputs
        sent: dict[int, Any] = {}
        for rank, stage in enumerate(self.stages):
            inputs = {t.index: self.inputs[t.index] for t in stage.inputs}
            numbers = Numbers(self, self.derivation, inputs)
            found = {
                tensor.index: self._sent(tensor, sent[tensor.index], numbers)
                for tensor in stage.receives
            }
            self._compute(stage, numbers, found, f"rank{rank}/")
            sent = found
            made |= {tensor.index: found[tensor.index] for tensor in stage.outputs}
        for tensor in self.graph.outputs:
            self.mark_output(tensor, made[tensor.index])
        return self.network

    def _add_inputs(self, wanted: set[int]) -> None:
        for tensor in self.graph.inputs:
            if tensor.index in wanted:
                self.inputs[tensor.index] = self.network._copy_source(tensor.object)

    def _compute(
        self, stage: Stage, numbers: Numbers, found: dict[int, Any], prefix: str
    ) -> None:
        """The layers of a stage. Its prefix is for those that an earlier one has, too."""
        found |= {t.index: self.inputs[t.index] for t in stage.inputs}
        for tensor in stage.constants:
            if tensor.index not in self.constants:
                self.constants[tensor.index] = self.whole_constant(tensor)
            found[tensor.index] = self.constants[tensor.index]
        for tensor in stage.derived:
            found[tensor.index] = numbers.elements(tensor)
        for op in stage.ops:
            given = [None if t is None else found[t.index] for t in op.inputs]
            prefix_here = prefix if op.index in self.copies else ""
            layer = self.network._copy_layer(op.layer, prefix_here, given)
            self.copies[op.index] = layer
            for i, tensor in enumerate(op.outputs):
                found[tensor.index] = layer._get_output(i)
        for op in stage.ops:
            following = op.layer._next()
            if following is not None:
                tensor = self.graph._by_object[following]
                self.copies[op.index]._set_input(1, found[tensor.index])

    # ---- Exchanges ----

    def _broadcast(self, tensor: Any, border: int, name: str) -> Any:
        layer = self.network.add_dist_collective(
            tensor,
            CollectiveOperation.BROADCAST,
            root=border,
            groups=[border, border + 1],
        )
        layer.num_ranks = 2
        layer.name = self.name(name)
        return layer.get_output(0)

    def _exchange(self, tensor: Tensor, given: Any, border: int) -> Any:
        """What the rank before the border has, on both sides of it."""
        return self._broadcast(given, border, f"{tensor.name}/broadcast")

    def _stay_out(self, border: int) -> None:
        """A group's communicator is made by all ranks together, in one order: those that
        are not in the group have a layer of it, which gives one zero."""
        if not self.stages[border].sends:
            return
        zero = self.constant(np.zeros(1, np.float32), DataType.FLOAT, [1], None)
        self._broadcast(zero, border, f"border{border}")

    def _sent(self, tensor: Tensor, given: Any, numbers: Numbers) -> Any:
        """A tensor behind a border: of the extents that the receiver computes."""
        ones = [1] * len(tensor.extents)
        yes = self.constant(np.ones(1, np.bool_), DataType.BOOL, ones, None)
        layer = self.network._add_layer(
            "select",
            self.name(f"{tensor.name}/border"),
            [yes, given, numbers.zeros(tensor)],
            {},
        )
        return layer._get_output(0)
