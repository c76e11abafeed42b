"""Models in Spark: mapInArrow and pandas_udf, each with workers in processes of their own."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import rabbet

from .conftest import OPERATOR, WEIGHTS, images, rows, wrapped

pyspark = pytest.importorskip("pyspark")
pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
pytestmark = pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java")


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "16")
        .getOrCreate()
    )
    yield session
    session.stop()


def table(spark: Any, x: np.ndarray) -> Any:
    values = [(i, row) for i, row in enumerate(x.reshape(len(x), -1).tolist())]
    return spark.createDataFrame(values, "key int, x array<float>").repartition(2)


def check(found: Any, expected: np.ndarray) -> None:
    assert [row.key for row in found] == list(range(len(expected)))
    flat = expected.reshape(len(expected), -1)
    np.testing.assert_allclose([row.y for row in found], flat, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("by_path", [False, True])
def test_map_in_arrow(spark: Any, product: str, by_path: bool) -> None:
    loaded = rabbet.load(product, device="cpu")
    model = loaded.by_path() if by_path else loaded

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            values = batch.column("x").flatten().to_numpy()  # read-only, not copied
            y = model(values.reshape(batch.num_rows, 6))
            column = pa.FixedSizeListArray.from_arrays(y.ravel(), y.shape[1])
            yield pa.RecordBatch.from_arrays(
                [batch.column("key"), column.cast(pa.list_(pa.float32()))], ["key", "y"]
            )

    x = rows(50)
    frame = table(spark, x).mapInArrow(run, "key int, y array<float>")
    check(frame.orderBy("key").collect(), x @ WEIGHTS)


def test_pandas_udf_and_an_operator_in_python(spark: Any, padded: str) -> None:
    from pyspark.sql.functions import pandas_udf

    model = rabbet.load(padded, plugins=[OPERATOR])

    @pandas_udf("array<float>")
    def run(x: pd.Series) -> pd.Series:
        y = model(np.stack(x.to_list()).astype(np.float32).reshape(-1, 3, 4))
        return pd.Series(list(y.reshape(len(y), -1)))

    x = images(20)
    frame = table(spark, x)
    frame = frame.select("key", run(frame.x).alias("y"))
    check(frame.orderBy("key").collect(), wrapped(x))
