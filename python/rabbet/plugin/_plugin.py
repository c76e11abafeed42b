"""PluginDef: a plugin that was defined by decorators, and the table of them."""

from __future__ import annotations

import sys
import threading
from typing import Any, cast

from .. import _rabbet
from .._enums import QuickPluginCreationRequest as Request
from .._layers._layer import ITensor
from .._numbers import AOT, PREFER_AOT, PREFER_RUNS, RUNS, Attr
from .._plugin_base import DECORATED, LayerCall
from ._arguments import arranged, attribute_values, check_inputs
from ._definition import (
    AOT_IMPL,
    AUTOTUNE,
    IMPL,
    DefinitionError,
    Function,
    Registration,
    Role,
    near,
)
from ._functions import Functions, source_file
from ._instance import Instance

VERSION = "1"

# Held while definitions come and go: here, and where the engine knows them.
LOCK = threading.RLock()
# Every plugin that was defined, by id.
QDP_REGISTRY = cast("dict[str, PluginDef]", DECORATED)

# Bits of rabbet/plugin.h: kinds that each request allows or prefers.
_KINDS = {
    Request.STRICT_JIT: RUNS,
    Request.STRICT_AOT: AOT,
    Request.PREFER_JIT: PREFER_RUNS,
    Request.PREFER_AOT: PREFER_AOT,
}

_MADE = "they are made by @rabbet.plugin.register alone"


class PluginDef(Functions):
    """A plugin: its register function, and the functions added to it.

    Calling it with tensors of a network and attributes (by keyword) gives what
    network.add_plugin takes.
    """

    def __init__(
        self,
        plugin_id: str = "",
        function: Function | None = None,
        registration: Registration | None = None,
        timing_key: str | None = None,
    ) -> None:
        if function is None or registration is None:
            raise DefinitionError(f"a PluginDef by itself: {_MADE}")
        super().__init__(plugin_id, function, registration, timing_key)
        self._registered = False
        self.origin = _origin(function)

    # ---- As tools written for TensorRT read it: the functions as they were decorated,
    # or None ----

    def _function(self, role: Role) -> Function | None:
        signatures = self.functions[role.decorator].values()
        return next((s.function for s in signatures), None)

    plugin_id = property(lambda self: self.id)
    register_func = property(lambda self: self.register_function)
    impl_func = property(lambda self: self._function(IMPL))
    aot_impl_func = property(lambda self: self._function(AOT_IMPL))
    autotune_func = property(lambda self: self._function(AUTOTUNE))
    num_outputs = property(lambda self: self.registration.num_outputs)

    # ---- Registration ----

    def register(self) -> None:
        """Registers it with the engine, if that is not done yet."""
        if self._registered:
            return
        with LOCK:
            if not self._registered:
                self._register()

    def _register(self) -> None:
        reg = self.registration
        fields = [
            (name, kind.code, name not in reg.defaults)
            for name, kind in reg.attributes.items()
        ]
        shapes = sum(
            1 << i for i, is_shape in enumerate(reg.inputs.values()) if is_shape
        )
        _rabbet.register_plugin(
            self,
            self.name,
            VERSION,
            self.namespace,
            self.origin,
            fields,
            shapes,
            len(reg.inputs) if reg.variadic is None else -1,
            sum(1 << i for i, name in enumerate(reg.inputs) if name in reg.optional),
        )
        self._registered = True

    @property
    def is_registered(self) -> bool:
        """Whether the engine knows it."""
        return self._registered

    def deregister(self) -> None:
        """Removes it; layers and plans that use it stay valid."""
        with LOCK:
            if self._registered:
                _rabbet.deregister_plugin(self.name, VERSION, self.namespace)
                self._registered = False
            if QDP_REGISTRY.get(self.id) is self:
                del QDP_REGISTRY[self.id]

    # ---- Calls of the engine ----

    def create(
        self,
        attrs: dict[str, Any],
        layer: str | None,
        phase: int,
        shape_inputs: int = 0,
        absent: int = 0,
    ) -> Instance:
        """An instance for a layer. phase 0: build, 1: load. Which inputs are shape
        inputs, the register function says; absent: bits of those that it lacks."""
        reg = self.registration
        values: dict[str, Any] = {}
        for name, value in attrs.items():
            kind = reg.attributes.get(name)
            if kind is None and name.startswith("rabbet."):
                raise DefinitionError(
                    f"plugin '{self.id}': the plan holds a plugin of another kind under "
                    "that name, a class: register the creator that it was built with"
                )
            if kind is None:
                raise DefinitionError(
                    f"plugin '{self.id}' has no attribute "
                    f"'{name}'{near(name, reg.attributes)}"
                    f" It has {', '.join(reg.attributes) or 'none'}"
                )
            if kind.code == Attr.STRING:
                value = value.rstrip("\0")
            try:
                values[name] = kind.decode(value)
            except (TypeError, ValueError) as error:
                raise DefinitionError(
                    f"plugin '{self.id}': attribute '{name}' is {value!r}, which is no "
                    f"{kind}: {error}"
                ) from None
        if phase == 0:
            values = {**reg.defaults, **values}
        return Instance(self, values, layer, absent)

    # ---- Use ----

    def __call__(self, *tensors: Any, **attributes: Any) -> PluginCall:
        inputs = arranged(self, tensors, attributes)
        check_inputs(
            self,
            inputs,
            "a tensor of a network (ITensor)",
            lambda value: isinstance(value, ITensor),
        )
        values = attribute_values(self, attributes)
        self.register()
        return PluginCall(self, [value for _, value in inputs], values)

    def __repr__(self) -> str:
        return f"<plugin '{self.id}' from {self.origin}>"


setattr(PluginDef.__init__, "_rabbet_mark", ("refused", _MADE))  # noqa: B010


class PluginCall(LayerCall):
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


def _origin(function: Function) -> str:
    """The module's file, or its name where it has none (a notebook, a prompt)."""
    module = sys.modules.get(getattr(function, "__module__", ""), None)
    return getattr(module, "__file__", None) or source_file(function) or "?"
