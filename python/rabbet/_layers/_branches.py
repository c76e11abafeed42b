"""Conditionals: two branches, of which a run computes only the chosen one."""

from __future__ import annotations

from typing import cast

from .. import _enums as e
from .. import _rabbet
from .._checked import checks_arguments
from ._layer import LAYER_CLASSES, ILayer, ITensor


@checks_arguments
class IIfConditional:
    """Chooses between two branches. A branch consists of the layers between the
    conditional's inputs and one of the two tensors of an output. Two objects for one
    conditional are equal."""

    __slots__ = ("_index", "_network")

    def __init__(self, network: _rabbet.Network, index: int) -> None:
        self._network, self._index = network, index

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, IIfConditional)
            and self._network is other._network
            and self._index == other._index
        )

    def __hash__(self) -> int:
        return hash((id(self._network), self._index))

    def __repr__(self) -> str:
        return f"<IIfConditional '{self.name}'>"

    @property
    def name(self) -> str:
        """Name of the conditional; the branches of P are the sequences "P/true" and
        "P/false"."""
        return cast(str, self._network._conditional_name(self._index))

    @name.setter
    def name(self, name: str) -> None:
        self._network._set_conditional_name(self._index, name)

    def _add(self, kind: str, tensor: ITensor, other: ITensor) -> ILayer:
        return cast(
            ILayer,
            self._network._add_conditional_layer(self._index, kind, tensor, other),
        )

    def set_condition(self, condition: ITensor) -> IConditionLayer:
        """Sets the condition: a BOOL tensor of rank 0."""
        if condition.dtype is not e.DataType.BOOL or len(condition.shape) != 0:
            raise ValueError(
                f"condition '{condition.name}' of '{self.name}' is {condition.dtype} "
                f"{tuple(condition.shape)}: it must be a BOOL without dimensions"
            )
        return cast(IConditionLayer, self._add("condition", condition, condition))

    def add_input(self, input: ITensor) -> IIfConditionalInputLayer:
        """Declares a tensor that the branches read through the returned layer's
        output."""
        return cast(IIfConditionalInputLayer, self._add("input", input, input))

    def add_output(
        self, true_subgraph_output: ITensor, false_subgraph_output: ITensor
    ) -> IIfConditionalOutputLayer:
        """Adds a result: the tensor of the branch that runs. Both have the same type
        and rank; their extents may differ."""
        return cast(
            IIfConditionalOutputLayer,
            self._add("output", true_subgraph_output, false_subgraph_output),
        )


class IIfConditionalBoundaryLayer(ILayer):
    """Base of a conditional's layers."""

    __slots__ = ()

    @property
    def conditional(self) -> IIfConditional:
        """The conditional that it belongs to."""
        return IIfConditional(self._network(), cast(int, self._conditional()))


class IConditionLayer(IIfConditionalBoundaryLayer):
    """The condition of a conditional: a single BOOL."""

    __slots__ = ()
    _type = e.LayerType.CONDITION


class IIfConditionalInputLayer(IIfConditionalBoundaryLayer):
    """A tensor that the branches read."""

    __slots__ = ()
    _type = e.LayerType.CONDITIONAL_INPUT


class IIfConditionalOutputLayer(IIfConditionalBoundaryLayer):
    """A result of the branch that runs."""

    __slots__ = ()
    _type = e.LayerType.CONDITIONAL_OUTPUT


LAYER_CLASSES.update(
    condition=IConditionLayer,
    conditional_input=IIfConditionalInputLayer,
    conditional_output=IIfConditionalOutputLayer,
)
