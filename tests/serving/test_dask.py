"""Models in Dask: two worker processes, by content and by path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import rabbet

from .conftest import OPERATOR, WEIGHTS, images, rows, wrapped

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
    ) as cluster, distributed.Client(cluster) as client:  # fmt: skip
        yield client


@pytest.mark.parametrize("by_path", [False, True])
def test_map(client: Any, product: str, by_path: bool) -> None:
    model = rabbet.load(product, device="cpu")
    parts = [rows(count) for count in (1, 5, 16, 7, 2, 9)]
    futures = client.map(model.by_path() if by_path else model, parts, pure=False)
    for x, y in zip(parts, client.gather(futures), strict=True):
        np.testing.assert_allclose(y, x @ WEIGHTS, rtol=1e-5, atol=1e-5)
    with pytest.raises(rabbet.OutOfRangeError):
        client.submit(model, rows(17)).result()


def test_an_operator_in_python(client: Any, padded: str) -> None:
    model = rabbet.load(padded, plugins=[OPERATOR])
    futures = client.map(model, [images(count) for count in (1, 2, 3)])
    for count, y in zip((1, 2, 3), client.gather(futures), strict=True):
        np.testing.assert_array_equal(y, wrapped(images(count)))


def test_workers_map_the_same_file(client: Any, product: str) -> None:
    """A plan that arrives by content is one file for all of them."""
    model = rabbet.load(product, device="cpu")

    def mapped(model: Any) -> set[tuple[str, str]]:
        with open("/proc/self/maps") as maps:
            return {
                (line.split()[4], line.split()[5])
                for line in maps
                if line.rstrip().endswith(".plan") and "/rabbet/plans/" in line
            }

    found = client.run(mapped, model)
    assert len(found) == 2
    shared = set.intersection(*found.values())
    assert shared, found
