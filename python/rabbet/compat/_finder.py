"""Finders by which the import system and importlib.metadata find the alias."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable
from importlib import metadata
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from ._release import METADATA, NAME

_PLUGIN = NAME + ".plugin"
_ANY = metadata.DistributionFinder.Context()


class _Loader(Loader):
    """Loads a module that exists already, under another name."""

    def __init__(self, find: Callable[[], ModuleType]) -> None:
        self._find = find
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Returns the existing module. The import system then sets its __spec__ to the
        alias's."""
        module = self._find()
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restores the module's own __spec__. Its code has run already."""
        module.__spec__ = self._spec


class _Distribution(metadata.Distribution):
    """The distribution that importlib.metadata finds for the alias."""

    _texts = {"METADATA": METADATA, "top_level.txt": NAME + "\n"}  # noqa: RUF012

    def read_text(self, filename: str) -> str | None:
        """A file of the distribution."""
        return self._texts.get(filename)

    def locate_file(self, path: Any) -> Path:
        """The path of a file of the distribution."""
        return Path(__file__).parent / path


class AliasFinder(MetaPathFinder):
    """Finds the module tensorrt, and rabbet.plugin's modules as tensorrt.plugin's."""

    def __init__(self, module: Callable[[], ModuleType]) -> None:
        self._module = module

    def find_spec(
        self, fullname: str, path: Any = None, target: Any = None
    ) -> ModuleSpec | None:
        """The spec of a module of the alias."""
        if fullname in (NAME, f"{NAME}.{NAME}"):
            return alias_spec(fullname, self._module)
        if fullname != _PLUGIN and not fullname.startswith(_PLUGIN + "."):
            return None
        actual = "rabbet" + fullname.removeprefix(NAME)
        if importlib.util.find_spec(actual) is None:
            return None
        return alias_spec(fullname, lambda: importlib.import_module(actual))

    def find_distributions(
        self, context: metadata.DistributionFinder.Context = _ANY
    ) -> Iterable[metadata.Distribution]:
        """The alias's distribution, if the context names it or no distribution."""
        if context.name is None or context.name.lower() == NAME:
            yield _Distribution()


def alias_spec(fullname: str, find: Callable[[], ModuleType]) -> ModuleSpec:
    """The spec of a module that `find` returns."""
    spec = ModuleSpec(
        fullname, _Loader(find), origin=__file__, is_package=fullname == NAME
    )
    spec.has_location = True
    return spec


def add_finder(module: Callable[[], ModuleType]) -> None:
    """Makes the alias importable; later calls do nothing. Its finder comes first: others
    may find an installed stub."""
    if not any(isinstance(finder, AliasFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, AliasFinder(module))
