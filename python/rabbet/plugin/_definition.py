"""Checks of the signatures of the functions that define a plugin."""

from __future__ import annotations

import collections.abc
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, NoReturn

from .._errors import Error
from .._rabbet import Tensor
from ._attributes import AttributeType, attribute_type, plain_type, why_not
from ._desc import ShapeInput, TensorDesc

Function = Callable[..., Any]

# Absent inputs are the bits of a non-negative int64.
_MAX_OPTIONAL = 63

# Parameters of impl that are neither inputs nor attributes.
RESERVED = ("outputs", "stream", "tactic", "threads")


class DefinitionError(Error, ValueError):
    """A plugin's definition, or its use, is wrong."""


def where(function: Function) -> str:
    """'name (file:line)' of a function."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    name = getattr(function, "__qualname__", repr(function))
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code else name


def near(name: str, known: Iterable[str]) -> str:
    """'; did you mean ...?', else the end of the sentence."""
    import difflib

    found = difflib.get_close_matches(name, list(known), 2)
    return f"; did you mean {' or '.join(repr(f) for f in found)}?" if found else "."


def _shown(annotation: Any) -> str:
    return inspect.formatannotation(annotation)


class Checker:
    """Raises errors that name the decorator, the plugin and the function."""

    def __init__(self, decorator: str, plugin_id: str, function: Function) -> None:
        self.decorator, self.plugin_id, self.function = decorator, plugin_id, function

    def fail(self, message: str) -> NoReturn:
        """Raises DefinitionError."""
        raise DefinitionError(
            f"@rabbet.plugin.{self.decorator}('{self.plugin_id}') on "
            f"{where(self.function)}: {message}"
        )

    def signature(self, variadic: str | None = None) -> inspect.Signature:
        """The function's signature. Raises if it has parameters that cannot be passed by
        name; only the input `variadic` may be *name ("*": any input may)."""
        if not callable(self.function):
            self.fail(f"it is to decorate a function, not {self.function!r}")
        signature = inspect.signature(self.function)
        for parameter in signature.parameters.values():
            is_star = parameter.kind is parameter.VAR_POSITIONAL
            if is_star and variadic in (parameter.name, "*"):
                continue
            if is_star or parameter.kind is parameter.VAR_KEYWORD:
                stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
                self.fail(
                    f"it has the parameter {stars}{parameter.name}; name each "
                    "parameter, "
                    "since inputs and attributes are recognised by their names"
                )
            if parameter.kind is parameter.POSITIONAL_ONLY:
                self.fail(
                    f"its parameter '{parameter.name}' is positional-only (before "
                    "'/'); "
                    "remove the '/', since parameters are recognised by their names"
                )
        return signature

    def hints(self, local_names: dict[str, Any]) -> dict[str, Any]:
        """The function's annotations; those written as strings are evaluated."""
        try:
            return typing.get_type_hints(
                inspect.unwrap(self.function), localns=local_names
            )
        except Exception as error:
            self.fail(
                f"an annotation cannot be understood: {error}; names in annotations "
                "must exist where the function is defined"
            )


class Registration(NamedTuple):
    """Inputs, attributes and outputs, from the register function's signature."""

    inputs: dict[str, bool]  # name -> whether it is a shape input
    attributes: dict[str, AttributeType]
    defaults: dict[str, Any]
    num_outputs: int
    optional: set[str]  # inputs that a layer may lack
    variadic: str | None = None  # the last input, if it stands for any number
    before_star: tuple[str, ...] | None = None  # parameters before it, if it is *name

    def by_name(self, tensors: Sequence[Any], absent: int) -> dict[str, Any]:
        """A layer's tensors by input name: None for an input whose bit in `absent` is
        set, a list for the variadic input."""
        rest = iter(tensors)
        found: dict[str, Any] = {}
        for i, name in enumerate(self.inputs):
            if name == self.variadic:
                found[name] = list(rest)
            else:
                found[name] = None if absent >> i & 1 else next(rest)
        return found

    def present_names(self, count: int, absent: int) -> list[str]:
        """Names of the `count` inputs that a layer has, in order."""
        names = [name for i, name in enumerate(self.inputs) if not absent >> i & 1]
        if self.variadic is not None:
            names.pop()
            names += [f"{self.variadic}[{i}]" for i in range(count - len(names))]
        return names

    def input_count(self, absent: int = 0) -> tuple[int, bool]:
        """The number of inputs of a layer, and whether it may have more."""
        count = len(self.inputs) - absent.bit_count()
        return (count, False) if self.variadic is None else (count - 1, True)

    def listed_inputs(self) -> str:
        """For messages."""
        marks = [
            f"{name}..." if name == self.variadic
            else f"{name} (optional)" if name in self.optional
            else name
            for name in self.inputs
        ]  # fmt: skip
        return ", ".join(marks) or "none"


class TensorKind(NamedTuple):
    """The kind of an input, from its annotation."""

    tensor: type
    optional: bool = False
    many: bool = False


def tensor_kind(annotation: Any, base: type) -> TensorKind | None:
    """The kind of input that an annotation declares: `base`, `base | None`,
    `list[base]` or `tuple[base, ...]`; None if it declares no input."""
    if isinstance(annotation, type) and issubclass(annotation, base):
        return TensorKind(annotation)
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType) and len(args) == 2:
        rest = [arg for arg in args if arg is not type(None)]
        inner = tensor_kind(rest[0], base) if len(rest) == 1 else None
        return inner and inner._replace(optional=True)
    if origin in (list, tuple, collections.abc.Sequence) and args:
        inner = tensor_kind(args[0], base)
        if inner is not None and args[1:] in ((), (...,)):
            return inner._replace(many=True)
    return None


def _is_desc(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, TensorDesc)


def _count_outputs(check: Checker, annotation: Any) -> int:
    how = (
        "annotate what it returns: -> TensorDesc for one output, -> "
        "tuple[TensorDesc, TensorDesc] for two, ..."
    )
    if annotation is None:
        check.fail(f"it has no return annotation; {how}")
    if _is_desc(annotation):
        return 1
    args = typing.get_args(annotation)
    if typing.get_origin(annotation) is not tuple:
        check.fail(f"its return annotation is {_shown(annotation)}; {how}")
    if ... in args:
        check.fail(
            "its return annotation leaves the number of outputs open (...); it must be "
            f"fixed: {how}"
        )
    if not args or not all(_is_desc(arg) for arg in args):
        check.fail(f"its return annotation is {_shown(annotation)}; {how}")
    return len(args)


def _register_attribute(
    check: Checker, parameter: inspect.Parameter, annotation: Any
) -> AttributeType:
    if parameter.name in RESERVED:
        check.fail(
            f"an attribute cannot be called '{parameter.name}': impl has a parameter "
            "of "
            "that name for something else; call it otherwise"
        )
    if isinstance(annotation, type) and issubclass(annotation, Tensor):
        check.fail(
            f"its parameter '{parameter.name}' is annotated Tensor; register describes "
            "inputs by TensorDesc (Tensor is for impl)"
        )
    kind = attribute_type(annotation)
    if kind is None:
        check.fail(
            f"its parameter '{parameter.name}' is annotated {_shown(annotation)}, which is "
            f"neither TensorDesc nor an attribute's type: {why_not(annotation)}"
        )
    if parameter.default is not parameter.empty:
        try:
            kind.encode(parameter.default)
        except (TypeError, ValueError) as error:
            check.fail(
                f"the default of '{parameter.name}' is {parameter.default!r}, which "
                "is no "
                f"{kind}: {error}"
            )
    return kind


def check_register(
    plugin_id: str, function: Function, local_names: dict[str, Any]
) -> Registration:
    """Reads the signature of a register function."""
    check = Checker("register", plugin_id, function)
    signature = check.signature("*")
    hints = check.hints(local_names)
    result = Registration({}, {}, {}, _count_outputs(check, hints.get("return")), set())
    for parameter in signature.parameters.values():
        if parameter.name not in hints:
            check.fail(
                f"its parameter '{parameter.name}' has no annotation; annotate inputs "
                "TensorDesc (ShapeInput if their values are dimensions) and attributes "
                "with their types"
            )
        annotation = hints[parameter.name]
        found = tensor_kind(annotation, TensorDesc)
        is_star = parameter.kind is parameter.VAR_POSITIONAL
        if is_star and not _is_desc(annotation):
            check.fail(
                f"its parameter *{parameter.name} is annotated {_shown(annotation)}; "
                "annotate it TensorDesc: inputs, as many as a layer has"
            )
        if found is None:
            kind = _register_attribute(check, parameter, annotation)
            result.attributes[parameter.name] = kind
            if parameter.default is not parameter.empty:
                result.defaults[parameter.name] = parameter.default
            continue
        if is_star:
            found = found._replace(many=True)
        _register_input(check, parameter, found, result)
        if found.many:
            names = tuple(signature.parameters)
            before = names[: names.index(parameter.name)] if is_star else None
            result = result._replace(variadic=parameter.name, before_star=before)
    return result


def _register_input(
    check: Checker, parameter: inspect.Parameter, found: TensorKind, result: Registration
) -> None:
    name = parameter.name
    if result.variadic is not None:
        check.fail(
            f"its input '{name}' comes behind '{result.variadic}', which takes all "
            f"inputs that are left; put it before '{result.variadic}'"
        )
    if parameter.default is not parameter.empty and not (
        found.optional and parameter.default is None
    ):
        check.fail(
            f"its input '{name}' has a default; only an input that may be absent can "
            "have one: annotate it TensorDesc | None, with the default None"
        )
    is_shape = issubclass(found.tensor, ShapeInput)
    if found.many and (found.optional or is_shape):
        check.fail(
            f"its input '{name}' stands for any number of inputs, also none; annotate "
            f"it list[TensorDesc], or write *{name}: TensorDesc"
        )
    if found.optional:
        if len(result.inputs) >= _MAX_OPTIONAL:
            check.fail(
                f"its input '{name}' may be absent, which only the first "
                f"{_MAX_OPTIONAL} inputs may be"
            )
        result.optional.add(name)
    result.inputs[name] = is_shape


# ---- impl, autotune, aot_impl ----------------------------------------------


class Role(NamedTuple):
    """The parameters that impl, autotune or aot_impl takes."""

    decorator: str
    tensor: type  # annotation of inputs
    extra: tuple[str, ...]  # parameters besides inputs and attributes
    required: tuple[str, ...]  # those of `extra` that it must have


IMPL = Role("impl", Tensor, RESERVED, ("outputs",))
AUTOTUNE = Role("autotune", TensorDesc, ("outputs",), ("outputs",))
AOT_IMPL = Role("aot_impl", TensorDesc, ("outputs", "tactic"), ("outputs",))


class Signature(NamedTuple):
    """A checked function and how to call it: pairs (kind, name) in order."""

    function: Function
    positional: tuple[tuple[str, str], ...]
    named: tuple[tuple[str, str], ...]
    capturable: bool | None = None  # of impl; None: not known

    def attributes(self) -> list[str]:
        """Names of the attributes that it takes."""
        return [name for kind, name in self.positional + self.named if kind == "attr"]


def _kind(
    parameter: inspect.Parameter, registration: Registration, role: Role
) -> str | None:
    name = parameter.name
    if name in registration.inputs:
        if parameter.kind is parameter.VAR_POSITIONAL:
            return "star"
        return "many" if name == registration.variadic else "input"
    if name in registration.attributes:
        return "attr"
    return name if name in role.extra else None


def _check_outputs(check: Checker, role: Role, annotation: Any) -> None:
    kind = role.tensor.__name__
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    sequences = (tuple, list, collections.abc.Sequence)
    if annotation in (Any, tuple, list, collections.abc.Sequence):
        return
    if origin not in sequences or any(
        arg is not ... and not (isinstance(arg, type) and issubclass(arg, role.tensor))
        for arg in args
    ):
        check.fail(
            f"its parameter 'outputs' is annotated {_shown(annotation)}; it is a sequence: "
            f"tuple[{kind}, ...] or list[{kind}]"
        )


def _check_annotation(
    check: Checker, role: Role, kind: str, name: str, annotation: Any, reg: Registration
) -> None:
    if kind in ("input", "star", "many"):
        found = tensor_kind(annotation, role.tensor)
        if found is None and reg.inputs[name]:
            found = tensor_kind(annotation, ShapeInput)
        many = kind == "many"
        allowed = found is not None and (found.many == many)
        may_lack = name in reg.optional
        plain = {list, tuple, collections.abc.Sequence} if many else set()
        if annotation is Any or annotation in plain:
            return
        if not allowed or (found is not None and found.optional and not may_lack):
            one = role.tensor.__name__
            gets = f"a list[{one}]" if many else f"a {one}"
            check.fail(
                f"its input '{name}' is annotated {_shown(annotation)}; {role.decorator} "
                f"gets {gets}" + (" or None" if may_lack else "")
            )
        return
    if kind == "attr":
        registered = reg.attributes[name].annotation
        if annotation is not Any and plain_type(annotation) != plain_type(registered):
            check.fail(
                f"its attribute '{name}' is annotated {_shown(annotation)}, but the register "
                f"function says {_shown(registered)}; make them equal"
            )
    elif kind == "outputs":
        _check_outputs(check, role, annotation)
    elif not (isinstance(annotation, type) and issubclass(annotation, int)):
        check.fail(f"its parameter '{name}' is annotated {_shown(annotation)}; it is an int")


def _check_complete(
    check: Checker, role: Role, names: Iterable[str], reg: Registration
) -> None:
    for name in (*reg.inputs, *role.required):
        if name not in names:
            what = "input" if name in reg.inputs else "parameter"
            check.fail(
                f"it lacks the {what} '{name}'; it takes every input "
                f"({reg.listed_inputs()}), those attributes that it needs "
                f"({', '.join(reg.attributes) or 'none'}), and "
                f"{', '.join(role.required)}"
            )


def check_function(
    role: Role,
    plugin_id: str,
    reg: Registration,
    function: Function,
    local_names: dict[str, Any],
) -> Signature:
    """Checks impl, autotune or aot_impl against the register function's signature."""
    check = Checker(role.decorator, plugin_id, function)
    signature = check.signature(reg.variadic)
    hints = check.hints(local_names)
    _check_complete(check, role, signature.parameters, reg)
    positional: list[tuple[str, str]] = []
    named: list[tuple[str, str]] = []
    for name, parameter in signature.parameters.items():
        kind = _kind(parameter, reg, role)
        known = [*reg.inputs, *reg.attributes, *role.extra]
        if kind is None:
            check.fail(
                f"its parameter '{name}' is neither an input nor an attribute of the "
                f"plugin{near(name, known)} There are {', '.join(known)}"
            )
        if name in hints:
            _check_annotation(check, role, kind, name, hints[name], reg)
        by_name = parameter.kind is parameter.KEYWORD_ONLY
        (named if by_name else positional).append((kind, name))
    returned = hints.get("return")
    if role is IMPL and returned not in (None, type(None)):
        check.fail(
            f"its return annotation is {_shown(returned)}; it returns nothing and writes its "
            "results into `outputs`"
        )
    return Signature(function, tuple(positional), tuple(named))


def caller_names() -> dict[str, Any]:
    """Local names where the caller's caller decorates a function: annotations that are
    written as strings may use them."""
    frame = sys._getframe(2)
    return dict(frame.f_locals)
