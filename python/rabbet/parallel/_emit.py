"""A rank's network, made from the whole one and a plan.

An emitter makes several ranks side by side: one, for a network of its own whose
collectives are layers; or all, in one network where collectives are sums and
concatenations. That is how the ranks' arithmetic is checked without several GPUs.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from .._enums import CollectiveOperation, DataType, ReduceOperation
from .._numbers import Attr
from ._axes import (
    Atom,
    Axis,
    cut,
    has,
    local_indices,
    local_size,
    size_of,
)
from ._graph import Graph, Op, Tensor
from ._make import INTS, Maker, elementwise
from ._plan import ONCE, SUMS, WHOLE, Form, Plan, Step
from ._weights import part, zeros


class Exchange(Protocol):
    """Collectives over the ranks that an emitter makes."""

    def all_reduce(self, network: Any, tensors: list[Any], name: str) -> list[Any]:
        """The sum of all ranks' tensors, on each."""

    def all_gather(self, network: Any, tensors: list[Any], name: str) -> list[Any]:
        """All ranks' tensors, behind each other along axis 0."""


class Collectives:
    """Layers that a communicator of NCCL serves."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks

    def all_reduce(self, network: Any, tensors: list[Any], name: str) -> list[Any]:
        """One layer of one rank."""
        return [self._layer(network, tensors[0], "ALL_REDUCE", name)]

    def all_gather(self, network: Any, tensors: list[Any], name: str) -> list[Any]:
        """One layer of one rank."""
        return [self._layer(network, tensors[0], "ALL_GATHER", name)]

    def _layer(self, network: Any, tensor: Any, kind: str, name: str) -> Any:
        reduces = kind == "ALL_REDUCE"
        layer = network.add_dist_collective(
            tensor,
            CollectiveOperation[kind],
            ReduceOperation.SUM if reduces else ReduceOperation.NONE,
        )
        layer.num_ranks = self.ranks
        layer.name = name
        return layer.get_output(0)


class Emulated:
    """All ranks in one network: what collectives give, computed from all tensors."""

    def all_reduce(self, network: Any, tensors: list[Any], name: str) -> list[Any]:
        """Their sum."""
        total = tensors[0]
        for i, each in enumerate(tensors[1:]):
            total = elementwise(network, "SUM", total, each, f"{name}.{i}")
        return [total] * len(tensors)

    def all_gather(self, network: Any, tensors: list[Any], name: str) -> list[Any]:
        """Their concatenation."""
        layer = network._add_layer("concatenation", name, tensors, {"axis": 0})
        return [layer._get_output(0)] * len(tensors)


class Emitter(Maker):
    """Makes networks of ranks."""

    def __init__(
        self, graph: Graph, plan: Plan, ranks: int, made: list[int], exchange: Exchange
    ) -> None:
        super().__init__(graph.network)
        self.graph, self.plan = graph, plan
        self.ranks, self.made, self.exchange = ranks, made, exchange
        # Of each tensor, by form: a tensor for each rank that is made.
        self.forms: dict[int, dict[Form, list[Any]]] = {}
        self.copies: dict[Any, Any] = {}
        self.several = len(made) > 1

    def prefix(self, k: int) -> str:
        """Of names of rank k of those that are made."""
        return f"rank{self.made[k]}/" if self.several else ""

    # ---- Forms of tensors ----

    def get(self, tensor: Tensor, form: Form) -> list[Any]:
        """The tensor of each rank in a form."""
        forms = self.forms.setdefault(tensor.index, {})
        if form not in forms:
            forms[form] = self._make(tensor, form, forms)
        return forms[form]

    def _make(
        self, tensor: Tensor, form: Form, forms: dict[Form, list[Any]]
    ) -> list[Any]:
        if tensor.is_constant:
            return self._constant(tensor, form)
        if form == ONCE:
            whole = self.get(tensor, WHOLE)
            pairs = zip(self.made, whole, strict=True)
            return [each if rank == 0 else None for rank, each in pairs]
        if form == WHOLE:
            if SUMS in forms:
                name = self.name(f"{tensor.name}/all_reduce")
                return self.exchange.all_reduce(self.network, forms[SUMS], name)
            atom = next(each for each in forms if isinstance(each, Atom))
            return self._gathered(tensor, atom, forms[atom])
        assert isinstance(form, Atom), "partial sums are made by operators alone"
        whole = self.get(tensor, WHOLE)
        return [self._part(tensor, form, whole[k], k) for k in range(len(self.made))]

    def _constant(self, tensor: Tensor, form: Form) -> list[Any]:
        if form == WHOLE:
            return [self.whole_constant(tensor)] * len(self.made)
        made = []
        for k, rank in enumerate(self.made):
            if form == SUMS and rank == 0:
                made.append(self.get(tensor, WHOLE)[k])
                continue
            if form == SUMS:
                dtype, data, shape = zeros(tensor)
            else:
                assert isinstance(form, Atom)
                dtype, data, shape = part(tensor, form, self.ranks, rank)
            name = None if form == SUMS else self.prefix(k) + tensor.name
            made.append(self.constant(data, dtype, shape, name))
        return made

    def _gathered(self, tensor: Tensor, atom: Atom, parts: list[Any]) -> list[Any]:
        """Ranks' parts behind each other, then in the order of the whole."""
        at = next(i for i, axis in enumerate(tensor.axes) if has(axis, atom))
        rank = len(tensor.axes)
        order = [at, *(i for i in range(rank) if i != at)]
        base = f"{tensor.name}/all_gather"
        first = [
            self.shuffle(each, order, f"{base}/first") for each in _distinct(parts)
        ]
        parts = first if len(first) == len(parts) else first * len(parts)
        whole = self.exchange.all_gather(self.network, parts, self.name(base))
        back = [order.index(i) for i in range(rank)]
        index = self._order(tensor.axes[at], atom)
        made: dict[Any, Any] = {}
        for each in whole:
            if each in made:
                continue
            result = self.shuffle(each, back, f"{base}/last")
            if index is not None:
                indices = self.integers(index, DataType.INT64)
                attrs = {"axis": at, "mode": 0, "num_elementwise_dims": 0}
                layer = self.network._add_layer(
                    "gather", self.name(f"{base}/order"), [result, indices], attrs
                )
                result = layer._get_output(0)
            made[each] = result
        return [made[each] for each in whole]

    def _order(self, axis: Axis, atom: Atom) -> list[int] | None:
        """Where each element of the whole is in the ranks' parts; None: in order."""
        if size_of(axis)[1]:
            return None  # the atom is its first part, as checked by the plan
        places = np.concatenate(
            [local_indices(axis, atom, self.ranks, r) for r in range(self.ranks)]
        )
        found = np.empty(size_of(axis)[0], np.int64)
        found[places[::-1]] = np.arange(len(places))[::-1]
        if len(places) == len(found) and (found == np.arange(len(found))).all():
            return None
        return [int(i) for i in found]

    def _part(self, tensor: Tensor, atom: Atom, whole: Any, k: int) -> Any:
        """A rank's part of what it has whole."""
        at = next(i for i, axis in enumerate(tensor.axes) if has(axis, atom))
        index = local_indices(tensor.axes[at], atom, self.ranks, self.made[k])
        indices = self.integers([int(i) for i in index], DataType.INT64)
        attrs = {"axis": at, "mode": 0, "num_elementwise_dims": 0}
        layer = self.network._add_layer(
            "gather", self.name(f"{self.prefix(k)}{tensor.name}/part"),
            [whole, indices], attrs,
        )  # fmt: skip
        return layer._get_output(0)

    # ---- Operators ----

    def emit(self) -> Any:
        """The network."""
        for tensor in self.graph.inputs:
            self._input(tensor)
        for op in self.graph.ops:
            if op.name != "constant":
                self._op(op)
        for op in self.graph.ops:
            following = op.layer._next()
            if following is not None:
                self._next(op, following)
        for tensor in self.graph.outputs:
            self._output(tensor)
        return self.network

    def _input(self, tensor: Tensor) -> None:
        form = self.plan.forms.get(tensor.index, WHOLE)
        if form == WHOLE or self.several:
            made = self.network._copy_source(tensor.object)
            self.forms[tensor.index] = {WHOLE: [made] * len(self.made)}
            return
        assert isinstance(form, Atom)
        made = self.network._copy_source(tensor.object)
        sizes = [local_size(axis, form, self.ranks) for axis in tensor.axes]
        made._dims = tuple(-1 if symbols else n for n, symbols in sizes)
        self.forms[tensor.index] = {form: [made]}

    def _op(self, op: Op) -> None:
        step = self.plan.steps.get(op.index) or Step(
            None, [WHOLE] * len(op.inputs), [WHOLE] * len(op.outputs)
        )
        inputs: list[list[Any]] = []
        for tensor, want in zip(op.inputs, step.wants, strict=True):
            inputs.append([None] * len(self.made) if tensor is None
                          else self.get(tensor, want or WHOLE))  # fmt: skip
        made: dict[Any, Any] = {}
        layers = []
        for k in range(len(self.made)):
            mine = tuple(each[k] for each in inputs)
            # Ranks that compute the same of the same are computed once.
            key = (mine, k if step.atom is not None else None)
            if key not in made:
                made[key] = self._layer(op, step, list(mine), k, not made)
            layers.append(made[key])
        for i, tensor in enumerate(op.outputs):
            found = [outputs[i] for outputs in layers]
            self.forms.setdefault(tensor.index, {})[step.makes[i]] = found

    def _layer(
        self, op: Op, step: Step, inputs: list[Any], k: int, is_first: bool
    ) -> list[Any]:
        if ONCE in step.wants and None in inputs:
            return [next(each for each in inputs if each is not None)]
        prefix = "" if step.atom is None and is_first else self.prefix(k)
        if step.atom is not None:
            inputs = self._patched_inputs(op, step.atom, inputs, k)
        layer = self.network._copy_layer(op.layer, prefix, inputs)
        outputs = [layer._get_output(i) for i in range(layer.num_outputs)]
        if step.atom is not None:
            patch = _PATCHES.get(op.name)
            if patch is not None:
                outputs = patch(self, op, step.atom, layer, outputs, k)
        self.copies.setdefault(op.index, layer)
        return outputs

    def _patched_inputs(
        self, op: Op, atom: Atom, inputs: list[Any], k: int
    ) -> list[Any]:
        rank = self.made[k]
        is_summed = any(has(axis, atom) for axis in op.summed)
        for index in op.notes.get("once", ()) if is_summed else ():
            tensor = op.inputs[index]
            if tensor is not None and rank != 0:
                inputs[index] = self._nothing(tensor, inputs[index])
        if "indices" in op.notes and has(op.notes["indices"][1], atom):
            index, axis = op.notes["indices"]
            inputs[index] = self._shifted(op, inputs[index], axis, rank)
        if op.name == "shuffle" and inputs[1:2] != [] and inputs[1] is not None:
            inputs[1] = self._shape_of(op, atom, inputs[1], op.notes["reshaped"])
        if op.name == "slice":
            inputs = self._slice_inputs(op, atom, inputs)
        return inputs

    def _nothing(self, tensor: Tensor, given: Any) -> Any:
        """Zeros like an operand that one rank alone adds."""
        if tensor.is_constant:
            return self.get(tensor, SUMS)[-1]
        return self.elementwise("SUB", given, given, f"{tensor.name}/nothing")

    def _shifted(self, op: Op, indices: Any, axis: Axis, rank: int) -> Any:
        """Indices into a rank's range; what is outside points behind its end, where
        the operator finds nothing."""
        whole = size_of(axis)[0]
        own = whole // self.ranks
        tensor = op.inputs[op.notes["indices"][0]]
        assert tensor is not None
        dtype, base = tensor.dtype, f"{op.layer.name}/range"
        ones = [1] * max(len(tensor.axes), 0)

        def number(value: int) -> Any:
            return self.constant(np.array(value, INTS[dtype]), dtype, ones, None)

        def select(condition: Any, yes: Any, no: Any) -> Any:
            layer = self.network._add_layer(
                "select", self.name(base), [condition, yes, no], {}
            )
            return layer._get_output(0)

        if op.name == "gather":  # negative indices count from the end
            below = self.elementwise("LESS", indices, number(0), base)
            wrapped = self.elementwise("SUM", indices, number(whole), base)
            indices = select(below, wrapped, indices)
        own_first = self.elementwise("SUB", indices, number(rank * own), base)
        low = self.elementwise("LESS", own_first, number(0), base)
        return select(low, number(own), own_first)

    # ---- Shapes ----

    def _shape_of(self, op: Op, atom: Atom, operand: Any, axes: list[Axis]) -> Any:
        """A shape operand for a rank's part."""
        tensor = op.inputs[1]
        assert tensor is not None
        factors, terms = [1] * len(axes), [0] * len(axes)
        divisors = [1] * len(axes)
        for i, axis in enumerate(axes):
            if not has(axis, atom):
                continue
            if size_of(axis)[1]:
                divisors[i] = self.ranks
            else:
                factors[i], terms[i] = 0, local_size(axis, atom, self.ranks)[0]
        return self._adjusted(operand, tensor, factors, terms, divisors, op)

    def _adjusted(
        self,
        operand: Any,
        tensor: Tensor,
        factors: list[int],
        terms: list[int],
        divisors: list[int],
        op: Op,
    ) -> Any:
        base, dtype = f"{op.layer.name}/shape", tensor.dtype
        for kind, numbers, neutral in (
            ("FLOOR_DIV", divisors, 1),
            ("PROD", factors, 1),
            ("SUM", terms, 0),
        ):
            if any(number != neutral for number in numbers):
                vector = self.integers(numbers, dtype)
                operand = self.elementwise(kind, operand, vector, base)
        return operand

    def _slice_inputs(self, op: Op, atom: Atom, inputs: list[Any]) -> list[Any]:
        """Operands `start` and `shape` of a slice."""
        for index, numbers in ((1, "start"), (2, "shape")):
            if len(inputs) <= index or inputs[index] is None:
                continue
            tensor = op.inputs[index]
            assert tensor is not None
            count = len(op.notes["places"])
            factors, terms, divisors = [1] * count, [0] * count, [1] * count
            for place, at in self._split_places(op, atom):
                size = self._sliced_size(op, atom, at)
                if numbers == "start":
                    factors[place], terms[place] = 0, self._sliced_start(op, atom, at)
                elif size[1]:
                    divisors[place] = self.ranks
                else:
                    factors[place], terms[place] = 0, size[0]
            inputs[index] = self._adjusted(
                inputs[index], tensor, factors, terms, divisors, op
            )
        return inputs

    def _split_places(self, op: Op, atom: Atom) -> list[tuple[int, int]]:
        """(place in operands, axis) of axes that have the atom."""
        rank = len(op.outputs[0].axes)
        source = op.inputs[0]
        assert source is not None
        return [
            (place, axis % rank)
            for place, axis in enumerate(op.notes["places"])
            if has(source.axes[axis % rank], atom)
        ]

    def _sliced_size(self, op: Op, atom: Atom, at: int) -> Any:
        return local_size(op.outputs[0].axes[at], atom, self.ranks)

    def _sliced_start(self, op: Op, atom: Atom, at: int) -> int:
        axis, begin = op.notes["cuts"][at]
        if begin == 0:
            return 0
        before = cut(axis, 0, begin)
        assert before is not None, "a cut at this place was made before"
        return local_size(before, atom, self.ranks)[0]

    # ---- Loops, outputs ----

    def _next(self, op: Op, following: Any) -> None:
        """The next value of a recurrence."""
        tensor = self.graph._by_object[following]
        self.copies[op.index]._set_input(1, self.get(tensor, WHOLE)[0])

    def _output(self, tensor: Tensor) -> None:
        form = self.plan.forms.get(tensor.index, WHOLE)
        kept = isinstance(form, Atom) and id(tensor) in self.plan.kept
        if kept and not self.several:
            made = self.get(tensor, form)[0]
        else:
            made = self.get(tensor, WHOLE)[0]
        self.mark_output(tensor, made)


def _distinct(tensors: list[Any]) -> list[Any]:
    return tensors if len(set(tensors)) == len(tensors) else tensors[:1]


# ---- What changes in a layer that computes a part ----


def _patch_shuffle(
    emitter: Emitter, op: Op, atom: Atom, layer: Any, outputs: list[Any], k: int
) -> list[Any]:
    dims = layer._attr("reshape_dims")
    if dims and (len(op.inputs) < 2 or op.inputs[1] is None):
        for i, axis in enumerate(op.notes["reshaped"]):
            if dims[i] > 0 and has(axis, atom):
                dims[i] = local_size(axis, atom, emitter.ranks)[0]
        layer._set_attrs({"reshape_dims": (Attr.INTS, list(dims))})
    return outputs


def _patch_slice(
    emitter: Emitter, op: Op, atom: Atom, layer: Any, outputs: list[Any], k: int
) -> list[Any]:
    attrs = {}
    for index, name in ((1, "start"), (2, "shape")):
        numbers = list(layer._attr(name))
        if not numbers or (len(op.inputs) > index and op.inputs[index] is not None):
            continue
        for place, at in emitter._split_places(op, atom):
            numbers[place] = (
                emitter._sliced_start(op, atom, at)
                if name == "start"
                else emitter._sliced_size(op, atom, at)[0]
            )
        attrs[name] = (Attr.INTS, numbers)
    layer._set_attrs(attrs)
    return outputs


def _patch_shape(
    emitter: Emitter, op: Op, atom: Atom, layer: Any, outputs: list[Any], k: int
) -> list[Any]:
    """Values are those of the whole tensor, whatever its part is."""
    source = op.inputs[0]
    assert source is not None
    factors, terms = [1] * len(source.axes), [0] * len(source.axes)
    for i, axis in enumerate(source.axes):
        if not has(axis, atom):
            continue
        if size_of(axis)[1]:
            factors[i] = emitter.ranks
        else:
            factors[i], terms[i] = 0, size_of(axis)[0]
    whole = emitter._adjusted(
        outputs[0], op.outputs[0], factors, terms, [1] * len(factors), op
    )
    return [whole]


_PATCHES = {
    "shape": _patch_shape,
    "shuffle": _patch_shuffle,
    "slice": _patch_slice,
}
