"""PluginDef: a plugin that was defined by decorators, and the table of them."""

from __future__ import annotations

import hashlib
import inspect
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from .. import _rabbet
from .._flags import flag
from ._attributes import STRING
from ._definition import (
    AOT_IMPL,
    AUTOTUNE,
    IMPL,
    DefinitionError,
    Function,
    Registration,
    Role,
    Signature,
    caller_names,
    check_function,
    check_register,
    near,
    where,
)
from ._instance import Instance

F = TypeVar("F", bound=Callable[..., Any])

DEVICES = ("cpu", "cuda")
VERSION = "1"
_RESERVED_NAMESPACES = ("", "trt", "tensorrt", "std", "rabbet")

# Held while definitions come and go: here, and where the engine knows them.
_lock = threading.RLock()
# Every plugin that was defined, by id.
QDP_REGISTRY: dict[str, PluginDef] = {}


_MADE = "they are made by @rabbet.plugin.register alone"


class PluginDef:
    """A plugin: its register function, and what was added to it.

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
        self.id = plugin_id
        self.namespace, self.name = plugin_id.split("::")
        self.register_function = function
        self.registration = registration
        self.functions: dict[str, dict[str | None, Signature]] = {
            role.decorator: {} for role in (IMPL, AUTOTUNE, AOT_IMPL)
        }
        self._timing_key = timing_key
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
        """Makes it known to the engine, if it is not yet."""
        if self._registered:
            return
        with _lock:
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
        """Takes it away again; layers and plans that use it stay valid."""
        with _lock:
            if self._registered:
                _rabbet.deregister_plugin(self.name, VERSION, self.namespace)
                self._registered = False
            if QDP_REGISTRY.get(self.id) is self:
                del QDP_REGISTRY[self.id]

    # ---- What the engine asks ----

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
            if kind.code == STRING:
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

    def check_input_count(self, count: int, absent: int) -> None:
        """Raises if a layer has another number of inputs."""
        wanted, more = self.registration.input_count(absent)
        if count < wanted or (count > wanted and not more):
            raise DefinitionError(
                f"plugin '{self.id}' takes {wanted}{' or more' if more else ''} inputs "
                f"({self.registration.listed_inputs()}), got {count}"
            )

    def choose(self, what: str, device: str) -> Signature | None:
        """The function for a device: its own, else the one for any."""
        functions = self.functions[what]
        return functions.get(device.partition(":")[0], functions.get(None))

    def missing_impl(self, device: str) -> str:
        """Why there is nothing to run on a device."""
        there = [d for d in self.functions["impl"] if d is not None]
        if self.functions["aot_impl"]:
            return (
                f"plugin '{self.id}' has an aot_impl but no impl for device "
                f"'{device}'; kernels are made ahead of time for 'cuda' alone: define "
                f"@rabbet.plugin.impl('{self.id}') as well"
            )
        known = f" (it has one for {', '.join(there)})" if there else ""
        return (
            f"plugin '{self.id}' (registered by {where(self.register_function)}) has "
            "no "
            f"impl for device '{device}'{known}; define a function decorated "
            f"@rabbet.plugin.impl('{self.id}')"
        )

    def timing_key(self) -> bytes | None:
        """Tells one version of its code from another; None: unknown."""
        if self._timing_key is not None:
            return self._timing_key.encode()
        functions = [self.register_function]
        for signatures in self.functions.values():
            functions += [signature.function for signature in signatures.values()]
        digest = hashlib.sha256()
        for file in sorted({_source_file(function) for function in functions}):
            try:
                with open(file, "rb") as source:
                    digest.update(source.read())
            except OSError:
                return None
        return digest.digest()

    # ---- Use ----

    def __call__(self, *tensors: Any, **attributes: Any) -> Any:
        from ._op import make_call

        return make_call(self, tensors, attributes)

    def __repr__(self) -> str:
        return f"<plugin '{self.id}' from {self.origin}>"


setattr(PluginDef.__init__, "_rabbet_mark", ("refused", _MADE))  # noqa: B010


def _source_file(function: Function) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code.co_filename if code else ""


def _origin(function: Function) -> str:
    """The module's file, or its name where it has none (a notebook, a prompt)."""
    module = sys.modules.get(getattr(function, "__module__", ""), None)
    return getattr(module, "__file__", None) or _source_file(function) or "?"


def _check_id(plugin_id: Any) -> None:
    if not isinstance(plugin_id, str):
        raise DefinitionError(
            f"a plugin's id is a str 'namespace::name', got {plugin_id!r}; decorate "
            "with "
            "@rabbet.plugin.register('namespace::name')"
        )
    namespace, _, name = plugin_id.partition("::")
    if plugin_id.count("::") != 1 or not name or not namespace:
        raise DefinitionError(
            f"plugin id '{plugin_id}': expected 'namespace::name', with one '::'"
        )
    if not namespace.isidentifier() or not name.isidentifier():
        raise DefinitionError(
            f"plugin id '{plugin_id}': namespace and name must be Python names, since "
            "rabbet.plugin.op.NAMESPACE.NAME is how plugins are used"
        )
    if namespace in _RESERVED_NAMESPACES:
        raise DefinitionError(
            f"plugin id '{plugin_id}': the namespace '{namespace}' is reserved; choose "
            "your own"
        )


def _replaceable(old: PluginDef, function: Function) -> bool:
    """Whether a function is the old one again: a module or a cell that runs twice."""
    before = inspect.unwrap(old.register_function)
    return before.__module__ == getattr(
        function, "__module__", None
    ) and before.__qualname__ == getattr(function, "__qualname__", None)


def register(
    plugin_id: str,
    lazy_register: bool = False,
    *,
    timing_key: str | None = None,
    torch: bool = False,
) -> Callable[[F], F]:
    """Defines a plugin by the function that describes its outputs.

    @register("namespace::name")
    def name(x: TensorDesc, size: int) -> TensorDesc: ...

    lazy_register: tell the engine at the first use through rabbet.plugin.op only.
    timing_key: stands for the code's version in timing caches (default: a hash
    of the source file).
    torch: also makes the operator torch.ops.namespace.name, which torch traces, runs
    and exports to ONNX (torch_translations()).
    """
    _check_id(plugin_id)
    options = {"lazy_register": lazy_register, "torch": torch}
    for name, value in options.items():
        options[name] = flag(value, f"@rabbet.plugin.register('{plugin_id}'): {name}")

    def decorate(function: F) -> F:
        names = caller_names()
        registration = check_register(plugin_id, function, names)
        definition = PluginDef(plugin_id, function, registration, timing_key)
        operator = None
        if options["torch"]:
            from ._torch import TorchOperator

            # Before anything is registered: it refuses what torch cannot have.
            operator = TorchOperator(definition)
        with _lock:
            old = QDP_REGISTRY.get(plugin_id)
            if old is not None:
                if not _replaceable(old, function):
                    raise DefinitionError(
                        f"@rabbet.plugin.register('{plugin_id}') on "
                        f"{where(function)}: the id is taken by "
                        f"{where(old.register_function)}"
                    )
                old.deregister()
            if not options["lazy_register"]:
                definition.register()
            QDP_REGISTRY[plugin_id] = definition
        if operator is not None:
            operator.define()
        return function

    return decorate


def _add(
    role: Role, plugin_id: str, device: str | None, capturable: bool | None = None
) -> Callable[[F], F]:
    _check_id(plugin_id)
    if device is not None and device not in DEVICES:
        raise DefinitionError(
            f"@rabbet.plugin.{role.decorator}('{plugin_id}'): device is {device!r}; "
            "it is "
            "'cpu', 'cuda', or left out for any"
        )
    definition = QDP_REGISTRY.get(plugin_id)
    if definition is None:
        raise DefinitionError(
            f"@rabbet.plugin.{role.decorator}('{plugin_id}'): no such plugin is "
            f"registered{near(plugin_id, QDP_REGISTRY)} Decorate the function that "
            f"describes it with @rabbet.plugin.register('{plugin_id}') first"
        )

    def decorate(function: F) -> F:
        signature = check_function(
            role, plugin_id, definition.registration, function, caller_names()
        )
        signature = signature._replace(capturable=capturable)
        definition.functions[role.decorator][device] = signature
        return function

    return decorate


def impl(
    plugin_id: str, *, device: str | None = None, capturable: bool | None = None
) -> Callable[[F], F]:
    """Defines how a plugin is computed, on a device ("cpu", "cuda") or on any.

    @impl("namespace::name")
    def f(x: Tensor, size: int, outputs: tuple[Tensor, ...], stream: int) -> None: ...

    Parameters are recognised by name: every input, those attributes that are
    needed, outputs, and if wanted stream, tactic, threads (CPU threads to use).

    capturable: whether a call may be recorded into a CUDA graph, after which the
    function is not called again until shapes or addresses change. True: it only
    enqueues work on the stream, the same for the same shapes, waits for nothing,
    and frees nothing that the work uses. False: never. Default: it is tried.
    """
    if not (capturable is None or isinstance(capturable, bool)):
        raise DefinitionError(
            f"@rabbet.plugin.impl('{plugin_id}'): capturable is {capturable!r}; it is "
            "True, False, or left out (then it is tried)"
        )
    return _add(IMPL, plugin_id, device, capturable)


def autotune(plugin_id: str, *, device: str | None = None) -> Callable[[F], F]:
    """Defines the types, formats and tactics of a plugin; must be pure.

    @autotune("namespace::name")
    def f(x: TensorDesc, outputs: tuple[TensorDesc, ...]) -> list[AutoTuneCombination]:
    """
    return _add(AUTOTUNE, plugin_id, device)


def aot_impl(plugin_id: str, *, device: str | None = None) -> Callable[[F], F]:
    """Defines how a plugin's kernel is made ahead of time (for CUDA).

    @aot_impl("namespace::name")
    def f(x: TensorDesc, outputs: tuple[TensorDesc, ...], tactic: int)
        -> tuple[str, str, KernelLaunchParams, SymExprs]: ...

    The plan keeps the kernel (PTX, or a cubin) and the expressions of its launch;
    running it needs no Python. A Kernel, or Kernels for several, say more.
    """
    return _add(AOT_IMPL, plugin_id, device)
