"""One use of a plugin: the engine's calls during builds and loads."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from .. import _rabbet
from .._enums import DataType, TensorFormat
from .._numbers import AOT, CAPTURE, RUNS
from .._rabbet import NUMBERS, Shape
from ._aot import Encoder
from ._autotune import AutoTuneCombination, Combination, expand_all
from ._definition import Checker, DefinitionError, Signature, where
from ._desc import ShapeInput, SizeTensorDesc, TensorDesc
from ._expr import ShapeExpr, ShapeExprs, SymIntExpr
from ._functions import Functions

# First items of the pairs that `bind` gives.
_ARGUMENTS = {
    name: NUMBERS[f"ARG_{name.upper()}"]
    for name in ("outputs", "stream", "tactic", "threads")
}
_INPUT, _VALUE = NUMBERS["ARG_INPUT"], NUMBERS["ARG_VALUE"]
# Kinds of parameters for any number of inputs: *name, and a list.
_MANY = ("star", "many")

DescribedInput = tuple[DataType, tuple[int, ...], tuple[int, ...] | None]
QueryTensor = tuple[DataType, TensorFormat, Any, Any, Any, Any]


class Instance:
    """A plugin with its attributes. Immutable, so that contexts share it."""

    is_class = False
    shape_inputs = 0  # the definition says
    layer_class = None

    def __init__(
        self,
        definition: Functions,
        attrs: dict[str, Any],
        layer: str | None,
        absent: int = 0,
    ):
        self.definition = definition
        self.absent = absent  # bits of the inputs that the layer lacks
        self.attrs = attrs
        self.layer = layer
        self.output_count = definition.registration.num_outputs
        self._answers: dict[Any, dict[Combination, list[int]]] = {}

    # ---- Outputs ----

    def describe(
        self, builder: _rabbet.DimBuilder, inputs: Sequence[DescribedInput]
    ) -> list[tuple[int, tuple[int, ...], int, bool]]:
        """(type, dims, aliased input, is size tensor) for each output."""
        reg = self.definition.registration
        self.definition.check_input_count(len(inputs), self.absent)
        names = reg.present_names(len(inputs), self.absent)
        descs = [
            _describe_input(builder, item, reg.inputs.get(name, False))
            for item, name in zip(inputs, names, strict=True)
        ]
        values = {**self.attrs, **reg.by_name(descs, self.absent)}
        args: list[Any] = []
        if reg.variadic is not None and reg.before_star is not None:
            # Parameters before *name can be passed by position only.
            args = [values.pop(name) for name in reg.before_star]
            args += values.pop(reg.variadic)
        result = self.definition.register_function(*args, **values)
        outputs = self._outputs(result)
        for i, output in enumerate(outputs):
            if isinstance(output, SizeTensorDesc):
                output._index = i
        aliases = self._aliases(outputs, descs)
        return [
            self._describe_output(builder, i, output, aliases[i])
            for i, output in enumerate(outputs)
        ]

    def _checker(self) -> Checker:
        definition = self.definition
        return Checker("register", definition.id, definition.register_function)

    def _outputs(self, result: Any) -> list[TensorDesc]:
        outputs = [result] if isinstance(result, TensorDesc) else result
        if not isinstance(outputs, (tuple, list)):
            self._checker().fail(f"it returned {result!r} instead of TensorDesc")
        if len(outputs) != self.output_count:
            self._checker().fail(
                f"it returned {len(outputs)} outputs, but its return annotation says "
                f"{self.output_count}"
            )
        for i, output in enumerate(outputs):
            if not isinstance(output, TensorDesc):
                self._checker().fail(
                    f"output {i} is {output!r} instead of a TensorDesc"
                )
        return list(outputs)

    def _aliases(
        self, outputs: list[TensorDesc], inputs: list[TensorDesc]
    ) -> list[int]:
        names = self.definition.registration.present_names(len(inputs), self.absent)
        aliases: list[int] = []
        for i, output in enumerate(outputs):
            target = output.get_aliased()
            index = next((k for k, x in enumerate(inputs) if x is target), -1)
            if target is not None and index < 0:
                self._checker().fail(
                    f"output {i} is aliased to something that is not an input; call "
                    "aliased() on one of the parameters"
                )
            if index >= 0 and index in aliases:
                self._checker().fail(
                    f"outputs {aliases.index(index)} and {i} are both aliased to input "
                    f"'{names[index]}'; an input's memory can hold one output"
                )
            aliases.append(index)
        return aliases

    def _describe_output(
        self, builder: _rabbet.DimBuilder, index: int, output: TensorDesc, alias: int
    ) -> tuple[int, tuple[int, ...], int, bool]:
        check = self._checker()
        if output.dtype is None:
            check.fail(f"output {index} has no dtype; set it, or use input.like()")
        if output.shape_expr is None:
            check.fail(f"output {index} has no shape_expr; set it, or use input.like()")
        dims = []
        for axis, item in enumerate(output.shape_expr):
            if not isinstance(item, SymIntExpr):
                check.fail(f"dimension {axis} of output {index} was never set")
            try:
                dims.append(item._to_dim(builder))
            except ValueError as error:
                check.fail(f"dimension {axis} of output {index}: {error}")
        is_size = isinstance(output, SizeTensorDesc)
        return int(output.dtype), tuple(dims), alias, is_size

    # ---- Types, formats, tactics ----

    def combinations(
        self, device: str, tensors: Sequence[QueryTensor], num_inputs: int
    ) -> list[list[tuple[int, int]]]:
        """Supported combinations, each a (type, format) for each tensor."""
        if not self.kinds(device):
            raise DefinitionError(self.definition.missing_impl(device))
        found = self._combinations(device, tensors, num_inputs)
        return [[(int(t), int(f)) for t, f in combination] for combination in found]

    def tactics(
        self, device: str, tensors: Sequence[QueryTensor], num_inputs: int
    ) -> list[int]:
        """Tactics for the tensors' combination."""
        combination = tuple((t[0], t[1]) for t in tensors)
        key = _key(device, tensors)
        found = self._answers.get(key)
        if found is None:
            found = self._combinations(device, tensors, num_inputs)
        return found.get(combination, [])

    def _combinations(
        self, device: str, tensors: Sequence[QueryTensor], num_inputs: int
    ) -> dict[Combination, list[int]]:
        signature = self.definition.choose("autotune", device)
        answers = (
            None
            if signature is None
            else self._autotune(signature, tensors, num_inputs)
        )
        if not answers:
            plain = tuple((tensor[0], TensorFormat.LINEAR) for tensor in tensors)
            return {plain: []}
        assert signature is not None
        try:
            found = expand_all(answers, len(tensors))
        except ValueError as error:
            raise DefinitionError(
                f"@rabbet.plugin.autotune('{self.definition.id}') on "
                f"{where(signature.function)}: {error}"
            ) from None
        self._answers[_key(device, tensors)] = found
        return found

    def _autotune(
        self, signature: Signature, tensors: Sequence[QueryTensor], num_inputs: int
    ) -> list[AutoTuneCombination]:
        descs = [_tuned_desc(tensor) for tensor in tensors]
        reg = self.definition.registration
        values = reg.by_name(descs[:num_inputs], self.absent)
        values["outputs"] = tuple(descs[num_inputs:])
        answer = self._call(signature, values)
        answers = [answer] if isinstance(answer, AutoTuneCombination) else answer
        if answers is None:
            return []
        if not isinstance(answers, (list, tuple)) or not all(
            isinstance(item, AutoTuneCombination) for item in answers
        ):
            Checker("autotune", self.definition.id, signature.function).fail(
                f"it returned {answer!r} instead of a list of AutoTuneCombination"
            )
        return list(answers)

    def _value(self, values: dict[str, Any], kind: str, name: str) -> Any:
        return self._attr(name) if kind == "attr" else values[name]

    def _call(self, signature: Signature, values: dict[str, Any]) -> Any:
        args: list[Any] = []
        for kind, name in signature.positional:
            value = self._value(values, kind, name)
            args += value if kind == "star" else [value]
        named = {
            name: self._value(values, kind, name) for kind, name in signature.named
        }
        return signature.function(*args, **named)

    def _attr(self, name: str) -> Any:
        try:
            return self.attrs[name]
        except KeyError:
            raise DefinitionError(
                f"plugin '{self.definition.id}': the plan holds no attribute "
                f"'{name}'; it was built when the plugin had none of that name: "
                "build the plan again"
            ) from None

    # ---- Kernels made ahead of time ----

    def kinds(self, device: str) -> int:
        """Ways to run: RUNS by impl, AOT by kernels compiled ahead of time."""
        choose = self.definition.choose
        runs = choose("impl", device) is not None
        ready = device.startswith("cuda") and choose("aot_impl", device) is not None
        return RUNS * runs + AOT * ready

    def launches(
        self,
        builder: _rabbet.DimBuilder,
        device: str,
        tensors: Sequence[QueryTensor],
        inputs: Sequence[tuple[int, ...]],
        outputs: Sequence[tuple[int, ...]],
        tactic: int,
    ) -> tuple[int, list[Any]]:
        """The kernels for these types, formats and tactic (see plugin_aot_kernels.c)."""
        signature = self.definition.choose("aot_impl", device)
        assert signature is not None
        descs = [_tuned_desc(tensor) for tensor in tensors]
        for desc, dims in zip(descs, [*inputs, *outputs], strict=True):
            exprs = (ShapeExpr._of(builder, dim) for dim in dims)
            desc._shape_expr = ShapeExprs.from_tuple(exprs)
        ins, outs = descs[: len(inputs)], descs[len(inputs) :]
        values = self.definition.registration.by_name(ins, self.absent)
        values.update(outputs=tuple(outs), tactic=tactic)
        check = Checker("aot_impl", self.definition.id, signature.function)
        answer = self._call(signature, values)
        return Encoder(check, builder, ins, outs).answer(answer)

    # ---- Stored data ----

    def serialize(
        self,
        device: str,
        tensors: Sequence[QueryTensor],
        num_inputs: int,
        tactic: int,
    ) -> dict[str, Any]:
        """All attributes: a loaded plan asks register and autotune again."""
        types = self.definition.registration.attributes
        return {
            name: types[name].encode(self.attrs[name])
            for name in types
            if name in self.attrs
        }

    def timing_key(self) -> dict[str, Any] | None:
        """Key of everything that determines the speed; None: unknown."""
        key = self.definition.timing_key()
        if key is None:
            return None
        types = self.definition.registration.attributes
        attrs = {f"attr.{n}": types[n].encode(v) for n, v in self.attrs.items()}
        return {"plugin": self.definition.id, "source": key, **attrs}

    # ---- Running ----

    def bind(
        self, device: str, tactic: int, count: int
    ) -> tuple[Any, tuple[Any, ...], dict[str, Any], int]:
        """The function of a device, what each argument is (of a layer of `count`
        inputs), whether graphs may hold it."""
        signature = self.definition.choose("impl", device)
        if signature is None:
            raise DefinitionError(self.definition.missing_impl(device))
        self.definition.check_input_count(count, self.absent)
        inputs = [(_INPUT, i) for i in range(count)]
        places = self.definition.registration.by_name(inputs, self.absent)

        def pair(kind: str, name: str) -> Any:
            if kind == "input":
                return places[name] or (_VALUE, None)
            if kind == "attr":
                return _VALUE, self._attr(name)
            return _ARGUMENTS[kind], None

        function = signature.function
        listed = [name for kind, name in signature.positional if kind == "many"]
        for_lists = listed or [name for kind, name in signature.named if kind == "many"]
        positional = [
            pair(kind, name) for kind, name in signature.positional if kind not in _MANY
        ]
        if for_lists:
            at = signature.positional.index(("many", listed[0])) if listed else None
            function = _with_list(function, for_lists[0], at, len(positional))
        variadic = self.definition.registration.variadic
        if variadic is not None:
            positional += places[variadic]
        named = {
            name: pair(kind, name) for kind, name in signature.named if kind not in _MANY
        }
        capture = CAPTURE[signature.capturable]
        return function, tuple(positional), named, capture


def _with_list(function: Any, name: str, at: int | None, fixed: int) -> Any:
    """Takes the inputs behind the first `fixed` arguments as one list: argument `at`,
    or the keyword argument `name`. The list is new in each call, as what keeps it keeps
    tensors that are not its own."""

    def call(*args: Any, **named: Any) -> Any:
        listed = list(args[fixed:])
        if at is None:
            return function(*args[:fixed], **{name: listed}, **named)
        return function(*args[:at], listed, *args[at:fixed], **named)

    return functools.wraps(function)(call)


def _describe_input(
    builder: _rabbet.DimBuilder, item: DescribedInput, is_shape: bool
) -> TensorDesc:
    dtype, dims, values = item
    exprs = ShapeExprs.from_tuple(ShapeExpr._of(builder, dim) for dim in dims)
    if not is_shape:
        return TensorDesc._input(exprs, dtype)
    desc = ShapeInput(exprs, dtype)
    desc._locked = True
    if values is not None:
        desc._values = tuple(ShapeExpr._of(builder, value) for value in values)
    return desc


def _tuned_desc(tensor: QueryTensor) -> TensorDesc:
    dtype, format_, dims, low, opt, high = tensor
    return TensorDesc._tuned(Shape._ranged(dims, low, opt, high), dtype, format_)


def _key(device: str, tensors: Sequence[QueryTensor]) -> Any:
    return device, tuple(tensor[2:] for tensor in tensors)
