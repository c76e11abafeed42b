"""Every mistake in a class has an error that a person can act on."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from .class_mistakes import MISTAKES


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
