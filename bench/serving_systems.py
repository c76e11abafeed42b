"""Rows a second of a model in serving systems, each in turns with a loop in this process.

All servers and workers listen to the loopback address and share the cores with the
clients. `--models loop,dask` names ways to run.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx.reference
import rabbet

from tests.models.graph import Graph

from .options import ROOT, Options, installed
from .report import Section
from .rounds import Spread

SIZES = (256, 1024, 1024, 16)
BATCH = 64  # rows of a block
UNDER_WAY = 32
JOB = 32768  # rows of a job of Spark and Ray Data
LOAD = ROOT / "build/bench/bench_serving_load"

Answers = Callable[[list[Any]], list[Any]]
Turn = Callable[[float], float]  # seconds -> rows a second


@dataclass(frozen=True)
class Served:
    """The model that all ways run: a folder of plans, and it in this process."""

    folder: str
    model: Any


def _perceptron() -> onnx.ModelProto:
    graph = Graph("perceptron", opset=17, seed=0)
    x = graph.input("x", ("n", SIZES[0]))
    for index, (inside, outside) in enumerate(itertools.pairwise(SIZES)):
        last = index == len(SIZES) - 2
        weight = graph.weight(f"w{index}", (outside, inside), (2 / inside) ** 0.5)
        bias = graph.weight(f"b{index}", (outside,), 0.1)
        x = graph.node("Gemm", [x, weight, bias], "y" if last else f"fc{index}", transB=1)
        if not last:
            x = graph.node("Relu", [x], f"relu{index}")
    graph.output(x, ("n", SIZES[-1]))
    return graph.model()


def _blocks(rows: int, count: int) -> list[Any]:
    random = np.random.default_rng(0)
    return [random.standard_normal((rows, SIZES[0]), np.float32) for _ in range(count)]


def _repeated(answers: Answers, blocks: list[Any]) -> Turn:
    """Turns of as many calls with these blocks as fit."""

    def turn(seconds: float) -> float:
        begin, rows = time.perf_counter(), 0
        while (took := time.perf_counter() - begin) < seconds:
            answers(blocks)
            rows += sum(len(block) for block in blocks)
        return rows / took

    return turn


# ---- In this process, and in processes of its own ----------------------------------


@contextmanager
def _loop(served: Served) -> Iterator[Answers]:
    yield lambda blocks: [served.model(block) for block in blocks]


@contextmanager
def _submit(served: Served) -> Iterator[Answers]:
    model = rabbet.load(served.folder, device="cpu", contexts=2)

    def answers(blocks: list[Any]) -> list[Any]:
        return [future.result() for future in [model.submit(block) for block in blocks]]

    yield answers


@contextmanager
def _acall(served: Served) -> Iterator[Answers]:
    model = rabbet.load(served.folder, device="cpu", contexts=2)

    async def together(blocks: list[Any]) -> list[Any]:
        return await asyncio.gather(*map(model.acall, blocks))

    with asyncio.Runner() as runner:
        yield lambda blocks: runner.run(together(blocks))


@contextmanager
def _pool(served: Served) -> Iterator[Answers]:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        yield lambda blocks: pool.map(served.model.by_path(), blocks, chunksize=4)


@contextmanager
def _dask(served: Served) -> Iterator[Answers]:
    import distributed

    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
    ) as cluster, distributed.Client(cluster) as client:  # fmt: skip
        def answers(blocks: list[Any]) -> list[Any]:
            futures = client.map(served.model.by_path(), blocks, pure=False)
            return client.gather(futures)  # type: ignore[no-any-return]

        yield answers


# ---- Jobs over tables --------------------------------------------------------------


@contextmanager
def _spark(served: Served) -> Iterator[tuple[Answers, Turn]]:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.execution.arrow.pyspark.enabled", "true")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", str(BATCH))
        .getOrCreate()
    )
    model = served.model.by_path()

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            x = batch.column("x").flatten().to_numpy().reshape(batch.num_rows, -1)
            y = pa.ListArray.from_arrays(
                np.arange(0, (len(x) + 1) * SIZES[-1], SIZES[-1], dtype=np.int32),
                pa.array(model(x).ravel()),
            )
            yield pa.RecordBatch.from_arrays([batch.column("key"), y], ["key", "y"])

    def table(x: Any) -> Any:
        lists = pa.ListArray.from_arrays(
            np.arange(0, x.size + 1, SIZES[0], dtype=np.int32), pa.array(x.ravel())
        )
        made = pa.table({"key": pa.array(np.arange(len(x), dtype=np.int32)), "x": lists})
        return session.createDataFrame(made).repartition(2).cache()

    def mapped(frame: Any) -> Any:
        return frame.mapInArrow(run, "key int, y array<float>")

    def answers(blocks: list[Any]) -> list[Any]:
        found = mapped(table(np.concatenate(blocks))).toArrow().sort_by("key")
        y = found["y"].combine_chunks().flatten().to_numpy().reshape(-1, SIZES[-1])
        return np.split(y, np.cumsum([len(block) for block in blocks])[:-1])

    frame = table(np.concatenate(_blocks(BATCH, JOB // BATCH)))
    frame.count()

    def turn(_: float) -> float:
        begin = time.perf_counter()
        mapped(frame).write.format("noop").mode("overwrite").save()
        return JOB / (time.perf_counter() - begin)

    yield answers, turn
    session.stop()


@contextmanager
def _ray() -> Iterator[Any]:
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # its node: the loopback address
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    ray.init(
        num_cpus=4, include_dashboard=False, logging_level="ERROR", log_to_driver=False,
        object_store_memory=512 << 20,
    )  # fmt: skip
    yield ray
    ray.shutdown()


@contextmanager
def _ray_data(served: Served) -> Iterator[tuple[Answers, Turn]]:
    with _ray() as ray:
        from rabbet.serving.ray import Predictor

        ray.data.DataContext.get_current().enable_progress_bars = False

        def mapped(table: Any) -> Any:
            return table.map_batches(
                Predictor, fn_constructor_args=(served.folder, ["key"]), compute=
                ray.data.ActorPoolStrategy(size=2), batch_size=BATCH, num_cpus=1,
                fn_constructor_kwargs={"device": "cpu"},
            )  # fmt: skip

        def table(x: Any, parts: int) -> Any:
            ends = np.linspace(0, len(x), parts + 1, dtype=int)
            return ray.data.from_blocks([
                ray.data.block.BlockAccessor.batch_to_block(
                    {"key": np.arange(a, b), "x": x[a:b]}
                )
                for a, b in itertools.pairwise(ends)
            ])  # fmt: skip

        def answers(blocks: list[Any]) -> list[Any]:
            rows = mapped(table(np.concatenate(blocks), 2)).take_all()
            y = np.stack([row["y"] for row in sorted(rows, key=lambda row: row["key"])])
            return np.split(y, np.cumsum([len(block) for block in blocks])[:-1])

        x = np.concatenate(_blocks(BATCH, JOB // BATCH))

        def turn(_: float) -> float:
            """The whole job, its actors' start included."""
            given = table(x, 16).materialize()
            begin = time.perf_counter()
            count = mapped(given).materialize().count()
            assert count == JOB
            return JOB / (time.perf_counter() - begin)

        yield answers, turn


# ---- Servers over HTTP -------------------------------------------------------------


def _post(url: str, body: Any) -> Any:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def _load(mode: str, port: int, target: str, clients: int) -> Turn:
    def turn(seconds: float) -> float:
        words = [mode, port, target, "x", SIZES[0], clients, max(1.0, seconds)]
        done = subprocess.run(
            [LOAD, *map(str, words)], capture_output=True, text=True, check=False, timeout=60
        )
        if done.returncode:
            raise RuntimeError(f"{LOAD.name}: {done.stderr.strip()}")
        found = json.loads(done.stdout)
        if found["errors"]:
            raise RuntimeError(f"{found['errors']} requests failed")
        return float(found["requests"] / found["seconds"])

    return turn


@contextmanager
def _ray_serve(served: Served, clients: int) -> Iterator[tuple[Answers, Turn]]:
    port = 18733
    with _ray():
        from rabbet.serving.ray import Deployment
        from ray import serve

        serve.start(http_options={"host": "127.0.0.1", "port": port})
        made = Deployment.options(num_replicas=2, ray_actor_options={"num_cpus": 0.5})
        serve.run(made.bind(served.folder, BATCH, 0.001, device="cpu"), name="bench")
        url = f"http://127.0.0.1:{port}/"
        yield (
            lambda blocks: [_post(url, {"x": block.tolist()})["y"] for block in blocks],
            _load("json", port, "/", clients),
        )
        serve.shutdown()


@contextmanager
def _kserve(served: Served, clients: int) -> Iterator[tuple[Answers, Turn]]:
    server = subprocess.Popen(
        [sys.executable, "-m", "bench.serving_systems", served.folder],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())

        def answer(block: Any) -> Any:
            tensor = {"name": "x", "shape": list(block.shape), "datatype": "FP32"}
            body = {"inputs": [{**tensor, "data": block.ravel().tolist()}]}
            found = _post(f"http://127.0.0.1:{port}/v2/models/perceptron/infer", body)
            return np.reshape(found["outputs"][0]["data"], (-1, SIZES[-1]))

        yield (
            lambda blocks: [answer(block) for block in blocks],
            _load("http", port, "perceptron", clients),
        )
    finally:
        server.communicate(timeout=30)  # its input ends, and so does it


def _kserve_main(folder: str) -> None:
    """Serves a folder of plans until standard input ends; prints the port."""
    from rabbet.serving.kserve import RabbetModel

    from tests.serving.kserve_server import serve

    async def run() -> None:
        ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(0, ended.set)
        models = [RabbetModel("perceptron", folder, device="cpu", contexts=2)]
        await serve(models, lambda http, _: print(http, flush=True), ended)

    asyncio.run(run())


# ---- All of them -------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """start(served, **more) gives answers, or answers and a turn of its own.

    needs: packages and programs. rows: of a call or request."""

    key: str
    title: str
    rows: int
    start: Callable[..., Any]
    needs: tuple[str, ...] = ()
    more: tuple[tuple[str, Any], ...] = ()


WAYS = (
    Way("loop", "a loop", 1, _loop),
    Way("loop", "a loop", BATCH, _loop),
    Way("submit", "`submit`, 2 contexts", 1, _submit),
    Way("submit", "`submit`, 2 contexts", BATCH, _submit),
    Way("acall", "`acall`, 2 contexts", 1, _acall),
    Way("acall", "`acall`, 2 contexts", BATCH, _acall),
    Way("pool", "multiprocessing, 2 processes, by path", BATCH, _pool),
    Way("dask", "Dask, 2 workers, by path", BATCH, _dask, ("distributed",)),
    Way("spark", "Spark `mapInArrow`, local[2]", BATCH, _spark, ("pyspark", "java")),
    Way("ray_data", "Ray Data `map_batches`, 2 actors, whole jobs", BATCH, _ray_data, ("ray",)),
    *(
        Way(start.__name__[1:], f"{title}, {clients} client{'s' if clients > 1 else ''}", 1,
            start, (package,), (("clients", clients),))
        for start, title, package in (
            (_ray_serve, "Ray Serve, JSON over HTTP, 2 replicas", "ray"),
            (_kserve, "KServe, V2 over HTTP, binary", "kserve"),
        )
        for clients in (1, 32)
    ),
)  # fmt: skip


def _check(answers: Answers, blocks: list[Any], reference: Any) -> None:
    for x, y in zip(blocks, answers(blocks), strict=True):
        (expected,) = reference.run(None, {"x": x})
        np.testing.assert_allclose(np.asarray(y, np.float32), expected, rtol=1e-3, atol=1e-3)


def _measure(way: Way, served: Served, reference: Any, options: Options) -> list[Any]:
    """(rows a second, those over the loop's) of each round."""
    blocks = _blocks(way.rows, UNDER_WAY)
    with _loop(served) as loop, way.start(served, **dict(way.more)) as started:
        answers, turn = started if isinstance(started, tuple) else (started, None)
        _check(answers, blocks[:5], reference)
        turn = turn or _repeated(answers, blocks)
        beside = _repeated(loop, blocks)
        turn(0.1)  # not counted: the first may load and compile
        found = []
        for _ in range(options.rounds):
            alone = beside(options.seconds)
            rows = turn(options.seconds)
            found.append((rows, rows / alone))
        return found


def run(options: Options) -> Section:
    """One row for each way whose package is installed."""
    section = Section(
        f"Rows a second in serving systems: perceptron {'-'.join(map(str, SIZES))}, "
        "FLOAT, plans of one thread",
        ["way", "rows a call", "rows/s", "over a loop in process"],
    )
    proto = _perceptron()
    folder = str(options.scratch / "plans")
    shapes = {"x": ((1, SIZES[0]), (BATCH // 2, SIZES[0]), (BATCH, SIZES[0]))}
    rabbet.build_plans(proto, folder, "cpu", shapes=shapes, threads=1)
    served = Served(folder, rabbet.load(folder, device="cpu"))
    reference = onnx.reference.ReferenceEvaluator(proto)
    for way in WAYS:
        if options.models and way.key not in options.models:
            continue
        lacking = [n for n in way.needs if not (installed(n) or shutil.which(n))]
        if lacking:
            section.note(f"{way.title}: {', '.join(lacking)} is not installed")
            continue
        found = _measure(way, served, reference, options)
        rows, over = (Spread.of([pair[i] for pair in found]) for i in (0, 1))
        section.rows.append(
            [way.title, str(way.rows), f"{rows.median:,.0f}", over.text()]
        )
        section.data.append(
            {"way": way.title, "rows_a_call": way.rows, "rows_a_second": rows.as_dict(),
             "over_loop": over.as_dict()}
        )  # fmt: skip
        print(" | ".join(section.rows[-1]), flush=True)
    section.note(f"calls of {UNDER_WAY} blocks are under way at once; jobs of Spark and Ray "
        f"Data have {JOB} rows; clients and servers share the cores")
    return section


if __name__ == "__main__":
    _kserve_main(sys.argv[1])
