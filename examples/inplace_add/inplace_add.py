"""Addition in place: the output is the input's memory."""

import numpy as np
import rabbet.plugin as trtp


@trtp.register("example::inplace_add")
def describe(x: trtp.TensorDesc, value: float) -> trtp.TensorDesc:
    return x.aliased()


@trtp.impl("example::inplace_add")
def run(x, value: float, outputs, stream):
    y = np.from_dlpack(outputs[0])  # the same memory as x
    y += np.float32(value)
