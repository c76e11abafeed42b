"""A rank of test_cancel: rank 0 cancels a run that rank 1 does not make; both go on with
another communicator."""

from __future__ import annotations

import threading
import time

import numpy as np
import rabbet as trt
from rabbet import parallel

from tests.python.parallel import worker


def main() -> None:
    """Prints what happened."""
    step = {"op": "ALL_REDUCE", "reduce": "SUM"}
    case = {"dtype": "FLOAT", "shape": (4, 3), "ranks": 2, "steps": [step]}
    model = trt.Model(
        trt.Runtime(worker.LOG).deserialize_cuda_engine(worker.build(case))
    )
    x = np.ones((4, 3), np.float32)
    with parallel.communicator(gpu=0) as first, parallel.communicator(gpu=0) as second:
        model.set_communicator(first)
        assert np.array_equal(model(x), 2 * x)
        if first.rank == 0:
            timer = threading.Timer(0.3, model.cancel)
            timer.start()
            for _ in range(2):  # the run, and the next one, which does not begin
                try:
                    model(x)
                except trt.CancelledError as error:
                    print(error)
            timer.join()
        else:
            time.sleep(1)
        model.set_communicator(second)
        assert np.array_equal(model(x), 2 * x)
        print("went on")
        del model


if __name__ == "__main__":
    main()
