"""Profiles from the ranges of shapes and values that compile() takes."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ._builder import Builder
from ._config import IBuilderConfig
from ._dims import Dims
from ._errors import InvalidArgumentError
from ._network import INetworkDefinition

ShapeRange = Any  # a shape, or (min, opt, max)
Ranges = list[tuple[Any, Any]]  # shapes and values of each profile


def range_of(given: Any, name: str) -> tuple[Any, Any, Any]:
    """(min, opt, max) from a user's shapes for an input."""
    nested = [_is_shape(item) for item in _iterable(given, name)]
    if not any(nested):
        return given, given, given
    if len(nested) != 3 or not all(nested):
        raise InvalidArgumentError(
            f"shapes: input '{name}' has {given!r}; expected a shape, or three: "
            "(min, opt, max)"
        )
    return tuple(given)  # type: ignore[return-value]


def _is_shape(item: Any) -> bool:
    return isinstance(item, (Sequence, Dims)) or getattr(item, "ndim", 0) > 0


def _iterable(shape: Any, name: str) -> Any:
    if isinstance(shape, str) or not isinstance(shape, Iterable):
        raise InvalidArgumentError(
            f"shapes: input '{name}' has {shape!r}; expected a shape, or three: "
            "(min, opt, max)"
        )
    return shape


def matches(shape: Any, declared: tuple[int, ...], name: str) -> tuple[int, ...]:
    """A user's shape for an input of the declared one's rank."""
    try:
        dims = tuple(operator.index(d) for d in _iterable(shape, name))
    except TypeError:
        raise InvalidArgumentError(
            f"shapes: input '{name}': dimensions are integers, got {shape!r}"
        ) from None
    if len(dims) != len(declared):
        raise InvalidArgumentError(
            f"shapes: input '{name}' has {len(declared)} dimensions "
            f"{declared}, got {dims}"
        )
    return dims


def _numbers(given: Any, name: str) -> list[int]:
    """Values of a shape input: integers, in a list or an array of any rank."""
    if hasattr(given, "ravel"):
        given = given.ravel().tolist()
    try:
        items = given if isinstance(given, Iterable) else [given]
        if isinstance(given, (str, bytes)):
            raise TypeError
        return [operator.index(item) for item in items]
    except TypeError:
        raise InvalidArgumentError(
            f"values: input '{name}' has {given!r}; expected its values, which are "
            "integers, or three such lists: (min, opt, max)"
        ) from None


def _value_range(given: Any, count: int, name: str) -> list[list[int]]:
    """min, opt and max of a shape input's values. For an input with one value, three
    numbers are also a range."""
    three = (
        isinstance(given, Sequence) and not isinstance(given, str) and len(given) == 3
    )
    nested = three and all(
        isinstance(item, (Sequence, Dims)) or hasattr(item, "ravel") for item in given
    )
    parts = given if nested or (three and count == 1) else (given,) * 3
    found = [_numbers(part, name) for part in parts]
    for part in found:
        if len(part) != count:
            raise InvalidArgumentError(
                f"values: input '{name}' is a shape input of {count} value"
                f"{'s' * (count != 1)}, for which {part} are given"
            )
    return found


def _add_values(
    profile: Any, inputs: Mapping[str, Any], values: Mapping[str, Any]
) -> None:
    if not isinstance(values, Mapping):
        raise TypeError(
            f"values: expected {{input: values or (min, opt, max)}}, got {values!r}"
        )
    sizes = [name for name, tensor in inputs.items() if tensor.is_shape_tensor]
    for name, given in values.items():
        if name not in sizes:
            known = ", ".join(sizes) or "none"
            raise InvalidArgumentError(
                f"values: the model has no shape input '{name}' (an input that sizes are "
                f"computed from); it has {known}"
            )
        count = math.prod(inputs[name].shape)
        profile.set_shape_input(name, *_value_range(given, count, name))


def add_profile(
    builder: Builder,
    network: INetworkDefinition,
    config: IBuilderConfig,
    shapes: Mapping[str, ShapeRange],
    values: Mapping[str, Any],
) -> None:
    """A profile of these ranges, which the configuration gets."""
    if not isinstance(shapes, Mapping):
        raise TypeError(
            f"shapes: expected {{input: shape or (min, opt, max)}}, got {shapes!r}"
        )
    inputs = {
        t.name: t for t in (network.get_input(i) for i in range(network.num_inputs))
    }
    for name in shapes:
        if name not in inputs:
            raise InvalidArgumentError(
                f"shapes: the model has no input '{name}'; it has {', '.join(inputs)}"
            )
    profile = builder.create_optimization_profile()
    for name, given in shapes.items():
        declared = tuple(inputs[name].shape)
        low, opt, high = range_of(given, name)
        profile.set_shape(
            name,
            matches(low, declared, name),
            matches(opt, declared, name),
            matches(high, declared, name),
        )
    _add_values(profile, inputs, values)
    config.add_optimization_profile(profile)


def _values(values: Any, count: int) -> list[Any]:
    """The values of each profile."""
    if values is None or isinstance(values, Mapping):
        return [values or {}] * count
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise TypeError(
            "values: expected {input: values or (min, opt, max)}, or a list of such, one "
            f"for each profile, got {values!r}"
        )
    each = list(values)
    if len(each) != count:
        raise InvalidArgumentError(
            f"values: a list of {len(each)} for {count} profile{'s' * (count != 1)}"
        )
    return each


def _ranges(shapes: Any, profiles: Any) -> list[Any]:
    """The ranges of each profile."""
    if shapes is not None and profiles is not None:
        raise InvalidArgumentError(
            "compile: give shapes (one range) or profiles (a list of such), not both"
        )
    if profiles is None:
        return [] if shapes is None else [shapes]
    if isinstance(profiles, (str, Mapping)) or not isinstance(profiles, Iterable):
        raise TypeError(
            "profiles: expected a list of {input: shape or (min, opt, max)}, got "
            f"{profiles!r}"
        )
    return list(profiles)


def ranges_of(shapes: Any, values: Any, profiles: Any) -> Ranges:
    """The ranges of shapes and of values of each profile."""
    ranges = _ranges(shapes, profiles)
    if values is not None and not ranges:
        ranges = [{}]
    return list(zip(ranges, _values(values, len(ranges)), strict=True))


def fixed_shapes(ranges: Ranges) -> dict[str, tuple[int, ...]]:
    """The extents of inputs that are the same in all profiles' ranges; -1 where they vary.
    Shapes that are none are left to `add_profile`, which says so."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    for shapes, _ in ranges:
        for name, given in shapes.items() if isinstance(shapes, Mapping) else ():
            found.setdefault(name, []).extend(map(tuple, range_of(given, name)))
    return {
        name: tuple(_shared(extents) for extents in zip(*shapes, strict=True))
        for name, shapes in found.items()
        if len(shapes) == 3 * len(ranges) and len(set(map(len, shapes))) == 1
    }


def usual_shapes(ranges: Ranges) -> dict[str, tuple[int, ...]]:
    """The shapes of inputs that the first profile's kernels are chosen for."""
    return fixed_shapes([(_usual(shapes), {}) for shapes, _ in ranges[:1]])


def _usual(shapes: Any) -> dict[str, Any]:
    given = shapes.items() if isinstance(shapes, Mapping) else ()
    return {name: tuple(range_of(shape, name))[1] for name, shape in given}


def _shared(extents: tuple[Any, ...]) -> int:
    try:
        sizes = {operator.index(extent) for extent in extents}
    except TypeError:
        return -1
    size = sizes.pop()
    return -1 if sizes or size < 0 else size
