"""Loops: layers that run once for each iteration. The builder unrolls them."""

from __future__ import annotations

from typing import cast

from .. import _enums as e
from .. import _rabbet
from .._checked import checks_arguments
from ._layer import LAYER_CLASSES, ILayer, ITensor, _flag, _number


@checks_arguments
class ILoop:
    """A loop. Its body consists of the layers that depend on its recurrences and
    iterators. Two objects for one loop are equal."""

    __slots__ = ("_index", "_network")

    def __init__(self, network: _rabbet.Network, index: int) -> None:
        self._network, self._index = network, index

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ILoop)
            and self._network is other._network
            and self._index == other._index
        )

    def __hash__(self) -> int:
        return hash((id(self._network), self._index))

    def __repr__(self) -> str:
        return f"<ILoop '{self.name}'>"

    @property
    def name(self) -> str:
        """Name of the loop; layer L in iteration 2 of loop P is called "P[2]/L"."""
        return cast(str, self._network._loop_name(self._index))

    @name.setter
    def name(self, name: str) -> None:
        self._network._set_loop_name(self._index, name)

    def add_recurrence(self, initial_value: ITensor) -> IRecurrenceLayer:
        """Adds a value that iterations pass on; set_input(1, tensor) sets the next
        value."""
        return cast(
            IRecurrenceLayer,
            self._network._add_loop_layer(
                self._index, "recurrence", initial_value, 0, 0
            ),
        )

    def add_trip_limit(self, tensor: ITensor, kind: e.TripLimit) -> ITripLimitLayer:
        """Limits the iterations. COUNT: their number; WHILE: the condition for another
        one."""
        return cast(
            ITripLimitLayer,
            self._network._add_loop_layer(
                self._index, "trip_limit", tensor, int(kind), 0
            ),
        )

    def add_iterator(
        self, tensor: ITensor, axis: int = 0, reverse: bool = False
    ) -> IIteratorLayer:
        """In iteration i slice i of a tensor along an axis, or the i-th from the end."""
        return cast(
            IIteratorLayer,
            self._network._add_loop_layer(
                self._index, "iterator", tensor, int(reverse), axis
            ),
        )

    def add_loop_output(
        self, tensor: ITensor, kind: e.LoopOutput, axis: int = 0
    ) -> ILoopOutputLayer:
        """Adds a result: the last value of a recurrence, or the values of all
        iterations along a new axis."""
        return cast(
            ILoopOutputLayer,
            self._network._add_loop_layer(
                self._index, "loop_output", tensor, int(kind), axis
            ),
        )


class ILoopBoundaryLayer(ILayer):
    """Base of a loop's layers."""

    __slots__ = ()

    @property
    def loop(self) -> ILoop:
        """The loop that it belongs to."""
        return ILoop(self._network(), cast(int, self._loop()))


class ITripLimitLayer(ILoopBoundaryLayer):
    """Limit of a loop's iterations."""

    __slots__ = ()
    _type = e.LayerType.TRIP_LIMIT

    @property
    def kind(self) -> e.TripLimit:
        """COUNT: a number of iterations; WHILE: a condition."""
        return e.TripLimit(self._attr("kind"))


class IRecurrenceLayer(ILoopBoundaryLayer):
    """Value of input 0 in the first iteration, then of input 1 in the previous one."""

    __slots__ = ()
    _type = e.LayerType.RECURRENCE

    def set_input(self, index: int, tensor: ITensor | None) -> None:
        """Sets the initial value (0), or the next value (1), a tensor of the body."""
        super().set_input(index, tensor)


class IIteratorLayer(ILoopBoundaryLayer):
    """The slice of a tensor that belongs to the iteration."""

    __slots__ = ()
    _type = e.LayerType.ITERATOR
    axis = _number("axis", "The axis along which slices are taken.")
    reverse = _flag("reverse", "Whether the last slice comes first.")


class ILoopOutputLayer(ILoopBoundaryLayer):
    """A result of a loop."""

    __slots__ = ()
    _type = e.LayerType.LOOP_OUTPUT
    axis = _number("axis", "The new axis along which iterations lie.")

    @property
    def kind(self) -> e.LoopOutput:
        """Values that the result consists of."""
        return e.LoopOutput(self._attr("kind"))

    def set_input(self, index: int, tensor: ITensor | None) -> None:
        """Sets the tensor in the body (0), or the extent of the new axis (1)."""
        super().set_input(index, tensor)


LAYER_CLASSES.update(
    iterator=IIteratorLayer,
    loop_output=ILoopOutputLayer,
    recurrence=IRecurrenceLayer,
    trip_limit=ITripLimitLayer,
)
