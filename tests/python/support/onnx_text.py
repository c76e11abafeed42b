"""Models in ONNX's text format, compared with ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import rabbet as trt
from onnx import parser

DEVICE = "cpu"


def model_of(
    inputs: str, outputs: str, body: str, opset: int = 18, ir: int = 8
) -> onnx.ModelProto:
    """A model of nodes in ONNX's text format."""
    return parser.parse_model(
        f'<ir_version: {ir}, opset_import: ["" : {opset}, "com.microsoft" : 1]>'
        f"g ({inputs}) => ({outputs}) {{ {body} }}"
    )


def expected(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    """The outputs of ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"])  # fmt: skip
    return list(session.run(None, feeds))


def compiled(
    model: onnx.ModelProto,
    runs: list[dict[str, Any]],
    values: bool = True,
    level: int = 0,
) -> trt.Model:
    """For all shapes and sizes of the runs; those of the first are the usual ones.
    values: the profile says which sizes inputs have."""
    log = trt.Logger(trt.Logger.INTERNAL_ERROR)
    network = trt.Builder(log).create_network()
    source = model.SerializeToString()
    trt.OnnxParser(network, log).parse(source)
    shapes, sizes = {}, {}
    for tensor in map(network.get_input, range(network.num_inputs)):
        given = [np.asarray(run[tensor.name]) for run in runs]
        if -1 in tuple(tensor.shape):
            shapes[tensor.name] = _range([array.shape for array in given])
        if tensor.is_shape_tensor and values:
            sizes[tensor.name] = _range([array.ravel() for array in given])
    return trt.compile(source, device=DEVICE, shapes=shapes, values=sizes,
                       optimization_level=level, logger=log)  # fmt: skip


def _range(each: list[Any]) -> tuple[list[int], list[int], list[int]]:
    """(min, opt, max) of lists of numbers, of which the first is the usual one."""
    least, most = (f(each, axis=0).tolist() for f in (np.min, np.max))
    return least, list(map(int, each[0])), most


def check(
    model: onnx.ModelProto,
    runs: list[dict[str, Any]],
    values: bool = True,
    level: int = 0,
    most: float = 1e-5,
) -> trt.Model:
    """Runs it at all of them. most: the largest difference, relative and absolute."""
    made = compiled(model, runs, values, level)
    for run in [*runs, runs[0]]:
        found = made.run(run)
        for output, want in zip(model.graph.output, expected(model, run), strict=True):
            got = np.asarray(found[output.name])
            assert (got.shape, got.dtype) == (want.shape, want.dtype), output.name
            if got.dtype.kind in "iu":
                got, want = got.astype(np.int64), want.astype(np.int64)
            np.testing.assert_allclose(got, want, rtol=most, atol=most)
    return made
