"""Each public name of the package has a docstring. (ruff's rules pass over modules whose
names begin with an underscore, where all of these are defined.)"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

import pytest
import rabbet
import rabbet.plugin


def members(cls: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties that a class itself defines."""
    for name, value in vars(cls).items():
        kinds = (staticmethod, classmethod, property, FunctionType)
        if isinstance(value, kinds) and not name.startswith("_"):
            yield name, getattr(cls, name)


def undocumented(module: ModuleType) -> Iterator[str]:
    for name, value in vars(module).items():
        if name.startswith("_") or not callable(value):
            continue
        if not str(getattr(value, "__module__", "")).startswith("rabbet"):
            continue
        if not value.__doc__:
            yield name
        if inspect.isclass(value):
            yield from (f"{name}.{n}" for n, v in members(value) if not inspect.getdoc(v))


@pytest.mark.parametrize("module", [rabbet, rabbet.plugin], ids=lambda m: m.__name__)
def test_public_names_are_documented(module: ModuleType) -> None:
    assert not list(undocumented(module))


def test_the_check_finds_what_is_missing() -> None:
    module = ModuleType("module")

    class Bare:
        def method(self) -> None:
            pass

    Bare.__module__ = "rabbet._bare"
    module.Bare = Bare  # type: ignore[attr-defined]
    assert list(undocumented(module)) == ["Bare", "Bare.method"]
