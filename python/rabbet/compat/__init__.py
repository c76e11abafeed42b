"""Scripts written for TensorRT, unchanged: `import tensorrt` gives Rabbet.

    python -m rabbet.compat script.py ...

or, in a program of one's own, before anything imports tensorrt:

    import rabbet.compat
    rabbet.compat.install()

`python -m rabbet.compat --install` makes it importable in all processes of an
environment.

Under this name failures take the form that such scripts expect: a line in the log, and
None or False as the result. docs/reference/names.md lists every name.
"""

from __future__ import annotations

import sys
import threading
from types import ModuleType

import rabbet
import rabbet.plugin

from ._cudart import offer_runtime_library
from ._finder import add_finder, alias_spec
from ._front import (
    Logger,
    front_classes,
    get_builder_plugin_registry,
    get_plugin_registry,
)
from ._release import NAME, TENSORRT, VERSION

__all__ = ["TENSORRT", "install", "module"]

_module: ModuleType | None = None
_lock = threading.Lock()


def _make() -> ModuleType:
    made = ModuleType(NAME, __doc__)
    spec = alias_spec(NAME, module)
    # As the import system would have it: a package.
    made.__spec__, made.__loader__, made.__file__ = spec, spec.loader, __file__
    made.__package__, made.__path__ = NAME, []
    for name in rabbet.__all__:
        setattr(made, name, getattr(rabbet, name))
    for name, kind in front_classes().items():
        setattr(made, name, kind)
    made.Logger = Logger  # type: ignore[attr-defined]
    made.get_plugin_registry = get_plugin_registry  # type: ignore[attr-defined]
    made.get_builder_plugin_registry = get_builder_plugin_registry  # type: ignore[attr-defined]
    made.plugin = rabbet.plugin  # type: ignore[attr-defined]
    made.tensorrt = made  # type: ignore[attr-defined]  # there, the native module
    made.__version__ = VERSION  # type: ignore[attr-defined]
    return made


def module() -> ModuleType:
    """The module, without making it importable."""
    global _module
    with _lock:
        if _module is None:
            _module = _make()
        return _module


def _modules() -> dict[str, ModuleType]:
    """The modules that `import` finds under each name."""
    found = {"tensorrt": module(), "tensorrt.tensorrt": module()}
    for name, loaded in list(sys.modules.items()):
        if name == "rabbet.plugin" or name.startswith("rabbet.plugin."):
            found["tensorrt" + name.removeprefix("rabbet")] = loaded
    return found


def install() -> ModuleType:
    """Makes `import tensorrt` give this, for the rest of the process; again is fine."""
    there = sys.modules.get(NAME)
    is_stub = getattr(there, "__rabbet_stub__", False)
    if there is not None and there is not module() and not is_stub:
        raise rabbet.FailedPreconditionError(
            "another module 'tensorrt' is imported already "
            f"({getattr(there, '__file__', None) or there}): call "
            "rabbet.compat.install() before anything imports it"
        )
    sys.modules.update(_modules())
    add_finder(module)
    offer_runtime_library()
    return module()
