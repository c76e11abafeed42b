"""Addition in place: the output is the input's memory.

python inplace_add.py
python inplace_add.py --device cuda    (with torch)
"""

import argparse

import numpy as np
import rabbet as trt
import rabbet.plugin as trtp


@trtp.register("example::inplace_add")
def describe(x: trtp.TensorDesc, value: float) -> trtp.TensorDesc:
    return x.aliased()


@trtp.impl("example::inplace_add", device="cpu")
def run(x, value: float, outputs, stream):
    y = np.from_dlpack(outputs[0])  # the same memory as x
    y += np.float32(value)


@trtp.impl("example::inplace_add", device="cuda", capturable=True)
def run_on_gpu(x, value: float, outputs, stream):
    import torch

    torch.as_tensor(outputs[0], device="cuda").add_(value)


def make_model(device: str = "cpu") -> trt.Model:
    """y = x + 1 + 2, z = x * 10: x has a second reader, so that it is copied once."""
    network = trt.Builder(trt.Logger()).create_network()
    x = network.add_input("x", trt.float32, (2, 3))
    y = x
    for value in (1.0, 2.0):
        layer = network.add_plugin(trtp.op.example.inplace_add(y, value=value))
        y = layer.get_output(0)
    y.name = "y"
    ten = network.add_constant((1, 1), np.full((1, 1), 10, np.float32)).get_output(0)
    z = network.add_elementwise(x, ten, trt.ElementWiseOperation.PROD).get_output(0)
    z.name = "z"
    network.mark_output(y)
    network.mark_output(z)
    return trt.compile(network, device=device)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    model = make_model(parser.parse_args().device)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for _ in range(4):  # on a GPU, as kernels and by a graph
        y, z = model(x)
        np.testing.assert_array_equal(y, np.arange(6).reshape(2, 3) + 3)
        np.testing.assert_array_equal(z, x * 10)
        np.testing.assert_array_equal(x, np.arange(6).reshape(2, 3))
    print("inplace_add: x + 3 and 10 x, and x is as it was")


if __name__ == "__main__":
    main()
