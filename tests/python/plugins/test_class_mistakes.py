"""Every mistake in a class has an error that a person can act on."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from tests.python.plugins.class_mistakes import MISTAKES
from tests.python.project.test_docs import ROOT, _matches


@pytest.mark.parametrize(
    ("make", "expected"),
    MISTAKES,
    ids=[f"{i}-{make.__name__.strip('<>')}" for i, (make, _) in enumerate(MISTAKES)],
)
def test_mistake(make: Callable[[], Any], expected: str) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        make()
    text = "".join(traceback.format_exception_only(caught.value))
    assert re.search(expected, text), text


def test_the_documented_errors_are_those_that_come() -> None:
    text = (ROOT / "docs/class_plugins.md").read_text().split("## Mistakes in classes")[1]
    documented = re.findall(r"^\| .*? \| `(.*?)` \|$", text, re.M)
    errors = []
    for make, _ in MISTAKES:
        with pytest.raises(Exception) as caught:  # noqa: PT011
            make()
        errors.append(str(caught.value))
    assert len(documented) > 15
    unknown = [m for m in documented if not any(_matches(m, e) for e in errors)]
    assert not unknown
