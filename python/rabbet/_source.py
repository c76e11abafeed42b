"""Source of plugins in plans: collecting it in a build, and running it.

C calls `collect` when a plan is to carry the source of its plugins, and `run` when a
loaded plan needs plugins that are not registered and its source may run.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import linecache
import pkgutil
import sys
import threading
from collections.abc import Iterable, Sequence
from types import CodeType, ModuleType
from typing import Any, NamedTuple

from . import _rabbet
from ._errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    UnsupportedError,
)
from ._plugin_base import CLASSES, DECORATED, Key, find_class, find_decorated
from ._plugins import load_plugins, may_not_exit

# Modules that carried modules may import without carrying them.
_OURS = {"rabbet", "tensorrt"}
# Files that are loaded by path (_plugins.py) are modules of this package.
_BY_PATH = "rabbet_plugins."
# Modules of loaded plans are in this package, with a subpackage for each set of them.
_ROOT = "rabbet_plans"


class Module(NamedTuple):
    """A module that a plan carries."""

    name: str
    data: bytes
    is_package: bool
    requirements: list[str]


# ---- Reading modules ----


def _spec(name: str) -> importlib.machinery.ModuleSpec | None:
    module = sys.modules.get(name)
    if module is not None:
        return getattr(module, "__spec__", None)
    try:
        return importlib.util.find_spec(name)
    except (ImportError, AttributeError, ValueError):
        return None


def _is_namespace(spec: importlib.machinery.ModuleSpec) -> bool:
    return spec.submodule_search_locations is not None and not spec.has_location


def _read(name: str, why: str) -> tuple[bytes, bool]:
    """Source of a module, and whether it is a package."""
    spec = _spec(name)
    if name == "__main__":
        raise UnsupportedError(
            f"{why} defined in the script that is run: its source cannot be carried, as "
            "loading the plan would run all of the script; put it in a module of its own"
        )
    if spec is None or spec.loader is None:
        raise UnsupportedError(
            f"{why} defined in '{name}', of which no source is known (a prompt, a "
            "notebook, exec): put it in a module of its own"
        )
    loader: Any = spec.loader
    data = None
    try:
        if spec.origin and hasattr(loader, "get_data") and spec.origin.endswith(".py"):
            data = loader.get_data(spec.origin)
        elif hasattr(loader, "get_source"):
            text = loader.get_source(name)
            data = None if text is None else text.encode()
    except (OSError, ImportError, SyntaxError) as error:
        error.add_note(f"{why} defined in '{name}', whose source cannot be read")
        raise
    if data is None:
        raise UnsupportedError(
            f"{why} defined in '{name}', which is not Python source but "
            f"{spec.origin}: that cannot be carried"
        )
    return data, spec.submodule_search_locations is not None


def _inside(name: str) -> Iterable[str]:
    """A package's modules, at any depth."""
    spec = _spec(name)
    for info in pkgutil.iter_modules(spec.submodule_search_locations if spec else None):
        inner = f"{name}.{info.name}"
        if info.name == "__main__":
            continue
        yield inner
        if info.ispkg:
            yield from _inside(inner)


class _Collection:
    """Modules that a plan is to carry, by their names here."""

    def __init__(self) -> None:
        self.modules: dict[str, tuple[bytes, bool]] = {}

    def add(self, name: str, why: str) -> None:
        """Adds a module and the packages that contain it, which importing it runs. `why`
        begins the messages of errors."""
        if name in self.modules:
            return
        found = _read(name, why)
        parent = name.rpartition(".")[0]
        if parent and parent + "." != _BY_PATH:
            spec = _spec(parent)
            if spec is None or not _is_namespace(spec):
                self.add(parent, why)
        self.modules[name] = found

    def add_named(self, name: str) -> None:
        """Adds a module of `source_modules`; for a package, also all modules in it."""
        spec = _spec(name)
        if spec is None:
            raise NotFoundError(f"source_modules: there is no module '{name}'")
        why = f"source_modules: '{name}' is"
        if not _is_namespace(spec):
            self.add(name, why)
        if spec.submodule_search_locations is not None:
            for inner in _inside(name):
                self.add(inner, why)


# ---- Imports of modules ----


def _imports(name: str, data: bytes, is_package: bool) -> Iterable[str]:
    """Names that a module's source imports. With `from a import b`, `a.b` is among them:
    b may be a module."""
    package = name if is_package else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(data)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                parts = parts[: len(parts) - node.level + 1]
                base = ".".join([*parts, base] if base else parts)
            if base:
                yield base
                yield from (f"{base}.{alias.name}" for alias in node.names)


class _Dependencies:
    """Imports of carried modules: carried too, of a distribution, or missing."""

    def __init__(self, carried: set[str]) -> None:
        self.carried = carried
        self.tops = {name.partition(".")[0] for name in carried}
        self.packages = importlib.metadata.packages_distributions()

    def distribution(self, top: str) -> str | None:
        """'numpy 2.1.0' for the module numpy."""
        for name in self.packages.get(top, ()):
            return f"{name} {importlib.metadata.version(name)}"
        return None

    def judge(self, name: str) -> tuple[str | None, str | None]:
        """(the distribution that an imported module belongs to, or None; the module that
        the plan lacks, or None)"""
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or top in _OURS or name in self.carried:
            return None, None
        found = self.distribution(top)
        if found is not None and top not in self.tops:
            return found, None
        # In `from a import b`, b need not be a module. A module that does not exist here
        # either is optional: the code that imports it ran without it.
        if top in self.tops:
            return None, name if _spec(name) is not None else None
        return None, top if _spec(top) is not None else None


def _with_requirements(modules: dict[str, tuple[bytes, bool]]) -> list[Module]:
    dependencies = _Dependencies(set(modules))
    made, missing = [], []
    for name, (data, is_package) in modules.items():
        needed = set()
        for imported in _imports(name, data, is_package):
            distribution, absent = dependencies.judge(imported)
            if distribution is not None:
                needed.add(distribution)
            if absent is not None:
                missing.append((absent, name))
        carried_name = name.removeprefix(_BY_PATH)
        made.append(Module(carried_name, data, is_package, sorted(needed)))
    if missing:
        lines = [f"'{absent}' (imported by '{name}')" for absent, name in missing]
        raise InvalidArgumentError(
            "modules that no installed distribution has, and that the plan does not "
            f"carry: {', '.join(dict.fromkeys(lines))}; name them in "
            "IBuilderConfig.source_modules, or install them as packages where the plan "
            "is built and loaded"
        )
    return made


# ---- Of plugins ----


def _modules_of(key: Key) -> list[str]:
    """Names of the modules that define a plugin's functions, or its creator's class."""
    decorated = find_decorated(key)
    if decorated is not None:
        return [function.__module__ for function in decorated.all_functions()]
    definition = find_class(*key)
    return [] if definition is None else [type(definition.creator).__module__]


def collect(keys: Sequence[Key], named: Sequence[str]) -> list[Module]:
    """The modules that define plugins, and the named ones."""
    collection = _Collection()
    for key in keys:
        name, _, namespace = key
        for module in _modules_of(key):
            if module.partition(".")[0] == _ROOT:
                _add_carried(module, collection)
            else:
                collection.add(module, f"plugin '{namespace}::{name}' is")
    for module in named:
        collection.add_named(module)
    return _with_requirements(collection.modules)


# ---- Running ----

_lock = threading.RLock()
_running: set[str] = set()  # prefixes of plans whose modules are being imported


class _Loader(importlib.abc.InspectLoader):
    """Loads the modules of one plan, under names that no other code has."""

    def __init__(self, prefix: str, modules: dict[str, Module]) -> None:
        self.prefix, self.modules = prefix, modules
        self.tops = {name.partition(".")[0] for name in modules}
        # Carried modules import each other by the names that they had in the build.
        self.builtins = dict(vars(builtins))
        self.builtins["__import__"] = self._import

    def _import(
        self,
        name: str,
        globals: Any = None,
        locals: Any = None,
        fromlist: Any = (),
        level: int = 0,
    ) -> ModuleType:
        if level or name.partition(".")[0] not in self.tops:
            return builtins.__import__(name, globals, locals, fromlist, level)
        if fromlist:
            return builtins.__import__(self.prefix + name, globals, locals, fromlist, 0)
        importlib.import_module(self.prefix + name)
        return sys.modules[self.prefix + name.partition(".")[0]]  # `import a.b` binds a

    def _module(self, fullname: str) -> Module:
        return self.modules[fullname.removeprefix(self.prefix)]

    def path(self, fullname: str) -> str:
        """The file name in tracebacks."""
        module = self._module(fullname)
        parts = module.name.split(".") + ["__init__"] * module.is_package
        return f"plan:{self.prefix.split('.')[1]}/{'/'.join(parts)}.py"

    def is_package(self, fullname: str) -> bool:
        """Whether it is a package."""
        return self._module(fullname).is_package

    def get_source(self, fullname: str) -> str:
        """The source text: tracebacks show it, and libraries such as Triton compile it."""
        return importlib.util.decode_source(self._module(fullname).data)

    def get_code(self, fullname: str) -> CodeType:
        """The compiled code."""
        return compile(
            self._module(fullname).data, self.path(fullname), "exec", dont_inherit=True
        )

    def exec_module(self, module: ModuleType) -> None:
        """Runs the module's code."""
        name = module.__name__
        vars(module)["__builtins__"] = self.builtins
        lines = self.get_source(name).splitlines(keepends=True)
        path = self.path(name)
        linecache.cache[path] = (sum(map(len, lines)), None, lines, path)
        try:
            exec(self.get_code(name), vars(module))
        except Exception as error:
            self._explain(name, error)
            raise

    def _explain(self, fullname: str, error: Exception) -> None:
        module = self._module(fullname)
        note = f"while running the module '{module.name}' that the plan carries"
        if module.requirements:
            note += f"; it was built with {', '.join(module.requirements)}"
        if isinstance(error, NameError) and error.name == "__file__":
            note += ". It is in no file, and files beside its own are not carried"
        error.add_note(note)

    def find_spec(
        self, fullname: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        """For sys.meta_path."""
        if not fullname.startswith(self.prefix):
            return None
        if fullname.removeprefix(self.prefix) not in self.modules:
            return None
        return importlib.machinery.ModuleSpec(
            fullname,
            self,
            origin=self.path(fullname),
            is_package=self.is_package(fullname),
        )


def _digest(modules: Iterable[Module]) -> str:
    import hashlib

    digest = hashlib.sha256()
    for module in modules:
        for part in (module.name.encode(), module.data):
            digest.update(len(part).to_bytes(8, "little") + part)
    return "p" + digest.hexdigest()[:12]


def _package(name: str) -> None:
    if name not in sys.modules:
        package = ModuleType(name, "Modules that plans carry.")
        package.__path__ = []
        sys.modules[name] = package


def run(modules: Sequence[tuple[str, bytes, bool, list[str]]]) -> None:
    """Imports the modules of a plan, under names of their own."""
    table = {m.name: m for m in (Module(*fields) for fields in modules)}
    digest = _digest(table.values())
    prefix = f"{_ROOT}.{digest}."
    for name in list(table):
        while name := name.rpartition(".")[0]:  # packages without an __init__
            table.setdefault(name, Module(name, b"", True, []))
    loader = _Loader(prefix, table)
    with _lock:
        if prefix in _running:
            raise FailedPreconditionError(
                "the source that a plan carries (module "
                f"{', '.join(repr(name) for name in table)}) loads that plan itself"
            )
        _package(_ROOT)
        _package(prefix.rstrip("."))
        for known in [name for name in sys.modules if name.startswith(prefix)]:
            del sys.modules[known]  # of an earlier load, whose plugins were deregistered
        sys.meta_path[:] = [
            finder
            for finder in sys.meta_path
            if not (isinstance(finder, _Loader) and finder.prefix == prefix)
        ]
        sys.meta_path.append(loader)  # for imports inside of functions, too
        _running.add(prefix)
        try:
            for name in table:
                with may_not_exit(f"the plan's source (module '{name}')"):
                    importlib.import_module(prefix + name)
        except BaseException:
            sys.meta_path.remove(loader)
            for known in [name for name in sys.modules if name.startswith(prefix)]:
                del sys.modules[known]
            raise
        finally:
            _running.discard(prefix)


def _add_carried(fullname: str, collection: _Collection) -> None:
    """Adds all modules of the plan that the module came from, if it came from one."""
    loader = getattr(getattr(sys.modules.get(fullname), "__spec__", None), "loader", None)
    if isinstance(loader, _Loader):
        for module in loader.modules.values():
            collection.modules[module.name] = (module.data, module.is_package)


# ---- In a C program that has started Python (rabbet/pyhost.h) ----


def load(plugins: list[str]) -> None:
    """Loads plugins from files and modules, as `plugins=` of rabbet.compile does."""
    load_plugins(plugins)


def close() -> None:
    """Deregisters all plugins before the interpreter ends, so that C finds none of them."""
    for decorated in list(DECORATED.values()):
        decorated.deregister()
    for key in list(CLASSES):
        _rabbet.deregister_plugin(*key)
        del CLASSES[key]
