"""How much of its weights a process holds: once, whether kernels pack them or not."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

LAYERS, DEPTH, ROWS = 4, 1536, 48
WEIGHTS = LAYERS * DEPTH * DEPTH * 4  # bytes

PROGRAM = """
import ctypes
import sys
import numpy as np
import onnx
from onnx import helper, numpy_helper
import rabbet

def resident():
    # What was freed is not held, wherever the heap keeps it.
    getattr(ctypes.CDLL(None), "malloc_trim", lambda pad: 0)(0)
    with open("/proc/self/status") as status:
        found = dict(line.split(":", 1) for line in status)
    return int(found["VmRSS"].split()[0]) * 1024

def write(path, pad, layers):
    rng = np.random.default_rng(1)
    nodes, weights = [], []
    for i in range(layers):
        data = rng.standard_normal(({depth}, {depth})).astype(np.float32) / {depth} ** 0.5
        weights.append(numpy_helper.from_array(data, f"w{{i}}"))
        nodes.append(helper.make_node("MatMul", [f"x{{i}}", f"w{{i}}"], [f"x{{i + 1}}"]))
    ends = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ({rows}, {depth}))
        for name in ("x0", f"x{{layers}}")
    ]
    graph = helper.make_graph(nodes, "g" * (1 + pad), ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, ir_version=9), path)

def compiled(layers):
    write(folder + "/m.onnx", pad, layers)
    plan = dict(save=folder + "/m.plan") if is_saved else {{}}
    return rabbet.compile(folder + "/m.onnx", device="cpu", threads=1, **plan)

folder, pad, is_saved = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "saved"
x = np.random.default_rng(2).standard_normal(({rows}, {depth})).astype(np.float32)
compiled(1)(x)  # the libraries' own memory
before = resident()
built = compiled({layers})
y = built(x)
now = resident()
proto = onnx.load(folder + "/m.onnx")
expected = x
for w in proto.graph.initializer:
    expected = expected @ numpy_helper.to_array(w)
np.testing.assert_allclose(y, expected, atol=1e-3)
print("resident", now - before)
"""


@pytest.mark.parametrize("form", ["saved", "in memory"])
@pytest.mark.parametrize("pad", [0, 1, 2])
def test_weights_are_held_once(tmp_path: Path, pad: int, form: str) -> None:
    """pad: moves the weights in the file, whose addresses may be no multiples of 4."""
    program = PROGRAM.format(layers=LAYERS, depth=DEPTH, rows=ROWS)
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path), str(pad), form],
        check=True,
        capture_output=True,
        text=True,
    )
    (found,) = re.findall(r"resident (-?\d+)", done.stdout)
    assert int(found) < 1.25 * WEIGHTS
