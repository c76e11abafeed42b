"""A rank of the tests: python worker.py CASES RESULTS, with RANK and WORLD_SIZE set.

CASES is a pickled list of dicts (see test_collectives.py); the outputs go to RESULTS."""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import rabbet as trt
from rabbet import parallel

LOG = trt.Logger(trt.Logger.ERROR)
# The stand-in GPU is one for each process.
_GPU = int(os.environ["RANK"]) if "RABBET_TEST_REAL_GPUS" in os.environ else 0


def matrix(size: int) -> np.ndarray:
    """Weights of a product behind an exchange, as all ranks have them."""
    drawn = np.random.default_rng(size).standard_normal((size, size)) * size**-0.5
    return drawn.astype(np.float32)


def build(case: dict[str, Any]) -> bytes:
    """The plan of the case: element-wise layers around the collectives."""
    builder = trt.Builder(LOG)
    network = builder.create_network(1)  # strongly typed
    config = builder.create_builder_config()
    config.device = f"cuda:{_GPU}"
    dtype = getattr(trt.DataType, case["dtype"])
    shape = tuple(case["shape"])
    dims = (-1, *shape[1:]) if case.get("dynamic") else shape
    x = network.add_input("x", dtype, dims)
    if case.get("dynamic"):
        profile = builder.create_optimization_profile()
        low, high = (case["low"], *shape[1:]), (case["high"], *shape[1:])
        profile.set_shape("x", low, shape, high)
        config.add_optimization_profile(profile)
    y = x
    for step in case["steps"]:
        layer = network.add_dist_collective(
            y,
            getattr(trt.CollectiveOperation, step["op"]),
            getattr(trt.ReduceOperation, step.get("reduce", "NONE")),
            step.get("root", -1),
            step.get("groups"),
        )
        if not step.get("groups"):
            layer.num_ranks = case["ranks"]
        y = layer.get_output(0)
        if case.get("twice"):
            y = network.add_elementwise(y, y, trt.ElementWiseOperation.SUM).get_output(
                0
            )
        if case.get("weights"):
            weights = matrix(shape[1])
            w = network.add_constant(weights.shape, weights).get_output(0)
            none = trt.MatrixOperation.NONE
            y = network.add_matrix_multiply(y, none, w, none).get_output(0)
    y.name = "y"
    network.mark_output(y)
    return bytes(builder.build_serialized_network(network, config))


def set_counters(value: int) -> None:
    """Writes the numbers of this rank's direct exchanges, which lie at the begin of the
    memory that it shares (direct_params.h), as if there had been so many."""
    shared = [
        int(fd)
        for fd in os.listdir("/proc/self/fd")
        if os.path.lexists(f"/proc/self/fd/{fd}")
        and "memfd:stand-in" in os.readlink(f"/proc/self/fd/{fd}")
    ]
    assert shared, "no exchange was direct"
    for fd in shared:
        os.pwrite(fd, np.full(128 * 512, value, np.uint32).tobytes(), 0)


def run(case: dict[str, Any], communicator: Any) -> Any:
    """The outputs of the case's runs, or the error's text."""
    runtime = trt.Runtime(LOG)
    runtime.device = f"cuda:{_GPU}"
    model = trt.Model(
        runtime.deserialize_cuda_engine(build(case)), graphs=bool(case.get("graphs"))
    )
    results = []
    try:
        model.set_communicator(communicator)
        for i, x in enumerate(case["inputs"][communicator.rank]):
            if case.get("dies") == {"rank": communicator.rank, "run": i}:
                os.kill(os.getpid(), signal.SIGKILL)
            if i in case.get("counters", {}):
                set_counters(case["counters"][i])
            results.append(np.array(model(x)))
        if case.get("graphs"):
            assert model.graph_info.replays > 0, model.graph_info
    except Exception as error:
        results.append(f"{type(error).__name__}: {error}")
    return results


def main() -> None:
    """Runs all cases."""
    cases = pickle.loads(Path(sys.argv[1]).read_bytes())
    faulthandler.dump_traceback_later(0.8 * float(os.environ["RABBET_TEST_SECONDS"]))
    seconds = float(os.environ.get("RABBET_TEST_JOIN_SECONDS", "60"))
    communicator = parallel.communicator(gpu=_GPU, seconds=seconds)
    results = []
    for case in cases:
        print(f"case {len(results)}: {case['steps']} {case['dtype']}", file=sys.stderr)
        results.append(run(case, communicator))
    Path(sys.argv[2]).write_bytes(pickle.dumps(results))
    communicator.close()


if __name__ == "__main__":
    main()
