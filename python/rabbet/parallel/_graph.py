"""A network as operators and tensors whose axes are analysed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from random import Random
from typing import Any

from .._enums import DataType
from ._axes import Atom, Axis, Size, atoms_in, axis_of, pin, times, times_in


@dataclasses.dataclass(eq=False, slots=True)
class Tensor:
    """A tensor of the network."""

    index: int
    object: Any  # ITensor
    name: str
    dtype: DataType
    extents: list[Size]
    axes: list[Axis]
    is_constant: bool = False
    is_fixed: bool = False  # computed from constants alone
    is_input: bool = False
    is_output: bool = False
    # Elements, where the builder knows them as expressions (shapes).
    values: list[Size] | None = None
    readers: list[Op] = dataclasses.field(default_factory=list)
    producer: Op | None = None
    atoms: frozenset[Atom] = frozenset()

    def rows(self, rows: int) -> int:
        """How many rows it has, with `rows` in place of what is open."""
        count = 1
        for factor, _ in self.extents[:-1]:
            count *= factor
        return count * (rows if any(symbols for _, symbols in self.extents) else 1)

    def bytes(self, rows: int) -> int:
        """Size, with `rows` in place of what is open: a token's extents are."""
        count = 1
        is_open = False
        for factor, symbols in self.extents:
            count *= factor
            is_open |= bool(symbols)
        return int(count * (rows if is_open else 1) * self.dtype.itemsize)


@dataclasses.dataclass(eq=False, slots=True)
class Op:
    """A layer: how its axes hang together."""

    index: int
    layer: Any  # ILayer
    name: str  # of the operator
    inputs: list[Tensor | None]
    outputs: list[Tensor]
    # Axes of inputs that must be there as a whole.
    whole: list[tuple[int, Axis]] = dataclasses.field(default_factory=list)
    # Axes that are summed over: parts of them give partial sums.
    summed: list[Axis] = dataclasses.field(default_factory=list)
    # Partial sums pass: "all" inputs may be such (and of a "difference", though its first
    # is none that rank 0 alone has), "one" of them is, or "first" alone.
    linear: str | None = None
    # The rule leaves these for the emitter.
    notes: dict[str, Any] = dataclasses.field(default_factory=dict)
    atoms: frozenset[Atom] = frozenset()

    def is_whole(self, index: int, atom: Atom) -> bool:
        """Whether input `index` must not be split along the atom."""
        return any(
            at == index and any(each is atom for each in atoms_in(axis))
            for at, axis in self.whole
        )


def _equal_expressions(network: Any) -> list[Size]:
    """For each expression of the network the first that is equal to it, or its number
    if it is constant. Expressions are equal that are so for many random extents: those
    of broadcasts are not in a form that tells."""
    random = Random(1)
    samples = []
    for highest in (1, 2, 3, 7, 50, 1000, 100000, 100000):
        numbers = [random.randint(1, highest) for _ in range(64)]
        samples.append(network._evaluate(numbers))
    known: dict[Any, Size] = {}
    found: list[Size] = []
    for index, values in enumerate(zip(*samples, strict=True)):
        if None in values:
            found.append((1, (index,)))
            continue
        is_constant = len(set(values)) == 1
        fresh: Size = (values[0], ()) if is_constant else (1, (index,))
        found.append(known.setdefault(values, fresh))
    return found


class Graph:
    """The tensors and operators of a network, in the order of execution."""

    def __init__(self, network: Any) -> None:
        network.validate()
        self.network = network
        self.tensors: list[Tensor] = []
        self.ops: list[Op] = []
        self._by_object: dict[Any, Tensor] = {}
        self._equal = _equal_expressions(network)
        for i in range(network.num_inputs):
            self._enter(network.get_input(i), is_input=True)
        for index in range(network.num_layers):
            self._enter_layer(index, network._layer(index))
        for i in range(network.num_outputs):
            self._by_object[network.get_output(i)].is_output = True

    def _enter(self, tensor: Any, **facts: Any) -> Tensor:
        extents = [self._size(extent) for extent in tensor._extents()]
        made = Tensor(
            len(self.tensors), tensor, tensor.name, tensor.dtype, extents, [], **facts
        )
        made.axes = [axis_of(size) for size in extents]
        if len(extents) < 2:
            values = tensor._values()
            made.values = None if values is None else [self._size(v) for v in values]
        self.tensors.append(made)
        self._by_object[tensor] = made
        return made

    def _size(self, product: Any) -> Size:
        """An extent in the first of expressions that are equal."""
        factor, symbols = product
        size: Size = (factor, ())
        for symbol in symbols:
            size = times(size, self._equal[symbol])
        return size

    def _source(self, tensor: Any) -> Tensor | None:
        if tensor is None:
            return None
        known = self._by_object.get(tensor)
        return known or self._enter(tensor, is_constant=True)

    def _enter_layer(self, index: int, layer: Any) -> None:
        # A recurrence's next value comes from a later layer.
        count = 1 if layer._op == "recurrence" else layer.num_inputs
        inputs = [self._source(layer._get_input(i)) for i in range(count)]
        outputs = [self._enter(layer._get_output(i)) for i in range(layer.num_outputs)]
        op = Op(index, layer, layer._op, inputs, outputs)
        if op.name == "constant":
            outputs[0].is_constant = True
        for tensor in outputs:
            tensor.producer = op
        for tensor in {id(t): t for t in inputs if t is not None}.values():
            tensor.readers.append(op)
        self.ops.append(op)

    @property
    def inputs(self) -> Iterable[Tensor]:
        """Inputs of the network."""
        return (tensor for tensor in self.tensors if tensor.is_input)

    @property
    def outputs(self) -> list[Tensor]:
        """Outputs of the network, in order."""
        count = self.network.num_outputs
        return [self._by_object[self.network.get_output(i)] for i in range(count)]

    def finish(self) -> None:
        """After all rules: notes the atoms of tensors and operators."""
        for tensor in self.tensors:
            atoms = [atom for axis in tensor.axes for atom in atoms_in(axis)]
            tensor.atoms = frozenset(atoms)
            if len(tensor.atoms) == len(atoms):
                continue
            for atom in tensor.atoms:
                if sum(times_in(axis, atom) for axis in tensor.axes) > 1:
                    pin([atom], f"it is on two axes of tensor '{tensor.name}'")
        for tensor in self.tensors:
            tensor.is_fixed = tensor.is_constant
        for op in self.ops:
            fixed = all(t is None or t.is_fixed for t in op.inputs)
            for tensor in op.outputs:
                tensor.is_fixed = fixed and op.name != "fill"
            tensors = [t for t in (*op.inputs, *op.outputs) if t is not None]
            op.atoms = frozenset().union(*(tensor.atoms for tensor in tensors))
