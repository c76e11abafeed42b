"""OpenVINO."""

from __future__ import annotations

from typing import Any

import numpy as np
import openvino as ov
from openvino import opset13


def _compile(model: Any, threads: int) -> Any:
    """Compiled for the shortest time of one call, in float32.

    Its own pinning is off, since it puts every model on the same cores.
    """
    settings = {
        "ENABLE_CPU_PINNING": False,
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
    }
    return ov.Core().compile_model(model, "CPU", settings)


class Model:
    """An ONNX file with inputs bound once."""

    def __init__(self, *, path: str, inputs: str, threads: int, **_: object) -> None:
        compiled = _compile(ov.Core().read_model(path), threads)
        self.request = compiled.create_infer_request()
        with np.load(inputs) as arrays:
            self.inputs = {name: np.array(array) for name, array in arrays.items()}
        for name, array in self.inputs.items():
            self.request.set_tensor(name, ov.Tensor(array, shared_memory=True))
        self.results = compiled.outputs

    def call(self) -> None:
        self.request.infer()

    def outputs(self) -> dict[str, Any]:
        self.call()
        # Folding can leave a result with several names.
        return {
            name: np.array(self.request.get_tensor(output).data)
            for output in self.results
            for name in output.get_names()
        }


class _PythonOp(ov.Op):
    """An operator evaluated in Python, its output like its input."""

    def __init__(self, inputs: Any = None) -> None:
        super().__init__(self, inputs)

    def validate_and_infer_types(self) -> None:
        kind, shape = self.get_input_element_type(0), self.get_input_partial_shape(0)
        self.set_output_type(0, kind, shape)

    def clone_with_new_inputs(self, new_inputs: Any) -> Any:
        return type(self)(new_inputs)

    def has_evaluate(self) -> bool:
        return True


class NoOp(_PythonOp):
    """Does nothing."""

    def evaluate(self, outputs: Any, inputs: Any) -> bool:
        return True


class AddOne(_PythonOp):
    """Adds one, to show that every operator of a chain runs."""

    def evaluate(self, outputs: Any, inputs: Any) -> bool:
        np.add(inputs[0].data, 1, out=outputs[0].data)
        return True


class Chain:
    """Operators in Python in a row."""

    def __init__(
        self, *, length: int, shape: tuple[int, ...], body: str, **_: object
    ) -> None:
        kind = {"noop": NoOp, "add_one": AddOne}[body]
        parameter = opset13.parameter(list(shape), np.float32, name="x")
        value = parameter
        for _index in range(length):
            value = kind([value])
        self.model = ov.Model([value], [parameter], "chain")
        self.request = _compile(self.model, 1).create_infer_request()
        self.x = np.zeros(shape, np.float32)
        self.request.set_input_tensor(ov.Tensor(self.x, shared_memory=True))

    def call(self) -> None:
        self.request.infer()

    def outputs(self) -> dict[str, Any]:
        self.call()
        return {"y": np.array(self.request.get_output_tensor().data)}
