"""rabbet.plugin.op.NAMESPACE.NAME(...): plugins as layers of a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .._enums import QuickPluginCreationRequest as Request
from .._layer import ITensor
from ._definition import DefinitionError, near, where
from ._plugin import QDP_REGISTRY, VERSION, PluginDef

# Bits of rabbet/plugin.h: what each request allows or prefers.
_KINDS = {
    Request.STRICT_JIT: 1,
    Request.STRICT_AOT: 2,
    Request.PREFER_JIT: 4,
    Request.PREFER_AOT: 8,
}


class PluginCall:
    """A plugin with its tensors and attributes: for network.add_plugin."""

    def __init__(
        self, definition: PluginDef, inputs: list[ITensor], attrs: dict[str, Any]
    ) -> None:
        self.definition, self.inputs, self.attrs = definition, inputs, attrs
        self.request: Request | None = None

    def __call__(self, request: Request | None = None) -> tuple[Any, ...]:
        self._check_request(request)
        self.request = request
        return (self.inputs, [], self)

    def _check_request(self, request: Request | None) -> None:
        functions = self.definition.functions
        if request is Request.STRICT_AOT and not functions["aot_impl"]:
            raise DefinitionError(
                f"plugin '{self.definition.id}' has no aot_impl, which aot=True "
                "asks for"
            )
        if request is Request.STRICT_JIT and not functions["impl"]:
            raise DefinitionError(
                f"plugin '{self.definition.id}' has no impl, which aot=False asks for"
            )

    def add_to(self, network: Any, request: Request | None) -> Any:
        """Adds the layer."""
        if request is None:
            request = self.request
        self._check_request(request)
        definition = self.definition
        types = definition.registration.attributes
        attrs = {name: types[name].encode(value) for name, value in self.attrs.items()}
        layer = network._add_plugin(
            definition.name, VERSION, definition.namespace, None, self.inputs, attrs
        )
        if request in _KINDS:
            layer._set_plugin_kinds(_KINDS[request])
        return layer

    def __repr__(self) -> str:
        return f"<call of plugin '{self.definition.id}'>"


def _fail(definition: PluginDef, message: str) -> DefinitionError:
    return DefinitionError(
        f"rabbet.plugin.op.{definition.namespace}.{definition.name}: {message} "
        f"[registered by {where(definition.register_function)}]"
    )


def _too_many(definition: PluginDef, count: int) -> DefinitionError:
    reg = definition.registration
    return _fail(
        definition,
        f"{count} tensors given, it takes {len(reg.inputs)} ({reg.listed_inputs()}); "
        "attributes are passed by keyword",
    )


def arranged(
    definition: PluginDef, args: Sequence[Any], named: dict[str, Any]
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
    # A list in the place of the variadic input holds its tensors.
    if len(more) == 1 and isinstance(more[0], (list, tuple)):
        more = list(more[0])
    missing = [name for name in names if name not in values and name not in reg.optional]
    if missing:
        raise _fail(definition, f"input {', '.join(map(repr, missing))} is missing")
    listed = [(name, values.get(name)) for name in names]
    return listed + [(f"{reg.variadic}[{i}]", value) for i, value in enumerate(more)]


def check_inputs(
    definition: PluginDef,
    inputs: Sequence[tuple[str, Any]],
    expected: str,
    fits: Callable[[Any], bool],
) -> None:
    """Raises for an input that is not as expected, nor absent where it may be."""
    for name, value in inputs:
        absent = value is None and name in definition.registration.optional
        if not (absent or fits(value)):
            raise _fail(definition, f"input '{name}' is {value!r}, expected {expected}")


def _attributes(definition: PluginDef, given: dict[str, Any]) -> dict[str, Any]:
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


def make_call(
    definition: PluginDef, args: tuple[Any, ...], named: dict[str, Any]
) -> PluginCall:
    """Checks tensors and attributes."""
    rest = dict(named)
    inputs = arranged(definition, args, rest)
    check_inputs(
        definition,
        inputs,
        "a tensor of a network (ITensor)",
        lambda value: isinstance(value, ITensor),
    )
    attributes = _attributes(definition, rest)
    definition.register()
    return PluginCall(definition, [value for _, value in inputs], attributes)


class _Namespace:
    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, name: str) -> PluginDef:
        found = QDP_REGISTRY.get(f"{self.__name__}::{name}")
        if found is not None:
            return found
        known = self.__dir__()
        raise AttributeError(
            f"no plugin '{self.__name__}::{name}' is registered{near(name, known)} "
            f"The namespace has {', '.join(known) or 'none'}"
        )

    def __dir__(self) -> list[str]:
        found = list(QDP_REGISTRY.values())  # other threads may add some
        return [d.name for d in found if d.namespace == self.__name__]


class _Namespaces:
    """op.NAMESPACE.NAME is the plugin 'NAMESPACE::NAME'."""

    def __getattr__(self, name: str) -> _Namespace:
        known = self.__dir__()
        if name in known:
            return _Namespace(name)
        raise AttributeError(
            f"no plugin of namespace '{name}' is registered{near(name, known)} "
            f"There are the namespaces {', '.join(known) or '(none)'}"
        )

    def __dir__(self) -> list[str]:
        return sorted({d.namespace for d in list(QDP_REGISTRY.values())})


op = _Namespaces()
