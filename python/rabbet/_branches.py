"""Conditionals. Both branches are computed, and the condition chooses between their
results: it saves no time, and its result is that of the chosen branch."""

from __future__ import annotations

from typing import TypeVar, cast

from . import _enums as e
from ._checked import checks_arguments
from ._composite import Composite, Places, compose, out
from ._errors import UnsupportedError
from ._layer import ITensor
from ._operator_layers import OperatorLayers
from ._reshapes import IUnsqueezeLayer, reshaping


class IIfConditionalBoundaryLayer(Composite):
    """Base of a conditional's layers."""

    __slots__ = ()

    @property
    def conditional(self) -> IIfConditional:
        """The conditional that it belongs to."""
        return cast(IIfConditional, self._parts["conditional"])


B = TypeVar("B", bound=IIfConditionalBoundaryLayer)


class IConditionLayer(IIfConditionalBoundaryLayer):
    """The condition: a single BOOL."""

    __slots__ = ()
    _type = e.LayerType.CONDITION


class IIfConditionalInputLayer(IIfConditionalBoundaryLayer):
    """A tensor that branches use."""

    __slots__ = ()
    _type = e.LayerType.CONDITIONAL_INPUT


class IIfConditionalOutputLayer(IIfConditionalBoundaryLayer):
    """The result of one of the branches."""

    __slots__ = ()
    _type = e.LayerType.CONDITIONAL_OUTPUT


@checks_arguments
class IIfConditional:
    """Chooses between results of two branches, both of which are computed."""

    __slots__ = ("_condition", "_name", "_network")

    def __init__(self, network: OperatorLayers, name: str) -> None:
        self._network = network
        self._condition: IConditionLayer | None = None
        self._name = name

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        self._name = name

    def _copy(self, kind: type[B], tensor: ITensor) -> B:
        copy = self._network.add_identity(tensor)
        places: list[Places] = [[(copy, 0)]]
        return compose(self._network, kind, copy, places, conditional=self)

    def set_condition(self, condition: ITensor) -> IConditionLayer:
        """Sets the condition: a BOOL without dimensions."""
        if condition.dtype is not e.DataType.BOOL or len(condition.shape) != 0:
            raise ValueError(
                f"condition '{condition.name}' of '{self.name}' is {condition.dtype} "
                f"{tuple(condition.shape)}: it must be a BOOL without dimensions"
            )
        if self._condition is not None:
            raise UnsupportedError(f"'{self.name}' has a condition already")
        self._condition = self._copy(IConditionLayer, condition)
        return self._condition

    def add_input(self, input: ITensor) -> IIfConditionalInputLayer:
        """A tensor that branches use."""
        return self._copy(IIfConditionalInputLayer, input)

    def add_output(
        self, true_subgraph_output: ITensor, false_subgraph_output: ITensor
    ) -> IIfConditionalOutputLayer:
        """One of two results; their types are the same, and so are their shapes."""
        import numpy as np

        if self._condition is None:
            raise ValueError(f"'{self.name}' has no condition: set it before outputs")
        network, (yes, no) = (
            self._network,
            (true_subgraph_output, false_subgraph_output),
        )
        if len(yes.shape) != len(no.shape) or any(
            a != b and min(a, b) >= 0 for a, b in zip(yes.shape, no.shape, strict=True)
        ):
            raise UnsupportedError(
                f"outputs of '{self.name}' are {tuple(yes.shape)} and "
                f"{tuple(no.shape)}: results of both branches must have the same shape"
            )
        # Not a select: it would make a shape of two that differ when they are known.
        at = network.add_constant((1,), np.zeros(1, np.int64))
        wide = [reshaping(network, IUnsqueezeLayer, t, out(at)) for t in (no, yes)]
        both = network.add_concatenation([out(layer) for layer in wide])
        both.axis = 0
        index = network.add_cast(out(self._condition), e.DataType.INT32)
        last = network.add_gather(out(both), out(index), 0)
        places = [layer._parts["inputs"][0] for layer in reversed(wide)]
        return compose(
            network, IIfConditionalOutputLayer, last, places, conditional=self
        )
