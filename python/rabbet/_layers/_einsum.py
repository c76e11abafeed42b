"""Einsum, composed of matrix products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

from .. import _enums as e
from ._composite import Composite, Places, compose, out
from ._layer import ITensor
from ._layers import IShuffleLayer
from ._operator_layers import OperatorLayers


class IEinsumLayer(Composite):
    """Sums of products as an equation such as "ij,jk->ik" defines them."""

    __slots__ = ()
    _type = e.LayerType.EINSUM

    @property
    def equation(self) -> str:
        """Equation that names the axes by letters."""
        return cast(str, self._parts["equation"])

    @equation.setter
    def equation(self, equation: str) -> None:
        self._keep("equation", self.equation, equation)


def _labels(equation: str, count: int) -> tuple[list[str], str]:
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    inputs = left.split(",")
    names = "".join(inputs)
    if not arrow:
        right = "".join(sorted(n for n in set(names) if names.count(n) == 1))
    wrong = len(inputs) != count or any(len(set(i)) != len(i) for i in [*inputs, right])
    if wrong or not (names + right).isalpha() or not set(right) <= set(names):
        raise ValueError(
            f"equation '{equation}' for {count} tensors: expected a list of letters for "
            "each, none twice in one list, and a result of letters that occur"
        )
    return inputs, right


class _Terms:
    """A tensor with a letter for each axis."""

    def __init__(self, network: OperatorLayers, tensor: ITensor, axes: str) -> None:
        self.network, self.tensor, self.axes = network, tensor, axes
        dims = list(tensor.shape)
        if len(dims) != len(axes) or min(dims, default=0) < 0:
            raise ValueError(
                f"add_einsum: '{axes}' for a tensor of shape {tuple(dims)}; expected a letter "
                "for each axis, and extents that are known"
            )
        self.sizes = dict(zip(axes, dims, strict=True))

    def summed(self, kept: set[str]) -> _Terms:
        """Sums over axes that occur neither in other operands nor in the result."""
        mask = sum(1 << i for i, axis in enumerate(self.axes) if axis not in kept)
        if not mask:
            return self
        layer = self.network.add_reduce(self.tensor, e.ReduceOperation.SUM, mask, False)
        axes = "".join(axis for axis in self.axes if axis in kept)
        return _Terms(self.network, out(layer), axes)

    def shaped(self, *groups: str) -> ITensor:
        """Reshapes to one axis for each group of letters."""
        order = [self.axes.index(axis) for group in groups for axis in group]
        layer = self.network.add_shuffle(self.tensor)
        layer.first_transpose = order
        layer.reshape_dims = [math.prod(self.sizes[a] for a in g) for g in groups]
        layer.zero_is_placeholder = False
        return out(layer)


def _multiply(a: _Terms, b: _Terms, later: set[str]) -> _Terms:
    """One matrix product with the batch axes first."""
    network, none = a.network, e.MatrixOperation.NONE
    a = a.summed(set(b.axes) | later)
    b = b.summed(set(a.axes) | later)
    both = [axis for axis in a.axes if axis in b.axes]
    batch = "".join(axis for axis in both if axis in later)
    inner = "".join(axis for axis in both if axis not in later)
    rows = "".join(axis for axis in a.axes if axis not in both)
    columns = "".join(axis for axis in b.axes if axis not in both)
    left, right = a.shaped(batch, rows, inner), b.shaped(batch, inner, columns)
    product = network.add_matrix_multiply(left, none, right, none)
    sizes = a.sizes | b.sizes
    axes = batch + rows + columns
    layer = network.add_shuffle(out(product))
    layer.reshape_dims = [sizes[axis] for axis in axes]
    layer.zero_is_placeholder = False
    return _Terms(network, out(layer), axes)


def einsum(
    network: OperatorLayers, tensors: Sequence[ITensor], equation: str
) -> IEinsumLayer:
    """A chain of matrix products."""
    inputs, result = _labels(equation, len(tensors))
    # Copies of the inputs, so that set_input can replace them.
    copies = [network.add_identity(tensor) for tensor in tensors]
    terms = [_Terms(network, out(c), i) for c, i in zip(copies, inputs, strict=True)]
    for axis in set("".join(inputs)):
        sizes = {term.sizes[axis] for term in terms if axis in term.sizes}
        if len(sizes) > 1:
            raise ValueError(f"equation '{equation}': '{axis}' is of {sorted(sizes)}")
    total = terms[0]
    for i, term in enumerate(terms[1:], 1):
        total = _multiply(total, term, set("".join([result, *inputs[i + 1 :]])))
    total = total.summed(set(result))
    last: IShuffleLayer = network.add_shuffle(total.tensor)
    last.first_transpose = [total.axes.index(axis) for axis in result]
    places: list[Places] = [[(copy, 0)] for copy in copies]
    return compose(network, IEinsumLayer, last, places, equation=equation)
