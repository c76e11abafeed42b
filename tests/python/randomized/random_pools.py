"""Pooling nodes at random, against ONNX Runtime.

python -m tests.python.randomized.random_pools FIRST:END [cpu|cuda]
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import numpy as np
import onnxruntime as ort
import rabbet as trt
from onnx import helper

from tests.python.randomized.random_onnx import seeds

OPS = ["MaxPool", "AveragePool", "LpPool"]
PADS = ["NOTSET", "NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]


def case(seed: int) -> tuple[str, dict[str, Any], tuple[int, ...]]:
    """Operator, attributes and shape of the input."""
    rng = np.random.default_rng(seed)

    def some(low: int, high: int, count: int) -> list[int]:
        return [int(i) for i in rng.integers(low, high, count)]

    axes = int(rng.choice([1, 2, 2, 2, 3]))
    op = str(rng.choice(OPS))
    extents = some(1, 20, axes) if rng.random() < 0.7 else some(1, 5, axes)
    given: dict[str, Any] = {"kernel_shape": some(1, 6, axes), "strides": some(1, 5, axes)}
    if rng.random() < 0.3:
        given["dilations"] = some(1, 4, axes)
    auto = str(rng.choice(PADS))
    if auto != "NOTSET":
        given["auto_pad"] = auto
    elif rng.random() < 0.7:
        # Padding is smaller than the window, as ONNX Runtime wants it.
        given["pads"] = [int(rng.integers(0, k)) for k in 2 * given["kernel_shape"]]
    if rng.random() < 0.5:
        given["ceil_mode"] = 1
    if op == "AveragePool" and rng.random() < 0.5:
        given["count_include_pad"] = 1
    if op == "LpPool":
        given["p"] = int(rng.integers(1, 4))
    if auto.startswith("SAME"):  # ONNX Runtime finds its padding without dilations
        given.pop("dilations", None)
    return op, given, (*some(1, 4, 2), *extents)


def is_defined(given: dict[str, Any], shape: tuple[int, ...]) -> bool:
    """Whether padding and sizes follow from the specification: not where a window does
    not fit into the padded input, and ONNX Runtime rounds a negative quotient towards 0;
    nor where SAME asks for less padding than none, which its operators take in different
    ways."""
    axes = len(shape) - 2
    pads = given.get("pads", [0] * 2 * axes)
    gaps = given.get("dilations", [1] * axes)
    same = given.get("auto_pad", "").startswith("SAME")
    for i, (size, step) in enumerate(zip(shape[2:], given["strides"], strict=True)):
        reach = (given["kernel_shape"][i] - 1) * gaps[i] + 1
        spare = step - 1 if given.get("ceil_mode") else 0
        if same and (-(-size // step) - 1) * step + reach < size:
            return False
        if not same and size + pads[i] + pads[i + axes] + spare < reach:
            return False
    return True


def model_of(op: str, given: dict[str, Any], shape: Any) -> bytes:
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], ["y"], "pool", **given)], "pools",
        [helper.make_tensor_value_info("x", 1, shape)],
        [helper.make_tensor_value_info("y", 1, [None] * len(shape))],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 19)]
    text = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    return bytes(text)


def expected(op: str, given: dict[str, Any], x: Any) -> Any:
    """None: ONNX Runtime refuses it, or makes nothing."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(
            model_of(op, given, [None] * x.ndim), options,
            providers=["CPUExecutionProvider"])  # fmt: skip
        (y,) = session.run(None, {"x": x})
    except Exception:
        return None
    return y if y.size else None


def difference(seed: int, device: str, level: int = 0, dynamic: bool = False) -> str | None:
    """None: all is as it should be. "": there is nothing to compare with."""
    op, given, shape = case(seed)
    x = np.random.default_rng([seed, 1]).standard_normal(shape).astype(np.float32)
    want = expected(op, given, x) if is_defined(given, shape) else None
    if want is None:
        return ""
    ranges = {"x": (shape, shape, tuple(s + 3 for s in shape))} if dynamic else None
    text = model_of(op, given, [f"d{i}" for i in range(x.ndim)] if dynamic else shape)
    what = f"seed {seed}: {op} of {shape}, {given}{', dynamic' * dynamic}"
    try:
        found = np.asarray(trt.compile(
            text, device=device, shapes=ranges, optimization_level=level)(x))  # fmt: skip
    except Exception as error:
        return f"{what}: {error}"
    if found.shape != want.shape:
        return f"{what}: shape {found.shape}, expected {want.shape}"
    far = np.abs(found - want)
    if not (np.isclose(found, want, rtol=1e-4, atol=1e-5) | (found == want)).all():
        return f"{what}: {far.max()} away"
    return None


def main(text: str, device: str = "cpu") -> int:
    results: Counter[str] = Counter()
    for seed in seeds(text):
        for dynamic in (False, True):
            wrong = difference(seed, device, seed % 2 * 2, dynamic)
            word = "right" if wrong is None else "wrong" if wrong else "left out"
            results[word] += 1
            if wrong:
                print(wrong, flush=True)
    print(dict(results))
    return int(results["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
