"""Loads plugin files and libraries."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from . import _rabbet
from ._errors import InvalidArgumentError, IoError, NotFoundError, PluginError

# Library path -> nothing more to do; file path -> (hash of its source, module).
_libraries: set[str] = set()
_files: dict[str, tuple[bytes, ModuleType]] = {}
# Path -> lock held while it is loaded; other threads that request it wait. One lock for
# each path, as a file's imports may load others.
_locks: dict[str, Any] = {}


def _lock(path: str) -> Any:
    return _locks.setdefault(path, threading.RLock())


def _module_name(path: Path) -> str:
    """A stable module name: the file's, with its folder's if another file has that
    name."""
    import hashlib

    name = f"rabbet_plugins.{path.stem}"
    taken = sys.modules.get(name)
    if taken is not None and getattr(taken, "__file__", None) != str(path):
        name += "_" + hashlib.sha256(str(path).encode()).hexdigest()[:8]
    return name


def _parent() -> None:
    if "rabbet_plugins" not in sys.modules:
        parent = ModuleType("rabbet_plugins", "Plugin files that were loaded by path.")
        parent.__path__ = []
        sys.modules["rabbet_plugins"] = parent


def _already_imported(path: Path) -> ModuleType | None:
    """Module of a file that a script has imported itself."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and Path(file).suffix == ".py" and os.path.realpath(file) == str(path):
            return module
    return None


class _SourceLoader(importlib.machinery.SourceFileLoader):
    """Loads source without a bytecode cache, which misses a file rewritten within a
    second with the same size."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


@contextmanager
def may_not_exit(what: str) -> Iterator[None]:
    """Turns SystemExit in a plugin's code into an error: it must not end the program."""
    try:
        yield
    except SystemExit as error:
        raise PluginError(
            f"{what} ends the program when it is loaded (SystemExit, code "
            f"{error.code!r}); code that is run as a script belongs under "
            "if __name__ == '__main__'"
        ) from error


def load_file(file: str | os.PathLike[str]) -> ModuleType:
    """Imports a plugin file, again only if it has changed."""
    path = Path(os.path.realpath(file))
    if not path.exists():
        raise NotFoundError(f"plugin file '{file}' does not exist")
    if not path.is_file():
        raise IoError(f"plugin file '{file}': it is a folder, pipe or device")
    with _lock(str(path)):
        return _load_file(file, path)


def _load_file(file: str | os.PathLike[str], path: Path) -> ModuleType:
    import hashlib

    digest = hashlib.sha256(path.read_bytes()).digest()
    known = _files.get(str(path))
    if known is not None and known[0] == digest:
        return known[1]
    module = _already_imported(path) if known is None else None
    if module is None:
        _parent()
        name = _module_name(path)
        loader = _SourceLoader(name, str(path))
        spec = importlib.util.spec_from_file_location(name, path, loader=loader)
        if path.suffix != ".py" or spec is None:
            raise InvalidArgumentError(
                f"plugin file '{file}': expected a Python file (.py) or a library (.so)"
            )
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            with may_not_exit(f"the plugin file '{file}'"):
                loader.exec_module(module)
        except BaseException as error:
            del sys.modules[name]
            error.add_note(f"while loading the plugin file '{file}'")
            raise
    _files[str(path)] = (digest, module)
    return module


def _import(name: str) -> None:
    if not name:
        raise InvalidArgumentError("plugins: '' is neither a file nor a module's name")
    try:
        with may_not_exit(f"the plugin module '{name}'"):
            importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == name.partition(".")[0]:
            error.add_note(
                f"plugins: '{name}' was taken for a module's name; files end in .py or .so"
            )
        raise


def load_library(path: str) -> None:
    """Loads a plugin library, once."""
    with _lock(path):
        if path not in _libraries:
            _rabbet.load_plugin_library(path)
            _libraries.add(path)


def forget_library(path: str) -> None:
    """Forgets a library whose plugins are deregistered, so that loading it registers
    them again."""
    _libraries.discard(path)


def items_of(plugins: Any) -> Iterable[Any]:
    """The items of plugins=; TypeError for what it does not take."""
    if plugins is None:
        return []
    single = isinstance(plugins, (str, os.PathLike, ModuleType))
    items: Iterable[Any] = [plugins] if single else plugins
    if not single and not isinstance(plugins, (list, tuple, set, frozenset)):
        raise TypeError(
            f"plugins: expected files (.py, .so), module names or modules, got {plugins!r}"
        )
    for item in items:
        if not isinstance(item, (str, os.PathLike, ModuleType)):
            raise TypeError(
                "plugins: expected files (.py, .so), module names or modules, got "
                f"{item!r}"
            )
    return items


def library_paths(plugins: Any) -> list[str]:
    """Paths of the libraries in `plugins=`."""
    names = [os.fspath(i) for i in items_of(plugins) if not isinstance(i, ModuleType)]
    return [name for name in names if name.endswith(".so")]


def load_plugins(plugins: Any) -> None:
    """Loads the plugins that `plugins=` names: files (.py, .so), module names, modules."""
    for item in items_of(plugins):
        if isinstance(item, ModuleType):
            continue
        text = os.fspath(item)
        if text.endswith(".so"):
            load_library(os.path.realpath(text))
        elif text.endswith(".py") or os.sep in text:
            load_file(text)
        else:
            _import(text)
