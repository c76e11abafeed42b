"""Non-zero: how many rows the output has is known only after the run.

python non_zero.py
"""

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


def make_model() -> trt.Model:
    network = trt.Builder(trt.Logger()).create_network()
    x = network.add_input("x", trt.float32, (-1, 5))
    layer = network.add_plugin(trtp.op.example.non_zero(x))
    network.mark_output(layer.get_output(0))
    return trt.compile(network, shapes={"x": ((1, 5), (4, 5), (64, 5))})


def main() -> None:
    model = make_model()
    random = np.random.default_rng(0)
    for rows in (1, 4, 33):
        x = random.integers(0, 2, (rows, 5)).astype(np.float32)
        found = model(x)
        np.testing.assert_array_equal(found, np.argwhere(x))
        print(f"non_zero: {len(found)} of {x.size} elements")


if __name__ == "__main__":
    main()
