"""rabbet.serving.ray: Ray Serve over HTTP and by handle, and Ray Data."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import rabbet

from .conftest import OPERATOR, WEIGHTS, images, rows, wrapped

ray = pytest.importorskip("ray")
pytest.importorskip("ray.serve")
PORT = 18731


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.init(
        num_cpus=4, include_dashboard=False, logging_level="ERROR", log_to_driver=False,
        object_store_memory=200 << 20,
    )  # fmt: skip
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def handles(cluster: None, product: str, padded: str) -> Iterator[dict[str, Any]]:
    from rabbet.serving.ray import Deployment
    from ray import serve

    serve.start(http_options={"host": "127.0.0.1", "port": PORT})
    one = Deployment.options(num_replicas=2, ray_actor_options={"num_cpus": 0.5})
    two = Deployment.options(ray_actor_options={"num_cpus": 0.5})
    yield {
        "product": serve.run(one.bind(product, 8, 0.01, device="cpu"), name="a"),
        "padded": serve.run(
            two.bind(padded, plugins=[str(OPERATOR)]), name="b", route_prefix="/padded"
        ),
    }
    serve.shutdown()


def post(path: str, body: Any) -> tuple[int, Any]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{PORT}{path}", json.dumps(body).encode()
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_http(handles: dict[str, Any]) -> None:
    x = rows(3)
    code, answer = post("/", {"x": x.tolist()})
    assert code == 200, answer
    np.testing.assert_allclose(answer["y"], x @ WEIGHTS, rtol=1e-5, atol=1e-5)
    code, answer = post("/padded", {"x": images(2).tolist()})
    assert code == 200, answer
    np.testing.assert_array_equal(np.array(answer["y"], np.float32), wrapped(images(2)))


@pytest.mark.parametrize("bad", [{}, [1], {"z": 1}, {"x": "abc"}, {"x": [[1, 2]]}])
def test_errors_over_http(handles: dict[str, Any], bad: Any) -> None:
    code, answer = post("/", bad)
    assert code == 400, answer
    assert answer["error"]


def test_requests_run_together(handles: dict[str, Any]) -> None:
    """And one that fails leaves the others alone."""
    x = rows(20)
    bad = handles["product"].predict.remote({"x": x[:1, :5]})
    futures = [handles["product"].predict.remote({"x": x[i : i + 1]}) for i in range(20)]
    for i, future in enumerate(futures):
        np.testing.assert_allclose(
            future.result(timeout_s=60)["y"], x[i : i + 1] @ WEIGHTS, rtol=1e-5, atol=1e-5
        )
    with pytest.raises(Exception, match="x"):
        bad.result(timeout_s=60)


def test_data(cluster: None, product: str, padded: str) -> None:
    from rabbet.serving.ray import Predictor

    model, x = rabbet.load(product, device="cpu"), rows(100)
    source = ray.data.from_items([{"x": row, "key": i} for i, row in enumerate(x)])
    by_actors = source.map_batches(
        Predictor, fn_constructor_args=(product, ["key"]), fn_constructor_kwargs={"device": "cpu"},
        concurrency=2, batch_size=16,
    )  # fmt: skip
    found = sorted(by_actors.take_all(), key=lambda row: row["key"])
    assert [row["key"] for row in found] == list(range(100))
    np.testing.assert_allclose([r["y"] for r in found], x @ WEIGHTS, rtol=1e-5, atol=1e-5)
    # The model as it is, by content and by path. Blocks arrive read-only.
    total = (x @ WEIGHTS).sum(axis=0)
    for each in (model, model.by_path()):
        y = source.select_columns(["x"]).map_batches(each.run, batch_size=16).take_all()
        np.testing.assert_allclose(sum(r["y"] for r in y), total, rtol=1e-3, atol=1e-3)
    pad = rabbet.load(padded, plugins=[OPERATOR])
    y = ray.data.from_numpy(images(8)).rename_columns({"data": "x"})
    y = y.map_batches(pad.run, batch_size=8).take_all()
    np.testing.assert_array_equal(np.array([r["y"] for r in y]), wrapped(images(8)))


def test_columns_that_are_missing(product: str) -> None:
    from rabbet.serving.ray import Predictor

    with pytest.raises(rabbet.InvalidArgumentError, match=r"lacks the columns key, x; it has z"):
        Predictor(product, ["key"], device="cpu")({"z": rows(2)})
