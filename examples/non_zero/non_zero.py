"""Non-zero: the number of rows of the output is data-dependent.

python non_zero.py
python non_zero.py --device cuda    (with torch)
"""

import argparse

import numpy as np
import rabbet as trt
import rabbet.plugin as trtp


@trtp.register("example::non_zero")
def describe(x: trtp.TensorDesc) -> tuple[trtp.TensorDesc, trtp.TensorDesc]:
    most = x.shape_expr.numel()
    count = trtp.size_tensor(opt=most // 2, upper_bound=most)
    rows = trtp.from_shape_expr((count.expr(), x.ndim), dtype=trt.int32)
    return rows, count


@trtp.impl("example::non_zero", device="cpu")
def run(x, outputs, stream):
    rows = np.argwhere(np.from_dlpack(x)).astype(np.int32)
    np.from_dlpack(outputs[0].aliased(rows.shape))[...] = rows
    np.from_dlpack(outputs[1])[...] = len(rows)


# torch.nonzero waits for the GPU, to know how much to allocate: no graph can hold it.
@trtp.impl("example::non_zero", device="cuda", capturable=False)
def run_on_gpu(x, outputs, stream):
    import torch

    rows = torch.nonzero(torch.as_tensor(x, device="cuda"))
    if len(rows) > 0:
        target = outputs[0].aliased(tuple(rows.shape))
        torch.as_tensor(target, device="cuda").copy_(rows)
    torch.as_tensor(outputs[1], device="cuda").fill_(len(rows))


def make_model(device: str = "cpu") -> trt.Model:
    network = trt.Builder(trt.Logger()).create_network()
    x = network.add_input("x", trt.float32, (-1, 5))
    layer = network.add_plugin(trtp.op.example.non_zero(x))
    network.mark_output(layer.get_output(0))
    shapes = {"x": ((1, 5), (4, 5), (64, 5))}
    return trt.compile(network, device=device, shapes=shapes)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    model = make_model(parser.parse_args().device)
    random = np.random.default_rng(0)
    for rows in (1, 4, 33):
        x = random.integers(0, 2, (rows, 5)).astype(np.float32)
        found = model(x)
        np.testing.assert_array_equal(found, np.argwhere(x))
        print(f"non_zero: {len(found)} of {x.size} elements")


if __name__ == "__main__":
    main()
