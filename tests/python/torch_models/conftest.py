"""torch.export looks at all registered operators, some 50 times for each model: a third of
a second, which is most of what small models take."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def _operators_are_listed_once() -> Iterator[None]:
    """Until one is registered."""
    torch = pytest.importorskip("torch")
    utils = torch._export.utils
    listed = torch._C._dispatch_get_registrations_for_dispatch_key
    names = utils._materialize_cpp_cia_ops
    seen = 0

    def once() -> None:
        nonlocal seen
        count = len(listed("CompositeImplicitAutograd"))
        if count != seen:
            names()
        seen = count

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utils, "_materialize_cpp_cia_ops", once)
        yield
