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
    """What ONNX Runtime computes."""
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
    builder = trt.Builder(log)
    network = builder.create_network()
    trt.OnnxParser(network, log).parse(model.SerializeToString())
    config = builder.create_builder_config()
    config.device, config.builder_optimization_level = DEVICE, level
    profile = builder.create_optimization_profile()
    for i in range(network.num_inputs):
        tensor = network.get_input(i)
        shapes = [run[tensor.name].shape for run in runs]
        sizes = [run[tensor.name].ravel() for run in runs]
        if -1 in tuple(tensor.shape):
            least, most = (tuple(f(shapes, axis=0)) for f in (np.min, np.max))
            profile.set_shape(tensor.name, least, shapes[0], most)
        if tensor.is_shape_tensor and values:
            least, most = (f(sizes, axis=0).tolist() for f in (np.min, np.max))
            profile.set_shape_input(tensor.name, least, sizes[0].tolist(), most)
    config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)
    return trt.Model(trt.Runtime(log).deserialize_cuda_engine(plan))


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
