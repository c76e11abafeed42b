"""One layer split over GPUs: each rank multiplies by its rows of the weights, and an
all-reduce sums the products.

    python examples/collective/run.py --ranks 2
"""

from __future__ import annotations

import argparse
import os
import sys

import numpy as np
import rabbet as trt
from rabbet import parallel

ROWS, INNER, COLUMNS = 4, 64, 16


def weights() -> np.ndarray:
    """The whole layer's, the same on each rank."""
    return np.random.default_rng(0).standard_normal((INNER, COLUMNS)).astype("f4")


def build(place: parallel.Place, gpu: int) -> trt.Model:
    """This rank's part of the layer."""
    each = INNER // place.ranks
    mine = weights()[place.rank * each : (place.rank + 1) * each]
    log = trt.Logger(trt.Logger.WARNING)
    builder = trt.Builder(log)
    network = builder.create_network(0)
    x = network.add_input("x", trt.float32, (ROWS, each))
    w = network.add_constant(mine.shape, np.ascontiguousarray(mine)).get_output(0)
    none = trt.MatrixOperation.NONE
    product = network.add_matrix_multiply(x, none, w, none).get_output(0)
    layer = network.add_dist_collective(
        product, trt.CollectiveOperation.ALL_REDUCE, trt.ReduceOperation.SUM, -1, None
    )
    layer.num_ranks = place.ranks
    network.mark_output(layer.get_output(0))
    config = builder.create_builder_config()
    config.device = f"cuda:{gpu}"
    config.clear_flag(trt.BuilderFlag.TF32)  # to compare with NumPy
    plan = builder.build_serialized_network(network, config)
    return trt.Model(trt.Runtime(log).deserialize_cuda_engine(plan))


def work() -> None:
    """One rank."""
    place = parallel.place()
    gpu = place.local_rank % parallel.gpu_count()
    with parallel.communicator(gpu=gpu) as communicator:
        compute(place, build(place, gpu), communicator)


def compute(
    place: parallel.Place, model: trt.Model, communicator: parallel.Communicator
) -> None:
    """This rank's share, and the sum."""
    model.set_communicator(communicator)
    x = np.random.default_rng(1).standard_normal((ROWS, INNER)).astype("f4")
    y = model(np.ascontiguousarray(np.split(x, place.ranks, 1)[place.rank]))
    error = float(np.abs(np.array(y) - x @ weights()).max())
    print(f"rank {place.rank} of {place.ranks}: largest error {error:.1e}", flush=True)
    if error > 1e-3:
        raise SystemExit("the ranks' sum is not the layer's result")


def main() -> int:
    """Starts the ranks, or is one."""
    if "RANK" in os.environ:
        work()
        return 0
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    ranks = parser.parse_args().ranks
    if ranks < 1 or INNER % ranks:
        parser.error(f"--ranks is {ranks}; expected a divisor of {INNER}")
    try:
        found = parallel.gpu_count()
    except trt.UnavailableError as error:
        raise SystemExit(f"this example needs {ranks} GPUs: {error}") from None
    shared = os.environ.get("RABBET_EXAMPLE_SHARE_GPUS")  # the tests' stand-in has one
    if found < ranks and not shared:
        raise SystemExit(f"this example needs {ranks} GPUs, and there are {found}")
    return parallel.launch(ranks, [__file__])


if __name__ == "__main__":
    sys.exit(main())
