"""The decorators that define plugins."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from .._flags import flag
from ._definition import (
    AOT_IMPL,
    AUTOTUNE,
    IMPL,
    DefinitionError,
    Function,
    Role,
    caller_names,
    check_function,
    check_register,
    near,
    where,
)
from ._plugin import LOCK, QDP_REGISTRY, PluginDef
from ._torch import TorchOperator

F = TypeVar("F", bound=Callable[..., Any])

DEVICES = ("cpu", "cuda")
_RESERVED_NAMESPACES = ("", "trt", "tensorrt", "std", "rabbet")


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
    """Whether the function redefines the old one, as when a module is reloaded or a
    notebook's cell runs again."""
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

    lazy_register: registers the plugin with the engine only at its first use through
    rabbet.plugin.op.
    timing_key: identifies the code's version in timing caches (default: a hash of the
    source file).
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
            # Raises before anything is registered if torch cannot express the plugin.
            operator = TorchOperator(definition)
        with LOCK:
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
    """Defines how a plugin's kernel is compiled ahead of time (for CUDA).

    @aot_impl("namespace::name")
    def f(x: TensorDesc, outputs: tuple[TensorDesc, ...], tactic: int)
        -> tuple[str, str, KernelLaunchParams, SymExprs]: ...

    The plan keeps the kernel (PTX, or a cubin) and the expressions of its launch;
    running it needs no Python. Returning a Kernel, or Kernels for several, allows more
    settings.
    """
    return _add(AOT_IMPL, plugin_id, device)
