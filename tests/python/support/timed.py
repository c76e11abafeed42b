"""Builds until all times are known: on a busy machine some are in doubt, and the next
builds measure those again, until three were."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

Built = TypeVar("Built")


def doubtful(report: str | None) -> int:
    """How many times of a build with this report (JSON) were in doubt."""
    assert report is not None
    return int(json.loads(report)["doubtful"])


def build_until_sure(
    build: Callable[[], Built], doubts: Callable[[Built], int]
) -> tuple[Built, Built]:
    """The results of the first build and of one whose times are all in its cache."""
    first = last = build()
    for _ in range(50):
        if doubts(last) == 0:
            return first, last
        last = build()
    pytest.skip("the machine is too busy: 50 builds were not sure of all times")


def fill_cache(builder: Any, network: Any, config: Any) -> Any:
    """The plan of a build whose times are all in the configuration's cache."""
    return build_until_sure(
        lambda: builder.build_serialized_network(network, config),
        lambda _: doubtful(builder.report_json),
    )[1]
