"""A rank of test_stages_overlap: each stage just calls in a loop, and rank 1 does not end a run
before rank 0 is in the next one.

Listeners of tensors between layers run within a run: rank 0's says that one has begun. Rank 1's,
once it has received the tensor of a run, waits for rank 0 to begin the next one: in vain if that
could not before rank 1 has ended its own."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import rabbet as trt
from rabbet import parallel

from tests.gpu import cuda_driver

RUNS, SECONDS = 4, 60.0
SHAPE = (3, 8)


def model() -> Any:
    """relu(relu(x a) b), and x for each run, a and b."""
    random = np.random.default_rng(1)
    network = trt.Builder(trt.Logger()).create_network()
    x = network.add_input("x", trt.float32, (-1, 8))
    weights = [random.standard_normal((8, 8)).astype(np.float32) for _ in range(2)]
    for i, weight in enumerate(weights):
        none = trt.MatrixOperation.NONE
        b = network.add_constant((8, 8), trt.Weights(weight)).get_output(0)
        x = network.add_matrix_multiply(x, none, b, none).get_output(0)
        x.name = f"product{i}"
        x = network.add_activation(x, trt.ActivationType.RELU).get_output(0)
        x.name = f"y{i}"
    network.mark_output(x)
    return network, random.standard_normal((RUNS, *SHAPE)).astype(np.float32), weights


class Listener(trt.IDebugListener):
    """Of what a rank's layers make. It acts once in each run: at the first layer, or on rank 1
    at the one that receives."""

    def __init__(self, folder: Path, rank: int) -> None:
        super().__init__()
        self.folder, self.rank, self.run = folder, rank, 0
        self.names: list[str] = []  # in this run

    def process_debug_tensor(
        self, addr: int, location: Any, type: Any, shape: Any, name: str, stream: int
    ) -> bool:
        self.names.append(name)
        if self.rank == 0:
            (self.folder / f"begun{self.run}").touch()
        elif name == "y0" and self.run + 1 < RUNS:
            sync = cuda_driver.driver().cuStreamSynchronize
            cuda_driver.check(sync(ctypes.c_void_p(stream)), "cuStreamSynchronize")
            self._wait_for(self.folder / f"begun{self.run + 1}")
        return True

    def _wait_for(self, file: Path) -> None:
        until = time.monotonic() + SECONDS
        while not file.exists():
            if time.monotonic() > until:
                (self.folder / "late").touch()
                return
            time.sleep(0.002)


def main() -> None:
    """All runs of this rank; rank 1 checks the results."""
    rank, folder = parallel.place().rank, Path(os.environ["RABBET_RENDEZVOUS"])
    network, inputs, weights = model()
    split = parallel.pipeline(network, 2, ["y0"])
    mine = split.network(rank)
    assert mine.mark_unfused_tensors_as_debug_tensors()
    built = trt.compile(
        mine, device="cuda", tf32=False, optimization_level=0,
        shapes={"x": SHAPE},
    )  # fmt: skip
    context = built.create_execution_context()
    listener = Listener(folder, rank)
    context.set_debug_listener(listener)
    context.unfused_tensors_debug_state = True
    with parallel.communicator(gpu=0, seconds=SECONDS) as communicator, (
        cuda_driver.memory(ctypes.sizeof(ctypes.c_float) * inputs[0].size)
    ) as address:  # fmt: skip
        context.set_communicator(communicator.capsule)
        context.set_input_shape("x", SHAPE)
        context.set_tensor_address("x", address)
        if rank == 1:
            context.set_tensor_address("y1", address)
        for x in inputs:
            if rank == 0:
                cuda_driver.write(address, x)
            if not context.execute_async_v3(0):
                sys.exit("the run failed")
            if rank == 1:  # it received, and then computed
                assert listener.names[-2:] == ["y0", "y1"], listener.names
            listener.names.clear()
            listener.run += 1
            if rank == 1:
                want = np.maximum(np.maximum(x @ weights[0], 0) @ weights[1], 0)
                found = cuda_driver.read(address, SHAPE)
                np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)
        del context


if __name__ == "__main__":
    main()
