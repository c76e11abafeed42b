"""Arguments of public functions, methods and setters are checked, and converted, by
annotations.

A class is decorated once; so a new method of it is checked as well. Annotations say what
is done: bool, int, float, str, enumerations and classes of ours, and the aliases below,
whose metadata is a function of a value and its name. Others leave arguments as they are.
"""

from __future__ import annotations

import builtins
import enum
import functools
import inspect
import os
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar

from . import _rabbet
from ._arrays import dtype_of
from ._dims import dims_of
from ._enums import DataType
from ._flags import enumerator, file_path, flag, integer, real, shown, text
from ._managed import is_refused
from ._recorder import is_recorded, report
from ._weights import Weights, to_weights

Check = Callable[[Any, str], Any]
Thing = TypeVar("Thing", bound=Callable[..., Any])
Function = TypeVar("Function", bound=Callable[..., Any])
_UNCHECKED = "_rabbet_unchecked"


def instance(kind: type, value: Any, name: str) -> Any:
    """Returns the value if it is an object of the class; TypeError otherwise."""
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise TypeError(f"{name}: expected {article} {kind.__name__}, got {shown(value)}")
    return value


def tensor_list(value: Any, name: str) -> list[Any]:
    """Returns a sequence of one or more tensors as a list; TypeError or ValueError
    otherwise."""
    tensors = list(value) if isinstance(value, Iterable) else [value]
    if tensors == [value] or not all(isinstance(t, _rabbet.NetworkTensor) for t in tensors):
        raise TypeError(f"{name}: expected a list of ITensors, got {shown(value)}")
    if not tensors:
        raise ValueError(f"{name}: expected at least one tensor, got none")
    return tensors


def bits_of(kind: type[enum.Enum]) -> Check:
    """The check of an integer of bits 1 << member."""
    known = sum(1 << int(member.value) for member in kind)

    def check(value: Any, name: str) -> int:
        bits = integer(value, name)
        if bits & ~known:
            raise ValueError(f"{name}: {bits:#x} are not bits 1 << {kind.__name__}")
        return bits

    return check


def integers(value: Any, name: str) -> list[int]:
    """Returns integers as a list; TypeError or ValueError otherwise."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise TypeError(f"{name}: expected a list of integers, got {shown(value)}")
    return [integer(item, name) for item in value]


Shape = Annotated[Iterable[int], dims_of]
DType = Annotated[Any, dtype_of]
Integers = Annotated[Sequence[int], integers]
Constants = Annotated[Any, to_weights]
Tensors = Annotated[Sequence[Any], tensor_list]
File = Annotated[str | os.PathLike[str], file_path]


class _Rule(NamedTuple):
    """The check and conversion for an annotation, and a condition in Python under which
    an argument {0} needs neither; {1} stands for `kind`."""

    check: Check
    passes: str
    kind: Any = None


_EXACT = "_type({0}) is {1}"
_PLAIN: dict[Any, _Rule] = {
    bool: _Rule(flag, _EXACT, bool),
    int: _Rule(integer, f"{_EXACT} and {-(2**63)} <= {{0}} < {2**63}", int),
    float: _Rule(real, _EXACT, float),
    str: _Rule(text, _EXACT, str),
    DType: _Rule(dtype_of, _EXACT, DataType),
    Constants: _Rule(to_weights, _EXACT, Weights),
}


def _optional(rule: _Rule) -> _Rule:
    check = rule.check
    return rule._replace(
        check=lambda value, name: None if value is None else check(value, name),
        passes=f"{{0}} is None or {rule.passes}",
    )


def _rule(annotation: Any) -> _Rule | None:
    """None for annotations that leave arguments as they are."""
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    metadata = getattr(annotation, "__metadata__", None)
    if metadata is not None:
        return _Rule(metadata[0], "False")
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        kinds = [k for k in typing.get_args(annotation) if k is not types.NoneType]
        inner = _rule(kinds[0]) if len(kinds) == 1 else None
        return inner and _optional(inner)
    if not isinstance(annotation, type):
        return None
    if issubclass(annotation, enum.Enum):
        return _Rule(functools.partial(enumerator, annotation), _EXACT, annotation)
    if annotation.__module__.startswith("rabbet."):
        return _Rule(functools.partial(instance, annotation), "_isinstance({0}, {1})", annotation)
    return None


# ---- Functions with checks ---------------------------------------------------------


def _where(name: str, first: Any) -> str:
    """How errors name a function, or a method with its first argument."""
    kind = first if isinstance(first, type) else type(first)
    if name in ("__init__", "__new__"):
        return kind.__name__
    return f"{kind.__name__}.{name}"


# How a function passes arguments on that are not by position.
_PASSED: dict[Any, str] = {
    inspect.Parameter.VAR_POSITIONAL: "*{0}",
    inspect.Parameter.VAR_KEYWORD: "**{0}",
    inspect.Parameter.KEYWORD_ONLY: "{0}={0}",
}


class _Source:
    """The source of a function with checks, and the names that it refers to."""

    def __init__(self, function: Function, name: str, has_self: bool, is_setter: bool) -> None:
        self.parameters = list(inspect.signature(function).parameters.values())
        self.names: dict[str, Any] = {
            "_call": function, "_type": type, "_isinstance": isinstance, "_where": _where,
            "_report": report,
        }  # fmt: skip
        self.name, self.has_self, self.is_setter = name, has_self, is_setter
        self.hints = typing.get_type_hints(inspect.unwrap(function), include_extras=True)

    def check(self, name: str) -> Iterable[str]:
        """Lines that check an argument."""
        rule = _rule(self.hints.get(name, Any))
        if rule is None:
            return
        kind, check = f"_kind_{name}", f"_check_{name}"
        self.names |= {kind: rule.kind, check: rule.check}
        label = f"{self.name!r}"
        if self.has_self:
            label = f"_where({label}, {self.parameters[0].name})"
        if not self.is_setter:
            label += f" + {': ' + name!r}"
        yield f"if not ({rule.passes.format(name, kind)}):"
        yield f"    {name} = {check}({name}, {label})"

    def declaration(self) -> str:
        """The function's parameters; defaults are those of the function."""
        bare = []
        for p in self.parameters:
            default = p.default
            if default is not p.empty:
                default = _Shown(f"_default_{p.name}")
                self.names[str(default)] = p.default
            bare.append(p.replace(annotation=p.empty, default=default))
        return str(inspect.Signature(bare))

    def call(self) -> str:
        """The function's arguments."""
        return ", ".join(_PASSED.get(p.kind, "{0}").format(p.name) for p in self.parameters)

    def lines(self, recorded: bool) -> Iterable[str]:
        """The whole."""
        yield f"def checked{self.declaration()}:"
        body = [line for p in self.parameters for line in self.check(p.name)]
        body.append(f"return _call({self.call()})")
        if recorded:
            yield "    try:"
        yield from (("    " if recorded else "") + "    " + line for line in body)
        if recorded:
            yield "    except Exception as error:"
            yield f"        _report({self.parameters[0].name}, error)"
            yield "        raise"


class _Shown(str):
    __slots__ = ()
    __repr__ = str.__str__


def _with_checks(function: Function, name: str, has_self: bool, is_setter: bool) -> Function:
    """The function behind checks of its arguments: made of source, so that arguments that
    need no conversion cost a comparison each, and the rest is as Python calls it."""
    source = _Source(function, name, has_self, is_setter)
    text = "\n".join(source.lines(is_recorded(function)))
    exec(compile(text, f"<arguments of {function.__qualname__}>", "exec"), source.names)
    return typing.cast(Function, functools.wraps(function)(source.names["checked"]))


_INTERPRETED = 8
"""So many calls of a function are checked without source, which takes longer to compile
than a program takes that calls it a few times."""


class _Parameters:
    """A function's parameters, and the rules of those that calls gave so far."""

    def __init__(self, function: Function, name: str, has_self: bool, is_setter: bool) -> None:
        plain = inspect.unwrap(function)
        code = plain.__code__
        self.call, self.name = function, name
        self.has_self, self.is_setter = has_self, is_setter
        self.positional = code.co_varnames[: code.co_argcount]
        only = code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount]
        self.by_name = frozenset((*self.positional[code.co_posonlyargcount :], *only))
        defaults = plain.__defaults__ or ()
        first = code.co_argcount - len(defaults)
        self.defaults = dict(zip(self.positional[first:], defaults, strict=True))
        self.defaults |= plain.__kwdefaults__ or {}
        self.required = {*self.positional, *only} - self.defaults.keys()
        self.recorded = is_recorded(function)
        self.plain = plain
        self.rules: dict[str, _Rule | None] = {}
        # Those with defaults that a check may convert, as it does arguments.
        hints = plain.__annotations__
        self.unlike = [n for n, v in self.defaults.items() if not _is_plain(hints.get(n), v)]

    def takes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether Python binds these arguments, in a function without * and **."""
        given = self.positional[: len(args)]
        return (
            len(args) <= len(self.positional)
            and self.by_name.issuperset(kwargs)
            and kwargs.keys().isdisjoint(given)
            and self.required.issubset((*given, *kwargs))
        )

    def rule(self, name: str) -> _Rule | None:
        """Of a parameter."""
        if name not in self.rules:
            annotation = self.plain.__annotations__.get(name, Any)
            self.rules[name] = _rule_of_text(self.plain, annotation)
        return self.rules[name]

    def check(self, first: Any, name: str, value: Any) -> Any:
        """The value of an argument as its annotation says."""
        rule = self.rule(name)
        if rule is None:
            return value
        label = _where(self.name, first) if self.has_self else self.name
        return rule.check(value, label if self.is_setter else f"{label}: {name}")

    def checked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call, its arguments checked in the order of the parameters."""
        first = args[0] if args else None
        try:
            places = zip(self.positional, args, strict=False)
            values = [self.check(first, name, value) for name, value in places]
            named = {name: self.check(first, name, value) for name, value in kwargs.items()}
            for name in self.unlike:
                if name not in named and name not in self.positional[: len(args)]:
                    named[name] = self.check(first, name, self.defaults[name])
            return self.call(*values, **named)
        except Exception as error:
            if self.recorded:
                report(first, error)
            raise


def _is_plain(annotation: Any, value: Any) -> bool:
    """Whether the default is as the annotation says, without a look at the rule."""
    if annotation in (None, "Any") or (value is None and str(annotation).endswith(" | None")):
        return True
    return type(value) is bool and annotation == "bool"


def _rule_of_text(function: Any, annotation: Any) -> _Rule | None:
    """The rule of an annotation as modules keep it: a text. Names, and those with
    "| None" behind them, are looked up rather than compiled."""
    if not isinstance(annotation, str):
        return _rule(annotation)
    names = function.__globals__
    bare = annotation.removesuffix(" | None")
    if not bare.isidentifier():
        return _rule(eval(annotation, names))
    kind = names[bare] if bare in names else getattr(builtins, bare)
    inner = _rule(type(None) if kind is None else kind)
    return _optional(inner) if inner and bare != annotation else inner


def _parameters(function: Any, *given: Any) -> _Parameters | None:
    """None for functions whose checks are source from the first call on."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    varies = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
    return None if code is None or code.co_flags & varies else _Parameters(function, *given)


def _at_first_call(
    function: Function, name: str, owner: Any = None, is_setter: bool = False
) -> Function:
    """Checks are made at the first calls, to keep imports fast: without source at first.
    A method with source then takes this place in the class that owns it."""
    ready: Function | None = None
    parameters: _Parameters | None = None
    calls = 0

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal ready, parameters, calls
        if ready is None:
            if calls == 0:
                parameters = _parameters(function, name, owner is not None, is_setter)
            calls += 1
            if parameters and calls <= _INTERPRETED and parameters.takes(args, kwargs):
                return parameters.checked(args, kwargs)
            ready = _with_checks(function, name, owner is not None, is_setter)
            if vars(owner or object).get(name) is call:
                setattr(owner, name, ready)
        return ready(*args, **kwargs)

    return call  # type: ignore[return-value]


def unchecked(method: Function) -> Function:
    """Leaves a method as it is: its C function names arguments in errors."""
    setattr(method, _UNCHECKED, True)
    return method


def checks_arguments(thing: Thing) -> Thing:
    """Decorates a function, or a class: its constructor, public methods and setters check
    their arguments."""
    if not isinstance(thing, type):
        return _at_first_call(thing, thing.__name__)
    for name, member in list(vars(thing).items()):
        if name.startswith("_") and name not in ("__init__", "__new__"):
            continue
        if isinstance(member, types.FunctionType):
            if not is_refused(member) and not hasattr(member, _UNCHECKED):
                setattr(thing, name, _at_first_call(member, name, thing))
        elif isinstance(member, staticmethod):
            owner = thing if name == "__new__" else None
            setattr(thing, name, staticmethod(_at_first_call(member.__func__, name, owner)))
        elif isinstance(member, property) and member.fset:
            put = _at_first_call(member.fset, name, thing, is_setter=True)
            setattr(thing, name, member.setter(put))
    return thing
