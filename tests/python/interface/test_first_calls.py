"""First calls of functions with checks are interpreted, later ones compiled: both treat arguments
alike."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import pytest
from rabbet import _checked as checked

CALLS = checked._INTERPRETED + 3


class Color(enum.Enum):
    RED = 1


def plain(
    count: int,
    shape: checked.Shape = (1, 2),
    *,
    scale: float | None = None,
    color: Color = Color.RED,
    on: bool = False,
    other: Any = None,
) -> tuple[Any, ...]:
    return count, tuple(shape), type(shape).__name__, scale, color, on, other


class Owner:
    def __init__(self) -> None:
        self._size = 0

    def method(self, name: str, count: int = 1) -> str:
        return name * count

    @property
    def size(self) -> int:
        return self._size

    @size.setter
    def size(self, value: int) -> None:
        self._size = value

    @staticmethod
    def alone(count: int) -> int:
        return count


CASES: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((1,), {}),
    ((1, [3, 4]), {}),
    ((1,), {"shape": (5,), "scale": 2, "on": True}),
    ((), {"count": 3, "color": Color.RED, "other": "x"}),
    (("one",), {}),
    ((1,), {"scale": "x"}),
    ((1,), {"color": 7}),
    ((1,), {"on": "yes"}),
    ((1, (1,), 3), {}),
    ((), {}),
    ((1,), {"count": 2}),
    ((1,), {"unknown": 2}),
]


def outcome(call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        return call(*args, **kwargs)
    except (TypeError, ValueError) as error:
        return type(error), str(error)


@pytest.mark.parametrize(("args", "kwargs"), CASES)
def test_calls(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    compiled = checked._with_checks(plain, "plain", False, False)
    expected = outcome(compiled, args, kwargs)
    call = checked.checks_arguments(plain)
    assert [outcome(call, args, kwargs) for _ in range(CALLS)] == [expected] * CALLS


def test_classes() -> None:
    owner = checked.checks_arguments(Owner)()
    for _ in range(CALLS):
        assert owner.method("ab", count=2) == "abab"
        with pytest.raises(TypeError, match=r"Owner\.method: count: "):
            owner.method("ab", "2")  # type: ignore[arg-type]
        owner.size = 5
        with pytest.raises(TypeError, match=r"Owner\.size: "):
            owner.size = "5"  # type: ignore[assignment]
        assert owner.size == 5
        assert owner.alone(4) == 4
