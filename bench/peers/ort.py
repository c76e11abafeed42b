"""ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime


def _session(model: str | bytes, threads: int, library: str = "") -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if library:
        options.register_custom_ops_library(library)
    return onnxruntime.InferenceSession(
        model, options, providers=["CPUExecutionProvider"]
    )


class Model:
    """An ONNX file with inputs bound once; outputs go to the same memory."""

    def __init__(self, *, path: str, inputs: str, threads: int, **_: object) -> None:
        self.session = _session(path, threads)
        self.bind(inputs)

    def bind(self, inputs: str) -> None:
        self.binding = self.session.io_binding()
        with np.load(inputs) as arrays:
            for name, array in arrays.items():
                self.binding.bind_cpu_input(name, array)
        self.names = [output.name for output in self.session.get_outputs()]
        for name in self.names:
            self.binding.bind_output(name)

    def call(self) -> None:
        self.session.run_with_iobinding(self.binding)

    def outputs(self) -> dict[str, Any]:
        self.call()
        results = self.binding.copy_outputs_to_cpu()
        return dict(zip(self.names, results, strict=True))


class OnRabbet(Model):
    """The same session with Rabbet as its provider, which takes all nodes."""

    def __init__(self, *, path: str, inputs: str, threads: int, **_: object) -> None:
        import rabbet.onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        rabbet.onnxruntime.add_provider(options, threads=threads)
        self.session = onnxruntime.InferenceSession(path, options)
        self.bind(inputs)


class Chain:
    """PyOp nodes of onnxruntime-extensions in a row."""

    def __init__(
        self, *, length: int, shape: tuple[int, ...], body: str, **_: object
    ) -> None:
        import onnxruntime_extensions as extensions

        from ..chain import chain_model

        kind = extensions.PyCustomOpDef.dt_float

        @extensions.onnx_op(op_type="noop", inputs=[kind], outputs=[kind])
        def noop(x: Any) -> Any:
            return x

        @extensions.onnx_op(op_type="add_one", inputs=[kind], outputs=[kind])
        def add_one(x: Any) -> Any:
            return x + 1

        self.kept = (noop, add_one)
        model = chain_model(body, length, shape, domain="ai.onnx.contrib")
        library = extensions.get_library_path()
        self.session = _session(model.SerializeToString(), 1, library)
        self.feed = {"x": np.zeros(shape, np.float32)}

    def call(self) -> None:
        self.session.run(None, self.feed)

    def outputs(self) -> dict[str, Any]:
        return {"y": self.session.run(None, self.feed)[0]}
