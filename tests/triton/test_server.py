"""Plans on a real Triton Inference Server: what only the server can tell of the backend.

The server is that of examples/triton; without one the tests are skipped.
"""

from __future__ import annotations

import importlib.util
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import rabbet
from onnx import TensorProto, helper

from tests.python.support.c_programs import EXAMPLES
from tests.python.support.command import FLOAT, save_model


def _example() -> ModuleType:
    path = EXAMPLES / "triton" / "server.py"
    spec = importlib.util.spec_from_file_location("triton_example_server", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


triton = _example()
WEIGHTS = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)

OPERATOR = """
import numpy as np
import rabbet.plugin as trtp

@trtp.register("triton_test::Root")
def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()

@trtp.impl("triton_test::Root")
def run(x, outputs, stream):
    if (x.numpy() < -100).any():
        raise ValueError("a number is too low")
    np.sqrt(np.abs(x.numpy()), out=outputs[0].numpy())
"""


def add_model(
    repository: Path, name: str, onnx_file: Path | None, config: str = "", version: int = 1,
    **options: Any,
) -> Path:  # fmt: skip
    """Builds a model into the repository; its version's folder."""
    folder = repository / name / str(version)
    folder.mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(f'backend: "rabbet"\n{config}')
    if onnx_file:
        rabbet.compile(
            onnx_file, device="cpu", save=folder / "model.plan", optimization_level=0, **options
        )
    return folder


def product(folder: Path, weights: np.ndarray, name: str = "product") -> Path:
    """y = relu(x @ weights)"""
    return save_model(
        folder / f"{name}.onnx",
        [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])],
        {"x": (FLOAT, ["n", 8])},
        {"y": (FLOAT, ["n", 4])},
        {"w": weights},
    )


PAIRS = {"shapes": {"x": ((1, 2), (4, 2), (8, 2))}}
BATCH = {"shapes": {"x": ((1, 8), (4, 8), (16, 8))}}
STATE = """
sequence_batching {
  state {
    input_name: "kept" output_name: "total" data_type: TYPE_FP32 dims: [ 3 ]
    initial_state { name: "zeros" data_type: TYPE_FP32 dims: [ 3 ] zero_data: true }
  }
}
"""


RAGGED = """
max_batch_size: 8
dynamic_batching { max_queue_delay_microseconds: 300000 }
batch_input {
  kind: BATCH_ACCUMULATED_ELEMENT_COUNT target_name: "ends" data_type: TYPE_INT32
  source_input: "x"
}
batch_output { target_name: "halves" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "x" }
"""


def segments_model(folder: Path, ends: int) -> Path:
    """Of segments of x, one after the other, that end at ends: their sums, and x / 2."""
    nodes = [
        helper.make_node("CumSum", ["x", "zero"], ["running"]),
        helper.make_node("Sub", ["ends", "one"], ["last"]),
        helper.make_node("Gather", ["running", "last"], ["up_to"]),
        helper.make_node("Slice", ["up_to", "begin", "but_last"], ["before"]),
        helper.make_node("Concat", ["nothing", "before"], ["previous"], axis=0),
        helper.make_node("Sub", ["up_to", "previous"], ["sums"]),
        helper.make_node("Div", ["x", "two"], ["halves"]),
    ]
    dtype = np.int64 if ends == TensorProto.INT64 else np.int32
    return save_model(
        folder / f"segments{ends}.onnx", nodes,
        {"x": (FLOAT, ["n"]), "ends": (ends, ["k"])},
        {"sums": (FLOAT, ["k"]), "halves": (FLOAT, ["n"])},
        {"zero": np.array(0), "one": np.array([1], dtype), "begin": np.array([0]),
         "but_last": np.array([-1]), "nothing": np.zeros(1, np.float32),
         "two": np.array(2, np.float32)},
    )  # fmt: skip


def root_model(folder: Path, operator: str = "Root") -> Path:
    node = helper.make_node(operator, ["x"], ["y"], plugin_namespace="triton_test")
    return save_model(
        folder / "root.onnx", [node], {"x": (FLOAT, ["n", 2])}, {"y": (FLOAT, ["n", 2])}
    )


def make_repository(folder: Path) -> Path:
    repository = folder / "models"
    add_model(repository, "product", product(folder, WEIGHTS), **BATCH)
    add_model(
        repository, "slow", product(folder, WEIGHTS),
        "dynamic_batching { max_queue_delay_microseconds: 50000 }\n"
        "instance_group { count: 2 kind: KIND_CPU }\n"
        'model_warmup { name: "w" batch_size: 4 inputs { key: "x" value {'
        " data_type: TYPE_FP32 dims: [ 8 ] random_data: true } } }\n",
        **BATCH,
    )  # fmt: skip
    total = save_model(
        folder / "total.onnx",
        [helper.make_node("Add", ["x", "kept"], ["total"]),
         helper.make_node("Add", ["total", "total"], ["twice"])],
        {"x": (FLOAT, ["n", 3]), "kept": (FLOAT, ["n", 3])},
        {"twice": (FLOAT, ["n", 3]), "total": (FLOAT, ["n", 3])},
    )  # fmt: skip
    shape = ((1, 3), (4, 3), (8, 3))
    add_model(repository, "total", total, STATE, shapes={"x": shape, "kept": shape})
    positions = save_model(
        folder / "positions.onnx", [helper.make_node("NonZero", ["x"], ["y"])],
        {"x": (FLOAT, ["n"])}, {"y": (TensorProto.INT64, [1, "m"])},
    )  # fmt: skip
    misspelt = 'parameters { key: "thread" value { string_value: "2" } }\n'
    add_model(repository, "positions", positions, misspelt, shapes={"x": ((1,), (8,), (16,))})
    operator = folder / "root.py"
    operator.write_text(OPERATOR)
    leave = 'parameters { key: "plugins" value { string_value: "root.py" } }\n'
    delay = "dynamic_batching { max_queue_delay_microseconds: 100000 }\n"
    made = add_model(
        repository, "root", root_model(folder), leave + delay, plugins=[operator], **PAIRS
    )
    shutil.copy(operator, made)
    shapes = {"x": ((1,), (64,), (200,)), "ends": ((1,), (4,), (8,))}
    for ends in (TensorProto.INT32, TensorProto.INT64):
        segments = segments_model(folder, ends)
        add_model(repository, f"segments{ends}", segments, RAGGED, shapes=shapes)
    plain = add_model(repository, "damaged", None)
    plan = (repository / "product/1/model.plan").read_bytes()
    (plain / "model.plan").write_bytes(plan[: len(plan) // 2])
    text = add_model(
        repository, "text", None, 'input { name: "x" data_type: TYPE_STRING dims: [ 8 ] }\n'
    )
    (text / "model.plan").write_bytes(plan)
    return repository


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    try:
        triton.find_server()
    except triton.NoServerError as error:
        pytest.skip(f"there is no Triton Inference Server: {error}")
    repository = make_repository(tmp_path_factory.mktemp("triton"))
    with triton.Server(repository, "--exit-on-error=false") as running:
        for _ in range(600):  # live is sooner than ready
            if all(model.get("state") != "LOADING" for model in index(running).values()):
                break
            time.sleep(0.05)
        yield running


def index(server: Any) -> dict[str, Any]:
    return {model["name"]: model for model in server.json("POST", "/v2/repository/index")}


def rows(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, 8)).astype(np.float32)


def expect(x: np.ndarray, y: np.ndarray, weights: np.ndarray = WEIGHTS) -> None:
    np.testing.assert_allclose(y, np.maximum(x @ weights, 0), rtol=1e-5, atol=1e-5)


def test_configuration_is_completed(server: Any) -> None:
    config = server.json("GET", "/v2/models/product/config")
    assert config["max_batch_size"] == 16
    assert "dynamic_batching" in config
    (x,), (y,) = config["input"], config["output"]
    assert (x["name"], x["data_type"], x["dims"]) == ("x", "TYPE_FP32", [8])
    assert (y["name"], y["data_type"], y["dims"]) == ("y", "TYPE_FP32", [4])
    config = server.json("GET", "/v2/models/positions/config")
    assert config["max_batch_size"] == 0
    assert config["output"][0]["dims"] == [1, -1]


def test_results(server: Any) -> None:
    for count in (1, 3, 16):
        x = rows(count, count)
        expect(x, server.infer("product", {"x": x})["y"])
    # In JSON alone, too.
    body = {"inputs": [{"name": "x", "shape": [1, 8], "datatype": "FP32", "data": [0.5] * 8}]}
    (y,) = server.json("POST", "/v2/models/product/infer", body)["outputs"]
    expect(np.full((1, 8), 0.5, np.float32), np.array([y["data"]], np.float32))


def test_a_server_that_ends_says_why(server: Any, tmp_path: Path) -> None:
    add_model(tmp_path / "models", "empty", None)
    lost = triton.Server(tmp_path / "models")
    with pytest.raises(triton.ServerError, match=r"has a file 'model\.plan'"), lost:
        pass
    lost.command.append(f"--http-port={server.http_port}")
    shutil.rmtree(tmp_path / "models/empty")
    with pytest.raises(triton.ServerError, match="already in use"), lost:
        pass


def test_a_program_that_is_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    for program, message in (("/no/server", "No such file"), ("/bin/true", "no server")):
        monkeypatch.setenv("TRITONSERVER", program)
        with pytest.raises(triton.NoServerError, match=f"{program} .*{message}"):
            triton.find_server()


def test_errors_are_told(server: Any) -> None:
    with pytest.raises(RuntimeError, match="batch-size must be <= 16"):
        server.infer("product", {"x": rows(17, 0)})
    with pytest.raises(RuntimeError, match="input 'y'"):
        server.infer("product", {"y": rows(1, 0)})


def statistics(server: Any, model: str) -> dict[str, Any]:
    (found,) = server.json("GET", f"/v2/models/{model}/stats")["model_stats"]
    return found


def test_requests_become_batches(server: Any) -> None:
    before = statistics(server, "slow")
    with ThreadPoolExecutor(12) as pool:
        xs = [rows(1 + i % 3, i) for i in range(48)]
        ys = list(pool.map(lambda x: server.infer("slow", {"x": x})["y"], xs))
    for x, y in zip(xs, ys, strict=True):
        expect(x, y)
    after = statistics(server, "slow")
    count = sum(len(x) for x in xs)
    assert after["inference_count"] - before["inference_count"] == count
    assert after["execution_count"] - before["execution_count"] < 40
    assert after["inference_stats"]["success"]["count"] >= 48
    assert after["inference_stats"]["compute_infer"]["ns"] > 0
    assert max(batch["batch_size"] for batch in after["batch_stats"]) > 3


def test_data_dependent_outputs(server: Any) -> None:
    for x in ([0, 1, 0, 2.5], [0] * 16, [1]):
        y = server.infer("positions", {"x": np.array(x, np.float32)})["y"]
        assert y.tolist() == [np.flatnonzero(x).tolist()]


@pytest.mark.parametrize("ends", [TensorProto.INT32, TensorProto.INT64])
def test_ragged_batches(server: Any, ends: int) -> None:
    """Requests of different lengths run together, and each gets its own part."""
    model = f"segments{ends}"
    config = server.json("GET", f"/v2/models/{model}/config")
    assert [x["name"] for x in config["input"]] == ["x"]
    assert config["input"][0]["allow_ragged_batch"]
    random = np.random.default_rng(ends)
    xs = [random.integers(-9, 9, (1, n)).astype(np.float32) for n in (5, 1, 40, 17, 3, 150, 60, 2)]
    before = statistics(server, model)
    with ThreadPoolExecutor(len(xs)) as pool:
        answers = list(pool.map(lambda x: server.infer(model, {"x": x}), xs))
    for x, answer in zip(xs, answers, strict=True):
        assert answer["sums"].tolist() == [x.sum()]
        assert np.array_equal(answer["halves"], x / 2)
    after = statistics(server, model)
    # All together have more elements than the profile: at least two runs.
    assert 2 <= after["execution_count"] - before["execution_count"] < len(xs)
    with pytest.raises(RuntimeError, match="input 'x'"):
        server.infer(model, {"x": np.zeros((1, 201), np.float32)})


def test_operators_in_python_and_their_errors(server: Any) -> None:
    """One request of a batch fails, with the exception's text; the others do not."""
    xs = [np.array([[i, 4]], np.float32) for i in (9, -101, 16, 25)]

    def ask(x: np.ndarray) -> Any:
        try:
            return server.infer("root", {"x": x})["y"]
        except RuntimeError as error:
            return str(error)

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(ask, xs))
    assert "a number is too low" in answers[1]
    for i in (0, 2, 3):
        assert np.array_equal(answers[i], np.sqrt(xs[i]))


def test_versions_share_an_operator(server: Any) -> None:
    """A copy of a loaded file is the same operator; another of this name is refused."""
    folder = server.repository / "root"
    x = np.array([[4, 9]], np.float32)
    shutil.copytree(folder / "1", folder / "2")
    server.json("POST", "/v2/repository/models/root/load", {})
    assert np.array_equal(server.infer("root", {"x": x})["y"], np.sqrt(x))
    shutil.copytree(folder / "1", folder / "3")
    (folder / "3" / "root.py").write_text(OPERATOR.replace("np.sqrt", "np.cbrt"))
    with pytest.raises(RuntimeError, match="the id is taken by describe"):
        server.json("POST", "/v2/repository/models/root/load", {})
    assert np.array_equal(server.infer("root", {"x": x})["y"], np.sqrt(x))
    shutil.rmtree(folder / "3")


def test_states_of_sequences(server: Any) -> None:
    """Each client's total is its own, whatever the order."""
    random = np.random.default_rng(1)
    totals = {client: np.zeros((1, 3), np.float32) for client in range(1, 6)}
    for step in range(4):
        xs = {c: random.integers(0, 9, (1, 3)).astype(np.float32) for c in totals}

        def ask(client: int, step: int = step, xs: Any = xs) -> np.ndarray:
            return server.infer(
                "total", {"x": xs[client]}, sequence_id=client, sequence_start=step == 0,
                sequence_end=step == 3,
            )["twice"]  # fmt: skip

        with ThreadPoolExecutor(5) as pool:
            answers = dict(zip(totals, pool.map(ask, totals), strict=True))
        for client, answer in answers.items():
            totals[client] = totals[client] + xs[client]
            assert np.array_equal(answer, 2 * totals[client])


@pytest.mark.parametrize(
    ("model", "reason"),
    [("damaged", "model.plan"), ("text", "plans have no strings")],
)
def test_models_that_are_refused(server: Any, model: str, reason: str) -> None:
    found = index(server)[model]
    assert found["state"] == "UNAVAILABLE"
    assert reason in found["reason"]
    assert index(server)["product"]["state"] == "READY"


def test_operators_need_leave(server: Any, tmp_path: Path) -> None:
    operator = tmp_path / "unleft.py"
    operator.write_text(OPERATOR.replace("::Root", "::Unleft"))
    model = root_model(tmp_path, "Unleft")
    made = add_model(server.repository, "unleft", model, plugins=[operator], **PAIRS)
    shutil.copy(operator, made)
    with pytest.raises(RuntimeError, match="needs the plugin 'triton_test::Unleft'"):
        server.json("POST", "/v2/repository/models/unleft/load", {})


def test_a_new_version_under_load(server: Any, tmp_path: Path) -> None:
    """No request fails, and each is answered by one version or the other."""
    ends, failures, seen = threading.Event(), [], set()
    x = rows(2, 5)
    weights = [WEIGHTS, -WEIGHTS]
    results = [np.maximum(x @ w, 0) for w in weights]
    add_model(server.repository, "renewed", product(tmp_path, weights[0]), **BATCH)
    server.json("POST", "/v2/repository/models/renewed/load", {})

    def ask() -> None:
        while not ends.is_set():
            try:
                y = server.infer("renewed", {"x": x})["y"]
                (which,) = [i for i, r in enumerate(results) if np.allclose(y, r, atol=1e-5)]
                seen.add(which)
            except Exception as error:
                failures.append(repr(error))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        add_model(server.repository, "renewed", product(tmp_path, weights[1]), version=2, **BATCH)
        server.json("POST", "/v2/repository/models/renewed/load", {})
        expect(x, server.infer("renewed", {"x": x})["y"], weights[1])
    finally:
        ends.set()
        for thread in threads:
            thread.join()
    assert not failures
    assert seen == {0, 1}


def wide_model(folder: Path, factor: float, name: str) -> Path:
    """y = factor * x @ WEIGHTS, which takes long enough that a thread of its own answers."""
    identity = np.eye(512, dtype=np.float32)
    spread = np.zeros((8, 512), np.float32)
    spread[:, :8] = np.eye(8)
    gathered = np.zeros((512, 4), np.float32)
    gathered[:8] = factor * WEIGHTS
    return save_model(
        folder / f"{name}.onnx",
        [helper.make_node("MatMul", ["x", "spread"], ["a"]),
         helper.make_node("MatMul", ["a", "identity"], ["b"]),
         helper.make_node("Softplus", ["b"], ["c"]),
         helper.make_node("Sub", ["c", "c"], ["zero"]),
         helper.make_node("Add", ["b", "zero"], ["d"]),
         helper.make_node("MatMul", ["d", "gathered"], ["y"])],
        {"x": (FLOAT, ["n", 8])}, {"y": (FLOAT, ["n", 4])},
        {"spread": spread, "identity": identity, "gathered": gathered},
    )  # fmt: skip


def replace_plan(target: Path, onnx_file: Path, **options: Any) -> None:
    """Builds beside the plan and renames, as a plan that is loaded must not change."""
    new = target.with_suffix(".new")
    rabbet.compile(onnx_file, device="cpu", save=new, optimization_level=0, **options)
    new.rename(target)


def test_a_version_replaced_under_load(server: Any, tmp_path: Path) -> None:
    """Several times, while requests wait for a batch, run and are answered: each is answered
    once, by one of the plans, and the last load's plan answers all after it."""
    asked, answered, ends = [0] * 12, [0] * 12, threading.Event()
    failures: list[str] = []
    x, count = rows(2, 7), 4
    made = [wide_model(tmp_path, factor, f"wide{factor}") for factor in range(1, count + 1)]
    delay = "dynamic_batching { max_queue_delay_microseconds: 20000 }\n"
    folder = add_model(server.repository, "replaced", made[0], delay, **BATCH)
    server.json("POST", "/v2/repository/models/replaced/load", {})

    def factor_of(y: np.ndarray) -> int:
        (which,) = [f for f in range(1, count + 1) if np.allclose(y, f * x @ WEIGHTS, rtol=1e-4)]
        return which

    def ask(thread: int) -> None:
        before = 0
        while not ends.is_set():
            asked[thread] += 1
            try:
                now = factor_of(server.infer("replaced", {"x": x})["y"])
                if now < before:
                    failures.append(f"plan {now} has answered behind plan {before}")
                before = now
                answered[thread] += 1
            except Exception as error:
                failures.append(repr(error))

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(asked))]
    for thread in threads:
        thread.start()
    try:
        for factor, file in enumerate(made[1:], 2):
            replace_plan(folder / "model.plan", file, **BATCH)
            server.json("POST", "/v2/repository/models/replaced/load", {})
            assert factor_of(server.infer("replaced", {"x": x})["y"]) == factor
        while min(answered) <= count and not failures:  # however busy the machine is
            time.sleep(0.01)
    finally:
        ends.set()
        for thread in threads:
            thread.join()
    assert not failures, failures[:3]
    assert answered == asked


def total_model(folder: Path, factor: float, name: str) -> Path:
    """total = kept + x; scaled = factor * total."""
    return save_model(
        folder / f"{name}.onnx",
        [helper.make_node("Add", ["x", "kept"], ["total"]),
         helper.make_node("Mul", ["total", "factor"], ["scaled"])],
        {"x": (FLOAT, ["n", 3]), "kept": (FLOAT, ["n", 3])},
        {"scaled": (FLOAT, ["n", 3]), "total": (FLOAT, ["n", 3])},
        {"factor": np.array(factor, np.float32)},
    )  # fmt: skip


TOTALS = {"shapes": dict.fromkeys(("x", "kept"), ((1, 3), (4, 3), (8, 3)))}


def add_one(server: Any, model: str, sequence: int, start: bool = False) -> float:
    """Adds ones to a sequence's total, and returns what the model makes of it."""
    answer = server.infer(
        model, {"x": np.ones((1, 3), np.float32)}, ["scaled"], sequence_id=sequence,
        sequence_start=start, sequence_end=False,
    )  # fmt: skip
    (value,) = set(answer["scaled"].ravel().tolist())
    return float(value)


def test_sequences_over_a_reload(server: Any, tmp_path: Path) -> None:
    """A load without a change leaves them. One with a change ends them: the server refuses
    their next request, which has no state, and a new start begins with the initial state."""
    folder = add_model(
        server.repository, "totals", total_model(tmp_path, 1, "totals"), STATE, **TOTALS
    )
    load = "/v2/repository/models/totals/load"
    server.json("POST", load, {})
    assert [add_one(server, "totals", i, True) for i in (1, 2)] == [1, 1]
    server.json("POST", load, {})
    assert [add_one(server, "totals", i) for i in (1, 1, 2)] == [2, 3, 2]
    replace_plan(folder / "model.plan", total_model(tmp_path, 10, "tens"), **TOTALS)
    assert add_one(server, "totals", 1) == 4  # not loaded yet
    server.json("POST", load, {})
    for sequence in (1, 2):
        with pytest.raises(RuntimeError, match="must specify the START flag"):
            add_one(server, "totals", sequence)
    assert [add_one(server, "totals", 1, True), add_one(server, "totals", 1)] == [10, 20]


def test_sequences_beside_a_new_version(server: Any, tmp_path: Path) -> None:
    """Where the policy keeps the old version, its sequences go on there."""
    config = "version_policy { all {} }\n" + STATE
    add_model(server.repository, "kept", total_model(tmp_path, 1, "old"), config, **TOTALS)
    load = "/v2/repository/models/kept/load"
    server.json("POST", load, {})
    assert [add_one(server, "kept", 1, True), add_one(server, "kept", 1)] == [1, 2]
    add_model(
        server.repository, "kept", total_model(tmp_path, 10, "new"), config, version=2, **TOTALS
    )
    server.json("POST", load, {})
    assert add_one(server, "kept/versions/1", 1) == 3
    with pytest.raises(RuntimeError, match="must specify the START flag"):
        add_one(server, "kept", 1)
    assert add_one(server, "kept", 1, True) == 10
    assert add_one(server, "kept/versions/1", 1) == 4


def test_metrics(server: Any) -> None:
    import urllib.request

    address = f"http://127.0.0.1:{server.metrics_port}/metrics"
    text = urllib.request.urlopen(address, timeout=10).read().decode()
    assert 'nv_inference_count{model="product"' in text


def test_grpc(server: Any) -> None:
    try:
        grpc = triton.import_grpc_client()
    except triton.NoServerError as error:
        pytest.skip(f"there is no client for gRPC: {error}")
    client = grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
    x = rows(3, 9)
    question = grpc.InferInput("x", x.shape, "FP32")
    question.set_data_from_numpy(x)
    expect(x, client.infer("product", [question]).as_numpy("y"))
    client.close()




def test_unknown_parameters_are_named(server: Any) -> None:
    told = "parameter 'thread' is not read: expected plugins, host_code_allowed, threads"
    assert told in server.log.read_text(errors="replace")
