"""torch.export asks for all registered operators of C++ some 50 times for each model: a third
of a second, which is more than small models take."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def _operators_are_listed_once() -> Iterator[None]:
    """Until another one is registered. A torch without the function is left as it is."""
    torch = pytest.importorskip("torch")
    utils = importlib.import_module("torch._export.utils")
    name, listed = "_materialize_cpp_cia_ops", 0
    materialize = getattr(utils, name, None)

    def once() -> None:
        nonlocal listed
        count = len(
            torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd")
        )
        if count != listed:
            materialize()
        listed = count

    with pytest.MonkeyPatch.context() as patch:
        if materialize is not None:
            patch.setattr(utils, name, once)
        yield
