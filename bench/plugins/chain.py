"""Two operators for chains: one that does nothing, and one that adds 1."""

import numpy as np
import rabbet.plugin as trtp


@trtp.register("bench::noop")
def noop_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()


@trtp.impl("bench::noop")
def noop(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
    pass


@trtp.register("bench::add_one")
def add_one_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()


@trtp.impl("bench::add_one")
def add_one(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
    np.add(np.asarray(x), 1, out=np.asarray(outputs[0]))
