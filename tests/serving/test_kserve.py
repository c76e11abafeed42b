"""rabbet.serving.kserve on KServe's own servers, which listen to the loopback address."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from .conftest import OPERATOR, WEIGHTS, images, rows, wrapped

kserve = pytest.importorskip("kserve")


@pytest.fixture(scope="module")
def ports(product: str, padded: str) -> Iterator[tuple[int, int]]:
    from rabbet.serving.kserve import RabbetModel

    from .kserve_server import serve

    models = [
        RabbetModel("product", product, device="cpu", contexts=2),
        RabbetModel("padded", padded, plugins=[OPERATOR]),
    ]
    found: list[tuple[int, int]] = []
    started, loop, ended = threading.Event(), asyncio.new_event_loop(), asyncio.Event()

    def ready(*numbers: int) -> None:
        found.append(numbers)  # type: ignore[arg-type]
        started.set()

    thread = threading.Thread(
        target=lambda: loop.run_until_complete(serve(models, ready, ended))
    )
    thread.start()
    assert started.wait(60)
    yield found[0]
    loop.call_soon_threadsafe(ended.set)
    thread.join(30)
    assert not thread.is_alive()


def post(port: int, path: str, body: Any) -> tuple[int, Any]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )  # fmt: skip
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def tensor(x: Any, dtype: str = "FP32") -> dict[str, Any]:
    values = np.asarray(x)
    return {
        "name": "x", "shape": list(values.shape), "datatype": dtype,
        "data": values.ravel().tolist(),
    }  # fmt: skip


def test_v2(ports: tuple[int, int]) -> None:
    x = rows(3)
    code, answer = post(ports[0], "/v2/models/product/infer", {"inputs": [tensor(x)]})
    assert code == 200
    assert answer["id"]  # clients need one, also if they sent none
    (output,) = answer["outputs"]
    assert (output["name"], output["shape"], output["datatype"]) == ("y", [3, 4], "FP32")
    np.testing.assert_allclose(
        np.array(output["data"]).reshape(3, 4), x @ WEIGHTS, rtol=1e-5, atol=1e-5
    )
    body = {"id": "mine", "inputs": [tensor(images(2))]}
    code, answer = post(ports[0], "/v2/models/padded/infer", body)
    assert (code, answer["id"]) == (200, "mine")
    found = np.array(answer["outputs"][0]["data"], np.float32).reshape(2, 5, 6)
    np.testing.assert_array_equal(found, wrapped(images(2)))


def test_v1(ports: tuple[int, int]) -> None:
    x = rows(2)
    code, answer = post(ports[0], "/v1/models/product:predict", {"instances": x.tolist()})
    assert code == 200
    np.testing.assert_allclose(answer["predictions"], x @ WEIGHTS, rtol=1e-5, atol=1e-5)
    instances = [{"x": row} for row in x.tolist()]
    code, again = post(ports[0], "/v1/models/product:predict", {"instances": instances})
    assert again == answer


def test_errors_are_the_clients(ports: tuple[int, int]) -> None:
    path = "/v2/models/product/infer"
    for bad, text in (
        ([], "missing or unknown: x"),
        ([{**tensor(rows(1)), "name": "z"}], "missing or unknown: x, z"),
        ([tensor(np.ones((1, 7)))], "x"),
        ([tensor(np.ones((17, 6)))], "x"),
        ([tensor(rows(1), "FP64")], "x"),
        ([{**tensor(rows(1)), "shape": [5, 5]}], ""),
    ):
        code, answer = post(ports[0], path, {"inputs": bad})
        assert code == 400, (bad, answer)
        assert text in answer
    code, answer = post(ports[0], "/v1/models/product:predict", {"instances": [["a"] * 6]})
    assert code == 400, answer


def test_grpc(ports: tuple[int, int]) -> None:
    import grpc
    from kserve.protocol.grpc import grpc_predict_v2_pb2 as pb
    from kserve.protocol.grpc import grpc_predict_v2_pb2_grpc as v2

    with grpc.insecure_channel(f"127.0.0.1:{ports[1]}") as channel:
        stub = v2.GRPCInferenceServiceStub(channel)
        x = rows(4)
        request = pb.ModelInferRequest(model_name="product")
        request.inputs.add(name="x", datatype="FP32", shape=[4, 6])
        request.raw_input_contents.append(x.tobytes())  # arrives read-only
        answer = stub.ModelInfer(request, timeout=30)
        found = np.frombuffer(answer.raw_output_contents[0], np.float32).reshape(4, 4)
        np.testing.assert_allclose(found, x @ WEIGHTS, rtol=1e-5, atol=1e-5)
        request.inputs[0].shape[:] = [3, 8]
        with pytest.raises(grpc.RpcError):
            stub.ModelInfer(request, timeout=30)
