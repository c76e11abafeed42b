"""A model of more than 4 GiB, built and run in a process whose own memory is limited."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

WIDTH = 1024
ROWS = (9 << 28) // WIDTH  # FP16: 4.5 GiB
FAR = (0, ROWS // 2, ROWS - 1)  # rows that are not zeros
OWN = 1 << 30  # bytes of memory of its own that the process may have

SCRIPT = """
import resource, sys
import numpy as np
import rabbet
resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[3]),) * 2)
rabbet.compile(sys.argv[1], device="cpu", threads=1, save=sys.argv[2])
model = rabbet.load(sys.argv[2], device="cpu")
rows = np.array([int(row) for row in sys.argv[4:]])
np.save(sys.argv[2] + ".npy", model(rows))
"""


def write_model(folder: Path) -> Path:
    """y = table[rows] with the table in a file with holes; row r has r's place in FAR,
    plus one, in each element."""
    with (folder / "table.bin").open("wb") as file:
        for place, row in enumerate(FAR):
            file.seek(row * WIDTH * 2)
            file.write(np.full(WIDTH, place + 1, np.float16).tobytes())
    table = TensorProto(name="table", data_type=TensorProto.FLOAT16, dims=(ROWS, WIDTH))
    table.data_location = TensorProto.EXTERNAL
    table.external_data.add(key="location", value="table.bin")
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "rows"], ["y"])],
        "large",
        [helper.make_tensor_value_info("rows", TensorProto.INT64, (len(FAR) + 1,))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, (len(FAR) + 1, WIDTH))],
        [table],
    )
    path = folder / "large.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


@pytest.mark.full
def test_more_than_4_gib(tmp_path: Path) -> None:
    model, plan = write_model(tmp_path), tmp_path / "large.plan"
    rows = [*FAR, FAR[1] + 1]
    try:
        subprocess.run(
            [sys.executable, "-c", SCRIPT, str(model), str(plan), str(OWN)]
            + [str(row) for row in rows],
            check=True,
            timeout=600,
        )
        assert plan.stat().st_size > ROWS * WIDTH * 2
        found = np.load(f"{plan}.npy")
        np.testing.assert_array_equal(found[:, 0], [1, 2, 3, 0])
        np.testing.assert_array_equal(found, found[:, :1].repeat(WIDTH, 1))
    finally:
        plan.unlink(missing_ok=True)
        (tmp_path / "table.bin").unlink()
