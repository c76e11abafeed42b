"""Splits a model over ranks, shows what was split, and checks the ranks' results.

    python examples/parallel/split.py                           # a small perceptron
    python examples/parallel/split.py model.onnx --ranks 4 --shape ids=1x16
    python examples/parallel/split.py model.onnx --ranks 2 --pipeline    # stages of layers
    python examples/parallel/split.py model.onnx --pipeline --cut /h.3/out --cut /h.7/out
    python examples/parallel/split.py model.onnx --plugins my_ops.py     # operators of one's own

No GPU is needed: all ranks are computed on the CPU, in one network where collectives are
sums and concatenations, and stages follow each other, and compared with the model as it is.
The weights of both must fit into memory.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import numpy as np
import rabbet
from rabbet import parallel


def perceptron(width: int = 256, inner: int = 1024) -> Any:
    """x + down(silu(gate(x)) * up(x))"""
    random = np.random.default_rng(0)
    network = rabbet.Builder(rabbet.Logger()).create_network()
    x = network.add_input("x", rabbet.float32, (-1, width))

    def product(a: Any, rows: int, columns: int) -> Any:
        weights = random.standard_normal((rows, columns)).astype(np.float32) / rows**0.5
        b = network.add_constant((rows, columns), rabbet.Weights(weights)).get_output(0)
        none = rabbet.MatrixOperation.NONE
        return network.add_matrix_multiply(a, none, b, none).get_output(0)

    def combined(a: Any, b: Any, how: Any) -> Any:
        return network.add_elementwise(a, b, how).get_output(0)

    times, plus = rabbet.ElementWiseOperation.PROD, rabbet.ElementWiseOperation.SUM
    gate = product(x, width, inner)
    sigmoid = network.add_activation(gate, rabbet.ActivationType.SIGMOID).get_output(0)
    both = combined(combined(gate, sigmoid, times), product(x, width, inner), times)
    y = combined(product(both, inner, width), x, plus)
    y.name = "y"
    network.mark_output(y)
    return network


def feeds_of(network: Any, shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    """Random inputs; extents that are open are 2, unless `shapes` gives them."""
    random = np.random.default_rng(1)
    tensors = [network.get_input(i) for i in range(network.num_inputs)]
    names = [tensor.name for tensor in tensors]
    if unknown := sorted(shapes.keys() - set(names)):
        raise rabbet.InvalidArgumentError(
            f"--shape names '{unknown[0]}'; the model's inputs are {', '.join(names)}"
        )
    feeds = {}
    for tensor in tensors:
        shape = shapes.get(tensor.name) or tuple(
            n if n >= 0 else 2 for n in tensor.shape
        )
        kind = rabbet.nptype(tensor.dtype)
        if np.issubdtype(kind, np.floating):
            feeds[tensor.name] = random.standard_normal(shape).astype(kind)
        else:
            feeds[tensor.name] = random.integers(0, 2, shape).astype(kind)
    return feeds


def run(model: Any, feeds: dict[str, Any]) -> dict[str, Any]:
    shapes = {name: value.shape for name, value in feeds.items()}
    built = rabbet.compile(model, device="cpu", shapes=shapes, optimization_level=0)
    return built.run(feeds)


def options_of() -> argparse.Namespace:
    """The command line's, checked; `shape` becomes {input: shape}."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", nargs="?", help="an ONNX file")
    parser.add_argument("--ranks", type=int, help="how many GPUs (2)")
    parser.add_argument(
        "--pipeline", action="store_true", help="each has a stage of layers"
    )
    parser.add_argument(
        "--cut", action="append", metavar="NAME[+NAME]", help="where a stage ends"
    )
    parser.add_argument("--shape", action="append", default=[], help="INPUT=2x7")
    parser.add_argument(
        "--plugins", nargs="+", default=[], help="files (.py, .so) of operators"
    )
    options = parser.parse_args()
    shapes = {}
    for text in options.shape:
        name, _, extents = text.rpartition("=")
        if not name or not all(n.isdigit() for n in extents.split("x")):
            parser.error(f"--shape: expected INPUT=2x7, got '{text}'")
        shapes[name] = tuple(int(n) for n in extents.split("x"))
    options.shape = shapes
    if options.cut and not options.pipeline:
        parser.error("--cut is of --pipeline")
    if options.ranks is None:
        options.ranks = len(options.cut) + 1 if options.cut else 2
    if options.ranks < 2:
        parser.error(f"--ranks: expected 2 or more, got {options.ranks}")
    if options.model and not os.path.isfile(options.model):
        parser.error(f"there is no file '{options.model}'")
    return options


def show(options: argparse.Namespace) -> None:
    """What was split, and whether the ranks' results are the model's."""
    rabbet.load_plugins(options.plugins)
    model = options.model or perceptron()
    if options.pipeline:
        cuts = options.cut and [tuple(names.split("+")) for names in options.cut]
        split = parallel.pipeline(model, options.ranks, cuts)
    else:
        split = parallel.tensor(model, options.ranks)
    print(split)
    emulation = split.emulation()
    feeds = feeds_of(emulation, options.shape)
    found, wanted = run(emulation, feeds), run(options.model or perceptron(), feeds)
    largest = 0.0
    for name, want in wanted.items():
        scale = max(np.abs(np.asarray(want, np.float64)).max(initial=0), 1e-30)
        difference = np.asarray(found[name], np.float64) - want
        largest = max(largest, np.abs(difference).max(initial=0) / scale)
    print(f"largest relative difference from the whole model: {largest:.1e}")
    if not largest < 1e-2:
        raise SystemExit("the ranks' results differ")
    print("equal")


def main() -> None:
    options = options_of()
    try:
        show(options)
    except rabbet.Error as error:  # of the model, a shape, a cut
        raise SystemExit(f"split.py: {error}") from None


if __name__ == "__main__":
    main()
