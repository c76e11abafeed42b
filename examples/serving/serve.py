"""One folder of plans, used by processes and by a service in asyncio; needs no other package.

    python examples/serving/serve.py [FOLDER]

Builds the plans of a small model with an operator in Python, maps images over processes that
share one plan's memory, and answers requests of coroutines. docs/serving.md shows the same for
Ray, KServe, Dask and Spark.
"""

import asyncio
import multiprocessing
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import rabbet
from onnx import TensorProto, helper

OPERATOR = Path(__file__).resolve().parents[1] / "demo" / "circ_pad.py"
SHAPE = (3, 32, 32)


def make(path: Path) -> None:
    """Writes a model that pads any number of images by 4 on each side."""
    node = helper.make_node(
        "CircularPad", ["x"], ["y"], plugin_namespace="example", pads=[0, 0, 4, 4, 0, 0, 4, 4]
    )
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *SHAPE])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    onnx.save(helper.make_model(helper.make_graph([node], "pad", [x], [y])), path)


async def answer(model: rabbet.Model, requests: list[np.ndarray]) -> list[np.ndarray]:
    """As a service does: calls wait without blocking the loop, at most `contexts` run."""
    return await asyncio.gather(*(model.acall(request) for request in requests))


def main(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    make(folder / "model.onnx")
    shapes = {"x": ((1, *SHAPE), (8, *SHAPE), (64, *SHAPE))}
    made = rabbet.build_plans(
        folder / "model.onnx", folder / "plans", "cpu", plugins=[OPERATOR], shapes=shapes
    )
    print("built    ", *made)
    model = rabbet.load(folder / "plans", plugins=[OPERATOR], contexts=2, device="cpu")
    print("took     ", model.choice)

    random = np.random.default_rng(0)
    batches = [random.random((count, *SHAPE), np.float32) for count in (1, 8, 5, 64, 3, 16)]
    expected = [np.pad(x, ((0, 0), (0, 0), (4, 4), (4, 4)), mode="wrap") for x in batches]
    # By path, some hundred bytes travel, and each machine takes the plan that fits it.
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        from_processes = pool.map(model.by_path(), batches, chunksize=1)
    from_coroutines = asyncio.run(answer(model, batches))
    good = True
    for name, found in (("processes", from_processes), ("asyncio", from_coroutines)):
        same = all(map(np.array_equal, found, expected))
        print(f"{name:9} {len(found)} batches {'ok' if same else 'WRONG'}")
        good &= same
    return 0 if good else 1


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(main(Path(sys.argv[1])))
    with tempfile.TemporaryDirectory() as temporary:
        sys.exit(main(Path(temporary)))
