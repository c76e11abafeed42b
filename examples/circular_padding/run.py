"""Pads an array by one of the operators beside this file, and checks it.

python run.py circ_pad_numpy.py
"""

import sys
from pathlib import Path

import numpy as np
import rabbet as trt
import rabbet.plugin as trtp


def pad_by_network(x: np.ndarray, pad: int) -> np.ndarray:
    """A network of the one operator, made through the object interface."""
    builder = trt.Builder(trt.Logger(trt.Logger.WARNING))
    network = builder.create_network(
        1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    )
    dtype = trt.float16 if x.dtype == np.float16 else trt.float32
    tensor = network.add_input("x", dtype, x.shape)
    layer = network.add_plugin(trtp.op.example.circ_pad_plugin(tensor, pad=pad))
    network.mark_output(layer.get_output(0))
    model = trt.compile(network)
    return model(x)


def main(operator: Path) -> None:
    trt.load_plugins(operator)
    x = np.random.default_rng(0).normal(size=(2, 3, 16, 20)).astype(np.float32)
    y = pad_by_network(x, pad=3)
    expected = np.pad(x, ((0, 0), (0, 0), (3, 3), (3, 3)), mode="wrap")
    np.testing.assert_array_equal(y, expected)
    print(f"{operator.name}: {x.shape} -> {y.shape}, equal to numpy.pad")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "circ_pad_numpy.py"))
