"""Checks of the tensors and attributes of a plugin call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ._definition import DefinitionError, near, where
from ._functions import Functions


def _fail(definition: Functions, message: str) -> DefinitionError:
    return DefinitionError(
        f"rabbet.plugin.op.{definition.namespace}.{definition.name}: {message} "
        f"[registered by {where(definition.register_function)}]"
    )


def _too_many(definition: Functions, count: int) -> DefinitionError:
    reg = definition.registration
    return _fail(
        definition,
        f"{count} tensors given, it takes {len(reg.inputs)} ({reg.listed_inputs()}); "
        "attributes are passed by keyword",
    )


def arranged(
    definition: Functions, args: Sequence[Any], named: dict[str, Any]
) -> list[tuple[str, Any]]:
    """Name and value of each input, in order; None for one that the layer lacks. Takes
    the inputs out of `named`."""
    reg = definition.registration
    names = [name for name in reg.inputs if name != reg.variadic]
    values = dict(zip(names, args, strict=False))
    more = list(args[len(names) :])
    if more and reg.variadic is None:
        raise _too_many(definition, len(args))
    for name in [n for n in reg.inputs if n in named]:
        if name in values or (name == reg.variadic and more):
            raise _fail(definition, f"input '{name}' is given twice")
        if name == reg.variadic:
            more = [named.pop(name)]
        else:
            values[name] = named.pop(name)
    # A list in place of the variadic input contains its tensors.
    if len(more) == 1 and isinstance(more[0], (list, tuple)):
        more = list(more[0])
    missing = [name for name in names if name not in values and name not in reg.optional]
    if missing:
        raise _fail(definition, f"input {', '.join(map(repr, missing))} is missing")
    listed = [(name, values.get(name)) for name in names]
    return listed + [(f"{reg.variadic}[{i}]", value) for i, value in enumerate(more)]


def check_inputs(
    definition: Functions,
    inputs: Sequence[tuple[str, Any]],
    expected: str,
    fits: Callable[[Any], bool],
) -> None:
    """Raises for an input that is not as expected, nor absent where it may be."""
    for name, value in inputs:
        absent = value is None and name in definition.registration.optional
        if not (absent or fits(value)):
            raise _fail(definition, f"input '{name}' is {value!r}, expected {expected}")


def attribute_values(definition: Functions, given: dict[str, Any]) -> dict[str, Any]:
    """The attributes that are given, checked, and the defaults of the others."""
    reg = definition.registration
    for name in given:
        if name not in reg.attributes:
            raise _fail(
                definition,
                f"no attribute '{name}'{near(name, reg.attributes)} It has "
                f"{', '.join(reg.attributes) or 'none'}",
            )
    values = {**reg.defaults, **given}
    for name, kind in reg.attributes.items():
        if name not in values:
            raise _fail(definition, f"attribute '{name}' ({kind}) is missing")
        try:
            kind.encode(values[name])
        except (TypeError, ValueError, OverflowError) as error:
            raise _fail(
                definition,
                f"attribute '{name}' is {values[name]!r}, expected {kind}: {error}",
            ) from None
    return values
