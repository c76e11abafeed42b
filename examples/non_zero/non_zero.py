"""Non-zero: how many rows the output has is known only after the run."""

import numpy as np
import rabbet as trt
import rabbet.plugin as trtp


@trtp.register("example::non_zero")
def describe(x: trtp.TensorDesc) -> tuple[trtp.TensorDesc, trtp.TensorDesc]:
    most = x.shape_expr.numel()
    count = trtp.size_tensor(opt=most // 2, upper_bound=most)
    rows = trtp.from_shape_expr((count.expr(), x.ndim), dtype=trt.int32)
    return rows, count


@trtp.impl("example::non_zero")
def run(x, outputs, stream):
    rows = np.argwhere(np.from_dlpack(x)).astype(np.int32)
    np.from_dlpack(outputs[0].aliased(rows.shape))[...] = rows
    np.from_dlpack(outputs[1])[...] = len(rows)
