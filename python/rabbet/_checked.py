"""Arguments of public methods and setters are checked, and converted, by annotations.

A class is decorated once; so a new method of it is checked as well. Annotations say what
is done: bool, int, float, str, enumerations and classes of ours, and the aliases below,
whose metadata is a function of a value and its name. Others leave arguments as they are.
"""

from __future__ import annotations

import enum
import functools
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, TypeVar

from . import _rabbet
from ._arrays import dtype_of
from ._dims import dims_of
from ._flags import enumerator, flag, integer, real, shown, text
from ._managed import is_refused
from ._weights import to_weights

Check = Callable[[Any, str], Any]
Kind = TypeVar("Kind", bound=type)
Method = TypeVar("Method", bound=Callable[..., Any])

_PLAIN: dict[Any, Check] = {bool: flag, int: integer, float: real, str: text}


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


Shape = Annotated[Iterable[int], dims_of]
DType = Annotated[Any, dtype_of]
Constants = Annotated[Any, to_weights]
Tensors = Annotated[Sequence[Any], tensor_list]


def _as_it_is(value: Any, name: str) -> Any:
    return value


def _check(annotation: Any) -> Check:
    """The check and conversion for an annotation."""
    found = getattr(annotation, "__metadata__", None)
    if found is not None:
        return typing.cast(Check, found[0])
    if isinstance(annotation, types.UnionType):
        kinds = [kind for kind in annotation.__args__ if kind is not types.NoneType]
        inner = _check(kinds[0]) if len(kinds) == 1 else _as_it_is
        return lambda value, name: None if value is None else inner(value, name)
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    if not isinstance(annotation, type):
        return _as_it_is
    if issubclass(annotation, enum.Enum):
        return functools.partial(enumerator, annotation)
    if annotation.__module__.startswith("rabbet."):
        return functools.partial(instance, annotation)
    return _as_it_is


class _Arguments:
    """Arguments of a method after self: a check of each, and its name in errors."""

    def __init__(self, method: Callable[..., Any], name: str, is_setter: bool) -> None:
        code = method.__code__
        hints = typing.get_type_hints(method, include_extras=True)
        self.names = code.co_varnames[1 : code.co_argcount]
        every = (*self.names, *code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount])
        self.checks = {name: _check(hints.get(name, Any)) for name in every}
        self.ordered = [self.checks[name] for name in self.names]
        self.name, self.is_setter = name, is_setter
        values = method.__defaults__ or ()
        first = len(self.names) - len(values)
        self.defaults = {
            name: self.checks[name](value, name)
            for name, value in zip(self.names[first:], values, strict=True)
        }
        self._labels: dict[type, dict[str, str]] = {}

    def labels(self, kind: type) -> dict[str, str]:
        """Names of the arguments in errors, for a method of that class."""
        found = self._labels.get(kind)
        if found is None:
            where = f"{kind.__name__}.{self.name}"
            found = {n: where if self.is_setter else f"{where}: {n}" for n in self.checks}
            self._labels[kind] = found
        return found

    def checked(
        self, labels: dict[str, str], args: Any, kwargs: dict[str, Any]
    ) -> dict[str, Any]:
        """Checked arguments by name; Python reports those that do not match the
        signature."""
        checks = self.checks
        given = kwargs | dict(zip(self.names, args, strict=False))
        return self.defaults | {
            name: checks[name](value, labels[name]) if name in checks else value
            for name, value in given.items()
        }


def _checked(method: Method, name: str, is_setter: bool) -> Method:
    # Annotations are evaluated at the first call, to keep imports fast.
    arguments: _Arguments | None = None

    @functools.wraps(method)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        nonlocal arguments
        if arguments is None:
            arguments = _Arguments(method, name, is_setter)
        labels = arguments.labels(type(self))
        if not kwargs and len(args) == len(arguments.names):  # most often, and fast
            rows = zip(arguments.ordered, args, labels.values(), strict=False)
            return method(self, *[check(value, name) for check, value, name in rows])
        # Too many arguments, or one given twice.
        if len(args) > len(arguments.names) or not kwargs.keys().isdisjoint(
            arguments.names[: len(args)]
        ):
            return method(self, *args, **kwargs)
        return method(self, **arguments.checked(labels, args, kwargs))

    return call  # type: ignore[return-value]


def checks_arguments(kind: Kind) -> Kind:
    """Decorates a class: its public methods and setters check their arguments."""
    for name, thing in list(vars(kind).items()):
        if name.startswith("_"):
            continue
        if isinstance(thing, types.FunctionType) and not is_refused(thing):
            setattr(kind, name, _checked(thing, name, False))
        elif isinstance(thing, property) and thing.fset:
            setattr(kind, name, thing.setter(_checked(thing.fset, name, True)))
    return kind
